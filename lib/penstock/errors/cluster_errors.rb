# frozen_string_literal: true

module Penstock
  # Group: the cluster did not answer a question about topics or brokers, or rejected it. Messages, transactions and
  # consumers have groups of their own. This class is raised itself. librdkafka's reports in "error.occurred" have it too.
  class ClusterError < Error; end
end
