# frozen_string_literal: true

module Penstock
  module Native
    # Objects of a Ractor, until they are garbage-collected: see weak_list.c. Not an ObjectSpace::WeakMap, which ends the process
    # with Ruby 3.1.
    #
    # @!method add(object)
    #   @param object [Object] not frozen
    #   @return [self]
    # @!method to_a
    #   Ends a garbage collection that has begun.
    #   @return [Array<Object>] the latest first
    # @api private
    class WeakList
      include Uncopyable
      include AsJson
    end
  end
end
