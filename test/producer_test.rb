# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/reader"
require "zlib"

# What the tests of the producer share.
class ProducerTestCase < PenstockTest
  # @return [Array<Reader::Record>] what the topic holds
  def stored(topic, partitions: 1, on: cluster)
    Reader.new(on.bootstrap_servers).read(topic, partitions: 0...partitions)
  end

  def places(handles) = handles.map { |handle| [handle.report.topic, handle.report.partition, handle.report.offset] }

  def assert_handed_out_in_order(handles)
    places(handles).group_by { |topic, partition, _| [topic, partition] }.each_value do |group|
      assert_equal (0...group.size).to_a, group.map(&:last)
    end
  end
end

class ProducerTest < ProducerTestCase
  def test_produce_sync_returns_the_report_of_a_delivered_message
    topic = topic(partitions: 1)
    report = producer.produce_sync(topic:, payload: "hello", label: :mine)
    assert_equal [topic, 0, 0, :mine], [report.topic, report.partition, report.offset, report.label]
    assert_predicate report, :persisted?
    assert_nil report.error
    assert_operator report.latency, :>, 0
    assert_predicate report, :frozen?
  end

  def test_a_report_of_a_delivered_message_says_so
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

  def test_produce_async_returns_a_handle_that_is_resolved_later
    handle = producer("linger.ms": 200).produce_async(topic: topic(partitions: 1), payload: "hello", label: 5)
    assert_predicate handle, :pending?
    assert_equal 0, handle.wait.offset
    assert_equal [5, false, true], [handle.report.label, handle.pending?, handle.delivered?]
  end

  def test_produce_many_sync_returns_delivered_handles_in_the_order_of_the_messages
    topic = topic(partitions: 4)
    handles = producer.produce_many_sync(Array.new(100) { |i| { topic:, payload: "m#{i}", label: i } })
    assert_equal (0...100).to_a, handles.map(&:label)
    assert(handles.all?(&:delivered?))
    assert_equal handles.map(&:label), handles.map { |handle| handle.report.label }
  end

  def test_produce_many_async_returns_pending_handles_in_the_order_of_the_messages
    handles = producer("linger.ms": 300).produce_many_async(Array.new(50) { |i| { topic: topic, payload: "", label: i } })
    assert(handles.any?(&:pending?))
    assert_equal (0...50).to_a, handles.map(&:label)
    assert_equal true, Penstock::DeliveryHandle.await_all(handles, 10_000)
  end

  def test_every_message_of_a_batch_is_stored_where_its_report_says
    topics = Array.new(3) { topic(partitions: 4) }
    messages = Array.new(360) { |i| { topic: topics[i % 3], partition: i / 3 % 4, payload: "m#{i}", label: i } }
    handles = producer.produce_many_sync(messages)
    assert_equal messages.map { |message| message.values_at(:topic, :partition) }, places(handles).map { _1.first(2) }
    assert_handed_out_in_order(handles)

    found = topics.flat_map { |topic| stored(topic, partitions: 4) }
    assert_equal places(handles).zip(messages.map { _1[:payload] }).sort,
                 found.map { |record| [[record.topic, record.partition, record.offset], record.payload] }.sort
  end

  def test_a_symbol_names_a_topic_as_a_string_does
    topic = topic(partitions: 1)
    handles = producer.produce_many_sync([{ topic: topic.to_sym, payload: "0" }, { topic:, payload: "1" }])
    assert_equal [[topic, 0, 0], [topic, 0, 1]], places(handles)
  end

  def test_a_batch_of_none_is_none
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

  def test_a_users_messages_are_left_as_they_are
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

  def test_a_thousand_topics_go_through_one_producer
    producer = producer(servers: own_cluster.bootstrap_servers)
    topics = Array.new(1000) { |i| "many-#{i}" }
    2.times do |round|
      handles = producer.produce_many_sync(topics.map { |topic| { topic:, payload: topic, partition: 3 } })
      assert_equal topics.map { |topic| [topic, 3, round] }, places(handles)
    end
  end

  def test_without_acknowledgements_a_message_is_possibly_persisted_and_has_no_offset
    report = producer(acks: 0).produce_sync(topic: topic, payload: "")
    assert_equal [:possibly_persisted, -1001, nil], [report.status, report.offset, report.error]
  end

  def test_an_idempotent_producer_delivers
    topic = topic(partitions: 1)
    handles = producer("enable.idempotence": true).produce_many_sync(Array.new(20) { |i| { topic:, payload: i.to_s } })
    assert_equal (0...20).to_a, handles.map { |handle| handle.report.offset }
  end

  %w[none gzip snappy lz4 zstd].each do |codec|
    define_method("test_#{codec}_compression_gives_back_what_was_sent") do
      topic = topic(partitions: 1)
      payloads = Array.new(50) { |i| "payload #{i} " * 20 }
      producer("compression.codec": codec).produce_many_sync(payloads.map { |payload| { topic:, payload: } })
      assert_equal payloads, stored(topic).map(&:payload)
    end
  end

  def test_partition_count_is_what_the_topic_was_made_with
    topic = topic(partitions: 6)
    producer = self.producer
    assert_equal [6, 6], [producer.partition_count(topic), producer.partition_count(topic.to_sym)]
  end

  def test_partition_count_makes_an_unknown_topic_where_the_cluster_does_so
    assert_equal 4, producer.partition_count("unknown-#{rand(2**32)}")
  end

  def test_partition_count_is_remembered
    own = own_cluster
    topic = topic(partitions: 3, on: own)
    producer = producer(servers: own.bootstrap_servers, log_level: 0)
    producer.partition_count(topic)
    own.broker_down(1)
    assert_equal 3, producer.partition_count(topic)
  end

  def test_partition_count_without_a_cluster_says_whom_it_asked
    error = assert_raises(Penstock::Error) { unreachable_producer.partition_count("nowhere") }
    assert_includes error.message, "127.0.0.1:1"
    assert_equal "nowhere", error.topic
    assert_predicate error, :retriable?
  end

  def test_partition_count_refuses_what_is_no_topic_name
    producer = self.producer
    ["", "a b", :"a b", 5, nil].each { |name| assert_raises(Penstock::MessageInvalidError) { producer.partition_count(name) } }
  end
end

class ProducerBytesTest < ProducerTestCase
  STRINGS = [
    "hello", "grüße", "日本語", "\xFF\xFE broken", "日本語".encode("EUC-JP"), "text".encode("UTF-16LE"), "é".encode("ISO-8859-1"),
    "\0", "a\0b\0", "\xFF\x00".b, "x".dup.force_encoding("UTF-7"), "not frozen".dup, "a longer string, shared".dup[2, 18]
  ].freeze

  def test_strings_of_any_encoding_are_sent_as_their_bytes
    topic = topic(partitions: 1)
    producer.produce_many_sync(STRINGS.map { |s| { topic:, payload: s, key: s, headers: { "h" => s } } })
    expected = STRINGS.map { |string| [string.b, string.b, [["h", string.b]]] }
    assert_equal expected, stored(topic).map { |record| [record.payload, record.key, record.headers] }
  end

  def test_empty_is_not_nil
    topic = topic(partitions: 1)
    pairs = ["", nil, "x"].product(["", nil, "k"])
    producer.produce_many_sync(pairs.map { |payload, key| { topic:, payload:, key: } })
    assert_equal pairs, stored(topic).map { |record| [record.payload, record.key] }
  end

  def test_a_large_payload_arrives_whole
    topic = topic(partitions: 1)
    payload = Random.new(1).bytes(900_000)
    producer.produce_sync(topic:, payload:)
    assert_equal Zlib.crc32(payload), Zlib.crc32(stored(topic).first.payload)
  end

  def test_a_string_changed_after_the_call_is_sent_as_it_was
    topic = topic(partitions: 1)
    strings = Array.new(4) { |i| "before #{i}" * 10 }
    payload, key, name, value = strings
    handle = producer("linger.ms": 100).produce_async(topic:, payload:, key:, headers: { name => value })
    before = strings.map(&:dup)
    strings.each { |string| string.replace("after") unless string.frozen? }
    handle.wait
    record = stored(topic).first
    assert_equal before, [record.payload, record.key, *record.headers.first]
  end

  def test_strings_that_another_thread_replaces_meanwhile_are_sent_whole
    topic = topic(partitions: 1)
    versions = %w[a b].map { |letter| letter * 200 }
    strings = Array.new(2_000) { +"" << versions[0] }
    messages = strings.map { |string| { topic:, payload: string, key: string, headers: { "h" => string } } }
    producer = self.producer
    turn = 0
    replacing = Thread.new { loop { strings.each { |string| string.replace(versions[turn ^ 1]) } && turn ^= 1 } }
    2.times { producer.produce_many_sync(messages) }
    replacing.kill.join
    records = stored(topic)
    assert_equal 4_000, records.size
    assert_empty records.flat_map { |record| [record.payload, record.key, record.headers[0][1]] }.uniq - versions
  end

  def test_headers_keep_their_order_repeat_and_may_be_empty_or_binary
    topic = topic(partitions: 1)
    headers = { "z" => "1", "a" => ["2", "", "\0\xFF".b], "" => "no name", "none" => [], "ü" => "é", "empty" => "" }
    producer.produce_sync(topic:, payload: "", headers:)
    expected = [%w[z 1], %w[a 2], ["a", ""], ["a", "\0\xFF"], ["", "no name"], %w[ü é], ["empty", ""]]
    assert_equal expected.map { |pair| pair.map(&:b) }, stored(topic).first.headers
  end

  def test_no_headers_is_no_headers
    topic = topic(partitions: 1)
    producer.produce_many_sync([nil, {}, { "h" => [] }].map { |headers| { topic:, payload: "", headers: } })
    assert_equal [[], [], []], stored(topic).map(&:headers)
  end

  def test_timestamps_are_stored_in_milliseconds
    topic = topic(partitions: 1)
    time = Time.utc(2024, 2, 29, 12, 0, Rational(3_123_999, 1_000_000))
    timestamps = [time, time.localtime("+05:30"), 1, 1_700_000_000_123, 2**41]
    producer.produce_many_sync(timestamps.map { |timestamp| { topic:, payload: "", timestamp: } })
    ms = 1_709_208_003_123
    assert_equal [ms, ms, 1, 1_700_000_000_123, 2**41], stored(topic).map(&:timestamp)
  end

  def test_without_a_timestamp_it_is_now
    topic = topic(partitions: 1)
    earliest = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
    producer.produce_many_sync([{}, { timestamp: nil }, { timestamp: 0 }].map { |given| { topic:, payload: "", **given } })
    latest = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
    stored(topic).each { |record| assert_includes earliest..latest, record.timestamp }
  end
end

class ProducerPartitioningTest < ProducerTestCase
  KEYS = [*"a".."z", "foobar", "a-little-bit-long-string", "日本語", "\xFF\0".b].freeze
  MURMUR2 = { # from the tests of Kafka's own clients
    "21" => -973_932_308, "foobar" => -790_332_482, "a-little-bit-long-string" => -985_981_536, "abc" => 479_470_107,
    "a-little-bit-longer-string" => -1_486_304_829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8" => -58_897_971
  }.freeze

  def partitions_of(partitioner, partitions: 8, **settings)
    topic = topic(partitions:)
    messages = yield.map { |message| { topic:, payload: "", **message } }
    producer(partitioner:, **settings).produce_many_sync(messages).map { |handle| handle.report.partition }
  end

  def keyed(partitioner, keys, name = :key) = partitions_of(partitioner) { keys.map { |key| { name => key } } }

  %w[consistent consistent_random murmur2 murmur2_random fnv1a fnv1a_random].each do |partitioner|
    define_method("test_#{partitioner}_sends_a_partition_key_where_the_same_key_goes") do
      by_key = keyed(partitioner, KEYS)
      assert_equal by_key, keyed(partitioner, KEYS, :partition_key)
      assert_operator by_key.uniq.size, :>, 2
    end
  end

  %w[consistent consistent_random].each do |partitioner|
    define_method("test_#{partitioner}_is_crc32") do
      assert_equal KEYS.map { |key| Zlib.crc32(key) % 8 }, keyed(partitioner, KEYS)
    end
  end

  %w[murmur2 murmur2_random].each do |partitioner|
    define_method("test_#{partitioner}_is_that_of_the_java_client") do
      assert_equal MURMUR2.values.map { |hash| (hash & 0x7fffffff) % 8 }, keyed(partitioner, MURMUR2.keys)
    end
  end

  def test_partition_key_decides_and_key_is_still_stored
    topic = topic(partitions: 8)
    producer = self.producer
    expected = producer.produce_sync(topic:, payload: "", key: "deciding").partition
    10.times do |i|
      assert_equal expected, producer.produce_sync(topic:, payload: "", key: "k#{i}", partition_key: "deciding").partition
    end
    assert_equal ["deciding", *Array.new(10) { |i| "k#{i}" }], stored(topic, partitions: 8).map(&:key)
  end

  def test_an_explicit_partition_wins_over_the_key
    assert_equal [0, 1, 2, 3], partitions_of("murmur2", partitions: 4) { Array.new(4) { |i| { key: "same", partition: i } } }
  end

  def test_partition_minus_1_lets_the_partitioner_choose
    assert_equal keyed("murmur2", KEYS), partitions_of("murmur2") { KEYS.map { |key| { key:, partition: -1 } } }
  end

  def test_random_spreads_also_what_has_a_key
    assert_operator keyed("random", ["same"] * 200).uniq.size, :>, 1
    assert_operator keyed("random", ["same"] * 200, :partition_key).uniq.size, :>, 1
  end

  %w[consistent_random murmur2_random fnv1a_random random].each do |partitioner|
    define_method("test_#{partitioner}_keeps_messages_without_key_together_for_the_sticky_time") do
      empty = partitioner == "random" ? nil : ""
      none = Array.new(200) { |i| i.even? ? {} : { key: empty } }
      assert_equal 1, partitions_of(partitioner, "sticky.partitioning.linger.ms": 60_000) { none }.uniq.size
      assert_operator partitions_of(partitioner, "sticky.partitioning.linger.ms": 0) { none }.uniq.size, :>, 1
    end
  end

  def test_messages_without_key_spread_over_partitions_in_time
    topic = topic(partitions: 4)
    producer = producer("linger.ms": 0, "sticky.partitioning.linger.ms": 1)
    seen = []
    eventually { (seen |= [producer.produce_sync(topic:, payload: "").partition]).size == 4 }
  end

  def test_consistent_sends_all_without_key_to_one_partition
    assert_equal [0], partitions_of("consistent", "sticky.partitioning.linger.ms": 0) { [{}] * 100 }.uniq
  end
end

class ProducerRefusalsTest < ProducerTestCase
  FULL = { "queue.buffering.max.messages": 10, "linger.ms": 60_000 }.freeze

  def test_a_full_queue_refuses_a_message_and_takes_the_next_after_a_flush
    topic = topic(partitions: 1)
    producer = producer(**FULL)
    handles = Array.new(10) { |i| producer.produce_async(topic:, payload: i.to_s) }
    error = assert_raises(Penstock::QueueFullError) { producer.produce_async(topic:, payload: "too many") }
    assert_equal [:queue_full, topic, producer.id, true], [error.code, error.topic, error.producer_id, error.retriable?]
    assert_equal 10, producer.queue_size
    producer.flush
    handles << producer.produce_async(topic:, payload: "10")
    producer.flush
    assert_equal (0..10).map { |i| [topic, 0, i] }, places(handles)
    assert_equal (0..10).map(&:to_s), stored(topic).map(&:payload)
  end

  [25, 250].each do |size| # the second is handed over without the GVL
    define_method("test_a_batch_of_#{size}_larger_than_the_queue_says_which_messages_were_taken") do
      topic = topic(partitions: 1)
      producer = producer(**FULL)
      messages = Array.new(size) { |i| { topic:, payload: i.to_s, label: i } }
      error = assert_raises(Penstock::ProduceManyError) { producer.produce_many_async(messages) }
      assert_equal [:queue_full, (0...10).to_a], [error.code, error.dispatched.map(&:label)]
      assert_includes error.message, "10 of #{size} messages were taken"
      assert_equal 10, producer.queue_size
      producer.flush
      assert_equal (0...10).map { |i| [topic, 0, i] }, places(error.dispatched)
      assert_equal 10, producer.produce_async(topic:, payload: "").tap { producer.flush }.report.offset
    end

    define_method("test_produce_many_sync_of_#{size}_for_a_full_queue_raises_when_those_taken_have_their_verdicts") do
      topic = topic(partitions: 1)
      producer = producer("queue.buffering.max.messages": 10, "linger.ms": 100)
      error = assert_raises(Penstock::ProduceManyError) { producer.produce_many_sync([{ topic:, payload: "" }] * size) }
      assert_equal (0...10).map { |i| [topic, 0, i] }, places(error.dispatched)
      assert_equal 10, producer.produce_async(topic:, payload: "").tap { producer.flush }.report.offset
    end
  end

  def test_a_batch_of_which_none_is_taken_has_nothing_dispatched
    producer = producer(**FULL)
    topic = topic(partitions: 1)
    producer.produce_many_async([{ topic:, payload: "" }] * 10)
    error = assert_raises(Penstock::ProduceManyError) { producer.produce_many_async([{ topic:, payload: "" }] * 2) }
    assert_equal [], error.dispatched
    producer.flush
    assert_equal 10, stored(topic).size
  end

  def test_verdicts_that_come_as_the_wait_ends_make_produce_many_sync_return_or_time_out
    topic = topic(partitions: 1)
    producer = producer("linger.ms": 0.45) { |config| config.max_wait_timeout = 1 }
    producer.produce_async(topic:, payload: "").wait
    1_000.times do
      assert_equal 1, producer.produce_many_sync([{ topic:, payload: "" }]).size
    rescue Penstock::WaitTimeoutError
      next
    end
  end

  def test_a_verdict_makes_room_for_the_next_message
    topic = topic(partitions: 1)
    producer = producer("queue.buffering.max.messages": 1, "linger.ms": 0)
    assert_equal (0...100).to_a, Array.new(100) { producer.produce_sync(topic:, payload: "").offset }
  end

  def faulty(*errors, partitions: 1, **settings)
    own = own_cluster
    topic = topic(partitions:, on: own)
    producer = producer(servers: own.bootstrap_servers, "retry.backoff.ms": 10, log_level: 0, **settings)
    producer.partition_count(topic)
    own.inject_errors(:produce, *errors)
    [producer, topic, own]
  end

  def test_a_brokers_refusal_is_a_delivery_error_and_the_message_not_persisted
    producer, topic, = faulty(:invalid_record)
    handle = producer.produce_async(topic:, payload: "", label: 1)
    error = assert_raises(Penstock::DeliveryError) { handle.wait }
    assert_equal [:invalid_record, 87, topic, 0, producer.id],
                 [error.code, error.number, error.topic, error.partition, error.producer_id]
    assert_predicate error, :retriable?
    report = handle.report
    assert_equal [:not_persisted, 0, 1, nil], [report.status, report.partition, report.label, report.latency]
    assert_equal [false, true, false], [report.delivered?, report.not_persisted?, handle.delivered?]
    assert_predicate producer.produce_sync(topic:, payload: ""), :persisted?
  end

  def test_a_message_that_a_broker_refused_has_no_offset
    producer, topic, = faulty(:invalid_record)
    handle = producer.produce_async(topic:, payload: "")
    producer.flush
    assert_equal(-1001, handle.report.offset)
  end

  def test_an_unclear_answer_leaves_a_message_possibly_persisted_and_not_retriable
    producer, topic, = faulty(:request_timed_out, retries: 0)
    handle = producer.produce_async(topic:, payload: "")
    error = assert_raises(Penstock::DeliveryError) { handle.wait }
    assert_equal [:request_timed_out, false, :possibly_persisted], [error.code, error.retriable?, handle.report.status]
  end

  def test_a_retriable_answer_is_retried_and_the_message_stored_once
    producer, topic, own = faulty(:not_enough_replicas)
    assert_equal 0, producer.produce_sync(topic:, payload: "once").offset
    assert_equal ["once"], stored(topic, on: own).map(&:payload)
  end

  def test_a_batch_of_which_a_part_fails_raises_with_all_handles
    producer, topic, = faulty(:topic_authorization_failed, partitions: 2, "linger.ms": 50)
    messages = Array.new(20) { |i| { topic:, payload: "", partition: i % 2, label: i } }
    error = assert_raises(Penstock::ProduceManyError) { producer.produce_many_sync(messages) }
    assert_equal (0...20).to_a, error.dispatched.map(&:label)
    assert_equal :topic_authorization_failed, error.code
    failed = error.dispatched.select(&:error)
    assert_equal 1, failed.map { |handle| handle.report.partition }.uniq.size
    assert_equal 10, error.dispatched.count(&:delivered?)
  end

  def test_a_partition_that_the_topic_lacks_is_a_delivery_error
    producer = self.producer
    topic = topic(partitions: 2)
    error = assert_raises(Penstock::DeliveryError) { producer.produce_sync(topic:, payload: "", partition: 2) }
    assert_equal :unknown_partition, error.code
  end
end
