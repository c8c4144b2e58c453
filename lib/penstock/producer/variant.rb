# frozen_string_literal: true

module Penstock
  class Producer
    # A producer with other settings; see {Producer#with}. It has all sending methods of the producer.
    #
    # librdkafka fixes the settings of a topic when a client first uses the topic. So a variant with topic settings has a
    # client of its own (3 threads and connections), shared by all variants with the same settings. Messages with different
    # settings are not ordered among each other. Make variants once and keep them: a producer has at most {MOST} of those
    # clients. When there are more than a few, making another variant closes the clients of garbage-collected variants whose
    # messages have all their delivery results.
    #
    # Any thread and fiber may use it. While one of its methods runs, messages that the same fiber sends through the
    # producer itself use the variant's settings too.
    class Variant
      include AsJson

      # The possible names in topic_config: librdkafka's topic settings for producers.
      TOPIC_SETTINGS = %i[
        acks request.required.acks compression.codec compression.type compression.level delivery.timeout.ms
        message.timeout.ms partitioner request.timeout.ms
      ].freeze

      # Maximum number of variants with different topic settings at once. Variants that the program keeps count, and those
      # with messages in flight.
      MOST = 100

      # @return [Producer]
      attr_reader :producer
      # @return [Integer, nil] ms
      attr_reader :max_wait_timeout
      # @return [Hash{Symbol=>Object}] frozen
      attr_reader :topic_config

      # Penstock makes the variants.
      # @yieldparam variant [Variant] not frozen yet
      def initialize(internals, max_wait_timeout:, topic_config:)
        @internals = internals
        @producer = internals.producer
        @max_wait_timeout = max_wait_timeout
        @topic_config = topic_config
        yield self if block_given?
        freeze
      end

      # @return [Boolean] whether it has the settings of the producer itself
      def default? = topic_config.empty? && max_wait_timeout == producer.config.max_wait_timeout

      %i[
        produce_sync produce_async produce_many_sync produce_many_async tombstone_sync tombstone_async tombstone_many_sync
        tombstone_many_async buffer buffer_many flush_sync flush_async shareable
      ].each do |name|
        define_method(name) do |*arguments, &block|
          @internals.variants.as(self) { producer.public_send(name, *arguments, &block) }
        end
      end

      # See {Producer#transaction}.
      def transaction(*arguments, **options, &block)
        @internals.variants.as(self) { producer.transaction(*arguments, **options, &block) }
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
