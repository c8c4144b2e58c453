# frozen_string_literal: true

require "json"

module Penstock
  # librdkafka's statistics of a consumer, without what would mislead. librdkafka goes on to list partitions that were taken away,
  # with their last numbers, and those that the consumer never had. An unknown number is -1 or -1001 there, also a lag.
  # @api private
  module ConsumerStatistics
    class << self
      # @param json [String]
      # @return [Hash{String => Object}] frozen: only assigned partitions, and nil in place of their unknown numbers
      def parse(json)
        all = JSON.parse(json, freeze: true)
        topics = all["topics"]
        return all unless topics.is_a?(Hash)

        { **all, "topics" => topics.transform_values { |topic| assigned(topic) }.freeze }.freeze
      end

      private

      def assigned(topic)
        partitions = topic["partitions"].select { |_, partition| partition["desired"] } # by the assignment
        { **topic, "partitions" => partitions.transform_values { |partition| known(partition) }.freeze }.freeze
      end

      def known(partition)
        partition.transform_values { |value| value.is_a?(Integer) && value.negative? ? nil : value }.freeze
      end
    end
  end
  private_constant :ConsumerStatistics
end
