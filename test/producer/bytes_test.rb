# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/producer_test_case"
require "zlib"

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

  # behaviour: message Hash
  def test_empty_strings_and_nil_stay_distinct
    topic = topic(partitions: 1)
    pairs = ["", nil, "x"].product(["", nil, "k"])
    producer.produce_many_sync(pairs.map { |payload, key| { topic:, payload:, key: } })
    assert_equal pairs, stored(topic).map { |record| [record.payload, record.key] }
  end

  def test_a_large_payload_arrives_complete
    topic = topic(partitions: 1)
    payload = Random.new(1).bytes(900_000)
    producer.produce_sync(topic:, payload:)
    assert_equal Zlib.crc32(payload), Zlib.crc32(stored(topic).first.payload)
  end

  def test_a_string_changed_after_the_call_is_sent_unchanged
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

  slow def test_strings_that_another_thread_replaces_during_the_call_are_sent_intact
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

  # behaviour: message Hash
  def test_headers_keep_their_order_repeat_and_may_be_empty_or_binary
    topic = topic(partitions: 1)
    headers = { "z" => "1", "a" => ["2", "", "\0\xFF".b], "" => "no name", "none" => [], "ü" => "é", "empty" => "" }
    producer.produce_sync(topic:, payload: "", headers:)
    expected = [%w[z 1], %w[a 2], ["a", ""], ["a", "\0\xFF"], ["", "no name"], %w[ü é], ["empty", ""]]
    assert_equal expected.map { |pair| pair.map(&:b) }, stored(topic).first.headers
  end

  def test_a_header_of_nil_is_stored_as_null_and_read_messages_can_be_produced_again
    topic = topic(partitions: 1)
    headers = { "a" => nil, "b" => [nil, "1", nil], "c" => "", "ü" => "\xFF\0".b }
    producer.produce_sync(topic:, payload: "", headers:)
    reading = Penstock::Consumer.new("bootstrap.servers": cluster.bootstrap_servers)
    reading.assign(topic => { 0 => 0 })
    read = reading.poll(timeout: 10)
    reading.close
    assert_equal headers, read.headers
    producer.produce_many_sync([{ topic:, payload: read.payload, headers: read.headers, timestamp: read.timestamp }])
    expected = [["a", nil], ["b", nil], ["b", "1"], ["b", nil], ["c", ""], ["ü".b, "\xFF\0".b]]
    assert_equal [expected] * 2, stored(topic).map(&:headers)
    assert_equal 1, stored(topic).map(&:timestamp).uniq.size
  end

  # A name in another encoding, with bytes that are UTF-8.
  def test_names_of_headers_are_stored_byte_by_byte
    topic = topic(partitions: 1)
    producer.produce_sync(topic:, payload: "", headers: { "ü€😀".b => "1", "\u0001 \n" => "2" })
    assert_equal [["ü€😀".b, "1"], ["\u0001 \n", "2"]], stored(topic).first.headers
  end

  def test_absent_and_empty_headers_are_stored_as_no_headers
    topic = topic(partitions: 1)
    producer.produce_many_sync([nil, {}, { "h" => [] }].map { |headers| { topic:, payload: "", headers: } })
    assert_equal [[], [], []], stored(topic).map(&:headers)
  end

  # behaviour: message Hash
  def test_timestamps_are_stored_in_milliseconds
    topic = topic(partitions: 1)
    time = Time.utc(2024, 2, 29, 12, 0, Rational(3_123_999, 1_000_000))
    timestamps = [time, time.localtime("+05:30"), 1, 1_700_000_000_123, 2**40]
    producer.produce_many_sync(timestamps.map { |timestamp| { topic:, payload: "", timestamp: } })
    ms = 1_709_208_003_123
    assert_equal [ms, ms, 1, 1_700_000_000_123, 2**40], stored(topic).map(&:timestamp)
  end

  # Like ActiveSupport::TimeWithZone: it is no Time, but answers is_a?(Time) with true.
  class Zoned
    def initialize(time) = @time = time
    def is_a?(type) = type == Time || super
    def to_time = @time
  end

  def test_an_object_that_acts_as_a_time_is_accepted_as_a_timestamp
    name = topic(partitions: 1)
    time = Time.at(1_700_000_000, 123, :millisecond)
    message = { topic: name, payload: "x", timestamp: Zoned.new(time) }
    producer.produce_sync(message)
    producer.produce_many_sync([message, { **message, timestamp: time }, message])
    assert_equal [1_700_000_000_123] * 4, stored(name).map(&:timestamp)
  end

  def test_an_object_that_acts_as_a_time_is_rejected_if_it_is_out_of_range
    far = { topic:, payload: "x", timestamp: Zoned.new(Time.at(5_000_000_000_000_000)) }
    assert_raises(Penstock::MessageInvalidError) { producer.produce_async(far) }
    assert_raises(Penstock::MessageInvalidError) { producer.produce_many_async([far]) }
  end

  def test_active_supports_own_times_are_timestamps
    name = topic(partitions: 1)
    output = ruby!(<<~RUBY, cluster.bootstrap_servers, name)
      begin
        require "active_support"
        require "active_support/time"
      rescue LoadError
        exit
      end
      one = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0] } }
      time = ActiveSupport::TimeZone["Tokyo"].at(1_700_000_000, 123, :millisecond)
      puts one.produce_sync(topic: ARGV[1], payload: "x", timestamp: time).offset
    RUBY
    skip "ActiveSupport is not installed" if output.empty?
    assert_equal [1_700_000_000_123], stored(name).map(&:timestamp)
  end

  # A real Kafka rejects them by default from an hour ahead on: message.timestamp.after.max.ms.
  def test_future_timestamps_are_stored_if_the_cluster_accepts_them
    topic = topic(partitions: 1, on: embedded_cluster)
    producer(servers: embedded_cluster.bootstrap_servers).produce_sync(topic:, payload: "", timestamp: 2**41)
    assert_equal [2**41], stored(topic, on: embedded_cluster).map(&:timestamp)
  end

  def test_without_a_timestamp_the_current_time_is_stored
    topic = topic(partitions: 1)
    earliest = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
    producer.produce_many_sync([{}, { timestamp: nil }].map { |given| { topic:, payload: "", **given } })
    latest = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
    stored(topic).each { |record| assert_includes earliest..latest, record.timestamp }
  end

  # The GC does not count this memory, so it would free it late.
  def test_a_rejected_large_batch_frees_its_memory_at_once
    grown = ruby!(<<~RUBY, cluster.bootstrap_servers)
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0] } }
      batch = Array.new(50_000) { { topic: "t", payload: "x" } } << { topic: "t" }
      reject = -> { producer.produce_many_sync(batch) rescue $!.is_a?(Penstock::MessageInvalidError) or raise }
      memory = -> { File.read("/proc/self/status")[/VmRSS:\\s*(\\d+)/, 1].to_i }
      reject.call
      GC.disable
      before = memory.call
      20.times { reject.call }
      puts memory.call - before
    RUBY
    assert_operator Integer(grown), :<, 50_000 # kB. Keeping all batches would take about 100,000
  end
end
