# frozen_string_literal: true

module Penstock
  class App # rubocop:disable Style/Documentation -- in app.rb
    # One member of a group: its consumer, its partitions and its commits. Of the loop's thread.
    # @api private
    class Subscription
      include ShortInspect
      include Ending

      # Messages and bytes of a run, and runs that are polled at once, as each turn of the loop may wait for the GVL.
      RUN = 500
      RUN_BYTES = 1 << 20
      RUNS = 4
      # Seconds. How often a consumer that must not read answers its group.
      ANSWER_EVERY = 0.1
      private_constant :RUN, :RUN_BYTES, :RUNS, :ANSWER_EVERY

      # @return [Loop]
      attr_reader :main
      # @return [GroupSettings]
      attr_reader :group
      # @return [Consumer, nil]
      attr_reader :consumer
      # @return [Native::ConsumerClient, nil] the consumer's client, or what replaces it
      attr_reader :client
      # @return [Commits]
      attr_reader :commits
      # @return [Detours]
      attr_reader :detours
      # @return [Lags]
      attr_reader :lags

      # @param main [Loop]
      # @param group [GroupSettings]
      def initialize(main, group)
        @main = main
        @group = group
        @partitions = {}
        @abandoned = {} # Arrays of earlier assignments whose work still runs, by place
        @leaving = nil # what a revocation that is held back waits for
        @reading = @answering = @left = false
        @with_ends = Maker.with_ends(group.routes)
        @state = :open
        @commits = Commits.new(self, main)
        @starts = Starts.new(self, main)
        @detours = Detours.new(self, main)
        @lags = Lags.new(self, main)
        @copies = group.routes.to_h { |route| [route, Copies.new(route, main.producer, group.id, main.runtime)] }
      end

      # @param route [Route]
      # @param error [Exception]
      # @return [DeadLetter] to where messages go that have failed for good
      def copies_of(route, error) = @copies.fetch(route).of(error)

      # @return [Around]
      def around = @main.around

      # @return [Integer] of messages that were polled and are not processed
      def bytes = @partitions.each_value.sum(&:bytes)

      # @return [Array<Partition>]
      def partitions = @partitions.values

      # @param place [Array(String, Integer)]
      # @return [Partition, nil]
      def partition_at(place) = @partitions[place]

      # @return [Boolean]
      def open? = @state == :open

      # @return [Boolean] whether the application stops, and partitions end because of it
      def stopping? = @state == :draining

      # @return [Boolean]
      def closed? = @state == :closed

      # @return [Boolean] whether the consumer has left its group in time
      def left? = @left

      # Joins the group.
      def open
        @consumer = Member.build(@group, @main.settings, Listener.new(self), monitor, @main.runtime)
        @client = ConsumerRegistry.of(@consumer).client
        @consumer.subscribe(*@group.routes.map(&:topic))
        read
        @commits.every(@main.settings.commit_interval)
        @lags.keep_asking if @main.runtime.asks_leaders?
      end

      # ---- reading ----

      # The set has returned its consumer.
      def poll
        RUNS.times do
          break unless @reading && @main.room?

          batch = @client.poll_run(RUN, [RUN_BYTES, @main.memory.share].min) or return
          take(batch) unless batch.empty?
          take_ends(batch) unless @with_ends.empty?
        end
        stall unless @main.room?
      rescue ConsumerClosedError
        nil
      rescue Error => e
        failed(e)
      end

      # Does something that may make a partition able to go on.
      # @return [Timers::Timer]
      def later(seconds, partition)
        timer = @main.timers.after(seconds) do
          yield
          @main.offer(partition)
        end
        partition.keep(timer)
      end

      # There is room again.
      def read
        return if @reading || @state != :open

        @reading = true
        @main.set.add(@consumer)
      end

      # Nothing is read, but the group is answered.
      def stall
        return unless @reading

        @reading = false
        @main.set.delete(@consumer)
        answer_later unless @answering
      end

      # ---- rebalances ----

      # From {Listener}.
      # @param rebalance [Rebalance]
      def assigned(rebalance)
        return if @state == :closing

        made = each_place(rebalance.partitions).to_h do |topic, number|
          [[topic, number], Partition.new(self, topic, number, @group.route_of(topic))]
        end
        @partitions.update(made)
        return drain_all(made.values) unless @state == :open

        @starts.read(made.values) unless made.empty?
      end

      # From {Listener}, before the answer.
      # @param rebalance [Rebalance]
      def revoked(rebalance)
        return if @state == :closing

        left = given_up(rebalance)
        @commits.commit(left)
        give_up(left)
        @leaving = nil
        close_if_drained
      end

      # From {Listener}. Nothing may be committed.
      # @param rebalance [Rebalance]
      def lost(rebalance)
        return if @state == :closing

        give_up(given_up(rebalance))
        @leaving = nil
        close_if_drained
      end

      # A revocation waits until nothing of these partitions is in work.
      # @param partitions [Hash{String => Array<Integer>}]
      def held_back(partitions)
        @leaving = each_place(partitions).filter_map { |place| @partitions[place] }
        drain_all(@leaving)
        end_hold
      end

      # @return [Hash{Symbol => Object}] for events
      def about(partition) = { group: @group.id, topic: partition.topic, partition: partition.number }

      # ---- what has come back ----

      # @param work [Work]
      def settle(work)
        partition = work.partition
        @main.tell(work)
        partition.settle(work) { |lane, error| @main.failed(partition, lane, error) }
        @commits.look if partition.commit_soon?
        after_work(partition)
      end

      # @param work [HookWork]
      def settle_hook(work)
        partition = work.partition
        partition.settle_hook(work)
        @starts.tell(work)
        try_start(partition) if work.hook == :assigned && !work.error
        after_work(partition)
      end

      # ---- the end ----

      # Nothing more is read or handed out.
      def drain
        return if @state != :open

        @state = :draining
        stall
        drain_all(partitions)
      end

      # Closes the consumer, whatever is in work. Later results do not count.
      def force
        return if %i[closing closed].include?(@state)

        @commits.commit(partitions)
        close(1)
      end

      private

      def monitor
        Monitor.new(above: @main.relay).tap do |monitor|
          monitor.subscribe("rebalance.held_back") { |event| held_back(event[:partitions]) }
          monitor.subscribe("partition.stuck") { |event| stuck(event) }
          monitor.subscribe("offsets.committed") { |event| @commits.answered(event[:offsets], nil) }
          monitor.subscribe("offsets.commit_failed") { |event| @commits.answered(event[:offsets], event[:error]) }
        end
      end

      # On a thread that all consumers share.
      def stuck(event)
        place = event.payload.values_at(:topic, :partition)
        since = @main.runtime.now - (event[:time] / 1000.0)
        @main.post { @partitions[place]&.stuck(since) }
      end

      def each_place(topics) = topics.flat_map { |topic, numbers| numbers.map { |number| [topic, number] } }

      def take(batch)
        partition = @partitions[[batch.topics.first, batch.partitions.first]] or return
        partition.add(batch)
        @main.offer(partition)
      end

      def take_ends(batch)
        each_place(batch.ends.transform_values(&:keys)).each do |place|
          partition = @partitions[place]
          next unless partition && @with_ends.include?(partition.route)

          partition.end_reached
          @main.offer(partition)
        end
      end

      def answer_later
        @answering = true
        @main.timers.after(ANSWER_EVERY) do
          @answering = false
          next if @reading || %i[closing closed].include?(@state)

          answer
          answer_later
        end
      end

      def answer
        @client.answer
      rescue ConsumerClosedError
        nil
      rescue Error => e
        failed(e)
      end

      # After a fatal error, such as that of a static member that another one has replaced, no rebalance follows. But its
      # partitions are lost: work in them sees it, and nothing more is committed.
      def failed(error)
        @main.error("consumer.poll.error", error, group: @group.id)
        return unless error.fatal?

        @commits.stop
        partitions.each do |partition|
          abandon(partition) unless partition.idle?
          partition.revoke
        end
        @main.fail(error)
      end

      # ---- beginning ----

      # After the hook, unless work of an earlier assignment still runs.
      def try_start(partition)
        return if @abandoned[partition.place]

        partition.start
        @main.offer(partition)
      end
    end

    # What the consumer of a {Subscription} tells of rebalances.
    # @api private
    Listener = Struct.new(:subscription) do
      def assigned(rebalance) = subscription.assigned(rebalance)
      def revoked(rebalance) = subscription.revoked(rebalance)
      def lost(rebalance) = subscription.lost(rebalance)
    end
    private_constant :Subscription, :Listener
  end
end
