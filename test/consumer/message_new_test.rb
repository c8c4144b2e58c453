# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# Messages that a test makes for the code under test that handles messages.
class MessageNewTest < ConsumerTestCase
  ALL = { topic: "orders", partition: 3, offset: 7, timestamp: 1_700_000_000_123, timestamp_type: :log_append_time, key: "k",
          payload: "p", headers: { "a" => "1", "b" => ["2", nil] }, leader_epoch: 4 }.freeze

  def test_a_message_has_the_given_attributes
    assert_equal ALL, Penstock::Message.new(**ALL).to_h
  end

  def test_the_id_names_its_place
    assert_equal "orders/3/7", Penstock::Message.new(**ALL).id
  end

  def test_only_the_topic_is_required
    assert_equal({ topic: "orders", partition: 0, offset: 0, timestamp: nil, timestamp_type: nil, key: nil, payload: nil,
                   headers: {}, leader_epoch: nil }, Penstock::Message.new(topic: :orders).to_h)
    assert_raises(ArgumentError) { Penstock::Message.new }
  end

  def test_a_made_message_equals_the_message_that_a_consumer_gets
    name = topic(partitions: 1)
    sent = { topic: name, payload: "pé", key: "k", headers: { "a" => "1", "b" => %w[2 3] }, timestamp: 1_700_000_000_123 }
    producer.produce_sync(**sent, partition: 0)
    got = take(reading(name), 1).first
    made = Penstock::Message.new(**sent, leader_epoch: got.leader_epoch)
    assert_equal got, made
    encodings = [got, made].map { |one| [one.topic, one.payload, one.key, *one.headers.flatten(2)].map(&:encoding) }
    assert_equal(*encodings)
  end

  def test_header_names_given_as_symbols_become_strings
    message = Penstock::Message.new(topic: "orders", headers: { a: "1", "é": %w[2 3] })
    assert_equal({ "a" => "1", "é" => %w[2 3] }, message.headers)
    assert_equal [true, Encoding::UTF_8], [message.headers.keys.all?(&:frozen?), message.headers.keys.last.encoding]
  end

  def test_a_message_is_frozen_shareable_and_independent_of_its_arguments
    payload = +"before"
    headers = { "a" => [+"x"] }
    message = Penstock::Message.new(topic: "orders", payload:, headers:, timestamp: Time.at(1, 5, :millisecond))
    payload << "after"
    headers["a"][0] << "after"
    assert_equal ["before", "x", 1_005], [message.payload, message.headers["a"][0], message.timestamp]
    assert Ractor.shareable?(message)
  end

  # A handler under test may ask a consumer to commit its message.
  def test_a_consumer_commits_a_made_message
    name = topic(partitions: 1)
    one = group_consumer
    one.commit(Penstock::Message.new(topic: name, offset: 4))
    assert_equal({ 0 => 5 }, one.committed(name, 0))
  end

  {
    { topic: "" } => /topic/, { topic: nil } => /topic/, { topic: "a b" } => /topic/, { partition: -1 } => /partition/,
    { partition: 2**31 } => /partition/, { partition: "0" } => /partition/, { offset: -1 } => /offset/,
    { offset: 1.0 } => /offset/,
    { timestamp: "now" } => /timestamp/, { timestamp: -1 } => /timestamp/, { timestamp_type: :late } => /timestamp_type/,
    { key: 5 } => /key.*use to_s/, { payload: { a: 1 } } => /payload/, { headers: [] } => /headers/,
    { headers: { 1 => "1" } } => /headers.*use to_s/, { headers: { "a" => 1 } } => /headers.*use to_s/,
    { leader_epoch: -1 } => /epoch/
  }.each do |wrong, pattern|
    define_method("test_a_message_cannot_be_made_with_#{wrong}") do
      error = assert_raises(ArgumentError) { Penstock::Message.new(topic: "orders", **wrong) }
      assert_match pattern, error.message
    end
  end
end
