# frozen_string_literal: true

module Penstock
  # A consumer's counters: {Consumer#metrics}. All are Integers since the consumer was opened, unless they say "now".
  #
  # - `messages`, `bytes`: messages that polls returned; bytes of their payloads and keys
  # - `batches`, `empty_polls`: polls that returned messages; polls that returned none
  # - `rebalances`: assignments and revocations by the group
  # - `commits`, `failed_commits`: requests that committed offsets, of the program and automatic ones; requests that failed for a
  #   partition or more
  # - `errors`: errors of librdkafka, and errors that polls have raised
  # - `pauses`: partitions that {Consumer#pause} has stopped
  # - `lost_partitions`: partitions that the group took away without waiting for the consumer, which had not polled or reached
  #   its brokers in time. Other members read again what was not committed
  # - `queue_length`: fetched messages that were not polled, now. Until the next poll it also counts what librdkafka has put there
  #   for partitions that were assigned, sought, paused or resumed since: a mark for each, and messages that are out of date
  # - `assigned_partitions`: now
  # - `dropped_events`: events that were dropped as the program has listeners and did not poll
  ConsumerMetrics = Struct.new(:messages, :bytes, :batches, :empty_polls, :rebalances, :commits, :failed_commits, :errors,
                               :pauses, :lost_partitions, :queue_length, :assigned_partitions, :dropped_events) do
    include AsJson

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(**to_h)
  end
end
