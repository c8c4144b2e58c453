# frozen_string_literal: true

require_relative "plain_scheduler"

# Fibers in a separate thread, with the fiber scheduler of the async gem or with a minimal one.
module Fibers
  ASYNC =
    begin
      require "async"
      true
    rescue LoadError
      false
    end
  SCHEDULERS = [:plain, *(:async if ASYNC)].freeze

  module_function

  # Runs the block in `count` fibers, with the number of each, and returns when all have ended.
  def run(scheduler, count, &block)
    Thread.new { scheduler == :async ? with_async(count, &block) : with_plain(count, &block) }.join
  end

  def with_async(count)
    Async { |task| Array.new(count) { |i| task.async { yield i } }.each(&:wait) }
  end

  # The scheduler runs when its thread ends.
  def with_plain(count)
    Fiber.set_scheduler(PlainScheduler.new)
    count.times { |i| Fiber.schedule { yield i } }
  end
end
