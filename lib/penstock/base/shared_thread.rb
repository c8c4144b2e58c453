# frozen_string_literal: true

module Penstock
  # Runs the recurring tasks of many clients: on one Ruby thread while tasks are quick, on more while some are slow, on none if
  # there are no tasks.
  #
  # Tasks that take long delay another one by the patience only. While a task runs and other tasks exist, a spare thread
  # waits. If the running thread comes back in time, it runs the next due task. Otherwise the spare thread runs that task, and a
  # new one waits. A thread that comes back, finds nothing due, and finds another thread waiting, ends. So quick tasks run
  # one after the other, one thread remains between them, and there are never more threads than tasks.
  #
  # A task has two methods:
  #
  # - `due_at`: a time of the monotonic clock, FOREVER if the task waits for an event, or nil if it is over. It is quick, and
  #   takes no lock of Ruby. It is not called while the task runs. Call {changed} when its value has become earlier, or nil.
  # - `call`: runs the task. It may take any time. If it raises, its thread ends and another one replaces it.
  #
  # @!method self.changes
  #   @return [Integer] differs after each {changed}
  # @!method self.changed
  #   Makes all shared threads look at their tasks. Signal traps may call it.
  # @!method self.await(changes, timeout_ms)
  #   Waits until {changes} differs. May return early. Keeps nothing alive that earlier calls have left on the stack.
  #   @param timeout_ms [Integer] negative: no limit
  # @!method self.apart
  #   Yields. {await} wipes what the block leaves on the stack.
  # @api private
  class SharedThread
    FOREVER = Float::INFINITY

    # @param name [String] of its threads
    # @param patience [Float] seconds that a slow task may delay others
    # @param most [Integer, Float] how many tasks may run at once, whatever their delay
    def initialize(name, patience, most: FOREVER)
      @name = name
      @patience = patience
      @most = most
      @lock = Mutex.new
      forget_parent
    end

    # Does nothing if there is a task with this key.
    # @param key [Object]
    # @param task [#due_at, #call]
    # @raise [ThreadError] when no thread is available, or the process is ending
    def add(key, task)
      Thread.handle_interrupt(Object => :never) do
        @lock.synchronize do
          forget_parent unless @pid == Process.pid
          @tasks[key] ||= task
          stand_by
        end
        SharedThread.changed
      end
    end

    private

    def forget_parent
      @tasks = {}
      @running = {} # which thread runs the task, by the task's key
      @waiting = nil # the thread that waits for a due task
      @latest = nil # the thread that began the latest task, and has not come back
      @patient_until = 0.0
      @pid = Process.pid
    end

    def run
      while (task = next_task)
        SharedThread.apart { task.call }
      end
    ensure
      leave
    end

    # @return [#call, nil] nil: this thread is not needed any more
    def next_task
      loop do
        changes = SharedThread.changes
        # Interrupts are deferred. `look` takes a client's request, for example for a token, off its queue, and the client does
        # not repeat it: an interrupt between that and the return of the task would lose it.
        task, until_time = Thread.handle_interrupt(Object => :never) { @lock.synchronize { look } }
        return task unless until_time

        SharedThread.await(changes, until_time == FOREVER ? -1 : [((until_time - now) * 1000).ceil, 0].max)
      end
    end

    # The caller holds the lock. One look ends this thread's old task and begins its next one, so that the spare thread takes
    # none in between.
    # @return [Array] a task; or nil and when to look again; or nothing: this thread is not needed
    def look
      return unless @pid == Process.pid # a task has forked, and this is the child

      come_back
      key, due = idle_due_times.min_by(&:last)
      time = now
      return wait_until(due) if due.nil? || due > time

      held_until = [@patient_until, due + @patience].min # the patience delays a task once, not for each one before it
      return wait_until(held_until) if @latest && @latest != Thread.current && time < held_until

      begin_task(key, time)
    end

    # One thread waits; any other one ends. So does the last one if no task needs it.
    def wait_until(time)
      @waiting = nil if @waiting == Thread.current
      return if time.nil? || @waiting

      @waiting = Thread.current
      [nil, time]
    end

    # Forgets what is over.
    # @return [Hash{Object => Float}] when the tasks that do not run are due, by their keys
    def idle_due_times
      idle = @tasks.except(*@running.keys).transform_values(&:due_at)
      idle.each { |key, due| @tasks.delete(key) unless due }
      idle.compact
    end

    def begin_task(key, time)
      @waiting = nil if @waiting == Thread.current
      @running[key] = @latest = Thread.current
      @patient_until = time + @patience
      begin
        stand_by
      rescue ThreadError
        nil # no more threads: the existing ones run all tasks
      end
      [@tasks[key], nil]
    end

    # This thread's task is no longer running, so a waiting thread has to look when it is due again.
    def come_back
      @latest = nil if @latest == Thread.current
      ended = @running.reject! { |_, thread| thread == Thread.current }
      SharedThread.changed if ended && @waiting
    end

    # Starts a thread that waits, if there is none and it may run a task. Defers interrupts: a started thread that is not known
    # would be a second one.
    def stand_by
      return if @waiting&.alive? || @running.size >= [@tasks.size, @most].min

      Thread.handle_interrupt(Object => :never) { @waiting = Threads.start(@name) { run } }
    end

    # The program may have ended the thread while there are tasks.
    def leave
      Thread.handle_interrupt(Object => :never) do
        @lock.synchronize do
          next unless @pid == Process.pid

          come_back
          @waiting = nil if @waiting == Thread.current
          stand_by unless ractor_ends?
        end
      end
    rescue ThreadError
      nil # the process is ending
    end

    # Ruby ends a Ractor's threads when its block has returned, once, and then waits for all of them. In the main Ractor it starts
    # no thread then.
    def ractor_ends? = Thread.current.status == "aborting" && Ractor.current != MAIN_RACTOR

    MAIN_RACTOR = Ractor.current
    private_constant :MAIN_RACTOR

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
