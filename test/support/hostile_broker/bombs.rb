# frozen_string_literal: true

require_relative "batches"

class HostileBroker
  # A few bytes that become many, each with the setting that bounds them, or what does if none does.
  module Bombs
    SMALL = { "receive.message.max.bytes": 2_000_000, "fetch.max.bytes": 1_000_000 }.freeze
    GZIP_AT_MOST = 1_032 # times larger, by the format; LZ4 255, Snappy 21

    PATIENCE = 5 # seconds; if a message comes for each offset, it ends sooner

    class << self
      # @return [Array<Attack>] which the settings bound
      def bounded
        [
          # Of a compressed batch receive.message.max.bytes bounds what arrives, and with Zstandard what it becomes, too.
          bomb("a zstd bomb of 400 MB", Batches.zstd(400), growth: 110),
          bomb("a zstd bomb of 400 MB with less to receive", Batches.zstd(400), growth: 30, settings: SMALL),
          bomb("a frame over receive.message.max.bytes", "\0" * 3_000_000, growth: 40, settings: SMALL),
          # librdkafka takes 100,000 headers at most.
          bomb("100,000 headers", Batches.headers(100_000), growth: 40),
          bomb("2,000,000 headers", Batches.headers(2_000_000), growth: 40),
          bomb("2^31 - 1 headers of which there are 10", Batches.headers(10, said: (2**31) - 1), growth: 40)
        ]
      end

      # @return [Array<Attack>] which nothing bounds but what arrives, times what the format can do
      def unbounded
        [
          bomb("a gzip bomb of 64 MB", Batches.gzip(64), growth: 64 + 40),
          bomb("an lz4 bomb of 64 MB", Batches.lz4(64), growth: 64 + 40),
          bomb("a snappy bomb of 16 MB", Batches.snappy(16), growth: 16 + 40),
          bomb("100,000 records in 1,119 bytes", Batches.tiny_records(100_000), growth: 100)
        ]
      end

      private

      def bomb(name, bytes, **options) = Batches.attack(name, bytes, seconds: PATIENCE, **options)
    end
  end
end
