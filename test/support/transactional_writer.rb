# frozen_string_literal: true

require_relative "reader"
require "securerandom"

# Writes transactions with librdkafka's own producer, called through Fiddle like {Reader}'s consumer.
class TransactionalWriter
  PRODUCER = 0
  COPY = 2

  module Native
    library = Fiddle.dlopen($LOADED_FEATURES.grep(%r{penstock/penstock\.\w+\z}).first)
    pointer = Fiddle::TYPE_VOIDP
    int = Fiddle::TYPE_INT
    size = Fiddle::TYPE_SIZE_T
    {
      init_transactions: [pointer, pointer, int], begin_transaction: [pointer, pointer],
      commit_transaction: [pointer, pointer, int], abort_transaction: [pointer, pointer, int], flush: [int, pointer, int],
      topic_new: [pointer, pointer, pointer, pointer], topic_destroy: [Fiddle::TYPE_VOID, pointer],
      produce: [int, pointer, int, int, pointer, size, pointer, size, pointer]
    }.each do |name, (result, *arguments)|
      function = Fiddle::Function.new(library["rd_kafka_#{name}"], arguments, result)
      define_singleton_method(name) { |*values| function.call(*values) }
    end
  end

  def initialize(servers)
    @settings = { "bootstrap.servers": servers, "transactional.id": "test-#{SecureRandom.hex(6)}", log_level: 0 }
  end

  # Two transactions: an aborted one, then a committed one.
  def write(topic, partition:, committed:, aborted:)
    with_producer do |producer|
      check Native.init_transactions(producer, 20_000)
      transaction(producer, topic, partition, aborted)
      check Native.abort_transaction(producer, 20_000)
      transaction(producer, topic, partition, committed)
      check Native.commit_transaction(producer, 20_000)
    end
  end

  private

  def with_producer
    text = "\0".b * 512
    conf = Reader::Native.conf_new
    @settings.each { |name, value| Reader::Native.conf_set(conf, name.to_s, value.to_s, text, text.bytesize) }
    producer = Reader::Native.new(PRODUCER, conf, text, text.bytesize)
    raise text.unpack1("Z*") if producer.null?

    yield producer
  ensure
    Reader::Native.destroy(producer) if producer && !producer.null?
  end

  def transaction(producer, topic, partition, payloads)
    check Native.begin_transaction(producer)
    handle = Native.topic_new(producer, topic, nil)
    payloads.each do |payload|
      Native.produce(handle, partition, COPY, payload, payload.bytesize, nil, 0, nil).zero? or raise "not produced"
    end
    Native.flush(producer, 20_000).zero? or raise "not flushed"
    Native.topic_destroy(handle)
  end

  def check(error)
    raise "a transactional call failed" unless error.null?
  end
end
