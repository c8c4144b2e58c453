# frozen_string_literal: true

module Penstock
  module MessagePack
    # Packs one object after the other, into its {#buffer} or an io.
    #
    #     packer = Penstock::MessagePack::Packer.new
    #     packer.write_array_header(2).write("id").write(1).to_s
    #
    # For one thread at a time. If a write raises, the bytes that it had added are removed.
    class Packer
      # @!method initialize(io = nil, options = nil)
      #   @param io [#write, #<<, nil] destination of {#flush}, and of bytes beyond `io_buffer_size`
      #   @param options [Hash, nil] those of {MessagePack.pack}, and `io_buffer_size` (bytes, from 1024 on, default 32,768)
      #   @raise [ArgumentError] when an option is unknown
      # @!method write(object)
      #   @param object [Object] see {MessagePack}
      #   @return [self]
      #   @raise [NoMethodError, RangeError, StackError, EncodingError] see {MessagePack.pack}
      # @!method pack(object)
      #   The same as {write}.
      # @!method write_nil
      #   @return [self]
      # @!method write_true
      #   @return [self]
      # @!method write_false
      #   @return [self]
      # @!method write_float(number)
      #   @param number [Numeric] 64 bits
      #   @return [self]
      # @!method write_float32(number)
      #   @param number [Numeric] 32 bits
      #   @return [self]
      # @!method write_int(integer)
      #   @return [self]
      #   @raise [::TypeError] when it is not an Integer
      # @!method write_string(string)
      #   @return [self]
      #   @raise [::TypeError] when it is not a String
      # @!method write_bin(string)
      #   @param string [String] of any encoding
      #   @return [self]
      #   @raise [::TypeError] when it is not a String
      # @!method write_symbol(symbol)
      #   @return [self]
      #   @raise [::TypeError] when it is not a Symbol
      # @!method write_array(array)
      #   @return [self]
      #   @raise [::TypeError] when it is not an Array
      # @!method write_hash(hash)
      #   @return [self]
      #   @raise [::TypeError] when it is not a Hash
      # @!method write_extension(extension)
      #   @param extension [ExtensionValue]
      #   @return [self]
      # @!method write_ext(type, payload)
      #   @param type [Integer] from -128 to 127
      #   @param payload [String]
      #   @return [self]
      #   @raise [RangeError] when the type is out of range
      # @!method write_array_header(count)
      #   @param count [Integer] number of its objects, which are written next
      #   @return [self]
      # @!method write_map_header(count)
      #   @param count [Integer] number of its pairs of key and value, which are written next
      #   @return [self]
      # @!method write_bin_header(size)
      #   @param size [Integer] number of bytes, which are written to {#buffer} next
      #   @return [self]
      # @!method flush
      #   Writes the packed bytes to the io, if there is one. If the io raises, all of them stay, also when a write caused
      #   the flush. Within a recursive type's packer it does nothing.
      #   Blocks: as the io does.
      #   @return [self]
      # @!method reset
      #   Discards the bytes that are not flushed. Within a recursive type's packer it discards the whole object, whose write
      #   raises RuntimeError then.
      # @!method clear
      #   The same as {reset}.
      # @!method size
      #   @return [Integer] bytes that are not flushed
      # @!method empty?
      #   @return [Boolean]
      # @!method to_s
      #   @return [String] the bytes that are not flushed; they stay
      # @!method to_str
      #   The same as {to_s}.
      # @!method to_a
      #   @return [Array<String>]
      # @!method full_pack
      #   Finishes: {to_s} or, with an io, {flush}; then {reset}.
      #   @return [String, nil]
      # @!method write_to(io)
      #   Writes the packed bytes to another io. If that raises, all of them stay.
      #   @return [Integer] bytes
      # @!method buffer
      #   @return [Buffer]
      # @!method compatibility_mode?
      #   @return [Boolean]

      # The msgpack gem's `to_msgpack` of Array, Hash and so on asks whether it was given the gem's Packer, and takes anything
      # else for an io. This class has the methods that it calls then.
      # @param type [Module]
      # @return [Boolean] true for the gem's `MessagePack::Packer`, too
      def is_a?(type) = super || (defined?(::MessagePack::Packer) && ::MessagePack::Packer.equal?(type)) || false
      alias kind_of? is_a?

      # Registers a type with this Packer only.
      # @param type [Integer] from -128 to 127
      # @param klass [Module]
      # @param method_name [Symbol, String, nil] a method of the object that returns the payload (default :to_msgpack_ext);
      #   or a block that takes the object
      # @return [nil]
      # @raise [ArgumentError] when both a method's name and a block are given
      def register_type(type, klass, method_name = nil, &block)
        self.registry = registry.packing(type, klass, method_name, block)
        nil
      end

      # @return [Array<Hash>] with keys type, class, packer
      def registered_types = registry.packed

      # @param klass_or_type [Module, Integer]
      # @return [Boolean]
      def type_registered?(klass_or_type) = registry.packs?(klass_or_type)
    end
  end
end
