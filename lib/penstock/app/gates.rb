# frozen_string_literal: true

module Penstock
  class App
    # Which messages a route lets through, and when: its options `delay`, `expire` and `filter`. Frozen; workers use it.
    # @api private
    class Gates
      # A wait is at most so long, as the system's time may change.
      MOST = 60
      private_constant :MOST

      # @param options [Hash{Symbol => Object}] of a route
      # @param runtime [Runtime]
      # @return [Gates, nil] nil: everything passes at once
      def self.of(options, runtime)
        delay, expire, filter = options.values_at(:delay, :expire, :filter)
        new(delay, expire, filter, runtime) if delay || expire || filter
      end

      # @see of
      def initialize(delay, expire, filter, runtime)
        @runtime = runtime
        @delay = delay
        @expire = expire
        @filter = filter
        freeze
      end

      # @param message [Message]
      # @return [Float, nil] seconds until it may be processed
      def wait(message)
        age = @delay && age_of(message) or return
        [@delay - age, MOST].min if age < @delay
      end

      # @param message [Message]
      # @return [Boolean] whether it is processed; if not, it counts as processed
      def pass?(message) = !expired?(message) && (@filter.nil? || @filter.call(message)) ? true : false

      private

      def expired?(message)
        age = @expire && age_of(message)
        age ? age > @expire : false
      end

      # @return [Float, nil] seconds
      def age_of(message) = message.timestamp && (@runtime.time - (message.timestamp / 1000.0))
    end
    private_constant :Gates
  end
end
