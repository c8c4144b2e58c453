# frozen_string_literal: true

module Penstock
  class App
    # The part of {Subscription} that gives partitions up, and closes the consumer.
    # @api private
    module Ending
      # Seconds: how often a consumer is asked for the answer to its last commit.
      SOON = 0.01
      private_constant :SOON

      private

      def drain_all(partitions)
        partitions.each(&:drain)
        partitions.each { |partition| go_on_draining(partition) }
        close_if_drained
      end

      def after_work(partition)
        @main.offer(partition)
        go_on_draining(partition) if partition.state == :draining
        work_ended(partition) if partition.revoked? && partition.idle?
        end_hold
        close_if_drained
      end

      def go_on_draining(partition)
        hook = partition.next_hook
        @main.submit(hook) if hook
      end

      # The partition may be assigned here again, and has waited for this.
      def work_ended(partition)
        left = @abandoned[partition.place] or return
        left.delete(partition)
        return unless left.empty?

        @abandoned.delete(partition.place)
        @partitions[partition.place]&.then { |now| now.start? && try_start(now) }
      end

      def end_hold
        return unless @leaving&.all?(&:drained?)

        @leaving = nil
        @client.end_hold
      end

      def given_up(rebalance) = each_place(rebalance.partitions).filter_map { |place| @partitions.delete(place) }

      def give_up(partitions)
        partitions.each do |partition|
          abandon(partition) unless partition.idle?
          partition.revoke
          go_on_draining(partition) # `revoked` was not called, if the partition was lost
          (@abandoned[partition.place] ||= []) << partition unless partition.idle?
        end
      end

      def abandon(partition) = @main.event("work.abandoned") { about(partition) }

      def close_if_drained
        return unless @state == :draining && @partitions.each_value.all?(&:drained?)

        @commits.finish(partitions) ? close(@main.seconds_left) : close_later
      end

      # The group is answered meanwhile, so a rebalance that makes brokers refuse the commit can end.
      def close_later
        return if @closing_later

        @closing_later = true
        @main.timers.after(SOON) do
          @closing_later = false
          answer if @state == :draining
          close_if_drained
        end
      end

      # What is committed here is sent before the consumer leaves.
      def close(seconds)
        @commits.commit(partitions) if @state == :draining
        @commits.stop
        @state = :closing
        @reading = false
        consumer = @consumer
        @main.background("penstock.closing", -> { consumer.close(timeout: [seconds, 0.1].max.to_f) }) do |report, error|
          @state = :closed
          @left = error.nil? && report.complete?
          @main.error("consumer.close.error", error, group: @group.id) if error
          @main.end_if_closed
        end
      end
    end
    private_constant :Ending
  end
end
