# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/fiber_test_case"

# Fibers of one scheduler that wait for messages: which fibers a delivery result resumes, and when.
class FiberTest < FiberTestCase
  slow(/at_its_own_deadline/)

  SLACK = GCLevel.slow? ? 5 : 1.5 # seconds that a fiber may be late while other programs run
  FiberSchedulers::KINDS.each do |kind|
    define_method("test_all_fibers_that_wait_for_one_handle_resume_under_#{kind}") do
      handle, deliver = held_handle
      with_scheduler(kind) do |fibers|
        strands = Array.new(50) { fibers.start { handle.wait.offset } }
        assert strands.none?(&:done?)
        deliver.call
        assert_equal [1] * 50, strands.map(&:join)
      end
    end

    define_method("test_waiting_for_a_finished_handle_does_not_yield_under_#{kind}") do
      handle = producer.produce_async(topic:, payload: "x")
      with_scheduler(kind) do |fibers|
        handle.wait
        other = fibers.start { sleep }
        turned = 0
        counter = fibers.start { loop { sleep(turned += 1) if sleep(0) } }
        before = turned
        100.times { handle.wait }
        assert_equal before, turned
        [other, counter].each { |strand| fibers.cancel(strand) }
      end
    end

    define_method("test_each_fiber_resumes_at_its_own_deadline_under_#{kind}") do
      handle = stuck_producer.produce_async(MESSAGE)
      times = [2_400, 600, 1_800, 300, 1_200, 300, 900] # ms; the first fiber leads, and shorter timeouts join later
      late = with_scheduler(kind) do |fibers|
        times.map { |ms| fibers.start { seconds_of { timed_out(handle, ms) } - (ms / 1000.0) } }.map(&:join)
      end
      assert_operator late.min, :>, -0.005
      assert_took(-0.005..SLACK, late.max)
    end

    define_method("test_a_fiber_that_joins_an_unlimited_wait_keeps_its_shorter_deadline_under_#{kind}") do
      handle = stuck_producer.produce_async(MESSAGE)
      with_scheduler(kind) do |fibers|
        endless = fibers.start { handle.wait(max_wait_timeout_ms: nil) }
        sleep 0.05
        assert_took(0.195..(0.2 + SLACK), seconds_of { timed_out(handle, 200) })
        fibers.cancel(endless)
      end
    end

    define_method("test_cancelling_the_leader_makes_another_fiber_the_leader_under_#{kind}") do
      handle, deliver = held_handle
      with_scheduler(kind) do |fibers|
        strands = Array.new(10) { fibers.start { handle.wait.offset } }
        sleep 0.01
        [strands.shift, *strands.pop(3).reverse].each do |leader| # the latest follower becomes the leader
          fibers.cancel(leader)
          assert_predicate leader, :done?
          sleep 0.005
        end
        assert_equal 6, waiters(fibers.scheduler)
        deliver.call
        assert_equal [1] * 6, strands.map(&:join)
      end
    end

    define_method("test_cancelling_followers_unlinks_only_their_waiters_under_#{kind}") do
      handle, deliver = held_handle
      with_scheduler(kind) do |fibers|
        strands = Array.new(10) { fibers.start { handle.wait.offset } }
        strands.pop(9).each { |follower| fibers.cancel(follower) }
        assert_equal 1, waiters(fibers.scheduler)
        deliver.call
        assert_equal 1, strands[0].join
      end
    end

    define_method("test_all_fibers_can_be_cancelled_at_once_and_a_later_wait_works_under_#{kind}") do
      handle, deliver = held_handle
      with_scheduler(kind) do |fibers|
        Array.new(10) { fibers.start { handle.wait } }.reverse.each { |strand| fibers.cancel(strand) }
        assert_equal 0, waiters(fibers.scheduler)
        deliver.call
        assert_equal 1, handle.wait.offset
      end
    end

    define_method("test_a_timeout_ends_a_wait_and_the_next_one_works_under_#{kind}") do
      handle, deliver = held_handle
      with_scheduler(kind) do |fibers|
        others = Array.new(3) { fibers.start { handle.wait.offset } }
        elapsed = seconds_of { assert_raises(fibers.timeout_error) { fibers.timeout(0.1) { handle.wait } } }
        assert_took(0.095..(0.1 + SLACK), elapsed)
        deliver.call
        assert_equal [1] * 4, [handle.wait.offset, *others.map(&:join)]
      end
    end

    define_method("test_two_threads_with_a_#{kind}_scheduler_each_share_a_producer") do
      one = producer
      name = topic
      offsets = Array.new(2) do
        quiet_thread do
          with_scheduler(kind) do |fibers|
            Array.new(20) { fibers.start { Array.new(10) { one.produce_sync(topic: name, payload: "x", partition: 0).offset } } }
                 .flat_map(&:join)
          end
        end
      end.flat_map(&:value)
      assert_equal (0...400).to_a, offsets.sort
    end

    define_method("test_a_fiber_can_wait_for_a_message_that_another_fiber_sends_under_#{kind}") do
      one = producer
      name = topic
      with_scheduler(kind) do |fibers|
        handles = Thread::Queue.new
        waiting = fibers.start { Array.new(50) { handles.pop.wait.delivered? } }
        50.times { handles << one.produce_async(topic: name, payload: "x") }
        assert_equal [true] * 50, waiting.join
      end
    end

    define_method("test_a_blocking_fiber_blocks_the_thread_of_a_#{kind}_scheduler") do
      handle = stuck_producer.produce_async(MESSAGE)
      with_scheduler(kind) do |fibers|
        turned = false
        fibers.start do
          sleep 0.01
          turned = true
        end
        assert_took(0.195..(0.2 + SLACK), seconds_of { Fiber.new(blocking: true) { timed_out(handle, 200) }.resume })
        refute turned
      end
    end
  end

  # behaviour: A fiber scheduler's other fibers go on while produce_sync waits
  def test_a_wait_in_a_fiber_without_a_scheduler_blocks_its_thread
    handle = stuck_producer.produce_async(MESSAGE)
    elapsed = seconds_of { Fiber.new(blocking: false) { timed_out(handle, 200) }.resume }
    assert_took(0.195..(0.2 + SLACK), elapsed)
  end

  # Penstock's unblock wakes only fibers that wait in Penstock, not a program's own blocked fibers.
  def test_the_programs_own_waits_are_not_woken
    one = producer
    name = topic
    with_scheduler(:plain) do |fibers|
      sleepers = Array.new(5) { fibers.start { seconds_of { sleep 0.3 } } }
      queue = Thread::Queue.new
      popper = fibers.start { queue.pop }
      Array.new(5) { fibers.start { 20.times { one.produce_sync(topic: name, payload: "x") } } }.each(&:join)
      refute_predicate popper, :done?
      queue << :popped
      assert_equal :popped, popper.join
      assert_operator sleepers.map(&:join).min, :>, 0.295
    end
  end

  private

  def timed_out(handle, max_wait_timeout_ms)
    assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms:) }
  end

  # @return [Array(Penstock::DeliveryHandle, Proc)] the handle of a message with offset 1, and a block that sends the message
  def held_handle
    held = holding_producer
    name = topic(partitions: 1)
    held.produce_async(topic: name, payload: "x")
    held.flush
    [held.produce_async(topic: name, payload: "x"), -> { held.flush }]
  end
end
