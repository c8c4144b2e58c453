# frozen_string_literal: true

module Penstock
  # Calls `config.deserializer` and `config.key_deserializer`, for the messages and batches of one consumer. Frozen; shareable if
  # the given objects are. Any thread and Ractor may call it.
  # @api private
  class Deserializer
    # One of the two settings.
    class Part
      # @param given [:json, #load, #call]
      # @param noun [String] what it reads
      # @param consumer_id [String, nil] for errors
      def initialize(given, noun, consumer_id)
        @given = given
        @noun = noun
        @codec = Codec.resolved(given, :load)
        @loads = Codec.method_of(given, :load) == :load
        @consumer_id = consumer_id.dup.freeze
        freeze
      end

      # @param bytes [String, nil]
      # @param messages [Message, Batch] where the bytes are from, for errors
      # @param index [Integer, nil] which message of the batch
      # @return [Object, nil]
      # @raise [DeserializationError] when the given object raises. Its text may quote the bytes, so ours does not repeat it
      def read(bytes, messages, index = nil)
        return if bytes.nil?

        @loads ? @codec.load(bytes) : @codec.call(bytes)
      rescue StandardError, ScriptError, SystemStackError => e
        message = index ? messages[index] : messages
        text = "the #{@noun} could not be decoded: the deserializer #{Codec.name_of(@given)} raised #{e.class}"
        raise ErrorFactory.build(DeserializationError, text, "Skip the message or send it elsewhere: its bytes can be read.",
                                 consumer_id: @consumer_id, topic: message.topic, partition: message.partition,
                                 offset: message.offset)
      end
    end
    private_constant :Part

    # @param value [:json, #load, #call, nil]
    # @param key [:json, #load, #call, nil]
    # @param consumer_id [String, nil]
    # @return [Deserializer, nil] nil: nothing is decoded
    def self.of(value, key, consumer_id = nil) = (new(value, key, consumer_id) if value || key)

    # @return [Part, nil] nil: the bytes are returned
    attr_reader :value, :key

    # @see of
    def initialize(value, key, consumer_id)
      @value = value && Part.new(value, "payload", consumer_id)
      @key = key && Part.new(key, "key", consumer_id)
      freeze
    end
  end
  private_constant :Deserializer
end
