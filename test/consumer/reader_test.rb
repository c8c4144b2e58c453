# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# Penstock.read and Penstock::Reader. The embedded cluster has neither times nor aborted messages: see
# test/integration/consumer_offsets_test.rb.
class ReaderTest < ConsumerTestCase
  def filled(count, partitions: 1)
    topic(partitions:).tap do |name|
      partitions.times { |partition| produce(name, Array.new(count) { |i| "#{partition}-#{i}" }, partition:) }
    end
  end

  def settings = { "bootstrap.servers": cluster.bootstrap_servers }

  def read(*topics, **options, &block) = Penstock.read(*topics, **settings, **options, &block)

  def offsets(messages) = messages.map { |message| [message.partition, message.offset] }.sort

  def test_it_reads_all_partitions_of_topics_in_order_and_ends
    names = [filled(2_500, partitions: 2), filled(3)]
    got = []
    reader = read([names.first, names.last.to_sym]) { |message| got << message }
    assert_instance_of Penstock::Reader, reader
    by_partition = got.group_by { |message| [message.topic, message.partition] }.transform_values { |list| list.map(&:offset) }
    expected = { [names[0], 0] => (0...2_500).to_a, [names[0], 1] => (0...2_500).to_a, [names[1], 0] => [0, 1, 2] }
    assert_equal expected, by_partition
  end

  def test_it_ends_at_the_end_that_was_there_at_the_beginning
    name = filled(5)
    read = read(name).each_with_index.map do |message, i|
      produce(name, ["later #{i}"])
      message.payload
    end
    assert_equal %w[0-0 0-1 0-2 0-3 0-4], read
  end

  def test_an_empty_range_ends_at_once
    name = filled(3, partitions: 2)
    assert_empty read(topic).to_a
    assert_empty read(name, from: :end).to_a
    assert_empty read(name, to: 0).to_a
    assert_empty read(name, from: 3).to_a
    assert_empty read({ name => [] }).to_a
    assert_predicate read(name, from: :end) { flunk }.progress, :done?
  end

  def test_from_and_to
    name = filled(10, partitions: 2)
    assert_equal [[0, 8], [0, 9], [1, 8], [1, 9]], offsets(read(name, from: [:last, 2]))
    assert_equal [[0, 3], [1, 3]], offsets(read(name, from: 3, to: 4))
    assert_equal [[1, 7], [1, 8], [1, 9]], offsets(read({ name => [1] }, from: 7))
    assert_equal [[0, 9], [1, 8], [1, 9]], offsets(read({ name => { 0 => [:last, 1], 1 => 8 } }))
    assert_equal 20, read(name, from: 0, to: 5_000).count # no later than the end
    assert_equal 1, read({ name => { 0 => Penstock::Offset.new(offset: 9) } }).count
  end

  def test_from_the_offsets_of_a_group
    name = filled(10)
    group = "group-#{name}"
    assert_equal 10, read(name, from: :stored, "group.id": group).count # none is committed
    group_consumer(group).commit({ name => { 0 => 6 } })
    assert_equal 4, read(name, from: :stored, "group.id": group, "enable.auto.commit": true).count
    assert_equal({ 0 => 6 }, group_consumer(group).committed(name, 0))
    assert_raises(Penstock::ConfigurationInvalidError) { read(name, from: :stored).to_a }
  end

  def test_a_break_or_an_exception_closes_the_consumer
    name = filled(5)
    assert_equal 2, read(name) { |message| break message.offset if message.offset == 2 }
    assert_raises(RuntimeError) { read(name) { raise "enough" } }
    assert_equal [0, 1], read(name).lazy.map(&:offset).first(2)
    eventually { ObjectSpace.each_object(Penstock::Consumer).all? { |consumer| over?(consumer) } }
  end

  def over?(consumer)
    consumer.closed?
  rescue TypeError, NoMethodError # its `new` has raised, in another test
    true
  end

  def test_without_a_block_nothing_is_read_before_the_enumerator_is_used
    name = topic(partitions: 1)
    enumerator = read(name)
    assert_instance_of Enumerator, enumerator
    produce(name, %w[a b])
    assert_equal %w[a b], enumerator.map(&:payload)
    assert_equal %w[a b], enumerator.map(&:payload)
  end

  def test_progress
    name = filled(2_500, partitions: 2)
    told = []
    reader = Penstock::Reader.new(name, from: 500, progress: told.method(:push), **settings)
    assert_equal [0, 0, 0, {}], reader.progress.to_a
    seen = reader.each_with_index.map { |_, i| reader.progress.messages if (i % 999).zero? }.compact
    assert_equal [1, 1_000, 1_999, 2_998, 3_997], seen
    assert_equal [0, 4_000, 0, { name => { 0 => [0, 2_000], 1 => [0, 2_000] } }], told.first.to_a
    assert_equal [4_000, 4_000, 4_000, { name => { 0 => [2_000, 2_000], 1 => [2_000, 2_000] } }], told.last.to_a
    assert_equal told, told.sort_by(&:read)
    assert_equal [0.0, 1.0, true], [told.first.ratio, told.last.ratio, told.last.done?]
    assert_operator told.size, :>=, 5
    assert Ractor.shareable?(reader.progress)
  end

  def test_the_block_may_be_a_method_with_one_argument
    name = filled(2)
    got = []
    read(name, &got.method(:push))
    assert_equal 2, got.size
  end

  def test_the_consumer_can_be_configured
    name = filled(2)
    log = Logger.new(StringIO.new)
    configs = []
    configure = lambda do |config|
      config.logger = log
      config.kafka = { **settings, "client.id": "report", "enable.partition.eof": false }
      configs << config
    end
    assert_equal 2, Penstock.read(name, consumer: configure).count
    assert_equal ["report", true, false, :manual],
                 [*configs[0].kafka.values_at(:"client.id", :"enable.partition.eof", :"enable.auto.commit"), configs[0].mark]
  end

  def test_errors
    name = filled(1)
    error = assert_raises(Penstock::ConsumeError) { read({ name => [0, 99] }).to_a }
    assert_equal [name, 99], [error.topic, error.partition]
    nowhere = { "bootstrap.servers": "127.0.0.1:1", log_level: 0, timeout: 0.3 }
    assert_raises(Penstock::ConsumeTimeoutError) { read(name, **nowhere).to_a }
    assert_raises(Penstock::ConfigurationInvalidError) { read(name, form: 5).to_a }
    assert_raises(Penstock::ConfigurationInvalidError) { Penstock.read(name).to_a }
  end

  def test_the_error_for_a_setting_of_penstock_says_where_to_set_it
    error = assert_raises(Penstock::ConfigurationInvalidError) { read("events", deserializer: :json).to_a }
    assert_includes error.message, "write consumer: ->(config) { config.deserializer = ... }"
    assert_raises(Penstock::ConfigurationInvalidError) { read("events", kafka: {}).to_a }
  end

  def test_invalid_arguments_raise_at_once
    [[5], [""], [[]], [{}], [nil], [{ "t" => 5 }], [{ "t" => [-1] }], [{ "t" => { 0 => :sometime } }], %w[t u]].each do |wrong|
      assert_raises(ArgumentError, wrong.inspect) { read(*wrong) }
    end
    [{ from: -1 }, { from: nil }, { to: :beginning }, { to: nil }, { to: -1 }, { to: [:last, 1] }, { timeout: -1 },
     { progress: 5 }, { consumer: 5 }].each do |wrong|
      assert_raises(ArgumentError, wrong.inspect) { read("topic", **wrong) }
    end
  end

  def test_it_reads_well
    assert_equal "#<Penstock::Reader a, b>", Penstock::Reader.new(%w[a b], **settings).inspect
  end
end
