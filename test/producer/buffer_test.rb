# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/producer_test_case"

# Buffered messages, and their flush.
class ProducerBufferTest < ProducerTestCase
  # behaviour: buffer, buffer_many
  # behaviour: messages
  def test_messages_are_buffered_unchecked_and_sent_in_order_by_a_flush
    name = topic(partitions: 1)
    one = producer
    assert_same one.messages, one.buffer(topic: name, payload: "0")
    given = [{ topic: name, payload: "1" }, { topic: name, payload: "2" }]
    assert_same given, one.buffer_many(given)
    assert_equal %w[0 1 2], (one.messages.map { |message| message[:payload] })
    assert_equal [:configured, 0], [one.status.to_sym, one.queue_size]
    handles = one.flush_sync
    assert_equal [0, 1, 2], (handles.map { |handle| handle.report.offset })
    assert_empty one.messages
    one.buffer(topic: name, payload: "3")
    assert_equal 3, one.flush_async.first.wait.offset
  end

  # behaviour: flush_sync, flush_async
  def test_flushing_an_empty_buffer_returns_no_handles_and_connects_nothing
    one = unreachable_producer
    assert_equal [[], [], :configured], [one.flush_sync, one.flush_async, one.status.to_sym]
  end

  # behaviour: buffer, buffer_many
  def test_a_closed_producer_raises_on_buffer_and_flush
    one = producer
    one.close
    [-> { one.buffer(topic: "t", payload: "x") }, -> { one.buffer_many([]) }, -> { one.flush_sync },
     -> { one.flush_async }].each { |call| assert_raises(Penstock::ProducerClosedError, &call) }
  end

  # ---- a flush that fails ----

  # behaviour: flush_sync, flush_async
  def test_a_flush_with_an_invalid_message_sends_nothing_and_restores_the_buffer
    name = topic(partitions: 1)
    one = producer
    %w[a b].each { |payload| one.buffer(topic: name, payload:) }
    one.buffer(topic: name)
    kept = one.messages.dup
    %i[flush_sync flush_async].each do |flush|
      assert_raises(Penstock::MessageInvalidError) { one.public_send(flush) }
      assert_equal kept, one.messages
    end
    one.messages.pop
    assert_equal [0, 1], (one.flush_sync.map { |handle| handle.report.offset })
  end

  # behaviour: flush_sync, flush_async
  def test_messages_that_the_queue_rejected_are_put_back_in_order_at_the_front
    one = unreachable_producer("queue.buffering.max.messages": 3) { |config| config.on_queue_full = :raise }
    one.buffer_many(messages("test", 5))
    error = assert_raises(Penstock::ProduceManyError) { one.flush_async }
    one.buffer(topic: "test", payload: "later")
    assert_equal 3, error.dispatched.size
    assert_equal %w[3 4 later], payloads(one)
    one.close(timeout: 0)
  end

  slow def test_messages_with_a_failed_delivery_result_are_not_put_back
    one = unreachable_producer("message.timeout.ms": 300)
    one.buffer_many(messages("test", 3))
    assert_equal 3, assert_raises(Penstock::ProduceManyError) { one.flush_sync }.dispatched.size
    assert_empty one.messages
  end

  def test_an_error_of_the_middleware_restores_the_buffer
    name = topic(partitions: 1)
    one = producer
    broken = true
    one.middleware.append { |message| broken && message[:payload] == "1" ? raise(IOError, "broken") : message }
    one.buffer_many(messages(name, 3))
    assert_raises(IOError) { one.flush_sync }
    assert_equal %w[0 1 2], payloads(one)
    broken = false
    one.flush_sync
    assert_equal %w[0 1 2], stored(name).map(&:payload)
  end

  def test_an_interrupted_flush_that_waits_for_space_puts_back_unaccepted_messages
    [->(thread) { thread.raise(Interrupt) }, :kill.to_proc].each do |interrupt|
      one = unreachable_producer("queue.buffering.max.messages": 3) { |config| config.wait_timeout_on_queue_full = nil }
      one.buffer_many(messages("test", 5))
      flushing = quiet_thread { one.flush_async }
      eventually { one.queue_size == 3 && flushing.stop? }
      interrupt.call(flushing)
      begin
        flushing.join
      rescue Interrupt
        nil
      end
      assert_equal %w[3 4], payloads(one)
      assert_equal [3, 2], one.close(timeout: 0.1).to_a.values_at(2, 4)
    end
  end

  def test_an_interrupted_flush_that_waits_for_results_puts_nothing_back
    one = unreachable_producer
    one.buffer_many(messages("test", 5))
    flushing = quiet_thread { one.flush_sync }
    eventually { one.queue_size == 5 && flushing.stop? }
    flushing.raise(Interrupt)
    assert_raises(Interrupt) { flushing.value }
    assert_empty one.messages
    one.close(timeout: 0)
  end

  def test_an_interrupted_flush_that_waits_for_another_flush_leaves_the_buffer_unchanged
    one = unreachable_producer
    one.buffer(topic: "test", payload: "first")
    first = quiet_thread { one.flush_sync }
    eventually { one.queue_size == 1 && first.stop? }
    one.buffer(topic: "test", payload: "second")
    second = quiet_thread { one.flush_sync }
    eventually { second.stop? }
    second.raise(Interrupt)
    assert_raises(Interrupt) { second.value }
    assert_equal %w[second], payloads(one)
    one.close(timeout: 0)
    assert_raises(Penstock::ProduceManyError) { first.value }
  end

  # ---- in transactions ----

  def test_a_flush_of_a_transactional_producer_is_one_transaction
    one = transactional
    committed = 0
    one.monitor.subscribe("transaction.committed") { committed += 1 }
    one.buffer_many(messages(topic(partitions: 1), 3))
    assert_equal 3, one.flush_sync.size
    assert_equal 1, committed
  end

  def test_a_flush_whose_transaction_was_aborted_restores_the_buffer
    one = transactional { |config| config.client_class = Penstock::Clients::Buffered }
    one.buffer_many(messages("test", 3))
    seen = 0
    one.client.script { |_| (seen += 1) == 2 ? :topic_authorization_failed : nil }
    assert_raises(Penstock::ProduceManyError) { one.flush_sync }
    assert_equal %w[0 1 2], payloads(one)
    assert_empty one.client.messages
    one.flush_sync
    assert_equal 3, one.client.messages.size
  end

  slow def test_a_flush_that_cannot_begin_its_transaction_restores_the_buffer
    one = unreachable_producer("transactional.id": "tx", "transaction.timeout.ms": 1_000, "message.timeout.ms": 500) do |config|
      config.max_attempts_on_transaction_command = 1
      config.reload_on_transaction_fatal_error = false
    end
    one.buffer_many(messages("test", 3))
    assert_raises(Penstock::TransactionError) { one.flush_sync }
    assert_equal %w[0 1 2], payloads(one)
    assert_equal 3, one.close(timeout: 0).unsent
  end

  # ---- several threads ----

  # behaviour: No message is lost if other threads flush or purge while one buffers
  def test_concurrent_buffer_and_flush_neither_lose_nor_repeat_messages
    name = topic(partitions: 1)
    one = producer
    writers = Array.new(4) do |writer|
      Thread.new { 300.times { |i| one.buffer(topic: name, payload: "#{writer}-#{i}") } }
    end
    flushers = Array.new(3) { |i| Thread.new { flush_until(one, writers, i.even? ? :flush_sync : :flush_async) } }
    (writers + flushers).each(&:join)
    one.flush_sync
    one.flush
    read = stored(name).map(&:payload)
    assert_equal 1_200, read.size
    4.times do |writer|
      assert_equal Array.new(300) { |i| "#{writer}-#{i}" }, read.grep(/\A#{writer}-/)
    end
  end

  # behaviour: No message is lost if other threads flush or purge while one buffers
  def test_concurrent_buffer_flush_and_purge_account_for_every_message
    name = topic(partitions: 1)
    one = producer("linger.ms": 1)
    thrown_away = Thread::Queue.new # by purges, and by hand
    one.monitor.subscribe("buffer.purged") { |event| event[:messages].each { |message| thrown_away << message[:label] } }
    sent = Array.new(4) { |writer| Array.new(300) { |i| "#{writer}-#{i}" } }
    writers = sent.map { |all| Thread.new { all.each { |label| one.buffer(topic: name, payload: label, label:) } } }
    flusher = Thread.new { Array.new(1) { one.flush_async }.tap { |all| all << one.flush_async while writers.any?(&:alive?) } }
    purger = Thread.new { throw_away(one, thrown_away) while writers.any?(&:alive?) }
    [*writers, flusher, purger].each(&:join)
    handles = flusher.value.flatten + one.flush_sync
    one.flush
    assert_equal [[], 0], [one.messages, one.queue_size]
    assert_equal sent.flatten.sort, (handles.map(&:label) + Array.new(thrown_away.size) { thrown_away.pop }).sort
    assert_stored(name, handles)
  end

  def test_a_listener_and_middleware_may_buffer_and_flush
    name = topic(partitions: 1)
    one = producer
    one.monitor.subscribe("messages.produced_sync") do |event|
      one.buffer(topic: name, payload: "second") && one.flush_sync if event[:messages].first[:payload] == "first"
    end
    one.buffer(topic: name, payload: "first")
    Slowness.within(20) { one.flush_sync }
    assert_equal %w[first second], stored(name).map(&:payload)
  end

  def test_a_signal_trap_may_buffer
    output = ruby!(<<~RUBY, cluster.bootstrap_servers, topic)
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0] } }
      Signal.trap("USR1") { producer.buffer(topic: ARGV[1], payload: "x") }
      Process.kill(:USR1, Process.pid)
      sleep 0.01 while producer.messages.empty?
      puts producer.flush_sync.count(&:delivered?)
    RUBY
    assert_equal "1\n", output
  end

  private

  def throw_away(one, labels)
    by_hand = one.messages.shift
    labels << by_hand[:label] if by_hand
    one.purge if rand < 0.05
    Thread.pass
  end

  # Delivered messages are stored. Purged messages that cannot have been sent are not. No message is stored twice.
  def assert_stored(name, handles)
    delivered, purged = handles.partition(&:delivered?)
    assert_empty purged.map { |handle| handle.error.code } - %i[purge_queue purge_inflight]
    read = stored(name).map(&:payload)
    assert_equal read.uniq, read
    assert_empty delivered.map(&:label) - read
    assert_empty read & purged.select { |handle| handle.report.not_persisted? }.map(&:label)
  end

  def messages(topic, count) = Array.new(count) { |i| { topic:, payload: i.to_s } }

  def payloads(one) = one.messages.map { |message| message[:payload] }

  def transactional(&block) = producer("transactional.id": "tx-#{rand(2**32)}", &block)

  def flush_until(one, writers, how)
    one.public_send(how) while writers.any?(&:alive?)
  end
end
