# frozen_string_literal: true

require "penstock"

# Stands in for the gem ruby-kafka, for the calls of its adapter.
class Kafka
  def initialize(brokers, client_id:)
    @settings = { "bootstrap.servers" => brokers.join(","), "client.id" => client_id }
  end

  def producer(required_acks:, max_buffer_size:, max_buffer_bytesize:, idempotent: false, max_retries: 2, compression_codec: nil)
    raise "buffers too small" if [max_buffer_size, max_buffer_bytesize].min < 1_000_000

    Producer.new({ **@settings, "acks" => required_acks.to_s, "enable.idempotence" => idempotent, "retries" => max_retries,
                                "compression.type" => compression_codec&.to_s }.compact)
  end

  def close = nil

  class Producer
    def initialize(settings)
      @producer = Penstock::Producer.new { |config| config.kafka = settings }
      @messages = []
    end

    def produce(payload, topic:, key: nil, headers: {})
      @messages << { topic:, payload:, key:, headers: }.compact
    end

    def deliver_messages
      @producer.produce_many_sync(@messages.slice!(0..))
    end

    def shutdown = @producer.close
  end
end
