# frozen_string_literal: true

module Penstock
  class Producer
    # The connections of a producer: its own, and one for all {Variant}s with the same topic settings. Each used connection
    # costs threads, so there are at most {Variant::MOST} for variants. Connections that no variant uses any more are closed
    # for others.
    # @api private
    class Variants
      # The key of a connection without a client, which has the counters of closed connections.
      REMAINS = :remains
      # Up to this number, connections of garbage-collected variants are kept: a program that makes a variant for each
      # message has few different settings, and uses them again.
      KEPT = 10
      private_constant :REMAINS, :KEPT

      # @return [Connection] with the producer's own settings
      attr_reader :own
      # @return [Boolean] whether a variant was ever made
      attr_reader :any
      alias any? any

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @own = Connection.new(internals)
        @connections = { {} => @own } # replaced as a whole: other threads may be iterating over it
        @making = Mutex.new
        @made = Native::WeakList.new
        @any = false
        @key = :"penstock_variant_#{object_id}"
      end

      # @return [Array<Connection>]
      def connections = @connections.values

      # @return [Array<Native::ProducerClient>] in use
      def clients = @connections.values.filter_map(&:client)

      # @return [Connection] for messages of the current fiber
      def connection
        return @own unless @any

        variant = Thread.current[@key]
        variant ? @connections.fetch(variant.topic_config) : @own
      end

      # @return [Integer, nil] ms that calls of the current fiber wait for delivery results
      def max_wait_timeout
        variant = @any && Thread.current[@key]
        variant ? variant.max_wait_timeout : @internals.config&.max_wait_timeout
      end

      # @return [Variant] the current fiber's
      def current
        Thread.current[@key] ||
          Variant.new(@internals, max_wait_timeout: @internals.config.max_wait_timeout, topic_config: {}.freeze)
      end

      # Runs the block with the variant as {#current}.
      def as(variant)
        before = Thread.current[@key]
        Thread.current[@key] = variant
        yield
      ensure
        Thread.current[@key] = before
      end

      # @return [Variant]
      # @raise [VariantInvalidError]
      def make(max_wait_timeout, topic_config)
        topic_config = VariantChecks.new(@internals).call(max_wait_timeout, topic_config)
        @making.synchronize do
          add_connection(topic_config) unless @connections.key?(topic_config)
          @any = true
          Variant.new(@internals, max_wait_timeout:, topic_config:) { |variant| @made.add(variant) }
        end
      end

      # @return [String]
      def inspect = "#<#{self.class} #{@connections.size}>"

      private

      def add_connection(topic_config)
        forget_unused if of_variants.size >= KEPT
        if of_variants.size >= Variant::MOST
          GC.start # dropped variants may not be collected yet
          forget_unused
          raise_too_many if of_variants.size >= Variant::MOST
        end
        @connections = { topic_config => Connection.new(@internals, VariantChecks.overrides(topic_config)), **@connections }
      end

      def of_variants = @connections.reject { |settings, _| settings.empty? || settings == REMAINS }

      # A connection is used only through a variant, so without variants it stays unused. But it may have messages to
      # deliver, or be used by other Ractors.
      def forget_unused
        used = @made.to_a.map(&:topic_config)
        unused = of_variants.select do |settings, connection|
          connection.slot.nil? && connection.queue_size.zero? && !used.include?(settings)
        end
        unused.each_value { |connection| connection.give_up(@internals.config.close_timeout) }
        gone = unused.select { |_, connection| connection.clients.empty? }
        return if gone.empty?

        remains = Connection.remains(@internals, [*gone.values, *@connections[REMAINS]])
        @connections = { **@connections.except(*gone.keys), REMAINS => remains }
      end

      def raise_too_many
        raise ErrorFactory.build(VariantInvalidError,
                                 "topic_config: #{Variant::MOST} variants with other topic settings are in use, " \
                                 "each with a client of its own",
                                 "Make one variant for each combination of settings, and keep it, instead of one for " \
                                 "each message.", producer_id: @internals.id)
      end
    end
  end
end
