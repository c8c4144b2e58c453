# frozen_string_literal: true

module Penstock
  class Producer
    # What one can learn of a producer: its numbers at any time, and what the native core has to know of its listeners.
    module Metrics
      # ms between two "statistics.emitted", unless `statistics.interval.ms` is given
      STATISTICS_INTERVAL = 5_000

      # Numbers that are kept anyway, without librdkafka's statistics; see docs/events.md. Those of messages and requests
      # count from when the connection was made that is in use now. `retries` are requests, each with messages of one
      # partition, that have settled nothing, so that librdkafka sends their messages again.
      #
      # Blocks: no.
      # @return [Hash{Symbol => Integer, Hash}]
      def metrics
        clients = @connections.each_value.flat_map(&:clients)
        present = clients.map { |client| CounterSnapshot.of(client) }.reduce(CounterSnapshot::NONE, :+)
        messages, delivered, failed, purged, bytes, requests, retries = *present
        { messages:, bytes:, delivered:, failed:, purged:, queue_depth: queue_size, requests:, retries:,
          latency: present.percentiles, wakeups: poller ? poller.stats[:wakeups] : 0, events: event_counts }
      end

      # What it has done in this process, by all its connections: never less than before.
      # @return [CounterSnapshot]
      # @api private
      def totals = @connections.each_value.map(&:totals).reduce(dropped_events, :+)

      # The part of it that was done by connections that have ended.
      # @return [CounterSnapshot]
      # @api private
      def past_totals = @connections.each_value.map(&:past_totals).reduce(dropped_events, :+)

      # @return [Boolean] whether the next use has to connect
      # @api private
      def without_client? = @connections.each_value.none?(&:client)

      # @return [Boolean] whether it is closed, and all its messages have their verdicts: then nothing is counted any more
      # @api private
      def over? = status.closed? && queue_size.zero?

      # @api private
      def listeners_changed
        return unless @events

        @events.refresh
        sharing_changed
        warn_of_no_statistics
        look_after_statistics
      end

      # @api private
      def hold_events = @events.hold

      # @return [Hash] librdkafka's settings: statistics only where somebody listens
      # @api private
      def with_statistics(kafka)
        warn_of_no_statistics(kafka)
        return kafka if kafka.key?(:"statistics.interval.ms")

        @statistics = @events.statistics_wanted?
        @statistics ? kafka.merge("statistics.interval.ms": STATISTICS_INTERVAL) : kafka
      end

      private

      def tell_everybody(event, producer_id, **payload)
        return unless Penstock.monitor.listening?(event)

        Penstock.monitor.instrument(event, { producer: self, producer_id:, **payload })
      end

      # Also once a client is in use: somebody may have begun to listen while it was being made.
      def look_after_statistics
        reconnect_for_statistics if status.connected? && @events.statistics_wanted?
      end

      # Who listens to what was turned off would wait for ever; said once.
      def warn_of_no_statistics(kafka = config.kafka)
        return if @told_of_no_statistics || kafka[:"statistics.interval.ms"].to_s != "0" || !somebody_listens_to_statistics?

        @told_of_no_statistics = true
        config.caution("\"statistics.emitted\" is listened to, and will never be told: statistics.interval.ms is 0; leave it " \
                       "out for every #{STATISTICS_INTERVAL} ms, or give a number of ms")
      end

      # A monitor of the user's own may have no more than `instrument`, and then nobody knows.
      def somebody_listens_to_statistics? = monitor.respond_to?(:listening?) && @events.statistics_wanted?

      # librdkafka's interval is fixed when a client is made. So, like an idle producer, this one is given a new client,
      # when nothing is in flight or after a second, and not inside a transaction.
      def reconnect_for_statistics
        return if @statistics || @reconnecting&.alive? || config.kafka.key?(:"statistics.interval.ms")

        @reconnecting = Thread.new do
          Thread.current.name = "penstock.statistics"
          replace_when_quiet(now + 1)
        rescue Error
          nil # it was closed, or cannot connect: the next use says so
        ensure
          @reconnecting = nil
        end
      end

      def replace_when_quiet(patience)
        sleep 0.02 until !connected_without_statistics? || ((queue_size.zero? || now > patience) && disconnect)
        client.connect if @events.statistics_wanted? && status.active?
      end

      def connected_without_statistics? = status.connected? && !@statistics && @events.statistics_wanted?

      def dropped_events = CounterSnapshot::NONE.dup.tap { |totals| totals.events_dropped = event_counts[:dropped] }

      def event_counts
        queued, dropped, waiting, = @events ? @events.counts : [0, 0, 0]
        { queued:, dropped:, waiting: }
      end
    end
  end
end
