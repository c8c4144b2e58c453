# frozen_string_literal: true

module Penstock
  class Consumer
    # What a consumer asks brokers about offsets.
    # @api private
    class Offsets
      include ConsumerPlaces

      # @param internals [Internals]
      def initialize(internals)
        @internals = internals
        @client = internals.client
      end

      # ---- methods of Consumer; each gets its arguments and what Ruby took for keywords, as a Hash without braces is ----

      # See {Consumer#committed}.
      def committed(given, braceless, metadata, timeout)
        topics = topics_given("committed(topic, partitions, timeout: 5)", %i[metadata timeout], given, braceless, 2..2)
        @internals.need_group("committed")
        asked = topics ? places(topics, INVALID_OFFSET) : partitions_of(*given)
        return {} if asked.empty?

        found = by_partition(@client.committed_offsets(without_offsets(asked), timeout)) { |place| offset_from(place, metadata) }
        topics ? found : found.values.first
      end

      # See {Consumer#watermarks}.
      def watermarks(given, braceless, cached, timeout)
        topics = topics_given("watermarks(topic, partition, timeout: 5)", %i[cached timeout], given, braceless, 2..2)
        asked = topics ? places(topics, INVALID_OFFSET) : [[topic_name(given[0]), partition_number(given[1])]]
        deadline = Deadline.new(timeout)
        found = asked.zip(cached ? cached_watermarks_of(asked) : watermarks_of(asked, deadline))
        topics ? by_partition(found.map(&:flatten)) { |place| place.last(2) } : found[0][1]
      end

      # See {Consumer#lag}.
      # @param topics [Hash, nil] nil: what is assigned
      def lag(topics, estimate, timeout)
        deadline = Deadline.new(timeout)
        lags(topics.nil? ? @client.assignment : places(topics, INVALID_OFFSET), estimate, deadline)
      end

      # See {Consumer#offsets_for_times}.
      def for_times(given, braceless, timeout)
        single = !given.empty? && !given.first.is_a?(Hash)
        asked = times_given(given, braceless)
        return {} if asked.empty?

        found = by_partition(@client.offsets(asked, timeout)) { |place| place[2] }
        single ? found.values.first : found
      end

      # ---- for other parts ----

      # Turns times and `[:last, n]` into offsets.
      #
      # @param places [Array] as {ConsumerPlaces#places} returns them
      # @param numbers [Boolean] whether :beginning, :end and :stored become numbers, too; librdkafka's seek does not know :stored
      # @return [Array<Array>] with numbers as offsets
      def resolve(places, deadline, numbers: false)
        kinds = places.group_by { |place| kind_of_offset(place[2], numbers) }
        return places if kinds.keys == [:known]

        found = offsets_of_times(kinds.fetch(:time, []), deadline)
        found.update(bounds(kinds.fetch(:bound, []), deadline)).update(committed_offsets(kinds.fetch(:stored, []), deadline))
        places.map { |place| found.key?(place.first(2)) ? [*place.first(2), found[place.first(2)]] : place }
      end

      # @return [Hash{Array(String, Integer) => Integer}] without a committed one, what makes librdkafka use auto.offset.reset
      def committed_offsets(places, deadline)
        return {} if places.empty?

        by_place(@client.committed_offsets(without_offsets(places), deadline.left)).transform_values do |offset|
          offset || INVALID_OFFSET
        end
      end

      # @return [Array] places with an offset for each partition
      def starts_of(topics)
        topics.is_a?(Hash) && topics.each_value do |list|
          list.is_a?(Hash) or raise ArgumentError, "expected a Hash of partitions to offsets, not #{list.inspect}"
          list.each_value { |offset| checked_offset(offset, true) }
        end
        starts_in(topics)
      end

      # @return [Array] as {ConsumerPlaces.places} returns them
      # @raise [ConfigurationInvalidError] when one is :stored, and there is no group
      def starts_in(partitions)
        places(partitions, INVALID_OFFSET).tap { |found| need_group_if_stored(found) }
      end

      # For {Rebalance#start_at}.
      # @yieldparam place [Array] a place to check
      def starts(given, timeout, braceless, &check)
        topics = topics_given("start_at(topic, partition, offset, timeout: 5)", %i[timeout], given, braceless, 3..3)
        deadline = Deadline.new(timeout)
        starts = starts_of(topics || { given[0] => { given[1] => given[2] } })
        starts.each(&check)
        resolve(starts, deadline)
      end

      # For {Reader}.
      # @param topics [ReaderTopics]
      # @return [Array<Array(String, Integer, Integer, Integer)>] topic, partition, first offset, the offset after the last
      def ranges(topics, deadline)
        places = topics.starts { |names| @client.partitions(names.map { |name| [name, -1, -1] }, deadline.left) }
        need_group_if_stored(places)
        watermarks = watermarks_of(places, deadline)
        ends = topics.ends(places)&.then { |limits| resolve(limits, deadline) }
        resolve(places, deadline, numbers: true).each_with_index.map do |(topic, partition, start), i|
          first, last = watermarks[i]
          limit = ends ? ends[i][2].clamp(first, last) : last
          [topic, partition, start.clamp(first, limit), limit]
        end
      end

      # @return [String]
      def inspect = "#<#{self.class}>"

      private

      def need_group_if_stored(places)
        @internals.need_group("reading from :stored") if places.any? { |place| place[2] == OFFSETS[:stored] }
      end

      def kind_of_offset(offset, numbers)
        return :time if offset.is_a?(Time)
        return :bound if offset.is_a?(Array)
        return :known if !numbers || offset >= 0

        offset == OFFSETS[:stored] ? :stored : :bound
      end

      # No message so late: the end. A message may arrive between two requests. So the time is asked for once more after the end.
      # @return [Hash{Array(String, Integer) => Integer}]
      def offsets_of_times(places, deadline)
        asked = places.map { |topic, partition, time| [topic, partition, milliseconds(time)] }
        found = offsets_at(asked, deadline)
        late = asked.reject { |place| found[place.first(2)] }
        ends = offsets_at(late.map { |place| [*place.first(2), OFFSETS[:end]] }, deadline)
        found.update(offsets_at(late, deadline)) { |key, _, offset| offset || ends[key] || raise_no_offset(*key) }
      end

      # The offsets of :beginning, :end and `[:last, n]`.
      # @return [Hash{Array(String, Integer) => Integer}]
      def bounds(places, deadline)
        places.zip(watermarks_of(places, deadline)).to_h do |(topic, partition, offset), (first, last)|
          chosen = { OFFSETS[:beginning] => first, OFFSETS[:end] => last }
          [[topic, partition], chosen.fetch(offset) { [last - offset[1], first].max }]
        end
      end

      # @return [Hash{Array(String, Integer) => Integer, nil}]
      def offsets_at(places, deadline) = places.empty? ? {} : by_place(@client.offsets(places, deadline.left))

      def by_place(places) = places.to_h { |topic, partition, offset| [[topic, partition], offset] }

      # @return [Array<Array(Integer, Integer)>] in the order of the places
      def watermarks_of(places, deadline)
        return [] if places.empty?

        asked = %i[beginning end].map { |which| places.map { |place| [*place.first(2), OFFSETS[which]] } }
        firsts, lasts = @client.watermarks(*asked, deadline.left).map { |found| by_place(found) }
        places.map { |place| range_of(place, firsts, lasts) }
      end

      def range_of(place, firsts, lasts)
        key = place.first(2)
        first, last = [firsts, lasts].map { |found| found[key] }
        return [first, [first, last].max] if first && last

        raise_no_offset(*key)
      end

      # A partition would begin as `auto.offset.reset` says, instead of where the program wants it to.
      def raise_no_offset(topic, partition)
        raise ErrorFactory.build(ConsumeError, "the broker's answer has no offset", consumer_id: @internals.id, topic:,
                                                                                    partition:)
      end

      def cached_watermarks_of(places) = places.map { |topic, partition| @client.cached_watermarks(topic, partition) }

      # @return [Hash{String => Hash{Integer => Integer, nil}}]
      def lags(places, estimate, deadline)
        watermarks = estimate ? cached_watermarks_of(places) : watermarks_of(places, deadline)
        positions = next_offsets(places, estimate ? nil : deadline)
        found = places.zip(watermarks, positions).to_h do |place, (first, last), position|
          lag = lag_of(position, first, last)
          lag = [lag, lag_of(@client.passed(*place.first(2)), first, last)].compact.min unless lag&.zero?
          [place.first(2), lag]
        end
        by_partition(places) { |place| found[place.first(2)] }
      end

      # Where the end was when reading began there is not known.
      # @return [Integer, nil]
      def lag_of(position, first, last)
        position = first if position == :beginning
        return if position.nil? || position == :end || last.nil?

        [last - [position, first || 0].max, 0].max
      end

      # @param deadline [Deadline, nil] nil: the group is not asked
      # @return [Array<Integer, Symbol, nil>] the position, or the committed offset of what was not polled yet
      def next_offsets(places, deadline)
        positions = places.to_h { |topic, partition| [[topic, partition], @client.reached(topic, partition)] }
        unknown = places.select { |place| positions[place.first(2)].nil? }
        if deadline && @internals.config.group? && !unknown.empty?
          @client.committed_offsets(without_offsets(unknown), deadline.left).each { |place| positions[place.first(2)] = place[2] }
        end
        places.map { |place| positions[place.first(2)] }
      end

      # @return [Integer, Offset, nil]
      def offset_from(place, metadata)
        return place[2] unless metadata && place[2]

        Offset.__send__(:received, *place[2..4])
      end

      # @return [Array<Array(String, Integer, Integer)>] with times, in ms, as offsets
      def times_given(given, braceless)
        form = "offsets_for_times(topic, partitions, time, timeout: 5)"
        together = given.size == 2 && given.first.is_a?(Hash) ? given.pop : nil
        topics = topics_given(form, %i[timeout], given, braceless, 3..3)
        return partitions_of(*given.first(2)).map { |place| [*place.first(2), milliseconds(given[2])] } unless topics

        asked = topics.flat_map do |topic, list|
          name = topic_name(topic)
          times_of(name, list, together).map { |partition, time| [name, partition_number(partition), milliseconds(time)] }
        end
        unrepeated(asked)
      end

      def times_of(topic, list, together)
        return list if list.is_a?(Hash)
        return list.uniq.map { |partition| [partition, together] } if list.is_a?(Array) && together

        raise ArgumentError, "expected the partitions of #{Text.printable(topic)} as a Hash of times, or as an Array " \
                             "with a time after the Hash of topics"
      end
    end
  end
end
