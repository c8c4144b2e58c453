# frozen_string_literal: true

module Penstock
  class App
    # The part of {Partition} that takes work back.
    # @api private
    module Settling
      # @param work [Work] has run
      # @yieldparam lane [Lane] whose first message has failed, with the error
      def settle(work, &)
        @in_work -= 1
        @handed_out -= work.size
        @lanes.measure(work)
        give_back_allowance(work)
        done = work.done?
        work.slices = @lanes.in_lanes(work.slices, done)
        done ? settle_done(work) : settle_rest(work, &)
      end

      # The first message of the lane is not tried again.
      # @param lane [Lane]
      def skip(lane)
        slice = lane.slices.first or return
        slice.done = 1
        complete([slice])
        lane.put_back(1)
        slice.advance
        lane.slices.shift if slice.count.zero?
        @lanes.leave(lane) if lane.over?
      end

      private

      # Slices of a lane are neighbours, as a rule, so most lanes are looked at once.
      def settle_done(work)
        complete(work.slices)
        lane = nil
        work.slices.each do |slice|
          next if slice.lane.equal?(lane)

          lane = slice.lane
          lane.put_back(slice.done)
          lane.slices.empty? ? @lanes.leave(lane) : offer(lane)
        end
      end

      def settle_rest(work, &failed)
        errors = {}.compare_by_identity
        left = work.left_alone
        complete(work.slices)
        work.slices.reverse_each { |slice| put_back(slice, errors) }
        errors.each_key { |lane| lane.left_alone = left }
        work.slices.each { |slice| @lanes.leave(slice.lane) if slice.lane.over? }
        errors.each(&failed)
        return unless @state == :running

        end_asking if work.asked_to_pause?
        work.slices.each { |slice| offer(slice.lane) }
      end

      def put_back(slice, errors)
        lane = slice.lane
        errors[lane] = slice.error if slice.error
        slice.error = nil
        lane.put_back(slice.done)
        wait_for(slice) if slice.wait
        slice.advance
        lane.slices.unshift(slice) if slice.count.positive?
      end

      # Its first message is not due.
      def wait_for(slice)
        lane = slice.lane
        lane.waiting ||= @subscription.later(slice.wait, self) do
          lane.waiting = nil
          offer(lane)
        end
        slice.wait = nil
      end

      # All messages of a run at once, as it costs much less than one by one.
      def complete(slices)
        unless @revoked
          @open -= slices.sum(&:done)
          places_of(slices).each { |run, places| @tracker.complete(run, *places) }
        end
        release
      end

      # @return [Hash{Run => Array<Integer>}] see {OffsetTracker#complete}
      def places_of(slices)
        slices.each_with_object({}.compare_by_identity) do |slice, found|
          next if slice.done.zero?

          places = (found[slice.run] ||= [0, 0])
          next places[-1] += slice.done if slice.first == places[-2] + places[-1]

          places.push(slice.first, slice.done)
        end
      end
    end
    private_constant :Settling
  end
end
