# frozen_string_literal: true

module Penstock
  module MessagePack
    # A {Factory} as it was, with options. Packers and Unpackers are made anew for each block, which costs less than sharing them:
    # so there is no limit to how many are in use. Frozen, and shareable if its Factory can be.
    class Pool
      # @api private
      def initialize(factory, options)
        @factory = factory.dup.freeze
        @pack_options = options.slice(*PACKING).freeze
        @unpack_options = options.except(*(PACKING - %i[max_depth])).freeze
        packer(&:itself) # unknown options are refused here
        unpacker(&:itself)
        freeze
      end

      PACKING = %i[compatibility_mode max_depth].freeze
      private_constant :PACKING

      # @param object [Object]
      # @return [String]
      def dump(object) = @factory.dump(object, @pack_options)

      # @param source [String, #readpartial, #read]
      # @return [Object]
      def load(source) = @factory.load(source, @unpack_options)

      # @yieldparam packer [Packer]
      # @return [Object] what the block gives
      def packer = yield(@factory.packer(@pack_options))

      # @yieldparam unpacker [Unpacker]
      # @return [Object] what the block gives
      def unpacker = yield(@factory.unpacker(@unpack_options))
    end
  end
end
