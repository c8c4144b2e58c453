# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"
require_relative "../support/plain_scheduler"

# Consumer#keep_alive, #revoked?, and revocations that are held back.
class ConsumerKeepAliveTest < ConsumerTestCase
  include SharedCluster::ForGroups

  LONGEST_PAUSE = 2_500 # ms; the embedded cluster answers the first member after 3 s

  slow(/always_find|longer_than|revo|held|work_that|listener|limit/) # they join groups, which takes some seconds

  def setup
    super
    @topic = topic(partitions: 2)
    2.times { |partition| produce(@topic, Array.new(50) { |i| "#{partition}-#{i}" }, partition:) }
  end

  def member(**kafka, &block)
    group_consumer("group-#{@topic}", "heartbeat.interval.ms": 100, "session.timeout.ms": LONGEST_PAUSE,
                                      "max.poll.interval.ms": LONGEST_PAUSE, **kafka, &block).subscribe(@topic)
  end

  def first_batch(one, max: 10) = eventually { one.poll_batch(max:, timeout: 1).then { |batch| batch if batch.any? } }

  # Joins, in a thread that polls until the test is over.
  def joining(**kafka)
    other = member(**kafka)
    polling = true
    thread = quiet_thread { other.poll_batch(timeout: 0.2) while polling }
    yield other
  ensure
    polling = false
    thread&.join
    other&.close
  end

  %w[range cooperative-sticky].each do |assignor|
    define_method("test_work_longer_than_max_poll_interval_keeps_its_partitions_with_#{assignor.tr("-", "_")}") do
      one = member("partition.assignment.strategy": assignor)
      batch = first_batch(one)
      before = one.membership
      seen = one.keep_alive do
        sleep LONGEST_PAUSE * 3 / 1000.0
        one.revoked?(batch)
      end
      refute seen
      assert one.commit(batch)
      assert_equal before, one.membership
      messages = [*batch, *take(one, 90)]
      assert_equal((0...50).to_a * 2, messages.group_by(&:partition).sort.flat_map { |_, list| list.map(&:offset) })
    end
  end

  def test_without_keep_alive_long_work_loses_its_partitions
    one = member
    batch = first_batch(one)
    eventually { one.revoked?(batch) }
    refute one.mark(batch)
    assert_equal [:joining, nil], one.membership.to_a.first(2)
    assert_raises(Penstock::ConsumeError) { loop { one.poll(timeout: 1) } }
    refute one.mark(batch)
    eventually { one.poll(timeout: 0.1) || one.metrics.lost_partitions == 2 }
    assert_equal 2, one.metrics.lost_partitions
  end

  # Such polls take from the queue of messages only.
  thorough def test_polls_that_always_find_a_message_count_as_polling
    one = member
    first_batch(one, max: 1)
    finish = now + (LONGEST_PAUSE * 3 / 1000.0)
    count = 1
    while now < finish
      assert one.poll(timeout: 5) # at once, but for the very first
      count += 1
      sleep 0.1
    end
    assert_equal 100 - count, take(one, 100 - count).size
    assert_equal :stable, one.membership.state
  end

  thorough def test_work_sees_a_revocation_within_a_second
    told = nil
    listener = Object.new
    listener.define_singleton_method(:revoked) { |_| told ||= Process.clock_gettime(Process::CLOCK_MONOTONIC) }
    one = member { |config| config.rebalance_listener = listener }
    batch = first_batch(one)
    joining("enable.auto.commit": false) do
      seen = one.keep_alive do
        sleep 0.001 until one.revoked?(batch)
        now
      end
      assert_took(1, [seen - told, 0].max)
      refute one.mark(batch)
    end
    assert_equal({ 0 => nil, 1 => nil }, one.committed(@topic, [0, 1]))
  end

  # behaviour: consumer.caught_up, partition.stuck, rebalance.held_back
  def test_a_revocation_is_held_back_until_the_work_is_done
    one = member("max.poll.interval.ms": 30_000) { |config| config.hold_rebalances = 20_000 }
    told = Queue.new
    one.monitor.subscribe("rebalance.held_back") { |event| told << event.payload.slice(:partitions, :time) }
    batch = first_batch(one)
    joining do |other|
      one.keep_alive do
        eventually { one.membership.state == :rebalancing }
        sleep 0.5
        assert_equal({ partitions: { @topic => [0, 1] }, time: 20_000.0 }, told.pop)
        refute one.revoked?(batch)
        assert_empty other.assignment
        assert one.mark(batch)
        eventually { one.revoked?(batch) }
      end
      eventually { one.poll_batch(timeout: 0.1) && other.assignment.any? }
      assert_empty told
    end
  end

  thorough def test_a_revocation_is_held_back_no_longer_than_configured
    one = member { |config| config.hold_rebalances = 1_000 }
    batch = first_batch(one)
    joining do |other|
      one.keep_alive do
        eventually { one.membership.state == :rebalancing }
        eventually { one.revoked?(batch) }
      end
      eventually { one.poll_batch(timeout: 0.1) && other.assignment.any? }
    end
    refute one.mark(batch)
  end

  def test_the_listener_runs_while_work_goes_on_and_its_error_comes_after_the_work
    told = Queue.new
    listener = Object.new
    listener.define_singleton_method(:revoked) do |rebalance|
      told << rebalance.partitions.values.flatten
      raise "listener"
    end
    one = member { |config| config.rebalance_listener = listener }
    batch = first_batch(one)
    joining do
      done = false
      error = assert_raises(RuntimeError) do
        one.keep_alive do
          eventually { one.revoked?(batch) }
          done = true
        end
      end
      assert_equal ["listener", true, [0, 1]], [error.message, done, told.pop]
    end
    listener.singleton_class.remove_method(:revoked)
    listener.define_singleton_method(:revoked) { |_| nil }
  end

  def test_after_its_limit_the_consumer_no_longer_counts_as_polling
    one = member
    batch = first_batch(one)
    one.keep_alive(limit: 0.1) { sleep LONGEST_PAUSE * 2 / 1000.0 }
    refute one.mark(batch)
    assert_raises(Penstock::ConsumeError) { loop { one.poll(timeout: 1) } }
    refute one.mark(batch)
  end

  def test_it_returns_what_the_block_returns_and_raises_what_it_raises
    one = reading(@topic)
    assert_equal 3, one.keep_alive { 3 }
    assert_raises(IndexError) { one.keep_alive { raise IndexError } }
    assert_equal :thrown, catch(:out) { one.keep_alive { throw :out, :thrown } }
    assert_equal 50, take(one, 50).size
  end

  def test_its_thread_takes_no_messages_and_ends_with_the_block
    one = reading(@topic)
    assert_equal(["penstock.alive"], one.keep_alive { (Thread.list - [Thread.current]).map(&:name) & ["penstock.alive"] })
    one.keep_alive { sleep 0.3 }
    assert_equal((0...50).to_a, take(one, 50).map(&:offset))
    refute_includes Thread.list.map(&:name), "penstock.alive"
  end

  def test_the_block_may_close_the_consumer
    one = reading(@topic)
    report = one.keep_alive do
      one.close.tap { eventually { !Thread.list.map(&:name).include?("penstock.alive") } } # it has nothing to serve any more
    end
    assert_predicate report, :complete?
    assert_raises(Penstock::ConsumerClosedError) { one.keep_alive { flunk } }
  end

  def test_it_can_be_interrupted
    one = reading(@topic)
    assert_raises(Timeout::Error) { Timeout.timeout(0.2) { one.keep_alive { sleep } } }
    assert_equal 50, take(one, 50).size
  end

  slow def test_a_consumer_that_is_used_first_in_the_block_joins_its_group
    one = group_consumer
    assert_equal({ @topic => [0, 1] }, one.keep_alive do
      one.subscribe(@topic)
      eventually { one.assignment.then { |assigned| assigned if assigned.any? } }
    end)
  end

  def test_its_thread_ends_if_an_interrupt_comes_when_it_has_just_started
    one = reading(@topic)
    started = nil
    trace = TracePoint.new(:return) do |point|
      raise "interrupt" if started.nil? && (started = point.return_value)
    end
    trace.enable(target: Penstock.const_get(:Threads, false).method(:start)) do
      assert_raises(RuntimeError) { one.keep_alive { flunk } }
    end
    assert Slowness.join(started, 5)
  end

  slow def test_other_fibers_run_while_a_fiber_works
    one = reading(@topic)
    turns = 0
    done = false
    Thread.new do
      Fiber.set_scheduler(PlainScheduler.new)
      Fiber.schedule { one.keep_alive { sleep 0.3 }.tap { done = true } }
      Fiber.schedule { (turns += 1) && sleep(0.01) until done }
    end.join
    assert_operator turns, :>, 5
  end

  def test_invalid_arguments_raise
    one = reading(@topic)
    assert_raises(ArgumentError) { one.keep_alive }
    assert_raises(ArgumentError) { one.keep_alive(limit: -1) { flunk } }
    assert_raises(ArgumentError) { one.keep_alive(limits: 1) { flunk } }
    assert_raises(TypeError) { one.revoked?(3) }
  end

  def test_an_assignment_of_other_partitions_revokes
    one = reading(@topic)
    first = take(one, 1).first
    refute one.revoked?(first)
    one.assign(@topic => [1])
    assert one.revoked?(first)
  end
end
