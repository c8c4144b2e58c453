# frozen_string_literal: true

require "objspace"
require_relative "plain_scheduler"
begin
  require "async"
rescue LoadError => e
  raise unless e.path == "async" || e.is_a?(Gem::MissingSpecError) # one of the Rubies lacks the gem, or its dependencies
end

# Runs a block as the first fiber of a scheduler, in a separate thread, and other fibers beside it.
module FiberSchedulers
  class Cancelled < StandardError; end

  KINDS = [:plain, *(:async if defined?(Async))].freeze

  # A fiber, and its result.
  class Strand
    attr_reader :value, :error
    attr_accessor :fiber # what cancels it: the fiber, or Async's task

    # Runs the block. The fiber calls it.
    def run
      returned = false
      @value = yield
      returned = true
    rescue StandardError, Minitest::Assertion => e
      @error = e
    ensure
      @error ||= Cancelled.new("left without an error") unless returned
      @done = true
    end

    def done? = @done || false

    # The calling fiber waits for the end.
    # @raise the block's error
    def join
      sleep 0.001 until done?
      raise @error if @error

      @value
    end
  end

  # PlainScheduler, or a scheduler with its interface.
  class Plain
    attr_reader :scheduler

    def initialize(scheduler = PlainScheduler.new) = @scheduler = scheduler

    def run(&block)
      Fiber.set_scheduler(@scheduler)
      first = start(&block)
      Fiber.set_scheduler(nil) # runs it to its end
      first.join
    end

    def start(&block)
      strand = Strand.new
      Fiber.schedule do
        strand.fiber = Fiber.current
        strand.run(&block)
      end
      strand
    end

    def cancel(strand) = @scheduler.interrupt(strand.fiber, Cancelled)
    def strays = @scheduler.strays
    def timeout(...) = Timeout.timeout(...)
    def timeout_error = Timeout::Error
  end

  # The gem async's scheduler.
  class AsyncTasks
    attr_reader :scheduler

    def run(&block)
      first = nil
      Async do |task|
        @task = task
        @scheduler = Fiber.scheduler
        first = start(&block)
        sleep 0.001 until first.done?
      end
      first.join
    end

    def start(&block)
      strand = Strand.new
      @task.async do |task|
        strand.fiber = task
        strand.run(&block)
      end
      strand
    end

    def cancel(strand) = strand.fiber.stop

    # Async does not count stray wake-ups.
    def strays = 0

    # Timeout.timeout does not work in fibers of the old Async.
    def timeout(...) = (old? ? Async::Task.current.with_timeout(...) : Timeout.timeout(...))
    def timeout_error = old? ? Async::TimeoutError : Timeout::Error

    private

    def old? = !@scheduler.respond_to?(:timeout_after)
  end

  # @yieldparam fibers [Plain, AsyncTasks] the fibers of the block's scheduler
  # @return [Object] the block's value
  def with_scheduler(kind, seconds: 30, &block)
    fibers = kind == :plain ? Plain.new : AsyncTasks.new
    run_fibers(fibers, seconds:, &block)
  end

  def run_fibers(fibers, seconds: 30)
    thread = quiet_thread { fibers.run { yield fibers } }
    thread.join(seconds) or flunk "the fibers still wait after #{seconds} s:\n#{hang_of(thread, fibers.scheduler)}"
    value = thread.value
    assert_equal 0, fibers.strays, "fibers were resumed that did not wait"
    assert_equal 0, waiters(fibers.scheduler), "waiters were left behind"
    value
  ensure
    thread&.kill
  end

  # @return [Integer] the scheduler's fibers that wait in Penstock
  def waiters(scheduler)
    group = group_of(scheduler) or return 0
    (ObjectSpace.memsize_of(group) - empty_group_size) / waiter_size
  end

  private

  # Whether the thread sleeps in the scheduler. If so, what the scheduler reports of its fibers; otherwise the backtraces of the
  # thread and of the native threads.
  def hang_of(thread, scheduler)
    natives = Dir["/proc/self/task/*"].map { |task| %w[comm wchan].map { |name| File.read("#{task}/#{name}").chomp }.join(" ") }
    ["#{thread.status}: #{thread.backtrace&.first(20)&.join("\n  ")}", (scheduler.describe if scheduler.respond_to?(:describe)),
     "native threads: #{natives.tally}"].compact.join("\n")
  rescue SystemCallError
    thread.backtrace&.first(20)&.join("\n")
  end

  def group_of(scheduler)
    ObjectSpace.reachable_objects_from(scheduler)&.find do |object|
      !object.is_a?(ObjectSpace::InternalObjectWrapper) && ObjectSpace.dump(object).include?("Penstock::FiberGroup")
    end
  end

  # The measured sizes of a group with two waiters and with none.
  def group_sizes = FiberSchedulers.group_sizes || (FiberSchedulers.group_sizes = measure_group_sizes)

  class << self
    attr_accessor :group_sizes # measured once
  end

  def measure_group_sizes
    scheduler = PlainScheduler.new
    producer = unreachable_producer
    handle = producer.produce_async(topic: "test", payload: "x")
    sizes = []
    Thread.new do
      Fiber.set_scheduler(scheduler)
      fibers = Array.new(2) { Fiber.schedule { assert_raises(Cancelled) { handle.wait } } }
      sizes << ObjectSpace.memsize_of(group_of(scheduler))
      fibers.each { |fiber| scheduler.interrupt(fiber, Cancelled) }
      sizes << ObjectSpace.memsize_of(group_of(scheduler))
    end.join
    sizes
  ensure
    producer&.close(timeout: 0)
  end

  def empty_group_size = group_sizes[1]
  def waiter_size = (group_sizes[0] - group_sizes[1]) / 2
end
