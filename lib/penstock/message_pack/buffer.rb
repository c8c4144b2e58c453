# frozen_string_literal: true

module Penstock
  module MessagePack
    # A queue of bytes that a {Packer} has written or an {Unpacker} will read. With an io, reading fetches missing bytes from it,
    # and flushing writes to it; either may block.
    #
    # For one thread at a time. While an object is unpacked from it, code that the unpacking calls must not change it
    # (RuntimeError).
    class Buffer
      # @!method initialize(io = nil, options = nil)
      #   @param io [#readpartial, #read, #write, #<<, nil]
      #   @param options [Hash, nil] `io_buffer_size`: bytes to read at a time, and the size at which written bytes are
      #     flushed automatically (Integer, at least 1024, default 32,768)
      # @!method write(string)
      #   @return [Integer] its bytes
      # @!method <<(string)
      #   @return [self]
      # @!method read(size = nil, out = nil)
      #   @param size [Integer, nil] maximum number of bytes; nil: all
      #   @param out [String, nil] the String to fill
      #   @return [String, nil] nil when there are no bytes and a size was given
      # @!method read_all(size = nil, out = nil)
      #   @return [String] exactly this number of bytes
      #   @raise [EOFError] when there are fewer; none is removed
      # @!method skip(size)
      #   @return [Integer] number of removed bytes
      # @!method skip_all(size)
      #   @return [self]
      #   @raise [EOFError] when there are fewer; none is removed
      # @!method io
      #   @return [Object, nil]
      # @!method flush
      #   Writes all bytes to the io, if there is one. If that raises, all of them stay.
      #   @return [self]
      # @!method close
      #   Closes the io, if there is one.
      # @!method write_to(io)
      #   Writes all bytes to an io. If that raises, all of them stay.
      #   @return [Integer] bytes
      # @!method size
      #   @return [Integer] bytes
      # @!method empty?
      #   @return [Boolean]
      # @!method clear
      #   Removes all bytes.
      # @!method to_s
      #   @return [String] all bytes, which stay in the buffer
      # @!method to_str
      #   The same as {to_s}.
      # @!method to_a
      #   @return [Array<String>]
    end
  end
end
