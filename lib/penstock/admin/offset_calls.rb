# frozen_string_literal: true

module Penstock
  class Admin
    # The methods of {Admin} for partitions: their offsets, lag, records and leaders.
    module OffsetCalls
      # Returns offsets of partitions.
      #
      #     admin.offsets({ "orders" => { 0 => :beginning, 1 => :end, 2 => Time.now - 3600 } })
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is one request to each leader, and another if a
      # Time is after the last message.
      #
      # Requires the right to describe the topics.
      #
      # @param places [Hash{String => Hash{Integer => Symbol, Time}}] by topic and partition:
      #     - :beginning: the first message
      #     - :end: behind the last message; where the next one will be
      #     - a Time: the first message at this time or later. After the last message it is the :end
      #     - :max_timestamp: the message with the latest time. Requires librdkafka 2.3.0
      # @param isolation [Symbol] :read_uncommitted, or :read_committed: then the :end is before the first message of an open
      #   transaction
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [PartitionResults] an Integer for each partition; nil for :max_timestamp of an empty partition
      # @raise [AdminError] when the whole request failed
      # @raise [UnsupportedError] when librdkafka is too old for :max_timestamp
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload offsets(places, isolation: :read_uncommitted, timeout: nil)
      def offsets(*given, isolation: :read_uncommitted, timeout: nil, **braceless)
        more, wrong = Keywords.braced(braceless)
        @internals.offsets(*given, *more, isolation:, timeout:, **wrong)
      end

      # Deletes the records before an offset. Readers then begin at it.
      #
      #     admin.delete_records({ "orders" => { 0 => 500, 1 => :end, 2 => Time.now - 86_400 } })
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is one request to each leader, and up to two
      # before it for Times.
      #
      # Requires the right to delete from the topics, and to describe them.
      #
      # @param ends [Hash{String => Hash{Integer => Integer, Symbol, Time}}] by topic and partition: an offset; :end: all records;
      #   a Time: all before the first record at this time or later
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [PartitionResults] for each partition the Integer at which it begins now
      # @raise [AdminError] when the whole request failed
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still delete the records
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload delete_records(ends, timeout: nil)
      def delete_records(*given, timeout: nil, **braceless)
        more, wrong = Keywords.braced(braceless)
        @internals.delete_records(*given, *more, timeout:, **wrong)
      end

      # Returns how many messages groups have yet to read: of each partition with a committed offset the distance from it to the
      # end. A partition that begins after the committed offset counts from its beginning.
      #
      #     admin.lag("billing")["billing"]  # { "orders" => { 0 => 12, 1 => 0 } }
      #
      # Kafka's own tool counts as `:read_uncommitted` does. `:read_committed` is what a consumer with the default isolation can
      # read: the messages of an open transaction, and those behind them, do not count. Markers of transactions and compacted
      # messages do count.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. All groups are asked at once, then all leaders: at
      # most four requests one after another. Those about groups are repeated while the coordinator loads the group.
      #
      # Requires the right to describe the groups, and the topics. Topics without it are missing.
      #
      # @param groups [Array<String>]
      # @param isolation [Symbol] :read_committed or :read_uncommitted
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] for each group a Hash{String => Hash{Integer => Integer, nil}} by topic and partition; nil: an offset
      #   could not be found. It is empty for a group without committed offsets
      # @raise [AdminError] when the whole request failed
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload lag(*groups, isolation: :read_committed, timeout: nil)
      def lag(*groups, isolation: :read_committed, timeout: nil, **wrong)
        @internals.lag(*groups, isolation:, timeout:, **wrong)
      end

      # Makes brokers elect leaders: for example after a restart, so that each broker leads its share again.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is one request.
      #
      # Requires the right to alter the cluster, and librdkafka 2.6.0.
      #
      # @param kind [Symbol] :preferred: the first of a partition's replicas, if it is in sync. :unclean: any replica, for a
      #   partition without a leader; what other replicas had more is lost
      # @param partitions [Hash{String => Array<Integer>}, nil] by topic; nil: all partitions that need an election
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [PartitionResults] true for each partition with a new leader; false: it needed none
      # @raise [AdminError] when the whole request failed
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still elect leaders
      # @raise [UnsupportedError] when librdkafka is too old
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload elect_leaders(kind, partitions = nil, timeout: nil)
      def elect_leaders(*given, timeout: nil, **braceless)
        more, wrong = Keywords.braced(braceless)
        @internals.elect_leaders(*given, *more, timeout:, **wrong)
      end
    end
  end
end
