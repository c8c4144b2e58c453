# frozen_string_literal: true

require "penstock/app"

# What the tests of applications share.
class AppTestCase < PenstockTest
  include SharedCluster::ForGroups

  KAFKA = { "session.timeout.ms": 6_000, "fetch.wait.max.ms": 10, "heartbeat.interval.ms": 200 }.freeze

  def setup
    super
    @servers = []
    @errors = Thread::Queue.new
    @seen = Thread::Queue.new
    @group = "app-#{rand(2**32)}"
  end

  def teardown
    @servers.each { |server| server.stop(timeout: 2) }
    @asking&.close
    @servers = @asking = @sending = nil
    super
  end

  # An application with one topic.
  # @param to [Class, #call] a block instead: is called with each message
  def app(topic, to = nil, configure: nil, **options, &block)
    Penstock.app do |app|
      app.kafka = { "bootstrap.servers": cluster.bootstrap_servers }
      app.commit_interval = 0.2
      configure&.call(app)
      app.monitor.subscribe("error.occurred") { |event| @errors << event }
      app.group(@group, kafka: KAFKA) { |group| group.topic(topic, to: to || block, **options) }
    end
  end

  def start(...) = app(...).start.tap { |server| @servers << server }

  # @return [Class] of processors with these methods
  def processor(&definition) = Class.new(Penstock::Processor, &definition)

  def produce(topic, payloads, partition: 0, key: nil, **more)
    (@sending ||= producer).produce_many_sync(payloads.map do |payload|
                                                { topic:, payload: payload.to_s, partition:, key:, **more }
                                              end)
  end

  # @return [Array] what `@seen` got, when it has `count` of it
  def seen(count, seconds: 30)
    eventually(seconds) { @seen.size >= count }
    Array.new(@seen.size) { @seen.pop }
  end

  # @return [Hash{Integer => Penstock::Offset, nil}]
  def committed(topic, partitions = [0])
    @asking ||= Penstock::Consumer.new("bootstrap.servers": cluster.bootstrap_servers, "group.id": @group)
    @asking.committed(topic, partitions, metadata: true)
  end

  def committed_offset(topic, partition = 0) = committed(topic, [partition])[partition]&.offset
end
