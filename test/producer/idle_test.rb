# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/producer_test_case"

# config.idle_disconnect_timeout. Its minimum is 30 seconds, so the tests replace it with a shorter one.
class ProducerIdleTest < ProducerTestCase
  # behaviour: idle_disconnect_timeout
  def test_the_timeout_is_zero_or_at_least_30_seconds
    assert_equal 0, producer.config.idle_disconnect_timeout
    assert_equal 30_000, idle.config.idle_disconnect_timeout
    [29_999, -1, 1.5, nil, "30000"].each do |bad|
      error = assert_raises(Penstock::ConfigurationInvalidError) { producer { |config| config.idle_disconnect_timeout = bad } }
      assert_match(/idle_disconnect_timeout.*30000/, error.message)
    end
  end

  # behaviour: An idle producer disconnects, unless it has messages to send
  # behaviour: A producer that was used and is idle disconnects
  def test_an_idle_producer_disconnects_and_the_next_message_connects_it_again
    name = topic(partitions: 1)
    one = idle
    heard = []
    one.monitor.subscribe("producer.disconnected") { heard << Thread.current.name }
    2.times do |i|
      assert_equal i, one.produce_sync(topic: name, payload: "x").offset
      hasten(one)
      eventually { one.status.disconnected? }
      assert_equal 0, Internal::ProducerClient.open_count
    end
    assert_equal ["penstock.idle"] * 2, heard
    eventually { idle_threads.empty? }
  end

  # behaviour: idle_disconnect_timeout
  def test_the_timeout_applies_from_the_first_connection_on
    one = idle
    assert_empty idle_threads
    one.produce_sync(topic:, payload: "x")
    assert_equal 1, idle_threads.size
    another = idle
    another.client
    assert_equal 1, idle_threads.size
    [one, another].each(&:close)
    eventually { idle_threads.empty? }
  end

  # behaviour: A producer that was used and is idle disconnects
  def test_no_thread_runs_without_a_timeout_or_before_the_first_connection
    producer.client
    idle
    assert_empty idle_threads
  end

  # behaviour: A producer that was used and is idle disconnects
  alone thorough slow def test_a_busy_producer_does_not_disconnect
    one = idle
    disconnects = count(one, "producer.disconnected")
    one.client
    hasten(one, 1_000)
    deadline = now + 3
    one.produce_sync(topic: "idle-busy", payload: "x") while now < deadline
    assert_equal 0, disconnects.size
    eventually(10) { one.status.disconnected? }
  end

  # behaviour: An idle producer disconnects, unless it has messages to send
  slow def test_a_producer_with_buffered_or_inflight_messages_or_a_transaction_stays_connected
    buffered = idle
    buffered.client
    buffered.buffer(topic:, payload: "x")
    flying = idle("linger.ms": 60_000)
    flying.produce_async(topic:, payload: "x")
    working = idle("transactional.id": "tx-#{rand(2**32)}")
    leave = Queue.new
    transaction = Thread.new { working.transaction { leave.pop } }
    eventually { working.status.connected? }
    all = [buffered, flying, working]
    other = idle
    other.client
    all.each { |one| hasten(one, 50) }
    hasten(other, 1_000)
    eventually(10) { other.status.disconnected? } # the others have been checked many times before
    assert_equal [:connected] * 3, all.map { |one| one.status.to_sym }
    leave << true
    transaction.join
    buffered.flush_sync
    flying.flush
    all.each { |one| eventually(10) { one.status.disconnected? } }
  end

  # behaviour: error.occurred of the connection
  # behaviour: A producer that was used and is idle disconnects
  def test_a_failed_disconnect_is_published_and_retried_without_affecting_other_producers
    failing, fine = Array.new(2) { idle.tap(&:client) }
    errors = count(failing, "error.occurred")
    failures = 2
    failing.define_singleton_method(:disconnect) { (failures -= 1) >= 0 ? raise(IOError, "not now") : super() }
    [failing, fine].each { |one| hasten(one, 50) }
    eventually(10) { fine.status.disconnected? }
    eventually(10) { failing.status.disconnected? }
    assert_equal([["producer.disconnect.error", IOError]] * 2, errors.map { |event| [event[:type], event[:error].class] })
  end

  def test_a_later_producer_with_a_shorter_timeout_disconnects_in_time
    patient = idle
    patient.client # 30 s
    eventually { idle_threads.first.stop? }
    20.times do
      one = idle
      one.client
      hasten(one, 20)
      eventually(10) { one.status.disconnected? }
      one.close
    end
    assert_equal 1, idle_threads.size
    assert_predicate patient.status, :connected?
  end

  # behaviour: An idle producer disconnects, unless it has messages to send
  def test_threads_that_send_while_the_producer_disconnects_lose_no_message
    name = topic(partitions: 1)
    one = idle
    disconnects = count(one, "producer.disconnected")
    one.monitor.subscribe("producer.connected") { hasten(one, 1) }
    send = -> { one.produce_sync(topic: name, payload: "x").tap { sleep rand * 0.02 } }
    threads = Array.new(4) { Thread.new { Array.new(40) { send.call } } }
    assert_equal (0...160).to_a, threads.flat_map(&:value).map(&:offset).sort
    assert_operator disconnects.size, :>, 0
  end

  def test_in_a_fork_child_the_timeout_applies_from_the_first_use_there
    name = topic(partitions: 1)
    one = idle
    one.produce_sync(topic: name, payload: "x")
    result = in_child do
      before = idle_threads.size
      one.produce_sync(topic: name, payload: "x")
      during = idle_threads.size
      hasten(one, 50)
      eventually { one.status.disconnected? }
      [before, during, one.produce_sync(topic: name, payload: "x").offset].tap { one.close }
    end
    assert_equal [0, 1, 2], result
    assert_equal [1, :connected], [idle_threads.size, one.status.to_sym]
  end

  private

  def idle(**kafka)
    producer(**kafka) { |config| config.idle_disconnect_timeout = 30_000 }
  end

  def hasten(one, timeout_ms = 100) = Penstock::Producer.const_get(:IdleDisconnector).watch(Internal.of(one), timeout_ms)

  def count(one, event) = [].tap { |seen| one.monitor.subscribe(event) { |happened| seen << happened } }

  def idle_threads = Thread.list.select { |thread| thread.name == "penstock.idle" && thread.alive? }
end
