# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"
require_relative "../support/kafka_topics"
require_relative "../support/reader"

# Topics that are created, grow, are deleted, and are created again with fewer partitions, on a real Apache Kafka.
class PartitionCountTest < ConsumerTestCase
  include KafkaTopics

  thorough(/\Atest_a_subscription_by_/)

  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }
  KEYS = Array.new(100, &:to_s).freeze

  # A producer whose requests do not create topics.
  def kafka_producer(**settings)
    producer(servers: SERVERS, partitioner: "murmur2", "allow.auto.create.topics": false, log_level: 0, **settings)
  end

  def keyed(topic) = KEYS.map { |partition_key| { topic:, payload: partition_key, partition_key: } }
  def partitions(handles) = handles.map { |handle| handle.report.partition }.uniq.sort
  def new_name = "penstock-test-#{SecureRandom.hex(6)}"

  # As if the 30 seconds for which a count is cached had passed, or had not.
  def count_now(producer, topic) = producer.client.partition_count(topic, 5_000, 0)
  def count_remembered(producer, topic) = producer.client.partition_count(topic, 5_000, 3_600_000)

  def stored(topic, partitions) = Reader.new(SERVERS).read(topic, partitions: 0...partitions).map(&:payload)

  # defect 26
  # behaviour: partition_count
  def test_partition_count_of_an_unknown_topic_is_nil_until_the_topic_exists
    producer = kafka_producer
    topic = new_name
    2.times { assert_nil producer.partition_count(topic) }
    create_topic(topic, partitions: 3)
    assert_equal 3, producer.partition_count(topic)
    assert_equal 2, producer.produce_sync(topic:, payload: "", partition: 2).partition
  end

  # behaviour: If the cluster or topic does not exist, the message fails
  thorough def test_a_topic_that_librdkafka_reported_as_unknown_accepts_messages_once_it_exists
    [{}, { partition: 1 }].each do |place|
      producer = kafka_producer("topic.metadata.propagation.max.ms": 100)
      topic = new_name
      error = assert_raises(Penstock::DeliveryError) { producer.produce_sync(topic:, payload: "early", **place) }
      assert_equal [:unknown_topic_or_part, true], [error.code, error.retriable?]
      rejected = assert_raises(Penstock::ProduceError) { producer.produce_async(topic:, payload: "early", **place) }
      assert_equal [:unknown_topic, topic], [rejected.code, rejected.topic]
      asked = now

      create_topic(topic, partitions: 2)
      sleep [1.05 - (now - asked), 0].max # librdkafka requests the metadata once a second
      handles = producer.produce_many_sync(Array.new(200) { |i| { topic:, payload: i.to_s, partition: i % 2 } })
      assert handles.all?(&:delivered?)
      assert_equal Array.new(200, &:to_s).sort, stored(topic, 2).sort
    end
  end

  # behaviour: partition_count
  def test_a_partition_count_is_cached_and_then_updated
    producer = kafka_producer
    topic = create_topic(partitions: 2)
    assert_equal 2, producer.partition_count(topic)
    grow_topic(topic, partitions: 5)
    assert_equal 2, count_remembered(producer, topic)
    assert_equal 5, count_now(producer, topic)
    assert_equal 5, producer.partition_count(topic)
  end

  # defect 26
  def test_10_000_messages_and_100_partition_counts_cause_almost_no_metadata_requests
    producer = kafka_producer("statistics.interval.ms": 100)
    asked = Queue.new
    producer.monitor.subscribe("statistics.emitted") { |event| asked << metadata_requests(event[:statistics]) }
    topic = create_topic(partitions: 3)
    producer.produce_many_sync(keyed(topic))
    before = latest(asked)
    100.times do
      producer.produce_many_sync(keyed(topic))
      assert_equal 3, producer.partition_count(topic)
    end
    assert_operator before, :>, 0
    assert_operator latest(asked) - before, :<=, 3
  end

  def metadata_requests(statistics) = statistics["brokers"].values.sum { |broker| broker["req"].fetch("Metadata", 0) }

  # Waits for two new values and returns the second, because the first may be older than this call.
  def latest(queue)
    queue.clear
    Array.new(2) { queue.pop }.last
  end

  { "a_name" => ->(topic) { topic }, "a_pattern" => ->(topic) { "^#{Regexp.escape(topic)}$" } }.each do |by, subscription|
    # defect 26
    define_method("test_a_subscription_by_#{by}_includes_later_topics_and_added_partitions") do
      topic = new_name
      one = group_consumer(servers: SERVERS, "topic.metadata.refresh.interval.ms": 1_000, "heartbeat.interval.ms": 500)
      one.subscribe(subscription.call(topic))
      errors = []
      read_until(one, errors) { errors.any? }
      reported = now
      read_until(one, errors) { now > reported + 2.5 } # librdkafka looks twice more
      assert_equal [:unknown_topic_or_part], errors.map(&:code)

      create_topic(topic, partitions: 1)
      writer = kafka_producer
      produce(topic, %w[early], on: writer)
      assert_equal %w[early], read_until(one, &:any?)
      grow_topic(topic, partitions: 3)
      writer = kafka_producer # a new producer, which knows the new partitions
      3.times { |partition| produce(topic, ["late-#{partition}"], partition:, on: writer) }
      assert_equal %w[late-0 late-1 late-2], read_until(one) { |got| got.size > 2 }.sort
    end
  end

  # @param errors [Array<Penstock::ConsumeError>, nil] collects errors; nil: an error fails the test
  def read_until(consumer, errors = nil)
    got = []
    eventually(30) do
      begin
        got.concat(consumer.poll_batch(max: 100, timeout: 0.1).map(&:payload))
      rescue Penstock::ConsumeError => e
        errors ? errors << e : raise
      end
      yield got
    end
    got
  end

  # defect 26
  # behaviour: partition_key decides the partition as a key does
  def test_keys_use_new_partitions_after_the_producer_has_refreshed_its_metadata
    producer = kafka_producer
    topic = create_topic(partitions: 2)
    assert_equal [0, 1], partitions(producer.produce_many_sync(keyed(topic)))
    grow_topic(topic, partitions: 5)
    assert_equal [0, 1], partitions(producer.produce_many_sync(keyed(topic))),
                 "librdkafka refreshes its metadata only every 5 minutes"
    count_now(producer, topic)
    assert_equal [*0..4], partitions(producer.produce_many_sync(keyed(topic)))
    assert_equal (KEYS * 3).sort, stored(topic, 5).sort
  end

  def test_an_explicitly_named_new_partition_accepts_messages_at_once
    ways = { sync: ->(producer, message) { producer.produce_sync(message) },
             async: ->(producer, message) { producer.produce_async(message).wait } }
    ways.each_value do |way|
      producer = kafka_producer
      topic = create_topic(partitions: 2)
      producer.produce_sync(topic:, payload: "", partition: 0)
      grow_topic(topic, partitions: 5)
      assert_equal 4, way.call(producer, { topic:, payload: "", partition: 4 }).partition
      error = assert_raises(Penstock::ProduceError) { way.call(producer, { topic:, payload: "", partition: 5 }) }
      assert_equal [:unknown_partition, topic, 5], [error.code, error.topic, error.partition]
    end
  end

  # The second batch has more than 100 messages, so it is sent without the GVL. In both cases the Strings may change meanwhile.
  [10, 1_000].each do |size|
    define_method(:"test_a_batch_of_#{size}_stays_in_order_when_it_reaches_a_new_partition") do
      producer = kafka_producer
      topic = create_topic(partitions: 1)
      producer.produce_sync(topic:, payload: "first", partition: 0)
      grow_topic(topic, partitions: 2)
      large = "x" * 2_000
      messages = Array.new(size) do |i|
        { topic:, payload: "#{i} #{large}", key: i.to_s, partition: i * 2 / size, headers: { "i" => i.to_s } }
      end
      handles = producer.produce_many_sync(messages)
      assert handles.all?(&:delivered?)
      assert_equal ["first", *messages.map { |message| message[:payload] }], stored(topic, 2)
    end
  end

  # defect 26
  def test_a_topic_that_is_recreated_with_fewer_partitions_accepts_messages_and_reports_every_failure
    producer = kafka_producer
    topic = create_topic(partitions: 5)
    assert_equal [*0..4], partitions(producer.produce_many_sync(keyed(topic)))
    assert_equal 5, producer.partition_count(topic)
    delete_topic(topic)
    create_topic(topic, partitions: 2)
    assert_equal 5, count_remembered(producer, topic)

    # librdkafka still assumes 5 partitions. Messages for the missing ones fail with a retriable error: destroy, when
    # librdkafka drops the partition while the message is on its way into the partition's queue.
    handles = keyed(topic).map { |message| producer.produce_async(**message, label: message) }
    producer.flush(timeout: 30)
    failed = handles.reject(&:delivered?)
    assert(failed.all? { |handle| handle.error.retriable? && handle.report.not_persisted? })
    codes = failed.map { |handle| handle.error.code }.uniq
    assert_empty codes - %i[destroy unknown_partition unknown_topic unknown_topic_or_part]
    assert_equal [0, 1], partitions(producer.produce_many_sync(keyed(topic) + failed.map(&:label)))
    assert_equal (KEYS * 2).sort, stored(topic, 2).sort

    assert_equal 2, count_now(producer, topic)
    assert_equal 2, producer.partition_count(topic)
    assert_equal 1, producer.produce_sync(topic:, payload: "", partition: 1).partition
    error = assert_raises(Penstock::ProduceError) { producer.produce_sync(topic:, payload: "", partition: 4) }
    assert_equal :unknown_partition, error.code
  end

  # behaviour: partition_count
  def test_partition_count_of_a_deleted_topic_is_nil
    producer = kafka_producer
    topic = create_topic(partitions: 2)
    assert_equal 2, producer.partition_count(topic)
    delete_topic(topic)
    assert_equal 2, count_remembered(producer, topic)
    assert_nil count_now(producer, topic)
  end
end
