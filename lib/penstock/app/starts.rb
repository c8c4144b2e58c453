# frozen_string_literal: true

module Penstock
  class App
    # Reads where newly assigned partitions begin, and which messages behind that place are processed already. Of the loop's
    # thread; the question runs on a thread of its own.
    # @api private
    class Starts
      include ShortInspect

      # Seconds: of a question, and until a question or hook that has failed comes again.
      TIMEOUT = 30
      AGAIN = 1
      private_constant :TIMEOUT, :AGAIN

      # @param subscription [Subscription]
      # @param main [Loop]
      def initialize(subscription, main)
        @subscription = subscription
        @main = main
      end

      # @param partitions [Array<Partition>] prepared when the answer is there
      def read(partitions)
        topics = partitions.group_by(&:topic).transform_values { |list| list.map(&:number) }
        consumer = @subscription.consumer
        question = -> { consumer.committed(topics, metadata: true, timeout: TIMEOUT) }
        @main.background("penstock.offsets", question) do |found, error|
          waiting = partitions.reject(&:cancelled?)
          next if waiting.empty?

          error ? again(waiting, error) : waiting.each { |partition| begin_at(partition, found) }
        end
      end

      # Karafka's names.
      ENDS = { revoked: "consumer.revoked", stopping: "consumer.shutdown" }.freeze
      private_constant :ENDS

      # @param work [HookWork] has run
      def tell(work)
        hook_failed(work) if work.error
        name = ENDS[work.hook] or return
        @main.event(name) { @subscription.about(work.partition) }
      end

      # @param work [HookWork]
      def hook_failed(work)
        partition = work.partition
        return @main.fail(work.error) if partition.route.fatal?(work.error)

        @main.error("consumer.#{work.hook}.error", work.error, **@subscription.about(partition))
        return unless work.hook == :assigned && !partition.cancelled?

        @main.timers.after(AGAIN) { @main.submit(partition.prepare) unless partition.cancelled? }
      end

      private

      def again(partitions, error)
        return if error.is_a?(ConsumerClosedError)

        @main.error("consumer.offsets.error", error, group: @subscription.group.id)
        @main.timers.after(AGAIN) do
          waiting = partitions.reject(&:cancelled?)
          read(waiting) unless waiting.empty?
        end
      end

      def begin_at(partition, found)
        committed = found.dig(partition.topic, partition.number)
        partition.tracker.begin_at(committed.offset, map_of(partition, committed)) if committed
        @main.submit(partition.prepare)
      end

      def map_of(partition, committed)
        text = committed.metadata.to_s
        return [] if text.empty?

        OffsetMap.load(text, committed.offset, partition.place.join("/")) || ignored(partition, "of another offset")
      rescue OffsetMap::Invalid => e
        ignored(partition, e.message)
      end

      def ignored(partition, reason)
        @main.event("offsets.map_ignored") { { **@subscription.about(partition), reason: } }
        []
      end
    end
    private_constant :Starts
  end
end
