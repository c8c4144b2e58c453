# frozen_string_literal: true

module Penstock
  class App
    # What of a partition is processed, in one assignment: from it follow the offset to commit and the map beside it. Only
    # messages that were handed out count, so holes in a partition (compaction, markers of transactions) block nothing. Of the
    # loop's thread.
    # @api private
    class OffsetTracker
      # From this part of the map's limit on, nothing more is handed out. So the map never has to be left out.
      FULL = 0.75
      # How many bytes a range takes at most, roughly: two varints, and a third more for Base64.
      RANGE_BYTES = 4
      private_constant :FULL, :RANGE_BYTES

      # @return [Integer, nil] the first offset that is not processed; nil: nothing was handed out
      attr_reader :base

      # @param limit [Integer] bytes of the map
      # @param manual [Boolean] whether only {#checkpoint} moves the offset to commit
      def initialize(limit: OffsetMap::MOST_BYTES, manual: false)
        @limit = limit
        @manual = manual
        @checkpoint = nil
        @runs = [] # from the one with the base on, in order
        @base = @committed = nil
        @committed_map = nil
        @skipped = []
        @changed = false
        @released = 0
        @window = CommitWindow.new
      end

      # @return [CommitWindow] what a crash would repeat
      attr_reader :window

      # @param offset [Integer] where the group goes on
      # @param ranges [Array<Array(Integer, Integer)>] what an earlier member has processed behind it
      def begin_at(offset, ranges)
        @base = @committed = offset
        @skipped = ranges
      end

      # @param run [Run] is handed out
      # @return [Array<Array(Integer, Integer)>] indices of first and last messages that are processed already
      def add(run)
        begin_again(run.offsets.first) if @base.nil? || run.offsets.first < @base
        @runs << run
        processed = @skipped.empty? ? [] : processed_before(run)
        processed.each { |first, last| run.complete(first, last - first + 1) }
        completed(run) unless processed.empty?
        processed
      end

      # @param run [Run]
      # @param first [Integer] index of the first message that is processed
      # @param count [Integer]
      def complete(run, first, count)
        run.complete(first, count)
        @changed = true
        @window.add(count, run.weight * count)
        completed(run)
      end

      # Of a worker: what comes before need not come again.
      # @param offset [Integer]
      def checkpoint(offset) = @checkpoint = [@checkpoint, offset].compact.max

      # @return [Integer] bytes of the runs that were completed since the last call
      def take_released = @released.tap { @released = 0 }

      # @return [Boolean] whether there is something new to commit
      def dirty?
        return !@checkpoint.nil? && @checkpoint != @committed if @manual

        @changed && (@base != @committed || map != @committed_map)
      end

      # @return [Array(Integer, String)] the offset to commit and its metadata; nil: nothing was handed out yet
      def to_commit
        @changed = false
        @window.sent
        @manual ? [@checkpoint, nil] : [@base, map]
      end

      # @param offset [Integer] was committed
      # @param map [String, nil] with it
      def committed(offset, map)
        @committed = offset
        @committed_map = map
        @window.committed
      end

      # What {to_commit} has returned was not committed.
      def not_committed = @changed = true

      # @return [Boolean] whether the map could become too large
      def full? = @runs.size > 1 && estimated_bytes > @limit * FULL

      # @return [Integer] messages that were handed out and are not processed
      def open = @runs.sum { |run| (run.done...run.size).count { |i| !run.done?(i) } }

      private

      # Of two neighbours, also those between which the partition has no message count as one range.
      def ranges
        found = []
        open = false
        @runs.each do |run|
          run.offsets.each_with_index do |offset, index|
            next open = false unless run.done?(index)
            next if offset < @base

            open ? found.last[1] = offset : found << [offset, offset]
            open = true
          end
        end
        found
      end

      def map = @runs.empty? ? nil : OffsetMap.dump(@base, ranges)

      # A bitmap or the ranges, whichever is shorter.
      def estimated_bytes
        span = (@runs.last.offsets.last - @base) / 6
        return span if span < @limit * FULL

        [span, ranges.size * RANGE_BYTES].min
      end

      # librdkafka reads from an earlier place: the committed offset did not exist (`auto.offset.reset`), or the partition lost
      # its end. What was handed out before counts no more.
      def begin_again(offset)
        @base = offset
        @skipped = []
        @released += @runs.sum(&:free)
        @runs.clear
        @window = CommitWindow.new
      end

      def completed(run)
        @released += run.free if run.complete?
        advance if run.equal?(@runs.first)
      end

      def advance
        while (run = @runs.first) && run.complete?
          @base = run.offsets.last + 1
          @runs.shift
        end
        @base = run.next_offset if run
      end

      def processed_before(run)
        @skipped.shift while !@skipped.empty? && @skipped.first[1] < run.offsets.first
        @skipped.filter_map do |first, last|
          from = run.offsets.bsearch_index { |offset| offset >= first }
          to = (run.offsets.bsearch_index { |offset| offset > last } || run.size) - 1
          [from, to] if from && from <= to
        end
      end
    end
    private_constant :OffsetTracker
  end
end
