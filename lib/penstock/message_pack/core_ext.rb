# frozen_string_literal: true

require_relative "../message_pack"

module Penstock
  module MessagePack
    # `to_msgpack` for Ruby's own classes, like that of the msgpack gem. Requires
    # `require "penstock/message_pack/core_ext"`, because it changes these classes for the whole program. If the program also
    # loads the gem, the one that is loaded later is in force. Each writes to the Packer of either library.
    module CoreExt
      # @param packer_or_io [Packer, #write, #<<, nil] the msgpack gem's Packer, too
      # @return [String, Packer, nil] packed; the given Packer; nil with an io
      def to_msgpack(packer_or_io = nil)
        return MessagePack.pack(self, packer_or_io) unless packer_or_io.respond_to?(:write_array_header)

        case self
        when Hash then packer_or_io.write_hash(self)
        when Array then packer_or_io.write_array(self)
        when String then packer_or_io.write_string(self)
        when Symbol then packer_or_io.write_symbol(self)
        when Integer then packer_or_io.write_int(self)
        when Float then packer_or_io.write_float(self)
        else packer_or_io.write(self)
        end
        packer_or_io
      end

      [NilClass, TrueClass, FalseClass, Integer, Float, String, Symbol, Array, Hash].each { |klass| klass.include(CoreExt) }
    end
  end
end
