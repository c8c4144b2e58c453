# frozen_string_literal: true

module Penstock
  class Admin
    # The methods of {Admin} for the cluster and its brokers.
    module ClusterCalls
      # Describes the cluster.
      #
      # Blocks: this thread or fiber, without the GVL; interruptible at once.
      #
      # Everybody may ask.
      #
      # @param authorized_operations [Boolean] whether to ask what this client may do with the cluster. Requires librdkafka 2.3.0
      # @param timeout [Numeric, nil] seconds, at most 3600; nil: `config.timeout`
      # @return [Cluster]
      # @raise [AdminError] when the request failed
      # @raise [UnsupportedError] when librdkafka is too old for `authorized_operations`
      # @raise [AdminClosedError] when the client is closed
      # @overload cluster(authorized_operations: false, timeout: nil)
      def cluster(*more, authorized_operations: false, timeout: nil, **wrong)
        @internals.cluster(*more, authorized_operations:, timeout:, **wrong)
      end
    end
  end
end
