# frozen_string_literal: true

module Penstock
  # The arguments of a consumer that name partitions and offsets, checked, as its native calls take them: lists of topic,
  # partition, offset.
  # @api private
  module ConsumerPlaces
    # librdkafka's numbers.
    OFFSETS = { beginning: -2, end: -1, stored: -1000 }.freeze
    INVALID_OFFSET = -1001

    private

    def by_topic(places) = places.group_by(&:first).transform_values { |list| list.map { |place| place[1] }.sort }

    # @param default [Integer, nil] the offset of partitions given without one; nil: the offset is required, and a number
    # @return [Array<Array(String, Integer, Integer)>]
    def places(partitions, default)
      partitions.is_a?(Hash) or raise ArgumentError, "expected a Hash of topics to partitions, not #{partitions.class}"
      partitions.flat_map do |topic, list|
        name = topic_name(topic)
        unless list.is_a?(Hash) || (default && list.is_a?(Array))
          raise ArgumentError, "expected the partitions of #{Text.printable(name)} as a Hash#{" or Array" if default}, " \
                               "not #{list.inspect}"
        end

        list.map { |partition, offset| place(name, partition, offset || default, default) }
      end
    end

    def place(name, partition, offset, default)
      offset = offset == default && default ? default : offset_number(offset, symbols: default)
      need_group("assigning from :stored") if offset == OFFSETS[:stored]
      [name, partition_number(partition), offset]
    end

    def topic_name(topic)
      name = topic.is_a?(Symbol) ? topic.name : topic
      return name if name.is_a?(String) && !name.empty? && !name.b.include?("\0") # UTF-16 has some

      raise ArgumentError, "a topic must be a String or Symbol, not #{topic.inspect}"
    end

    def partition_number(partition)
      return partition if partition.is_a?(Integer) && partition.between?(0, (2**31) - 1)

      raise ArgumentError, "a partition must be an Integer from 0, not #{partition.inspect}"
    end

    def offset_number(offset, symbols: true)
      return offset if offset.is_a?(Integer) && offset.between?(0, (2**63) - 1)
      return OFFSETS.fetch(offset) if symbols && OFFSETS.key?(offset)

      kinds = "an Integer from 0#{", :beginning, :end or :stored" if symbols}"
      raise ArgumentError, "an offset must be #{kinds}, not #{offset.inspect}"
    end

    # @return [Array<Array(String, Integer, Integer)>] with the time, in ms, as offset
    def times(topic, partitions, time)
      name = topic_name(topic)
      since = milliseconds(time)
      Array(partitions).map { |partition| [name, partition_number(partition), since] }
    end

    # The first whole ms that is not before the time.
    def milliseconds(time)
      since = time.is_a?(Time) ? (time.to_r * 1000).ceil : time
      return since if since.is_a?(Integer) && since.between?(0, (2**63) - 1)

      raise ArgumentError, "a time must be a Time or an Integer (ms), not before 1970, not #{time.inspect}"
    end

    def without_offsets(places) = places.map { |topic, partition| [topic, partition, INVALID_OFFSET] }
  end
end
