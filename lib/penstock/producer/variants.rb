# frozen_string_literal: true

module Penstock
  class Producer
    # The connections of a producer: its own, and one for all {Variant}s that have the same topic settings. Each costs threads
    # once it is used, so there are {Variant::MOST} of variants at most; and those that no variant uses any more make room for
    # others.
    # @api private
    class Variants
      # Of no client any more, but with what those of others have done.
      REMAINS = :remains
      # Those of others are kept up to that many: who makes a variant for each message has few settings, and comes back to them.
      KEPT = 10
      private_constant :REMAINS, :KEPT

      # @return [Connection] of the producer as it was configured
      attr_reader :own
      # @return [Boolean] whether a variant was ever made
      attr_reader :any
      alias any? any

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @own = Connection.new(internals)
        @connections = { {} => @own } # replaced as a whole: others may be going through it
        @making = Mutex.new
        @used_settings = ObjectSpace::WeakMap.new
        @any = false
        @key = :"penstock_variant_#{object_id}"
      end

      # @return [Array<Connection>]
      def connections = @connections.values

      # @return [Array<Native::ProducerClient>] that are in use
      def clients = @connections.values.filter_map(&:client)

      # @return [Connection] that the current fiber's messages go through
      def connection
        return @own unless @any

        variant = Thread.current[@key]
        variant ? @connections.fetch(variant.topic_config) : @own
      end

      # @return [Integer, nil] ms that the current fiber's calls wait for verdicts
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
          @used_settings[topic_config] = topic_config # as long as a variant has them
          @any = true
          Variant.new(@internals, max_wait_timeout:, topic_config:)
        end
      end

      # @return [String]
      def inspect = "#<#{self.class} #{@connections.size}>"

      private

      def add_connection(topic_config)
        forget_unused if of_variants.size >= KEPT
        if of_variants.size >= Variant::MOST
          GC.start # what is dropped may be there still
          forget_unused
          raise_more if of_variants.size >= Variant::MOST
        end
        own = topic_config.dup.freeze # the given one is the variants', and may be gone
        @connections = { own => Connection.new(@internals, VariantChecks.overrides(own)), **@connections }
      end

      def of_variants = @connections.reject { |settings, _| settings.empty? || settings == REMAINS }

      # Only a variant leads to its connection, so what none leads to stays unused; but it may have messages to deliver, or be
      # other Ractors'.
      def forget_unused
        used = @used_settings.values
        unused = of_variants.select do |settings, connection|
          connection.slot.nil? && connection.queue_size.zero? && !used.include?(settings)
        end
        unused.each_value { |connection| connection.give_up(@internals.config.close_timeout) }
        gone = unused.select { |_, connection| connection.clients.empty? }
        return if gone.empty?

        remains = Connection.remains(@internals, [*gone.values, *@connections[REMAINS]])
        @connections = { **@connections.except(*gone.keys), REMAINS => remains }
      end

      def raise_more
        raise ErrorFactory.build(VariantInvalidError,
                                 "topic_config: #{Variant::MOST} variants with other topic settings are in use, " \
                                 "each with a client of its own",
                                 "Make one for each combination of settings that there is, and keep it, instead of settings " \
                                 "for each message.", producer_id: @internals.id)
      end
    end
  end
end
