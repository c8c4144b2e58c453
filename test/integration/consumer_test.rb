# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"
require_relative "../support/transactional_writer"
require "securerandom"

# Consumers on a real Apache Kafka: PENSTOCK_KAFKA says where it is; bin/test starts one.
class KafkaConsumerTest < ConsumerTestCase
  thorough(/_with_the_protocol_classic\z/) # each topic takes seconds to be found; the other protocol shows the same rules

  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }

  def consumer(servers: SERVERS, **settings, &block) = super

  def producer(servers: SERVERS, **settings, &block) = super

  # Kafka creates it with 4 partitions.
  def new_topic(messages = 0)
    "penstock-test-#{SecureRandom.hex(6)}".tap do |name|
      @sender ||= producer
      @sender.produce_sync(topic: name, payload: "first", partition: 0)
      4.times { |partition| produce(name, Array.new(messages) { |i| "#{partition}-#{i}" }, partition:, on: @sender) }
    end
  end

  def group = @group ||= "penstock-test-#{SecureRandom.hex(6)}"

  def member(topic, **settings, &block)
    group_consumer(group, "heartbeat.interval.ms": 500, **settings, &block).subscribe(topic)
  end

  # Polls all consumers until the block returns true.
  def poll_until(*consumers, seconds: 40)
    taken = consumers.map { [] }
    eventually(seconds) do
      consumers.each_with_index { |one, i| taken[i].concat(one.poll_batch(max: 1_000, timeout: 0.02)) }
      yield taken
    end
    taken
  end

  def assigned(consumer) = consumer.assignment.values.flatten

  def test_a_message_is_read_as_it_was_sent
    name = new_topic
    @sender.produce_sync(topic: name, payload: "\x00\xFF".b, key: "ключ", headers: { "one" => "1", "many" => %w[2 3] },
                         partition: 1, timestamp: 1_600_000_000_123)
    message = reading(name, partitions: [1]).poll(timeout: 10)
    assert_equal ["\x00\xFF".b, "ключ".b, { "one" => "1", "many" => %w[2 3] }, 1_600_000_000_123, :create_time],
                 [message.payload, message.key, message.headers, message.timestamp, message.timestamp_type]
  end

  def test_100_000_messages_are_read_once_and_in_order
    name = new_topic
    produce(name, Array.new(100_000, &:to_s), partition: 2, on: @sender)
    messages = take(reading(name, partitions: [2]), 100_000, batch: 5_000)
    assert_equal (0...100_000).to_a, messages.map(&:offset)
    assert_equal Array.new(100_000, &:to_s), messages.map(&:payload)
  end

  # defect C10
  def test_a_group_resumes_at_the_committed_offset
    name = new_topic(10)
    one = member(name, "enable.auto.commit": false) { |config| config.mark = :manual }
    messages = poll_until(one) { |(taken)| taken.size == 41 }.first
    half = messages.select { |message| message.partition == 1 }[4]
    one.commit(half)
    one.commit({ name => { 2 => 10, 3 => 10 } })
    assert_equal({ 0 => nil, 1 => 5, 2 => 10, 3 => 10 }, one.committed(name, [0, 1, 2, 3]))
    assert_predicate one.close, :complete?
    two = member(name, "enable.auto.commit": false)
    again = poll_until(two) { |(taken)| taken.size == 16 }.first
    assert_equal({ 0 => 11, 1 => 5 }, again.map(&:partition).tally)
    two.commit
    assert_equal({ 0 => 11, 1 => 10, 2 => 10, 3 => 10 }, two.committed(name, [0, 1, 2, 3]).merge(2 => 10, 3 => 10))
  end

  %w[range cooperative-sticky].each do |strategy|
    # defect 22, C28
    define_method(:"test_two_members_share_and_hand_over_partitions_with_#{strategy}") do
      name = new_topic(100)
      settings = { "partition.assignment.strategy": strategy, "auto.commit.interval.ms": 60_000 }
      one = member(name, **settings)
      got = poll_until(one) { |(taken)| taken.size == 401 }.flatten
      assert_equal [0, 1, 2, 3], assigned(one)

      two = member(name, **settings)
      poll_until(one, two) { assigned(one).size == 2 && assigned(two).size == 2 }.each { |taken| got.concat(taken) }
      assert_equal [0, 1, 2, 3], (assigned(one) + assigned(two)).sort

      4.times { |partition| produce(name, Array.new(50) { |i| "more #{partition}-#{i}" }, partition:, on: @sender) }
      first, second = poll_until(one, two) { |taken| taken.sum(&:size) == 200 }
      assert_equal assigned(one), first.map(&:partition).uniq.sort
      got.concat(first, second)

      assert_predicate one.close, :complete?
      assert_equal [0, 1, 2, 3], poll_until(two) { assigned(two).size == 4 } && assigned(two)
      produce(name, %w[last], partition: first.first.partition, on: @sender)
      got.concat(poll_until(two) { |(taken)| taken.any? }.first)
      got.group_by(&:partition).each do |partition, messages|
        assert_each_once((0...messages.size).to_a, messages.map(&:offset), "partition #{partition}", ordered: false)
      end
      assert_equal 602, got.size
    end

    # One member stays, others join and leave, and messages are produced all the time. A member that gives up a partition has
    # committed the messages that it polled, so the next member continues there. So the offsets of each partition are read once,
    # in order and without a gap.
    # defect 22
    define_method(:"test_no_message_is_lost_repeated_or_out_of_order_while_members_join_and_leave_with_#{strategy}") do
      name = new_topic
      join = -> { member(name, "partition.assignment.strategy": strategy) }
      got = Queue.new
      sending = quiet_thread { send_until_stopped(name) }
      one = join.call
      staying = member_thread(one, got, slow: true)
      eventually(30) { assigned(one).size == 4 && got.size > 100 }
      3.times do |round|
        others = Array.new(1 + (round % 2)) { join.call }
        threads = others.map { |other| member_thread(other, got) }
        eventually(30) { shared_by?([one, *others]) }
        seen = got.size
        eventually(30) { got.size > seen + 200 }
        threads.each { |thread| assert stop(thread) } # also while the group rebalances
      end
      sent = stop(sending)
      eventually(30) { got.size > sent } # plus the topic's first message
      stop(staying)
      places = Array.new(got.size) { got.pop }
      places.group_by(&:first).each do |partition, ones|
        assert_each_once((0...ones.size).to_a, ones.map(&:last), "partition #{partition}")
      end
      assert_equal sent + 1, places.size
    end
  end

  def shared_by?(members)
    sizes = members.map { |each| assigned(each).size }
    sizes.sum == 4 && sizes.all?(1..)
  end

  def stop(thread)
    thread[:stopped] = true
    thread.value
  end

  # @return [Integer] the number of messages sent
  def send_until_stopped(name)
    sent = 0
    until Thread.current[:stopped]
      4.times { |partition| produce(name, %w[x] * 5, partition:, on: @sender) }
      sent += 20
      sleep 0.01
    end
    sent
  end

  # A member that pauses for each batch: a slow member before it has processed its messages, others afterwards. In the pause more
  # messages arrive, and possibly a rebalance.
  def member_thread(consumer, got, slow: false)
    quiet_thread do
      until Thread.current[:stopped]
        batch = consumer.poll_batch(max: 1_000, timeout: 0.05)
        sleep 0.3 if slow
        batch.each { |message| got << [message.partition, message.offset] }
        sleep 0.3 unless slow
      end
      consumer.close
    end
  end

  # defect C19
  def test_a_member_that_stops_polling_gets_an_error_and_rejoins
    name = new_topic(1)
    one = member(name, "max.poll.interval.ms": 6_000, "enable.auto.commit": false)
    poll_until(one) { |(taken)| taken.size == 5 }
    two = member(name, "enable.auto.commit": false)
    poll_until(two) { assigned(two).size == 4 }
    error = assert_raises(Penstock::ConsumeError) { poll_until(one) { false } }
    assert_equal :max_poll_exceeded, error.code
    poll_until(one, two) { assigned(one).size == 2 }
  end

  # defect 17
  thorough def test_a_long_wait_counts_as_polling
    name = new_topic
    one = member(name, "max.poll.interval.ms": 6_000, "enable.auto.commit": false)
    poll_until(one) { |(taken)| taken.size == 1 }
    waiting = Thread.new { one.poll(timeout: nil) }
    refute waiting.join(9)
    @sender.produce_sync(topic: name, payload: "late", partition: 3)
    assert_equal "late", waiting.value.payload
  end

  def test_watermarks_returns_the_end_of_a_partition
    name = new_topic(7)
    one = consumer
    assert_equal [[0, 8], [0, 7]], [one.watermarks(name, 0), one.watermarks(name, 1)]
    error = assert_raises(Penstock::ConsumeError) { one.watermarks(name, 99) }
    assert_includes %i[unknown_partition unknown_topic_or_part], error.code
  end

  def test_offsets_for_times_returns_the_first_message_of_a_time_or_later
    name = new_topic
    at = Time.at(1_600_000_000, 500, :millisecond)
    [-1, 0, 1].each { |ms| @sender.produce_sync(topic: name, payload: "x", partition: 1, timestamp: 1_600_000_000_500 + ms) }
    one = consumer
    assert_equal({ 1 => 1, 2 => nil }, one.offsets_for_times(name, [1, 2], at))
    assert_equal({ 1 => 2 }, one.offsets_for_times(name, 1, at + 0.0001))
    assert_equal({ 1 => 0 }, one.offsets_for_times(name, 1, 0))
    assert_equal({ 1 => nil }, one.offsets_for_times(name, 1, at + 1))
    error = assert_raises(Penstock::ConsumeError) { one.offsets_for_times(name, [1, 99], at) }
    assert_includes %i[unknown_partition unknown_topic_or_part], error.code
    assert_empty one.offsets_for_times(name, [], at)
    [Time.at(-1), -1, 2**63, "now", nil].each do |wrong|
      assert_raises(ArgumentError) { one.offsets_for_times(name, 1, wrong) }
    end
  end

  def test_a_nonexistent_topic_raises_an_error_with_its_name
    name = new_topic.sub("test", "none")
    one = member(name)
    error = assert_raises(Penstock::ConsumeError) { poll_until(one) { false } }
    assert_equal :unknown_topic_or_part, error.code
    assert_match(/#{name}: Broker: Unknown topic or partition \(unknown_topic_or_part\).*#{one.id}/, error.message)
    assert_equal [nil, nil], [error.group, one.membership.error] # the group is not the reason
  end

  def test_messages_of_an_aborted_transaction_are_read_only_with_read_uncommitted
    name = new_topic
    TransactionalWriter.new(SERVERS).write(name, partition: 0, committed: %w[a b], aborted: %w[x y])
    @sender.produce_sync(topic: name, payload: "last", partition: 0)
    assert_equal %w[first a b last], take(reading(name), 4).map(&:payload)
    uncommitted = reading(name, "isolation.level": "read_uncommitted")
    assert_equal %w[first x y a b last].sort, take(uncommitted, 6).map(&:payload).sort
  end

  def test_close_commits_polled_messages
    name = new_topic(3)
    one = member(name, "auto.commit.interval.ms": 60_000)
    poll_until(one) { |(taken)| taken.size == 13 }
    assert_predicate one.close, :complete?
    assert_equal({ 0 => 4, 1 => 3, 2 => 3, 3 => 3 }, group_consumer(group).committed(name, 0..3))
  end

  # The group has already asked the closing member to give up its partitions, but the member does not know yet. Once it has left,
  # the group rejects its commits. librdkafka alone would commit too late.
  %w[range cooperative-sticky].each do |strategy|
    # defect 22
    define_method(:"test_close_commits_polled_messages_despite_an_unnoticed_rebalance_with_#{strategy}") do
      name = new_topic(100)
      settings = { "partition.assignment.strategy": strategy, "auto.commit.interval.ms": 60_000, "session.timeout.ms": 20_000 }
      one = member(name, **settings)
      poll_until(one) { |(taken)| taken.size == 401 }
      @sender.produce_sync(topic: name, payload: "unread", partition: 0)
      staying = member_thread(two = member(name, **settings), got = Queue.new)
      sleep 3 # a heartbeat every half second notifies `one` of the rebalance, but `one` does not poll
      assert_predicate one.close, :complete?
      eventually(30) { assigned(two).size == 4 && got.size.positive? }
      assert stop(staying)
      assert_equal [[0, 101]], Array.new(got.size) { got.pop }
    end
  end

  def test_a_subscription_by_pattern_gets_matching_topics
    name = new_topic(1)
    one = member("^#{name.sub("-test-", ".test.")}$")
    assert_equal [name], poll_until(one) { |(taken)| taken.size == 5 }.first.map(&:topic).uniq
  end

  # librdkafka searches names itself with the classic protocol; brokers match whole names with the other.
  %w[classic consumer].each do |protocol|
    define_method(:"test_patterns_match_whole_names_with_the_protocol_#{protocol}") do
      if protocol == "consumer" && Gem::Version.new(Penstock.librdkafka_version) < Gem::Version.new("2.12")
        skip "librdkafka #{Penstock.librdkafka_version} has no group.protocol=consumer, or only a preview of it (before 2.12)"
      end
      prefix = "penstock-p#{SecureRandom.hex(4)}"
      names = %w[.a .b .ab .aab .A .7 .a-b a .a.b].map { |name| prefix + name }
      names.each { |topic| (@sender ||= producer).produce_sync(topic:, partition: 0, payload: "x") }
      settings = { "bootstrap.servers": SERVERS, "auto.offset.reset": "earliest" }
      settings["group.protocol"] = "consumer" if protocol == "consumer"
      [/\.a/, /\.(?:a|\d)/, "^#{prefix}\\.[a-b]+", /\.\h{1,2}?/, /\W[[:alpha:]]\W?b/, /\.a/i,
       /(?<n>\.a){2}|\.aa{1,2}b/].each do |pattern|
        pattern = /#{prefix}(?:#{pattern})/ if pattern.is_a?(Regexp)
        one = consumer(**settings, "group.id": "penstock-p-#{SecureRandom.hex(4)}").subscribe(pattern)
        found = names.grep(/\A(?:#{pattern.is_a?(String) ? Regexp.new(pattern) : pattern})\z/)
        refute_empty found
        taken = []
        eventually(30, pattern.inspect) { taken.concat(one.poll_batch(timeout: 0.2).topics) && taken.sort == found.sort }
        assert_equal found.sort, one.assignment.keys.sort, pattern.inspect
        one.close
      end
    end
  end
end
