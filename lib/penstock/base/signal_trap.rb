# frozen_string_literal: true

module Penstock
  # Detects the block of Signal.trap. Ruby runs it in the middle of whatever the main thread does, and locks no Mutex there.
  # @api private
  module SignalTrap
    # @return [Boolean] whether this code runs in a signal trap; never blocks
    def self.here?
      Mutex.new.synchronize { false }
    rescue ThreadError
      true
    end

    # @param what [String] the operation, for the error
    # @raise [SignalTrapError] when called in a signal trap
    def self.raise_if_here(what)
      return unless here?

      raise ErrorFactory.build(SignalTrapError, "#{what} is not possible in a signal trap, where Ruby locks no Mutex",
                               "Do it in a new thread; the trap must not wait for it.")
    end
  end
end
