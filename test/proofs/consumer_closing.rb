# frozen_string_literal: true

require "penstock"
require_relative "support/consumer_closing"
require_relative "support/consumer_storm"

# The long version of test/consumer/closing_test.rb: 1,000 rounds for each kind of group, on the embedded cluster. If
# PENSTOCK_KAFKA names a Kafka, on that; the protocol "consumer" requires one.
#
#   rake test:consumer_closing [ROUNDS=1000] [KINDS=range,cooperative-sticky,consumer]
rounds = Integer(ENV.fetch("ROUNDS", "1000"))
at_once = 25
servers = ENV.fetch("PENSTOCK_KAFKA", nil)
kinds = %w[range]
kinds << "cooperative-sticky" if ConsumerStorm.librdkafka >= Gem::Version.new("2.3") # before, it aborts the process (#4381)
kinds << "consumer" if servers && ConsumerStorm.consumer_protocol?
kinds = ENV["KINDS"].split(",") if ENV["KINDS"]
longest = servers ? 3 : 6 # seconds; a new group of the embedded cluster waits 3 s for more members
cluster = Penstock::EmbeddedCluster.new(brokers: 3) unless servers
topic = "closing-#{SecureRandom.hex(4)}"
cluster&.create_topic(topic, partitions: 2)
$stdout.sync = true

producer = Penstock::Producer.new("bootstrap.servers": servers || cluster.bootstrap_servers)
ConsumerClosing::MESSAGES.times { |i| 2.times { |partition| producer.produce_async(topic:, payload: i.to_s, partition:) } }
producer.close

counts = -> { %w[fd task].map { |what| Dir.children("/proc/self/#{what}").size } }
kinds.each do |kind|
  classic = kind == "consumer" ? {} : { "session.timeout.ms": 6_000, "heartbeat.interval.ms": 100 }
  closing = ConsumerClosing.new(servers || cluster.bootstrap_servers, topic, **ConsumerStorm::KINDS.fetch(kind), **classic)
  closing.rounds(at_once, longest:)
  sleep 3
  before = counts.call
  (rounds / at_once).times { closing.rounds(at_once, longest:) }
  sleep 3
  after = counts.call
  abort closing.problems.first(10).join("\n") if closing.problems.any?
  abort "descriptors and threads were #{before}, and are #{after}" if after.zip(before).any? { |now, once| now > once + 5 }
  puts "#{kind}: #{closing.counts}, descriptors and threads #{before} before, #{after} after"
end
cluster&.close
puts "#{rounds} rounds each of #{kinds.join(", ")}, librdkafka #{Penstock.librdkafka_version}: each close in time, nothing " \
     "lost without a log line, no leak"
