# frozen_string_literal: true

require_relative "batches"

class HostileBroker
  # A few bytes that become many, each with the setting that bounds them, or another bound if no setting does.
  module Bombs
    SMALL = { "receive.message.max.bytes": 2_000_000, "fetch.max.bytes": 1_000_000 }.freeze
    GZIP_AT_MOST = 1_032 # times larger, by the format. LZ4: 255, Snappy: 21

    PATIENCE = 5 # seconds. A consumer that gets a message for each offset ends sooner

    class << self
      # @return [Array<Attack>] the attacks that settings bound
      def bounded
        [
          # For a compressed batch, receive.message.max.bytes bounds the received bytes, and with Zstandard also the decompressed
          # ones.
          bomb("a zstd bomb of 400 MB", Batches.zstd(400), growth: 110),
          bomb("a zstd bomb of 400 MB with less to receive", Batches.zstd(400), growth: 30, settings: SMALL),
          bomb("a frame over receive.message.max.bytes", "\0" * 3_000_000, growth: 40, settings: SMALL),
          # librdkafka accepts at most 100,000 headers.
          bomb("100,000 headers", Batches.headers(100_000), growth: 40),
          bomb("2,000,000 headers", Batches.headers(2_000_000), growth: 40),
          bomb("2^31 - 1 headers of which there are 10", Batches.headers(10, said: (2**31) - 1), growth: 40)
        ]
      end

      # @return [Array<Attack>] the attacks that only the received bytes bound, times the format's compression ratio
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
