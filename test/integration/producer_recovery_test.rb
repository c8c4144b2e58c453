# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/transaction_test_case"
require "securerandom"

# How producers recover from fatal errors, on a real Apache Kafka: PENSTOCK_KAFKA says where it is; bin/test starts one.
class KafkaProducerRecoveryTest < TransactionTestCase
  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }
  THREADS = 8

  def setup
    super
    @topic = "penstock-recovery-#{SecureRandom.hex(6)}"
  end

  def test_threads_that_send_during_fatal_errors_lose_and_repeat_no_message_and_keep_their_order
    producer = impatient(on: SERVERS, "linger.ms": 1)
    make_topic(producer)
    seen = events(producer, "producer.reload", "error.occurred")
    sent = Array.new(THREADS) { Thread::Queue.new }
    threads = Array.new(THREADS) { |i| quiet_thread { 200.times { |n| send_one_or_three(producer, i, n, sent[i]) } } }
    3.times do |round|
      eventually(60) { sent.all? { |queue| queue.size > (round + 1) * 60 } }
      break_down(producer)
      eventually(60) { seen.size == 2 * (round + 1) }
    end
    threads.each { |thread| Slowness.join(thread, 60) or flunk thread.backtrace.join("\n") } # join raises the thread's error
    assert_equal %w[error.occurred producer.reload] * 3, taken(seen).map(&:id)
    sent.each_with_index { |queue, i| assert_equal taken(queue), payloads(partition: i % 4, from: i), "thread #{i}" }
  end

  thorough def test_transactions_during_fatal_errors_are_visible_completely_or_not_at_all
    producer = impatient(on: SERVERS, "transactional.id": @topic)
    make_topic(producer)
    committed = []
    40.times do |i|
      producer.transaction do
        handles = Array.new(4) { |p| producer.produce_async(topic: @topic, payload: "t-#{i}", partition: p) }
        handles.each(&:wait) if (i % 3).zero?
        break_down(producer) if (i % 5).zero?
      end
      committed << "t-#{i}"
    rescue Penstock::TransactionError, Penstock::DeliveryError => e
      assert i % 5 == 0, "#{i}: #{e.message}" # rubocop:disable Style/NumericPredicate
    end
    assert_equal 32, committed.size
    4.times { |partition| assert_equal committed, visible(partition).grep(/t-/) }
  end

  thorough def test_a_worker_commits_each_offset_with_its_message_despite_fatal_errors
    input = producer(servers: SERVERS)
    input.produce_many_sync(Array.new(30) { |i| { topic: "#{@topic}-in", payload: i.to_s, partition: 0 } })
    producer = impatient(on: SERVERS, "transactional.id": @topic)
    consumer = Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": SERVERS, "group.id": @topic, "auto.offset.reset": "earliest",
                       "enable.auto.commit": false }
    end
    consumer.subscribe("#{@topic}-in")
    position = 0
    eventually(50) do
      position = transform(producer, consumer, position)
      position == 30
    end
    assert_equal Array.new(30, &:to_s), visible(0)
    assert_equal({ 0 => 30 }, consumer.committed("#{@topic}-in", 0))
  ensure
    consumer&.close(timeout: 5)
  end

  # Processes one batch. Every second transaction fails, and its messages are read again.
  # @return [Integer] the offset to continue with
  def transform(producer, consumer, position)
    batch = consumer.poll_batch(max: 4, timeout: 0.2)
    return position if batch.empty?

    @turn = @turn.to_i + 1
    producer.transaction do
      batch.each { |message| producer.produce_async(topic: @topic, payload: message.payload, partition: 0) }
      producer.transaction_mark_as_consumed(consumer, batch.last)
      break_down(producer) if @turn.odd?
    end
    batch.last.offset + 1
  rescue Penstock::TransactionError
    consumer.seek("#{@topic}-in", 0, position)
    position
  end

  private

  def break_down(producer) = producer.client.test_fatal_error(:out_of_order_sequence_number, "for a test")

  # Kafka creates it with 4 partitions.
  def make_topic(producer) = producer.produce_sync(topic: @topic, payload: "first", partition: 0)

  def send_one_or_three(producer, thread, round, sent)
    messages = Array.new(round.even? ? 1 : 3) do |part|
      { topic: @topic, payload: format("%d-%03d-%d", thread, round, part), partition: thread % 4 }
    end
    round.even? ? producer.produce_sync(messages[0]) : producer.produce_many_sync(messages)
    messages.each { |message| sent << message[:payload] }
  end

  def payloads(partition:, from:) = visible(partition).grep(/\A#{from}-/)

  def visible(partition)
    Reader.new(SERVERS, "isolation.level": "read_committed").read(@topic, partitions: [partition]).map(&:payload)
  end
end
