# frozen_string_literal: true

module Penstock
  # What a consumer asks brokers about offsets.
  # @api private
  module ConsumerOffsetCalls
    private

    # Turns times and `[:last, n]` into offsets. Brokers are asked twice: for the ends first, so that a message that arrives in
    # between is not skipped where no message is late enough.
    #
    # @param places [Array] as {ConsumerPlaces#places} returns them
    # @param numbers [Boolean] whether :beginning, :end and :stored become numbers, too; librdkafka's seek does not know :stored
    # @return [Array<Array>] with numbers as offsets
    def resolve(places, deadline, numbers: false)
      stored = numbers ? places.select { |place| place[2] == ConsumerPlaces::OFFSETS[:stored] } : []
      asked = places.select { |place| unresolved?(place[2], numbers) }
      return places if asked.empty? && stored.empty?

      ends = offsets_at(asked.map { |topic, partition| [topic, partition, ConsumerPlaces::OFFSETS[:end]] }, deadline)
      others = offsets_at(asked.map { |topic, partition, offset| [topic, partition, asked_for(offset)] }, deadline)
      found = asked.zip(ends, others).to_h { |place, last, other| [place.first(2), chosen(place[2], last, other)] }
      found.update(committed_offsets(stored, deadline)) { |_, _, offset| offset }
      places.map { |place| found.key?(place.first(2)) ? [*place.first(2), found[place.first(2)]] : place }
    end

    def unresolved?(offset, numbers)
      !offset.is_a?(Integer) || (numbers && offset.between?(ConsumerPlaces::OFFSETS[:beginning], ConsumerPlaces::OFFSETS[:end]))
    end

    # What the second request asks for.
    def asked_for(offset)
      case offset
      when Time then milliseconds(offset)
      when Array then ConsumerPlaces::OFFSETS[:beginning]
      else offset
      end
    end

    # @param last [Integer] the end
    # @param other [Integer, nil] the answer to the second request
    def chosen(offset, last, other)
      case offset
      when Time then other || last
      when Array then [last - offset[1], other].max
      else other
      end
    end

    # @return [Array<Integer, nil>] in the order of the places
    def offsets_at(places, deadline)
      return [] if places.empty?

      found = call_offsets(places, deadline.left).to_h { |topic, partition, offset| [[topic, partition], offset] }
      places.map { |place| found[place.first(2)] }
    end

    # @return [Hash{Array(String, Integer) => Integer}] without a committed one, what makes librdkafka use auto.offset.reset
    def committed_offsets(places, deadline)
      return {} if places.empty?

      found = call_committed(without_offsets(places), deadline.left)
      found.to_h { |topic, partition, offset| [[topic, partition], offset || ConsumerPlaces::INVALID_OFFSET] }
    end

    # @return [Array<Array(Integer, Integer)>] in the order of the places. The beginnings are asked for first: then no beginning
    #   is behind its end
    def watermarks_of(places, deadline)
      beginnings, ends = %i[beginning end].map do |which|
        offsets_at(places.map { |place| [*place.first(2), ConsumerPlaces::OFFSETS[which]] }, deadline)
      end
      beginnings.zip(ends)
    end

    def cached_watermarks_of(places) = places.map { |topic, partition| call_cached_watermarks(topic, partition) }

    # @return [Hash{String => Hash{Integer => Integer, nil}}]
    def lags(places, estimate, deadline)
      watermarks = estimate ? cached_watermarks_of(places) : watermarks_of(places, deadline)
      positions = next_offsets(places, estimate ? nil : deadline)
      found = places.zip(watermarks, positions).to_h do |place, (first, last), position|
        [place.first(2), position && last && [last - [position, first || 0].max, 0].max]
      end
      by_partition(places) { |place| found[place.first(2)] }
    end

    # @param deadline [Deadline, nil] nil: the group is not asked
    # @return [Array<Integer, nil>] the position, or the committed offset of what was not polled yet
    def next_offsets(places, deadline)
      positions = places.to_h { |topic, partition| [[topic, partition], call_reached(topic, partition)] }
      unknown = places.select { |place| positions[place.first(2)].nil? }
      if deadline && config.group? && !unknown.empty?
        call_committed(without_offsets(unknown), deadline.left).each { |place| positions[place.first(2)] = place[2] }
      end
      places.map { |place| positions[place.first(2)] }
    end

    # @return [Integer, Offset, nil]
    def offset_from(place, metadata)
      return place[2] unless metadata && place[2]

      Offset.new(offset: place[2], leader_epoch: place[3], metadata: place[4])
    end

    # @return [Array<Array(String, Integer, Integer)>] with times, in ms, as offsets
    def times_given(given, braceless)
      form = "offsets_for_times(topic, partitions, time, timeout: 5)"
      together = given.size == 2 && given.first.is_a?(Hash) ? given.pop : nil
      topics = topics_given(form, %i[timeout], given, braceless, 3..3)
      return partitions_of(*given.first(2)).map { |place| [*place.first(2), milliseconds(given[2])] } unless topics

      asked = topics.flat_map do |topic, list|
        times = list.is_a?(Array) && together ? list.to_h { |partition| [partition, together] } : list
        times.is_a?(Hash) or raise ArgumentError, "expected the partitions of #{Text.printable(topic_name(topic))} as a Hash " \
                                                  "of times, or as an Array with a time after the Hash of topics"

        times.map { |partition, time| [topic_name(topic), partition_number(partition), milliseconds(time)] }
      end
      unrepeated(asked)
    end

    # @return [Array] places with an offset for each partition
    def starts_of(topics)
      topics.is_a?(Hash) && topics.each_value do |list|
        list.is_a?(Hash) or raise ArgumentError, "expected a Hash of partitions to offsets, not #{list.inspect}"
        list.each_value { |offset| checked_offset(offset) }
      end
      places(topics, ConsumerPlaces::INVALID_OFFSET)
    end

    # For {Rebalance#start_at}.
    # @yield [topic, partition] checks a partition
    def starts(given, timeout, braceless)
      topics = topics_given("start_at(topic, partition, offset, timeout: 5)", %i[timeout], given, braceless, 3..3)
      deadline = Deadline.new(timeout)
      starts = starts_of(topics || { given[0] => { given[1] => given[2] } })
      starts.each { |topic, partition| yield topic, partition }
      resolve(starts, deadline)
    end

    # librdkafka's seek does not know :stored.
    def seekable(places, deadline)
      resolve(places, deadline, numbers: places.any? { |place| place[2] == ConsumerPlaces::OFFSETS[:stored] })
    end

    # Librdkafka commits forwards only, until it got the earlier offset as a stored one (`call_rewind`), and a commit of it.
    def rewind(places, deadline)
      places = resolve(places, deadline, numbers: true)
      call_rewind(places, deadline.left)
      committed = places.reject { |place| place[2].negative? }
      commit_now(committed, deadline.left) unless committed.empty?
    end
  end
end
