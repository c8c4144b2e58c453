# frozen_string_literal: true

require_relative "../test_helper"

# Events of the native core: see docs/events.md.
class EventsTest < PenstockTest
  ACKNOWLEDGED = "message.acknowledged"

  def teardown
    Penstock.monitor.clear
    super
  end

  # @return [Array<Penstock::Event>] the events, as they are published
  def collect_events(producer, *names)
    [].tap { |seen| names.each { |name| producer.monitor.subscribe(name) { |event| seen << event } } }
  end

  # ---- message.acknowledged ----

  # behaviour: message.acknowledged
  def test_the_event_of_an_acknowledged_message_has_all_keys
    producer = self.producer
    seen = collect_events(producer, ACKNOWLEDGED)
    name = topic
    label = Object.new
    report = producer.produce_sync(topic: name, payload: "x", partition: 2, label:)
    eventually { seen.size == 1 }
    event = seen.first
    assert_equal [producer.id, name, 2, report.offset, label, producer],
                 event.payload.values_at(:producer_id, :topic, :partition, :offset, :label, :caller)
    assert_equal [report.timestamp, :persisted, label], event[:delivery_report].then { |it| [it.timestamp, it.status, it.label] }
    assert_equal(event.payload.keys.sort, %i[caller delivery_report label offset partition producer_id topic])
    event.payload.each { |key, value| assert_same_or_equal value, event[key] }
    assert_raises(KeyError) { event[:nothing] }
  end

  def assert_same_or_equal(expected, actual)
    expected.nil? ? assert_nil(actual) : assert_equal(expected.inspect, actual.inspect)
  end

  # behaviour: message.acknowledged
  # behaviour: The handle and the report have the message's label
  def test_every_message_of_a_batch_is_published_once_with_its_label_in_the_order_of_its_partition
    producer = self.producer
    seen = collect_events(producer, ACKNOWLEDGED)
    name = topic(partitions: 1)
    messages = Array.new(1_500) { |i| { topic: name, payload: "x", label: i } }
    messages.each_slice(300) { |batch| producer.produce_many_async(batch) }
    producer.flush
    eventually(30) { seen.size == 1_500 }
    assert_equal [*0...1_500], (seen.map { |event| event[:offset] })
    assert_equal [*0...1_500], (seen.map { |event| event[:label] })
  end

  # behaviour: message.acknowledged
  def test_a_listener_gets_only_events_between_subscribe_and_unsubscribe
    producer = self.producer
    name = topic(partitions: 1)
    producer.produce_sync(topic: name, payload: "before")
    seen = collect_events(producer, ACKNOWLEDGED)
    producer.produce_sync(topic: name, payload: "while")
    eventually { seen.size == 1 }
    producer.monitor.clear
    producer.produce_sync(topic: name, payload: "after")
    sleep 0.05
    assert_equal([1], seen.map { |event| event[:offset] })
    assert_equal 1, producer.metrics[:events][:queued]
  end

  def test_labels_are_kept_only_until_their_events_are_published
    producer = self.producer
    seen = collect_events(producer, ACKNOWLEDGED)
    name = topic
    producer.produce_many_sync(Array.new(500) { { topic: name, payload: "x", label: Object.new } })
    eventually(30) { seen.size == 500 }
    source = ObjectSpace.each_object(Internal::EventSource).find { |one| one.producer.equal?(producer) }
    eventually { source.counts.last.zero? }
  end

  # behaviour: a bus for all producers, ready-made listeners
  def test_the_global_monitor_gets_events_of_every_producer_including_earlier_ones
    producers = Array.new(2) { producer }
    name = topic
    producers.each { |one| one.produce_sync(topic: name, payload: "before") }
    seen = Queue.new
    Penstock.monitor.subscribe(ACKNOWLEDGED) { |event| seen << event[:producer_id] }
    producers.each { |one| one.produce_sync(topic: name, payload: "x") }
    eventually { seen.size == 2 }
    assert_equal producers.map(&:id).sort, Array.new(2) { seen.pop }.sort
  end

  # behaviour: producer.created, producer.configured
  def test_the_global_monitor_gets_events_that_belong_to_no_single_producer
    seen = []
    Penstock.monitor.subscribe("producer.created") { |event| seen << [event.id, event[:producer_id]] }
    Penstock.monitor.subscribe("producer.configured") { |event| seen << [event.id, event[:producer_id], event[:config]] }
    made = producer
    assert_equal [["producer.created", nil], ["producer.configured", made.id, made.config]], seen
  end

  # behaviour: connection_pool.created, connection_pool.setup
  def test_the_global_monitor_gets_events_of_connection_pools
    needs_connection_pool
    seen = []
    %w[created setup reload reloaded shutdown].each do |step|
      Penstock.monitor.subscribe("connection_pool.#{step}") { |event| seen << event }
    end
    pool = Penstock::ConnectionPool.setup(size: 2, timeout: 0.1) { flunk }
    pool.reload
    Penstock::ConnectionPool.shutdown
    assert_equal(%w[created setup reload reloaded shutdown], seen.map { |event| event.id.delete_prefix("connection_pool.") })
    assert_equal([pool], seen.map { |event| event[:pool] }.uniq)
    assert_equal([[2, 0.1]], seen.first(2).map { |event| event.payload.values_at(:size, :timeout) }.uniq)
  end

  # behaviour: a bus for all producers, ready-made listeners
  def test_a_shared_monitor_gets_events_of_all_its_producers_even_after_a_late_subscription
    shared = Penstock::Monitor.new
    producers = Array.new(2) { producer { |config| config.monitor = shared } }
    name = topic
    producers.each { |one| one.produce_sync(topic: name, payload: "before") }
    seen = Queue.new
    shared.subscribe(ACKNOWLEDGED) { |event| seen << event[:producer_id] }
    producers.each { |one| one.produce_sync(topic: name, payload: "x") }
    eventually { seen.size == 2 }
  end

  # ---- error.occurred ----

  # behaviour: error.occurred of librdkafka
  slow def test_a_failed_message_is_published_as_an_error_with_its_report
    producer = self.producer("message.timeout.ms": 50, servers: "127.0.0.1:1", log_level: 0)
    seen = collect_events(producer, "error.occurred")
    producer.produce_async(topic: "nowhere", payload: "x", label: :mine)
    eventually { seen.any? { |event| event[:type] == "librdkafka.dispatch_error" } }
    event = seen.find { |one| one[:type] == "librdkafka.dispatch_error" }
    assert_equal [producer.id, "nowhere", nil, nil, :mine, producer],
                 event.payload.values_at(:producer_id, :topic, :partition, :offset, :label, :caller)
    assert_equal [:msg_timed_out, event[:error]], [event[:error].code, event[:delivery_report].error]
  end

  # behaviour: error.occurred of librdkafka
  slow def test_an_error_of_librdkafka_is_published
    producer = unreachable_producer("message.timeout.ms": 2_000)
    seen = collect_events(producer, "error.occurred")
    producer.produce_async(topic: "nowhere", payload: "x")
    eventually { seen.any? { |event| event[:type] == "librdkafka.error" } }
    event = seen.find { |one| one[:type] == "librdkafka.error" }
    assert_equal [producer.id, producer], event.payload.values_at(:producer_id, :caller)
    assert_kind_of Penstock::Error, event[:error]
    refute_nil event[:error].code
  end

  # behaviour: Outside transactions a purge fails messages with the code purge_queue
  def test_a_purged_message_is_published_as_an_error_and_not_as_message_purged
    producer = unreachable_producer
    errors = collect_events(producer, "error.occurred")
    purged = collect_events(producer, "message.purged")
    producer.produce_async(topic: "nowhere", payload: "x")
    producer.purge
    eventually { errors.any? { |event| event[:error].code == :purge_queue } }
    assert_empty purged
  end

  # ---- statistics.emitted ----

  # behaviour: statistics.emitted
  def test_statistics_are_published_to_listeners_and_parsed_on_request
    producer = self.producer("statistics.interval.ms": 50)
    seen = collect_events(producer, "statistics.emitted")
    name = topic
    producer.produce_sync(topic: name, payload: "x")
    event = eventually { seen.find { |one| one[:statistics]["txmsgs"] == 1 } } # earlier statistics may be older than the message
    assert_equal producer.id, event[:producer_id]
    assert_predicate event[:statistics], :frozen?
    assert_same event[:statistics], event.payload[:statistics]
    assert_equal event[:statistics], JSON.parse(event.json)
  end

  # behaviour: statistics.emitted
  slow def test_delta_returns_differences_of_the_requested_numbers
    producer = self.producer("statistics.interval.ms": 300)
    seen = []
    producer.monitor.subscribe("statistics.emitted") do |event|
      seen << [event.delta("txmsgs"), event.delta("no", "such"), event[:statistics]["txmsgs"]]
    end
    name = topic
    7.times { producer.produce_sync(topic: name, payload: "x") }
    eventually { seen.size >= 4 && seen.last.first.zero? && seen.last.last == 7 }
    assert_equal [nil, nil], seen.first.take(2)
    assert_equal seen.each_cons(2).map { |one, other| other.last - one.last }, seen.drop(1).map(&:first)
  end

  # behaviour: StatisticsNotEnabledError
  # behaviour: Statistics are made only for a listener
  def test_without_a_listener_statistics_are_off_and_a_late_listener_turns_them_on
    interval = STATISTICS::INTERVAL
    change_interval(100)
    producer = self.producer
    producer.produce_sync(topic: topic, payload: "x")
    before = producer.client
    seen = collect_events(producer, "statistics.emitted")
    eventually { seen.any? }
    refute_same before, producer.client
  ensure
    change_interval(interval)
  end

  # behaviour: Statistics pause while disconnected
  def test_statistics_pause_while_disconnected_and_are_separate_for_each_producer
    producers = Array.new(2) { producer("statistics.interval.ms": 50) }
    seen = producers.map { |one| collect_events(one, "statistics.emitted") }
    name = topic
    producers.each { |one| one.produce_sync(topic: name, payload: "x") }
    eventually { seen.all?(&:any?) }
    producers.first.disconnect
    count = eventually { !Internal.of(producers.first).events.busy? } && seen.map(&:size)
    eventually { seen.last.size > count.last + 2 }
    assert_equal count.first, seen.first.size
    assert_equal(producers.map { |one| [one.id] }, seen.map { |all| all.map { |event| event[:producer_id] }.uniq })
  end

  STATISTICS = Penstock::Producer.const_get(:Statistics)

  def change_interval(value)
    STATISTICS.send(:remove_const, :INTERVAL)
    STATISTICS.const_set(:INTERVAL, value)
  end

  def test_subscribing_to_statistics_that_are_turned_off_logs_one_warning
    log = StringIO.new
    made = -> { producer("statistics.interval.ms": 0) { |config| config.logger = Logger.new(log) } }
    silent = made.call
    silent.produce_sync(topic: topic, payload: "x")
    assert_empty log.string
    2.times { silent.monitor.subscribe("statistics.emitted") { flunk } } # a late subscription
    early = made.call
    early.monitor.subscribe("statistics.emitted") { flunk }
    early.produce_sync(topic: topic, payload: "x")
    Penstock.monitor.subscribe("statistics.emitted") { flunk }
    late = made.call
    late.produce_sync(topic: topic, payload: "x")
    warned = log.string.lines.grep(/WARN.*statistics\.interval\.ms is 0/)
    assert_equal([silent, early, late].map(&:id), warned.map { |line| line[/\[(penstock-\h+)\]/, 1] })
    _, err = capture_io { producer("statistics.interval.ms": "0").produce_sync(topic: topic, payload: "x") }
    assert_match(/statistics\.emitted.*statistics\.interval\.ms is 0/, err)
  end

  # ---- the poller ----

  # behaviour: poller.producer_registered, poller.producer_unregistered
  def test_registering_and_unregistering_with_the_poller_are_events
    producer = self.producer
    seen = collect_events(producer, "poller.producer_registered", "poller.producer_unregistered")
    producer.produce_sync(topic: topic, payload: "x")
    producer.disconnect
    producer.produce_sync(topic: topic, payload: "x")
    producer.close
    expected = %w[registered unregistered] * 2
    assert_equal(expected, seen.map { |event| event.id.delete_prefix("poller.producer_") })
    assert_equal([{ producer_id: producer.id }], seen.map(&:payload).uniq)
  end

  # ---- costs and limits ----

  # The dispatcher holds a producer strongly only while events of the producer may still come.
  # defect 10
  thorough slow def test_a_producer_without_references_publishes_its_pending_events_and_is_collected
    name = topic(partitions: 1)
    seen = Queue.new
    quiet_thread { send_and_forget(name, seen) }.join
    eventually { seen.size == 2 || GC.start }
    assert_equal([1, 2], Array.new(2) { seen.pop })
    eventually { Internal::ProducerClient.open_count == @open_before || GC.start }
  end

  # Sends the second message once the dispatcher no longer holds the idle producer. linger.ms keeps this message in flight long
  # enough for a collection.
  def send_and_forget(topic, seen)
    one = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 300 } }
    one.monitor.subscribe(ACKNOWLEDGED) { |event| seen << event[:label] }
    one.produce_sync(topic:, payload: "x", label: 1)
    sources = Internal::EventDispatcher.instance_variable_get(:@sources)
    eventually { sources.each_value.none? { |listened| listened.instance_variable_get(:@held) } }
    one.produce_async(topic:, payload: "x", label: 2)
    5.times { GC.start }
  end

  def test_without_listeners_there_is_no_thread_and_no_event
    producer = self.producer
    producer.monitor.subscribe("producer.closed") { nil }
    producer.produce_sync(topic: topic, payload: "x")
    assert_equal 0, Internal::EventDispatcher.threads
    assert_equal({ queued: 0, dropped: 0, waiting: 0 }, producer.metrics[:events])
  end

  { drop_oldest: [*90...100], drop_newest: [*0...10] }.each do |policy, expected|
    define_method("test_a_full_queue_costs_no_memory_and_with_#{policy}_counts_lost_events") do
      producer = self.producer { |config| (config.event_queue_limit = 10) && (config.event_queue_full = policy) }
      name = topic(partitions: 1)
      gate = Queue.new
      seen = []
      producer.monitor.subscribe(ACKNOWLEDGED) { |event| gate.pop && seen << event[:offset] }
      producer.produce_sync(topic: name, payload: "first")
      eventually { gate.num_waiting == 1 }
      producer.produce_many_sync(Array.new(100) { { topic: name, payload: "x", label: Object.new } })
      eventually { producer.metrics[:events] == { queued: 101, dropped: 90, waiting: 10 } }
      gate.close
      def gate.pop = true
      producer.close
      assert_equal expected, seen.map { |offset| offset - 1 } - [-1]
    end
  end

  def test_metrics_work_without_statistics
    producer = self.producer
    empty = producer.metrics
    assert_equal [0, 0, 0, nil], [*empty.values_at(:messages, :bytes, :queue_depth), empty[:latency][:p99]]
    name = topic
    producer.produce_many_sync(Array.new(200) { { topic: name, payload: "12345", key: "123" } })
    producer.produce_sync(topic: name, payload: "1")
    metrics = producer.metrics
    assert_equal [201, 1_601, 201, 0, 0], metrics.values_at(:messages, :bytes, :delivered, :failed, :queue_depth)
    latency = metrics[:latency].values_at(:p50, :p95, :p99, :max)
    assert_equal latency.sort, latency
    assert_includes 0.001..60_000, latency.first
    assert_operator metrics[:wakeups], :>, 0
  end

  # The mock cluster answers with retriable errors, closes the connection, and rejects a message permanently.
  def test_requests_whose_messages_must_be_resent_count_as_retries
    own = Penstock::EmbeddedCluster.new(brokers: 1)
    producer = self.producer(servers: own.bootstrap_servers, log_level: 0)
    send = -> { producer.produce_sync(topic: "counted", payload: "x", partition: 0) }
    counts = -> { producer.metrics.values_at(:requests, :retries) }
    assert_equal [0, 0], counts.call
    send.call
    assert_equal [1, 0], counts.call
    own.inject_errors(:produce, :not_leader_for_partition, :request_timed_out)
    send.call
    assert_equal [4, 2], counts.call
    own.inject_errors(:produce, :transport)
    send.call
    assert_equal [6, 3], counts.call
    own.inject_errors(:produce, :msg_size_too_large)
    assert_raises(Penstock::DeliveryError) { send.call }
    assert_equal [7, 3], counts.call
    assert_equal [1, 0], in_child { send.call && counts.call }
    producer.disconnect
    assert_equal [0, 0], counts.call
  ensure
    producer&.close
    own&.close
  end

  def test_messages_of_several_partitions_do_not_count_as_retries
    producer = self.producer
    name = topic(partitions: 4)
    10.times { producer.produce_many_async(Array.new(100) { |i| { topic: name, payload: "x", partition: i % 4 } }) }
    producer.flush
    assert_equal [1_000, 0], producer.metrics.values_at(:delivered, :retries)
    assert_operator producer.metrics[:requests], :>=, 4
  end

  # ---- close, exit and forks ----

  # @return [Array<Integer>] the block's value in a fork child
  def in_child
    reader, writer = IO.pipe
    child = fork do
      writer.write(yield.join(" "))
      exit!(0)
    end
    Process.wait(child)
    writer.close
    reader.read.split.map(&:to_i)
  end

  def test_close_publishes_pending_events
    producer = self.producer
    seen = []
    producer.monitor.subscribe(ACKNOWLEDGED) { |event| sleep(0.0005) && seen << event[:offset] }
    name = topic
    producer.produce_many_async(Array.new(300) { { topic: name, payload: "x" } })
    producer.close
    assert_equal 300, seen.size
  end

  def test_a_process_publishes_pending_events_at_exit
    output = ruby!(<<~RUBY)
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": #{cluster.bootstrap_servers.inspect} } }
      published = 0
      producer.monitor.subscribe("message.acknowledged") { (published += 1) == 200 && puts("all") }
      producer.produce_many_async(Array.new(200) { { topic: #{topic.inspect}, payload: "x" } })
    RUBY
    assert_equal "all\n", output
  end

  def test_a_fork_child_gets_only_its_own_events
    producer = self.producer
    name = topic(partitions: 1)
    gate = Queue.new
    seen = []
    producer.monitor.subscribe(ACKNOWLEDGED) { |event| (Process.pid == event[:label] || gate.pop) && seen << event[:label] }
    3.times { producer.produce_sync(topic: name, payload: "x", label: :parents) }
    reader, writer = IO.pipe
    child = fork do
      2.times { producer.produce_sync(topic: name, payload: "x", label: Process.pid) }
      producer.close
      writer.write(seen.map { |label| label == Process.pid ? "mine" : label }.join(" "))
      exit!(0)
    end
    Process.wait(child)
    writer.close
    assert_equal "mine mine", reader.read
    3.times { gate << true }
    eventually { seen == %i[parents parents parents] }
  end
end
