# frozen_string_literal: true

require "logger"
require "penstock"
require_relative "support/exactly_once_storm"
require_relative "../support/kafka_cluster"

# The long version of test/integration/exactly_once_test.rb: for 10 minutes messages come, members are killed and closed, and one
# of three brokers is killed every 20 s. Then a reader of committed messages counts each message once.
#
#   rake test:exactly_once_storm [MINUTES=10] [PROTOCOLS=range,cooperative_sticky,the_consumer_protocol]
#
# In bin/matrix, which has no Java, it uses the Kafka that PENSTOCK_KAFKA names, and kills no broker.
minutes = Float(ENV.fetch("MINUTES", "10"))
protocols = ENV.fetch("PROTOCOLS") { ExactlyOnceStorm.protocols.join(",") }.split(",")
$stdout.sync = true

# A killed broker may cost the producer a fatal error, after which it goes on with a new client. What failed then may be in the
# topic or not, and nobody sends it again: what counts is what the topic has.
# @return [Integer] how many messages were given to the producer
send_for = lambda do |servers, topic, seconds|
  producer = Penstock::Producer.new do |config|
    config.kafka = { "bootstrap.servers": servers, "message.timeout.ms": 0 } # never gives up
    config.logger = Logger.new(File::NULL)
  end
  ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
  count = 0
  until Process.clock_gettime(Process::CLOCK_MONOTONIC) > ends
    producer.produce_many_async(Array.new(5) { |i| { topic:, payload: (count + i).to_s, key: (count + i).to_s } })
    count += 5
    sleep 0.1 # members that are killed all the time do not read much more
  end
  report = producer.close(timeout: 300) # a partition may have no leader for a while
  raise ExactlyOnceStorm::Failed, "messages are still on their way: #{report.inspect}" unless report.pending.zero?

  count
end

run = lambda do |servers, protocol|
  storm = ExactlyOnceStorm.new(servers, protocol)
  sending = Thread.new { send_for.call(servers, storm.input, minutes * 60) }
  sending.report_on_exception = false # its value raises
  sleep 3 # until the topic exists
  storm.join_all
  (0..).each do |i|
    break if sending.join(1 + (rand * 3))

    storm.replace_ended
    storm.disturb(i)
  end
  count = sending.value
  inputs = storm.inputs
  raise ExactlyOnceStorm::Failed, "only #{inputs.size} of #{count} messages are in the input" if inputs.size < count / 2

  outputs = storm.finish(inputs.uniq.size, seconds: 300)
  raise ExactlyOnceStorm::Failed, "#{outputs.size} outputs of #{inputs.size}" unless outputs.tally == inputs.tally

  puts "#{protocol}: #{inputs.size} messages, each once"
rescue ExactlyOnceStorm::Failed => e
  "#{protocol} (#{storm.name}): #{e.message}"
ensure
  storm.kill_all
end

storms = lambda do |servers|
  problems = protocols.map { |protocol| Thread.new { run.call(servers, protocol) } }.filter_map(&:value)
  abort problems.join("\n") if problems.any?
  puts "#{protocols.size} groups for #{minutes} minutes, librdkafka #{Penstock.librdkafka_version}: each message once"
end

if ENV["PENSTOCK_MATRIX"]
  storms.call(ENV.fetch("PENSTOCK_KAFKA"))
else
  KafkaCluster.with(3) do |kafka|
    killing = kafka.kill_in_turn
    storms.call(kafka.servers)
  ensure
    killing&.kill
  end
end
