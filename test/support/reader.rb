# frozen_string_literal: true

require "fiddle"
require_relative "slowness"

# Reads topics back as the broker stored them, with librdkafka's own consumer, called through Fiddle. It shares no code with the
# gem, only the library that the extension is linked with.
class Reader
  # key, payload and header values are binary Strings or nil; headers an Array of [name, value] in order.
  Record = Struct.new(:topic, :partition, :offset, :timestamp, :key, :payload, :headers)

  CONSUMER = 1
  FROM_THE_START = -2
  PARTITION_EOF = -191
  # rd_kafka_message_t: err, (padding,) rkt, partition, (padding,) payload, len, key, key_len, offset, _private
  MESSAGE = "lx4Jlx4JJJJqJ"
  MESSAGE_SIZE = 72

  # rd_kafka_...: its return type and its argument types
  module Native
    types = { void: Fiddle::TYPE_VOID, int: Fiddle::TYPE_INT, long: Fiddle::TYPE_LONG_LONG, size: Fiddle::TYPE_SIZE_T,
              pointer: Fiddle::TYPE_VOIDP }
    library = Fiddle.dlopen($LOADED_FEATURES.grep(%r{penstock/penstock\.\w+\z}).first)
    {
      conf_new: %i[pointer], conf_set: %i[int pointer pointer pointer pointer size],
      new: %i[pointer int pointer pointer size], poll_set_consumer: %i[int pointer], destroy: %i[void pointer],
      topic_partition_list_new: %i[pointer int], topic_partition_list_destroy: %i[void pointer],
      topic_partition_list_add: %i[pointer pointer pointer int],
      topic_partition_list_set_offset: %i[int pointer pointer int long],
      assign: %i[int pointer pointer], consumer_poll: %i[pointer pointer int], consumer_close: %i[int pointer],
      message_destroy: %i[void pointer], message_timestamp: %i[long pointer pointer],
      message_headers: %i[int pointer pointer], header_get_all: %i[int pointer size pointer pointer pointer]
    }.each do |name, (result, *arguments)|
      function = Fiddle::Function.new(library["rd_kafka_#{name}"], types.values_at(*arguments), types.fetch(result))
      define_singleton_method(name) { |*values| function.call(*values) }
    end
  end

  # @param settings [Hash] librdkafka's, for a cluster that needs more than an address
  def initialize(servers, **settings)
    @settings = { "bootstrap.servers": servers, "group.id": "reader-#{rand(2**32)}", "enable.auto.commit": false,
                  "enable.partition.eof": true, "fetch.wait.max.ms": 10, "fetch.error.backoff.ms": 10, log_level: 0,
                  **settings }
  end

  # @return [Array<Record>] all records of these partitions, by partition and offset
  def read(topic, partitions: 0...1, seconds: 20)
    with_consumer do |consumer|
      assign(consumer, topic, partitions)
      records = []
      ended = []
      deadline = Slowness.deadline(seconds)
      until ended.size == partitions.size
        raise "#{topic}: read #{records.size} records of #{ended.size} whole partitions" if deadline.passed?

        poll(consumer) { |record| record.is_a?(Integer) ? ended |= [record] : records << record.tap { _1.topic = topic } }
      end
      records.sort_by { |record| [record.partition, record.offset] }
    end
  end

  private

  def with_consumer
    text = "\0".b * 512
    conf = Native.conf_new
    @settings.each do |name, value|
      Native.conf_set(conf, name.to_s, value.to_s, text, text.bytesize).zero? or raise text.unpack1("Z*")
    end
    consumer = Native.new(CONSUMER, conf, text, text.bytesize)
    raise text.unpack1("Z*") if consumer.null?

    Native.poll_set_consumer(consumer)
    yield consumer
  ensure
    if consumer && !consumer.null?
      Native.consumer_close(consumer)
      Native.destroy(consumer)
    end
  end

  def assign(consumer, topic, partitions)
    list = Native.topic_partition_list_new(partitions.size)
    partitions.each do |partition|
      Native.topic_partition_list_add(list, topic, partition)
      Native.topic_partition_list_set_offset(list, topic, partition, FROM_THE_START)
    end
    Native.assign(consumer, list)
    Native.topic_partition_list_destroy(list)
  end

  # Yields a Record, or the number of a partition that is at its end. Yields nothing if nothing arrives for a while.
  def poll(consumer)
    message = Native.consumer_poll(consumer, 100)
    return if message.null?

    error, _, partition, payload, length, key, key_length, offset = message[0, MESSAGE_SIZE].unpack(MESSAGE)
    if error.zero?
      yield Record.new(nil, partition, offset, Native.message_timestamp(message, nil), bytes(key, key_length),
                       bytes(payload, length), headers(message))
    elsif error == PARTITION_EOF
      yield partition
    end
  ensure
    Native.message_destroy(message) unless message.nil? || message.null?
  end

  def bytes(address, size)
    Fiddle::Pointer.new(address)[0, size] unless address.zero?
  end

  def headers(message)
    list = pointer_to_pointer
    return [] unless Native.message_headers(message, list).zero?

    name, value, size = Array.new(3) { pointer_to_pointer }
    found = []
    while Native.header_get_all(list.ptr, found.size, name, value, size).zero?
      found << [name.ptr.to_s, bytes(value.ptr.to_i, size[0, Fiddle::SIZEOF_SIZE_T].unpack1("J"))]
    end
    found
  end

  def pointer_to_pointer = Fiddle::Pointer.malloc(Fiddle::SIZEOF_VOIDP, Fiddle::RUBY_FREE)
end
