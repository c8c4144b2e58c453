# frozen_string_literal: true

module Penstock
  class App
    # The lanes of a partition, as the `order` of its route says, and which of them have something to hand out. Of the loop's
    # thread.
    # @api private
    class Lanes
      # Messages of a lane that a worker gets at once.
      MOST = 500
      # Messages of different lanes that a worker gets at once, if each takes less than {SHORT} seconds.
      BUNDLE = 64
      SHORT = 0.0002
      # A worker gets several batches of a lane, of {MOST} messages together, if each takes less than so many seconds.
      QUICK_BATCH = 0.002
      private_constant :MOST, :BUNDLE, :SHORT, :QUICK_BATCH

      # @param route [Route]
      # @yieldparam seconds [Numeric] until the action, which it also gets, may make a lane ready
      # @yieldreturn [Timers::Timer]
      def initialize(route, &later)
        @order = route.order
        @size, @wait = route.options[:batch]&.values_at(:size, :wait)
        @later = later
        @by_key = {}
        @ready = []
        @seconds = nil # of a message, on average
      end

      # @return [Integer] lanes that have messages; with :unordered, those that no worker has
      def count = [@by_key.count { |_, lane| !lane.over? }, @ready.size].max

      # @return [Boolean]
      def ready? = !@ready.empty?

      # Messages to be handed out: `count` of the run from the index `first` on.
      def add(run, first, count)
        case @order
        when :partition then append(lane(nil), run, first, count)
        when :unordered then @size ? add_to_batches(run, first, count) : split(run, first, count)
        else add_by_key(run, first, count)
        end
      end

      # The lane goes on, if it can.
      # @param lane [Lane]
      def offer(lane)
        return if lane.offered || !lane.ready?
        return gather(lane) if @size && gathers?(lane)

        lane.offered = true
        @ready << lane
      end

      # @param allowed [Numeric] messages; a batch may have more
      # @return [Array<Slice>] for one worker; their lanes are busy until {Lane#put_back}
      def take(allowed = Float::INFINITY)
        slices = []
        left = bundle
        while left.positive? && allowed.positive? && (lane = @ready.shift)
          lane.offered = false
          next unless lane.ready?

          lane.busy = true
          count = @size ? take_batches(lane, slices, allowed) : lane.take([MOST, allowed].min, slices)
          left = lane.dead || @size ? 0 : left - count
          allowed -= count
        end
        slices
      end

      # @param lane [Lane] is over
      def leave(lane) = lane.key && @by_key.delete(lane.key)

      # Nothing more is handed out.
      def clear
        @ready.clear
        @by_key.clear
      end

      # @param seconds [Float] that work took
      # @param count [Integer] how many messages it has processed
      def measure(seconds, count)
        return if count.zero?

        one = seconds / count
        @seconds = @seconds ? (@seconds * 0.8) + (one * 0.2) : one
      end

      private

      # One batch, and full ones that follow it, if they are quick.
      # @return [Integer] messages
      def take_batches(lane, slices, allowed)
        end_gathering(lane)
        most = quick_batches? && lane.fresh? ? [MOST, allowed, lane.size].min : 0
        count = lane.take(@size, slices)
        count += lane.take(@size, slices) while count + @size <= most
        count
      end

      def quick_batches? = @seconds && @seconds * @size < QUICK_BATCH

      def add_by_key(run, first, count)
        keys = run.batch.keys
        first.upto(first + count - 1) do |index|
          key = keys[index]
          append(key ? (@by_key[key] ||= Lane.new(key)) : Lane.new, run, index, 1)
        end
      end

      # Each part is a lane of its own.
      def split(run, first, count)
        first.step(first + count - 1, bundle) do |from|
          append(Lane.new, run, from, [bundle, first + count - from].min)
        end
      end

      # So is each batch.
      def add_to_batches(run, first, count)
        while count.positive?
          @batch = Lane.new unless @batch&.open? && @batch.size < @size
          part = [@size - @batch.size, count].min
          append(@batch, run, first, part)
          first += part
          count -= part
        end
      end

      def lane(key) = @by_key[key] ||= Lane.new(key)

      def append(lane, run, first, count)
        lane.slices << Slice.new(run, first, count, lane)
        offer(lane) unless lane.offered
      end

      def bundle = @seconds && @seconds < SHORT ? BUNDLE : 1

      # Whether a batch waits for more messages.
      def gathers?(lane)
        @wait.positive? && lane.fresh? && !lane.gathered && lane.size < @size
      end

      def gather(lane)
        lane.gathering ||= @later.call(@wait, lambda {
          lane.gathered = true
          offer(lane)
        })
      end

      def end_gathering(lane)
        lane.gathering&.cancel
        lane.gathering = nil
        lane.gathered = false
      end
    end
    private_constant :Lanes
  end
end
