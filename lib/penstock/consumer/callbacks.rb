# frozen_string_literal: true

module Penstock
  class Consumer
    # What a client calls when something happens: {Native::ConsumerClient}, or in tests its replacement, such as
    # {Clients::InMemoryConsumer}. In the thread that polls or closes.
    # @api private
    class Callbacks
      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
      end

      # @return [Consumer] to which the client belongs
      def consumer = @internals.consumer

      # The client is in use.
      def connected = notifier.instrument("consumer.connected") { { caller: consumer } }

      # {Native::ConsumerClient#news} returns something.
      def news_arrived = notifier.publish_news

      # A poll is about to return messages.
      # @param messages [Batch, Array<Message>]
      def polled(messages) = notifier.polled(messages)

      # A poll is about to return ends of partitions.
      # @param batch [Batch]
      def ended(batch) = notifier.ended(batch)

      # A poll is about to raise an error.
      # @param error [ConsumeError]
      def poll_failed(error)
        notifier.error("consumer.poll", error, topic: error.topic, partition: error.partition, offset: error.offset)
      end

      # See {Rebalances#configured_starts}.
      def configured_starts(kind, places) = @internals.rebalances.configured_starts(kind, places)

      # See {Rebalances#rebalanced}.
      def rebalanced(kind, places, starts = nil) = @internals.rebalances.rebalanced(kind, places, starts)

      # @return [String]
      def inspect = "#<#{self.class} #{Text.printable(@internals.id)}>"

      private

      def notifier = @internals.notifier
    end
  end
end
