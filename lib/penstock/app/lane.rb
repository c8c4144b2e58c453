# frozen_string_literal: true

module Penstock
  class App # rubocop:disable Style/Documentation -- in app.rb
    # Messages of a run that are handed out together: `count` from the index `first` on. The worker that has them counts in `done`
    # how many are processed, and says in `error` why it went no further.
    # @api private
    class Slice
      # @return [Run]
      attr_reader :run
      # @return [Lane]
      attr_reader :lane
      # @return [Integer]
      attr_accessor :first, :count, :done
      # @return [Exception, nil]
      attr_accessor :error
      # @return [Float, nil] seconds after which its first message is due
      attr_accessor :wait

      def initialize(run, first, count, lane)
        @run = run
        @first = first
        @count = count
        @lane = lane
        @done = 0
      end

      # @param count [Integer] messages that it keeps
      # @return [Slice] the others
      def split(count)
        rest = Slice.new(@run, @first + count, @count - count, @lane)
        @count = count
        rest
      end

      # @yieldparam key [String, nil]
      # @yieldreturn [Lane]
      # @return [Array<Slice>] each of its messages alone, in its lane
      def alone
        left = [@done, @count - 1].min
        @run.batch.keys(@first, @count).each_with_index.map do |key, i|
          one = Slice.new(@run, @first + i, 1, yield(key))
          one.done = 1 if i < @done
          next one unless i == left

          one.error = @error
          one.wait = @wait
          one
        end
      end

      # Takes what is processed off the beginning.
      def advance
        @first += @done
        @count -= @done
        @done = 0
      end
    end
    private_constant :Slice

    # What must not overlap and keeps its order: all messages of a partition, or those of one key. One worker at a time has
    # messages of a lane. Of the loop's thread; the worker that has its messages may read it.
    # @api private
    class Lane
      # @return [String, nil]
      attr_reader :key
      # @return [Array<Slice>] to be handed out
      attr_reader :slices
      # @return [Integer] of the first message, from 1
      attr_accessor :attempt
      # @return [Boolean] whether a worker has messages of it
      attr_accessor :busy
      # @return [Object, nil] the timer until which nothing is handed out
      attr_accessor :waiting
      # @return [Exception, nil] the first message goes to the dead letters, for this reason
      attr_accessor :dead
      # @return [Boolean] whether it is in the line of those that are ready
      attr_accessor :offered
      # @return [Integer] of the batch that has failed: see {Batches#left_alone}
      attr_accessor :left_alone
      # @return [Integer] so many messages of a failed batch are handed out one by one
      attr_accessor :alone
      # @return [Object, nil] the timer until which a batch waits for more messages
      attr_accessor :gathering
      # @return [Boolean] whether the batch has waited long enough
      attr_accessor :gathered

      # @param key [String, nil]
      def initialize(key = nil)
        @key = key
        @slices = []
        @alone = @left_alone = 0
        @busy = @offered = @gathered = false
        begin_message
      end

      # Its messages come back from a worker.
      # @param done [Integer] how many of them are processed
      def put_back(done)
        @busy = false
        return if done.zero?

        @alone = [@alone - done, 0].max if @alone.positive?
        begin_message
      end

      # The first message is a new one.
      def begin_message
        @attempt = 1
        @dead = nil
      end

      # @return [Boolean]
      def ready? = !@busy && @waiting.nil? && !@slices.empty?

      # @return [Boolean] whether messages may be added to a batch
      def open? = fresh? && !@busy

      # @return [Boolean] whether its first message has not failed
      def unmarked? = @attempt == 1 && @dead.nil?

      # @return [Boolean] whether nothing of it has failed
      def fresh? = unmarked? && @waiting.nil? && @alone.zero?

      # @return [Boolean] nothing is left of it
      def over? = !@busy && @slices.empty?

      # @param most [Integer] messages
      # @param taken [Array<Slice>] gets them
      # @return [Integer] how many they are
      def take(most, taken)
        most = 1 if @dead || @alone.positive?
        left = most
        while left.positive? && (slice = @slices.shift)
          @slices.unshift(slice.split(left)) if slice.count > left
          left -= slice.count
          taken << slice
        end
        most - left
      end

      # @return [Integer] messages
      def size = @slices.sum(&:count)
    end

    # Of messages with different keys: see {CommonLane}.
    # @api private
    class Common < Lane; end
    private_constant :Lane, :Common
  end
end
