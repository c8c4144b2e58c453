# frozen_string_literal: true

module Penstock
  class Producer
    # Publishes a producer's events to its monitor. While a signal trap waits for {Closer}, another thread publishes the
    # events of the closing thread: the code that the trap interrupted may hold any lock, such as a logger's that a listener
    # needs.
    # @api private
    class Notifier
      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
      end

      # Publishes an event. Calls the block for its payload only if the event has listeners.
      # @yieldreturn [Hash]
      def instrument(event)
        monitor = @internals.monitor
        return if monitor.silent? || !monitor.listening?(event)

        publish(event, { producer_id: @internals.id, **yield })
      end

      # Publishes an event after the block, with the duration of the block.
      # @return [Object] the block's value
      def timed(event, payload = {}, &block)
        return block_given? ? yield : nil unless @internals.monitor.listening?(event)

        publish(event, { producer_id: @internals.id, **payload }, &block)
      end

      # Publishes an event to the listeners of all producers.
      def publish_globally(event, producer_id, **payload)
        return unless Penstock.monitor.listening?(event)

        Penstock.monitor.instrument(event, { producer: @internals.producer, producer_id:, **payload })
      end

      # Runs the block now; or, if a trap waits for this thread, on a thread that the trap does not wait for.
      def run_or_defer(&block)
        deferred = deferred_here
        deferred ? deferred << block : yield
      end

      # @return [Thread::Queue, nil] the queue for this thread's events; nil: listeners get them at once
      def deferred_here = @internals.closer.closing? ? Thread.current.thread_variable_get(:penstock_deferred) : nil

      # @param queue [Thread::Queue, nil] the queue for this thread's events from now on
      def defer_here(queue) = Thread.current.thread_variable_set(:penstock_deferred, queue)

      private

      def publish(event, payload, &block)
        return @internals.monitor.instrument(event, payload, &block) unless deferred_here

        start = now
        value = yield if block
        payload = { **payload, time: (now - start) * 1000 } if block
        run_or_defer { @internals.monitor.instrument(event, payload) }
        value
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
