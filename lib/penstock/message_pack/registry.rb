# frozen_string_literal: true

module Penstock
  module MessagePack
    # The registered types, checked and frozen. Shareable if the given objects are.
    # @api private
    class Registry
      METHODS = { packer: :to_msgpack_ext, unpacker: :from_msgpack_ext }.freeze
      OPTIONS = %i[packer unpacker recursive oversized_integer_extension_type optimized_symbols_parsing].freeze
      private_constant :METHODS, :OPTIONS

      # @return [Registry] with one more type. A packer or unpacker is left out when it is nil, or only the other is given
      def with(type, klass, options)
        check(type, klass)
        check_options(klass, options)
        recursive, oversized, symbols = options.values_at(*OPTIONS.last(3))
        callables = callables(klass, options)
        symbols ||= callables[:unpacker].equal?(SYMBOLS[:unpacker])
        registry = self
        registry = registry.with_packer(type, klass, callables[:packer], recursive:, oversized:) if callables[:packer]
        registry = registry.with_unpacker(type, klass, callables[:unpacker], recursive:, symbols:) if callables[:unpacker]
        registry
      end

      # @return [Registry] with a type that is only packed
      def with_packer(type, klass, callable, recursive: false, oversized: false)
        check(type, klass)
        values = [type, checked(:packer, callable), recursive, oversized].freeze
        Registry.new(packers.merge(klass => values).freeze, unpackers)
      end

      # @return [Registry] with a type that is only unpacked
      def with_unpacker(type, klass, callable, recursive: false, symbols: false)
        check(type, klass) unless klass.nil? && check_type(type)
        values = [klass, checked(:unpacker, callable), recursive, symbols].freeze
        Registry.new(packers, unpackers.merge(type => values).freeze)
      end

      # @return [Array<Hash>] what is packed
      def packed = packers.map { |klass, (type, callable)| { type:, class: klass, packer: callable } }

      # @return [Array<Hash>] what is unpacked
      def unpacked = unpackers.map { |type, (klass, callable)| { type:, class: klass, unpacker: callable } }

      # @param klass_or_type [Module, Integer]
      # @raise [ArgumentError] when it is neither
      def packs?(klass_or_type)
        check_either(klass_or_type)
        packers.key?(klass_or_type) || packers.each_value.any? { |type,| type == klass_or_type }
      end

      # @param klass_or_type [Module, Integer]
      # @raise [ArgumentError] when it is neither
      def unpacks?(klass_or_type)
        check_either(klass_or_type)
        unpackers.key?(klass_or_type) || unpackers.each_value.any? { |klass,| !klass.nil? && klass == klass_or_type }
      end

      # What the methods of a Packer and of an Unpacker take.
      # @return [Registry]
      # @raise [ArgumentError] when both a method's name and a block are given
      def packing(type, klass, method_name, block)
        with_packer(type, klass, either(method_name, block) || METHODS[:packer])
      end

      # @return [Registry]
      # @raise [ArgumentError] when both are given, or neither a class nor a block
      def unpacking(type, klass, method_name, block)
        given = either(method_name, block)
        raise ArgumentError, "a type requires a class, or a block that takes the payload" unless klass || block

        with_unpacker(type, klass, given || METHODS[:unpacker])
      end

      private

      def check(type, klass)
        check_type(type)
        raise ::TypeError, "#{klass.inspect} is not a class or module" unless klass.is_a?(Module)
      end

      def check_type(type)
        raise ::TypeError, "an ext type must be an Integer, not #{type.inspect}" unless type.is_a?(Integer)
        raise RangeError, "an ext type must be from -128 to 127, not #{type}" unless type.between?(-128, 127)

        true
      end

      def check_either(klass_or_type)
        return if klass_or_type.is_a?(Module) || klass_or_type.is_a?(Integer)

        raise ArgumentError, "#{klass_or_type.inspect} is neither a class or module nor an ext type"
      end

      def callables(klass, options)
        return (klass == Symbol ? SYMBOLS : METHODS).merge(options) unless options[:packer] || options[:unpacker]

        options[:optimized_symbols_parsing] ? SYMBOLS.slice(:unpacker).merge(options) : options
      end

      def check_options(klass, options)
        raise ::TypeError, "options must be a Hash, not #{options.inspect}" unless options.is_a?(Hash)

        unknown = options.keys - OPTIONS
        raise ArgumentError, "unknown option #{unknown[0].inspect}; known: #{OPTIONS.join(", ")}" if unknown.any?

        check_owner(:oversized_integer_extension_type, options, Integer, klass)
        check_owner(:optimized_symbols_parsing, options, Symbol, klass)
        return if !options[:oversized_integer_extension_type] || options[:packer]

        raise ArgumentError, "oversized_integer_extension_type requires a packer, such as Bigint.method(:to_msgpack_ext)"
      end

      def check_owner(option, options, right, klass)
        raise ArgumentError, "#{option} is for #{right}, not #{klass}" if options[option] && klass != right
      end

      # @return [Symbol, String, #call, nil] either of the two that a method can be given
      def either(method_name, block)
        raise ArgumentError, "give a method's name or a block, not both" if method_name && block

        method_name || block
      end

      # @return [Symbol, #call] a method's name or what is called
      def checked(name, given)
        return given.to_sym if given.is_a?(String) || given.is_a?(Symbol)
        return given if given.respond_to?(:call)

        raise ::TypeError, "#{name} must be a method's name or an object with a method call, not #{given.inspect}"
      end

      # Symbols go as their text by themselves. The unpacker stands for what native code does.
      SYMBOLS = {
        packer: :name,
        unpacker: Ractor.make_shareable(proc { |payload| payload.force_encoding(Encoding::UTF_8).to_sym })
      }.freeze
      private_constant :SYMBOLS
    end
    private_constant :Registry
  end
end
