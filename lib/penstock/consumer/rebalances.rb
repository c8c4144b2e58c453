# frozen_string_literal: true

module Penstock
  class Consumer
    # Rebalances of the group: where new partitions begin ({ConsumerConfig#start_at}), and the calls of
    # {ConsumerConfig#rebalance_listener}.
    # @api private
    class Rebalances
      # How long a poll asks brokers where to start.
      START_TIMEOUT = 5
      # Seconds after a failure: an error may come at once, each time.
      START_PAUSE = 1
      # A variable of the fiber: the consumer whose rebalance listener runs.
      LISTENS = :__penstock_listens__
      private_constant :START_TIMEOUT, :START_PAUSE, :LISTENS

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @config = internals.config
        @failed_at = nil # brokers did not answer where to start
      end

      # @return [Boolean] whether the client has to call {#configured_starts} and {#rebalanced}
      def listens? = !@config.rebalance_listener.nil? || asks_brokers?

      # Called by a poll. If it raises, the poll does not answer the group, and the next one calls it again.
      # @param kind [:assigned, :revoked, :lost]
      # @return [Array<Array(String, Integer, Integer)>, nil] where config.start_at begins partitions without a committed offset
      def configured_starts(kind, places)
        return unless kind == :assigned && asks_brokers?

        pause_before_asking_again
        deadline = Deadline.new(START_TIMEOUT)
        offsets = @internals.offsets
        committed = offsets.committed_offsets(places, deadline)
        open = places.map { |place| place.first(2) }.select { |place| committed[place] == ConsumerPlaces::INVALID_OFFSET }
        offsets.resolve(open.map { |place| [*place, @config.start_at] }, deadline) unless open.empty?
      rescue Error => e
        @failed_at = now
        notifier.error("consumer.start_at", e, partitions: ConsumerPlaces.by_topic(places))
        raise
      end

      # Called by a poll, and by close.
      # @param kind [:assigned, :revoked, :lost]
      # @param starts [Array, nil] what {#configured_starts} has returned
      # @return [Array<Array(String, Integer, Integer)>, nil] start offsets
      def rebalanced(kind, places, starts = nil)
        return if places.empty?

        chosen = starts.to_a.to_h { |topic, partition, offset| [[topic, partition], offset] }
        rebalance = Rebalance.new(@internals.consumer, ConsumerPlaces.by_topic(places), kind, chosen)
        call_listener(kind, rebalance)
        chosen.map { |place, offset| [*place, offset] } unless chosen.empty?
      rescue StandardError, ScriptError => e
        notifier.error("rebalance_listener.error", e, partitions: rebalance&.partitions)
        raise
      end

      # Answers the rebalances of a subscription, before the program assigns partitions itself.
      # @raise [ListenerDeadlockError] in the listener
      def settle
        return @internals.client.settle unless @internals.equal?(Thread.current[LISTENS])

        raise ErrorFactory.build(ListenerDeadlockError, "assign is not possible in the consumer's rebalance listener",
                                 "Nothing was assigned. Use Rebalance#start_at, or call unsubscribe here and assign after the " \
                                 "poll.", consumer_id: @internals.id)
      end

      # @return [String]
      def inspect = "#<#{self.class}>"

      private

      # Whether brokers have to be asked where partitions begin.
      def asks_brokers? = @config.start_at.is_a?(Time) || @config.start_at.is_a?(Array)

      def pause_before_asking_again
        left = @failed_at && (@failed_at + START_PAUSE - now)
        sleep(left) if left&.positive?
      end

      def call_listener(kind, rebalance)
        listener = @config.rebalance_listener
        method = kind == :lost && !listener.respond_to?(:lost) ? :revoked : kind
        return unless listener.respond_to?(method)

        outer = Thread.current[LISTENS]
        Thread.current[LISTENS] = @internals
        listener.public_send(method, rebalance)
      ensure
        Thread.current[LISTENS] = outer
      end

      def notifier = @internals.notifier
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
