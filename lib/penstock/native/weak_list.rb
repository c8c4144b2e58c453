# frozen_string_literal: true

module Penstock
  module Native
    # Objects of a Ractor, until they are garbage-collected: see weak_list.c. Not an ObjectSpace::WeakMap or a WeakRef, which may
    # end the process with Ruby 3.1. Its methods that read end a garbage collection that has begun.
    #
    # @!method add(object)
    #   @param object [Object] not frozen
    #   @return [self]
    # @!method to_a
    #   @return [Array<Object>] the latest first
    # @!method empty?
    #   @return [Boolean]
    # @api private
    class WeakList
      include Uncopyable
      include AsJson
    end
  end
end
