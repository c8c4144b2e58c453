# frozen_string_literal: true

# The least of a fiber scheduler that can also wait for IO: runs what is ready, wakes what sleeps. For tests.
#
# A fiber that is let go on while it waits for something else, or twice, is a mistake of who asks for it: counted.
class PlainScheduler
  # @return [Integer] how often a fiber was to go on that did not wait in {#block}
  attr_reader :strays
  # @return [Integer] how often a fiber has given way
  attr_reader :given_way
  # @return [Float] seconds that a fiber ran, or blocked the thread, at most before it gave way
  attr_reader :longest

  def initialize
    @lock = Thread::Mutex.new
    @unblocked = [] # by any thread
    @waits = {} # fiber => when its time is up, or nil
    @blocked = {} # fiber => true, those in {#block}
    @readers = {} # IO => the fiber that waits for it; one, as the simplest schedulers have it
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

  # Any thread.
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

  # As Timeout.timeout asks for it.
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

  # Raises that in a fiber that waits. Whoever has asked to let it go on could not know, so that is no stray.
  def interrupt(fiber, ...)
    @lock.synchronize { @unblocked.delete(fiber) }
    timed { fiber.raise(...) }
  end

  # For the report of a test that hangs; from another thread.
  # @return [String] each fiber that waits: for what, how long still, and where
  def describe
    waits = @waits.map do |fiber, at|
      kind = @blocked.key?(fiber) && "blocked"
      kind ||= @readers.key(fiber) ? "reads" : "sleeps"
      due = at ? "due in #{(at - now).round(3)} s" : "without a deadline"
      "#{kind}, #{due}#{", unblocked" if @unblocked.include?(fiber)}:\n    #{fiber.backtrace&.first(12)&.join("\n    ")}"
    end
    "#{waits.size} fibers wait\n  #{waits.join("\n  ")}"
  end

  # @return [Boolean] whether it has given way, and has not gone on
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

  # The only place where the thread sleeps.
  def look(seconds) = IO.select([@urgent, *@readers.keys], nil, nil, seconds)&.first

  # One after the other, as each may interrupt one that is yet to come.
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
