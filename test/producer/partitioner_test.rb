# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/producer_test_case"
require_relative "../support/java_partitions"
require "zlib"

class PartitionerTest < ProducerTestCase
  COUNTS = JavaPartitions::COUNTS
  KEYS = JavaPartitions::KEYS
  HASHING = %w[consistent consistent_random murmur2 murmur2_random fnv1a fnv1a_random].freeze
  ALL = [*HASHING, "random"].freeze # librdkafka's names
  # These partitioners do not hash a missing key as null: they treat it as an empty key.
  SINGLE = { "consistent" => 0, "murmur2" => 275_646_681, "fnv1a" => 0x811c9dc5 - 2**32 }.freeze

  # FNV-1a as a signed number, and its absolute value: librdkafka does here what a Go client does.
  def fnv1a(key)
    hash = key.bytes.reduce(0x811c9dc5) { |sum, byte| ((sum ^ byte) * 0x01000193) % 2**32 }
    hash < 2**31 ? hash : 2**32 - hash
  end

  # The key's partition, computed without librdkafka.
  def expected(partitioner, name, count)
    case partitioner
    when /consistent/ then Zlib.crc32(KEYS[name]) % count
    when /murmur2/ then JavaPartitions::GOLDEN[name][COUNTS.index(count) + 1]
    when /fnv1a/ then fnv1a(KEYS[name]) % count
    end
  end

  def partitions_of(partitioner, partitions: 7, **settings)
    topic = topic(partitions:)
    messages = yield.map { |message| { topic:, payload: "", **message } }
    producer(partitioner:, **QUICK, **settings).produce_many_sync(messages).map { |handle| handle.report.partition }
  end

  def test_fnv1a_of_this_test_is_the_published_one
    assert_equal [0x811c9dc5, 0xe40c292c, 0xbf9cf968].map { |hash| 2**32 - hash }, ["", "a", "foobar"].map { fnv1a(_1) }
  end

  def test_javas_partition_is_its_positive_hash_modulo_the_partitions
    JavaPartitions::GOLDEN.each_value do |hash, *partitions|
      assert_equal COUNTS.map { |count| (hash & 0x7fffffff) % count }, partitions
    end
    assert_equal KEYS.keys, JavaPartitions::GOLDEN.keys
  end

  # consistent_random treats an empty key as no key.
  def names_for(partitioner) = KEYS.keys - (partitioner == "consistent_random" ? ["empty"] : [])

  HASHING.each do |partitioner|
    COUNTS.each do |count|
      # behaviour: All of librdkafka's partitioners accept any key
      define_method("test_#{partitioner}_puts_every_key_into_its_partition_of_#{count}") do
        names = names_for(partitioner)
        places = partitions_of(partitioner, partitions: count) { names.map { |name| { key: KEYS[name] } } }
        assert_equal names.to_h { |name| [name, expected(partitioner, name, count)] }, names.zip(places).to_h
      end

      # behaviour: partition_key decides the partition as a key does
      # behaviour: A partition_key of any bytes selects the same partition as an equal key
      define_method("test_#{partitioner}_puts_every_partition_key_into_the_partition_of_the_same_key_of_#{count}") do
        names = KEYS.keys - ["empty"]
        places = partitions_of(partitioner, partitions: count) { names.map { |name| { partition_key: KEYS[name] } } }
        assert_equal names.to_h { |name| [name, expected(partitioner, name, count)] }, names.zip(places).to_h
      end
    end
  end

  ALL.each do |partitioner|
    # behaviour: All of librdkafka's partitioners accept any key
    define_method("test_#{partitioner}_delivers_messages_with_no_an_empty_and_any_other_key") do
      COUNTS.each do |count|
        places = partitions_of(partitioner, partitions: count) { [nil, *KEYS.values].map { |key| { key: } } }
        assert_equal KEYS.size + 1, places.size
        assert_empty places - [*0...count]
      end
    end
  end

  SINGLE.each do |partitioner, hash|
    define_method("test_#{partitioner}_treats_a_missing_key_like_an_empty_one") do
      places = partitions_of(partitioner, "sticky.partitioning.linger.ms": 0) { [{}, { key: nil }, { key: "" }] * 30 }
      assert_equal [hash.abs % 7], places.uniq
    end
  end

  # ---- every way to send ----

  def ways_to_send(producer)
    {
      sync: ->(messages) { messages.map { |message| producer.produce_sync(message).partition } },
      async: ->(messages) { messages.map { |message| producer.produce_async(message) }.map { |handle| handle.wait.partition } },
      many: ->(messages) { producer.produce_many_sync(messages).map { |handle| handle.report.partition } },
      without_the_gvl: lambda do |messages| # batches of 100 or more
        producer.produce_many_sync(messages * 5).last(messages.size).map { |handle| handle.report.partition }
      end
    }
  end

  # behaviour: All of librdkafka's partitioners accept any key
  # behaviour: A partition_key of any bytes selects the same partition as an equal key
  def test_all_ways_to_send_choose_javas_partition_for_a_key
    topic = topic(partitions: 100)
    producer = producer(partitioner: "murmur2_random")
    names = KEYS.keys - ["empty"]
    java = names.map { |name| expected("murmur2", name, 100) }
    ways_to_send(producer).each do |way, send|
      %i[key partition_key].each do |field|
        [{}, { headers: { "a" => "b" } }, { timestamp: 1 }].each do |more|
          assert_equal java, send.call(names.map { |name| { topic:, payload: "", field => KEYS[name], **more } }), [way, field]
        end
      end
    end
  end

  # behaviour: topic settings of a variant
  def test_a_variant_may_have_its_own_partitioner
    topic = topic(partitions: 100)
    names = KEYS.keys
    messages = names.map { |name| { topic:, payload: "", key: KEYS[name] } }
    producer = producer(partitioner: "fnv1a")
    of = ->(sender) { sender.produce_many_sync(messages).map { |handle| handle.report.partition } }
    assert_equal(names.map { expected("murmur2", _1, 100) }, of.call(producer.with(topic_config: { partitioner: "murmur2" })))
    assert_equal(names.map { expected("fnv1a", _1, 100) }, of.call(producer))
  end

  def test_the_default_is_consistent_random
    topic = topic(partitions: 100)
    names = names_for("consistent_random")
    handles = producer.produce_many_sync(names.map { |name| { topic:, payload: "", key: KEYS[name] } })
    assert_equal(names.map { expected("consistent", _1, 100) }, handles.map { |handle| handle.report.partition })
  end

  def test_an_unknown_partitioner_is_a_configuration_error
    error = assert_raises(Penstock::ConfigurationInvalidError) { producer(partitioner: "murmur3") }
    assert_match(/partitioner: the value is not valid; librdkafka accepts random, .*did you mean "murmur2"/, error.message)
  end

  # behaviour: partition_key decides the partition as a key does
  def test_partition_key_chooses_the_partition_and_the_key_is_still_stored
    topic = topic(partitions: 8)
    producer = self.producer
    expected = producer.produce_sync(topic:, payload: "", key: "deciding").partition
    10.times do |i|
      assert_equal expected, producer.produce_sync(topic:, payload: "", key: "k#{i}", partition_key: "deciding").partition
    end
    assert_equal ["deciding", *Array.new(10) { |i| "k#{i}" }], stored(topic, partitions: 8).map(&:key)
  end

  slow def test_a_key_is_stored_as_its_bytes
    topic = topic(partitions: 100)
    producer = producer(partitioner: "murmur2")
    KEYS.each_value { |key| producer.produce_async(topic:, payload: "", key:) }
    producer.flush
    assert_equal KEYS.values.map(&:b).sort, stored(topic, partitions: 100).map(&:key).sort
  end

  def test_an_explicit_partition_wins_over_the_key
    assert_equal [0, 1, 2, 3], partitions_of("murmur2", partitions: 4) { Array.new(4) { |i| { key: "same", partition: i } } }
  end

  def test_partition_minus_1_lets_the_partitioner_choose
    keys = KEYS.values
    places = partitions_of("murmur2", partitions: 100) { keys.map { |key| { key:, partition: -1 } } }
    assert_equal(KEYS.keys.map { expected("murmur2", _1, 100) }, places)
  end

  # ---- without key ----

  def test_random_spreads_messages_with_a_key_too
    %i[key partition_key].each do |field|
      assert_operator partitions_of("random") { [{ field => "same" }] * 200 }.uniq.size, :>, 1
    end
  end

  %w[consistent_random murmur2_random fnv1a_random random].each do |partitioner|
    define_method("test_#{partitioner}_keeps_messages_without_key_together_for_the_sticky_time") do
      none = Array.new(200) { |i| i.even? ? {} : { key: nil } }
      assert_equal 1, partitions_of(partitioner, "sticky.partitioning.linger.ms": 60_000) { none }.uniq.size
      assert_operator partitions_of(partitioner, "sticky.partitioning.linger.ms": 0) { none }.uniq.size, :>, 1
    end
  end

  def test_consistent_random_treats_an_empty_key_as_no_key
    partitions = partitions_of("consistent_random", "sticky.partitioning.linger.ms": 0) { [{ key: "" }] * 200 }
    assert_operator partitions.uniq.size, :>, 1
  end

  def test_messages_without_key_spread_over_partitions_in_time
    topic = topic(partitions: 4)
    producer = producer("linger.ms": 0, "sticky.partitioning.linger.ms": 1)
    seen = []
    eventually { (seen |= [producer.produce_sync(topic:, payload: "").partition]).size == 4 }
  end
end
