# frozen_string_literal: true

module Penstock
  class App
    # What an {OffsetTracker} has handed out, in order: runs of which something is not processed, and between them ranges of
    # offsets, each an Array of the first and the last one, of which everything is. Of the loop's thread.
    # @api private
    class OffsetSpans
      def initialize
        @spans = []
      end

      # @param run [Run]
      def add(run) = @spans << run

      # @return [Integer, nil] the first offset that is not processed; nil: all are
      def base = @spans.first&.next_offset

      # @param run [Run] everything of it is processed
      # @return [Integer] bytes that it had in memory
      def completed(run)
        index = @spans.index { |span| span.equal?(run) }
        @spans[index] = [run.offsets.first, run.offsets.last]
        join(index, index + 1)
        join(index - 1, index) if index.positive?
        @spans.shift if @spans.first.is_a?(Array)
        run.free
      end

      # None of it counts any more.
      # @return [Integer] bytes that it had in memory
      def clear
        runs = @spans.grep(Run)
        @spans.clear
        runs.sum(&:forget)
      end

      # A partition may lose its end, and get other messages at the same offsets: then a run begins before the one before it ends.
      # Of that one, only what is before it counts.
      # @return [Array<Array(Integer, Integer)>] first and last processed offsets behind {#base}; of two neighbours, also those
      #   between which the partition has no message are in one
      def ranges
        found = []
        touches = false
        @spans.each_with_index do |span, index|
          touches = false if cut(found, span.is_a?(Array) ? span.first : span.offsets.first)
          next touches = add_range(found, span, touches) if span.is_a?(Array)

          list = index.zero? ? behind_base(span) : span.ranges
          list.each { |first, last| add_range(found, span.offsets.values_at(first, last), touches && first.zero?) }
          touches = !list.empty? && list.last[1] == span.size - 1
        end
        found
      end

      # @return [Boolean] whether the last message is processed
      def ends_processed?
        span = @spans.last
        span.nil? || span.is_a?(Array) || span.done?(span.size - 1)
      end

      private

      def join(index, other)
        one, two = @spans.values_at(index, other)
        return unless one.is_a?(Array) && two.is_a?(Array)

        one[1] = two[1]
        @spans.delete_at(other)
      end

      def behind_base(run) = run.done.positive? ? run.ranges.drop(1) : run.ranges

      # @return [Boolean] whether there was something from this offset on
      def cut(found, offset)
        return false if found.empty? || found.last[1] < offset

        found.pop while !found.empty? && found.last[0] >= offset
        found.last[1] = offset - 1 if !found.empty? && found.last[1] >= offset
        true
      end

      # @return [true]
      def add_range(found, range, touches)
        touches ? found.last[1] = range[1] : found << range.dup
        true
      end
    end
    private_constant :OffsetSpans
  end
end
