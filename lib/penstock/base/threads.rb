# frozen_string_literal: true

module Penstock
  # Threads of the library's own that go on until nobody needs them.
  # @api private
  module Threads
    # A new thread defers interrupts like the one that makes it. One that did so for ever could not be ended, nor the process.
    # @param name [String] what debuggers and `top -H` show
    # @return [Thread]
    # @raise [ThreadError] there is none to be had, or the process is ending
    def self.start(name, &block)
      Thread.new { Thread.handle_interrupt(Object => :immediate, &block) }.tap { |thread| thread.name = name }
    end
  end
end
