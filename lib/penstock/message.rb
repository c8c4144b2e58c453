# frozen_string_literal: true

module Penstock
  # A message as a consumer got it. Immutable, and shareable between Ractors; it stays good when its consumer has gone.
  class Message
    # @!method topic
    #   @return [String] UTF-8, frozen; the same object for the same topic
    # @!method partition
    #   @return [Integer]
    # @!method offset
    #   @return [Integer] its position in the partition
    # @!method timestamp
    #   @return [Integer, nil] ms since the epoch; nil: the message has none
    # @!method timestamp_type
    #   @return [Symbol, nil] :create_time, given by the producer, or :log_append_time, by the broker; nil without a timestamp
    # @!method key
    #   @return [String, nil] binary and frozen; nil: the message has none
    # @!method payload
    #   @return [String, nil] binary and frozen; nil: a tombstone
    # @!method headers
    #   @return [Hash{String=>String, nil, Array<String, nil>}] frozen, names UTF-8 (not valid if the bytes that another client
    #     wrote are not), values binary; an Array where a name comes more than once; empty if there are none
    # @!method leader_epoch
    #   @return [Integer, nil] of the broker that stored it; nil if unknown (librdkafka 2.1 or newer tells it)

    # @return [Boolean] whether it has no payload
    def tombstone? = payload.nil?

    # @return [Hash] what pattern matching sees
    def deconstruct_keys(_keys) = to_h

    # @return [Hash]
    def to_h
      { topic:, partition:, offset:, timestamp:, timestamp_type:, key:, payload:, headers:, leader_epoch: }
    end

    # @return [Boolean] a message that is the same in everything
    def ==(other) = other.is_a?(Message) && to_h == other.to_h
    alias eql? ==

    # @return [Integer]
    def hash = [topic, partition, offset].hash

    # @return [String] without payload and key
    def inspect = "#<#{self.class} topic=#{topic} partition=#{partition} offset=#{offset}>"
  end
end
