# frozen_string_literal: true

module Penstock
  class App
    # The part of {Partition} that holds messages back: pauses, its {Throttle}, and its {CommitWindow}.
    # @api private
    module Pace
      # @return [Boolean] whether a commit should not wait for its time
      def commit_soon? = bounded? && @tracker.window.half?(@route.options[:uncommitted])

      # Of a worker: others begin no message any more.
      def ask_to_pause = @asked_to_pause = true

      # Until then no message is handed out. A longer pause that has begun goes on.
      # @param seconds [Numeric]
      def pause(seconds)
        return if @paused && @paused.at > @runtime.now + seconds

        @paused&.cancel
        @asked_to_pause = true # an earlier pause may have ended meanwhile, and workers have messages of the partition
        @paused = @subscription.later(seconds, self) { @paused = @asked_to_pause = nil }
      end

      # Of the loop's thread. A message before the one that has asked has failed, so no pause follows.
      def end_asking = @paused || @asked_to_pause = false

      private

      def held? = @paused || @throttled || tick_first? || (@catching_up && @route.order == :partition)

      # With manual offsets the program decides what a crash repeats.
      def bounded? = @route.options[:offsets] == :automatic

      # @return [Numeric] how many messages may begin before a commit succeeds
      def allowance = bounded? ? @tracker.window.left(@route.options[:uncommitted]) - @handed_out : Float::INFINITY

      def take
        return @lanes.take(allowance) unless @throttle

        allowed = @throttle.allowed
        return hold if allowed.zero?

        @lanes.take([allowed, allowance].min).each { |slice| @throttle.take(slice.count) }
      end

      # @return [Array] nothing
      def hold
        seconds = @throttle.wait
        @subscription.main.event("filtering.throttled") { { **@subscription.about(self), seconds: } }
        @throttled = @subscription.later(seconds, self) { @throttled = nil }
        []
      end

      # What was not begun does not count.
      def give_back_allowance(work)
        return if @throttle.nil?

        count = work.slices.sum { |slice| slice.count - slice.done } - work.failed_count
        return unless count.positive?

        @throttle.take(-count)
        @throttled&.cancel
        @throttled = nil
      end
    end
    private_constant :Pace
  end
end
