# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/reader"
require "securerandom"

# On a real Apache Kafka: PENSTOCK_KAFKA says where it is; bin/test starts one.
class KafkaTest < PenstockTest
  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }

  def kafka_producer(**settings, &block) = producer(servers: SERVERS, **settings, &block)

  def read(topic, partition) = Reader.new(SERVERS).read(topic, partitions: [partition])

  # Kafka creates it on first use, with 4 partitions.
  def new_topic = "penstock-test-#{SecureRandom.hex(6)}"

  def test_a_message_is_stored_as_it_was_given
    topic = new_topic
    time = Time.at(1_600_000_000, 123_456, :usec)
    report = kafka_producer.produce_sync(
      topic:, payload: "\x00\xFFbytes\x00".b, key: "ключ", headers: { "one" => "1", "many" => %w[2 3] }, timestamp: time
    )
    assert_equal 1_600_000_000_123, report.timestamp

    message = read(topic, report.partition).first
    assert_equal "\x00\xFFbytes\x00".b, message.payload
    assert_equal "ключ".b, message.key
    assert_equal [%w[one 1], %w[many 2], %w[many 3]], message.headers
    assert_equal 1_600_000_000_123, message.timestamp
  end

  def test_a_report_contains_the_offset_and_timestamp_of_the_message
    topic = new_topic
    producer = kafka_producer
    reports = Array.new(3) { producer.produce_sync(topic:, payload: "x", partition: 1) }
    assert_equal [0, 1, 2], reports.map(&:offset)
    assert_equal [1], reports.map(&:partition).uniq
    assert(reports.all?(&:persisted?))
    assert_in_delta Time.now.to_f * 1000, reports.last.timestamp, 10_000
  end

  def test_100_000_messages_arrive_once_and_in_order
    topic = new_topic
    producer = kafka_producer
    payloads = Array.new(100_000, &:to_s)
    handles = producer.produce_many_sync(payloads.map { |payload| { topic:, payload:, partition: 0 } })
    assert_equal (0...100_000).to_a, handles.map { |handle| handle.report.offset }
    assert_equal payloads, read(topic, 0).map(&:payload)
  end

  def test_25_producers_in_25_threads_deliver_everything_with_one_poller
    topic = new_topic
    before = Thread.list
    producers = Array.new(25) { kafka_producer }
    batch = Array.new(1_000) { { topic:, payload: "x" * 100 } }
    threads = producers.map { |producer| Thread.new { producer.produce_many_sync(batch).count(&:delivered?) } }
    assert_equal 25_000, threads.sum(&:value)
    assert_empty Thread.list - before - threads
    assert_equal(1, native_threads.count { |name| name.start_with?("penstock.poll") })
  end

  def test_an_idempotent_producer_delivers
    topic = new_topic
    report = kafka_producer("enable.idempotence": true, acks: "all").produce_sync(topic:, payload: "x")
    assert_predicate report, :persisted?
  end

  def test_with_acks_0_a_message_is_possibly_persisted
    report = kafka_producer(acks: 0).produce_sync(topic: new_topic, payload: "x")
    assert_predicate report, :possibly_persisted?
  end

  %w[gzip snappy lz4 zstd].each do |codec|
    # behaviour: gzip, zstd, lz4 and snappy
    define_method(:"test_#{codec}_compressed_messages_arrive") do
      topic = new_topic
      kafka_producer("compression.type": codec).produce_many_sync(Array.new(100) { { topic:, payload: "a" * 500, partition: 0 } })
      assert_equal ["a" * 500] * 100, read(topic, 0).map(&:payload)
    end
  end

  # behaviour: If the cluster or topic does not exist, the message fails
  def test_a_nonexistent_partition_raises_an_error_with_its_number
    topic = new_topic
    producer = kafka_producer
    producer.produce_sync(topic:, payload: "x")
    error = assert_raises(Penstock::ProduceError) { producer.produce_sync(topic:, payload: "x", partition: 999) }
    assert_equal [:unknown_partition, topic, 999], [error.code, error.topic, error.partition]
  end

  def test_a_message_too_large_for_the_topic_is_rejected_by_the_broker
    error = assert_raises(Penstock::DeliveryError) do
      kafka_producer("message.max.bytes": 3_000_000) { |config| config.max_payload_size = 3_000_000 }
        .produce_sync(topic: new_topic, payload: "x" * 2_000_000)
    end
    assert_equal :msg_size_too_large, error.code
  end

  def test_partition_count_returns_the_count_of_an_existing_topic
    topic = new_topic
    producer = kafka_producer
    producer.produce_sync(topic:, payload: "x")
    assert_equal 4, producer.partition_count(topic)
  end

  def test_close_right_after_produce_async_delivers
    topic = new_topic
    producer = kafka_producer("linger.ms": 2_000)
    handles = Array.new(100) { producer.produce_async(topic:, payload: "x") }
    report = producer.close
    assert_equal 100, report.delivered
    assert(handles.all?(&:delivered?))
  end

  def test_all_messages_are_delivered_if_the_process_exits_without_close
    topic = new_topic
    ruby!(<<~PROGRAM, SERVERS, topic)
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0] } }
      10.times { producer.produce_async(topic: ARGV[1], payload: "x", partition: 0) }
    PROGRAM
    assert_equal 10, kafka_producer.produce_sync(topic:, payload: "y", partition: 0).offset
  end

  def test_a_fork_child_and_its_parent_both_deliver
    topic = new_topic
    producer = kafka_producer
    first = producer.produce_sync(topic:, payload: "x", partition: 0).offset
    second = in_child { producer.produce_sync(topic:, payload: "x", partition: 0).offset.tap { producer.close } }
    third = producer.produce_sync(topic:, payload: "x", partition: 0).offset
    assert_equal [0, 1, 2], [first, second, third]
  end
end
