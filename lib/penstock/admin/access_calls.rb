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
        @internals.create_acls(*acls, timeout:, **wrong)
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
        @internals.acls(*more, timeout:, **filter)
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
        @internals.delete_acls(*filters, timeout:, **wrong)
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
        @internals.scram_users(*names, timeout:, **wrong)
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
        @internals.alter_scram_users(*more, upsert:, delete:, timeout:, **wrong)
      end
    end
  end
end
