# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/plain_scheduler"
require_relative "../support/transaction_test_case"

# Producer#transaction with a consumer. The embedded cluster hides no aborted messages and stores no offsets of transactions:
# these tests look at which batches were committed. test/integration/exactly_once_test.rb counts what readers see.
class ExactlyOnceTest < TransactionTestCase
  # As numbers: librdkafka 2.0.2 has no names for the last two.
  REMOVED = { illegal_generation: 22, unknown_member_id: 25, rebalance_in_progress: 27, fenced_instance_id: 82,
              fenced_member_epoch: 110, stale_member_epoch: 113 }.freeze

  def setup
    super
    @consumers = []
  end

  def teardown
    GCLevel.stop
    @consumers.each { |consumer| consumer.close(timeout: 5) }
    super
  end

  def consumer(group: "group-#{rand(2**32)}", commits: false, **kafka)
    made = Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10,
                       "fetch.error.backoff.ms": 10, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 100, log_level: 0,
                       "group.id": group, "enable.auto.commit": commits, **kafka }.compact
      yield config if block_given?
    end
    made.tap { @consumers << made }
  end

  def filled(count, partitions: 1)
    @seed ||= producer
    topic(partitions:).tap do |name|
      messages = Array.new(partitions) { |p| Array.new(count) { |i| { topic: name, payload: "#{p}-#{i}", partition: p } } }
      @seed.produce_many_sync(messages.flatten)
    end
  end

  # A member that reads chosen partitions: it does not wait for its group.
  def reading(name, partitions: [0], **kafka, &block) = consumer(**kafka, &block).assign(name => partitions)

  def once(producer, consumer, *batch, max: 100, timeout: 10, **more, &block)
    block ||= ->(_) {}
    producer.transaction(consumer, *batch, max:, timeout:, **more, &block)
  end

  # Calls until this many messages are committed.
  def committed_payloads(producer, consumer, count)
    payloads = []
    eventually(30) do
      batch = once(producer, consumer, timeout: 1)
      payloads.concat(batch.payloads) if batch
      payloads.size >= count
    end
    payloads
  end

  def payloads(count, partition: 0) = Array.new(count) { |i| "#{partition}-#{i}" }

  # Notes the arguments of each call, in place of a spy on the cluster.
  def sent_offsets(producer)
    sent = []
    producer.client.define_singleton_method(:send_offsets_to_transaction) do |offsets, group, timeout|
      sent << [offsets, group]
      super(offsets, group, timeout)
    end
    sent
  end

  # ---- committing ----

  # behaviour: transaction(consumer)
  def test_it_polls_a_batch_yields_it_and_commits_the_offsets_after_it_with_the_messages_of_the_block
    producer = transactional
    name = filled(3, partitions: 2)
    out = topic
    one = reading(name, partitions: [0, 1])
    sent = sent_offsets(producer)
    seen = transaction_events(producer)
    handles = []
    yielded = []
    payloads = []
    while payloads.size < 6
      batch = once(producer, one, offset_metadata: "mine") do |got|
        yielded << got
        handles += got.map { |message| producer.produce_async(topic: out, payload: message.payload) }
      end
      assert_same yielded.last, batch
      payloads.concat(batch.payloads)
    end
    assert_equal payloads(3, partition: 0) + payloads(3, partition: 1), payloads.sort
    assert handles.all?(&:delivered?)
    assert_equal %w[started committed finished] * yielded.size, steps(seen)
    assert_equal({ [name, 0] => 3, [name, 1] => 3 }, sent.flat_map(&:first).to_h { |row| [row.first(2), row[2]] })
    assert_equal ["mine"], sent.flat_map(&:first).map { |row| row[3] }.uniq
  end

  # behaviour: transaction(consumer)
  def test_without_messages_no_transaction_begins_and_it_returns_nil
    producer = transactional
    seen = transaction_events(producer)
    assert_nil(once(producer, reading(topic), timeout: 0.1) { flunk })
    assert_nil(once(producer, one = reading(topic), one.poll_batch(timeout: 0)) { flunk })
    assert_empty steps(seen)
  end

  def test_max_limits_the_batch
    producer = transactional
    one = reading(filled(5))
    assert_equal(payloads(2), once(producer, one, max: 2).payloads)
  end

  slow def test_a_batch_that_the_program_has_polled
    producer = transactional
    one = reading(filled(4))
    polled = nil
    eventually { !(polled = one.poll_batch(max: 4)).empty? }
    batch = once(producer, one, polled) { |got| assert_same polled, got }
    assert_same polled, batch
    assert_equal payloads(4).drop(batch.size), committed_payloads(producer, one, 4 - batch.size)
  end

  slow def test_a_variant_has_it_too
    producer = transactional
    one = reading(filled(2))
    assert_equal(1, producer.with(max_wait_timeout: 5_000).transaction(one, max: 1, timeout: 10) { nil }.size)
  end

  slow def test_what_is_committed_is_marked
    producer = transactional
    one = reading(name = filled(2)) { |config| config.mark = :manual }
    once(producer, one, max: 1)
    assert one.commit
    assert_equal 1, one.committed(name, 0)[0]
  end

  # librdkafka requires the same arguments, also the same state of the group.
  def test_offsets_are_sent_again_with_the_same_arguments
    producer = transactional
    one = reading(filled(2))
    sent = []
    producer.client.define_singleton_method(:send_offsets_to_transaction) do |offsets, group, timeout|
      sent << [offsets, group]
      raise Penstock::TransactionError.new("Not now.", code: :timed_out, retriable: true) if sent.size < 3

      super(offsets, group, timeout)
    end
    changing = 0
    one.define_singleton_method(:group_metadata) { changing.succ.then { |n| (changing = n) && super() } }
    assert once(producer, one)
    assert_equal [3, 1, 1], [sent.size, sent.uniq.size, changing]
  end

  # ---- going back ----

  def leave_by_return(producer, one) = once(producer, one) { return 1 }

  LEAVING = {
    an_exception: ->(test, producer, one) { test.once(producer, one) { raise Mishap } },
    abort_transaction: ->(test, producer, one) { test.assert_nil(test.once(producer, one) { raise Penstock::AbortTransaction }) },
    return: ->(test, producer, one) { test.leave_by_return(producer, one) },
    break: ->(_, producer, one) { producer.transaction(one, timeout: 10) { break } },
    throw: ->(test, producer, one) { catch(:abort) { test.once(producer, one) { throw :abort } } },
    a_timeout: ->(test, producer, one) { Timeout.timeout(2, Mishap) { test.once(producer, one) { sleep } } },
    the_end_of_its_thread: ->(test, producer, one) { test.quiet_thread { test.once(producer, one) { Thread.exit } }.join }
  }.freeze

  LEAVING.each do |how, leave|
    define_method(:"test_a_block_that_is_left_by_#{how}_gets_the_same_messages_again") do
      producer = transactional
      one = reading(name = filled(4, partitions: 2), partitions: [0, 1])
      assert once(producer, one, max: 1)
      eventually { one.position(name, 0) || one.position(name, 1) }
      seen = transaction_events(producer)
      begin
        leave.call(self, producer, one)
      rescue Mishap, Penstock::EarlyTransactionExitNotAllowedError
        nil
      end
      assert_includes steps(seen), "aborted"
      assert_equal (payloads(4) + payloads(4, partition: 1)).size - 1, committed_payloads(producer, one, 7).uniq.size
    end
  end

  slow def test_after_an_abort_a_plain_poll_gets_the_messages_again
    producer = transactional
    one = reading(filled(3))
    aborted = nil
    once(producer, one) { |batch| (aborted = batch.offsets) && raise(Penstock::AbortTransaction) }
    assert_equal aborted.first, eventually { one.poll(timeout: 1) }.offset
  end

  def test_a_begin_that_fails_loses_no_messages
    producer = transactional
    one = reading(filled(3))
    failing = true
    producer.client.define_singleton_method(:begin_transaction) do
      failing ? raise(Penstock::TransactionError.new("Not now.", code: :state)) : super()
    end
    assert_raises(Penstock::TransactionError) { once(producer, one) { flunk } }
    failing = false
    assert_equal payloads(3), committed_payloads(producer, one, 3)
  end

  def test_messages_that_are_not_delivered_abort
    producer = transactional
    one = reading(filled(3))
    assert_raises(Penstock::TransactionError) do
      once(producer, one) { producer.produce_async(topic: topic(partitions: 1), payload: "x", partition: 99) }
    rescue Penstock::ProduceError
      raise Penstock::TransactionError, "not delivered"
    end
    assert_equal payloads(3), committed_payloads(producer, one, 3)
  end

  def test_a_rewind_that_fails_is_done_by_the_next_transaction
    producer = transactional
    one = reading(filled(3))
    errors = events(producer, "error.occurred")
    fails = true
    Internal.of(one).client.define_singleton_method(:rewind) do |*arguments|
      fails ? raise(Penstock::ConsumeError.new("Not now.", code: :state)) : super(*arguments)
    end
    assert_raises(Mishap) { once(producer, one) { raise Mishap } }
    assert_equal "transaction.rewind", taken(errors).last[:type]
    assert_raises(Penstock::ConsumeError) { once(producer, one) { flunk } }
    fails = false
    assert_equal payloads(3), committed_payloads(producer, one, 3)
  end

  # A second interrupt may end the rewind's wait, or come just before it.
  # behaviour: transaction(consumer)
  slow def test_interrupts_at_any_moment_commit_each_message_once
    producer = transactional
    one = reading(filled(400))
    out = topic
    producer.client
    now = nil
    committed = []
    producer.monitor.subscribe("transaction.committed") { committed.concat(now) }
    interrupted = 0
    eventually(60) do
      thread = quiet_thread do
        once(producer, one, max: 5, timeout: 1) do |batch|
          now = batch.offsets
          batch.each { |message| producer.produce_async(topic: out, payload: message.payload) }
        end
      end
      sleep(rand * 0.01)
      rand(3).times do
        rand(2).zero? ? thread.raise(Mishap) : thread.kill
        sleep(rand * 0.002)
      end
      begin
        Slowness.join(thread, 20) or flunk thread.backtrace.join("\n")
      rescue Mishap
        interrupted += 1
      end
      committed.size >= 400
    end
    assert_equal Array.new(400, &:itself), committed
    assert_operator interrupted, :>, 0
  end

  # ---- lost partitions ----

  # behaviour: transaction(consumer)
  def test_partitions_that_are_lost_in_the_block_are_not_committed
    producer = transactional
    name = filled(3)
    one = reading(name)
    sent = sent_offsets(producer)
    seen = transaction_events(producer)
    assert_equal(false, once(producer, one) { one.assign(name => { 0 => 1 }) }) # another member has processed one message
    assert_equal %w[started aborted finished], steps(seen)
    assert_empty sent
    assert_equal %w[0-1 0-2], committed_payloads(producer, one, 2)
  end

  # A thread that polls meanwhile has served the rebalance.
  def test_partitions_that_are_lost_while_the_offsets_are_sent_are_not_committed
    producer = transactional
    name = filled(3)
    one = reading(name)
    losing = true
    producer.client.define_singleton_method(:send_offsets_to_transaction) do |*arguments|
      super(*arguments).tap { one.assign(name => { 0 => 1 }) if losing }
    end
    seen = transaction_events(producer)
    assert_equal false, once(producer, one)
    assert_equal %w[started aborted finished], steps(seen)
    losing = false
    assert_equal %w[0-1 0-2], committed_payloads(producer, one, 2)
  end

  def test_partitions_that_are_kept_are_read_again
    producer = transactional
    name = filled(2, partitions: 2)
    one = reading(name, partitions: [0, 1])
    batch = nil
    eventually { (batch = one.poll_batch(max: 100)).size > 2 || (one.seek(name, 0, 0) && one.seek(name, 1, 0) && false) }
    one.seek(name, 0, 0) # as if it had been revoked and assigned again
    assert_equal(false, once(producer, one, batch) { flunk })
    assert_equal payloads(2) + payloads(2, partition: 1), committed_payloads(producer, one, 4).sort
  end

  REMOVED.each do |name, code|
    define_method(:"test_a_member_that_the_coordinator_rejects_with_#{name}_gets_the_messages_again") do
      producer = transactional
      one = reading(filled(3))
      cluster.inject_errors(:txn_offset_commit, code)
      seen = transaction_events(producer)
      assert_equal false, once(producer, one)
      assert_equal %w[started aborted finished], steps(seen)
      assert_equal payloads(3), committed_payloads(producer, one, 3)
    end
  end

  def test_other_rejected_offsets_raise
    producer = transactional
    one = reading(filled(3))
    cluster.inject_errors(:txn_offset_commit, :group_authorization_failed)
    error = assert_raises(Penstock::TransactionError) { once(producer, one) }
    assert_equal :group_authorization_failed, error.code
    assert_equal payloads(3), committed_payloads(producer, one, 3)
  end

  # The program has not polled the revocation yet.
  slow def test_a_member_that_was_removed_and_has_not_polled_since_commits_nothing
    producer = transactional
    name = filled(3)
    one = consumer.subscribe(name)
    sent = sent_offsets(producer)
    lost = nil
    eventually(30) do
      lost = once(producer, one, timeout: 1) do
        cluster.inject_errors(:heartbeat, *[:unknown_member_id] * 2)
        eventually { one.membership.state == :joining }
      end
      !lost.nil?
    end
    assert_equal false, lost
    assert_empty sent
  end

  # Brokers would accept them, and the group's committed offset would fall: test/integration/producer_transaction_test.rb.
  slow def test_offsets_of_a_consumer_that_has_not_joined_its_group_yet_are_rejected
    producer = transactional
    name = filled(1)
    message = nil
    reader = reading(name)
    eventually { message ||= reader.poll(timeout: 0.1) }
    mark = ->(one) { producer.transaction { producer.transaction_mark_as_consumed(one, message) } }
    cluster.inject_errors(:join_group, *[:coordinator_not_available] * 1_000)
    joining = consumer.subscribe(name)
    error = assert_raises(Penstock::TransactionError) { mark.call(joining) }
    assert_equal [:unknown_member_id, true], [error.code, error.abortable?]
    assert_match(/no membership of its group/, error.message)
    joining.unsubscribe
    assert_raises(Penstock::TransactionError) { mark.call(joining) }
    joining.assign(name => [0])
    assert_nil mark.call(joining) # it chooses its partitions itself
  ensure
    cluster.clear_errors(:join_group)
  end

  # librdkafka may begin a partition as auto.offset.reset says, although an offset is committed.
  thorough slow def test_a_partition_that_begins_elsewhere_than_at_the_committed_offset_is_read_from_there
    producer = transactional
    name = filled(4)
    one = consumer(group: name).subscribe(name)
    batch = nil
    eventually(30) { !(batch = one.poll_batch(timeout: 1)).empty? }
    assert_equal 0, batch.first.offset
    one.commit({ name => { 0 => 2 } })
    assert_equal(false, once(producer, one, batch) { flunk })
    assert_equal payloads(4).drop(2), committed_payloads(producer, one, 2)
  end

  thorough slow def test_a_position_that_the_program_has_chosen_is_kept
    producer = transactional
    name = filled(4)
    listener = Object.new
    listener.define_singleton_method(:assigned) { |rebalance| rebalance.start_at(name, 0, 1) }
    consumer(group: name).commit({ name => { 0 => 2 } })
    one = consumer(group: name) { |config| config.rebalance_listener = listener }.subscribe(name)
    assert_equal payloads(4).drop(1), committed_payloads(producer, one, 3)
    one.seek(name, 0, 0)
    assert_equal payloads(4), committed_payloads(producer, one, 4)
  end

  thorough slow def test_a_position_that_was_chosen_in_an_earlier_assignment_does_not_count
    producer = transactional
    name = filled(4)
    one = consumer(group: name).subscribe(name)
    eventually(30) { !one.poll_batch(timeout: 1).empty? }
    one.seek(name, 0, 3)
    eventually(30) { one.poll_batch(timeout: 1).first&.offset == 3 }
    cluster.inject_errors(:heartbeat, :unknown_member_id)
    batch = nil
    eventually(30) { (batch = one.poll_batch(timeout: 1)).first&.offset&.zero? }
    assert one.commit({ name => { 0 => 2 } })
    assert_equal(false, once(producer, one, batch) { flunk })
    assert_equal payloads(4).drop(2), committed_payloads(producer, one, 2)
  end

  # A process that begins again ends the transaction of the one before it, whose offsets the coordinator keeps back until then.
  def test_the_producer_connects_before_the_first_message_comes
    producer = transactional
    assert_nil once(producer, reading(topic), timeout: 0)
    assert_predicate producer.status, :connected?
  end

  # ---- outcome unknown ----

  # The commit succeeds or fails, and the program is not told.
  def unknown_outcome(commits:)
    producer = transactional { |config| config.max_attempts_on_transaction_command = 1 }
    name = filled(4)
    one = reading(name)
    client = producer.client
    client.define_singleton_method(:commit_transaction) do |timeout|
      singleton_class.send(:remove_method, :commit_transaction)
      commits ? commit_transaction(timeout) : abort_transaction(timeout)
      raise Penstock::TransactionError.new("Nobody knows.", code: :timed_out, retriable: true)
    end
    error = assert_raises(Penstock::TransactionOutcomeUnknownError) { once(producer, one, max: 2) }
    assert_predicate error, :retriable?
    assert_match(/unknown \(nobody knows\).*The next call with this consumer finds out/i, error.message)
    one.commit({ name => { 0 => 2 } }) if commits # what a Kafka does in the transaction
    producer.monitor.clear("error.occurred")
    committed_payloads(producer, one, commits ? 2 : 4)
  end

  def test_after_a_commit_of_unknown_outcome_it_continues_if_the_offsets_are_committed
    assert_equal payloads(4).drop(2), unknown_outcome(commits: true)
  end

  def test_after_a_commit_of_unknown_outcome_it_goes_back_if_the_offsets_are_not_committed
    assert_equal payloads(4), unknown_outcome(commits: false)
  end

  # ---- what is not possible ----

  def test_a_consumer_that_commits_by_itself_is_rejected_before_anything_is_polled
    producer = transactional
    name = filled(1)
    { /enable\.auto\.commit": false/ => [{ commits: nil }, { commits: true }, { commits: "true" }],
      /read_committed/ => [{ "isolation.level": "read_uncommitted" }], /group\.id/ => [{ group: nil }] }.each do |text, settings|
      settings.each do |kafka|
        one = reading(name, **kafka)
        assert_match text, assert_raises(Penstock::ConfigurationInvalidError) { once(producer, one) { flunk } }.message
        assert_nil one.position(name, 0)
      end
    end
    assert once(producer, reading(name, commits: "false", "isolation.level": "read_committed"))
  end

  def test_wrong_arguments_raise
    one = reading(filled(1))
    assert_raises(Penstock::ProducerNotTransactionalError) { once(producer, one) { flunk } }
    [["a consumer"], [one, []], [nil, one.poll_batch(timeout: 0)]].each do |arguments|
      assert_raises(TypeError, arguments.inspect) { transactional.transaction(*arguments) { flunk } }
    end
    assert_raises(TypeError) { transactional.transaction(one, offset_metadata: 1) { flunk } }
    assert_raises(LocalJumpError) { transactional.transaction(one) }
    assert_match(/did you mean :timeout/, assert_raises(ArgumentError) { transactional.transaction(one, timout: 1) {} }.message)
    sending = transactional
    assert_raises(Penstock::SignalTrapError) { in_trap { sending.transaction(one) { flunk } } }
  end

  def test_it_cannot_be_nested
    producer = transactional
    other = transactional
    one = reading(filled(3))
    assert_raises(Penstock::UsageError) { producer.transaction { once(producer, one) { flunk } } }
    assert_raises(Penstock::UsageError) { once(producer, one) { once(producer, one) { flunk } } }
    assert_raises(Penstock::UsageError) { once(producer, one) { once(other, one) { flunk } } }
    assert_equal payloads(3), committed_payloads(producer, one, 3)
  end

  def test_a_plain_transaction_in_the_block_joins_it
    producer = transactional
    seen = transaction_events(producer)
    assert(once(producer, reading(filled(1))) { producer.transaction { nil } })
    assert_equal %w[started committed finished], steps(seen)
  end

  def test_a_consumer_that_is_closed_in_the_block_commits_nothing
    producer = transactional
    one = reading(filled(1))
    seen = transaction_events(producer)
    assert_raises(Penstock::ConsumerClosedError) { once(producer, one) { one.close } }
    assert_equal %w[started aborted], steps(seen)
    assert_raises(Penstock::ConsumerClosedError) { once(producer, one) { flunk } }
    assert_usable producer, topic
  end

  def test_a_producer_that_is_closed_in_the_block_is_not_closed
    producer = transactional
    one = reading(filled(2))
    assert_raises(Penstock::ProducerTransactionalCloseAttemptError) { once(producer, one) { producer.close } }
    assert_equal payloads(2), committed_payloads(producer, one, 2)
    producer.close
    assert_raises(Penstock::ProducerClosedError) { once(producer, one) { flunk } }
  end

  # Another thread works on messages before the batch. They would count as processed.
  def test_a_batch_behind_messages_in_work_is_rejected
    producer = transactional
    one = reading(name = filled(4))
    earlier = nil
    Thread.new { eventually { earlier = one.poll(timeout: 1) } }.join
    error = assert_raises(Penstock::TransactionalOffsetInvalidError) { once(producer, one) { flunk } }
    assert_equal [name, 0], [error.topic, error.partition]
    assert one.mark(earlier)
    assert_equal payloads(4).drop(1), committed_payloads(producer, one, 3)
  end

  def test_a_batch_whose_transaction_failed_has_to_be_polled_again
    producer = transactional
    one = reading(filled(2))
    batch = nil
    eventually { !(batch = one.poll_batch(timeout: 1)).empty? }
    assert_raises(Mishap) { once(producer, one, batch) { raise Mishap } }
    assert_equal(false, once(producer, one, batch) { flunk })
    assert_equal payloads(2), committed_payloads(producer, one, 2)
  end

  # ---- threads, fibers, processes ----

  def test_threads_that_share_the_consumer_and_producers_commit_each_message_once_in_order
    producers = [transactional, transactional]
    one = reading(filled(300, partitions: 2), partitions: [0, 1])
    committed = Thread::Queue.new
    threads = Array.new(4) do |i|
      quiet_thread do
        work(producers[i % 2], one, committed) until committed.size >= 600
      end
    end
    threads.each { |thread| Slowness.join(thread, 60) or flunk thread.backtrace.join("\n") }
    by_partition = taken(committed).group_by(&:first).transform_values { |places| places.map(&:last) }
    assert_equal({ 0 => Array.new(300, &:itself), 1 => Array.new(300, &:itself) }, by_partition)
  end

  def work(producer, one, committed)
    batch = once(producer, one, max: 20, timeout: 0.1) { raise Mishap if rand(5).zero? }
    (batch || []).each { |message| committed << [message.partition, message.offset] }
  rescue Mishap
    nil
  end

  def test_a_fiber_that_waits_for_messages_lets_others_run
    producer = transactional
    one = reading(name = topic)
    batch = nil
    Thread.new do
      Fiber.set_scheduler(PlainScheduler.new)
      Fiber.schedule { batch = once(producer, one) }
      Fiber.schedule { producer.produce_sync(topic: name, payload: "x", partition: 0) } # needs the producer meanwhile
    end.join
    assert_equal %w[x], batch.payloads
  end

  slow def test_a_child_that_was_forked_in_the_block_commits_nothing
    producer = transactional
    one = reading(filled(2))
    status = nil
    batch = once(producer, one) do
      pid = fork
      next status = Process.wait2(pid).last if pid
    end
    assert_predicate status, :success?
    assert_equal payloads(batch.size), batch.payloads
  rescue Penstock::ForkedError
    exit!(0)
  rescue Exception # rubocop:disable Lint/RescueException -- a child must not go on with the suite
    status ? raise : exit!(1)
  end
end
