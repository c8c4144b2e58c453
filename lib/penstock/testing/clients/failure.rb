# frozen_string_literal: true

module Penstock
  module Clients
    # Makes the errors of clients that send nothing, equal to those of a real client.
    # @api private
    class Failure
      include AsJson

      # The possible codes: librdkafka's number, name and description, and :maybe if such a message may be in the topic.
      CODES = {
        invalid_msg: [2, "INVALID_MSG", "Broker: Invalid message"],
        unknown_topic_or_part: [3, "UNKNOWN_TOPIC_OR_PART", "Broker: Unknown topic or partition"],
        not_leader_for_partition: [6, "NOT_LEADER_FOR_PARTITION", "Broker: Not leader for partition"],
        request_timed_out: [7, "REQUEST_TIMED_OUT", "Broker: Request timed out", :maybe],
        msg_size_too_large: [10, "MSG_SIZE_TOO_LARGE", "Broker: Message size too large"],
        record_list_too_large: [18, "RECORD_LIST_TOO_LARGE",
                                "Broker: Message batch larger than configured server segment size"],
        not_enough_replicas: [19, "NOT_ENOUGH_REPLICAS", "Broker: Not enough in-sync replicas"],
        not_enough_replicas_after_append: [20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
                                           "Broker: Message(s) written to insufficient number of in-sync replicas", :maybe],
        topic_authorization_failed: [29, "TOPIC_AUTHORIZATION_FAILED", "Broker: Topic authorization failed"],
        cluster_authorization_failed: [31, "CLUSTER_AUTHORIZATION_FAILED", "Broker: Cluster authorization failed"],
        invalid_timestamp: [32, "INVALID_TIMESTAMP", "Broker: Invalid timestamp"],
        policy_violation: [44, "POLICY_VIOLATION", "Broker: Policy violation"],
        kafka_storage_error: [56, "KAFKA_STORAGE_ERROR", "Broker: Disk error when trying to access log file on disk", :maybe],
        invalid_record: [87, "INVALID_RECORD", "Broker: Broker failed to validate record"],
        fenced: [-144, "_FENCED", "Local: This instance has been fenced by a newer instance"],
        not_configured: [-145, "_NOT_CONFIGURED", "Local: Functionality not configured"],
        inconsistent: [-149, "_INCONSISTENT", "Local: Inconsistent state"],
        fatal: [-150, "_FATAL", "Local: Fatal error"],
        purge_inflight: [-151, "_PURGE_INFLIGHT", "Local: Purged in flight", :maybe],
        purge_queue: [-152, "_PURGE_QUEUE", "Local: Purged in queue"],
        authentication: [-169, "_AUTHENTICATION", "Local: Authentication failure"],
        state: [-172, "_STATE", "Local: Erroneous state"],
        queue_full: [-184, "_QUEUE_FULL", "Local: Queue full"],
        timed_out: [-185, "_TIMED_OUT", "Local: Timed out", :maybe],
        unknown_topic: [-188, "_UNKNOWN_TOPIC", "Local: Unknown topic"],
        unknown_partition: [-190, "_UNKNOWN_PARTITION", "Local: Unknown partition"],
        msg_timed_out: [-192, "_MSG_TIMED_OUT", "Local: Message timed out"],
        transport: [-195, "_TRANSPORT", "Local: Broker transport failure", :maybe]
      }.freeze
      Ractor.make_shareable(CODES)

      # Codes that produce raises, without accepting the message. The others are delivery results of accepted messages.
      NOT_ACCEPTED = { queue_full: QueueFullError, fatal: ProduceError, state: ProduceError }.freeze

      NOT_PERSISTED = "the message was not delivered and is not in the topic"
      POSSIBLY_PERSISTED = "the message was not acknowledged, but it may be in the topic"
      private_constant :NOT_PERSISTED, :POSSIBLY_PERSISTED

      # @return [Symbol, Error] the given value
      # @raise [ArgumentError] when it is neither one of {CODES} nor an {Error}
      def self.checked(wanted)
        return wanted if wanted.is_a?(Error) || CODES.key?(wanted)

        hint = Suggestion.hint(wanted, CODES.keys) if wanted.is_a?(Symbol)
        raise ArgumentError, "a message cannot fail with #{wanted.inspect}#{hint}: use a Penstock::Error, or a " \
                             "code such as :msg_timed_out (all are in Penstock::Clients::Failure::CODES)"
      end

      # @return [Boolean] whether the message was accepted and then failed; else it was not accepted
      def self.delivery_result?(error) = error.is_a?(DeliveryError) || error.is_a?(ProducerFencedError)

      # @return [MessageInvalidError]
      def self.not_an_array(messages)
        ErrorFactory.build(MessageInvalidError, "produce_many takes an Array of messages, not #{messages.class}")
      end

      def initialize(producer_id, brokers)
        @producer_id = producer_id
        @brokers = brokers
      end

      # @return [Error] for one message: raised unless {.delivery_result?}
      def of(wanted, topic, partition)
        return wanted if wanted.is_a?(Error)
        return rejection(wanted, topic, partition) if NOT_ACCEPTED.key?(wanted)
        return build(ProducerFencedError, wanted, NOT_PERSISTED, topic:, partition:, fatal: true) if wanted == :fenced

        possibly = CODES.fetch(wanted)[3]
        build(wanted == :msg_timed_out ? MessageTimedOutError : DeliveryError, wanted,
              possibly ? POSSIBLY_PERSISTED : NOT_PERSISTED, topic:, partition:, retriable: !possibly)
      end

      # @param text [String, nil] nil: librdkafka's description of the code
      # @return [Error]
      def build(error_class, code, text = nil, topic: nil, partition: nil, **traits)
        cause = code ? CODES.fetch(code).first(3) : [0, nil, nil]
        owner = [@producer_id, nil, nil, @brokers]
        ErrorFactory.build_native(error_class, text || cause.last, cause, owner, nil, [topic, partition],
                                  traits.values_at(:fatal, :retriable, :abortable).map { |trait| trait || false })
      end

      private

      def rejection(code, topic, partition)
        build(NOT_ACCEPTED.fetch(code), code, topic:, partition:, fatal: code == :fatal, retriable: code == :queue_full)
      end
    end
  end
end
