# frozen_string_literal: true

require_relative "test_helper"

class CloseTest < PenstockTest
  # ---- delivering ----

  def test_close_delivers_what_is_in_flight
    leaving = producer("linger.ms": 10_000)
    handles = leaving.produce_many_async(messages(topic, 100))
    report = leaving.close
    assert_equal Penstock::CloseReport.new(100, 0, 0, 0), report
    assert_predicate report, :complete?
    assert_predicate report, :frozen?
    assert handles.all?(&:delivered?)
  end

  def test_close_right_after_produce_async_as_the_very_first_call_delivers
    20.times do
      leaving = producer
      handle = leaving.produce_async(topic: "close-at-once", payload: "x")
      leaving.close
      assert_predicate handle, :delivered?
    end
  end

  def test_handles_and_reports_stay_readable_after_close
    leaving = producer
    handle = leaving.produce_async(topic: topic(partitions: 1), payload: "x", label: "mine")
    leaving.close
    GC.start
    assert_equal [0, "mine"], [handle.wait.offset, handle.label]
    assert_match(/persisted/, handle.inspect)
  end

  def test_close_counts_what_was_in_flight_and_not_what_was_delivered_before
    leaving = producer("linger.ms": 10_000)
    name = topic
    leaving.produce_many_async(messages(name, 30))
    leaving.flush
    leaving.produce_many_async(messages(name, 7))
    assert_equal 7, leaving.close.delivered
  end

  def test_close_counts_messages_that_a_broker_refused_as_failed
    broken = own_cluster
    name = topic(on: broken, partitions: 1)
    leaving = producer(servers: broken.bootstrap_servers, "linger.ms": 10_000)
    handle = leaving.produce_async(topic: name, payload: "x")
    broken.inject_errors(:produce, *[:topic_authorization_failed] * 10)
    report = leaving.close
    assert_equal Penstock::CloseReport.new(0, 1, 0, 0), report
    refute_predicate report, :complete?
    assert_equal :topic_authorization_failed, handle.error.code
  end

  def test_every_message_taken_while_another_thread_closes_has_exactly_one_verdict
    name = topic(partitions: 1)
    leaving = producer("linger.ms": 1)
    threads = Array.new(8) { Thread.new { produce_until_closed(leaving, name) } }
    eventually { leaving.queue_size > 200 }
    report = leaving.close(timeout: 20)
    handles = threads.flat_map(&:value)
    assert_predicate report, :complete?
    assert handles.all?(&:delivered?)
    assert_equal (0...handles.size).to_a, handles.map { |handle| handle.report.offset }.sort
  end

  # ---- closing again, and several at once ----

  def test_closing_again_does_nothing_and_reports_the_same
    leaving = producer("linger.ms": 10_000)
    leaving.produce_many_async(messages(topic, 3))
    assert_equal leaving.close, leaving.close
    assert_equal 3, leaving.close(timeout: 0).delivered
  end

  def test_closing_from_several_threads_at_once_closes_once_and_all_see_it_done
    leaving = producer("linger.ms": 10_000)
    handles = leaving.produce_many_async(messages(topic, 50))
    results = Array.new(8) { Thread.new { [leaving.close, handles.none?(&:pending?)] } }.map(&:value)
    assert_equal [[Penstock::CloseReport.new(50, 0, 0, 0), true]], results.uniq
  end

  def test_many_producers_close_at_the_same_time
    name = topic
    threads = Array.new(20) do
      leaving = producer("linger.ms": 10_000)
      leaving.produce_many_async(messages(name, 5))
      Thread.new { leaving.close.delivered }
    end
    assert_equal [5] * 20, threads.map(&:value)
  end

  def test_close_while_another_thread_makes_the_first_connection
    30.times do
      leaving = producer
      connecting = Thread.new { produce_until_closed(leaving, "close-connecting", most: 1) }
      sleep rand * 0.003 # so that closing falls before, into and after the making of its threads
      leaving.close
      handles = connecting.value
      assert handles.all?(&:delivered?), handles.inspect
      assert_predicate leaving, :closed?
    end
  end

  # ---- when the cluster is not there ----

  def test_close_of_an_unreachable_cluster_ends_within_its_timeout_with_every_handle_purged
    leaving = unreachable_producer
    handles = leaving.produce_many_async(messages("test", 100))
    report = nil
    assert_in_delta 0.6, seconds_of { report = leaving.close(timeout: 0.5) }, 0.1 + slack
    assert_equal Penstock::CloseReport.new(0, 0, 100, 0), report
    handles.each do |handle|
      assert_equal :purge_queue, handle.error.code
      assert_predicate handle.report, :not_persisted?
    end
    assert_raises(Penstock::DeliveryError) { handles.first.wait }
    assert_equal 0, leaving.queue_size
  end

  def test_close_purges_what_a_silent_broker_was_sent_and_says_that_it_may_be_persisted
    silent = own_cluster
    name = topic(on: silent, partitions: 1)
    leaving = producer(servers: silent.bootstrap_servers)
    leaving.produce_sync(topic: name, payload: "answered")
    silent.set_round_trip_time(60_000)
    handle = leaving.produce_async(topic: name, payload: "not answered")
    report = nil
    assert_in_delta 0.6, seconds_of { report = leaving.close(timeout: 0.5) }, 0.1 + slack
    assert_equal Penstock::CloseReport.new(0, 0, 1, 0), report
    assert_equal :purge_inflight, handle.error.code
    assert_predicate handle.report, :possibly_persisted?
  end

  def test_close_with_no_time_purges_at_once
    leaving = unreachable_producer
    handles = leaving.produce_many_async(messages("test", 10))
    assert_operator seconds_of { leaving.close(timeout: 0) }, :<, 0.1 + slack
    eventually(1) { handles.none?(&:pending?) }
  end

  def test_close_without_a_timeout_of_its_own_takes_close_timeout
    leaving = unreachable_producer { |config| config.close_timeout = 300 }
    leaving.produce_async(topic: "test", payload: "x")
    assert_in_delta 0.35, seconds_of { leaving.close }, 0.07 + slack
  end

  def test_a_second_close_keeps_its_own_shorter_timeout
    leaving = unreachable_producer
    handle = leaving.produce_async(topic: "test", payload: "x")
    first = Thread.new { leaving.close(timeout: 1.5) }
    eventually { leaving.closed? }
    assert_operator seconds_of { assert_equal 1, leaving.close(timeout: 0.1).pending }, :<, 0.3 + slack
    assert_predicate handle, :pending?
    assert_equal 1, first.value.purged
  end

  def test_close_during_a_flush_of_an_unreachable_cluster_ends_both
    leaving = unreachable_producer
    leaving.produce_async(topic: "test", payload: "x")
    flushing = Thread.new { assert_raises(Penstock::Error) { leaving.flush(timeout: 30) } }
    eventually { flushing.stop? }
    report = nil
    assert_operator seconds_of { report = leaving.close(timeout: 0.5) }, :<, 0.6 + slack
    assert_equal 1, report.purged
    assert flushing.join(1), "flush still waits"
  end

  def test_a_flush_ended_by_close_does_not_claim_that_its_time_was_up
    leaving = unreachable_producer
    leaving.produce_async(topic: "test", payload: "x")
    flushing = Thread.new { assert_raises(Penstock::Error) { leaving.flush(timeout: 30) } }
    eventually { flushing.stop? }
    leaving.close(timeout: 0.3)
    refute_match(/after 30/, flushing.value.message)
  end

  def test_close_during_partition_count_of_an_unreachable_cluster_ends_in_time_with_every_verdict
    leaving = unreachable_producer
    handle = leaving.produce_async(topic: "test", payload: "x")
    asking = Thread.new { assert_raises(Penstock::Error) { leaving.partition_count("test") } }
    eventually { asking.stop? }
    assert_operator seconds_of { leaving.close(timeout: 0.5) }, :<, 0.6 + slack
    refute_predicate handle, :pending?
  ensure
    asking&.join
  end

  # ---- interrupted ----

  def test_close_interrupted_by_timeout_goes_on_by_itself
    leaving = unreachable_producer
    handle = leaving.produce_async(topic: "test", payload: "x")
    assert_raises(Timeout::Error) { Timeout.timeout(0.1) { leaving.close(timeout: 0.5) } }
    assert_predicate leaving, :closed?
    assert_predicate handle, :pending?
    eventually(1) { !handle.pending? }
    assert_equal 1, leaving.close.purged
  end

  def test_close_in_a_killed_thread_goes_on_by_itself
    leaving = unreachable_producer
    handle = leaving.produce_async(topic: "test", payload: "x")
    thread = Thread.new { leaving.close(timeout: 0.5) }
    eventually { leaving.closed? && thread.stop? }
    assert_operator seconds_of { thread.kill.join }, :<, 0.2 + slack
    eventually(1) { !handle.pending? }
    assert_equal :purge_queue, handle.error.code
  end

  def test_close_in_the_ensure_of_a_killed_thread_delivers
    leaving = producer("linger.ms": 10_000)
    handle = leaving.produce_async(topic:, payload: "x")
    thread = Thread.new do
      sleep
    ensure
      leaving.close
    end
    eventually { thread.stop? }
    thread.kill.join
    assert_predicate handle, :delivered?
  end

  # ---- where it may be called ----

  def test_close_from_a_signal_trap
    output = ruby!(<<~RUBY, cluster.bootstrap_servers, topic)
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0], "linger.ms": 10_000 } }
      handle = producer.produce_async(topic: ARGV[1], payload: "x")
      Signal.trap("USR1") { puts producer.close.delivered }
      Process.kill(:USR1, Process.pid)
      sleep 0.01 while handle.pending? || !producer.closed?
      p handle.delivered?
    RUBY
    assert_equal "1\ntrue\n", output
  end

  def test_close_from_a_signal_trap_during_a_wait_and_during_a_close
    output = ruby!(<<~RUBY)
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 } }
      handle = producer.produce_async(topic: "test", payload: "x")
      Signal.trap("USR1") { producer.close(timeout: 0.3) }
      Thread.new { 3.times { sleep 0.1; Process.kill(:USR1, Process.pid) } }
      begin
        handle.wait
      rescue Penstock::DeliveryError => e
        p e.code
      end
      p producer.close.purged
    RUBY
    assert_equal ":purge_queue\n1\n", output
  end

  def test_close_from_an_at_exit_block
    output = ruby!(<<~RUBY, cluster.bootstrap_servers, topic)
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0], "linger.ms": 10_000 } }
      at_exit { puts producer.close.delivered }
      producer.produce_async(topic: ARGV[1], payload: "x")
    RUBY
    assert_equal "1\n", output
  end

  def test_close_from_a_fiber
    leaving = producer("linger.ms": 10_000)
    leaving.produce_async(topic:, payload: "x")
    assert_equal 1, Fiber.new { leaving.close.delivered }.resume
  end

  # ---- afterwards ----

  def test_every_call_that_needs_the_cluster_raises_after_close
    closed = producer
    closed.produce_sync(topic:, payload: "x")
    closed.close
    assert_all_refused(closed)
  end

  def test_a_producer_that_was_never_used_closes_at_once_and_stays_closed
    unused = unreachable_producer
    assert_equal Penstock::CloseReport.new(0, 0, 0, 0), unused.close
    assert_all_refused(unused)
    assert_equal 0, Penstock::Client.open_count
  end

  def test_state_is_told_by_closed_and_inspect
    leaving = producer { |config| config.id = "changing" }
    assert_equal [false, "#<Penstock::Producer changing configured>"], [leaving.closed?, leaving.inspect]
    leaving.produce_sync(topic:, payload: "x")
    assert_equal [false, "#<Penstock::Producer changing open>"], [leaving.closed?, leaving.inspect]
    leaving.close
    assert_equal [true, "#<Penstock::Producer changing closed>"], [leaving.closed?, leaving.inspect]
  end

  def test_a_timeout_that_is_none_is_refused_and_the_producer_stays_open
    leaving = producer
    [-1, Float::NAN].each { |bad| assert_raises(ArgumentError) { leaving.close(timeout: bad) } }
    refute_predicate leaving, :closed?
    leaving.produce_sync(topic:, payload: "x")
    assert_equal 0, leaving.close(timeout: nil).pending
  end

  private

  def slack = GCLevel.slow? ? 5 : 0.1

  def messages(topic, count) = Array.new(count) { |i| { topic:, payload: i.to_s, partition: 0 } }

  # @return [Array<DeliveryHandle>] of those that were taken
  def produce_until_closed(producer, topic, most: Float::INFINITY)
    handles = []
    handles << producer.produce_async(topic:, payload: "x", partition: 0) while handles.size < most
    handles
  rescue Penstock::QueueFullError
    retry
  rescue Penstock::ProducerClosedError
    handles
  end

  def assert_all_refused(producer)
    message = { topic: "test", payload: "x" }
    [-> { producer.produce_sync(message) }, -> { producer.produce_async(message) },
     -> { producer.produce_many_sync([message]) }, -> { producer.produce_many_async([message]) },
     -> { producer.flush }, -> { producer.partition_count("test") }].each do |call|
      error = assert_raises(Penstock::ProducerClosedError, &call)
      assert_includes error.message, producer.id
    end
    assert_equal 0, producer.queue_size
  end
end
