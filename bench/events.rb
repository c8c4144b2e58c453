# frozen_string_literal: true

require "penstock"
require_relative "support"

# How many events a second reach one listener, and what a listener that sleeps costs another producer.
module Events
  PAYLOAD = ("x" * 100).freeze
  EVENT = "message.acknowledged"

  module_function

  def producer(servers)
    Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers" => servers, **Bench::SETTINGS }
      config.event_queue_limit = 2_000_000
    end
  end

  # @return [Hash]
  def run(servers, topic, rounds)
    { baseline: baseline(servers, topic, rounds), plain: rates(servers, topic, rounds, listening: false),
      told: rates(servers, topic, rounds, listening: true), **beside_a_sleeper(servers, topic) }
  end

  # The plain C program on the same cluster: when its own rounds differ much, the machine is too busy to measure on.
  def baseline(servers, topic, rounds, count: 100_000)
    program = Bench::Baseline.new("one", servers, topic, producers: 1, messages: count)
    program.round # warm-up
    Array.new(rounds) { (count / program.round).round }.sort
  ensure
    program&.close
  end

  # @return [Array<Integer>] messages a second of each round, until each has its verdict and, if somebody listens, was told
  def rates(servers, topic, rounds, listening:, count: 100_000)
    producer = producer(servers)
    told = 0
    producer.monitor.subscribe(EVENT) { |event| told += 1 if event[:offset] >= 0 } if listening
    all = Array.new(count) { { topic:, payload: PAYLOAD } }
    producer.produce_many_sync(all) # warm-up
    seconds = Array.new(rounds) do |i|
      Bench.progress "#{listening ? "one listener" : "nobody listens"}: round #{i + 1} of #{rounds}"
      told_by(producer) if listening
      told = 0
      start = Bench.now
      producer.produce_many_sync(all)
      sleep 0.0005 until !listening || told == count
      Bench.now - start
    end
    Bench.progress ""
    seconds.map { |each| (count / each).round }.sort
  ensure
    producer&.close
  end

  def told_by(producer)
    sleep 0.001 until producer.metrics[:events][:waiting].zero?
    sleep 0.02
  end

  # @return [Hash] ms: 99 of 100 verdicts and events of one producer while the other's listener sleeps
  def beside_a_sleeper(servers, topic, count: 1_000)
    sleeper = producer(servers)
    other = producer(servers)
    sleeper.monitor.subscribe(EVENT) { sleep 3 }
    told = []
    other.monitor.subscribe(EVENT) { |event| told << (Bench.now - event[:label]) }
    20.times { sleeper.produce_async(topic:, payload: PAYLOAD) }
    verdicts = Array.new(count) do
      start = Bench.now
      other.produce_sync(topic:, payload: PAYLOAD, label: start)
      Bench.now - start
    end
    sleep 0.01 until told.size == count
    { verdict_p99: p99(verdicts), told_p99: p99(told) }
  ensure
    other&.close
    sleeper&.close
  end

  def p99(seconds) = (seconds.sort[(seconds.size * 0.99).ceil - 1] * 1000).round(2)
end
