# frozen_string_literal: true

module Penstock
  class App
    # Looks once a second whether everything goes on, publishes what does not, and answers for {Server#health} and
    # {Server#metrics}. Of the loop's thread, except these answers, which take no lock: a probe must get them whatever hangs.
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
        @started = false
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
        stalls = [*work_stalls(now), *group_stalls(now), *commit_stalls(now)]
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
        late = @clock.call - found.at
        hangs = late > LOOP && found.state != :ended
        stalls = hangs ? [Health::Stall.new(reason: :loop, seconds: late), *found.stalls] : found.stalls.dup
        Health.new(found.state, @started, found.joined, found.able, stalls)
      end

      private

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
        @main.subscriptions.filter_map do |subscription|
          since = subscription.commits.since or next
          stall(:commit, subscription, now - since) if now - since >= @after
        end
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
