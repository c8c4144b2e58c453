# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/plain_scheduler"

# What schedulers may do to fibers that wait, beyond letting them go on: switch in the middle of a call, raise, drop them, fork.
class FiberAttackTest < PenstockTest
  SCHEDULER = File.join(__dir__, "support/plain_scheduler")

  # A program with a producer whose broker never answers; `handle` waits for ever.
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

  # As one whose lock another thread holds for a moment.
  def test_a_scheduler_may_switch_fibers_while_it_is_asked_to_let_one_go_on
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

  # As when the thread is interrupted there.
  def test_nobody_is_forgotten_when_the_scheduler_raises_instead_of_letting_a_fiber_go_on
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

  def test_in_a_child_a_fiber_that_was_opening_a_client_can_be_stopped
    one = unreachable_producer
    child = nil
    quiet_thread do
      scheduler = PlainScheduler.new
      Fiber.set_scheduler(scheduler)
      opening = nil
      Fiber.schedule do
        opening = Fiber.current
        one.produce_async(topic: "t", payload: "x")
      rescue RuntimeError
        exit!(3)
      end
      Fiber.schedule { child = fork { opening.raise("stopped") } }
      scheduler.run
    end.value
    assert_equal 3, exit_status(child)
    one.close(timeout: 0)
  end

  def exit_status(pid)
    status = nil
    eventually { status = Process.wait2(pid, Process::WNOHANG) }
    status.last.exitstatus
  ensure
    Process.kill(:KILL, pid) unless status
  end

  # What they waited for comes when they are gone.
  def test_fibers_that_are_forgotten_while_they_wait_keep_no_descriptor
    forget_waiting_fibers(3) # whatever opens descriptors once
    before = event_descriptors
    forget_waiting_fibers(10)
    assert_operator event_descriptors - before, :<=, 3 # the stack may remember one
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

  # ---- what drains a poller without a thread ----

  def reactor_producer
    producer("linger.ms": 0) { |config| config.polling.mode = :reactor }
  end

  def under(scheduler)
    quiet_thread do
      Fiber.set_scheduler(scheduler)
      result = nil
      Fiber.schedule { result = yield }
      scheduler.run
      result
    end.value
  end

  # A hook for Fiber.schedule that does something else when told to.
  class Hooked < PlainScheduler
    attr_accessor :hook

    def fiber(&block) = @hook ? @hook.call(block) : super
  end

  def test_an_interrupt_while_the_fiber_that_drains_is_made_is_not_lost
    name = topic
    one = reactor_producer
    scheduler = Hooked.new
    under(scheduler) do
      scheduler.hook = ->(_) { raise Interrupt }
      assert_raises(Interrupt) { one.produce_async(topic: name, payload: "x") }
    end
    eventually { one.queue_size.zero? } # a thread has taken over
  end

  def test_a_scheduler_that_makes_no_fiber_costs_no_message
    name = topic
    one = reactor_producer
    scheduler = Hooked.new
    report = under(scheduler) do
      scheduler.hook = ->(_) { raise FiberError, "no more" }
      one.produce_sync(topic: name, payload: "x")
    end
    assert_predicate report, :delivered?
  end

  def test_with_no_descriptor_left_a_message_is_delivered_all_the_same
    output = ruby!(<<~RUBY)
      require #{SCHEDULER.inspect}
      CLUSTER = Penstock::EmbeddedCluster.new
      CLUSTER.create_topic("t", partitions: 1)
      ONE = Penstock::Producer.new do |c|
        c.kafka = { "bootstrap.servers": CLUSTER.bootstrap_servers, "linger.ms": 0 }
        c.polling.mode = :reactor
      end
      ONE.produce_sync(topic: "t", payload: "x")
      Thread.new do
        Fiber.set_scheduler(scheduler = PlainScheduler.new)
        Fiber.schedule do
          taken = []
          Process.setrlimit(:NOFILE, 60)
          begin
            loop { taken << File.open(File::NULL) }
          rescue Errno::EMFILE
            handle = ONE.produce_async(topic: "t", payload: "x")
          end
          1_000.times { handle.pending? && sleep(0.01) }
          taken.each(&:close)
          print handle.delivered?
        end
        scheduler.run
      end.join
      ONE.close
    RUBY
    assert_equal "true", output
  end

  def test_when_the_fiber_that_drains_is_forgotten_with_its_scheduler_others_go_on
    name = topic
    one = reactor_producer
    forget_what_drains(one, name)
    clear_the_stack
    20.times do
      GC.start
      break if one.queue_size.zero? || sleep(0.1).nil?
    end
    report = under(PlainScheduler.new) { one.produce_async(topic: name, payload: "x").wait(max_wait_timeout_ms: 5_000) }
    assert_predicate report, :delivered?
  end

  # The scheduler takes the fiber and never runs it.
  def forget_what_drains(one, name)
    quiet_thread do
      scheduler = Hooked.new
      under(scheduler) do
        scheduler.hook = ->(block) { Fiber.new(blocking: false, &block) }
        one.produce_async(topic: name, payload: "x")
      end
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
