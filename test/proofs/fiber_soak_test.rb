# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/fiber_schedulers"

# Threads and fibers wait for the same messages. They are interrupted, cancelled and timed out at random, for
# PENSTOCK_SOAK_SECONDS.
class FiberSoakTest < PenstockTest
  include FiberSchedulers

  SECONDS = Float(ENV.fetch("PENSTOCK_SOAK_SECONDS", "4"))
  LONGEST = SECONDS + 120

  class Interrupted < StandardError; end

  def setup
    super
    @seed = Random.new_seed
    @handles = Thread::Queue.new
    @recent = []
    @happened = Thread::Queue.new # not a Mutex: Ruby 3.1 loses its wake-up if the woken fiber is cancelled
    @finished = now + SECONDS
  end

  def test_no_wake_up_is_lost_and_no_waiter_leaks
    senders = Array.new(2) do |i|
      one = producer("linger.ms": i * 2)
      name = topic
      quiet_thread { send_messages(one, name, Random.new(@seed + i)) }
    end
    others = [*schedulers, *interrupted_threads]
    (senders + others).each { |thread| assert thread.join(SECONDS + 60), "still waiting:\n#{thread.backtrace&.join("\n")}" }
    handles = Array.new(@handles.size) { @handles.pop }
    assert_equal true, Penstock::DeliveryHandle.await_all(handles, timeout: 20)
    assert_equal %i[cancelled delivered interrupted timed_out], Array.new(@happened.size) { @happened.pop }.uniq.sort
  rescue Minitest::Assertion => e
    raise e.class, "#{e.message} (seed #{@seed})", e.backtrace
  end

  private

  def count(what) = @happened << what

  def send_messages(one, name, random)
    while now < @finished
      handles = one.produce_many_async(Array.new(random.rand(1..5)) { { topic: name, payload: "x" } })
      handles.each { |handle| @handles << handle }
      @recent = handles # replaced atomically
      sleep(random.rand / 500)
    end
  end

  def schedulers
    (FiberSchedulers::KINDS * 2).map.with_index do |kind, i|
      quiet_thread { with_scheduler(kind, seconds: SECONDS + 20) { |fibers| soak(fibers, Random.new(@seed + 10 + i)) } }
    end
  end

  def soak(fibers, random)
    strands = []
    while now < @finished
      strands << fibers.start { wait_for_some(fibers, random) } while strands.size < 30
      sleep(random.rand / 1_000)
      strands.select { |strand| !strand.done? && random.rand < 0.02 }.each do |strand|
        fibers.cancel(strand)
        count(:cancelled)
      end
      done, strands = strands.partition(&:done?)
      done.each { |strand| check(strand) }
    end
    eventually(20, "a wake-up was lost") { strands.all?(&:done?) }
    strands.each { |strand| check(strand) }
  end

  # A cancelled fiber has the error Cancelled. No other error may occur.
  def check(strand)
    raise strand.error if strand.error && !strand.error.is_a?(Cancelled)
  end

  def wait_for_some(fibers, random)
    5.times do
      handle = @recent.sample(random:)
      next sleep(0.001) unless handle

      case random.rand(4)
      when 0 then limited(handle, random.rand * 3)
      when 1 then timed(fibers, handle, random.rand / 300)
      when 2 then count(:delivered) if Penstock::DeliveryHandle.await_all(@recent, timeout: nil)
      else count(:delivered) if handle.wait
      end
    end
  end

  def limited(handle, milliseconds)
    handle.wait(max_wait_timeout_ms: milliseconds)
  rescue Penstock::WaitTimeoutError
    count(:timed_out)
  end

  def timed(fibers, handle, seconds)
    fibers.timeout(seconds) { handle.wait }
  rescue fibers.timeout_error
    count(:timed_out)
  end

  # For each of these threads another thread only interrupts it.
  def interrupted_threads
    Array.new(2) { |i| quiet_thread { interruptible_waits(Random.new(@seed + 100 + i)) } }
  end

  def interruptible_waits(random)
    waiting = Thread.current
    Thread.handle_interrupt(Interrupted => :never) do
      interrupting = quiet_thread { interrupt(waiting, random) }
      wait_and_be_interrupted while now < @finished
      interrupting.join
      forget_interrupts
    end
  end

  def wait_and_be_interrupted
    Thread.handle_interrupt(Interrupted => :on_blocking) { @recent.sample ? @recent.sample.wait : sleep(0.001) }
  rescue Interrupted
    count(:interrupted)
  end

  # Handles interrupts that arrived after the last wait.
  def forget_interrupts
    Thread.handle_interrupt(Interrupted => :immediate) { Thread.pass } while Thread.pending_interrupt?
  rescue Interrupted
    retry
  end

  def interrupt(waiting, random)
    while now < @finished
      sleep(random.rand / 200)
      waiting.raise(Interrupted)
    end
  end
end
