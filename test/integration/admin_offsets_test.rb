# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/admin_on_kafka"
require_relative "../support/limited"
require_relative "../support/secure_kafka"

# Offsets of partitions, lag, deleting records and electing leaders, on a real Apache Kafka.
class AdminOffsetsTest < AdminOnKafka
  # In a transaction that is open while the block runs.
  def with_open_transaction(topic, partition, count)
    sender = producer("transactional.id": random)
    sender.transaction do
      sender.produce_many_sync(Array.new(count) { { topic:, partition:, payload: "open" } })
      yield
    end
  end

  # ---- offsets ----

  def test_offsets_of_places
    topic = new_topic(10, partitions: 6)
    places = { 0 => :beginning, 1 => :end, 2 => START + 4.2, 3 => Time.at(0), 4 => Time.now, 5 => START + 9 }
    %i[read_uncommitted read_committed].each do |isolation|
      found = admin.offsets({ topic => places }, isolation:)
      assert_equal({ topic => { 0 => 0, 1 => 10, 2 => 5, 3 => 0, 4 => 10, 5 => 9 } }, found.raise!.ok)
      assert Ractor.shareable?(found)
    end
    assert_empty admin.offsets({})
  end

  def test_isolation_decides_about_an_open_transaction
    topic = new_topic(5)
    with_open_transaction(topic, 0, 5) do
      assert_equal 10, admin.offsets({ topic => { 0 => :end } })[topic, 0]
      assert_equal 5, admin.offsets({ topic => { 0 => :end } }, isolation: :read_committed)[topic, 0]
      assert_equal 10, admin.offsets({ topic => { 0 => Time.now + 60 } })[topic, 0]
      assert_equal 5, admin.offsets({ topic => { 0 => Time.now + 60 } }, isolation: :read_committed)[topic, 0]
    end
  end

  # Otherwise librdkafka before 2.3.0 would use it for what is asked as :read_committed.
  def test_the_configured_isolation_does_not_matter
    topic = new_topic(5)
    other = new_admin("isolation.level": "read_uncommitted")
    with_open_transaction(topic, 0, 5) do
      assert_equal 5, other.offsets({ topic => { 0 => :end } }, isolation: :read_committed)[topic, 0]
    end
  end

  def test_max_timestamp
    topic = new_topic(10, partitions: 2)
    unless since?("2.3")
      error = assert_raises(Penstock::UnsupportedError) { admin.offsets({ topic => { 0 => :max_timestamp } }) }
      assert_match(/requires 2.3.0/, error.message)
      return
    end
    @sender.produce_sync(topic:, partition: 0, payload: "old", timestamp: START)
    assert_equal 9, admin.offsets({ topic => { 0 => :max_timestamp } })[topic, 0]
    assert_nil admin.offsets({ new_topic => { 0 => :max_timestamp } }).values.first
  end

  def test_offsets_in_part
    topic = new_topic(3)
    found = admin.offsets({ topic => { 0 => :end, 7 => :end }, "#{topic}-missing" => { 0 => :end } })
    assert_equal({ topic => { 0 => 3 } }, found.ok)
    error = assert_raises(Penstock::AdminError) { found[topic, 7] }
    assert_equal [topic, 7], [error.topic, error.partition]
    assert_code(:unknown_topic_or_part) { found["#{topic}-missing", 0] }
    assert_code(:unknown_topic_or_part) { admin.offsets({ "#{topic}-missing" => { 0 => :end } })["#{topic}-missing", 0] }
  end

  # ---- records ----

  def test_delete_records
    topic = new_topic(10, partitions: 5)
    found = admin.delete_records({ topic => { 0 => 4, 1 => :end, 2 => START + 6.5, 3 => Time.now, 4 => 0 } })
    assert_equal({ topic => { 0 => 4, 1 => 10, 2 => 7, 3 => 10, 4 => 0 } }, found.raise!.ok)
    assert_equal [4, 10, 7, 10, 0], admin.offsets({ topic => (0..4).to_h { |partition| [partition, :beginning] } }).values
    assert_equal 4, take(reading(topic), 1).first.offset
    assert_empty admin.delete_records({})
  end

  def test_delete_records_in_part
    topic = new_topic(3, partitions: 2)
    found = admin.delete_records({ topic => { 0 => 99, 1 => 1, 7 => Time.now }, "#{topic}-missing" => { 0 => 1 } })
    assert_equal({ topic => { 1 => 1 } }, found.ok)
    assert_code(:offset_out_of_range) { found[topic, 0] }
    assert_equal [7], found.errors[topic].keys - [0]
    assert_code(:unknown_topic_or_part) { found["#{topic}-missing", 0] }
    assert_code(:unknown_topic_or_part) { admin.delete_records({ "#{topic}-missing" => { 0 => 1 } }).raise! }
  end

  # ---- lag ----

  def test_lag_is_what_kafkas_own_tool_prints
    skip "bin/matrix has no Java for Kafka's commands" if ENV["PENSTOCK_MATRIX"]
    topic = new_topic(10, partitions: 4)
    id = random
    admin.alter_group_offsets(id, { topic => { 0 => 4, 1 => 10, 2 => 0, 3 => 2 } }).raise!
    admin.delete_records({ topic => { 2 => 3 } }).raise!
    with_open_transaction(topic, 0, 5) do
      assert_equal({ 0 => 11, 1 => 0, 2 => 10, 3 => 8 }, kafka_lag(id, topic)) # the tool ignores where partition 2 begins
      assert_equal({ topic => { 0 => 11, 1 => 0, 2 => 7, 3 => 8 } }, admin.lag(id, isolation: :read_uncommitted)[id])
      assert_equal({ topic => { 0 => 6, 1 => 0, 2 => 7, 3 => 8 } }, admin.lag(id)[id])
    end
  end

  # By partition.
  def kafka_lag(group, topic)
    tool = [File.expand_path("../../bin/kafka", __dir__), "java", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"]
    output, = Limited.capture2e(*tool, "--bootstrap-server", SERVERS, "--describe", "--group", group)
    rows = output.lines.map(&:split).select { |row| row[0, 2] == [group, topic] }
    rows.to_h { |row| [Integer(row[2]), Integer(row[5])] }
  end

  def test_lag_of_an_open_transaction
    topic = new_topic(10)
    id = random
    admin.alter_group_offsets(id, { topic => { 0 => 4 } }).raise!
    with_open_transaction(topic, 0, 5) do
      assert_equal({ topic => { 0 => 6 } }, admin.lag(id)[id])
      assert_equal({ topic => { 0 => 11 } }, admin.lag(id, isolation: :read_uncommitted)[id])
    end
  end

  def test_lag_of_several_groups_is_never_negative_and_nil_if_unknown
    topic = new_topic(10, partitions: 2)
    gone = new_topic(1)
    one = random
    two = random
    none = random
    admin.alter_group_offsets(one, { topic => { 0 => 99, 1 => 1 }, gone => { 0 => 0 } }).raise!
    admin.alter_group_offsets(two, { topic => { 0 => 7 } }).raise!
    found = admin.lag(one, two, none)
    assert_equal({ one => { gone => { 0 => 1 }, topic => { 0 => 0, 1 => 9 } }, two => { topic => { 0 => 3 } }, none => {} },
                 found.raise!.ok)
    assert Ractor.shareable?(found)
    assert_empty admin.lag
  end

  # Brokers forget a group's offsets soon after its topic: until then, its lag is unknown.
  def test_lag_of_a_deleted_topic_does_not_hide_that_of_others
    topic = new_topic(10)
    gone = new_topic(1)
    id = random
    admin.alter_group_offsets(id, { topic => { 0 => 4 }, gone => { 0 => 0 } }).raise!
    admin.delete_topics(gone)
    @topics.delete(gone)
    found = admin.lag(id)[id]
    assert_equal({ 0 => 6 }, found[topic])
    assert_includes [nil, { 0 => nil }], found[gone]
  end

  # ---- elections ----

  def test_elect_leaders
    topic = new_topic(0, partitions: 2)
    unless since?("2.6.0")
      assert_raises(Penstock::UnsupportedError) { admin.elect_leaders(:preferred, nil) }
      return
    end
    found = admin.elect_leaders(:preferred, { topic => [0, 1], "#{topic}-missing" => [0] })
    assert_equal({ topic => { 0 => false, 1 => false } }, found.ok)
    assert_code(:unknown_topic_or_part) { found["#{topic}-missing", 0] }
    assert_predicate admin.elect_leaders(:preferred, nil), :ok?
    assert_predicate admin.elect_leaders(:unclean, { topic => [0] }), :ok?
  end

  # ---- rights ----

  def test_a_user_without_the_right
    hidden = new_topic(0, prefix: "hidden")
    topic = new_topic(1)
    guest = new_admin(**SecureKafka::AS_GUEST, "bootstrap.servers": SecureKafka::SASL)
    found = guest.offsets({ hidden => { 0 => :end }, topic => { 0 => :end } })
    assert_equal({ topic => { 0 => 1 } }, found.ok)
    assert_code(:topic_authorization_failed) { found[hidden, 0] }
    assert_code(:topic_authorization_failed) { guest.delete_records({ hidden => { 0 => 1 }, topic => { 0 => 1 } })[hidden, 0] }
    id = random
    admin.alter_group_offsets(id, { hidden => { 0 => 0 }, topic => { 0 => 0 } }).raise!
    assert_equal({ topic => { 0 => 0 } }, guest.lag(id)[id]) # the guest has deleted the record
  end
end
