# frozen_string_literal: true

module Penstock
  # What became of the messages that were in flight when a producer began to close.
  #
  # `delivered`, `failed` (with an error of the broker or a timeout), `purged` (dropped because the time was up), and
  # `pending`: without a verdict when the call returned, because it was interrupted by its own timeout. All Integers.
  CloseReport = Struct.new(:delivered, :failed, :purged, :pending) do
    # @return [Boolean] whether every message was delivered
    def complete? = (failed + purged + pending).zero?
  end
end
