# frozen_string_literal: true

module Penstock
  class App
    # The part of {Partition} that holds messages back: pauses and its {Throttle}.
    # @api private
    module Pace
      # Of a worker: others begin no message any more.
      def ask_to_pause = @asked_to_pause = true

      # Until then no message is handed out. A longer pause that has begun goes on.
      # @param seconds [Numeric]
      def pause(seconds)
        return if @paused && @paused.at > @runtime.now + seconds

        @paused&.cancel
        @paused = @subscription.later(seconds, self) { @paused = @asked_to_pause = nil }
      end

      private

      def held? = @paused || @throttled || tick_first? || (@catching_up && @route.order == :partition)

      def take
        return @lanes.take unless @throttle

        allowed = @throttle.allowed
        return hold if allowed.zero?

        @lanes.take(allowed).each { |slice| @throttle.take(slice.count) }
      end

      # @return [Array] nothing
      def hold
        @throttled = @subscription.later(@throttle.wait, self) { @throttled = nil }
        []
      end

      # What was not begun does not count.
      def give_back_allowance(work)
        return if @throttle.nil? || (@route.batch? && work.slices.any?(&:error))

        count = work.slices.sum { |slice| slice.count - slice.done - (slice.error ? 1 : 0) }
        return unless count.positive?

        @throttle.take(-count)
        @throttled&.cancel
        @throttled = nil
      end
    end
    private_constant :Pace
  end
end
