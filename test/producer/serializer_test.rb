# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/producer_test_case"
require_relative "../support/fiber_schedulers"

# config.serializer: objects as payloads.
class SerializerTest < ProducerTestCase
  include FiberSchedulers

  DOCUMENT = { "id" => 7, "tags" => %w[a b], "ratio" => 0.5, "none" => nil }.freeze
  PACK = Penstock::MessagePack

  Point = Struct.new(:x, :y)

  # Records its arguments.
  class Noting
    attr_reader :seen

    def initialize(&made)
      @made = made || :inspect.to_proc
      @seen = []
    end

    def call(object)
      @seen << object
      @made.call(object)
    end
  end

  # A producer that keeps the messages in memory.
  def buffered(serializer = Noting.new, **kafka)
    producer(**kafka) do |config|
      config.client_class = Penstock::Clients::Buffered
      config.serializer = serializer
      yield config if block_given?
    end
  end

  def sent(producer) = producer.client.messages.map { |message| message[:payload] }

  def record(payload = DOCUMENT, **others) = { topic: "events", payload:, **others }

  def unpacked(topic) = stored(topic).map { |found| PACK.unpack(found.payload) }

  def factory
    Penstock::MessagePack::Factory.new.tap do |made|
      made.register_type(1, Point, packer: ->(point) { point.to_a.pack("NN") },
                                   unpacker: ->(data) { Point.new(*data.unpack("NN")) })
    end
  end

  # ---- what is stored ----

  WAYS = {
    produce_sync: ->(one, message) { one.produce_sync(message) },
    produce_async: ->(one, message) { one.produce_async(message).wait },
    produce_many_sync: ->(one, message) { one.produce_many_sync([message]) },
    produce_many_async: ->(one, message) { one.produce_many_async([message]).each(&:wait) },
    flush_sync: ->(one, message) { one.buffer(message) && one.flush_sync },
    flush_async: ->(one, message) { one.buffer_many([message]) && one.flush_async.each(&:wait) }
  }.freeze

  WAYS.each do |name, send|
    # behaviour: serializer
    define_method(:"test_an_object_given_to_#{name}_is_stored_packed") do
      topic = topic(partitions: 1)
      send.call(producer { |config| config.serializer = PACK }, { topic:, payload: DOCUMENT, key: "k", headers: { "h" => "v" } })
      found = stored(topic).first
      assert_equal [DOCUMENT, "k"], [PACK.unpack(found.payload), found.key]
    end
  end

  def test_a_consumer_unpacks_a_batch_of_objects
    topic = topic(partitions: 1)
    documents = Array.new(300) { |i| { "id" => i, "text" => "x" * i } }
    producer { |config| config.serializer = PACK }.produce_many_sync(documents.map { |payload| { topic:, payload: } })
    assert_equal documents, unpacked(topic)
  end

  # ---- valid serializers ----

  def test_the_module_factories_and_pools_are_called_by_dump
    [PACK, factory, factory.pool, Penstock::MessagePack::DefaultFactory].each do |serializer|
      one = buffered(serializer)
      one.produce_sync(record)
      assert_equal [PACK.pack(DOCUMENT)], sent(one)
    end
  end

  def test_a_factory_packs_types_that_are_registered_later
    types = Penstock::MessagePack::Factory.new
    one = buffered(types)
    assert_raises(Penstock::SerializationError) { one.produce_sync(record(Point.new(1, 2))) }
    types.register_type(1, Point, packer: ->(point) { point.to_a.pack("NN") })
    one.produce_sync(record(Point.new(1, 2)))
    assert_equal Point.new(1, 2), factory.load(sent(one).first)
  end

  def test_json_marshal_and_other_modules_are_called_by_dump
    { JSON => ->(text) { JSON.parse(text) }, Marshal => ->(text) { Marshal.load(text) } }.each do |serializer, back| # rubocop:disable Security/MarshalLoad -- our own
      one = buffered(serializer)
      one.produce_sync(record)
      assert_equal DOCUMENT, back.call(sent(one).first)
    end
  end

  def test_procs_methods_and_objects_with_call_are_called
    generate = ->(object) { JSON.generate(object) }
    [generate, JSON.method(:generate), Noting.new(&generate)].each do |serializer|
      one = buffered(serializer)
      one.produce_sync(record)
      assert_equal [JSON.generate(DOCUMENT)], sent(one)
    end
  end

  def test_dump_is_preferred_to_call
    both = Class.new do
      def dump(_object) = "dump"
      def call(_object) = "call"
    end
    one = buffered(both.new)
    one.produce_sync(record)
    assert_equal %w[dump], sent(one)
  end

  def test_a_dump_without_parameters_is_ignored
    both = Class.new do
      def dump = "dump"
      def call(_object) = "call"
    end
    one = buffered(both.new)
    one.produce_sync(record)
    assert_equal %w[call], sent(one)
  end

  { "json" => "a value of the class String", :yaml => ":yaml", Object.new => "a value of the class Object", 5 => "5",
    [] => "a value of the class Array", String => "String" }.each_with_index do |(wrong, shown), i|
    define_method(:"test_an_invalid_serializer_is_rejected_when_a_producer_is_made_#{i}") do
      error = assert_raises(Penstock::ConfigurationInvalidError) { producer { |config| config.serializer = wrong } }
      assert_equal "Invalid configuration: config.serializer must be nil, :json or an object with a method dump or call that " \
                   "takes the payload, not #{shown}.", error.message
    end
  end

  # ---- which payloads ----

  # behaviour: serializer
  def test_strings_are_serialized_like_any_payload
    one = buffered(PACK)
    one.produce_sync(record("text"))
    assert_equal "text", PACK.unpack(sent(one).first)
  end

  def test_false_and_empty_objects_are_serialized_and_nil_is_a_tombstone
    serializer = Noting.new
    one = buffered(serializer)
    one.produce_many_sync([false, nil, [], {}, ""].map { |payload| record(payload) })
    assert_equal ["false", nil, "[]", "{}", '""'], sent(one)
    assert_equal [false, [], {}, ""], serializer.seen
  end

  def test_tombstones_are_never_serialized
    serializer = Noting.new
    one = buffered(serializer)
    tombstone = record(key: "k", partition: 0)
    one.tombstone_sync(tombstone)
    one.tombstone_async(tombstone)
    one.tombstone_many_sync([tombstone])
    one.tombstone_many_async([tombstone])
    assert_equal [[nil] * 4, []], [sent(one), serializer.seen]
  end

  def test_a_missing_payload_is_rejected_and_not_serialized
    serializer = Noting.new
    one = buffered(serializer)
    error = assert_raises(Penstock::MessageInvalidError) { one.produce_sync({ topic: "events" }) }
    assert_match(/:payload is missing/, error.message)
    assert_empty serializer.seen
  end

  def test_a_basic_object_is_passed_to_the_serializer
    one = buffered(->(object) { object.__id__.to_s })
    bare = BasicObject.new
    one.produce_sync(record(bare))
    assert_equal [bare.__id__.to_s], sent(one)
  end

  def test_serializing_changes_neither_the_callers_hash_nor_the_object
    one = buffered(PACK)
    [true, false].each do |frozen|
      given = record({ "a" => [+"b"] }, headers: { "h" => "v" })
      Ractor.make_shareable(given) if frozen
      one.produce_sync(given)
      one.produce_many_sync([given].freeze)
      assert_equal record({ "a" => ["b"] }, headers: { "h" => "v" }), given
      assert_equal [frozen] * 4, [given, given[:payload], given[:payload]["a"], given[:payload]["a"][0]].map(&:frozen?)
    end
  end

  def test_the_label_is_returned_unchanged
    label = Object.new
    assert_same label, producer { |config| config.serializer = PACK }.produce_sync(record(topic:, label:)).label
  end

  # ---- errors ----

  # behaviour: serializer
  def test_the_serializers_error_is_the_cause_of_one_that_names_topic_and_class
    one = buffered(PACK) { |config| config.id = "mine" }
    error = assert_raises(Penstock::SerializationError) { one.produce_sync(record(Object.new)) }
    assert_kind_of Penstock::MessageInvalidError, error
    assert_match(/\AThe serializer #{PACK} raised NoMethodError for a payload of the class Object: Object objects/, error.message)
    assert error.message.end_with?(" [producer mine, topic events]. Nothing was sent."), error.message
    assert_kind_of NoMethodError, error.cause
    assert_equal %w[mine events], [error.producer_id, error.topic]
    assert_empty one.client.messages
  end

  %i[produce_many_sync produce_many_async].each do |name|
    # behaviour: serializer
    define_method(:"test_#{name}_sends_nothing_of_a_batch_with_an_unserializable_payload") do
      one = buffered(PACK)
      error = assert_raises(Penstock::SerializationError) do
        one.public_send(name, [record, record(2**70), record(Object.new)])
      end
      assert_match(/\AMessage 1 of the batch: the serializer #{PACK} raised RangeError for a payload of the class Integer: /,
                   error.message)
      assert_kind_of RangeError, error.cause
      assert_empty one.client.messages
    end
  end

  [nil, 5, :text].each do |wrong|
    define_method(:"test_a_serializer_that_returns_#{wrong.class}_raises_and_nothing_is_sent") do
      one = buffered(->(_object) { wrong })
      error = assert_raises(Penstock::SerializationError) { one.produce_sync(record) }
      assert_match(/\AThe serializer Proc at .*:\d+ returned #{wrong.class} instead of a String .* class Hash \[/,
                   error.message)
      assert_nil error.cause
      assert_empty one.client.messages
    end
  end

  [NotImplementedError, SystemStackError, EncodingError].each do |raised|
    define_method(:"test_#{raised}_of_a_serializer_is_the_cause_of_its_error") do
      one = buffered(->(_object) { raise raised, "mine\nand more" })
      error = assert_raises(Penstock::SerializationError) { one.produce_sync(record) }
      assert_instance_of raised, error.cause
      assert_includes error.message, "Hash: mine ["
    end
  end

  def test_an_interrupt_inside_a_serializer_reaches_the_caller_unchanged
    one = buffered(->(_object) { raise Interrupt, "mine" })
    assert_raises(Interrupt) { one.produce_sync(record) }
    assert_empty one.client.messages
  end

  def test_errors_in_any_encoding_and_about_basic_objects_have_a_message
    one = buffered(->(_object) { raise "\xE4\xFFbroken".b })
    error = assert_raises(Penstock::SerializationError) { one.produce_sync(record(BasicObject.new, topic: "ä")) }
    assert_predicate error.message, :valid_encoding?
    assert_match(/class BasicObject: .*broken.*topic ä\]/, error.message)
  end

  def test_objects_that_are_no_messages_are_rejected_with_a_serializer_too
    one = buffered
    assert_match(/Message 1 of the batch: a message is a Hash/,
                 assert_raises(Penstock::MessageInvalidError) { one.produce_many_sync([record, 5]) }.message)
    assert_raises(Penstock::MessageInvalidError) { one.produce_many_sync(5) }
    assert_raises(Penstock::MessageInvalidError) { one.produce_sync(5) }
    assert_empty one.client.messages
  end

  def test_the_size_limit_applies_to_the_serialized_string
    one = buffered(->(object) { "x" * object }) { |config| config.max_payload_size = 10 }
    one.produce_sync(record(10))
    assert_match(/has 11 bytes/, assert_raises(Penstock::MessageInvalidError) { one.produce_sync(record(11)) }.message)
  end

  def test_a_closed_producer_serializes_nothing
    serializer = Noting.new
    one = buffered(serializer)
    one.close
    assert_raises(Penstock::ProducerClosedError) { one.produce_sync(record) }
    assert_empty serializer.seen
  end

  # ---- order of middleware, serializer and hooks ----

  # behaviour: serializer
  def test_middleware_gets_the_object_and_hooks_listeners_and_the_client_get_the_string
    one = buffered(->(object) { object.fetch("id").to_s })
    seen = []
    one.middleware.append { |given| given.tap { seen << given[:payload] }.merge(payload: given[:payload].merge("id" => 8)) }
    one.around { |sending| seen << sending.messages.first[:payload] and sending.call }
    one.monitor.subscribe("message.produced_sync") { |event| seen << event[:message][:payload] }
    one.client.script { |given| seen << given[:payload] and nil }
    one.produce_sync(record)
    assert_equal [DOCUMENT, "8", "8", "8"], seen
    assert_equal %w[8], sent(one)
  end

  def test_a_payload_that_a_hook_replaces_is_not_serialized_again
    serializer = Noting.new
    one = buffered(serializer)
    one.around do |sending|
      sending.messages = sending.messages.map { |given| given.merge(payload: "#{given[:payload]}!") }
      sending.call
    end
    one.produce_sync(record(1))
    assert_equal [["1!"], [1]], [sent(one), serializer.seen]
  end

  def test_an_error_event_has_the_callers_own_message
    one = buffered(PACK)
    errors = []
    one.monitor.subscribe("error.occurred") { |event| errors << event.payload }
    given = record(Object.new)
    assert_raises(Penstock::SerializationError) { one.produce_async(given) }
    assert_equal ["message.produce_async", Penstock::SerializationError], [errors[0][:type], errors[0][:error].class]
    assert_same given, errors[0][:message]
  end

  def test_the_buffer_keeps_objects_and_serializes_them_when_it_is_flushed
    serializer = Noting.new
    one = buffered(serializer)
    object = [1]
    one.buffer(record(object))
    assert_equal [object, []], [one.messages.first[:payload], serializer.seen]
    object << 2
    one.flush_sync
    assert_equal ["[1, 2]"], sent(one)
  end

  def test_a_flush_with_an_unserializable_payload_sends_nothing_and_restores_the_buffer
    one = buffered(PACK)
    kept = [record(1), record(Object.new), record(3)]
    one.buffer_many(kept)
    assert_raises(Penstock::SerializationError) { one.flush_sync }
    assert_equal [kept, []], [one.messages, one.client.messages]
    one.messages.delete_at(1)
    one.flush_async
    assert_equal [1, 3], (sent(one).map { |bytes| PACK.unpack(bytes) })
  end

  def test_objects_that_the_queue_rejected_are_put_back_and_sent_by_the_next_flush
    serializer = Noting.new
    one = buffered(serializer)
    one.client.script { |given| :queue_full if given[:payload] == "2" }
    one.buffer_many([record(1), record(2)])
    assert_raises(Penstock::ProduceManyError) { one.flush_sync }
    assert_equal [record(2)], one.messages
    one.client.script
    one.flush_sync
    assert_equal [%w[1 2], [1, 2, 2]], [sent(one), serializer.seen]
  end

  # ---- transactions, variants, clients that send nothing, pools ----

  def test_a_message_that_cannot_be_serialized_begins_no_transaction
    one = buffered(PACK, "transactional.id": "t")
    began = 0
    one.monitor.subscribe("transaction.started") { began += 1 }
    assert_raises(Penstock::SerializationError) { one.produce_sync(record(Object.new)) }
    assert_equal 0, began
    one.transaction { one.produce_sync(record(1)) }
    one.produce_sync(record(2))
    assert_equal [[1, 2], 2], [sent(one).map { |bytes| PACK.unpack(bytes) }, began]
  end

  def test_an_error_inside_a_transaction_aborts_it
    one = buffered(PACK, "transactional.id": "t")
    assert_raises(Penstock::SerializationError) { one.transaction { one.produce_many_sync([record(1), record(Object.new)]) } }
    assert_empty sent(one)
  end

  slow def test_a_variant_uses_its_producers_serializer
    topic = topic(partitions: 1)
    one = producer(**QUICK) { |config| config.serializer = PACK }
    one.with(topic_config: { acks: 1 }).produce_sync({ topic:, payload: DOCUMENT })
    assert_equal DOCUMENT, PACK.unpack(stored(topic).first.payload)
  end

  def test_a_producer_with_deliver_false_serializes_and_raises_serialization_errors
    one = producer do |config|
      config.deliver = false
      config.serializer = PACK
    end
    assert_predicate one.produce_sync(record), :delivered?
    assert_raises(Penstock::SerializationError) { one.produce_sync(record(Object.new)) }
  end

  def test_a_message_that_a_new_client_sends_again_is_serialized_once
    serializer = Noting.new
    one = buffered(serializer, **QUICK) { |config| config.wait_backoff_on_idempotent_fatal_error = 0 }
    failing = one.client
    def failing.fatal_error = Penstock::FatalError.new("made up", code: :made_up, fatal: true)
    failing.fail_next(:fatal)
    one.produce_sync(record(1))
    refute_same failing, one.client
    assert_equal [["1"], [1]], [sent(one), serializer.seen]
  end

  # ---- fibers and threads ----

  FiberSchedulers::KINDS.each do |kind|
    define_method(:"test_fibers_of_#{kind}_serialize_concurrently_and_a_serializer_may_wait") do
      topic = topic(partitions: 1)
      one = producer do |config|
        config.serializer = lambda do |object|
          sleep 0.001
          PACK.pack(object)
        end
      end
      with_scheduler(kind) do |fibers|
        Array.new(20) { |i| fibers.start { one.produce_sync({ topic:, payload: [i] }) } }.each(&:join)
      end
      assert_equal Array.new(20) { |i| [i] }, unpacked(topic).sort
    end
  end

  def test_threads_serialize_concurrently
    topic = topic(partitions: 1)
    one = producer { |config| config.serializer = PACK }
    threads = Array.new(4) { |t| Thread.new { one.produce_many_sync(Array.new(100) { |i| { topic:, payload: [t, i] } }) } }
    threads.each(&:join)
    assert_equal 4.times.to_a.product(100.times.to_a), unpacked(topic).sort
  end

  # ---- other Ractors, in separate processes ----

  PRELUDE = <<~'RUBY'
    Warning[:experimental] = false
    SERVERS, TOPIC = ARGV
    def make_producer(serializer)
      Penstock::Producer.new do |config|
        config.id = "mine"
        config.kafka = { "bootstrap.servers": SERVERS }
        config.serializer = serializer
      end
    end

    # Polls for the Ractor's end: see docs/ractors.md.
    def value_of(ractor)
      sleep 0.001 until ractor.inspect.end_with?(" terminated>")
      ractor.respond_to?(:value) ? ractor.value : ractor.take
    end
  RUBY

  def in_ractors(program, topic = topic(partitions: 1))
    JSON.parse(ruby!(PRELUDE + program, cluster.bootstrap_servers, topic, seconds: 60).lines.last)
  end

  def test_handles_serialize_in_the_ractor_that_sends
    topic = topic(partitions: 1)
    raised = in_ractors(<<~'RUBY', topic)
      producer = make_producer(Penstock::MessagePack)
      made = Array.new(3) do |r|
        Ractor.new(producer.shareable, TOPIC, r) do |shareable, topic, r|
          one = ->(n) { { topic:, payload: { "from" => [r, n] } } }
          shareable.produce_sync(one[0])
          shareable.produce_async(one[1]).wait
          shareable.produce_many_sync([one[2], one[3]])
          shareable.produce_many_async([one[4], { topic:, payload: nil }]).each(&:wait)
          shareable.tombstone_sync(topic:, key: "k", partition: 0, payload: 5)
          before = [(shareable.produce_sync(topic:, payload: Object.new) rescue $!),
                    (shareable.produce_many_async([one[0], { topic:, payload: 2**70 }]) rescue $!)]
          before.map { |error| [error.class.name, error.cause.class.name, error.message[/.*?class \w+/], error.topic == topic] }
        end
      end
      found = made.map { |ractor| value_of(ractor) }
      producer.close
      puts JSON.generate(found)
    RUBY
    name = "serializer Penstock::MessagePack raised"
    expected = [["Penstock::SerializationError", "NoMethodError",
                 "The #{name} NoMethodError for a payload of the class Object", true],
                ["Penstock::SerializationError", "RangeError",
                 "Message 1 of the batch: the #{name} RangeError for a payload of the class Integer", true]]
    assert_equal [expected] * 3, raised
    payloads = stored(topic).map(&:payload)
    assert_equal 6, payloads.count(nil)
    assert_equal 3.times.to_a.product(5.times.to_a), payloads.compact.map { |bytes| PACK.unpack(bytes)["from"] }.sort
  end

  def test_a_module_and_a_shareable_factory_pool_and_proc_work_in_other_ractors
    topic = topic(partitions: 1)
    in_ractors(<<~'RUBY', topic)
      Point = Struct.new(:x, :y)
      module Json # a proc's self has to be shareable, and a module is
        PACK = Ractor.make_shareable(proc { |point| point.to_a.pack("NN") })
        GENERATE = Ractor.make_shareable(proc { |object| JSON.generate(object.map(&:to_a)) })
        def self.dump(object) = GENERATE.call(object)
      end
      factory = Penstock::MessagePack::Factory.new
      factory.register_type(1, Point, packer: Json::PACK)
      Ractor.make_shareable(factory)
      [factory, factory.pool, Json::GENERATE, Json].each do |serializer|
        producer = make_producer(serializer)
        value_of(Ractor.new(producer.shareable, TOPIC) { |one, topic| one.produce_sync(topic:, payload: [Point.new(1, 2)]) })
        producer.close
      end
      puts "[]"
    RUBY
    payloads = stored(topic).map(&:payload)
    assert_equal [[Point.new(1, 2)]] * 2, (payloads.first(2).map { |bytes| factory.load(bytes) })
    assert_equal ["[[1,2]]"] * 2, payloads.last(2)
  end

  def test_an_isolation_error_of_a_serializer_is_the_cause_of_the_error_in_a_ractor
    found = in_ractors(<<~'RUBY')
      module Counting
        @count = [0]
        def self.dump(object) = (@count[0] += 1).to_s
      end
      producer = make_producer(Counting)
      producer.produce_sync(topic: TOPIC, payload: 1)
      asked = Ractor.new(producer.shareable, TOPIC) { |one, topic| one.produce_sync(topic:, payload: 1) rescue [$!, $!.cause] }
      puts JSON.generate(value_of(asked).map { |error| error.class.name })
    RUBY
    assert_equal %w[Penstock::SerializationError Ractor::IsolationError], found
  end

  def test_shareable_raises_an_error_that_names_an_unshareable_serializer
    found = in_ractors(<<~'RUBY')
      count = 0
      [proc { |object| count += 1 and object.to_s }, Penstock::MessagePack::Factory.new].map do |serializer|
        producer = make_producer(serializer)
        producer.shareable rescue [$!.class.name, $!.message]
      end => error
      puts JSON.generate(error)
    RUBY
    assert_equal ["Penstock::NotShareableError"] * 2, found.map(&:first)
    assert_match(/\AIts serializer \(Proc at -e:\d+\) is not shareable; .*Ractor\.make_shareable.* \[producer mine\]\.\z/,
                 found[0][1])
    assert_match(/\AIts serializer \(Penstock::MessagePack::Factory\) is not shareable; /, found[1][1])
  end

  def test_shareable_does_not_freeze_the_callers_serializer
    types = factory
    assert_raises(Penstock::NotShareableError) { producer { |config| config.serializer = types }.shareable }
    refute_predicate types, :frozen?
  end

  # ---- without a serializer ----

  # Accepts messages without looking at them.
  class Nothing < Penstock::Clients::Dummy
    HANDLE = Object.new.tap { |handle| def handle.wait(**) = nil }
    def produce(_message) = HANDLE
    def produce_many(messages, *) = [messages, nil, true]
  end

  # behaviour: serializer
  def test_without_a_serializer_messages_take_the_fast_path
    one = producer { |config| config.client_class = Nothing }
    Internal.of(one).publisher.define_singleton_method(:dispatching) { |*| raise "not the fast path" }
    given = record("x")
    one.produce_sync(given)
    one.produce_async(given)
    assert_same given, one.produce_many_sync([given]).first
    assert_same given, one.produce_many_async([given]).first

    serializing = producer { |config| [config.client_class = Nothing, config.serializer = PACK] }
    Internal.of(serializing).publisher.define_singleton_method(:dispatching) { |*| raise "not the fast path" }
    assert_raises(RuntimeError) { serializing.produce_async(given) }
  end

  def test_without_a_serializer_payloads_must_be_strings
    assert_match(/:payload is a String or nil, not Hash/,
                 assert_raises(Penstock::MessageInvalidError) { producer.produce_sync(record) }.message)
  end
end
