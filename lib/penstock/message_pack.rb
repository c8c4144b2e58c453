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
  # MessagePack (https://msgpack.org), with the interface of the msgpack gem, and for Ractors: nothing of it is shared by the
  # process but classes, so packing and unpacking run in parallel. All of it can be called from any thread, fiber and Ractor; a
  # {Packer}, {Unpacker} or {Buffer} by one thread at a time.
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
  # | what is registered with a {Factory} | ext | what its unpacker makes of it |
  # | what has a `to_msgpack(packer)` | what that writes | |
  #
  # Data from elsewhere cannot take more than the limits allow, which are options of whatever unpacks: `max_depth` (128),
  # `max_elements` (16,777,216 values in one object), `max_bytes` (268,435,456 in one String or payload); nil is none. What a
  # header claims is believed when the bytes are there.
  module MessagePack
    # Nothing is registered with it, and nothing can be: it is the same for the whole process, and shareable. Make a {Factory}.
    DefaultFactory = Ractor.make_shareable(Factory.new)

    # @!method self.pack(object, io = nil, options = nil)
    #   @param object [Object] what is to be packed
    #   @param io [#write, #<<, nil] where to; nil: a String is returned
    #   @param options [Hash, nil] `max_depth` (Integer; nil, the default: as the thread's stack allows); `compatibility_mode`
    #     (Boolean, default false: without bin and str8, which MessagePack's first edition lacks); those of {Buffer#initialize},
    #     which make no difference here
    #   @return [String, nil] binary; nil with an io
    #   @raise [NoMethodError] an object is of a class that is not registered, and has no `to_msgpack`
    #   @raise [RuntimeError] a `to_msgpack` wrote nothing, or an Array or Hash changed its size meanwhile
    #   @raise [RangeError] an Integer beyond 64 bits; see {Factory#register_type}
    #   @raise [StackError] nested too deeply, or a part of itself
    #   @raise [EncodingError] a String that is no UTF-8 and cannot become it
    #   @raise [ArgumentError] an unknown option
    # @!method self.dump(object, io = nil, options = nil)
    #   The same as {pack}.
    # @!method self.unpack(source, options = nil)
    #   Blocks: while it reads from an io.
    #   @param source [String, #readpartial, #read] one object, and no byte more
    #   @param options [Hash, nil] see {Unpacker#initialize}
    #   @return [Object]
    #   @raise [EOFError] it ends too early
    #   @raise [UnpackError] it is no MessagePack or goes beyond a limit; see its subclasses
    # @!method self.load(source, options = nil)
    #   The same as {unpack}.
  end
end
