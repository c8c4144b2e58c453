# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# config.deserializer and config.key_deserializer: messages as objects.
class DeserializerTest < ConsumerTestCase
  PACK = Penstock::MessagePack
  DOCUMENT = { "id" => 7, "name" => "t\u00e9", "list" => [1, nil, 2.5, true] }.freeze
  FAIL = ->(bytes) { bytes == "bad" ? raise(ArgumentError, "cannot read #{bytes}") : bytes.upcase }

  # Counts its calls.
  class Counting
    attr_reader :seen

    def initialize
      @seen = []
    end

    def load(bytes)
      @seen << bytes
      [bytes]
    end
  end

  def made(payload, **more) = Penstock::Message.new(topic: "events", partition: 3, offset: 9, payload:, **more)

  # @return [Penstock::Batch] of exactly these payloads
  def batch_of(payloads, &block)
    name = topic(partitions: 1)
    produce(name, payloads)
    one = reading(name, &block)
    eventually do
      batch = one.poll_batch(max: payloads.size, timeout: 5)
      batch.size == payloads.size ? batch : one.seek(name, 0, 0) && nil
    end
  end

  # ---- what they read ----

  class Both
    def dump(object) = "<#{object}>"
    def load(bytes) = bytes[1..-2].to_s
    def call(_) = raise("not called")
  end

  [[:json, DOCUMENT], [JSON, DOCUMENT], [PACK, DOCUMENT], [PACK::Factory.new, DOCUMENT], [PACK::Factory.new.pool, DOCUMENT],
   [Marshal, { a: 1 }], [Both.new, "text"]].each do |codec, object|
    define_method(:"test_what_#{codec.is_a?(Module) || codec.is_a?(Symbol) ? codec : codec.class}_writes_it_reads") do
      name = topic(partitions: 1)
      producer { |config| config.serializer = codec }.produce_sync(topic: name, payload: object, partition: 0)
      one = reading(name) { |config| config.deserializer = codec }
      assert_equal object, one.poll(timeout: 10).value
    end
  end

  def test_json_rejects_nan_when_it_is_written_and_read
    one = producer { |config| config.serializer = :json }
    assert_raises(Penstock::SerializationError) { one.produce_sync(topic:, payload: [Float::NAN]) }
    assert_raises(Penstock::DeserializationError) { made("[NaN]", deserializer: :json).value }
  end

  # JSON.load would call String.json_create.
  def test_json_makes_no_object_of_a_class_that_the_document_names
    require "json/add/complex"
    text = '{"json_class":"Complex","r":1,"i":2}'
    [:json, JSON].each { |codec| assert_instance_of Hash, made(text, deserializer: codec).value }
  end

  def test_a_callable_gets_frozen_binary_bytes
    seen = nil
    assert_equal 3, made("t\u00e9", deserializer: ->(bytes) { (seen = bytes).bytesize }).value
    assert_predicate seen, :frozen?
    assert_equal Encoding::BINARY, seen.encoding
  end

  def test_without_a_deserializer_values_are_the_bytes
    batch = batch_of(["a", nil])
    assert_equal [["a", nil], ["a", nil], [nil, nil]], [batch.values, batch.map(&:value), batch.decoded_keys]
    plain = made("p", key: "k", key_deserializer: ->(bytes) { [bytes] })
    assert_equal ["p", ["k"], "k"], [plain.value, plain.decoded_key, plain.key]
  end

  def test_keys_and_payloads_have_deserializers_of_their_own
    name = topic(partitions: 1)
    producer.produce_sync(topic: name, partition: 0, key: "7", payload: "[1]")
    one = reading(name) do |config|
      config.deserializer = :json
      config.key_deserializer = method(:Integer).to_proc
    end
    got = one.poll(timeout: 10)
    assert_equal [7, [1], "7", "[1]"], [got.decoded_key, got.value, got.key, got.payload]
    one.seek(name, 0, 0)
    batch = one.poll_batch(timeout: 10)
    assert_equal [[7], [[1]]], [batch.decoded_keys, batch.values]
  end

  def test_tombstones_and_missing_keys_are_nil_without_a_call
    counting = Counting.new
    got = made(nil, deserializer: counting, key_deserializer: counting)
    assert_equal [nil, nil, []], [got.value, got.decoded_key, counting.seen]
    batch = batch_of([nil, "a"]) { |config| config.deserializer = counting }
    assert_equal [[nil, ["a"]], ["a"]], [batch.values, counting.seen]
  end

  # ---- when they are called ----

  def test_a_value_is_decoded_when_it_is_read_and_kept
    counting = Counting.new
    batch = batch_of(%w[a b]) { |config| config.deserializer = counting }
    messages = batch.to_a
    assert_empty counting.seen
    assert_same messages[1].value, messages[1].value
    assert_equal %w[b], counting.seen
    assert_equal [["a"], ["b"]], batch.values
    assert_predicate batch.values, :frozen?
  end

  def test_nil_and_false_are_kept_too
    calls = 0
    got = [nil, false].map { |result| made("x", deserializer: ->(_) { (calls += 1) && result }) }
    assert_equal [nil, false] * 2, (got + got).map(&:value)
    assert_equal 2, calls
  end

  def test_a_deserializer_may_read_the_message_that_it_decodes
    got = nil
    depth = 0
    got = made("x", deserializer: ->(bytes) { (depth += 1) == 1 ? [got.value, 1] : bytes })
    assert_equal "x", got.value
    assert_same got.value, got.value
  end

  def test_pattern_matching_decodes_only_what_it_names
    counting = Counting.new
    got = made("x", deserializer: counting)
    assert((got in { topic: "events", partition: 3 }))
    assert_empty counting.seen
    assert((got in { topic: "events", value: ["x"] }))
    refute_includes got.to_h, :value
  end

  # ---- what cannot be decoded ----

  def test_the_error_names_place_and_cause_and_never_the_bytes
    error = assert_raises(Penstock::DeserializationError) { made("bad", deserializer: FAIL).value }
    assert_equal ["events", 3, 9, ArgumentError], [error.topic, error.partition, error.offset, error.cause.class]
    assert_match(/\AThe payload could not be decoded: the deserializer Proc at .* raised ArgumentError \[topic events, /,
                 error.message)
    assert error.message.end_with?(". Skip the message or send it elsewhere: its bytes can be read."), error.message
    refute_includes error.message, "bad"
    assert_kind_of Penstock::ConsumeError, error
    error = assert_raises(Penstock::DeserializationError) { made("", key: "bad", key_deserializer: :json).decoded_key }
    assert_match(/\AThe key could not be decoded: the deserializer :json raised JSON::ParserError \[/, error.message)
  end

  def test_a_message_that_cannot_be_decoded_affects_no_other
    batch = batch_of(%w[a bad c]) { |config| [config.deserializer = FAIL, config.id = "mine"] }
    messages = batch.to_a
    error = assert_raises(Penstock::DeserializationError) { messages[1].value }
    assert_equal ["mine", 1], [error.consumer_id, error.offset]
    assert_raises(Penstock::DeserializationError) { messages[1].value }
    assert_equal %w[A bad C], [messages[0].value, messages[1].payload, messages[2].value]
  end

  def test_values_raises_for_the_first_or_calls_the_block_for_each
    batch = batch_of(%w[a bad c bad]) { |config| config.deserializer = FAIL }
    assert_equal 1, assert_raises(Penstock::DeserializationError) { batch.values }.offset
    failed = []
    assert_equal ["A", 1, "C", 2], batch.values { |error| (failed << error.offset).size }
    assert_equal [1, 3], failed
  end

  [NotImplementedError, SystemStackError, EncodingError].each do |raised|
    define_method(:"test_#{raised}_of_a_deserializer_is_the_cause_of_its_error") do
      got = made("x", deserializer: ->(_) { raise raised, "\xFF" })
      assert_instance_of raised, assert_raises(Penstock::DeserializationError) { got.value }.cause
    end
  end

  def test_an_interrupt_in_a_deserializer_reaches_the_caller_unchanged
    got = made("x", deserializer: ->(_) { raise Interrupt, "mine" })
    assert_raises(Interrupt) { got.value }
  end

  def test_values_of_a_released_batch_raise_but_kept_ones_stay
    batch = batch_of(%w[a b]) { |config| config.deserializer = Counting.new }
    first, second = batch.to_a
    first.value
    batch.release
    assert_equal ["a"], first.value
    [-> { second.value }, -> { batch.values }, -> { batch.decoded_keys }].each do |read|
      assert_raises(Penstock::BatchReleasedError, &read)
    end
  end

  # ---- the settings ----

  [5, "json", :yaml, Object.new].each_with_index do |wrong, i|
    define_method(:"test_an_invalid_deserializer_is_rejected_when_a_consumer_is_made_#{i}") do
      %i[deserializer key_deserializer].each do |name|
        set = ->(config) { config.public_send(:"#{name}=", wrong) }
        assert_match(/config\.#{name} must be nil, :json or an object with a method load or call that takes the bytes/,
                     assert_raises(Penstock::ConfigurationInvalidError) { consumer(&set) }.message)
        assert_raises(ArgumentError) { made("x", **{ name => wrong }) }
      end
    end
  end

  # ---- they are messages ----

  thorough def test_messages_with_a_deserializer_can_be_marked_committed_and_compared
    name = topic(partitions: 1)
    produce(name, %w[a b])
    one = group_consumer { |config| config.deserializer = :json }
    one.subscribe(name)
    first = eventually { one.poll(timeout: 1) }
    assert_equal [true, true, 1], [one.mark(first), one.commit(first), one.committed(name, 0)[0]]
    assert_equal first, Penstock::Message.new(**first.to_h)
    assert_predicate first, :frozen?
  end

  thorough def test_everything_survives_gc_and_compaction
    GC.stress = true
    got = Array.new(3) { |i| made("[#{i}]", key: i.to_s, deserializer: :json, key_deserializer: ->(bytes) { [bytes] }) }
    read = -> { got.map { |one| [one.value, one.decoded_key] } }
    read.call
    GC.stress = false
    GC.compact if GC.respond_to?(:compact)
    assert_equal [[[0], ["0"]], [[1], ["1"]], [[2], ["2"]]], read.call
  ensure
    GC.stress = false
  end

  def test_without_a_deserializer_messages_and_batches_stay_shareable
    batch = batch_of(%w[a])
    assert(Ractor.shareable?(batch) && Ractor.shareable?(batch.first))
    decoding = batch_of(%w[a]) { |config| config.deserializer = FAIL }
    refute Ractor.shareable?(decoding) || Ractor.shareable?(decoding.first)
  end

  slow def test_a_ractor_decodes_a_batch_that_another_one_has_taken
    name = topic(partitions: 1)
    produce(name, %w[[1] [2] bad])
    output = ruby!(<<~'RUBY', cluster.bootstrap_servers, name)
      Warning[:experimental] = false
      one = Penstock::Consumer.new("bootstrap.servers": ARGV[0]) { |config| config.deserializer = :json }
      one.assign(ARGV[1] => { 0 => 0 })
      batch = one.poll_batch(max: 3, timeout: 10) until batch&.size&.positive?
      batch = one.seek(ARGV[1], 0, 0).poll_batch(max: 3, timeout: 10) until batch.size == 3
      p Ractor.shareable?(batch)
      ractor = Ractor.new(batch) { |given| [given.values(&:offset), given.map { |message| message.value rescue 0 }] }
      p(ractor.respond_to?(:value) ? ractor.value : ractor.take)
      one.close
    RUBY
    assert_equal "true\n[[[1], [2], 2], [[1], [2], 0]]\n", output
  end

  def test_a_message_with_a_deserializer_is_one_object_until_it_is_read
    batch = batch_of(["a"] * 100) { |config| config.deserializer = Counting.new }
    walk = -> { batch.each(&:frozen?) }
    walk.call
    before = GC.stat(:total_allocated_objects)
    walk.call
    assert_operator GC.stat(:total_allocated_objects) - before, :<=, 105
  end
end
