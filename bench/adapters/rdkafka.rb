# frozen_string_literal: true

require "rdkafka"

# The gems rdkafka and karafka-rdkafka, from the public API that they share.
class RdkafkaAdapter < Bench::Adapter
  def self.librdkafka = Rdkafka::LIBRDKAFKA_VERSION

  def make_producer(settings) = Rdkafka::Config.new(settings.transform_keys(&:to_sym)).producer

  def async(message)
    producer.produce(**message)
  rescue Rdkafka::RdkafkaError => e
    raise unless e.code == :queue_full

    sleep 0.01 # until its thread has served some reports
    retry
  end
end
