# frozen_string_literal: true

module Penstock
  class Producer
    # The connections of {Variant}s, one for all that have the same topic settings. Each costs threads once it is used, so there
    # are {Variant::MOST} at most; and those that no variant uses any more make room for others.
    # @api private
    module Variants
      # Of no client any more, but with what those of others have done.
      REMAINS = :remains
      # Those of others are kept up to that many: who makes a variant for each message has few settings, and comes back to them.
      KEPT = 10
      private_constant :REMAINS, :KEPT

      private

      # @return [Variant]
      def make_variant(max_wait_timeout, topic_config)
        @making_variants.synchronize do
          add_connection(topic_config) unless @connections.key?(topic_config)
          @used_settings[topic_config] = topic_config # as long as a variant has them
          @variants = true
          Variant.new(self, max_wait_timeout:, topic_config:)
        end
      end

      # Replaced as a whole: others may be going through it.
      def add_connection(topic_config)
        forget_unused_variants if variant_connections.size >= KEPT
        if variant_connections.size >= Variant::MOST
          GC.start # what is dropped may be there still
          forget_unused_variants
          refuse_more_variants if variant_connections.size >= Variant::MOST
        end
        own = topic_config.dup.freeze # the given one is the variants', and may be gone
        @connections = { own => Connection.new(self, overrides(own)), **@connections }
      end

      def variant_connections = @connections.reject { |settings, _| settings.empty? || settings == REMAINS }

      # Only a variant leads to its connection, so what none leads to stays unused; but it may have messages to deliver, or be
      # other Ractors'.
      def forget_unused_variants
        used = @used_settings.values
        unused = variant_connections.select do |settings, connection|
          connection.slot.nil? && connection.queue_size.zero? && !used.include?(settings)
        end
        unused.each_value { |connection| connection.give_up(config.close_timeout) }
        gone = unused.select { |_, connection| connection.clients.empty? }
        return if gone.empty?

        remains = Connection.remains(self, [*gone.values, *@connections[REMAINS]])
        @connections = { **@connections.except(*gone.keys), REMAINS => remains }
      end

      def refuse_more_variants
        raise VariantInvalidError,
              "topic_config: #{Variant::MOST} variants with other topic settings are in use, each with a client of its own; " \
              "make one for each combination of settings that there is, and keep it, instead of settings for each message " \
              "[producer #{id}]"
      end
    end
  end
end
