# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# What config.rebalance_listener is told, and may do.
class RebalanceListenerTest < ConsumerTestCase
  include SharedCluster::ForGroups

  slow(/told_in|start|commit|comes_out|killed|other_threads|close_while|a_poll_in/) # they join groups, which takes some seconds

  # Notes what it is told. A block runs as part of it.
  class Listener
    attr_reader :told

    def initialize(&block)
      @told = []
      @block = block
    end

    %i[assigned revoked lost].each do |kind|
      define_method(kind) do |rebalance|
        @told << [kind, rebalance.partitions, Thread.current]
        @block&.call(kind, rebalance)
      end
    end

    def kinds = @told.map(&:first)
  end

  def filled(count, partitions: 1)
    topic(partitions:).tap do |name|
      partitions.times { |partition| produce(name, Array.new(count) { |i| "#{partition}-#{i}" }, partition:) }
    end
  end

  def member(name, listener, **kafka)
    group_consumer("group-#{name}", "heartbeat.interval.ms": 100, **kafka) { |config| config.rebalance_listener = listener }
      .subscribe(name)
  end

  def committed(name, partition = 0) = group_consumer("group-#{name}").committed(name, partition).fetch(partition)

  def test_it_is_told_in_the_polling_thread_before_messages_come
    name = filled(3)
    one = member(name, listener = Listener.new)
    messages = quiet_thread { take(one, 3).each { listener.told << [:message, nil, Thread.current] } }
    messages.join
    assert_equal %i[assigned message message message], listener.kinds
    assert_equal({ name => [0] }, listener.told.first[1])
    assert_predicate listener.told.first[1], :frozen?
    assert_equal [messages], listener.told.map(&:last).uniq
    one.close
    assert_equal [:revoked, { name => [0] }, Thread.current], listener.told.last
  end

  def test_it_chooses_where_to_start
    name = filled(5)
    listener = Listener.new { |kind, rebalance| rebalance.start_at(name.to_sym, 0, 3) if kind == :assigned }
    assert_equal [3, 4], take(member(name, listener), 2).map(&:offset)
  end

  def test_start_at_checks_its_arguments
    name = filled(1)
    errors = []
    listener = Listener.new do |kind, rebalance|
      [[name, 7, 0], ["other", 0, 0], [name, 0, -5], [name, 0, :sometime]].each do |place|
        rebalance.start_at(*place)
      rescue ArgumentError => e
        errors << [kind, e.message]
      end
    end
    one = member(name, listener)
    take(one, 1)
    one.close
    assert_equal({ assigned: 4, revoked: 4 }, errors.map(&:first).tally)
    assert_match(/was not assigned/, errors.first.last)
  end

  def test_it_may_commit_what_is_about_to_be_revoked
    name = filled(4)
    listener = Listener.new { |kind, rebalance| kind == :revoked && rebalance.consumer.commit({ name => { 0 => 2 } }) }
    one = member(name, listener, "enable.auto.commit": false)
    take(one, 4)
    one.close
    assert_equal 2, committed(name)
  end

  def test_an_error_comes_out_of_the_poll_after_the_answer
    name = filled(2)
    listener = Listener.new { |kind, _| raise "cannot prepare" if kind == :assigned }
    one = member(name, listener)
    error = assert_raises(RuntimeError) { take(one, 1) }
    assert_equal "cannot prepare", error.message
    assert_equal 2, take(one, 2).size
  end

  def test_a_killed_thread_leaves_an_answer
    name = filled(2)
    listener = Listener.new { |kind, _| kind == :assigned && Thread.current.kill }
    one = member(name, listener)
    quiet_thread { take(one, 1) }.join
    assert_equal 2, take(one, 2).size
  end

  BEFORE_ASSIGN = [
    ->(one, _) { one }, ->(one, _) { one.poll(timeout: 0.1) }, ->(one, test) { test.take(one, 1) },
    ->(one, test) { one.keep_alive { test.eventually { one.assignment.any? } } },
    ->(one, test) { test.take(one, 1) && one.unsubscribe.subscribe(one.assignment.keys.first) },
    ->(one, test) { test.take(one, 1) && one.unsubscribe && test.quiet_thread { one.poll(timeout: 0) }.join }
  ].freeze

  # Polls and `assign` may both meet the revocation. Its answer ends an assignment that is made before it.
  slow def test_an_assignment_after_a_subscription_lasts
    threads = BEFORE_ASSIGN.map do |prepare|
      name = filled(10)
      one = member(name, listener = Listener.new)
      quiet_thread do
        prepare.call(one, self)
        one.unsubscribe.assign(name => { 0 => 5 })
        assert_equal [[5, 6, 7, 8, 9], { name => [0] }, 10], [take(one, 5).map(&:offset), one.assignment, one.position(name, 0)]
        listener.kinds
      end
    end
    first, second, *others = threads.map(&:value)
    assert_equal [%i[assigned revoked]] * 4, others
    [first, second].each { |kinds| assert_includes [[], %i[assigned revoked]], kinds } # the group may have been quick
  end

  slow def test_an_assignment_in_the_listener_raises
    name = filled(10)
    error = nil
    one = member(name, Listener.new do |kind, rebalance|
      error = assert_raises(Penstock::ListenerDeadlockError) { rebalance.consumer.assign(name => { 0 => 5 }) } if kind == :revoked
    end)
    take(one, 1)
    one.unsubscribe
    eventually { one.poll(timeout: 0.05) || one.assignment.empty? }
    assert_match(/\AAssign is not possible in the consumer's rebalance listener/, error.message)
    one.assign(name => { 0 => 5 })
    assert_equal 5, take(one, 5).first.offset
  end

  slow def test_a_member_of_a_cooperative_group_cannot_assign
    name = filled(1)
    one = group_consumer("partition.assignment.strategy": "cooperative-sticky", log_level: 3).subscribe(name)
    take(one, 1)
    error = assert_raises(Penstock::ConsumeError) { one.unsubscribe.assign(name => { 0 => 0 }) }
    assert_match(/\AA consumer that was subscribed with "cooperative-sticky" or .* cannot assign/, error.message)
    assert_empty one.assignment
  end

  # Other threads get no messages before the listener has returned, and none are lost.
  def test_other_threads_wait_for_the_answer
    name = filled(5)
    began = Queue.new
    go_on = Queue.new
    listener = Listener.new { |kind, _| (began << true) && go_on.pop if kind == :assigned }
    one = member(name, listener)
    telling = quiet_thread { eventually { one.poll(timeout: 1) } }
    began.pop
    assert_nil one.poll(timeout: 0.2)
    waiting = quiet_thread { eventually { one.poll(timeout: 20) } }
    go_on << true
    assert_equal [0, 1], [telling.value, waiting.value].map(&:offset).sort
  end

  # librdkafka does not end before a revocation is answered.
  { assigned: ->(one) { one }, revoked: ->(one) { take(one, 1) && one.unsubscribe } }.each do |told, prepare|
    define_method(:"test_close_while_the_listener_is_told_of_what_is_#{told}") do
      name = filled(1)
      began = Queue.new
      go_on = Queue.new
      one = member(name, Listener.new { |kind, _| (began << true) && go_on.pop if kind == told })
      instance_exec(one, &prepare)
      polling = quiet_thread { one.poll(timeout: 20) }
      began.pop
      assert_predicate quiet_thread { one.close }.value, :complete?
      go_on << true
      assert_nil polling.value
    end
  end

  # A commit waits for the coordinator, by default for 30 s.
  thorough def test_a_listener_that_commits_ends_with_the_time_of_the_close
    own = own_cluster
    name = "listened"
    own.create_topic(name, partitions: 1)
    one = member(name, Listener.new { |kind, rebalance| rebalance.consumer.commit({ name => { 0 => 1 } }) if kind == :revoked },
                 servers: own.bootstrap_servers, log_level: 0)
    eventually(20) { one.poll(timeout: 0.1) || one.assignment.any? }
    own.broker_down(1)
    took = seconds_of { assert_raises(Penstock::ConsumeTimeoutError) { one.close(timeout: 2) } }
    assert_took(4, took)
  end

  def test_a_poll_in_the_listener_takes_nothing
    name = filled(2)
    polled = :unknown
    listener = Listener.new { |kind, rebalance| polled = rebalance.consumer.poll(timeout: 0.05) if kind == :assigned }
    assert_equal 2, take(member(name, listener), 2).size
    assert_nil polled
  end

  def test_lost_partitions_are_told_as_revoked_to_a_listener_without_lost
    revoked = []
    listener = Object.new
    listener.define_singleton_method(:revoked) { |rebalance| revoked << rebalance.lost? }
    one = consumer { |config| config.rebalance_listener = listener }
    Internal.of(one).rebalances.rebalanced(:lost, [["topic", 0, nil]])
    Internal.of(one).rebalances.rebalanced(:assigned, [["topic", 0, nil]])
    assert_equal [true], revoked
  end

  def test_an_object_without_any_of_the_methods_is_refused
    error = assert_raises(Penstock::ConfigurationInvalidError) { consumer { |config| config.rebalance_listener = Object.new } }
    assert_match(/rebalance_listener/, error.message)
  end

  def test_a_rebalance_reads_well
    rebalance = Penstock::Rebalance.new(consumer, { "b" => [1], "a" => [0, 2] }, :assigned)
    assert_equal({ "b" => [1], "a" => [0, 2] }, rebalance.partitions)
    refute_predicate rebalance, :lost?
    assert_includes rebalance.inspect, "assigned"
  end
end
