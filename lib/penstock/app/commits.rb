# frozen_string_literal: true

module Penstock
  class App
    # Commits what of a member's partitions is processed. Of the loop's thread.
    # @api private
    class Commits
      include ShortInspect

      # Brokers refuse commits with these while a rebalance ends. A moment later they accept them.
      REBALANCES = %i[rebalance_in_progress stale_member_epoch].freeze
      # Seconds until the last commit is sent again that was refused.
      AGAIN = 0.2
      private_constant :REBALANCES, :AGAIN

      # @param subscription [Subscription]
      # @param main [Loop]
      def initialize(subscription, main)
        @subscription = subscription
        @main = main
        @sent = @failed = false
        @since = nil
        @refused = nil # why the latest was not accepted, and when
      end

      # @return [Float, nil] when the first commit was sent that no answer or only errors have followed
      attr_reader :since

      # @param seconds [Numeric]
      def every(seconds)
        @main.timers.after(seconds) do
          next if @stopped

          @failed = false
          @since = nil unless @sent || commit(@subscription.partitions) # what was refused may be gone with its partition
          every(seconds)
        end
      end

      # Does not wait for its time if much is processed. After an error the next one does.
      def look
        return if @sent || @failed || @stopped || @subscription.partitions.none?(&:commit_soon?)

        commit(@subscription.partitions)
      end

      # Sends one commit for those that have something new. Its answer comes as an event.
      # @param partitions [Array<Partition>]
      # @return [Boolean] whether there is something new
      def commit(partitions)
        return false if @stopped

        new = partitions.select { |partition| partition.tracker.dirty? }
        return false if new.empty?

        @since ||= @main.runtime.now
        @subscription.consumer.commit(offsets_of(new), async: true)
        @sent = true
      rescue Error => e
        @main.error("consumer.commit.error", e, group: @subscription.group.id)
        new.each { |partition| forget(partition) }
        @failed = true
      end

      # Sends the last commit, before the consumer leaves its group.
      # @param partitions [Array<Partition>]
      # @return [Boolean] whether there is nothing to wait for
      def finish(partitions)
        return true if @stopped
        return false if partitions.any?(&:sent)

        code, at = @refused
        return true if code && !REBALANCES.include?(code)
        return false if code && @main.runtime.now - at < AGAIN

        @refused = nil
        !commit(partitions) || partitions.none?(&:sent)
      end

      # @param offsets [Hash{String => Hash{Integer => Integer}}]
      # @param error [Exception, nil]
      def answered(offsets, error)
        return if @stopped # the thread that closes has got it

        @sent = false
        @failed = !error.nil?
        @refused = error && [error.code, @main.runtime.now]
        @since = nil unless error
        @subscription.partitions.each do |partition|
          sent = partition.sent or next
          mine = offsets.dig(partition.topic, partition.number)
          next if error ? mine && mine != sent[0] : mine != sent[0]

          partition.sent = nil
          error ? refused(partition, sent[1], error) : partition.tracker.committed(*sent)
          @main.offer(partition)
        end
        look
      end

      # The last one is sent, or none may be sent.
      def stop = @stopped = true

      private

      # None is on its way.
      def forget(partition)
        partition.sent = nil
        partition.tracker.not_committed
      end

      # Brokers may accept less metadata than usual (`offset.metadata.max.bytes`). Then the next maps are shorter.
      def refused(partition, map, error)
        partition.tracker.too_long(map) if map && error.code == :offset_metadata_too_large
        partition.tracker.not_committed
      end

      def offsets_of(partitions)
        partitions.group_by(&:topic).transform_values do |list|
          list.to_h do |partition|
            offset, map = partition.sent = partition.tracker.to_commit
            shortened(partition) if partition.tracker.shortened
            [partition.number, Offset.new(offset:, metadata: map)]
          end
        end
      end

      def shortened(partition) = @main.event("offsets.map_shortened") { @subscription.about(partition) }
    end
    private_constant :Commits
  end
end
