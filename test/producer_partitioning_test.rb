# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/producer_test_case"
require "zlib"

class ProducerPartitioningTest < ProducerTestCase
  KEYS = [*"a".."z", "foobar", "a-little-bit-long-string", "日本語", "\xFF\0".b].freeze
  MURMUR2 = { # from the tests of Kafka's own clients
    "21" => -973_932_308, "foobar" => -790_332_482, "a-little-bit-long-string" => -985_981_536, "abc" => 479_470_107,
    "a-little-bit-longer-string" => -1_486_304_829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8" => -58_897_971
  }.freeze

  def partitions_of(partitioner, partitions: 8, **settings)
    topic = topic(partitions:)
    messages = yield.map { |message| { topic:, payload: "", **message } }
    producer(partitioner:, **settings).produce_many_sync(messages).map { |handle| handle.report.partition }
  end

  def keyed(partitioner, keys, name = :key) = partitions_of(partitioner) { keys.map { |key| { name => key } } }

  %w[consistent consistent_random murmur2 murmur2_random fnv1a fnv1a_random].each do |partitioner|
    define_method("test_#{partitioner}_sends_a_partition_key_where_the_same_key_goes") do
      by_key = keyed(partitioner, KEYS)
      assert_equal by_key, keyed(partitioner, KEYS, :partition_key)
      assert_operator by_key.uniq.size, :>, 2
    end
  end

  %w[consistent consistent_random].each do |partitioner|
    define_method("test_#{partitioner}_is_crc32") do
      assert_equal KEYS.map { |key| Zlib.crc32(key) % 8 }, keyed(partitioner, KEYS)
    end
  end

  %w[murmur2 murmur2_random].each do |partitioner|
    define_method("test_#{partitioner}_is_that_of_the_java_client") do
      assert_equal MURMUR2.values.map { |hash| (hash & 0x7fffffff) % 8 }, keyed(partitioner, MURMUR2.keys)
    end
  end

  def test_partition_key_decides_and_key_is_still_stored
    topic = topic(partitions: 8)
    producer = self.producer
    expected = producer.produce_sync(topic:, payload: "", key: "deciding").partition
    10.times do |i|
      assert_equal expected, producer.produce_sync(topic:, payload: "", key: "k#{i}", partition_key: "deciding").partition
    end
    assert_equal ["deciding", *Array.new(10) { |i| "k#{i}" }], stored(topic, partitions: 8).map(&:key)
  end

  def test_an_explicit_partition_wins_over_the_key
    assert_equal [0, 1, 2, 3], partitions_of("murmur2", partitions: 4) { Array.new(4) { |i| { key: "same", partition: i } } }
  end

  def test_partition_minus_1_lets_the_partitioner_choose
    assert_equal keyed("murmur2", KEYS), partitions_of("murmur2") { KEYS.map { |key| { key:, partition: -1 } } }
  end

  def test_random_spreads_also_what_has_a_key
    assert_operator keyed("random", ["same"] * 200).uniq.size, :>, 1
    assert_operator keyed("random", ["same"] * 200, :partition_key).uniq.size, :>, 1
  end

  %w[consistent_random murmur2_random fnv1a_random random].each do |partitioner|
    define_method("test_#{partitioner}_keeps_messages_without_key_together_for_the_sticky_time") do
      none = Array.new(200) { |i| i.even? ? {} : { key: nil } }
      assert_equal 1, partitions_of(partitioner, "sticky.partitioning.linger.ms": 60_000) { none }.uniq.size
      assert_operator partitions_of(partitioner, "sticky.partitioning.linger.ms": 0) { none }.uniq.size, :>, 1
    end
  end

  def test_consistent_random_takes_an_empty_key_for_none
    partitions = partitions_of("consistent_random", "sticky.partitioning.linger.ms": 0) { [{ key: "" }] * 200 }
    assert_operator partitions.uniq.size, :>, 1
  end

  # As librdkafka does when it partitions by itself.
  %w[murmur2_random fnv1a_random].each do |partitioner|
    define_method("test_#{partitioner}_hashes_an_empty_key_like_any_other") do
      assert_equal 1, partitions_of(partitioner, "sticky.partitioning.linger.ms": 1) { [{ key: "" }] * 200 }.uniq.size
    end
  end

  def test_messages_without_key_spread_over_partitions_in_time
    topic = topic(partitions: 4)
    producer = producer("linger.ms": 0, "sticky.partitioning.linger.ms": 1)
    seen = []
    eventually { (seen |= [producer.produce_sync(topic:, payload: "").partition]).size == 4 }
  end

  def test_consistent_sends_all_without_key_to_one_partition
    assert_equal [0], partitions_of("consistent", "sticky.partitioning.linger.ms": 0) { [{}] * 100 }.uniq
  end
end
