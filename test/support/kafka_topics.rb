# frozen_string_literal: true

require "securerandom"
require_relative "limited"

# Topics of a real Kafka, created and changed with its own command: about 2 seconds each time.
module KafkaTopics
  COMMAND = [File.expand_path("../../bin/kafka", __dir__), "java", "org.apache.kafka.tools.TopicCommand"].freeze

  def setup
    skip "bin/matrix has no Java for Kafka's commands" if ENV["PENSTOCK_MATRIX"]
    super
  end

  # Returns when the broker knows the topic, which may be a moment after the command.
  def create_topic(topic = "penstock-test-#{SecureRandom.hex(6)}", partitions:)
    kafka_topics("--create", "--topic", topic, "--partitions", partitions.to_s)
    eventually(30) { fresh_count(topic) == partitions }
    topic
  end

  # Returns when the broker knows the new number.
  def grow_topic(topic, partitions:)
    kafka_topics("--alter", "--topic", topic, "--partitions", partitions.to_s)
    eventually(30) { fresh_count(topic) == partitions }
  end

  # Returns when the broker no longer knows the topic.
  def delete_topic(topic)
    kafka_topics("--delete", "--topic", topic)
    eventually(30) { kafka_topics("--list").lines.none? { |line| line.chomp == topic } }
  end

  private

  # The count from a client without a cache.
  def fresh_count(topic)
    watcher = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ENV.fetch("PENSTOCK_KAFKA") } }
    watcher.partition_count(topic)
  ensure
    watcher&.close
  end

  def kafka_topics(*arguments)
    output, status = Limited.capture2e(*COMMAND, "--bootstrap-server", ENV.fetch("PENSTOCK_KAFKA"), *arguments)
    assert_predicate status, :success?, output
    output
  end
end
