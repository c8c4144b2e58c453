# frozen_string_literal: true

module Penstock
  # A place in a partition, with what is committed beside it. Immutable and shareable between Ractors.
  #
  #     consumer.commit({ "orders" => { 0 => Penstock::Offset.new(offset: 5, metadata: "until 12:30") } })
  #     consumer.committed("orders", 0, metadata: true)[0].metadata
  class Offset
    include AsJson

    # @return [Integer] the offset of the next message to read
    attr_reader :offset
    # @return [Integer, nil] of the leader that stored the message before it. Brokers compare it, to find that a partition was
    #   truncated. Requires librdkafka 2.1 or newer
    attr_reader :leader_epoch
    # @return [String, nil] a text of the program in UTF-8, frozen. Brokers accept up to `offset.metadata.max.bytes`, by default
    #   4,096. Of a committed offset it has the bytes that were committed. If they are not valid UTF-8, because another client has
    #   committed them, the encoding is `Encoding::BINARY`
    attr_reader :metadata

    class << self
      # An offset that brokers have answered. Another client may have committed any bytes.
      # @return [Offset]
      def received(offset, leader_epoch, metadata)
        allocate.tap { |received| received.__send__(:receive, offset, leader_epoch, metadata) }
      end

      # @return [String, nil]
      # @raise [ArgumentError] when librdkafka cannot send the metadata
      def metadata_to_send(offset) = offset.metadata && offset.__send__(:text, offset.metadata)
    end
    private_class_method :received, :metadata_to_send

    # @param offset [Integer] from 0
    # @param leader_epoch [Integer, nil] from 0
    # @param metadata [String, nil]
    # @raise [ArgumentError] when a value is invalid
    # @overload initialize(offset:, leader_epoch: nil, metadata: nil)
    def initialize(*more, offset:, leader_epoch: nil, metadata: nil, **wrong)
      Keywords.check("new(offset: 5, metadata: \"...\")", %i[offset leader_epoch metadata], more, wrong)
      @offset = number(:offset, offset, 63)
      @leader_epoch = leader_epoch && number(:leader_epoch, leader_epoch, 31)
      @metadata = metadata && utf8(text(metadata))
      freeze
    end

    # @return [Hash{Symbol => Integer, String, nil}]
    def to_h = { offset:, leader_epoch:, metadata: }

    # @return [Hash] for pattern matching
    def deconstruct_keys(_keys) = to_h

    # @return [Boolean] whether the other is an offset with equal attributes
    def ==(other) = other.is_a?(Offset) && to_h == other.to_h
    alias eql? ==

    # @return [Integer]
    def hash = to_h.hash

    # @return [String] without the metadata
    def inspect = "#<#{self.class} #{offset}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(offset:, leader_epoch:)

    private

    def receive(offset, leader_epoch, metadata)
      @offset = offset
      @leader_epoch = leader_epoch
      @metadata = metadata
      freeze
    end

    def number(name, value, bits)
      return value if value.is_a?(Integer) && value.between?(0, (2**bits) - 1)

      raise ArgumentError, ":#{name} must be an Integer from 0 to #{(2**bits) - 1}, not #{value.inspect}"
    end

    # Brokers store a text: they replace other bytes. Those that another client has committed can be committed again.
    def utf8(metadata)
      return metadata if metadata.dup.force_encoding(Encoding::UTF_8).valid_encoding?

      raise ArgumentError, ":metadata must be UTF-8; brokers would store other bytes"
    end

    def text(metadata)
      metadata.is_a?(String) or raise ArgumentError, ":metadata must be a String or nil, not #{metadata.class}"
      # Until 2.6.1 librdkafka sends other bytes behind a 0.
      raise ArgumentError, ":metadata must not have a 0 byte" if metadata.b.include?("\0")

      # librdkafka would send more of it than the length that it says.
      raise ArgumentError, ":metadata must have at most 32767 bytes, not #{metadata.bytesize}" if metadata.bytesize > 32_767

      -String.new(metadata)
    end
  end
end
