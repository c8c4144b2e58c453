# frozen_string_literal: true

require "waterdrop"

# WaterDrop 2, from its public API.
class WaterDropAdapter < Bench::Adapter
  def self.librdkafka = Rdkafka::LIBRDKAFKA_VERSION

  def make_producer(settings)
    WaterDrop::Producer.new { |config| config.kafka = settings.transform_keys(&:to_sym) }
  end

  def batch(messages) = producer.produce_many_sync(messages)
  def async(message) = producer.produce_async(message)
  def sync(message) = producer.produce_sync(message)
end
