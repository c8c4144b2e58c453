# frozen_string_literal: true

module Penstock
  class App
    # What follows when a message has failed. Of the loop's thread.
    # @api private
    class ErrorPolicy
      include ShortInspect

      # The part of a wait that chance decides, so that what has failed together is not tried again together.
      JITTER = 0.2
      private_constant :JITTER

      # @param main [Loop]
      # @param random [Random]
      def initialize(main, random)
        @main = main
        @random = random
      end

      # @param partition [Partition]
      # @param lane [Lane] whose first message has failed
      # @param error [Exception]
      def apply(partition, lane, error)
        return @main.fail(error) if partition.route.fatal?(error)
        return apply_late(partition, lane, error) unless partition.state == :running
        return if done_as_told?(partition, lane, error)

        publish(partition, lane, error)
        return wait(partition, lane, delay(partition, lane.attempt)) if lane.dead

        final?(partition, lane, error) ? finish(partition, lane, error) : try_again(partition, lane, error)
      end

      # Counts what was processed, and publishes what of the work has no consequence: copies that are stored, and an error after a
      # batch was done.
      # @param work [Work]
      def tell(work)
        @main.watch.metrics.settled(work)
        place = work.partition.subscription.about(work.partition)
        tell_consumed(work, place)
        work.buried.each do |offset, error|
          to = work.partition.subscription.copies_of(work.partition.route, error)
          next tell_retry(work.partition, place, offset, error, to) if to.is_a?(RetryTopic)

          to = to.topic
          count(work.partition, :dead_letters)
          reason = error.is_a?(Processor::Rejected) ? Text.message(error) : nil
          @main.event("dead_letter_queue.dispatched") { { **place, offset:, error:, to:, reason: } }
        end
        tell_late(work, place) if work.late_error
        tell_unmade(work, place) if work.processor_error
      end

      private

      # Nothing more of the partition is handed out here. The message comes again.
      def apply_late(partition, lane, error)
        case error
        when Processor::Paused, Processor::SeekTo then nil
        when Processor::Skipped then skip_as_told(partition, lane, error) unless partition.revoked? || partition.route.batch?
        else publish(partition, lane, error)
        end
      end

      def publish(partition, lane, error)
        count(partition, :failed) unless lane.dead
        @main.error(lane.dead ? "dead_letter_queue.dispatch.error" : "consumer.consume.error", error, **about(partition, lane))
      end

      def tell_retry(partition, place, offset, error, copies)
        count(partition, :retried)
        @main.event("retry_topic.dispatched") { { **place, offset:, error:, to: copies.topic } }
      end

      def tell_consumed(work, place)
        messages = work.processed
        return if messages.zero?

        @main.event("consumer.consumed") { { **place, offset: work.first_offset, messages:, time: work.seconds * 1000 } }
      end

      def about(partition, lane)
        slice = lane.slices.first
        { group: partition.subscription.group.id, topic: partition.topic, partition: partition.number,
          offset: slice && slice.run.offsets[slice.first], attempt: lane.attempt }
      end

      def final?(partition, lane, error)
        return true if Copies.poison?(error)

        times = partition.route.options[:retry][:times]
        times && lane.attempt > times
      end

      # Of a batch that has failed for good, each message gets one try of its own.
      def finish(partition, lane, error)
        return alone(partition, lane) if partition.route.batch? && lane.alone.zero? && lane.left_alone.positive?

        case outcome(partition, error)
        when :dead_letter, :retry_topic then lane.dead = error
        when :skip then skip(partition, lane)
        when :stop then return @main.fail(error)
        else return block(partition, lane, error)
        end
        partition.offer(lane)
      end

      def outcome(partition, error)
        return :retry_topic if partition.subscription.copies_of(partition.route, error).is_a?(RetryTopic)

        partition.route.options[:after_retries]
      end

      def alone(partition, lane)
        lane.alone = lane.left_alone
        partition.offer(lane)
      end

      def tell_late(work, place)
        error = work.late_error
        return @main.fail(error) if work.partition.route.fatal?(error)

        @main.error("consumer.consume.error", error, **place, offset: nil, attempt: 1)
      end

      # As of the first processor of a partition: see {Starts}.
      def tell_unmade(work, place)
        error = work.processor_error
        return @main.fail(error) if work.partition.route.fatal?(error)

        @main.error("consumer.assigned.error", error, **place)
      end

      def count(partition, name) = @main.watch.metrics.add(partition, name)

      def skip(partition, lane, reason = nil)
        count(partition, :skipped)
        count(partition, :processed)
        @main.event("message.skipped") { { **about(partition, lane), reason: } }
        partition.skip(lane)
      end

      # What no failure is.
      def done_as_told?(partition, lane, error)
        case error
        when Processor::Paused then pause(partition, lane, error.seconds)
        when Processor::SeekTo then seek(partition, lane, error.to)
        when Processor::Skipped then skip_as_told(partition, lane, error) unless partition.route.batch?
        end
      end

      def pause(partition, lane, seconds)
        @main.event("consumer.consuming.pause") { { **about(partition, lane), seconds: } }
        partition.pause(seconds)
        true
      end

      def seek(partition, lane, to)
        @main.event("consumer.consuming.seek") { { **about(partition, lane), to: } }
        partition.subscription.commits.commit([partition]) # its tracker begins again
        partition.seek(to, lane)
        partition.subscription.detours.begin(partition)
        true
      end

      def skip_as_told(partition, lane, error)
        skip(partition, lane, Text.message(error))
        partition.offer(lane)
        true
      end

      def block(partition, lane, error)
        @main.event("partition.blocked") { about(partition, lane) }
        try_again(partition, lane, error)
      end

      def try_again(partition, lane, error)
        count(partition, :retried)
        seconds = error.is_a?(Processor::RetryLater) ? error.seconds : delay(partition, lane.attempt)
        @main.event("consumer.consuming.retry") { { **about(partition, lane), seconds: } }
        wait(partition, lane, seconds)
      end

      def delay(partition, attempt)
        from, to = partition.route.options[:retry].values_at(:from, :to)
        [from * (2.0**[attempt - 1, 30].min), to].min * (1 - (JITTER * @random.rand))
      end

      def wait(partition, lane, seconds)
        lane.attempt += 1
        lane.waiting = partition.subscription.later(seconds, partition) do
          lane.waiting = nil
          partition.offer(lane)
        end
      end
    end
    private_constant :ErrorPolicy
  end
end
