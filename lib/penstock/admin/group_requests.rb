# frozen_string_literal: true

module Penstock
  class Admin
    # What the methods of {GroupCalls} do. Part of {Internals}.
    # @api private
    module GroupRequests
      # By librdkafka's numbers.
      STATES = %i[unknown preparing_rebalance completing_rebalance stable dead empty].freeze
      TYPES = [nil, :consumer, :classic].freeze
      private_constant :STATES, :TYPES

      # See {Admin#groups}.
      def groups(*more, states: nil, types: nil, timeout: nil, **wrong)
        Keywords.check("groups(states: [:empty])", %i[states types timeout], more, wrong)
        filter = { states: numbers_of("state", states, STATES), types: numbers_of("type", types, TYPES) }.compact
        require_support(:list_groups_of_types, "2.6.0", "list groups by type") if types
        rows, errors = only(@client.list_groups(options(deadline_of(timeout), **filter)))
        raise errors.first if rows.empty? && errors.any?

        GroupListings.new(rows.map { |row| listing_of(*row) }, errors)
      end

      # See {Admin#group}.
      def group(id, *more, authorized_operations: false, timeout: nil, **wrong)
        Keywords.check("group(\"billing\")", %i[authorized_operations timeout], more, wrong)
        describe_groups(id, authorized_operations:, timeout:).values.first
      end

      # See {Admin#describe_groups}.
      def describe_groups(*ids, authorized_operations: false, timeout: nil, **wrong)
        Keywords.check("describe_groups(\"billing\")", %i[authorized_operations timeout], [], wrong)
        ids = names_of("the id of a group", ids)
        require_support(:describe_topics, "2.3.0", "ask for authorized operations") if authorized_operations
        deadline = deadline_of(timeout)
        return Results.new({}) if ids.empty?

        answers = of_each(ids, described(ids, deadline, authorized: authorized_operations))
        unlisted = dead_or_newer(answers, deadline)
        found = answers.map { |id, error, *rest| [id, error || unlisted[id] || group_of(id, *rest)] }
        results_for(ids, found, :group, &:itself)
      end

      # See {Admin#delete_groups}.
      def delete_groups(*ids, timeout: nil, **wrong)
        Keywords.check("delete_groups(\"billing\")", %i[timeout], [], wrong)
        ids = names_of("the id of a group", ids)
        deadline = deadline_of(timeout)
        return Results.new({}) if ids.empty?

        find_coordinators(ids, deadline)
        answers = of_each(ids, @client.delete_groups(ids.zip, options(deadline)))
        results_for(ids, answers, :group) { |error| error || true }
      end

      private

      # @return [Array<Array, Error>] one for each group
      def described(ids, deadline, **more)
        ask_coordinators(ids.zip, deadline) { |rows, attempt| @client.describe_groups(rows, options(attempt, **more)) }
      end

      # A deletion is not repeated, as its second answer would be wrong. A question, which is repeated, finds the coordinators.
      # @return [void]
      # @raise [AdminTimeoutError] when none answers
      def find_coordinators(ids, deadline)
        found = committed_of(ids.map { |id| [id, nil] }, deadline).values
        raise found.first if found.all?(AdminTimeoutError)
      end

      # @param answers [Array<Array, Error>] one for each group
      # @return [Array<Array>] their rows; a group and its error for one that has no answer
      # @raise [AdminError] when none has an answer
      def of_each(ids, answers)
        raise answers.first if answers.all?(Error)

        ids.zip(answers).flat_map { |id, answer| answer.is_a?(Error) ? [[id, answer]] : answer }
      end

      # @return [Array<Integer>, nil]
      def numbers_of(what, given, known)
        return if given.nil?

        names = known.compact - [:unknown]
        given = [given] unless given.is_a?(Array)
        raise ArgumentError, "no #{what} is given; nil stands for all" if given.empty?

        given.uniq.map do |name|
          next known.index(name) if names.include?(name)

          hint = Suggestion.hint(name, names) if name.is_a?(Symbol)
          raise ArgumentError, "there is no #{what} #{name.inspect} of groups#{hint}"
        end
      end

      def listing_of(id, state, type, simple)
        GroupListing.new(id:, state: STATES.fetch(state, :unknown), type: type && TYPES[type], simple:)
      end

      # Brokers answer the older request, of librdkafka before 2.10.0, for a group of the newer type as for one that does not
      # exist.
      # @return [Hash{String => Error}]
      def dead_or_newer(answers, deadline)
        dead = answers.filter_map { |id, error, state,| id if error.nil? && STATES[state] == :dead }
        return {} if dead.empty?

        newer = @client.respond_to?(:describe_groups_of_types) ? [] : listed_alive(dead, deadline)
        dead.to_h { |id| [id, newer.include?(id) ? newer_group(id) : unknown_group(id)] }
      end

      def listed_alive(ids, deadline)
        rows, errors = only(@client.list_groups(options(deadline)))
        raise errors.first if errors.any?

        rows.filter_map { |id, state,| id unless STATES[state] == :dead } & ids
      end

      def newer_group(id)
        text = "librdkafka #{Penstock.librdkafka_version} cannot describe a group of the type :consumer: this requires 2.10.0 " \
               "or newer"
        ErrorFactory.build(UnsupportedError, text, group: id, admin_id: self.id)
      end

      def unknown_group(id)
        ErrorFactory.build(AdminError, "the cluster has no such group",
                           code: :group_id_not_found, number: 69, name: "GROUP_ID_NOT_FOUND", group: id, admin_id: self.id)
      end

      def group_of(id, state, type, simple, assignor, operations, coordinator, members)
        number, host, port, rack = coordinator
        Group.new(id:, state: STATES.fetch(state, :unknown), type: type && TYPES[type], simple:, assignor:,
                  coordinator: coordinator && Broker.new(id: number, host:, port:, rack:),
                  members: members.map { |member| member_of(*member) }, authorized_operations: operations_of(operations))
      end

      # Kafka writes an address with a slash before it.
      def member_of(id, client_id, host, instance_id, assignment, target)
        Member.new(id:, client_id:, host: host&.delete_prefix("/"), instance_id:, assignment: assigned(assignment) || {},
                   target: assigned(target))
      end

      # @return [Hash{String => Array<Integer>}, nil]
      def assigned(places)
        places&.group_by(&:first)&.sort&.to_h&.transform_values { |list| list.map { |place| place[1] }.sort }
      end
    end
  end
end
