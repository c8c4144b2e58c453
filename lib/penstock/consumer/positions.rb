# frozen_string_literal: true

module Penstock
  class Consumer
    # Changes where the consumer reads on: {Consumer#seek}, {Consumer#rewind}, {Consumer#pause}, and the transactions of
    # producers.
    # @api private
    class Positions
      include ConsumerPlaces

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @client = internals.client
      end

      # See {Consumer#seek}.
      # @param topics [Hash]
      def seek(topics, commit, timeout)
        @internals.need_group("seek(commit: true)") if commit
        starts = @internals.offsets.starts_of(topics)
        deadline = Deadline.new(timeout)
        return if starts.empty?

        commit ? seek_back(starts, deadline) : @client.seek(seekable(starts, deadline), deadline.left)
      end

      # See {Consumer#rewind}.
      # @param what [Batch, Message]
      # @return [Boolean]
      def rewind(what, timeout)
        return rewind_to(Native::ConsumerClient.places_of(what), what.epoch, timeout) if what.is_a?(Batch)

        topic, partition, after = Native::ConsumerClient.place_of(what)
        rewind_to([[topic, partition, after - 1]], Native::ConsumerClient.epoch_of(what), timeout)
      end

      # @param places [Array<Array>] topic, partition, offset; what follows is ignored
      # @return [Boolean] whether the consumer has had all of them since `epoch`
      def rewind_to(places, epoch, timeout)
        return true if places.empty?

        @client.rewind(places.map { |place| place.first(3) }, epoch, timeout).size == places.size
      end

      # See {Consumer#pause}.
      def pause(partitions)
        @client.pause(partitions ? places(partitions, INVALID_OFFSET) : without_offsets(@client.assignment))
        paused
      end

      # See {Consumer#resume}.
      def resume(partitions)
        @client.resume(partitions ? places(partitions, INVALID_OFFSET) : without_offsets(@client.paused))
        paused
      end

      # @return [Hash{String=>Array<Integer>}]
      def paused = by_topic(@client.paused)

      # See {Consumer#position}.
      # @return [Integer, nil]
      def position(topic, partition) = @client.position(topic_name(topic), partition_number(partition))

      # @return [String]
      def inspect = "#<#{self.class}>"

      private

      # librdkafka's seek does not know :stored.
      def seekable(places, deadline)
        numbers = places.any? { |place| place[2] == OFFSETS[:stored] }
        @internals.offsets.resolve(places, deadline, numbers:)
      end

      # Librdkafka commits forwards only, until it got the earlier offset as a stored one (`seek_back`), and a commit of it.
      def seek_back(places, deadline)
        places = @internals.offsets.resolve(places, deadline, numbers: true)
        @client.seek_back(places, deadline.left)
        committed = places.reject { |place| place[2].negative? }
        @client.commit(committed, deadline.left) unless committed.empty?
      end
    end
  end
end
