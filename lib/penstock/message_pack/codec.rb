# frozen_string_literal: true

require_relative "../errors"

# If an exception ends an autoload, such as Timeout's, Ruby forgets the constant. But it does not load the files again that it has
# loaded. So the next attempt goes on with the same module.
module Penstock
  const_set(:MessagePack, @message_pack ||= Module.new) # M:codec_same_module

  # MessagePack (https://msgpack.org), with the interface of the msgpack gem, for use in Ractors. The process shares nothing
  # of it but classes, so packing and unpacking run in parallel. Any thread, fiber and Ractor may call all methods. Only one
  # thread at a time may use a {Packer}, {Unpacker} or {Buffer}.
  #
  #     Penstock::MessagePack.unpack(Penstock::MessagePack.pack({ "id" => 1 })) # => {"id" => 1}
  #
  # `require "penstock"` loads it when the program first names it. Before Ruby 3.4 only the main Ractor can do that: a program
  # that first names it in another Ractor requires "penstock/message_pack" before. That file needs neither Kafka nor librdkafka.
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

# An exception of another thread waits, so that each of these files is loaded as a whole.
Thread.handle_interrupt(Object => :never) do # M:codec_files_whole
  require_relative "errors"
  require_relative "extension_value"
  require "penstock/message_pack.so"
  require_relative "timestamp"
  require_relative "time"
  require_relative "bigint"
  require_relative "buffer"
  require_relative "registry"
  require_relative "packer"
  require_relative "unpacker"
  require_relative "pool"
  require_relative "factory"
  require_relative "default_factory"
end
