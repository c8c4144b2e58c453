# frozen_string_literal: true

require "penstock"

module Penstock
  module MessagePack
    # `to_msgpack` for Ruby's own classes, as the msgpack gem gives them; only with
    # `require "penstock/message_pack/core_ext"`, as it changes them for the whole program. With the gem in the same program
    # the later of the two is in force.
    module CoreExt
      # @param packer_or_io [Packer, #write, #<<, nil]
      # @return [String, Packer, nil] packed; the Packer it was given; nil with an io
      def to_msgpack(packer_or_io = nil)
        return packer_or_io.write(self) if packer_or_io.is_a?(Packer)

        MessagePack.pack(self, packer_or_io)
      end

      [NilClass, TrueClass, FalseClass, Integer, Float, String, Symbol, Array, Hash, ExtensionValue].each do |klass|
        klass.include(CoreExt)
      end
    end
  end
end
