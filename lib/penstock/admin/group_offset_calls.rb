# frozen_string_literal: true

module Penstock
  class Admin
    # The methods of {Admin} for the offsets that groups have committed.
    module GroupOffsetCalls
      # Returns what groups have committed.
      #
      #     admin.group_offsets({ "billing" => nil })["billing"]["orders"][0].offset
      #
      # If a partition fails, its group does: the error names the partition.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is one request for each group, all at once. It is
      # repeated while the coordinator is not ready or does not answer.
      #
      # Requires the right to describe the groups, and the topics. Among all partitions, those of topics without it are missing.
      #
      # @param groups [Hash{String => Hash{String => Array<Integer>}, nil}] the partitions for each group; nil: all for which it
      #   has committed an offset
      # @param stable [Boolean] whether an offset that an open transaction commits is an error (:unstable_offset_commit); else the
      #   offset before it is returned
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] for each group a Hash{String => Hash{Integer => Offset, nil}} by topic and partition; nil: none is
      #   committed. It is empty for a group that does not exist
      # @raise [AdminError] when the whole request failed
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload group_offsets(groups, stable: false, timeout: nil)
      def group_offsets(*given, stable: false, timeout: nil, **braceless)
        more, wrong = Keywords.braced(braceless)
        @internals.group_offsets(*given, *more, stable:, timeout:, **wrong)
      end

      # Sets what a group has committed. Possible only while the group has no members.
      #
      #     admin.alter_group_offsets("billing", { "orders" => { 0 => 10 } })
      #     admin.alter_group_offsets("copy", admin.group_offsets({ "billing" => nil })["billing"])
      #
      # The offsets are not compared with what the partitions have; {#reset_group_offsets} does. A group that does not exist is
      # made.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is one request. It is repeated while the
      # coordinator is not ready or does not answer.
      #
      # Requires the right to read the group, and the topics.
      #
      # @param group [String]
      # @param offsets [Hash{String => Hash{Integer => Integer, Offset}}] by topic and partition
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [PartitionResults] true for each partition; an error with the code :unknown_member_id while the group has members
      # @raise [AdminError] when the whole request failed
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still set the offsets
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload alter_group_offsets(group, offsets, timeout: nil)
      def alter_group_offsets(*given, timeout: nil, **braceless)
        more, wrong = Keywords.braced(braceless)
        @internals.alter_group_offsets(*given, *more, timeout:, **wrong)
      end

      # Moves a group to another place, within what the partitions have. Possible only while the group has no members.
      #
      #     admin.reset_group_offsets("billing", to: Time.now - 3600)         # an hour back
      #     admin.reset_group_offsets("billing", to: { shift: -100 }, dry_run: true)
      #
      # A place before the first message of a partition becomes its beginning. A place after the last becomes its end. The end is
      # behind the last message, also if it belongs to an open transaction.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is up to four requests, one after another.
      #
      # Requires the right to read the group, and to read and describe the topics.
      #
      # @param group [String]
      # @param to [Symbol, Time, Integer, Hash] :beginning, :end, the first message at this time or later, an offset, or
      #   `{ shift: n }`, n messages later, or earlier if it is negative
      # @param topics [Array<String>, Hash{String => Array<Integer>}, nil] all partitions of these topics, or these partitions;
      #   nil: all partitions for which the group has committed an offset
      # @param dry_run [Boolean] whether only to return what would be done. It does not notice members of the group
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [PartitionResults] an {OffsetChange} for each partition
      # @raise [AdminError] when the whole request failed, or the group has committed nothing and no topics are given
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still set the offsets
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload reset_group_offsets(group, to:, topics: nil, dry_run: false, timeout: nil)
      def reset_group_offsets(group, *more, to:, topics: nil, dry_run: false, timeout: nil, **wrong)
        @internals.reset_group_offsets(group, *more, to:, topics:, dry_run:, timeout:, **wrong)
      end

      # Deletes what a group has committed, for partitions of topics to which no member subscribes.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is one request. It is repeated while the
      # coordinator is not ready or does not answer.
      #
      # Requires the right to delete the group, and to read the topics.
      #
      # @param group [String]
      # @param partitions [Hash{String => Array<Integer>}] by topic
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [PartitionResults] true for each partition, also if nothing was committed; an error with the code
      #   :group_subscribed_to_topic while members subscribe to the topic
      # @raise [AdminError] when the whole request failed, for example with the code :group_id_not_found
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still delete the offsets
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload delete_group_offsets(group, partitions, timeout: nil)
      def delete_group_offsets(*given, timeout: nil, **braceless)
        more, wrong = Keywords.braced(braceless)
        @internals.delete_group_offsets(*given, *more, timeout:, **wrong)
      end
    end
  end
end
