# frozen_string_literal: true

module Penstock
  class App
    # Runs {Work} on threads. Of the loop's thread, except what the threads do.
    # @api private
    class ThreadExecutor
      # So that no thread waits for the loop between two pieces of work.
      AHEAD = 2
      private_constant :AHEAD

      # @param size [Integer] of threads
      # @param finished [#call] gets each work when it has run, on its thread
      def initialize(size, finished)
        @size = size
        @finished = finished
        @queue = Thread::Queue.new
        @running = Array.new(size)
        @accepted = 0
        @threads = []
      end

      # Starts the threads.
      def start
        @threads = Array.new(@size) { |i| Threads.start("penstock.worker-#{i}") { serve(i) } }
      end

      # @return [Boolean] whether it takes more
      def room? = @accepted < @size * AHEAD

      # @return [Boolean]
      def idle? = @accepted.zero?

      # @param work [#run]
      def submit(work)
        @accepted += 1
        @queue << work
      end

      # Called by the loop for each work that was given to `finished`.
      def settled = @accepted -= 1

      # @return [Array<Array(#run, Thread)>] what runs now
      def running = @running.zip(@threads).select(&:first)

      # @return [Boolean]
      def own_thread? = @threads.include?(Thread.current)

      # Ends the threads when they have nothing to do. Does not wait.
      def stop = @queue.close

      private

      # A watchdog of the program may raise here when the work that it is for has ended. That must end neither the thread nor what
      # it does for the application. {Work#run} lets exceptions in.
      def serve(index)
        Thread.handle_interrupt(Exception => :never) do
          while (work = @queue.pop)
            forget_interrupts
            run(work, index)
          end
        end
      end

      def forget_interrupts
        Thread.handle_interrupt(Exception => :immediate) { nil } while Thread.pending_interrupt?
      rescue Exception # rubocop:disable Lint/RescueException -- whatever it was
        retry
      end

      # Whatever user code does, also `throw` and Thread.exit, the work is settled, and the thread goes on or is replaced.
      def run(work, index)
        @running[index] = work
        complete = false
        catch_all { work.run }
        complete = true
      ensure
        work.abort unless complete
        @running[index] = nil
        @finished.call(work)
        replace(index) unless complete || @queue.closed?
      end

      # `throw` without its `catch` raises here.
      def catch_all
        yield
      rescue UncaughtThrowError
        nil
      end

      def replace(index)
        @threads[index] = Threads.start("penstock.worker-#{index}") { serve(index) }
      rescue ThreadError
        nil # the process ends
      end
    end
    private_constant :ThreadExecutor
  end
end
