# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# What a consumer publishes to its monitor, and its metrics, statistics, status and tags.
class ConsumerEventsTest < ConsumerTestCase
  include SharedCluster::ForGroups

  slow(/process_ends|statistics_come/)

  # @return [Array<Penstock::Event>] filled as the events are published
  def events(monitor, *names)
    [].tap { |seen| names.each { |name| monitor.subscribe(name) { |event| seen << event } } }
  end

  def filled(count, partitions: 1)
    topic(partitions:).tap do |name|
      partitions.times { |partition| produce(name, Array.new(count) { |i| "#{partition}-#{i}" }, partition:) }
    end
  end

  # Polls until the block is true.
  def polling(consumer)
    eventually { consumer.poll_batch(timeout: 0.05) && yield }
  end

  # ---- its life ----

  # behaviour: consumer.connected, consumer.closing, consumer.closed
  def test_a_consumer_publishes_its_connection_and_its_close_once
    name = filled(1)
    one = consumer
    seen = events(one.monitor, "consumer.connected", "consumer.closing", "consumer.closed")
    assert_empty seen
    one.assign(name => [0])
    one.watermarks(name, 0)
    assert_equal(["consumer.connected"], seen.map(&:id))
    assert_same one, seen.first[:caller]
    Array.new(3) { quiet_thread { one.close } }.each(&:join)
    one.close
    eventually { seen.size == 3 }
    assert_equal(%w[consumer.connected consumer.closing consumer.closed], seen.map(&:id))
    assert_equal [one.id], seen.map { |event| event[:consumer_id] }.uniq
    assert_predicate seen.last[:report], :complete?
    assert_kind_of Float, seen.last[:time]
  end

  def test_penstocks_monitor_gets_the_events_of_every_consumer
    name = filled(1)
    seen = events(Penstock.monitor, "consumer.connected", "messages.polled")
    ones = Array.new(2) { reading(name).tap { |one| take(one, 1) } }
    assert_equal ones.flat_map { |one| [["consumer.connected", one.id], ["messages.polled", one.id]] },
                 seen.map { |event| [event.id, event[:consumer_id]] }
  ensure
    Penstock.monitor.clear
  end

  def test_a_monitor_of_the_program_serves_several_consumers
    monitor = Penstock::Monitor.new
    name = filled(1)
    ones = Array.new(2) { reading(name) { |config| config.monitor = monitor } }
    seen = events(monitor, "messages.polled")
    ones.each { |one| take(one, 1) }
    assert_equal ones.map(&:id), (seen.map { |event| event[:consumer_id] })
    assert_same monitor, ones.first.monitor
  end

  def test_a_monitor_that_can_only_instrument_gets_every_event
    got = []
    monitor = Object.new
    monitor.define_singleton_method(:instrument) { |event, payload| got << [event, payload[:consumer_id]] }
    name = filled(1)
    one = reading(name) { |config| config.monitor = monitor }
    take(one, 1)
    assert_includes got, ["messages.polled", one.id]
  end

  # behaviour: consumer.connected, consumer.closing, consumer.closed
  def test_close_in_a_signal_trap_publishes_on_another_thread
    name = filled(1)
    one = reading(name)
    take(one, 1)
    lock = Mutex.new # a trap cannot lock it
    seen = []
    one.monitor.subscribe("consumer.closed") { |event| lock.synchronize { seen << [event, Thread.current] } }
    old = trap("USR2") { one.close }
    Process.kill("USR2", Process.pid)
    eventually { seen.any? }
    refute_same Thread.main, seen.first.last
  ensure
    trap("USR2", old)
  end

  # ---- messages ----

  # behaviour: messages.polled
  def test_polled_messages_are_published_as_the_poll_returns_them
    name = filled(5)
    one = reading(name)
    seen = events(one.monitor, "messages.polled")
    first = one.poll(timeout: 10)
    rest = one.poll_batch(timeout: 10)
    assert_equal [[first], rest], (seen.map { |event| event[:messages] })
    one.poll(timeout: 0)
    assert_equal 2, seen.size
  end

  def test_polled_messages_have_no_event_without_a_listener
    one = reading(filled(2))
    seen = events(one.monitor, "messages.polled")
    one.monitor.clear("messages.polled")
    take(one, 2)
    assert_empty seen
    assert_nil Internal.of(one).client.news
  end

  # Of the calling thread, whose interrupts are deferred.
  def await_interrupt = eventually { Thread.current.pending_interrupt? }

  # A caller that defers interrupts until it has the messages gets them, also if the listener blocks. The monitor would take the
  # interrupt for an error of the listener.
  # behaviour: messages.polled
  def test_an_interrupt_during_a_listener_of_messages_comes_after_the_poll
    one = reading(filled(1))
    entered = Queue.new
    one.monitor.subscribe("messages.polled") do
      entered << true
      await_interrupt
    end
    got = nil
    thread = quiet_thread do
      Thread.handle_interrupt(Timeout::Error => :on_blocking) { got = one.poll(timeout: 10) }
      Thread.pass
    rescue Timeout::Error
      :interrupted
    end
    entered.pop
    thread.raise(Timeout::Error)
    assert_equal :interrupted, thread.value
    assert_equal 0, got&.offset
  end

  def test_a_thread_that_is_killed_ends_after_its_listener_of_messages
    one = reading(filled(1))
    entered = Queue.new
    ended = false
    one.monitor.subscribe("messages.polled") do
      entered << true
      await_interrupt
      ended = true
    end
    thread = quiet_thread { one.poll(timeout: 10) }
    entered.pop
    thread.kill.join
    assert ended
  end

  # A subscription to another event reaches nobody, and no test that subscribes to several would notice.
  def test_subscriptions_to_each_event_of_the_core_reach_it
    kinds = Penstock::Consumer.const_get(:Notifier).const_get(:KINDS)
    assert_empty kinds.keys - Penstock::Monitor.const_get(:NATIVE)
  end

  # ---- rebalances ----

  # behaviour: rebalance.partitions_assigned, rebalance.partitions_revoked
  slow def test_assignments_and_revocations_have_the_partitions_and_where_they_begin
    name = filled(4, partitions: 3)
    listener = Object.new
    listener.define_singleton_method(:assigned) { |rebalance| rebalance.start_at(name, 2, :end) }
    one = group_consumer("group-#{name}", "auto.offset.reset": "latest") { |config| config.rebalance_listener = listener }
    one.commit({ name => { 0 => 3 } })
    one.subscribe(name)
    seen = events(one.monitor, "rebalance.partitions_assigned", "rebalance.partitions_revoked")
    polling(one) { seen.any? }
    assert_equal({ name => [0, 1, 2] }, seen.first[:partitions])
    assert_equal({ name => { 0 => { offset: 3, reason: :committed }, 1 => { offset: 4, reason: :auto_offset_reset },
                             2 => { offset: 4, reason: :start_at } } }, seen.first[:starts])
    one.close
    assert_equal %w[rebalance.partitions_assigned rebalance.partitions_revoked], seen.map(&:id)
    assert_equal [{ name => [0, 1, 2] }, false], seen.last.payload.values_at(:partitions, :lost)
  end

  # behaviour: rebalance.partitions_assigned, rebalance.partitions_revoked
  slow def test_the_assignment_is_published_after_the_rebalance_listener_and_before_its_messages
    name = filled(1)
    order = []
    listener = Object.new
    listener.define_singleton_method(:assigned) { |_| order << :listener }
    one = group_consumer("group-#{name}") { |config| config.rebalance_listener = listener }.subscribe(name)
    one.monitor.subscribe("rebalance.partitions_assigned") { order << :event }
    one.monitor.subscribe("messages.polled") { order << :messages }
    polling(one) { order.size == 3 }
    assert_equal %i[listener event messages], order
  end

  slow def test_a_rebalance_listener_that_raises_is_published_and_raises
    name = filled(1)
    listener = Object.new
    listener.define_singleton_method(:assigned) { |_| raise "no" }
    one = group_consumer("group-#{name}") { |config| config.rebalance_listener = listener }.subscribe(name)
    seen = events(one.monitor, "error.occurred")
    assert_raises(RuntimeError) { one.poll(timeout: 20) }
    assert_equal ["rebalance_listener.error", "no"], [seen.last[:type], seen.last[:error].message]
  end

  def revoking(name, seen = nil, &revoked)
    listener = Object.new
    listener.define_singleton_method(:revoked, &revoked)
    one = group_consumer("group-#{name}") { |config| config.rebalance_listener = listener }.subscribe(name)
    seen&.then { one.monitor.subscribe("consumer.closed") { |event| seen << event.payload[:report] } }
    take(one, 1)
    one
  end

  slow def test_close_closes_although_its_listener_raises
    one = revoking(filled(1), seen = []) { |_| raise "no" }
    assert_equal "no", assert_raises(RuntimeError) { one.close }.message
    assert_predicate one.status, :closed?
    assert_equal [true], seen.map(&:left_group)
    assert_predicate one.close, :complete?
  end

  slow def test_close_goes_on_after_an_interrupt_of_its_listener
    running = Queue.new
    one = revoking(filled(1)) do |_|
      running << true
      sleep
    end
    thread = quiet_thread { one.close }
    running.pop
    thread.kill.join
    eventually { one.status.closed? }
  end

  # ---- offsets ----

  # behaviour: offsets.committed, offsets.commit_failed
  slow def test_each_commit_is_published_with_its_offsets
    name = filled(3)
    one = group_consumer("group-#{name}", "enable.auto.commit": false).subscribe(name)
    seen = events(one.monitor, "offsets.committed", "offsets.commit_failed")
    take(one, 2, batch: 1)
    assert one.commit
    assert_equal [{ name => { 0 => 2 } }], (seen.map { |event| event[:offsets] })
    assert_kind_of Float, seen.last[:time]
    take(one, 1)
    one.commit(async: true)
    polling(one) { seen.size == 2 }
    assert_equal({ name => { 0 => 3 } }, seen.last[:offsets])
    refute seen.last.payload.key?(:time)
    one.close
    assert_equal 2, seen.size
    assert_equal [2, 0], one.metrics.to_a.values_at(5, 6)
  end

  # behaviour: offsets.committed, offsets.commit_failed
  def test_periodic_commits_are_published_for_partitions_with_new_offsets
    name = topic(partitions: 2)
    produce(name, %w[a b c], partition: 0)
    one = group_consumer("group-#{name}", "auto.commit.interval.ms": 50).assign(name => [0, 1])
    seen = events(one.monitor, "offsets.committed")
    take(one, 3)
    polling(one) { seen.any? }
    assert_equal({ name => { 0 => 3 } }, seen.last[:offsets])
  end

  slow def test_the_commit_of_a_close_is_published_before_it_returns
    name = filled(3)
    one = group_consumer("group-#{name}", "auto.commit.interval.ms": 60_000).subscribe(name)
    seen = events(one.monitor, "offsets.committed", "consumer.closed")
    take(one, 3)
    one.close
    assert_equal %w[offsets.committed consumer.closed], seen.map(&:id)
    assert_equal({ name => { 0 => 3 } }, seen.first[:offsets])
  end

  # behaviour: offsets.committed, offsets.commit_failed
  def test_a_commit_that_fails_is_published_with_its_error
    name = filled(1)
    one = group_consumer("group-#{name}", "enable.auto.commit": false)
    seen = events(one.monitor, "offsets.commit_failed", "offsets.committed")
    error = assert_raises(Penstock::CommitError) { one.commit({ "no-such-topic" => { 0 => 5 } }) }
    assert_equal ["offsets.commit_failed"], seen.map(&:id)
    assert_same error, seen.last[:error]
    one.commit({ "no-such-topic" => { 0 => 6 } }, async: true)
    polling(one) { seen.size == 2 }
    assert_equal ["offsets.commit_failed", { "no-such-topic" => { 0 => 6 } }], [seen.last.id, seen.last[:offsets]]
    assert_kind_of Penstock::CommitError, seen.last[:error]
    assert_equal [0, 2], one.metrics.to_a.values_at(5, 6)
  end

  def test_a_commit_that_fails_for_one_partition_has_two_events
    one = consumer
    seen = events(one.monitor, "offsets.commit_failed", "offsets.committed")
    places = [["a", 0, 5, nil], ["a", 1, 6, :error]]
    Internal.of(one).notifier.send(:publish, kind: :commit, places:, error: nil, lost: false)
    assert_equal [["offsets.committed", { "a" => { 0 => 5 } }], ["offsets.commit_failed", { "a" => { 1 => 6 } }]],
                 (seen.map { |event| [event.id, event[:offsets]] })
    assert_equal :error, seen.last[:error]
  end

  # ---- errors ----

  slow def test_errors_of_connections_are_published
    one = unreachable_consumer
    seen = events(one.monitor, "error.occurred")
    one.assign("events" => [0])
    polling(one) { seen.any? }
    assert_equal ["librdkafka.error", one.id], seen.first.payload.values_at(:type, :consumer_id)
    assert_kind_of Penstock::ClusterError, seen.first[:error]
    assert_operator one.metrics.errors, :>, 0
  end

  def test_an_error_that_a_poll_raises_is_published
    name = filled(1)
    one = consumer("auto.offset.reset": "error").assign(name => { 0 => 1_000 })
    seen = events(one.monitor, "error.occurred")
    error = assert_raises(Penstock::ConsumeError) { one.poll(timeout: 20) }
    mine = seen.find { |event| event[:type] == "consumer.poll" }
    assert_same error, mine[:error]
    assert_equal error.topic, mine[:topic]
  end

  def test_a_listener_that_raises_does_not_disturb_the_poll
    one = reading(filled(1))
    seen = events(one.monitor, "error.occurred")
    one.monitor.subscribe("messages.polled") { raise "my own" }
    assert_equal 0, one.poll(timeout: 10).offset
    assert_equal ["listener.error", "messages.polled", one.id], seen.last.payload.values_at(:type, :event, :consumer_id)
  end

  # ---- threads and processes ----

  slow def test_a_slow_listener_delays_only_the_thread_that_publishes
    name = filled(1)
    one = group_consumer("group-#{name}", "enable.auto.commit": false).subscribe(name)
    entered = Queue.new
    leave = Queue.new
    one.monitor.subscribe("offsets.committed") do
      entered << true
      leave.pop
    end
    take(one, 1)
    one.commit(async: true)
    slow = quiet_thread { one.poll(timeout: 0.1) until entered.closed? }
    entered.pop
    produce(name, ["more"])
    assert_equal 1, take(one, 1).size
    entered.close
  ensure
    leave << true
    leave.close
    slow&.join
  end

  def test_a_listener_may_poll_and_close
    one = reading(filled(3))
    got = []
    one.monitor.subscribe("consumer.connected") { nil }
    one.monitor.subscribe("messages.polled") do |event|
      got.concat(event[:messages].to_a)
      got.size < 3 ? one.poll(timeout: 10) : one.close
    end
    one.poll(timeout: 10)
    assert_equal [0, 1, 2], got.map(&:offset).sort
    assert_predicate one, :closed?
  end

  slow def test_a_fork_child_does_not_publish_the_parents_events
    name = filled(1)
    one = group_consumer("group-#{name}").subscribe(name)
    seen = events(one.monitor, *(Penstock::Monitor::EVENTS - %w[statistics.emitted]))
    take(one, 1)
    found = in_child do
      seen.clear
      one.monitor.subscribe("statistics.emitted") { nil }
      one.close
      [one.status.to_s, seen.size, one.metrics.messages]
    end
    assert_equal ["forked", 0, 0], found
  end

  def test_a_consumer_that_a_fork_child_opens_publishes_there
    name = filled(1)
    one = consumer
    seen = events(one.monitor, "consumer.connected", "messages.polled")
    found = in_child do
      one.assign(name => { 0 => :beginning })
      one.poll(timeout: 20)
      one.close
      seen.map(&:id)
    end
    assert_equal %w[consumer.connected messages.polled], found
    assert_empty seen
  end

  # ---- news that nobody polls ----

  slow def test_events_that_are_never_published_are_dropped_and_counted
    name = filled(1)
    one = group_consumer("group-#{name}", "enable.auto.commit": false).subscribe(name)
    take(one, 1)
    seen = events(one.monitor, "offsets.committed")
    without_publishing(one) { commit_one_by_one(one, name, 1_100) }
    one.poll(timeout: 0)
    assert_equal [100, 1_000], [one.metrics.dropped_events, seen.size]
    assert_equal({ name => { 0 => 1_100 } }, seen.last[:offsets])
  end

  # As if a listener did not return.
  def without_publishing(one)
    Internal.of(one).notifier.instance_variable_set(:@publishing, true)
    yield
  ensure
    Internal.of(one).notifier.instance_variable_set(:@publishing, false)
  end

  # Later ones would be coalesced.
  def commit_one_by_one(one, name, count)
    count.times do |i|
      one.commit({ name => { 0 => i + 1 } }, async: true)
      Thread.pass until one.metrics.commits == i + 1
    end
  end

  slow def test_statistics_come_again_after_one_of_them_was_dropped
    name = filled(1)
    one = group_consumer("group-#{name}", "enable.auto.commit": false, "statistics.interval.ms": 20).subscribe(name)
    take(one, 1)
    seen = events(one.monitor, "statistics.emitted", "offsets.committed")
    polling(one) { seen.any? }
    without_publishing(one) do
      before = one.statistics["ts"]
      polling(one) { one.statistics["ts"] > before } # one waits to be published
      commit_one_by_one(one, name, 1_100)
    end
    polling(one) { one.metrics.dropped_events > 99 }
    seen.clear
    polling(one) { seen.count { |event| event.id == "statistics.emitted" } > 1 }
  end

  # ---- numbers ----

  def test_metrics_count_what_polls_return
    name = filled(5)
    one = reading(name)
    take(one, 5, batch: 2)
    before = one.metrics.empty_polls
    one.poll(timeout: 0)
    metrics = one.metrics
    assert_predicate metrics, :frozen?
    assert_equal [5, 15, before + 1, 1], metrics.to_h.values_at(:messages, :bytes, :empty_polls, :assigned_partitions)
    assert_operator metrics.batches, :>=, 3
    one.pause(name => [0])
    one.pause(name => [0])
    assert_equal 1, one.metrics.pauses
    one.assign({})
    assert_equal 0, one.metrics.assigned_partitions
    one.close
    assert_equal [5, 0], one.metrics.to_h.values_at(:messages, :queue_length)
    assert_equal 5, one.metrics.as_json["messages"]
  end

  def test_metrics_count_rebalances_and_assigned_partitions
    name = filled(1, partitions: 3)
    %w[range cooperative-sticky].each do |assignor|
      one = group_consumer("group-#{assignor}-#{name}", "partition.assignment.strategy": assignor).subscribe(name)
      polling(one) { one.metrics.assigned_partitions == 3 }
      assert_equal 1, one.metrics.rebalances
      one.close
      assert_equal [2, 0], one.metrics.to_h.values_at(:rebalances, :assigned_partitions), assignor
    end
  end

  # ---- what comes again ----

  def test_messages_that_come_again_are_an_event
    name = filled(4, partitions: 2)
    one = reading(name, partitions: [0, 1])
    seen = events(one.monitor, "messages.rewound")
    messages = take(one, 8)
    assert_empty seen
    assert one.rewind(messages.find { |message| message.partition == 1 && message.offset == 2 })
    polling(one) { seen.any? }
    assert_equal [{ name => { 1 => 2 } }], (seen.map { |event| event[:offsets] })
    one.seek(name, 1, 0) # the program has chosen the place: no message comes again by itself
    take(one, 1)
    assert_equal 1, seen.size
  end

  # librdkafka's marks are counted before.
  def test_a_poll_that_finds_nothing_leaves_an_empty_queue
    one = reading(name = topic(partitions: 2), partitions: [0, 1])
    [-> { one.seek(name, 0, 0) }, -> { one.pause }, -> { one.resume }, -> { one.assign(name => { 1 => 0 }) }].each do |change|
      change.call
      eventually { one.poll(timeout: 0.05).nil? && one.metrics.queue_length.zero? }
    end
  end

  def test_the_queue_length_is_what_is_fetched_and_not_polled
    one = reading(filled(20))
    take(one, 1, batch: 1)
    eventually { one.metrics.queue_length == 19 }
  end

  # ---- statistics ----

  def test_statistics_come_to_listeners_and_on_demand
    name = filled(1)
    one = reading(name, "statistics.interval.ms": 50)
    assert_nil one.statistics
    seen = events(one.monitor, "statistics.emitted")
    polling(one) { seen.size >= 2 }
    assert_equal one.id, seen.last[:consumer_id]
    assert_equal seen.last[:statistics]["client_id"], one.statistics["client_id"]
    assert_kind_of Numeric, seen.last.delta("ts")
    assert_predicate one.statistics, :frozen?
    assert_match(/consumer_id/, seen.last.as_json.keys.join(" "))
  end

  def test_statistics_are_on_by_default_if_there_is_a_listener_at_the_first_use
    name = filled(1)
    plain = reading(name)
    take(plain, 1)
    interval = ->(one) { Internal.of(one).notifier.instance_variable_get(:@interval) }
    log = StringIO.new
    late = reading(name) { |config| config.logger = Logger.new(log) }
    take(late, 1)
    late.monitor.subscribe("statistics.emitted") { nil }
    eventually { log.string.include?("never published") }
    listened = consumer
    listened.monitor.subscribe("statistics.emitted") { nil }
    listened.assign(name => { 0 => :beginning })
    take(listened, 1)
    assert_equal %w[0 0 5000], [plain, late, listened].map(&interval)
  end

  # librdkafka goes on to list partitions that were taken away, and writes -1 and -1001 for unknown numbers.
  def test_statistics_have_only_assigned_partitions_and_no_numbers_that_stand_for_unknown
    name = filled(3, partitions: 2)
    one = reading(name, partitions: [0, 1], "statistics.interval.ms": 20)
    seen = events(one.monitor, "statistics.emitted")
    partitions = ->(statistics) { statistics["topics"].fetch(name, {}).fetch("partitions", {}) }
    polling(one) { seen.any? && partitions.call(seen.last[:statistics]).keys.sort == %w[0 1] }
    one.assign(name => { 0 => :beginning })
    take(one, 3)
    polling(one) { partitions.call(seen.last[:statistics]).keys == %w[0] }
    assert_includes JSON.parse(seen.last.json)["topics"][name]["partitions"].keys, "1"
    numbers = [seen.last[:statistics], one.statistics].flat_map { |statistics| partitions.call(statistics)["0"].values }
    assert_empty(numbers.select { |number| number.is_a?(Integer) && number.negative? })
    assert_includes numbers, nil
    assert Ractor.shareable?(one.statistics)
  end

  # librdkafka writes the client's id into its JSON as it is, and no other setting gets there. So the listener's error is one of
  # JSON's only with other texts.
  def test_a_listener_that_cannot_read_the_statistics_stops_no_poll_and_no_close
    name = filled(1)
    one = reading(name, "statistics.interval.ms": 20)
    errors = events(one.monitor, "error.occurred")
    one.monitor.subscribe("statistics.emitted") { |event| event[:statistics] }
    Internal.of(one).client.define_singleton_method(:statistics) { "{ \"client_id\": \"a\"b\" }" }
    polling(one) { errors.size > 1 }
    assert_equal [["callbacks.statistics.error", JSON::ParserError, one.id]],
                 errors.map { |event| [event[:type], event[:error].class, event[:consumer_id]] }.uniq
    assert_predicate one.close, :complete?
  end

  def test_a_monitor_of_the_program_that_raises_stops_no_poll_and_no_close
    monitor = Object.new
    def monitor.instrument(*) = raise(NotImplementedError, "not yet")
    one = consumer("statistics.interval.ms": 20) { |config| config.monitor = monitor }
    _, stderr = capture_io do
      one.assign(filled(1) => { 0 => :beginning })
      take(one, 1)
      polling(one) { one.statistics }
      assert_predicate one.close, :complete?
    end
    %w[consumer.connected messages.polled statistics.emitted consumer.closed].each do |event|
      assert_match(/config\.monitor raised NotImplementedError: not yet .*when it published #{event}/, stderr)
    end
  end

  # ---- status, tags ----

  def test_status_follows_the_life_of_a_consumer
    one = consumer
    assert_equal [:configured, true], [one.status.to_sym, one.status.active?]
    one.assign("events" => [0])
    assert_predicate one.status, :connected?
    one.close
    assert_predicate one.status, :closed?
    assert_equal "closed", one.status.to_s
    assert_equal "closed", one.status.as_json["status"]
    assert_equal "#<Penstock::ConsumerStatus closed>", one.status.inspect
  end

  def test_a_consumer_has_tags
    one = consumer
    one.tags.add(:kind, "billing")
    assert_equal ["billing"], one.tags.to_a
  end

  # ---- other Ractors ----

  def test_a_consumer_of_another_ractor_has_listeners_there
    name = filled(2)
    seen = ruby!(<<~RUBY, cluster.bootstrap_servers, name)
      servers, name = *ARGV
      Penstock.monitor.subscribe("messages.polled") { raise "not of other Ractors" }
      seen = Ractor.new(servers, name) do |servers, name|
        one = Penstock::Consumer.new("bootstrap.servers": servers)
        names = []
        one.monitor.subscribe("messages.polled") { |event| names << event.id }
        one.monitor.subscribe("consumer.closed") { |event| names << event.id }
        one.assign(name => { 0 => :beginning })
        2.times { one.poll(timeout: 20) }
        one.close
        [*names, one.status.to_s, one.metrics.messages, one.tags.to_a.size]
      end.take
      puts seen.join(" ")
    RUBY
    assert_equal "messages.polled messages.polled consumer.closed closed 2 0", seen.chomp
  end
end
