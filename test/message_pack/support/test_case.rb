# frozen_string_literal: true

require "stringio"

# What the tests of Penstock::MessagePack share.
class MessagePackTestCase < PenstockTest
  MP = Penstock::MessagePack
  SUPPORT = __dir__

  # @param hex [String] "93 01 02 03"
  # @return [String] the bytes
  def bytes(hex) = [hex.delete(" ")].pack("H*")

  def hex(bytes) = bytes.unpack1("H*")

  # Like assert_equal, but 1 is not 1.0, 0.0 is not -0.0, a NaN equals itself, and encodings and the order of keys count.
  def assert_same_value(expected, actual, message = nil)
    assert_equal MessagePackTestCase.described(expected), MessagePackTestCase.described(actual), message
  end

  def self.described(value)
    case value
    when Float then [:float, [value].pack("G").unpack1("H*")]
    when String then [value.class, value.encoding, value.b]
    when Array then [value.class, *value.map { |one| described(one) }]
    when Hash then [value.class, value.map { |pair| described(pair) }]
    when MP::ExtensionValue then [:ext, value.type, value.payload.b]
    else [value.class, value]
    end
  end

  # Nested Arrays with one element each.
  def nested_arrays(levels, innermost = 1)
    Array.new(levels).inject(innermost) { |inner, _| [inner] }
  end

  # This process's resident memory, in bytes.
  def resident = File.read("/proc/self/statm").split[1].to_i * 4096

  # An IO that returns at most `size` bytes at a time. It has only `read`.
  class Dripping
    attr_reader :asked

    def initialize(data, size = 1)
      @data = data.b
      @size = size
      @at = @asked = 0
    end

    def read(length = nil, buffer = nil)
      @asked += 1
      piece = @data.byteslice(@at, [@size, length || @size].min)
      return if piece.nil? || (piece.empty? && length != 0)

      @at += piece.bytesize
      buffer ? buffer.replace(piece) : piece
    end
  end
end
