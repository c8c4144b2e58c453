# frozen_string_literal: true

module Penstock
  class Producer
    # Publishes a producer's events to its monitor. While a signal trap waits for {Closer}, the closing thread's events go to
    # another thread: what a trap has interrupted may hold any lock, such as a logger's that a listener needs.
    # @api private
    class Notifier
      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
      end

      # Tells listeners, and builds what they are told only if there are any.
      # @yieldreturn [Hash]
      def instrument(event)
        monitor = @internals.monitor
        return if monitor.silent? || !monitor.listening?(event)

        tell(event, { producer_id: @internals.id, **yield })
      end

      # Tells listeners of what the block does, and how long it took.
      # @return [Object] the block's value
      def timed(event, payload = {}, &block)
        return block_given? ? yield : nil unless @internals.monitor.listening?(event)

        tell(event, { producer_id: @internals.id, **payload }, &block)
      end

      # Tells those who listen to all producers.
      def publish_globally(event, producer_id, **payload)
        return unless Penstock.monitor.listening?(event)

        Penstock.monitor.instrument(event, { producer: @internals.producer, producer_id:, **payload })
      end

      # Runs the block now; or, when a trap waits for this thread, on a thread that the trap does not wait for.
      def apart(&block)
        deferred = deferred_here
        deferred ? deferred << block : yield
      end

      # @return [Thread::Queue, nil] what this thread's events go to; nil: to their listeners at once
      def deferred_here = @internals.closer.closing? ? Thread.current.thread_variable_get(:penstock_deferred) : nil

      # @param queue [Thread::Queue, nil] what this thread's events go to from now on
      def defer_here(queue) = Thread.current.thread_variable_set(:penstock_deferred, queue)

      private

      def tell(event, payload, &block)
        return @internals.monitor.instrument(event, payload, &block) unless deferred_here

        start = now
        value = yield if block
        payload = { **payload, time: (now - start) * 1000 } if block
        apart { @internals.monitor.instrument(event, payload) }
        value
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
