# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"
require_relative "../support/transactional_writer"
require "securerandom"

# Times, transactions and committed offsets on a real Apache Kafka: PENSTOCK_KAFKA says where it is; bin/test starts one.
class KafkaConsumerOffsetsTest < ConsumerTestCase
  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }
  START = Time.at(1_600_000_000)
  SETTINGS = { "bootstrap.servers": SERVERS }.freeze

  def consumer(servers: SERVERS, **settings, &block) = super

  def producer(servers: SERVERS, **settings, &block) = super

  # Message i of each partition is of the second i after START. Kafka creates the topic with 4 partitions.
  def new_topic(messages = 10, partitions: 2)
    "penstock-test-#{SecureRandom.hex(6)}".tap do |name|
      sending = partitions.times.flat_map do |partition|
        Array.new(messages) { |i| { topic: name, payload: "#{partition}-#{i}", partition:, timestamp: START + i } }
      end
      (@sender ||= producer).produce_many_sync(sending)
    end
  end

  def offsets(messages) = messages.map { |message| [message.partition, message.offset] }.sort

  # ---- times ----

  def test_assign_and_seek_by_time
    name = new_topic
    one = consumer.assign(name => { 0 => START + 7.5, 1 => START + 9 })
    assert_equal [[0, 8], [0, 9], [1, 9]], offsets(take(one, 3))
    one.seek(name => { 0 => START + 8, 1 => Time.now + 60 })
    assert_equal [[0, 8], [0, 9]], offsets(take(one, 2))
    @sender.produce_sync(topic: name, partition: 1, payload: "new")
    assert_equal 10, take(one, 1).first.offset
    assert_equal 0, consumer.assign(name => { 0 => Time.at(0) }).poll(timeout: 10).offset
  end

  def test_start_at_a_time_in_a_rebalance
    name = new_topic
    listener = Object.new
    listener.define_singleton_method(:assigned) do |rebalance|
      rebalance.start_at(rebalance.partitions.transform_values { |list| list.to_h { |partition| [partition, START + 8] } })
    end
    one = group_consumer { |config| config.rebalance_listener = listener }.subscribe(name)
    assert_equal [[0, 8], [0, 9], [1, 8], [1, 9]], offsets(take(one, 4))
  end

  def test_a_listener_chooses_where_an_uncommitted_partition_begins
    name = new_topic
    listener = Object.new
    listener.define_singleton_method(:assigned) do |rebalance|
      rebalance.consumer.committed(rebalance.partitions).each do |topic, found|
        rebalance.start_at({ topic => found.select { |_, offset| offset.nil? }.transform_values { START + 8 } })
      end
    end
    group = "penstock-test-#{SecureRandom.hex(6)}"
    group_consumer(group).commit({ name => { 0 => 7 } })
    one = group_consumer(group) { |config| config.rebalance_listener = listener }.subscribe(name)
    assert_equal [[0, 7], [0, 8], [0, 9], [1, 8], [1, 9]], offsets(take(one, 5))
  end

  { "classic" => {}, "cooperative-sticky" => { "partition.assignment.strategy": "cooperative-sticky" },
    "consumer" => { "group.protocol": "consumer" } }.each do |kind, settings|
    define_method(:"test_a_group_without_offsets_begins_at_a_time_#{kind}") do
      if kind == "consumer" && Gem::Version.new(Penstock.librdkafka_version) < Gem::Version.new("2.12")
        skip "librdkafka #{Penstock.librdkafka_version} has no group.protocol=consumer, or only a preview of it (before 2.12)"
      end
      name = new_topic
      group = "penstock-test-#{SecureRandom.hex(6)}"
      group_consumer(group).commit({ name => { 0 => 7 } })
      one = consumer("group.id": group, **settings) { |config| config.start_at = START + 8 }.subscribe(name)
      assert_equal [[0, 7], [0, 8], [0, 9], [1, 8], [1, 9]], offsets(take(one, 5))
    end
  end

  def test_offsets_for_times_of_many_partitions
    name = new_topic
    one = consumer
    assert_equal({ name => { 0 => 3, 1 => 3, 2 => nil } }, one.offsets_for_times({ name => [2, 1, 0] }, START + 3))
    assert_equal({ name => { 0 => 9, 1 => nil } }, one.offsets_for_times(name => { 0 => START + 9, 1 => START + 10 }))
    assert_empty one.offsets_for_times({})
  end

  # ---- transactions ----

  def write(name, **transactions) = TransactionalWriter.new(SERVERS).write(name, partition: 0, **transactions)

  # An open transaction in partition 0, while the block runs.
  def open_transaction(name)
    writing = producer("transactional.id": "test-#{SecureRandom.hex(6)}")
    writing.transaction do
      writing.produce_sync(topic: name, partition: 0, payload: "open")
      yield
    end
  end

  def test_lag_honours_the_isolation_level
    name = new_topic(5)
    committed, uncommitted = %w[read_committed read_uncommitted].map { |level| consumer("isolation.level": level) }
    open_transaction(name) do
      ends = [committed, uncommitted].map { |one| one.watermarks(name, 0) }
      assert_equal [[0, 5], [0, 6]], ends
      [committed, uncommitted].each { |one| one.assign(name => { 0 => 2 }) }
      lags = [committed, uncommitted].map { |one| one.lag[name][0] }
      assert_equal [3, 4], lags
      take(committed, 3)
      take(uncommitted, 4)
      assert_equal [{ name => { 0 => 0 } }] * 2, [committed.lag, uncommitted.lag]
    end
  end

  def test_lag_is_counted_from_the_beginning_of_the_log
    name = new_topic(10)
    one = group_consumer("enable.auto.commit": false)
    one.commit({ name => { 0 => 2, 1 => 500 } })
    assert_equal({ name => { 0 => 8, 1 => 0, 2 => nil } }, one.lag(name => [0, 1, 2]))
  end

  def test_a_text_is_committed_beside_an_offset
    name = new_topic(3)
    one = group_consumer
    assert one.commit({ name => { 0 => Penstock::Offset.new(offset: 2, metadata: "ä" * 100, leader_epoch: 0) } })
    assert_equal "ä" * 100, one.committed(name, 0, metadata: true)[0].metadata
    error = assert_raises(Penstock::CommitError) do
      one.commit({ name => { 1 => Penstock::Offset.new(offset: 2, metadata: "x" * 5_000) } })
    end
    assert_equal [:offset_metadata_too_large, name, 1], [error.code, error.topic, error.partition]
    error = assert_raises(Penstock::CommitError) do
      one.commit({ name => { 0 => 3, 1 => Penstock::Offset.new(offset: 2, metadata: "x" * 5_000) } })
    end
    assert_includes [nil, 1], error.partition # librdkafka 2.0.2 does not tell which one
  end

  def test_asynchronous_commits_of_a_member
    name = new_topic(100, partitions: 4)
    group = "penstock-test-#{SecureRandom.hex(6)}"
    one = group_consumer(group, "enable.auto.commit": false).subscribe(name)
    take(one, 400, batch: 10).each_slice(10) { |messages| one.commit(messages.last, async: true) }
    one.commit(async: true)
    eventually { one.committed(name => [0, 1, 2, 3]) == { name => { 0 => 100, 1 => 100, 2 => 100, 3 => 100 } } }
  end

  # ---- Penstock.read ----

  def test_read_between_times
    name = new_topic
    read = Penstock.read(name, from: START + 2.5, to: START + 5, **SETTINGS).to_a
    assert_equal [[0, 3], [0, 4], [1, 3], [1, 4]], offsets(read)
    assert_empty Penstock.read(name, from: Time.now, **SETTINGS).to_a
    assert_equal 20, Penstock.read(name, to: Time.now, **SETTINGS).count
  end

  def test_read_ends_behind_messages_that_are_not_shown
    name = new_topic(3)
    write(name, committed: %w[a b], aborted: %w[x y])
    assert_equal %w[0-0 0-1 0-2 a b], Penstock.read({ name => [0] }, **SETTINGS).map(&:payload)
    write(name, committed: [], aborted: %w[x y]) # its control record is the last one
    asking = consumer
    eventually { asking.watermarks(name, 0) == [0, 12] } # an abort returns before its control record is written
    reader = Penstock.read(name, **SETTINGS) { nil }
    assert_predicate reader.progress, :done?
    assert_equal [8, 15], [reader.progress.messages, reader.progress.total]
    assert_equal 12, Penstock.read(name, "isolation.level": "read_uncommitted", **SETTINGS).count
    assert_empty Penstock.read({ name => [0] }, from: 9, **SETTINGS).to_a
  end

  def test_read_ends_before_an_open_transaction
    name = new_topic(3)
    open_transaction(name) do
      assert_equal 6, Penstock.read(name, **SETTINGS).count
      assert_equal 7, Penstock.read(name, "isolation.level": "read_uncommitted", **SETTINGS).count
    end
  end

  def test_read_of_an_unknown_topic
    error = assert_raises(Penstock::ConsumeError) { Penstock.read("penstock-none-#{SecureRandom.hex(6)}", **SETTINGS).to_a }
    assert_equal :unknown_topic_or_part, error.code
  end
end
