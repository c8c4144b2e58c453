# frozen_string_literal: true

module Penstock
  # Detects the block of Signal.trap. Ruby runs it in the middle of whatever the main thread does, and lets it lock no Mutex.
  # @api private
  module SignalTrap
    # @return [Boolean] whether this code runs in a signal trap; never blocks
    def self.here?
      Mutex.new.synchronize { false }
    rescue ThreadError
      true
    end

    # Guards an operation that requires a Mutex.
    # @param what [String] the operation, the subject of the error message
    # @raise [SignalTrapError] when this code runs in a signal trap
    def self.raise_if_here(what)
      return unless here?

      raise ErrorFactory.build(SignalTrapError, "#{what} is not possible in a signal trap, where Ruby cannot lock a Mutex",
                               "Do it in a new thread; the trap must not wait for it.")
    end
  end
end
