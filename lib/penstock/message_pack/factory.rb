# frozen_string_literal: true

module Penstock
  module MessagePack
    # Which classes become which ext types, and back.
    #
    #     factory = Penstock::MessagePack::Factory.new
    #     factory.register_type(0x01, Point, packer: :to_bytes, unpacker: Point.method(:from_bytes))
    #     factory.load(factory.dump(Point.new(1, 2)))
    #
    # Registering is for one thread at a time; all else can be done by any number of them. With `Ractor.make_shareable` it is
    # frozen and, if its packers and unpackers can be made shareable too, for all Ractors at once.
    class Factory
      def initialize
        @registry = Registry::EMPTY
      end

      # Packers and Unpackers that were made before do not learn of it. What was registered before is registered anew.
      # Objects of a subclass, or with a module, are packed as the nearest of their ancestors that is registered. Of Ruby's own
      # classes only Symbol, and Integer beyond 64 bits, are looked for; of Strings, Arrays and Hashes subclasses are.
      #
      # @param type [Integer] from -128 to 127; the format keeps the negative ones for itself
      # @param klass [Module]
      # @param options [Hash]
      #   `packer`: gives the payload of an object: a method's name, or anything with a method call, that takes the object;
      #   `unpacker`: a method's name of the class, or anything with a method call, that takes the payload. With one of them
      #   the type goes one way only. Their defaults are the methods to_msgpack_ext and from_msgpack_ext; nil leaves one out.
      #   `recursive`: the packer takes the object and a {Packer} to write the payload to, the unpacker an {Unpacker} to read all
      #   of it from. `oversized_integer_extension_type`: for Integers beyond 64 bits.
      #   `optimized_symbols_parsing`: the payload is a Symbol's text
      # @return [nil]
      # @raise [ArgumentError, ::TypeError, RangeError] what is wrong with it
      # @raise [FrozenError]
      def register_type(type, klass, options = {})
        if frozen?
          raise FrozenError.new("this Factory is frozen, as DefaultFactory always is: register types with one of your own " \
                                "(Penstock::MessagePack::Factory.new)", receiver: self)
        end
        @registry = registry.with(type, klass, options)
        nil
      end

      # @param arguments see {Packer#initialize}
      # @return [Packer]
      def packer(*arguments) = registry.packer(*arguments)

      # @param arguments see {Unpacker#initialize}
      # @return [Unpacker]
      def unpacker(*arguments) = Unpacker.new(registry, *arguments)

      # @param object [Object]
      # @param arguments see {MessagePack.pack}
      # @return [String, nil]
      def dump(object, *arguments) = registry.pack(object, *arguments)
      alias pack dump

      # @param source [String, #readpartial, #read]
      # @param arguments see {MessagePack.unpack}
      # @return [Object]
      def load(source, *arguments) = registry.unpack(source, *arguments)
      alias unpack load

      # @param size [Integer] Packers that the Pool keeps; more may be in use
      # @param options see {MessagePack.pack} and {Unpacker#initialize}
      # @return [Pool] of the types that are registered now; frozen if this Factory is
      def pool(size = 1, **options)
        raise ArgumentError, "size is a positive Integer, not #{size.inspect}" unless size.is_a?(Integer) && size.positive?

        pool = Pool.new(registry, size, options)
        frozen? ? pool.freeze : pool
      end

      # @param selector [:both, :packer, :unpacker]
      # @return [Array<Hash>] with keys type, class, packer, unpacker
      def registered_types(selector = :both)
        case selector
        when :packer then registry.packed
        when :unpacker then registry.unpacked
        when :both then both
        else raise ArgumentError, "selector is :both, :packer or :unpacker, not #{selector.inspect}"
        end
      end

      # @param klass_or_type [Module, Integer]
      # @param selector [:both, :packer, :unpacker] :both: that it is in either
      # @return [Boolean]
      # @raise [ArgumentError] an unknown selector, or something else than a class, module or type
      def type_registered?(klass_or_type, selector = :both)
        case selector
        when :packer then registry.packs?(klass_or_type)
        when :unpacker then registry.unpacks?(klass_or_type)
        when :both then registry.packs?(klass_or_type) || registry.unpacks?(klass_or_type)
        else raise ArgumentError, "selector is :both, :packer or :unpacker, not #{selector.inspect}"
        end
      end

      private

      attr_reader :registry

      def both
        packed = registry.packed.to_h { |entry| [entry.values_at(:type, :class), entry] }
        unpacked = registry.unpacked.to_h { |entry| [entry.values_at(:type, :class), entry] }
        packed.merge(unpacked) { |_, one, other| one.merge(other) }.values.sort_by { |entry| entry[:type] }
      end
    end
  end
end
