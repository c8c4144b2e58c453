# frozen_string_literal: true

require "zlib"

module Penstock
  class App
    # Which messages behind the committed offset are processed, as text for the commit's metadata. So a member that gets the
    # partition repeats only what was not processed.
    #
    # The text is "ps1." and Base64url of: a CRC-32, then how the offsets are written (0 or 1), the committed offset, and the
    # processed offsets as distances from it. 0: pairs of a gap and a length. 1: a bitmap whose first bit is the committed
    # offset's. The shorter one is taken. Numbers have 7 bits in a byte, the highest first, and a byte with its highest bit set is
    # followed by another one (`pack("w")`).
    #
    # The CRC covers the partition's name, too. So a text that was damaged, cut off, or copied from another partition is no map.
    # Each bit that a reader takes for a processed message by mistake would be a lost message.
    # @api private
    module OffsetMap
      PREFIX = "ps1."
      # Brokers accept so much by default (`offset.metadata.max.bytes`).
      MOST_BYTES = 4_096
      # No map of {MOST_BYTES} is for more offsets, unless another program has made it.
      MOST_OFFSETS = 100_000_000
      RUNS = 0
      BITMAP = 1
      # Texts of so many bits at most are made once.
      SHORT = 32
      BITS = Array.new(SHORT) { |gap| Array.new(SHORT) { |length| (("0" * gap) + ("1" * length)).freeze }.freeze }.freeze
      private_constant :PREFIX, :MOST_OFFSETS, :RUNS, :BITMAP, :SHORT, :BITS

      # A text that is no map, or a damaged one.
      class Invalid < StandardError; end

      class << self
        # @param base [Integer] the committed offset
        # @param ranges [Array<Array(Integer, Integer)>] first and last processed offsets, in order, behind `base`, not touching
        # @param place [String] of the partition
        # @return [String, nil] nil: there are none
        def dump(base, ranges, place)
          return if ranges.empty?

          bytes = ((ranges.last[1] - base) / 8) + 1
          # A range takes two bytes at least.
          runs = runs_of(base, ranges) if ranges.size * 2 < bytes
          short = runs && runs.bytesize < bytes
          body = [short ? RUNS : BITMAP, base].pack("Cw") << (short ? runs : bitmap_of(base, ranges))
          PREFIX + [[crc(place, body)].pack("N") << body].pack("m0").tr("+/", "-_").delete("=")
        end

        # @param text [String]
        # @param base [Integer] the committed offset that the text came with
        # @param place [String] of the partition
        # @return [Array<Array(Integer, Integer)>, nil] as {dump} has got them; nil: the map belongs to another offset
        # @raise [Invalid]
        def load(text, base, place)
          body = checked(decoded(text), place)
          kind, of, *runs = body.unpack(body.getbyte(0) == RUNS ? "Cw*" : "Cw")
          return unless of == base

          case kind
          when RUNS then ranges_of_runs(base, runs)
          when BITMAP then ranges_of_bits(base, body.byteslice([kind, of].pack("Cw").bytesize..))
          else raise Invalid, "of an unknown version"
          end
        rescue ArgumentError, TypeError # of unpack
          raise Invalid, "damaged"
        end

        private

        def decoded(text)
          raise Invalid, "not written by Penstock" unless text.start_with?(PREFIX)

          text = text.delete_prefix(PREFIX).tr("-_", "+/")
          (text + ("=" * (-text.size % 4))).unpack1("m0")
        rescue ArgumentError
          raise Invalid, "not Base64"
        end

        def checked(bytes, place)
          body = bytes.byteslice(4..)
          valid = body && !body.empty? && bytes.unpack1("N") == crc(place, body)
          valid ? body : raise(Invalid, "damaged, or of another partition")
        end

        def crc(place, body) = Zlib.crc32(body, Zlib.crc32(place))

        def runs_of(base, ranges)
          at = base
          numbers = []
          ranges.each do |first, last|
            numbers << (first - at) << (last - first + 1)
            at = last + 1
          end
          numbers.pack("w*")
        end

        def bitmap_of(base, ranges)
          bits = +""
          at = base
          ranges.each do |first, last|
            bits << (BITS.dig(first - at, last - first + 1) || (("0" * (first - at)) + ("1" * (last - first + 1))))
            at = last + 1
          end
          [bits].pack("b*")
        end

        def ranges_of_runs(base, runs)
          raise Invalid, "it ends too early" if runs.empty? || runs.size.odd?

          at = base
          runs.each_slice(2).map do |gap, length|
            first = at + gap
            at = first + length
            raise Invalid, "a run is empty" if length.zero?
            raise Invalid, "it is for too many offsets" if at - base > MOST_OFFSETS

            [first, at - 1]
          end
        end

        def ranges_of_bits(base, bytes)
          bits = bytes.unpack1("b*")
          found = []
          after = 0
          while (first = bits.index("1", after))
            after = bits.index("0", first) || bits.size
            found << [base + first, base + after - 1]
          end
          found
        end
      end
    end
  end
end
