# frozen_string_literal: true

# The least of a fiber scheduler that can also wait for IO: runs what is ready, wakes what sleeps. For tests.
#
# A fiber that is let go on while it waits for something else, or twice, is a mistake of who asks for it: counted.
class PlainScheduler
  # @return [Integer] how often a fiber was to go on that did not wait in {#block}
  attr_reader :strays

  def initialize
    @lock = Thread::Mutex.new
    @unblocked = [] # by any thread
    @waits = {} # fiber => when its time is up, or nil
    @readers = {} # IO => the fiber that waits for it; one, as the simplest schedulers have it
    @urgent, @urge = IO.pipe
    @strays = 0
  end

  def run
    turn until @waits.empty? && @lock.synchronize { @unblocked.empty? }
  end

  def close
    run
  ensure
    [@urgent, @urge].each(&:close)
  end

  def fiber(&block) = Fiber.new(blocking: false, &block).tap(&:resume)

  def kernel_sleep(duration = nil)
    wait(duration)
    true
  end

  def block(_blocker, timeout = nil)
    @blocked ||= {}
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
    fiber do
      kernel_sleep(duration)
      waiting.raise(exception, *arguments) unless done
    end
    yield duration
  ensure
    done = true
  end

  private

  def wait(timeout)
    @waits[Fiber.current] = timeout && (now + timeout)
    Fiber.yield
  ensure
    @waits.delete(Fiber.current)
  end

  def turn
    nearest = @waits.each_value.compact.min
    readable, = IO.select([@urgent, *@readers.keys], nil, nil, nearest && [nearest - now, 0].max)
    @urgent.read_nonblock(1_000, exception: false) if readable&.include?(@urgent)
    late = @waits.select { |_, at| at && at <= now }.keys
    readable&.each { |io| @readers[io]&.then { |fiber| go_on(fiber, :readable) } }
    @lock.synchronize { @unblocked.tap { @unblocked = [] } }.each do |fiber|
      @blocked&.key?(fiber) ? go_on(fiber, true) : @strays += 1
    end
    late.each { |fiber| go_on(fiber, false) if @waits[fiber] }
  end

  def go_on(fiber, why)
    fiber.resume(why) if fiber.alive? && @waits.key?(fiber)
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
