# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/producer_test_case"

class ProducerRejectionsTest < ProducerTestCase
  FULL = { "queue.buffering.max.messages": 10, "linger.ms": 60_000 }.freeze

  # behaviour: produce_async
  # behaviour: queue_size, queue_length
  def test_a_full_queue_rejects_a_message_and_accepts_the_next_after_a_flush
    topic = topic(partitions: 1)
    producer = producer(**FULL) { |config| config.on_queue_full = :raise }
    handles = Array.new(10) { |i| producer.produce_async(topic:, payload: i.to_s) }
    error = assert_raises(Penstock::QueueFullError) { producer.produce_async(topic:, payload: "too many") }
    assert_equal [:queue_full, topic, producer.id, true], [error.code, error.topic, error.producer_id, error.retriable?]
    assert_equal 10, producer.queue_size
    producer.flush
    handles << producer.produce_async(topic:, payload: "10")
    producer.flush
    assert_equal (0..10).map { |i| [topic, 0, i] }, places(handles)
    assert_equal (0..10).map(&:to_s), stored(topic).map(&:payload)
  end

  [25, 250].each do |size| # the second is enqueued without the GVL
    # behaviour: produce_many_async
    # behaviour: One invalid message in a batch
    define_method("test_the_error_of_a_batch_of_#{size}_larger_than_the_queue_lists_accepted_messages") do
      topic = topic(partitions: 1)
      producer = producer(**FULL) { |config| config.on_queue_full = :raise }
      messages = Array.new(size) { |i| { topic:, payload: i.to_s, label: i } }
      error = assert_raises(Penstock::ProduceManyError) { producer.produce_many_async(messages) }
      assert_equal [:queue_full, (0...10).to_a], [error.code, error.dispatched.map(&:label)]
      assert_includes error.message, "Accepted 10 of #{size} messages"
      assert_equal 10, producer.queue_size
      producer.flush
      assert_equal (0...10).map { |i| [topic, 0, i] }, places(error.dispatched)
      assert_equal 10, producer.produce_async(topic:, payload: "").tap { producer.flush }.report.offset
    end

    # behaviour: produce_many_sync
    define_method("test_produce_many_sync_of_#{size}_for_a_full_queue_raises_after_the_accepted_have_results") do
      topic = topic(partitions: 1)
      producer = producer("queue.buffering.max.messages": 10, "linger.ms": 100) { |config| config.on_queue_full = :raise }
      error = assert_raises(Penstock::ProduceManyError) { producer.produce_many_sync([{ topic:, payload: "" }] * size) }
      assert_equal (0...10).map { |i| [topic, 0, i] }, places(error.dispatched)
      assert_equal 10, producer.produce_async(topic:, payload: "").tap { producer.flush }.report.offset
    end
  end

  def test_a_batch_without_accepted_messages_has_no_dispatched_handles
    producer = producer(**FULL) { |config| config.on_queue_full = :raise }
    topic = topic(partitions: 1)
    producer.produce_many_async([{ topic:, payload: "" }] * 10)
    error = assert_raises(Penstock::ProduceManyError) { producer.produce_many_async([{ topic:, payload: "" }] * 2) }
    assert_equal [], error.dispatched
    producer.flush
    assert_equal 10, stored(topic).size
  end

  def test_produce_many_sync_returns_or_times_out_if_results_arrive_at_its_deadline
    topic = topic(partitions: 1)
    producer = producer("linger.ms": 0.45) { |config| config.max_wait_timeout = 1 }
    producer.produce_async(topic:, payload: "").wait
    1_000.times do
      assert_equal 1, producer.produce_many_sync([{ topic:, payload: "" }]).size
    rescue Penstock::WaitTimeoutError
      next
    end
  end

  def test_a_delivery_result_frees_space_for_the_next_message
    topic = topic(partitions: 1)
    producer = producer("queue.buffering.max.messages": 1, "linger.ms": 0)
    assert_equal (0...100).to_a, Array.new(100) { producer.produce_sync(topic:, payload: "").offset }
  end

  def faulty(*errors, partitions: 1, **settings)
    own = own_cluster
    topic = topic(partitions:, on: own)
    producer = producer(servers: own.bootstrap_servers, "retry.backoff.ms": 10, log_level: 0, **settings)
    producer.partition_count(topic)
    own.inject_errors(:produce, *errors)
    [producer, topic, own]
  end

  # behaviour: produce_sync
  slow def test_a_brokers_rejection_is_a_delivery_error_and_the_message_not_persisted
    producer, topic, = faulty(:invalid_record)
    handle = producer.produce_async(topic:, payload: "", label: 1)
    error = assert_raises(Penstock::DeliveryError) { handle.wait }
    assert_equal [:invalid_record, 87, topic, 0, producer.id],
                 [error.code, error.number, error.topic, error.partition, error.producer_id]
    refute_predicate error, :retriable?
    report = handle.report
    assert_equal [:not_persisted, 0, 1, nil], [report.status, report.partition, report.label, report.latency]
    assert_equal [false, true, false], [report.delivered?, report.not_persisted?, handle.delivered?]
    assert_predicate producer.produce_sync(topic:, payload: ""), :persisted?
  end

  # A loop that repeats what is retriable would never end.
  { msg_size_too_large: /batch\.size.*max\.message\.bytes/, record_list_too_large: /batch\.size.*segment\.bytes/,
    invalid_record: /a key if the topic is compacted/, invalid_timestamp: /message\.timestamp\.after\.max\.ms/,
    policy_violation: /policy/, topic_authorization_failed: /right to write/, unsupported_for_message_format: // }
    .each do |code, advice|
      define_method("test_a_message_rejected_with_#{code}_is_not_stored_and_not_retriable") do
        producer, topic, = faulty(code)
        handle = producer.produce_async(topic:, payload: "")
        error = assert_raises(Penstock::DeliveryError) { handle.wait }
        assert_equal [code, false, :not_persisted], [error.code, error.retriable?, handle.report.status]
        assert_match advice, error.message
      end
    end

  # behaviour: A report's partition and offset are right
  def test_a_message_that_a_broker_rejected_has_no_offset
    producer, topic, = faulty(:invalid_record)
    handle = producer.produce_async(topic:, payload: "")
    producer.flush
    assert_nil handle.report.offset
  end

  def test_an_unclear_answer_leaves_a_message_possibly_persisted_and_not_retriable
    producer, topic, = faulty(:request_timed_out, retries: 0)
    handle = producer.produce_async(topic:, payload: "")
    error = assert_raises(Penstock::DeliveryError) { handle.wait }
    assert_equal [:request_timed_out, false, :possibly_persisted], [error.code, error.retriable?, handle.report.status]
  end

  def test_a_retriable_answer_is_retried_and_the_message_stored_once
    producer, topic, own = faulty(:not_enough_replicas)
    assert_equal 0, producer.produce_sync(topic:, payload: "once").offset
    assert_equal ["once"], stored(topic, on: own).map(&:payload)
  end

  # With :topic_authorization_failed librdkafka would also fail the topic's messages that it has not sent yet.
  # behaviour: produce_many_sync
  slow def test_a_batch_that_partly_fails_raises_an_error_with_all_handles
    producer, topic, = faulty(:invalid_record, partitions: 2, "linger.ms": 50)
    messages = Array.new(20) { |i| { topic:, payload: "", partition: i % 2, label: i } }
    error = assert_raises(Penstock::ProduceManyError) { producer.produce_many_sync(messages) }
    assert_equal (0...20).to_a, error.dispatched.map(&:label)
    assert_equal :invalid_record, error.code
    failed = error.dispatched.select(&:error)
    assert_equal 1, failed.map { |handle| handle.report.partition }.uniq.size
    assert_equal 10, error.dispatched.count(&:delivered?)
  end

  # A cluster that answers late, and a producer that knows its topic's 2 partitions. For a higher partition, the producer asks the
  # cluster.
  def asking_of_a_slow_cluster
    own = own_cluster
    topic = topic(partitions: 2, on: own)
    producer = producer(servers: own.bootstrap_servers, log_level: 0)
    producer.produce_sync(topic:, payload: "")
    own.set_round_trip_time(seconds: 30)
    yield producer, { topic:, payload: "", partition: 2 }
  ensure
    own.set_round_trip_time(seconds: 0)
  end

  # behaviour: partition_key decides the partition as a key does
  slow def test_the_lookup_of_an_unknown_partition_takes_at_most_a_second_and_is_rate_limited
    asking_of_a_slow_cluster do |producer, message|
      took = seconds_of do
        10.times do
          error = assert_raises(Penstock::ProduceError) { producer.produce_async(message) }
          assert_equal [:unknown_partition, 2], [error.code, error.partition]
          many = assert_raises(Penstock::ProduceManyError) { producer.produce_many_async([message.merge(partition: 1), message]) }
          assert_equal [:unknown_partition, 1], [many.code, many.dispatched.size]
        end
      end
      assert_took(8, took) unless GCLevel.slow?
      assert_equal 10, producer.queue_size
    end
  end

  {
    one: ->(producer, message) { producer.produce_async(message) },
    many: ->(producer, message) { producer.produce_many_async([message] * 300) }
  }.each do |name, call|
    define_method("test_looking_up_an_unknown_partition_of_#{name}_is_interrupted_and_nothing_is_accepted") do
      asking_of_a_slow_cluster do |producer, message|
        assert_raises(Interrupt) { Timeout.timeout(0.2, Interrupt) { call.call(producer, message) } }
        assert_equal 0, producer.queue_size
        producer.produce_many_async(Array.new(300) { message.merge(partition: 1) })
        assert_equal 300, producer.queue_size
      end
    end
  end

  # The cluster answers after the producer has accepted the message. Later the message would not be accepted.
  slow def test_a_nonexistent_partition_is_a_delivery_error
    own = own_cluster
    topic = topic(partitions: 2, on: own)
    own.set_round_trip_time(seconds: 0.5)
    producer = producer(servers: own.bootstrap_servers)
    error = assert_raises(Penstock::DeliveryError) { producer.produce_sync(topic:, payload: "", partition: 2) }
    assert_equal :unknown_partition, error.code
  end

  # librdkafka does not take ownership of the headers of a message that it rejects. The sanitizers report a leak or a double free.
  # defect 4
  def test_headers_for_a_partition_that_does_not_exist_are_freed_once
    topic = topic(partitions: 2)
    producer = self.producer("linger.ms": 0)
    producer.partition_count(topic)
    message = { topic:, payload: "x", headers: { "one" => "a" * 100, "many" => %w[b c] } }
    lost = { **message, partition: 99 }
    200.times { assert_equal :unknown_partition, code_of { producer.produce_async(lost).wait } }
    [2, 300].each do |size| # the second is enqueued without the GVL
      20.times { assert_equal :unknown_partition, code_of { producer.produce_many_sync([*[message] * (size - 1), lost]) } }
      20.times { assert_equal :unknown_partition, code_of { producer.produce_many_sync([lost, *[message] * (size - 1)]) } }
      20.times { assert_equal :unknown_partition, code_of { producer.produce_many_async([lost] * size).each(&:wait) } }
    end
    producer.flush
    assert_equal 0, producer.queue_size
    assert_predicate producer.produce_sync(**message), :persisted?
  end

  def code_of
    yield
  rescue Penstock::ProduceError => e
    e.code
  end
end
