# frozen_string_literal: true

module Penstock
  module MessagePack
    # MessagePack's own ext type for a point in time, to the nanosecond and without a time zone. It is not registered by default:
    # register it, or {Time}'s procs for Ruby's Time, with a {Factory}.
    class Timestamp
      # The ext type that the format gives it.
      TYPE = -1

      SECONDS = (-(2**63)...(2**63))
      private_constant :SECONDS

      # @return [Integer] seconds since the epoch, negative before it
      attr_reader :sec
      # @return [Integer] nanoseconds, from 0 to 999,999,999
      attr_reader :nsec

      # @param payload [String] of 4, 8 or 12 bytes
      # @return [Timestamp]
      # @raise [MalformedFormatError] when it has another size, or more than 999,999,999 nanoseconds
      def self.from_msgpack_ext(payload)
        new(*parts(payload))
      end

      # The shortest of the three formats.
      # @param sec [Integer]
      # @param nsec [Integer] from 0 to 999,999,999
      # @return [String]
      # @raise [RangeError] when a number does not fit
      def self.to_msgpack_ext(sec, nsec)
        raise RangeError, "nanoseconds must be at most 999,999,999, not #{nsec}" unless (0..999_999_999).cover?(nsec)
        raise RangeError, "seconds must fit into 64 bits, and #{sec} do not" unless SECONDS.cover?(sec)

        if sec.negative? || sec >= 1 << 34 then [nsec, sec].pack("L>q>")
        elsif nsec.positive? || sec >= 1 << 32 then [(nsec << 34) | sec].pack("Q>")
        else
          [sec].pack("L>")
        end
      end

      # @return [Array<Integer>] seconds and nanoseconds
      def self.parts(payload)
        sec, nsec =
          case payload.bytesize
          when 4 then [payload.unpack1("L>"), 0]
          when 8 then payload.unpack1("Q>").then { |bits| [bits & ((1 << 34) - 1), bits >> 34] }
          when 12 then payload.unpack("L>q>").reverse
          else raise ErrorFactory.build(MalformedFormatError, "a timestamp must have 4, 8 or 12 bytes, not #{payload.bytesize}")
          end
        if nsec > 999_999_999
          raise ErrorFactory.build(MalformedFormatError,
                                   "nanoseconds must be at most 999,999,999, not #{nsec}")
        end

        [sec, nsec]
      end

      # @param sec [Integer]
      # @param nsec [Integer]
      def initialize(sec, nsec)
        @sec = sec
        @nsec = nsec
      end

      # @return [String] its payload
      def to_msgpack_ext = self.class.to_msgpack_ext(sec, nsec)

      # @return [Boolean] whether it is the same point in time
      def ==(other) = other.instance_of?(self.class) && sec == other.sec && nsec == other.nsec
      alias eql? ==

      # @return [Integer]
      def hash = [self.class, sec, nsec].hash
    end
  end
end
