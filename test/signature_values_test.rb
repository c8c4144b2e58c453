# frozen_string_literal: true

require_relative "test_helper"
begin
  require_relative "support/signed_calls"
rescue LoadError => e
  raise unless e.path == "rbs"
end
require "penstock/testing"

# Real arguments, block arguments and results have the types of the signatures in sig/. `on(object)` and `read(object)` make
# the calls that are checked, see SignedCalls.
class SignatureValuesTest < PenstockTest
  FAULTS = [
    ["instrumentation", "def to_a: () -> Array[String]", "def to_a: () -> Array[Symbol]"],
    ["instrumentation", "def include?: (name tag)", "def include?: (Integer tag)"],
    ["instrumentation", "def listening?: (name event) -> bool", "def listening?: (name event) -> Integer"],
    ["message_pack", "def packer: [T] () { (Packer packer)", "def packer: [T] () { (Unpacker packer)"],
    ["consumer", "def key: () -> String?", "def key: () -> String"],
    ["consumer", "{\n      topic: String, partition: Integer", "{\n      topic: Symbol, partition: Integer"]
  ].freeze

  # Parsed before any test runs: the parser of RBS does not survive a compaction of Ruby's heap, which other tests cause.
  if defined?(RBS)
    SIGNATURES = Signatures.new
    WRONG_SIGNATURES = Signatures.with_changes(FAULTS, &:itself)
  end

  def setup
    super
    skip "the library rbs is not installed" unless defined?(RBS)
    skip "too slow for it" if GCLevel.slow?
    @calls = SignedCalls.new(SIGNATURES)
  end

  def on(receiver) = @calls.on(receiver)
  def read(receiver, **except) = @calls.read(receiver, **except)

  # Each method that the signature of this class declares itself was called.
  # @param except [Array<Symbol>] methods that were not
  def assert_all_called(room, except: [])
    all = { "#" => :instance, "." => :singleton }.flat_map do |mark, kind|
      SIGNATURES.own_methods(room, kind).map { |method| [method, "#{room}#{mark}#{method}"] }
    end
    missing = all.reject { |method, name| %i[initialize new].include?(method) || @calls.called.include?(name) }
    assert_equal except.sort, missing.map(&:first).sort, room
  end

  # ---- the checks find what is wrong ----

  def test_values_of_other_types_are_found
    tags = Penstock::Tags.new.add(:a)
    received = Penstock::Message.new(topic: "t")
    calls = SignedCalls.new(WRONG_SIGNATURES)
    [-> { calls.on(tags).to_a }, -> { calls.on(tags).include?(:a) },
     -> { calls.on(Penstock.monitor).listening?("producer.closed") },
     -> { calls.on(PACK::Factory.new.pool).packer { nil } },
     -> { calls.on(received).key }, -> { calls.on(received).to_h }].each { |call| assert_raises(SignedCalls::Mismatch, &call) }
    assert_nil calls.on(received).payload
  end

  # ---- producers ----

  def sent(**more) = { topic: @topic, payload: "x", key: "k", partition: 0, **more }

  def test_values_of_a_producer
    @topic = topic
    sending = connected
    one_by_one(sending)
    in_batches(sending)
    with_hooks(sending)
    states(sending)
    read(on(sending).close(timeout: 10))
    on(sending).close!(timeout: nil)
    assert_all_called("Penstock::Producer", except: %i[set_credentials transaction_mark_as_consumed])
    assert_all_called("Penstock::CloseReport", except: %i[delivered= failed= pending= purged= unnoticed= unsent=])
  end

  def connected
    made = on(Penstock::Producer).new
    @producers << made
    on(made).setup("bootstrap.servers": cluster.bootstrap_servers, **QUICK) { |config| set(config) }
    on(on(made).config).given?(:"bootstrap.servers")
    %w[Penstock::Config Penstock::Config::Polling Penstock::Config::Fd Penstock::OAuth].each { |room| assert_all_called(room) }
    made
  end

  # Reads each setting of a configuration, and gives it the same value again.
  def set(config)
    parts = config.respond_to?(:polling) ? [config.polling.fd, config.polling] : []
    [*parts, config.oauth, config].each do |part|
      read(part.dup)
      part.public_methods(false).grep(/\w=\z/).each do |name|
        @calls.call(part, name, [part.public_send(name.to_s.delete_suffix("="))], {})
      end
    end
  end

  def one_by_one(sending)
    handle = on(sending).produce_async(sent(label: 5, headers: { a: "b" }))
    on(handle).wait(timeout: 5)
    read(on(handle).wait(max_wait_timeout_ms: 5_000))
    read(handle)
    on(Penstock::DeliveryHandle).await_all([handle], timeout: 5)
    on(sending).produce_sync(sent)
    on(sending).tombstone_sync(sent)
    on(sending).tombstone_async(sent)
    %w[Penstock::DeliveryHandle Penstock::DeliveryReport].each { |room| assert_all_called(room) }
  end

  def in_batches(sending)
    batch = [sent, sent]
    on(sending).produce_many_sync(batch)
    on(sending).produce_many_async(batch)
    on(sending).tombstone_many_sync(batch)
    on(sending).tombstone_many_async(batch)
    on(sending).buffer(sent)
    on(sending).buffer_many(batch)
    on(sending).messages
    on(sending).flush_sync
    on(sending).flush_async
    on(sending).flush(timeout: 5)
  end

  def with_hooks(sending)
    on(sending).around do |context|
      read(context, except: [:call])
      on(context).messages = context.messages
      on(context).call
    end
    on(sending).around(lambda(&:call))
    on(sending).produce_sync(sent)
    on(sending).produce_many_sync([sent])
    assert_all_called("Penstock::Producer::SendContext")
    on(sending).middleware
    middleware = on(Penstock::Middleware).new
    on(middleware).append { |given| given.merge(payload: "y") }
    on(middleware).prepend(:itself.to_proc)
    on(middleware).run(sent)
    on(middleware).run_many([sent])
    read(middleware)
    assert_all_called("Penstock::Middleware")
  end

  def states(sending)
    read(on(sending).status)
    assert_all_called("Penstock::Producer::Status")
    %i[id monitor idempotent? transactional? client transaction? current_variant purge queue_size queue_length metrics
       disconnectable? closed? inspect].each { |name| @calls.call(sending, name, [], {}) }
    on(sending).partition_count(@topic.to_sym)
    read(on(sending).poller)
    on(Penstock::Poller).instance
    assert_all_called("Penstock::Poller")
    tags = on(sending).tags
    on(on(on(tags).add(:a)).add("b", "c")).delete(:a)
    on(tags).include?(:c)
    read(tags)
    assert_all_called("Penstock::Tags")
    on(sending).disconnect
    assert_raises(Penstock::NotShareableError) { on(sending).shareable } # it has hooks
    assert_raises(Penstock::ProducerNotTransactionalError) { on(sending).transaction { nil } }
    variants(sending)
  end

  def variants(sending)
    on(sending).variant(topic_config: { acks: "1" })
    @calls.called << "Penstock::Producer#with" # the same method
    variant = on(sending).with(max_wait_timeout: 5_000)
    read(variant, except: [:shareable])
    on(variant).produce_sync(sent)
    on(variant).buffer(sent)
    on(variant).flush_sync
    assert_includes @calls.called, "Penstock::Producer::Variant#default?"
  end

  def test_a_variant_sends_like_its_producer
    sending = %w[Penstock::Producer Penstock::Producer::Variant].map { |name| SIGNATURES.own_methods(name, :instance) }.reduce(:&)
    assert_includes sending, :produce_sync
    types = %w[Penstock::Producer Penstock::Producer::Variant].map do |name|
      methods = SIGNATURES.methods_of(name, :instance).slice(*(sending - [:initialize]))
      methods.transform_values { |method| method.method_types.map(&:to_s) }
    end
    assert_equal(*types)
  end

  # In a thread, whose stack keeps no handle and so no producer alive.
  def test_values_of_a_shareable_producer
    @topic = topic
    sending = producer(**QUICK)
    Thread.new { values_of_a_handle_for_ractors(on(sending).shareable) }.join
    assert_all_called("Penstock::ShareableProducer")
  end

  def values_of_a_handle_for_ractors(handle)
    read(handle)
    read(on(handle).produce_sync(sent))
    on(handle).produce_async(sent)
    on(handle).produce_many_sync([sent])
    on(handle).produce_many_async([sent])
    on(handle).tombstone_sync(sent)
    on(handle).tombstone_async(sent)
    on(handle).tombstone_many_sync([sent])
    on(handle).tombstone_many_async([sent])
    on(handle).timeout_error("late", @topic)
  end

  # ---- consumers ----

  def test_values_of_a_consumer_set
    @topic = topic
    producer.produce_many_sync(Array.new(5) { { topic: @topic, payload: "x", partition: 0 } })
    one = reading.assign(@topic => { 0 => :beginning })
    on(Penstock::Consumer).select([one], timeout: 1)
    set = on(Penstock::ConsumerSet).new(one)
    read(set)
    on(set).add(one)
    on(set).include?(one)
    on(set).wait(timeout: 5)
    on(set).each_batch(max: 1) { |_, batch| one.close if batch.last.offset == 4 }
    on(set).each_batch # after that, as the check of an Enumerator runs it to its end
    on(set).delete(one)
    on(set).clear
    assert_all_called("Penstock::ConsumerSet")
  end

  def test_values_of_a_consumer
    @topic = topic
    producer(**QUICK).produce_many_sync([sent(headers: { a: %w[b c], "d" => "e" }), sent(payload: nil), sent])
    consumer = reading
    on(consumer).assign({ @topic => { 0 => :beginning, 2 => [:last, 1] }, @topic.to_sym => [1] }, timeout: 10)
    read(on(consumer).poll(timeout: 10))
    batch = on(consumer).poll_batch(max: 5, timeout: 10)
    on(consumer).mark(batch)
    %i[each each_payload].each { |name| @calls.call(batch, name, [], {}) }
    on(batch)[0]
    on(batch)[0, 2]
    on(batch).last(1)
    read(batch)
    assert_all_called("Penstock::Batch", except: %i[==])
    on(consumer).poll(timeout: 0)
    positions(consumer)
    on(consumer).subscribe(@topic, ["^#{@topic}"]) # a pattern without a topic would be an error of a later poll
    on(consumer).unsubscribe
    each_of(consumer)
    read(on(consumer).close(timeout: 10))
    assert_all_called("Penstock::Consumer", except: %i[select set_credentials])
    assert_all_called("Penstock::Message", except: %i[== eql?])
    assert_all_called("Penstock::ConsumerCloseReport", except: %i[in_time= left_group=])
  end

  def reading
    settings = { "bootstrap.servers": cluster.bootstrap_servers, "group.id": "signatures-#{rand(2**32)}" }
    on(Penstock::Consumer).new("enable.auto.commit": false, **settings) { |config| set(config) }.tap do |made|
      read(made.config)
      assert_all_called("Penstock::ConsumerConfig")
      names = %i[id config client closed? inspect assignment status tags monitor metrics statistics]
      names.each { |name| @calls.call(made, name, [], {}) }
    end
  end

  def positions(consumer)
    on(consumer).assignment
    on(consumer).position(@topic, 0)
    on(consumer).position(@topic, 1)
    on(consumer).commit
    on(consumer).commit({ @topic => { 0 => 1 } }, timeout: 10)
    on(consumer).commit(Penstock::Message.new(topic: @topic), async: true)
    on(consumer).commit({ @topic => { 0 => Penstock::Offset.new(offset: 1, metadata: "x") } })
    on(consumer).committed(@topic, [0, 1], timeout: 10)
    read(on(consumer).committed({ @topic => [0] }, metadata: true).dig(@topic, 0))
    on(consumer).committed(@topic => [0])
    on(consumer).watermarks(@topic, 0, timeout: 10)
    on(consumer).watermarks({ @topic => [0, 1] }, timeout: 10)
    on(consumer).watermarks(@topic, 3, cached: true)
    on(consumer).lag
    on(consumer).lag({ @topic => [0, 3] }, estimate: true)
    on(consumer).offsets_for_times(@topic, [0, 1], Time.now, timeout: 10)
    on(consumer).offsets_for_times(@topic, 0, 0)
    on(consumer).offsets_for_times({ @topic => [0] }, Time.now)
    on(consumer).offsets_for_times({ @topic => { 0 => 5 } })
    on(consumer).group_metadata
    on(consumer).seek(@topic, 0, :beginning)
    on(consumer).seek({ @topic => { 0 => [:last, 1], 1 => 0 } }, commit: true)
    on(consumer).revoked?(Penstock::Message.new(topic: @topic))
    on(consumer).keep_alive { 1 }
    read(on(consumer).membership)
    on(consumer).rewind(Penstock::Message.new(topic: @topic), timeout: 10)
    on(consumer).pause(@topic => [0])
    on(consumer).pause
    on(consumer).paused
    on(consumer).resume(@topic => [0])
  end

  def test_values_of_a_reader
    @topic = topic
    settings = { "bootstrap.servers": cluster.bootstrap_servers }
    producer(**QUICK).produce_many_sync([sent, sent])
    reader = on(Penstock::Reader).new({ @topic => { 0 => [:last, 2] } }, to: Time.now, progress: :itself.to_proc, **settings)
    on(reader).each { |message| read(message) }
    on(reader).each
    read(reader)
    read(reader.progress)
    on(Penstock).read(@topic, from: 0, **settings) { nil }
    on(Penstock).read([@topic], from: :end, **settings)
    assert_all_called("Penstock::Reader")
  end

  def each_of(consumer)
    on(consumer).assign(@topic => { 0 => 0 })
    on(consumer).each(timeout: 10) { consumer.close }
    on(consumer).each # after close, as the check of an Enumerator runs it to its end
  end

  def test_values_of_a_message_that_a_program_makes
    made = on(Penstock::Message).new(topic: :t, payload: "x", timestamp: Time.now, headers: { a: ["b", nil], "c" => nil })
    read(made)
    @calls.call(made, :==, [made], {})
    on(made).eql?(5)
    assert_all_called("Penstock::Message")
  end

  # ---- transactions ----

  def test_values_of_a_transaction
    @topic = "t"
    servers = own_cluster.bootstrap_servers
    sending = producer(servers:, "transactional.id": "signatures")
    consumer = Penstock::Consumer.new("bootstrap.servers": servers, "group.id": "g")
    value = on(sending).transaction do
      on(sending).produce_async(sent)
      on(sending).transaction?
      on(sending).transaction_mark_as_consumed(consumer, Penstock::Message.new(topic: "t"), "metadata")
      :committed
    end
    assert_equal :committed, value
    assert_nil(on(sending).transaction { raise Penstock::AbortTransaction })
    on(sending.with).transaction { nil }
    reading = Penstock::Consumer.new("bootstrap.servers": servers, "group.id": "h", "enable.auto.commit": false)
    assert_nil(on(sending).transaction(reading, max: 5, timeout: 0.01) { flunk })
  ensure
    reading&.close
    consumer&.close
  end

  # ---- errors ----

  def test_values_of_errors
    @topic = topic
    invalid = assert_raises(Penstock::MessageInvalidError) { producer(**QUICK).produce_sync({ topic: @topic }) }
    full = assert_raises(Penstock::ProduceManyError) { full_producer.produce_many_async([sent] * 3) }
    late = assert_raises(Penstock::WaitTimeoutError) { unreachable_producer.produce_async(sent).wait(timeout: 0) }
    made = on(Penstock::QueueFullError).new("The queue is full.", code: :queue_full, retriable: true)
    [invalid, full, late, made].each { |error| read(error, except: [:freeze]) }
    on(made).deconstruct_keys(%i[code])
    on(made).freeze
    assert_all_called("Penstock::Error")
    assert_all_called("Penstock::ProduceManyError")
    read(full.dispatched.first, except: [:wait])
  ensure
    @producers.each(&:purge) # so that they close at once
  end

  def full_producer
    unreachable_producer("queue.buffering.max.messages": 1) { |config| config.on_queue_full = :raise }
  end

  def test_values_of_a_failed_delivery
    client = Penstock::Clients::Dummy
    sending = producer { |config| config.client_class = client }
    sending.client.fail_next(:msg_timed_out)
    error = assert_raises(Penstock::MessageTimedOutError) { sending.produce_sync(sent(topic: "t")) }
    read(error, except: [:freeze])
    sending.client.fail_next(:fenced)
    read(read(sending.produce_async(sent(topic: "t")), except: [:wait]).report)
    assert_all_called("Penstock::DeliveryReport")
  end

  # ---- events ----

  def test_values_of_events
    monitor = on(Penstock::Monitor).new(above: nil)
    events = []
    block = on(monitor).subscribe("producer.created") { |event| events << event }
    listener = on(monitor).subscribe(Class.new { def on_producer_closed(event) = event }.new)
    on(monitor).instrument("producer.created", { producer_id: "p" })
    on(monitor).instrument(:"producer.created") { 5 }
    events.each { |event| on(read(event))[:producer_id] if event.payload.key?(:producer_id) }
    on(monitor).unsubscribe(block)
    on(monitor).listening?("producer.closed")
    on(monitor).listeners_of("producer.closed")
    on(monitor).heard_by?(Penstock.monitor)
    on(Penstock::Monitor).method_for("producer.closed")
    on(Penstock).monitor
    on(monitor).unsubscribe(listener)
    on(monitor).clear
    read(monitor, except: [:clear])
    assert_all_called("Penstock::Event")
    assert_all_called("Penstock::Monitor")
  end

  def test_values_of_events_of_librdkafka
    @topic = topic
    events = Thread::Queue.new
    sending = producer("statistics.interval.ms": 100, **QUICK)
    sending.monitor.subscribe("statistics.emitted") { |event| events << event }
    sending.monitor.subscribe("message.acknowledged") { |event| events << event }
    sending.produce_sync(sent)
    seen = {}
    eventually { (seen[(event = events.pop).id] = event) && seen.size == 2 }
    seen.each_value { |event| read(event) }
    on(seen.fetch("statistics.emitted")).delta("txmsgs")
    assert_all_called("Penstock::StatisticsEvent")
  end

  def test_values_of_listeners
    logger = on(Penstock::Listeners::Logger).new(Logger.new(File::NULL), levels: { "producer.closed" => :debug })
    metrics = on(Penstock::Listeners::Prometheus).new(labels: { a: 1 }, topics: 5)
    statsd = on(Penstock::Listeners::Statsd).new(interval: 60, tags: { a: 1 })
    sending = producer { |config| config.deliver = false }
    [logger, metrics, statsd].each { |listener| sending.monitor.subscribe(listener) }
    sending.produce_sync(sent(topic: "t"))
    on(metrics).call({ "REQUEST_METHOD" => "GET" })
    on(metrics).call({ "REQUEST_METHOD" => "POST" })
    [logger, metrics, statsd].each { |listener| read(listener) }
    assert_includes @calls.called, "Penstock::Listeners::Statsd#datagrams"
  end

  # ---- without a Kafka ----

  def fed
    consumer = Penstock::Consumer.new("bootstrap.servers": "nowhere:1", "group.id": "g") do |config|
      config.client_class = Penstock::Clients::Fed
    end
    client = consumer.client
    on(client).feed(topic: :orders, payload: "x", timestamp: Time.now, headers: { h: %w[a b] })
    on(client).feed(Penstock::Message.new(topic: "orders", offset: 5))
    on(client).assign("orders" => [1])
    on(client).revoke("orders" => [1])
    on(client).lose
    @calls.call(client, :run, [], {}) { nil }
    on(client).fail_next(:state, on: :commit)
    on(client).poll(timeout: 0)
    on(client).poll_batch(max: 5, timeout: 0)
    read(client)
    on(client).close_at_end
    on(client).reset
  end

  def test_values_of_clients_that_send_nothing
    sending = producer { |config| config.client_class = Penstock::Clients::Buffered }
    client = sending.client
    on(client).fail_next(:queue_full, times: 2)
    on(client).reset
    on(client).script { |given| :msg_timed_out if given[:topic] == "bad" }
    handles = [on(client).produce(sent(topic: "bad")), on(client).produce(sent(topic: :good))]
    handles.each { |handle| read(handle, except: [:wait]) }
    on(handles.last).wait(timeout: 0, max_wait_timeout_ms: 0)
    on(handles.last).wait
    on(Penstock::Clients::Handle).await_all(handles)
    on(client).produce_many([sent(topic: "good")], 5_000)
    on(client).produce_many([sent(topic: "good")], false)
    on(client).messages_for(:good)
    transactions_of(client)
    as_the_producer(client)
    fed
    assert_all_called("Penstock::Clients::Fed")
    assert_all_called("Penstock::Clients::Handle")
    assert_all_called("Penstock::Clients::Buffered")
    assert_all_called("Penstock::Clients::Dummy")
  end

  def transactions_of(client)
    config = producer("transactional.id": "t") { |settings| settings.deliver = false }.config
    transactional = on(client.class).new(config, Penstock::Monitor.new)
    %i[init_transactions begin_transaction commit_transaction begin_transaction].each { |name| on(transactional).__send__(name) }
    on(transactional).send_offsets_to_transaction([], nil)
    on(transactional).abort_transaction
  end

  def as_the_producer(client)
    on(client).event_source = nil
    on(client).token_refresher = nil
    on(client).producer = nil
    on(client).set_credentials("a", "b")
    on(client).partition_count("t")
    on(client).brokers(5)
    on(client).timeout_error("late", "t")
    on(client).hurry(5)
    read(client, except: %i[reset close init_transactions begin_transaction commit_transaction abort_transaction])
    on(client).begin_closing(nil)
    on(client).close(5)
  end

  def test_values_of_an_embedded_cluster
    made = on(Penstock::EmbeddedCluster).new(brokers: 2)
    @clusters << made
    on(made).create_topic(:t, partitions: 2, replication_factor: 2)
    on(made).inject_errors(:produce, :request_timed_out, 7)
    on(made).clear_errors(:produce)
    on(made).set_round_trip_time(seconds: 0.001, broker: 1)
    on(made).broker_down(1)
    on(made).broker_up(1)
    on(made).move_leader("t", 0, 2)
    read(made, except: [:close])
    on(made).close
    assert_all_called("Penstock::EmbeddedCluster")
  end

  # ---- MessagePack ----

  PACK = Penstock::MessagePack
  Point = Struct.new(:place) do
    def to_msgpack_ext = place.to_s
    def self.from_msgpack_ext(payload) = new(payload.to_i)
  end

  def test_values_of_packing
    bytes = on(PACK).pack({ "a" => 1 })
    on(PACK).pack([1], max_depth: 3)
    on(PACK).pack([1], StringIO.new)
    on(PACK).dump([1], StringIO.new, { max_depth: 3 })
    on(PACK).unpack(bytes, symbolize_keys: true)
    on(PACK).load(StringIO.new(bytes))
    assert_all_called("Penstock::MessagePack")
    factory_and_pool(on(PACK::Factory).new)
    buffer(on(PACK::Buffer).new(StringIO.new))
    values_of_ext_types
  end

  def factory_and_pool(factory)
    on(factory).register_type(1, Point)
    on(factory).registered_types
    on(factory).registered_types(:packer)
    on(factory).type_registered?(Point, :unpacker)
    bytes = on(factory).dump(Point.new(5))
    on(factory).dump(1, StringIO.new)
    on(factory).pack(1, max_depth: 3)
    assert_equal Point.new(5), on(factory).load(bytes)
    on(factory).unpack(bytes, { freeze: true })
    pool = on(factory).pool(2, symbolize_keys: true)
    on(pool).load(on(pool).dump(Point.new(5)))
    packer = on(pool).packer { |lent| on(lent).write(1) && lent.to_s }
    assert_equal "\x01", packer
    on(pool).unpacker { |lent| on(lent).feed("\x01").read }
    on(pool).freeze
    assert_all_called("Penstock::MessagePack::Factory", except: %i[packer unpacker])
    assert_all_called("Penstock::MessagePack::Pool")
    write_with(on(factory).packer)
    read_with(on(factory).unpacker)
  end

  WRITES = {
    write: [1], pack: ["a"], write_nil: [], write_true: [], write_false: [], write_float: [1], write_float32: [0.5],
    write_int: [5], write_string: ["a"], write_bin: ["a"], write_symbol: [:a], write_array: [[1]], write_hash: [{ "a" => 1 }],
    write_extension: [PACK::ExtensionValue.new(5, "a")], write_ext: [5, "a"], write_array_header: [0], write_map_header: [0],
    write_bin_header: [0]
  }.freeze

  def write_with(packer)
    WRITES.each { |name, arguments| @calls.call(packer, name, arguments, {}) }
    read(packer, except: %i[full_pack reset clear flush])
    on(packer).write_to(StringIO.new)
    on(packer).register_type(3, Range, :to_s)
    on(packer).register_type(4, Regexp, &:source)
    on(packer).type_registered?(4)
    on(packer).is_a?(PACK::Packer)
    @calls.call(packer, :kind_of?, [String], {})
    %i[full_pack flush reset clear].each { |name| @calls.call(packer, name, [], {}) }
    on(on(PACK::Packer).new(StringIO.new, { io_buffer_size: 1024 })).full_pack
    on(PACK::Packer).new(compatibility_mode: true)
    assert_all_called("Penstock::MessagePack::Packer")
  end

  def read_with(unpacker)
    on(unpacker).feed(PACK.pack([nil, { "a" => 1 }]))
    on(unpacker).feed_reference("")
    on(unpacker).read_array_header
    on(unpacker).skip_nil
    on(unpacker).read_map_header
    on(unpacker).skip
    on(unpacker).read
    on(unpacker).feed("\x01\x02")
    on(unpacker).unpack
    on(unpacker).each(&:itself)
    on(unpacker).each
    on(unpacker).feed_each("\x01", &:itself)
    on(unpacker).feed_each("\x01")
    on(on(unpacker).feed("\x05")).reset
    on(on(unpacker).feed("\x05")).full_unpack
    on(unpacker).register_type(3, Range, :new)
    on(unpacker).register_type(4) { |payload| payload }
    on(unpacker).type_registered?(4)
    read(unpacker, except: %i[read unpack skip skip_nil read_array_header read_map_header each full_unpack reset])
    on(PACK::Unpacker).new(StringIO.new, { freeze: true })
    on(PACK::Unpacker).new(symbolize_keys: true)
    assert_all_called("Penstock::MessagePack::Unpacker")
  end

  def buffer(made)
    on(on(made) << "abcdefgh").write("ij")
    on(made).skip(1)
    on(made).skip_all(1)
    on(made).read_all(1)
    on(made).read(1)
    read(made, except: %i[read read_all flush clear close])
    on(made).write_to(StringIO.new)
    on(made).read
    on(made).read(5)
    on(made).read_all
    %i[flush clear close].each { |name| @calls.call(made, name, [], {}) }
    assert_all_called("Penstock::MessagePack::Buffer")
  end

  def values_of_ext_types
    stamp = on(PACK::Timestamp).from_msgpack_ext(on(PACK::Timestamp).to_msgpack_ext(5, 6))
    on(PACK::Timestamp).parts(on(read(stamp)).to_msgpack_ext)
    on(stamp).eql?(stamp)
    @calls.call(stamp, :==, [5], {})
    assert_all_called("Penstock::MessagePack::Timestamp")
    on(PACK::Bigint).from_msgpack_ext(on(PACK::Bigint).to_msgpack_ext(2**70))
    value = on(PACK::ExtensionValue).new(5, "a")
    read(value)
    on(value).to_msgpack(PACK::Packer.new)
    on(value).to_msgpack(StringIO.new)
  end

  # ---- others ----

  def test_values_of_a_secret
    secret = on(Penstock::Secret).new("x")
    read(secret, except: [:marshal_dump])
    @calls.call(secret, :==, ["x"], {})
    on(secret).eql?(secret)
    assert_all_called("Penstock::Secret", except: %i[encode_with marshal_dump pretty_print])
  end

  def test_values_of_an_examination
    report = on(Penstock::Doctor).examine
    report.facts.each { |fact| read(fact) }
    read(report)
    assert_all_called("Penstock::Doctor::Report")
    on(Penstock).librdkafka_version
    on(Penstock).librdkafka_compiled_version
  end

  def test_values_of_a_connection_pool
    servers = cluster.bootstrap_servers
    pool = on(Penstock::ConnectionPool).setup(size: 2) { |config, _| config.kafka = { "bootstrap.servers": servers } }
    [pool, Penstock::ConnectionPool].each do |lending|
      on(lending).with(&:id)
      assert_raises(Penstock::ProducerNotTransactionalError) { on(lending).transaction { nil } }
      on(lending).stats
      on(lending).reload(timeout: 5)
    end
    read(pool, except: %i[reload shutdown close])
    on(pool).shutdown
    on(pool).close
    on(Penstock::ConnectionPool).active?
    on(Penstock::ConnectionPool).default_pool
    on(Penstock::ConnectionPool).close(timeout: 5)
    on(Penstock::ConnectionPool).shutdown
    assert_all_called("Penstock::ConnectionPool")
  rescue LoadError
    skip "the gem connection_pool is not installed"
  end
end
