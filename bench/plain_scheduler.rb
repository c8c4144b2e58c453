# frozen_string_literal: true

# A minimal fiber scheduler, so that a benchmark shows the cost of waiting and not the cost of a scheduler.
class PlainScheduler
  def initialize
    @ready = Thread::Queue.new # fibers to resume; any thread adds to it
    @waiting = 0
    @readers = {} # IO => the fiber that waits for it
    @deadlines = {} # fiber => when to resume it at the latest
    @urgent, @urge = IO.pipe
  end

  def run
    turn while @waiting.positive?
  end

  def close
    run
  ensure
    [@urgent, @urge].each(&:close)
  end

  def fiber(&block) = Fiber.new(blocking: false, &block).tap(&:resume)

  def block(_blocker, timeout = nil) = wait(timeout)

  def unblock(_blocker, fiber)
    @ready << fiber
    @urge.write_nonblock(".", exception: false) unless Fiber.scheduler.equal?(self)
  end

  def kernel_sleep(duration = nil)
    wait(duration)
    true
  end

  def io_wait(io, events, timeout = nil)
    @readers[io] = Fiber.current
    wait(timeout) == :readable ? events : false
  ensure
    @readers.delete(io)
  end

  private

  def wait(timeout)
    @waiting += 1
    @deadlines[Fiber.current] = now + timeout if timeout
    Fiber.yield
  ensure
    @waiting -= 1
    @deadlines.delete(Fiber.current) if timeout
  end

  def turn
    readable, = IO.select([@urgent, *@readers.keys], nil, nil, pause)
    @urgent.read_nonblock(1_000, exception: false) if readable&.delete(@urgent)
    readable&.each { |io| @readers[io]&.resume(:readable) }
    @ready.size.times { @ready.pop.resume(true) }
    late = @deadlines.select { |_, at| at <= now }.keys if @deadlines.any?
    late&.each { |fiber| fiber.resume(false) }
  end

  def pause
    return 0 unless @ready.empty?

    nearest = @deadlines.each_value.min
    nearest && [nearest - now, 0].max
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
