# frozen_string_literal: true

module Penstock
  class App
    # A running application. {App#start} makes it.
    class Server
      # {App#start} makes it.
      # @param settings [Settings]
      def initialize(settings)
        @shutdown_timeout = settings.shutdown_timeout
        @probe = settings.probe && Probe.new(settings.probe)
        @loop = Loop.new(settings)
        @loop.start
        @probe&.start(self)
      rescue StandardError
        @probe&.close
        raise
      end

      # @return [Boolean] whether it takes messages
      def running? = @loop.running?

      # Hands out no more, waits for what is in work, commits, leaves the groups. Any thread may call it, also several at once,
      # and a processor, which then gets nil at once.
      #
      # Blocks: this thread, until the end, at most for the timeout and 2 s; interruptible at once. Stopping goes on then.
      #
      # @param timeout [Numeric] seconds for everything; default `app.shutdown_timeout`
      # @return [StopReport, nil]
      # @overload stop(timeout: app.shutdown_timeout)
      def stop(*more, timeout: @shutdown_timeout, **wrong)
        Keywords.check("stop(timeout: 30)", %i[timeout], more, wrong)
        @loop.stop(Seconds.of(timeout) || @shutdown_timeout)
        @loop.own_thread? ? nil : wait
      end

      # Blocks: this thread, until the application has stopped; interruptible at once.
      # @return [StopReport]
      def wait = @loop.wait.tap { @probe&.close }

      # Takes no more messages, for good, and finishes those in work. It stays in its groups, and commits. {#stop} follows. Never
      # blocks; a signal trap may call it.
      # @return [nil]
      def quiet
        @loop.quiet
        nil
      end

      # How it is: whether it takes messages, and what does not go on. Never blocks, whatever hangs. Any thread may call it.
      # @return [Health]
      def health = @loop.watch.health

      # What it has done, and has now, for each group and topic, as of at most a second ago. Never blocks. Any thread may call it.
      # @return [Array<AppMetrics>] frozen
      def metrics = @loop.watch.metrics.latest

      # @return [Integer, nil] of `app.probe` with HTTP, which chooses it if it is 0
      def probe_port = @probe&.port

      # Ends it now: what is in work is abandoned, and comes again. {#wait} returns the report. Never blocks; a signal trap may
      # call it.
      # @return [nil]
      def force
        @loop.force
        nil
      end

      # Begins to stop. Never blocks; a signal trap may call it.
      # @return [nil]
      def stop_later
        @loop.stop
        nil
      end

      # What it does now, as text for a log.
      # @return [String]
      def status = @loop.status

      # @return [String]
      def inspect = "#<#{self.class} #{running? ? "running" : "stopping or stopped"}>"
    end
  end
end
