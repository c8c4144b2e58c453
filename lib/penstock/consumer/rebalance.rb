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
    def initialize(consumer, partitions, kind)
      @consumer = consumer
      @partitions = Ractor.make_shareable(partitions)
      @kind = kind
      @starts = {}
    end

    # @return [Boolean] whether the partitions were taken away already, because the group has removed the consumer. Commits fail,
    #   and other members may read the partitions
    def lost? = @kind == :lost

    # Begins to read a partition that was just assigned at this offset, not at the committed one. Only in `assigned`.
    #
    # @param topic [String, Symbol]
    # @param partition [Integer]
    # @param offset [Integer, :beginning, :end]
    # @return [self]
    # @raise [ArgumentError] when the partition is not among {#partitions}
    def start_at(topic, partition, offset)
      @kind == :assigned or raise ArgumentError, "start_at is possible in `assigned` only"
      @partitions.fetch(topic.to_s, []).include?(partition) or
        raise ArgumentError, "partition #{partition.inspect} of #{Text.printable(topic.to_s)} was not assigned"

      @starts[[topic.to_s, partition]] = consumer.__send__(:offset_number, offset)
      self
    end

    # @return [String]
    def inspect = "#<#{self.class} #{@kind} #{@partitions}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(kind: @kind.to_s, partitions: @partitions)

    private

    # @return [Array<Array(String, Integer, Integer)>, nil]
    def starts = @starts.empty? ? nil : @starts.map { |(topic, partition), offset| [topic, partition, offset] }
  end
end
