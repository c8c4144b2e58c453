# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/producer_test_case"

class ProducerTest < ProducerTestCase
  # behaviour: produce_sync
  def test_produce_sync_returns_the_report_of_a_delivered_message
    topic = topic(partitions: 1)
    report = producer.produce_sync(topic:, payload: "hello", label: :mine)
    assert_equal [topic, 0, 0, :mine], [report.topic, report.partition, report.offset, report.label]
    assert_predicate report, :persisted?
    assert_nil report.error
    assert_operator report.latency, :>, 0
    assert_predicate report, :frozen?
  end

  def test_the_report_of_a_delivered_message_is_persisted
    topic = topic(partitions: 1)
    report = producer.produce_sync(topic:, payload: "hello")
    assert_equal [true, false, false], [report.delivered?, report.possibly_persisted?, report.not_persisted?]
    assert_equal topic, report.topic_name
    assert_kind_of Integer, report.timestamp
    assert_kind_of Float, report.latency
    assert_includes report.inspect, "offset=0 status=persisted"
  end

  def test_offsets_count_up_from_zero
    topic = topic(partitions: 1)
    producer = self.producer("linger.ms": 0)
    assert_equal [0, 1, 2, 3], Array.new(4) { producer.produce_sync(topic:, payload: "x").offset }
  end

  # behaviour: produce_async
  def test_produce_async_returns_a_handle_that_is_resolved_later
    handle = producer("linger.ms": 200).produce_async(topic: topic(partitions: 1), payload: "hello", label: 5)
    assert_predicate handle, :pending?
    assert_equal 0, handle.wait.offset
    assert_equal [5, false, true], [handle.report.label, handle.pending?, handle.delivered?]
  end

  # behaviour: produce_many_sync
  def test_produce_many_sync_returns_delivered_handles_in_the_order_of_the_messages
    topic = topic(partitions: 4)
    handles = producer.produce_many_sync(Array.new(100) { |i| { topic:, payload: "m#{i}", label: i } })
    assert_equal (0...100).to_a, handles.map(&:label)
    assert(handles.all?(&:delivered?))
    assert_equal handles.map(&:label), handles.map { |handle| handle.report.label }
  end

  # behaviour: produce_many_async
  slow def test_produce_many_async_returns_pending_handles_in_the_order_of_the_messages
    handles = producer("linger.ms": 300).produce_many_async(Array.new(50) { |i| { topic: topic, payload: "", label: i } })
    assert(handles.any?(&:pending?))
    assert_equal (0...50).to_a, handles.map(&:label)
    assert_equal true, Penstock::DeliveryHandle.await_all(handles, timeout: 10)
  end

  # behaviour: A report's partition and offset are right
  slow def test_every_message_of_a_batch_is_stored_where_its_report_says
    topics = Array.new(3) { topic(partitions: 4) }
    messages = Array.new(360) { |i| { topic: topics[i % 3], partition: i / 3 % 4, payload: "m#{i}", label: i } }
    handles = producer.produce_many_sync(messages)
    assert_equal messages.map { |message| message.values_at(:topic, :partition) }, places(handles).map { _1.first(2) }
    assert_handed_out_in_order(handles)

    found = topics.flat_map { |topic| stored(topic, partitions: 4) }
    assert_equal places(handles).zip(messages.map { _1[:payload] }).sort,
                 found.map { |record| [[record.topic, record.partition, record.offset], record.payload] }.sort
  end

  # behaviour: A Symbol may name a topic
  def test_a_symbol_names_a_topic_as_a_string_does
    topic = topic(partitions: 1)
    handles = producer.produce_many_sync([{ topic: topic.to_sym, payload: "0" }, { topic:, payload: "1" }])
    assert_equal [[topic, 0, 0], [topic, 0, 1]], places(handles)
  end

  def test_an_empty_batch_has_no_handles
    producer = self.producer
    assert_equal [[], []], [producer.produce_many_sync([]), producer.produce_many_async([])]
  end

  def test_producers_in_threads_interleave_and_each_keeps_its_order
    topic = topic(partitions: 1)
    producers = Array.new(4) { producer("linger.ms": 1) }
    threads = producers.each_with_index.map do |producer, p|
      Thread.new { Array.new(50) { |i| producer.produce_sync(topic:, payload: "#{p}-#{i}").offset } }
    end
    offsets = threads.map(&:value)
    payloads = stored(topic).map(&:payload)
    assert_equal (0...200).to_a, offsets.flatten.sort
    offsets.each_with_index do |own, p|
      assert_equal Array.new(50) { |i| "#{p}-#{i}" }, payloads.values_at(*own)
      assert_equal own.sort, own
    end
  end

  def test_threads_that_share_a_producer_keep_the_order_of_their_large_batches
    topic = topic(partitions: 1)
    producer = self.producer
    threads = Array.new(4) do |t|
      Thread.new do
        Array.new(3) { |b| producer.produce_many_sync(Array.new(300) { |i| { topic:, payload: "#{t}-#{b}-#{i}" } }) }.flatten
      end
    end
    batches = threads.map { |thread| thread.value.map { |handle| handle.report.offset } }
    payloads = stored(topic).map(&:payload)
    assert_equal (0...3_600).to_a, batches.flatten.sort
    batches.each_with_index do |offsets, t|
      assert_equal offsets.sort, offsets
      assert_equal (0...900).map { |i| "#{t}-#{i / 300}-#{i % 300}" }, payloads.values_at(*offsets)
    end
  end

  # behaviour: A Symbol may name a topic
  def test_the_callers_messages_stay_unchanged
    topic = topic(partitions: 1)
    messages = [{ topic:, payload: "a", key: "k", headers: { "h" => %w[1 2] }, timestamp: 5, label: [1] }]
    parts = [messages, *messages.flat_map { |message| [message, *message.values, *message[:headers].flatten(2)] }]
    before = [Marshal.dump(messages), parts.map(&:frozen?)]
    producer = self.producer
    producer.produce_many_sync(messages)
    producer.produce_many_sync(messages * 200)
    producer.produce_sync(messages.first)
    assert_equal before, [Marshal.dump(messages), parts.map(&:frozen?)]
  end

  def test_deeply_frozen_messages_are_sent
    message = Ractor.make_shareable({ topic: topic(partitions: 1), payload: "a", key: "k", headers: { "h" => ["v"] } })
    assert_predicate producer.produce_sync(message), :persisted?
  end

  slow def test_a_thousand_topics_go_through_one_producer
    producer = producer(servers: own_cluster.bootstrap_servers)
    topics = Array.new(1000) { |i| "many-#{i}" }
    2.times do |round|
      handles = producer.produce_many_sync(topics.map { |topic| { topic:, payload: topic, partition: 3 } })
      assert_equal topics.map { |topic| [topic, 3, round] }, places(handles)
    end
  end

  def test_without_acknowledgements_a_message_is_possibly_persisted_and_has_no_offset
    report = producer(acks: 0).produce_sync(topic: topic, payload: "")
    assert_equal [:possibly_persisted, nil, nil], [report.status, report.offset, report.error]
  end

  def test_an_idempotent_producer_delivers
    topic = topic(partitions: 1)
    handles = producer("enable.idempotence": true).produce_many_sync(Array.new(20) { |i| { topic:, payload: i.to_s } })
    assert_equal (0...20).to_a, handles.map { |handle| handle.report.offset }
  end

  %w[none gzip snappy lz4 zstd].each do |codec|
    # behaviour: gzip, zstd, lz4 and snappy
    define_method("test_payloads_survive_#{codec}_compression") do
      topic = topic(partitions: 1)
      payloads = Array.new(50) { |i| "payload #{i} " * 20 }
      producer("compression.codec": codec).produce_many_sync(payloads.map { |payload| { topic:, payload: } })
      assert_equal payloads, stored(topic).map(&:payload)
    end
  end

  def test_partition_count_returns_the_topics_number_of_partitions
    topic = topic(partitions: 6)
    producer = self.producer
    assert_equal [6, 6], [producer.partition_count(topic), producer.partition_count(topic.to_sym)]
  end

  def test_partition_count_creates_an_unknown_topic_if_the_cluster_does
    producer = self.producer
    name = "unknown-#{rand(2**32)}"
    assert_includes [nil, 4], producer.partition_count(name) # a real Kafka creates it after its answer
    eventually(20) { producer.partition_count(name) == 4 }
  end

  def test_partition_count_is_cached
    own = own_cluster
    topic = topic(partitions: 3, on: own)
    producer = producer(servers: own.bootstrap_servers, log_level: 0)
    producer.partition_count(topic)
    own.broker_down(1)
    assert_equal 3, producer.partition_count(topic)
  end

  # integration/partition_count_test.rb has the tests for topics that change.
  # behaviour: partition_count
  def test_partition_count_is_cached_for_30_seconds
    asked = []
    stand_in = Class.new(Penstock::Clients::Dummy) { define_method(:partition_count) { |*arguments| asked << arguments } }
    producer { |config| config.client_class = stand_in }.partition_count("events")
    assert_equal [["events", 5_000, 30_000]], asked
  end

  thorough slow def test_partition_count_without_a_cluster_raises_an_error_that_names_the_servers
    error = assert_raises(Penstock::Error) { unreachable_producer.partition_count("nowhere") }
    assert_includes error.message, "127.0.0.1:1"
    assert_equal "nowhere", error.topic
    assert_predicate error, :retriable?
  end

  def test_partition_count_rejects_invalid_topic_names
    producer = self.producer
    ["", "a b", :"a b", 5, nil].each { |name| assert_raises(Penstock::MessageInvalidError) { producer.partition_count(name) } }
  end
end
