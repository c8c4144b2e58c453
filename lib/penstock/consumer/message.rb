# frozen_string_literal: true

module Penstock
  # A consumed message. Immutable and, if its consumer has no deserializer, shareable between Ractors. It stays valid after its
  # consumer is closed.
  #
  # `new` makes one without a cluster, for tests of code that handles messages:
  #
  #     message = Penstock::Message.new(topic: "orders", payload: '{"id":1}', headers: { "trace" => "abc" })
  #     OrderHandler.new.call(message)
  class Message
    include AsJson

    KEYWORDS = %i[topic payload key partition offset timestamp timestamp_type headers leader_epoch deserializer
                  key_deserializer].freeze
    DECODED = %i[value decoded_key].freeze
    private_constant :KEYWORDS, :DECODED

    class << self
      # Makes a message that equals a consumed one: the Strings are copied, binary and frozen. Never blocks.
      #
      # @param topic [String, Symbol]
      # @param payload [String, nil] nil: a tombstone
      # @param key [String, nil]
      # @param partition [Integer] from 0
      # @param offset [Integer] from 0
      # @param timestamp [Time, Integer, nil] an Integer is ms since the epoch; nil: the message has none
      # @param timestamp_type [:create_time, :log_append_time]
      # @param headers [Hash{String, Symbol=>String, nil, Array<String, nil>}]
      # @param leader_epoch [Integer, nil]
      # @param deserializer [:json, #load, #call, nil] for {#value}; see {ConsumerConfig#deserializer}
      # @param key_deserializer [:json, #load, #call, nil] for {#decoded_key}
      # @return [Message]
      # @raise [ArgumentError] when a value is impossible for a consumed message
      # @overload new(topic:, payload: nil, key: nil, partition: 0, offset: 0, timestamp: nil, timestamp_type: :create_time,
      #   headers: {}, leader_epoch: nil, deserializer: nil, key_deserializer: nil)
      def new(*more, topic: nil, payload: nil, key: nil, partition: 0, offset: 0, timestamp: nil, timestamp_type: :create_time,
              headers: {}, leader_epoch: nil, deserializer: nil, key_deserializer: nil, **wrong)
        Keywords.check("new(topic: \"orders\", payload: \"...\")", KEYWORDS, more, wrong)
        build(topic_name(topic), integer(:partition, partition, 31), integer(:offset, offset, 63), milliseconds(timestamp),
              type(timestamp_type), bytes(:key, key), bytes(:payload, payload), frozen_headers(headers),
              leader_epoch && integer(:leader_epoch, leader_epoch, 31),
              Deserializer.of(codec(:deserializer, deserializer), codec(:key_deserializer, key_deserializer)))
      end

      private

      def topic_name(topic)
        name = topic.is_a?(Symbol) ? topic.name : topic
        return -name.b.force_encoding(Encoding::UTF_8) if name.is_a?(String) && TopicName.valid?(name)

        raise ArgumentError, ":topic must be a String or Symbol of 1 to 249 characters a-z A-Z 0-9 . _ -, not #{topic.inspect}"
      end

      def integer(name, value, bits)
        return value if value.is_a?(Integer) && value.between?(0, (2**bits) - 1)

        raise ArgumentError, ":#{name} must be an Integer from 0 to #{(2**bits) - 1}, not #{value.inspect}"
      end

      def milliseconds(timestamp)
        return timestamp if timestamp.nil?

        timestamp = (timestamp.to_r * 1000).floor if timestamp.is_a?(Time)
        integer(:timestamp, timestamp, 63)
      end

      def type(timestamp_type)
        return timestamp_type if %i[create_time log_append_time].include?(timestamp_type)

        raise ArgumentError, ":timestamp_type must be :create_time or :log_append_time, not #{timestamp_type.inspect}"
      end

      def codec(name, given)
        return given if given.nil? || Codec.method_of(given, :load)

        raise ArgumentError, ":#{name} must be nil, :json or an object with a method load or call, not #{given.inspect}"
      end

      def bytes(name, value)
        return value if value.nil?
        return value.b.freeze if value.is_a?(String)

        raise ArgumentError, ":#{name} must be a String or nil, not #{value.class}; use to_s"
      end

      def frozen_headers(headers)
        headers.is_a?(Hash) or raise ArgumentError, ":headers must be a Hash, not #{headers.class}"
        headers.to_h { |name, value| [header_name(name), header_value(name, value)] }.freeze
      end

      def header_name(name)
        text = name.is_a?(Symbol) ? name.name : name
        return -text.b.force_encoding(Encoding::UTF_8) if text.is_a?(String)

        raise ArgumentError, "a name of :headers must be a String or Symbol, not #{name.inspect}; use to_s"
      end

      def header_value(name, value)
        shown = "headers[#{name.inspect}]"
        value.is_a?(Array) ? value.map { |part| bytes(shown, part) }.freeze : bytes(shown, value)
      end
    end

    # @!method topic
    #   @return [String] UTF-8, frozen; the same object for the same topic
    # @!method partition
    #   @return [Integer]
    # @!method offset
    #   @return [Integer] its position in the partition
    # @!method timestamp
    #   @return [Integer, nil] ms since the epoch; nil: the message has none
    # @!method timestamp_type
    #   @return [Symbol, nil] :create_time, set by the producer, or :log_append_time, set by the broker; nil without a timestamp
    # @!method key
    #   @return [String, nil] binary and frozen; nil: the message has none
    # @!method payload
    #   @return [String, nil] binary and frozen; nil: a tombstone
    # @!method headers
    #   @return [Hash{String=>String, nil, Array<String, nil>}] frozen; empty if the message has none. Names are valid
    #     UTF-8: invalid bytes of another client become U+FFFD, as with Java's client. Values are binary and unchanged. The
    #     value is an Array if the name occurs more than once
    #   @raise [ConsumeError] when they cannot be read, see {#error}
    # @!method error
    #   @return [ConsumeError, nil] why the message cannot be read completely; nil: it can. Another client has written headers
    #     that cannot be read (`:bad_msg`): `headers` and `to_h` raise this error, everything else can be read
    # @!method value
    #   The object of the payload, as {ConsumerConfig#deserializer} reads it; without one, the payload. The first call decodes it,
    #   and the message keeps it: later calls return the same object, which is as mutable as the deserializer made it.
    #   @return [Object, nil] nil: a tombstone, or what the deserializer returned
    #   @raise [DeserializationError] when the deserializer raises; the next call tries again
    #   @raise [BatchReleasedError]
    # @!method decoded_key
    #   The object of the key, as {ConsumerConfig#key_deserializer} reads it; see {#value}.
    #   @return [Object, nil] nil also for a message without a key
    #   @raise [DeserializationError, BatchReleasedError]
    # @!method leader_epoch
    #   @return [Integer, nil] of the leader that stored it; nil if unknown (requires librdkafka 2.1 or newer)

    # @return [Boolean] whether it has no payload
    def tombstone? = payload.nil?

    # For pattern matching. A pattern that names `value` or `decoded_key` decodes it.
    # @return [Hash]
    def deconstruct_keys(keys) = { **to_h, **(keys.to_a & DECODED).to_h { |name| [name, public_send(name)] } }

    # @return [Hash]
    def to_h
      { topic:, partition:, offset:, timestamp:, timestamp_type:, key:, payload:, headers:, leader_epoch: }
    end

    # @return [Boolean] whether the other is a message with equal attributes
    def ==(other) = other.is_a?(Message) && to_h == other.to_h
    alias eql? ==

    # @return [Integer]
    def hash = [topic, partition, offset].hash

    # @return [String] without payload and key
    def inspect = "#<#{self.class} topic=#{topic} partition=#{partition} offset=#{offset}>"

    # What no other message of the cluster has: for keys of idempotence, and logs.
    # @return [String] "topic/partition/offset"
    def id = "#{topic}/#{partition}/#{offset}"

    # (see AsJson#as_json)
    def as_json(_options = nil)
      json(topic:, partition:, offset:, timestamp:, timestamp_type: timestamp_type&.to_s, leader_epoch:)
    end
  end
end
