# frozen_string_literal: true

module Penstock
  class App
    # The part of {Lanes} that lets quick messages of different keys share a lane, in the order of the partition. A lane for
    # each key costs several microseconds for each message: more than many processors need themselves.
    #
    # When one of them fails or takes long, they get lanes of their own. So it holds up no other key, except those that a worker
    # has together with it.
    #
    # What is to be handed out of a key is in one place: in its own lane as long as there is one, otherwise in the common one.
    # @api private
    module CommonLane
      # Seconds that a message in the common lane takes on average, at most.
      TINY = 0.00002
      # Messages of it that a worker gets at once.
      TOGETHER = 128
      # Seconds. What a worker has for so long is slow.
      LONG = 0.05
      private_constant :TINY, :TOGETHER, :LONG

      # @param slices [Array<Slice>] of work that comes back
      # @param done [Boolean] whether every message is processed
      # @return [Array<Slice>] the same messages; if they share a lane no more, each in its own
      def in_lanes(slices, done)
        lane = slices.first.lane
        return slices unless lane.is_a?(Common)

        end_common if lane.equal?(@common) && !(done && share?)
        lane.equal?(@common) ? slices : slices.flat_map { |slice| slice.alone { |key| own(key) } }
      end

      private

      # If a delivery fails, what is behind its message in the lane comes again. So those that send share no lane.
      def share? = @shares && @seconds && @seconds < TINY

      def add_by_key(run, first, count)
        end_common unless (share = share?)
        return add_to_common(run, first, count) if share && @by_key.empty?

        keys = run.batch.keys
        first.upto(first + count - 1) do |index|
          lane = @by_key[keys[index]]
          next add_to_common(run, index, 1) if lane.nil? && share

          append(Slice.new(run, index, 1, lane || own(keys[index])))
        end
      end

      def add_to_common(run, first, count)
        @common ||= Common.new
        last = @common.slices.last
        return last.count += count if last && last.run.equal?(run) && last.first + last.count == first

        append(Slice.new(run, first, count, @common))
      end

      # @param key [String, nil] messages without one have no order
      def own(key) = key ? (@by_key[key] ||= Lane.new(key)) : Lane.new

      def take_common(slices, allowed)
        @common.take([TOGETHER, allowed].min, slices)
        @out = slices
        watch unless @watched
      end

      # Ends the lane if a worker has the same of it for long.
      def watch
        @watched = @out
        @later.call(LONG, lambda {
          same = @watched.equal?(@out)
          @watched = nil
          next unless @common&.busy

          same ? end_common : watch
        })
      end

      # What a worker has of it keeps the lanes of its keys busy.
      def end_common
        common = @common or return
        @common = nil
        @out.each { |slice| slice.alone { |key| own(key) }.each { |one| one.lane.busy = true } } if common.busy
        common.slices.each { |slice| slice.alone { |key| own(key) }.each { |one| append(one) } }
        common.slices.clear
      end
    end
    private_constant :CommonLane
  end
end
