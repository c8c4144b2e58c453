# frozen_string_literal: true

module Penstock
  module Listeners
    class Statsd < MetricsListener
      # Sends the numbers of consumers.
      # @api private
      class ConsumerNumbers
        # Members of ConsumerMetrics that only grow.
        COUNTS = { messages: "messages", bytes: "bytes", batches: "batches", empty_polls: "empty_polls",
                   rebalances: "rebalances", commits: "commits", failed_commits: "failed_commits", errors: "errors",
                   pauses: "pauses", dropped_events: "events.dropped" }.freeze
        private_constant :COUNTS

        def initialize(output, prefix)
          @output = output
          @prefix = prefix
        end

        # Consumers with the same tags are one.
        # @param collected [Array<Array(Consumer, ConsumerMetrics)>] what each has done since the last time
        # @yieldparam id [String]
        # @yieldreturn [Hash] its tags
        def send_all(collected)
          collected.group_by { |consumer, _| yield(consumer.id) }.each do |tags, parts|
            send_counts(parts.map(&:last), tags)
            send_gauges(parts.map(&:first).select { |consumer| consumer.status.connected? }, tags)
          end
        end

        private

        def send_counts(grown, tags)
          COUNTS.each do |member, name|
            number = grown.sum { |metrics| metrics[member] }
            @output.count("#{@prefix}.#{name}", number, tags) unless number.zero?
          end
        end

        def send_gauges(open, tags)
          metrics = open.map(&:metrics)
          @output.gauge("#{@prefix}.queue.messages", metrics.sum(&:queue_length), tags)
          @output.gauge("#{@prefix}.assigned_partitions", metrics.sum(&:assigned_partitions), tags)
          @output.gauge("#{@prefix}s.connected", open.size, tags)
        end
      end
      private_constant :ConsumerNumbers
    end
  end
end
