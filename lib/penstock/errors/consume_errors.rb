# frozen_string_literal: true

module Penstock
  # Group: a consumer met an error that does not go away by itself, or something asked of it failed. See the code.
  class ConsumeError < Error; end

  # Offsets were not committed. Their messages are delivered again after a restart or rebalance.
  class CommitError < ConsumeError; end

  # The brokers did not answer a consumer's question in time. An offset to be committed may still be.
  class ConsumeTimeoutError < ConsumeError
    include TimeoutError
  end
end
