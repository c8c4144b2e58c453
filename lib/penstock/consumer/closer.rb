# frozen_string_literal: true

module Penstock
  class Consumer
    # What {Consumer#close} does before the core closes the client, and how it knows whether the last message was processed.
    # @api private
    class Closer
      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @client = internals.client
      end

      # @param timeout [Float, nil] ms
      # @return [ConsumerCloseReport]
      def close(timeout)
        error = nil
        @internals.stop_watching
        report = @internals.notifier.closing do
          start = now
          @client.end_within(timeout) # what the listener calls, too
          error = finish(timeout)
          in_time = @client.close(timeout && [timeout - ((now - start) * 1000), 0.0].max)
          ConsumerCloseReport.new(in_time, in_group? ? in_time && @client.left_group? : nil).freeze
        end
        error ? raise(error) : report
      end

      # For {ConsumerSet#each_batch}: runs a block that processes what was polled.
      def processing
        yield
        ended = true
        @client.finish
      ensure
        @client.block_left unless ended
      end

      # @return [String]
      def inspect = "#<#{self.class}>"

      private

      # Does what has to be done before the consumer closes, while it can still commit. The consumer closes in any case: if this
      # is interrupted, on a thread of its own.
      # @return [Exception, nil] what the listener has raised
      def finish(timeout)
        finish_work
        ended = true
        nil
      rescue StandardError, ScriptError => e
        ended = true
        e
      ensure
        Threads.start("penstock.closing") { @client.close(timeout) } unless ended
      end

      def finish_work
        return if @internals.closed?

        @client.finish unless interrupted?
        return unless @internals.config.rebalance_listener && in_group? && !SignalTrap.here?

        @internals.rebalances.rebalanced(:revoked, @client.assignment)
      rescue ConsumerClosedError
        nil # another thread was first
      end

      # Whether the calling thread was perhaps processing a message, and did not come to its end.
      def interrupted?
        !$!.nil? || @client.block_left? || Thread.current.status == "aborting" || SignalTrap.here?
      end

      # A fork child is in no group: its parent process is.
      def in_group? = @internals.subscription.subscribed? && @client.state != :inherited

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
