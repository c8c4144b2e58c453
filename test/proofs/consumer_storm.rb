# frozen_string_literal: true

require "logger"
require "penstock"
require_relative "support/consumer_storm"
require_relative "../support/kafka_cluster"

# The long version of test/proofs/consumer_storm_test.rb: 10 minutes, and one of three brokers is killed every 20 s.
#
#   rake test:consumer_storm [MINUTES=10] [KINDS=range,cooperative-sticky,consumer]
#
# In bin/matrix, which has no Java, it uses the Kafka that PENSTOCK_KAFKA names, and kills no broker:
#
#   bin/matrix --ruby 3.3 -- env KINDS=consumer ruby -Ilib test/proofs/consumer_storm.rb
minutes = Float(ENV.fetch("MINUTES", "10"))
kinds = ENV.fetch("KINDS") { (ConsumerStorm::KINDS.keys - (ConsumerStorm.consumer_protocol? ? [] : ["consumer"])).join(",") }
$stdout.sync = true

storm = lambda do |servers|
  storms = kinds.split(",").product([false, true]).map do |kind, manual|
    ConsumerStorm.new(servers, kind, manual:, pause: 0.5..4, grow: true)
  end
  problems = storms.map { |one| Thread.new { one.run(minutes * 60) } }.flat_map(&:value)
  puts storms
  abort ConsumerStorm.report(problems) if problems.any?
  puts "#{storms.size} groups for #{minutes} minutes, librdkafka #{Penstock.librdkafka_version}: no gap, no wrong order, no " \
       "repetition of what was committed, no commit of what was not processed, no committed offset fell"
end

if ENV["PENSTOCK_MATRIX"]
  storm.call(ENV.fetch("PENSTOCK_KAFKA"))
else
  KafkaCluster.with(3, ConsumerStorm::BROKERS) do |kafka|
    killing = kafka.kill_in_turn
    storm.call(kafka.servers)
  ensure
    killing&.kill
  end
end
