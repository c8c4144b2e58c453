# frozen_string_literal: true

require "net/http"
require_relative "../test_helper"
require_relative "../support/metrics_test_case"
require_relative "../support/http_server"
require_relative "../support/exposition"

# Penstock::Listeners::Prometheus, see docs/listeners-prometheus.md.
class ListenersPrometheusTest < MetricsTestCase
  def setup
    super
    @metrics = Penstock::Listeners::Prometheus.new
  end

  def page(metrics = @metrics) = Exposition.new(metrics.to_s)

  def named(id = "orders") = producer { |config| config.id = id }

  # ---- over HTTP ----

  # behaviour: a bus for all producers, ready-made listeners
  def test_the_page_is_served_over_http
    server = HTTPServer.new(@metrics)
    one = named
    one.monitor.subscribe(@metrics)
    one.produce_many_sync(Array.new(10) { { topic: "t", payload: "12", key: "3" } })
    answer = Net::HTTP.get_response(server.url)
    assert_equal ["200", "text/plain; version=0.0.4; charset=utf-8"], [answer.code, answer["content-type"]]
    page = Exposition.new(answer.body)
    assert_equal [10, 30, 10, 0, 0], (%w[messages message_bytes messages_delivered messages_failed messages_purged].map do |name|
      page.value("penstock_#{name}_total", producer_id: "orders")
    end)
    assert_equal [1, 0, 0, 1], (%w[connected queue_messages buffer_messages connections_total].map do |name|
      page.value("penstock_#{name}", producer_id: "orders")
    end)
    assert_equal 10, page.value("penstock_delivery_seconds_count", producer_id: "orders")
    assert_operator page.value("penstock_delivery_seconds_sum", producer_id: "orders"), :>, 0
    assert_equal 1, page.value("penstock_info", version: Penstock::VERSION, librdkafka: Penstock.librdkafka_version)
    assert_equal page.types.keys, page.helps.keys
  ensure
    server&.close
  end

  def test_methods_other_than_get_and_head_are_rejected
    server = HTTPServer.new(@metrics)
    Net::HTTP.start(server.url.host, server.url.port) do |http|
      head = http.head("/anything")
      assert_equal ["200", nil], [head.code, head.body]
      assert_operator Integer(head["content-length"]), :>, 0
    end
    Net::HTTP.start(server.url.host, server.url.port) do |http|
      post = http.post("/metrics", "x", "content-type" => "text/plain")
      assert_equal ["405", "GET, HEAD"], [post.code, post["allow"]]
    end
    assert_equal [200, []], @metrics.call({ "REQUEST_METHOD" => "HEAD" }).values_at(0, 2)
  ensure
    server&.close
  end

  def test_a_page_without_producers_is_valid
    assert_equal ["penstock_info"], page.samples.map(&:name)
  end

  # ---- counters ----

  # behaviour: a bus for all producers, ready-made listeners
  def test_counters_continue_after_a_disconnect_a_reload_and_a_close
    one = recovering
    one.monitor.subscribe(@metrics)
    outlive_two_clients(one, topic)
    delivered = -> { page.value("penstock_messages_delivered_total", producer_id: one.id) }
    assert_equal 3, delivered.call
    4.times { |i| one.produce_async(topic:, payload: i.to_s) }
    one.close
    2.times { assert_equal 7, delivered.call }
    page = self.page
    assert_equal [1, 2, 0, 7], (%w[reloads_total connections_total connected delivery_seconds_count].map do |name|
      page.value("penstock_#{name}", producer_id: one.id) - (name == "connections_total" ? 1 : 0)
    end)
    assert_nil page.value("penstock_queue_messages", producer_id: one.id)
  end

  # A producer that is disconnected again and again, while other threads send with it and read the page.
  def test_counters_never_go_back_while_clients_come_and_go
    one = named
    variant = one.with(topic_config: { acks: 1 })
    one.monitor.subscribe(@metrics)
    name = topic
    stop = false
    senders = [one, variant].map { |way| Thread.new { 30.times { way.produce_async(topic: name, payload: "x") } } }
    reader = quiet_thread do
      before = {}
      until stop
        counters = page.counters
        back = before.reject { |key, value| counters.fetch(key) >= value }
        assert_empty back
        before = counters
      end
    end
    one.disconnect while senders.any?(&:alive?)
    one.close
    stop = true
    [*senders, reader].each(&:join)
    assert_equal [60, 60], (%w[messages messages_delivered].map { |counter| page.value("penstock_#{counter}_total") })
  end

  # A stand-in for a client that has counted messages and is closed.
  Client = Struct.new(:counters, :latencies, :state)

  def test_a_client_that_closes_during_a_read_is_counted_once
    connection = Penstock::Producer.const_get(:Connection).new(nil)
    others = connection.instance_variable_get(:@others) << Client.new({ messages: 5, delivered: 5 }, {}, :closed)
    read = []
    others.define_singleton_method(:delete) do |client|
      read << connection.totals.messages
      super(client).tap { read << connection.totals.messages }
    end
    read << connection.totals.messages
    connection.send(:forget_closed)
    assert_equal [5, 5, 5], read
  end

  def snapshot(delivered) = Internal::CounterSnapshot.of(Client.new({ messages: 5, delivered: }, {}, :closed))

  # A stand-in for a producer whose client could not be closed in time.
  Disconnected = Struct.new(:totals, :past_totals) do
    def over? = false
    def without_client? = true
  end

  def test_a_disconnected_producer_is_read_until_all_its_delivery_results_are_in
    ledger = Penstock::Listeners.const_get(:MetricsLedger).new
    so_far, in_the_end = [4, 5].map { |number| snapshot(number) }
    one = Disconnected.new(so_far, Internal::CounterSnapshot::NONE)
    ledger.watch(one)
    assert_equal [4, 0], (Array.new(2) { ledger.collect.sum { |_, grown| grown.delivered } })
    one.totals = one.past_totals = in_the_end
    assert_equal [1, 0], (Array.new(2) { ledger.collect.sum { |_, grown| grown.delivered } })
    assert_empty ledger.producers
  end

  # A stand-in for a producer that gets its last delivery result, and is then over, right after it was read.
  class ClosedMeanwhile
    def initialize(*totals) = @totals = totals
    def totals = @totals.size > 1 ? @totals.shift : @totals.first
    def over? = @totals.size == 1
    def past_totals = Internal::CounterSnapshot::NONE
    def without_client? = over?
  end

  def test_a_producer_that_closes_while_it_is_read_is_read_again
    ledger = Penstock::Listeners.const_get(:MetricsLedger).new
    ledger.watch(ClosedMeanwhile.new(*[4, 5].map { |number| snapshot(number) }))
    assert_equal [4, 1], (Array.new(2) { ledger.collect.sum { |_, grown| grown.delivered } })
    assert_empty ledger.producers
  end

  slow def test_delivery_results_during_a_close_are_counted_even_if_the_page_is_read_meanwhile
    slow = own_cluster(brokers: 1).tap { |own| own.set_round_trip_time(seconds: 0.3) }
    one = producer(servers: slow.bootstrap_servers)
    one.monitor.subscribe(@metrics)
    5.times { one.produce_async(topic: "t", payload: "x") }
    closing = Thread.new { one.close }
    Thread.pass until one.closed?
    pages = Array.new(5) { page.value("penstock_messages_delivered_total") }
    closing.join
    assert_equal [0, 5], [pages.last, page.value("penstock_messages_delivered_total")]
  end

  def test_a_later_producer_with_the_same_id_continues_the_counters
    Penstock.monitor.subscribe(@metrics)
    3.times do
      one = named
      one.produce_sync(topic: "t", payload: "x")
      one.close
    end
    assert_equal [3, 0], [page.value("penstock_messages_total"), page.value("penstock_connected")]
  end

  def test_producers_that_were_already_connected_are_on_the_page_too
    ones = Array.new(2) { |i| named("number #{i}") }
    ones.each { |one| one.produce_sync(topic: "t", payload: "x") }
    Penstock.monitor.subscribe(@metrics)
    assert_equal [1, 1], (Array.new(2) { |i| page.value("penstock_messages_total", producer_id: "number #{i}") })
    own = Penstock::Listeners::Prometheus.new
    ones.first.monitor.subscribe(own)
    assert_equal ["number 0"], page(own).samples.filter_map { |sample| sample.labels["producer_id"] }.uniq
  end

  slow def test_messages_that_fail_or_are_purged_are_counted_as_such
    one = unreachable_producer("message.timeout.ms": 50)
    one.monitor.subscribe(@metrics)
    one.produce_async(topic: "t", payload: "x")
    eventually { page.value("penstock_messages_failed_total") == 1 }
    eventually { page.value("penstock_errors_total", type: "librdkafka.dispatch_error", code: "msg_timed_out") == 1 }
    another = unreachable_producer
    another.monitor.subscribe(@metrics)
    another.produce_many_async([{ topic: "t", payload: "x" }] * 5)
    assert_equal 5, page.value("penstock_queue_messages", producer_id: another.id)
    another.purge
    eventually { page.value("penstock_messages_purged_total", producer_id: another.id) == 5 }
  end

  def test_errors_transactions_and_slow_listeners_are_counted
    one = producer("transactional.id": "txn-#{rand(2**64)}")
    one.monitor.subscribe(@metrics)
    2.times { one.transaction { one.produce_sync(topic:, payload: "x") } }
    one.transaction { raise Penstock::AbortTransaction }
    2.times { assert_raises(Penstock::Error) { one.produce_sync(topic: "no topic", payload: "x") } }
    publish(@metrics, "listener.slow", listener: "x", event: "y", time: 2_000.0)
    page = self.page
    committed, aborted = %w[committed aborted].map { |outcome| page.value("penstock_transactions_total", outcome:) }
    assert_equal 2, committed
    assert_operator aborted, :>=, 1
    assert_equal 2, page.value("penstock_errors_total", type: "message.produce_sync", code: "MessageInvalidError")
    assert_equal 1, page.value("penstock_slow_listeners_total")
    assert_equal 3, page.value("penstock_transaction_seconds_count")
  end

  def test_times_are_counted_in_the_right_buckets
    [0.5, 1.0, 1.1, 99_999.0].each { |time| publish(@metrics, "transaction.finished", time:) }
    page = self.page
    buckets = %w[0.001 0.0025 60 +Inf].map { |le| page.value("penstock_transaction_seconds_bucket", le:) }
    assert_equal [2, 3, 3, 4], buckets
    assert_in_delta 100.0016, page.value("penstock_transaction_seconds_sum")
  end

  # ---- labels ----

  def test_labels_are_escaped_and_valid_utf8
    odd = "a\"b\\n\nc"
    one = named(odd)
    metrics = Penstock::Listeners::Prometheus.new(labels: { site: "x\\\"\n" }, namespace: "shop")
    one.monitor.subscribe(metrics)
    one.produce_sync(topic: "t", payload: "x")
    publish(metrics, "error.occurred", type: "\xFF\"", error: RuntimeError.new("x"))
    page = page(metrics)
    assert_equal 1, page.value("shop_messages_total", producer_id: odd, site: "x\\\"\n")
    assert_equal 1, page.value("shop_errors_total", type: "?\"", code: "RuntimeError")
    assert(page.samples.all? { |sample| sample.labels["site"] == "x\\\"\n" })
  end

  def test_the_listener_subscribes_to_message_events_only_if_topics_are_requested
    monitor = Penstock::Monitor.new(above: nil)
    monitor.subscribe(@metrics)
    listened = Penstock::Monitor::EVENTS.select { |event| monitor.listening?(event) }
    assert_empty listened.grep(/message|statistics/)
    monitor.subscribe(Penstock::Listeners::Prometheus.new(topics: 1))
    assert(%w[message.produced_sync messages.produced_async].all? { |event| monitor.listening?(event) })
  end

  def test_topics_over_the_limit_share_one_label
    metrics = Penstock::Listeners::Prometheus.new(topics: 2)
    one = named
    one.monitor.subscribe(metrics)
    one.produce_sync(topic: "a", payload: "x")
    one.produce_many_sync([{ topic: :a, payload: "x" }, { topic: "b", payload: "x" }, { topic: "c", payload: "x" },
                           { topic: "d", payload: "x" }])
    one.produce_async(topic: "a", payload: "x")
    page = page(metrics)
    assert_equal [2, 1, 2, 1], ([%w[a sync], %w[b sync], ["(other)", "sync"], %w[a async]].map do |topic, mode|
      page.value("penstock_messages_by_topic_total", topic:, mode:)
    end)
  end

  def test_the_most_recently_closed_producers_stay_on_the_page
    metrics = Penstock::Listeners::Prometheus.new(max_closed: 2)
    Penstock.monitor.subscribe(metrics)
    once = ->(id) { named(id).tap { |one| one.produce_sync(topic: "t", payload: "x") } }
    %w[a b a c a e].each { |id| once.call(id).close }
    once.call("e") # connects the producer
    %w[d a].each { |id| once.call(id).close }
    page = page(metrics)
    assert_equal({ "d" => 1, "a" => 4, "e" => 2 }.sort,
                 page.samples.select { |sample| sample.name == "penstock_messages_total" }
                     .map { |sample| [sample.labels["producer_id"], sample.value.to_i] }.sort)
  end

  # ---- life ----

  def test_a_fork_child_starts_at_zero_and_the_parent_process_continues
    one = named
    one.monitor.subscribe(@metrics)
    name = topic
    3.times { one.produce_sync(topic: name, payload: "x") }
    one.disconnect
    one.produce_sync(topic: name, payload: "x")
    assert_equal 4, page.value("penstock_messages_total")
    counts = in_child do
      before = page.value("penstock_messages_total")
      2.times { one.produce_sync(topic: name, payload: "x") }
      [before, page.value("penstock_messages_total"), page.value("penstock_delivery_seconds_count")]
    end
    assert_equal [0, 2, 2], counts
    assert_equal 4, page.value("penstock_messages_total")
  end

  def test_messages_sent_in_a_signal_trap_are_counted
    metrics = Penstock::Listeners::Prometheus.new(topics: 1)
    one = named
    one.monitor.subscribe(metrics)
    one.produce_sync(topic: "t", payload: "x")
    before = trap(:USR2) { one.produce_async(topic: "t", payload: "x") }
    Process.kill(:USR2, Process.pid)
    eventually { page(metrics).value("penstock_messages_total") == 2 }
    assert_equal 1, page(metrics).value("penstock_messages_by_topic_total", mode: "async")
  ensure
    trap(:USR2, before)
  end

  def test_a_closed_producer_can_be_garbage_collected
    Penstock.monitor.subscribe(@metrics)
    one = named
    one.produce_sync(topic: "t", payload: "x")
    one.close
    assert_empty @metrics.send(:books).producers
    another = named
    another.produce_sync(topic: "t", payload: "x")
    another.disconnect
    assert_empty @metrics.send(:books).producers
  end

  def test_wrong_arguments_are_rejected
    { { namespace: "a b" } => /namespace must be/, { labels: { "a-b": 1 } } => /labels must be/, { labels: nil } => /labels/,
      { topics: nil } => /topics must be an Integer/ }.each do |options, message|
      assert_match message, assert_raises(ArgumentError) { Penstock::Listeners::Prometheus.new(**options) }.message
    end
  end
end
