# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/transaction_test_case"
require_relative "../support/plain_scheduler"

# Producer#transaction. The embedded cluster accepts the calls but hides nothing from readers.
# test/integration/producer_transaction_test.rb checks what readers see.
class ProducerTransactionTest < TransactionTestCase
  # ---- blocks ----

  # behaviour: transaction
  def test_a_transaction_returns_its_blocks_value_and_delivers_its_messages
    producer = transactional
    name = topic
    seen = transaction_events(producer)
    handle = nil
    value = producer.transaction do
      handle = producer.produce_async(topic: name, payload: "1", partition: 0)
      :value
    end
    assert_equal [:value, true], [value, handle.delivered?]
    assert_equal %w[started committed finished], steps(seen)
    assert_nil(producer.transaction { nil })
  end

  def test_events_name_the_producer_and_timed_ones_have_their_time
    producer = transactional
    seen = transaction_events(producer)
    producer.transaction { nil }
    happened = taken(seen)
    assert_equal [producer.id] * 3, happened.map { |event| event[:producer_id] }
    assert_kind_of Float, happened.last[:time]
  end

  # behaviour: A producer runs one transaction at a time
  def test_nested_transactions_join_the_outer_one
    producer = transactional
    seen = transaction_events(producer)
    value = producer.transaction do
      producer.transaction { producer.transaction { :inner } }.to_s + producer.transaction { "-twice" }
    end
    assert_equal "inner-twice", value
    assert_equal %w[started committed finished], steps(seen)
  end

  # behaviour: transaction.started, transaction.committed
  # behaviour: AbortTransaction
  # behaviour: Any exception aborts
  def test_abort_transaction_aborts_and_raises_nothing_outside_the_block
    producer = transactional
    seen = transaction_events(producer)
    errors = events(producer, "error.occurred")
    assert_nil(producer.transaction { raise Penstock::AbortTransaction })
    assert_equal %w[started aborted finished], steps(seen)
    assert_empty taken(errors)
    assert_usable producer, topic
  end

  # behaviour: A producer runs one transaction at a time
  def test_abort_transaction_in_a_nested_block_aborts_all_levels
    producer = transactional
    seen = transaction_events(producer)
    reached = false
    value = producer.transaction do
      producer.transaction { producer.transaction { raise Penstock::AbortTransaction } }
      reached = true
    end
    assert_equal [nil, false], [value, reached]
    assert_equal %w[started aborted finished], steps(seen)
    assert_usable producer, topic
  end

  # defect 14
  # behaviour: transaction
  # behaviour: transaction.started, transaction.committed
  # behaviour: Any exception aborts
  def test_any_exception_aborts_and_is_raised_unchanged
    producer = transactional
    name = topic
    seen = transaction_events(producer)
    [Mishap, Interrupt, SystemExit, NotImplementedError, NoMemoryError, SignalException].each do |kind|
      [false, true].each do |nested|
        error = kind == SignalException ? kind.new("TERM") : kind.new
        caught = assert_raises(kind) do
          producer.transaction { nested ? producer.transaction { raise error } : (raise error) }
        end
        assert_same error, caught
        assert_equal %w[started aborted], steps(seen)
      end
    end
    assert_usable producer, name
  end

  def test_an_error_that_the_block_rescues_does_not_abort
    producer = transactional
    seen = transaction_events(producer)
    producer.transaction do
      producer.transaction { raise Mishap }
    rescue Mishap
      producer.produce_sync(topic:, payload: "after all")
    end
    assert_equal %w[started committed finished], steps(seen)
  end

  # behaviour: EarlyTransactionExitNotAllowedError
  # behaviour: Leaving the block by break, return or throw aborts and raises
  def test_leaving_the_block_by_return_break_or_throw_raises_and_aborts
    producer = transactional
    name = topic
    seen = transaction_events(producer)
    ways = [-> { leave_by_return(producer) }, -> { producer.transaction { break } },
            -> { catch(:out) { producer.transaction { throw :out } } },
            -> { leave_nested_by_return(producer) }, -> { producer.transaction { producer.transaction { break } } },
            -> { catch(:out) { producer.transaction { producer.transaction { throw :out } } } }]
    ways.each do |way|
      error = assert_raises(Penstock::EarlyTransactionExitNotAllowedError, &way)
      assert_match(/return, break or throw/i, error.message)
      assert_equal %w[started aborted], steps(seen)
      assert_usable producer, name
      steps(seen)
    end
    assert_equal 1, producer.transaction { next 1 }
  end

  def leave_by_return(producer) = producer.transaction { return 1 }

  def leave_nested_by_return(producer) = producer.transaction { producer.transaction { return 1 } }

  # behaviour: A transaction may be empty, and may have several topics and headers
  slow def test_an_empty_transaction_commits
    producer = transactional
    seen = transaction_events(producer)
    3.times { producer.transaction { nil } }
    assert_equal %w[started committed finished] * 3, steps(seen)
  end

  # behaviour: A transaction may be empty, and may have several topics and headers
  slow def test_a_transaction_may_have_many_topics_and_headers
    producer = transactional
    names = Array.new(5) { |i| "#{topic(partitions: 1)}#{i}" }
    names.each { |name| cluster.create_topic(name, partitions: 1) }
    producer.transaction do
      names.each { |topic| producer.produce_async(topic:, payload: topic, key: "k", headers: { "a" => %w[1 2], "b" => "3" }) }
    end
    names.each do |name|
      assert_equal [[name, "k", [%w[a 1], %w[a 2], %w[b 3]]]], stored(name).map { |r| [r.payload, r.key, r.headers] }
    end
  end

  # behaviour: transaction
  # behaviour: ProducerNotTransactionalError
  def test_transactions_raise_without_a_transactional_id_or_a_block
    producer = producer()
    assert_raises(Penstock::ProducerNotTransactionalError) { producer.transaction { flunk } }
    assert_equal [false, false], [producer.transactional?, producer.transaction?]
    assert_raises(LocalJumpError) { transactional.transaction }
    assert_raises(Penstock::ProducerNotConfiguredError) { Penstock::Producer.new.transaction { flunk } }
    closed = transactional.tap(&:close)
    assert_raises(Penstock::ProducerClosedError) { closed.transaction { flunk } }
  end

  # behaviour: transaction?, transactional?
  slow def test_transaction_predicate_is_true_only_in_the_fiber_of_the_transaction
    producer = transactional
    assert_equal [true, false], [producer.transactional?, producer.transaction?]
    producer.transaction do
      assert_predicate producer, :transaction?
      producer.transaction { assert_predicate producer, :transaction? }
      refute in_thread { producer.transaction? }
      refute Fiber.new { producer.transaction? }.resume
    end
    refute_predicate producer, :transaction?
  end

  # ---- messages ----

  # behaviour: Outside of a block, each message and each batch is a transaction of its own
  def test_each_message_and_batch_outside_a_block_has_its_own_transaction
    producer = transactional
    name = topic
    message = { topic: name, payload: "x", key: "k", partition: 0 }
    seen = transaction_events(producer)
    [-> { producer.produce_sync(message) }, -> { producer.produce_async(message) },
     -> { producer.produce_many_sync([message] * 3) }, -> { producer.produce_many_async([message] * 3) },
     -> { producer.tombstone_sync(message) }, -> { producer.tombstone_many_async([message] * 2) },
     lambda {
       producer.buffer_many([message] * 2)
       producer.flush_sync
     }].each do |way|
      way.call
      assert_equal %w[started committed finished], steps(seen)
    end
    assert_equal 13, stored(name, partitions: 1).size
  end

  slow def test_an_async_message_outside_a_block_has_its_result_when_the_call_returns
    producer = transactional("linger.ms": 10_000)
    assert_predicate producer.produce_async(topic:, payload: "x"), :delivered?
    assert producer.produce_many_async([{ topic:, payload: "x" }] * 5).all?(&:delivered?)
  end

  def test_messages_inside_join_the_transaction
    producer = transactional
    name = topic
    seen = transaction_events(producer)
    producer.transaction do
      producer.produce_sync(topic: name, payload: "1")
      producer.produce_many_async([{ topic: name, payload: "2" }] * 2)
      producer.buffer(topic: name, payload: "3")
      producer.flush_async
      producer.with(max_wait_timeout: 10_000).produce_sync(topic: name, payload: "4")
    end
    assert_equal %w[started committed finished], steps(seen)
  end

  # behaviour: In an aborted transaction every message has a delivery result
  def test_messages_of_an_aborted_transaction_have_results_and_sync_ones_were_delivered
    producer = transactional("linger.ms": 10)
    name = topic
    report = handles = nil
    producer.transaction do
      report = producer.produce_sync(topic: name, payload: "sync", partition: 0, label: "a")
      handles = producer.produce_many_async(Array.new(50) { |i| { topic: name, payload: "async", partition: i % 4, label: i } })
      raise Penstock::AbortTransaction
    end
    assert_equal [true, 0, "a"], [report.delivered?, report.offset, report.label]
    assert handles.none?(&:pending?)
    assert_equal (0...50).to_a, handles.map(&:label)
    assert handles.all? { |handle| handle.delivered? || handle.error.code == :purge_queue }
  end

  # behaviour: message.purged
  # behaviour: In an aborted transaction every message has a delivery result
  def test_messages_purged_by_an_abort_publish_message_purged_and_no_error
    producer = transactional("linger.ms": 10_000) { |config| config.wait_timeout_on_transaction_abort = 0 }
    seen = events(producer, "message.purged", "error.occurred")
    name = topic
    handles = []
    producer.transaction do
      handles << producer.produce_async(topic: name, payload: "x", partition: 0, label: 0)
      handles.concat(producer.produce_many_async(Array.new(2) { |i| { topic: name, payload: "x", partition: 1, label: i + 1 } }))
      raise Penstock::AbortTransaction
    end
    purged = taken(seen)
    assert_equal ["message.purged"] * 3, purged.map(&:id)
    assert_equal handles.map(&:label), (purged.map { |event| event[:label] })
    assert_equal handles.map(&:label), (purged.map { |event| event[:delivery_report].label })
    expected = { producer_id: producer.id, type: "librdkafka.dispatch_error", topic: name, partition: 1, offset: nil,
                 caller: producer }
    assert_equal expected, purged.last.payload.slice(*expected.keys)
    assert_equal :purge_queue, purged.last[:error].code
  end

  # behaviour: In an aborted transaction every message has a delivery result
  slow def test_delivered_messages_and_those_of_other_transactions_do_not_publish_message_purged
    producer = transactional("linger.ms": 10_000) { |config| config.wait_timeout_on_transaction_abort = 0 }
    seen = events(producer, "message.purged")
    name = topic
    producer.transaction { producer.produce_async(topic: name, payload: "x") }
    producer.produce_sync(topic: name, payload: "x")
    producer.transaction do
      producer.produce_sync(topic: name, payload: "x")
      raise Penstock::AbortTransaction
    end
    assert_empty taken(seen)
    assert_raises(Mishap) { producer.transaction { producer.produce_async(topic: name, payload: "x") && raise(Mishap) } }
    assert_equal 1, taken(seen).size
  end

  def test_an_invalid_message_aborts_only_if_its_error_is_not_rescued
    producer = transactional
    name = topic
    seen = transaction_events(producer)
    assert_raises(Penstock::MessageInvalidError) { producer.transaction { producer.produce_async(topic: name) } }
    assert_raises(Penstock::MessageInvalidError) { producer.produce_sync(topic: name) }
    assert_equal %w[started aborted] * 2, steps(seen)
    producer.transaction do
      producer.produce_async(topic: name)
    rescue Penstock::MessageInvalidError
      nil
    end
    assert_equal %w[started committed finished], steps(seen)
  end

  # ---- one at a time ----

  # behaviour: A producer runs one transaction at a time
  def test_one_transaction_at_a_time_across_threads
    producer = transactional
    name = topic
    inside = most = 0
    threads = Array.new(6) do |i|
      Thread.new do
        5.times do
          producer.transaction do
            most = [most, inside += 1].max
            producer.produce_async(topic: name, payload: i.to_s)
            Thread.pass
            inside -= 1
          end
          producer.produce_async(topic: name, payload: "alone")
        end
      end
    end
    assert threads.all? { |thread| Slowness.join(thread, 40) }
    assert_equal 1, most
    assert_equal 60, stored(name, partitions: 4).size
  end

  def test_messages_of_other_threads_wait_for_the_transaction_and_are_not_part_of_it
    producer = transactional
    name = topic
    seen = transaction_events(producer)
    other = nil
    producer.transaction do
      other = Thread.new { producer.produce_sync(topic: name, payload: "other", partition: 0) }
      eventually { other.stop? }
      producer.produce_sync(topic: name, payload: "mine", partition: 0)
      raise Penstock::AbortTransaction
    end
    Slowness.join(other, 10)
    assert_equal %w[started aborted finished started committed finished], steps(seen)
    assert_equal %w[mine other], stored(name, "isolation.level": "read_uncommitted").map(&:payload)
    assert_equal %w[other], stored(name).map(&:payload) if SharedCluster.real?
  end

  def test_a_fiber_that_would_deadlock_with_another_of_its_thread_raises
    producer = transactional
    name = topic
    fiber = Fiber.new { producer.transaction { Fiber.yield } }
    fiber.resume
    error = assert_raises(Penstock::TransactionDeadlockError) { producer.transaction { flunk } }
    assert_match(/[Aa]nother fiber of this thread.*Resume that fiber.*close the producer, which aborts/, error.message)
    assert_raises(Penstock::TransactionDeadlockError) { producer.produce_async(topic: name, payload: "x") }
    refute producer.disconnect
    fiber.resume
    assert_usable producer, name
  end

  def test_a_producer_whose_transaction_hangs_in_another_fiber_of_the_thread_can_be_closed
    producer = transactional
    fiber = Fiber.new { producer.transaction { Fiber.yield } }
    fiber.resume
    assert_took(10, seconds_of { producer.close(timeout: 20) })
  end

  def test_a_fiber_whose_thread_ended_inside_a_transaction_does_not_block_others
    producer = transactional
    fiber = nil
    Thread.new do
      fiber = Fiber.new { producer.transaction { Fiber.yield } }
      fiber.resume
    end.join
    error = in_thread do
      producer.transaction { flunk }
    rescue Penstock::TransactionDeadlockError => e
      e
    end
    assert_match(/thread has ended.*Close the producer, which aborts/i, error.message)
    assert_took(10, seconds_of { producer.close(timeout: 20) })
  end

  # behaviour: A producer runs one transaction at a time
  slow def test_fibers_of_a_scheduler_take_turns
    producer = transactional
    name = topic
    log = []
    in_thread do
      Fiber.set_scheduler(PlainScheduler.new)
      3.times do |i|
        Fiber.schedule do
          producer.transaction do
            log << [:in, i]
            sleep(0.01)
            producer.produce_async(topic: name, payload: i.to_s)
            log << [:out, i]
          end
        end
      end
    end
    assert_equal 6, log.size
    log.each_slice(2) { |(entered, i), (left, j)| assert_equal [:in, :out, i], [entered, left, j] }
  end

  slow def test_flushes_inside_and_outside_a_transaction_do_not_deadlock
    producer = transactional
    name = topic
    in_thread do
      other = nil
      producer.transaction do
        producer.buffer(topic: name, payload: "a")
        other = Thread.new { producer.flush_sync }
        eventually { other.stop? }
        producer.buffer(topic: name, payload: "b")
        producer.flush_sync
      end
      other.join
    end
    assert_equal %w[a b], stored(name, partitions: 4).map(&:payload).sort
  end

  # ---- interrupts ----

  # behaviour: Any exception aborts
  slow def test_a_killed_thread_aborts_and_ends
    producer = transactional
    name = topic
    seen = transaction_events(producer)
    [false, true].each do |nested|
      survived = false
      thread = Thread.new do
        producer.transaction { nested ? producer.transaction { sleep } : sleep }
      rescue Exception # rubocop:disable Lint/RescueException -- no exception may arrive here
        survived = true
      ensure
        survived ||= !Thread.current.status.eql?("aborting")
      end
      eventually { thread.stop? && producer.monitor && seen.size == 1 }
      Slowness.join(thread.kill, 10)
      refute survived
      assert_equal %w[started aborted], steps(seen)
      assert_usable producer, name
      steps(seen)
    end
  end

  # behaviour: Leaving the block by break, return or throw aborts and raises
  def test_timeout_aborts
    producer = transactional
    producer.client # connected first, because connecting may take longer than the timeout
    name = topic
    seen = transaction_events(producer)
    expired = Class.new(StandardError)
    assert_raises(expired) { Timeout.timeout(0.3, expired) { producer.transaction { sleep } } }
    assert_equal %w[started aborted], steps(seen)
    # Without a class, Timeout throws on some Rubies. A throw raises TransactionError, like any throw.
    assert_raises(Timeout::Error, Penstock::EarlyTransactionExitNotAllowedError) do
      Timeout.timeout(0.3) { producer.transaction { sleep } }
    end
    assert_equal %w[started aborted], steps(seen)
    assert_usable producer, name
  end

  def test_an_interrupted_waiter_passes_its_turn_to_others
    producer = transactional
    name = topic
    producer.transaction do
      @waiting = Array.new(4) do
        Thread.new do
          Thread.current.report_on_exception = false
          producer.transaction { producer.produce_async(topic: name, payload: "x") }
        end
      end
      eventually { @waiting.all?(&:stop?) }
      @waiting[0].raise(Mishap)
      @waiting[1].kill
    end
    assert_raises(Mishap) { Slowness.join(@waiting[0], 10) }
    assert @waiting.drop(1).all? { |thread| Slowness.join(thread, 10) }
    assert_equal 2, stored(name, partitions: 4).size
  end

  slow def test_interrupts_at_any_moment_leave_the_producer_usable
    producer = transactional
    name = topic
    producer.transaction { nil }
    reloads = events(producer, "producer.reload")
    80.times do |i|
      thread = quiet_thread do
        3.times { producer.transaction { producer.produce_async(topic: name, payload: "x") } }
      end
      sleep(rand * 0.02)
      i.odd? ? thread.kill : thread.raise(Mishap)
      thread.raise(Mishap) if (i % 4).zero? # again, perhaps during the abort
      begin
        assert Slowness.join(thread, 20), "it hangs: #{thread.backtrace}"
      rescue Mishap
        nil
      end
    end
    assert_equal(1, in_thread { producer.transaction { 1 } })
    assert_empty taken(reloads).map { |event| event[:error] }
  end

  # ---- offsets ----

  # behaviour: transaction_mark_as_consumed
  # behaviour: transaction.marked_as_consumed
  slow def test_marking_an_offset_is_part_of_the_transaction
    producer = transactional
    name = topic(partitions: 1)
    producer.produce_sync(topic: name, payload: "in")
    consumer = member(name)
    message = eventually(20) { consumer.poll(timeout: 0.1) }
    seen = events(producer, "transaction.marked_as_consumed", "transaction.committed")
    value = producer.transaction do
      producer.produce_async(topic: name, payload: "out")
      producer.transaction_mark_as_consumed(consumer, message, "here")
    end
    assert_nil value
    marked, committed = taken(seen)
    assert_equal [message, "here", producer.id], [marked[:message], marked[:offset_metadata], marked[:producer_id]]
    assert_kind_of Float, marked[:time]
    assert_equal "transaction.committed", committed.id
  ensure
    consumer&.close(timeout: 5)
  end

  # behaviour: transaction_mark_as_consumed
  # behaviour: TransactionRequiredError
  def test_marking_outside_a_transaction_raises
    producer = transactional
    message = Struct.new(:topic, :partition, :offset).new("t", 0, 0)
    assert_raises(Penstock::TransactionRequiredError) { producer.transaction_mark_as_consumed(nil, message) }
    assert_raises(Penstock::TransactionRequiredError) { producer.transaction_mark_as_consumed(nil, message) }
    producer.transaction do
      assert_raises(Penstock::TransactionRequiredError) do
        in_thread { producer.transaction_mark_as_consumed(nil, message) }
      end
    end
  end

  # behaviour: transaction_mark_as_consumed
  # behaviour: TransactionalOffsetInvalidError
  def test_marking_with_invalid_arguments_raises_and_the_transaction_continues
    producer = transactional
    consumer = Penstock::Consumer.new { |c| c.kafka = { "bootstrap.servers": cluster.bootstrap_servers, "group.id": "g" } }
    place = Struct.new(:topic, :partition, :offset)
    good = place.new("t", 0, 0)
    seen = transaction_events(producer)
    producer.transaction do
      [[nil, good], ["group", good], [consumer, nil], [consumer, "t"], [consumer, place.new(nil, 0, 0)],
       [consumer, place.new("t", -1, 0)], [consumer, place.new("t", 0, -1)], [consumer, place.new("t", 0, 1.5)],
       [consumer, good, :metadata], [consumer, good, 1]].each do |arguments|
        assert_raises(Penstock::TransactionalOffsetInvalidError, arguments.inspect) do
          producer.transaction_mark_as_consumed(*arguments)
        end
      end
    end
    assert_equal %w[started committed finished], steps(seen)
  ensure
    consumer&.close
  end

  def test_marking_for_a_closed_consumer_or_one_without_a_group_raises_a_clear_error
    producer = transactional
    name = topic(partitions: 1)
    message = Struct.new(:topic, :partition, :offset).new(name, 0, 0)
    other = Penstock::Consumer.new { |c| c.kafka = { "bootstrap.servers": cluster.bootstrap_servers } }
    other.assign(name => [0])
    closed = member(name).tap(&:close)
    producer.transaction do
      assert_match(/group\.id/, assert_raises(Penstock::ConfigurationInvalidError) do
        producer.transaction_mark_as_consumed(other, message)
      end.message)
      assert_raises(Penstock::ConsumerClosedError) { producer.transaction_mark_as_consumed(closed, message) }
    end
  ensure
    [other, closed].compact.each(&:close)
  end

  def member(name)
    Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": cluster.bootstrap_servers, "group.id": "group-#{name}", "fetch.wait.max.ms": 10,
                       "auto.offset.reset": "earliest", "enable.auto.commit": false }
    end.subscribe(name)
  end

  # ---- commands that have to be retried ----

  # behaviour: The producer repeats and aborts as the cluster requests
  slow def test_retriable_answers_of_the_cluster_are_retried
    cluster = own_cluster
    name = topic(on: cluster)
    producer = transactional(on: cluster)
    { find_coordinator: %i[coordinator_not_available], init_producer_id: %i[coordinator_load_in_progress not_coordinator],
      add_partitions_to_txn: %i[concurrent_transactions not_coordinator], end_txn: %i[not_coordinator transport] }
      .each { |api, errors| cluster.inject_errors(api, errors) }
    producer.transaction { producer.produce_async(topic: name, payload: "x", partition: 0) }
    assert_equal %w[x], stored(name, on: cluster).map(&:payload)
  end

  # behaviour: wait_backoff_on_transaction_command
  # behaviour: error.occurred of transactions
  # behaviour: The producer repeats and aborts as the cluster requests
  def test_a_command_is_retried_with_growing_pauses_and_each_failure_is_an_event
    consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": "127.0.0.1:1", "group.id": "g" } }
    message = Struct.new(:topic, :partition, :offset).new("t", 0, 0)
    { begin_transaction: "begin", commit_transaction: "commit", abort_transaction: "abort", init_transactions: "init",
      send_offsets_to_transaction: "store_offset" }.each do |call, name|
      producer, pauses = failing(call, 3)
      errors = events(producer, "error.occurred")
      producer.transaction do
        producer.transaction_mark_as_consumed(consumer, message)
        raise Penstock::AbortTransaction if name == "abort"
      end
      happened = taken(errors)
      assert_equal [["transaction.#{name}", 1, true], ["transaction.#{name}", 2, true], ["transaction.#{name}", 3, true]],
                   happened.map { |event| event.payload.values_at(:type, :attempt, :retry) }
      assert happened.all? { |event| event[:caller].equal?(producer) && event[:error].retriable? }
      assert_equal [0.02, 0.04, 0.06], pauses, name
    end
  ensure
    consumer&.close
  end

  # behaviour: wait_backoff_on_transaction_command
  def test_a_command_fails_after_the_last_attempt_and_the_producer_gets_a_new_client
    producer, pauses = failing(:commit_transaction, 4) { |config| config.max_attempts_on_transaction_command = 4 }
    errors = events(producer, "error.occurred", "producer.reload")
    error = assert_raises(Penstock::TransactionOutcomeUnknownError) { producer.transaction { nil } }
    assert_equal [:concurrent_transactions, false, "not now"], [error.code, error.retriable?, error.cause.message]
    assert_match(/whether the transaction was committed is unknown \(not now\).*read_committed/im, error.message)
    assert_equal [[1, true], [2, true], [3, true], [4, false], [1, nil]],
                 taken(errors).map { |event| event.payload.values_at(:attempt, :retry) }
    assert_equal 3, pauses.size
    assert_equal 1, producer.transaction { 1 }
  end

  def test_the_next_transaction_settles_an_undecided_commit_if_no_new_client_is_allowed
    producer, = failing(:commit_transaction, 5) { |config| config.reload_on_transaction_fatal_error = false }
    assert_raises(Penstock::TransactionError) { producer.transaction { nil } }
    seen = transaction_events(producer)
    assert_equal 1, producer.transaction { 1 }
    assert_equal %w[aborted started committed finished], steps(seen)
  end

  # behaviour: The producer repeats and aborts as the cluster requests
  def test_an_abortable_error_aborts_and_keeps_the_client
    cluster = own_cluster
    name = topic(on: cluster)
    producer = transactional(on: cluster)
    producer.transaction { nil }
    seen = transaction_events(producer)
    cluster.inject_errors(:add_partitions_to_txn, :topic_authorization_failed)
    error = assert_raises(Penstock::TransactionError) do
      producer.transaction { producer.produce_async(topic: name, payload: "x", partition: 0) }
    end
    assert_equal [:topic_authorization_failed, true], [error.code, error.abortable?]
    assert_equal %w[started aborted], steps(seen)
    assert_usable producer, name
  end

  # A transaction in which the broker rejects a message. Made anew each time: see "may then fail the next transaction too" in
  # docs/transactions.md.
  # @return [Penstock::Error] of the transaction, and the topic
  def rejected_transaction
    cluster = own_cluster
    name = topic(on: cluster)
    producer = transactional(on: cluster)
    producer.transaction { nil }
    cluster.inject_errors(:produce, :invalid_record)
    error = assert_raises(Penstock::Error) do
      producer.transaction { yield producer, producer.produce_async(topic: name, payload: "x", partition: 0), name }
    end
    [error, name]
  end

  # The error of the commit itself says no more than that a message has failed.
  def test_a_commit_that_fails_because_of_a_message_names_it_and_its_reason
    [false, true].each do |early| # before the commit, or during it
      error, name = rejected_transaction { |_, handle| eventually { !handle.pending? } if early }
      assert_equal [Penstock::TransactionError, name, 0, true], [error.class, error.topic, error.partition, error.abortable?]
      assert_equal [Penstock::DeliveryError, :invalid_record], [error.cause.class, error.cause.code]
      assert_match(/message of the transaction failed: .*failed to validate record.*topic is compacted/, error.message)
      refute_match(/Abort it/, error.message)
    end
  end

  def test_a_message_that_is_not_accepted_because_an_earlier_one_failed_names_the_reason
    %i[produce_sync produce_many_sync].each do |call|
      error, name = rejected_transaction do |producer, handle, topic|
        eventually { !handle.pending? }
        message = { topic:, payload: "y" }
        producer.public_send(call, call == :produce_sync ? message : [message] * 2)
      end
      assert_kind_of Penstock::ProduceError, error
      assert_match(/a message of the transaction to #{name} has failed \(Broker: .*failed to validate record\)/, error.message)
    end
  end

  slow def test_an_error_of_another_producers_transaction_does_not_affect_this_one
    cluster = own_cluster
    name = topic(on: cluster)
    outer = transactional(on: cluster)
    inner = transactional(on: cluster)
    outer.transaction { nil }
    reloads = events(outer, "producer.reload")
    assert_raises(Penstock::TransactionError) do
      outer.transaction do
        inner.client.test_fatal_error(:invalid_producer_epoch, "for a test")
        inner.transaction { flunk }
      end
    end
    assert_empty taken(reloads)
    assert_usable outer, name
  end

  # A producer whose client fails this call for the given number of times in a row, with a retriable error.
  def failing(call, times, &block)
    stand_in = Class.new(Penstock::Clients::Buffered) do
      define_method(call) do |*arguments|
        raise Penstock::TransactionError.new("not now", code: :concurrent_transactions, retriable: true) if (times -= 1) >= 0

        super(*arguments)
      end
    end
    pauses = []
    producer = transactional do |config|
      config.client_class = stand_in
      config.wait_backoff_on_transaction_command = 20
      block&.call(config)
    end
    Internal.of(producer).transactions.define_singleton_method(:sleep) { |seconds| pauses << seconds.round(3) }
    [producer, pauses]
  end

  # ---- closing, disconnecting, forking ----

  # behaviour: Transactional messages during close end correctly
  # behaviour: close waits for another thread's transaction
  def test_close_waits_for_the_transaction_of_another_thread
    producer = transactional
    name = topic
    seen = transaction_events(producer)
    go_on = Thread::Queue.new
    running = Thread.new { producer.transaction { go_on.pop && producer.produce_sync(topic: name, payload: "x", partition: 0) } }
    eventually { seen.size == 1 }
    closing = Thread.new { producer.close }
    eventually { closing.stop? }
    go_on << true
    assert Slowness.join(running, 10) && Slowness.join(closing, 10)
    assert_predicate running.value, :delivered?
    assert_equal %w[started committed finished], steps(seen)
    assert_predicate producer, :closed?
  end

  # behaviour: ProducerTransactionalCloseAttemptError
  def test_close_inside_the_producers_own_transaction_raises
    producer = transactional
    producer.transaction do
      assert_raises(Penstock::ProducerTransactionalCloseAttemptError) { producer.close }
      assert_raises(Penstock::ProducerTransactionalCloseAttemptError) { producer.close! }
      refute_predicate producer, :closed?
    end
    assert_usable producer, topic
  end

  def test_a_transaction_that_outlasts_close_raises_and_does_not_hang
    producer = transactional
    seen = transaction_events(producer)
    go_on = Thread::Queue.new
    running = Thread.new do
      Thread.current.report_on_exception = false
      producer.transaction { go_on.pop }
    end
    eventually { seen.size == 1 }
    assert_took(10, seconds_of { producer.close(timeout: 0.2) })
    go_on << true
    assert_raises(Penstock::ProducerClosedError) { Slowness.join(running, 10) }
    refute_includes steps(seen), "committed"
  end

  def test_a_thread_whose_turn_comes_after_close_begins_nothing_and_raises
    producer = transactional
    seen = transaction_events(producer)
    go_on = Thread::Queue.new
    running = quiet_thread { producer.transaction { go_on.pop } }
    eventually { seen.size == 1 }
    waiting = quiet_thread { producer.transaction { flunk } }
    eventually { waiting.stop? }
    producer.close(timeout: 0.2)
    go_on << true
    [running, waiting].each do |thread|
      error = assert_raises(Penstock::ProducerClosedError) { Slowness.join(thread, 10) }
      assert_equal producer.id, error.producer_id
    end
    assert_equal 1, steps(seen).count("started")
  end

  # behaviour: Transactional messages during close end correctly
  def test_the_blocks_own_error_survives_a_close
    producer = transactional
    seen = transaction_events(producer)
    go_on = Thread::Queue.new
    running = Thread.new do
      Thread.current.report_on_exception = false
      producer.transaction { go_on.pop && raise(Mishap) }
    end
    eventually { seen.size == 1 }
    producer.close(timeout: 0)
    go_on << true
    assert_raises(Mishap) { Slowness.join(running, 10) }
  end

  # behaviour: Transactional messages during close end correctly
  def test_close_gets_its_turn_among_threads_that_send_continuously
    name = topic
    5.times do
      producer = transactional
      threads = Array.new(4) do
        Thread.new do
          loop { producer.produce_sync(topic: name, payload: "x") }
        rescue Penstock::ProducerClosedError, Penstock::DeliveryError
          nil
        end
      end
      sleep(rand * 0.05)
      assert_took(10, seconds_of { producer.close(timeout: 30) }, "close had to wait for the other threads")
      assert threads.all? { |thread| Slowness.join(thread, 15) }
    end
  end

  # behaviour: close waits for another thread's transaction
  def test_disconnect_raises_inside_a_transaction_and_works_after_it
    producer = transactional
    name = topic
    producer.transaction do
      producer.produce_sync(topic: name, payload: "x")
      assert_equal [false, false], [producer.disconnectable?, producer.disconnect]
      assert_equal([false, false], in_thread { [producer.disconnectable?, producer.disconnect] })
    end
    assert_equal [true, true], [producer.disconnectable?, producer.disconnect]
    assert_usable producer, name
  end

  def test_a_used_producer_raises_in_a_fork_child_and_an_unused_one_works_there
    used = transactional
    unused = transactional
    name = topic
    used.transaction { nil }
    answers = in_child do
      errors = [-> { used.transaction { 1 } }, -> { used.produce_sync(topic: name, payload: "x") }].map do |way|
        way.call
      rescue Penstock::ForkedError => e
        e.message[/another transactional.id/]
      end
      done = unused.transaction { unused.produce_sync(topic: name, payload: "child", partition: 0).delivered? }
      unused.close(timeout: 5)
      [errors, done]
    end
    assert_equal [["another transactional.id"] * 2, true], answers
    assert_usable used, name
  end

  def test_a_child_made_inside_a_transaction_neither_commits_nor_aborts_it
    producer = transactional
    name = topic
    seen = transaction_events(producer)
    [Penstock::ForkedError, Mishap].each do |expected|
      assert_equal(expected.name, outcome_in_child_made_inside(producer) do |in_child|
        raise Mishap if in_child && expected == Mishap

        producer.produce_sync(topic: name, payload: "x") unless in_child
      end)
      assert_equal %w[started committed finished], steps(seen)
    end
    assert_usable producer, name
  end

  # @return [String] how the block that this process began ended in the child; this process commits it
  def outcome_in_child_made_inside(producer)
    read, write = IO.pipe
    child = nil
    outcome = begin
      producer.transaction do
        child = fork
        yield(child.nil?)
      end
      "committed"
    rescue Exception => e # rubocop:disable Lint/RescueException -- the child must not continue with the tests
      raise if child

      e.class.name
    end
    unless child
      write.write(outcome)
      write.close
      exit!
    end
    write.close
    Process.wait(child)
    read.read
  end

  # ---- stand-in clients, pools ----

  def test_the_buffered_client_shows_messages_when_they_are_committed
    producer = transactional { |config| config.client_class = Penstock::Clients::Buffered }
    producer.transaction do
      producer.produce_sync(topic: "t", payload: "1")
      producer.transaction { producer.produce_many_async([{ topic: "t", payload: "2" }]) }
      assert_empty producer.client.messages
    end
    producer.transaction do
      producer.produce_sync(topic: "t", payload: "aborted")
      producer.transaction { raise Penstock::AbortTransaction }
    end
    assert_raises(Mishap) { producer.transaction { producer.produce_sync(topic: "t", payload: "failed") && raise(Mishap) } }
    producer.produce_async(topic: "t", payload: "3")
    assert_equal %w[1 2 3], (producer.client.messages.map { |message| message[:payload] })
  end

  def test_a_failed_message_of_the_buffered_client_aborts_the_transaction
    producer = transactional { |config| config.client_class = Penstock::Clients::Buffered }
    seen = transaction_events(producer)
    producer.client.fail_next(:msg_timed_out)
    error = assert_raises(Penstock::TransactionError) do
      producer.transaction do
        producer.produce_async(topic: "t", payload: "1")
        producer.produce_async(topic: "t", payload: "2")
      end
    end
    assert_predicate error, :abortable?
    assert_equal %w[started aborted], steps(seen)
    assert_empty producer.client.messages
    assert_usable producer, "t"
  end

  # behaviour: connection pool
  def test_a_pool_gives_each_producer_its_own_id_and_runs_transactions_concurrently
    needs_connection_pool
    name = topic
    ids = Thread::Queue.new
    pool = Penstock::ConnectionPool.new(size: 3) do |config, index|
      ids << "pool-#{name}-#{index}"
      config.kafka = { "bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "pool-#{name}-#{index}" }
    end
    together = Thread::Queue.new
    values = Array.new(3) do |i|
      Thread.new do
        pool.transaction do |producer|
          together << i
          eventually { together.size == 3 }
          producer.produce_sync(topic: name, payload: i.to_s)
          i
        end
      end
    end.map(&:value)
    assert_equal [0, 1, 2], values
    assert_nil(pool.transaction { raise Penstock::AbortTransaction })
    assert_equal (1..3).map { |index| "pool-#{name}-#{index}" }, taken(ids).sort
  ensure
    pool&.shutdown(timeout: 5)
  end
end
