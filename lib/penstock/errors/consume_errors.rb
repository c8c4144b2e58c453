# frozen_string_literal: true

module Penstock
  # Group: a consumer met a permanent error, or a call on it failed. See the code.
  class ConsumeError < Error; end

  # A payload or key could not be decoded: `config.deserializer` or `config.key_deserializer` raised. Its error is the `cause`,
  # and may quote the bytes. Only this message is affected, and its `payload` and `key` can be read.
  class DeserializationError < ConsumeError; end

  # Offsets were not committed. Their messages are delivered again after a restart or rebalance.
  class CommitError < ConsumeError; end

  # The brokers did not answer a call of a consumer in time. A commit may still succeed.
  class ConsumeTimeoutError < ConsumeError
    include TimeoutError
  end
end
