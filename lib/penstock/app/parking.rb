# frozen_string_literal: true

module Penstock
  class App
    # The part of {Partition} that begins {Detours}.
    # @api private
    module Parking
      # @return [Detour, nil]
      attr_accessor :detour
      # @return [Boolean] whether it was parked in this assignment
      attr_reader :parked_before

      # @param share [Integer]
      # @return [Integer] bytes for {Memory}
      def used(share) = @backlog_bytes + [@bytes - @backlog_bytes, share].min

      # @param time [Float]
      # @return [Boolean] whether the next messages that it could hand out were polled before
      def old?(time) = @detour.nil? && !@backlog.empty? && @backlog.first.since < time

      # Drops what is above the share, but leaves something to do.
      # @param share [Integer] bytes
      # @return [Boolean] whether there was something to drop
      def park(share)
        taken = @bytes - @backlog_bytes
        left = @backlog.take_while { |run| (taken += run.bytes) <= share }
        left << @backlog.first if left.empty? && @open.zero?
        first, = dropped = @backlog.drop(left.size)
        return false if first.nil?

        dropped.each { |run| forget(run) }
        @backlog = left
        @enough = share / 2
        @parked_before = true
        detour_to(first.offsets.first, true)
      end

      # Drops everything. Nothing is in work.
      # @param to [Integer, Symbol, Time]
      # @param lane [Lane]
      def seek(to, lane)
        @backlog.each { |run| forget(run) }.clear
        lane.slices.clear
        @lanes.clear
        @tracker = new_tracker
        @bytes = @open = @enough = 0
        detour_to(to, false)
      end

      # @return [Boolean] whether a detour has nothing more to wait for
      def starving?
        return false if @detour&.step != :wait

        @bytes <= @enough || (@backlog.empty? && room?)
      end

      private

      def detour_to(place, parked)
        @end_reached = false
        @detour = Detour.new(place, parked || @detour&.parked || false, :pause)
        true
      end

      # It is not handed out.
      def forget(run)
        @backlog_bytes -= run.bytes
        @bytes -= run.bytes
        run.batch.release
      end
    end
    private_constant :Parking
  end
end
