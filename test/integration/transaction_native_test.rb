# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/reader"
require "fiddle"
require "securerandom"

# Internal::ProducerClient's transactions on a real Apache Kafka, as its readers see them.
class TransactionKafkaTest < PenstockTest
  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }

  def setup
    super
    @log = StringIO.new
    @topic = "penstock-transaction-#{SecureRandom.hex(6)}"
  end

  # Shows librdkafka's states and calls of a test that failed.
  def teardown
    puts "#{name}:", @log.string.lines.grep(/TXN/).last(40) unless passed?
    super
  end

  def test_only_committed_messages_are_visible
    client = transactional
    6.times do |i|
      client.begin_transaction
      handles = Array.new(3) { |j| produce(client, "#{i.even? ? "commit" : "abort"} #{i} #{j}") }
      i.even? ? client.commit_transaction(nil) : client.abort_transaction(nil)
      assert handles.none?(&:pending?)
    end
    assert_equal %w[0 2 4].flat_map { |i| Array.new(3) { |j| "commit #{i} #{j}" } }, visible
    assert_equal 18, stored.size
  end

  def test_messages_become_visible_only_with_the_commit
    client = transactional
    client.begin_transaction
    produce(client, "x").wait
    assert_equal [[], ["x"]], [visible, stored]
    client.commit_transaction(nil)
    assert_equal ["x"], visible
  end

  # librdkafka 2.0.2 loses the producer in every second of these aborts if nothing is sent first.
  def test_an_immediate_abort_after_a_commit_leaves_the_producer_usable
    client = transactional("linger.ms": 0)
    expected = Array.new(40) do |i|
      client.begin_transaction
      produce(client, "abort #{i}")
      client.abort_transaction(nil)
      client.begin_transaction
      produce(client, "commit #{i}")
      client.commit_transaction(nil)
      "commit #{i}"
    end
    assert_equal expected, visible
  end

  def test_a_second_producer_with_the_same_transactional_id_fences_the_first_and_aborts_its_transaction
    first = transactional
    first.begin_transaction
    produce(first, "first").wait
    second = transactional
    error = assert_raises(Penstock::TransactionError) { first.commit_transaction(nil) }
    assert_equal [:fenced, true, false, false], [error.code, error.fatal?, error.retriable?, error.abortable?]
    assert_match(/same transactional.id has taken over/, error.message)
    assert_equal :fenced, first.fatal_error.code
    assert_predicate assert_raises(Penstock::ProducerFencedError) { produce(first, "more") }, :fatal?
    assert_took(3, seconds_of { first.close(10_000) })

    second.begin_transaction
    produce(second, "second")
    second.commit_transaction(nil)
    assert_equal ["second"], visible
  end

  def test_offsets_are_committed_or_aborted_with_their_transaction
    client = transactional
    group = "group-#{@topic}"
    client.begin_transaction
    produce(client, "x")
    client.send_offsets_to_transaction([[@topic, 0, 7, "where I was"], [@topic, 2, 9, nil]], group, 20_000)
    client.commit_transaction(nil)
    assert_equal({ 0 => 7, 1 => nil, 2 => 9 }, committed(group))

    client.begin_transaction
    produce(client, "y")
    client.send_offsets_to_transaction([[@topic, 0, 70, nil], [@topic, 1, 71, nil]], group, 20_000)
    client.abort_transaction(nil)
    assert_equal({ 0 => 7, 1 => nil, 2 => 9 }, committed(group))
  end

  def test_an_interrupted_commit_completes_and_the_client_keeps_working
    client = transactional
    visible_at_last = Array.new(20) do |i|
      client.begin_transaction
      produce(client, i.to_s)
      interrupted_after(rand * 0.02) { client.commit_transaction(nil) }
      i.to_s unless aborted?(client)
    end
    assert_equal visible_at_last.compact, visible
  end

  def test_an_interrupted_commit_can_be_repeated
    client = transactional
    expected = Array.new(20) do |i|
      client.begin_transaction
      produce(client, i.to_s)
      interrupted_after(rand * 0.01) { client.commit_transaction(nil) }
      client.commit_transaction(nil)
      i.to_s
    end
    assert_equal expected, visible
  end

  def test_close_within_a_transaction_aborts_it_and_readers_do_not_wait_for_its_timeout
    client = transactional("transaction.timeout.ms": 600_000)
    client.begin_transaction
    handles = Array.new(100) { |i| produce(client, i.to_s) }
    client.close(10_000)
    assert handles.none?(&:pending?)
    eventually { @log.string.include?("was still open and was aborted") }
    other = transactional
    other.begin_transaction
    produce(other, "after")
    other.commit_transaction(nil)
    assert_equal ["after"], visible # an open transaction would hide it
  end

  # behaviour: Transactional messages during close end correctly
  def test_close_during_transactions_of_another_thread_leaves_none_open
    client = transactional
    committed = []
    running = Thread.new do
      loop do
        client.begin_transaction
        produce(client, committed.size.to_s)
        client.commit_transaction(nil)
        committed << committed.size.to_s
      end
    rescue Penstock::ProducerClosedError, Penstock::ProduceError
      nil
    end
    eventually(20) { committed.size > 5 }
    client.close(10_000)
    running.join
    other = transactional
    other.begin_transaction
    produce(other, "after")
    other.commit_transaction(nil)
    assert_equal [*committed, "after"], visible - [committed.size.to_s] # the last may be committed although its call raised
  end

  def test_init_with_a_timeout_above_the_clusters_limit_is_fatal_with_the_reason
    client = client("transaction.timeout.ms": 2_000_000_000)
    error = assert_raises(Penstock::TransactionError) { client.init_transactions(20_000) }
    assert_equal [:invalid_transaction_timeout, true], [error.code, error.fatal?]
  end

  private

  def client(**kafka)
    log = Logger.new(@log)
    settings = { "transactional.id": @topic, log_level: 7, debug: "eos", **kafka }
    native_client(producer(servers: SERVERS, **settings) { |config| config.logger = log })
  end

  def transactional(**kafka) = client(**kafka).tap { |made| made.init_transactions(30_000) }

  def produce(client, payload) = client.produce({ topic: @topic, payload:, partition: 0 })

  def visible = read("read_committed")

  def stored = read("read_uncommitted")

  def read(isolation) = Reader.new(SERVERS, "isolation.level": isolation).read(@topic, partitions: [0]).map(&:payload)

  def interrupted_after(seconds, &call)
    Timeout.timeout(seconds, &call)
  rescue Timeout::Error
    nil
  end

  # @return [Boolean] whether a transaction was still open
  def aborted?(client)
    client.abort_transaction(nil)
    true
  rescue Penstock::TransactionCommittedError
    false
  end

  # @return [Hash] partition => committed offset or nil
  def committed(group)
    library = Fiddle.dlopen($LOADED_FEATURES.grep(%r{penstock/penstock\.\w+\z}).first)
    read_offsets = Fiddle::Function.new(library["rd_kafka_committed"], [Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP, Fiddle::TYPE_INT],
                                        Fiddle::TYPE_INT)
    Reader.new(SERVERS, "group.id": group).send(:with_consumer) do |consumer|
      list = Reader::Native.topic_partition_list_new(3)
      3.times { |partition| Reader::Native.topic_partition_list_add(list, @topic, partition) }
      assert_equal 0, read_offsets.call(consumer, list, 20_000)
      offsets = offsets_of(list)
      Reader::Native.topic_partition_list_destroy(list)
      offsets
    end
  end

  # rd_kafka_topic_partition_list_t: cnt, size, elems; elements of 64 bytes: topic, partition, (padding,) offset, ...
  def offsets_of(list)
    count, _, elements = list[0, 16].unpack("llJ")
    Array.new(count) do |i|
      _, partition, offset = Fiddle::Pointer.new(elements + 64 * i)[0, 24].unpack("Jlx4q")
      [partition, offset.negative? ? nil : offset]
    end.to_h
  end
end
