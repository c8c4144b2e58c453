# frozen_string_literal: true

require_relative "consumer_storm"
require_relative "../../support/kafka_cluster"

# For tests with storms: a Kafka of three brokers. In bin/matrix, which has no Java, the storm is on the shared Kafka.
module StormKafka
  # @param seconds [Numeric] of the storm
  # @return [Numeric] seconds that its test may take: a Kafka starts before it, and stops after it
  def self.longest(seconds) = (2 * Limited::LONGEST) + ConsumerStorm.longest(seconds)

  def on_storm_kafka(&block)
    return yield ENV.fetch("PENSTOCK_KAFKA") if ENV["PENSTOCK_MATRIX"]

    KafkaCluster.with(3, ConsumerStorm::BROKERS) { |kafka| block.call(kafka.servers) }
  rescue KafkaCluster::Unavailable => e
    raise if ENV["CI"]

    skip e.message
  end
end
