# frozen_string_literal: true

module Penstock
  module MessagePack
    # An uninterpreted value of an ext type: its type, from -128 to 127, and its payload, a binary String. Packing it requires no
    # registration. With `allow_unknown_ext`, unpacking makes one for each unregistered type.
    #
    # @!attribute type
    #   @return [Integer]
    # @!attribute payload
    #   @return [String]
    ExtensionValue = Struct.new(:type, :payload) do
      # @param packer_or_io [Packer, #write, #<<, nil] the msgpack gem's Packer, too
      # @return [String, Packer, nil] packed; the given Packer; nil with an io
      def to_msgpack(packer_or_io = nil)
        return packer_or_io.write_extension(self) if Packer === packer_or_io # rubocop:disable Style/CaseEquality -- see Packer#is_a?

        packed = MessagePack.pack(ExtensionValue.new(type, payload), packer_or_io)
        packer_or_io.respond_to?(:write_array_header) ? packer_or_io : packed
      end
    end
  end
end
