# frozen_string_literal: true

require_relative "base"
require_relative "errors/error"
require_relative "errors/rejection_advice"
require_relative "errors/aliases"

# The error classes, and what to check when brokers reject a client.
module Penstock
  private_constant :RejectionAdvice
end
