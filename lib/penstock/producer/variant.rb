# frozen_string_literal: true

module Penstock
  class Producer
    # A producer seen with other settings: {Producer#with}. It has all of the producer's methods that send.
    #
    # librdkafka fixes the settings of a topic when a client first uses it, so a variant with topic settings has a
    # client of its own (3 threads and connections), shared by all variants with the same settings; messages that are
    # sent with different ones are not ordered among each other. So make variants once, and keep them: a producer has at most
    # {MOST} of those clients. When there are more than a few, those of variants that the program has dropped are closed, once
    # their messages have their verdicts, as soon as a variant with further settings is made.
    #
    # Any thread and fiber may use it. While one of its methods runs, what the same fiber sends through the producer
    # itself goes through the variant too.
    class Variant
      include AsJson

      # What topic_config may hold: librdkafka's topic settings that concern sending.
      TOPIC_SETTINGS = %i[
        acks request.required.acks compression.codec compression.type compression.level delivery.timeout.ms
        message.timeout.ms partitioner request.timeout.ms
      ].freeze

      # Variants with different topic settings that a producer may have at once: those that the program has kept, and those that
      # have messages in flight.
      MOST = 100

      # @return [Producer]
      attr_reader :producer
      # @return [Integer, nil] ms
      attr_reader :max_wait_timeout
      # @return [Hash{Symbol=>Object}] frozen
      attr_reader :topic_config

      # Penstock makes them.
      def initialize(internals, max_wait_timeout:, topic_config:)
        @internals = internals
        @producer = internals.producer
        @max_wait_timeout = max_wait_timeout
        @topic_config = topic_config
        freeze
      end

      # @return [Boolean] whether it is the producer as it was configured
      def default? = topic_config.empty? && max_wait_timeout == producer.config.max_wait_timeout

      %i[
        produce_sync produce_async produce_many_sync produce_many_async tombstone_sync tombstone_async tombstone_many_sync
        tombstone_many_async buffer buffer_many flush_sync flush_async transaction shareable
      ].each do |name|
        define_method(name) do |*arguments, &block|
          @internals.variants.as(self) { producer.public_send(name, *arguments, &block) }
        end
      end

      # @return [String]
      def inspect
        "#<#{self.class} of #{Text.printable(producer.id)} max_wait_timeout=#{max_wait_timeout.inspect} #{topic_config}>"
      end

      # (see AsJson#as_json)
      def as_json(_options = nil)
        json(producer: producer.id, max_wait_timeout:, topic_config: topic_config.to_h { |name, value| [name.to_s, value.to_s] })
      end
    end
  end
end
