# frozen_string_literal: true

module Penstock
  # Timeouts of calls, in seconds; settings are in milliseconds.
  #
  # ActiveSupport's durations return true for `is_a?(Integer)`, and are no Integers. `case` sees the difference.
  # @api private
  module Seconds
    # An Integer above this is probably in milliseconds, such as 5_000 for 5 seconds.
    LONGEST = 3_600

    # @param timeout [Object] the given timeout; a Float such as 7_200.0 and a duration are certainly seconds
    # @param longest [Integer] the maximum for an Integer
    # @return [Integer, Float, nil]
    # @raise [ArgumentError] when the timeout is invalid
    def self.of(timeout, longest: LONGEST)
      case timeout
      when nil then nil
      when Integer then check_size(positive(timeout), longest)
      when Float then positive(timeout)
      else positive(number(timeout))
      end
    end

    # @return [Boolean] whether it is one of Ruby's own Integers
    def self.integer?(value)
      case value
      when Integer then true
      else false
      end
    end

    class << self
      private

      def number(timeout)
        return timeout.to_f if timeout.is_a?(Numeric) && timeout.real?

        raise ArgumentError, "a timeout must be nil or a number of seconds from 0, not #{timeout.inspect}"
      end

      def positive(timeout)
        return timeout if timeout >= 0

        raise ArgumentError, "a timeout must be nil or a number of seconds from 0, not #{timeout.inspect}"
      end

      def check_size(timeout, longest)
        return timeout if timeout <= longest

        more = longest == LONGEST ? "an hour" : "#{longest} seconds"
        raise ArgumentError, "a timeout of #{timeout} seconds: did you mean milliseconds (timeout: #{timeout / 1000.0})? " \
                             "For more than #{more}, give a Float (timeout: #{timeout.to_f})" \
                             "#{", or nil to wait without limit" if longest == LONGEST}"
      end
    end
  end
end
