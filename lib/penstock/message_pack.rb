# frozen_string_literal: true

require_relative "message_pack/timestamp"
require_relative "message_pack/time"
require_relative "message_pack/bigint"
require_relative "message_pack/buffer"
require_relative "message_pack/registry"
require_relative "message_pack/packer"
require_relative "message_pack/unpacker"
require_relative "message_pack/pool"
require_relative "message_pack/factory"

module Penstock
  # MessagePack (https://msgpack.org), with the interface of the msgpack gem, for use in Ractors. The process shares nothing
  # of it but classes, so packing and unpacking run in parallel. Any thread, fiber and Ractor may call all methods. Only one
  # thread at a time may use a {Packer}, {Unpacker} or {Buffer}.
  #
  #     Penstock::MessagePack.unpack(Penstock::MessagePack.pack({ "id" => 1 })) # => {"id" => 1}
  #
  # | Ruby | MessagePack | and back |
  # |---|---|---|
  # | nil, true, false, Integer of 64 bits, Float | the same, in the shortest format; Floats as 64 bits | the same |
  # | String, binary (ASCII-8BIT) | bin | String, binary |
  # | String, any other | str, as UTF-8 | String, UTF-8 |
  # | Symbol | str | String, but for keys with `symbolize_keys` |
  # | Array, Hash | array, map | Array, Hash; keys that are Strings are frozen |
  # | an object of a class registered with a {Factory} | ext | the result of its unpacker |
  # | an object with `to_msgpack(packer)` | what that method writes | |
  #
  # Limits protect against data of others: `max_depth` (128), `max_elements` (16,777,216 values in one object), `max_bytes`
  # (268,435,456 in one String or payload). They are options of everything that unpacks; nil means no limit. The unpacker
  # allocates memory for the bytes that are there, not for the size that a header claims.
  module MessagePack
    # The same for the whole process, and shareable. Nothing can be registered with it: make a {Factory} for that.
    DefaultFactory = Ractor.make_shareable(Factory.new)

    # @!method self.pack(object, io = nil, options = nil)
    #   @param object [Object] the object to pack
    #   @param io [#write, #<<, nil] the destination; nil: a String is returned
    #   @param options [Hash, nil] `max_depth` (Integer; nil, the default: limited by the thread's stack);
    #     `compatibility_mode` (Boolean, default false: without bin and str8, which MessagePack's first edition lacks);
    #     those of {Buffer#initialize}, which have no effect here
    #   @return [String, nil] binary; nil with an io
    #   @raise [NoMethodError] when the class of an object is not registered, and the object has no `to_msgpack`
    #   @raise [RuntimeError] when a `to_msgpack` wrote nothing, or an Array or Hash changed its size during the call
    #   @raise [RangeError] when an Integer has more than 64 bits; see {Factory#register_type}
    #   @raise [StackError] when the object is nested too deeply, or contains itself
    #   @raise [EncodingError] when a String cannot be converted to UTF-8
    #   @raise [ArgumentError] when an option is unknown
    # @!method self.dump(object, io = nil, options = nil)
    #   The same as {pack}.
    # @!method self.unpack(source, options = nil)
    #   Blocks: while it reads from an io.
    #   @param source [String, #readpartial, #read] exactly one object
    #   @param options [Hash, nil] see {Unpacker#initialize}
    #   @return [Object]
    #   @raise [EOFError] when the data ends too early
    #   @raise [UnpackError] when the data is not valid MessagePack or exceeds a limit; see its subclasses
    # @!method self.load(source, options = nil)
    #   The same as {unpack}.
  end
end
