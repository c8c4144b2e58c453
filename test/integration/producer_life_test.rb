# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/reader"
require "securerandom"

# A producer's life on a real Kafka: what the broker stores, and what readers of transactions see. PENSTOCK_KAFKA says where it
# is; bin/test starts one.
class IntegrationProducerLifeTest < PenstockTest
  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }

  def kafka_producer(**settings, &block) = producer(servers: SERVERS, **settings, &block)

  def transactional(**settings, &block) = kafka_producer("transactional.id": "life-#{SecureRandom.hex(6)}", **settings, &block)

  # The payloads that a reader of committed messages sees.
  def payloads(topic)
    (0..3).flat_map { |partition| Reader.new(SERVERS, "isolation.level": "read_committed").read(topic, partitions: [partition]) }
          .map(&:payload)
  end

  def new_topic = "penstock-life-#{SecureRandom.hex(6)}"

  thorough def test_threads_that_produce_while_another_thread_disconnects_repeatedly_lose_and_repeat_no_message
    topic = new_topic
    one = kafka_producer("linger.ms": 1)
    one.produce_sync(topic:, payload: "first")
    done = false
    threads = Array.new(8) { |number| Thread.new { send_until(-> { done }, one, topic, number) } }
    20.times { one.disconnect }
    done = true
    sent = threads.flat_map(&:value)
    one.flush
    assert_equal ["first", *sent].sort, payloads(topic).sort
  end

  def test_close_commits_the_buffer_of_a_transactional_producer
    topic = new_topic
    one = transactional
    one.buffer_many(Array.new(5) { |i| { topic:, payload: i.to_s, partition: 0 } })
    assert_predicate one.close, :complete?
    assert_equal %w[0 1 2 3 4], payloads(topic)
  end

  thorough def test_close_during_a_transaction_aborts_it_and_readers_do_not_wait
    topic = new_topic
    one = transactional
    one.produce_sync(topic:, payload: "before", partition: 0)
    leave = Queue.new
    running = Thread.new do
      one.transaction do
        one.produce_sync(topic:, payload: "never", partition: 0)
        leave.pop
      end
    rescue Penstock::ProducerClosedError
      :raised
    end
    eventually { leave.num_waiting == 1 }
    one.close(timeout: 1)
    leave << true
    assert_equal :raised, running.value
    kafka_producer.produce_sync(topic:, payload: "after", partition: 0)
    assert_equal %w[before after], payloads(topic)
  end

  thorough def test_after_an_aborted_flush_its_messages_are_kept_and_sent_once
    topic = new_topic
    one = transactional
    one.produce_sync(topic:, payload: "first", partition: 0)
    one.buffer_many([{ topic:, payload: "a", partition: 0 }, { topic:, payload: "b", partition: 999 }])
    assert_raises(Penstock::Error) { one.flush_sync }
    assert_equal(%w[a b], one.messages.map { |message| message[:payload] })
    one.messages.last.store(:partition, 0)
    one.flush_sync
    assert_equal %w[first a b], payloads(topic)
  end

  # behaviour: topic settings of a variant
  thorough def test_the_compression_of_a_variant_takes_effect
    topic = new_topic
    one = kafka_producer("message.max.bytes": 3_000_000) { |config| config.max_payload_size = 3_000_000 }
    message = { topic:, payload: "a" * 2_000_000, partition: 0 }
    error = assert_raises(Penstock::DeliveryError) { one.produce_sync(message) }
    assert_equal :msg_size_too_large, error.code # the broker checks the compressed size
    one.with(topic_config: { "compression.type": "gzip" }).produce_sync(message)
    assert_equal [2_000_000], payloads(topic).map(&:size)
  end

  def test_acks_of_a_variant_take_effect
    topic = new_topic
    one = kafka_producer
    none = one.with(topic_config: { acks: 0 })
    assert_equal %i[persisted possibly_persisted persisted],
                 [one, none, one].map { |sender| sender.produce_sync(topic:, payload: "x").status }
  end

  # behaviour: purge
  thorough def test_purge_discards_unsent_messages_and_later_messages_arrive
    topic = new_topic
    one = kafka_producer("linger.ms": 60_000)
    handles = one.produce_many_async(Array.new(10) { { topic:, payload: "never", partition: 0 } })
    one.purge
    eventually { handles.none?(&:pending?) }
    one.produce_async(topic:, payload: "after", partition: 0)
    one.flush
    assert_equal %w[after], payloads(topic)
  end

  def test_a_parent_and_four_children_send_at_once_and_every_message_arrives_once
    topic = new_topic
    made, used = Array.new(2) { kafka_producer }
    variant = used.with(topic_config: { acks: 1 })
    [used, variant].each { |one| one.produce_sync(topic:, payload: "before") }
    work = lambda do |process|
      threads = [made, used, variant].each_with_index.map do |one, number|
        Thread.new { 50.times { |i| one.produce_sync(topic:, payload: "#{process} #{number} #{i}") } }
      end
      threads.each(&:join)
      true
    end
    children = Array.new(4) do |i|
      Thread.new { in_child(50) { work.call("child#{i}") && [made, used].map { |one| one.close.complete? } } }
    end
    parent = Thread.new { work.call("parent") }
    assert_equal [[true, true]] * 4, children.map(&:value)
    assert parent.value
    read = payloads(topic).grep_v("before")
    assert_equal [5 * 150, 5 * 150], [read.size, read.uniq.size]
  end

  private

  # @return [Array<String>] payloads
  def send_until(done, one, topic, number)
    sent = []
    until done.call
      more = Array.new(number + 1) { |i| "#{number} #{sent.size + i}" }
      one.produce_many_async(more.map { |payload| { topic:, payload: } })
      sent.concat(more)
      sleep 0.001 # some thousand messages are enough
    end
    sent
  end
end
