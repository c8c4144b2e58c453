# frozen_string_literal: true

module Penstock
  class App
    # What the loop has to do later. Of its thread.
    # @api private
    class Timers
      # One of them.
      Timer = Struct.new(:at, :number, :action) do
        # It does nothing when it is due.
        def cancel = self.action = nil

        # @return [Boolean] whether it was cancelled, or its action has begun
        def over? = action.nil?

        def run
          action = self.action
          cancel
          action&.call
        end
      end
      # So many timers are kept before those that are cancelled are looked for.
      FEW = 64
      private_constant :Timer, :FEW

      # @param clock [#call] seconds
      def initialize(clock)
        @clock = clock
        @heap = []
        @number = 0
        @many = FEW
      end

      # @param seconds [Numeric] from now
      # @return [Timer]
      def after(seconds, &action)
        forget_cancelled if @heap.size >= @many
        timer = Timer.new(@clock.call + seconds, @number += 1, action)
        index = @heap.bsearch_index { |one| ([one.at, one.number] <=> [timer.at, timer.number]) >= 0 } || @heap.size
        @heap.insert(index, timer)
        timer
      end

      # @return [Float, nil] seconds until the next one is due; nil: there is none
      def left
        @heap.shift while !@heap.empty? && @heap.first.action.nil?
        @heap.empty? ? nil : [@heap.first.at - @clock.call, 0.0].max
      end

      # Runs those that are due.
      def run
        now = @clock.call
        while (timer = @heap.first) && timer.at <= now
          @heap.shift
          timer.run
        end
      end

      private

      # Otherwise each rebalance would leave the ticks of its partitions behind, until they are due.
      def forget_cancelled
        @heap.reject!(&:over?)
        @many = [@heap.size * 2, FEW].max
      end
    end
    private_constant :Timers
  end
end
