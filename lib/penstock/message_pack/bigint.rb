# frozen_string_literal: true

module Penstock
  module MessagePack
    # Integers of any size as a payload: a byte for the sign (0, or 1 for negative ones), then 32 bits at a time, the lowest
    # first, each big-endian. The msgpack gem's format.
    #
    #     factory.register_type(0x01, Integer, packer: Penstock::MessagePack::Bigint.method(:to_msgpack_ext),
    #                           unpacker: Penstock::MessagePack::Bigint.method(:from_msgpack_ext),
    #                           oversized_integer_extension_type: true)
    module Bigint
      # @param integer [Integer]
      # @return [String]
      def self.to_msgpack_ext(integer)
        digits = integer.zero? ? "" : integer.abs.to_s(16)
        chunks = [digits.rjust((digits.size + 7) / 8 * 8, "0")].pack("H*").unpack("L>*")
        [integer.negative? ? 1 : 0, *chunks.reverse].pack("CL>*")
      end

      # @param payload [String]
      # @return [Integer]
      # @raise [MalformedFormatError] when it is empty, or ends within 32 bits
      def self.from_msgpack_ext(payload)
        unless payload.bytesize % 4 == 1
          raise ErrorFactory.build(MalformedFormatError,
                                   "the payload of an Integer must have 1 byte and a multiple of 4, not #{payload.bytesize}")
        end

        sign, *chunks = payload.unpack("CL>*")
        number = chunks.reverse.pack("L>*").unpack1("H*").to_i(16)
        sign.zero? ? number : -number
      end
    end
  end
end
