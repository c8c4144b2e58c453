# frozen_string_literal: true

module Penstock
  class App
    # The lanes of a partition, as the `order` of its route says, and which of them have something to hand out. Of the loop's
    # thread.
    # @api private
    class Lanes
      include CommonLane

      # Messages of a lane that a worker gets at once.
      MOST = 500
      # Messages of different lanes that a worker gets at once, if each takes less than {SHORT} seconds.
      BUNDLE = 64
      SHORT = 0.0002
      # A worker gets several batches of a lane, of {MOST} messages together, if each takes less than so many seconds.
      QUICK_BATCH = 0.002
      private_constant :MOST, :BUNDLE, :SHORT, :QUICK_BATCH

      # @param route [Route]
      # @param shares [Boolean] whether quick messages of different keys share a lane
      # @yieldparam seconds [Numeric] until the action, which it also gets, may make a lane ready
      # @yieldreturn [Timers::Timer]
      def initialize(route, shares, &later)
        @order = route.order
        @size, @wait = route.options[:batch]&.values_at(:size, :wait)
        @later = later
        @by_key = {}
        @ready = []
        @seconds = nil # of a message, on average
        @common = nil
        @shares = shares
      end

      # @return [Integer] lanes that have messages, the common one, too; with :unordered, those that no worker has
      def count = [@by_key.count { |_, lane| !lane.over? } + (@common&.over? == false ? 1 : 0), @ready.size].max

      # @return [Boolean]
      def ready? = !@ready.empty?

      # Messages to be handed out: `count` of the run from the index `first` on.
      def add(run, first, count)
        case @order
        when :partition then append(Slice.new(run, first, count, @by_key[nil] ||= Lane.new))
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
        while left.positive? && allowed.positive? && (lane = next_lane(slices))
          lane.busy = true
          break take_common(slices, allowed) if lane.equal?(@common)

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
        @common = nil
      end

      # @param work [Work] has run
      def measure(work)
        @shares = false if work.sends?
        return if work.processed.zero?

        one = work.seconds / work.processed
        @seconds = @seconds ? (@seconds * 0.8) + (one * 0.2) : one
      end

      private

      # @return [Lane, nil] is ready
      def next_lane(slices)
        while (lane = @ready.first)
          return if lane.equal?(@common) && !slices.empty? # a worker gets it alone

          @ready.shift.offered = false
          return lane if lane.ready?
        end
      end

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

      # Each part is a lane of its own.
      def split(run, first, count)
        first.step(first + count - 1, bundle) do |from|
          append(Slice.new(run, from, [bundle, first + count - from].min, Lane.new))
        end
      end

      # So is each batch.
      def add_to_batches(run, first, count)
        while count.positive?
          @batch = Lane.new unless @batch&.open? && @batch.size < @size
          part = [@size - @batch.size, count].min
          append(Slice.new(run, first, part, @batch))
          first += part
          count -= part
        end
      end

      def append(slice)
        lane = slice.lane
        lane.slices << slice
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
