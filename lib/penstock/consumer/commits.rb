# frozen_string_literal: true

module Penstock
  # How {Consumer#commit} commits.
  # @api private
  module ConsumerCommits
    # What brokers answer to a member that they have removed.
    LOST = %i[illegal_generation unknown_member_id].freeze
    # A new member epoch may come between request and answer. librdkafka repeats only its own commits then.
    STALE = :stale_member_epoch
    STALE_ATTEMPTS = 20
    STALE_PAUSE = 0.1
    private_constant :LOST, :STALE, :STALE_ATTEMPTS, :STALE_PAUSE

    private

    # @return [Array<Array(String, Integer, Integer, Integer)>, nil] nil: the partition was taken away
    def offsets_to_commit(what)
      case what
      when nil then call_processed(config.mark != :manual)
      when Hash then places(what, nil)
      when Batch then mark(what) ? what.group_by_partition.values.flat_map(&:values).map { |list| place_of(list.last) } : nil
      else mark(what) == false ? nil : [place_of(what)]
      end
    end

    def commit_now(offsets, timeout)
      attempts = 0
      begin
        call_commit(offsets, timeout)
      rescue CommitError => e
        raise unless e.code == STALE && (attempts += 1) < STALE_ATTEMPTS

        sleep STALE_PAUSE
        retry
      end
    end

    def place_of(message) = Consumer.__send__(:place_of, message)
  end
  private_constant :ConsumerCommits
end
