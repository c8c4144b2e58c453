# frozen_string_literal: true

module Penstock
  # What {ConsumerConfig#rebalance_listener} is told: which partitions the group has assigned to the consumer, or takes away.
  class Rebalance
    include AsJson

    # @return [Consumer]
    attr_reader :consumer
    # @return [Hash{String=>Array<Integer>}] partitions by topic; frozen. With the assignor "cooperative-sticky" and the protocol
    #   "consumer" only what changes, otherwise the whole assignment
    attr_reader :partitions

    # Programs make one only to test their listeners.
    #
    # @param consumer [Consumer]
    # @param partitions [Hash{String=>Array<Integer>}]
    # @param kind [:assigned, :revoked, :lost]
    # @param starts [Hash] gets what {#start_at} chooses
    def initialize(consumer, partitions, kind, starts = {})
      @consumer = consumer
      @partitions = Ractor.make_shareable(partitions)
      @kind = kind
      @starts = starts # offsets by topic and partition
    end

    # @return [Boolean] whether the partitions were taken away already, because the group has removed the consumer. Commits fail,
    #   and other members may read the partitions
    def lost? = @kind == :lost

    # Begins to read partitions that were just assigned at other offsets than the committed ones. Only in `assigned`.
    #
    #     rebalance.start_at("orders", 0, :beginning)
    #     rebalance.start_at("orders" => { 0 => 5, 1 => Time.now - 3600 })
    #
    # Blocks: not at all; with a Time or `[:last, n]` like {Consumer#committed}. The group waits meanwhile.
    #
    # @overload start_at(topic, partition, offset, timeout: 5)
    #   @param topic [String, Symbol]
    #   @param partition [Integer]
    #   @param offset [Integer, :beginning, :end, :stored, Time, Array(Symbol, Integer), Offset] see {Consumer#assign}
    #   @param timeout [Numeric, nil] seconds to wait for the leaders, if there is a Time or `[:last, n]`; see {Consumer#commit}
    #   @return [self]
    #   @raise [ArgumentError] when the partition is not among {#partitions}
    #   @raise [ConsumeError, ConsumeTimeoutError] when a leader does not answer. Then reading begins at the committed offset,
    #     unless another call sets another one
    # @overload start_at(partitions, timeout: 5)
    #   @param partitions [Hash{String, Symbol => Hash{Integer => Object}}] offsets by topic and partition; all at once
    def start_at(*given, timeout: 5, **braceless)
      @kind == :assigned or raise ArgumentError, "start_at is possible in `assigned` only"
      offsets = ConsumerRegistry.of(consumer).offsets
      chosen = offsets.starts(given, timeout, braceless) { |topic, partition| check_assigned(topic, partition) }
      chosen.each { |topic, partition, offset| @starts[[topic, partition]] = offset }
      self
    end

    # @return [String]
    def inspect = "#<#{self.class} #{@kind} #{@partitions}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(kind: @kind.to_s, partitions: @partitions)

    private

    def check_assigned(topic, partition)
      return if @partitions.fetch(topic, []).include?(partition)

      raise ArgumentError, "partition #{partition.inspect} of #{Text.printable(topic)} was not assigned"
    end
  end
end
