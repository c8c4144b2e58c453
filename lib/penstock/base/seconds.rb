# frozen_string_literal: true

module Penstock
  # Timeouts that calls take in seconds, where settings are in milliseconds.
  #
  # ActiveSupport's durations answer `is_a?(Integer)` with true and are not; `case` is not deceived.
  # @api private
  module Seconds
    # An Integer above this is more likely a number of milliseconds: 5 seconds are 5_000.
    LONGEST = 3_600

    # @param timeout [Object] what was given; 7_200.0, a Float, says that seconds are meant, and so does a duration
    # @param longest [Integer] what an Integer may be
    # @return [Integer, Float, nil]
    # @raise [ArgumentError]
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

        raise ArgumentError, "a timeout is a number of seconds, not negative, or nil: #{timeout.inspect}"
      end

      def positive(timeout)
        return timeout if timeout >= 0

        raise ArgumentError, "a timeout is a number of seconds, not negative, or nil: #{timeout.inspect}"
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
