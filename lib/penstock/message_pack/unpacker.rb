# frozen_string_literal: true

module Penstock
  module MessagePack
    # Reads objects from bytes that arrive piece by piece, or from an io.
    #
    #     unpacker = Penstock::MessagePack::Unpacker.new(symbolize_keys: true)
    #     unpacker.feed_each(socket.readpartial(4096)) { |object| work(object) }
    #
    # An incomplete object raises an EOFError, or ends {#each}. Its bytes are kept: feed more, and read again.
    #
    # For one thread at a time. Registered unpackers, which it calls while it reads an object, must not use it.
    #
    # After an UnpackError, or an error of a registered unpacker, the rest of the object cannot be distinguished from the data
    # after it: call {#reset}. Otherwise the next read begins after the value that failed, or after the payload of an ext type.
    #
    # The unpacker of a recursive ext type gets an Unpacker over the payload, which is empty once that unpacker has returned. It
    # must read or {#skip} all of the payload. Otherwise, and if the payload ends within an object, a MalformedFormatError is
    # raised.
    class Unpacker
      include Enumerable

      # @!method initialize(io = nil, options = nil)
      #   @param io [#readpartial, #read, nil] a source of bytes, besides {#feed}
      #   @param options [Hash, nil]
      #     `symbolize_keys` (Boolean): keys of maps that are str or bin become Symbols;
      #     `freeze` (Boolean): everything that unpacking makes is frozen, and equal Strings are the same object. What a
      #     registered unpacker returns is frozen by its method `freeze`, except classes and modules; what it refers to
      #     stays as it is;
      #     `allow_unknown_ext` (Boolean): an ext type that is not registered becomes an {ExtensionValue};
      #     `key_cache` (Boolean): no effect, a Ractor always shares keys between the documents that it unpacked lately;
      #     `max_depth` (Integer, default 128), `max_elements` (Integer, default 16,777,216: values in one object,
      #     payloads of recursive ext types included), `max_bytes`
      #     (Integer, default 268,435,456: of a String or payload); nil: no limit;
      #     `io_buffer_size` (bytes read at a time, from 1024 on, default 32,768)
      #   @raise [ArgumentError] when an option is unknown
      # @!method feed(data)
      #   @param data [String] bytes; one of some KB is not copied
      #   @return [self]
      # @!method feed_reference(data)
      #   The same as {feed}.
      # @!method read
      #   Blocks: while it reads from an io.
      #   @return [Object] the next object
      #   @raise [EOFError] when it is missing or incomplete
      #   @raise [UnpackError] see its subclasses
      # @!method unpack
      #   The same as {read}.
      # @!method skip
      #   Skips the next object, or the rest of an incomplete one.
      #   @raise [EOFError] when it is incomplete; the next call skips the rest first
      # @!method skip_nil
      #   @return [Boolean] whether the next object is nil, which is then skipped
      #   @raise [EOFError] when it is not complete
      # @!method read_array_header
      #   @return [Integer] number of objects of the next object, an array; read them one by one
      #   @raise [UnexpectedTypeError] when it is another type; it is not skipped
      #   @raise [EOFError] when it is not complete
      # @!method read_map_header
      #   @return [Integer] number of pairs of the next object, a map
      #   @raise [UnexpectedTypeError] when it is another type; it is not skipped
      #   @raise [EOFError] when it is not complete
      # @!method each
      #   Blocks: while it reads from an io, until that ends.
      #   @yieldparam object [Object]
      #   @return [nil, Enumerator]
      #   @raise [EOFError] when the io ended within an object
      #   @raise [UnpackError] when the data is invalid or exceeds a limit
      # @!method feed_each(data)
      #   {feed} and {each}.
      #   @return [nil, Enumerator]
      # @!method full_unpack
      #   Reads the only object; then {reset}.
      #   @return [Object]
      #   @raise [MalformedFormatError] when bytes follow it
      # @!method reset
      #   Discards all bytes, and an incomplete object. Also frees an Unpacker whose Fiber was abandoned within a
      #   registered unpacker. Until then every other method raises a RuntimeError; afterwards that Fiber gets one if it is
      #   resumed.
      #   @return [nil]
      #   @raise [RuntimeError] when a registered unpacker calls it in the Fiber that reads
      # @!method buffer
      #   @return [Buffer]
      # @!method symbolize_keys?
      #   @return [Boolean]
      # @!method freeze?
      #   @return [Boolean]
      # @!method allow_unknown_ext?
      #   @return [Boolean]

      # Registers a type with this Unpacker only.
      # @param type [Integer] from -128 to 127
      # @param klass [Module, nil]
      # @param method_name [Symbol, String, nil] a method of the class that takes the payload (default :from_msgpack_ext);
      #   or a block that does
      # @return [nil]
      # @raise [ArgumentError] when neither a class nor a block is given, or both a method's name and a block
      def register_type(type, klass = nil, method_name = nil, &block)
        self.registry = registry.unpacking(type, klass, method_name, block)
        nil
      end

      # @return [Array<Hash>] with keys type, class, unpacker
      def registered_types = registry.unpacked

      # @param klass_or_type [Module, Integer]
      # @return [Boolean]
      def type_registered?(klass_or_type) = registry.unpacks?(klass_or_type)
    end
  end
end
