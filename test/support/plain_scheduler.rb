# frozen_string_literal: true

# A minimal fiber scheduler that can also wait for IO: it runs ready fibers and wakes sleeping ones. For tests.
#
# Unblocking a fiber twice, or while it waits for something else, is a mistake of the unblocking code. The scheduler counts it.
class PlainScheduler
  # @return [Integer] how often a fiber was unblocked that did not wait in {#block}
  attr_reader :strays
  # @return [Integer] how often a fiber has yielded
  attr_reader :given_way
  # @return [Float] the longest time in seconds that a fiber ran, or blocked the thread, before it yielded
  attr_reader :longest

  def initialize
    @lock = Thread::Mutex.new
    @unblocked = [] # filled by any thread
    @waits = {} # fiber => its deadline, or nil
    @blocked = {} # fiber => true, for fibers in {#block}
    @readers = {} # IO => the one fiber that waits for it, as in the simplest schedulers
    @urgent, @urge = IO.pipe
    @strays = @given_way = 0
    @longest = 0.0
  end

  def run
    turn until @waits.empty? && @lock.synchronize { @unblocked.empty? }
  end

  def close
    run
  ensure
    [@urgent, @urge].each(&:close)
  end

  def fiber(&block) = Fiber.new(blocking: false, &block).tap { |fiber| timed { fiber.resume } }

  def kernel_sleep(duration = nil)
    wait(duration)
    true
  end

  def block(_blocker, timeout = nil)
    @blocked[Fiber.current] = true
    wait(timeout)
  ensure
    @blocked.delete(Fiber.current)
  end

  # Any thread may call it.
  def unblock(_blocker, fiber)
    @lock.synchronize { @unblocked << fiber }
    @urge.write_nonblock(".", exception: false)
  end

  def io_wait(io, events, timeout = nil)
    raise ArgumentError, "another fiber waits for this IO" if @readers[io]
    raise NotImplementedError unless events == IO::READABLE

    @readers[io] = Fiber.current
    wait(timeout) == :readable ? events : false
  ensure
    @readers.delete(io) if @readers[io].equal?(Fiber.current)
  end

  # Timeout.timeout calls it.
  def timeout_after(duration, exception, *arguments)
    waiting = Fiber.current
    done = false
    timer = fiber do
      kernel_sleep(duration)
      interrupt(waiting, exception, *arguments) unless done
    end
    yield duration
  ensure
    done = true
    @waits[timer] = 0 if @waits.key?(timer)
  end

  # Raises the error in a waiting fiber. A thread that has unblocked it could not know, so that is no stray wake-up.
  def interrupt(fiber, ...)
    @lock.synchronize { @unblocked.delete(fiber) }
    timed { fiber.raise(...) }
  end

  # For the report of a hanging test. Another thread calls it.
  # @return [String] for each waiting fiber: what it waits for, how much longer, and where
  def describe
    waits = @waits.map do |fiber, at|
      kind = @blocked.key?(fiber) && "blocked"
      kind ||= @readers.key(fiber) ? "reads" : "sleeps"
      due = at ? "due in #{(at - now).round(3)} s" : "without a deadline"
      "#{kind}, #{due}#{", unblocked" if @unblocked.include?(fiber)}:\n    #{fiber.backtrace&.first(12)&.join("\n    ")}"
    end
    "#{waits.size} fibers wait\n  #{waits.join("\n  ")}"
  end

  # @return [Boolean] whether it has yielded, and was not resumed
  def waiting?(fiber) = @waits.key?(fiber)

  private

  def wait(timeout)
    @given_way += 1
    @waits[Fiber.current] = timeout && (now + timeout)
    Fiber.yield
  ensure
    @waits.delete(Fiber.current)
  end

  def turn
    nearest = @waits.each_value.compact.min
    readable = look(nearest && [nearest - now, 0].max) || []
    @urgent.read_nonblock(1_000, exception: false) if readable.include?(@urgent)
    readable.each { |io| @readers[io]&.then { |fiber| go_on(fiber, :readable) } }
    let_the_unblocked_go_on
    let_the_late_go_on
  end

  # The thread sleeps only here.
  def look(seconds) = IO.select([@urgent, *@readers.keys], nil, nil, seconds)&.first

  # One after the other, because each may interrupt a later one.
  def let_the_unblocked_go_on
    @lock.synchronize { @unblocked.size }.times do
      fiber = @lock.synchronize { @unblocked.shift } or break
      @blocked.key?(fiber) ? go_on(fiber, true) : @strays += 1
    end
  end

  def let_the_late_go_on
    late = @waits.select { |_, at| at && at <= now }.keys
    late.each { |fiber| go_on(fiber, false) if @waits[fiber]&.<=(now) }
  end

  def go_on(fiber, why)
    timed { fiber.resume(why) } if fiber.alive? && @waits.key?(fiber)
  end

  def timed
    start = now
    yield
  ensure
    @longest = [@longest, now - start].max
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
