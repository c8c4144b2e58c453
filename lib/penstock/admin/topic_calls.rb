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
        known = [*Specifications::TOPIC, :validate_only, :wait, :timeout]
        Keywords.check("create_topic(\"events\", partitions: 6)", known, more, spec.except(*Specifications::TOPIC))
        create_topics({ name => spec }, validate_only:, wait:, timeout:).values.first
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
      def create_topics(topics, *more, validate_only: false, wait: true, timeout: nil, **wrong)
        Keywords.check("create_topics({ \"events\" => { partitions: 6 } })", %i[validate_only wait timeout], more, wrong)
        rows = Specifications.topics(topics)
        deadline = deadline_of(timeout)
        return Results.new({}) if rows.empty?

        sent = options(deadline, operation: operation(deadline), validate_only:)
        answers = done_for(rows.map(&:first), only(@client.create_topics(rows, sent)))
        await_topics(answers.ok.keys, deadline) if wait && !validate_only
        answers
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
        Keywords.check("delete_topics(\"events\")", %i[wait timeout], [], wrong)
        names = topic_names(names)
        deadline = deadline_of(timeout)
        return Results.new({}) if names.empty?

        answers = done_for(names, only(@client.delete_topics(names.zip, options(deadline, operation: operation(deadline)))))
        await_deletion(answers.ok.keys, deadline) if wait
        answers
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
      def create_partitions(totals, *more, validate_only: false, timeout: nil, **wrong)
        Keywords.check("create_partitions({ \"events\" => 12 })", %i[validate_only timeout], more, wrong)
        rows = Specifications.partitions(totals)
        deadline = deadline_of(timeout)
        return Results.new({}) if rows.empty?

        sent = options(deadline, operation: operation(deadline), validate_only:)
        done_for(rows.map(&:first), only(@client.create_partitions(rows, sent)))
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
        Keywords.check("topic(\"events\")", %i[authorized_operations timeout], more, wrong)
        topics(name, authorized_operations:, timeout:).values.first
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
        Keywords.check("topics(\"events\")", %i[authorized_operations timeout], [], wrong)
        names = topic_names(names)
        require_support(:describe_topics, "2.3.0", "ask for authorized operations") if authorized_operations
        raise ArgumentError, "authorized_operations requires the names of topics" if authorized_operations && names.empty?

        topics_of(describe(names, deadline_of(timeout), authorized: authorized_operations))
      end

      private

      # @return [Results] true in place of nil
      def done_for(names, rows) = results_for(names, rows, :topic) { |error| error || true }

      def describe(names, deadline, authorized: false)
        return @client.all_topics(options(deadline)) if names.empty?

        named = described_topics(names, deadline, authorized) if @client.respond_to?(:describe_topics)
        known = (named || @client.all_topics(options(deadline))).to_h { |row| [row.first, row] }
        names.map do |name|
          known.fetch(name) { [name, named ? unanswered(topic: name) : unknown_topic(name), nil, nil, nil, []] }
        end
      end

      # @return [Array, nil] nil: an embedded cluster cannot
      def described_topics(names, deadline, authorized)
        only(@client.describe_topics(names.zip, options(deadline, authorized:)))
      rescue UnsupportedError
        raise if authorized
      end

      def unknown_topic(name)
        ErrorFactory.build(AdminError, "the cluster has no such topic, or this client may not describe it",
                           code: :unknown_topic_or_part, number: 3, name: "UNKNOWN_TOPIC_OR_PART", topic: name, admin_id: id)
      end

      def topics_of(rows)
        results(rows.map { |name, error, *rest| [name, error || topic_of(name, *rest)] })
      end

      def topic_of(name, id, internal, operations, partitions)
        Topic.new(name:, id:, internal:, partitions: partitions.sort_by(&:id), authorized_operations: operations_of(operations))
      end

      SHORTEST = 0.005 # seconds between the first two looks, then twice as long each time
      LONGEST = 0.2
      private_constant :SHORTEST, :LONGEST

      # Until each topic has partitions, and each partition a leader.
      def await_topics(names, deadline)
        await(deadline, names, "the topics are created, but the brokers do not show them: perhaps not yet, or this client may " \
                               "not describe them") do |rows|
          rows.all? { |_, error, *, partitions| error ? hidden?(error) : led?(partitions) }
        end
      end

      # Whether this client may not see the topic: waiting would not help.
      def hidden?(error) = error.code == :topic_authorization_failed

      def led?(partitions) = partitions.any? && partitions.all?(&:leader)

      def await_deletion(names, deadline)
        await(deadline, names, "the topics are being deleted, but the brokers still know them") do |rows|
          rows.all? { |_, error,| error }
        end
      end

      def await(deadline, names, problem)
        return if names.empty?

        pause = SHORTEST
        until yield(describe(names, deadline))
          raise ErrorFactory.build(AdminTimeoutError, problem, admin_id: id) if deadline.left.zero?

          sleep([pause, deadline.left].min)
          pause = [pause * 2, LONGEST].min
        end
      end
    end
  end
end
