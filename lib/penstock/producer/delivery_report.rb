# frozen_string_literal: true

module Penstock
  # The delivery result of one message. Immutable.
  class DeliveryReport
    include AsJson

    # @return [String]
    attr_reader :topic
    # @return [Integer, nil] nil if the message failed before it had a partition
    attr_reader :partition
    # @return [Integer, nil] its position in the partition; nil if it has none (failed, or acks=0)
    attr_reader :offset
    # @return [Integer, nil] ms since the epoch, as stored: the message's own, or the broker's if the topic is configured so
    attr_reader :timestamp
    # @return [Float, nil] ms from produce to the broker's answer, measured by librdkafka; nil if the message failed
    attr_reader :latency
    # Whether the message is in the topic. Only a message that is not persisted can be sent again without the risk of a
    # duplicate (librdkafka's rd_kafka_message_status).
    # @return [:persisted, :possibly_persisted, :not_persisted]
    attr_reader :status
    # @return [Object, nil] the message's label
    attr_reader :label
    # @return [DeliveryError, ProducerFencedError, BrokerRejectedError, nil] nil if the message was delivered
    attr_reader :error

    alias topic_name topic

    # Penstock makes the reports.
    def initialize(topic, partition, offset, timestamp, latency, status, label, error)
      @topic = topic
      @partition = partition
      @offset = offset
      @timestamp = timestamp
      @latency = latency
      @status = status
      @label = label
      @error = error
      freeze
    end

    # @return [Boolean]
    def delivered? = error.nil?

    # @return [Boolean] whether the message is in the topic
    def persisted? = status == :persisted
    # @return [Boolean] whether the message may be in the topic
    def possibly_persisted? = status == :possibly_persisted
    # @return [Boolean] whether the message certainly is not in the topic
    def not_persisted? = status == :not_persisted

    # @return [Hash{Symbol => Object}] all attributes
    def to_h = { topic:, partition:, offset:, timestamp:, latency:, status:, label:, error: }

    # @return [Hash] for pattern matching
    def deconstruct_keys(_keys) = to_h

    # @return [String] without the label
    def inspect
      result = error ? "error=#{error.code}" : "offset=#{offset}"
      "#<#{self.class} topic=#{topic} partition=#{partition} #{result} status=#{status}>"
    end

    # (see AsJson#as_json)
    def as_json(_options = nil)
      json(topic:, partition:, offset:, timestamp:, latency:, status: status.to_s, error: error&.as_json)
    end
  end
end
