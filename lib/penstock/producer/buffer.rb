# frozen_string_literal: true

module Penstock
  class Producer
    # Messages that a flush will send together. Only atomic operations of Array (in CRuby) change the buffer, so that a
    # signal trap can add messages too. Only one flush runs at a time, which keeps the order.
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
      # @return [Array<Hash>] the given messages
      def put_many(given)
        add(given)
        @internals.notifier.timed("messages.buffered", messages: given, buffer: messages) { given }
      end

      # Empties the buffer.
      # @return [Array<Hash>] the messages that were in it
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

      # @return [Integer] messages in the buffer, and in flushes that librdkafka has not accepted yet
      def unsent_count = messages.size + @in_hand.sum { |tally| tally.left.size }

      # @return [Boolean] whether messages would be lost if the process ended now
      def left? = @internals.status.active? && unsent_count.positive?

      # Called at the end of the process, before everything that is open is closed: after that nothing flushes the buffer.
      # The messages are logged like those that a close gives up.
      def log_unsent
        count = unsent_count
        text = "[#{@internals.id}] CLOSE: #{Text.count(count, "message")} in the buffer #{count == 1 ? "was" : "were"} " \
               "not sent: the producer was still open when the process ended. Call flush_sync or close before."
        logger = @internals.config.logger
        logger ? logger.add(3, text, "penstock") : $stderr.write("penstock: #{text}\n")
      rescue StandardError => e
        warn "penstock: the logger raised #{e.class}: #{e.message}"
      end

      # @param trapped [Boolean] whether this is a signal trap
      # @return [Boolean] whether this thread would wait for a flush that cannot continue during the wait
      def deadlocked?(trapped) = @flushing.deadlocked?(trapped)

      # Waits for a running flush.
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

      # @param event [String] published for the flush
      # @param how see {#send_taken}
      # @return [Array<DeliveryHandle>]
      def flush(event, *how)
        @internals.check_usable
        forget_inherited
        # Two cases flush without taking the lock. This fiber has it: a listener or the middleware of its flush calls this method.
        # This fiber runs a transaction: the flush that has the lock may wait for the end of that transaction.
        return flush_now(event, *how) if @internals.transactions.running? || @flushing.owned?

        @flushing.synchronize { flush_now(event, *how) }
      end

      def flush_now(event, *how)
        taken = @messages.shift(@messages.size)
        @internals.notifier.timed(event, messages: taken) { taken.empty? ? [] : send_taken(taken, *how) }
      end

      # @param produced [String] the event of the sent messages
      # @param type [String] of "error.occurred"
      # @param timeout_ms [Integer, nil, false] false: not waiting
      def send_taken(taken, produced, type, timeout_ms)
        tally = Tally.new(taken.size)
        @in_hand << tally
        transactions = @internals.transactions
        alone = @internals.transactional? && !transactions.running?
        transactions.forget_late_commit
        error = :killed # stays if the thread is killed, which raises no exception
        handles = @internals.publisher.flush(produced, type, taken, tally, timeout_ms)
        error = nil
        handles
      rescue Exception => e # rubocop:disable Lint/RescueException -- interrupts too
        error = e
        raise
      ensure
        @messages[0, 0] = aborted?(alone && !tally.complete?, error) ? taken : taken.values_at(*tally.left) if error
        @in_hand.delete(tally)
      end

      # How many messages of a flush librdkafka has accepted. Native::ProducerClient#produce_many writes `counted` itself, because
      # the thread of the flush may be killed before the call returns. `places`: the positions, in the flush, of the messages that
      # the current call sends.
      Tally = Struct.new(:places, :counted) do
        def initialize(size) = super((0...size).to_a, [0])

        # The positions of messages that were not accepted.
        def left = places.drop(counted[0])

        # Notes that the flush is complete, also its transaction if it has one. If a hook or listener raises afterwards, for
        # example Interrupt, no message returns to the buffer.
        def complete! = @complete = true
        def complete? = @complete || false

        # Counts from 0 for the messages that another client will send.
        # @param which [Array<Integer>] their positions in `places`
        def restart(which)
          self.places = places.values_at(*which)
          self.counted = [0]
        end

        # By identity: two flushes with equal counts are different.
        def ==(other) = equal?(other)
      end
      private_constant :Tally

      # @return [Boolean] whether no message of the flush is visible, because its own transaction was aborted
      def aborted?(alone, error)
        alone && !@internals.transactions.late_commit? && !error.is_a?(TransactionOutcomeUnknownError)
      end

      # The parent process sends the messages of its buffer. The child would send them a second time.
      def forget_inherited
        return if @pid == Process.pid

        # A trap cannot wait for a Mutex. It finds this one locked only if it interrupts the first use of the buffer in this fork
        # child.
        unless @forgetting.try_lock
          SignalTrap.raise_if_here("using a buffer that the interrupted code is just resetting in a fork child")
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
        @in_hand = [] # tallies of the running flushes
        @pid = Process.pid
      end
    end
  end
end
