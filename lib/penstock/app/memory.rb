# frozen_string_literal: true

module Penstock
  class App
    # How much messages may take that are polled and not processed, and that no partition takes it all. Of the loop's thread.
    #
    # A partition whose messages wait (one is tried again, or takes long) would fill the memory, and the others would get nothing.
    # So when half of the memory is used, and some partition has less than half of its share, those are parked that have had more
    # than their share for {OLD} seconds: the consumer stops reading them, and what is above the share is dropped. See {Detours}.
    #
    # What is in lanes cannot be dropped. A partition has at most a run there while memory is short, and it counts as a share at
    # most: otherwise many partitions that wait could use up the memory for ever.
    # @api private
    class Memory
      include ShortInspect

      # Seconds.
      LOOK_EVERY = 0.1
      OLD = 1
      private_constant :LOOK_EVERY, :OLD

      # @param main [Loop]
      def initialize(main)
        @main = main
        @size = main.settings.backlog_bytes
        @next_look = 0
      end

      # Sums are made anew at each turn of the loop.
      def begin_turn = @used = @share = nil

      # @return [Boolean] whether more messages may be polled
      def room? = used < @size

      # @return [Boolean] whether partitions should take no more than they need
      def short? = used >= @size / 2

      # @return [Integer] bytes that a partition may always have
      def share = @share ||= @size / 2 / [partitions.size, 1].max

      # Parks partitions, if memory is short.
      def look
        return if !short? || @main.runtime.now < @next_look

        @next_look = @main.runtime.now + LOOK_EVERY
        return unless partitions.any? { |partition| partition.used(share) < share / 2 && partition.detour.nil? }

        partitions.each { |partition| park(partition) }
      end

      # More of the partition was polled. What was parked before is parked again at once, before much is fetched in vain.
      # @param partition [Partition]
      def added(partition, bytes)
        @used += bytes if @used
        park(partition) if partition.parked_before && short?
      end

      private

      def used = @used ||= partitions.sum { |partition| partition.used(share) }

      def partitions = @main.subscriptions.select(&:open?).flat_map(&:partitions)

      def park(partition)
        return unless partition.bytes > share && partition.old?(@main.runtime.now - OLD) && partition.park(share)

        @used = nil
        partition.subscription.detours.begin(partition)
      end
    end
    private_constant :Memory
  end
end
