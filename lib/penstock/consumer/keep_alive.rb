# frozen_string_literal: true

module Penstock
  # Answers the group's requests on a thread of its own, while {Consumer#keep_alive} runs the program's block.
  # @api private
  class KeepAlive
    include AsJson

    # Seconds after an error.
    PAUSE = 0.1
    private_constant :PAUSE

    # @param serve [Proc] handles what the group requires, then waits until there is more
    # @param wake [Proc] ends that wait
    # @param limit [Numeric, nil] seconds
    def initialize(serve, wake, limit)
      @serve = serve
      @wake = wake
      @give_up_at = limit && (now + limit)
      @done = false
      @error = nil
    end

    # @return [Object] the block's value
    def around
      begin
        thread = Threads.start("penstock.alive") { run } # an interrupt may come before it is known
        value = yield
        finished = true
      ensure
        finish(thread)
        print_error(@error) unless finished || @error.nil?
      end
      raise @error if @error

      value
    end

    private

    def run
      until @done || (@give_up_at && now >= @give_up_at)
        begin
          @serve.call
        rescue ConsumerClosedError, ForkedError
          return # the block learns it from its own calls
        rescue StandardError, ScriptError, SystemStackError => e
          @error ? print_error(e) : @error = e # the group still needs its answers
          sleep(PAUSE) # it may fail again at once
        end
      end
    end

    # A fork child has no such thread: it inherits a dead one.
    def finish(thread)
      @done = true
      return unless thread&.alive?

      @wake.call
      thread.join
    rescue ConsumerClosedError, ForkedError
      nil
    end

    # Another error comes out of {#around}.
    def print_error(error) = warn("penstock: the consumer's keep_alive met #{Text.describe(error)} (#{error.backtrace&.first})")

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
