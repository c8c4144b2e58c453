# frozen_string_literal: true

require "json"
require_relative "../test_helper"
require_relative "../support/crowd"
require_relative "../support/secure_kafka"
require_relative "../support/kafka_topics"

# What a process runs does not grow with its clients, which log in with tokens of a provider that they get again and again.
class IntegrationFewThreadsTest < PenstockTest
  include SecureKafka
  include KafkaTopics
  include Crowd

  def test_threads_of_many_busy_clients_with_token_providers
    few, many = [[10, 10], [100, 50]].map do |counts|
      crowd(*counts, servers: SASL, user: USER, topic: create_topic(partitions: 4), "security.protocol": "sasl_plaintext",
                     "sasl.mechanism": "OAUTHBEARER", log_level: 0)
    end
    assert_few_threads(few, many)
  end
end
