# frozen_string_literal: true

require_relative "base"
require_relative "errors/error"
require_relative "errors/usage_errors"
require_relative "errors/configuration_errors"
require_relative "errors/produce_errors"
require_relative "errors/transaction_errors"
require_relative "errors/consume_errors"
require_relative "errors/cluster_errors"
require_relative "errors/admin_errors"
require_relative "errors/rejection_advice"
require_relative "errors/advice"
require_relative "errors/error_factory"
require_relative "errors/aliases"

# The error classes, a file for each group, and what builds them.
module Penstock
  # Its errors are a group, too: MessagePack::UnpackError. Only this file declares the autoload: a second declaration could hide
  # a module that another thread is just loading.
  autoload :MessagePack, "penstock/message_pack/codec"
  private_constant :RejectionAdvice, :Advice, :ErrorFactory
end
