# frozen_string_literal: true

module Penstock
  # The error classes under a second name, for programs that come from another client: `Penstock::Errors::ProduceError`.
  module Errors
    # The base of all errors.
    BaseError = Error
    # The object belongs to the parent process.
    ProducerUsedInParentProcess = ForkedError

    Penstock.constants.each do |name|
      constant = Penstock.const_get(name)
      const_set(name, constant) if constant.is_a?(Class) && constant <= Error
    end
    const_set(:TimeoutError, TimeoutError)
    const_set(:ConnectionError, ConnectionError)
  end
end
