# frozen_string_literal: true

module Penstock
  class App
    # The thread "penstock.app" of a running application. It polls the consumers of all groups and decides everything: it is the
    # only one that changes subscriptions, partitions and lanes. Worker threads run the processors. Whatever comes back, such as
    # work that has run, goes to its mailbox.
    # @api private
    class Loop
      include ShortInspect
      include Reports

      # Seconds. The loop looks around so often, if nothing wakes it.
      LOOK_EVERY = 1
      # When forced, tokens are set, and work has so long to notice.
      GRACE = 1
      private_constant :LOOK_EVERY, :GRACE

      # @return [Settings]
      attr_reader :settings
      # @return [ConsumerSet]
      attr_reader :set
      # @return [Timers]
      attr_reader :timers
      # @return [Producer] of dead letters and what processors send
      attr_reader :producer
      # @return [Around]
      attr_reader :around
      # @return [Monitor]
      attr_reader :monitor
      # @return [Array<Subscription>]
      attr_reader :subscriptions

      # @return [Runtime]
      attr_reader :runtime
      # @return [Memory]
      attr_reader :memory
      # @return [Watch]
      attr_reader :watch
      # @return [StopReport, nil]
      attr_reader :report

      # @param settings [Settings]
      # @param runtime [Runtime]
      # @raise [ConfigurationInvalidError] when a setting for librdkafka is invalid
      def initialize(settings, runtime = Runtime.new)
        @settings = settings
        @runtime = runtime
        settings.groups.flat_map(&:routes).each { |route| Maker.new(route).check_name }
        @monitor = settings.monitor
        @publisher = runtime.publisher(@monitor, settings)
        @around = Around.new(settings.hooks)
        @set = runtime.consumer_set
        @clock = runtime.method(:now)
        @timers = Timers.new(@clock)
        @memory = Memory.new(self)
        @mail = Thread::Queue.new
        @line = [] # partitions that have something to hand out
        @policy = ErrorPolicy.new(self, runtime.random)
        @producer = runtime.producer(settings)
        @executor = runtime.executor(settings.threads, method(:finished))
        @subscriptions = settings.groups.flat_map { |group| Array.new(group.connections) { Subscription.new(self, group) } }
        @watch = Watch.new(self, @clock, settings.stall_after)
        @state = :new
        @sleeping = @quieted = @told_quiet = false
      end

      # Starts the threads, and joins the groups.
      def start
        @state = :running
        @publisher.start
        @executor.start
        @subscriptions.each(&:open)
        @watch.start
        @thread = @runtime.start_loop { serve }
        @thread&.priority = 1
        @watchdog = @runtime.watchdog { @watch.look_at_the_loop }
        event("app.running") { {} }
      rescue StandardError
        @executor.stop
        @publisher.close
        @subscriptions.each { |subscription| subscription.consumer&.close(timeout: 0) }
        @producer.close(timeout: 0) unless @settings.producer
        raise
      end

      # @return [Throttles]
      def throttles = @throttles ||= Throttles.new(@runtime)

      # ---- for the program, on any thread ----

      # @return [Boolean]
      def running? = @state == :running

      # @return [Boolean]
      attr_reader :quieted

      # @return [Symbol]
      def state = @quieted && @state == :running ? :quiet : @state

      # In a signal trap, too.
      def quiet = post { begin_quiet }

      # In a signal trap, too.
      # @param seconds [Numeric]
      def stop(seconds = @settings.shutdown_timeout)
        end_by(seconds)
        post { begin_stop(seconds) }
      end

      # In a signal trap, too.
      def force
        end_by(0)
        post { begin_force }
      end

      # A listener of the program may keep the events from being published.
      # @return [StopReport]
      def wait
        nil until @thread.join(LOOK_EVERY) || (@latest && @clock.call > @latest)
        return late_report unless @report

        left = @latest ? @latest - Reports::LATE - @clock.call : 0
        @publisher.wait([left, Reports::LEAST].max) ? @report : unheard_report
      end

      # @return [Array<Work, HookWork>]
      def in_work = @executor.running.map(&:first)

      # @return [Boolean] whether a worker, a listener or the loop calls
      def own_thread? = Thread.current == @thread || @publisher.own_thread? || @executor.own_thread?

      # ---- for the parts, on the loop's thread ----

      # Whether more messages are of use: not while workers have enough to do. librdkafka reads ahead, and what is polled early is
      # no longer in the processor's cache when its turn comes.
      def room? = !@quieted && (@line.empty? || @executor.room?) && @memory.room?

      def offer(partition)
        partition.subscription.detours.go_on if partition.starving?
        return if partition.queued || !partition.work?

        partition.queued = true
        @line << partition
      end

      def submit(work) = @executor.submit(work)

      def failed(partition, lane, error) = @policy.apply(partition, lane, error)

      def tell(work) = @policy.tell(work)

      # The application cannot go on.
      def fail(error)
        ended_by(error)
        end_by(@settings.shutdown_timeout)
        begin_stop(@settings.shutdown_timeout)
      end

      # Runs something that blocks on a thread of its own.
      # @yieldparam result [Object, nil]
      # @yieldparam error [Exception, nil]
      def background(name, call)
        @runtime.background(name, call) { |result, error| post { yield result, error } }
      rescue ThreadError => e # there are too many
        post { yield nil, e }
      end

      # Of any thread: does this on the loop's.
      def post(&action)
        @mail << action
        @set.__send__(:call_wake) if @sleeping
      end

      # Of the time to stop.
      def seconds_left = [@stop_at - @clock.call, 0.1].max

      def end_if_closed
        finish if %i[stopping forced].include?(@state) && @subscriptions.all?(&:closed?)
      end

      # Does what has come, polls, and hands out.
      def turn
        ready = sleep_until_woken
        @memory.begin_turn
        @mail.pop.call until @mail.empty?
        @timers.run
        dispatch
        ready.each { |consumer| subscription_of(consumer)&.poll }
        @memory.look
        @subscriptions.each(&:read) if room?
        dispatch
      end

      private

      # ---- the loop ----

      def serve
        turn until @state == :ended
      rescue Exception => e # rubocop:disable Lint/RescueException -- the application must not hang, and must tell
        ended_by(e)
        @subscriptions.each(&:force)
        finish
      end

      # A mail that comes after `@sleeping` is set wakes.
      def sleep_until_woken
        @sleeping = true
        seconds = @mail.empty? ? [@timers.left || LOOK_EVERY, LOOK_EVERY].min : 0
        @set.wait(timeout: seconds)
      ensure
        @sleeping = false
      end

      def subscription_of(consumer) = @subscriptions.find { |one| one.consumer.equal?(consumer) }

      # One piece of work of each partition, in turn.
      def dispatch
        while !@quieted && @executor.room? && (partition = @line.shift)
          partition.queued = false
          work = partition.next_work or next
          @executor.submit(work)
          offer(partition)
        end
      end

      # Of a worker.
      def finished(work) = post { settle(work) }

      def settle(work)
        @executor.settled
        subscription = work.partition.subscription
        work.is_a?(Work) ? subscription.settle(work) : subscription.settle_hook(work)
        tell_quiet if @quieted
      end

      # When nothing is in work any more.
      def tell_quiet
        return if @told_quiet || @state != :running || !@executor.idle?

        @told_quiet = true
        event("app.quiet") { {} }
      end

      # ---- the end ----

      def begin_quiet
        return if @quieted || @state != :running

        @quieted = true
        @watch.look
        event("app.quieting") { {} }
        tell_quiet
      end

      def begin_stop(timeout)
        return stop_earlier(timeout) if @state == :stopping
        return if @state != :running

        @state = :stopping
        @watch.look
        @stop_at = @clock.call + timeout
        event("app.stopping") { {} }
        @timers.after(timeout) { begin_force }
        @subscriptions.each(&:drain)
        end_if_closed
      end

      def stop_earlier(timeout)
        return if @clock.call + timeout >= @stop_at

        @stop_at = @clock.call + timeout
        @timers.after(timeout) { begin_force }
      end

      def begin_force
        return if %i[forced ended].include?(@state)

        @stop_at = @clock.call
        @state = :forced
        @subscriptions.each(&:drain)
        @watch.look
        @timers.after(GRACE / 2.0) do
          @blockers = blockers
          @subscriptions.each(&:force)
          end_if_closed
        end
        @timers.after(GRACE * 2) { finish }
      end

      def finish
        return if @state == :ended

        @state = :ended
        @watch.look
        @watchdog&.kill
        @executor.stop
        @producer&.close(timeout: 1) unless @settings.producer
        left = @subscriptions.reject(&:left?).map { |subscription| subscription.group.id }
        @report = StopReport.new(@blockers || blockers, @error, left.uniq)
        event("app.stopped") { { report: @report } }
        @publisher.close
      end

      # Of any thread.
      def end_by(seconds) = @latest = [@latest, @clock.call + seconds + Reports::LATE].compact.min
    end
    private_constant :Loop
  end
end
