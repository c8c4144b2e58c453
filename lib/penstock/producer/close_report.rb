# frozen_string_literal: true

module Penstock
  # The results of the messages that were in flight or in the buffer when a producer began to close. All numbers are
  # Integers.
  #
  # - `delivered`: messages that were delivered after the producer began to close. {Producer#metrics} counts those before,
  #   too
  # - `failed`: messages that failed after that, with an error of the broker or a timeout
  # - `purged`: messages that close discarded because its time was up
  # - `pending`: messages without a delivery result when the call returned, because its own timeout interrupted it
  # - `unsent`: messages of the buffer that librdkafka did not accept in time
  # - `unnoticed`: messages that failed before, since the producer last connected, without any notice of the program: no
  #   listener of `error.occurred` got them, and the program has not read their handles. A message is counted as `failed` or
  #   as `unnoticed`, never as both
  CloseReport = Struct.new(:delivered, :failed, :purged, :pending, :unsent, :unnoticed) do
    include AsJson

    # Penstock makes the reports.
    def initialize(delivered, failed, purged, pending, unsent = 0, unnoticed = 0) = super

    # @return [Boolean] whether every message was delivered. Failures that the program has noticed before do not count
    def complete? = (failed + purged + pending + unsent + unnoticed).zero?

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(**to_h)
  end
end
