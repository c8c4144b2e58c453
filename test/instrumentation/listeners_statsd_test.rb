# frozen_string_literal: true

require "socket"
require_relative "../test_helper"
require_relative "../support/metrics_test_case"

# Penstock::Listeners::Statsd, see docs/listeners-statsd.md. The tests read the datagrams from a socket.
class ListenersStatsdTest < MetricsTestCase
  # One line: a number, its type, its sample rate, and tags.
  Line = Struct.new(:name, :number, :type, :share, :tags)
  NEVER = 3_600 # seconds between two reports: the test triggers them itself

  def setup
    super
    @server = UDPSocket.new
    @server.bind("127.0.0.1", 0)
    @listeners = []
    @datagrams = []
  end

  def teardown
    @listeners.each(&:close)
    super
    @server.close
  end

  def statsd(interval: NEVER, rd_kafka: {}, **options)
    Penstock::Listeners::Statsd.new(host: "127.0.0.1", port: @server.addr[1], interval:, rd_kafka:, **options)
                               .tap { |made| @listeners << made }
  end

  # @return [Array<Line>] all received so far
  def lines
    while (datagram = @server.recv_nonblock(65_536, exception: false)).is_a?(String)
      @datagrams << datagram
    end
    @datagrams.flat_map { |text| text.split("\n", -1).map { |line| parsed(line) } }
  end

  LINE = /\A([\w.()-]+):(-?\d+(?:\.\d+)?)\|(c|g|h|d|ms)(?:\|@([\d.]+))?(?:\|#(.*))?\z/

  def parsed(line)
    match = line.match(LINE) or flunk "no line: #{line.inspect}"
    name, number, type, share, tags = match.captures
    Line.new(name, Float(number), type, share && Float(share), (tags || "").split(",").to_h { |tag| tag.split(":", 2) })
  end

  # @return [Float] the sum of all counts received so far
  def sum(name, **tags)
    lines.select { |line| line.name == name && tags.all? { |tag, value| line.tags[tag.to_s] == value } }.sum(&:number)
  end

  def last(name) = lines.reverse.find { |line| line.name == name }

  def failing(code = :msg_timed_out) = Penstock::DeliveryError.new("for a test", code:)

  # ---- counts ----

  def test_tags_with_invalid_utf8_or_control_characters_are_cleaned_and_sent
    listener = statsd(tags: { env: "a\xFF\r\n\e|b" })
    publish(listener, "error.occurred", type: "x\xFF\e", error: RuntimeError.new("y"))
    listener.close
    env = lines.find { |line| line.name.end_with?("errors") }.tags
    assert_equal ["a?____b", "x?_"], env.values_at("env", "type").map { |tag| tag.dup.force_encoding(Encoding::UTF_8) }
  end

  # behaviour: a bus for all producers, ready-made listeners
  def test_calls_delivery_results_and_bytes_are_counted
    listener = statsd(tags: { env: "test" })
    one = producer { |config| config.id = "orders" }
    one.monitor.subscribe(listener)
    one.produce_sync(topic: "bills", payload: "12345", key: "678")
    one.produce_many_sync(Array.new(30) { |i| { topic: i < 10 ? "bills" : :mails, payload: "x" } })
    one.produce_async(topic: "bills", payload: "x").wait
    one.produce_many_async([{ topic: "bills", payload: "x" }]).each(&:wait)
    listener.flush
    assert_equal [33.0, 40.0, 33.0, 0.0], sums("messages.taken", "bytes.taken", "messages.delivered", "messages.failed")
    assert_equal [31.0, 2.0, 1.0], sums("messages.produced_sync", "messages.produced_async", "connections")
    assert_equal [11.0, 20.0], %w[bills mails].map { |topic| sum("penstock.messages.produced_sync", topic:) }
    assert_equal [{ "env" => "test", "producer" => "orders" }], lines.map { |line| line.tags.slice("env", "producer") }.uniq
    assert_equal %w[c], lines.select { |line| line.name == "penstock.messages.taken" }.map(&:type)
    assert_equal ["h"], lines.select { |line| line.name == "penstock.produce_many_sync.time" }.map(&:type)
    assert_equal({ "env" => "test", "producer" => "orders", "topic" => "bills" }, last("penstock.produce_sync.time").tags)
    assert_operator last("penstock.delivery.time.p95").number, :>, 0
  end

  def sums(*names) = names.map { |name| sum("penstock.#{name}") }

  def test_a_message_sends_no_datagram_of_its_own_and_datagrams_fit_a_packet
    listener = statsd
    one = producer
    one.monitor.subscribe(listener)
    name = topic
    5_000.times { one.produce_async(topic: name, payload: "x") }
    one.produce_many_sync(Array.new(60) { |i| { topic: "#{name}-#{i}", payload: "x" } })
    one.flush
    eventually do
      listener.flush
      sum("penstock.messages.delivered") == 5_060
    end
    refute one.monitor.listening?("message.acknowledged")
    assert_equal 5_060, sum("penstock.messages.produced_async") + sum("penstock.messages.produced_sync")
    assert_operator @datagrams.size, :<, 50
    assert_operator @datagrams.map(&:bytesize).max, :<=, 1_432
    assert_operator @datagrams.map(&:bytesize).max, :>, 1_000
  end

  def test_many_times_are_sampled_and_sent_with_their_sample_rate
    listener = statsd(topics: 0)
    1_000.times { |i| publish(listener, "message.produced_sync", message: { topic: "t" }, time: i.to_f) }
    listener.flush
    times = lines.select { |line| line.name == "penstock.produce_sync.time" }
    assert_equal 100, times.size
    assert_equal [0.1], times.map(&:share).uniq
    assert_operator times.map(&:number).max, :>, 500 # samples are drawn from all times, not from the first ones
    assert_equal 1_000, sum("penstock.messages.produced_sync")
  end

  def test_a_disconnect_a_reload_and_a_close_neither_lose_counts_nor_double_them
    listener = statsd
    one = recovering
    one.monitor.subscribe(listener)
    listener.flush
    outlive_two_clients(one, topic)
    listener.flush
    listener.flush
    assert_equal 3, sum("penstock.messages.delivered")
    4.times { |i| one.produce_async(topic:, payload: i.to_s) }
    one.close
    eventually { sum("penstock.messages.delivered") == 7 } # at once, whatever the interval is
    listener.flush
    assert_equal [7.0, 1.0, 1.0], sums("messages.delivered", "reloads", "disconnections")
    assert_equal 0, last("penstock.queue.messages").number
    assert_equal 0, last("penstock.producers.connected").number
  end

  def test_a_producer_that_was_already_connected_is_counted_too
    ones = Array.new(2) { producer }
    ones.each { |one| one.produce_sync(topic:, payload: "x") }
    by_itself = statsd
    ones.first.monitor.subscribe(by_itself)
    by_itself.flush
    assert_equal 1, sum("penstock.messages.delivered")
    of_all = statsd(namespace: "all")
    Penstock.monitor.subscribe(of_all)
    of_all.flush
    assert_equal 2, sum("all.messages.delivered")
    assert_equal ones.map(&:id).sort, lines.filter_map { |line| line.tags["producer"] }.uniq.sort
  end

  def test_reports_are_sent_at_each_interval
    one = producer
    one.monitor.subscribe(statsd(interval: 0.02))
    one.produce_sync(topic:, payload: "x")
    eventually { sum("penstock.messages.delivered") == 1 }
    one.produce_sync(topic:, payload: "x")
    eventually { sum("penstock.messages.delivered") == 2 }
  end

  def test_buffer_transactions_and_gauges_are_sent
    listener = statsd
    one = producer("transactional.id": "txn-#{rand(2**64)}")
    one.monitor.subscribe(listener)
    one.transaction { one.produce_sync(topic:, payload: "x") }
    one.transaction { raise Penstock::AbortTransaction }
    one.buffer(topic:, payload: "x")
    one.buffer_many([{ topic:, payload: "x" }] * 2)
    listener.flush
    assert_equal [2.0, 1.0, 1.0], sums("transactions.started", "transactions.committed", "transactions.aborted")
    assert_equal [3.0, 3.0], [sum("penstock.buffer.added"), last("penstock.buffer.messages").number]
    assert_equal [1.0, 0.0], %w[producers.connected queue.messages].map { |name| last("penstock.#{name}").number }
    assert_equal(2, lines.count { |line| line.name == "penstock.transaction.time" })
    one.flush_sync
    listener.flush
    assert_equal 3, sum("penstock.buffer.flushed_sync")
  end

  def test_errors_are_counted_by_type_and_code
    listener = statsd(interval: 0.05)
    one = producer
    one.monitor.subscribe(listener)
    3.times { assert_raises(Penstock::Error) { one.produce_sync(topic: "no topic", payload: "x") } }
    publish(listener, "error.occurred", type: "librdkafka.dispatch_error", error: failing)
    publish(listener, "error.occurred", type: "listener.error", error: NoMethodError.new("x"))
    publish(listener, "error.occurred", type: "odd\n|#,x", error: nil)
    publish(listener, "listener.slow", listener: "x", event: "y", time: 2_000.0)
    listener.flush
    assert_equal 3, sum("penstock.errors", type: "message.produce_sync", code: "MessageInvalidError")
    assert_equal 1, sum("penstock.errors", type: "librdkafka.dispatch_error", code: "msg_timed_out")
    assert_equal 1, sum("penstock.errors", type: "listener.error", code: "NoMethodError")
    assert_equal 1, sum("penstock.errors", type: "odd____x")
    assert_equal 1, sum("penstock.listeners.slow")
  end

  def test_topics_over_the_limit_share_one_tag_and_a_limit_of_0_omits_the_tag
    listener = statsd(topics: 2)
    %w[a b c d a].each { |topic| publish(listener, "message.produced_async", message: { topic: }, time: 1.0) }
    listener.flush
    assert_equal [2.0, 1.0, 2.0], (["a", "b", "(other)"].map { |topic| sum("penstock.messages.produced_async", topic:) })
    none = statsd(topics: 0, namespace: "none")
    publish(none, "message.produced_async", message: { topic: "a" }, time: 1.0)
    none.flush
    refute_includes last("none.messages.produced_async").tags, "topic"
  end

  # ---- formats ----

  # behaviour: a bus for all producers, ready-made listeners
  def test_plain_statsd_puts_tags_into_the_metrics_name
    listener = statsd(dogstatsd: false, namespace: "shop")
    one = producer { |config| config.id = "or.ders:1" }
    one.monitor.subscribe(listener)
    one.produce_sync(topic: "bills.new", payload: "x")
    listener.flush
    assert_equal 1, sum("shop.messages.produced_sync.or_ders_1.bills_new")
    assert_equal 1, sum("shop.messages.delivered.or_ders_1")
    assert_equal "ms", last("shop.produce_sync.time.or_ders_1.bills_new").type
    assert_empty lines.flat_map { |line| line.tags.to_a }
  end

  def test_without_producer_ids_the_numbers_of_all_producers_are_summed
    listener = statsd(producer_id: false)
    ones = Array.new(2) { producer }
    ones.each { |one| one.monitor.subscribe(listener) && one.produce_sync(topic: "t", payload: "x") }
    listener.flush
    assert_equal [2.0, 2.0], sums("messages.delivered", "producers.connected")
    assert_equal 1, (lines.count { |line| line.name == "penstock.producers.connected" })
    assert_equal [{}, { "topic" => "t" }], lines.map(&:tags).uniq.sort_by(&:size)
  end

  def test_times_can_be_sent_as_distributions
    listener = statsd(distribution: true)
    publish(listener, "transaction.finished", time: 12.3456)
    listener.flush
    assert_equal ["d", 12.346], last("penstock.transaction.time").to_a.values_at(2, 1)
  end

  # Has the methods of Datadog's own client, and records its calls.
  class DatadogClient
    attr_reader :calls
    attr_accessor :broken

    def initialize = @calls = Thread::Queue.new

    %i[count gauge histogram distribution].each do |name|
      define_method(name) do |metric, value, tags:|
        raise "broken" if broken

        calls << [name, metric, value, tags]
      end
    end
  end

  # behaviour: a bus for all producers, ready-made listeners
  def test_a_given_client_sends_the_metrics
    client = DatadogClient.new
    listener = Penstock::Listeners::Statsd.new(client:, tags: { env: "test" }, rd_kafka: {}).tap { |made| @listeners << made }
    one = producer { |config| config.id = "orders" }
    one.monitor.subscribe(listener)
    one.produce_sync(topic: "bills", payload: "x")
    listener.flush
    calls = Array.new(client.calls.size) { client.calls.pop }
    assert_includes calls, [:count, "penstock.messages.delivered", 1, %w[env:test producer:orders]]
    assert_includes calls, [:gauge, "penstock.queue.messages", 0, %w[env:test producer:orders]]
    times = calls.select { |call, name,| [call, name] == [:histogram, "penstock.produce_sync.time"] }
    assert_equal [%w[env:test producer:orders topic:bills]], times.map(&:last)
  end

  def test_a_client_that_raises_is_reported_once_and_metrics_continue
    client = DatadogClient.new
    client.broken = true
    listener = Penstock::Listeners::Statsd.new(client:, interval: 0.01, rd_kafka: {}).tap { |made| @listeners << made }
    _, warnings = capture_io do
      one = producer
      one.monitor.subscribe(listener)
      3.times { listener.flush }
      one.produce_sync(topic:, payload: "x")
      listener.flush
      client.broken = false
      eventually { client.calls.size.positive? }
    end
    assert_equal ["penstock: metrics could not be sent: RuntimeError: broken\n"], warnings.lines
  end

  # ---- librdkafka's statistics ----

  # behaviour: a bus for all producers, ready-made listeners
  def test_numbers_from_librdkafkas_statistics_are_sent
    listener = statsd(rd_kafka: Penstock::Listeners::Statsd::RD_KAFKA)
    one = producer("statistics.interval.ms": 20)
    one.monitor.subscribe(listener)
    10.times { one.produce_sync(topic:, payload: "x") }
    eventually do
      listener.flush
      sum("penstock.rd_kafka.sent.messages") == 10 && last("penstock.rd_kafka.broker.rtt.p99")
    end
    assert_equal "g", last("penstock.rd_kafka.queue.messages").type
    assert_empty lines.filter_map { |line| line.tags["broker"] } - %w[1 2 3] # the brokers' numbers
    sent = one.metrics[:wakeups]
    eventually { one.metrics[:wakeups] > sent + 3 }
    listener.flush
    assert_equal 10, sum("penstock.rd_kafka.sent.messages")
  end

  def test_the_user_chooses_the_numbers_from_the_statistics
    one = producer("statistics.interval.ms": 20)
    listener = statsd(rd_kafka: { "mine" => [:gauge, "topics", "*", "partitions", "*", "txmsgs"] })
    one.monitor.subscribe(listener)
    one.produce_sync(topic: "t", payload: "x", partition: 0)
    eventually do
      listener.flush
      mine = lines.select { |line| line.name == "penstock.rd_kafka.mine" }
      mine.any? { |line| line.tags.values_at("topic", "partition") == %w[t 0] && line.number == 1 }
    end
  end

  def test_bootstrap_addresses_are_not_counted_as_brokers
    broker = { "rtt" => { "avg" => 7 } }
    json = JSON.generate("brokers" => { "a:1/bootstrap" => { "nodeid" => -1, **broker }, "a:1/5" => { "nodeid" => 5, **broker } })
    listener = statsd(rd_kafka: { "rtt" => [:gauge, "brokers", "*", "rtt", "avg"], "none" => [:gauge, "brokers", "*", "x", "y"] })
    listener.on_statistics_emitted(Penstock::StatisticsEvent.new(json, Penstock::StatisticsEvent::Parsed.new(json, nil), "test"))
    listener.flush
    assert_equal [["penstock.rd_kafka.rtt", 7.0, { "producer" => "test", "broker" => "5" }]],
                 lines.map { |line| [line.name, line.number, line.tags] }
  end

  def test_without_chosen_numbers_the_listener_does_not_subscribe_to_statistics
    monitor = Penstock::Monitor.new(above: nil)
    monitor.subscribe(statsd(rd_kafka: {}))
    refute monitor.listening?("statistics.emitted")
    monitor.subscribe(statsd(rd_kafka: { "x" => [:gauge, "msg_cnt"] }))
    assert monitor.listening?("statistics.emitted")
  end

  # ---- life ----

  def test_the_thread_runs_while_a_producer_is_connected
    one = producer
    one.monitor.subscribe(statsd)
    assert_empty threads
    one.produce_sync(topic:, payload: "x")
    assert_equal 1, threads.size
    one.disconnect
    eventually { threads.empty? }
    one.produce_sync(topic:, payload: "x")
    assert_equal 1, threads.size
    one.close
    eventually { threads.empty? }
    assert_equal 2, sum("penstock.messages.delivered")
  end

  def threads = Thread.list.select { |thread| thread.name == "penstock.statsd" && thread.alive? }

  def test_close_sends_the_remaining_metrics_and_ends_the_thread
    one = producer
    listener = statsd
    one.monitor.subscribe(listener)
    one.produce_sync(topic:, payload: "x")
    listener.close
    assert_empty threads
    assert_equal 1, sum("penstock.messages.delivered")
    assert_operator listener.datagrams[:sent], :>, 0
  end

  def test_a_missing_server_neither_raises_nor_delays
    listener = statsd
    @server.close
    @server = UDPSocket.new # for teardown
    _, warnings = capture_io do
      5.times do
        publish(listener, "producer.reloaded", time: 1.0)
        listener.flush
      end
    end
    assert_empty warnings
    assert_equal({ sent: 5, dropped: 0 }, listener.datagrams) # each datagram is attempted, because a server may listen by then
    @server.bind("127.0.0.1", 0)
  end

  def test_an_unknown_host_name_is_reported_once_and_publishes_no_event
    listener = Penstock::Listeners::Statsd.new(host: "no-such-host.invalid", rd_kafka: {}).tap { |made| @listeners << made }
    _, warnings = capture_io do
      2.times do
        publish(listener, "producer.reloaded", time: 1.0)
        listener.flush
      end
    end
    assert_equal 1, warnings.lines.size
    assert_match(/\Apenstock: metrics could not be sent: \S*(Socket|Resolution)Error: /, warnings)
    assert_equal({ sent: 0, dropped: 2 }, listener.datagrams)
  end

  def test_a_fork_child_starts_at_zero_with_its_own_socket_and_thread
    listener = statsd(interval: 0.02)
    one = producer { |config| config.id = "orders" }
    one.monitor.subscribe(listener)
    name = topic
    3.times { one.produce_sync(topic: name, payload: "x") }
    eventually { sum("penstock.messages.delivered") == 3 }
    socket = listener.send(:books).output.send(:socket)
    mine = socket.local_address.ip_port
    theirs = in_child do
      2.times { one.produce_sync(topic: name, payload: "x") }
      sleep 0.01 until listener.datagrams[:sent].positive?
      port = listener.send(:books).output.send(:socket).local_address.ip_port
      one.close
      sleep 0.01 while threads.any?
      port
    end
    assert_equal 5, sum("penstock.messages.delivered")
    refute_equal mine, theirs
    one.produce_sync(topic: name, payload: "x")
    eventually { sum("penstock.messages.delivered") == 6 }
  end

  def test_the_remaining_metrics_are_sent_when_the_process_ends
    ruby!(<<~PROGRAM, @server.addr[1].to_s)
      cluster = Penstock::EmbeddedCluster.new
      Penstock.monitor.subscribe(Penstock::Listeners::Statsd.new(port: Integer(ARGV[0]), interval: 3600))
      producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": cluster.bootstrap_servers } }
      100.times { |i| producer.produce_async(topic: "t", payload: i.to_s) }
    PROGRAM
    assert_equal [100.0, 100.0], sums("messages.produced_async", "messages.delivered")
  end

  def test_messages_may_be_sent_in_a_signal_trap
    one = producer
    listener = statsd
    one.monitor.subscribe(listener)
    name = topic
    one.produce_sync(topic: name, payload: "x")
    before = trap(:USR2) { one.produce_sync(topic: name, payload: "x") }
    Process.kill(:USR2, Process.pid)
    eventually { one.metrics[:delivered] == 2 }
    listener.flush
    assert_equal [2.0, 2.0], sums("messages.produced_sync", "messages.delivered")
  ensure
    trap(:USR2, before)
  end

  def test_many_threads_lose_no_count
    listener = statsd
    threads = Array.new(4) do
      Thread.new { 500.times { publish(listener, "message.produced_async", message: { topic: "t" }, time: 1.0) } }
    end
    while threads.any?(&:alive?)
      listener.flush
      lines # the socket's buffer overflows if the test does not read it
    end
    listener.flush
    assert_equal 2_000, sum("penstock.messages.produced_async")
  end

  def test_wrong_arguments_are_rejected
    { { host: nil } => /host is a String/, { port: 0 } => /port is an Integer/, { tags: [] } => /tags is a Hash/,
      { interval: 0 } => /interval is a number/, { topics: -1 } => /topics must be an Integer/,
      { rd_kafka: [] } => /rd_kafka must be a Hash/,
      { rd_kafka: { "x" => [:sum, "msg_cnt"] } } => /rd_kafka has x => \[:sum, "msg_cnt"\]/,
      { dogstatsd: false, tags: { a: 1 } } => /plain StatsD has no tags/,
      { client: Object.new } => /Object lacks count, gauge, histogram/ }.each do |options, message|
      error = assert_raises(ArgumentError, options.inspect) { Penstock::Listeners::Statsd.new(**options) }
      assert_match message, error.message
    end
  end
end
