# frozen_string_literal: true

require_relative "test_helper"

class ProducerTest < PenstockTest
  def test_produce_sync_returns_the_report_of_a_delivered_message
    topic = topic(partitions: 1)
    report = producer.produce_sync(topic:, payload: "hello", label: :mine)
    assert_equal [topic, 0, 0, :mine], [report.topic, report.partition, report.offset, report.label]
    assert_predicate report, :persisted?
    assert_nil report.error
    assert_operator report.latency, :>, 0
    assert_predicate report, :frozen?
  end
end
