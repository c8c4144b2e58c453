# frozen_string_literal: true

require "penstock"
require_relative "support"

# Penstock beside a plain C program over the same librdkafka that does the same work, see baseline.c; and Penstock with a
# middleware step beside Penstock without.
module Ratios
  PAYLOAD = ("x" * 100).freeze
  BARS = { "batch" => 0.55, "one" => 0.85, "async" => 0.4, "one+step" => 0.7, "async+step" => 0.7 }.freeze

  module_function

  # @return [Hash] the row of the table
  def row(scenario, servers, topic, rounds)
    name, step = scenario.split("+")
    row = step ? with_step(name, servers, topic, rounds) : public_send(name, servers, topic, rounds)
    row.merge(name: scenario, bar: BARS[scenario])
  end

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
    against("one", servers, topic, rounds, 1, count, one_round(producer, messages(topic, count)))
  ensure
    producer&.close
  end

  # one producer: 100,000 times produce_async, then wait for each handle
  def async(servers, topic, rounds, count: 100_000)
    producer = producer(servers)
    against("async", servers, topic, rounds, 1, count, async_round(producer, messages(topic, count)))
  ensure
    producer&.close
  end

  # The same by two producers in turn, one of which has a middleware step that changes nothing.
  def with_step(name, servers, topic, rounds, count: 100_000)
    producers = Array.new(2) { producer(servers) }
    producers.last.middleware.append { |message| message }
    all = messages(topic, count)
    rounds_of_each = producers.map { |producer| public_send("#{name}_round", producer, all) }
    rounds_of_each.each(&:call) # warm-up
    Bench.compare(name, count, rounds, *rounds_of_each)
  ensure
    producers&.each(&:close)
  end

  def one_round(producer, all)
    lambda do
      start = Bench.now
      producer.produce_many_sync(all)
      Bench.now - start
    end
  end

  def async_round(producer, all)
    lambda do
      start = Bench.now
      handles = all.map { |message| producer.produce_async(message) }
      handles.each(&:wait)
      Bench.now - start
    end
  end

  def against(scenario, servers, topic, rounds, producers, count, round)
    baseline = Bench::Baseline.new(scenario, servers, topic, producers:, messages: count)
    round.call # warm-up: connections, metadata, heap
    Bench.compare(scenario, producers * count, rounds, -> { baseline.round }, round)
  ensure
    baseline&.close
  end
end
