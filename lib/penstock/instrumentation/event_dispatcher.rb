# frozen_string_literal: true

module Penstock
  # The Ruby threads that run listeners for events of the native core. They exist while a connected producer has such a
  # listener: one works and one is spare. If a listener runs longer than some ms, the spare thread serves the other
  # producers, and a new spare thread starts. So a listener delays only the events of its own producer.
  #
  # The native core decides which thread serves which producer (ext/penstock/core/client/dispatch.c).
  # @api private
  module EventDispatcher
    MAX_THREADS = 64 # M:listener_threads

    # An attached source. It is held (kept alive) while it may have events, and otherwise only referenced weakly, so that a
    # dropped producer can be collected. Its next send holds it again ({Native::EventSource#hold}).
    class Listened
      QUIET = 2 # checks in a row that find it quiet: between a delivery result and its event, nothing is in flight for a moment
      private_constant :QUIET

      attr_reader :budget

      def initialize(source)
        @weak = Native::WeakList.new.add(source)
        @budget = source.budget
        hold(source)
      end

      # @return [Native::EventSource, nil] nil: it was collected
      def source = @held || @weak.to_a.first

      # Without a lock, because a signal trap may send.
      def hold(source)
        @quiet = 0
        @held = source
        source.held = true
      end

      # @return [Boolean] determined without a reference on the stack, where the garbage collector would find it
      def alive? = !@held.nil? || !@weak.empty?

      # Called regularly. Releases first and checks then: a concurrent sender is seen by the check, or holds the source after it.
      def release_if_quiet
        source = @held or return
        @quiet += 1
        if @quiet > QUIET
          source.held = false
          @held = nil # M:listeners_release_producer
        end
        hold(source) unless source.quiet?
      end
    end
    private_constant :Listened

    @lock = Mutex.new
    @sources = {} # Listened, by address
    @workers = []
    @pid = nil
    @check_at = 0.0
    @check_ms = 1000 # how often a spare thread checks the working threads

    class << self
      def attach(source)
        @lock.synchronize do
          forget_parent unless @pid == Process.pid
          @sources[source.address] = Listened.new(source)
          set_check_interval
          spawn_spare_worker # the listeners of working threads may never end
        end
      end

      def detach(source)
        return unless @pid == Process.pid

        @lock.synchronize do
          gone = @sources.delete(source.address)
          set_check_interval
          @workers.each(&:interrupt) if gone && @sources.empty? # they have no source to wait for
        end
      end

      # Called before an operation of the source that may cause events.
      def hold(source)
        @sources[source.address]&.hold(source) if @pid == Process.pid
      end

      # @return [Boolean] whether this is one of the threads: then a listener is running
      def here? = Thread.current.thread_variable?(:penstock_events)

      # @return [Boolean] whether the events of the source are published at all
      def serving?(source) = @pid == Process.pid && @sources.key?(source.address)

      # Waits until all events of closed producers are published. For the end of the process.
      # @param timeout [Numeric] seconds
      def finish(timeout)
        return if here?

        deadline = now + timeout
        sleep 0.002 while @pid == Process.pid && @lock.synchronize { sources_left? } && now < deadline
        ExitReports.finish
      end

      # @return [Integer] threads
      def threads = @pid == Process.pid ? @workers.size : 0

      private

      def forget_parent
        @sources = {}
        @workers = []
        @pid = Process.pid
      end

      # The caller holds the lock.
      def sources_left?
        @sources.delete_if { |_, listened| !listened.alive? }
        !@sources.empty?
      end

      # The caller holds the lock: no other thread may add a source during the iteration.
      def set_check_interval
        shortest = @sources.each_value.map(&:budget).min || 1
        @check_ms = (shortest * 500).clamp(20, 1000).to_i
      end

      # The caller holds the lock. Defers interrupts: a worker without a thread would count as spare forever.
      def spawn_spare_worker
        Thread.handle_interrupt(Object => :never) { spawn_worker } if @workers.none?(&:spare?)
      end

      def spawn_worker
        return if @workers.size >= MAX_THREADS

        worker = Native::EventWorker.new
        @workers << worker
        worker.thread = Threads.start("penstock.events") { work(worker) }
      rescue ThreadError
        @workers.delete(worker) # the process is ending, or can have no more threads: the existing ones continue
      end

      def work(worker)
        Thread.current.thread_variable_set(:penstock_events, true)
        Thread.current.report_on_exception = false
        loop do
          if worker.next(@check_ms)
            @lock.synchronize { spawn_spare_worker }
            worker.apart { serve(worker) }
          elsif leave?(worker)
            break
          end
          worker.apart { check_other_workers(worker) }
        end
      ensure
        remove_worker(worker)
      end

      def serve(worker)
        source = worker.source = @sources[worker.address]&.source
        source ? source.serve(worker) : worker.discard
        worker.forget_turn
      end

      # A listener may have ended the thread while there are other sources to serve.
      def remove_worker(worker)
        Thread.handle_interrupt(Object => :never) do
          worker.end_turn(true) # M:ended_thread_replaced
          @lock.synchronize { spawn_spare_worker if @workers.delete(worker) && !@sources.empty? }
        end
      end

      # @return [Boolean] whether this thread ends: there is no source, or there are other spare threads
      def leave?(worker)
        @lock.synchronize do
          spare = @workers.count(&:spare?) > 1
          (@sources.empty? || spare) && @workers.delete(worker)
        end
      end

      def check_other_workers(worker)
        time = now
        return if time < @check_at

        @check_at = time + (@check_ms / 1000.0)
        worker.end_turn(false) # before it runs listeners of "listener.slow", which may never end
        @lock.synchronize { @sources.each_value(&:release_if_quiet) if sources_left? }
        busy = @workers.select { |other| other.source && !other.equal?(worker) }
        return if busy.empty?

        worker.checking = true
        @lock.synchronize { spawn_spare_worker }
        busy.each { |other| other.check_listener(time) }
      ensure
        worker.checking = false
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
