# frozen_string_literal: true

require "securerandom"

# Topics of a real Kafka that tests change.
module KafkaTopics
  # @return [String] the topic
  def create_topic(topic = "penstock-test-#{SecureRandom.hex(6)}", partitions:)
    KafkaTopics.admin { |admin| admin.create_topic(topic, partitions:) }
    topic
  end

  def grow_topic(topic, partitions:)
    KafkaTopics.admin do |admin|
      admin.create_partitions({ topic => partitions }).raise!
      eventually(30) { admin.topic(topic).partitions.size == partitions }
    end
  end

  def delete_topic(topic) = KafkaTopics.admin { |admin| admin.delete_topics(topic).raise! }

  # Closed before the test goes on: some tests count open clients.
  def self.admin(servers = ENV.fetch("PENSTOCK_KAFKA"))
    admin = Penstock::Admin.new("bootstrap.servers": servers)
    yield admin
  ensure
    admin.close
  end
end
