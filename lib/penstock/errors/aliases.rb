# frozen_string_literal: true

module Penstock
  # The error classes once more, by the names a program has that comes from another client: `Penstock::Errors::ProduceError`.
  module Errors
    # The base of all.
    BaseError = Error
    # What a producer raises that belongs to the process this one was forked from.
    ProducerUsedInParentProcess = ForkedError

    Penstock.constants.each do |name|
      constant = Penstock.const_get(name)
      const_set(name, constant) if constant.is_a?(Class) && constant <= Error
    end
    const_set(:TimeoutError, TimeoutError)
    const_set(:ConnectionError, ConnectionError)
  end
end
