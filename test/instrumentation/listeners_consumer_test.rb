# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# The ready listeners, with consumers.
class ListenersConsumerTest < ConsumerTestCase
  include SharedCluster::ForGroups

  def filled(count) = topic(partitions: 1).tap { |name| produce(name, Array.new(count) { "12345" }) }

  # Keeps names, numbers and tags.
  class Client
    attr_reader :sent

    def initialize = @sent = []

    %i[count gauge histogram].each do |type|
      define_method(type) { |name, number, tags: [], **| @sent << [name, number, tags] }
    end
  end

  slow def test_the_logger_writes_lines_about_consumers
    out = StringIO.new
    one = group_consumer { |config| config.id = "billing" }
    logger = Logger.new(out, formatter: ->(level, *, text) { "#{level} #{text}\n" })
    one.monitor.subscribe(Penstock::Listeners::Logger.new(logger))
    name = filled(1)
    one.subscribe(name)
    eventually { one.poll(timeout: 0.1) }
    assert_raises(Penstock::CommitError) { one.commit({ "not-there" => { 0 => 5 } }) }
    one.close
    lines = out.string.gsub(/ ms=[\d.]+$/, " ms=T").lines(chomp: true).grep_v(/error.occurred/)
    expected = ["INFO penstock consumer=billing event=consumer.connected",
                "INFO penstock consumer=billing event=rebalance.partitions_assigned partitions=#{name}:0",
                "ERROR penstock consumer=billing event=offsets.commit_failed offsets=not-there:0@5"]
    assert_equal expected, lines.first(3).map { |line| line[/.*?(?= error|$)/] }
    assert_equal "INFO penstock consumer=billing event=consumer.closed ms=T", lines.last
  end

  def test_prometheus_counts_what_consumers_do
    metrics = Penstock::Listeners::Prometheus.new
    name = filled(3)
    one = reading(name) { |config| config.id = "billing" }
    take(one, 1, batch: 1)
    one.monitor.subscribe(metrics) # it is connected already
    line = ->(metric) { metrics.to_s[/^penstock_consumer_#{metric}\{consumer_id="billing"\} (\d+)$/, 1].to_i }
    take(one, 2)
    assert_equal [3, 15, 1, 1], %w[messages_total message_bytes_total connected assigned_partitions].map(&line)
    one.monitor.instrument("error.occurred", { type: "x", error: RuntimeError.new("x"), consumer_id: "billing" })
    assert_match(/^penstock_errors_total\{consumer_id="billing",type="x",code="RuntimeError"\} 1$/, metrics.to_s)
    one.close
    assert_equal [3, 0], %w[messages_total connected].map(&line)
    again = reading(name) { |config| config.id = "billing" }
    again.monitor.subscribe(metrics)
    take(again, 3)
    assert_equal [6, 1], %w[messages_total connected].map(&line)
  end

  def test_prometheus_forgets_the_oldest_closed_consumers
    metrics = Penstock::Listeners::Prometheus.new(max_closed: 1)
    Penstock.monitor.subscribe(metrics)
    name = filled(1)
    %w[a b].each { |id| reading(name) { |config| config.id = id }.tap { |one| take(one, 1) }.close }
    assert_equal ["b"], metrics.to_s.scan(/^penstock_consumer_messages_total\{consumer_id="(\w)"\}/).flatten
  ensure
    Penstock.monitor.clear
  end

  def test_statsd_gets_what_consumers_do_since_the_last_report
    client = Client.new
    statsd = Penstock::Listeners::Statsd.new(client:, namespace: "", interval: 3_600, rd_kafka: {})
    one = reading(filled(3)) { |config| config.id = "billing" }
    one.monitor.subscribe(statsd)
    take(one, 1, batch: 1)
    statsd.flush
    take(one, 2)
    statsd.flush
    counted = client.sent.select { |sent, *| sent == "consumer.messages" }
    assert_equal [1, 2], counted.map { |_, number, _| number }
    assert_equal ["consumer:billing"], counted.last.last
    assert_includes client.sent, ["consumers.connected", 1, ["consumer:billing"]]
    one.monitor.instrument("error.occurred", { type: "x", error: RuntimeError.new("x"), consumer_id: "billing" })
    one.close
    statsd.close
    assert_includes client.sent, ["errors", 1, %w[consumer:billing type:x code:RuntimeError]]
  ensure
    statsd&.close
  end

  def test_statsd_gets_figures_only_of_assigned_partitions_and_no_negative_ones
    client = Client.new
    lag = { "lag" => [:gauge, "topics", "*", "partitions", "*", "consumer_lag"],
            "next" => [:gauge, "topics", "*", "partitions", "*", "next_offset"] } # nothing is committed, so the lag is unknown
    statsd = Penstock::Listeners::Statsd.new(client:, namespace: "", interval: 3_600, rd_kafka: lag)
    name = topic(partitions: 2)
    2.times { |partition| produce(name, Array.new(3) { "12345" }, partition:) }
    one = reading(name, partitions: [0, 1], "statistics.interval.ms": 20)
    one.monitor.subscribe(statsd)
    numbers = lambda do
      client.sent.clear
      statsd.flush
      client.sent.select { |sent, *| sent.start_with?("rd_kafka.") }
    end
    reported = ->(partition) { numbers.call.any? { |_, _, tags| tags.include?("partition:#{partition}") } }
    take(one, 6)
    eventually { one.poll(timeout: 0.03) || reported.call(1) }
    one.assign(name => { 0 => :beginning })
    take(one, 3)
    eventually { one.poll(timeout: 0.03) || !reported.call(1) }
    all = Array.new(5) { one.poll(timeout: 0.03) || numbers.call }.flatten(1)
    assert_equal [["rd_kafka.next", 3, ["consumer:#{one.id}", "topic:#{name}", "partition:0"]]], all.uniq
  ensure
    statsd&.close
  end

  def test_a_fork_child_begins_at_nothing
    metrics = Penstock::Listeners::Prometheus.new
    one = reading(filled(1))
    one.monitor.subscribe(metrics)
    take(one, 1)
    assert_match(/^penstock_consumer_messages_total\{/, metrics.to_s)
    refute_match(/^penstock_consumer_messages_total\{/, in_child { metrics.to_s })
  end
end
