# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/app_test_case"

# What applications publish.
class AppEventsTest < AppTestCase
  slow(/./)

  PLACE = %i[group offset partition topic].freeze

  # @return [Array<Penstock::Event>] filled by an application that publishes on this monitor
  def listen(app, *names) = names.each { |name| app.monitor.subscribe(name) { |event| @seen << event } }

  # behaviour: app.running, app.stopping, app.stopped
  def test_the_life_of_an_application
    server = start(topic, configure: ->(app) { listen(app, "app.running", "app.stopping", "app.stopped") }) { nil }
    report = server.stop
    2.times { assert_same report, server.stop }
    events = seen(3)
    assert_equal %w[app.running app.stopping app.stopped], events.map(&:id)
    assert_equal [{}, {}, { report: }], events.map(&:payload)
  end

  # behaviour: consumer.consuming.retry, dead_letter_queue.dispatched
  def test_what_follows_a_failure
    name = topic(partitions: 1)
    dead = topic(partitions: 1)
    produce(name, ["bad"])
    after = { dead_letter: { dead_letter: dead }, skip: { after_retries: :skip }, block: {} }
    events = after.flat_map do |what, options|
      @group = "#{what}-#{rand(2**32)}"
      names = %w[consumer.consuming.retry dead_letter_queue.dispatched message.skipped partition.blocked]
      retries = { times: 1, from: 0.01, to: 0.01 }
      start(name, configure: ->(app) { listen(app, *names) }, retry: retries, **options) { raise "bad" }
      seen(2).first(2).tap { @servers.pop.stop }
    end
    assert_equal %w[consumer.consuming.retry dead_letter_queue.dispatched consumer.consuming.retry message.skipped
                    consumer.consuming.retry partition.blocked], events.map(&:id)
    assert_equal [[*PLACE, :attempt, :seconds], [*PLACE, :error, :reason, :to], [*PLACE, :attempt, :reason]].map(&:sort),
                 events.values_at(0, 1, 3).map { |event| event.payload.keys.sort }
    assert_equal [[name, 0, 0, dead, "bad"], [1, 2]],
                 [events[1].payload.values_at(:topic, :partition, :offset, :to) + [events[1][:error].message],
                  events.values_at(0, 3).map { |event| event[:attempt] }]
  end

  # behaviour: work.abandoned, offsets.map_ignored, offsets.map_shortened, retry_topic.dispatched
  def test_a_map_of_another_program_is_ignored
    name = topic(partitions: 1)
    produce(name, %w[a b])
    other = Penstock::Consumer.new("bootstrap.servers": cluster.bootstrap_servers, "group.id": @group)
    other.commit({ name => { 0 => Penstock::Offset.new(offset: 1, metadata: "theirs") } })
    other.close
    ignored = Thread::Queue.new
    configure = ->(app) { app.monitor.subscribe("offsets.map_ignored") { |event| ignored << event } }
    start(name, configure:) { |record| @seen << record.payload }
    assert_equal %w[b], seen(1)
    assert_equal [@group, name, 0, "not written by Penstock"], ignored.pop.payload.values_at(:group, :topic, :partition, :reason)
  end

  # behaviour: work.abandoned, offsets.map_ignored, offsets.map_shortened, retry_topic.dispatched
  def test_abandoned_work
    name = topic(partitions: 2)
    2.times { |partition| produce(name, ["a"], partition:) }
    gate = Thread::Queue.new
    abandoned = Thread::Queue.new
    configure = lambda do |app|
      app.drain_timeout = 0.5
      app.monitor.subscribe("work.abandoned") { |event| abandoned << event }
    end
    first = start(name, configure:) { gate.pop }
    eventually { gate.num_waiting == 2 }
    start(name) { |record| @seen << record.payload }
    event = abandoned.pop
    assert_equal [@group, name], event.payload.values_at(:group, :topic)
    assert_equal %w[a], seen(1)
    report = first.stop(timeout: 5)
    assert_equal 3, report.status
    assert_includes report.blockers.map(&:partition), event[:partition] # it still runs
    gate.close
  end

  def test_the_logger_writes_what_an_application_publishes
    name = topic(partitions: 1)
    produce(name, %w[bad good])
    log = StringIO.new
    configure = ->(app) { app.monitor.subscribe(Penstock::Listeners::Logger.new(Logger.new(log))) }
    start(name, configure:, retry: { times: 0 }, after_retries: :skip) do |record|
      record.payload == "bad" ? raise("odd") : @seen << record
    end
    seen(1)
    @servers.pop.stop
    lines = log.string.lines
    %w[app.running consumer.consume.error message.skipped app.stopping app.stopped].each do |text|
      assert lines.any? { |line| line.include?(text) }, "#{text} in #{log.string}"
    end
    assert_match(/message.skipped.*#{name}.*offset.*0/, log.string)
  end
end
