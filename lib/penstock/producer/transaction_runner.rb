# frozen_string_literal: true

module Penstock
  class Producer
    # Runs a producer's transactions with the calls of its client: one at a time, of any fiber. See {Producer#transaction}.
    # @api private
    class TransactionRunner
      # How a transaction has ended: :committed, :aborted, or nil as long as that is not known.
      Ending = Struct.new(:how)

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @lock = TransactionLock.new
        @client = nil # the client that began the transaction
        @stage = nil # its phase: nil, :beginning, :open, :committing, or :undecided, after a commit with unknown outcome
        @handed_over = nil # handles of the running transaction, if "message.purged" has subscribers
        @ending = nil # of the running transaction, for its caller
        @late_commit = nil # the fiber whose commit succeeded although it was interrupted
      end

      # @return [TransactionLock] held by the running transaction
      attr_reader :lock

      # @return [Boolean] whether this fiber is inside a transaction
      def running? = @internals.transactional? && @lock.owned?

      # Raises if the producer cannot have transactions.
      def check
        @internals.check_usable
        return if @internals.transactional?

        raise_error(ProducerNotTransactionalError, "the producer has no transactional.id", "Set it in config.kafka.")
      end

      # @param ending [Ending, nil] gets to know how the transaction ends
      # @return [Object, nil] the block's value; nil after {AbortTransaction}
      def run(ending = nil, &block)
        check
        raise LocalJumpError, "transaction requires a block" unless block
        return without_leaving_early(&block) if running?

        @lock.synchronize { notifier.timed("transaction.finished") { run_alone(ending, &block) } }
      end

      # Lets the cluster decide an earlier commit whose outcome is not known.
      def decide = @lock.synchronize { client_without_transaction }

      # Sends offsets of a consumer's group. The call is repeated with the same metadata of the group, as librdkafka requires.
      # @param offsets [Array<Array(String, Integer, Integer, String, Integer)>] topic, partition, offset, metadata and leader
      #   epoch; the last two may be nil
      def store_offsets(offsets, consumer)
        client = connection.use
        metadata = consumer.group_metadata
        command("store_offset") do
          raise no_member(consumer) if group_assigns?(consumer) && no_generation?(metadata) # M:no_member_commits_nothing

          client.send_offsets_to_transaction(offsets, { metadata: }, nil)
        end
      end

      # Runs the block in a transaction, if the producer's messages need one.
      def around_message(&block) = @internals.transactional? && !running? ? run(&block) : yield

      # Makes a new client ready for transactions, within `config.max_wait_timeout` for all attempts together.
      def prepare(client)
        limit = @internals.config.max_wait_timeout
        deadline = limit && (now + (limit / 1000.0))
        command("init", deadline) { client.init_transactions(deadline && [(deadline - now) * 1000, 0].max.ceil) }
      end

      # @param handles [DeliveryHandle, Array<DeliveryHandle>] of messages that were sent in the running transaction
      def sent(handles) = @handed_over&.concat([*handles])

      # Forgets an interrupted commit that succeeded.
      def forget_late_commit = @late_commit = nil

      # @return [Boolean] whether the commit of this fiber was interrupted and succeeded
      def late_commit? = @late_commit.equal?(Fiber.current)

      # @return [String]
      def inspect = "#<#{self.class} #{@stage.inspect}>"

      private

      def connection = @internals.variants.own

      def notifier = @internals.notifier

      def raise_error(error_class, *about) = raise(ErrorFactory.build(error_class, *about, producer_id: @internals.id))

      # A consumer that joins its group, or whose generation was rejected, has neither a generation nor a member id. Brokers take
      # it for a consumer without a group, and accept its offsets although another member has the partitions.
      # @param metadata [String] librdkafka's form: see generation_of in consumer.c
      def no_generation?(metadata) = metadata.start_with?("CGMDv2:") && metadata.unpack1("@7l").negative?

      def group_assigns?(consumer) = ConsumerRegistry.of(consumer).subscription.group_assigns?

      # As a broker would answer.
      def no_member(consumer)
        ErrorFactory.build(TransactionError, "the consumer has no membership of its group at present",
                           code: :unknown_member_id, number: 25, name: "UNKNOWN_MEMBER_ID", abortable: true,
                           producer_id: @internals.id, consumer_id: consumer.id)
      end

      def raise_inherited
        return unless connection.inherited?

        raise_error(ForkedError, "the parent process has used the producer", "Make one here with another transactional.id.")
      end

      # Only the thread that has the lock uses the instance variables. If a second interrupt ends the abort too, @stage shows
      # that a transaction is still open, and the next transaction aborts it first.
      def run_alone(ending, &block)
        client = client_without_transaction # the caller of an interrupted transaction may get to know its end here
        @ending = ending
        open_transaction(client)
        @handed_over = [] if @internals.monitor.listening?("message.purged")
        value = without_leaving_early(&block)
        commit(client)
        value
      rescue AbortTransaction
        roll_back(client)
        nil
      ensure
        roll_back_quietly(client) unless client.nil? || @stage.nil? || @stage == :undecided
        publish_purged
      end

      def client_without_transaction
        raise_inherited
        client = connection.use
        roll_back_quietly(client) if @stage && @client.equal?(client)
        @stage = nil
        client
      end

      def open_transaction(client)
        @client = client
        @stage = :beginning
        notifier.timed("transaction.started") do
          command("begin") { client.begin_transaction }
          @stage = :open
        end
      rescue TransactionError => e
        @stage = nil
        reload_after(client, e)
        raise
      end

      # Raises if return, break or throw leaves the block: then the block neither returns nor raises. The end of the thread looks
      # the same, and raising there would keep the thread from ending.
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
          raise_error(EarlyTransactionExitNotAllowedError,
                      "return, break or throw left a transaction (Timeout.timeout without an error class throws too)",
                      "The transaction was aborted. Use next, or raise Penstock::AbortTransaction.")
        end
      end

      def commit(client)
        raise_inherited
        @stage = :committing
        notifier.timed("transaction.committed") do
          command("commit") { client.commit_transaction(nil) }
          ended(:committed)
          connection.proven
        end
      rescue TransactionError => e
        failed = client.failed_message if e.abortable?
        raise ErrorFactory.build_failed_commit(e, failed), cause: failed if failed
        raise if e.abortable?

        @stage = e.fatal? ? nil : :undecided
        reload_after(client, e)
        raise undecided?(e) ? ErrorFactory.build_undecided_commit(e, finds_out: !@ending.nil?) : e
      end

      # Also a commit in which librdkafka hangs.
      def undecided?(error) = !error.fatal? && (error.retriable? || error.code == :timed_out)

      # @raise [TransactionError] when the abort failed
      def roll_back(client)
        notifier.timed("transaction.aborted") do
          command("abort") { client.abort_transaction(nil) }
          ended(:aborted)
        end
      rescue TransactionCommittedError # the interrupted commit succeeded
        raise if @stage == :open

        ended(:committed)
        @late_commit = Fiber.current
        notifier.timed("transaction.committed") { nil }
      rescue TransactionError => e
        @stage = e.fatal? ? nil : :undecided
        reload_after(client, e)
        raise
      end

      def ended(how)
        @ending&.how = how
        @stage = nil
      end

      # Called when the caller gets another error, or none because its thread ends. So an error of the abort is only published.
      # A client that was closed during the transaction has ended the transaction itself.
      def roll_back_quietly(client)
        return if connection.inherited? # the parent process owns it
        return undo_begin(client) if @stage == :beginning

        roll_back(client)
      rescue TransactionError, ProducerClosedError
        nil
      end

      # Called when the begin was interrupted: the transaction may have begun or not.
      def undo_begin(client)
        client.abort_transaction(nil)
      rescue TransactionError
        nil # it had not begun; or the client is lost, and its next use raises
      ensure
        @stage = nil
      end

      # Publishes the messages that an abort has purged.
      def publish_purged
        handles = @handed_over or return
        @handed_over = nil
        return if connection.inherited? # the parent process owns them

        handles.each do |handle|
          report = handle.report
          next unless report && %i[purge_queue purge_inflight].include?(report.error&.code)

          notifier.instrument("message.purged") do
            { type: "librdkafka.dispatch_error", error: report.error, topic: report.topic, partition: report.partition,
              offset: report.offset, delivery_report: report, label: report.label, caller: @internals.producer }
          end
        end
      end

      # Repeats a command as long as the cluster asks for it, up to the deadline.
      def command(name, deadline = nil)
        attempt = 1
        begin
          yield
        rescue TransactionCommittedError
          raise # this is a final answer
        rescue TransactionError => e
          pause = @internals.config.wait_backoff_on_transaction_command * attempt / 1000.0
          again = retry?(e, attempt) && (deadline.nil? || now + pause < deadline)
          notifier.instrument("error.occurred") do
            { type: "transaction.#{name}", error: e, caller: @internals.producer, retry: again, attempt: }
          end
          raise unless again

          sleep(pause)
          attempt += 1
          retry
        end
      end

      # @return [Boolean] false also after config.unreachable_timeout without any broker, which was long enough
      def retry?(error, attempt)
        error.retriable? && !error.fatal? && attempt < @internals.config.max_attempts_on_transaction_command &&
          error.code != :all_brokers_down
      end

      # Replaces a client whose transaction is in an unknown state, or that had a fatal error. The first request of the new
      # client makes the cluster abort the transaction of the old one.
      def reload_after(client, error)
        config = @internals.config
        return unless config.reload_on_transaction_fatal_error
        return if config.non_reloadable_errors.include?((client.fatal_error || error).code)

        connection.replace(client, error, limit: config.max_attempts_on_transaction_fatal_error,
                                          backoff_ms: config.wait_backoff_on_transaction_fatal_error)
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
