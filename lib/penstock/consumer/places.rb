# frozen_string_literal: true

module Penstock
  # The arguments of a consumer that name partitions and offsets, checked, as its native calls take them: lists of topic,
  # partition, offset, leader epoch, metadata. Parts include it, others call `ConsumerPlaces.places(...)`.
  # @api private
  module ConsumerPlaces
    # librdkafka's numbers.
    OFFSETS = { beginning: -2, end: -1, stored: -1000 }.freeze
    INVALID_OFFSET = -1001

    module_function

    # ---- shapes ----

    def by_topic(places) = places.group_by(&:first).transform_values { |list| list.map { |place| place[1] }.sort }

    # @yieldparam place [Array]
    # @return [Hash{String => Hash{Integer => Object}}] what the block returns, by topic and partition; sorted and frozen
    def by_partition(places)
      topics = places.sort_by { |topic, partition| [topic, partition] }.each_with_object({}) do |place, found|
        (found[place[0]] ||= {})[place[1]] = yield(place)
      end
      topics.each_value(&:freeze).freeze
    end

    # A method accepts either some positional arguments or a Hash of topics. Without braces, Ruby takes a Hash for keywords.
    # @param count [Range] of positional arguments, instead of the Hash
    # @return [Hash, nil] nil: positional arguments were given
    def topics_given(form, known, given, braceless, count)
      Keywords.check(form, known, given.drop(count.end), given.empty? ? {} : braceless)
      return braceless if given.empty? && !braceless.empty?
      return given.first if given.first.is_a?(Hash) && given.size == 1
      return if count.cover?(given.size)

      raise ArgumentError, "#{Text.count(given.size, "argument")}; write #{form}, or a Hash of topics"
    end

    # ---- lists ----

    # @param default [Integer, nil] the offset of partitions given without one; nil: the offset is required, and a number
    # @return [Array<Array(String, Integer, Integer)>]
    def places(partitions, default)
      partitions.is_a?(Hash) or raise ArgumentError, "expected a Hash of topics to partitions, not #{partitions.class}"
      found = partitions.flat_map do |topic, list|
        name = topic_name(topic)
        unless list.is_a?(Hash) || (default && list.is_a?(Array))
          raise ArgumentError, "expected the partitions of #{Text.printable(name)} as a Hash#{" or Array" if default}, " \
                               "not #{list.inspect}"
        end

        list.map { |partition, offset| place(name, partition, offset || default, default) }
      end
      unrepeated(found)
    end

    # @param list [Array<Integer>, Integer]
    def partitions_of(topic, list)
      name = topic_name(topic)
      Array(list).uniq.map { |partition| [name, partition_number(partition), INVALID_OFFSET] }
    end

    def unrepeated(places)
      topic, partition = places.map { |place| place.first(2) }.tally.find { |_, count| count > 1 }&.first
      return places unless topic

      raise ArgumentError, "partition #{partition} of #{Text.printable(topic)} is given twice"
    end

    def place(name, partition, offset, default)
      offset = offset == default && default ? default : checked_offset(offset, default)
      return [name, partition_number(partition), offset] unless offset.is_a?(Offset)

      [name, partition_number(partition), offset.offset, offset.leader_epoch, Offset.__send__(:metadata_to_send, offset)]
    end

    def without_offsets(places) = places.map { |topic, partition| [topic, partition, INVALID_OFFSET] }

    # ---- values ----

    def topic_name(topic)
      name = topic.is_a?(Symbol) ? topic.name : topic
      raise ArgumentError, "a topic must be a String or Symbol, not #{topic.inspect}" unless name.is_a?(String)
      return name if TopicName.valid?(name) # librdkafka reports other names as topics that do not exist yet

      raise ArgumentError, "#{topic.inspect} is not a valid topic name: #{TopicName::FORM}"
    end

    # librdkafka takes what begins with "^" for a pattern.
    def topic_or_pattern(topic)
      pattern = topic.is_a?(Regexp) || (topic.is_a?(String) && topic.b.start_with?("^") && !topic.b.include?("\0"))
      pattern ? TopicPattern.of(topic) : topic_name(topic)
    end

    def partition_number(partition)
      return partition if partition.is_a?(Integer) && partition.between?(0, (2**31) - 1)

      raise ArgumentError, "a partition must be an Integer from 0, not #{partition.inspect}"
    end

    # @return [Integer, Offset, Time, Array(Symbol, Integer)] a number of librdkafka's, or what has to be resolved
    def checked_offset(offset, symbols)
      case offset
      when Offset then return offset
      when Integer then return offset if offset.between?(0, (2**63) - 1)
      when Symbol then return OFFSETS.fetch(offset) if symbols && OFFSETS.key?(offset)
      when Time, Array then return resolvable(offset) if symbols
      end

      kinds = "an Integer from 0#{symbols ? ", :beginning, :end, :stored, a Time or [:last, 10]" : " or an Offset"}"
      raise ArgumentError, "an offset must be #{kinds}, not #{offset.inspect}"
    end

    def resolvable(offset)
      milliseconds(offset) if offset.is_a?(Time)
      return offset if offset.is_a?(Time)
      return offset if offset.size == 2 && offset[0] == :last && offset[1].is_a?(Integer) && offset[1].between?(0, (2**63) - 1)

      raise ArgumentError, "an offset may be [:last, 10], the last 10 messages, not #{offset.inspect}"
    end

    # The first whole ms that is not before the time.
    def milliseconds(time)
      since = time.is_a?(Time) ? (time.to_r * 1000).ceil : time
      return since if since.is_a?(Integer) && since.between?(0, (2**63) - 1)

      raise ArgumentError, "a time must be a Time or an Integer (ms), not before 1970, not #{time.inspect}"
    end
  end
end
