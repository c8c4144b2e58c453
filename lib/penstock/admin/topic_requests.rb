# frozen_string_literal: true

module Penstock
  class Admin
    # What the methods of {TopicCalls} do. Part of {Internals}.
    # @api private
    module TopicRequests
      # See {Admin#create_topic}.
      def create_topic(name, *more, validate_only: false, wait: true, timeout: nil, **spec)
        known = [*Specifications::TOPIC, :validate_only, :wait, :timeout]
        Keywords.check("create_topic(\"events\", partitions: 6)", known, more, spec.except(*Specifications::TOPIC))
        create_topics({ name => spec }, validate_only:, wait:, timeout:).values.first
      end

      # See {Admin#create_topics}.
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

      # See {Admin#delete_topics}.
      def delete_topics(*names, wait: true, timeout: nil, **wrong)
        Keywords.check("delete_topics(\"events\")", %i[wait timeout], [], wrong)
        names = topic_names(names)
        deadline = deadline_of(timeout)
        return Results.new({}) if names.empty?

        answers = done_for(names, only(@client.delete_topics(names.zip, options(deadline, operation: operation(deadline)))))
        await_deletion(answers.ok.keys, deadline) if wait
        answers
      end

      # See {Admin#create_partitions}.
      def create_partitions(totals, *more, validate_only: false, timeout: nil, **wrong)
        Keywords.check("create_partitions({ \"events\" => 12 })", %i[validate_only timeout], more, wrong)
        rows = Specifications.partitions(totals)
        deadline = deadline_of(timeout)
        return Results.new({}) if rows.empty?

        sent = options(deadline, operation: operation(deadline), validate_only:)
        done_for(rows.map(&:first), only(@client.create_partitions(rows, sent)))
      end

      # See {Admin#topic}.
      def topic(name, *more, authorized_operations: false, timeout: nil, **wrong)
        Keywords.check("topic(\"events\")", %i[authorized_operations timeout], more, wrong)
        topics(name, authorized_operations:, timeout:).values.first
      end

      # See {Admin#topics}.
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
        partitions = partitions.sort_by(&:id) unless ordered?(partitions)
        Topic.new(name:, id:, internal:, partitions:, authorized_operations: operations_of(operations))
      end

      # As brokers mostly list them: to sort those of 1,000 topics would take a fifth of the time that needs the GVL.
      def ordered?(partitions)
        number = -1
        partitions.all? { |partition| partition.id == (number += 1) }
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
