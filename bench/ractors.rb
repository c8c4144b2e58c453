# frozen_string_literal: true

# Threads and Ractors on one producer: ruby -Ilib bench/ractors.rb [MESSAGES]
#
# Each line is one run with all messages delivered. Compare only lines of the same run of this program. The embedded cluster is in
# the same process, so the figures show the cost on the producing side, with the processor's cores shared by all.

require "penstock"

Warning[:experimental] = false

MESSAGES = Integer(ARGV[0] || 200_000)

# The work of one thread or Ractor.
module Work
  def self.produce(shareable, kind, size)
    case kind
    when :async then Array.new(size) { |i| shareable.produce_async(topic: "bench", payload: "x" * 100, key: i.to_s) }.last.wait
    when :serialized then Array.new(size) { |i| shareable.produce_async(topic: "bench", payload: serialize(i)) }.last.wait
    when :sync then size.times { shareable.produce_sync(topic: "bench", payload: "x" * 100) }
    when :many
      (size / 1_000).times do
        shareable.produce_many_sync(Array.new(1_000) { |i| { topic: "bench", payload: "x" * 100, key: i.to_s } })
      end
    end
  end

  def self.serialize(number)
    fields = { id: number, name: "user #{number}", values: Array.new(20) { |i| i * number } }
    fields.map { |key, value| "#{key}=#{value.inspect}" }.join(";")
  end
end

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

def with_producer
  cluster = Penstock::EmbeddedCluster.new
  cluster.create_topic("bench", partitions: 4)
  producer = Penstock::Producer.new do |config|
    config.kafka = { "bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1, "queue.buffering.max.messages": 1_000_000 }
    config.wait_timeout_on_queue_full = nil
  end
  producer.produce_sync(topic: "bench", payload: "first")
  yield producer
ensure
  producer&.close
  cluster&.close
end

def rate(kind, size, workers, how)
  with_producer do |producer|
    one = how == :producer ? producer : producer.shareable
    GC.start
    start = now
    run(workers, how) { [one, kind, size / workers] }
    producer.flush
    size / (now - start)
  end
end

def run(workers, how)
  if how == :ractors
    made = Array.new(workers) { Ractor.new(*yield) { |one, kind, size| Work.produce(one, kind, size).then { nil } } }
    made.each { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }
  else
    Array.new(workers) { Thread.new(*yield) { |one, kind, size| Work.produce(one, kind, size) } }.each(&:join)
  end
end

CASES = [[:producer, 1], [:producer, 4], [:shareable, 1], [:ractors, 1], [:ractors, 2], [:ractors, 4], [:ractors, 8]].freeze

puts "Ruby #{RUBY_VERSION}, librdkafka #{Penstock.librdkafka_version}"
{ async: MESSAGES, serialized: MESSAGES / 4, sync: MESSAGES / 40, many: MESSAGES * 2 }.each do |kind, size|
  first = nil
  CASES.each do |how, workers|
    best = Array.new(3) { rate(kind, size, workers, how) }.max
    first ||= best
    puts format("%-10s %-9s x%d  %9d messages/s  %.2f", kind, how, workers, best, best / first)
  end
end
