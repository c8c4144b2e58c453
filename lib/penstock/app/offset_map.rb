# frozen_string_literal: true

module Penstock
  class App
    # Which messages behind the committed offset are processed, as text for the commit's metadata. So a member that gets the
    # partition repeats only what was not processed.
    #
    # The text is "ps1." and Base64url of: how the offsets are written (0 or 1), the committed offset, and the processed offsets
    # as distances from it. 0: pairs of a gap and a length, as varints. 1: a bitmap whose first bit is the committed offset's. The
    # shorter one is taken. A varint has 7 bits in a byte, the lowest first; the highest bit says that more follow.
    # @api private
    module OffsetMap
      PREFIX = "ps1."
      # Brokers accept so much by default (`offset.metadata.max.bytes`).
      MOST_BYTES = 4_096
      # No map of {MOST_BYTES} is for more offsets, unless another program has made it.
      MOST_OFFSETS = 100_000_000
      RUNS = 0
      BITMAP = 1
      private_constant :PREFIX, :MOST_OFFSETS, :RUNS, :BITMAP

      # A text that is no map, or a damaged one.
      class Invalid < StandardError; end

      class << self
        # @param base [Integer] the committed offset
        # @param ranges [Array<Array(Integer, Integer)>] first and last processed offsets, in order, behind `base`, not touching
        # @return [String, nil] nil: there are none
        def dump(base, ranges)
          return if ranges.empty?

          runs = runs_of(base, ranges)
          bits = ((ranges.last[1] - base) / 8) + 1
          body = bits < runs.bytesize ? bitmap_of(base, ranges, bits) : runs
          kind = body.equal?(runs) ? RUNS : BITMAP
          PREFIX + [String.new.b << kind << varints([base]) << body].pack("m0").tr("+/", "-_").delete("=")
        end

        # @param text [String]
        # @param base [Integer] the committed offset that the text came with
        # @return [Array<Array(Integer, Integer)>, nil] as {dump} has got them; nil: the map belongs to another offset
        # @raise [Invalid]
        def load(text, base)
          bytes = decoded(text).bytes
          kind = bytes.shift
          return unless varint(bytes) == base

          case kind
          when RUNS then ranges_of_runs(base, bytes)
          when BITMAP then ranges_of_bits(base, bytes)
          else raise Invalid, "of an unknown version"
          end
        end

        private

        def decoded(text)
          raise Invalid, "not written by Penstock" unless text.start_with?(PREFIX)

          text = text.delete_prefix(PREFIX).tr("-_", "+/")
          (text + ("=" * (-text.size % 4))).unpack1("m0")
        rescue ArgumentError
          raise Invalid, "not Base64"
        end

        def varints(numbers)
          numbers.each_with_object(String.new.b) do |number, bytes|
            while number > 127
              bytes << ((number & 127) | 128)
              number >>= 7
            end
            bytes << number
          end
        end

        def varint(bytes)
          number = shift = 0
          while (byte = bytes.shift)
            number |= (byte & 127) << shift
            return number if byte < 128

            shift += 7
            raise Invalid, "a number is too large" if shift > 63
          end
          raise Invalid, "it ends too early"
        end

        def runs_of(base, ranges)
          at = base
          varints(ranges.flat_map do |first, last|
            gap = first - at
            at = last + 1
            [gap, at - first]
          end)
        end

        def bitmap_of(base, ranges, size)
          number = ranges.sum { |first, last| ((1 << (last - first + 1)) - 1) << (first - base) }
          Array.new(size) { |i| (number >> (i * 8)) & 255 }.pack("C*")
        end

        def ranges_of_runs(base, bytes)
          ranges = []
          at = base
          until bytes.empty?
            first = at + varint(bytes)
            length = varint(bytes)
            raise Invalid, "a run is empty" if length.zero?
            raise Invalid, "it is for too many offsets" if first + length - base > MOST_OFFSETS

            at = first + length
            ranges << [first, at - 1]
          end
          ranges
        end

        def ranges_of_bits(base, bytes)
          bytes.flat_map { |byte| Array.new(8) { |bit| byte[bit] } }
               .each_with_index.select { |bit, _| bit == 1 }.map { |_, i| base + i }
               .slice_when { |one, other| other != one + 1 }.map { |run| [run.first, run.last] }
        end
      end
    end
  end
end
