# frozen_string_literal: true

module Penstock
  # What {Consumer#close} does before the core closes the consumer, and how it knows whether the last message was processed.
  # @api private
  module ConsumerClosing
    private

    # @param timeout [Float, nil] ms
    # @return [ConsumerCloseReport]
    def close_within(timeout)
      error = nil
      @stuck_watch&.stop
      report = @notifier.closing do
        start = now
        call_end_within(timeout) # what the listener calls, too
        error = finish(timeout)
        in_time = call_close(timeout && [timeout - ((now - start) * 1000), 0.0].max)
        ConsumerCloseReport.new(in_time, in_group? ? in_time && call_left_group : nil).freeze
      end
      error ? raise(error) : report
    end

    # Does what has to be done before the consumer closes, while it can still commit. The consumer closes in any case: if this is
    # interrupted, on a thread of its own.
    # @return [Exception, nil] what the listener has raised
    def finish(timeout)
      finish_work
      ended = true
      nil
    rescue StandardError, ScriptError => e
      ended = true
      e
    ensure
      Threads.start("penstock.closing") { call_close(timeout) } unless ended
    end

    def finish_work
      return if closed?

      call_finish unless interrupted?
      return unless config.rebalance_listener && in_group? && !SignalTrap.here?

      rebalanced(:revoked, call_assignment)
    rescue ConsumerClosedError
      nil # another thread was first
    end

    # For {ConsumerSet#each_batch}: runs a block that processes what was polled.
    def processing
      yield
      ended = true
      call_finish
    ensure
      call_leave unless ended
    end

    # Whether the calling thread was perhaps processing a message, and did not come to its end.
    def interrupted?
      !$!.nil? || call_left || Thread.current.status == "aborting" || SignalTrap.here?
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # A fork child is in no group: its parent process is.
    def in_group? = @subscribed && state != :inherited
  end
  private_constant :ConsumerClosing
end
