# frozen_string_literal: true

module Penstock
  # The block of Signal.trap: Ruby runs it in the middle of whatever the main thread does, and takes no Mutex there.
  # @api private
  module SignalTrap
    # @return [Boolean] whether this is called from one; never blocks
    def self.here?
      Mutex.new.synchronize { false }
    rescue ThreadError
      true
    end

    # @param what [String] is asked for
    # @raise [SignalTrapError] in a trap
    def self.refuse(what)
      return unless here?

      raise ErrorFactory.build(SignalTrapError, "#{what} is not possible in a signal trap, where Ruby takes no Mutex",
                               "Do it in a thread that the trap does not wait for.")
    end
  end
end
