# frozen_string_literal: true

module Penstock
  class Admin
    # The methods of {Admin} for ACLs and SCRAM users.
    module AccessCalls
      # Creates ACLs. One that exists already stays.
      #
      #     admin.create_acls(Penstock::Admin::Acl.new(topic: "orders", principal: "User:billing", operation: :read),
      #                       Penstock::Admin::Acl.new(group: "billing", principal: "User:billing", operation: :read))
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once.
      #
      # Requires the right to alter the cluster.
      #
      # @param acls [Array<Acl>] those of transactional ids require librdkafka 2.6.0
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] true for each {Acl}
      # @raise [AdminError] when the whole request failed
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still create them
      # @raise [UnsupportedError] when librdkafka is too old for transactional ids; nothing is sent then
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload create_acls(*acls, timeout: nil)
      def create_acls(*acls, timeout: nil, **wrong)
        Keywords.check("create_acls(Penstock::Admin::Acl.new(...))", %i[timeout], [], wrong)
        check_acls(acls)
        require_transactional_ids(acls)
        deadline = deadline_of(timeout)
        return Results.new({}) if acls.empty?

        errors = only(@client.create_acls(acls.map { |acl| AclRules.row(acl.to_h) }, options(deadline)))
        results(acls.each_with_index.map { |acl, i| [acl, errors.fetch(i) { unanswered } || true] })
      end

      # Finds ACLs. Each keyword is a condition; nil: any.
      #
      #     admin.acls(principal: "User:billing")
      #     admin.acls(topic: "orders", pattern: :match) # all that concern the topic
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. If nothing is found, it is two requests.
      #
      # Requires the right to describe the cluster. Before librdkafka 2.3.0, a client without it gets no ACLs instead of an error.
      #
      # @param topic [String, nil] name of the topic; or one of the following three
      # @param group [String, nil]
      # @param transactional_id [String, nil] requires librdkafka 2.6.0
      # @param cluster [true, nil]
      # @param resource [Symbol, nil] kind of the resource, with a `name` or not: see {Acl}
      # @param name [String, nil]
      # @param pattern [Symbol, nil] `:literal`, `:prefixed`; `:match`: all ACLs that concern the resource, also those with
      #   another name: prefixed ones, and those of "*"
      # @param principal [String, nil]
      # @param host [String, nil]
      # @param operation [Symbol, nil] exactly this one; those of `:all` are not found then
      # @param permission [Symbol, nil] `:allow` or `:deny`
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Array<Acl>] frozen. Before librdkafka 2.6.0, the resource of ACLs of transactional ids is `:unknown`
      # @raise [AdminError] for example with the code :cluster_authorization_failed
      # @raise [UnsupportedError] when librdkafka is too old for transactional ids; nothing is sent then
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload acls(topic: nil, group: nil, transactional_id: nil, cluster: nil, resource: nil, name: nil, pattern: nil,
      #   principal: nil, host: nil, operation: nil, permission: nil, timeout: nil)
      def acls(*more, timeout: nil, **filter)
        Keywords.check("acls(topic: \"events\")", [*AclRules::KEYWORDS, :timeout], more, filter.except(*AclRules::KEYWORDS))
        members = AclRules.filter(filter)
        require_transactional_ids([members])
        deadline = deadline_of(timeout)
        rows = only(@client.describe_acls([AclRules.row(members)], options(deadline)))
        confirm_right_to_describe(deadline) if rows.empty?
        Ractor.make_shareable(rows.map { |row| AclRules.received(*row) })
      end

      # Deletes ACLs.
      #
      #     admin.delete_acls({ principal: "User:billing" }).each { |filter, deleted| puts deleted }
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once.
      #
      # Requires the right to alter the cluster.
      #
      # @param filters [Array<Acl, Hash>] of a Hash, each key is a condition: see {#acls}. At least one is required;
      #   `resource: :any` is true of all ACLs
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] for each filter the deleted {Acl}s, an Array. An error if one could not be deleted; others may be then
      # @raise [AdminError] when the whole request failed
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still delete them
      # @raise [UnsupportedError] when librdkafka is too old for transactional ids; nothing is sent then
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload delete_acls(*filters, timeout: nil)
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

      # Describes SCRAM users: those named, or all.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once.
      #
      # Requires the right to describe the cluster, and librdkafka 2.2.0.
      #
      # @param names [Array<String>] none: all users
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] for each user an Array of {ScramCredential}s; for example an error with the code :resource_not_found
      # @raise [AdminError] when the whole request failed, for example with the code :cluster_authorization_failed
      # @raise [UnsupportedError] when librdkafka is too old
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload scram_users(*names, timeout: nil)
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

      # Creates SCRAM users, changes their passwords, and deletes them.
      #
      #     admin.alter_scram_users(upsert: { "billing" => { mechanism: :"SCRAM-SHA-256", password: } },
      #                             delete: { "former" => :"SCRAM-SHA-512" })
      #
      # A user has one password for each mechanism. `upsert` sets it, whether there is one or not. The password is shown nowhere.
      # It is not sent: brokers get what SCRAM makes of it.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is one request; or two if a user has changes of
      # two mechanisms, because brokers change one of a user in a request.
      #
      # Requires the right to alter the cluster, and librdkafka 2.2.0.
      #
      # @param upsert [Hash{String => Hash, Array<Hash>}] name to `mechanism:` (:"SCRAM-SHA-256" or :"SCRAM-SHA-512"),
      #   `password:` (a String or {Secret}) and `iterations:` (default: 8192; Kafka takes 4096 to 16384)
      # @param delete [Hash{String => Symbol, Array<Symbol>}] name to mechanisms
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] true for each user; or an error. Of two changes of a user, the first may have been made then
      # @raise [AdminError] when the whole request failed
      # @raise [AdminTimeoutError] when the cluster does not answer in time; it may still make the changes
      # @raise [UnsupportedError] when librdkafka is too old
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload alter_scram_users(upsert: {}, delete: {}, timeout: nil)
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
