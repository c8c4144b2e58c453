# frozen_string_literal: true

module Penstock
  class App
    # Percentiles of times, of the last one to two minutes. Of one thread.
    # @api private
    class Durations
      PERIOD = 60 # seconds
      # Four buckets for each power of two of microseconds.
      PARTS = 4
      private_constant :PERIOD, :PARTS

      # @param now [Float] seconds
      def initialize(now)
        @since = now
        @counts = Hash.new(0)
        @earlier = {}
      end

      # @param seconds [Float]
      # @param times [Integer]
      def add(seconds, times = 1)
        us = seconds * 1_000_000
        @counts[us > 1 ? (Math.log2(us) * PARTS).ceil : 0] += times
      end

      # @param share [Float]
      # @param now [Float]
      # @return [Float, nil] seconds; nil: there is none
      def percentile(share, now)
        turn(now)
        all = @counts.merge(@earlier) { |_, one, two| one + two }
        left = all.each_value.sum * share
        found = all.sort.find { |_, count| (left -= count) <= 0 } or return
        ((2.0**(found.first.to_f / PARTS)) / 1_000_000).round(6)
      end

      private

      def turn(now)
        periods = (now - @since).div(PERIOD)
        return unless periods.positive?

        @earlier = periods == 1 ? @counts : {}
        @counts = Hash.new(0)
        @since += periods * PERIOD
      end
    end
    private_constant :Durations
  end
end
