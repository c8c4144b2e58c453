# frozen_string_literal: true

module Penstock
  class Producer
    # Messages put aside, to be sent together by a flush. Array's own operations, each atomic in CRuby, keep the
    # buffer whole, so that a signal trap can put messages there too; one flush at a time keeps the order.
    module Buffering
      # Puts a message aside. It is checked, and goes through the middleware and the serializer, when it is flushed.
      #
      # Blocks: never.
      # @param message [Hash] see {Producer}
      # @return [Array<Hash>] the buffer
      # @raise [ProducerClosedError]
      def buffer(message)
        add_to_buffer([message])
        timed("message.buffered", message:, buffer: messages) { messages }
      end

      # Puts messages aside.
      #
      # Blocks: never.
      # @param given [Array<Hash>]
      # @return [Array<Hash>] the given ones
      # @raise [ProducerClosedError]
      def buffer_many(given)
        add_to_buffer(given)
        timed("messages.buffered", messages: given, buffer: messages) { given }
      end

      # Sends what was put aside, and waits for all verdicts.
      #
      # Blocks: like {Publishing#produce_many_sync}, and while another thread flushes.
      # @return [Array<DeliveryHandle>] [] when the buffer is empty
      # @raise [Error] see {Publishing#produce_many_sync}. Whatever it is, an interrupt too: messages that were not taken are put
      #   back, in order, at the front of the buffer; so is the whole buffer when one of its messages is invalid, or when
      #   the transaction that a transactional producer gives them was aborted.
      # @raise [SignalTrapError] this is a signal trap; the buffer is left alone
      def flush_sync
        flush_buffer("buffer.flushed_sync", "messages.produced_sync", "messages.produce_many_sync", max_wait_timeout)
      end

      # Sends what was put aside without waiting for the verdicts.
      #
      # Blocks: like {Publishing#produce_many_async}, and while another thread flushes.
      # @return [Array<DeliveryHandle>] [] when the buffer is empty
      # @raise [Error] see {#flush_sync}
      def flush_async
        flush_buffer("buffer.flushed_async", "messages.produced_async", "messages.produce_many_async", false)
      end

      # @return [Array<Hash>] the buffer itself, what was put aside and not flushed
      def messages
        forget_inherited_buffer
        @buffer
      end

      # @api private
      def buffer_left? = status.active? && unsent_count.positive?

      # At the end of the process, before everything that is open is closed: nobody flushes the buffer any more. Logged like the
      # messages that a closing gives up.
      # @api private
      def log_unsent
        count = unsent_count
        text = "[#{id}] CLOSE: #{Text.count(count, "message")} in the buffer #{count == 1 ? "was" : "were"} not sent: the " \
               "producer was still open when the process ended. Call flush_sync or close before."
        config.logger ? config.logger.add(3, text, "penstock") : $stderr.write("penstock: #{text}\n")
      rescue StandardError => e
        warn "penstock: the logger raised #{e.class}: #{e.message}"
      end

      private

      def add_to_buffer(messages)
        check_usable
        forget_inherited_buffer
        @buffer.concat(messages)
      end

      def flush_buffer(event, *how)
        check_usable
        forget_inherited_buffer
        # By a listener or the middleware of a flush; and whoever has the lock may be waiting for our transaction's end.
        return flush_now(event, *how) if transaction? || @flushing.owned?

        @flushing.synchronize { flush_now(event, *how) }
      end

      def flush_now(event, *how)
        taken = take_buffer
        timed(event, messages: taken) { taken.empty? ? [] : send_taken(taken, *how) }
      end

      def take_buffer = @buffer.shift(@buffer.size)

      def send_taken(taken, produced, type, timeout_ms)
        tally = Tally.new(taken.size)
        @in_hand << tally
        alone = @transactional && !transaction?
        @gone_through = nil
        error = :killed # a thread that is killed leaves without an exception
        handles = dispatching(produced, type, :messages, taken, tally) { |ready| send_many(ready, timeout_ms, tally) }
        error = nil
        handles
      rescue Exception => e # rubocop:disable Lint/RescueException -- interrupts too
        error = e
        raise
      ensure
        @buffer[0, 0] = aborted?(alone && !tally.gone_through?, error) ? taken : taken.values_at(*tally.left) if error
        @in_hand.delete(tally)
      end

      # The places of the messages that are being sent, and how many of these have been handed over: for a flush whose thread
      # may end anywhere. Native::Client#produce_many counts.
      # @api private
      Tally = Struct.new(:places, :counted) do
        def initialize(size) = super((0...size).to_a, [0])

        def left = places.drop(counted[0])

        # The transaction of their own is committed, if they have one; what a hook or a listener raises after it, such as
        # Interrupt, takes nothing back.
        def gone_through = @gone_through = true
        def gone_through? = @gone_through || false

        # These are to go to another client.
        def again(which)
          self.places = places.values_at(*which)
          self.counted = [0]
        end

        # Two that look the same are not.
        def ==(other) = equal?(other)
      end
      private_constant :Tally

      # @return [Boolean] whether nobody can read anything of it, as it was in a transaction of its own
      def aborted?(alone, error)
        return false if !alone || @gone_through.equal?(Fiber.current)

        unknown = error.is_a?(TransactionError) && error.retriable? && !error.abortable? && !error.fatal?
        !unknown
      end

      # @return [Integer] messages in the buffer, and in flushes that have not handed them over
      def unsent_count = messages.size + @in_hand.sum { |tally| tally.left.size }

      # The parent sends what it had put aside; a child that did so too would repeat it.
      def forget_inherited_buffer
        return if @buffer_pid == Process.pid

        @forgetting.synchronize do
          begin_buffer unless @buffer_pid == Process.pid # another thread was first
        end
      end

      def begin_buffer
        @buffer = []
        @in_hand = [] # of flushes
        @buffer_pid = Process.pid
      end
    end
  end
end
