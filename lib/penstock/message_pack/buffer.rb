# frozen_string_literal: true

module Penstock
  module MessagePack
    # A queue of bytes: what a {Packer} has written, or an {Unpacker} has still to read. With an io, reading takes from it what is
    # not there, and flushing writes to it; either may block.
    #
    # For one thread at a time. While an object is being unpacked from it, whatever that calls may not change it (RuntimeError).
    class Buffer
      # @!method initialize(io = nil, options = nil)
      #   @param io [#readpartial, #read, #write, #<<, nil]
      #   @param options [Hash, nil] `io_buffer_size`: bytes that are read at a time, or written to before they are flushed by
      #     themselves (Integer from 1024 on, default 32,768)
      # @!method write(string)
      #   @return [Integer] its bytes
      # @!method <<(string)
      #   @return [self]
      # @!method read(size = nil, out = nil)
      #   @param size [Integer, nil] bytes at most; nil: all
      #   @param out [String, nil] what to put them into
      #   @return [String, nil] nil when there are none and a size was given
      # @!method read_all(size = nil, out = nil)
      #   @return [String] exactly so many
      #   @raise [EOFError] there are fewer; none is taken
      # @!method skip(size)
      #   @return [Integer] how many were there to be dropped
      # @!method skip_all(size)
      #   @return [self]
      #   @raise [EOFError] there are fewer; none is dropped
      # @!method io
      #   @return [Object, nil]
      # @!method flush
      #   Gives all to the io, if there is one. When that raises, all of it stays.
      #   @return [self]
      # @!method close
      #   Closes the io, if there is one.
      # @!method write_to(io)
      #   Gives all to an io. When that raises, all of it stays.
      #   @return [Integer] bytes
      # @!method size
      #   @return [Integer] bytes
      # @!method empty?
      #   @return [Boolean]
      # @!method clear
      #   Drops all.
      # @!method to_s
      #   @return [String] all, which stays
      # @!method to_str
      #   The same as {to_s}.
      # @!method to_a
      #   @return [Array<String>]
    end
  end
end
