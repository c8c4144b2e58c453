# frozen_string_literal: true

module Penstock
  # What became of the messages that were in flight when a producer began to close.
  #
  # `delivered`, `failed` (with an error of the broker or a timeout), `purged` (dropped because the time was up),
  # `pending`: without a verdict when the call returned, because it was interrupted by its own timeout; `unsent`: from the
  # buffer, not taken in time. And of earlier messages, since the producer last connected, `unnoticed`: those that failed
  # while there was no listener of `error.occurred`, and whose handles the program has not read. All Integers.
  CloseReport = Struct.new(:delivered, :failed, :purged, :pending, :unsent, :unnoticed) do
    include AsJson

    # Penstock makes them.
    def initialize(delivered, failed, purged, pending, unsent = 0, unnoticed = 0) = super

    # @return [Boolean] whether every message was delivered, as far as the program could not know otherwise
    def complete? = (failed + purged + pending + unsent + unnoticed).zero?

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(**to_h)
  end
end
