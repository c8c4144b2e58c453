# frozen_string_literal: true

require_relative "attack"

class HostileBroker
  # Answers that are large, and correct in every byte.
  module Giants
    MANY = 100_000
    # librdkafka makes a thread for each broker, and accepts 10,000, for which only a large machine has the memory.
    BROKERS = 1_000
    GROWTH = 250 # MB
    MARK = 0x7e57ab1e # stands for the item's number
    NAME = "t%06d"

    class << self
      # @return [Array<Attack>]
      def attacks(clients = %i[produce examine])
        clients.flat_map do |client|
          [
            metadata("#{MANY} topics", client, "topics", MANY, :topic) { |number| format(NAME, number) },
            metadata("#{MANY} partitions", client, "topics.partitions", MANY, :partition, &method(:number)),
            metadata("#{BROKERS} brokers", client, "brokers", BROKERS, :broker, &method(:number)),
            metadata("#{MANY} brokers", client, "brokers", MANY, :broker, &method(:number)),
            metadata("#{MANY} replicas", client, "topics.partitions.replicas", MANY, :replica, &method(:number))
          ]
        end
      end

      private

      def number(number) = [number].pack("l>")

      def metadata(name, client, array, count, kind, &vary)
        bytes = [true, false].to_h { |flexible| [flexible, items(kind, count, flexible, &vary)] }
        Attack.new(name, :metadata, client:, times: 2, growth: GROWTH) do |exchange|
          exchange.respond(with_items(exchange.answer, array, count, bytes.fetch(exchange.answer.flexible?)))
        end
      end

      # All items except the one that a good answer has.
      def items(kind, count, flexible)
        item = Answer.new(flexible:)
        send(kind, item)
        parts = item.to_s.split(kind == :topic ? format(NAME, 0) : number(MARK), -1)
        (2..count).map { |number| parts.join(yield(number)) }.join
      end

      def with_items(answer, array, count, items)
        index = answer.fields.index { |field| field.name == array }
        before, after = [answer.fields[0...index], answer.fields[(index + 1)..]].map { |fields| fields.map(&:bytes).join }
        first = answer.fields.drop(index + 1).take_while { |field| field.name.start_with?("#{array}.") }
        first = first.sum { |field| field.bytes.bytesize }
        before + Answer.count(count, flexible: answer.flexible?) + after[0, first] + items + after[first..]
      end

      def topic(item)
        item.error(:error)
        item.string(:name, format(NAME, 0))
        item.int8(:internal)
        item.array(:partitions, []) { nil }
        item.int32(:authorized_operations) if item.flexible?
        item.tags
      end

      def partition(item)
        item.error(:error)
        item.int32(:number, MARK)
        item.int32(:leader, 1)
        item.int32(:leader_epoch) if item.flexible?
        %i[replicas in_sync].each { |name| item.array(name, [1]) { |id| item.int32(:id, id) } }
        item.array(:offline, []) { nil } if item.flexible?
        item.tags
      end

      def broker(item)
        item.int32(:id, MARK)
        item.string(:host, "127.0.0.1")
        item.int32(:port, MARK) # each has its own address, otherwise librdkafka takes them for one broker
        item.string(:rack, nil)
        item.tags
      end

      def replica(item) = item.int32(:id, MARK)
    end
  end
end
