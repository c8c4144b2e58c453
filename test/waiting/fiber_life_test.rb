# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/fiber_test_case"

# The resources of waiting fibers, and what happens to them when their scheduler, thread or process ends.
class FiberLifeTest < FiberTestCase
  FiberSchedulers::KINDS.each do |kind|
    define_method("test_500_waiting_fibers_need_one_descriptor_under_#{kind}") do
      handle = stuck_producer.produce_async(MESSAGE)
      with_scheduler(kind) do |fibers|
        before = descriptors
        strands = Array.new(500) { fibers.start { handle.wait } }
        assert_equal 500, waiters(fibers.scheduler)
        assert_operator descriptors - before, :<=, 2 # the eventfd, and possibly one of the scheduler for waiting on it
        strands.each { |strand| fibers.cancel(strand) }
      end
    end
  end

  def test_the_descriptor_is_closed_with_the_scheduler
    handle = stuck_producer.produce_async(MESSAGE)
    in_scheduler = -> { with_scheduler(:plain) { |fibers| fibers.start { assert_nil waited(handle, 5) }.join } }
    3.times { in_scheduler.call }
    collect
    before = descriptors
    30.times { in_scheduler.call }
    collect
    assert_operator descriptors - before, :<, 10
  end

  # If each wait leaked its waiter, this would be more than 2 MB.
  thorough slow def test_finished_waits_leak_no_memory
    handle = stuck_producer.produce_async(MESSAGE)
    with_scheduler(:plain) do |fibers|
      waits = lambda do |count|
        Array.new(50) { fibers.start { (count / 50).times { waited(handle, 0.01) } } }.each(&:join)
        collect
        resident_kib
      end
      rounds = GCLevel.slow? ? 500 : 20_000
      2.times { waits.call(rounds) }
      before = waits.call(rounds)
      assert_operator waits.call(rounds) - before, :<, 1_000
      assert_equal 0, waiters(fibers.scheduler)
    end
  end

  # defect 32
  def test_delivery_results_arrive_although_a_scheduler_with_waiting_fibers_was_dropped
    held = holding_producer
    name = topic(partitions: 1)
    handles = Array.new(5) { held.produce_async(topic: name, payload: "x") }
    dropped = 20.times.count { drop_scheduler_with_waiting(handles) }
    assert_equal 20, dropped
    collect
    held.flush
    assert_equal [*0..4], handles.map { |handle| handle.wait.offset }
  end

  # A dropped fiber may hold a turn to use queue space, and never runs again.
  thorough slow def test_dropped_fibers_that_wait_for_queue_space_block_no_other_thread
    full = holding_producer("queue.buffering.max.messages": 1)
    message = { topic: topic(partitions: 1), payload: "x" }
    full.produce_async(message)
    assert drop_scheduler_with_waiting([full] * 5) { |producer| producer.produce_async(message) }
    waiting = Thread.new { full.produce_async(message) }
    eventually { waiting.stop? }
    full.flush
    assert Slowness.join(waiting, 10), "a dropped fiber kept the queue space"
  end

  def test_delivery_results_arrive_although_a_thread_with_waiting_fibers_was_killed
    held = holding_producer
    handle = held.produce_async(topic: topic(partitions: 1), payload: "x")
    thread = quiet_thread do
      Fiber.set_scheduler(PlainScheduler.new)
      5.times { Fiber.schedule { handle.wait } }
    end
    eventually { thread.stop? }
    assert_same thread, Slowness.join(thread.kill, 5)
    held.flush
    assert_equal 0, handle.wait.offset
  end

  # A child that read the inherited descriptor would consume the parent's wake-up.
  def test_a_child_forked_in_a_fiber_consumes_no_wake_up_of_its_parent
    held = holding_producer
    name = topic(partitions: 1)
    handles = Array.new(3) { held.produce_async(topic: name, payload: "x") }
    with_scheduler(:plain) do |fibers|
      strands = handles.map { |handle| fibers.start { handle.wait.offset } }
      sleep 0.01
      child = fork_a_child { in_the_child(handles, held) }
      sleep 0.2 # the child waits meanwhile
      held.flush
      assert_equal 3, strands.map(&:join).uniq.size # the child's message may have an offset in between
      assert_equal "forked, persisted", child.call
    end
  end

  TRAP = <<~RUBY
    require ARGV[0]
    MESSAGE = { topic: "test", payload: "x" }.freeze
    producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 } }
    handle = producer.produce_async(MESSAGE)
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    def timed_out(handle, ms)
      start = now
      handle.wait(max_wait_timeout_ms: ms)
    rescue Penstock::WaitTimeoutError
      now - start
    end
    scheduler = PlainScheduler.new
    Fiber.set_scheduler(scheduler)
    trapped = turned = nil
    Signal.trap("USR1") do
      before = scheduler.given_way
      trapped = timed_out(handle, 300)
      turned = scheduler.given_way - before
    end
    waits = []
    3.times { |i| Fiber.schedule { waits[i] = timed_out(handle, 500 + i) } }
    Fiber.schedule do
      Process.kill(:USR1, Process.pid)
      sleep 0.01 until trapped
    end
    Fiber.set_scheduler(nil)
    abort "in the trap: \#{trapped}" unless trapped&.between?(0.29, 5)
    abort "the trap yielded to other fibers" unless turned == 0
    abort "in fibers: \#{waits}" unless waits.all? { |seconds| seconds.between?(0.49, 5) }
    abort "strays" unless scheduler.strays == 0
    producer.close(timeout: 0)
  RUBY

  def test_a_wait_in_a_trap_blocks_the_schedulers_thread_and_ends_at_its_timeout
    ruby!(TRAP, File.expand_path("../support/plain_scheduler", __dir__))
  end

  private

  # @return [nil]
  def waited(handle, milliseconds)
    handle.wait(max_wait_timeout_ms: milliseconds)
  rescue Penstock::WaitTimeoutError
    nil
  end

  def descriptors = Dir.children("/proc/self/fd").size

  def resident_kib = Integer(File.read("/proc/self/status")[/VmRSS:\s+(\d+)/, 1])

  def collect = 3.times { GC.start }

  # @return [Boolean] whether the fibers were waiting when their scheduler was dropped
  def drop_scheduler_with_waiting(handles, &block)
    block ||= :wait.to_proc
    scheduler = PlainScheduler.new
    def scheduler.close = nil
    Thread.new do
      Fiber.set_scheduler(scheduler)
      fibers = handles.map { |handle| Fiber.new(blocking: false) { block.call(handle) }.tap(&:resume) }
      fibers.all? { |fiber| scheduler.waiting?(fiber) } && waiters(scheduler) == handles.size
    end.value
  end

  # @return [Proc] a block that waits for the child's end and returns its output
  def fork_a_child
    reader, writer = IO.pipe
    pid = fork do
      reader.close
      writer.write(yield)
    rescue Exception => e # rubocop:disable Lint/RescueException -- the parent must see any error
      writer.write("#{e.class}: #{e.message}")
    ensure
      writer.close
      Process.exit!
    end
    writer.close
    Thread.new { Process.wait(pid) && reader.read }.method(:value).to_proc
  end

  # In a child Ruby runs no fiber of the parent. A scheduler created in the child works.
  def in_the_child(handles, producer)
    seen = handles.map do |handle|
      handle.wait && "ended"
    rescue Penstock::ForkedError
      "forked"
    end
    seen << Fiber.new(blocking: true) { wait_with_a_scheduler(handles[0].topic, producer) }.resume
    seen.uniq.join(", ")
  end

  def wait_with_a_scheduler(topic, producer)
    with_scheduler(:plain) do |fibers|
      handle = producer.produce_async(topic:, payload: "x")
      waiting = fibers.start { handle.wait.status.to_s }
      producer.flush
      waiting.join
    end
  end
end
