# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/producer_test_case"

# A producer from creation to its end, except closing (close_test.rb) and forking (fork_test.rb).
class ProducerLifeTest < ProducerTestCase
  # ---- configuring ----

  # behaviour: new, setup
  def test_a_producer_made_without_a_block_is_configured_by_setup
    one = unconfigured
    assert_equal [:initial, nil, nil, false], [one.status.to_sym, one.config, one.id, one.status.active?]
    assert_same one, configure(one) { |config| config.id = "late" }
    assert_equal [:configured, "late", true], [one.status.to_sym, one.id, one.config.frozen?]
    assert_equal 0, one.produce_sync(topic: topic(partitions: 1), payload: "x").offset
  end

  # behaviour: new, setup
  # behaviour: ProducerAlreadyConfiguredError
  def test_a_second_setup_raises_and_changes_nothing
    one = configure(unconfigured) { |config| config.id = "first" }
    [one, producer { |config| config.id = "first" }].each do |made|
      error = assert_raises(Penstock::ProducerAlreadyConfiguredError) { configure(made) { |config| config.id = "second" } }
      assert_includes error.message, "first"
      assert_equal "first", made.id
    end
  end

  def test_a_failed_setup_can_be_repeated
    one = unconfigured
    assert_raises(Penstock::ConfigurationInvalidError) { one.setup { |config| config.kafka = { nonsense: 1 } } }
    assert_predicate one.status, :initial?
    assert_raises(Penstock::ProducerNotConfiguredError) { one.produce_sync(topic: "test", payload: "x") }
    assert_predicate configure(one).status, :configured?
  end

  # behaviour: ProducerNotConfiguredError
  def test_every_call_before_setup_raises_an_error_that_names_setup
    one = unconfigured
    message = { topic: "test", payload: "x" }
    calls = {
      produce_sync: [message], produce_async: [message], produce_many_sync: [[message]], produce_many_async: [[message]],
      tombstone_sync: [{ topic: "test", key: "x", partition: 0 }], buffer: [message], buffer_many: [[message]],
      flush_sync: [], flush_async: [], flush: [], purge: [], client: [], with: [], current_variant: [],
      partition_count: ["test"], transaction: []
    }
    calls.each do |name, arguments|
      block = proc {} if name == :transaction
      error = assert_raises(Penstock::ProducerNotConfiguredError, name.to_s) { one.public_send(name, *arguments, &block) }
      assert_match(/setup/, error.message)
    end
    one.monitor.subscribe("error.occurred") { nil } # a listener disables the fast path
    assert_raises(Penstock::ProducerNotConfiguredError) { one.produce_sync(message) }
  end

  # behaviour: queue_size, queue_length
  def test_methods_that_need_no_cluster_work_before_setup
    one = unconfigured
    assert_equal [0, [], "#<Penstock::Producer initial>"], [one.queue_size, one.messages, one.inspect]
    assert_equal [false], [one.disconnect, one.disconnectable?, one.transaction?, one.transactional?, one.idempotent?].uniq
  end

  def test_a_producer_closed_before_setup_stays_closed
    one = unconfigured
    assert_equal Penstock::CloseReport.new(0, 0, 0, 0), one.close
    assert_predicate one.status, :closed?
    assert_raises(Penstock::ProducerClosedError) { configure(one) }
    assert_raises(Penstock::ProducerClosedError) { one.produce_sync(topic: "test", payload: "x") }
    assert_raises(Penstock::ProducerClosedError) { one.flush }
    assert_raises(Penstock::ProducerClosedError) { one.with }
    assert_equal Penstock::CloseReport.new(0, 0, 0, 0), one.close(timeout: 1)
  end

  # ---- status ----

  # behaviour: id, status, config, monitor, middleware, tags, inspect
  def test_status_follows_the_whole_life_and_has_a_predicate_for_each_state
    one = unconfigured
    seen = [states(one)]
    configure(one)
    %w[producer.disconnecting producer.disconnected producer.closing].each do |event|
      one.monitor.subscribe(event) { seen << states(one) }
    end
    seen << states(one)
    one.produce_sync(topic:, payload: "x")
    seen << states(one)
    one.disconnect
    one.produce_sync(topic:, payload: "x")
    seen << states(one)
    one.close
    seen << states(one)
    assert_equal [[:initial], [:configured], [:connected], [:connected], [:disconnecting], [:connected], [:connected], [:closed]],
                 seen
    assert_equal ["closed", :closed, false], [one.status.to_s, one.status.to_sym, one.status.active?]
  end

  def test_a_connecting_thread_does_not_reopen_a_closed_producer
    status = Penstock::Producer::Status.new.extend(Penstock::Producer.const_get(:StatusChanges))
    status.configured!
    status.closing!
    status.connected!
    assert_predicate status, :closing?
    status.closed!
    status.closing!
    status.disconnected!
    assert_predicate status, :closed?
    refute_predicate status, :active?
  end

  # ---- connecting ----

  # behaviour: A producer connects at its first use, and once
  def test_threads_that_use_a_new_producer_simultaneously_share_one_client
    10.times do
      name = topic(partitions: 1)
      one = producer
      connected = events(one, "producer.connected")
      gate = Queue.new
      threads = Array.new(16) { Thread.new { gate.pop && [one.client, one.produce_sync(topic: name, payload: "x")][0] } }
      16.times { gate << true }
      assert_equal 1, threads.map(&:value).uniq(&:object_id).size
      assert_equal 1, connected.size
    end
  end

  # behaviour: new, setup
  # behaviour: A producer connects at its first use, and once
  def test_making_a_producer_connects_nothing
    one = producer
    assert_equal [0, :configured], [Internal::ProducerClient.open_count, one.status.to_sym]
    assert_empty native_threads - ["penstock.cluster"]
  end

  # behaviour: idempotent?
  def test_idempotent_reports_whether_the_producer_is_idempotent
    assert_equal [true, true, true], [producer, producer("enable.idempotence": true), transactional].map(&:idempotent?)
    assert_equal [false, false], [producer("enable.idempotence": false), producer(acks: 1)].map(&:idempotent?)
  end

  # behaviour: client
  def test_client_connects_the_producer_and_raises_once_closed
    one = producer
    client = one.client
    assert_same client, one.client
    assert_predicate one.status, :connected?
    one.close
    assert_raises(Penstock::ProducerClosedError) { one.client }
  end

  # ---- disconnecting ----

  # behaviour: disconnect, disconnectable?
  def test_disconnect_delivers_inflight_messages_and_the_next_message_connects_again
    name = topic(partitions: 1)
    one = producer("linger.ms": 5_000)
    handles = one.produce_many_async(Array.new(20) { |i| { topic: name, payload: i.to_s } })
    before = one.client
    assert one.disconnect
    assert handles.all?(&:delivered?)
    assert_equal [0, :disconnected, 0], [Internal::ProducerClient.open_count, one.status.to_sym, one.queue_size]
    again = one.produce_async(topic: name, payload: "again")
    one.flush
    assert_equal 20, again.report.offset
    refute_same before, one.client
  end

  # behaviour: disconnect, disconnectable?
  def test_only_a_connected_producer_disconnects
    one = producer
    refute one.disconnectable?
    refute one.disconnect
    one.client
    assert one.disconnectable?
    assert one.disconnect
    refute one.disconnectable?
    refute one.disconnect
    one.close
    refute one.disconnect
  end

  def test_a_producer_with_buffered_messages_does_not_disconnect
    name = topic(partitions: 1)
    one = producer
    one.produce_sync(topic: name, payload: "x")
    one.buffer(topic: name, payload: "y")
    refute one.disconnectable?
    refute one.disconnect
    one.flush_sync
    assert one.disconnect
    assert_equal 2, stored(name).size
  end

  def test_a_producer_does_not_disconnect_in_a_transaction_of_this_or_another_thread_and_does_after_it
    one = transactional
    inside = []
    one.transaction do
      one.produce_sync(topic:, payload: "x")
      inside << one.disconnectable? << one.disconnect
      inside << Thread.new { one.disconnect }.value
    end
    assert_equal [false, false, false], inside
    assert one.disconnect
    one.produce_sync(topic:, payload: "x")
  end

  thorough slow def test_threads_that_produce_while_another_disconnects_see_no_error_and_lose_no_message
    name = topic(partitions: 1)
    one = producer("linger.ms": 1)
    done = false
    calls = [
      -> { [one.produce_async(topic: name, payload: "x")] },
      -> { [one.produce_sync(topic: name, payload: "x")] },
      -> { one.produce_many_async(Array.new(150) { { topic: name, payload: "x" } }) },
      -> { one.produce_many_sync(Array.new(10) { { topic: name, payload: "x" } }) },
      -> { one.flush && [] },
      -> { one.partition_count(name) == 1 ? [] : flunk("partitions") }
    ]
    threads = Array.new(8) { |i| Thread.new { [].tap { |made| made.concat(calls[i % calls.size].call) until done } } }
    disconnect_for(3, one)
    done = true
    made = threads.flat_map(&:value)
    one.flush
    reports = made.map { |handle| handle.is_a?(Penstock::DeliveryReport) ? handle : handle.report }
    assert(reports.all?(&:persisted?))
    assert_equal (0...made.size).to_a, reports.map(&:offset).sort
    assert_equal made.size + 1, one.produce_sync(topic: name, payload: "last").offset + 1
  end

  thorough slow def test_a_batch_that_waits_for_space_during_a_disconnect_is_delivered_completely
    slow = own_cluster
    name = topic(on: slow, partitions: 1)
    %i[produce_many_sync produce_many_async].each do |call|
      one = producer(servers: slow.bootstrap_servers, "queue.buffering.max.messages": 10, "linger.ms": 0)
      one.client
      slow.set_round_trip_time(seconds: 0.1)
      batch = Array.new(50) { |i| { topic: name, payload: i.to_s } }
      sending = Thread.new { one.public_send(call, batch) }
      eventually { one.queue_size == 10 && sending.stop? }
      assert one.disconnect
      handles = sending.value
      one.flush
      assert_equal [true] * 50, handles.map(&:delivered?)
      assert_equal 50, handles.map { |handle| handle.report.offset }.uniq.size
    end
    assert_equal 100, stored(name, on: slow).size
  end

  slow def test_flush_waits_for_messages_of_a_client_that_is_being_closed
    slow = own_cluster
    name = topic(on: slow, partitions: 1)
    one = producer(servers: slow.bootstrap_servers)
    one.produce_sync(topic: name, payload: "x")
    slow.set_round_trip_time(seconds: 0.3)
    handle = one.produce_async(topic: name, payload: "y")
    leaving = Thread.new { one.disconnect }
    eventually { one.status.disconnecting? }
    assert one.flush(timeout: 20)
    refute_predicate handle, :pending?
    assert leaving.value
  end

  def test_an_interrupted_disconnect_continues_and_its_messages_still_count
    slow = own_cluster
    name = topic(on: slow, partitions: 1)
    one = producer(servers: slow.bootstrap_servers)
    one.produce_sync(topic: name, payload: "x")
    slow.set_round_trip_time(seconds: 0.5)
    handle = one.produce_async(topic: name, payload: "y")
    leaving = Thread.new { one.disconnect }
    eventually { one.status.disconnecting? && leaving.stop? }
    leaving.kill.join
    assert_equal [:disconnected, 1], [one.status.to_sym, one.queue_size]
    assert_equal 1, one.close.delivered
    assert_predicate handle, :delivered?
  end

  # ---- purging ----

  # behaviour: purge
  # behaviour: message.buffered, messages.buffered, buffer.flushed_sync
  # behaviour: Outside transactions a purge fails messages with the code purge_queue
  def test_purge_discards_buffered_and_inflight_messages_and_the_producer_stays_usable
    name = topic(partitions: 1)
    one = producer("linger.ms": 60_000)
    one.produce_many_async([]) # does not connect
    handles = one.produce_many_async(Array.new(10) { { topic: name, payload: "x" } })
    one.buffer(topic: name, payload: "buffered")
    heard = events(one, "message.purged", "buffer.purged")
    assert_equal 10, one.purge
    assert_equal [["buffer.purged", ["buffered"]]],
                 (heard.map { |event| [event.id, event[:messages].map { |message| message[:payload] }] })
    eventually { handles.none?(&:pending?) }
    assert_equal [:purge_queue], handles.map { |handle| handle.error.code }.uniq
    assert_raises(Penstock::DeliveryError) { handles.first.wait }
    assert_empty one.messages
    again = one.produce_async(topic: name, payload: "again")
    one.flush
    assert_equal 0, again.report.offset
  end

  # librdkafka's own purge is done later by its broker threads. In one of 150 runs it also purged messages of a later call.
  # behaviour: purge
  slow def test_messages_produced_after_a_purge_are_not_purged
    own = own_cluster(brokers: 3)
    name = topic(on: own, partitions: 6)
    one = holding_producer(servers: own.bootstrap_servers)
    send_six = -> { Array.new(6) { |partition| one.produce_async(topic: name, payload: "x", partition:) } }
    send_six.call
    one.flush
    1_000.times do
      purged = send_six.call
      assert_equal 6, one.purge
      Penstock::DeliveryHandle.await_all(purged, timeout: 10)
      sent = send_six.call
      one.flush
      assert sent.all?(&:delivered?)
    end
  end

  def test_purge_works_for_an_unreachable_cluster_and_an_unused_producer
    one = unreachable_producer
    assert_equal 0, one.purge
    handle = one.produce_async(topic: "test", payload: "x")
    assert_equal 1, one.purge
    eventually { !handle.pending? }
    assert_equal 0, one.queue_size
    one.close
    assert_raises(Penstock::ProducerClosedError) { one.purge }
  end

  # ---- inspect and tags ----

  # behaviour: id, status, config, monitor, middleware, tags, inspect
  def test_inspect_shows_no_settings_and_never_waits_for_other_threads
    one = unreachable_producer("sasl.password": "secret!", "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN",
                               "sasl.username": "me", "transactional.id": "tx")
    one.buffer(topic: "test", payload: "secret!")
    flushing = Thread.new { one.flush_sync rescue nil } # rubocop:disable Style/RescueModifier
    eventually { flushing.stop? && Internal::ProducerClient.open_count == 1 }
    assert_equal "#<Penstock::Producer #{one.id} configured>", one.inspect
    refute_includes one.status.inspect + one.config.inspect + one.monitor.inspect + one.middleware.inspect, "secret!"
    one.close(timeout: 0)
    flushing.join
  end

  # behaviour: id, status, config, monitor, middleware, tags, inspect
  def test_each_producer_has_its_own_tags
    one = producer
    one.tags.add(:kind, "billing")
    assert_equal [["billing"], []], [one.tags.to_a, producer.tags.to_a]
  end

  # ---- stand-ins ----

  # behaviour: deliver
  def test_a_producer_with_deliver_false_does_everything_except_delivering
    one = producer(servers: "127.0.0.1:1") { |config| config.deliver = false }
    assert_kind_of Penstock::Clients::Dummy, one.client
    use_everything(one)
    assert_equal 0, Internal::ProducerClient.open_count
    assert one.disconnect
    assert_equal 0, one.produce_sync(topic: "t", payload: "x", partition: 3).offset
    assert_predicate one.close, :complete?
    assert_raises(Penstock::ProducerClosedError) { one.produce_sync(topic: "t", payload: "x") }
  end

  # behaviour: deliver
  def test_deliver_false_takes_precedence_over_client_class
    one = producer do |config|
      config.deliver = false
      config.client_class = Penstock::Clients::Buffered
    end
    assert_instance_of Penstock::Clients::Dummy, one.client
  end

  # behaviour: client_class
  def test_a_producer_with_the_buffered_client_keeps_its_messages
    one = producer { |config| config.client_class = Penstock::Clients::Buffered }
    sent = use_everything(one)
    assert_equal sent, one.client.messages.size
    one.client.reset
    one.with(topic_config: { acks: 1 }).produce_sync(topic: "t", payload: "x")
    assert_predicate one.close, :complete?
  end

  # behaviour: A stand-in that keeps messages
  def test_a_transactional_producer_with_a_stand_in_commits_aborts_and_nests
    one = producer("transactional.id": "tx") { |config| config.client_class = Penstock::Clients::Buffered }
    heard = events(one, "transaction.committed", "transaction.aborted")
    assert_equal :value, one.transaction { one.transaction { one.produce_sync(topic: "t", payload: "1") } && :value }
    one.transaction do
      one.produce_async(topic: "t", payload: "2")
      raise Penstock::AbortTransaction
    end
    assert_raises(ArgumentError) { one.transaction { raise ArgumentError } }
    one.produce_sync(topic: "t", payload: "3")
    one.buffer(topic: "t", payload: "4")
    one.flush_sync
    assert_equal %w[1 3 4], one.client.messages_for("t").map { |message| message[:payload] }
    assert_equal %w[committed aborted aborted committed committed], heard.map { |event| event.id.delete_prefix("transaction.") }
    assert_raises(Penstock::ProducerTransactionalCloseAttemptError) { one.transaction { one.close } }
    assert_predicate one.close, :complete?
  end

  # ---- middleware ----

  # behaviour: Middleware runs once for each message, before it is checked
  def test_middleware_runs_once_for_each_message_before_validation_on_a_copy
    name = topic(partitions: 1)
    one = producer
    steps = []
    one.middleware.append { |message| message.tap { steps << "b #{message[:payload]}" } }
    one.middleware.prepend { |message| message.merge(topic: name).tap { steps << "a #{message[:payload]}" } }
    given = Array.new(4) { |i| { topic: nil, payload: i.to_s, headers: {} }.freeze }
    one.produce_sync(given[0])
    one.produce_async(given[1]).wait
    one.produce_many_sync([given[2]])
    one.buffer(given[3])
    assert_equal 6, steps.size
    one.flush_sync
    assert_equal (0..3).flat_map { |i| ["a #{i}", "b #{i}"] }, steps
    assert_equal %w[0 1 2 3], stored(name).map(&:payload)
    assert_equal([{ topic: nil, headers: {} }], given.map { |message| message.slice(:topic, :headers) }.uniq)
  end

  # behaviour: id, status, config, monitor, middleware, tags, inspect
  # behaviour: monitor
  # behaviour: middleware
  def test_middleware_and_monitor_can_be_given_by_config_and_shared
    monitor = Penstock::Monitor.new
    middleware = Penstock::Middleware.new.append { |message| message.merge(payload: "changed") }
    heard = []
    monitor.subscribe("message.produced_sync") { |event| heard << event[:message][:payload] << event[:producer_id] }
    pair = Array.new(2) do |i|
      producer do |config|
        config.id = "shared-#{i}"
        config.monitor = monitor
        config.middleware = middleware
      end
    end
    pair.each { |one| one.produce_sync(topic:, payload: "x") }
    assert_equal %w[changed shared-0 changed shared-1], heard
    assert_same monitor, pair[0].monitor
    assert_same middleware, pair[1].middleware
  end

  # ---- events ----

  # behaviour: producer.connected, producer.closing, producer.closed
  # behaviour: message.produced_sync, message.produced_async
  # behaviour: message.buffered, messages.buffered, buffer.flushed_sync
  def test_each_event_has_its_keys
    one = producer { |config| config.id = "me" }
    heard = events(one, *Penstock::Monitor::EVENTS)
    name = topic(partitions: 1)
    message = { topic: name, payload: "x" }
    one.produce_sync(message)
    one.produce_async(message).wait
    one.produce_many_sync([message])
    one.produce_many_async([message]).each(&:wait)
    one.buffer(message)
    one.buffer_many([message])
    one.flush_sync
    one.flush_async
    one.purge
    one.disconnect
    one.produce_sync(message)
    one.close
    seen = heard.to_h { |event| [event.id, event.payload.keys.sort - [:producer_id]] }
    expected = {
      "producer.connected" => [:caller], "producer.closing" => [], "producer.closed" => [:time],
      "producer.disconnecting" => [], "producer.disconnected" => [:time],
      "message.produced_sync" => %i[message time], "message.produced_async" => %i[message time],
      "messages.produced_sync" => %i[messages time], "messages.produced_async" => %i[messages time],
      "message.buffered" => %i[buffer message time], "messages.buffered" => %i[buffer messages time],
      "buffer.flushed_sync" => %i[messages time], "buffer.flushed_async" => %i[messages time],
      "buffer.purged" => %i[messages time]
    }
    assert_equal expected, seen.slice(*expected.keys)
    assert_equal ["me"], heard.map { |event| event[:producer_id] }.uniq
    assert_equal 2, heard.count { |event| event.id == "producer.connected" }
  end

  # behaviour: transaction.started, transaction.committed
  def test_transaction_events_have_their_keys_and_times
    one = transactional
    heard = events(one, *Penstock::Monitor::EVENTS.grep(/transaction/))
    one.transaction { one.produce_sync(topic:, payload: "x") }
    one.transaction { raise Penstock::AbortTransaction }
    assert_equal %w[started committed finished started aborted finished], (heard.map { |event| event.id.split(".").last })
    assert_equal [%i[producer_id time]], heard.map { |event| event.payload.keys }.uniq
    assert(heard.all? { |event| event[:time].is_a?(Float) && event[:time] >= 0 })
  end

  def test_no_event_is_built_or_published_without_listeners
    [producer, producer.tap { |one| one.monitor.subscribe("statistics.emitted") { nil } }].each do |one|
      message = { topic:, payload: "x" }
      one.monitor.define_singleton_method(:instrument) { |event, *| raise "published #{event}" }
      Internal.of(one).notifier.instrument("error.occurred") { raise "built" }
      one.produce_sync(message)
      one.buffer(message)
      one.flush_sync
      assert_raises(Penstock::MessageInvalidError) { one.produce_async({}) }
      one.purge
      assert one.disconnect
      assert_predicate one.close, :complete?
    end
  end

  # behaviour: message.produced_sync, message.produced_async
  # behaviour: error.occurred of calls
  # behaviour: One invalid message in a batch
  slow def test_a_failed_call_publishes_only_an_error_event_with_its_type
    one = unreachable_producer("message.timeout.ms": 300, "queue.buffering.max.messages": 1) do |config|
      config.on_queue_full = :raise
    end
    heard = events(one, "error.occurred", *Penstock::Monitor::EVENTS.grep(/produced|flushed/))
    bad = { topic: "test" }
    good = { topic: "test", payload: "x" }
    tries = [
      -> { one.produce_sync(bad) }, -> { one.produce_async(bad) }, -> { one.produce_many_sync([bad]) },
      -> { one.produce_many_async([bad]) }, -> { one.produce_sync(good) }, -> { one.produce_many_async([good, good]) },
      -> { one.buffer(bad) && one.flush_sync }, -> { one.flush_async }
    ]
    raised = tries.map { |call| assert_raises(Penstock::Error, &call) }
    types = %w[message.produce_sync message.produce_async messages.produce_many_sync messages.produce_many_async
               message.produce_sync messages.produce_many_async messages.produce_many_sync messages.produce_many_async]
    heard.reject! { |event| event[:type].start_with?("librdkafka.") } # published asynchronously
    assert_equal types, (heard.map { |event| event[:type] })
    assert_equal raised, (heard.map { |event| event[:error] })
    assert_equal [bad, [bad], 1], [heard[0][:message], heard[2][:messages], heard[5][:dispatched].size]
    one.close(timeout: 0)
  end

  # behaviour: error.occurred of calls
  # behaviour: One invalid message in a batch
  slow def test_the_event_and_the_error_of_a_failed_batch_have_the_same_dispatched_handles
    full = { "queue.buffering.max.messages": 10, "linger.ms": 100 }
    [producer(**full) { |config| config.on_queue_full = :raise },
     transactional(**full) { |config| config.on_queue_full = :raise }].each do |one|
      heard = events(one, "error.occurred")
      %i[produce_many_sync produce_many_async].each do |call|
        batch = Array.new(12) { |i| { topic:, payload: "x", label: i } }
        error = assert_raises(Penstock::ProduceManyError) { one.public_send(call, batch) }
        event = heard.find { |seen| seen[:error].equal?(error) }
        assert_same error.dispatched, event[:dispatched]
        assert_equal (0...10).to_a, event[:dispatched].map(&:label)
        assert_equal ["messages.#{call}", batch], [event[:type], event[:messages]]
        one.flush
      end
    end
  end

  # behaviour: producer.connected, producer.closing, producer.closed
  # behaviour: A callback may close its producer
  def test_a_listener_of_disconnect_or_close_may_query_and_close_the_producer
    one = producer
    reports = []
    %w[producer.disconnected producer.closing producer.closed].each do |event|
      one.monitor.subscribe(event) { one.inspect && reports << one.close(timeout: 20) }
    end
    one.produce_sync(topic:, payload: "x")
    assert_took(15, seconds_of { one.disconnect })
    assert_predicate one, :closed?
    assert_equal 3, reports.size
  end

  private

  def unconfigured = Penstock::Producer.new.tap { |made| @producers << made }

  def configure(one)
    one.setup do |config|
      config.kafka = { "bootstrap.servers": cluster.bootstrap_servers }
      yield config if block_given?
    end
  end

  def transactional(**kafka, &block) = producer("transactional.id": "tx-#{rand(2**32)}", **kafka, &block)

  # @return [Array<Symbol>] the states whose predicates return true
  def states(one) = Penstock::Producer::Status::STATES.select { |state| one.status.public_send(:"#{state}?") }

  def events(one, *names)
    [].tap { |seen| names.each { |name| one.monitor.subscribe(name) { |event| seen << event } } }
  end

  def disconnect_for(seconds, one)
    deadline = now + seconds
    done = []
    done << one.disconnect while now < deadline || done.count(true) < 5
  end

  # @return [Integer] messages
  def use_everything(one)
    message = { topic: :t, payload: "x", label: 1 }
    assert_equal 1, one.produce_sync(message).label
    assert one.produce_async(message).wait.persisted?
    assert one.produce_many_sync([message, message]).all?(&:delivered?)
    assert one.produce_many_async([message]).all?(&:delivered?)
    assert one.tombstone_sync(topic: "t", key: "k", partition: 0).persisted?
    one.buffer(message)
    assert_equal 1, one.flush_sync.size
    one.buffer_many([message, message])
    assert_equal 2, one.flush_async.size
    assert one.with(max_wait_timeout: 1_000).produce_sync(message).persisted?
    assert one.flush
    assert_equal [0, 0, 1], [one.queue_size, one.purge, one.partition_count("t")]
    assert_raises(Penstock::MessageInvalidError) { one.produce_sync(topic: "t") }
    assert_raises(Penstock::ProducerNotTransactionalError) { one.transaction { nil } }
    10
  end
end
