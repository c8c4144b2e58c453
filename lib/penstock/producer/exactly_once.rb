# frozen_string_literal: true

module Penstock
  class Producer
    # Transactions with the messages and offsets of a consumer: see {Producer#transaction}.
    #
    # What makes it exactly once, also if the group moves the partitions at any moment:
    #
    # - The offsets are sent with the group's metadata, and then it is checked that the consumer has had the partitions all the
    #   time. So they were its own when the metadata were taken, and the coordinator rejects older metadata.
    # - The commit makes messages and offsets valid together. A member that gets the partitions meanwhile waits for its end,
    #   because brokers give out a group's offsets only then (isolation level read_committed).
    # - If nothing was committed, the consumer goes back to the first message of the batch.
    # @api private
    class ExactlyOnce
      # @param internals [Internals]
      # @param runner [TransactionRunner]
      def initialize(internals, runner)
        @internals = internals
        @runner = runner
      end

      # @return [Batch, nil, false] see {Producer#transaction}
      def run(consumer, batch, max:, timeout:, offset_metadata:, &block)
        SignalTrap.raise_if_here("a transaction")
        @runner.check
        raise LocalJumpError, "transaction requires a block" unless block

        check(consumer, batch, offset_metadata)
        left = ConsumerRegistry.of(consumer).transacted { ConsumedBatch.new(consumer) }
        left.synchronize do
          prepare(left) # M:producer_connects_first
          left.settle # M:next_transaction_rewinds
          next unless left.take(batch, max, timeout)

          unless left.held?
            left.settle # the partitions that it still has
            next false
          end

          next false unless left.begun_as_committed? # M:begins_at_committed

          left.check_order # M:batch_order_checked
          transact(consumer, left, offset_metadata, &block)
        end
      end

      # See {Producer#transaction_mark_as_consumed}.
      def mark_as_consumed(consumer, message, offset_metadata)
        @internals.check_usable
        @runner.running? or raise_error(TransactionRequiredError, "marking requires a running transaction", "Nothing was marked.")

        raise_invalid_offset("the consumer must be a Penstock::Consumer, not #{consumer.class}") unless consumer.is_a?(Consumer)

        place = place_of(message)
        problem = metadata_problem(offset_metadata)
        raise_invalid_offset(problem) if problem

        @internals.notifier.timed("transaction.marked_as_consumed", message:, offset_metadata:) do
          @runner.store_offsets([[place[0], place[1], place[2] + 1, offset_metadata]], consumer)
          nil
        end
      end

      private

      # Connects the producer before the poll. This ends the transaction that an earlier process with its transactional.id has
      # left open. Until then the coordinator does not give out the offsets of that transaction's partitions, so no message would
      # come.
      def prepare(left)
        left.undecided? ? @runner.decide : @internals.variants.own.use
      end

      def transact(consumer, left, metadata)
        batch = left.batch
        held = returned = nil
        @runner.run(left.ending) do
          yield batch
          held = send_offsets(consumer, left, metadata)
          held or raise ErrorFactory.build(AbortTransaction, "the group has moved a partition")

          left.sent
        end
        returned = true
        held && batch
      ensure
        Thread.handle_interrupt(Object => :on_blocking) { conclude(left, returned) }
      end

      # @return [Boolean] false: the group has moved the partitions
      def send_offsets(consumer, left, metadata)
        return false unless left.held?

        @runner.store_offsets(left.offsets(metadata), consumer)
        left.held? # M:lost_partitions_uncommitted
      rescue TransactionError => e
        raise unless ConsumedBatch::REMOVED.include?(e.number) # M:removed_member_retries

        false
      end

      # @param returned [Boolean] whether no error is raised
      def conclude(left, returned)
        # M:abort_rewinds
        left.settle unless left.undecided? # the next transaction asks the cluster
      rescue ConsumerClosedError, ForkedError
        nil # a consumer that begins anew begins at the committed offsets
      rescue Error => e
        raise if returned

        # The caller gets the error that ended the transaction. The next transaction tries again.
        @internals.notifier.instrument("error.occurred") do
          { type: "transaction.rewind", error: e, caller: @internals.producer, retry: true, attempt: 1 }
        end
      end

      def place_of(message)
        place = %i[topic partition offset].map { |name| message.public_send(name) if message.respond_to?(name) }
        valid = place[0].is_a?(String) && place.drop(1).all? { |number| number.is_a?(Integer) && !number.negative? }
        valid ? place : raise_invalid_place(message)
      rescue ArgumentError # its methods of these names are different, such as String#partition
        raise_invalid_place(message)
      end

      # @return [String, nil]
      def metadata_problem(metadata)
        Offset.new(offset: 0, metadata:)
        nil
      rescue ArgumentError => e
        e.message.sub(":metadata", "offset_metadata")
      end

      def raise_invalid_place(other) = raise_invalid_offset("a message must have a topic, partition and offset: #{other.inspect}")

      def raise_invalid_offset(problem) = raise_error(TransactionalOffsetInvalidError, problem, "Nothing was marked.")

      def raise_error(error_class, *about) = raise(ErrorFactory.build(error_class, *about, producer_id: @internals.id))

      def check(consumer, batch, metadata)
        consumer.is_a?(Consumer) or raise TypeError, "expected a Penstock::Consumer, not #{consumer.class}"
        batch.nil? || batch.is_a?(Batch) or raise TypeError, "expected a Penstock::Batch, not #{batch.class}"
        problem = metadata_problem(metadata)
        raise metadata.is_a?(String) ? ArgumentError : TypeError, problem if problem

        consumer.config.__send__(:check_transactions)
        return unless @runner.running?

        raise_error(UsageError, "a transaction of a consumer cannot be inside another transaction", "Nothing was polled.")
      end
    end
  end
end
