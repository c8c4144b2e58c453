# frozen_string_literal: true

module Penstock
  class Consumer
    # Which topics or partitions the consumer reads: {Consumer#subscribe}, {Consumer#assign}; and what it is in its group.
    # @api private
    class Subscription
      include ConsumerPlaces

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @client = internals.client
        @subscribed = @group_assigns = false
      end

      # @return [Boolean] whether it has subscribed, and not unsubscribed since
      def subscribed? = @subscribed

      # @return [Boolean] whether the group assigns its partitions, and not the program
      def group_assigns? = @group_assigns

      # See {Consumer#subscribe}.
      def subscribe(topics)
        @internals.need_group("subscribe")
        raise ArgumentError, "subscribe requires at least one topic" if topics.empty?

        # librdkafka rejects a list with an equal name without saying so.
        @client.subscribe(topics.map { |topic| topic_or_pattern(topic) }.uniq.map { |topic| [topic, -1, INVALID_OFFSET] })
        @subscribed = @group_assigns = true
        @internals.watch
      end

      # See {Consumer#unsubscribe}.
      def unsubscribe
        @client.subscribe(nil)
        @subscribed = false
      end

      # See {Consumer#assign}.
      # @param partitions [Hash]
      def assign(partitions, timeout)
        deadline = Deadline.new(timeout)
        chosen = @internals.offsets.resolve(@internals.offsets.starts_in(partitions), deadline)
        @internals.rebalances.settle if @group_assigns
        @client.assign_places(chosen)
        @group_assigns = false
        @internals.watch
      rescue ConsumeError => e
        raise e.code == :state ? cannot_assign : e
      end

      # See {Consumer#assignment}.
      # @return [Hash{String=>Array<Integer>}]
      def assignment = by_topic(@client.assignment)

      # See {Consumer#membership}.
      # @return [Membership]
      def membership
        @internals.need_group("membership")
        state, generation, member_id, error = @client.membership
        kafka = @internals.config.kafka
        protocol = kafka[:"group.protocol"].to_s == "consumer" ? :consumer : :classic
        instance_id = kafka[:"group.instance.id"]
        Membership.new(@subscribed ? state : nil, member_id, generation, protocol, instance_id&.to_s, error).freeze
      end

      # @return [String]
      def inspect = "#<#{self.class}>"

      private

      # librdkafka's own error for this is about partitions that are not assigned.
      # @return [ConsumeError]
      def cannot_assign
        ErrorFactory.build(ConsumeError, "a consumer that was subscribed with \"cooperative-sticky\" or the protocol " \
                                         "\"consumer\" cannot assign partitions",
                           "Nothing was assigned. Make another consumer for that, or use seek to change positions.",
                           consumer_id: @internals.id)
      end
    end
  end
end
