# frozen_string_literal: true

require_relative "broker_gate"
require_relative "each_once"

# What the consumer's tests share.
class ConsumerTestCase < PenstockTest
  include EachOnce

  def setup
    super
    @consumers = []
    @gates = []
  end

  def teardown
    GCLevel.stop
    @gates.each(&:open)
    @consumers.each { |consumer| consumer.close(timeout: 5) }
    @gates.each(&:close)
    @consumers = @gates = nil
    super
  end

  # A consumer on the shared cluster, closed after the test. Further settings for librdkafka as keywords.
  def consumer(servers: cluster.bootstrap_servers, **kafka)
    made = Penstock::Consumer.new do |config|
      config.kafka = { "bootstrap.servers": servers, "fetch.wait.max.ms": 10, "fetch.error.backoff.ms": 10, **kafka }
      yield config if block_given?
    end
    made.tap { @consumers << made }
  end

  def group_consumer(group = "group-#{rand(2**32)}", **kafka, &block)
    consumer("group.id": group, "auto.offset.reset": "earliest", "session.timeout.ms": 6_000, **kafka, &block)
  end

  # @return [BrokerGate] in front of a cluster; closed after the test
  def gate(own) = BrokerGate.new(own.bootstrap_servers).tap { |made| @gates << made }

  def unreachable_consumer(**kafka, &block) = consumer(servers: "127.0.0.1:1", log_level: 0, **kafka, &block)

  # A consumer that reads the topic's partitions from the beginning.
  def reading(topic, partitions: [0], **kafka, &block)
    consumer(**kafka, &block).assign(topic => partitions.to_h { |partition| [partition, :beginning] })
  end

  # @return [Array<Penstock::Message>] exactly `count` messages; the test fails if fewer arrive
  def take(consumer, count, batch: 100, seconds: 30)
    deadline = Slowness.deadline(seconds)
    messages = []
    while messages.size < count && !deadline.passed?
      messages.concat(consumer.poll_batch(max: [batch, count - messages.size].min, timeout: 0.5))
    end
    assert_equal count, messages.size, "messages within #{seconds} s"
    messages
  end

  def produce(topic, payloads, partition: 0, on: producer)
    on.produce_many_sync(payloads.map { |payload| { topic:, payload:, partition: } })
  end
end
