# frozen_string_literal: true

module Penstock
  class Producer
    # A lock that knows which fiber has it, and that can be waited for with a deadline. Who waits longest is next: a thread
    # that sends one message after the other would otherwise let nobody in, closing neither. In a forked child it is free.
    #
    # Any thread and fiber; not in a signal trap. However often and wherever a thread is interrupted, the lock is free when
    # the thread has left.
    # @api private
    class TransactionLock
      # How long, in seconds, it takes a waiter at most to notice that the owner's thread has ended, which wakes nobody.
      CHECK = 1

      # @param what [String] goes on while it is locked
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

      # @param trapped [Boolean] asked by a signal trap, which no scheduler leaves before it is done
      # @return [Boolean] whether it stays locked while this thread waits, in whatever fiber or thread it waits for
      def deadlocked?(trapped)
        thread = @thread
        taken? && thread.equal?(Thread.current) && (trapped || Fiber.current_scheduler.nil?)
      end

      # @raise [TransactionDeadlockError] it would never become free
      # @raise [SignalTrapError]
      def synchronize(&block)
        raise_in_trap # which may have interrupted the owner: nothing of it is to be released
        synchronize_outside_traps(&block)
      end

      # @param timeout [Numeric, nil] seconds
      # @return [Boolean] false: the time was up first, or it would never become free
      # @raise [SignalTrapError]
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
          @waiting.first&.signal unless @owner # we were woken and interrupted
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

      def raise_in_trap = SignalTrap.refuse(@what)

      def synchronize_outside_traps
        acquire(nil) or
          raise ErrorFactory.build(TransactionDeadlockError, "#{why_hopeless || "there was a deadlock"}; waiting would never end",
                                   "Nothing was sent or begun.")
        yield
      ensure
        release if owned? # also if an interrupt came just after it was acquired
      end

      def await(turn, deadline)
        until @owner.nil? && @waiting.first.equal?(turn)
          left = deadline && (deadline - now)
          return false if (left && left <= 0) || why_hopeless

          turn.wait(@mutex, [left, CHECK].compact.min)
        end
        true
      end

      # A thread that waits lets none of its fibers go on, unless a scheduler sees to it; and when it ends, its suspended
      # fibers are forgotten where they are.
      def why_hopeless
        owner = @thread
        if owner && !owner.alive?
          "a fiber that is inside #{@what} can never go on, as its thread has ended"
        elsif owner.equal?(Thread.current) && Fiber.current_scheduler.nil?
          "another fiber of this thread is inside #{@what}"
        end
      end

      # The owner may be a thread that the fork left behind. Ruby frees that one's mutexes.
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
