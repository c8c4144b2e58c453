# frozen_string_literal: true

require_relative "../test_helper"

class MessageTest < PenstockTest
  ILLEGAL_TOPICS = ["", ".", "..", "a" * 250, "a b", "a/b", "ä", "日本", "a\0", "a\n", "a\xFF", "a,b",
                    "a".encode("UTF-16LE")].freeze
  LEGAL_TOPICS = ["...", ".a", "-", "_", "a.b_c-D9", "a" * 249].freeze

  # Invalid messages by name: the message for a topic, and the error's text.
  INVALID = {
    a_string: ->(_) { "hello" }, an_array_of_pairs: ->(topic) { [[:topic, topic], [:payload, ""]] }, nil: ->(_) {},
    an_object_with_to_h: ->(topic) { Struct.new(:topic, :payload).new(topic, "") }
  }.transform_values { |message| [message, /[Aa] message is a Hash, not (String|Array|NilClass|#<Class)/] }.merge(
    no_topic: [->(_) { { payload: "" } }, /:topic is missing/],
    an_empty_hash: [->(_) { {} }, /:topic is missing/],
    no_payload: [->(topic) { { topic: } }, /:payload is missing/]
  )
  {
    topic: [nil, 5, ["a"], Object.new], payload: [5, :symbol, ["a"], {}, true, 1.5], key: [5, :symbol, ["a"]],
    partition: [nil, "1", 1.0, :one, -2, 2**31, 2**32, 2**64, -2**64], partition_key: [5, :symbol, ["a"], ""],
    timestamp: ["now", 1.5, 0, -1, -2**62, 2**64, Time.at(-1), Time.at(0), Time.at(2 * 10**16), Time.at(2**63),
                Time.at(-2**63), Time.at(-2**70), :now, [1]],
    headers: ["a", 5, [%w[a b]], [], { 1 => "a" }, { symbol: 1 }, { nil => "a" }, { "a" => 1 }, { "a" => :b },
              { "a" => ["b", 1] }, { "a" => [["b"]] }, { "a" => { "b" => "c" } },
              { "a\0b" => "c" }, { "\0" => nil }, { "\xFF" => "a" }, { "a\xC3".b => "b" }, { "é".encode("ISO-8859-1") => "a" },
              { "a".encode("UTF-16LE") => "b" }, { "\xED\xA0\x80" => [] }, { "a\0": "b" }]
  }.each do |name, values|
    values.each_with_index do |value, i|
      INVALID[:"wrong_#{name}_#{i}"] = [->(topic) { { topic:, payload: "", name => value } }, /:#{name}\b/]
    end
  end
  ILLEGAL_TOPICS.each_with_index do |name, i|
    INVALID[:"illegal_topic_name_#{i}"] = [->(_) { { topic: name, payload: "" } }, /is not a valid topic name/]
  end
  { key: 5, payload: :symbol, headers: { "a" => 1 }, partition_key: 7 }.each do |name, value|
    INVALID[:"#{name}_that_needs_to_s"] = [->(topic) { { topic:, payload: "", name => value } }, /:#{name}\b.*use to_s/]
  end
  INVALID[:a_number_as_header_name] = [->(topic) { { topic:, payload: "", headers: { 1 => "1" } } }, /:headers\b.*use to_s/]
  INVALID[:a_hash_as_payload] = [->(topic) { { topic:, payload: { a: 1 } } }, /:payload\b.*config\.serializer/]
  INVALID.merge!(
    an_illegal_symbol_as_topic: [->(_) { { topic: :"a b", payload: "" } }, /"a b" is not a valid topic name/],
    an_unknown_key: [->(topic) { { topic:, payload: "", colour: 1 } }, /[Uu]nknown message key :colour/],
    a_misspelt_key: [->(topic) { { topic:, paylod: "" } }, /[Uu]nknown message key :paylod \(did you mean :payload\?\)/],
    string_keys: [->(topic) { { "topic" => topic, "payload" => "" } }, /"topic" \(these keys are Symbols\)/],
    a_key_that_is_no_name: [->(topic) { { topic:, payload: "", 5 => 1 } }, /[Uu]nknown message key 5/],
    a_nil_key: [->(topic) { { topic:, payload: "", nil => 1 } }, /[Uu]nknown message key nil/],
    partition_beside_partition_key:
      [->(topic) { { topic:, payload: "", partition: 0, partition_key: "a" } }, /:partition and :partition_key contradict/],
    a_default_proc_in_place_of_keys: [->(topic) { Hash.new { |_, key| key == :topic ? topic : "" } }, /:topic is missing/],
    too_large_a_payload: [->(topic) { { topic:, payload: "x" * 101 } }, /:payload has 101 bytes.*max_payload_size.*\(100\)/],
    too_large_a_key: [->(topic) { { topic:, payload: "", key: "x" * 1000 } }, /[Pp]ayload, key and headers.*message\.max\.bytes/]
  )

  # Connected already: under PENSTOCK_GC=young, connecting takes most of a test's time. gc_test.rb covers it.
  def producer(...) = GCLevel.paused { super.tap(&:client) }

  def small_producer
    producer("message.max.bytes": 1000, **QUICK) { |config| config.max_payload_size = 100 }
  end

  INVALID.each do |name, (message, pattern)|
    # behaviour: message Hash
    # behaviour: MessageInvalidError
    define_method("test_raises_for_#{name}_and_sends_nothing") do
      topic = topic(partitions: 1)
      producer = small_producer
      %i[produce_sync produce_async].each do |method|
        error = assert_raises(Penstock::MessageInvalidError) { producer.public_send(method, message[topic]) }
        assert_match pattern, error.message
        assert_equal 0, producer.queue_size
      end
      assert_equal 0, producer.produce_sync(topic:, payload: "the first").offset
    end

    # behaviour: MessageInvalidError
    # behaviour: One invalid message in a batch
    define_method("test_raises_for_#{name}_in_a_batch_with_its_index_and_sends_no_message") do
      topic = topic(partitions: 1)
      producer = small_producer
      good = { topic:, payload: "" }
      %i[produce_many_sync produce_many_async].each do |method|
        error = assert_raises(Penstock::MessageInvalidError) { producer.public_send(method, [good, good, message[topic], good]) }
        assert_match(/\AMessage 2 of the batch: .*#{pattern}/, error.message)
        assert_equal 0, producer.queue_size
      end
      assert_equal 0, producer.produce_sync(topic:, payload: "the first").offset
    end
  end

  MOVING = <<~'RUBY'
    require "did_you_mean"
    GC.verify_compaction_references((RUBY_VERSION < "3.2" ? :double_heap : :expand_heap) => true, toward: :empty)
    producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": "127.0.0.1:1" } }
    10.times do
      GC.compact
      producer.produce_async(topic: "a", payload: "", colour: 1)
    rescue Penstock::MessageInvalidError
      print "raised "
    end
  RUBY

  def test_errors_about_messages_survive_compaction
    output, errors, status = ruby(MOVING)
    assert_equal "raised " * 10, output, "#{status} #{errors[0, 300]}"
  end

  def test_the_error_names_the_first_of_several_invalid_messages
    error = assert_raises(Penstock::MessageInvalidError) { producer.produce_many_async([nil, {}]) }
    assert_match(/\AMessage 0 of the batch/, error.message)
  end

  def test_a_batch_is_an_array
    producer = self.producer
    [nil, {}, { topic: "a", payload: "" }, "a", [].each].each do |batch|
      error = assert_raises(Penstock::MessageInvalidError) { producer.produce_many_async(batch) }
      assert_match(/produce_many takes an Array of messages, not #{batch.class}/, error.message)
    end
  end

  def test_an_error_about_a_message_is_not_retriable_and_carries_no_kafka_code
    error = assert_raises(Penstock::MessageInvalidError) { producer.produce_async({}) }
    assert_equal [nil, nil, 0, false, false], [error.code, error.name, error.number, error.retriable?, error.fatal?]
  end

  def test_an_invalid_message_does_not_connect_the_producer
    producer = self.producer
    assert_raises(Penstock::MessageInvalidError) { producer.produce_async({}) }
    assert_equal 0, Internal::ProducerClient.open_count
  end

  LEGAL_TOPICS.each_with_index do |name, i|
    # behaviour: message Hash
    define_method("test_accepts_valid_topic_name_#{i}") do
      assert_equal name, producer.produce_sync(topic: name, payload: "").topic
    end
  end

  def test_subclasses_of_string_and_hash_are_accepted
    text = Class.new(String)
    message = Class.new(Hash).new.merge!(topic: text.new(topic(partitions: 1)), payload: text.new("p"), key: text.new("k"))
    report = producer.produce_sync(message)
    assert_predicate report, :persisted?
    assert_instance_of String, report.topic
  end

  def test_special_topic_strings_are_neither_kept_nor_frozen
    special = [Class.new(String).new("a" * 10), Class.new(String).new("b" * 60), +"c", "d" * 60]
    special.last(2).each { |string| string.instance_variable_set(:@mine, 1) }
    handles = producer.produce_many_sync(special.map { |topic| { topic:, payload: "" } })
    assert(special.none?(&:frozen?), "frozen by the call")
    special.each(&:upcase!)
    assert_equal ["a" * 10, "b" * 60, "c", "d" * 60], handles.map(&:topic)
  end

  def test_the_default_proc_of_a_message_is_not_called
    message = Hash.new { flunk "asked" }.merge!(topic: topic(partitions: 1), payload: "")
    assert_equal 0, producer.produce_sync(message).offset
  end

  # Like ActiveSupport::TimeWithZone: it is no Time, but answers is_a?(Time) with true.
  class Zoned
    def initialize(time, &block)
      @time = time
      @block = block
    end

    def is_a?(type) = type == ::Time || super

    def to_time
      @block&.call
      @time
    end
  end

  # A timestamp's code may change the messages: what was read of them before is not used afterwards.
  def test_code_of_a_timestamp_that_changes_the_messages_does_no_harm
    payload = "a" * 100_000
    grown = Array.new(200) { |i| { topic: "t#{i}", payload: +"x" } }
    time = Zoned.new(Time.at(1)) do
      payload.replace("short")
      grown.each { |one| one[:payload].replace("y" * 10_000) }
      GC.start
    end
    stuck = unreachable_producer
    assert_predicate stuck.produce_async(topic: "test", payload:, timestamp: time), :pending?
    assert_equal 201, stuck.produce_many_async([*grown, { topic: "test", payload:, timestamp: time }]).size
    stuck.close(timeout: 0)
  end

  def test_a_timestamp_that_only_pretends_to_be_a_time_is_rejected
    error = assert_raises(Penstock::MessageInvalidError) do
      producer.produce_async(topic:, payload: "", timestamp: Struct.new(:to_time) { def is_a?(_type) = true }.new("12:00"))
    end
    assert_match(/:timestamp is a Time/, error.message)
  end

  def test_nil_attributes_are_the_same_as_absent_ones
    nothing = { payload: nil, key: nil, partition_key: nil, timestamp: nil, headers: nil, label: nil }
    assert_predicate producer.produce_sync(topic: topic(partitions: 1), **nothing), :persisted?
  end

  # behaviour: message Hash
  # behaviour: The handle and the report have the message's label
  def test_a_label_may_be_any_object_and_is_returned_unchanged
    labels = [nil, false, 0, 2**70, 1.5, "s", :s, [], {}, Object.new, Class, BasicObject.new, proc {}, Thread.current]
    topic = topic(partitions: 1)
    handles = producer.produce_many_sync(labels.map { |label| { topic:, payload: "", label: } })
    labels.zip(handles) do |label, handle|
      assert label.equal?(handle.label)
      assert label.equal?(handle.report.label)
    end
  end

  # ---- sizes ----

  # behaviour: max_payload_size
  def test_a_payload_of_max_payload_size_is_accepted_and_one_byte_more_is_rejected
    topic = topic(partitions: 1)
    producer = producer { |config| config.max_payload_size = 50 }
    assert_equal 0, producer.produce_sync(topic:, payload: "é" * 25).offset
    assert_raises(Penstock::MessageInvalidError) { producer.produce_sync(topic:, payload: "x#{"é" * 25}") }
    assert_equal 1, producer.produce_sync(topic:, payload: nil).offset
  end

  def test_max_payload_size_0_accepts_only_empty_payloads
    producer = producer { |config| config.max_payload_size = 0 }
    topic = topic(partitions: 1)
    assert_equal 0, producer.produce_sync(topic:, payload: "").offset
    assert_raises(Penstock::MessageInvalidError) { producer.produce_sync(topic:, payload: "x") }
  end

  # Kafka's varints: a signed number takes 7 bits a byte.
  def varint(number) = ((number * 2).bit_length / 7.0).ceil.clamp(1..)

  # The largest payload that librdkafka accepts with a message.max.bytes of 1000, by its own arithmetic.
  def largest_payload(key: "", headers: {})
    headers = headers.flat_map { |name, values| [values].flatten.map { |value| [name.to_s, value] } }
    1000 - 36 - key.bytesize - headers.flatten.sum { |text| text ? varint(text.bytesize) + text.bytesize : 1 }
  end

  SHAPES = {
    nothing_else: {}, an_empty_key: { key: "" }, a_key: { key: "é" * 50 }, an_empty_array_of_headers: { headers: { "a" => [] } },
    a_header: { headers: { "a" => "b" } }, a_longer_header: { headers: { "é" * 25 => "b" * 100 } },
    a_header_with_a_symbol: { headers: { a: "b", "é": %w[c d] } },
    an_array_of_headers: { headers: { "a" => ["b", "", "c"] } }, an_empty_header: { headers: { "" => "" } },
    null_headers: { headers: { "a" => nil, "b" => [nil, nil] } },
    a_key_and_headers: { key: "k" * 63, headers: { "a" * 200 => "b" * 300, "c" * 64 => "" } }
  }.freeze

  SHAPES.each do |name, parts|
    define_method("test_with_#{name}_the_size_limit_is_librdkafkas") do
      topic = topic(partitions: 1)
      producer = producer("message.max.bytes": 1000, "linger.ms": 0, **QUICK)
      largest = largest_payload(**parts)
      taken = ((largest - 40)..(largest + 40)).select do |size|
        producer.produce_async(topic:, payload: "x" * size, **parts)
      rescue Penstock::MessageInvalidError => e
        assert_nil e.code, "librdkafka rejected a message that Penstock accepted: #{e.message}"
        false
      end
      producer.flush
      assert_equal largest, taken.max
      assert_equal taken.size, producer.produce_sync(topic:, payload: "").offset
    end
  end

  # behaviour: max_payload_size
  def test_a_payload_as_large_as_the_defaults_allow_is_delivered
    payload = "x" * (1_000_000 - 36)
    assert_predicate producer.produce_sync(topic: topic(partitions: 1), payload:), :persisted?
  end
end
