# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/producer_test_case"
require_relative "../support/plain_scheduler"
require "socket"

# config.unreachable_timeout: messages and calls while no broker can be reached.
class UnreachableTest < ProducerTestCase
  TIMEOUT = 400
  SOON = GCLevel.slow? ? 60 : 8 # seconds; message.timeout.ms is 150

  def impatient_producer(servers, timeout: TIMEOUT, **kafka)
    producer(servers:, log_level: 0, **kafka) do |config|
      config.unreachable_timeout = timeout
      config.polling.fd.periodic_poll_interval = 100
      yield config if block_given?
    end
  end

  def assert_soon(seconds = SOON, &block)
    result = nil
    assert_took(seconds, seconds_of { result = block.call })
    result
  end

  def unreachable(&block) = assert_soon { assert_raises(Penstock::BrokersUnreachableError, &block) }

  # A cluster that a test stops and restarts, with a producer that has delivered to it.
  def with_a_cluster_that_goes(**settings, &block)
    own = own_cluster
    own.create_topic("away", partitions: 1)
    one = impatient_producer(own.bootstrap_servers, "reconnect.backoff.max.ms": 200, **settings, &block)
    [own, one]
  end

  def failed?(handle) = !handle.pending? && !handle.delivered?

  def deliver_again(one)
    eventually(30) do
      one.produce_sync(topic: "away", payload: "back", partition: 0)
    rescue Penstock::BrokersUnreachableError
      nil
    end
  end

  # defect 27
  # behaviour: BrokersUnreachableError
  def test_a_message_fails_when_no_broker_was_reachable_for_the_timeout
    one = impatient_producer("127.0.0.1:1,127.0.0.1:2")
    error = unreachable { one.produce_sync(topic: "away", payload: "x") }
    assert_equal [:all_brokers_down, true, one.id, "away"], [error.code, error.retriable?, error.producer_id, error.topic]
    assert_match(/not delivered and is not in the topic.*no broker could be reached for 400 ms.*127\.0\.0\.1:1/, error.message)
    assert_kind_of Penstock::ProduceError, error
  end

  slow def test_the_timeout_applies_in_every_polling_mode_and_in_fibers
    %i[fd thread].each do |mode|
      one = impatient_producer("127.0.0.1:1") { |config| config.polling.mode = mode }
      unreachable { one.produce_sync(topic: "away", payload: "x") }
      other = impatient_producer("127.0.0.1:1") { |config| config.polling.mode = mode }
      in_fibers { unreachable { other.produce_sync(topic: "away", payload: "x") } }
    end
  end

  def in_fibers(&block)
    Thread.new do
      Fiber.set_scheduler(PlainScheduler.new)
      2.times { Fiber.schedule(&block) }
    end.join
  end

  # behaviour: unreachable_timeout
  def test_later_messages_fail_at_once
    one = impatient_producer("127.0.0.1:1")
    unreachable { one.produce_sync(topic: "away", payload: "x") }
    events = Queue.new
    one.monitor.subscribe("error.occurred") { |event| events << event if event[:type] == "librdkafka.dispatch_error" }
    assert_took(SOON / 4.0, seconds_of { 50.times { unreachable { one.produce_sync(topic: "away", payload: "x") } } })
    handles = one.produce_many_async(Array.new(3) { { topic: "away", payload: "x" } })
    assert handles.all? { |handle| failed?(handle) }, "a handle was returned without its result"
    handles.each { |handle| assert_raises(Penstock::BrokersUnreachableError) { handle.wait } }
    eventually { events.size == 53 }
    event = events.pop
    assert_kind_of Penstock::BrokersUnreachableError, event[:error]
    assert_equal "away", event[:topic]
    assert_equal 54, one.metrics[:failed]
  end

  # behaviour: unreachable_timeout
  slow def test_messages_are_delivered_again_after_the_connection_returns
    own, one = with_a_cluster_that_goes
    one.produce_sync(topic: "away", payload: "before", partition: 0)
    2.times do
      own.broker_down(1)
      unreachable { one.produce_sync(topic: "away", payload: "lost", partition: 0) }
      own.broker_up(1)
      deliver_again(one)
    end
    one.close
    assert_equal %w[before back back], stored("away", on: own).map(&:payload).reject { |payload| payload == "lost" }
  end

  slow def test_the_timeout_starts_at_the_loss_of_the_last_connection
    own, one = with_a_cluster_that_goes(timeout: 5_000)
    one.produce_sync(topic: "away", payload: "before", partition: 0)
    own.broker_down(1)
    handle = one.produce_async(topic: "away", payload: "short outage", partition: 0)
    assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 1_000) }
    own.broker_up(1)
    assert_predicate handle.wait, :persisted?
  end

  # The mock broker stores a message at once and delays its answer. The loss of the connection loses the answer.
  # behaviour: BrokersUnreachableError
  slow def test_a_sent_message_fails_as_possibly_persisted
    own, one = with_a_cluster_that_goes("linger.ms": 0)
    one.produce_sync(topic: "away", payload: "before", partition: 0)
    own.set_round_trip_time(seconds: 60)
    sent = one.produce_async(topic: "away", payload: "sent", partition: 0)
    eventually { one.metrics[:requests] == 2 }
    own.broker_down(1)
    error = unreachable { sent.wait }
    refute_predicate error, :retriable?
    assert_match(/may be in the topic/, error.message)
    never = unreachable { one.produce_sync(topic: "away", payload: "never sent", partition: 0) }
    assert_predicate never, :retriable?
    own.set_round_trip_time(seconds: 0)
    own.broker_up(1)
    deliver_again(one)
    assert_equal %w[before back], stored("away", on: own).map(&:payload) - %w[sent]
  end

  # behaviour: BrokersUnreachableError
  def test_messages_keep_their_order_and_are_stored_once
    own, one = with_a_cluster_that_goes("linger.ms": 1)
    handles = []
    3.times do
      send_numbered(one, handles, 200)
      eventually { handles.last.delivered? }
      send_numbered(one, handles, 200)
      own.broker_down(1)
      send_numbered(one, handles, 200)
      eventually(30) { failed?(send_numbered(one, handles)) }
      own.broker_up(1)
      eventually(30) { send_numbered(one, handles) && handles.last(20).any?(&:delivered?) }
    end
    one.flush
    assert_stored_as_reported(handles, stored("away", on: own).map { |record| record.payload.to_i })
  end

  # @return [Penstock::DeliveryHandle] the handle of the last message
  def send_numbered(one, handles, count = 1)
    count.times { handles << one.produce_async(topic: "away", payload: (handles.size + 1).to_s, partition: 0) }
    handles.last
  end

  def assert_stored_as_reported(handles, stored)
    results = handles.each_with_index.group_by { |handle, _| handle.delivered? ? :delivered : handle.report.error.retriable? }
    delivered, absent = results.values_at(:delivered, true).map { |pairs| pairs.map { |_, i| i + 1 } }
    assert_equal stored.sort, stored
    assert_equal stored.uniq, stored
    assert_empty delivered - stored
    assert_empty absent & stored
  end

  slow def test_flush_and_other_calls_that_wait_for_brokers_end_within_the_timeout
    one = impatient_producer("127.0.0.1:1")
    one.produce_async(topic: "away", payload: "x")
    unreachable { one.flush(timeout: 60) }
    assert one.flush(timeout: 60), "messages are still in flight"
    unreachable { one.partition_count("away") }
  end

  def test_a_thread_that_waits_for_queue_space_continues
    one = impatient_producer("127.0.0.1:1", "queue.buffering.max.messages": 1) do |config|
      config.wait_timeout_on_queue_full = 60_000
    end
    first = one.produce_async(topic: "away", payload: "x")
    unreachable { one.produce_sync(topic: "away", payload: "x") }
    assert failed?(first)
  end

  # behaviour: unreachable_timeout
  slow def test_messages_wait_for_their_timeout_by_default
    one = unreachable_producer("message.timeout.ms": 1_500, "transaction.timeout.ms": 5_000)
    assert_equal 0, one.config.unreachable_timeout
    assert_raises(Penstock::MessageTimedOutError) { one.produce_sync(topic: "away", payload: "x") }
  end

  def test_purged_messages_are_reported_as_purged
    own, one = with_a_cluster_that_goes(timeout: 60_000)
    one.produce_sync(topic: "away", payload: "before", partition: 0)
    own.broker_down(1)
    handle = one.produce_async(topic: "away", payload: "x", partition: 0)
    one.purge
    assert_equal :purge_queue, assert_raises(Penstock::DeliveryError) { handle.wait }.code
  end

  # A port that accepts connections and never answers, like a frozen broker's.
  def test_a_broker_that_never_answers_counts_as_unreachable
    server = TCPServer.new("127.0.0.1", 0)
    one = impatient_producer("127.0.0.1:#{server.local_address.ip_port}")
    unreachable { one.produce_sync(topic: "away", payload: "x") }
  ensure
    server.close
  end

  # ---- transactions ----

  def test_a_transactional_producer_raises_when_its_cluster_is_unreachable
    one = impatient_producer("127.0.0.1:1", "transactional.id": "away-#{rand(2**32)}")
    unreachable { one.transaction { flunk } }
  end

  slow def test_a_transaction_ends_soon_when_the_cluster_is_gone
    own, one = with_a_cluster_that_goes("transactional.id": "going-#{rand(2**32)}") do |config|
      config.wait_backoff_on_transaction_fatal_error = 10
    end
    one.transaction { one.produce_sync(topic: "away", payload: "before", partition: 0) }
    error = assert_soon(SOON * 2) do
      assert_raises(Penstock::BrokersUnreachableError) do
        one.transaction do
          own.broker_down(1)
          one.produce_sync(topic: "away", payload: "lost", partition: 0)
        end
      end
    end
    assert_equal :all_brokers_down, error.code
    assert_soon(SOON * 2) do
      assert_raises(Penstock::BrokersUnreachableError) { one.transaction { one.produce_sync(topic: "away", payload: "lost") } }
    end
    own.broker_up(1)
    eventually(30) do
      one.transaction { one.produce_sync(topic: "away", payload: "after", partition: 0) }
    rescue Penstock::BrokersUnreachableError, Penstock::DeliveryError # librdkafka drops it, because the lost messages left a gap
      nil
    end
  end

  def test_a_commit_without_a_broker_ends_soon
    own, one = with_a_cluster_that_goes("transactional.id": "going-#{rand(2**32)}") do |config|
      config.wait_backoff_on_transaction_fatal_error = 10
    end
    error = assert_soon(SOON * 2) do
      assert_raises(Penstock::TransactionOutcomeUnknownError) do
        one.transaction do
          one.produce_sync(topic: "away", payload: "x", partition: 0)
          own.broker_down(1)
        end
      end
    end
    assert_equal [:all_brokers_down, false], [error.code, error.retriable?] # again, it might store the message twice
  end

  # librdkafka would wait for transaction.timeout.ms, and the abort behind it, too.
  def test_a_transaction_of_a_consumer_ends_soon_when_its_offsets_cannot_be_sent
    own, one = with_a_cluster_that_goes("transactional.id": "going-#{rand(2**32)}", "transaction.timeout.ms": 60_000) do |config|
      config.wait_backoff_on_transaction_fatal_error = 10
    end
    one.transaction { one.produce_sync(topic: "away", payload: "x", partition: 0) }
    reader = Penstock::Consumer.new("bootstrap.servers": own.bootstrap_servers, "group.id": "g", log_level: 0,
                                    "enable.auto.commit": false)
    batch = reader.assign("away" => { 0 => 0 }).poll_batch(timeout: 20)
    error = assert_soon(SOON * 2) do
      assert_raises(Penstock::TransactionError) do
        one.transaction(reader, batch) { own.broker_down(1) }
      end
    end
    assert_equal :all_brokers_down, error.code
    own.broker_up(1)
    eventually(30) do
      one.transaction { one.produce_sync(topic: "away", payload: "after", partition: 0) }
    rescue Penstock::BrokersUnreachableError, Penstock::DeliveryError
      nil
    end
  ensure
    reader&.close(timeout: 0)
  end

  # An outage fails the first transaction's message. The abort purges the second one's, long after the outage.
  def test_messages_of_an_aborted_transaction_after_an_outage_are_reported_as_purged
    own = own_cluster
    own.create_topic("away", partitions: 1)
    settings = { "transactional.id": "after-#{rand(2**32)}", "reconnect.backoff.max.ms": 200, "linger.ms": 10_000 }
    one = impatient_producer(own.bootstrap_servers, **settings) { |config| config.wait_timeout_on_transaction_abort = 0 }
    client = native_client(one)
    client.init_transactions(nil)
    client.begin_transaction
    own.broker_down(1)
    unreachable { client.produce({ topic: "away", payload: "lost", partition: 0 }).wait }
    own.broker_up(1)
    eventually(30) { aborted?(client) }
    client.begin_transaction
    handle = client.produce({ topic: "away", payload: "purged", partition: 0 })
    client.abort_transaction(nil)
    assert_equal :purge_queue, assert_raises(Penstock::DeliveryError) { handle.wait }.code
  end

  def aborted?(client)
    client.abort_transaction(nil)
    true
  rescue Penstock::Error
    false
  end

  # ---- settings ----

  def config_with(value, **kafka)
    Penstock::Config.new.tap do |config|
      config.kafka = { "bootstrap.servers": "127.0.0.1:1", **kafka }
      config.unreachable_timeout = value
      config.logger = Logger.new(@log = StringIO.new)
      config.send(:finish)
    end
  end

  # behaviour: unreachable_timeout
  def test_values_are_checked
    [0, 100, 5_000, 150_000].each { |value| assert_equal value, config_with(value).unreachable_timeout }
    [nil, -1, 1, 3, 99, 1.5, "5000", true, 2**60].each do |value|
      error = assert_raises(Penstock::ConfigurationInvalidError) { config_with(value) }
      assert_match(/config\.unreachable_timeout must be/, error.message)
    end
  end

  def test_the_error_for_a_value_in_seconds_shows_milliseconds
    error = assert_raises(Penstock::ConfigurationInvalidError) { config_with(3) }
    assert_match(/must be 0 or an Integer of at least 100 \(ms\), not 3; for 3 seconds, write 3_000/, error.message)
  end

  def test_a_value_without_effect_because_of_message_timeout_ms_is_warned_of
    config_with(150_000)
    assert_match(/unreachable_timeout \(150000 ms\) has no effect.*message\.timeout\.ms \(150000\)/, @log.string)
    config_with(3_000, "delivery.timeout.ms": 2_000)
    assert_match(/unreachable_timeout/, @log.string)
    config_with(5_000)
    config_with(0)
    config_with(200_000, "message.timeout.ms": 0)
    assert_empty @log.string
  end
end
