# frozen_string_literal: true

module Penstock
  # What to do about an error, by its code: the last sentence of its message.
  # @api private
  module Advice
    FENCED = "Another producer with the same transactional.id has taken over. " \
             "Do not send again from here, and give each producer a transactional.id of its own."
    OVERRAN = "Make a new producer, and put less into a transaction, or raise transaction.timeout.ms."

    BY_CODE = {
      queue_full: "Produce more slowly, wait for handles, or raise queue.buffering.max.messages.",
      msg_timed_out: "Check that the brokers are up and reachable from here, and that message.timeout.ms is long enough.",
      timed_out: "Check that the brokers are up and reachable from here.",
      transport: "Check that the brokers are up and reachable from here, and that security.protocol fits the port.",
      all_brokers_down: "Check bootstrap.servers, and that the brokers are up and reachable from here.",
      unknown_topic: "Create the topic, or allow the cluster to create it.",
      unknown_topic_or_part: "Create the topic, or allow the cluster to create it.",
      unknown_partition: "Use a partition from 0 to partition_count(topic) - 1.",
      topic_authorization_failed: "Grant this client the right to write to the topic.",
      cluster_authorization_failed: "Grant this client the right to write idempotently, or set enable.idempotence to false.",
      transactional_id_authorization_failed: "Grant this client the right to use and describe the transactional.id.",
      group_authorization_failed: "Grant this client the right to use the group.",
      msg_size_too_large: "Make the message smaller, or raise message.max.bytes here and max.message.bytes of the topic.",
      purge_queue: "It was purged before it was sent. Send it again if it is still needed.",
      purge_inflight: "It was purged after it was sent and may be in the topic. Sending it again may store it twice.",
      fatal: "The producer can do nothing more. Close it and make a new one.",
      fenced: FENCED,
      producer_fenced: FENCED,
      invalid_producer_epoch: FENCED
    }.freeze

    # Codes whose advice differs for messages that a broker has rejected.
    FOR_DELIVERIES = {
      msg_size_too_large: "The topic's max.message.bytes limits a whole batch: make the message smaller, set batch.size to " \
                          "less, or raise max.message.bytes of the topic.",
      record_list_too_large: "Set batch.size to less than segment.bytes of the topic, or raise the latter.",
      invalid_record: "Give the message what the topic requires, such as a key if the topic is compacted. Messages of the same " \
                      "batch fail with it: send them again without it.",
      invalid_timestamp: "Use a timestamp that the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms " \
                         "allow. Messages of the same batch fail with it: send them again without it.",
      invalid_different_record: "Another message of the same batch is invalid: send this one again without it.",
      policy_violation: "Ask the cluster's administrators for the policy."
    }.freeze

    # Codes whose advice differs for consumers.
    FOR_CONSUMERS = {
      topic_authorization_failed: "Grant this client the right to read the topic.",
      group_authorization_failed: "Grant this client the right to use the group (the operation Read).",
      inconsistent_group_protocol: "The members of a group need one partition.assignment.strategy in common, and the same " \
                                   "group.protocol. Compare the settings of its members.",
      invalid_session_timeout: "Set session.timeout.ms to what the brokers allow: group.min.session.timeout.ms to " \
                               "group.max.session.timeout.ms.",
      group_max_size_reached: "The group has as many members as the brokers allow (group.max.size). Run fewer, or raise it.",
      invalid_group_id: "Choose another group.id.",
      unreleased_instance_id: "Another member of the group has this group.instance.id. Give each member its own.",
      unknown: "See the brokers' logs. If it concerns a group, check that this client may read the group.",
      unsupported_assignor: "Set group.remote.assignor to one that the brokers have.",
      msg_size_too_large: "Set receive.message.max.bytes above the topic's max.message.bytes, and at least 512 above " \
                          "fetch.max.bytes.",
      max_poll_exceeded: "Poll more often, take fewer messages at a time, or raise max.poll.interval.ms. " \
                         "The next poll joins the group again.",
      bad_msg: "The rest of the message can be read. Decide whether to process it without headers.",
      auto_offset_reset: "Seek to an offset that exists, or set auto.offset.reset to \"earliest\" or \"latest\".",
      unknown_partition: "Check that the topic has the partition, and that it is assigned to this consumer.",
      state: "The partition is not assigned to this consumer. Check assignment before the call.",
      unknown_member_id: "The group has removed this consumer. Other members have its partitions now. Poll to join again.",
      illegal_generation: "The group has rebalanced. Another member may have the partitions now.",
      fatal: "The consumer can do nothing more. Close it and make a new one.",
      fenced_instance_id: "Another consumer with the same group.instance.id has taken over. Close this one."
    }.freeze

    # Codes whose advice differs for admin clients.
    FOR_ADMINS = {
      topic_authorization_failed: "Grant this client the right to do this with the topic.",
      group_authorization_failed: "Grant this client the right to do this with the group.",
      cluster_authorization_failed: "Grant this client the right to do this with the cluster.",
      unknown_topic_or_part: "Check the name of the topic and the number of the partition.",
      unknown_partition: "Check the name of the topic and the number of the partition.",
      non_empty_group: "Stop the members of the group first.",
      unknown_member_id: "Offsets of a group can be altered only while it is empty. Stop its members first.",
      group_subscribed_to_topic: "Stop the members that subscribe to the topic first.",
      topic_already_exists: "Use it as it is, or delete it first.",
      invalid_config: "Check the names and values of the settings.",
      invalid_partitions: "A topic can only get more partitions.",
      invalid_replication_factor: "Use at most as many replicas as there are brokers.",
      topic_exception: "Use letters, digits, \".\", \"_\" and \"-\", at most 249 characters.",
      group_id_not_found: "Check the id of the group.",
      offset_out_of_range: "Use an offset from the partition's first one to its end.",
      broker_not_available: "Check the id of the broker, and that it is up.",
      resource_not_found: "Check the name."
    }.freeze

    SPECIAL = { AdminError => FOR_ADMINS, ConsumeError => FOR_CONSUMERS, DeliveryError => FOR_DELIVERIES }.freeze

    KEEPS_TRYING = "The producer keeps trying to connect: send the message again later, or store it elsewhere."

    # Caused by the network, or its absence. The message then names the brokers and the last problem with a connection.
    NETWORK = %i[msg_timed_out timed_out transport all_brokers_down resolve].freeze
    private_constant :FENCED, :OVERRAN, :BY_CODE, :FOR_DELIVERIES, :FOR_CONSUMERS, :FOR_ADMINS, :SPECIAL, :KEEPS_TRYING, :NETWORK

    class << self
      # @param error_class [Class]
      # @param code [Symbol, nil]
      # @param text [String] what happened
      # @return [String, nil]
      def of(error_class, code, text)
        return RejectionAdvice.advice(text) if error_class <= BrokerRejectedError
        return [BY_CODE[code], KEEPS_TRYING].compact.join(" ") if error_class <= BrokersUnreachableError

        advice = by_code(error_class, code, text)
        return advice unless error_class <= DeliveryError && text.include?("no connection works")

        [RejectionAdvice.advice(text), advice].compact.join(" ")
      end

      # @return [String, nil]
      def by_code(error_class, code, text)
        return OVERRAN if error_class <= TransactionTimedOutError

        return if code == :bad_msg && !text.include?("headers") # of the whole message, or no message at all

        _, special = SPECIAL.find { |group, _| error_class <= group }
        special&.fetch(code, nil) || BY_CODE[code]
      end

      # @return [Boolean] whether the message names brokers and the last problem; the text of a rejection has them already
      def network?(error_class, code) = NETWORK.include?(code) && !(error_class <= BrokerRejectedError)
    end
  end
end
