# frozen_string_literal: true

require "logger"
require "penstock"
require_relative "support/consumer_storm"
require_relative "../support/kafka_cluster"

# The long version of test/integration/consumer_threads_test.rb: several threads use each consumer of a group, for 10 minutes with
# each assignor and each value of config.mark, one after the other. Brokers do not fail: consumer_storm.rb does that.
#
#   rake test:consumer_threads [MINUTES=10] [KINDS=range,cooperative-sticky,consumer] [MARK=next_poll,manual] [PROFILE=rewinds]
#                              [SEED=1]
#
# PROFILE is one of ConsumerStorm::Life::PROFILES; without it each consumer has another one. SEED repeats the random choices. In
# bin/matrix, which has no Java, it uses the Kafka that PENSTOCK_KAFKA names:
#
#   bin/matrix --ruby 3.3 -- env KINDS=consumer ruby -Ilib test/proofs/consumer_threads.rb
minutes = Float(ENV.fetch("MINUTES", "10"))
kinds = ENV.fetch("KINDS") { (ConsumerStorm::KINDS.keys - (ConsumerStorm.consumer_protocol? ? [] : ["consumer"])).join(",") }
marks = ENV.fetch("MARK", "next_poll,manual").split(",")
unknown = marks - %w[next_poll manual]
abort "MARK is next_poll, manual or both, not #{unknown.join(", ")}" if unknown.any?
options = { profile: ENV.fetch("PROFILE", nil), seed: Integer(ENV.fetch("SEED") { rand(2**32) }) }
$stdout.sync = true

storm = lambda do |servers|
  problems = kinds.split(",").product(marks).flat_map do |kind, mark|
    one = ConsumerStorm.new(servers, kind, manual: mark == "manual", threads: true, pause: 1.0..8.0, preload: 10_000, **options)
    one.run(minutes * 60).tap do |found|
      puts one
      puts ConsumerStorm.report(found) if found.any?
    end
  end
  abort "#{problems.size} problems" if problems.any?
  puts "#{minutes} minutes of each, librdkafka #{Penstock.librdkafka_version}: no message was lost or committed before it was " \
       "processed, no mark was rejected without a reason, no committed offset fell"
end

if ENV["PENSTOCK_MATRIX"] then storm.call(ENV.fetch("PENSTOCK_KAFKA"))
else
  KafkaCluster.with(1, ConsumerStorm::BROKERS) { |kafka| storm.call(kafka.servers) }
end
