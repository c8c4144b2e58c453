# frozen_string_literal: true

module Penstock
  class Admin
    # Checks the Hashes of topics and partitions that programs give, and makes the native client's rows of them: topic, partition,
    # offset, leader epoch, metadata.
    # @api private
    module PartitionLists
      NUMBERS = { end: -1, beginning: -2, max_timestamp: -3 }.freeze # librdkafka's
      INVALID_OFFSET = -1001
      MOST_PARTITION = (2**31) - 1
      MOST_OFFSET = (2**63) - 1
      private_constant :MOST_PARTITION, :MOST_OFFSET

      class << self
        # @param given [Hash{String => Array<Integer>}]
        # @return [Array<Array(String, Integer, Integer)>]
        def partitions(given)
          rows(given, Array, "an Array of partitions, such as [0, 1]") { |_, _, _| [INVALID_OFFSET] }
        end

        # @param given [Hash{String => Hash{Integer => Integer, Offset}}]
        def committed(given)
          rows(given, Hash, "a Hash of partitions to offsets, such as { 0 => 10 }") do |topic, partition, offset|
            next [offset.offset, offset.leader_epoch, Offset.__send__(:metadata_to_send, offset)] if offset.is_a?(Offset)

            [number(topic, partition, offset) || wrong(topic, partition, "an Integer from 0 or an Offset", offset)]
          end
        end

        # Of places in time: times in ms and {NUMBERS}.
        # @param given [Hash{String => Hash{Integer => Symbol, Time}}]
        def times(given)
          rows(given, Hash, "a Hash of partitions to :beginning, :end, :max_timestamp or a Time") do |topic, partition, place|
            next [NUMBERS.fetch(place) { wrong_symbol(topic, partition, place, NUMBERS.keys) }] if place.is_a?(Symbol)

            [time(place) || wrong(topic, partition, ":beginning, :end, :max_timestamp or a Time", place)]
          end
        end

        # Of records to delete: the offset is an Integer, -1 for the end, or a Time.
        # @param given [Hash{String => Hash{Integer => Integer, :end, Time}}]
        def ends(given)
          rows(given, Hash, "a Hash of partitions to an offset, :end or a Time") do |topic, partition, place|
            next [place == :end ? -1 : wrong_symbol(topic, partition, place, [:end])] if place.is_a?(Symbol)
            next [place] if place.is_a?(Time) && time(place)

            [number(topic, partition, place) || wrong(topic, partition, "an Integer from 0, :end or a Time", place)]
          end
        end

        # @return [Integer, nil] the first whole ms that is not before the time; nil: it is no Time since 1970
        def time(value)
          return unless value.is_a?(Time)

          since = (value.to_r * 1000).ceil
          since if since.between?(0, MOST_OFFSET)
        end

        private

        def rows(given, kind, form)
          given.is_a?(Hash) or raise ArgumentError, "expected a Hash of topics, not #{given.class}"
          given.flat_map do |topic, list|
            topic = Names.topic(topic)
            list.is_a?(kind) or raise ArgumentError, "the partitions of #{topic.inspect} must be #{form}, not #{list.inspect}"
            distinct(topic, list) if kind == Array
            list.map { |partition, value| [topic, partition_number(topic, partition), *yield(topic, partition, value)] }
          end
        end

        def distinct(topic, list)
          twice = list.tally.find { |_, count| count > 1 }&.first or return
          raise ArgumentError, "partition #{twice.inspect} of #{topic.inspect} is given twice"
        end

        def partition_number(topic, partition)
          return partition if Seconds.integer?(partition) && partition.between?(0, MOST_PARTITION)

          raise ArgumentError, "a partition of #{topic.inspect} must be an Integer from 0, not #{partition.inspect}"
        end

        def number(_topic, _partition, offset) = (offset if Seconds.integer?(offset) && offset.between?(0, MOST_OFFSET))

        def wrong(topic, partition, form, value)
          raise ArgumentError, "the offset of partition #{partition} of #{topic.inspect} must be #{form}, not #{value.inspect}"
        end

        def wrong_symbol(topic, partition, symbol, known)
          raise ArgumentError, "partition #{partition} of #{topic.inspect}: there is no place #{symbol.inspect}" \
                               "#{Suggestion.hint(symbol, known)}"
        end
      end
    end
    private_constant :PartitionLists
  end
end
