# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/producer_test_case"

# What happens when librdkafka's queue is full.
class ProducerBackpressureTest < ProducerTestCase
  SMALL = { "queue.buffering.max.messages": 10, "linger.ms": 0 }.freeze

  # behaviour: wait_on_queue_full
  # behaviour: A call waits for queue space, up to 10 s
  def test_a_message_waits_for_queue_space_and_is_delivered
    own = own_cluster(brokers: 1)
    topic = topic(partitions: 1, on: own)
    producer = producer(servers: own.bootstrap_servers, **SMALL)
    producer.produce_sync(topic:, payload: "0")
    own.broker_down(1)
    handles = Array.new(10) { |i| producer.produce_async(topic:, payload: (i + 1).to_s) }
    waiting = Thread.new { producer.produce_async(topic:, payload: "11") }
    eventually { waiting.stop? }
    own.broker_up(1)
    handles << waiting.value
    handles.each(&:wait)
    assert_equal (0..11).map(&:to_s), stored(topic, on: own).map(&:payload)
  end

  [50, 5_000].each do |size| # the second is enqueued without the GVL
    define_method("test_a_batch_of_#{size}_larger_than_the_queue_is_delivered_in_order") do
      topic = topic(partitions: 1)
      messages = Array.new(size) { |i| { topic:, payload: "payload #{i}", key: (i.to_s if i.even?), headers: { "i" => i.to_s } } }
      handles = producer(**SMALL).produce_many_sync(messages)
      assert_equal (0...size).map { |i| [topic, 0, i] }, places(handles)
      assert_equal messages.map { |message| message.values_at(:payload, :key) }, stored(topic).map { [_1.payload, _1.key] }
    end
  end

  def test_a_waiting_message_keeps_the_bytes_that_it_had_at_the_call
    own = own_cluster(brokers: 1)
    topic = topic(partitions: 1, on: own)
    producer = producer(servers: own.bootstrap_servers, **SMALL)
    producer.produce_sync(topic:, payload: "first")
    own.broker_down(1)
    payloads, given = Array.new(2) { Array.new(15) { |i| +"payload #{i} #{"x" * 50}" } } # not dup, which shares the bytes
    waiting = Thread.new { producer.produce_many_async(payloads.map { |payload| { topic:, payload: } }) }
    eventually { waiting.stop? }
    payloads.each(&:upcase!)
    own.broker_up(1)
    waiting.value.each(&:wait)
    assert_equal given, stored(topic, on: own).map(&:payload).drop(1)
  end

  def test_all_of_many_waiting_threads_get_queue_space
    topic = topic(partitions: 1)
    producer = producer(**SMALL)
    threads = Array.new(8) do |thread|
      Thread.new { Array.new(500) { |i| producer.produce_async(topic:, payload: "#{thread} #{i}") } }
    end
    threads.flat_map(&:value).each(&:wait)
    stored = stored(topic).map { |record| record.payload.split.map(&:to_i) }
    stored.group_by(&:first).each_value { |records| assert_equal (0...500).to_a, records.map(&:last) }
    assert_equal 4_000, stored.size
  end

  slow def test_threads_get_queue_space_in_order_of_arrival
    own = own_cluster(brokers: 1)
    topic = topic(partitions: 1, on: own)
    producer = producer(servers: own.bootstrap_servers, **SMALL)
    producer.produce_sync(topic:, payload: "first")
    own.broker_down(1)
    10.times { producer.produce_async(topic:, payload: "full") }
    waiting = Array.new(40) do |i|
      Thread.new { producer.produce_async(topic:, payload: i.to_s) }.tap { |thread| eventually { thread.stop? } }
    end
    own.broker_up(1)
    waiting.map(&:value).each(&:wait)
    order = stored(topic, on: own).filter_map { |record| Integer(record.payload, exception: false) }
    assert_equal [*0...40], order.sort
    # Threads that are woken together, one for each slot, run in any order, and the machine may delay one of them for longer. In a
    # random order a message would be 13 places from its own on average, in the reverse order 20.
    moved = order.each_with_index.sum { |number, place| (number - place).abs } / 40.0
    assert_operator moved, :<=, 6
  end

  # A thread that arrives while others wait queues behind them. The test counts the messages that other threads enqueue during a
  # wait.
  def test_no_thread_waits_for_space_while_each_other_thread_gets_it_several_times
    count = 30
    topic = topic(partitions: 1)
    producer = producer("queue.buffering.max.messages": 10, "linger.ms": 2) { |c| c.wait_timeout_on_queue_full = nil }
    passed = 0
    ready = 0
    threads = Array.new(count) do
      Thread.new do
        ready += 1
        Thread.pass until ready == count
        Array.new(100) do
          before = passed
          producer.produce_async(topic:, payload: "x")
          (passed += 1) - before
        end
      end
    end
    waits = threads.flat_map(&:value).sort
    assert_operator waits[waits.size * 99 / 100], :<=, 3 * count
    assert_operator waits.last, :<=, 10 * count # the machine may delay a thread that has its turn
    assert_equal 3000, passed
  end

  def test_a_thread_that_is_interrupted_passes_its_turn_on
    message = { topic: topic(partitions: 1), payload: "x" }
    producer = producer("queue.buffering.max.messages": 1, "linger.ms": 0) { |c| c.wait_timeout_on_queue_full = 60_000 }
    victims = Thread.new { loop { interrupt_soon(Thread.new { loop { producer.produce_async(message) } }) } }
    steady = Array.new(4) { Thread.new { 300.times { producer.produce_async(message) } } }
    steady.each { |thread| assert Slowness.join(thread, 30), "a turn was lost" }
  ensure
    victims&.kill&.join
  end

  # Such a message occupies queue space for a moment, and no delivery result reports the end of that moment.
  slow def test_a_rejected_message_does_not_keep_others_waiting_for_its_space
    topic = topic(partitions: 1)
    client = native_client(producer("queue.buffering.max.messages": 1, "linger.ms": 0)) # waits for 10 s
    accepted = [{ topic:, payload: "x" }]
    client.produce_many(accepted, nil)
    rejected = Array.new(100) { { topic:, payload: "x", partition: 99 } } # enough to be enqueued without the GVL
    done = false
    others = Array.new(4) { Thread.new { client.produce_many(rejected, false) until done } }
    5_000.times { assert_nil client.produce_many(accepted, nil)[1] }
  ensure
    done = true
    others&.each(&:join)
  end

  # behaviour: wait_timeout_on_queue_full
  # behaviour: A call waits for queue space, up to 10 s
  def test_the_queue_full_error_says_that_the_message_was_not_accepted
    producer = full_producer(topic = topic(partitions: 1)) { |config| config.wait_timeout_on_queue_full = 50 }
    error = assert_raises(Penstock::QueueFullError) { producer.produce_async(topic:, payload: "too many") }
    assert_includes error.message, "The message was not accepted."
  end

  def test_a_payload_larger_than_the_empty_queue_is_rejected_at_once
    producer = producer("queue.buffering.max.kbytes": 2)
    topic = topic(partitions: 1)
    producer.produce_sync(topic:, payload: "x" * 2048)
    error = assert_raises(Penstock::MessageInvalidError) { producer.produce_sync(topic:, payload: "x" * 2049) }
    assert_match(/2049 bytes, more than queue\.buffering\.max\.kbytes allows \(2048\)/, error.message)
    assert_raises(Penstock::MessageInvalidError) { producer.produce_many_sync([{ topic:, payload: "x" * 2049 }] * 100) }
    assert_equal [2048], stored(topic).map { |record| record.payload.bytesize }
  end

  def test_a_wait_for_queue_space_is_interrupted_at_once
    producer = full_producer(topic = topic(partitions: 1)) { |config| config.wait_timeout_on_queue_full = nil }
    [1, 200].each do |size|
      waiting = Thread.new { producer.produce_many_async([{ topic:, payload: "x" }] * size) }
      waiting.report_on_exception = false
      eventually { waiting.stop? }
      waiting.raise(IOError, "stop")
      assert_raises(IOError) { waiting.value }
    end
    assert_equal 10, producer.queue_size
  end

  def test_closing_ends_a_wait_for_queue_space
    producer = full_producer(topic = topic(partitions: 1))
    waiting = Thread.new { producer.produce_async(topic:, payload: "x") }
    waiting.report_on_exception = false
    eventually { waiting.stop? }
    producer.close(timeout: 0)
    assert_raises(Penstock::ProducerClosedError) { waiting.value }
  end

  def test_a_dropped_message_has_a_delivery_result_at_once
    producer = full_producer(topic = topic(partitions: 1)) { |config| config.on_queue_full = :drop }
    handle = producer.produce_async(topic:, payload: "too many", label: "lost")
    assert_equal [:queue_full, :not_persisted, "lost", true],
                 [handle.error.code, handle.report.status, handle.report.label, handle.error.retriable?]
    handles = producer.produce_many_async([{ topic:, payload: "x", headers: { "a" => "b" } }] * 3)
    assert_equal [:queue_full] * 3, handles.map { |one| one.error.code }
    assert_equal 10, producer.queue_size
  end

  # The call makes a new topic's handle, abandons its first batch, and reads the messages again.
  def test_dropped_messages_of_new_topics_have_a_delivery_result_at_once
    producer = full_producer(topic(partitions: 1)) { |config| config.on_queue_full = :drop }
    handles = [producer.produce_async(topic: topic(partitions: 1), payload: "x", headers: { "a" => "b" })]
    [2, 200].each do |size|
      message = { topic: topic(partitions: 1), payload: "x", headers: { "a" => "b" } }
      handles.concat(producer.produce_many_async([message] * size))
    end
    handles.each { |handle| refute_predicate handle, :pending? }
    assert_equal [:queue_full] * 203, handles.map { |handle| handle.error.code }
  end

  def test_messages_of_a_large_batch_that_are_settled_before_their_handles_are_made_keep_their_results
    producer = full_producer(topic = topic(partitions: 1)) { |config| config.on_queue_full = :drop }
    handles = producer.produce_many_async(Array.new(1_000) { |i| { topic:, payload: "x", label: i, partition_key: i.to_s } })
    handles.select! { |handle| (handle.label % 300).zero? }
    3.times { GC.start }
    producer.produce_many_async([{ topic:, payload: "y" }] * 1_000) # reuses the memory of freed handles
    assert_equal [0, 300, 600, 900].map { |label| [label, :queue_full, topic] },
                 (handles.map { |one| [one.label, one.error.code, one.topic] })
  end

  def test_dropped_messages_are_published_in_order_with_labels_and_counted_as_failed
    producer = full_producer(topic = topic(partitions: 1)) { |config| config.on_queue_full = :drop }
    other = "penstock-other"
    seen = Queue.new
    producer.monitor.subscribe("error.occurred") { |event| seen << event }
    producer.produce_async(topic:, payload: "x", label: 1)
    producer.produce_many_async([{ topic:, payload: "x", label: 2 }, { topic: other, payload: "x", label: 3 }])
    producer.produce_many_async(Array.new(200) { |i| { topic:, payload: "x", label: i + 4 } })
    dropped = Array.new(203) { eventually { seen.pop unless seen.empty? } }
    assert_equal [*1..203], (dropped.map { |event| event[:label] })
    assert_equal [topic, topic, other, topic], (dropped.first(4).map { |event| event[:topic] })
    event = dropped[1]
    assert_equal ["librdkafka.dispatch_error", producer.id, :queue_full, :not_persisted],
                 [event[:type], event[:producer_id], event[:error].code, event[:delivery_report].status]
    assert_equal [10, 203, 10], producer.metrics.values_at(:messages, :failed, :queue_depth)
    source = ObjectSpace.each_object(Internal::EventSource).find { |one| one.producer.equal?(producer) }
    assert_equal 0, source.counts.last, "no label is kept"
    producer.monitor.clear
    producer.produce_async(topic:, payload: "x", label: :late)
    assert_equal [203, 204], [producer.metrics[:events][:queued], producer.metrics[:failed]]
  end

  private

  def interrupt_soon(thread)
    thread.report_on_exception = false
    sleep 0.002
    thread.raise(IOError)
    assert_raises(IOError) { thread.value }
  end

  # Its ten messages stay in the queue.
  def full_producer(topic, &)
    producer("queue.buffering.max.messages": 10, "linger.ms": 60_000, &).tap do |producer|
      10.times { |i| producer.produce_async(topic:, payload: i.to_s) }
    end
  end
end
