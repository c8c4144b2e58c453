# frozen_string_literal: true

require "timeout"

# Time limits that only guard against hanging. They have to be short, so that a hang is reported soon, and they must never fail a
# test that only lacks processor time. So the limits grow with the slowness of the machine, which is measured only when a limit
# has passed: a test that passes in time pays nothing.
module Slowness
  SPIN = 5_000_000 # iterations
  QUIET = 0.06 # seconds that they take on a quiet machine with Ruby 3.1; under a sanitizer or valgrind they take longer
  MOST = 20 # times as slow as a quiet machine
  LASTING = 1 # seconds that a measurement is used

  # Raised in the thread that takes too long. No StandardError, because programs rescue those.
  class Late < Exception; end # rubocop:disable Lint/InheritException

  # A limit that grows.
  class Deadline
    def initialize(seconds)
      @start = Slowness.now
      @seconds = seconds
    end

    # @return [Float] seconds that are left, on this machine as it is at present; 0 or less: the deadline has passed
    def left
      left = @start + @seconds - Slowness.now
      left.positive? ? left : @start + (@seconds * Slowness.factor) - Slowness.now
    end

    def passed? = left <= 0

    def to_s = format("%.1f s", Slowness.now - @start)
  end

  @lock = Mutex.new

  class << self
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def deadline(seconds) = Deadline.new(seconds)

    # Measures how slow this thread is: because others use the processors, or this process's other threads the GVL, or because
    # the machine is slow.
    # @return [Float] 1.0 on a quiet machine, at most MOST
    def factor
      @lock.synchronize do
        @factor = nil if @measured_at && now > @measured_at + LASTING
        @factor ||= measure.tap { @measured_at = now }
      end
    end

    # @param thread [Thread, Process::Waiter]
    # @return [Thread, nil] nil: it still runs
    def join(thread, seconds)
      deadline = Deadline.new(seconds)
      while (left = deadline.left).positive?
        return thread if thread.join(left)
      end
      thread.join(0)
    end

    # Like Timeout.timeout.
    # @raise [Timeout::Error]
    def within(seconds)
      late = Late.new("took longer than #{seconds} s, although the limit grows with the slowness of the machine")
      watcher = watch(Thread.current, late, seconds)
      yield
    rescue Late => e
      raise unless e.equal?(late)

      raise Timeout::Error, e.message, e.backtrace
    ensure
      watcher.kill.join
    end

    private

    def measure
      wall = now
      processor = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      count = 0
      count += 1 while count < SPIN
      wall = now - wall
      processor = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - processor
      [wall / QUIET, wall / processor].max.clamp(1.0, MOST)
    end

    # Again and again, because what runs in the end may hang as well: minitest runs `teardown` after a `Late`.
    def watch(thread, late, seconds)
      Thread.new do
        loop do
          deadline = Deadline.new(seconds)
          while (left = deadline.left).positive?
            sleep left
          end
          thread.raise(late)
        end
      end
    end
  end
end
