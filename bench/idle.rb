# frozen_string_literal: true

require "penstock"
require_relative "support"

# What idle producers cost the poller: its CPU time while nothing happens, and for a wake-up of a busy one beside them.
module Idle
  module_function

  def producer(servers)
    Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers" => servers, "linger.ms" => 0, **Bench::SETTINGS }
    end
  end

  def stats = Penstock::Poller.instance.stats

  # @return [Float] microseconds of the poller's CPU for each of its wake-ups during the block
  def cost_of_a_wakeup
    before = stats
    yield
    after = stats
    (after[:cpu_seconds] - before[:cpu_seconds]) / (after[:wakeups] - before[:wakeups]) * 1_000_000
  end

  def send_one_by_one(producer, topic)
    10_000.times { producer.produce_sync(topic:, payload: "x") }
  end

  # The same of a plain C program's polling thread, see idle.c.
  # @return [Hash] :alone and :beside, in microseconds
  def baseline(servers, topic, count)
    settings = { "linger.ms" => 0, **Bench::SETTINGS }.map { |pair| pair.join("=") }
    output, status = Open3.capture2(Bench.program("idle"), servers, topic, count.to_s, *settings)
    abort "bench/idle.c failed" unless status.success?
    JSON.parse(output, symbolize_names: true)
  end

  def run(servers, topic, count: 1_000, seconds: 10)
    busy = producer(servers)
    send_one_by_one(busy, topic)
    alone = Array.new(5) { cost_of_a_wakeup { send_one_by_one(busy, topic) } }

    Bench.progress "connecting #{count} idle producers"
    idle = Array.new(count) { producer(servers) }
    idle.each_slice(50) { |some| some.map { |one| one.produce_async(topic:, payload: "x") }.each(&:wait) }
    sleep 5 # connections settle
    Bench.progress "idle for #{seconds} s"
    before = stats
    sleep seconds
    after = stats
    share = (after[:cpu_seconds] - before[:cpu_seconds]) / seconds * 100

    beside = Array.new(5) { cost_of_a_wakeup { send_one_by_one(busy, topic) } }
    { idle: count, poller_cpu_percent: share.round(3), alone: Bench.median(alone).round(2),
      beside: Bench.median(beside).round(2), missed_wakeups: stats[:missed_wakeups] }
  ensure
    [busy, *idle].compact.each_slice(50) { |some| some.map { |one| Thread.new { one.close } }.each(&:join) }
  end
end
