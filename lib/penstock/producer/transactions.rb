# frozen_string_literal: true

module Penstock
  class Producer
    # Kafka transactions: several messages and consumed offsets that become visible together or not at all, to readers
    # with isolation.level=read_committed. One at a time for a producer; other fibers and threads wait for their turn.
    #
    # The producer needs a `transactional.id` of its own: a second producer with the same one takes over ("fences" it).
    module Transactions
      # Runs the block in a transaction, which is committed when the block returns and aborted when it does not: any
      # exception, interrupts and the end of the thread included. Inside the block of the same fiber it joins the
      # transaction that is running. Outside of one, each message that is sent alone, and each batch, has its own.
      #
      # Messages that an abort drops before they were sent have the verdict purge_queue, and each is told as "message.purged".
      #
      # It may last for `transaction.timeout.ms` (165 seconds unless set). The cluster then aborts it and fences the producer,
      # as it does when another one takes over; nobody can tell these apart, so the producer has to be made anew.
      #
      # Do not wait inside the block for another thread or fiber that sends through the same producer: it waits for the
      # block's end.
      #
      # Blocks: this thread, for the block and for what other transactions of this producer, and their round trips to the
      # cluster, take; without the GVL and interruptible at once, which aborts. Commands that the cluster asks to repeat are
      # repeated `config.max_attempts_on_transaction_command` times. The first use connects, which takes `config.max_wait_timeout`
      # at most, all attempts together.
      #
      # @yield sends messages, marks offsets
      # @return [Object, nil] the block's value; nil after {AbortTransaction}
      # @raise [ProducerNotTransactionalError] there is no transactional.id
      # @raise [EarlyTransactionExitNotAllowedError] the block was left by return, break or throw: aborted. `Timeout.timeout`
      #   without an error class of its own throws on Ruby 3.1 to 3.3, so give it one.
      # @raise [TransactionDeadlockError] another fiber of this thread is inside a transaction, and no scheduler could ever
      #   let it go on; nothing was begun
      # @raise [SignalTrapError] this is a signal trap; nothing was begun
      # @raise [TransactionError] the cluster refused, or could not be reached in time (code :timed_out); nothing of the
      #   transaction is visible to read_committed readers unless {Error#retriable?}, when the outcome of a commit is unknown
      # @raise [ForkedError] the producer was used before this process was forked: using its transactional.id here would
      #   fence the parent. Make a producer with an id of its own.
      def transaction(&block)
        check_usable
        raise ProducerNotTransactionalError, "config.kafka has no transactional.id [producer #{id}]" unless @transactional
        raise LocalJumpError, "a transaction needs a block" unless block
        return without_leaving_early(&block) if transaction?

        @transaction_lock.synchronize { timed("transaction.finished") { run_transaction(&block) } }
      end

      # @return [Boolean] whether this fiber is inside a {#transaction}
      def transaction? = @transactional && @transaction_lock.owned?

      # @return [Boolean] whether it has a transactional.id
      def transactional? = @transactional

      # Makes a consumed message's offset part of the running transaction: the group's committed offset moves to the one
      # after it when the transaction is committed.
      #
      # Blocks: this thread, for a round trip, without the GVL; interruptible at once.
      #
      # @param consumer [Consumer] that got the message, with a group.id
      # @param message [Message] anything with topic, partition and offset
      # @param offset_metadata [String, nil] kept beside the offset
      # @raise [TransactionRequiredError] no transaction is running in this fiber
      # @raise [TransactionalOffsetInvalidError] one of the arguments is not what it has to be
      # @raise [TransactionError] the cluster refused; the transaction has to be aborted, which leaving the block does
      def transaction_mark_as_consumed(consumer, message, offset_metadata = nil)
        check_usable
        raise TransactionRequiredError, "offsets are marked inside a transaction [producer #{id}]" unless transaction?

        unless consumer.is_a?(Consumer)
          raise TransactionalOffsetInvalidError, "the offsets of a Penstock::Consumer can be marked, not of #{consumer.class}"
        end

        place = place_of(message)
        unless offset_metadata.nil? || offset_metadata.is_a?(String)
          raise TransactionalOffsetInvalidError, "offset_metadata is a String or nil, not #{offset_metadata.class}"
        end

        timed("transaction.marked_as_consumed", message:, offset_metadata:) do
          offsets = [[place[0], place[1], place[2] + 1, offset_metadata]]
          client = @connection.use
          command("store_offset") { client.send_offsets_to_transaction(offsets, consumer, nil) }
          nil
        end
      end

      # In `config.max_wait_timeout`, all attempts together.
      # @api private
      def initialize_transactions(client)
        limit = config.max_wait_timeout
        deadline = limit && (now + (limit / 1000.0))
        command("init", deadline) { client.init_transactions(deadline && [(deadline - now) * 1000, 0].max.ceil) }
      end

      private

      def place_of(message)
        place = %i[topic partition offset].map { |name| message.public_send(name) if message.respond_to?(name) }
        return place if place[0].is_a?(String) && place.drop(1).all? { |number| number.is_a?(Integer) && !number.negative? }

        refuse_place(message)
      rescue ArgumentError # it has methods of these names that are something else, as String#partition
        refuse_place(message)
      end

      def refuse_place(message)
        raise TransactionalOffsetInvalidError, "a consumed message has topic, partition and offset; this is #{message.inspect}"
      end

      def refuse_inherited
        return unless @connection.inherited?

        raise ForkedError, "the producer was used before this process was forked; make one with another transactional.id here " \
                           "[producer #{id}]"
      end

      # How far @staged, the client, is, @stage says: nil, :beginning, :open, :committing, or :undecided, after a commit whose
      # end nobody knows. Both belong to whoever has the lock. What an interrupt leaves behind there, because it comes
      # twice, the next transaction sees to.
      def run_transaction(&block)
        client = client_without_transaction
        open_transaction(client)
        @handed_over = [] if @monitor.listening?("message.purged")
        value = without_leaving_early(&block)
        commit(client)
        value
      rescue AbortTransaction
        roll_back(client)
        nil
      ensure
        roll_back_quietly(client) unless client.nil? || @stage.nil? || @stage == :undecided
        tell_of_purged
      end

      def client_without_transaction
        refuse_inherited
        client = @connection.use
        roll_back_quietly(client) if @stage && @staged.equal?(client)
        @stage = nil
        client
      end

      def open_transaction(client)
        @staged = client
        @stage = :beginning
        timed("transaction.started") do
          command("begin") { client.begin_transaction }
          @stage = :open
        end
      rescue TransactionError => e
        @stage = nil
        reload_after_transaction(client, e)
        raise
      end

      # Neither returned nor raised is what return, break and throw have in common; and the end of the thread, which nobody
      # may stop by raising something.
      def without_leaving_early
        returned = raised = false
        value = yield
        returned = true
        value
      rescue Exception # rubocop:disable Lint/RescueException -- whatever it is
        raised = true
        raise
      ensure
        unless returned || raised || Thread.current.status == "aborting"
          raise EarlyTransactionExitNotAllowedError,
                "a transaction's block was left by return, break or throw (Timeout.timeout without an error class throws, " \
                "too); use next, or raise Penstock::AbortTransaction"
        end
      end

      def commit(client)
        refuse_inherited
        @stage = :committing
        timed("transaction.committed") do
          command("commit") { client.commit_transaction(nil) }
          @stage = nil
          @connection.proven
        end
      rescue TransactionError => e
        unless e.abortable?
          @stage = e.fatal? ? nil : :undecided
          reload_after_transaction(client, e)
        end
        raise
      end

      # @raise [TransactionError] it could not be aborted
      def roll_back(client)
        timed("transaction.aborted") do
          command("abort") { client.abort_transaction(nil) }
          @stage = nil
        end
      rescue TransactionCommittedError # the commit that was interrupted has gone through
        raise if @stage == :open

        @stage = nil
        @gone_through = Fiber.current
        timed("transaction.committed") { nil }
      rescue TransactionError => e
        @stage = e.fatal? ? nil : :undecided
        reload_after_transaction(client, e)
        raise
      end

      # For when the caller gets another error, or none because its thread ends; listeners know of what comes up here. A
      # client that was closed meanwhile has seen to its transaction itself.
      def roll_back_quietly(client)
        return if @connection.inherited? # it is the parent's
        return undo_begin(client) if @stage == :beginning

        roll_back(client)
      rescue TransactionError, ProducerClosedError
        nil
      end

      # It may have begun, or not.
      def undo_begin(client)
        client.abort_transaction(nil)
      rescue TransactionError
        nil # it had not; or the client is lost, which its next use tells
      ensure
        @stage = nil
      end

      # To listeners that want to know what an abort has dropped.
      def tell_of_purged
        handles = @handed_over or return
        @handed_over = nil
        return if @connection.inherited? # they are the parent's

        handles.each do |handle|
          report = handle.report
          next unless report && %i[purge_queue purge_inflight].include?(report.error&.code)

          instrument("message.purged") do
            { type: "librdkafka.dispatch_error", error: report.error, topic: report.topic, partition: report.partition,
              offset: report.offset, delivery_report: report, label: report.label, caller: self }
          end
        end
      end

      # Repeats what the cluster asks to repeat, until the deadline at most.
      def command(name, deadline = nil)
        attempt = 1
        begin
          yield
        rescue TransactionCommittedError
          raise # an answer
        rescue TransactionError => e
          pause = config.wait_backoff_on_transaction_command * attempt / 1000.0
          again = e.retriable? && !e.fatal? && attempt < config.max_attempts_on_transaction_command
          again &&= e.code != :all_brokers_down # that has lasted for config.unreachable_timeout already
          again &&= deadline.nil? || now + pause < deadline
          instrument("error.occurred") { { type: "transaction.#{name}", error: e, caller: self, retry: again, attempt: } }
          raise unless again

          sleep(pause)
          attempt += 1
          retry
        end
      end

      # A client whose transaction is in no known state, or that cannot go on at all, makes room for a new one; that one's
      # first request has the cluster abort what the old one left.
      def reload_after_transaction(client, error)
        return unless config.reload_on_transaction_fatal_error
        return if config.non_reloadable_errors.include?((client.fatal_error || error).code)

        @connection.replace(client, error, limit: config.max_attempts_on_transaction_fatal_error,
                                           backoff_ms: config.wait_backoff_on_transaction_fatal_error)
      end
    end
  end
end
