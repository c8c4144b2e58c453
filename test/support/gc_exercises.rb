# frozen_string_literal: true

require "logger"
require "stringio"
require_relative "gc_pressure"
require_relative "internal"
require_relative "plain_scheduler"

# Uses each native class fully while the garbage collector works as hard as it can. It runs in separate processes, whose ARGV is a
# class, the GC pressure, a cluster's address and a topic. The cluster's process is under no pressure. Making and connecting a
# producer or a consumer is under none either, because that is mostly Ruby code and would take a minute: gc_test.rb does it once.
class GCExercises
  CLASSES = %i[admin_client batch bearer client_reference consumer consumer_set decoding_message delivery_handle
               embedded_cluster event_source event_worker fiber_group ledger message poller producer_client secret
               shareable_producer].freeze
  PRESSURES = %i[stress auto_compact verify_compaction].freeze
  ROUNDS = 20
  STRESSED = 3 # rounds: each allocation costs a whole collection

  def initialize(pressure, servers, topic)
    @pressure = pressure.to_sym
    @servers = servers
    @topic = topic
    @rounds = @pressure == :stress ? STRESSED : ROUNDS
    @count = 0
  end

  # @raise [RuntimeError] something is not as it was created
  def call(name)
    GC.auto_compact = true if @pressure == :auto_compact
    GC.stress = true if @pressure == :stress
    kept = send(name)
    if @pressure == :verify_compaction
      GCPressure.move_everything # once, for the reason in GCLevel
      kept&.call
      send(name)
    else
      kept&.call
    end
  ensure
    GC.stress = false
  end

  private

  def same(expected, actual) = expected == actual || raise("expected #{expected.inspect}, got #{actual.inspect}")

  def relieved(&block) = GCPressure.under_stress(false, &block)

  def making(connect: true, **kafka)
    relieved do
      one = Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": @servers, "linger.ms": 0, **kafka }
        yield config if block_given?
      end
      at_exit { one.close(timeout: 0) }
      one.partition_count(@topic) if connect
      one
    end
  end

  def reader
    relieved do
      one = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": @servers } }
      at_exit { one.close(timeout: 1) }
      one.assign(@topic => { 0 => :beginning })
    end
  end

  def first_batch(from)
    batch = from.poll_batch(max: 1, timeout: 0.5)
    batch = from.poll_batch(max: 1, timeout: 0.5) while batch.empty?
    batch
  end

  def first_message(from)
    message = nil
    message = from.poll(timeout: 0.5) until message
    message
  end

  def each_round(&block) = Array.new(@rounds, &block)

  # ---- one for each class. Each returns a Proc that checks later what was created ----

  def producer_client
    one = making { |config| config.logger = Logger.new(StringIO.new) }
    same :persisted, one.produce_sync(topic: @topic, payload: "x").status
    made = one.produce_many_sync(Array.new(@rounds * 5) { |i| { topic: @topic, payload: "p#{i}", key: "k", label: i } })
    lambda do
      same [*0...@rounds * 5], made.map(&:label)
      same true, one.partition_count(@topic) >= 1
      one.close
    end
  end

  def secret
    made = each_round { |i| Penstock::Secret.new("secret number #{i} is longer than what is embedded") }
    lambda do
      same made, each_round { |i| +"secret number #{i} is longer than what is embedded" }
      same made, made.map { |each| { each => each }.keys.first }
      same ["[hidden]"], made.map(&:inspect).uniq
    end
  end

  # Its client is discarded, and the next call makes another one.
  def client_reference
    one = making
    handles = each_round { one.shareable }
    one.disconnect
    -> { handles.each { |handle| same @topic, handle.produce_sync(topic: @topic, payload: "x").topic } }
  end

  def shareable_producer
    one = making
    handles = each_round { one.shareable }
    id = one.id
    sent = handles.map { |handle| handle.produce_async(topic: @topic, payload: "x", label: :sent) }
    lambda do
      same [id], handles.map(&:id).uniq
      same [:sent], sent.map { |sending| sending.wait.label }.uniq
    end
  end

  def delivery_handle
    one = making
    handles = each_round { |i| one.produce_async(topic: @topic, payload: "x", label: { number: i }, headers: { "a" => %w[b c] }) }
    lambda {
      handles.each_with_index do |handle, i|
        same [@topic, { number: i }], handle.wait.then { |report|
                                        [report.topic, report.label]
                                      }
      end
    }
  end

  def admin_client
    making # so that the topic exists
    one = relieved { Penstock::Admin.new("bootstrap.servers": @servers).tap(&:topics) }
    at_exit { one.close(timeout: 1) }
    described = each_round { one.topic(@topic) }
    lambda do
      same [@topic] * described.size, described.map(&:name)
      same :unknown_topic_or_part, one.topics("no-such-topic").errors.values.first.code
      same [0], one.topic(@topic).partitions.map(&:id)
    end
  end

  def consumer_set
    making.produce_sync(topic: @topic, payload: "x")
    one = reader
    empty = each_round { Penstock::ConsumerSet.new }
    full = Penstock::ConsumerSet.new(one)
    relieved { nil until full.wait(timeout: 5).any? }
    lambda do
      same [[], [one]], [empty.flat_map(&:consumers), full.consumers]
      same "x", first_message(full.wait(timeout: 5).first || one).payload
    end
  end

  def consumer
    making.produce_sync(topic: @topic, payload: "x")
    one = reader
    first_message(one)
    -> { same({ @topic => [0] }, one.assignment) }
  end

  def batch
    one = making
    each_round { |i| one.produce_sync(topic: @topic, payload: "p#{i}", key: "k#{i}") }
    from = reader
    batches = each_round { first_batch(from) }
    lambda do
      batches.each do |taken|
        same [taken.payloads[0].tr("p", "k"), @topic, 1], [taken.keys[0], taken.topics[0], taken.to_a.size]
      end
    end
  end

  # A message of a consumer with deserializers.
  def decoding_message
    messages = each_round do |i|
      Penstock::Message.new(topic: @topic, payload: "[#{i}]", key: "k#{i}", deserializer: :json,
                            key_deserializer: ->(bytes) { [bytes] })
    end
    messages.each { |made| same made.value.first, made.decoded_key.first.delete_prefix("k").to_i }
    -> { messages.each_with_index { |made, i| same [[i], ["k#{i}"]], [made.value, made.decoded_key] } }
  end

  def ledger
    one = relieved do
      Penstock::Consumer.new("bootstrap.servers": @servers, "group.id": "g") do |config|
        config.client_class = Penstock::Clients::InMemoryConsumer
      end
    end
    made = each_round { |i| one.client.feed(topic: @topic, payload: "p#{i}", headers: { "h" => "v#{i}" }) }
    one.subscribe(@topic)
    -> { same made.map(&:to_h), one.poll_batch.map(&:to_h) }
  end

  def message
    one = making
    each_round do |i|
      one.produce_sync(topic: @topic, payload: "p#{i}", key: "k#{i}", headers: { "h" => "v#{i}", "r" => %w[1 2] })
    end
    from = reader
    messages = each_round { first_message(from) }
    lambda do
      messages.each do |got|
        same [@topic, got.payload.tr("p", "k"), { "h" => got.payload.tr("p", "v"), "r" => %w[1 2] }],
             [got.topic, got.key, got.headers]
      end
    end
  end

  def event_source
    one = making
    seen = Thread::Queue.new
    one.monitor.subscribe("message.acknowledged") { |event| seen << event[:label] }
    each_round { |i| one.produce_async(topic: @topic, payload: "x", label: "label #{i}") }
    -> { same(each_round { |i| "label #{i}" }, each_round { seen.pop }) }
  end

  # Other exercises give it turns.
  def event_worker
    workers = each_round { Penstock.const_get(:Native)::EventWorker.new.tap { |one| one.next(0) && one.end_turn(true) } }
    -> { workers.each { |one| same [nil, true], [one.address, one.spare?] } }
  end

  def poller
    own = Penstock::Poller.new
    one = making { |config| config.polling.poller = own }
    each_round { one.produce_sync(topic: @topic, payload: "x") }
    -> { same @rounds, own.stats[:messages] }
  end

  def embedded_cluster
    own = Penstock::EmbeddedCluster.new
    own.create_topic("own", partitions: 1)
    lambda do
      own.create_topic("own-2", partitions: 2)
      same true, own.bootstrap_servers.start_with?("127.0.0.1:")
      own.close
      same true, own.closed?
    end
  end

  # The pressure starts when the client requests the token.
  def bearer
    taken = Thread::Queue.new
    provider = Object.new
    stress = GC.stress
    provider.define_singleton_method(:on_oauthbearer_token_refresh) do |event|
      extensions = Array.new(5) { |i| [("a".ord + i).chr, "value#{i}"] }.to_h
      expires = (Time.now.to_i + 60) * 1000
      GCPressure.under_stress(stress) do
        event[:bearer].oauthbearer_set_token(token: "token", lifetime_ms: expires, principal_name: "me", extensions:)
      end
      taken << event[:bearer]
    end
    one = making(connect: false, "bootstrap.servers": "127.0.0.1:1", log_level: 0, "security.protocol": "sasl_plaintext",
                 "sasl.mechanism": "OAUTHBEARER") { |config| config.oauth.token_provider_listener = provider }
    relieved { one.produce_async(topic: @topic, payload: "x") && taken.push(taken.pop) }
    -> { same Internal::Bearer, taken.pop.class }
  end

  def fiber_group = in_fibers(making)

  def in_fibers(one)
    offsets = []
    Fiber.set_scheduler(PlainScheduler.new)
    each_round { Fiber.schedule { offsets << one.produce_sync(topic: @topic, payload: "x").offset } }
    Fiber.set_scheduler(nil)
    -> { same @rounds, offsets.uniq.size }
  end
end
