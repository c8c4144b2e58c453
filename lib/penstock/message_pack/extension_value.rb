# frozen_string_literal: true

module Penstock
  module MessagePack
    # A value of an ext type as it is in the data: its type, from -128 to 127, and its payload, a binary String. It can be packed
    # without being registered; what is unpacked becomes one with `allow_unknown_ext`.
    #
    # @!attribute type
    #   @return [Integer]
    # @!attribute payload
    #   @return [String]
    ExtensionValue = Struct.new(:type, :payload)
  end
end
