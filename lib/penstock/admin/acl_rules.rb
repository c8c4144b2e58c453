# frozen_string_literal: true

module Penstock
  class Admin
    # Checks what programs say of ACLs, and makes the native client's rows.
    # @api private
    module AclRules
      # With librdkafka's numbers, which has no constant for the cluster.
      RESOURCES = { any: 1, topic: 2, group: 3, cluster: 4, transactional_id: 5 }.freeze
      PATTERNS = { any: 1, match: 2, literal: 3, prefixed: 4 }.freeze
      PERMISSIONS = { any: 1, deny: 2, allow: 3 }.freeze
      ACL_OPERATIONS = OPERATIONS.each_with_index.to_h.except(:unknown).freeze
      NAMED = %i[topic group transactional_id].freeze
      KEYWORDS = [*NAMED, :cluster, *Acl.members].freeze
      CLUSTER = "kafka-cluster"
      # What brokers ask for.
      EXISTING = {
        topic: %i[all read write create delete alter describe describe_configs alter_configs],
        group: %i[all read delete describe describe_configs alter_configs],
        cluster: %i[all create alter describe cluster_action describe_configs alter_configs idempotent_write],
        transactional_id: %i[all write describe]
      }.each_value(&:freeze).freeze
      private_constant :RESOURCES, :PATTERNS, :PERMISSIONS, :ACL_OPERATIONS, :NAMED, :CLUSTER, :EXISTING

      class << self
        # @param given [Hash{Symbol => Object}] keywords that are known
        # @return [Hash{Symbol => Object}] the members of an {Acl}
        def acl(given)
          members = { pattern: :literal, host: "*", permission: :allow }.merge(filter(given).compact)
          missing = Acl.members.find { |member| members[member].nil? }
          missing = "topic, group, transactional_id or cluster" if missing == :resource
          raise ArgumentError, "an ACL requires #{missing}" if missing

          check_existing(members)
          members
        end

        # @return [Hash{Symbol => Object}] the members of a filter; nil for any
        def filter(given)
          resource, name = resource_of(given)
          { resource:, name:,
            pattern: one_of(:pattern, given[:pattern], PATTERNS), principal: principal(given[:principal]),
            host: text(:host, given[:host]), operation: one_of(:operation, given[:operation], ACL_OPERATIONS),
            permission: one_of(:permission, given[:permission], PERMISSIONS) }
        end

        # @param members [Hash{Symbol => Object}] of an {Acl} or a filter
        # @return [Array]
        def row(members)
          [number(RESOURCES, members[:resource]), members[:name], number(PATTERNS, members[:pattern]), members[:principal],
           members[:host], number(ACL_OPERATIONS, members[:operation]), number(PERMISSIONS, members[:permission])]
        end

        # @return [Acl]
        def received(resource, name, pattern, principal, host, operation, permission)
          resource = symbol(RESOURCES, resource)
          Acl.__send__(:received, resource:, name:, pattern: symbol(PATTERNS, pattern), principal:, host:,
                                  operation: symbol(ACL_OPERATIONS, operation), permission: symbol(PERMISSIONS, permission))
        end

        private

        def number(known, symbol) = known.fetch(symbol || :any)

        def symbol(known, number) = known.key(number) || :unknown

        # @return [Array(Symbol, String)] nil for any
        def resource_of(given)
          named = given.slice(*NAMED, :cluster).reject { |_, value| value.nil? || value == false }
          return general_resource(given) if named.empty?

          keys = [*named.keys, *given.slice(:resource, :name).compact.keys]
          raise ArgumentError, "an ACL concerns one resource, not #{keys.join(" and ")}" if keys.size > 1

          resource, name = named.first
          return [resource, text(resource, name)] unless resource == :cluster
          raise ArgumentError, "cluster must be true, not #{name.inspect}" unless name == true

          [:cluster, CLUSTER]
        end

        def general_resource(given)
          resource = one_of(:resource, given[:resource], RESOURCES)
          name = text(:name, given[:name])
          return [resource, name] if name.nil? || resource != :cluster || name == CLUSTER

          raise ArgumentError, "the name of the cluster must be #{CLUSTER.inspect}, not #{name.inspect}"
        end

        def one_of(what, value, known)
          return value if value.nil? || known.key?(value)

          symbol = known.keys.find { |key| key.name == value }
          hint = symbol ? " (write #{symbol.inspect})" : Suggestion.hint(value, known.keys)
          raise ArgumentError, "unknown #{what} #{value.inspect}#{hint}; known are #{known.keys.map(&:inspect).join(", ")}"
        end

        def principal(value)
          text = text(:principal, value)
          return text if text.nil? || text.match?(/\A[^:]+:./)

          raise ArgumentError, "a principal must have a type, such as #{"User:#{value}".inspect}, not #{value.inspect}"
        end

        def text(what, value)
          value && Names.of(what, value)
        end

        def check_existing(members)
          any = members.key(:any)
          raise ArgumentError, "#{any} must not be :any in an ACL; it may in a filter" if any

          resource, pattern, operation = members.values_at(:resource, :pattern, :operation)
          raise ArgumentError, "pattern must be :literal or :prefixed in an ACL, not #{pattern.inspect}" if pattern == :match
          raise ArgumentError, "pattern must be :literal for the cluster" if resource == :cluster && pattern != :literal

          known = EXISTING.fetch(resource)
          return if known.include?(operation)

          raise ArgumentError, "there is no operation #{operation.inspect} on a #{resource}; there are #{known.join(", ")}"
        end
      end
    end
    private_constant :AclRules
  end
end
