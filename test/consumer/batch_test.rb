# frozen_string_literal: true

require "objspace"
require_relative "../test_helper"
require_relative "../support/consumer_test_case"

class BatchTest < ConsumerTestCase
  MESSAGES = [
    { payload: "a", key: "k", timestamp: Time.at(1), headers: { "one" => "1", "two" => %w[2 3] } },
    { payload: nil, key: "" },
    { payload: "", key: nil, headers: { "empty" => "" } }
  ].freeze

  # @return [Penstock::Batch] the topic's messages
  def batch_of(messages, partitions: 1, **limits)
    name = topic(partitions:)
    producer.produce_many_sync(messages.map { |message| { topic: name, partition: 0, **message } })
    whole_batch(name, messages.size, partitions:, **limits)
  end

  # A poll may return fewer messages than there are, so it is repeated from the beginning.
  def whole_batch(name, size, partitions: 1, **limits)
    eventually do
      one = consumer
      one.assign(name => (0...partitions).to_h { |partition| [partition, :beginning] })
      eventually { one.position(name, 0) || one.poll_batch(max: 1, timeout: 0.05).any? }
      sleep 0.05
      one.seek(name, 0, 0)
      batch = one.poll_batch(max: 10_000, timeout: 5, **limits)
      one.close
      batch if batch.size == size
    end
  end

  def payloads(count) = Array.new(count) { |i| { payload: "payload #{i}" } }

  # ---- what it shows ----

  def test_columns
    batch = batch_of(MESSAGES)
    assert_equal [3, 3, false], [batch.size, batch.length, batch.empty?]
    assert_equal ["a", nil, ""], batch.payloads
    assert_equal ["k", "", nil], batch.keys
    assert_equal [0, 1, 2], batch.offsets
    assert_equal [0, 0, 0], batch.partitions
    assert_equal 1_000, batch.timestamps.first
    assert_equal 1, batch.topics.uniq.size
    columns = %i[payloads keys offsets partitions timestamps topics].map { |name| batch.public_send(name) }
    assert columns.all?(&:frozen?)
    assert columns.flatten.all?(&:frozen?)
    assert_equal batch.payloads, batch.each_payload.to_a
    assert_equal 3, batch.each_payload.size
    assert_operator batch.epoch, :>, 0
  end

  def test_columns_of_a_part
    batch = batch_of(MESSAGES)
    { payloads: ["a", nil, ""], values: ["a", nil, ""], keys: ["k", "", nil], decoded_keys: ["k", "", nil], offsets: [0, 1, 2],
      timestamps: batch.timestamps }.each do |name, column|
      [[], [0], [1], [3], [0, 0], [1, 1], [2, 5], [0, 2**40]].each do |part|
        first, count = part
        expected = column[first || 0, count || 3]
        assert_equal [expected, true], batch.public_send(name, *part).then { |found| [found, found.frozen?] }, [name, part]
      end
      assert_raises(IndexError) { batch.public_send(name, 4) }
      assert_raises(IndexError) { batch.public_send(name, -1) }
      assert_raises(ArgumentError) { batch.public_send(name, 0, -1) }
      assert_raises(TypeError) { batch.public_send(name, nil) }
    end
  end

  def test_bytesize_is_that_of_keys_and_payloads
    batch = batch_of(MESSAGES)
    assert_equal 2, batch.bytesize
    batch.release
    assert_equal 2, batch.bytesize
  end

  def test_messages_are_equal_to_those_of_the_columns
    batch = batch_of(MESSAGES)
    assert_equal batch.payloads, batch.map(&:payload)
    assert_equal batch.keys, batch.map(&:key)
    assert_equal batch.timestamps, batch.map(&:timestamp)
    assert_equal [{ "one" => "1", "two" => %w[2 3] }, {}, { "empty" => "" }], batch.map(&:headers)
    assert_equal [false, true, false], batch.map(&:tombstone?)
    assert_same batch, batch.each { |message| assert_instance_of Penstock::Message, message }
    assert_equal 3, batch.each.size
  end

  def test_it_reads_like_an_array
    batch = batch_of(payloads(5))
    offsets = ->(found) { found.respond_to?(:offset) ? found.offset : found&.map(&:offset) }
    list = [0, 1, 2, 3, 4]
    [[0], [4], [-1], [5], [-6], [1..3], [1..], [..-2], [7..], [1, 2], [5, 1], [6, 1]].each do |index|
      found = offsets.call(batch[*index])
      list[*index].nil? ? assert_nil(found, index.inspect) : assert_equal(list[*index], found, index.inspect)
    end
    assert_equal [4, [3, 4], 0], [batch.last.offset, offsets.call(batch.last(2)), batch.first.offset]
    assert_equal [*batch, *batch], [] + batch + batch
    first, *others = batch
    assert_equal [0, 4], [first.offset, others.size]
    assert_raises(TypeError) { batch["0"] }
    assert_raises(RangeError) { batch[2**70] }
  end

  def test_equality_and_text
    batch = batch_of(payloads(2))
    assert_equal batch, whole_batch(batch.topics.first, 2)
    assert_equal batch, batch.to_a
    refute_equal batch, batch.first(1)
    refute_equal batch, nil
    assert_equal "#<Penstock::Batch 2 messages>", batch.inspect
    refute_includes batch.inspect, "payload"
    assert_equal batch.map(&:as_json), batch.as_json
  end

  def test_grouping_by_partition
    name = topic(partitions: 3)
    3.times { |partition| produce(name, %w[a b], partition:) }
    one = consumer
    one.assign(name => { 0 => 0, 1 => 0, 2 => 0 })
    grouped = take(one, 6).group_by { |message| [message.topic, message.partition] }
    batch = eventually { one.seek(name, 1, 0) && one.poll_batch(max: 10, timeout: 5).then { |taken| taken if taken.size == 2 } }
    assert_equal({ name => { 1 => grouped.fetch([name, 1]) } }, batch.group_by_partition)
  end

  slow def test_messages_of_several_topics
    names = Array.new(3) { topic(partitions: 1) }
    names.each { |name| produce(name, %w[a b]) }
    one = consumer
    one.assign(names.to_h { |name| [name, { 0 => 0 }] })
    batches = []
    batches << one.poll_batch(max: 100, timeout: 5) until batches.sum(&:size) == 6
    seen = batches.flat_map { |batch| batch.topics.zip(batch.payloads) }
    assert_equal names.flat_map { |name| [[name, "a"], [name, "b"]] }.sort, seen.sort
    assert_equal(seen, batches.flat_map { |batch| batch.map { |message| [message.topic, message.payload] } })
  end

  def test_an_empty_batch
    one = reading(topic(partitions: 1))
    batch = one.poll_batch(timeout: 0)
    assert_empty batch
    assert_equal [[], [], nil, nil, {}], [batch.payloads, batch.to_a, batch.first, batch[0], batch.group_by_partition]
    assert_nil batch.release
  end

  # ---- ends of partitions ----

  # behaviour: consumer.caught_up, partition.stuck, rebalance.held_back
  def test_with_partition_eof_a_batch_names_the_partitions_that_ended
    name = topic(partitions: 2)
    produce(name, %w[a b])
    one = reading(name, partitions: [0, 1], "enable.partition.eof": true)
    told = Queue.new
    one.monitor.subscribe("consumer.caught_up") { |event| told << event.payload.values_at(:topic, :partition, :offset) }
    ends = {}
    payloads = []
    eventually do
      batch = one.poll_batch(timeout: 10)
      payloads.concat(batch.payloads)
      ends.merge!(batch.ends.fetch(name, {}))
      ends.size == 2
    end
    assert_equal [%w[a b], { 0 => 2, 1 => 0 }], [payloads, ends.sort.to_h]
    assert_equal [[name, 0, 2], [name, 1, 0]], Array.new(told.size) { told.pop }.sort
    assert_nil one.poll(timeout: 0.1)
    produce(name, %w[c])
    batches = [one.poll_batch(timeout: 10)]
    batches << one.poll_batch(timeout: 10) while batches.last.ends.empty?
    assert_equal [["c"], { name => { 0 => 3 } }], [batches.flat_map(&:payloads), batches.last.ends]
    assert Ractor.shareable?(batches.last)
  end

  def test_without_partition_eof_an_end_is_not_reported_and_does_not_end_a_wait
    name = topic(partitions: 1)
    produce(name, %w[a])
    one = reading(name)
    assert_empty take(one, 1, batch: 10).then { one.poll_batch(timeout: 0.2) }.ends
  end

  def test_programs_cannot_make_or_copy_one
    assert_raises(NoMethodError) { Penstock::Batch.new }
    assert_raises(TypeError) { Penstock::Batch.allocate }
    batch = reading(topic(partitions: 1)).poll_batch(timeout: 0)
    assert_raises(TypeError) { Marshal.dump(batch) }
    assert_raises(TypeError) { batch.dup }
    assert_raises(TypeError) { batch.clone }
  end

  # ---- how long it lives ----

  def test_messages_outlive_their_batch_and_consumer
    messages = batch_of(MESSAGES).to_a
    GC.start
    GC.compact if GC.respond_to?(:compact)
    assert_equal ["a", nil, ""], messages.map(&:payload)
    assert_equal %w[2 3], messages.first.headers["two"]
  end

  def test_everything_can_be_read_under_gc_stress
    batch = batch_of(MESSAGES)
    GC.stress = true
    read = [batch.payloads, batch.first.headers, batch.map(&:offset), batch.keys]
    GC.stress = false
    assert_equal [["a", nil, ""], { "one" => "1", "two" => %w[2 3] }, [0, 1, 2], ["k", "", nil]], read
  ensure
    GC.stress = false
  end

  def test_a_batch_of_one_large_message_is_released_too
    name = topic(partitions: 1)
    produce(name, ["x" * 500_000])
    batch = nil
    one = reading(name)
    eventually { !(batch = one.poll_batch(max: 1, timeout: 1)).empty? }
    assert_operator ObjectSpace.memsize_of(batch), :>, 500_000
    batch.release
    assert_operator ObjectSpace.memsize_of(batch), :<, 50_000
  end

  def test_released_bytes_cannot_be_read
    batch = batch_of(MESSAGES)
    first = batch.first
    kept = first.payload
    2.times { assert_nil batch.release }
    [-> { batch.payloads }, -> { batch.keys }, -> { batch.each_payload.to_a }, -> { first.payload }, -> { first.key },
     -> { first.headers }, -> { batch.first.payload }].each { |read| assert_raises(Penstock::BatchReleasedError, &read) }
    assert_equal ["a", [0, 1, 2], 0, {}], [kept, batch.offsets, first.offset, batch[1].headers]
  end

  thorough def test_a_release_while_other_threads_read
    20.times do
      batch = batch_in_memory
      readers = Array.new(3) do
        quiet_thread do
          loop { batch.payloads.each { |payload| raise "wrong" unless payload == "x" * 100 } }
        rescue Penstock::BatchReleasedError
          :released
        end
      end
      Thread.pass
      batch.release
      assert_equal [:released] * 3, readers.map(&:value)
    end
  end

  def batch_in_memory
    @stored ||= topic(partitions: 1).tap { |name| produce(name, ["x" * 100] * 200) }
    @reader ||= consumer
    @reader.assign(@stored => { 0 => 0 })
    @reader.poll_batch(max: 200, timeout: 10)
  end

  # The garbage collector sees only small objects. So it has to be told of the memory behind them.
  slow def test_the_memory_of_collected_batches_is_freed
    name = topic(partitions: 1)
    produce(name, ["x" * 100_000] * 40)
    one = consumer
    largest = 0
    150.times do
      one.assign(name => { 0 => 0 })
      one.poll_batch(max: 40, timeout: 10).size.positive? or next
      largest = [largest, rss].max
    end
    assert_operator largest, :<, 400 << 20
  end

  def rss = File.read("/proc/self/statm").split[1].to_i * 4096

  # ---- how it is filled ----

  def test_the_number_of_messages_is_bounded
    name = topic(partitions: 1)
    produce(name, Array.new(100, &:to_s))
    one = reading(name)
    sizes = []
    sizes << one.poll_batch(max: 7, timeout: 5).size until sizes.sum == 100
    assert_operator sizes.max, :<=, 7
    assert_raises(ArgumentError) { one.poll_batch(max: 0) }
    assert_raises(ArgumentError, TypeError) { one.poll_batch(max: "many") }
    assert_raises(RangeError) { one.poll_batch(max: 2**80) }
    assert_empty one.poll_batch(max: (2**62) - 1, timeout: 0)
  end

  # Large batches are filled without the GVL.
  def test_threads_that_poll_at_once_get_each_message_once
    name = topic(partitions: 4)
    4.times { |partition| produce(name, Array.new(2_000) { |i| "#{partition}-#{i}" }, partition:) }
    one = reading(name, partitions: [0, 1, 2, 3])
    seen = Queue.new
    threads = [500, 500, 1].map do |max|
      quiet_thread { one.poll_batch(max:, timeout: 0.05).each { |message| seen << message.payload } until seen.size >= 8_000 }
    end
    threads.each(&:value)
    found = Array.new(seen.size) { seen.pop }
    assert_equal [8_000, 8_000], [found.size, found.uniq.size]
  end

  # Raised in the polling thread. Timeout's own exception is no Timeout::Error with newer Rubies, so it cannot be masked by name.
  class Interrupted < StandardError; end

  # Nobody has got the messages of an interrupted call, so none may be taken. The mask leaves no other place for the interrupt.
  def test_an_interrupted_poll_loses_no_message
    name = topic(partitions: 1)
    one = reading(name)
    got = []
    interrupts = 0
    producing = quiet_thread { 10.times { |i| produce(name, Array.new(60) { |j| (60 * i + j).to_s }) } }
    deadline = Slowness.deadline(30)
    while got.size < 600 && !deadline.passed?
      begin
        Timeout.timeout(0.002, Interrupted) do
          Thread.handle_interrupt(Interrupted => :on_blocking) { got.concat(one.poll_batch(timeout: 1).payloads) }
        end
      rescue Interrupted
        interrupts += 1
      end
    end
    producing.value
    assert_equal Array.new(600, &:to_s), got
    assert_operator interrupts, :>, 0
  end

  # ---- Ractors ----

  slow def test_a_ractor_reads_a_batch_that_another_one_has_taken
    name = topic(partitions: 1)
    produce(name, %w[a b c])
    output = ruby!(<<~'RUBY', cluster.bootstrap_servers, name)
      Warning[:experimental] = false
      one = Penstock::Consumer.new("bootstrap.servers": ARGV[0])
      one.assign(ARGV[1] => { 0 => 0 })
      batch = one.poll_batch(max: 3, timeout: 10) until batch&.size&.positive?
      ractors = Array.new(3) do
        Ractor.new(batch) { |given| [given.payloads, given.map(&:offset), given.object_id] }
      end
      results = ractors.map { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }
      p Ractor.shareable?(batch), Ractor.shareable?(batch.first), results.uniq.size, results[0][0].size == batch.size
      p results[0][2] == batch.object_id
      one.close
    RUBY
    assert_equal "true\ntrue\n1\ntrue\ntrue\n", output
  end
end
