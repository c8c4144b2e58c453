# frozen_string_literal: true

# A producer packs documents with MessagePack, and a consumer reads them. Then one Ractor unpacks and processes them, and then
# several Ractors in parallel. Without BROKERS, the cluster is an embedded one.
#
#   ruby -Ilib examples/ractors_unpack.rb [RACTORS [MESSAGES [BROKERS]]]    the status is 1 if a sum is wrong
#
# Unpacking holds no lock of the process. But it makes objects, and each garbage collection stops all Ractors (docs/ractors.md).
# So the speedup depends on the version of Ruby and on the work.

require "penstock"
require "penstock/message_pack" # at once, as only the main Ractor can load it
require "securerandom"

Warning[:experimental] = false # Ruby's warning about Ractors

# The documents, and the work on each.
module Invoices
  def self.make(number)
    lines = Array.new(20) { |i| { "article" => "article-#{i}", "count" => (number + i) % 7, "price" => 100 + i } }
    { "number" => number, "customer" => "customer #{number % 100}", "paid" => number.even?, "lines" => lines }
  end

  def self.sum(invoice) = invoice["lines"].sum { |line| line["count"] * line["price"] }
end

# @return [Array<String>] this number of payloads; frozen, so that Ractors get them without a copy
def read(consumer, count)
  found = []
  while found.size < count
    batch = consumer.poll_batch(max: count, timeout: 30)
    abort "no more messages came within 30 s" if batch.empty?
    found.concat(batch.map(&:payload))
  end
  found
end

# Each Ractor gets a share. Waits until all have ended before it takes their values: docs/ractors.md, "Ruby's own limits".
# @return [Integer] the sum of all
def unpack_in_ractors(count, payloads)
  ractors = payloads.each_slice((payloads.size.to_f / count).ceil).map do |share|
    Ractor.new(Ractor.make_shareable(share)) do |packed|
      packed.sum { |payload| Invoices.sum(Penstock::MessagePack.unpack(payload)) }
    end
  end
  sleep 0.001 until ractors.all? { |ractor| ractor.inspect.end_with?(" terminated>") }
  ractors.sum { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }
end

ractors = Integer(ARGV[0] || 4)
messages = Integer(ARGV[1] || 50_000)
cluster = Penstock::EmbeddedCluster.new unless ARGV[2]
servers = ARGV[2] || cluster.bootstrap_servers
topic = "ractors-unpack-#{SecureRandom.hex(4)}"

producer = Penstock::Producer.new do |config|
  config.kafka = { "bootstrap.servers": servers }
  config.serializer = Penstock::MessagePack
end
producer.produce_sync(topic:, payload: Invoices.make(0)) # creates the topic

consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": servers } }
consumer.assign(topic => (0...producer.partition_count(topic)).to_h { |partition| [partition, :beginning] })
packed = read(consumer, 1)
(1...messages).each_slice(1_000) do |numbers| # in batches, because an embedded cluster keeps only 5 MB per partition
  producer.produce_many_sync(numbers.map { |number| { topic:, payload: Invoices.make(number) } })
  packed.concat(read(consumer, numbers.size))
end
[consumer, producer, cluster].compact.each(&:close)

expected = (0...messages).sum { |number| Invoices.sum(Invoices.make(number)) }
puts "messages  Ractors  objects/s  sum"
right = [1, ractors].map do |count|
  GC.start
  start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  sum = unpack_in_ractors(count, packed)
  seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
  puts format("%8d  %7d  %9d  %s", messages, count, messages / seconds, sum == expected ? "right" : "WRONG: #{sum}")
  sum == expected
end
exit(right.all?)
