# frozen_string_literal: true

require "penstock"

# Stands in for the gem rdkafka, for the calls of its adapter. Its queue is full at every tenth message.
module Rdkafka
  LIBRDKAFKA_VERSION = Penstock.librdkafka_version

  class RdkafkaError < StandardError
    attr_reader :code

    def initialize(code)
      super
      @code = code
    end
  end

  class Config
    def initialize(settings)
      @settings = settings
    end

    def producer = Producer.new(@settings)
  end

  class Producer
    def initialize(settings)
      @producer = Penstock::Producer.new { |config| config.kafka = settings }
      @calls = 0
    end

    def produce(topic:, payload:, key: nil, headers: nil)
      raise RdkafkaError, :queue_full if ((@calls += 1) % 10).zero?

      @producer.produce_async({ topic:, payload:, key:, headers: }.compact)
    end

    def close = @producer.close
  end
end
