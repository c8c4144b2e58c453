# frozen_string_literal: true

require_relative "../test_helper"

# What a plan makes of declarations and topics, without a cluster.
class TopicPlanTest < PenstockTest
  Admin = Penstock::Admin

  # @return [Array<Array>] kinds and settings of the differences of a topic that has this setting
  def differences(is, declared, setting: "a.setting", source: :topic)
    catalog = Admin::TopicCatalog.new { |declare| declare.topic "orders", config: { setting => declared } }
    partition = Admin::Partition.new(topic: "orders", id: 0, leader: 1, replicas: [1], in_sync: [1])
    topic = Admin::Topic.new(name: "orders", partitions: [partition])
    entry = Admin::ConfigEntry.new(name: setting, value: is, source:, read_only: false, sensitive: false, synonyms: [])
    Admin::TopicPlan.const_get(:Comparison).new(catalog["orders"], topic, { setting => entry }).call.map(&:kind)
  end

  # Brokers return a value as they write it. Otherwise applying the same declaration would change the topic each time.
  def test_a_value_in_another_form_is_no_difference
    [["1.0", 1], ["1.0E-5", 0.00001], %w[100 0100], ["compact,delete", "compact, delete"], %w[true TRUE], %w[1000 1e3],
     ["0.5", 0.50], ["delete", :delete], ["", ""], ["a,b", %w[a b]]].each do |is, declared|
      assert_empty differences(is, declared), [is, declared].inspect
    end
  end

  def test_another_value_is_a_difference
    [["1", 2], %w[9223372036854775807 9223372036854775806], ["compact,delete", "delete,compact"], %w[delete Delete], ["a", ""],
     %w[3.0-IV1 3.0-IV2], %w[1e999999999 1e999999998], [nil, "a"], ["1,2", "1"]].each do |is, declared|
      assert_equal [:set], differences(is, declared), [is, declared].inspect
    end
    assert_equal [:unset], differences("1", nil)
    assert_empty differences("1", nil, source: :default)
    assert_empty differences("1", 1, source: :static_broker)
  end
end
