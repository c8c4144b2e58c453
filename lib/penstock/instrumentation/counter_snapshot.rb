# frozen_string_literal: true

module Penstock
  # The counters of clients: accepted `messages` and `bytes`, delivery results, Produce requests and those that settled no
  # message, dropped events, and a histogram of latencies in microseconds. Frozen; can be added and subtracted.
  # @api private
  CounterSnapshot = Struct.new(:messages, :delivered, :failed, :purged, :bytes, :requests, :retries, :events_dropped,
                               :latencies) do
    # @param client [Native::ProducerClient] or its replacement
    # @return [CounterSnapshot] in this process
    def self.of(client)
      counters = client.counters
      numbers = (members - [:latencies]).to_h { |name| [name, counters.fetch(name, 0)] }
      numbers[:failed] += counters.fetch(:dropped, 0)
      new(*numbers.values, client.latencies.freeze).freeze
    end

    def +(other) = combine(other, :+)

    def -(other) = combine(other, :-)

    # @return [Hash{Symbol => Float, nil}] ms, accurate to an eighth; nil: nothing was delivered
    def percentiles
      counts = latencies.sort
      total = latencies.each_value.sum
      { p50: 0.5, p95: 0.95, p99: 0.99, max: 1.0 }.transform_values { |share| percentile(counts, total * share) }
    end

    private

    def combine(other, operator)
      numbers = to_a[0..-2].zip(other.to_a).map { |mine, its| mine.public_send(operator, its) }
      latencies = self.latencies.dup
      other.latencies.each { |us, count| latencies[us] = latencies.fetch(us, 0).public_send(operator, count) }
      self.class.new(*numbers, latencies.reject { |_, count| count.zero? }.freeze).freeze
    end

    def percentile(counts, rank)
      seen = 0
      us, = counts.find { |_, count| (seen += count) >= rank }
      us && (us / 1000.0)
    end
  end

  # All zero.
  # @api private
  CounterSnapshot::NONE = CounterSnapshot.new(*[0] * (CounterSnapshot.members.size - 1), {}.freeze).freeze
end
