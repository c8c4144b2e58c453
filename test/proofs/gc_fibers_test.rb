# frozen_string_literal: true

require_relative "../test_helper"

# The collector keeps the objects that waiting fibers need. Each test runs on the main thread of a separate process, where a wait
# also checks whether it is in a signal trap.
class GCFibersTest < PenstockTest
  PRELUDE = <<~RUBY.freeze
    $LOAD_PATH << #{File.dirname(__dir__).dump}
    require "support/gc_pressure"
    require "support/plain_scheduler"
    include GCPressure
    SERVERS, TOPIC = ARGV
    def producer(servers = SERVERS, **kafka)
      Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": servers, log_level: 0, **kafka }
        yield config if block_given?
      end
    end
    def same(expected, actual) = expected == actual || abort("expected \#{expected.inspect}, got \#{actual.inspect}")
  RUBY

  def test_a_schedulers_fiber_group_is_kept_while_no_fiber_waits
    program(<<~RUBY)
      one = producer("127.0.0.1:1")
      handle = one.produce_async(topic: "t", payload: "x")
      SCHEDULERS = Array.new(5) { PlainScheduler.new }
      rounds = lambda do |scheduler|
        before = scheduler.given_way
        4.times do
          Fiber.schedule do
            handle.wait(max_wait_timeout_ms: 20)
          rescue Penstock::WaitTimeoutError
            nil
          end
        end
        scheduler.run
        scheduler.given_way - before
      end
      SCHEDULERS.each do |scheduler|
        Fiber.set_scheduler(scheduler)
        same true, rounds.call(scheduler) >= 4
        replace_garbage
        same true, rounds.call(scheduler) >= 4 # fewer rounds mean that a fiber blocked the thread, as in a trap
        Fiber.set_scheduler(nil)
      end
      one.close(timeout: 0)
    RUBY
  end

  # The scheduler keeps no reference to a blocked fiber, so only Penstock's reference keeps the fiber alive.
  def test_a_waiting_fiber_is_not_collected
    program(<<~RUBY)
      class Forgetful < PlainScheduler
        def initialize
          super
          @waiting = 0
        end

        def run
          turn until @waits.empty? && @waiting.zero? && @unblocked.empty?
        end

        def block(_blocker, _timeout = nil)
          @waiting += 1
          Fiber.yield
        ensure
          @waiting -= 1
        end

        private

        def let_the_unblocked_go_on
          @unblocked.shift.resume until @unblocked.empty?
        end
      end

      one = producer("linger.ms": 500)
      offsets = []
      scheduler = Forgetful.new
      Fiber.set_scheduler(scheduler)
      Array.new(21) { one.produce_async(topic: TOPIC, payload: "x") }.each { |handle| Fiber.schedule { offsets << handle.wait.offset } }
      replace_garbage
      Fiber.set_scheduler(nil)
      same [*0..20], offsets.sort
      one.close
    RUBY
  end

  private

  def program(text)
    ruby!(PRELUDE + text, cluster.bootstrap_servers, topic(partitions: 1), seconds: 60)
  end
end
