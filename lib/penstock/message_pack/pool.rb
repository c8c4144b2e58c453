# frozen_string_literal: true

module Penstock
  module MessagePack
    # A {Factory} as it was, with options. Packers and Unpackers are made anew for each block: a block may keep its own without
    # another getting the same, and there is no limit to how many are in use. Frozen, and shareable if its Factory can be.
    class Pool
      # Penstock makes them.
      def initialize(registry, options)
        @registry = registry
        @pack_options = given(options.slice(*PACKING))
        @unpack_options = given(options.except(*(PACKING - %i[max_depth])))
        packer(&:itself) # raises for unknown options
        unpacker(&:itself)
        freeze
      end

      PACKING = %i[compatibility_mode max_depth].freeze
      private_constant :PACKING

      # @param object [Object]
      # @return [String]
      def dump(object) = @registry.pack(object, @pack_options)

      # @param source [String, #readpartial, #read]
      # @return [Object]
      def load(source) = @registry.unpack(source, @unpack_options)

      # @yieldparam packer [Packer]
      # @return [Object] what the block gives
      def packer = yield(@registry.packer(@pack_options))

      # @yieldparam unpacker [Unpacker]
      # @return [Object] what the block gives
      def unpacker = yield(Unpacker.new(@registry, @unpack_options))

      private

      def given(options) = options.empty? ? nil : options.freeze
    end
  end
end
