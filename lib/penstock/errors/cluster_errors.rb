# frozen_string_literal: true

module Penstock
  # Group: the cluster did not answer a question about topics or brokers, or refused something else than a message, a
  # transaction or a consumer's call. It is raised itself, and librdkafka's own reports in "error.occurred" are of it too.
  class ClusterError < Error; end
end
