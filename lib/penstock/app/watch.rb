# frozen_string_literal: true

module Penstock
  class App
    # Looks once a second whether everything goes on, publishes what does not, and answers for {Server#health} and
    # {Server#metrics}. Of the loop's thread, except these answers, which take no lock: a probe must get them whatever hangs; and
    # {#look_at_the_loop}, which the watchdog's thread calls.
    # @api private
    class Watch
      include ShortInspect

      EVERY = 1
      # Seconds after which the loop itself hangs: it turns at least once a second.
      LOOP = 30
      private_constant :EVERY, :LOOP

      # What {#look} has found. Frozen.
      Found = Struct.new(:at, :state, :joined, :able, :stalls)
      private_constant :Found

      # @return [Metrics]
      attr_reader :metrics

      # @param main [Loop]
      # @param clock [#call] seconds
      # @param after [Numeric] seconds until something counts as stalled
      def initialize(main, clock, after)
        @main = main
        @clock = clock
        @after = after
        @apart = {}.compare_by_identity # subscriptions that are not in their groups, and since when
        @known = {} # stalls that were published
        @bases = {}.compare_by_identity # of partitions that have something to finish: its first offset, and since when
        @started = @loop_told = false
        @metrics = Metrics.new(clock)
        @found = Found.new(clock.call, :running, false, true, [].freeze).freeze
      end

      # Looks now, and again every second.
      def start
        look
        @main.timers.after(EVERY) { start }
      end

      # @return [void]
      def look
        now = @clock.call
        work = work_stalls(now)
        stalls = [*work, *group_stalls(now), *commit_stalls(now), *hole_stalls(now, work), *fetch_stalls(now)]
        joined = @apart.empty?
        @started ||= joined
        @found = Found.new(now, @main.state, joined, able?(stalls), stalls.freeze).freeze
        publish(stalls)
        @metrics.publish(@main.subscriptions)
        @main.event("app.metrics") { { metrics: @metrics.latest } }
      end

      # Of any thread.
      # @return [Health]
      def health
        found = @found
        hangs = loop_stall
        stalls = hangs ? [hangs, *found.stalls] : found.stalls.dup
        Health.new(found.state, @started, found.joined, found.able, stalls)
      end

      # Of a thread that does nothing else. Publishes once that the loop hangs, as long as it does.
      def look_at_the_loop
        stall = loop_stall
        tell(stall) if stall && !@loop_told
        @loop_told = !stall.nil?
      end

      private

      def loop_stall
        found = @found
        late = @clock.call - found.at
        Health::Stall.new(reason: :loop, seconds: late) if late > LOOP && found.state != :ended
      end

      def able?(stalls) = stalls.count { |stall| stall.reason == :work } < @main.settings.threads

      def work_stalls(now)
        @main.in_work.filter_map do |work|
          seconds = now - (work.started || now)
          next if seconds < @after

          partition = work.partition
          Health::Stall.new(reason: :work, **partition.subscription.about(partition), offset: work.offset, seconds:)
        end
      end

      def group_stalls(now)
        @main.subscriptions.filter_map do |subscription|
          next @apart.delete(subscription) && nil if joined?(subscription)

          since = (@apart[subscription] ||= now)
          stall(:group, subscription, now - since) if now - since >= @after
        end
      end

      # Whether it is a member of its group, or needs to be none any more.
      def joined?(subscription)
        !subscription.open? || subscription.consumer.membership.state != :joining
      rescue ConsumerClosedError
        true
      end

      def commit_stalls(now)
        @main.subscriptions.flat_map do |subscription|
          since = subscription.commits.since
          next [] if since.nil? || now - since < @after

          waiting = subscription.partitions.select { |partition| partition.sent || partition.tracker.dirty? }
          next [stall(:commit, subscription, now - since)] if waiting.empty?

          waiting.map { |partition| partition_stall(:commit, partition, now - since) }
        end
      end

      # A message is not finished, and no worker has it: it fails again and again, for example.
      def hole_stalls(now, work)
        return [] unless able?(work) # no worker is free for them

        busy = work.map { |stall| [stall.group, stall.topic, stall.partition] }
        before = @bases
        @bases = {}.compare_by_identity
        partitions.select(&:should_go_on?).filter_map do |partition|
          since = base_since(partition, before[partition], now)
          next if now - since < @after || busy.include?([partition.subscription.group.id, *partition.place])

          partition_stall(:commit, partition, now - since)
        end
      end

      def base_since(partition, seen, now)
        base = partition.tracker.base
        @bases[partition] = seen && seen[0] == base ? seen : [base, now]
        @bases[partition][1]
      end

      # Found by the consumer: see {ConsumerConfig#stuck_after}.
      def fetch_stalls(now)
        partitions.filter_map do |partition|
          since = partition.stuck_since
          partition_stall(:fetch, partition, now - since) if since && now - since >= @after
        end
      end

      def partitions = @main.subscriptions.flat_map(&:partitions)

      def partition_stall(reason, partition, seconds)
        offset = partition.tracker.base
        Health::Stall.new(reason:, **partition.subscription.about(partition), offset:, seconds:)
      end

      def stall(reason, subscription, seconds) = Health::Stall.new(reason:, group: subscription.group.id, seconds:)

      # Each once, as long as it lasts.
      def publish(stalls)
        keys = stalls.to_h { |one| [one.to_h.except(:seconds), one] }
        keys.each { |key, one| tell(one) unless @known.key?(key) }
        @known = keys
      end

      def tell(stall)
        @main.event("app.stalled") { stall.to_h }
        @main.log(:warn, "stalled: #{stall}")
      end
    end
    private_constant :Watch
  end
end
