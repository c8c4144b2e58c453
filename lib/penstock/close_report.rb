# frozen_string_literal: true

module Penstock
  # What became of the messages that were in flight when a producer began to close.
  #
  # `delivered`, `failed` (with an error of the broker or a timeout), `purged` (dropped because the time was up),
  # `pending`: without a verdict when the call returned, because it was interrupted by its own timeout; and `unsent`:
  # from the buffer, not taken in time. All Integers.
  CloseReport = Struct.new(:delivered, :failed, :purged, :pending, :unsent) do
    # @api private
    def initialize(delivered, failed, purged, pending, unsent = 0) = super

    # @return [Boolean] whether every message was delivered
    def complete? = (failed + purged + pending + unsent).zero?
  end
end
