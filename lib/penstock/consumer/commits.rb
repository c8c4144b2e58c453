# frozen_string_literal: true

module Penstock
  # How {Consumer#commit} commits.
  # @api private
  module ConsumerCommits
    # What brokers answer to a member that they have removed.
    LOST = %i[illegal_generation unknown_member_id].freeze
    private_constant :LOST

    private

    # Offsets that the program has chosen.
    # @return [true]
    def commit_places(places, async, timeout)
      return true if places.empty?
      return call_commit_async(places) || true if async

      @notifier.committing(places) { call_commit(places, timeout) || places }
      true
    end

    # What is processed when its turn comes.
    # @param what [Message, Batch, nil] what was just marked
    # @return [Boolean] false: what was marked was taken away meanwhile
    def commit_processed(what, async, timeout)
      places = what && places_of(what)
      if async
        call_commit_async(nil)
        return what.nil? || call_keeps(places, epoch_of(what))
      end

      @notifier.committing(places || []) { call_commit_processed(places, epoch_of(what), timeout) }
      true
    end

    # @return [Boolean]
    def commit_marked(what, async, timeout)
      case mark(what)
      when true then commit_processed(what, async, timeout)
      when nil then commit_places([place_of(what)], async, timeout) # a program made the message
      else false
      end
    end

    # @return [Array<Array(String, Integer, Integer)>] with the offset after the last message
    def places_of(what)
      return [place_of(what)] unless what.is_a?(Batch)

      Consumer.__send__(:places_of, what).map { |topic, partition, _, after| [topic, partition, after] }
    end

    # @return [Integer] 0: of nothing
    def epoch_of(what)
      return 0 if what.nil?

      what.is_a?(Batch) ? what.epoch : Consumer.__send__(:epoch_of, what)
    end

    def place_of(message) = Consumer.__send__(:place_of, message)
  end
  private_constant :ConsumerCommits
end
