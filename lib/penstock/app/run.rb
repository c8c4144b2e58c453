# frozen_string_literal: true

module Penstock
  class App
    # Messages of one partition that were polled together, and which of them are processed. Of the loop's thread; others only read
    # `batch`.
    # @api private
    class Run
      # @return [Batch]
      attr_reader :batch
      # @return [Array<Integer>] in increasing order
      attr_reader :offsets
      # @return [Integer] what it takes in memory
      attr_reader :bytes

      # @return [Float, nil] when it was polled
      attr_reader :since
      # @return [Integer] bytes of one message, on average
      attr_reader :weight

      # @param batch [Batch]
      # @param since [Float, nil]
      def initialize(batch, since = nil)
        @since = since
        @batch = batch
        @offsets = batch.offsets
        @bytes = batch.__send__(:call_memory)
        @weight = @bytes / @offsets.size
        @done = 0 # how many at the beginning are processed
        @later = nil # which of those behind are, too
        @forgotten = false
      end

      # @return [Integer]
      def size = @offsets.size

      # @param places [Array<Integer>] see {OffsetTracker#complete}
      # @return [Integer] messages
      def complete(places)
        @ranges = nil
        at = count = 0
        while (first = places[at])
          mark(first, places[at + 1])
          count += places[at + 1]
          at += 2
        end
        take_later if @later
        count
      end

      # @return [Boolean]
      def complete? = @done == size

      # Nothing of it is needed any more but the offsets.
      # @return [Integer] bytes
      def free
        @batch = nil
        @bytes.tap { @bytes = 0 }
      end

      # It counts no more, but workers may have it.
      # @return [Integer] bytes
      def forget
        @forgotten = true
        @bytes.tap { @bytes = 0 }
      end

      # @return [Boolean]
      def forgotten? = @forgotten

      # @return [Array<Array(Integer, Integer)>] indices of the first and last messages that are processed
      def ranges = @ranges ||= (0...size).chunk_while { |one, other| done?(one) == done?(other) }
                                         .filter_map { |part| part.minmax if done?(part.first) }

      # @param processed [Array<Array(Integer, Integer)>] indices of the first and last messages of its parts that are
      # @yieldparam first [Integer] of a part that is not
      # @yieldparam count [Integer]
      def each_gap(processed)
        at = 0
        [*processed, [size, size]].each do |first, last|
          yield at, first - at if first > at
          at = last + 1
        end
      end

      # @return [Integer] how many at the beginning are processed
      attr_reader :done

      # @param index [Integer]
      # @return [Boolean]
      def done?(index) = index < @done || (@later ? @later[index] : false) || false

      # @return [Integer] the first offset that is not processed
      def next_offset = @offsets[@done]

      private

      def mark(first, count)
        return @done = [@done, first + count].max if first <= @done

        @later ||= []
        @later.fill(true, first, count)
      end

      def take_later
        @done += 1 while @later[@done]
        @later = nil if complete?
      end
    end
    private_constant :Run
  end
end
