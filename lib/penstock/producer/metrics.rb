# frozen_string_literal: true

module Penstock
  class Producer
    # A producer's counters, which exist without librdkafka's statistics. It has no state of its own.
    # @api private
    class Metrics
      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
      end

      # See {Producer#metrics}.
      # @return [Hash{Symbol => Integer, Hash}]
      def to_h
        present = connections.flat_map(&:clients).map { |client| CounterSnapshot.of(client) }.reduce(CounterSnapshot::NONE, :+)
        poller = @internals.poller
        wakeups = poller ? poller.stats[:wakeups] : 0
        counted = present.to_h.except(:latencies, :events_dropped)
        { **counted, queue_depth: @internals.queue_size, latency: present.percentiles, wakeups:, events: event_counts }
      end

      # The counters of all connections of the producer in this process. They never decrease.
      # @return [CounterSnapshot]
      def totals = connections.map(&:totals).reduce(dropped_events, :+)

      # The part of them that belongs to closed connections.
      # @return [CounterSnapshot]
      def past_totals = connections.map(&:past_totals).reduce(dropped_events, :+)

      private

      def connections = @internals.variants.connections

      def dropped_events = CounterSnapshot::NONE.dup.tap { |totals| totals.events_dropped = event_counts[:dropped] }

      def event_counts
        events = @internals.events
        queued, dropped, waiting, = events ? events.counts : [0, 0, 0]
        { queued:, dropped:, waiting: }
      end
    end
  end
end
