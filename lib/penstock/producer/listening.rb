# frozen_string_literal: true

module Penstock
  class Producer
    # What one can learn of a producer: its numbers at any time, and what the native core has to know of its listeners.
    module Listening
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
        accepted, delivered, failed, purged, dropped = sums(clients.map(&:counters), 5)
        measures = clients.map(&:measures)
        { messages: accepted, bytes: measures.sum(&:first), delivered:, failed: failed + dropped, purged:,
          queue_depth: queue_size, requests: measures.sum { |all| all[2] }, retries: measures.sum { |all| all[3] },
          latency: percentiles(measures.map { |all| all[1] }), wakeups: poller ? poller.stats[:wakeups] : 0,
          events: event_counts }
      end

      # @api private
      def listeners_changed
        return unless @events

        @events.refresh
        warn_of_no_statistics
        reconnect_for_statistics if status.connected? && @events.statistics_wanted?
      end

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
        return if @statistics || @reconnecting || config.kafka.key?(:"statistics.interval.ms")

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

      def sums(lists, size) = lists.reduce([0] * size) { |sums, list| sums.zip(list).map(&:sum) }

      def event_counts
        queued, dropped, waiting, = @events ? @events.counts : [0, 0, 0]
        { queued:, dropped:, waiting: }
      end

      def percentiles(latencies)
        counts = latencies.flat_map { |all| all.each_slice(2).to_a }.group_by(&:first)
                          .map { |us, parts| [us, parts.sum(&:last)] }.sort
        total = counts.sum(&:last)
        { p50: 0.5, p95: 0.95, p99: 0.99, max: 1.0 }.transform_values { |share| percentile(counts, total * share) }
      end

      # @return [Float, nil] ms
      def percentile(counts, rank)
        seen = 0
        us, = counts.find { |_, count| (seen += count) >= rank }
        us && (us / 1000.0)
      end
    end
  end
end
