# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../proofs/support/consumer_closing"

# Closing in each phase of a rebalance, with members that join and leave. `rake test:consumer_closing` does it 1,000 times.
class ConsumerClosingTest < PenstockTest
  slow

  ROUNDS = 16
  JOINING = 4.5 # seconds: a new group of the embedded cluster waits 3 s for more members

  # A client that is destroyed before its first assignment aborts the process, with cooperative-sticky (librdkafka #4381, fixed in
  # 2.3.0). In some of these rounds SyncGroup gets no answer, as the group's leader was closed before.
  EARLY = <<~'RUBY'
    servers, topic = ARGV
    20.times do |i|
      consumer = Penstock::Consumer.new("bootstrap.servers": servers, "group.id": "early", log_level: 0,
                                        "partition.assignment.strategy": "cooperative-sticky")
      consumer.subscribe(topic)
      consumer.poll(timeout: 0.02 * i)
      consumer.close(timeout: 1)
    end
  RUBY

  def filled
    topic(partitions: 2).tap do |name|
      messages = Array.new(2 * ConsumerClosing::MESSAGES) { |i| { topic: name, payload: i.to_s, partition: i % 2 } }
      producer.produce_many_sync(messages)
    end
  end

  def descriptors = Dir.children("/proc/self/fd").size

  def threads = Dir.children("/proc/self/task").size

  def assert_closes(strategy, rounds: ROUNDS)
    closing = ConsumerClosing.new(cluster.bootstrap_servers, filled, "partition.assignment.strategy": strategy,
                                                                     "session.timeout.ms": 6_000, "heartbeat.interval.ms": 100)
    closing.rounds(1, longest: 0) # what is allocated once
    before = [descriptors, threads]
    closing.rounds(rounds, longest: JOINING)
    assert_empty closing.problems
    eventually(10, -> { "before #{before}, now #{[descriptors, threads]}" }) do
      descriptors <= before.first + 2 && threads <= before.last + 2
    end
  end

  # defect C14, C15
  thorough def test_range = assert_closes("range")

  # defect C14
  def test_cooperative_sticky
    assert_closes("cooperative-sticky")
  end

  # defect C17
  def test_closing_before_the_first_assignment_with_cooperative_sticky
    ruby!(EARLY, cluster.bootstrap_servers, topic, seconds: 60)
  end

  # librdkafka 2.0.2 does not wait for the answer, and the answer waited for ever if it met the end of the group.
  def test_an_assignment_that_nobody_has_polled_is_answered_before_the_group_is_left
    one = Penstock::Consumer.new("bootstrap.servers": cluster.bootstrap_servers, "group.id": "late-#{rand(2**32)}")
    one.subscribe(topic)
    seen = Thread::Queue.new
    %w[assigned revoked].each { |what| one.monitor.subscribe("rebalance.partitions_#{what}") { seen << what } }
    eventually { Penstock::Consumer.select([one], timeout: 0.1).any? }
    one.close
    eventually { seen.size >= 2 }
    assert_equal %w[assigned revoked], Array.new(2) { seen.pop }
  end

  # ---- what the report says ----

  def joined(cluster, name, **kafka)
    consumer = Penstock::Consumer.new("bootstrap.servers": cluster.bootstrap_servers, "group.id": "reports-#{rand(2**32)}",
                                      log_level: 0, **kafka) { |config| config.logger = Logger.new(nil) }
    consumer.subscribe(name)
    eventually { consumer.poll(timeout: 0.1) || consumer.membership.state == :stable }
    consumer
  end

  def test_the_group_is_left_if_its_coordinator_has_answered
    assert_equal [true, true], joined(cluster, filled).close.to_a
    assert_equal [true, false], joined(cluster, filled, "group.instance.id": "me").close.to_a # it never leaves
  end

  # With nothing to commit, librdkafka is done at once.
  def test_the_group_is_not_left_while_its_coordinator_is_down
    own = own_cluster
    own.create_topic("orders", partitions: 1)
    one = joined(own, "orders", "enable.auto.commit": false)
    own.broker_down(1)
    eventually { one.metrics.errors.positive? || one.poll(timeout: 0.1) } # librdkafka knows it
    assert_equal [true, false], one.close(timeout: 5).to_a
  end

  # librdkafka puts the second one off while it revokes the partitions of the first. It failed an assertion, which ends the
  # process.
  def test_a_close_after_two_changes_of_the_subscription
    one = joined(cluster, name = topic(partitions: 4))
    eventually { one.poll(timeout: 0.1) || one.assignment.any? }
    one.subscribe("another")
    one.subscribe(name)
    assert_predicate one.close(timeout: 30), :complete?
  end
end
