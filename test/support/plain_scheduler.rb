# frozen_string_literal: true

# The least of a fiber scheduler: runs what is ready, wakes what sleeps. For tests.
class PlainScheduler
  def initialize
    @ready = Thread::Queue.new
    @wakes = {} # fiber => when
    @blocked = {}
  end

  def run
    until @ready.empty? && @wakes.empty? && @blocked.empty?
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      @wakes.select { |_, at| at <= now }.each_key { |fiber| wake(fiber) }
      @ready.empty? ? Kernel.sleep(0.001) : wake(@ready.pop)
    end
  end
  alias close run

  def fiber(&block) = Fiber.new(blocking: false, &block).tap(&:resume)

  def kernel_sleep(duration = nil)
    block(:sleep, duration)
    true
  end

  def block(_blocker, timeout = nil)
    @wakes[Fiber.current] = Process.clock_gettime(Process::CLOCK_MONOTONIC) + timeout if timeout
    @blocked[Fiber.current] = true
    Fiber.yield
  end

  def unblock(_blocker, fiber) = @ready << fiber

  def io_wait(*) = raise(NotImplementedError)

  private

  def wake(fiber)
    @wakes.delete(fiber)
    fiber.resume if @blocked.delete(fiber) && fiber.alive?
  end
end
