# frozen_string_literal: true

module Penstock
  class Admin
    # What the methods of {ClusterCalls} do. Part of {Internals}.
    # @api private
    module ClusterRequests
      # See {Admin#cluster}.
      def cluster(*more, authorized_operations: false, timeout: nil, **wrong)
        Keywords.check("cluster(timeout: 10)", %i[authorized_operations timeout], more, wrong)
        require_support(:describe_cluster, "2.3.0", "ask for authorized operations") if authorized_operations
        deadline = deadline_of(timeout)
        described = described_cluster(deadline, authorized_operations) if @client.respond_to?(:describe_cluster)
        cluster_of(*(described || @client.cluster_of_metadata(options(deadline))))
      end

      private

      # @return [Array, nil] nil: an embedded cluster cannot
      def described_cluster(deadline, authorized)
        only(@client.describe_cluster(options(deadline, authorized:)))
      rescue UnsupportedError
        raise if authorized
      end

      def cluster_of(id, controller, operations, brokers)
        all = brokers.sort_by(&:first).map { |number, host, port, rack| Broker.new(id: number, host:, port:, rack:) }
        Ractor.make_shareable(Cluster.new(id:, controller:, brokers: all, authorized_operations: operations_of(operations)))
      end
    end
  end
end
