# frozen_string_literal: true

module Penstock
  # Threads of Penstock that run for as long as they are needed.
  # @api private
  module Threads
    # A new thread inherits the interrupt mask of the thread that makes it. If it deferred interrupts forever, neither the
    # thread nor the process could be ended.
    # @param name [String] shown by debuggers and `top -H`
    # @return [Thread]
    # @raise [ThreadError] when no thread is available, or the process is ending
    def self.start(name, &block)
      # M:exit_interrupts_listeners
      Thread.new { Thread.handle_interrupt(Object => :immediate, &block) }.tap { |thread| thread.name = name }
    end
  end
end
