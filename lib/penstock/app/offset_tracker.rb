# frozen_string_literal: true

module Penstock
  class App
    # What of a partition is processed, in one assignment: from it follow the offset to commit and the map beside it. Only
    # messages that were handed out count, so holes in a partition (compaction, markers of transactions) block nothing. Of the
    # loop's thread.
    #
    # A slow message may have millions of processed ones behind it. So a run of which everything is processed becomes a range, and
    # ranges that touch become one: what this takes, in memory and time, follows from the messages that are not processed.
    # @api private
    class OffsetTracker
      # Bytes of a map without its ranges: prefix, checksum, kind and base.
      HEAD = 24
      private_constant :HEAD

      # @return [Integer, nil] the first offset that is not processed; nil: nothing was handed out
      attr_reader :base
      # @return [Integer] messages that were handed out and are not processed
      attr_reader :open
      # @return [CommitWindow] what a crash would repeat
      attr_reader :window
      # @return [Boolean] whether ranges did not fit into the latest map
      attr_reader :shortened

      # @param place [String] of the partition
      # @param limit [Integer] bytes of the map
      # @param manual [Boolean] whether only {#checkpoint} moves the offset to commit
      def initialize(place = "", limit: OffsetMap::MOST_BYTES, manual: false)
        @place = place
        @limit = limit
        @manual = manual
        @checkpoint = @base = @last = @committed = @committed_map = nil
        @spans = OffsetSpans.new
        @skipped = [] # what an earlier member has processed, behind what was handed out
        @changed = @shortened = false
        @released = @open = 0
        @window = CommitWindow.new
      end

      # @param offset [Integer] where the group goes on
      # @param ranges [Array<Array(Integer, Integer)>] what an earlier member has processed behind it
      def begin_at(offset, ranges)
        @base = @committed = offset
        @skipped = ranges
        changed
      end

      # @param run [Run] is handed out
      # @return [Array<Array(Integer, Integer)>] indices of first and last messages that are processed already
      def add(run)
        first = run.offsets.first
        read_again = !@last.nil? && first <= @last
        @skipped = [] if read_again # of messages that were at these offsets before
        begin_again(first) if @base.nil? || first < @base || (read_again && first == @base)
        @spans.add(run)
        @last = run.offsets.last
        processed = @skipped.empty? ? [] : processed_before(run)
        @open += run.size
        processed.each { |first, last| processed(run, [first, last - first + 1]) }
        changed
        processed
      end

      # @param run [Run]
      # @param places [Array<Integer>] the index of the first message that is processed, and how many are; of the next part; and
      #   so on
      def complete(run, *places)
        @changed = true
        count = processed(run, places)
        @window.add(count, run.weight * count)
      end

      # Of a worker: what comes before need not come again.
      # @param offset [Integer]
      def checkpoint(offset) = @checkpoint = [@checkpoint, offset].compact.max

      # @return [Integer] bytes of the runs that were completed since the last call
      def take_released = @released.tap { @released = 0 }

      # Though more is processed, a map that was shortened may be the same text again; and the offset, after a seek back, the same
      # as before. Without a commit the {CommitWindow} would stay full, so that nothing would be handed out any more.
      # @return [Boolean] whether there is something new to commit
      def dirty?
        return !@checkpoint.nil? && @checkpoint != @committed if @manual

        @changed && !@base.nil? && (@base != @committed || map != @committed_map || @shortened || @window.messages.positive?)
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

      # Brokers accept no map of this length.
      # @param map [String]
      def too_long(map)
        @limit = [@limit, map.bytesize / 2].min
        changed
      end

      # Whether the map could become too large if this run was handed out, in whatever order its messages are processed.
      # @param run [Run, nil]
      def full?(run = nil)
        return false if @open.zero?

        last = [run&.offsets&.last, @skipped.last&.last, @last].compact.max
        span = last - @base + 1
        return false if HEAD + (span / 6) <= @limit # as a bitmap

        open = @open + (run.nil? || skips?(run) ? 0 : run.size)
        # Each range ends before a message that is open.
        return false if fits?(span, open + 1 + @skipped.size)

        # A further one needs another message that is processed, and one that stays open.
        !fits?(span, ((open + 1 + ranges.size - @skipped.size) / 2) + @skipped.size)
      end

      private

      # Whether it is of what an earlier member has processed in part, so its holes count already.
      def skips?(run) = !@skipped.empty? && run.offsets.first <= @skipped.last[1]

      # Two numbers for each range, of no more bytes than if all were as long as their mean; and a third more for Base64.
      def fits?(span, count)
        mean = [span / (2.0 * count), 1.0].max
        HEAD + (2 * count * (1 + (Math.log(mean) / Math.log(128))) * 4 / 3) <= @limit
      end

      def changed = @map = @ranges = nil

      # An earlier member's, too, of what was not read again yet.
      def ranges = @ranges ||= @spans.ranges.tap { |found| not_read_again.each { |range| append(found, range) } }

      def not_read_again
        return @skipped if @last.nil?

        @skipped.filter_map { |first, last| [[first, @last + 1].max, last] if last > @last }
      end

      # The first one may begin where the last run ends.
      def append(found, range)
        touches = !found.empty? && range[0] == @last + 1 && @spans.ends_processed?
        touches ? found.last[1] = range[1] : found << range
      end

      # @return [String, nil]
      def map = (@map ||= [fitting_map]).first

      # More than fits is possible only where brokers accept less than usual, or with enormous gaps between offsets. What is left
      # out comes again after a crash.
      def fitting_map
        @shortened = false
        list = ranges
        while (text = OffsetMap.dump(@base, list, @place)) && text.bytesize > @limit
          @shortened = true
          list = list.first(list.size * 3 / 4)
        end
        text
      end

      # librdkafka reads from an earlier place: the committed offset did not exist (`auto.offset.reset`), or the partition lost
      # its end. What was handed out before counts no more, but workers may still have it.
      def begin_again(offset)
        @base = offset
        @checkpoint = nil
        @skipped = []
        @released += @spans.clear
        @open = 0
        changed
        @window = CommitWindow.new
      end

      # @return [Integer] messages
      def processed(run, places)
        count = run.complete(places)
        return count if run.forgotten?

        @open -= count
        changed
        @released += @spans.completed(run) if run.complete?
        @base = @spans.base || (@last + 1)
        count
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
