# frozen_string_literal: true

module Penstock
  class App
    # Which messages a route lets through, and when: its options `delay`, `expire` and `filter`. Frozen; workers use it.
    # @api private
    class Gates
      # A wait is at most so long, as the system's time may change.
      MOST = 60
      private_constant :MOST

      # @param route [Route]
      # @param runtime [Runtime]
      # @return [Gates, nil] nil: everything passes at once
      def self.of(route, runtime)
        delay, expire, filter = route.options.values_at(:delay, :expire, :filter)
        new(delay, expire, filter, runtime, route.retry?) if delay || expire || filter || route.retry?
      end

      # @see of
      def initialize(delay, expire, filter, runtime, due_times)
        @due_times = due_times
        @runtime = runtime
        @delay = delay
        @expire = expire
        @filter = filter
        freeze
      end

      # @param message [Message]
      # @return [Float, nil] seconds until it may be processed
      def wait(message)
        return wait_until_due(message) if @due_times

        age = @delay && age_of(message) or return
        [@delay - age, MOST].min if age < @delay
      end

      # @param message [Message]
      # @return [Boolean] whether it is processed; if not, it counts as processed
      def pass?(message) = !expired?(message) && (@filter.nil? || @filter.call(message)) ? true : false

      # @return [Boolean]
      def delays? = @due_times || !@delay.nil?

      private

      # As {RetryTopic} has written it.
      def wait_until_due(message)
        at = Array(message.headers["retry_at"]).last or return
        left = (Integer(at, 10, exception: false) || 0) / 1000.0 - @runtime.time
        [left, MOST].min if left.positive?
      end

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
