# frozen_string_literal: true

module Penstock
  module MessagePack
    # Reads objects from bytes that arrive piece by piece, or from an io.
    #
    #     unpacker = Penstock::MessagePack::Unpacker.new(symbolize_keys: true)
    #     unpacker.feed_each(socket.readpartial(4096)) { |object| work(object) }
    #
    # An object whose end has not come yet is an EOFError, or the end of {#each}, and is kept as far as it got: feed more, and
    # go on.
    # For one thread at a time; what it calls while it reads an object (unpackers that were registered) may not use it.
    #
    # After an UnpackError, or when an unpacker has raised, what follows in the data cannot be told from the rest of the object:
    # {#reset}. The next read begins behind the value that failed; of an ext type, behind its payload.
    #
    # The unpacker of a recursive ext type gets an Unpacker over the payload, which is empty once that unpacker has returned. It
    # must read or {#skip} all of the payload. Otherwise, and if the payload ends within an object, a MalformedFormatError is
    # raised.
    class Unpacker
      include Enumerable

      # @!method initialize(io = nil, options = nil)
      #   @param io [#readpartial, #read, nil] where bytes come from, besides those that are fed
      #   @param options [Hash, nil]
      #     `symbolize_keys` (Boolean): a map's keys that are str or bin become Symbols;
      #     `freeze` (Boolean): everything that unpacking makes is frozen, and equal Strings are the same object. What a
      #     registered unpacker returns is frozen by its method `freeze`, except classes and modules; what it refers to
      #     stays as it is;
      #     `allow_unknown_ext` (Boolean): an ext type that is not registered becomes an {ExtensionValue};
      #     `key_cache` (Boolean): no difference here, keys are always shared between documents that a Ractor unpacked lately;
      #     `max_depth` (Integer, default 128), `max_elements` (Integer, default 16,777,216: values in one object,
      #     payloads of recursive ext types included), `max_bytes`
      #     (Integer, default 268,435,456: of a String or payload), nil for none;
      #     `io_buffer_size` (bytes read at a time, from 1024 on, default 32,768)
      #   @raise [ArgumentError] an unknown option
      # @!method feed(data)
      #   @param data [String] bytes; one of some KB is not copied
      #   @return [self]
      # @!method feed_reference(data)
      #   The same as {feed}.
      # @!method read
      #   Blocks: while it reads from an io.
      #   @return [Object] the next
      #   @raise [EOFError] it is not there, or not all of it
      #   @raise [UnpackError] see its subclasses
      # @!method unpack
      #   The same as {read}.
      # @!method skip
      #   Drops the next object, or the rest of one that is not whole yet.
      #   @raise [EOFError] it is not all there; the rest is dropped first by whatever is called next
      # @!method skip_nil
      #   @return [Boolean] whether the next object is nil; it is dropped then
      #   @raise [EOFError]
      # @!method read_array_header
      #   @return [Integer] how many objects the next, an array, has; they are read one by one then
      #   @raise [UnexpectedTypeError] it is none, and stays
      #   @raise [EOFError]
      # @!method read_map_header
      #   @return [Integer] how many pairs the next object, a map, has
      #   @raise [UnexpectedTypeError] it is none, and stays
      #   @raise [EOFError]
      # @!method each
      #   Blocks: while it reads from an io, until that ends.
      #   @yieldparam object [Object]
      #   @return [nil, Enumerator]
      #   @raise [EOFError] the io ended within an object
      #   @raise [UnpackError]
      # @!method feed_each(data)
      #   {feed} and {each}.
      #   @return [nil, Enumerator]
      # @!method full_unpack
      #   The only object there is; then {reset}.
      #   @return [Object]
      #   @raise [MalformedFormatError] bytes follow it
      # @!method reset
      #   Drops all bytes, and an object that is not whole yet. Also frees an Unpacker whose Fiber was abandoned within a
      #   registered unpacker. Until then every other method raises a RuntimeError; afterwards that Fiber gets one if it is
      #   resumed.
      #   @return [nil]
      #   @raise [RuntimeError] it is called by an unpacker, in the Fiber that reads
      # @!method buffer
      #   @return [Buffer]
      # @!method symbolize_keys?
      #   @return [Boolean]
      # @!method freeze?
      #   @return [Boolean]
      # @!method allow_unknown_ext?
      #   @return [Boolean]

      # Registers a type with this Unpacker alone.
      # @param type [Integer] from -128 to 127
      # @param klass [Module, nil]
      # @param method_name [Symbol, String, nil] a method of the class, that takes the payload (default :from_msgpack_ext);
      #   or a block that does
      # @return [nil]
      # @raise [ArgumentError] neither a class nor a block, or both a method's name and a block
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
