# frozen_string_literal: true

module Penstock
  class App
    # One assignment of a partition: its messages from polling to commit. Never used for the next assignment. Of the loop's
    # thread; workers read `route`, `processors`, `cancelled?` and so on.
    #
    #     assigned ---- offset read, `assigned` called ----> running
    #        |                                                 |
    #        +-------- taken away, or the app stops ---> draining ---- nothing in work, `revoked` called ---> drained
    #
    # A message is first in `backlog` (polled), then in a lane (may be handed out), then in a {Work} (a worker has it).
    # @api private
    class Partition
      include ShortInspect
      include Hooks
      include Pace
      include Parking
      include Settling

      attr_reader :subscription, :main, :topic, :number, :route, :runtime, :processors, :gates, :tracker, :state
      # @return [Integer] of messages that were polled and are not processed
      attr_reader :bytes
      # @return [Integer] pieces of work
      attr_reader :in_work
      # @return [Array(Integer, String), nil] the commit on its way
      attr_accessor :sent
      # @return [Boolean] for the loop: whether it is in the line of those that have something to hand out
      attr_accessor :queued

      # @param subscription [Subscription]
      # @param route [Route]
      def initialize(subscription, topic, number, route)
        @subscription = subscription
        @main = subscription.main
        @topic = topic
        @number = number
        @route = route
        @processors = Processors.new(route, self)
        @runtime = @main.runtime
        @throttle = @main.throttles.of(route, topic)
        @gates = Gates.of(route, @runtime)
        @tracker = new_tracker
        @state = :assigned
        @backlog = []
        @timers = []
        @lanes = Lanes.new(route, @runtime.shares_lanes?) { |seconds, action| subscription.later(seconds, self, &action) }
        @bytes = @backlog_bytes = @in_work = @handed_out = @open = 0
        @revoked = @cancelled = @queued = @asked_to_pause = @tick_due = @ticking = @end_reached = @catching_up = false
        @paused = @throttled = nil # timers that end it
        @stuck_since = nil
      end

      # @return [Array(String, Integer)]
      def place = [topic, number]

      # @return [Boolean] work on it should end
      attr_reader :cancelled
      alias cancelled? cancelled

      # @return [Boolean, nil] a processor has asked for a pause
      attr_reader :asked_to_pause

      # @return [Boolean] no hook is called any more but `revoked`
      def stops? = @cancelled || @main.quieted

      # @return [Boolean] a worker may begin the next message that it has
      def go_on? = !(@asked_to_pause || @cancelled || @main.quieted)

      # @return [Boolean] it was taken away
      def revoked? = @revoked

      # @return [Around]
      def around = @subscription.around

      # @return [Boolean]
      def idle? = @in_work.zero?

      # @return [Integer] messages that are polled and not finished
      def unfinished = @backlog.sum(&:size) + @open

      # @return [Integer] messages
      def uncommitted = @tracker.window.messages

      # @return [Integer]
      def lane_count = @lanes.count

      # Timers end with the assignment.
      # @param timer [Timers::Timer]
      # @return [Timers::Timer]
      def keep(timer)
        @timers.reject!(&:over?) if @timers.size >= 64
        (@timers << timer).last
      end

      # Of a worker: sends a copy of a message to the dead letters.
      def bury(record, error, attempts) = @subscription.copies_of(@route, error).send(record, error, attempts)

      # Of a worker.
      def produce(message) = @main.producer.produce_async(message)

      # Of a worker.
      # @param message [Message, nil]
      # @yield waits for what was sent before
      # @return [Boolean]
      def checkpoint(message)
        @route.options[:offsets] == :manual or raise ErrorFactory.build(UsageError, "checkpoint requires offsets: :manual")
        unless message.is_a?(Message) && place == [message.topic, message.partition]
          raise ArgumentError, "checkpoint needs a message of #{place.join("/")}, not #{message.inspect}"
        end

        yield
        return false if @revoked

        @tracker.checkpoint(message.offset + 1)
        true
      end

      # ---- what comes in ----

      # @param batch [Batch]
      def add(batch)
        @end_reached = @stuck_since = nil
        return if @detour&.ignores? || !%i[assigned running].include?(@state)

        run = Run.new(batch, @runtime.now)
        @bytes += run.bytes
        @backlog_bytes += run.bytes
        @backlog << run
        @main.memory.added(self, run.bytes)
      end

      # @return [Boolean] whether it only waits to be started
      def start? = @state == :assigned && !@processors.empty?

      # The offset is read, and the hook was called.
      def start
        return unless @state == :assigned

        @state = :running
        tick_later
      end

      # The leader has messages, and none comes.
      # @param since [Float]
      def stuck(since) = @stuck_since = since

      # @return [Float, nil]
      def stuck_since = @detour.nil? && @state == :running ? @stuck_since : nil

      # @return [Boolean] whether it has messages that should be finished soon, or tried again
      def should_go_on? = @state == :running && @open.positive? && !held? && !@gates&.delays?

      # ---- what goes out ----

      # @return [Boolean]
      def work? = @state == :running && (tick? || caught_up? || (!waits? && (@lanes.ready? || may_fill?)))

      # @return [Work, HookWork, nil] to be given to a worker
      def next_work
        return unless @state == :running
        return tick if tick?
        return caught_up if caught_up?
        return if waits?

        fill if !@lanes.ready? || @route.order != :partition
        slices = take
        return if slices.empty?

        @in_work += 1
        work = Work.new(self, slices)
        @handed_out += work.size
        work
      end

      # A lane goes on.
      # @param lane [Lane]
      def offer(lane) = @state == :running && @lanes.offer(lane)

      # ---- the end ----

      # Nothing more is handed out.
      def drain
        return if %i[draining drained].include?(@state)

        @state = :draining
        @cancelled = true
        @backlog.each { |run| forget(run) }.clear
        @lanes.clear
        @timers.each(&:cancel).clear
      end

      # It is given up: another member may have it from now on.
      def revoke
        @revoked = @cancelled = true
        drain
      end

      # @return [Boolean]
      def drained? = @state == :drained

      private

      def new_tracker = OffsetTracker.new(place.join("/"), manual: @route.options[:offsets] == :manual)

      def waits? = held? || !allowance.positive?

      def may_fill? = !@backlog.empty? && room?

      # Whether more may be in the lanes.
      def room?
        return false if @tracker.full?(@backlog.first)
        return true if @open.zero?

        memory = @main.memory
        @open < limit && (!memory.short? || @bytes - @backlog_bytes < memory.share)
      end

      # One run at a time in `:partition` order: only the first messages of the lane can be handed out anyway.
      def limit
        return [@route.options[:in_flight], @route.options[:batch][:size]].max if @route.batch?

        @route.order == :partition ? 1 : @route.options[:in_flight]
      end

      def fill
        while may_fill?
          run = @backlog.shift
          @backlog_bytes -= run.bytes
          processed = @tracker.add(run)
          release
          run.each_gap(processed) { |first, count| into_lanes(run, first, count) }
        end
      end

      def into_lanes(run, first, count)
        @open += count
        @lanes.add(run, first, count)
      end

      # Runs of which nothing is left.
      def release
        @bytes -= @tracker.take_released
      end
    end
    private_constant :Partition
  end
end
