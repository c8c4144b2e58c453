# frozen_string_literal: true

module Penstock
  class Producer
    # Turns librdkafka's statistics on. They are expensive, so only if "statistics.emitted" has a subscriber.
    # @api private
    class Statistics
      # ms between two "statistics.emitted", unless `statistics.interval.ms` is given
      INTERVAL = 5_000

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @on = false # in the latest client
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

      # Called when a listener was added or removed.
      def listeners_changed
        warn_of_none
        refresh
      end

      # Also called when a client comes into use: a listener may have been added while the client was made.
      def refresh
        reconnect if status.connected? && wanted?
      end

      # @return [String]
      def inspect = "#<#{self.class} #{@on ? "on" : "off"}>"

      private

      def status = @internals.status

      def wanted? = @internals.events.statistics_wanted?

      # A subscriber of statistics that the user turned off would wait forever. Warns once.
      def warn_of_none(kafka = @internals.config.kafka)
        return if @warned || kafka[:"statistics.interval.ms"].to_s != "0" || !subscribers?

        @warned = true
        @internals.config.__send__(:log_warning,
                                   "\"statistics.emitted\" has a subscriber but is never published: " \
                                   "statistics.interval.ms is 0. Remove the setting for #{INTERVAL} ms, or set it.")
      end

      # A monitor of the user may have only `instrument`; then its subscribers are unknown.
      def subscribers? = @internals.monitor.respond_to?(:listening?) && wanted?

      # librdkafka fixes the interval when a client is made. So the producer gets a new client, as after an idle disconnect:
      # when nothing is in flight or after a second, and not inside a transaction.
      def reconnect
        return if @on || @reconnecting&.alive? || @internals.config.kafka.key?(:"statistics.interval.ms")

        @reconnecting = Thread.new do
          Thread.current.name = "penstock.statistics"
          replace_when_quiet(now + 1)
        rescue Error
          nil # it was closed, or cannot connect: its next use raises
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
