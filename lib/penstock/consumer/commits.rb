# frozen_string_literal: true

module Penstock
  class Consumer
    # How {Consumer#commit} commits.
    # @api private
    class Commits
      # What brokers answer to a member that they have removed.
      LOST = %i[illegal_generation unknown_member_id].freeze
      private_constant :LOST

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @client = internals.client
      end

      # See {Consumer#commit}.
      # @return [Boolean]
      def commit(what, async, timeout)
        @internals.need_group("commit")
        return commit_places(ConsumerPlaces.places(what, nil), async, timeout) if what.is_a?(Hash)
        return commit_marked(what, async, timeout) if what

        @client.mark_all unless @internals.config.mark == :manual
        commit_processed(nil, async, timeout)
      rescue CommitError => e
        LOST.include?(e.code) ? committed_before?(what) : raise
      end

      # @return [String]
      def inspect = "#<#{self.class}>"

      private

      # Offsets that the program has chosen.
      # @return [true]
      def commit_places(places, async, timeout)
        return true if places.empty?
        return @client.commit_async(places) || true if async

        notifier.committing(places) { @client.commit(places, timeout) || places }
        true
      end

      # What is processed when its turn comes.
      # @param what [Message, Batch, nil] what was just marked
      # @return [Boolean] false: what was marked was taken away meanwhile
      def commit_processed(what, async, timeout)
        places = what && places_of(what)
        if async
          @client.commit_async(nil)
          return what.nil? || @client.keeps?(places, epoch_of(what))
        end

        notifier.committing(places || []) { @client.commit_processed(places, epoch_of(what), timeout) }
        true
      end

      # @return [Boolean]
      def commit_marked(what, async, timeout)
        case @client.mark(what)
        when true then commit_processed(what, async, timeout)
        when nil then commit_places(places_of(what), async, timeout) # a program made the message
        else committed_before?(what)
        end
      end

      # Another thread's commit, or that of a rebalance listener, may have included what this one has lost.
      # @return [Boolean]
      def committed_before?(what)
        case what
        when Message, Batch then @client.committed?(places_of(what), epoch_of(what))
        else false
        end
      end

      # @return [Array<Array(String, Integer, Integer)>] with the offset after the last message
      def places_of(what)
        return [Native::ConsumerClient.place_of(what)] unless what.is_a?(Batch)

        Native::ConsumerClient.places_of(what).map { |topic, partition, _, after| [topic, partition, after] }
      end

      # @return [Integer] 0: of nothing
      def epoch_of(what)
        return 0 if what.nil?

        what.is_a?(Batch) ? what.epoch : Native::ConsumerClient.epoch_of(what)
      end

      def notifier = @internals.notifier
    end
  end
end
