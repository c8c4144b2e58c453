# frozen_string_literal: true

module Penstock
  module MessagePack
    # A copy of a {Factory}, with options, for any number of threads. A Pool keeps Packers for later blocks. If all are in use, a
    # block gets a new one: no block waits. Unpackers are made anew for each block.
    #
    # The Pool of a frozen Factory is frozen, and shareable if the Factory is. `Ractor.make_shareable` makes a Pool shareable too.
    # A frozen Pool keeps no Packers: each block gets a new one.
    class Pool
      # Use {Factory#pool}.
      def initialize(registry, size, options)
        @registry = registry
        @size = size
        @pack_options = given(options.slice(*PACKING))
        @unpack_options = given(options.except(*(PACKING - %i[max_depth])))
        @packers = []
        packer(&:itself) # raises for unknown options
        unpacker(&:itself)
      end

      # @return [self] without Packers, which no Ractor may share
      def freeze
        @packers = nil unless frozen?
        super
      end

      PACKING = %i[compatibility_mode max_depth].freeze
      private_constant :PACKING

      # @param object [Object]
      # @return [String]
      def dump(object) = @registry.pack(object, @pack_options)

      # @param source [String, #readpartial, #read]
      # @return [Object]
      def load(source) = @registry.unpack(source, @unpack_options)

      # @yieldparam packer [Packer] of this block alone. After the block, a Packer that the Pool keeps raises ArgumentError from
      #   every method, until it is lent to another block: do not keep it
      # @return [Object] the value of the block
      def packer
        kept = @packers&.pop
        packer = kept ? @registry.lend(kept) : @registry.packer(@pack_options)
        begin
          yield packer
        ensure
          packers = @packers # read once: another thread may freeze the Pool meanwhile
          packers << packer if packers && packers.size < @size && @registry.take_back(packer)
        end
      end

      # @yieldparam unpacker [Unpacker]
      # @return [Object] the value of the block
      def unpacker = yield(Unpacker.new(@registry, @unpack_options))

      private

      def given(options) = options.empty? ? nil : options.freeze
    end
  end
end
