# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/gc_pressure"

# Each test compacts the heap and then uses native objects, in a separate process (GCLevel says why). Each test fails without the
# relocation or the pin that it tests, because Ruby searches for references to old addresses.
class GCMovedTest < PenstockTest
  PRELUDE = <<~RUBY.freeze
    $LOAD_PATH << #{File.dirname(__dir__).dump}
    require "logger"
    require "support/gc_pressure"
    include GCPressure
    SERVERS, TOPIC = ARGV
    MANY = 50
    KAFKA = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 }.freeze
    def producer(servers = SERVERS, **kafka)
      Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": servers, log_level: 0, **kafka }
        yield config if block_given?
      end
    end
    def consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": SERVERS } }
    def bare(type) = Class.instance_method(:allocate).bind_call(type)
    def source = bare(Internal::EventSource).tap { |made| made.send(:initialize_queue, 10, false) }
    def same(expected, actual) = expected == actual || abort("expected \#{expected.inspect}, got \#{actual.inspect}")
    def fill
      one = producer
      one.produce_many_sync(Array.new(50) do |i|
        { topic: TOPIC, payload: "payload \#{i}", key: "key \#{i}", headers: { "name" => "value \#{i}", "more" => [i.to_s, "x"] } }
      end)
      one.close
    end
    def error
      yield
      abort("no error was raised")
    rescue Penstock::Error => e
      e
    end
  RUBY

  def test_objects_held_by_clients_can_move
    moved(<<~RUBY)
      settings = { id: "client", kafka: KAFKA, **Internal::ProducerClient.settings_of(producer.config) }
      clients = Array.new(MANY) do
        Internal::ProducerClient.new({ **settings, poller: Penstock::Poller.new, logger: Logger.new(nil) }).tap do |client|
          client.event_source = source
          client.token_refresher = Object.new
        end
      end
      named = Array.new(MANY) do |i|
        Internal::ProducerClient.new({ **settings, poller: Penstock::Poller.instance, logger: nil }).tap do |client|
          client.produce({ topic: "topic-\#{i}-of-many", payload: "x" })
        end
      end
      move_everything
      handles = named.each_with_index.map { |client, i| client.produce({ topic: "topic-\#{i}-of-many", payload: "x" }) }
      same [true] * MANY, handles.map { |handle| handle.topic.frozen? }
      pid = fork { exit!(clients.map(&:state).uniq == [:configured]) } # asks its poller
      same true, Process.wait2(pid)[1].success?
      named.each { |client| client.close(0) }
    RUBY
  end

  def test_objects_held_by_consumers_can_move
    moved(<<~RUBY)
      consumers = Array.new(MANY) do
        Internal::ConsumerClient.new(
          { id: "consumer", kafka: KAFKA, logger: Logger.new(nil), close_timeout: 1_000, grouped: false, rejection_timeout: nil,
            token_refresher: Object.new, mark: :manual, listens: false, hold_rebalances: 0, deserializer: Object.new, callbacks: Object.new }
        )
      end
      fill
      readers = Array.new(5) { consumer.tap { |one| one.assign(TOPIC => { 0 => :beginning }) } }
      readers.each { |one| nil until one.poll(timeout: 0.5) }
      move_everything
      same [[TOPIC, true]] * 5, readers.map { |one| one.poll(timeout: 5).topic }.map { |topic| [topic, topic.frozen?] }
      same MANY, consumers.size
      readers.each(&:close)
    RUBY
  end

  def test_objects_held_by_handles_can_move
    moved(<<~RUBY)
      one = producer
      handles = Array.new(MANY) { |i| one.produce_async(topic: "\#{TOPIC}-\#{i}", payload: "x", label: { number: i }) }
      move_everything
      same Array.new(MANY) { |i| ["\#{TOPIC}-\#{i}", { number: i }] }, handles.map { |handle| [handle.topic, handle.label] }
      one.close
    RUBY
  end

  def test_objects_held_by_event_sources_can_move
    moved(<<~RUBY)
      sources = Array.new(MANY) { source }
      one = producer("127.0.0.1:1", "message.timeout.ms": 60_000)
      seen = Queue.new
      one.monitor.subscribe("error.occurred") { |event| seen << event[:label] if event[:label] }
      MANY.times { |i| one.produce_async(topic: "t", payload: "x", label: "label \#{i}") }
      move_everything
      same [0] * MANY, sources.map { |made| made.counts[3] }
      one.close(timeout: 0)
      same Array.new(MANY) { |i| "label \#{i}" }, Array.new(MANY) { seen.pop }.sort_by { |label| label[/\\d+/].to_i }
    RUBY
  end

  def test_native_code_creates_objects_after_everything_moved
    moved(<<~RUBY)
      fill
      one = producer
      reader = consumer.tap { |made| made.assign(TOPIC => { 0 => :beginning }) }
      move_everything
      handle = one.produce_async(topic: TOPIC, payload: "x", label: "label")
      same [Penstock::DeliveryHandle, Penstock::DeliveryReport, "label"], [handle.class, handle.wait.class, handle.label]
      message = reader.poll(timeout: 0.5) until message
      same Penstock::Message, message.class
      same Internal::EventSource, source.class
      one.close
      reader.close
    RUBY
  end

  def test_native_code_creates_errors_after_everything_moved
    moved(<<~RUBY)
      one = producer
      stuck = producer("127.0.0.1:1", "message.timeout.ms": 300)
      move_everything
      same Penstock::MessageInvalidError, error { one.produce_async(topic: "t", payload: 1) }.class
      same Penstock::ConfigurationInvalidError, error { producer(no_such_setting: 1) }.class
      same Penstock::WaitTimeoutError, error { stuck.produce_async(topic: "t", payload: "x").wait(max_wait_timeout_ms: 1) }.class
      same Penstock::MessageTimedOutError, error { stuck.produce_async(topic: "t", payload: "x").wait }.class
      [one, stuck].each { |made| made.close(timeout: 0) }
    RUBY
  end

  def test_native_code_accepts_tokens_after_everything_moved
    moved(<<~RUBY)
      answers = Queue.new
      provider = Object.new
      provider.define_singleton_method(:on_oauthbearer_token_refresh) do |event|
        answers << event[:bearer].class
        event[:bearer].oauthbearer_set_token(token: "token", lifetime_ms: (Time.now.to_i + 60) * 1000, principal_name: "me")
      end
      one = producer("127.0.0.1:1", "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER") do |config|
        config.oauth.token_provider_listener = provider
      end
      move_everything
      one.produce_async(topic: "t", payload: "x")
      same Internal::Bearer, answers.pop
      one.close(timeout: 0)
    RUBY
  end

  def test_fibers_can_wait_while_everything_moves
    moved(<<~RUBY)
      require "support/plain_scheduler"
      one = producer("linger.ms": 500)
      offsets = []
      Fiber.set_scheduler(PlainScheduler.new)
      10.times { Fiber.schedule { offsets << one.produce_async(topic: TOPIC, payload: "x").wait.offset } }
      move_everything
      Fiber.set_scheduler(nil)
      same [*0..9], offsets.sort
      one.close
    RUBY
  end

  private

  def moved(program)
    ruby!(PRELUDE + program, cluster.bootstrap_servers, topic(partitions: 1), seconds: 60)
  end
end
