# frozen_string_literal: true

module Penstock
  class App # rubocop:disable Style/Documentation -- in app.rb
    # Makes the consumer of a member stop reading partitions, and read on elsewhere: to leave memory to others ({Memory}), and for
    # {Processor#seek}. Of the loop's thread. What blocks is done on a thread of its own, one call at a time, for all partitions
    # that need it.
    #
    #     pause ----> wait ----> rewind ----> resume ----> over
    #
    # Before the loop knows that the rewind is done, what is polled of the partition is ignored: it may be from before. So nothing
    # may come from behind, and the consumer is paused until then.
    # @api private
    class Detours
      include ShortInspect

      # Seconds: until a step that has failed is taken again; of a rewind.
      AGAIN = 1
      TIMEOUT = 5
      # What follows.
      STEPS = { pause: :wait, rewind: :resume, resume: nil }.freeze
      private_constant :AGAIN, :TIMEOUT, :STEPS

      # @param subscription [Subscription]
      # @param main [Loop]
      def initialize(subscription, main)
        @subscription = subscription
        @main = main
        @partitions = []
        @busy = false
      end

      # @param partition [Partition] has a detour
      def begin(partition)
        event("client.pause", partition) if partition.detour.parked
        @partitions |= [partition]
        go_on
      end

      # Something has changed.
      def go_on
        return if @busy || @partitions.empty?

        @partitions.select! { |partition| partition.detour && !partition.cancelled? }
        @partitions.each { |partition| partition.detour.step = :rewind if partition.starving? }
        now = @main.runtime.now
        step, due = @partitions.group_by { |partition| partition.detour.due_step(now) }.find { |name,| STEPS.key?(name) }
        take(step, together(due)) if step
      end

      private

      # What brokers have to be asked for does not keep others waiting, if it fails.
      def together(partitions)
        alone = partitions.find { |partition| partition.detour.asks? }
        alone ? [alone] : partitions
      end

      def take(step, partitions)
        @busy = true
        detours = partitions.map(&:detour)
        @main.background("penstock.detours", __send__(step, partitions)) do |places, error|
          @busy = false
          tell(error, partitions)
          partitions.zip(detours) { |partition, detour| taken(partition, detour, places&.include?(partition.place)) }
          go_on
        end
      end

      # ---- the steps: each returns what returns the places for which it is done ----

      def pause(partitions) = change(partitions, :pause)
      def resume(partitions) = change(partitions, :resume)

      def change(partitions, how)
        consumer = @subscription.consumer
        places = partitions.map(&:place)
        -> { consumer.public_send(how, by_topic(places)) && places }
      end

      # The epoch is that of this moment. So nothing happens to a partition that is assigned again until then.
      def rewind(partitions)
        consumer = @subscription.consumer
        client = @subscription.client
        epoch = client.epoch
        targets = partitions.map { |partition| [*partition.place, partition.detour.to] }
        lambda do
          places = targets.map { |topic, number, to| [topic, number, offset(consumer, topic, number, to)] }
          client.rewind(places, epoch, TIMEOUT).map { |place| place.first(2) }
        end
      end

      def offset(consumer, topic, number, place)
        return place if place.is_a?(Integer)

        found = consumer.offsets_for_times(topic, [number], place, timeout: TIMEOUT)[number] if place.is_a?(Time)
        found || consumer.watermarks(topic, number, timeout: TIMEOUT)[place == :beginning ? 0 : 1]
      end

      def by_topic(places) = places.group_by(&:first).transform_values { |list| list.map(&:last) }

      # ---- what follows ----

      def taken(partition, detour, done)
        return mend_successor(partition, detour) if partition.cancelled?
        return unless partition.detour.equal?(detour) # otherwise another one has begun, with its first step

        done ? next_step(partition, detour) : again(detour)
      end

      def next_step(partition, detour)
        detour.step = STEPS.fetch(detour.step)
        return if detour.step

        event("client.resume", partition) if detour.parked
        partition.detour = nil
        @main.offer(partition)
      end

      # The partition may have been assigned here again before the consumer has paused it.
      def mend_successor(partition, detour)
        return if detour.step != :pause

        successor = @subscription.partition_at(partition.place) or return
        return if successor.detour && successor.detour.step != :resume

        successor.detour = Detour.new(nil, false, :resume)
        @partitions |= [successor]
      end

      def again(detour)
        detour.at = @main.runtime.now + AGAIN
        @main.timers.after(AGAIN) { go_on }
      end

      def tell(error, partitions)
        return if error.nil? || partitions.all?(&:cancelled?)

        @main.error("consumer.detour.error", error, **@subscription.about(partitions.first))
      end

      def event(name, partition)
        @main.event(name) { { **@subscription.about(partition), offset: partition.detour.to } }
      end
    end

    # Where the consumer has to go on (an offset, Symbol or Time), whether that is to leave memory to others, the next step, and
    # when that may be taken.
    # @api private
    Detour = Struct.new(:to, :parked, :step, :at) do
      # @param now [Float]
      # @return [Symbol, nil]
      def due_step(now) = at.nil? || at <= now ? step : nil

      # @return [Boolean] whether the next step has to ask brokers for the offset
      def asks? = step == :rewind && !to.is_a?(Integer)

      # @return [Boolean] whether what is polled may be from before
      def ignores? = step != :resume
    end
    private_constant :Detours, :Detour
  end
end
