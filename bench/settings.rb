# frozen_string_literal: true

# What single settings and properties of messages cost: 50,000 messages of JSON (about 160 bytes) in one produce_many_sync, each
# case beside the defaults, round by round. Prints the median of the rounds' ratios; above 1 is faster than the defaults.
#
#     ruby -Ilib bench/settings.rb [SERVERS] [ROUNDS]    (without SERVERS: an embedded cluster)
require "penstock"

SERVERS, ROUNDS = ARGV
COUNT = 50_000
TOPIC = "penstock-settings"

payload = lambda do |i|
  %({"id":#{i},"user":"user-#{i % 977}","action":"view","url":"https://shop.example/#{i * 7919 % 100_003}",) +
    %("at":"2026-11-23T18:00:#{i % 60}Z","referrer":"https://search.example/?q=#{i % 31}"})
end
messages = Array.new(COUNT) { |i| { topic: TOPIC, payload: payload.call(i) } }
async = lambda do |producer, all|
  Penstock::DeliveryHandle.await_all(all.map { |message| producer.produce_async(message) })
end
many = ->(producer, all) { producer.produce_many_sync(all) }

CASES = {
  "acks: 1" => [{ acks: 1 }], "enable.idempotence: false" => [{ "enable.idempotence": false }],
  "linger.ms: 0" => [{ "linger.ms": 0 }], "linger.ms: 50" => [{ "linger.ms": 50 }],
  "batch.size: 16,384" => [{ "batch.size": 16_384 }], "batch.size: 100,000" => [{ "batch.size": 100_000 }],
  "compression lz4" => [{ "compression.type": "lz4" }], "compression zstd" => [{ "compression.type": "zstd" }],
  "compression gzip" => [{ "compression.type": "gzip" }], "compression snappy" => [{ "compression.type": "snappy" }],
  "a key each" => [{}, messages.map.with_index { |message, i| { **message, key: "user-#{i % 977}" } }],
  "the partition given" => [{}, messages.map { |message| { **message, partition: 0 } }],
  "two headers" => [{}, messages.map { |message| { **message, headers: { "trace" => "t" * 32, "kind" => "view" } } }],
  "produce_async, one call each" => [{}, messages, async],
  "batches of 1,000" => [{}, messages, ->(producer, all) { all.each_slice(1_000) { |some| producer.produce_many_sync(some) } }]
}.freeze

def seconds
  GC.start
  started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  yield
  Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
end

def median(values) = values.sort[values.size / 2]

cluster = Penstock::EmbeddedCluster.new unless SERVERS
servers = SERVERS || cluster.bootstrap_servers
make = lambda do |kafka|
  Penstock::Producer.new("bootstrap.servers": servers, **kafka).tap { |made| made.produce_sync(topic: TOPIC, payload: "x") }
end
base = make.call({})
2.times { many.call(base, messages) }

where = SERVERS ? "Kafka" : "embedded cluster"
puts "#{COUNT} messages, Ruby #{RUBY_VERSION}, librdkafka #{Penstock.librdkafka_version}, #{where}"
CASES.each do |name, (kafka, given, way)|
  producer = make.call(kafka)
  rounds = Array.new(Integer(ROUNDS || 7)) do
    [seconds { many.call(base, messages) }, seconds { (way || many).call(producer, given || messages) }]
  end
  ratio = median(rounds.map { |usual, changed| usual / changed })
  puts format("%-30s %8d/s  %.2f", name, COUNT / median(rounds.map(&:last)), ratio)
  producer.close
end
[base, cluster].compact.each(&:close)
