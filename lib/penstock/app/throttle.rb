# frozen_string_literal: true

module Penstock
  class App
    # How many messages of a partition may be handed out: so many in a time, which may all come at its beginning. Of the loop's
    # thread.
    # @api private
    class Throttle
      # @param options [Hash{Symbol => Numeric}, nil] `messages` and `per`, seconds
      # @param runtime [Runtime]
      # @return [Throttle, nil] nil: there is no limit
      def self.of(options, runtime) = options && new(*options.values_at(:messages, :per), runtime)

      # @see of
      def initialize(messages, per, runtime)
        @most = messages
        @rate = messages / per.to_f
        @runtime = runtime
        @left = messages.to_f
        @at = runtime.now
      end

      # @return [Integer] messages that may be handed out now
      def allowed
        now = @runtime.now
        @left = [@left + ((now - @at) * @rate), @most].min
        @at = now
        [@left.floor, 0].max
      end

      # @param count [Integer] so many messages are handed out: with a batch perhaps more than allowed, for which later ones wait.
      #   Negative: they were not begun
      def take(count) = @left -= count

      # @return [Float] seconds until one is allowed
      def wait = [(1 - @left) / @rate, 0.001].max
    end
    private_constant :Throttle
  end
end
