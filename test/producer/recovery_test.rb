# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/transaction_test_case"

# How a producer continues after a fatal error of librdkafka.
class ProducerRecoveryTest < TransactionTestCase
  slow(/continue_after_one_reload/)

  # ---- idempotent producers ----

  # behaviour: reload_on_idempotent_fatal_error
  # behaviour: An idempotent producer recovers unnoticed by its users
  slow def test_each_way_to_send_continues_with_a_new_client
    producer = impatient
    name = topic
    message = { topic: name, payload: "x", partition: 0, key: "k" }
    [-> { producer.produce_sync(message) }, -> { producer.produce_async(message).wait },
     -> { producer.produce_many_sync([message] * 3).each(&:wait) }, lambda {
                                                                      producer.produce_many_async([message] * 3).each(&:wait)
                                                                    },
     -> { producer.tombstone_sync(message) }, -> { producer.buffer_many([message] * 3) && producer.flush_sync.each(&:wait) }]
      .each do |way|
      way.call
      failed = break_down(producer)
      way.call
      refute_same failed, producer.client
    end
    assert_equal 24, stored(name).size
  end

  # behaviour: producer.reload, producer.reloaded
  # behaviour: error.occurred of the connection
  def test_a_reload_publishes_its_cause_and_number
    producer = impatient
    name = topic
    producer.produce_sync(topic: name, payload: "1")
    seen = events(producer, "error.occurred", "producer.reload", "producer.reloaded", "producer.connected")
    break_down(producer)
    producer.produce_sync(topic: name, payload: "2")
    error, reload, reloaded, connected = taken(seen)
    assert_equal ["librdkafka.idempotent_fatal_error", 1], error.payload.values_at(:type, :attempt)
    assert_equal [Penstock::FatalError, :out_of_order_sequence_number], [error[:error].class, error[:error].code]
    assert_equal [1, producer, producer.id], reload.payload.values_at(:attempt, :caller, :producer_id)
    assert_predicate reload[:error], :fatal?
    assert_equal ["producer.reloaded", 1, "producer.connected"], [reloaded.id, reloaded[:attempt], connected.id]
    assert_equal 0, seen.size
  end

  # behaviour: An idempotent producer recovers unnoticed by its users
  slow def test_threads_that_hit_the_same_fatal_error_make_one_new_client_and_lose_no_message
    3.times do
      producer = impatient("linger.ms": 2)
      name = topic(partitions: 8)
      producer.produce_sync(topic: name, payload: "first", partition: 0)
      seen = events(producer, "producer.reload", "error.occurred")
      sent = Array.new(8) { [] }
      broken = false
      threads = Array.new(8) do |i|
        Thread.new do
          Thread.current.report_on_exception = false
          n = -1
          send_somehow(producer, name, i, n += 1, sent[i]) until broken
          20.times { send_somehow(producer, name, i, n += 1, sent[i]) } # the client has failed before
        end
      end
      eventually { sent.all? { |list| list.size > 5 } }
      break_down(producer)
      broken = true
      threads.each { |thread| Slowness.join(thread, 30) or flunk thread.backtrace.join("\n") } # raises the thread's error
      happened = taken(seen)
      assert_equal %w[error.occurred producer.reload], happened.map(&:id), happened.map { |event| event[:error] }.inspect
      assert_all_there_in_order stored(name, partitions: 8), sent
    end
  end

  # One message, or a batch of them, of thread i. The payloads are numbered.
  def send_somehow(producer, name, thread, round, sent)
    payload = ->(part) { format("%03d-%d", round, part) }
    message = ->(part) { { topic: name, payload: payload[part], partition: thread } }
    case round % 3
    when 0
      producer.produce_sync(message[0])
      sent << payload[0]
    when 1
      producer.produce_many_sync([message[0], message[1]])
      sent.push(payload[0], payload[1])
    else
      handle = producer.produce_async(message[0])
      begin
        handle.wait
        sent << payload[0]
      rescue Penstock::DeliveryError
        raise unless handle.report.not_persisted? # the handle has a separate delivery result

        sent << nil
      end
    end
  end

  def assert_all_there_in_order(records, sent)
    sent.each_with_index do |payloads, partition|
      there = records.select { |record| record.partition == partition }.map(&:payload) - ["first"]
      assert_equal payloads.compact, there, "partition #{partition}"
    end
  end

  slow def test_a_message_that_may_be_stored_raises_and_is_not_sent_again
    producer = impatient("linger.ms": 2_000)
    name = topic
    handle = producer.produce_async(topic: name, payload: "1", partition: 0)
    possibly = Class.new(Penstock::DeliveryError)
    stub_result(producer, possibly.new("it may be", code: :purge_inflight, retriable: false)) do
      break_down(producer)
      assert_raises(possibly) { producer.produce_sync(topic: name, payload: "2", partition: 0) }
    end
    producer.produce_sync(topic: name, payload: "3", partition: 0)
    refute_nil handle
    assert_equal %w[3], stored(name).map(&:payload) - %w[1]
  end

  # Makes the current client fail messages with this error.
  def stub_result(producer, error)
    handle = Struct.new(:error) { def wait(*, **) = raise(error) }.new(error)
    producer.client.define_singleton_method(:produce) { |_| handle }
    yield
  ensure
    Internal.of(producer).variants.own.client&.singleton_class&.send(:remove_method, :produce)
  end

  def test_a_batch_with_a_message_that_may_be_stored_is_not_sent_again
    producer = impatient { |config| config.client_class = Penstock::Clients::Buffered }
    client = producer.client
    client.define_singleton_method(:fatal_error) { Penstock::FatalError.new("for a test", code: :fatal, fatal: true) }
    client.script { |message| { "lost" => :purge_queue, "unknown" => :purge_inflight }[message[:payload]] }
    error = assert_raises(Penstock::ProduceManyError) do
      producer.produce_many_sync([{ topic: "t", payload: "good" }, { topic: "t", payload: "lost" },
                                  { topic: "t", payload: "unknown" }])
    end
    assert_equal [true, false, false], error.dispatched.map(&:delivered?)
    assert_same client, producer.client
  end

  def test_only_messages_of_a_batch_that_are_not_stored_are_sent_again_and_handles_keep_their_order
    producer = impatient { |config| config.client_class = Penstock::Clients::Buffered }
    first = producer.client
    first.define_singleton_method(:fatal_error) { Penstock::FatalError.new("for a test", code: :fatal, fatal: true) }
    first.script { |message| :purge_queue if message[:payload].start_with?("lost") }
    payloads = %w[good1 lost1 good2 lost2]
    handles = producer.produce_many_sync(payloads.map { |payload| { topic: "t", payload:, label: payload } })
    assert_equal payloads, handles.map(&:label)
    assert handles.all?(&:delivered?)
    assert_equal [%w[good1 good2], %w[lost1 lost2]],
                 [first, producer.client].map { |client| client.messages.map { |message| message[:payload] } }
  end

  def test_a_batch_that_fails_again_reports_the_accepted_messages_in_order
    producer = impatient do |config|
      config.client_class = Penstock::Clients::Buffered
      config.max_attempts_on_idempotent_fatal_error = 1
    end
    broken = lambda do |client|
      client.define_singleton_method(:fatal_error) { Penstock::FatalError.new("for a test", code: :fatal, fatal: true) }
      client.script { |message| :purge_queue if message[:payload].start_with?("lost") }
    end
    broken.call(producer.client)
    producer.monitor.subscribe("producer.connected") { broken.call(Internal.of(producer).variants.own.client) }
    error = assert_raises(Penstock::ProduceManyError) do
      producer.produce_many_sync(%w[lost1 good lost2].map { |payload| { topic: "t", payload:, label: payload } })
    end
    assert_equal [%w[lost1 good lost2], [false, true, false], :purge_queue],
                 [error.dispatched.map(&:label), error.dispatched.map(&:delivered?), error.code]
  end

  # behaviour: reload_on_idempotent_fatal_error
  # behaviour: Without recovery every later message fails with the same error
  def test_without_reloading_every_later_message_fails_with_the_same_fatal_error
    producer = impatient { |config| config.reload_on_idempotent_fatal_error = false }
    name = topic
    producer.produce_sync(topic: name, payload: "1")
    failed = break_down(producer)
    3.times do
      [-> { producer.produce_sync(topic: name, payload: "2") }, -> { producer.produce_async(topic: name, payload: "2") },
       -> { producer.produce_many_sync([{ topic: name, payload: "2" }]) }].each do |way|
        error = assert_raises(Penstock::ProduceError, &way)
        assert_equal [:out_of_order_sequence_number, true], [error.code, error.fatal?]
      end
    end
    assert_same failed, producer.client
  end

  # behaviour: non_reloadable_errors
  def test_non_reloadable_errors_are_raised
    producer = impatient { |config| config.non_reloadable_errors = %i[fenced out_of_order_sequence_number] }
    name = topic
    failed = break_down(producer)
    assert_predicate assert_raises(Penstock::ProduceError) { producer.produce_sync(topic: name, payload: "x") }, :fatal?
    assert_same failed, producer.client
  end

  # librdkafka itself reports the last two as :fenced: see test_each_fencing_answer_of_brokers_is_reported_as_fenced.
  %i[out_of_order_sequence_number unknown_producer_id invalid_producer_id_mapping cluster_authorization_failed unsupported_version
     inconsistent gapless_guarantee invalid_producer_epoch producer_fenced].each do |code|
    # defect 24
    define_method("test_8_threads_continue_after_one_reload_when_the_fatal_error_is_#{code}") do
      # All 8 messages wait in the queue, and fail together.
      producer = impatient("linger.ms": 60_000) { |config| config.flush_on_wait = false }
      producer.monitor.subscribe("producer.reload") { |event| event[:kafka][:"linger.ms"] = 0 }
      name = topic
      reloads = events(producer, "error.occurred", "producer.reload")
      failed = producer.client
      breaking = quiet_thread { eventually { failed.queue_size == 8 } && break_down(producer, code) }
      errors = in_8_threads { |i| 2.times { |j| producer.produce_sync(topic: name, payload: "#{i}-#{j}") } }
      assert_same failed, breaking.value
      assert_empty errors.compact
      assert_equal [["error.occurred", code, 1], ["producer.reload", code, 1]],
                   taken(reloads).map { |event| [event.id, event[:error].code, event[:attempt]] }
      refute_same failed, producer.client
      assert_equal (0..7).flat_map { |i| ["#{i}-0", "#{i}-1"] }, stored(name, partitions: 4).map(&:payload).sort
    end
  end

  # defect 24
  # behaviour: non_reloadable_errors
  def test_fenced_is_final_for_8_threads_and_each_gets_the_original_cause
    producer = impatient
    name = topic
    producer.produce_sync(topic: name, payload: "1")
    reloads = events(producer, "producer.reload")
    failed = break_down(producer, :fenced)
    ways = [-> { producer.produce_sync(topic: name, payload: "x") }, -> { producer.produce_async(topic: name, payload: "x") },
            -> { producer.produce_many_sync([{ topic: name, payload: "x" }]) }]
    3.times do
      in_8_threads { |i| ways[i % 3].call }.each do |error|
        assert_instance_of Penstock::ProducerFencedError, error
        assert_equal [:fenced, true], [error.code, error.fatal?]
        assert_match(/for a test.*taken over/, error.message)
      end
    end
    assert_empty taken(reloads)
    assert_same failed, producer.client
  end

  # @return [Array<Penstock::Error, nil>] the error of the block in each of 8 threads that start together
  def in_8_threads
    ready = Queue.new
    go = Queue.new
    threads = Array.new(8) do |i|
      quiet_thread do
        ready << i
        go.pop
        yield i
        nil
      rescue Penstock::Error => e
        e
      end
    end
    8.times { ready.pop }
    go.close
    threads.map(&:value)
  end

  # behaviour: wait_backoff_on_idempotent_fatal_error
  slow def test_reloading_stops_at_the_limit_and_a_delivered_message_resets_the_count
    producer = impatient { |config| config.max_attempts_on_idempotent_fatal_error = 2 }
    name = topic
    attempts = events(producer, "producer.reload")
    break_down(producer)
    always = producer.monitor.subscribe("producer.connected") { break_down(producer) }
    error = assert_raises(Penstock::ProduceError) { producer.produce_sync(topic: name, payload: "never") }
    assert_predicate error, :fatal?
    assert_equal [1, 2], taken(attempts).map { |event| event[:attempt] }
    assert_raises(Penstock::ProduceError) { producer.produce_sync(topic: name, payload: "never") }

    producer.monitor.unsubscribe(always)
    producer.disconnect
    producer.produce_sync(topic: name, payload: "1")
    break_down(producer)
    producer.produce_sync(topic: name, payload: "2")
    break_down(producer)
    producer.produce_sync(topic: name, payload: "3")
    assert_equal [1, 1], taken(attempts).map { |event| event[:attempt] }
    assert_equal %w[1 2 3], stored(name, partitions: 4).map(&:payload).sort
  end

  slow def test_a_thread_that_waits_for_space_continues_with_the_new_client
    cluster = own_cluster
    name = topic(partitions: 1, on: cluster)
    producer = impatient(on: cluster, "queue.buffering.max.messages": 5, "linger.ms": 0) do |c|
      c.wait_timeout_on_queue_full = nil
    end
    producer.produce_sync(topic: name, payload: "first")
    cluster.set_round_trip_time(seconds: 60)
    stuck = Array.new(5) { producer.produce_async(topic: name, payload: "stuck") }
    one = Thread.new { producer.produce_async(topic: name, payload: "one") }
    many = Thread.new { producer.produce_many_async(Array.new(4) { { topic: name, payload: "many" } }) }
    eventually { one.stop? && many.stop? }
    cluster.set_round_trip_time(seconds: 0)
    break_down(producer)
    trigger = producer.produce_sync(topic: name, payload: "trigger")
    assert [one, many].all? { |thread| Slowness.join(thread, 20) }
    handles = [one.value, *many.value]
    assert_predicate trigger, :delivered?
    handles.each { |handle| handle.wait(max_wait_timeout_ms: 10_000) rescue assert_predicate handle.report, :not_persisted? } # rubocop:disable Style/RescueModifier
    assert stuck.none?(&:pending?)
  end

  # behaviour: An idempotent producer recovers unnoticed by its users
  slow def test_a_thread_that_waits_for_a_result_of_the_old_client_continues_with_the_new_one
    producer = impatient("linger.ms": 20_000) { |config| config.flush_on_wait = false }
    name = topic
    waiting = Array.new(3) { |i| Thread.new { producer.produce_sync(topic: name, payload: "w#{i}", partition: 0) } }
    eventually { waiting.all?(&:stop?) && producer.queue_size == 3 }
    break_down(producer)
    trigger = Thread.new { producer.produce_sync(topic: name, payload: "trigger", partition: 0) }
    eventually(10) { producer.queue_size == 4 }
    assert producer.flush
    assert [*waiting, trigger].all? { |thread| Slowness.join(thread, 20)&.value&.delivered? }
    assert_equal %w[trigger w0 w1 w2], stored(name).map(&:payload).sort
  end

  def test_a_variants_connection_recovers_independently
    producer = impatient
    name = topic
    variant = producer.with(topic_config: { "compression.type": "gzip" })
    [producer, variant].each { |one| one.produce_sync(topic: name, payload: "1") }
    own = producer.client
    failed = Internal.of(producer).variants.as(variant) { break_down(producer) }
    variant.produce_sync(topic: name, payload: "2")
    refute_same failed, Internal.of(producer).variants.as(variant) { producer.client }
    assert_same own, producer.client
  end

  # behaviour: wait_backoff_on_idempotent_fatal_error
  slow def test_the_new_client_connects_after_the_backoff
    producer = impatient { |config| config.wait_backoff_on_idempotent_fatal_error = 1_000 }
    name = topic
    producer.produce_sync(topic: name, payload: "1")
    break_down(producer)
    assert_operator seconds_of { producer.produce_sync(topic: name, payload: "2") }, :>=, 1
  end

  def test_close_does_not_wait_for_the_backoff
    producer = impatient { |config| config.wait_backoff_on_idempotent_fatal_error = 50_000 }
    name = topic
    break_down(producer)
    reloaded = events(producer, "producer.reloaded")
    sending = Thread.new do
      Thread.current.report_on_exception = false
      producer.produce_sync(topic: name, payload: "x")
    end
    reloaded.pop
    assert_took(10, seconds_of { producer.close(timeout: 20) })
    assert_raises(Penstock::ProducerClosedError) { Slowness.join(sending, 10) }
  end

  # behaviour: producer.reload, producer.reloaded
  def test_a_listener_may_change_the_settings_of_the_next_client
    producer = impatient("client.id": "before")
    producer.monitor.subscribe("producer.reload") { |event| event[:kafka][:"max.in.flight"] = 1 }
    name = topic
    break_down(producer)
    producer.produce_sync(topic: name, payload: "x")
    assert_nil producer.config.kafka[:"max.in.flight"]
    assert_equal 1, Internal.of(producer).variants.own.instance_variable_get(:@kafka)[:"max.in.flight"]
  end

  def test_a_listener_whose_call_would_wait_for_itself_gets_a_deadlock_error
    asks = { "producer.reload" => :produce_sync, "error.occurred" => :produce_sync, "producer.reloaded" => :disconnect }
    asks.each do |event, call|
      producer = impatient
      name = topic
      producer.produce_sync(topic: name, payload: "x")
      asked = error = nil
      producer.monitor.subscribe(event) do
        next if asked # the error is published as well

        asked = true
        error = assert_raises(Penstock::ListenerDeadlockError) do
          call == :disconnect ? producer.disconnect : producer.produce_sync(topic: name, payload: "y")
        end
      end
      break_down(producer)
      assert_predicate producer.produce_sync(topic: name, payload: "x"), :delivered?
      assert_includes error.message, producer.id
    end
  end

  # ---- transactional producers ----

  # behaviour: reload_on_transaction_fatal_error
  # behaviour: The producer repeats and aborts as the cluster requests
  def test_a_transactional_producers_fatal_error_is_raised_and_the_next_transaction_has_a_new_client
    producer = transactional
    name = topic
    producer.transaction { nil }
    seen = events(producer, "error.occurred", "producer.reload", "producer.reloaded")
    [-> { producer.transaction { flunk } }, -> { producer.produce_sync(topic: name, payload: "x") },
     -> { producer.transaction { break_down(producer) } },
     lambda {
       producer.transaction do
         break_down(producer)
         producer.produce_sync(topic: name, payload: "x")
       end
     }].each_with_index do |way, i|
      failed = producer.client
      break_down(producer) if i < 2
      error = assert_raises(Penstock::TransactionError, Penstock::ProduceError, &way)
      assert_predicate error, :fatal?
      reloads = taken(seen).reject { |event| event.id == "error.occurred" }
      assert_equal [["producer.reload", 1], ["producer.reloaded", 1]], (reloads.map { |event| [event.id, event[:attempt]] })
      assert_equal 1, producer.transaction { 1 }
      refute_same failed, producer.client
    end
  end

  # behaviour: wait_backoff_on_transaction_fatal_error
  slow def test_reloading_a_transactional_producer_stops_at_the_limit_and_a_commit_resets_the_count
    producer = transactional { |config| config.max_attempts_on_transaction_fatal_error = 3 }
    name = topic
    attempts = events(producer, "producer.reload")
    fail_once = lambda do
      break_down(producer) unless producer.client.fatal_error
      assert_predicate assert_raises(Penstock::TransactionError) { producer.transaction { flunk } }, :fatal?
    end
    2.times { fail_once.call }
    producer.transaction { producer.produce_async(topic: name, payload: "x") }
    5.times { fail_once.call }
    assert_equal [1, 2, 1, 2, 3], taken(attempts).map { |event| event[:attempt] }
  end

  def test_messages_of_an_aborted_transaction_do_not_reset_the_count
    producer = transactional
    name = topic
    attempts = events(producer, "producer.reload")
    3.times do
      assert_raises(Penstock::ProduceError, Penstock::TransactionError) do
        producer.transaction do
          producer.produce_sync(topic: name, payload: "x")
          break_down(producer)
        end
      end
    end
    assert_equal [1, 2, 3], taken(attempts).map { |event| event[:attempt] }
  end

  BREAKING_DOWN_AT_ONCE = <<~'RUBY'
    cluster = Penstock::EmbeddedCluster.new
    producer = Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "t", "linger.ms": 0, log_level: 0 }
      config.logger = Logger.new(nil)
      config.wait_backoff_on_transaction_fatal_error = 0
      config.max_attempts_on_transaction_fatal_error = 1_000
    end
    150.times do
      producer.transaction { nil }
      producer.transaction do
        4.times { |partition| producer.produce_async(topic: "t", payload: "x", partition:) }
        producer.client.test_fatal_error(:out_of_order_sequence_number, "for a test")
      end
    rescue Penstock::TransactionError
      nil
    end
    producer.close
    cluster.close
    puts "done"
  RUBY

  # librdkafka's assertion ended the process within about 100 such transactions.
  slow def test_a_client_that_fails_at_its_transactions_first_messages_is_closed_safely
    assert_equal "done\n", ruby!("require 'logger'\n#{BREAKING_DOWN_AT_ONCE}", seconds: 100)
  end

  # behaviour: reload_on_transaction_fatal_error
  def test_without_reloading_a_transactional_producer_stays_broken
    producer = transactional { |config| config.reload_on_transaction_fatal_error = false }
    break_down(producer)
    2.times do
      error = assert_raises(Penstock::TransactionError) { producer.transaction { flunk } }
      assert_equal :out_of_order_sequence_number, error.code
    end
  end

  # behaviour: wait_backoff_on_transaction_fatal_error
  slow def test_the_error_is_raised_at_once_and_the_next_transaction_waits_for_the_backoff
    producer = transactional { |config| config.wait_backoff_on_transaction_fatal_error = 4_000 }
    producer.transaction { nil }
    break_down(producer)
    assert_took(3, seconds_of { assert_raises(Penstock::TransactionError) { producer.transaction { flunk } } })
    assert_operator seconds_of { producer.transaction { nil } }, :>, 0.5
  end

  # behaviour: non_reloadable_errors
  # behaviour: A fenced producer stays fenced, unless its settings allow a reload
  def test_a_fenced_producer_raises_and_is_not_replaced
    cluster = own_cluster
    name = topic(on: cluster)
    producer = transactional(on: cluster)
    producer.transaction { nil }
    seen = events(producer, "producer.reload")
    cluster.inject_errors(:end_txn, :producer_fenced)
    3.times do
      error = assert_raises(Penstock::TransactionError) do
        producer.transaction { producer.produce_async(topic: name, payload: "x", partition: 0) }
      end
      assert_equal [:fenced, true], [error.code, error.fatal?]
      assert_match(/taken over/, error.message)
    end
    assert_empty taken(seen)
  end

  # Queued messages, later messages sent in each way, and the transaction itself.
  # behaviour: A fenced producer stays fenced, unless its settings allow a reload
  def test_every_call_on_a_fenced_producer_raises_a_fenced_error
    producer = transactional("linger.ms": 60_000)
    message = { topic: topic, payload: "x", partition: 0 }
    producer.transaction { nil }
    purged = events(producer, "message.purged")
    failed = Thread::Queue.new
    producer.monitor.subscribe("error.occurred") { |event| failed << event if event[:type] == "librdkafka.dispatch_error" }
    handles = nil
    fence = lambda do |&use|
      producer.transaction do
        handles ||= producer.produce_many_async([message] * 3)
        break_down(producer, :fenced) unless producer.client.fatal_error
        use.call
      end
    end
    ways = [-> { handles[0].wait }, -> { producer.produce_sync(message) }, -> { producer.produce_async(message) },
            -> { producer.produce_many_sync([message]) }, -> { producer.produce_many_async([message]) }, -> {}]
    errors = ways.map { |way| assert_raises(Penstock::ProducerFencedError) { fence.call(&way) } }
    [*errors, *handles.map(&:error), *handles.map { |handle| handle.report.error }, producer.client.fatal_error].each do |error|
      assert_fenced(error)
    end
    assert_match(/not delivered and is not in the topic/, handles[0].error.message)
    assert_fenced(Array.new(3) { failed.pop[:error] }.last)
    assert_empty taken(purged)
  end

  # Kafka reports both in the same way.
  def test_a_transaction_that_lasts_too_long_is_not_blamed_on_another_producer
    cluster = own_cluster
    name = topic(on: cluster)
    producer = transactional(on: cluster, "transaction.timeout.ms": 1_000)
    producer.transaction { nil }
    now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
    handle = nil
    errors = []
    errors << assert_raises(Penstock::TransactionTimedOutError) do
      producer.transaction do
        began = now.call
        producer.produce_sync(topic: name, payload: "x", partition: 0)
        eventually { now.call - began > 1.01 }
        handle = producer.produce_async(topic: name, payload: "x", partition: 0)
        break_down(producer, :fenced)
        producer.produce_async(topic: name, payload: "x", partition: 0)
      end
    end
    errors << assert_raises(Penstock::TransactionTimedOutError) { producer.transaction { flunk } } << producer.client.fatal_error
    errors << handle.error if handle.error
    errors.each do |error|
      assert_kind_of Penstock::ProducerFencedError, error
      assert_kind_of Penstock::TimeoutError, error
      assert_equal [:fenced, true], [error.code, error.fatal?]
      assert_match(/the transaction lasted longer than transaction\.timeout\.ms \(1000\).*Make a new producer/i, error.message)
      refute_match(/taken over|newer instance|another producer/i, error.full_message)
    end
  end

  # The batch is in the queue when another producer takes over.
  def test_a_batch_that_waits_when_its_producer_is_fenced_raises_a_fenced_error
    producer = transactional("linger.ms": 60_000) { |config| config.flush_on_wait = false }
    name = topic
    client = producer.client
    fencing = quiet_thread { eventually { client.queue_size == 3 } && break_down(producer, :fenced) }
    assert_fenced(assert_raises(Penstock::ProducerFencedError) do
      producer.transaction { producer.produce_many_sync([{ topic: name, payload: "x" }] * 3) }
    end)
    fencing.join
  end

  def assert_fenced(error)
    assert_instance_of Penstock::ProducerFencedError, error
    assert_kind_of Penstock::TransactionError, error
    assert_equal [:fenced, true, false, false], [error.code, error.fatal?, error.retriable?, error.abortable?]
    assert_match(/taken over\. Do not send again from here/, error.message)
    refute_match(/purged|send it again/i, error.message)
  end

  # The idempotent producer's queue: nothing sends it again if the program does not allow a new client.
  def test_a_message_that_a_fatal_error_kept_from_being_sent_fails_with_that_error
    producer = impatient("linger.ms": 60_000) { |config| config.reload_on_idempotent_fatal_error = false }
    handle = producer.produce_async(topic: topic, payload: "x")
    break_down(producer)
    error = assert_raises(Penstock::DeliveryError) { handle.wait(max_wait_timeout_ms: 10_000) }
    assert_equal [:out_of_order_sequence_number, true, true], [error.code, error.fatal?, error.retriable?]
    assert_match(/is not in the topic \(.*for a test.*The producer met a fatal error before it sent the message/, error.message)
    refute_match(/purged|send it again/i, error.message)
  end

  # Without a fatal error, dropped messages are reported as dropped.
  slow def test_a_message_that_the_program_purges_is_still_reported_as_purged
    producer = impatient("linger.ms": 60_000)
    handle = producer.produce_async(topic: topic, payload: "x")
    producer.purge
    error = assert_raises(Penstock::DeliveryError) { handle.wait(max_wait_timeout_ms: 10_000) }
    assert_equal [:purge_queue, false], [error.code, error.fatal?]
  end

  # Brokers have two more codes for fencing. `non_reloadable_errors` need not list them.
  [%i[end_txn producer_fenced], %i[end_txn invalid_producer_epoch], %i[add_partitions_to_txn producer_fenced],
   %i[add_partitions_to_txn invalid_producer_epoch], %i[produce invalid_producer_epoch]].each do |request, code|
    define_method("test_each_fencing_answer_of_brokers_is_reported_as_fenced_#{request}_#{code}") do
      cluster = own_cluster
      name = topic(on: cluster)
      producer = transactional(on: cluster)
      producer.transaction { nil }
      reloads = events(producer, "producer.reload")
      cluster.inject_errors(request, code)
      2.times do
        error = assert_raises(Penstock::TransactionError) do
          producer.transaction { producer.produce_async(topic: name, payload: "x", partition: 0) }
        end
        assert_equal [:fenced, true], [error.code, error.fatal?]
      end
      assert_empty taken(reloads)
    end
  end

  # behaviour: A fenced producer stays fenced, unless its settings allow a reload
  def test_a_replaceable_fenced_producer_is_replaced_up_to_the_limit
    cluster = own_cluster
    name = topic(on: cluster)
    producer = transactional(on: cluster) do |config|
      config.non_reloadable_errors = []
      config.max_attempts_on_transaction_fatal_error = 4
    end
    producer.transaction { nil }
    seen = events(producer, "producer.reload")
    cluster.inject_errors(:end_txn, [:producer_fenced] * 20)
    7.times do
      error = assert_raises(Penstock::TransactionError) do
        producer.transaction { producer.produce_async(topic: name, payload: "x", partition: 0) }
      end
      assert_equal :fenced, error.code
    end
    assert_equal [1, 2, 3, 4], taken(seen).map { |event| event[:attempt] }
  end

  # ---- init_transactions ----

  # behaviour: A rejected first round trip leaves nothing behind
  thorough slow def test_an_unreachable_cluster_raises_after_the_last_attempt_and_leaves_no_client
    producer = transactional(on: "127.0.0.1:1", "transaction.timeout.ms": 1_000, "message.timeout.ms": 500) do |config|
      config.max_attempts_on_transaction_command = 2
    end
    seen = events(producer, "error.occurred")
    error = assert_raises(Penstock::TransactionError) { producer.transaction { flunk } }
    assert_equal :timed_out, error.code
    assert_equal [["transaction.init", 1, true], ["transaction.init", 2, false]],
                 taken(seen).map { |event| event.payload.values_at(:type, :attempt, :retry) }
    eventually { Internal::ProducerClient.open_count.zero? }
    assert_predicate producer.status, :configured?
  end

  # behaviour: max_wait_timeout
  # behaviour: A rejected first round trip leaves nothing behind
  slow def test_a_first_transaction_without_a_cluster_raises_within_max_wait_timeout
    producer = transactional(on: "127.0.0.1:1", "transaction.timeout.ms": 60_000) do |config|
      config.max_wait_timeout = 1_500
      config.wait_backoff_on_transaction_command = 400
    end
    [-> { producer.transaction { flunk } }, -> { producer.produce_sync(topic: "test", payload: "x") }].each do |call|
      error = nil
      elapsed = seconds_of { error = assert_raises(Penstock::TransactionError, &call) }
      assert_took(1.4..10, elapsed)
      assert_equal [:timed_out, true], [error.code, error.retriable?]
      assert_match(/The cluster could not be reached.*brokers 127\.0\.0\.1:1.*refused/, error.message)
      eventually { Internal::ProducerClient.open_count.zero? }
    end
  end

  # defect 27
  thorough slow def test_attempts_to_reach_a_cluster_are_repeated_within_max_wait_timeout_only
    producer = transactional(on: "127.0.0.1:1", "transaction.timeout.ms": 1_000, "message.timeout.ms": 500) do |config|
      config.max_wait_timeout = 7_000
      config.wait_backoff_on_transaction_command = 100
      config.max_attempts_on_transaction_command = 100
    end
    seen = events(producer, "error.occurred")
    assert_took(6..20, seconds_of { assert_raises(Penstock::TransactionError) { producer.transaction { flunk } } })
    *before, last = taken(seen).map { |event| event[:retry] } # 2 seconds each
    assert_equal [[true], false], [before.uniq, last]
    assert_operator before.size, :<, 5
  end

  # defect 2
  # behaviour: A rejected first round trip leaves nothing behind
  def test_a_rejected_init_leaves_no_client_and_the_next_call_retries
    cluster = own_cluster
    producer = transactional(on: cluster)
    5.times do
      cluster.inject_errors(:init_producer_id, :cluster_authorization_failed)
      assert_raises(Penstock::TransactionError) { producer.transaction { flunk } }
      eventually { Internal::ProducerClient.open_count.zero? }
    end
    assert_equal 1, producer.transaction { 1 }
  end

  # behaviour: Settings that exclude transactions, such as other acks, raise when the producer is made
  def test_settings_that_exclude_transactions_are_rejected_when_the_producer_is_made
    [{ acks: 1 }, { "enable.idempotence": false }, { "max.in.flight": 6 }].each do |wrong|
      assert_raises(Penstock::ConfigurationInvalidError, wrong.inspect) { transactional(**wrong) }
    end
  end

  slow def test_close_ends_the_wait_for_a_cluster_that_cannot_be_reached
    producer = transactional(on: "127.0.0.1:1")
    waiting = Thread.new do
      Thread.current.report_on_exception = false
      producer.transaction { flunk }
    end
    eventually { Internal::ProducerClient.open_count == 1 }
    assert_took(10, seconds_of { producer.close(timeout: 1) })
    assert_raises(Penstock::ProducerClosedError) { Slowness.join(waiting, 10) }
  end

  def test_interrupting_the_wait_for_a_cluster_leaves_no_client
    producer = transactional(on: "127.0.0.1:1")
    waiting = Thread.new { producer.transaction { flunk } }
    eventually { Internal::ProducerClient.open_count == 1 }
    Slowness.join(waiting.kill, 5)
    eventually(10) { Internal::ProducerClient.open_count.zero? }
  end

  slow def test_interrupted_and_repeated_connects_do_not_fence_each_other
    slow = own_cluster
    name = topic(on: slow)
    slow.set_round_trip_time(seconds: 0.1)
    producer = transactional(on: slow.bootstrap_servers)
    most = 0
    6.times do |i|
      connecting = quiet_thread { producer.transaction { flunk } }
      eventually { (most = [most, Internal::ProducerClient.open_count].max).positive? }
      sleep 0.03 * i
      connecting.kill.join
    end
    assert_predicate producer.transaction { producer.produce_sync(topic: name, payload: "x") }, :delivered?
    assert_equal 1, most
  end

  # @return [Internal::ProducerClient] a client after a fatal error
  def break_down(producer, code = :out_of_order_sequence_number)
    client = producer.client
    client.test_fatal_error(code, "for a test")
    client
  end
end
