# frozen_string_literal: true

module Penstock
  class App
    # All settings of an application, checked and complete. Frozen.
    # @api private
    Settings = Struct.new(:kafka, :producer_kafka, :groups, :threads, :commit_interval, :drain_timeout, :shutdown_timeout,
                          :memory, :logger, :monitor, :producer, :hooks, :stall_after, :probe, :topics, :origins,
                          keyword_init: true) do
      include ShortInspect

      # @return [Integer] consumers of all groups
      def members = groups.sum(&:connections)

      # @return [Integer] the least `memory`
      def least_memory = least * (members + 1)

      # @return [Integer] how much messages may take that are polled and not processed
      def backlog_bytes = memory ? memory - (members * consumer_memory) : 64 << 20

      # Half of the memory is for what consumers have fetched, if that is enough.
      # @return [Integer, nil] for {ConsumerConfig#memory}
      def consumer_memory = memory && [memory / 2 / members, least].max

      # @return [Integer] the least for {ConsumerConfig#memory}
      def least = 8 << 20
      private :least

      # Without a logger, to stderr.
      # @param level [:error, :warn]
      def log(level, text)
        logger ? logger.public_send(level, "penstock") { text } : $stderr.write("penstock: #{text}\n")
      end

      # @return [Producer] of the application's own
      def new_producer
        Producer.new do |config|
          config.kafka = { **SettingTable.for_role(kafka, :producer), **producer_kafka }
          config.logger = logger
        end
      end
    end
    private_constant :Settings
  end
end
