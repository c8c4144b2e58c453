# frozen_string_literal: true

module Penstock
  class App
    # Makes the consumers of groups.
    # @api private
    module Member
      # From this version on librdkafka does not abort the process with it.
      COOPERATIVE_SINCE = "2.3.0"
      private_constant :COOPERATIVE_SINCE

      class << self
        # @param group [GroupSettings]
        # @param settings [Settings]
        # @param listener [Listener]
        # @param monitor [Monitor]
        # @param runtime [Runtime]
        # @return [Consumer]
        def build(group, settings, listener, monitor, runtime)
          consumer = Consumer.new do |config|
            config.kafka = kafka(group)
            config.mark = :at_once
            config.rebalance_listener = listener
            config.hold_rebalances = (settings.drain_timeout * 1000).to_i
            config.memory = settings.consumer_memory
            config.logger = settings.logger
            config.monitor = monitor
            config.client_class = runtime.client_class
            config.stuck_after = [(settings.stall_after * 500).to_i, 1].max if runtime.asks_leaders?
          end
          client = ConsumerRegistry.of(consumer).client
          client.hold_always
          decoders = Decoders.of(group)
          client.decode_with(decoders) if decoders
          consumer
        end

        private

        def kafka(group)
          settings = { **strategy(group), "auto.offset.reset": "earliest", **group.kafka }
          settings[:"enable.partition.eof"] = true if Maker.with_ends(group.routes).any?
          { **settings, "group.id": group.id, "enable.auto.commit": false }
        end

        def strategy(group)
          return {} if group.kafka[:"group.protocol"].to_s == "consumer"

          new = (numbers(Penstock.librdkafka_version) <=> numbers(COOPERATIVE_SINCE)) >= 0
          { "partition.assignment.strategy": new ? "cooperative-sticky" : "range" }
        end

        def numbers(version) = version.scan(/\d+/).first(3).map { |number| Integer(number) }
      end
    end
    private_constant :Member
  end
end
