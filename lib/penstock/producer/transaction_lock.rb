# frozen_string_literal: true

module Penstock
  class Producer
    # A lock that knows which fiber has it, and that can be acquired with a deadline. The fiber that waits longest is next:
    # otherwise a thread that sends one message after the other would lock out all others, also closing. In a fork child it
    # is free.
    #
    # Any thread and fiber may use it, but no signal trap. However often and wherever a thread is interrupted, the lock is
    # free when the thread has left.
    # @api private
    class TransactionLock
      # Seconds after which a waiter notices that the thread of the owner has ended, which wakes no waiter.
      CHECK = 1

      # @param what [String] what runs while it is locked, for errors
      def initialize(what = "a transaction")
        @what = what
        @pid = Process.pid
        @mutex = Mutex.new
        @waiting = [] # turns, in order
        @owner = @thread = nil
      end

      def owned? = @owner.equal?(Fiber.current) && @pid == Process.pid

      # @return [Boolean] whether any fiber has it
      def taken? = !@owner.nil? && @pid == Process.pid

      # @param trapped [Boolean] whether this is a signal trap, which no scheduler can leave before its end
      # @return [Boolean] whether it stays locked for as long as this thread waits
      def deadlocked?(trapped)
        thread = @thread
        taken? && thread.equal?(Thread.current) && (trapped || Fiber.current_scheduler.nil?)
      end

      # @raise [TransactionDeadlockError] when it would never become free
      # @raise [SignalTrapError] when called in a signal trap
      def synchronize(&block)
        raise_in_trap # before ensure: the trap may have interrupted the owner, whose lock must not be released
        synchronize_outside_traps(&block)
      end

      # @param timeout [Numeric, nil] seconds
      # @return [Boolean] false: the time ran out first, or it would never become free
      # @raise [SignalTrapError] when called in a signal trap
      def acquire(timeout)
        raise_in_trap
        deadline = timeout && (now + timeout)
        turn = ConditionVariable.new
        @mutex.synchronize do
          forget_parent
          @waiting << turn
          return false unless await(turn, deadline)

          @owner = Fiber.current
          @thread = Thread.current
        ensure
          @waiting.delete(turn)
          @waiting.first&.signal unless @owner # this thread was woken and then interrupted: wake the next
        end
        true
      end

      def release
        Thread.handle_interrupt(Object => :never) do
          @mutex.synchronize do
            @owner = @thread = nil
            @waiting.first&.signal
          end
        end
      end

      private

      def raise_in_trap = SignalTrap.raise_if_here(@what)

      def synchronize_outside_traps
        acquire(nil) or raise_deadlock
        yield
      ensure
        release if owned? # also if an interrupt came just after it was acquired
      end

      def raise_deadlock
        closing = "close the producer, which aborts what runs, and make a new one"
        alive = "Resume that fiber until it has ended, use a fiber scheduler, or #{closing}"
        advice = @thread&.alive? ? alive : closing.capitalize
        raise ErrorFactory.build(TransactionDeadlockError, "waiting would never end: #{deadlock_reason || "deadlock"}",
                                 "Nothing was sent or begun. #{advice}.")
      end

      def await(turn, deadline)
        until @owner.nil? && @waiting.first.equal?(turn)
          left = deadline && (deadline - now)
          return false if (left && left <= 0) || deadlock_reason

          turn.wait(@mutex, [left, CHECK].compact.min)
        end
        true
      end

      # Without a scheduler, a waiting thread cannot resume its other fibers. When a thread ends, Ruby abandons its
      # suspended fibers where they are.
      def deadlock_reason
        owner = @thread
        if owner && !owner.alive?
          "a fiber is inside #{@what}, and its thread has ended"
        elsif owner.equal?(Thread.current) && Fiber.current_scheduler.nil?
          "another fiber of this thread is inside #{@what}"
        end
      end

      # The owner may be a thread that exists in the parent process only. Ruby itself frees the mutexes of such threads.
      def forget_parent
        return if @pid == Process.pid

        @waiting = []
        @owner = @thread = nil
        @pid = Process.pid
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
