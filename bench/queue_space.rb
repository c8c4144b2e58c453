# frozen_string_literal: true

# How threads share a full queue: the cost of a message, the longest wait of a call, and the number of calls that time out while
# space keeps becoming free.
#   ruby -Ilib bench/queue_space.rb [seconds]

require "penstock"
require "penstock/testing"

SECONDS = Float(ARGV.fetch(0, 5))
SLOTS = 100

# @return [Hash] figures of `threads` threads that produce one message after the other
def measure(cluster, threads, timeout_ms)
  producer = Penstock::Producer.new do |config|
    config.kafka = { "bootstrap.servers": cluster.bootstrap_servers, "queue.buffering.max.messages": SLOTS, "linger.ms": 5 }
    config.wait_timeout_on_queue_full = timeout_ms
  end
  producer.produce_sync(topic: "space", payload: "")
  workers = Array.new(threads) { Worker.new(producer) }
  sleep 0.5
  workers.each(&:reset)
  begins = now
  cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
  sleep SECONDS
  took = now - begins
  cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - cpu
  counts = workers.map(&:count)
  worst = workers.map(&:worst)
  full = workers.sum(&:full)
  workers.each(&:stop)
  producer.close
  { messages: counts.sum, worst: worst.max, fair: threads * took / counts.sum, cpu_us: cpu * 1e6 / counts.sum, full: full,
    least: counts.min, most: counts.max }
end

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

# A thread that produces one message after the other.
class Worker
  attr_reader :count, :worst, :full

  def initialize(producer)
    reset
    @thread = Thread.new { call(producer) until @stopped }
  end

  def reset = (@count = 0
               @worst = 0
               @full = 0)

  def stop
    @stopped = true
    @thread.join
  end

  private

  def call(producer)
    called = now
    begin
      producer.produce_async(topic: "space", payload: "x" * 100)
      @count += 1
    rescue Penstock::QueueFullError
      @full += 1
    end
    @worst = [@worst, now - called].max
  end
end

cluster = Penstock::EmbeddedCluster.new
cluster.create_topic("space", partitions: 1)
[[1, 10_000], [100, 10_000], [100, 1_000], [400, 10_000]].each do |threads, timeout_ms|
  figures = measure(cluster, threads, timeout_ms)
  puts format("threads %-3d timeout %-5d messages %-7d messages/s %-6d cpu/message %5.1f us  worst wait %7.1f ms  " \
              "fair share %6.2f ms x%-6.1f out of time %-3d least %d most %d", threads, timeout_ms, figures[:messages],
              figures[:messages] / SECONDS, figures[:cpu_us], figures[:worst] * 1e3, figures[:fair] * 1e3,
              figures[:worst] / figures[:fair], figures[:full], figures[:least], figures[:most])
end
cluster.close
