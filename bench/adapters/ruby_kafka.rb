# frozen_string_literal: true

require "kafka"

# The gem ruby-kafka, from its public API. It has neither handles nor callbacks for messages, and does not linger.
class RubyKafkaAdapter < Bench::Adapter
  KNOWN = %w[acks bootstrap.servers client.id compression.type enable.idempotence retries].freeze
  UNLIMITED = { max_buffer_size: 100_000_000, max_buffer_bytesize: 10_000_000_000 }.freeze

  attr_reader :differs

  def make_producer(settings)
    @differs = (settings.keys - KNOWN).map { |name| "#{name} is unknown to it" }
    acks = settings.fetch("acks", "all")
    options = { required_acks: acks == "all" ? :all : Integer(acks), **UNLIMITED }
    options[:idempotent] = true if settings["enable.idempotence"] == "true"
    options[:max_retries] = Integer(settings["retries"]) if settings["retries"]
    codec = settings.fetch("compression.type", "none")
    options[:compression_codec] = codec.to_sym unless codec == "none"
    @kafka = Kafka.new(settings["bootstrap.servers"].split(","), client_id: settings.fetch("client.id", "bench"))
    @kafka.producer(**options)
  end

  def batch(messages)
    messages.each do |message|
      producer.produce(message[:payload], topic: message[:topic], key: message[:key], headers: message.fetch(:headers, {}))
    end
    producer.deliver_messages
  end

  def sync(message) = batch([message])

  def close
    producer.shutdown
    @kafka.close
  end
end
