# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# The limits of fetched messages, which follow from config.memory.
class ConsumerMemoryTest < ConsumerTestCase
  LIMITS = %i[queued.min.messages queued.max.messages.kbytes fetch.max.bytes].freeze
  MIB = 1 << 20

  def kafka(memory: nil, **kafka)
    Penstock::Consumer.new("bootstrap.servers": "127.0.0.1:1", **kafka) { |config| config.memory = memory }.config.kafka
  end

  def test_the_limits_grow_with_the_memory
    sizes = [8 * MIB, 64 * MIB, 1024 * MIB].map { |memory| kafka(memory:).values_at(*LIMITS) }
    LIMITS.each_index { |limit| assert_equal sizes.map { |values| values[limit] }, sizes.map { |values| values[limit] }.sort }
    sizes.transpose.each { |values| assert_operator values.first, :<, values.last }
  end

  # librdkafka counts messages and the bytes of payloads. Each message takes more: as measured, 432 bytes with 2.0.2.
  def test_messages_of_any_size_stay_within_the_memory_and_a_fifth
    memory = 100 * MIB
    most, kilobytes, answer = kafka(memory:).values_at(*LIMITS)
    [1, 10, 100, 1_000, 10_000, 1_000_000].each do |size|
      messages = [most, kilobytes * 1024 / size].min
      assert_operator (messages * (size + 432)) + answer, :<=, memory * 1.2, "messages of #{size} bytes"
    end
  end

  def test_a_setting_of_the_program_replaces_a_computed_one
    given = kafka("queued.min.messages": 5, "fetch.max.bytes": 2 * MIB)
    assert_equal 5, given[:"queued.min.messages"]
    assert_equal 2 * MIB, given[:"fetch.max.bytes"]
    assert_equal 7, kafka("queued.max.messages.kbytes": 7)[:"queued.max.messages.kbytes"]
  end

  # librdkafka accepts no fetch.max.bytes below message.max.bytes, and no consumer without it.
  def test_the_largest_message_is_fetched_with_the_least_memory
    consumer = consumer("message.max.bytes": 20_000_000) { |config| config.memory = 8 * MIB }
    consumer.assign("events" => [0])
    assert_equal 20_000_000, consumer.config.kafka[:"fetch.max.bytes"]
  end

  # With librdkafka's defaults a partition is fetched again only a second after the queue was full: this took 9 s.
  # defect C1
  slow def test_a_full_queue_does_not_stop_the_next_fetch_for_a_second
    name = topic(partitions: 16)
    16.times { |partition| produce(name, ["x" * 100_000] * 40, partition:) }
    one = consumer { |config| config.memory = 8 * MIB }.assign(name => (0...16).to_h { |partition| [partition, :beginning] })
    take(one, 1)
    assert_took(3, seconds_of { take(one, (16 * 40) - 1) })
  end

  # Each message that is taken is half of a queue of one. The answer to the first fetch has them all, and nothing has to be
  # fetched while they are taken: there were 2,000 requests.
  def test_a_queue_of_few_messages_does_not_make_a_request_of_each
    own = own_cluster
    own.create_topic("few", partitions: 1)
    produce("few", ["x"] * 2_000, on: producer(servers: own.bootstrap_servers))
    gate = gate(own)
    one = consumer(servers: gate.bootstrap_servers, "queued.min.messages": 1).assign("few" => { 0 => 0 })
    2_000.times { assert one.poll(timeout: 10) }
    one.watermarks("few", 0, timeout: 20) # the broker has got the requests before
    assert_operator gate.requests(:list_offsets), :<, 1_000
  end

  # Before 2.2.0 nothing wakes librdkafka where it fetches from a follower.
  # defect C1
  def test_the_queue_is_long_where_a_full_one_stops_the_next_fetch_for_a_second
    wakes = Gem::Version.new(Penstock.librdkafka_version) >= Gem::Version.new("2.2")
    assert_equal 65_536, kafka("client.rack": "")[:"queued.min.messages"]
    near = kafka("client.rack": "near")
    wakes ? assert_equal(65_536, near[:"queued.min.messages"]) : assert_operator(near[:"queued.min.messages"], :>, 950_000)
    assert_equal kafka(memory: 8 * MIB)[:"queued.max.messages.kbytes"],
                 kafka(memory: 8 * MIB, "client.rack": "near")[:"queued.max.messages.kbytes"]
  end

  def test_a_wrong_memory_raises
    [0, -1, 1.5e9, "64MB", MIB].each do |memory|
      error = assert_raises(Penstock::ConfigurationInvalidError) { kafka(memory:) }
      assert_match(/memory/, error.message)
    end
  end

  NO_MEMORY = <<~'RUBY'
    require "fiddle"
    fail_next = Fiddle::Function.new(Fiddle.dlopen(nil)["no_memory_next"], [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOID)
    servers, topic = ARGV
    one = Penstock::Consumer.new("bootstrap.servers": servers, "group.id": topic).assign(topic => { 0 => 0 })
    sleep 0.01 until one.metrics.queue_length >= 3
    read = -> { one.poll_batch(max: 2, timeout: 5).map(&:offset) }
    failing = lambda do
      fail_next.call(500_000)
      read.call
    rescue NoMemoryError
      "none"
    end
    found = [failing.call, read.call, read.call]
    one.seek(topic, 0, 0)
    sleep 0.01 until one.metrics.queue_length >= 3
    found << failing.call
    one.seek(topic, 0, 1)
    print [*found, read.call.first].inspect
  RUBY
  private_constant :NO_MEMORY

  # 80 is the size of a range in the ledger (core/consume/ledger.c). If it is another one, nothing fails, and so does the test.
  NO_MEMORY_TO_NOTE = <<~'RUBY'
    require "fiddle"
    fail_next = Fiddle::Function.new(Fiddle.dlopen(nil)["no_zeroed_memory_next"], [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOID)
    servers, topic = ARGV
    kafka = { "bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": false }
    one = Penstock::Consumer.new(**kafka) { |config| config.mark = :manual }.assign(topic => { 0 => 0 })
    sleep 0.01 until one.metrics.queue_length >= 3
    read = lambda do
      one.poll_batch(max: 2, timeout: 5).then { |batch| [batch.offsets, one.mark(batch)] }
    rescue NoMemoryError
      "none"
    end
    fail_next.call(80)
    found = Array.new(3) { read.call }
    one.commit
    print [*found, one.committed(topic, 0)[0]].inspect
  RUBY
  private_constant :NO_MEMORY_TO_NOTE

  def test_no_message_is_returned_for_which_the_ledger_has_no_memory
    name = topic(partitions: 1)
    producer.produce_many_sync(Array.new(3) { |i| { topic: name, partition: 0, payload: i.to_s } })
    assert_equal '["none", [[0, 1], true], [[2], true], 3]', without_memory(NO_MEMORY_TO_NOTE, name)
  end

  slow def test_a_message_for_which_there_was_no_memory_comes_with_the_next_poll
    name = topic(partitions: 1)
    producer.produce_many_sync(Array.new(3) { |i| { topic: name, partition: 0, payload: i.to_s * 600_000 } })
    assert_equal '["none", [0, 1], [2], "none", 1]', without_memory(NO_MEMORY, name)
  end

  # @return [String] what a program writes, some of whose allocations fail
  def without_memory(program, name)
    Dir.mktmpdir do |directory|
      library = File.join(directory, "no_memory.so")
      assert system("cc", "-O1", "-shared", "-fPIC", File.join(__dir__, "../c/no_memory.c"), "-o", library)
      output, errors, status = Limited.capture3({ "LD_PRELOAD" => library }, RbConfig.ruby, "-I", LIBRARY, "-r", "penstock",
                                                "-e", program, cluster.bootstrap_servers, name, seconds: 30)
      assert status.success?, errors
      output
    end
  end
end
