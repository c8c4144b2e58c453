# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/plain_scheduler"
require_relative "../support/slow_calls"

# Schedulers that do more than resume waiting fibers: they switch fibers inside a call, raise, drop fibers, or fork.
class FiberAttackTest < PenstockTest
  include SlowCalls

  SCHEDULER = File.join(__dir__, "../support/plain_scheduler")

  # A program with a producer whose broker never answers. Waiting for `handle` never ends.
  def pending_program(program)
    <<~RUBY
      require #{SCHEDULER.inspect}
      ONE = Penstock::Producer.new { |c| c.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 } }
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      def handle = @handle ||= ONE.produce_async(topic: "t", payload: "x")
      def wait(seconds) = handle.wait(max_wait_timeout_ms: seconds * 1000)
      def under(scheduler)
        Thread.new { Fiber.set_scheduler(scheduler); yield; scheduler.run }.join
      end
      #{program}
    RUBY
  end

  # A real scheduler does so when another thread holds its lock for a moment.
  def test_a_scheduler_may_switch_fibers_inside_unblock
    output = with_env("MALLOC_PERTURB_" => "165") do
      ruby!(pending_program(<<~RUBY))
        class Switching < PlainScheduler
          def unblock(blocker, fiber)
            super
            kernel_sleep(0.02) unless Fiber.current.blocking?
          end
        end
        ended = 0
        Thread.report_on_exception = false
        under(Switching.new) do
          Fiber.schedule { wait(0.5) rescue ended += 1 }
          at = now + 0.2
          20.times { Fiber.schedule { wait(at - now) rescue ended += 1 } }
        end
        print ended
        ONE.close(timeout: 0)
      RUBY
    end
    assert_equal "21", output
  end

  # A real scheduler raises if its thread is interrupted there.
  def test_every_fiber_resumes_even_if_the_schedulers_unblock_raises
    output = ruby!(pending_program(<<~RUBY))
      class Raising < PlainScheduler
        def unblock(blocker, fiber)
          @calls = @calls.to_i + 1
          raise "call \#{@calls}" if @calls.odd?
          super
        end
      end
      errors = []
      under(Raising.new) do
        Fiber.schedule { wait(1) rescue errors << $!.class }
        8.times { Fiber.schedule { wait(0.2) rescue errors << $!.class } }
      end
      print errors.size
      ONE.close(timeout: 0)
    RUBY
    assert_equal "9", output
  end

  # The client takes long to open, so the fiber surely waits when the process forks.
  def test_a_fork_child_can_stop_a_fiber_that_was_opening_a_client
    output = slow!(pending_program(<<~RUBY), new_ms: 500)
      opening = child = nil
      under(PlainScheduler.new) do
        Fiber.schedule do
          opening = Fiber.current
          handle
        rescue RuntimeError => error
          $stdout.syswrite(error.message)
          exit!
        end
        Fiber.schedule { child = fork { opening.raise("stopped") } }
      end
      Process.wait(child)
      ONE.close(timeout: 0)
    RUBY
    assert_equal "stopped", output
  end

  # Their message is settled after they were collected.
  def test_fibers_collected_while_they_wait_keep_no_descriptor_open
    forget_waiting_fibers(3) # opens descriptors that are created only once
    before = event_descriptors
    forget_waiting_fibers(10)
    assert_operator event_descriptors - before, :<=, 3 # a reference may remain on the stack
  end

  def event_descriptors
    Dir["/proc/self/fd/*"].count { |path| File.readlink(path).include?("eventfd") rescue false } # rubocop:disable Style/RescueModifier
  end

  def forget_waiting_fibers(times)
    one = unreachable_producer
    handle = one.produce_async(topic: "t", payload: "x")
    times.times { forget_a_waiting_fiber(handle) }
    clear_the_stack
    5.times { GC.start }
    one.purge
    assert_raises(Penstock::DeliveryError) { handle.wait }
    one.close
  end

  def forget_a_waiting_fiber(handle)
    quiet_thread do
      scheduler = PlainScheduler.new
      Fiber.set_scheduler(scheduler)
      3.times { Fiber.schedule { handle.wait } }
      scheduler.define_singleton_method(:run) { nil }
    end.join
  end

  def clear_the_stack(depth = 100) = depth.zero? ? nil : clear_the_stack(depth - 1)

  def with_env(variables)
    before = variables.to_h { |name, _| [name, ENV.fetch(name, nil)] }
    ENV.update(variables)
    yield
  ensure
    ENV.update(before)
  end
end
