# frozen_string_literal: true

module Penstock
  class Admin
    # The methods of {Admin} for groups.
    module GroupCalls
      # Lists the groups of consumers. Every broker is asked for the groups that it coordinates.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once.
      #
      # Requires the right to describe the cluster, or the groups; a group without the right is missing.
      #
      # @param states [Array<Symbol>, Symbol, nil] only groups in these states: :preparing_rebalance, :completing_rebalance,
      #   :stable, :dead, :empty
      # @param types [Array<Symbol>, Symbol, nil] only groups of these types: :classic, :consumer. Requires librdkafka 2.6.0
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [GroupListings] with the errors of the brokers that did not answer
      # @raise [AdminError] when no broker has answered
      # @raise [UnsupportedError] when librdkafka is too old for `types`
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload groups(states: nil, types: nil, timeout: nil)
      def groups(*more, states: nil, types: nil, timeout: nil, **wrong)
        @internals.groups(*more, states:, types:, timeout:, **wrong)
      end

      # Describes a group.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once.
      #
      # Requires the right to describe the group.
      #
      # @param id [String]
      # @param authorized_operations [Boolean] see {#describe_groups}
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Group]
      # @raise [AdminError] with the code :group_id_not_found when there is no such group
      # @raise [UnsupportedError] when librdkafka is too old for a group of this type
      # @overload group(id, authorized_operations: false, timeout: nil)
      def group(id, *more, authorized_operations: false, timeout: nil, **wrong)
        @internals.group(id, *more, authorized_operations:, timeout:, **wrong)
      end

      # Describes groups and their members. Kafka describes a group that does not exist as a dead one: here it is an error with
      # the code :group_id_not_found.
      #
      # Groups of the type :consumer (`group.protocol: consumer`) require librdkafka 2.10.0. Before it, such a group is an
      # {UnsupportedError}.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is one request for each group, all at once. It is
      # repeated while the coordinator is not ready or does not answer.
      #
      # Requires the right to describe the groups; with librdkafka 2.10.0 also their topics, for groups of the type :consumer.
      #
      # @param ids [Array<String>]
      # @param authorized_operations [Boolean] whether to ask what this client may do with each. Requires librdkafka 2.3.0
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] a {Group} for each id
      # @raise [AdminError] when no group has an answer
      # @raise [UnsupportedError] when librdkafka is too old for `authorized_operations`
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload describe_groups(*ids, authorized_operations: false, timeout: nil)
      def describe_groups(*ids, authorized_operations: false, timeout: nil, **wrong)
        @internals.describe_groups(*ids, authorized_operations:, timeout:, **wrong)
      end

      # Deletes groups and the offsets that they have committed. A group that has members cannot be deleted.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once. It is two requests for each group, one after the
      # other, for all groups at once: the first asks for its offsets, and is repeated until the coordinator answers.
      #
      # Requires the right to delete the groups.
      #
      # @param ids [Array<String>]
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Results] true for each deleted group
      # @raise [AdminError] when no group has an answer
      # @raise [AdminTimeoutError] when no answer comes in time; the cluster may still delete the groups, as it may a group whose
      #   result is this error
      # @raise [ArgumentError] when something is invalid; nothing is sent then
      # @raise [AdminClosedError] when the client is closed
      # @overload delete_groups(*ids, timeout: nil)
      def delete_groups(*ids, timeout: nil, **wrong)
        @internals.delete_groups(*ids, timeout:, **wrong)
      end
    end
  end
end
