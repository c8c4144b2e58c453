# frozen_string_literal: true

module Penstock
  class App
    # How far the partitions of a member are behind. Of the loop's thread; the leaders are asked on a thread of its own.
    #
    # librdkafka knows the end of a partition from its latest request for messages. It makes none while much of the partition
    # waits, so the leaders are asked, too.
    # @api private
    class Lags
      include ShortInspect

      # Seconds.
      EVERY = 10
      TIMEOUT = 5
      private_constant :EVERY, :TIMEOUT

      # @param subscription [Subscription]
      # @param main [Loop]
      def initialize(subscription, main)
        @subscription = subscription
        @main = main
        @ends = {} # by place, of the latest answer
      end

      # Asks from time to time.
      def keep_asking
        @main.timers.after(EVERY) do
          next if @subscription.stopping? || @subscription.closed?

          topics = by_topic
          topics.empty? ? keep_asking : ask(topics)
        end
      end

      # @return [Hash{Array(String, String) => Integer}] by group and topic, of those that are known
      def now
        partitions = @subscription.partitions.select { |partition| partition.tracker.base }
        cached = partitions.empty? ? {} : @subscription.consumer.watermarks(by_topic(partitions), cached: true)
        partitions.each_with_object({}) do |partition, lags|
          last = [cached.dig(*partition.place)&.last, @ends[partition.place]].compact.max or next
          place = [@subscription.group.id, partition.topic]
          lags[place] = lags.fetch(place, 0) + [last - partition.tracker.base, 0].max
        end
      rescue Error
        {} # the consumer is closed
      end

      private

      def by_topic(partitions = @subscription.partitions)
        partitions.group_by(&:topic).transform_values { |list| list.map(&:number) }
      end

      def ask(topics)
        consumer = @subscription.consumer
        @main.background("penstock.lags", -> { consumer.watermarks(topics, timeout: TIMEOUT) }) do |found, _error|
          # Without an answer the earlier one counts.
          @ends = found.flat_map { |topic, list| list.map { |number, (_, last)| [[topic, number], last] } }.to_h if found
          keep_asking
        end
      end
    end
    private_constant :Lags
  end
end
