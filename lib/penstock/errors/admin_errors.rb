# frozen_string_literal: true

module Penstock
  # Group: the cluster rejected what an {Admin} client asked for, or did not answer. See the code.
  class AdminError < Error; end

  # The cluster did not answer an {Admin} client in time. A change may still take effect.
  class AdminTimeoutError < AdminError
    include TimeoutError
  end

  # No broker could be reached for `config.unreachable_timeout` of an {Admin} client. A change may still take effect, if the
  # connection was lost after it was sent.
  class AdminUnreachableError < AdminError
    include ConnectionError
  end
end
