# frozen_string_literal: true

module Penstock
  class Producer
    # One Ruby thread that disconnects producers which have sent nothing for their `config.idle_disconnect_timeout`.
    # There is no such thread while no connected producer has one. Not to be called in a signal trap.
    # @api private
    module IdleDisconnector
      Watch = Struct.new(:timeout, :taken, :since) # seconds; accepted messages at the last check; when that number last changed
      private_constant :Watch

      # In a fork child each client recovers at its first use. Only the watching has to end here.
      module AfterFork
        def _fork = super.tap { |pid| IdleDisconnector.forked if pid.zero? }
      end
      private_constant :AfterFork

      @lock = Mutex.new
      @changed = ConditionVariable.new
      @watched = {}.compare_by_identity # Internals => Watch
      @thread = nil
      @pid = nil

      class << self
        def watch(producer, timeout_ms)
          @lock.synchronize do
            Process.singleton_class.prepend(AfterFork) unless @pid
            forget_parent unless @pid == Process.pid # after Process.daemon, which does not call _fork
            @watched[producer] = Watch.new(timeout_ms / 1000.0, producer.accepted_count, now)
            @thread = start unless @thread&.alive?
            @changed.signal
          end
        end

        def forget(producer)
          @lock.synchronize { @changed.signal if @pid == Process.pid && @watched.delete(producer) }
        end

        # No other thread runs yet.
        def forked
          @watched.each_key(&:leave_to_parent)
          forget_parent
        end

        private

        def forget_parent
          @watched = {}.compare_by_identity
          @thread = nil
          @pid = Process.pid
        end

        def start = Threads.start("penstock.idle") { run }

        # Ends while it holds the lock, so that no producer is added to a thread that is ending.
        def run
          loop do
            due = @lock.synchronize { await_due } or return
            due.each { |producer| disconnect(producer) }
          end
        end

        # @return [Array<Producer>, nil] nil: no producer is watched any more
        def await_due
          loop do
            @watched.select! { |producer, _| producer.status.connected? }
            return @thread = nil if @watched.empty?

            due = @watched.select { |producer, watch| due?(producer, watch) }.keys
            return due if due.any?

            next_due = @watched.each_value.map { |watch| watch.since + watch.timeout }.min
            @changed.wait(@lock, [next_due - now, 0].max) # not negative: a producer may have become due just now
          end
        end

        def due?(producer, watch)
          taken = producer.accepted_count
          busy = taken != watch.taken || producer.queue_size.positive? || !producer.closer.disconnectable?
          watch.taken = taken
          watch.since = now if busy
          watch.since + watch.timeout <= now
        end

        def disconnect(producer)
          start_anew(producer) unless producer.producer.disconnect
        rescue StandardError => e # a failure of one producer must not affect others
          producer.notifier.instrument("error.occurred") { { type: "producer.disconnect.error", error: e } }
          start_anew(producer)
        end

        def start_anew(producer)
          @lock.synchronize { @watched[producer]&.since = now }
        end

        def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
