# frozen_string_literal: true

module Penstock
  module Listeners
    # The common part of the listeners for metrics: the producers that they read, and a ledger for each process.
    # @api private
    class MetricsListener
      include AsJson

      # Events of a call in which messages were sent.
      PRODUCED = %i[on_message_produced_sync on_message_produced_async on_messages_produced_sync
                    on_messages_produced_async].freeze
      private_constant :PRODUCED

      # @param topics [Integer] maximum number of topics by name
      # @raise [ArgumentError] when it is invalid
      def initialize(topics:)
        unless topics.is_a?(Integer) && !topics.negative?
          raise ArgumentError, "topics must be an Integer of at least 0, not #{topics.inspect}"
        end

        @topic_limit = topics
        @topics = {}
        @books = new_books([])
        @all_books = [@books]
      end

      # Called by the monitor.
      def subscribed_to(monitor)
        ProducerRegistry.connected_to(monitor).each { |producer| watch(producer) }
        ConsumerRegistry.connected_to(monitor).each { |consumer| watch_consumer(consumer) }
      end

      # Called by the monitor.
      def on_producer_connected(event) = watch(ProducerRegistry.of(event[:caller]))

      # Called by the monitor.
      def on_consumer_connected(event) = watch_consumer(event[:caller])

      private

      # Of this process. Of several threads that come first in a forked child, all get the same.
      def books
        books = @books
        return books if books.pid == Process.pid

        @all_books << new_books(books.producers)
        @books = @all_books.find { |one| one.pid == Process.pid }
      end

      def new_books(producers) = MetricsLedger.new(producers)

      def watch(producer) = books.watch(producer)

      def watch_consumer(consumer) = books.watch_consumer(consumer)

      # @return [String] its name, of the first topics; later ones are all one
      def topic_label(topic)
        return topic if @topics.key?(topic)
        return EventFormatter::OTHER if @topics.size >= @topic_limit

        @topics[topic] = true
        topic
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
