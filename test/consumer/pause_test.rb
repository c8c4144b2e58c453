# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# Consumer#pause, #resume, #paused.
class ConsumerPauseTest < ConsumerTestCase
  include SharedCluster::ForGroups

  slow(/by_the_group|the_listener|a_thousand_times|by_a_revocation|in_a_rebalance/)

  def filled(count, partitions: 1)
    topic(partitions:).tap do |name|
      partitions.times { |partition| produce(name, Array.new(count) { |i| "#{partition}-#{i}" }, partition:) }
    end
  end

  # defect C27
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
  # defect C4
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
  # defect 23, C6
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

  # defect 23, C6
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

  def test_what_is_not_assigned_cannot_be_paused_in_a_rebalance
    name = filled(3, partitions: 2)
    failed = []
    pause = lambda do |rebalance|
      rebalance.consumer.pause("no-such-topic" => [3], name => [0, 7])
    rescue Penstock::ConsumeError => e
      failed << [e.code, e.topic, e.partition, rebalance.consumer.paused]
    end
    listener = Object.new
    listener.define_singleton_method(:assigned) { |rebalance| pause.call(rebalance) }
    listener.define_singleton_method(:revoked) { |rebalance| pause.call(rebalance) }
    one = group_consumer("group-#{name}") { |config| config.rebalance_listener = listener }.subscribe(name)
    assert_equal [1, 1, 1], take(one, 3).map(&:partition)
    one.resume
    assert_equal [0, 0, 0], take(one, 3).map(&:partition)
    one.close
    assert_equal [[:unknown_partition, "no-such-topic", 3, { name => [0] }]] * 2, failed
  end

  def test_what_is_not_assigned_cannot_be_paused
    name = filled(1, partitions: 2)
    one = reading(name)
    take(one, 1)
    error = assert_raises(Penstock::ConsumeError) { one.pause("no-such-topic" => [3]) }
    assert_equal [:unknown_partition, "no-such-topic", 3], [error.code, error.topic, error.partition]
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

  # A consumer that has polled offsets 0 to 99 of partition 0. It has fetched errors of both partitions, and behind them offsets
  # 100 to 199 of partition 0, and 0 to 99 of partition 1.
  def behind_errors(**kafka)
    own = own_cluster
    own.create_topic("behind", partitions: 2)
    one = group_consumer("g", servers: own.bootstrap_servers, **kafka)
    yield one
    produce("behind", %w[a] * 100, on: sender = producer(servers: own.bootstrap_servers))
    fetched = eventually { one.metrics.queue_length.then { |length| length if length >= 100 } }
    own.inject_errors(:fetch, :topic_authorization_failed)
    fetched = eventually { one.metrics.queue_length.then { |length| length if length > fetched } }
    2.times { |partition| produce("behind", %w[b] * 100, partition:, on: sender) }
    eventually { one.metrics.queue_length >= fetched + 200 }
    assert_equal (0...100).to_a, one.poll_batch(max: 400).offsets # takes more from librdkafka
    one
  end

  def assigned_behind_errors(**kafka)
    behind_errors(**kafka) { |one| one.assign("behind" => { 0 => 0, 1 => 0 }) }
  end

  # @return [Array<Penstock::Message>] none if an error comes
  def polled(one, **limits)
    one.poll_batch(**limits).to_a
  rescue Penstock::ConsumeError
    []
  end

  # @return [Hash{Integer => Array<Integer>}] the offsets of `count` messages, by partition; errors are left out
  def offsets_behind(one, count)
    messages = []
    eventually do
      messages.concat(polled(one, max: 300, timeout: 0.1))
      messages.size >= count
    end
    assert_equal count, messages.size
    messages.group_by(&:partition).transform_values { |list| list.map(&:offset) }
  end

  slow def test_messages_behind_an_error_wait_while_their_partition_is_paused
    one = assigned_behind_errors
    one.pause("behind" => [0])
    assert_equal({ 1 => (0...100).to_a }, offsets_behind(one, 100))
    5.times { assert_empty one.poll_batch(timeout: 0.02) }
    one.resume
    assert_equal({ 0 => (100...200).to_a }, offsets_behind(one, 100))
    assert_empty one.poll_batch(timeout: 0.3)
  end

  slow def test_messages_behind_an_error_keep_their_order_with_any_number_of_pauses
    one = assigned_behind_errors
    got = []
    200.times do
      one.pause("behind" => [rand(2)])
      2.times { got.concat(polled(one, max: 3, timeout: 0)) }
      one.resume
      got.concat(polled(one, max: 3, timeout: 0))
    end
    one.resume
    got.concat(take(one, 200 - got.size)) if got.size < 200
    [[0, 100...200], [1, 0...100]].each do |partition, offsets|
      assert_equal offsets.to_a, got.select { |message| message.partition == partition }.map(&:offset)
    end
  end

  # A thread that finds nothing sleeps.
  slow def test_a_resume_wakes_the_poll_that_gets_messages_from_behind_an_error
    one = assigned_behind_errors
    one.pause
    5.times { assert_empty polled(one, timeout: 0.01) }
    thread = quiet_thread { one.poll(timeout: 30) }
    eventually { thread.stop? }
    one.resume
    assert Slowness.join(thread, 5), "no message within 5 s"
    assert_kind_of Penstock::Message, thread.value
  end

  slow def test_messages_behind_an_error_are_dropped_by_a_seek
    [true, false].each do |paused|
      one = assigned_behind_errors
      one.pause("behind" => [0]) if paused
      one.seek("behind", 0, 150)
      one.resume
      assert_equal({ 0 => (150...200).to_a, 1 => (0...100).to_a }, offsets_behind(one, 150))
    end
  end

  slow def test_messages_behind_an_error_are_dropped_by_an_assignment
    [true, false].each do |paused|
      one = assigned_behind_errors
      one.pause("behind" => [0]) if paused
      one.assign("behind" => { 0 => 170 })
      assert_equal({ 0 => (170...200).to_a }, offsets_behind(one, 30))
    end
  end

  thorough def test_messages_behind_an_error_are_dropped_by_a_revocation
    [true, false].each do |paused|
      one = behind_errors("enable.auto.commit": false) do |member|
        member.subscribe("behind")
        eventually { member.poll(timeout: 0.05).nil? && member.assignment.any? }
      end
      one.pause("behind" => [0]) if paused
      one.unsubscribe
      eventually { polled(one, max: 1, timeout: 0.05) && one.assignment.empty? }
      one.subscribe("behind")
      assert_equal({ 0 => (0...200).to_a, 1 => (0...100).to_a }, offsets_behind(one, 300))
    end
  end

  # Messages of a thousand pauses: each once.
  # defect C2
  thorough def test_pausing_a_thousand_times_in_the_stream_loses_nothing
    name = filled(3_000, partitions: 2)
    one = reading(name, partitions: [0, 1])
    got = []
    deadline = Slowness.deadline(60)
    rounds = 0
    while got.size < 6_000 && !deadline.passed?
      one.pause(name => [rounds % 2]) if rounds < 1_000
      got.concat(one.poll_batch(max: 5, timeout: 0.01).to_a)
      one.resume(name => [rounds % 2]) if rounds < 1_000
      rounds += 1
    end
    assert_equal 6_000, got.size
    got.group_by(&:partition).each_value { |ones| assert_equal (0...3_000).to_a, ones.map(&:offset) }
  end
end
