# frozen_string_literal: true

require "penstock"
require_relative "support"

# Penstock beside a plain C program over the same librdkafka that does the same work, see baseline.c.
module Ratios
  PAYLOAD = ("x" * 100).freeze
  BARS = { "batch" => 0.55, "one" => 0.85, "async" => 0.4 }.freeze

  module_function

  def producer(servers)
    Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers" => servers, **Bench::SETTINGS }
    end
  end

  def messages(topic, count) = Array.new(count) { { topic:, payload: PAYLOAD } }

  # 25 producers in 25 threads: produce_many_sync of 1,000 messages each
  def batch(servers, topic, rounds, producers: 25, count: 1_000)
    all = messages(topic, count)
    go = Thread::Queue.new
    done = Thread::Queue.new
    threads = Array.new(producers) do
      Thread.new do
        producer = producer(servers)
        while go.pop
          producer.produce_many_sync(all)
          done << true
        end
        producer.close
      end
    end
    round = lambda do
      start = Bench.now
      producers.times { go << true }
      producers.times { done.pop }
      Bench.now - start
    end
    against("batch", servers, topic, rounds, producers, count, round)
  ensure
    go&.close
    threads&.each(&:join)
  end

  # one producer: produce_many_sync of 100,000 messages
  def one(servers, topic, rounds, count: 100_000)
    producer = producer(servers)
    all = messages(topic, count)
    round = lambda do
      start = Bench.now
      producer.produce_many_sync(all)
      Bench.now - start
    end
    against("one", servers, topic, rounds, 1, count, round)
  ensure
    producer&.close
  end

  # one producer: 100,000 times produce_async, then wait for each handle
  def async(servers, topic, rounds, count: 100_000)
    producer = producer(servers)
    all = messages(topic, count)
    round = lambda do
      start = Bench.now
      handles = all.map { |message| producer.produce_async(message) }
      handles.each(&:wait)
      Bench.now - start
    end
    against("async", servers, topic, rounds, 1, count, round)
  ensure
    producer&.close
  end

  def against(scenario, servers, topic, rounds, producers, count, round)
    baseline = Bench::Baseline.new(scenario, servers, topic, producers:, messages: count)
    round.call # warm-up: connections, metadata, heap
    Bench.compare(scenario, producers * count, rounds, -> { baseline.round }, round).merge(bar: BARS[scenario])
  ensure
    baseline&.close
  end
end
