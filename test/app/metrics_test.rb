# frozen_string_literal: true

require_relative "../test_helper"
require "penstock/testing"

# The numbers of applications, and the events beside them.
class AppMetricsTest < PenstockTest
  def setup
    super
    @seen = []
  end

  def drive(to = ->(_) {}, configure: nil, **options)
    Penstock::Testing.drive(Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      configure&.call(app)
      app.group("billing") { |group| group.topic "orders", to:, **options }
    end, seed: 7)
  end

  def produce(driver, count, **more) = count.times { |i| driver.produce("orders", key: "k#{i}", payload: i.to_s, **more) }

  def test_lag_lanes_and_what_is_not_committed
    driver = drive(->(message) { raise "bad" if message.payload == "2" }, order: :key, retry: { from: 30 })
    driver.fail_commits("billing", 1)
    produce(driver, 10)
    driver.advance(2)
    row = driver.metrics.first
    assert_equal [8, 1, 9, 9], [row.lag, row.lanes, row.uncommitted, row.processed]
    driver.advance(10)
    assert_equal [8, 0], driver.metrics.first.then { |now| [now.lag, now.uncommitted] }
  end

  def test_how_long_messages_wait_and_work_takes
    driver = drive(delay: 20)
    produce(driver, 1)
    driver.advance(22)
    row = driver.metrics.first
    assert_in_delta 20, row.wait_p50, 5
    assert_equal [0.000001, row.wait_p50], [row.work_p99, row.wait_p99] # no time passes in a call
    driver.advance(200)
    assert_equal [nil] * 4, driver.metrics.first.to_a.last(4) # nothing has happened for two minutes
  end

  # Of the times 1 to 100 ms.
  def test_percentiles_are_accurate_to_a_fifth
    times = Penstock::App.const_get(:Durations).new(0)
    (1..100).each { |ms| times.add(ms / 1000.0) }
    { 0.5 => 0.05, 0.99 => 0.099, 1 => 0.1 }.each do |share, seconds|
      assert_includes seconds..(seconds * 1.2), times.percentile(share, 1)
    end
    assert_operator times.percentile(0.5, 61), :>, 0
    assert_nil times.percentile(0.5, 121)
  end

  def test_prometheus_has_the_numbers_of_applications
    prometheus = Penstock::Listeners::Prometheus.new
    driver = drive(->(message) { raise "bad" if message.payload == "2" }, retry: { times: 0 }, dead_letter: "dead",
                                                                          configure: lambda { |app|
                                                                                       app.monitor.subscribe(prometheus)
                                                                                     })
    produce(driver, 5)
    driver.advance(2)
    page = prometheus.to_s
    labels = 'group="billing",topic="orders"'
    assert_includes page, "penstock_app_processed_total{#{labels}} 5\n"
    assert_includes page, "penstock_app_dead_letters_total{#{labels}} 1\n"
    assert_includes page, "penstock_app_lag{#{labels}} 0\n"
    assert_match(/^penstock_app_work_seconds\{#{labels},quantile="0.99"\} /, page)
  end

  def test_statsd_sends_the_numbers_of_applications
    sent = Hash.new(0)
    client = Object.new
    client.define_singleton_method(:count) { |name, number, tags:| sent[[name, tags.sort]] += number }
    client.define_singleton_method(:gauge) { |name, number, tags:| sent[[name, tags.sort]] = number }
    client.define_singleton_method(:histogram) { |*, **| nil }
    statsd = Penstock::Listeners::Statsd.new(client:, interval: 60)
    driver = drive(configure: ->(app) { app.monitor.subscribe(statsd) })
    produce(driver, 5)
    driver.advance(2)
    statsd.flush
    produce(driver, 3)
    driver.advance(2)
    statsd.flush
    found = ->(name) { sent.find { |(one, _), _| one == "penstock.#{name}" } }
    assert_equal [8, 0], [found["app.processed"].last, found["app.lag"].last]
    assert_equal %w[group:billing topic:orders], found["app.processed"].first.last
  ensure
    statsd&.close
  end

  # behaviour: consumer.consumed, consumer.shutdown, consumer.revoked, filtering.throttled
  def test_events_of_work_and_hooks
    names = %w[consumer.consumed consumer.shutdown consumer.revoked filtering.throttled app.quieting app.quiet]
    listen = lambda do |app|
      names.each { |name| app.monitor.subscribe(name) { |event| @seen << [name, event.payload] } }
    end
    driver = drive(throttle: { messages: 3, per: 1 }, configure: listen)
    produce(driver, 5)
    driver.advance(3)
    driver.instance_variable_get(:@loop).quiet
    driver.run
    driver.stop
    place = { group: "billing", topic: "orders", partition: 0 }
    consumed = @seen.select { |name,| name == "consumer.consumed" }.map(&:last)
    assert_equal 5, consumed.sum { |payload| payload[:messages] }
    assert_equal({ **place, offset: 0 }, consumed.first.slice(:group, :topic, :partition, :offset))
    assert_equal %w[filtering.throttled app.quieting app.quiet consumer.shutdown consumer.revoked],
                 @seen.map(&:first).uniq - ["consumer.consumed"]
    assert_equal place, @seen.last.last
  end
end
