# frozen_string_literal: true

require_relative "base"
require_relative "errors/error"
require_relative "errors/rejection_advice"
require_relative "errors/aliases"

module Penstock
  private_constant :RejectionAdvice
end
