# frozen_string_literal: true

require "penstock"
require_relative "support"

# Whether a pause makes the next produce_many_sync any slower: what serves a producer must not have gone to sleep for longer
# than it is needed, and there is nothing to warm up again.
module Gaps
  MESSAGES = 1_000
  PAYLOAD = ("x" * 100).freeze
  SECONDS = [1, 2, 3, 4, 5].freeze
  FULL_SECONDS = [1, 2, 5, 10, 20, 30, 45, 60].freeze

  module_function

  # @return [Hash] :single, the ms of calls without a pause, and :after, those of the calls after each pause
  def run(servers, topic, pauses, singles: 101, rounds: 3)
    producer = Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers" => servers, **Bench::SETTINGS }
    end
    messages = Array.new(MESSAGES) { { topic:, payload: PAYLOAD } }
    3.times { producer.produce_many_sync(messages) }
    single = Array.new(singles) { milliseconds(producer, messages) }
    after = Hash.new { |all, pause| all[pause] = [] }
    (pauses * rounds).each do |pause|
      Bench.progress "a pause of #{pause} s"
      sleep pause
      after[pause] << milliseconds(producer, messages)
    end
    Bench.progress ""
    { single:, after: }
  ensure
    producer&.close
  end

  def milliseconds(producer, messages)
    start = Bench.now
    producer.produce_many_sync(messages)
    (Bench.now - start) * 1_000
  end

  def show(servers, topic, full)
    row = full ? run(servers, topic, FULL_SECONDS, rounds: 1) : run(servers, topic, SECONDS)
    median = Bench.median(row[:single])
    puts format("produce_many_sync of %d messages: median %.1f ms, %.1f..%.1f ms", MESSAGES, median, *row[:single].minmax)
    row[:after].each do |pause, all|
      puts format("after a pause of %2d s: %-30s median %5.1f ms, %.2f of that without a pause", pause,
                  all.map { |ms| format("%.1f", ms) }.join(" "), Bench.median(all), Bench.median(all) / median)
    end
    { median:, slowest: row[:single].max, after: row[:after] }
  end
end
