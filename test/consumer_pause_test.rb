# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/consumer_test_case"

# Consumer#pause, #resume, #paused.
class ConsumerPauseTest < ConsumerTestCase
  slow(/by_the_group|the_listener|a_thousand_times/)

  def filled(count, partitions: 1)
    topic(partitions:).tap do |name|
      partitions.times { |partition| produce(name, Array.new(count) { |i| "#{partition}-#{i}" }, partition:) }
    end
  end

  def test_only_the_paused_partition_stops
    name = filled(50, partitions: 2)
    one = reading(name, partitions: [0, 1])
    take(one, 1, batch: 1)
    assert_equal({ name => [0] }, one.pause(name => [0]))
    assert_equal({ name => [0] }, one.pause(name.to_sym => [0]))
    before = one.position(name, 0) || 0
    eventually { one.poll_batch(timeout: 0.05) && one.position(name, 1) == 50 }
    assert_operator one.position(name, 0) || 0, :<=, before
    assert_empty one.resume
    rest = take(one, 50 - before)
    assert_equal (before...50).to_a, rest.map(&:offset)
  end

  # librdkafka begins an unpaused partition anew when it is resumed (until 2.4.0, #2593).
  def test_resuming_what_is_not_paused_repeats_nothing
    name = filled(200)
    one = reading(name)
    got = []
    until got.size == 200
      got.concat(take(one, 10))
      one.resume(name => [0])
      one.pause if (got.size % 20).zero?
      one.resume if (got.size % 20).zero?
    end
    assert_equal (0...200).to_a, got.map(&:offset)
  end

  # librdkafka's own pause outlives a revocation.
  def test_a_partition_that_is_assigned_again_is_not_paused
    name = filled(5)
    one = reading(name)
    take(one, 2, batch: 1)
    one.pause
    one.assign({})
    assert_empty one.paused
    one.assign(name => { 0 => 2 })
    assert_equal [2, 3, 4], take(one, 3).map(&:offset)
  end

  def test_a_partition_that_is_revoked_by_the_group_is_not_paused
    name = filled(4)
    one = group_consumer("group-#{name}", "heartbeat.interval.ms": 100).subscribe(name)
    take(one, 2, batch: 1)
    assert_equal({ name => [0] }, one.pause)
    one.unsubscribe
    eventually { one.poll(timeout: 0.05) || one.assignment.empty? }
    assert_empty one.paused
    one.subscribe(name)
    assert_equal 2, take(one, 2).first.offset
  end

  def test_the_listener_pauses_what_it_is_assigned
    name = filled(3)
    listener = Object.new
    listener.define_singleton_method(:assigned) { |rebalance| rebalance.consumer.pause(rebalance.partitions) }
    one = group_consumer("group-#{name}") { |config| config.rebalance_listener = listener }.subscribe(name)
    eventually { one.poll(timeout: 0.1) || one.paused == { name => [0] } }
    assert_empty one.poll_batch(timeout: 0.3)
    one.resume
    assert_equal [0, 1, 2], take(one, 3).map(&:offset)
  end

  def test_what_is_not_assigned_cannot_be_paused
    name = filled(1, partitions: 2)
    one = reading(name)
    take(one, 1)
    error = assert_raises(Penstock::ConsumeError) { one.pause("no such topic" => [3]) }
    assert_equal [:unknown_partition, "no such topic", 3], [error.code, error.topic, error.partition]
    assert_empty one.paused
    error = assert_raises(Penstock::ConsumeError) { one.pause(name => [0, 1]) }
    assert_equal [:unknown_partition, name, 1], [error.code, error.topic, error.partition]
    assert_includes error.message, "that it is assigned to this consumer"
    assert_equal({ name => [0] }, one.paused)
    assert_equal({}, one.resume)
    assert_raises(ArgumentError) { one.pause(name => [-1]) }
    assert_raises(ArgumentError) { one.pause([name]) }
    assert_empty one.resume(name => [0])
  end

  # Messages of a thousand pauses: each once.
  def test_pausing_a_thousand_times_in_the_stream_loses_nothing
    name = filled(3_000, partitions: 2)
    one = reading(name, partitions: [0, 1])
    got = []
    deadline = now + 60
    rounds = 0
    while got.size < 6_000 && now < deadline
      one.pause(name => [rounds % 2]) if rounds < 1_000
      got.concat(one.poll_batch(max: 5, timeout: 0.01).to_a)
      one.resume(name => [rounds % 2]) if rounds < 1_000
      rounds += 1
    end
    assert_equal 6_000, got.size
    got.group_by(&:partition).each_value { |ones| assert_equal (0...3_000).to_a, ones.map(&:offset) }
  end
end
