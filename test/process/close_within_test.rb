# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# Penstock.close_within: each wait ends although no broker answers and its own timeout is minutes away.
class CloseWithinTest < ConsumerTestCase
  # The process's clients are those of the test. Each call waits in a thread of its own when a signal comes.
  # @return [Hash{String => Object}] what each call has returned or raised
  def ended_by_a_signal(calls)
    waiting = calls.transform_values do |call|
      Thread.new do
        call.call
      rescue Penstock::Error => e
        e
      end
    end
    waiting.each_value { |thread| eventually { thread.stop? } }
    before = trap("USR2") { Penstock.close_within(0.05) }
    Process.kill(:USR2, Process.pid)
    waiting.transform_values { |thread| Slowness.join(thread, 20) ? thread.value : flunk(thread.backtrace.first(5).join("\n")) }
  ensure
    trap("USR2", before || "DEFAULT")
    waiting&.each_value(&:kill)
  end

  def test_a_trap_makes_every_wait_for_brokers_that_are_away_end
    one = unreachable_producer
    handle = one.produce_async(topic: "t", payload: "x")
    reading = unreachable_consumer("group.id": "g").assign("t" => { 0 => 0 })
    ended = ended_by_a_signal(
      "produce_sync" => -> { one.produce_sync(topic: "t", payload: "x") },
      "produce_many_sync" => -> { one.produce_many_sync([{ topic: "t", payload: "x" }] * 3) },
      "wait" => -> { handle.wait },
      "flush" => -> { one.flush },
      "transaction" => -> { unreachable_producer("transactional.id": "t").transaction { flunk } },
      "poll" => -> { reading.poll(timeout: nil) },
      "committed" => -> { reading.committed("t", 0, timeout: 300.0) },
      "watermarks" => -> { reading.watermarks("t", 0, timeout: 300.0) }
    )
    assert_nil ended.delete("poll")
    ended.delete("flush") if ended["flush"] == true # what was in flight has results now
    ended.each { |call, error| assert_kind_of Penstock::Error, error, call }
    assert_equal %i[purge_queue purge_queue], ended.values_at("produce_sync", "wait").map(&:code)
    assert_raises(Penstock::ConsumerClosedError) { reading.poll }
    assert_raises(Penstock::ProducerClosedError) { one.flush }
  end

  # The only call that librdkafka cannot cut short, and how the consumer then goes back.
  def test_a_transaction_of_a_consumer_ends_while_its_offsets_are_sent
    own = own_cluster
    own.create_topic("orders", partitions: 1)
    gate = self.gate(own)
    producer(servers: own.bootstrap_servers).produce_sync(topic: "orders", payload: "x")
    one = group_consumer(servers: gate.bootstrap_servers, "enable.auto.commit": false)
    batch = one.assign("orders" => { 0 => 0 }).poll_batch(timeout: 20)
    writing = producer(servers: gate.bootstrap_servers, "transactional.id": "t-#{rand(2**32)}", log_level: 0)
    writing.transaction { nil }
    held = gate.hold(:txn_offset_commit)
    thread = quiet_thread { writing.transaction(one, batch) { nil } }
    held.await_request
    Penstock.close_within(0)
    assert_raises(Penstock::ProducerClosedError) { Slowness.join(thread, 20) or flunk thread.backtrace.first(5).join("\n") }
  end

  AT_EXIT = <<~RUBY
    producer = Penstock::Producer.new("bootstrap.servers": "127.0.0.1:1", log_level: 0) { |config| config.close_timeout = 300_000 }
    producer.produce_async(topic: "t", payload: "x")
    at_exit { Penstock.close_within(0.1) }
  RUBY

  def test_at_exit_it_shortens_what_the_end_of_the_process_waits_for
    assert_took(60, seconds_of { ruby!(AT_EXIT) })
  end

  def test_clients_work_until_then_and_the_time_is_checked
    one = producer
    Penstock.close_within(300.0)
    assert_equal 0, one.produce_sync(topic: topic(partitions: 1), payload: "x").offset
    [nil, -1, "5", 5_000].each { |wrong| assert_raises(ArgumentError, wrong.inspect) { Penstock.close_within(wrong) } }
  ensure
    Thread.list.select { |thread| thread.name == "penstock.closing" }.each(&:kill)
  end
end
