# frozen_string_literal: true

module Penstock
  module Native
    # A thread of {EventDispatcher}: its turn at the native dispatch queue, and the listener it runs.
    #
    # @!method next(timeout_ms)
    #   Ends its turn, and waits for the next one.
    #   @return [Boolean] whether there is one; false also after {#interrupt}
    # @!method address
    #   @return [Integer, nil] of the source that it serves; nil: it has no turn
    # @!method discard
    #   Discards the events of that source, which has no listeners any more.
    # @!method end_turn(more)
    #   @param more [Boolean] whether the source has events outside of the native queue
    # @!method interrupt
    #   Makes {#next} return, now or at its next call.
    # @!method apart
    #   Yields. {#next} wipes what the block leaves on the stack.
    # @api private
    class EventWorker
      include Uncopyable

      attr_accessor :thread
      # @return [Native::EventSource, nil]
      attr_accessor :source
      # @return [Boolean] whether it checks other workers, and then may run listeners of "listener.slow"
      attr_writer :checking

      def initialize
        @calls = @seen = @reported = 0
        @seen_at = 0.0
        @checking = false
      end

      # @return [Boolean] whether it is spare: it serves no source
      def spare? = address.nil? && !@checking

      # Notes the listener that is about to run. Called for each event and listener, so it does as little as possible.
      def running(listener, event)
        @calls += 1
        @listener = listener
        @event = event
      end

      # Called after a turn, so that a spare worker keeps no producer alive.
      def forget_turn
        @source = @listener = @event = nil
      end

      # Called regularly by another thread. Publishes "listener.slow" once for each call of a listener beyond its budget.
      def check_listener(now)
        source = @source
        listener = @listener
        event = @event
        calls = @calls
        return unless source && listener && event

        if @seen != calls
          @seen = calls
          @seen_at = now
        elsif @reported != calls && now - @seen_at >= source.budget
          @reported = calls # M:slow_listener_named_once
          source.publish_slow(listener, event, now - @seen_at) # M:slow_listener_published
        end
      end
    end
  end
end
