# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/reader"

class CloseTest < PenstockTest
  include FreshCluster

  # ---- delivering ----

  # behaviour: close, close!
  # behaviour: close sends the buffer, delivers messages in flight within its timeout
  slow def test_close_delivers_messages_in_flight
    leaving = producer("linger.ms": 10_000)
    handles = leaving.produce_many_async(messages(topic, 100))
    report = leaving.close
    assert_equal Penstock::CloseReport.new(100, 0, 0, 0), report
    assert_predicate report, :complete?
    assert_predicate report, :frozen?
    assert handles.all?(&:delivered?)
  end

  def test_close_delivers_if_produce_async_was_the_first_call
    20.times do
      leaving = producer
      handle = leaving.produce_async(topic: "close-at-once", payload: "x")
      leaving.close
      assert_predicate handle, :delivered?
    end
  end

  slow def test_handles_and_reports_stay_readable_after_close
    leaving = producer
    handle = leaving.produce_async(topic: topic(partitions: 1), payload: "x", label: "mine")
    leaving.close
    GC.start
    assert_equal [0, "mine"], [handle.wait.offset, handle.label]
    assert_match(/persisted/, handle.inspect)
  end

  def test_close_counts_messages_in_flight_and_not_messages_delivered_earlier
    leaving = producer("linger.ms": 10_000)
    name = topic
    leaving.produce_many_async(messages(name, 30))
    leaving.flush
    leaving.produce_many_async(messages(name, 7))
    assert_equal 7, leaving.close.delivered
  end

  # The buffer is sent before the client is closed, and may be delivered before that.
  def test_close_counts_messages_of_the_buffer_that_are_delivered_before_the_client_closes
    buffering = producer(**QUICK)
    buffering.monitor.subscribe("producer.closing") { eventually { buffering.metrics[:delivered] == 3 } }
    buffering.buffer_many(Array.new(3) { |i| { topic:, payload: i.to_s } })
    report = buffering.close
    assert_equal 3, report.delivered
    assert_predicate report, :complete?
  end

  def test_close_counts_messages_that_a_broker_rejected_as_failed
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

  # defect 3
  slow def test_every_message_accepted_while_another_thread_closes_has_exactly_one_delivery_result
    name = topic(partitions: 1)
    leaving = producer("linger.ms": 1)
    threads = Array.new(8) { Thread.new { produce_until_closed(leaving, name) } }
    eventually { leaving.client && leaving.client.counters[:messages] > 2_000 }
    report = leaving.close(timeout: 20)
    handles = threads.flat_map(&:value)
    assert_predicate report, :complete?
    assert handles.all?(&:delivered?)
    assert_equal (0...handles.size).to_a, handles.map { |handle| handle.report.offset }.sort
  end

  # ---- closing again, and several at once ----

  # behaviour: close, close!
  def test_closing_again_does_nothing_and_returns_the_same_report
    leaving = producer("linger.ms": 10_000)
    leaving.produce_many_async(messages(topic, 3))
    assert_equal leaving.close, leaving.close
    assert_equal 3, leaving.close(timeout: 0).delivered
  end

  def test_closing_from_several_threads_at_once_closes_once_and_every_caller_waits_for_it
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

  def test_close_works_while_another_thread_makes_the_first_connection
    30.times do
      leaving = producer
      connecting = Thread.new { produce_until_closed(leaving, "close-connecting", most: 1) }
      sleep rand * 0.003 # so that close happens before, during or after the creation of the client's threads
      leaving.close
      handles = connecting.value
      assert handles.all?(&:delivered?), handles.inspect
      assert_predicate leaving, :closed?
    end
  end

  # ---- without a reachable broker ----

  # behaviour: close sends the buffer, delivers messages in flight within its timeout
  def test_close_without_a_reachable_broker_ends_within_its_timeout_and_purges_every_message
    leaving = unreachable_producer
    handles = leaving.produce_many_async(messages("test", 100))
    report = nil
    assert_took(0.2..longest(0.5), seconds_of { report = leaving.close(timeout: 0.5) })
    assert_equal Penstock::CloseReport.new(0, 0, 100, 0), report
    handles.each do |handle|
      assert_equal :purge_queue, handle.error.code
      assert_predicate handle.report, :not_persisted?
    end
    assert_raises(Penstock::DeliveryError) { handles.first.wait }
    assert_equal 0, leaving.queue_size
  end

  slow def test_close_purges_messages_sent_to_a_silent_broker_and_reports_them_as_possibly_persisted
    silent = own_cluster
    name = topic(on: silent, partitions: 1)
    leaving = producer(servers: silent.bootstrap_servers)
    leaving.produce_sync(topic: name, payload: "answered")
    silent.set_round_trip_time(seconds: 60)
    handle = leaving.produce_async(topic: name, payload: "not answered")
    report = nil
    assert_took(0.2..longest(0.5), seconds_of { report = leaving.close(timeout: 0.5) })
    assert_equal Penstock::CloseReport.new(0, 0, 1, 0), report
    assert_equal :purge_inflight, handle.error.code
    assert_predicate handle.report, :possibly_persisted?
  end

  def test_close_with_timeout_0_purges_at_once
    leaving = unreachable_producer
    handles = leaving.produce_many_async(messages("test", 10))
    assert_took(longest(0), seconds_of { leaving.close(timeout: 0) })
    eventually { handles.none?(&:pending?) }
  end

  def test_close_without_an_argument_uses_close_timeout
    leaving = unreachable_producer { |config| config.close_timeout = 300 }
    leaving.produce_async(topic: "test", payload: "x")
    assert_took(0.3..longest(0.3), seconds_of { leaving.close })
  end

  slow def test_a_second_close_with_a_shorter_timeout_ends_within_it
    leaving = unreachable_producer
    handle = leaving.produce_async(topic: "test", payload: "x")
    first = Thread.new { leaving.close(timeout: 4) }
    eventually { leaving.closed? }
    assert_took(longest(0.1), seconds_of { assert_equal 1, leaving.close(timeout: 0.1).pending })
    assert_predicate first, :alive?
    assert_predicate handle, :pending?
    assert_equal 1, first.value.purged
  end

  def test_close_ends_a_flush_that_waits_for_an_unreachable_cluster
    leaving = unreachable_producer
    leaving.produce_async(topic: "test", payload: "x")
    flushing = Thread.new { assert_raises(Penstock::Error) { leaving.flush(timeout: 30) } }
    eventually { flushing.stop? }
    report = nil
    assert_took(longest(0.5), seconds_of { report = leaving.close(timeout: 0.5) })
    assert_equal 1, report.purged
    assert Slowness.join(flushing, 1), "flush is still waiting"
  end

  def test_a_flush_ended_by_close_does_not_report_a_timeout
    leaving = unreachable_producer
    leaving.produce_async(topic: "test", payload: "x")
    flushing = Thread.new { assert_raises(Penstock::Error) { leaving.flush(timeout: 30) } }
    eventually { flushing.stop? }
    leaving.close(timeout: 0.3)
    refute_match(/after 30/, flushing.value.message)
  end

  thorough slow def test_close_during_partition_count_without_a_reachable_broker_ends_in_time_with_every_delivery_result
    leaving = unreachable_producer
    handle = leaving.produce_async(topic: "test", payload: "x")
    asking = Thread.new { assert_raises(Penstock::Error) { leaving.partition_count("test") } }
    eventually { asking.stop? }
    assert_took(longest(0.5), seconds_of { leaving.close(timeout: 0.5) })
    refute_predicate handle, :pending?
  ensure
    asking&.join
  end

  # ---- interrupted ----

  thorough slow def test_close_continues_in_the_background_after_a_timeout_interrupts_it
    leaving = unreachable_producer
    handle = leaving.produce_async(topic: "test", payload: "x")
    assert_raises(Timeout::Error) { Timeout.timeout(0.1) { leaving.close(timeout: 3) } }
    assert_predicate leaving, :closed?
    assert_predicate handle, :pending?
    eventually(20) { !handle.pending? }
    assert_equal 1, leaving.close.purged
  end

  thorough slow def test_close_continues_in_the_background_if_its_thread_is_killed
    leaving = unreachable_producer
    handle = leaving.produce_async(topic: "test", payload: "x")
    thread = Thread.new { leaving.close(timeout: 3) }
    eventually { leaving.closed? && thread.stop? }
    thread.kill.join
    assert_predicate handle, :pending?, "close waited for the message"
    eventually(10) { !handle.pending? }
    assert_equal :purge_queue, handle.error.code
  end

  slow def test_close_in_the_ensure_of_a_killed_thread_delivers
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

  # behaviour: close in a signal trap blocks until it is done
  def test_close_works_from_a_signal_trap
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

  # behaviour: close in a signal trap blocks until it is done
  def test_close_works_from_a_signal_trap_during_a_wait_and_during_a_close
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

  slow def test_close_works_from_an_at_exit_block
    output = ruby!(<<~RUBY, cluster.bootstrap_servers, topic)
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0], "linger.ms": 10_000 } }
      at_exit { puts producer.close.delivered }
      producer.produce_async(topic: ARGV[1], payload: "x")
    RUBY
    assert_equal "1\n", output
  end

  def test_close_works_from_a_fiber
    leaving = producer("linger.ms": 10_000)
    leaving.produce_async(topic:, payload: "x")
    assert_equal 1, Fiber.new { leaving.close.delivered }.resume
  end

  # ---- the buffer ----

  # behaviour: close sends the buffer, delivers messages in flight within its timeout
  slow def test_close_sends_the_buffer_and_a_transactional_producer_does_so_in_one_transaction
    [{}, { "transactional.id": "tx-#{rand(2**32)}" }].each do |kafka|
      name = topic(partitions: 1)
      leaving = producer("linger.ms": 10_000, **kafka)
      leaving.buffer_many(messages(name, 5))
      report = leaving.close
      assert_predicate report, :complete?
      assert_empty leaving.messages
      assert_equal %w[0 1 2 3 4], Reader.new(cluster.bootstrap_servers).read(name).map(&:payload).first(5)
    end
  end

  def test_close_counts_and_keeps_buffered_messages_that_it_could_not_send
    leaving = unreachable_producer("queue.buffering.max.messages": 3)
    leaving.buffer_many(messages("test", 5))
    report = nil
    assert_took(3, seconds_of { report = leaving.close(timeout: 0.5) })
    assert_equal Penstock::CloseReport.new(0, 0, 3, 0, 2), report
    assert_equal(%w[3 4], leaving.messages.map { |message| message[:payload] })
    assert_equal report, leaving.close
  end

  # behaviour: close sends the buffer, delivers messages in flight within its timeout
  def test_close_reports_an_invalid_buffered_message_or_a_middleware_error_and_still_closes
    [[Penstock::MessageInvalidError, ->(one) { one.buffer({}) }],
     [IOError, ->(one) { one.middleware.append { raise IOError, "broken" } }]].each do |error, trouble|
      leaving = producer
      published = []
      leaving.monitor.subscribe("error.occurred") { |event| published << [event[:type], event[:error].class] }
      leaving.buffer_many(messages("test", 2))
      trouble.call(leaving)
      size = leaving.messages.size
      assert_equal Penstock::CloseReport.new(0, 0, 0, 0, size), leaving.close
      assert_equal [["messages.produce_many_async", error]], published
      assert_predicate leaving.status, :closed?
    end
  end

  def test_close_counts_messages_that_a_flush_of_another_thread_could_not_send
    leaving = unreachable_producer("queue.buffering.max.messages": 3)
    leaving.buffer_many(messages("test", 5))
    flushing = quiet_thread { leaving.flush_async }
    eventually { leaving.queue_size == 3 && flushing.stop? }
    assert_equal Penstock::CloseReport.new(0, 0, 3, 0, 2), leaving.close(timeout: 0.2)
    assert_equal 3, assert_raises(Penstock::ProduceManyError) { flushing.value }.dispatched.size
    assert_equal(%w[3 4], leaving.messages.map { |message| message[:payload] })
  end

  def test_close_continues_in_the_background_if_it_is_interrupted_while_it_sends_the_buffer
    leaving = unreachable_producer("queue.buffering.max.messages": 3)
    leaving.buffer_many(messages("test", 5))
    closing = Thread.new { leaving.close(timeout: 0.8) }
    eventually { leaving.queue_size == 3 && closing.stop? }
    closing.kill.join
    eventually { leaving.status.closed? }
    assert_equal Penstock::CloseReport.new(0, 0, 3, 0, 2), leaving.close
  end

  # ---- transactions ----

  # behaviour: close, close!
  def test_close_inside_the_producers_own_transaction_raises_and_the_transaction_continues
    name = topic(partitions: 1)
    leaving = transactional
    handle = nil
    leaving.transaction do
      handle = leaving.produce_async(topic: name, payload: "x")
      [-> { leaving.close }, -> { leaving.close! }].each do |call|
        assert_raises(Penstock::ProducerTransactionalCloseAttemptError, &call)
      end
    end
    assert_predicate handle, :delivered?
    assert_predicate leaving.status, :connected?
    assert_predicate leaving.close, :complete?
  end

  def test_close_waits_for_the_transaction_of_another_thread_and_allows_no_new_one
    leaving = transactional("linger.ms": 10_000)
    go_on = Queue.new
    handle = nil
    running = Thread.new do
      leaving.transaction do
        handle = leaving.produce_async(topic:, payload: "x")
        go_on.pop
      end
    end
    eventually { handle }
    waiting = quiet_thread { leaving.transaction { :never } }
    eventually { waiting.stop? }
    closing = Thread.new { leaving.close(timeout: 20) }
    eventually { closing.stop? }
    assert_predicate handle, :pending?
    go_on << true
    running.join
    assert_predicate closing.value, :complete?
    assert_predicate handle, :delivered?
    begin
      waiting.value # either its transaction ran first
    rescue Penstock::ProducerClosedError
      nil # or close came first
    end
    assert_raises(Penstock::ProducerClosedError) { leaving.transaction { nil } }
  end

  def test_close_aborts_a_transaction_that_does_not_end_in_time
    leaving = transactional
    go_on = Queue.new
    running = quiet_thread do
      leaving.transaction do
        leaving.produce_async(topic:, payload: "x")
        go_on.pop
      end
    end
    eventually { go_on.num_waiting == 1 }
    assert_took(3, seconds_of { leaving.close(timeout: 0.5) })
    assert_predicate leaving.status, :closed?
    go_on << true
    assert_raises(Penstock::ProducerClosedError) { running.value }
  end

  # behaviour: close! does not hang if the cluster is not there
  def test_close_of_a_transactional_producer_without_a_reachable_broker_ends_in_time_and_counts_every_message
    leaving = unreachable_producer("transactional.id": "tx")
    leaving.buffer_many(messages("test", 3))
    report = nil
    assert_took(5, seconds_of { report = leaving.close(timeout: 0.5) })
    assert_equal Penstock::CloseReport.new(0, 0, 0, 0, 3), report
    eventually { leaving.messages.size == 3 } # what was being sent when the time was up returns to the buffer
    eventually { Internal::ProducerClient.open_count.zero? } # the client that waits for init_transactions closes by itself
  end

  def test_close_ends_a_transactional_connection_attempt_of_another_thread
    leaving = unreachable_producer("transactional.id": "tx")
    connecting = quiet_thread { leaving.produce_sync(topic: "test", payload: "x") }
    eventually { Internal::ProducerClient.open_count == 1 && connecting.stop? }
    assert_took(5, seconds_of { leaving.close(timeout: 0.3) })
    assert Slowness.join(connecting, 5) rescue nil # rubocop:disable Style/RescueModifier
    assert_raises(Penstock::ProducerClosedError) { connecting.value }
    eventually { Internal::ProducerClient.open_count.zero? }
  end

  slow def test_close_of_a_transactional_producer_that_lost_its_cluster_keeps_the_buffer
    gone = own_cluster
    leaving = producer(servers: gone.bootstrap_servers, "transactional.id": "tx", log_level: 0)
    leaving.produce_sync(topic: topic(on: gone), payload: "x")
    gone.close
    leaving.buffer_many(messages("test", 3))
    report = nil
    assert_took(5, seconds_of { report = leaving.close(timeout: 0.5) })
    assert_equal 3, report.unsent
    eventually { Internal::ProducerClient.open_count.zero? } # the client may still be closing when the time is over
  end

  # ---- during other operations ----

  def test_threads_that_close_at_once_share_one_close_and_its_report
    leaving = producer("linger.ms": 10_000)
    published = []
    %w[producer.closing producer.closed].each { |event| leaving.monitor.subscribe(event) { published << event } }
    leaving.buffer_many(messages("close-at-once", 20))
    reports = Array.new(8) { Thread.new { leaving.close } }.map(&:value)
    assert_equal [true], reports.map { |report| report.equal?(reports.first) }.uniq
    assert_equal [20, %w[producer.closing producer.closed]], [reports.first.delivered, published]
  end

  # defect 9
  def test_close_does_not_wait_for_the_backoff_of_a_reload
    leaving = producer { |config| config.wait_backoff_on_idempotent_fatal_error = 20_000 }
    leaving.produce_sync(topic:, payload: "x")
    leaving.client.test_fatal_error(:out_of_order_sequence_number, "test")
    sending = quiet_thread { leaving.produce_sync(topic:, payload: "x") }
    eventually { Internal::ProducerClient.open_count.zero? && sending.stop? }
    assert_took(8, seconds_of { assert_predicate leaving.close(timeout: 10), :complete? })
    assert_predicate leaving.status, :closed?
    assert_raises(Penstock::ProducerClosedError) { sending.value }
    assert_predicate leaving.status, :closed?
  end

  slow def test_close_during_a_disconnect_delivers_the_messages_that_the_disconnect_waits_for
    slow = own_cluster
    name = topic(on: slow, partitions: 1)
    leaving = producer(servers: slow.bootstrap_servers)
    leaving.produce_sync(topic: name, payload: "x")
    slow.set_round_trip_time(seconds: 0.5)
    handle = leaving.produce_async(topic: name, payload: "y")
    disconnecting = Thread.new { leaving.disconnect }
    eventually { leaving.status.disconnecting? }
    assert_equal 1, leaving.close(timeout: 20).delivered
    assert_predicate handle, :delivered?
    assert disconnecting.value
    assert_predicate leaving.status, :closed?
  end

  def test_close_ends_a_wait_for_queue_space
    leaving = unreachable_producer("queue.buffering.max.messages": 1) { |config| config.wait_timeout_on_queue_full = nil }
    leaving.produce_async(topic: "test", payload: "x")
    one = quiet_thread { leaving.produce_async(topic: "test", payload: "x") }
    many = quiet_thread { leaving.produce_many_async(messages("test", 2)) }
    eventually { one.stop? && many.stop? }
    assert_equal 1, leaving.close(timeout: 0.2).purged
    [one, many].each { |waiting| assert_raises(Penstock::ProducerClosedError) { waiting.value } }
  end

  # behaviour: close, close!
  # behaviour: close! does not hang if the cluster is not there
  def test_close_bang_does_not_hang_without_a_reachable_broker
    leaving = unreachable_producer { |config| config.close_timeout = 300 }
    leaving.produce_async(topic: "test", payload: "x")
    leaving.buffer(topic: "test", payload: "y")
    report = nil
    assert_took(5, seconds_of { report = leaving.close! })
    assert_equal Penstock::CloseReport.new(0, 0, 2, 0), report
    assert_equal report, leaving.close!(timeout: 0)
  end

  def test_close_also_closes_the_clients_of_variants
    leaving = unreachable_producer
    variant = leaving.with(topic_config: { acks: 1 })
    [leaving, variant].each { |sender| sender.produce_async(topic: "test", payload: "x") }
    assert_equal 2, leaving.close(timeout: 0.1).purged
  end

  def test_an_error_during_close_does_not_end_the_process_with_abort_on_exception
    ruby!(<<~RUBY)
      Thread.abort_on_exception = true
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 } }
      producer.middleware.append { raise "broken" }
      producer.buffer(topic: "test", payload: "x")
      abort "unsent" unless producer.close(timeout: 1).unsent == 1
    RUBY
  end

  # ---- in a signal trap, during other calls ----

  def test_close_works_from_a_trap_during_a_flush_of_the_buffer
    assert_closed_by_trap(<<~RUBY, "0 0 3 0 2 0", "Penstock::ProduceManyError", kafka: '"queue.buffering.max.messages": 3')
      producer.buffer_many(Array.new(5) { { topic: "test", payload: "x" } })
      ready = -> { producer.queue_size == 3 }
      work = -> { producer.flush_sync }
    RUBY
  end

  def test_close_from_a_trap_during_a_flush_counts_messages_buffered_meanwhile
    assert_closed_by_trap(<<~RUBY, "0 0 3 0 4 0", "Penstock::ProduceManyError", kafka: '"queue.buffering.max.messages": 3')
      producer.buffer_many(Array.new(5) { { topic: "test", payload: "x" } })
      ready = -> { producer.queue_size == 3 && producer.buffer_many([{ topic: "test", payload: "x" }] * 2) }
      work = -> { producer.flush_sync }
    RUBY
  end

  slow def test_close_works_from_a_trap_while_the_thread_connects_for_a_transaction
    assert_closed_by_trap(<<~RUBY, "0 0 0 0 0 0", "Penstock::ProducerClosedError", kafka: '"transactional.id": "tx"')
      ready = -> { Internal::ProducerClient.open_count == 1 }
      work = -> { producer.produce_sync(topic: "test", payload: "x") }
    RUBY
  end

  slow def test_close_works_from_a_trap_while_the_thread_connects_to_flush_a_transactional_buffer
    assert_closed_by_trap(<<~RUBY, "0 0 0 0 2 0", "Penstock::ProducerClosedError", kafka: '"transactional.id": "tx"')
      producer.buffer_many([{ topic: "test", payload: "x" }] * 2)
      ready = -> { Internal::ProducerClient.open_count == 1 }
      work = -> { producer.flush_async }
    RUBY
  end

  def test_close_works_from_a_trap_during_a_transaction_of_the_same_thread
    name = topic
    kafka = %("linger.ms": 10_000, "transactional.id": "tx-#{rand(2**32)}")
    servers = cluster.bootstrap_servers
    assert_closed_by_trap(<<~RUBY, "1 0 0 0 0 0", "Penstock::ProducerClosedError", servers:, kafka:)
      handle = nil
      ready = -> { handle }
      work = lambda do
        producer.transaction do
          handle = producer.produce_async(topic: #{name.inspect}, payload: "x")
          sleep 0.01 until producer.closed?
        end
      end
    RUBY
  end

  def test_close_works_from_a_trap_during_a_wait_for_queue_space
    assert_closed_by_trap(<<~RUBY, "0 0 1 0 0 0", "Penstock::ProducerClosedError", kafka: '"queue.buffering.max.messages": 1')
      producer.produce_async(topic: "test", payload: "x")
      ready = -> { true }
      work = -> { producer.produce_async(topic: "test", payload: "x") }
    RUBY
  end

  thorough slow def test_close_works_from_a_trap_during_a_disconnect_and_another_close
    assert_closed_by_trap(<<~RUBY, "0 0 1 0 0 0", "none")
      producer.produce_async(topic: "test", payload: "x")
      ready = -> { producer.status.disconnecting? }
      work = -> { producer.disconnect && producer.close(timeout: 5) }
    RUBY
    assert_closed_by_trap(<<~RUBY, "0 0 0 1 0 0", "none") # it has less time than the close in progress
      producer.produce_async(topic: "test", payload: "x")
      ready = -> { producer.status.closing? }
      work = -> { producer.close(timeout: 3) }
    RUBY
  end

  # Its report has what happened until then.
  def test_a_close_that_a_listener_holds_up_reports_what_it_has_discarded
    gate = Thread::Queue.new
    one = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 } }
    one.monitor.subscribe("producer.closed") { gate.pop }
    one.produce_async(topic: "test", payload: "x")
    report = one.close(timeout: 0.5)
    assert_equal [[0, 0, 1, 0, 0, 0], false], [report.to_a, report.complete?]
  ensure
    gate.close
  end

  def test_close_works_from_a_trap_for_an_unused_and_an_unconfigured_producer
    output = ruby!(<<~RUBY)
      pair = [Penstock::Producer.new, Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": "127.0.0.1:1" } }]
      Signal.trap("USR1") { pair.each { |one| puts one.close.to_a.join(" ") } }
      Process.kill(:USR1, Process.pid)
      sleep 0.01 until pair.all?(&:closed?)
    RUBY
    assert_equal "0 0 0 0 0 0\n" * 2, output
  end

  # ---- in fork children, at exit ----

  def test_close_in_a_fork_child_does_not_touch_the_parents_buffer_and_messages
    name = topic(partitions: 1)
    one = producer("linger.ms": 10_000)
    handle = one.produce_async(topic: name, payload: "x")
    one.buffer(topic: name, payload: "y")
    assert_equal [[0] * 6, true], in_child { [one.close.to_a, one.closed?] }
    assert_equal [0, 1], [handle.pending? ? 0 : 1, one.messages.size]
    assert_equal 2, one.close.delivered
  end

  thorough slow def test_a_child_forked_while_its_parent_closes_can_close_too
    one = unreachable_producer
    one.produce_async(topic: "test", payload: "x")
    closing = Thread.new { one.close(timeout: 3) }
    eventually { one.status.closing? }
    assert_equal [0] * 6, in_child { one.close(timeout: 1).to_a }
    assert_equal 1, closing.value.purged
  end

  def test_close_at_exit_also_sends_the_buffer_of_a_transactional_producer
    ["", %("transactional.id": "tx-#{rand(2**32)}")].each do |kafka|
      output = ruby!(<<~RUBY, cluster.bootstrap_servers, topic)
        producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0], #{kafka} } }
        at_exit { p producer.close.complete?, producer.messages.size }
        producer.buffer(topic: ARGV[1], payload: "x")
      RUBY
      assert_equal "true\n0\n", output
    end
  end

  # ---- after close ----

  # behaviour: ProducerClosedError
  def test_every_call_that_needs_the_cluster_raises_after_close
    closed = producer
    closed.produce_sync(topic:, payload: "x")
    closed.close
    assert_all_calls_raise(closed)
  end

  def test_an_unused_producer_closes_at_once_and_stays_closed
    unused = unreachable_producer
    assert_equal Penstock::CloseReport.new(0, 0, 0, 0), unused.close
    assert_all_calls_raise(unused)
    assert_equal 0, Internal::ProducerClient.open_count
  end

  def test_closed_and_inspect_show_the_state
    leaving = producer { |config| config.id = "changing" }
    assert_equal [false, "#<Penstock::Producer changing configured>"], [leaving.closed?, leaving.inspect]
    leaving.produce_sync(topic:, payload: "x")
    assert_equal [false, "#<Penstock::Producer changing connected>"], [leaving.closed?, leaving.inspect]
    leaving.close
    assert_equal [true, "#<Penstock::Producer changing closed>"], [leaving.closed?, leaving.inspect]
  end

  def test_an_invalid_timeout_raises_and_the_producer_stays_open
    leaving = producer
    [-1, Float::NAN].each { |bad| assert_raises(ArgumentError) { leaving.close(timeout: bad) } }
    refute_predicate leaving, :closed?
    leaving.produce_sync(topic:, payload: "x")
    assert_equal 0, leaving.close(timeout: nil).pending
  end

  private

  # @return [Float] maximum seconds of a close, as documented
  def longest(timeout) = (timeout * 1.1) + 1 + (GCLevel.slow? ? 5 : 0.2)

  def messages(topic, count) = Array.new(count) { |i| { topic:, payload: i.to_s, partition: 0 } }

  def transactional(**kafka) = producer("transactional.id": "tx-#{rand(2**32)}", **kafka)

  # Runs a program whose main thread runs `work`. When `ready` returns true, a signal interrupts it, and the trap closes.
  # @param report [String] the CloseReport's numbers
  # @param error [String] the class of the error that `work` raises
  def assert_closed_by_trap(setup, report, error, kafka: "", servers: "127.0.0.1:1")
    output = ruby!(<<~RUBY, servers)
      producer = Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": ARGV[0], log_level: 0, #{kafka} }
        config.close_timeout = 2_000
        config.wait_timeout_on_queue_full = nil
      end
      #{setup}
      Signal.trap("USR1") do
        start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        report = producer.close(timeout: 0.5)
        took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
        puts report.to_a.join(" "), took < 5, producer.closed?
      end
      main = Thread.current
      Thread.new do
        sleep 0.01 until ready.call && main.stop?
        Process.kill(:USR1, Process.pid)
      end
      begin
        work.call
        puts "none"
      rescue Penstock::Error => e
        puts e.class
      end
      producer.close
    RUBY
    assert_equal "#{report}\ntrue\ntrue\n#{error}\n", output
  end

  # @return [Array<DeliveryHandle>] the handles of all accepted messages
  def produce_until_closed(producer, topic, most: Float::INFINITY)
    handles = []
    handles << producer.produce_async(topic:, payload: "x", partition: 0) while handles.size < most
    handles
  rescue Penstock::QueueFullError
    retry
  rescue Penstock::ProducerClosedError
    handles
  end

  def assert_all_calls_raise(producer)
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
