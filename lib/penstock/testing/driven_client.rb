# frozen_string_literal: true

module Penstock
  module Testing
    # The consumer's client of a {Driver}. Its group does what the driver says, at once.
    # @api private
    class DrivenClient < Clients::InMemoryConsumer
      # @return [Integer]
      attr_accessor :commits_to_fail

      def initialize(config, callbacks)
        super
        @commits_to_fail = 0
        @on_their_way = []
        @held = nil
        @moved = false
      end

      # @return [String]
      def group = @config.kafka[:"group.id"].to_s

      # @return [Boolean] whether something has happened since {#rest}
      def moved? = @moved

      # @return [void]
      def rest
        @moved = false
        answer_commits
      end

      # After a crash.
      # @param former [DrivenClient] of the same group
      def take_over(former)
        @committed = former.instance_variable_get(:@committed)
        @metadata = former.instance_variable_get(:@metadata)
      end

      # @param places [Array<Array(String, Integer)>]
      def assign_now(places)
        gain(places)
        nil
      end

      # @param places [Array<Array(String, Integer)>, nil]
      def lose_now(places)
        held = @held || []
        @held = nil
        give_up(:lost, (places || @assigned.keys) | held)
        fail_commits_on_their_way
        nil
      end

      # The application ends it, or the time: {#end_hold}.
      # @param places [Array<Array(String, Integer)>, nil]
      # @return [Object, nil] the hold; nil: nothing is assigned
      def revoke_now(places)
        end_hold
        places = (places || @assigned.keys).select { |place| @assigned.key?(place) }
        return if places.empty?

        @held = places
        held = { partitions: by_places(places), time: @config.hold_rebalances }
        @callbacks.consumer.monitor.instrument("rebalance.held_back", held)
        places
      end

      # @return [Float] seconds that a revocation may be held back
      def longest_hold = @config.hold_rebalances / 1000.0

      # @param hold [Object, nil] only this one
      def end_hold(hold = @held)
        return unless @held && hold.equal?(@held)

        @held = nil
        give_up(:revoked, hold)
        answer_commits
        @moved = true
      end

      # ---- what the application calls; {#end_hold} too ----

      def membership = open && [:stable, 1, "driven"]

      def poll_run(...) = super.tap { |batch| @moved = true if batch }

      # Answers come at the next turn.
      def commit_async(places)
        open
        @on_their_way << places
      end

      def close(timeout_ms)
        answer_commits
        super
      end

      private

      def answer_commits
        while (places = @on_their_way.shift)
          @moved = true
          @commits_to_fail.positive? ? fail_commit(places) : succeed(places)
        end
      end

      def succeed(places)
        store(places)
        tell_answer("offsets.committed", places)
      end

      def fail_commit(places)
        @commits_to_fail -= 1
        tell_answer("offsets.commit_failed", places, error: failure(:request_timed_out, :commit))
      end

      def fail_commits_on_their_way
        while (places = @on_their_way.shift)
          tell_answer("offsets.commit_failed", places, error: failure(:illegal_generation, :commit))
        end
      end

      def tell_answer(event, places, **more)
        offsets = by_topic(places.to_h { |topic, partition, offset| [[topic, partition], offset] })
        @callbacks.consumer.monitor.instrument(event, { offsets:, **more })
      end

      def by_places(places) = places.group_by(&:first).transform_values { |list| list.map(&:last) }
    end
    private_constant :DrivenClient
  end
end
