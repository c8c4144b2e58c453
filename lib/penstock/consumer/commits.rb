# frozen_string_literal: true

module Penstock
  # How {Consumer#commit} commits.
  # @api private
  module ConsumerCommits
    # What brokers answer to a member that they have removed.
    LOST = %i[illegal_generation unknown_member_id].freeze
    # A new member epoch or generation may come between request and answer. librdkafka repeats only its own commits then.
    STALE = %i[stale_member_epoch rebalance_in_progress].freeze
    STALE_ATTEMPTS = 20
    STALE_PAUSE = 0.1
    private_constant :LOST, :STALE, :STALE_ATTEMPTS, :STALE_PAUSE

    private

    # @return [Array(Array<Array(String, Integer, Integer, Integer)>, Integer)] the offsets, nil if the partition was taken away;
    #   and the assignment that they belong to, as the partition may be taken away before they are sent. 0: to none
    def to_commit(what)
      case what
      when nil
        epoch = call_epoch # before the offsets are read
        [call_processed(config.mark != :manual), epoch]
      when Hash then [places(what, nil), 0]
      when Batch then [mark(what) ? places_after(what) : nil, what.epoch]
      else [mark(what) == false ? nil : [place_of(what)], Consumer.__send__(:epoch_of, what)]
      end
    end

    def places_after(batch) = batch.group_by_partition.values.flat_map(&:values).map { |list| place_of(list.last) }

    def commit_now(offsets, timeout, epoch = 0)
      attempts = 0
      begin
        call_commit(offsets, timeout, epoch)
      rescue CommitError => e
        raise unless STALE.include?(e.code) && (attempts += 1) < STALE_ATTEMPTS

        sleep STALE_PAUSE
        retry
      end
    end

    def place_of(message) = Consumer.__send__(:place_of, message)
  end
  private_constant :ConsumerCommits
end
