# frozen_string_literal: true

require_relative "shared_kafka"

# The cluster that the tests outside test/integration share. PENSTOCK_TEST_ON chooses it: embedded (the default), or kafka, a real
# one at PENSTOCK_KAFKA. Both have `bootstrap_servers` and `create_topic(name, partitions:)`.
module SharedCluster
  ON = ENV.fetch("PENSTOCK_TEST_ON", "embedded")
  raise "PENSTOCK_TEST_ON is embedded or kafka" unless %w[embedded kafka].include?(ON)

  def self.real? = ON == "kafka"

  def self.instance = @kafka || embedded

  # For tests whose consumers join groups. librdkafka's mock cluster lets the first member of each group wait 3 s, and brokers
  # do not. So these tests use the real Kafka, if there is one and not only quick tests run.
  def self.for_groups
    return instance if real? || !ENV.key?("PENSTOCK_KAFKA") || ENV["PENSTOCK_TESTS"] == "quick"

    @for_groups ||= SharedKafka.new
  end

  # For test classes: their shared cluster is the one for groups.
  module ForGroups
    def cluster = SharedCluster.for_groups
  end

  def self.embedded = @embedded ||= Penstock::EmbeddedCluster.new(brokers: 3)

  @kafka = SharedKafka.new if real?
end
