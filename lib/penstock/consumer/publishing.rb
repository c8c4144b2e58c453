# frozen_string_literal: true

module Penstock
  # What the core calls when something happens that listeners may want to know.
  # @api private
  module ConsumerPublishing
    private

    def publish_connected = notifier.instrument("consumer.connected") { { caller: self } }
    def publish_news = notifier.publish_news
    def publish_polled(messages) = notifier.polled(messages)
    def publish_ends(batch) = notifier.ended(batch)

    def publish_poll_error(error)
      notifier.error("consumer.poll", error, topic: error.topic, partition: error.partition, offset: error.offset)
    end

    # Called by a poll, and by close.
    # @return [Array<Array(String, Integer, Integer)>, nil] start offsets
    def rebalanced(kind, places)
      return if places.empty?

      rebalance = Rebalance.new(self, by_topic(places), kind)
      listener = config.rebalance_listener
      method = kind == :lost && !listener.respond_to?(:lost) ? :revoked : kind
      listener.public_send(method, rebalance) if listener.respond_to?(method)
      rebalance.__send__(:starts)&.each { |place| @chosen[place.first(2)] = true }
    rescue StandardError, ScriptError => e
      notifier.error("rebalance_listener.error", e, partitions: rebalance&.partitions)
      raise
    end
  end
  private_constant :ConsumerPublishing
end
