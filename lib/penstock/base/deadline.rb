# frozen_string_literal: true

module Penstock
  # What is left of a timeout, for a call that waits several times.
  # @api private
  class Deadline
    # @param timeout [Numeric, nil] seconds; nil: no limit
    # @raise [ArgumentError] when it is invalid
    def initialize(timeout)
      seconds = Seconds.of(timeout)
      @at = seconds && (now + seconds)
    end

    # @return [Float, nil] seconds; nil: no limit
    def left = @at && [@at - now, 0.0].max

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
