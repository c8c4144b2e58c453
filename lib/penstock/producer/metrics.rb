# frozen_string_literal: true

module Penstock
  class Producer
    # The numbers of a producer that are kept anyway, without librdkafka's statistics. It has no state of its own.
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
        messages, delivered, failed, purged, bytes, requests, retries = *present
        poller = @internals.poller
        { messages:, bytes:, delivered:, failed:, purged:, queue_depth: @internals.queue_size, requests:, retries:,
          latency: present.percentiles, wakeups: poller ? poller.stats[:wakeups] : 0, events: event_counts }
      end

      # What the producer has done in this process, by all its connections: never less than before.
      # @return [CounterSnapshot]
      def totals = connections.map(&:totals).reduce(dropped_events, :+)

      # The part of it that was done by connections that have ended.
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
