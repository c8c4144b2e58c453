# frozen_string_literal: true

module Penstock
  class Producer
    # Messages put aside, to be sent together by a flush. Array's own operations, each atomic in CRuby, keep the
    # buffer whole, so that a signal trap can put messages there too; one flush at a time keeps the order.
    # @api private
    class Buffer
      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @flushing = TransactionLock.new("a flush")
        @forgetting = Mutex.new
        begin_anew
      end

      # @return [Array<Hash>] the buffer itself
      def messages
        forget_inherited
        @messages
      end

      # See {Producer#buffer}.
      # @return [Array<Hash>] the buffer
      def put(message)
        add([message])
        @internals.notifier.timed("message.buffered", message:, buffer: messages) { messages }
      end

      # See {Producer#buffer_many}.
      # @return [Array<Hash>] the given ones
      def put_many(given)
        add(given)
        @internals.notifier.timed("messages.buffered", messages: given, buffer: messages) { given }
      end

      # @return [Array<Hash>] all there were: the buffer is empty
      def take
        forget_inherited
        @messages.shift(@messages.size)
      end

      # See {Producer#flush_sync}.
      # @return [Array<DeliveryHandle>]
      def flush_sync
        flush("buffer.flushed_sync", "messages.produced_sync", "messages.produce_many_sync", @internals.variants.max_wait_timeout)
      end

      # See {Producer#flush_async}.
      # @return [Array<DeliveryHandle>]
      def flush_async
        flush("buffer.flushed_async", "messages.produced_async", "messages.produce_many_async", false)
      end

      # @return [Integer] messages in the buffer, and in flushes that have not handed them over
      def unsent_count = messages.size + @in_hand.sum { |tally| tally.left.size }

      # @return [Boolean] whether the process would end without its having been sent
      def left? = @internals.status.active? && unsent_count.positive?

      # At the end of the process, before everything that is open is closed: nobody flushes the buffer any more. Logged like the
      # messages that a closing gives up.
      def log_unsent
        count = unsent_count
        text = "[#{@internals.id}] CLOSE: #{Text.count(count,
                                                       "message")} in the buffer #{count == 1 ? "was" : "were"} not sent: " \
               "the producer was still open when the process ended. Call flush_sync or close before."
        logger = @internals.config.logger
        logger ? logger.add(3, text, "penstock") : $stderr.write("penstock: #{text}\n")
      rescue StandardError => e
        warn "penstock: the logger raised #{e.class}: #{e.message}"
      end

      # @param trapped [Boolean] asked by a signal trap
      # @return [Boolean] whether a flush that this thread would wait for cannot go on meanwhile
      def deadlocked?(trapped) = @flushing.deadlocked?(trapped)

      # Waits for the flush that is running, if there is one.
      # @param timeout [Numeric] seconds
      def await_flush(timeout)
        @flushing.release if @flushing.acquire(timeout)
      end

      # @return [String]
      def inspect = "#<#{self.class} #{@messages.size}>"

      private

      def add(messages)
        @internals.check_usable
        forget_inherited
        @messages.concat(messages)
      end

      # @param event [String] that is told of the flush
      # @param how see {#send_taken}
      # @return [Array<DeliveryHandle>]
      def flush(event, *how)
        @internals.check_usable
        forget_inherited
        # By a listener or the middleware of a flush; and whoever has the lock may be waiting for our transaction's end.
        return flush_now(event, *how) if @internals.transactions.running? || @flushing.owned?

        @flushing.synchronize { flush_now(event, *how) }
      end

      def flush_now(event, *how)
        taken = @messages.shift(@messages.size)
        @internals.notifier.timed(event, messages: taken) { taken.empty? ? [] : send_taken(taken, *how) }
      end

      # @param produced [String] the event of messages that are sent
      # @param type [String] of "error.occurred"
      # @param timeout_ms [Integer, nil, false] false: not waiting
      def send_taken(taken, produced, type, timeout_ms)
        tally = Tally.new(taken.size)
        @in_hand << tally
        transactions = @internals.transactions
        alone = @internals.transactional? && !transactions.running?
        transactions.forget_late_commit
        error = :killed # a thread that is killed leaves without an exception
        handles = @internals.publisher.flush(produced, type, taken, tally, timeout_ms)
        error = nil
        handles
      rescue Exception => e # rubocop:disable Lint/RescueException -- interrupts too
        error = e
        raise
      ensure
        @messages[0, 0] = aborted?(alone && !tally.gone_through?, error) ? taken : taken.values_at(*tally.left) if error
        @in_hand.delete(tally)
      end

      # The places of the messages that are being sent, and how many of these have been handed over: for a flush whose thread
      # may end anywhere. Native::ProducerClient#produce_many counts.
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
        return false if !alone || @internals.transactions.late_commit?

        unknown = error.is_a?(TransactionError) && error.retriable? && !error.abortable? && !error.fatal?
        !unknown
      end

      # The parent sends what it had put aside; a child that did so too would repeat it.
      def forget_inherited
        return if @pid == Process.pid

        # A trap cannot wait for a Mutex. It finds this one taken only if it interrupts another first use in this fork child.
        unless @forgetting.try_lock
          SignalTrap.refuse("The first use of the buffer in a fork child, during another one,")
          @forgetting.lock
        end
        begin
          begin_anew unless @pid == Process.pid # else another thread was first
        ensure
          @forgetting.unlock
        end
      end

      def begin_anew
        @messages = []
        @in_hand = [] # of flushes
        @pid = Process.pid
      end
    end
  end
end
