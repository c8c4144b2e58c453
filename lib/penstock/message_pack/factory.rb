# frozen_string_literal: true

module Penstock
  module MessagePack
    # A registry of classes and their ext types.
    #
    #     factory = Penstock::MessagePack::Factory.new
    #     factory.register_type(0x01, Point, packer: :to_bytes, unpacker: Point.method(:from_bytes))
    #     factory.load(factory.dump(Point.new(1, 2)))
    #
    # Only one thread at a time may register types. Any number of threads may use all other methods. `Ractor.make_shareable`
    # freezes a Factory, for use by all Ractors, if its packers and unpackers can be made shareable too.
    class Factory
      def initialize
        @registry = Registry::EMPTY
      end

      # Registers a type. Replaces an earlier registration. Existing Packers and Unpackers do not change.
      # An object of a subclass, or with a module, is packed like its nearest registered ancestor. Of Ruby's own
      # classes only Symbol and Integer beyond 64 bits can be registered, and subclasses of String, Array and Hash.
      #
      # @param type [Integer] from -128 to 127; the format reserves the negative ones
      # @param klass [Module]
      # @param options [Hash]
      #   `packer`: returns the payload of an object: the name of its method, or an object with call(object);
      #   `unpacker`: the name of a method of the class, or an object with call(payload). If only one is given,
      #   the type is only packed or only unpacked. The defaults are the methods to_msgpack_ext and from_msgpack_ext; nil: none.
      #   `recursive`: the packer takes the object and a {Packer} to write the payload to, the unpacker an {Unpacker} to read all
      #   of it from. `oversized_integer_extension_type`: for Integers beyond 64 bits.
      #   `optimized_symbols_parsing`: the payload is a Symbol's text
      # @return [nil]
      # @raise [ArgumentError, ::TypeError, RangeError] when an argument is invalid
      # @raise [FrozenError] when this Factory is frozen
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

      # @param size [Integer] number of Packers that the Pool keeps; more may be in use
      # @param options see {MessagePack.pack} and {Unpacker#initialize}
      # @return [Pool] of the types that are registered now; frozen if this Factory is
      def pool(size = 1, **options)
        raise ArgumentError, "size must be a positive Integer, not #{size.inspect}" unless size.is_a?(Integer) && size.positive?

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
        else raise ArgumentError, "selector must be :both, :packer or :unpacker, not #{selector.inspect}"
        end
      end

      # @param klass_or_type [Module, Integer]
      # @param selector [:both, :packer, :unpacker] :both: in at least one of them
      # @return [Boolean]
      # @raise [ArgumentError] when the selector is unknown, or the first argument is no class, module or type
      def type_registered?(klass_or_type, selector = :both)
        case selector
        when :packer then registry.packs?(klass_or_type)
        when :unpacker then registry.unpacks?(klass_or_type)
        when :both then registry.packs?(klass_or_type) || registry.unpacks?(klass_or_type)
        else raise ArgumentError, "selector must be :both, :packer or :unpacker, not #{selector.inspect}"
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
