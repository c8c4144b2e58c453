# frozen_string_literal: true

module Penstock
  class Admin
    # The methods of {Admin} for topics.
    module TopicCalls
      # Creates a topic.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once.
      #
      # Requires the right to create the topic (or any topic of the cluster).
      #
      # @param name [String]
      # @param spec [Hash] see {#create_topics}
      # @return [true]
      # @raise [AdminError] for example with the code :topic_already_exists
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still create the topic
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload create_topic(name, partitions: nil, replication_factor: nil, config: {}, replicas: nil, validate_only: false,
      #   wait: true, timeout: nil)
      def create_topic(name, *more, validate_only: false, wait: true, timeout: nil, **spec)
        @internals.create_topic(name, *more, validate_only:, wait:, timeout:, **spec)
      end

      # Creates topics.
      #
      #     admin.create_topics({ "orders" => { partitions: 6, replication_factor: 3, config: { "retention.ms" => 3_600_000 } } })
      #
      # A specification has these keys, and each is optional:
      #
      # - `partitions` [Integer]: default: the brokers' `num.partitions`
      # - `replication_factor` [Integer]: default: the brokers' `default.replication.factor`
      # - `config` [Hash{String, Symbol => Object}]: settings of the topic
      # - `replicas` [Array<Array<Integer>>]: for each partition the ids of the brokers that store it, the preferred leader first;
      #   instead of the first two
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once.
      #
      # Requires the right to create the topics (or any topic of the cluster).
      #
      # @param topics [Hash{String => Hash}] name to specification
      # @param validate_only [Boolean] whether the cluster only says if it could
      # @param wait [Boolean] whether to wait until the brokers know the topics and their leaders. They are created already then:
      #   after a timeout in this phase too. Requires the right to describe the topics
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] true for each created topic
      # @raise [AdminError] when the whole request failed
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still create the topics
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload create_topics(topics, validate_only: false, wait: true, timeout: nil)
      def create_topics(*given, validate_only: false, wait: true, timeout: nil, **braceless)
        more, wrong = Keywords.braced(braceless)
        @internals.create_topics(*given, *more, validate_only:, wait:, timeout:, **wrong)
      end

      # Deletes topics, with all that is in them.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once.
      #
      # Requires the right to delete the topics.
      #
      # @param names [Array<String>]
      # @param wait [Boolean] whether to wait until the broker that answers has forgotten the topics
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] true for each deleted topic
      # @raise [AdminError] when the whole request failed
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still delete the topics
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload delete_topics(*names, wait: true, timeout: nil)
      def delete_topics(*names, wait: true, timeout: nil, **wrong)
        @internals.delete_topics(*names, wait:, timeout:, **wrong)
      end

      # Adds partitions to topics. The keys of messages go to other partitions then: a key's messages before and after are no
      # longer in one order. Kafka cannot remove partitions.
      #
      #     admin.create_partitions({ "orders" => 12 })
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once.
      #
      # Requires the right to alter the topics.
      #
      # @param totals [Hash{String => Integer, Hash}] how many partitions the topic has then; or a Hash with this `total` and
      #   `replicas`, for each new partition the ids of its brokers
      # @param validate_only [Boolean] whether the cluster only says if it could
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] true for each topic
      # @raise [AdminError] when the whole request failed
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still add the partitions
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload create_partitions(totals, validate_only: false, timeout: nil)
      def create_partitions(*given, validate_only: false, timeout: nil, **braceless)
        more, wrong = Keywords.braced(braceless)
        @internals.create_partitions(*given, *more, validate_only:, timeout:, **wrong)
      end

      # Describes a topic.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once.
      #
      # @param name [String]
      # @param authorized_operations [Boolean] see {#topics}
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Topic]
      # @raise [AdminError] for example with the code :unknown_topic_or_part
      # @overload topic(name, authorized_operations: false, timeout: nil)
      def topic(name, *more, authorized_operations: false, timeout: nil, **wrong)
        @internals.topic(name, *more, authorized_operations:, timeout:, **wrong)
      end

      # Describes topics: those named, or all that this client may see. Never creates one.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is one request.
      #
      # Requires the right to describe the topics. A topic without it is missing among all, and an error if it is named.
      #
      # @param names [Array<String>] none: all topics
      # @param authorized_operations [Boolean] whether to ask what this client may do with each. Requires librdkafka 2.3.0, and
      #   names
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] a {Topic} for each name
      # @raise [AdminError] when the whole request failed
      # @raise [UnsupportedError] when librdkafka is too old for `authorized_operations`
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload topics(*names, authorized_operations: false, timeout: nil)
      def topics(*names, authorized_operations: false, timeout: nil, **wrong)
        @internals.topics(*names, authorized_operations:, timeout:, **wrong)
      end
    end
  end
end
