# frozen_string_literal: true

module Penstock
  module Clients
    # What the group of an {InMemoryConsumer} does. An error of the rebalance listener comes out of the poll when everything is
    # done.
    # @api private
    module InMemoryGroup
      # A step that is the group's: Consumer#keep_alive takes it too, and one thread at a time runs one.
      Change = Class.new(Proc)

      private

      # Two threads must not change the assignment at once, and none may read while another one does: both would read from its
      # start.
      # The caller holds the lock.
      # @return [Boolean] false: another thread is still changing it
      def await_change(limit)
        until [nil, owner].include?(@changing.last)
          return false if limit.left&.zero?

          @changed.wait(@lock, limit.left)
        end
        true
      end

      # The caller holds the lock.
      def begin_step(step)
        @changing << owner if step.is_a?(Change)
        step
      end

      def run_step(step)
        step.call
      ensure
        if step.is_a?(Change)
          @lock.synchronize do
            @changing.pop
            @changed.broadcast
          end
        end
      end

      # Messages before the cursor may have become readable. Takes no lock: another thread may be moving the cursor.
      def rewind_timeline
        @rewound = true
        nil
      end

      # The caller holds the lock.
      def go_back
        return unless @rewound

        @rewound = false
        @cursor = 0
      end

      # @param list [Array<Array(String, Integer)>] places
      def gain(list)
        list = list.reject { |place| @assigned.key?(place) }
        starts = @callbacks.configured_starts(:assigned, list)
        list.each do |place|
          @assigned[place] = start(place, nil)
          @away.delete(place)
        end
        @ledger.assigned
        begin_at(starts)
        begin_at(rebalanced(:assigned, list, starts))
      ensure
        rewind_timeline
      end

      def give_up(kind, list)
        list = list.select { |place| @assigned.key?(place) }
        list.each { |place| @away[place] = true }
        @lost = kind == :lost
        forget(list) if @lost
        rebalanced(kind, list)
      ensure
        commit_by_itself unless @lost
        @lost = false
        forget(list)
      end

      def begin_at(starts)
        starts&.each { |topic, partition, offset| @assigned[[topic, partition]] = start([topic, partition], offset) }
      end

      def rebalanced(kind, list, starts = nil)
        @callbacks.rebalanced(kind, list.map { |place| [*place, nil, nil] }, starts)
      end

      def forget(list)
        list.each do |place|
          @assigned.delete(place)
          @ends.delete(place)
          @ledger.revoked(*place)
        end
      end

      # @return [Proc, nil] what the group does before this message is read
      def assignment_before(message)
        Change.new { gain(@logs.keys.select { |place| due?(place) }) } if due?([message.topic, message.partition])
      end

      def due?(place) = subscribed?(place.first) && !@assigned.key?(place) && !@away.key?(place)

      def subscribed?(topic) = @topics&.any? { |wanted| wanted.is_a?(Regexp) ? wanted.match?(topic) : wanted == topic }

      # @param offset [Integer, nil] a number of ConsumerPlaces::OFFSETS too
      def start(place, offset)
        case offset
        when ConsumerPlaces::OFFSETS[:beginning] then 0
        when ConsumerPlaces::OFFSETS[:end] then next_offset(place)
        when 0.. then offset
        else @committed.fetch(place, 0)
        end
      end
    end
    private_constant :InMemoryGroup
  end
end
