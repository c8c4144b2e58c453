# frozen_string_literal: true

module Penstock
  class Producer
    # A consumer's side of {Producer#transaction}: the batch that is in a transaction, and how the consumer goes back to it when
    # the transaction has failed. The batch is forgotten only when its offsets are committed or the consumer has gone back. So
    # however often and wherever a thread is interrupted, the next transaction first does what is left to do.
    #
    # Only the fiber that has the lock calls its methods.
    # @api private
    class ConsumedBatch
      # What the group's coordinator answers about a member that it has removed, or whose partitions it moves: illegal_generation,
      # unknown_member_id, rebalance_in_progress, fenced_instance_id, fenced_member_epoch, stale_member_epoch. As numbers, because
      # older versions of librdkafka do not know the names of the latter.
      REMOVED = [22, 25, 27, 82, 110, 113].freeze
      # Seconds for a transaction of unknown outcome to be decided, until which brokers do not give out the group's offsets.
      DECISION = 30

      # @param consumer [Consumer]
      def initialize(consumer)
        @consumer = consumer
        parts = ConsumerRegistry.of(consumer)
        @client = parts.client
        @positions = parts.positions
        @lock = TransactionLock.new("a transaction with the consumer's messages")
        @batch = nil # in a transaction, or in one that failed, to which the consumer has not gone back yet
        @places = [] # of the batch: topic, partition, first offset, offset after the last message, leader epoch
        @begun = {} # partition => number of its assignment, if that began where it should
        @ending = nil
        @sent = false # the offsets, so that the transaction may have been committed
      end

      # @return [Batch, nil]
      attr_reader :batch
      # @return [TransactionRunner::Ending] of its transaction
      attr_reader :ending

      # One transaction at a time: a later batch must not be committed before an earlier one.
      def synchronize(&block)
        @lock.owned? and raise ErrorFactory.build(UsageError, "a transaction of this consumer is running in this fiber already",
                                                  consumer_id: @consumer.id)
        @lock.synchronize(&block)
      end

      # Takes the given batch, or polls one. An interrupt comes out of the poll only while it waits: never after it has taken
      # messages.
      # @return [Boolean] false: there are no messages
      def take(batch, max, timeout)
        Thread.handle_interrupt(Object => :on_blocking) do
          batch ||= @consumer.poll_batch(max:, timeout:)
          next false if batch.empty?

          @places = Native::ConsumerClient.places_of(batch)
          @ending = TransactionRunner::Ending.new
          @sent = false
          @batch = batch
        end
        !@batch.nil?
      end

      # Compares the first offsets after an assignment with the committed ones. While a transaction with a partition's offsets is
      # open, the coordinator does not give them out, and librdkafka asks again. If its assignment changes meanwhile, it takes the
      # missing answer for "no offset is committed", and begins as `auto.offset.reset` says (2.0.2 and 2.14.2, all protocols).
      # The messages would be processed again, or left out.
      # @return [Boolean] false: the consumer has gone to the committed offsets
      def begun_as_committed?
        fresh = @places.reject { |topic, partition| begun?(topic, partition) }
        return true if fresh.empty?

        wrong = fresh.zip(committed_offsets(fresh)).reject { |place, offset| offset.nil? || offset == place[2] }
        wrong.each { |place, offset| @client.seek([[place[0], place[1], offset]], 5) }
        fresh.each { |place| @begun[place.first(2)] = began_itself(place[0], place[1]) }
        settle unless wrong.empty?
        wrong.empty?
      end

      # @raise [TransactionalOffsetInvalidError] when another thread works on earlier messages: to commit the later ones would
      #   commit these too
      def check_order
        topic, partition, first = @client.open_before(@places)
        return unless topic

        settle
        raise ErrorFactory.build(
          TransactionalOffsetInvalidError, "messages before offset #{first} were polled and are not processed",
          "Nothing was begun.", consumer_id: @consumer.id, topic:, partition:
        )
      end

      # @return [Boolean] whether the consumer has had all partitions of the batch since it was taken
      def held? = held_places.size == @places.size

      # @return [Array<Array(String, Integer, Integer, String, Integer)>] what the transaction commits
      def offsets(metadata) = @places.map { |topic, partition, _, after, epoch| [topic, partition, after, metadata, epoch] }

      # The transaction has the offsets, and may be committed.
      def sent = @sent = true

      # @return [Boolean] whether the outcome of the commit is unknown. The cluster decides it when the producer has a new client,
      #   or the transaction has timed out
      def undecided? = !@batch.nil? && @sent && @ending.how.nil?

      # Marks what is committed. Otherwise goes back to the first message of each partition, except of those that were taken away
      # (if they come back, they begin at the committed offsets). Does nothing if nothing is left to do.
      # @raise [ConsumeError] when it failed; the next transaction tries again
      def settle
        return unless @batch

        if @sent && @ending.how == :committed
          @consumer.mark(@batch)
        else
          places = held_places
          places = uncommitted(places) if undecided? # M:committed_places_skipped
          @positions.rewind_to(places, @batch.epoch, 5)
        end
        @batch = nil
      end

      private

      def held_places = @client.held(@places, @batch.epoch)

      def begun?(topic, partition)
        epoch = began_itself(topic, partition)
        epoch.zero? || @begun[[topic, partition]] == epoch
      end

      def began_itself(topic, partition) = @client.began_itself(topic, partition)

      def uncommitted(places)
        places.zip(committed_offsets(places)).reject { |place, offset| offset && offset >= place[3] }.map(&:first)
      end

      # @return [Array<Integer, nil>] of these places
      def committed_offsets(places)
        by_topic = places.group_by(&:first).to_h do |topic, list|
          [topic, @consumer.committed(topic, list.map { |place| place[1] }, timeout: DECISION)]
        end
        places.map { |topic, partition| by_topic[topic][partition] }
      end
    end
  end
end
