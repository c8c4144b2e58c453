# frozen_string_literal: true

require_relative "../test_helper"
require "objspace"
require "weakref"

class DeliveryHandleTest < PenstockTest
  # A handle that stays pending until its producer is flushed.
  def pending(**message)
    @held ||= holding_producer
    @held.produce_async(topic: topic(partitions: 1), payload: "", **message)
  end

  def delivered(**message)
    producer.produce_async(topic: topic(partitions: 1), payload: "", **message).tap(&:wait)
  end

  def failed
    producer = unreachable_producer("message.timeout.ms": 100)
    producer.produce_async(topic: "nowhere", payload: "", label: 1).tap { producer.flush }
  end

  def teardown
    @held&.flush
    super
  end

  def test_a_pending_handle_has_neither_report_nor_error
    handle = pending(label: 1)
    assert_equal [true, nil, nil, false, 1], [handle.pending?, handle.report, handle.error, handle.delivered?, handle.label]
    assert_nil handle.status
    assert_includes handle.inspect, "topic=#{handle.topic} pending"
  end

  def test_a_delivered_handle_has_a_report_and_no_error
    handle = delivered
    assert_equal [false, nil, true, 0], [handle.pending?, handle.error, handle.delivered?, handle.report.offset]
    assert_equal :persisted, handle.status
    assert_includes handle.inspect, "topic=#{handle.topic} persisted"
  end

  slow def test_a_failed_handle_has_a_report_and_the_error_that_wait_raises
    handle = failed
    assert_equal [false, false, :not_persisted], [handle.pending?, handle.delivered?, handle.status]
    assert_equal [:not_persisted, nil, 1], [handle.report.status, handle.report.latency, handle.report.label]
    raised = assert_raises(Penstock::MessageTimedOutError) { handle.wait }
    assert_equal [raised.message] * 2, [handle.error.message, handle.report.error.message]
    assert_includes handle.inspect, "not_persisted"
    assert_includes handle.report.inspect, "error=msg_timed_out"
  end

  # defect 4
  slow def test_waiting_again_returns_the_same_delivery_result
    handle = delivered
    assert_equal [0, 0], [handle.wait.offset, handle.wait(max_wait_timeout_ms: 0).offset]
    handle = failed
    2.times { assert_raises(Penstock::MessageTimedOutError) { handle.wait(max_wait_timeout_ms: 0) } }
  end

  [0, 0.0, 1, 20, 0.5, 30.7].each do |ms|
    define_method("test_wait_of_#{ms}_ms_ends_with_a_timeout_and_the_message_is_still_delivered".tr(".", "_")) do
      handle = pending
      error = nil
      took = seconds_of { error = assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: ms) } }
      assert_operator took, :>=, ms / 1000.0
      assert_includes error.message, "#{ms} ms"
      @held.flush
      assert_equal 0, handle.wait(max_wait_timeout_ms: 0).offset
    end
  end

  [nil, 10**9, 10**30, Float::INFINITY, 1e300].each_with_index do |ms, i|
    define_method("test_wait_without_a_limit_or_with_a_huge_one_lasts_until_the_delivery_result_#{i}") do
      handle = pending
      thread = Thread.new { handle.wait(max_wait_timeout_ms: ms).offset }
      eventually { thread.stop? }
      @held.flush
      assert_equal 0, thread.value
    end
  end

  def test_wait_with_an_invalid_timeout_raises
    [pending, delivered].each do |handle|
      [-1, -0.5, Float::NAN, -Float::INFINITY, "1", :one, [], 1r].each do |value|
        assert_raises(ArgumentError) { handle.wait(max_wait_timeout_ms: value) }
      end
    end
  end

  # behaviour: If the cluster or topic does not exist, the message fails
  slow def test_without_a_reachable_broker_wait_times_out_and_the_delivery_result_comes_later
    handle = unreachable_producer("message.timeout.ms": 300).produce_async(topic: "nowhere", payload: "")
    assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 20) }
    assert_predicate handle, :pending?
    assert_raises(Penstock::MessageTimedOutError) { handle.wait(max_wait_timeout_ms: 20_000) }
  end

  # ---- many waiters ----

  def test_many_threads_wait_for_one_handle
    handle = pending
    threads = Array.new(20) { Thread.new { handle.wait.offset } }
    eventually { threads.all?(&:stop?) }
    @held.flush
    assert_equal [0] * 20, threads.map(&:value)
  end

  def test_many_threads_wait_for_the_handles_of_one_batch
    topic = topic(partitions: 1)
    producer = holding_producer
    handles = producer.produce_many_async(Array.new(40) { { topic:, payload: "" } })
    threads = handles.map { |handle| Thread.new { handle.wait.offset } }
    threads += Array.new(5) { Thread.new { Penstock::DeliveryHandle.await_all(handles, timeout: nil) } }
    eventually { threads.all?(&:stop?) }
    producer.flush
    assert_equal [*0...40, *[true] * 5], threads.map(&:value)
  end

  slow def test_a_thread_that_waits_for_one_handle_of_a_batch_wakes_before_the_batch_is_settled
    own = own_cluster(brokers: 2)
    own.create_topic("events", partitions: 2)
    2.times { |partition| own.move_leader("events", partition, partition + 1) }
    producer = producer(servers: own.bootstrap_servers)
    producer.produce_many_sync(Array.new(2) { |partition| { topic: "events", payload: "", partition: } })
    own.set_round_trip_time(seconds: 1, broker: 2)
    fast, slow = producer.produce_many_async(Array.new(2) { |partition| { topic: "events", payload: "", partition: } })
    assert_equal [1, true], [fast.wait.offset, slow.pending?]
    assert_equal 1, slow.wait.offset
  end

  def test_a_thread_that_times_out_leaves_the_others_waiting
    handle = pending
    patient = Thread.new { handle.wait.offset }
    5.times { assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 5) } }
    assert_predicate patient, :alive?
    @held.flush
    assert_equal 0, patient.value
  end

  # ---- await_all ----

  slow def test_await_all_returns_true_if_all_were_delivered_and_false_if_one_failed
    good = delivered
    bad = failed
    await = ->(*handles) { Penstock::DeliveryHandle.await_all(handles, timeout: 0) }
    assert_equal [true, true, false, false, true], [await[], await[good, good], await[good, bad], await[bad, good], await[good]]
  end

  def test_await_all_returns_nil_at_its_timeout
    handles = [delivered, pending]
    assert_nil Penstock::DeliveryHandle.await_all(handles, timeout: 0.01)
    assert_nil Penstock::DeliveryHandle.await_all(handles, timeout: 0)
    @held.flush
    assert_equal true, Penstock::DeliveryHandle.await_all(handles, timeout: 0)
  end

  def test_await_all_of_one_handle_returns_the_result_of_that_handle
    topic = topic(partitions: 1)
    producer = producer("message.timeout.ms": 2_000, log_level: 0)
    good, = producer.produce_many_sync([{ topic:, payload: "" }] * 2)
    assert_equal true, Penstock::DeliveryHandle.await_all([good], timeout: 0)
  end

  slow def test_await_all_returns_false_for_a_batch_with_a_nonexistent_partition
    own = own_cluster
    topic = topic(partitions: 1, on: own)
    own.set_round_trip_time(seconds: 0.3) # until then the number of partitions is unknown
    producer = producer(servers: own.bootstrap_servers)
    good, bad = producer.produce_many_async([{ topic:, payload: "", partition: 0 }, { topic:, payload: "", partition: 9 }])
    assert_equal false, Penstock::DeliveryHandle.await_all([good, bad], timeout: 20)
    assert_equal [true, true, false], [[good], [good, good], [bad]].map { Penstock::DeliveryHandle.await_all(_1, timeout: 0) }
  end

  def test_await_all_raises_if_an_element_is_not_a_handle
    [[nil], [1], ["a"], [Object.new]].each do |handles|
      assert_raises(TypeError) { Penstock::DeliveryHandle.await_all(handles, timeout: 0) }
    end
  end

  def test_await_all_raises_without_an_array
    ["nil", "5", '"a"', "{}"].each do |handles|
      program = "begin Penstock::DeliveryHandle.await_all(#{handles}, timeout: 0); rescue TypeError; print :raised; end"
      output, _, status = ruby(program)
      assert_equal ["raised", true], [output, status.success?], "#{handles}: #{status}"
    end
  end

  # ---- the handle as a Ruby object ----

  def test_a_handle_cannot_be_copied_created_or_marshalled
    handle = delivered
    assert_raises(TypeError) { handle.dup }
    assert_raises(TypeError) { handle.clone }
    assert_raises(TypeError) { Marshal.dump(handle) }
    assert_raises(TypeError, NoMethodError) { Penstock::DeliveryHandle.allocate }
    assert_raises(TypeError, NoMethodError) { Penstock::DeliveryHandle.new }
  end

  def test_memsize_counts_the_native_part
    plain = ObjectSpace.memsize_of(delivered)
    assert_operator plain, :>, ObjectSpace.memsize_of(Object.new)
    assert_operator ObjectSpace.memsize_of(delivered(partition_key: "k" * 5_000)), :>=, plain + 5_000
  end

  def test_topic_is_one_frozen_string_even_if_the_caller_changes_its_own
    topic = topic(partitions: 1)
    mine = +"" << topic
    handle = producer.produce_async(topic: mine, payload: "")
    mine << "-changed"
    assert_equal [topic, topic], [handle.topic, handle.wait.topic]
    assert_predicate handle.topic, :frozen?
    assert_same handle.topic, handle.report.topic
  end

  def test_topic_and_label_survive_compaction
    topic = topic(partitions: 1)
    messages = Array.new(500) { |i| { topic: +"" << topic, payload: "", label: +"label #{i}" } }
    handles = producer.produce_many_async(messages)
    messages.clear
    compact
    assert_equal Array.new(500) { |i| "label #{i}" }, handles.map(&:label)
    assert_equal [[topic] * 2], handles.map { |handle| [handle.topic, handle.wait.topic] }.uniq
  end

  def compact
    Array.new(20_000) { +"to be moved into the gaps" }
    GC.start
    GC.compact
    return unless GC.respond_to?(:verify_compaction_references)

    GC.verify_compaction_references((RUBY_VERSION < "3.2" ? :double_heap : :expand_heap) => true, toward: :empty)
  end

  def test_a_label_lives_as_long_as_its_handle_and_no_longer
    labels = []
    handles = Thread.new { Array.new(50) { delivered_with_weak_label(labels) } }.value
    GC.start
    assert(labels.all?(&:weakref_alive?))
    assert_equal 50, handles.size
    handles.clear
    eventually do
      GC.start
      labels.count(&:weakref_alive?) < 10
    end
  end

  def delivered_with_weak_label(labels)
    @labelling ||= [producer("linger.ms": 0), topic(partitions: 1)]
    label = Object.new
    labels << WeakRef.new(label)
    @labelling[0].produce_async(topic: @labelling[1], payload: "", label:).tap(&:wait)
  end

  # defect 6
  def test_a_handle_outlives_its_closed_and_collected_producer
    handles = Thread.new { in_a_producer_of_its_own }.value
    10.times { GC.start }
    assert_equal [0, 1], handles.map { |handle| handle.wait.offset }
    assert_equal [[], []], handles.map(&:label)
  end

  def in_a_producer_of_its_own
    topic = topic(partitions: 1)
    producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": cluster.bootstrap_servers } }
    handles = producer.produce_many_async(Array.new(2) { { topic:, payload: "", label: [] } })
    producer.close
    handles
  end

  def test_an_error_still_names_its_producer_after_the_producer_was_collected
    name = nil
    handle = Thread.new do
      producer = Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 }
        name = config.id
      end
      producer.produce_async(topic: "nowhere", payload: "").tap { producer.close(timeout: 0) }
    end.value
    10.times { GC.start }
    assert_includes handle.error.message, name
    assert_equal :purge_queue, handle.error.code
  end
end
