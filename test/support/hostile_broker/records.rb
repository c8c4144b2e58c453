# frozen_string_literal: true

require "zlib"

class HostileBroker
  # Record batches (magic 2), valid and invalid ones.
  module Records
    NOW = 1_700_000_000_000 # ms
    CASTAGNOLI = Array.new(256) { |byte| 8.times.reduce(byte) { |crc, _| crc.odd? ? (crc >> 1) ^ 0x82F63B78 : crc >> 1 } }.freeze
    CODECS = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }.freeze

    module_function

    def crc32c(bytes)
      bytes.each_byte.reduce(0xffffffff) { |crc, byte| (crc >> 8) ^ CASTAGNOLI[(crc ^ byte) & 0xff] } ^ 0xffffffff
    end

    # A zigzag varint of a 64-bit Integer.
    def int(number) = Answer.varint(((number << 1) ^ (number >> 63)) & 0xffffffffffffffff)

    # @param length [Integer, nil] a false size for the record
    def record(index, payload: "m#{index}", key: nil, headers: int(0), timestamp: 0, length: nil)
      body = "\0".b + int(timestamp) + int(index) + counted(key) + counted(payload) + headers.b
      int(length || body.bytesize) + body
    end

    def counted(text) = text ? int(text.bytesize) + text.b : int(-1)

    # @param records [Array<String>, String]
    # @param codec [Symbol] the codec that the batch claims; the records are compressed already
    # @param crc [Integer, nil] nil: the correct one
    def batch(records, base: 0, count: records.size, codec: :none, crc: nil, magic: 2, length: nil, timestamp: NOW,
              last: count - 1, attributes: 0, producer: -1)
      checked = [CODECS.fetch(codec) | attributes, last, timestamp, timestamp, producer, -1, -1, count].pack("s>l>q>q>q>s>l>l>")
      checked << (records.is_a?(Array) ? records.join : records)
      rest = [0, magic, crc || crc32c(checked)].pack("l>cL>") + checked
      [base, length || rest.bytesize].pack("q>l>") + rest
    end

    # @return [String] a batch of `count` good messages
    def good(base: 0, count: 3) = batch(Array.new(count) { |i| record(i, payload: "m#{base + i}") }, base:)

    # @param bytes [Integer] how many zeros
    def gzip_of_zeros(bytes)
      block = "\0".b * 65_536
      Zlib.gzip("", level: 9) # loads zlib
      deflate = Zlib::Deflate.new(9, 31)
      out = +"".b
      (bytes / block.bytesize).times { out << deflate.deflate(block) }
      out << deflate.finish
    ensure
      deflate&.close
    end
  end
end
