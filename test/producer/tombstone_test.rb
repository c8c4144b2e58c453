# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/producer_test_case"

class ProducerTombstoneTest < ProducerTestCase
  WAYS = {
    tombstone_sync: ->(producer, message) { producer.tombstone_sync(message) },
    tombstone_async: ->(producer, message) { producer.tombstone_async(message).wait },
    tombstone_many_sync: ->(producer, message) { producer.tombstone_many_sync([message]).first.report },
    tombstone_many_async: ->(producer, message) { producer.tombstone_many_async([message]).first.wait }
  }.freeze

  WAYS.each do |name, way|
    # behaviour: tombstone_sync, _async, _many_sync, _many_async
    define_method("test_#{name}_stores_the_key_without_a_payload_in_its_partition") do
      topic = topic(partitions: 2)
      report = way.call(producer, { topic:, key: "gone", partition: 1, headers: { "why" => "asked" } })
      assert_equal [topic, 1, 0, true], [report.topic, report.partition, report.offset, report.delivered?]
      record = stored(topic, partitions: 2).first
      assert_equal [1, "gone", nil, [%w[why asked]]], [record.partition, record.key, record.payload, record.headers]
    end

    # behaviour: tombstone_sync, _async, _many_sync, _many_async
    define_method("test_#{name}_omits_a_given_payload_and_does_not_change_the_callers_hash") do
      topic = topic(partitions: 1)
      message = { topic:, key: "gone", partition: 0, payload: "still here" }.freeze
      way.call(producer, message)
      assert_equal [nil], stored(topic).map(&:payload)
      assert_equal "still here", message[:payload]
    end

    # behaviour: tombstone_sync, _async, _many_sync, _many_async
    define_method("test_#{name}_requires_a_nonempty_key_and_a_partition") do
      topic = topic(partitions: 1)
      producer = self.producer
      good = { topic:, key: "gone", partition: 0 }
      [nil, "", :gone, 5].each do |key|
        error = assert_raises(Penstock::MessageInvalidError) { way.call(producer, { **good, key: }) }
        assert_match(/[Aa] tombstone requires a non-empty :key/, error.message)
      end
      [nil, -1, "0", 0.0].each do |partition|
        error = assert_raises(Penstock::MessageInvalidError) { way.call(producer, { **good, partition: }) }
        assert_match(/[Aa] tombstone requires the :partition/, error.message)
      end
      [good.except(:key), good.except(:partition), good.except(:topic), nil, "gone"].each do |message|
        assert_raises(Penstock::MessageInvalidError) { way.call(producer, message) }
      end
      assert_empty stored(topic)
    end
  end

  # behaviour: tombstone_sync, _async, _many_sync, _many_async
  def test_the_error_of_a_batch_names_the_invalid_tombstone_and_nothing_is_sent
    topic = topic(partitions: 1)
    good = { topic:, key: "gone", partition: 0 }
    %i[tombstone_many_sync tombstone_many_async].each do |method|
      error = assert_raises(Penstock::MessageInvalidError) { producer.public_send(method, [good, good.except(:key), good]) }
      assert_match(/Message 1 of the batch/, error.message)
      assert_raises(Penstock::MessageInvalidError) { producer.public_send(method, good) }
    end
    assert_empty stored(topic)
  end

  WAYS.each_key do |name|
    # behaviour: tombstone_sync, _async, _many_sync, _many_async
    define_method("test_#{name}_publishes_an_invalid_tombstone_like_any_invalid_message") do
      one = unreachable_producer
      errors = []
      one.monitor.subscribe("error.occurred") { |event| errors << event }
      message = { topic: "test", partition: 0 }
      many = name.to_s.include?("many")
      given = many ? [message] : message
      error = assert_raises(Penstock::MessageInvalidError) { one.public_send(name, given) }
      type = "#{many ? "messages.produce_many" : "message.produce"}_#{name.to_s.split("_").last}"
      payloads = errors.map { |event| event.payload.values_at(:type, :error, many ? :messages : :message) }
      assert_equal [[type, error, given]], payloads
      one.close
      assert_raises(Penstock::ProducerClosedError) { one.public_send(name, given) }
    end
  end
end
