# frozen_string_literal: true

module Penstock
  class Admin
    # What the methods of {AccessCalls} do. Part of {Internals}.
    # @api private
    module AccessRequests
      # See {Admin#create_acls}.
      def create_acls(*acls, timeout: nil, **wrong)
        Keywords.check("create_acls(Penstock::Admin::Acl.new(...))", %i[timeout], [], wrong)
        check_acls(acls)
        require_transactional_ids(acls)
        deadline = deadline_of(timeout)
        return Results.new({}) if acls.empty?

        errors = only(@client.create_acls(acls.map { |acl| AclRules.row(acl.to_h) }, options(deadline)))
        results(acls.each_with_index.map { |acl, i| [acl, errors.fetch(i) { unanswered } || true] })
      end

      # See {Admin#acls}.
      def acls(*more, timeout: nil, **filter)
        Keywords.check("acls(topic: \"events\")", [*AclRules::KEYWORDS, :timeout], more, filter.except(*AclRules::KEYWORDS))
        members = AclRules.filter(filter)
        require_transactional_ids([members])
        deadline = deadline_of(timeout)
        rows = only(@client.describe_acls([AclRules.row(members)], options(deadline)))
        confirm_right_to_describe(deadline) if rows.empty?
        Ractor.make_shareable(rows.map { |row| AclRules.received(*row) })
      end

      # See {Admin#delete_acls}.
      def delete_acls(*filters, timeout: nil, **wrong)
        Keywords.check("delete_acls({ topic: \"events\" })", %i[timeout], [], wrong)
        filters = filters.map { |filter| filter.is_a?(Hash) ? filter.transform_values { |value| value.dup.freeze } : filter }
        check_twice("filter", filters)
        members = filters.map { |filter| filter_of(filter) }
        require_transactional_ids(members)
        deadline = deadline_of(timeout)
        return Results.new({}) if filters.empty?

        answers = only(@client.delete_acls(members.map { |filter| AclRules.row(filter) }, options(deadline)))
        results(filters.each_with_index.map { |filter, i| [filter, deleted(*answers.fetch(i) { [unanswered] })] })
      end

      # See {Admin#scram_users}.
      def scram_users(*names, timeout: nil, **wrong)
        Keywords.check("scram_users(\"billing\")", %i[timeout], [], wrong)
        names = names_of("the name of a user", names)
        require_support(:describe_scram_users, "2.2.0", "describe SCRAM users")
        rows = only(@client.describe_scram_users(names.zip, options(deadline_of(timeout))))
        found = rows.map do |given, error, all|
          name = ScramChanges.asked(given, error, names)
          [name, error || all.map { |one| ScramChanges.received(name, *one) }]
        end
        names.empty? ? results(found) : results_for(names, found, &:itself)
      end

      # See {Admin#alter_scram_users}.
      def alter_scram_users(*more, upsert: {}, delete: {}, timeout: nil, **wrong)
        Keywords.check("alter_scram_users(upsert: { ... })", %i[upsert delete timeout], more, wrong)
        rows = ScramChanges.rows(upsert, delete)
        require_support(:alter_scram_users, "2.2.0", "alter SCRAM users")
        deadline = deadline_of(timeout)
        return Results.new({}) if rows.empty?

        answers = {}
        ScramChanges.rounds(rows).each do |round|
          alter_users(round.reject { |name,| answers[name].is_a?(Error) }, deadline, answers)
        end
        results(answers)
      end

      private

      # @return [Array<Acl>, Error]
      def deleted(error, rows = nil) = error || rows.map { |row| AclRules.received(*row) }

      def check_acls(acls)
        wrong = acls.index { |acl| !acl.is_a?(Acl) }
        raise ArgumentError, "an ACL must be a Penstock::Admin::Acl, not an object of the class #{acls[wrong].class}" if wrong

        check_twice("ACL", acls)
        unknown = acls.find { |acl| acl.to_h.value?(:unknown) }
        raise ArgumentError, "librdkafka does not know all of this ACL, and cannot create it: #{unknown.inspect}" if unknown
      end

      def alter_users(rows, deadline, answers)
        return if rows.empty?

        answer = @client.alter_scram_users(rows, options(deadline)).first
        raise answer if answer.is_a?(Error) && answers.empty?

        names = rows.map(&:first)
        found = answer.is_a?(Error) ? names.to_h { |name| [name, answer] } : ScramChanges.by_user(answer, names)
        rows.each { |name,| answers[name] = found.fetch(name) { unanswered } || true }
      end

      def check_twice(what, given)
        twice, = given.tally.find { |_, count| count > 1 }
        raise ArgumentError, "the #{what} #{twice.inspect} is given twice" if twice
      end

      # @return [Hash{Symbol => Object}]
      def filter_of(given)
        if given.is_a?(Acl)
          return given.to_h unless given.to_h.value?(:unknown)

          raise ArgumentError, "librdkafka does not know all of this ACL, and cannot find it: #{given.inspect}"
        end
        raise ArgumentError, "a filter must be a Hash or a Penstock::Admin::Acl, not #{given.class}" unless given.is_a?(Hash)

        Keywords.check("delete_acls({ topic: \"events\" })", AclRules::KEYWORDS, [], given.except(*AclRules::KEYWORDS))
        members = AclRules.filter(given)
        return members unless members.compact.empty?

        raise ArgumentError, "a filter without a condition would delete all ACLs; if this is meant, write { resource: :any }"
      end

      def require_transactional_ids(members)
        return if members.none? { |one| one[:resource] == :transactional_id }

        require_support(:create_transactional_id_acls, "2.6.0", "send ACLs of transactional ids")
      end

      # librdkafka drops the brokers' error.
      # @raise [AdminError]
      def confirm_right_to_describe(deadline)
        return unless @client.respond_to?(:describe_cluster)

        operations = cluster(authorized_operations: true, timeout: [deadline.left, 0.001].max).authorized_operations
        return if operations.nil? || operations.include?(:describe)

        raise ErrorFactory.build(AdminError, "the client may not describe the cluster", code: :cluster_authorization_failed,
                                                                                        number: 31, admin_id: id,
                                                                                        name: "CLUSTER_AUTHORIZATION_FAILED")
      end
    end
  end
end
