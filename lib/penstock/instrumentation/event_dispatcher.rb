# frozen_string_literal: true

require "weakref"

module Penstock
  # The Ruby threads that tell listeners what happens in the native core. There are none while no connected producer has
  # such a listener; else one works and one stands by. When a listener takes longer than some ms, the thread that stands by serves
  # the other producers, and another thread takes its place: so a listener delays its own producer's events only.
  #
  # Which thread serves which producer is decided natively (ext/penstock/core/client/dispatch.c).
  # @api private
  module EventDispatcher
    MAX_THREADS = 64

    # A source that is attached: held while something may be told, else not, so that a producer that nobody has any more is
    # collected. What it sends next holds it again ({Native::EventSource#hold}).
    class Listened
      QUIET = 2 # looks in a row: between a verdict and its event nothing is in flight, for a moment
      private_constant :QUIET

      attr_reader :budget

      def initialize(source)
        @weak = WeakRef.new(source)
        @budget = source.budget
        hold(source)
      end

      # @return [Native::EventSource, nil] nil: it was collected
      def source
        @held || @weak.__getobj__
      rescue WeakRef::RefError
        nil
      end

      # Without a lock: a trap may send.
      def hold(source)
        @quiet = 0
        @held = source
        source.held = true
      end

      # @return [Boolean] without having it on the stack, where the garbage collector would find it
      def alive? = !@held.nil? || @weak.weakref_alive?

      # Now and then. In this order: who sends meanwhile either is seen here, or holds it after us.
      def look
        one = @held or return
        @quiet += 1
        if @quiet > QUIET
          one.held = false
          @held = nil
        end
        hold(one) unless one.quiet?
      end
    end
    private_constant :Listened

    @lock = Mutex.new
    @sources = {} # Listened, by address
    @workers = []
    @pid = nil
    @look_at = 0.0
    @watch_ms = 1000 # how soon a thread that stands by looks after those at work

    class << self
      def attach(source)
        @lock.synchronize do
          forget_parent unless @pid == Process.pid
          @sources[source.address] = Listened.new(source)
          look_as_often_as_needed
          spawn_spare_worker # those at work may never come back
        end
      end

      def detach(source)
        return unless @pid == Process.pid

        @lock.synchronize do
          gone = @sources.delete(source.address)
          look_as_often_as_needed
          @workers.each(&:interrupt) if gone && @sources.empty? # they have nothing to wait for
        end
      end

      # Something is about to happen to it that it may have to tell.
      def hold(source)
        @sources[source.address]&.hold(source) if @pid == Process.pid
      end

      # @return [Boolean] whether this is one of the threads: then a listener is being run
      def here? = Thread.current.thread_variable?(:penstock_events)

      # @return [Boolean] whether what happens to it is told at all
      def serving?(source) = @pid == Process.pid && @sources.key?(source.address)

      # Waits until all that happened to closed producers has been told. For the end of the process.
      # @param timeout [Numeric] seconds
      def finish(timeout)
        return if here?

        deadline = now + timeout
        sleep 0.002 while @pid == Process.pid && @lock.synchronize { anybody_left? } && now < deadline
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

      # With the lock held.
      def anybody_left?
        @sources.delete_if { |_, listened| !listened.alive? }
        !@sources.empty?
      end

      # With the lock held. Others may add sources at any other time, and that cannot be done while somebody goes through them.
      def look_as_often_as_needed
        shortest = @sources.each_value.map(&:budget).min || 1
        @watch_ms = (shortest * 500).clamp(20, 1000).to_i
      end

      # With the lock held. Not to be interrupted in between: a worker without a thread would stand by for ever.
      def spawn_spare_worker
        Thread.handle_interrupt(Object => :never) { hire } if @workers.none?(&:standing_by?)
      end

      def hire
        return if @workers.size >= MAX_THREADS

        worker = Native::EventWorker.new
        @workers << worker
        worker.thread = Threads.start("penstock.events") { work(worker) }
      rescue ThreadError
        @workers.delete(worker) # the process is ending, or has no more threads to give: those that are there go on
      end

      def work(worker)
        Thread.current.thread_variable_set(:penstock_events, true)
        Thread.current.report_on_exception = false
        loop do
          if worker.next(@watch_ms)
            @lock.synchronize { spawn_spare_worker }
            worker.apart { serve(worker) }
          elsif leave?(worker)
            break
          end
          worker.apart { look_after_others(worker) }
        end
      ensure
        dismiss(worker)
      end

      def serve(worker)
        source = worker.source = @sources[worker.address]&.source
        source ? source.serve(worker) : worker.discard
        worker.rest
      end

      # A listener may have ended the thread, and there are others to serve.
      def dismiss(worker)
        Thread.handle_interrupt(Object => :never) do
          worker.end_turn(true)
          @lock.synchronize { spawn_spare_worker if @workers.delete(worker) && !@sources.empty? }
        end
      end

      # @return [Boolean] whether there is nobody to serve, or others stand by
      def leave?(worker)
        @lock.synchronize do
          spare = @workers.count(&:standing_by?) > 2
          (@sources.empty? || spare) && @workers.delete(worker)
        end
      end

      def look_after_others(worker)
        time = now
        return if time < @look_at

        @look_at = time + (@watch_ms / 1000.0)
        worker.end_turn(false) # listeners of "listener.slow" may never end
        @lock.synchronize { @sources.each_value(&:look) if anybody_left? }
        busy = @workers.select { |other| other.source && !other.equal?(worker) }
        return if busy.empty?

        worker.looking = true
        @lock.synchronize { spawn_spare_worker }
        busy.each { |other| other.look(time) }
      ensure
        worker.looking = false
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
