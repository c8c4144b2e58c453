# frozen_string_literal: true

module Penstock
  class Producer
    # Whether librdkafka's statistics are on: they cost, so only where somebody listens to "statistics.emitted".
    # @api private
    class Statistics
      # ms between two "statistics.emitted", unless `statistics.interval.ms` is given
      INTERVAL = 5_000

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @on = false # in the client that was made last
        @reconnecting = nil # the thread that gives the producer another client
        @warned = false
      end

      # @return [Hash] librdkafka's settings for a new client
      def settings(kafka)
        warn_of_none(kafka)
        return kafka if kafka.key?(:"statistics.interval.ms")

        @on = wanted?
        @on ? kafka.merge("statistics.interval.ms": INTERVAL) : kafka
      end

      # To be called when somebody has begun to listen, or has stopped.
      def listeners_changed
        warn_of_none
        refresh
      end

      # Also once a client is in use: somebody may have begun to listen while it was being made.
      def refresh
        reconnect if status.connected? && wanted?
      end

      # @return [String]
      def inspect = "#<#{self.class} #{@on ? "on" : "off"}>"

      private

      def status = @internals.status

      def wanted? = @internals.events.statistics_wanted?

      # Who listens to what was turned off would wait for ever; said once.
      def warn_of_none(kafka = @internals.config.kafka)
        return if @warned || kafka[:"statistics.interval.ms"].to_s != "0" || !somebody_listens?

        @warned = true
        @internals.config.log_warning("\"statistics.emitted\" has a subscriber but is never published: " \
                                      "statistics.interval.ms is 0. Leave it out for every #{INTERVAL} ms, or give milliseconds")
      end

      # A monitor of the user's own may have no more than `instrument`, and then nobody knows.
      def somebody_listens? = @internals.monitor.respond_to?(:listening?) && wanted?

      # librdkafka's interval is fixed when a client is made. So, like an idle producer, this one is given a new client,
      # when nothing is in flight or after a second, and not inside a transaction.
      def reconnect
        return if @on || @reconnecting&.alive? || @internals.config.kafka.key?(:"statistics.interval.ms")

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
        while connected_without?
          break if (@internals.queue_size.zero? || now > patience) && @internals.closer.disconnect

          sleep 0.02
        end
        @internals.client.connect if wanted? && status.active?
      end

      def connected_without? = status.connected? && !@on && wanted?

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
