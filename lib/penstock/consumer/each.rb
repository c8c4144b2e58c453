# frozen_string_literal: true

module Penstock
  # The loop of {Consumer#each}.
  # @api private
  module ConsumerEach
    private

    # The core learns if the block was left early, or an interrupt came before the block had its message.
    def each_message(timeout)
      inside = ended = false
      until (message = poll_unless_closed(timeout)).nil? && closed?
        next unless message

        inside = true # rubocop:disable Lint/UselessAssignment -- `ensure` reads it
        yield message
        inside = false
      end
      ended = true
      self
    ensure # also left by throw, as by Timeout in Ruby 3.1, and break
      if inside then call_leave
      elsif !ended then call_not_received # M:each_keeps_its_message
      end
    end

    def poll_unless_closed(timeout)
      call_poll(timeout)
    rescue ConsumerClosedError
      nil
    end

    # For last_poll.c: when a method returns, Ruby handles interrupts.
    def nothing = nil
  end
  private_constant :ConsumerEach
end
