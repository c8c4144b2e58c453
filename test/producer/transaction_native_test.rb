# frozen_string_literal: true

require_relative "../test_helper"

# The transactions, fatal errors and purge of Internal::ProducerClient. The mock brokers accept the calls but do not isolate
# readers. test/integration/transaction_native_test.rb checks what readers see.
class TransactionNativeTest < PenstockTest
  include FreshCluster

  def setup
    super
    @log = StringIO.new
  end

  # ---- the calls ----

  def test_a_commit_delivers_messages_without_waiting_for_linger_ms
    client = transactional("linger.ms": 10_000)
    3.times do
      assert_nil client.begin_transaction
      handles = Array.new(20) { produce(client) }
      assert_nil client.commit_transaction(10_000)
      assert handles.all?(&:delivered?)
    end
  end

  def test_an_aborted_transaction_settles_all_messages_and_the_next_one_works
    client = transactional("linger.ms": 10_000)
    client.begin_transaction
    handles = Array.new(20) { produce(client) }
    assert_nil client.abort_transaction(10_000)
    assert handles.none?(&:pending?)
    client.begin_transaction
    handle = produce(client)
    client.commit_transaction(nil)
    assert_predicate handle, :delivered?
  end

  slow def test_inflight_messages_are_sent_before_a_transaction_is_aborted
    client = transactional("linger.ms": 10_000)
    client.begin_transaction
    handle = produce(client)
    client.abort_transaction(nil)
    assert_predicate handle, :delivered?
  end

  def test_an_empty_transaction_can_be_committed_and_aborted
    client = transactional
    client.begin_transaction
    client.commit_transaction(nil)
    client.begin_transaction
    client.abort_transaction(nil)
  end

  def test_init_commit_and_abort_may_be_repeated_and_change_nothing
    client = transactional
    assert_nil client.init_transactions(5_000)
    client.begin_transaction
    2.times { assert_nil client.commit_transaction(nil) }
    client.begin_transaction
    2.times { assert_nil client.abort_transaction(nil) }
  end

  slow def test_calls_out_of_order_raise_and_change_nothing
    client = transactional
    [-> { client.commit_transaction(nil) }, -> { client.abort_transaction(nil) }].each { |call| assert_state_error(&call) }
    client.begin_transaction
    assert_state_error { client.begin_transaction }
    client.commit_transaction(nil)
    assert_state_error { client.send_offsets_to_transaction([["t", 0, 1, nil]], "group", nil) }
    client.begin_transaction
    client.abort_transaction(nil)
    assert_state_error { client.commit_transaction(nil) }
  end

  slow def test_aborting_a_committed_transaction_raises_an_error_that_says_so
    client = transactional
    client.begin_transaction
    client.commit_transaction(nil)
    error = assert_raises(Penstock::TransactionCommittedError) { client.abort_transaction(nil) }
    assert_match(/has been committed/, error.message)
    client.begin_transaction
    client.abort_transaction(nil)
  end

  def test_a_client_without_a_transactional_id_raises_and_does_not_connect
    client = client()
    error = assert_raises(Penstock::TransactionError) { client.init_transactions(nil) }
    assert_equal :not_configured, error.code
    assert_includes error.message, "transactional.id"
    assert_equal :configured, client.state
  end

  def test_nothing_can_be_produced_outside_a_transaction
    client = transactional
    assert_raises(Penstock::ProduceError) { produce(client) }
    client.begin_transaction
    client.commit_transaction(nil)
    assert_raises(Penstock::ProduceError) { produce(client) }
  end

  # ---- offsets ----

  slow def test_offsets_are_sent_with_and_without_metadata
    client = transactional
    name = topic
    client.begin_transaction
    assert_nil client.send_offsets_to_transaction([[name, 0, 5, "m\0é"], [name, 3, 0, nil]], "group-#{name}", 10_000)
    assert_nil client.send_offsets_to_transaction([], "group-#{name}", 10_000)
    client.commit_transaction(10_000)
  end

  def test_invalid_offsets_raise_before_anything_is_sent
    client = transactional
    client.begin_transaction
    good = ["topic", 0, 1, nil]
    [[%w[topic]], [nil], [["to pic", 0, 1, nil]], [[:topic, 0, 1, nil]], [["topic", -1, 1, nil]], [["topic", "0", 1, nil]],
     [["topic", 2**40, 1, nil]], [["topic", 0, -1, nil]], [["topic", 0, 1.5, nil]], [["topic", 0, 1, 7]],
     [good, []]].each do |bad|
      assert_raises(ArgumentError, RangeError, bad.inspect) { client.send_offsets_to_transaction(bad, "group", nil) }
    end
    assert_raises(TypeError) { client.send_offsets_to_transaction(nil, "group", nil) }
    ["", nil, :group, "a\0b"].each do |group|
      assert_raises(ArgumentError) { client.send_offsets_to_transaction([good], group, nil) }
    end
    client.commit_transaction(nil)
  end

  # ---- errors ----

  slow def test_a_fenced_producer_gets_a_fatal_error
    cluster = own_cluster
    client = transactional(on: cluster)
    client.begin_transaction
    produce(client)
    cluster.inject_errors(:end_txn, :producer_fenced)
    error = assert_raises(Penstock::TransactionError) { client.commit_transaction(10_000) }
    assert_equal [:fenced, true, false, false], flags(error)
    assert_match(/can do nothing more.*same transactional.id has taken over/, error.message)
    assert_equal :fenced, assert_raises(Penstock::TransactionError) { client.abort_transaction(nil) }.code
    assert_equal :fenced, client.fatal_error.code
    assert_predicate assert_raises(Penstock::TransactionError) { client.begin_transaction }, :fatal?
  end

  slow def test_an_abortable_error_requires_an_abort_and_the_next_transaction_works
    cluster = own_cluster
    client = transactional(on: cluster)
    client.begin_transaction
    cluster.inject_errors(:add_partitions_to_txn, :topic_authorization_failed)
    handle = produce(client)
    error = assert_raises(Penstock::TransactionError) { client.commit_transaction(10_000) }
    assert_equal [false, false, true], flags(error).drop(1)
    assert_match(/cannot be committed any more/, error.message)
    assert_took(4, seconds_of { client.abort_transaction(10_000) }, "it waited for messages that will not be sent")
    refute_predicate handle, :pending?
    client.begin_transaction
    client.commit_transaction(nil)
  end

  slow def test_a_commit_that_times_out_is_retriable_and_continues_when_called_again
    cluster, client = slow(3_000)
    error = assert_raises(Penstock::TransactionError) { client.commit_transaction(700) }
    assert_equal [:timed_out, false, true, false], flags(error)
    assert_match(/make the same call again/i, error.message)
    assert_raises(Penstock::TransactionError) { client.begin_transaction }
    cluster.set_round_trip_time(seconds: 0)
    assert_nil client.commit_transaction(20_000)
    client.begin_transaction
    client.abort_transaction(nil)
  end

  def test_a_commit_that_times_out_can_be_aborted_unless_it_succeeds_after_all
    cluster, client = slow(3_000)
    assert_raises(Penstock::TransactionError) { client.commit_transaction(300) }
    cluster.set_round_trip_time(seconds: 0)
    begin
      client.abort_transaction(20_000)
    rescue Penstock::TransactionCommittedError
      nil # it was committed after all
    end
    client.begin_transaction
    client.commit_transaction(nil)
  end

  def test_a_commit_whose_messages_cannot_be_sent_can_be_aborted
    cluster = own_cluster
    client = transactional(on: cluster)
    client.begin_transaction
    cluster.inject_errors(:produce, [:not_leader_for_partition] * 1_000)
    handle = produce(client)
    assert_predicate assert_raises(Penstock::TransactionError) { client.commit_transaction(500) }, :retriable?
    assert_nil client.abort_transaction(20_000)
    refute_nil handle.error
    cluster.clear_errors(:produce)
    client.begin_transaction
    client.commit_transaction(nil)
  end

  slow def test_init_without_a_cluster_times_out_with_the_reason
    client = client("transactional.id": "t", servers: "127.0.0.1:1")
    error = nil
    seconds = seconds_of { error = assert_raises(Penstock::TransactionError) { client.init_transactions(1_200) } }
    assert_took(0.2..2.2, seconds)
    assert_predicate error, :retriable?
  end

  # ---- interrupts ----

  slow def test_an_interrupted_commit_continues_and_an_abort_waits_for_it
    _, client = slow(2_000)
    assert_took(1, seconds_of { assert_raises(Timeout::Error) { Timeout.timeout(0.2) { client.commit_transaction(nil) } } })
    assert_raises(Penstock::TransactionCommittedError) { client.abort_transaction(20_000) }
    client.begin_transaction
    client.abort_transaction(20_000)
  end

  slow def test_an_interrupted_commit_can_be_repeated_to_get_its_result
    _, client = slow(1_500)
    assert_raises(Timeout::Error) { Timeout.timeout(0.2) { client.commit_transaction(nil) } }
    assert_nil client.commit_transaction(20_000)
  end

  thorough def test_an_interrupted_init_continues_and_can_be_repeated
    cluster = own_cluster
    client = client("transactional.id": "t", servers: cluster.bootstrap_servers)
    cluster.set_round_trip_time(seconds: 0.7)
    assert_raises(Timeout::Error) { Timeout.timeout(0.1) { client.init_transactions(nil) } }
    assert_nil client.init_transactions(20_000)
    client.begin_transaction
    client.commit_transaction(nil)
  end

  slow def test_a_call_waits_for_the_previous_one_within_its_timeout
    _, client = slow(2_500)
    committing = in_thread { client.commit_transaction(nil) }
    error = assert_raises(Penstock::TransactionError) { client.commit_transaction(200) }
    assert_equal [:timed_out, false, true, false], flags(error)
    assert_match(/did not begin/, error.message)
    assert_nil committing.value
  end

  slow def test_an_ordinary_call_interrupted_before_its_turn_is_not_made
    _, client = slow(1_500)
    committing = in_thread { client.commit_transaction(nil) }
    in_thread { client.begin_transaction }.kill.join
    committing.join
    client.begin_transaction # raises if it was made before
    client.abort_transaction(nil)
  end

  thorough def test_an_abort_interrupted_before_its_turn_is_made
    cluster, client = slow(1_500)
    offsets = [[topic(on: cluster), 0, 1, nil]]
    offsets = in_thread { client.send_offsets_to_transaction(offsets, "group", nil) }
    in_thread { client.abort_transaction(nil) }.kill.join
    offsets.join
    client.begin_transaction # raises if the previous one is still open
    client.abort_transaction(nil)
  end

  # ---- closing ----

  thorough slow def test_close_during_a_commit_that_gets_no_answer_ends_both_in_time
    _, client = slow(60_000)
    committing = in_thread { assert_raises(Penstock::ProducerClosedError) { client.commit_transaction(50_000) } }
    assert_took(2, seconds_of { client.close(500) })
    assert Slowness.join(committing, 5), "the commit still waits"
    eventually { Internal::ProducerClient.open_count.zero? }
  end

  slow def test_close_during_a_commit_that_succeeds_lets_it_succeed
    _, client = slow(700)
    committing = in_thread { client.commit_transaction(nil) }
    client.close(20_000)
    assert_nil committing.value
  end

  slow def test_calls_that_had_not_begun_when_the_client_was_closed_raise
    _, client = slow(700)
    committing = in_thread { client.commit_transaction(nil) }
    waiting = in_thread { assert_raises(Penstock::ProducerClosedError) { client.begin_transaction } }
    client.close(20_000)
    assert_nil committing.value
    waiting.join
    assert_raises(Penstock::ProducerClosedError) { client.begin_transaction }
  end

  def test_close_aborts_an_open_transaction
    client = transactional
    client.begin_transaction
    handle = produce(client)
    client.close(10_000)
    refute_predicate handle, :pending?
    eventually { @log.string.include?("a transaction was still open and was aborted") }
  end

  def test_close_of_a_committed_transaction_aborts_nothing
    client = transactional
    client.begin_transaction
    client.commit_transaction(nil)
    client.close(10_000)
    eventually { (Thread.list - @threads_before).none?(&:alive?) } # the dispatcher has logged everything
    refute_match(/transaction/, @log.string)
  end

  def test_a_client_dropped_within_a_transaction_is_collected
    output = ruby!(<<~RUBY, cluster.bootstrap_servers, topic)
      def drop
        producer = Penstock::Producer.new do |config|
          config.kafka = { "bootstrap.servers": ARGV[0], "transactional.id": ARGV[1], log_level: 0 }
        end
        client = producer.client
        client.begin_transaction
        client.produce({ topic: ARGV[1], payload: "x" })
      end
      def bury(depth) = depth.zero? ? drop : bury(depth - 1)
      Thread.new { bury(50) && nil }.join
      100.times { GC.start; break if Internal::ProducerClient.open_count.zero?; sleep 0.05 }
      puts Internal::ProducerClient.open_count
    RUBY
    assert_equal "0\n", output
  end

  def test_a_fork_child_starts_its_own_transactions
    client = transactional
    client.begin_transaction
    result = in_child do
      client.init_transactions(10_000)
      client.begin_transaction
      handle = client.produce({ topic: "forked", payload: "x" })
      client.commit_transaction(10_000)
      [handle.delivered?, client.close(5_000).first]
    end
    assert_equal [true, 0], result
  end

  # ---- fatal errors ----

  def test_fatal_error_returns_the_code_and_reason
    client = client("enable.idempotence": true)
    assert_nil client.fatal_error
    client.test_fatal_error(:out_of_order_sequence_number, "for the test")
    error = client.fatal_error
    assert_instance_of Penstock::FatalError, error
    assert_equal [:out_of_order_sequence_number, true, false, false], flags(error)
    assert_match(/for the test/, error.message)
    assert_predicate assert_raises(Penstock::ProduceError) { produce(client) }, :fatal?
    assert_raises(Penstock::Error) { client.test_fatal_error(:fenced, "again") }
  end

  def test_a_transaction_call_after_a_fatal_error_raises_that_error
    client = transactional
    client.begin_transaction
    client.test_fatal_error(:invalid_producer_id_mapping, "for the test")
    error = assert_raises(Penstock::TransactionError) { client.commit_transaction(nil) }
    assert_equal [:invalid_producer_id_mapping, true, false, false], flags(error)
    assert_match(/for the test/, error.message)
  end

  def test_test_fatal_error_rejects_unknown_codes
    assert_raises(ArgumentError) { client.test_fatal_error(:nonsense, "x") }
    assert_raises(TypeError) { client.test_fatal_error(:fenced, nil) }
  end

  # ---- purge ----

  # behaviour: Outside transactions a purge fails messages with the code purge_queue
  def test_purge_fails_unsent_messages_and_the_client_stays_usable
    client = client(servers: "127.0.0.1:1")
    handles = Array.new(100) { produce(client, topic: "test") }
    assert_equal 100, client.purge
    eventually { handles.none?(&:pending?) }
    assert_equal [:purge_queue], handles.map { |handle| handle.error.code }.uniq
    assert_equal [:open, 0], [client.state, client.purge]
  end

  slow def test_purge_fails_unanswered_messages_and_an_idempotent_producer_continues_in_order
    [false, true].each do |idempotent|
      cluster = own_cluster
      name = topic(on: cluster, partitions: 1)
      client = client(servers: cluster.bootstrap_servers, "enable.idempotence": idempotent)
      client.produce({ topic: name, payload: "first" }).wait
      cluster.set_round_trip_time(seconds: 3)
      handle = client.produce({ topic: name, payload: "not answered" })
      refute client.flush(500) # the message has been sent
      assert_equal 1, client.purge
      eventually { !handle.pending? }
      assert_equal :purge_inflight, handle.error.code
      cluster.set_round_trip_time(seconds: 0)
      later = Array.new(10) { |i| client.produce({ topic: name, payload: i.to_s }) }
      offsets = later.map { |sent| sent.wait.offset }
      assert_equal offsets.sort, offsets
      assert_nil client.fatal_error
    end
  end

  def test_every_message_gets_its_result_when_threads_produce_while_others_purge
    client = client("linger.ms": 1)
    name = topic
    client.produce({ topic: name, payload: "first" }).wait
    purging = true
    producing = Array.new(4) do
      Thread.new do
        handles = []
        handles.concat(Array.new(100) { client.produce({ topic: name, payload: "x" }) }).tap { sleep 0.001 } while purging
        handles
      end
    end
    purged = Array.new(50) { sleep(0.002) && client.purge }
    purging = false
    handles = producing.flat_map(&:value)
    client.purge
    eventually(10) { handles.none?(&:pending?) }
    assert_operator purged.sum, :>, 0
    assert_empty handles.filter_map { |handle| handle.error&.code } - %i[purge_queue purge_inflight]
  end

  def test_purge_works_before_the_first_message_and_after_close
    client = client()
    assert_equal 0, client.purge
    assert_equal :configured, client.state
    client.close(0)
    assert_raises(Penstock::ProducerClosedError) { client.purge }
  end

  def test_a_transaction_with_purged_messages_can_only_be_aborted
    client = transactional("linger.ms": 10_000)
    client.begin_transaction
    handle = produce(client)
    client.purge
    eventually { !handle.pending? }
    assert_predicate assert_raises(Penstock::TransactionError) { client.commit_transaction(10_000) }, :abortable?
    client.abort_transaction(10_000)
    client.begin_transaction
    client.commit_transaction(nil)
  end

  # ---- configuration ----

  # behaviour: idempotent?
  def test_a_client_reports_whether_it_is_idempotent_and_transactional
    facts = ->(**kafka) { client(**kafka).then { |made| [made.idempotent?, made.transactional?, made.state] } }
    assert_equal [true, false, :configured], facts.call
    assert_equal [false, false, :configured], facts.call("enable.idempotence": false)
    assert_equal [true, false, :configured], facts.call("enable.idempotence": true)
    assert_equal [true, false, :configured], facts.call("enable.idempotence": "true")
    assert_equal [true, true, :configured], facts.call("transactional.id": "t")
  end

  CONFLICTS = {
    "transactional.id" => [{ "transactional.id": "" }, { "transactional.id": "t", "enable.idempotence": false }],
    "acks" => [{ acks: 1 }, { acks: "0" }, { "request.required.acks": 1 }],
    "max.in.flight" => [{ "max.in.flight": 6 }, { "max.in.flight.requests.per.connection": "1000000" }],
    "retries" => [{ retries: 0 }, { "message.send.max.retries": 0 }],
    "queuing.strategy" => [{ "queuing.strategy": "lifo" }],
    "queue.buffering.backpressure.threshold" => [{ "queue.buffering.backpressure.threshold": 2 }],
    "message.timeout.ms" => [{ "transactional.id": "t", "message.timeout.ms": 165_001 },
                             { "transactional.id": "t", "delivery.timeout.ms": 165_001 }],
    "socket.timeout.ms" => [{ "transactional.id": "t", "transaction.timeout.ms": 150_000, "socket.timeout.ms": 150_101 }],
    "enable.gapless.guarantee" => [{ "enable.idempotence": false, "enable.gapless.guarantee": true }]
  }.freeze

  slow def test_settings_that_exclude_idempotence_are_rejected_when_the_client_is_made
    CONFLICTS.each do |name, cases|
      cases.each do |kafka|
        error = assert_raises(Penstock::ConfigurationInvalidError, kafka.inspect) do
          client("enable.idempotence": true, **kafka)
        end
        assert_includes error.message, name
      end
    end
  end

  def test_settings_that_allow_idempotence_are_accepted_by_librdkafka_too
    [{ acks: "all" }, { acks: -1, "max.in.flight": 5, retries: 1, "queuing.strategy": "fifo" },
     { "enable.gapless.guarantee": true, "queue.buffering.backpressure.threshold": 1 },
     { "transactional.id": "t", "message.timeout.ms": 165_000 }, { "transactional.id": "t", "socket.timeout.ms": 165_100 },
     { acks: 1, "enable.idempotence": false }].each do |kafka|
      assert_equal :open, client("enable.idempotence": true, **kafka).connect.state
    end
  end

  # If these calls end after 1 ms, librdkafka 2.0.2 gives the result of one call to the next, or ends the process.
  RESUMED = <<~'RUBY'
    require "penstock/testing"
    require ARGV[0]
    cluster = Penstock::EmbeddedCluster.new
    cluster.create_topic("t", partitions: 1)
    clients = Array.new(6) do |i|
      producer = Penstock::Producer.new("bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "resumed-#{i}")
      Internal.of(producer).build_client(producer.config.kafka).tap { |client| client.init_transactions(30_000) }
    end
    cluster.set_round_trip_time(seconds: 0.003)
    clients.map do |client|
      Thread.new do
        300.times do
          client.begin_transaction
          client.produce({ topic: "t", payload: "x" }).wait(timeout: 10)
          begin
            client.commit_transaction(1)
          rescue Penstock::TransactionError => e
            e.retriable? ? retry : raise
          end
        end
      end
    end.each(&:join)
    print "done"
  RUBY

  thorough slow def test_transactions_whose_commits_are_resumed_as_they_end_stay_apart
    assert_equal "done", ruby!(RESUMED, File.expand_path("../support/internal.rb", __dir__), seconds: 100)
  end

  private

  def client(servers: cluster.bootstrap_servers, **kafka)
    log = Logger.new(@log)
    native_client(producer(servers:, log_level: 3, **kafka) { |config| config.logger = log })
  end

  def transactional(on: cluster, **kafka)
    client(servers: on.bootstrap_servers, "transactional.id": "t-#{rand(2**40)}", **kafka).tap { _1.init_transactions(20_000) }
  end

  # A client with a message delivered in an open transaction, and its cluster, which then answers late.
  def slow(milliseconds)
    cluster = own_cluster
    client = transactional(on: cluster)
    client.begin_transaction
    client.produce({ topic: topic(on: cluster), payload: "x" }).wait
    cluster.set_round_trip_time(seconds: milliseconds / 1000.0)
    [cluster, client]
  end

  def produce(client, topic: "transaction-native") = client.produce({ topic:, payload: "x" })

  # A thread that has made the call and waits for its end.
  def in_thread(&block)
    Thread.new(&block).tap do |thread|
      eventually { thread.stop? && thread.backtrace&.first.to_s.match?(/transaction|close/) }
      sleep 0.1 # the call runs in a separate native thread, which starts a moment later
    end
  end

  def flags(error) = [error.code, error.fatal?, error.retriable?, error.abortable?]

  def assert_state_error(&call)
    error = assert_raises(Penstock::TransactionError, &call)
    assert_equal [:state, false, false, false], flags(error)
  end
end
