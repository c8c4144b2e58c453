# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/public_api"

# Penstock's objects as JSON: small, without secrets and payloads, with ActiveSupport, with the json gem, and with neither.
class AsJsonTest < PenstockTest
  def setup
    super
    needs_connection_pool
  end

  # Defines the as_json methods of ActiveSupport, in case the gem is missing.
  STAND_IN = <<~RUBY
    begin
      require "active_support"
      require "active_support/json"
    rescue LoadError
      require "json"
      class Object
        def as_json(options = nil)
          return to_hash.as_json(options) if respond_to?(:to_hash)
          instance_variables.to_h { |name| [name[1..], instance_variable_get(name)] }.as_json(options)
        end
      end
      class Hash; def as_json(options = nil) = to_h { |name, value| [name.to_s, value.as_json(options)] }; end
      module Enumerable; def as_json(options = nil) = to_a.as_json(options); end
      class Array; def as_json(options = nil) = map { |value| value.as_json(options) }; end
      class Struct; def as_json(options = nil) = to_h.as_json(options); end
      [String, Symbol, Numeric, NilClass, TrueClass, FalseClass].each do |type|
        type.class_eval { def as_json(_options = nil) = is_a?(Symbol) ? to_s : self }
      end
      module AsJsonFirst; def to_json(*) = JSON.generate(as_json); end
      [Internal::AsJson, Object].each { |type| type.prepend(AsJsonFirst) }
    end
  RUBY

  # One object of each public class.
  OBJECTS = <<~'RUBY'
    require "logger"
    cluster = Penstock::EmbeddedCluster.new
    kafka = { "bootstrap.servers": cluster.bootstrap_servers, "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN",
              "sasl.username": "HIDDEN", "sasl.password": "HIDDEN", "group.id": "g" }
    plain = { "bootstrap.servers": cluster.bootstrap_servers }
    cluster.create_topic("t")
    producer = Penstock::Producer.new("statistics.interval.ms": 50, **plain)
    shareable = Penstock::Producer.new { |config| config.kafka = plain }.shareable
    secret = Penstock::Producer.new { |config| config.kafka = kafka.except(:"group.id") }
    consumer = Penstock::Consumer.new { |config| config.kafka = kafka }
    message = { topic: "t", payload: "HIDDEN", key: "HIDDEN", headers: { "h" => "HIDDEN" }, label: producer }
    events = Queue.new
    statistics = Queue.new
    producer.monitor.subscribe("message.produced_sync") { |event| events << event }
    producer.monitor.subscribe("message.acknowledged") { |event| events << event }
    producer.monitor.subscribe("error.occurred") { |event| events << event }
    producer.monitor.subscribe("statistics.emitted") { |event| statistics << event }
    report = producer.produce_sync(message)
    handle = producer.produce_async(message)
    error = begin; producer.produce_sync(topic: "t", payload: 5); rescue Penstock::Error => e; e; end
    many = begin; producer.produce_many_sync([message, { **message, partition: 99 }]); rescue Penstock::Error => e; e; end
    sleep 0.01 until events.size >= 3
    statistic = statistics.pop
    sending = nil
    producer.around("produce_sync") { |given, &send| sending = given; send.call } rescue nil
    dummy = Penstock::Clients::Dummy.new(Penstock::Config.new.tap { |c| c.kafka = plain; c.send(:finish) }, Penstock::Monitor.new)
    objects = [cluster, producer, secret, consumer, report, handle, error, many, *Array.new(events.size) { events.pop }, dummy,
               producer.client, producer.config, secret.config, consumer.config, producer.config.polling,
               producer.config.polling.fd, producer.config.oauth, producer.status, producer.tags, producer.middleware,
               consumer.status, consumer.tags, consumer.metrics, consumer.monitor, producer.monitor, Penstock.monitor, producer.with(topic_config: { acks: 1 }), shareable,
               Penstock::Poller.instance, Penstock::Message.new(**message.except(:label)), producer.close,
               Penstock::ConnectionPool.new(size: 1) { |config| config.kafka = kafka }, dummy.produce(message),
               Penstock::OpenTelemetry.allocate, Penstock::Listeners::Logger.new(Logger.new(nil)),
               Penstock::Listeners::Statsd.new(port: 9), Penstock::Listeners::Prometheus.new,
               Penstock::Listeners::ActiveSupportNotifications.allocate,
               statistic, Penstock::MessagePack::Factory.new, Penstock::MessagePack::Timestamp.new(1, 2), *sending].compact
  RUBY

  def test_every_object_is_small_and_without_secrets_under_active_support
    assert_small(ruby!("#{STAND_IN}#{OBJECTS}" \
                       "objects.each { |one| puts [one.class, one.to_json.size, one.as_json.inspect, one.to_json].join(' ') }"))
  end

  def test_every_object_is_small_and_without_secrets_with_the_json_gem_alone
    assert_small(ruby!("require 'json'\n#{OBJECTS}" \
                       "objects.each { |one| puts [one.class, JSON.generate(one).size, JSON.generate([one])].join(' ') }"))
  end

  def test_as_json_contains_only_plain_values
    odd = ruby!(<<~RUBY)
      #{OBJECTS}
      plain = lambda do |value|
        case value
        when Hash then value.all? { |name, one| name.is_a?(String) && plain.call(one) }
        when Array then value.all?(&plain)
        else [String, Integer, Float, NilClass, TrueClass, FalseClass].include?(value.class)
        end
      end
      objects.grep(Internal::AsJson).each { |one| puts one.class unless plain.call(one.as_json) && one.as_json["class"] == one.class.name }
    RUBY
    assert_empty odd
  end

  # Runs in a separate process: a Ractor changes a process permanently, and Ruby warns that Ractors are experimental.
  def test_other_ractors_can_convert_reports_and_messages_to_json
    assert_equal "Penstock::DeliveryReport Penstock::Message\n", ruby!(<<~RUBY, cluster.bootstrap_servers, topic)
      Warning[:experimental] = false
      one = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0] } }
      objects = [one.produce_sync(topic: ARGV[1], payload: "x"), Penstock::Message.new(topic: "t")]
      converting = Ractor.new(*objects) { |*given| given.map { |object| object.as_json["class"] } }
      puts (converting.respond_to?(:value) ? converting.value : converting.take).join(" ")
    RUBY
  end

  # Only classes that a program can name. Runs in a separate process: other tests may have loaded more.
  def test_every_class_with_a_connection_or_a_configuration_defines_its_own_as_json
    assert_empty ruby!(<<~RUBY, File.expand_path("../support/public_api", __dir__))
      require ARGV[0]
      exempt = /\\APenstock::(MessagePack|Doctor|CLI|Listeners::Statsd::|StatisticsEvent::Parsed\\z)/
      PublicApi.constants.values.grep(Class).reject { |type| type.name.match?(exempt) }.each do |type|
        puts type unless type.method_defined?(:as_json) && type.instance_method(:as_json).owner.name.start_with?("Penstock")
      end
    RUBY
  end

  def test_the_report_of_a_delivery_is_a_hash_of_its_attributes
    report = producer.produce_sync(topic: topic(partitions: 1), payload: "x", label: :mine)
    assert_equal({ topic: report.topic, partition: 0, offset: 0, timestamp: report.timestamp, latency: report.latency,
                   status: :persisted, label: :mine, error: nil }, report.to_h)
    assert(case report
           in { offset: 0, status: :persisted } then true
           end)
  end

  private

  def assert_small(lines)
    refute_empty lines
    refute_match(/HIDDEN/, lines)
    lines.each_line { |line| assert_operator line.bytesize, :<, 3_000, line[0, 300] }
  end
end
