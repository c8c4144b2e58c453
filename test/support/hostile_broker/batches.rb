# frozen_string_literal: true

require_relative "attack"

class HostileBroker
  # Lies in the record batches that a consumer fetches.
  module Batches
    PATIENCE = 3 # seconds that a consumer polls, unless it gets all messages sooner
    LZ4_FRAME = "\x04\x22\x4d\x18\x60\x70\x73".b
    TINY = Records.record(0, payload: nil) # 7 bytes

    class << self
      # @return [Array<Attack>]
      def attacks
        wrong_batches.map { |name, bytes| attack(name, bytes) } + wrong_records.map { |name, bytes| attack(name, bytes) } +
          wrong_headers.map { |name, bytes| attack(name, bytes) } + garbage.map { |name, bytes| attack(name, bytes) } +
          [cut_with_error]
      end

      # @param bytes [String, Proc] a batch; a Proc gets the requested offset
      def attack(name, bytes, times: 1, seconds: PATIENCE, **options)
        Attack.new(name, :fetch, times:, seconds:, **options) do |exchange|
          next exchange.respond unless exchange.request.fetches

          index = exchange.answer.fields.index { |field| field.type == :records }
          batch = bytes.respond_to?(:call) ? bytes.call(exchange.request.fetch_offset) : bytes
          exchange.respond(exchange.answer.with(index, [batch.bytesize].pack("l>") + batch))
        end
      end

      # librdkafka skips the records of a partition that has an error.
      def cut_with_error
        Attack.new("an error and half of its records", :fetch, times: Attack::ALWAYS) do |exchange|
          next exchange.respond unless exchange.request.fetches

          index = exchange.answer.fields.index { |field| field.name == "topics.partitions.error" }
          records = exchange.answer.fields.last.bytes.bytesize
          exchange.respond(exchange.answer.with(index, [29].pack("s>"))[0...-(records / 2)]) # 29: not authorized
        end
      end

      # ---- bombs ----

      # @return [String] a batch whose records are many MB of zeros in one record, gzipped
      def gzip(megabytes) = bomb(:gzip, Records.gzip_of_zeros(megabytes << 20))

      # Blocks of 128 KB that repeat one byte: 4 bytes each.
      def zstd(megabytes)
        blocks = megabytes * 8
        block = ->(last) { [(131_072 << 3) | 2 | last].pack("L<") } # its fourth byte is 0, and is the repeated one
        bomb(:zstd, "\x28\xB5\x2F\xFD\x00\x38".b + (block.call(0) * (blocks - 1)) + block.call(1))
      end

      # A literal, and copies of 64 bytes: 3 bytes each.
      def snappy(megabytes)
        size = megabytes << 20
        bomb(:snappy, Answer.varint(size + 64) + "\xf0\x3f".b + ("\0" * 64) + ("\xfe\x40\x00".b * (size / 64)))
      end

      # Blocks of 4 MB, in which a very long match follows a literal: 16 KB each.
      def lz4(megabytes)
        more = ((4 << 20) - 64) / 255
        block = "\x1f\0\1\0".b + ("\xff".b * more) + "\0\x50\0\0\0\0\0".b
        bomb(:lz4, LZ4_FRAME + (([block.bytesize].pack("L<") + block) * (megabytes / 4)) + [0].pack("L<"))
      end

      # @return [String] a gzipped batch of `count` records of the smallest size
      def tiny_records(count)
        bomb(:gzip, Zlib.gzip(TINY * count, level: 9), count)
      end

      # @param headers [Integer] the number of headers in each message
      # @param said [Integer] the number that the message claims
      def headers(headers, said: headers, messages: 1)
        bytes = Records.int(said) + ((Records.counted("h") + Records.counted(nil)) * headers)
        Records.batch(Array.new(messages) { |i| Records.record(i, headers: bytes) })
      end

      private

      def bomb(codec, bytes, count = 1) = Records.batch(bytes, count:, codec:)

      def records = Array.new(3) { |i| Records.record(i) }

      def wrong_batches
        {
          "a batch with a wrong CRC" => Records.batch(records, crc: 1),
          "a batch of -1 records" => Records.batch(records, count: -1),
          "a batch of 2^31 - 1 records" => Records.batch(records, count: (2**31) - 1),
          "a batch of fewer records than it has" => Records.batch(records, count: 1),
          "a batch that ends before it begins" => Records.batch(records, last: -2**31),
          "a batch that ends at the last offset" => Records.batch(records, last: (2**31) - 1),
          "a batch at a negative offset" => Records.batch(records, base: -5),
          "a batch at the last offset" => Records.batch(records, base: (2**63) - 2),
          "offsets that go backwards" => ->(at) { Records.good(base: at + 3) + Records.good(base: at) },
          "offsets from before" => ->(at) { Records.good(base: [at - 3, 0].max) },
          "a length of -1" => Records.batch(records, length: -1),
          "a length of 0" => Records.batch(records, length: 0),
          "the greatest length" => Records.batch(records, length: (2**31) - 1),
          "a length one byte short" => Records.batch(records, length: Records.batch(records).bytesize - 13),
          "a magic byte of 3" => Records.batch(records, magic: 3),
          "a magic byte of -1" => Records.batch(records, magic: -1),
          "a batch that says it is an old message set" => Records.batch(records, magic: 1),
          "half a batch" => Records.batch(records)[0..-20],
          "a batch's first bytes" => Records.batch(records)[0, 17],
          "a control batch of text" => Records.batch(records, attributes: 0x30, producer: 1),
          "a batch of a codec that there is none of" => Records.batch(records, attributes: 7),
          "negative timestamps" => Records.batch(records, timestamp: -2**63),
          "timestamps of the far future" => Records.batch(records, timestamp: (2**63) - 1)
        }
      end

      def wrong_records
        long = (2**31) - 1
        {
          "a record of a negative length" => [Records.record(0, length: -1)],
          "a record of no bytes" => [Records.record(0, length: 0)],
          "a record longer than its batch" => [Records.record(0, length: long)],
          "a record longer than any" => [Records.record(0, length: 2**62)],
          "a record whose length never ends" => ["\xff".b * 20],
          "a record that goes back" => [Records.record(1), Records.record(-1)],
          "a timestamp that goes back" => [Records.record(0, timestamp: -2**62)],
          "a key of a negative length" => [raw(Records.int(-2) + Records.counted("p") + Records.int(0))],
          "a key longer than the record" => [raw(Records.int(long) + Records.counted("p") + Records.int(0))],
          "a payload of a negative length" => [raw(Records.int(-1) + Records.int(-2) + Records.int(0))],
          "a payload longer than the record" => [raw(Records.int(-1) + Records.int(long) + Records.int(0))],
          "a record that ends early" => [raw(Records.int(-1))]
        }.transform_values { |made| Records.batch(made) }
      end

      def wrong_headers
        {
          "-1 headers" => Records.int(-1),
          "2^31 - 1 headers" => Records.int((2**31) - 1),
          "2^62 headers" => Records.int(2**62),
          "a count of headers that never ends" => "\xff".b * 20,
          "a header's name of a negative length" => Records.int(1) + Records.int(-2),
          "a header's name longer than the record" => Records.int(1) + Records.int((2**31) - 1),
          "a header without a name" => Records.int(1) + Records.int(-1) + Records.int(-1),
          "a header's value longer than the record" => Records.int(1) + Records.counted("n") + Records.int((2**31) - 1),
          "a header's name that is not UTF-8" => Records.int(1) + Records.counted(Fields::NOT_UTF8) + Records.counted("v"),
          "a header's name with a NUL" => Records.int(1) + Records.counted("a\0b") + Records.counted("v")
        }.transform_values { |headers| Records.batch([Records.record(0, headers:), Records.record(1)]) }
      end

      def garbage
        (Records::CODECS.keys - [:none]).flat_map do |codec|
          [
            ["#{codec} that is garbage", Records.batch("\x55".b * 100, codec:, count: 1)],
            ["#{codec} of no bytes", Records.batch("", codec:, count: 1)],
            ["#{codec} cut in the middle", Records.batch(cut(codec), codec:, count: 1)]
          ]
        end + [["lz4 that is empty", Records.batch(LZ4_FRAME + [0].pack("L<"), codec: :lz4, count: 1)]]
      end

      # Cuts after the 61 bytes that every batch begins with.
      def cut(codec) = send(codec, 4).then { |batch| batch[61, (batch.bytesize - 61) / 2] }

      # A record with a valid beginning and invalid rest.
      def raw(rest)
        body = "\0".b + Records.int(0) + Records.int(0) + rest
        Records.int(body.bytesize) + body
      end
    end
  end
end
