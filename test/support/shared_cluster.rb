# frozen_string_literal: true

require_relative "shared_kafka"

# The cluster that the tests outside test/integration share. PENSTOCK_TEST_ON chooses it: embedded (the default), or kafka, a real
# one at PENSTOCK_KAFKA. Both have `bootstrap_servers` and `create_topic(name, partitions:)`.
module SharedCluster
  ON = ENV.fetch("PENSTOCK_TEST_ON", "embedded")
  raise "PENSTOCK_TEST_ON is embedded or kafka" unless %w[embedded kafka].include?(ON)

  def self.real? = ON == "kafka"

  def self.instance = @kafka || embedded

  def self.embedded = @embedded ||= Penstock::EmbeddedCluster.new(brokers: 3)

  @kafka = SharedKafka.new if real?
end
