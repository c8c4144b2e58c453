# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# The one native thread that sends the commits of all consumers for which no caller waits.
class ConsumerCommitterTest < ConsumerTestCase
  def committers = native_threads.count("penstock.commit")

  def filled(count, partitions: 1, on: cluster)
    name = on == cluster ? topic(partitions:) : "orders".tap { |topic| on.create_topic(topic, partitions:) }
    sender = on == cluster ? producer : producer(servers: on.bootstrap_servers)
    partitions.times { |partition| produce(name, Array.new(count) { |i| "#{partition}-#{i}" }, partition:, on: sender) }
    name
  end

  # A consumer with a group of its own.
  def member(name, servers: cluster.bootstrap_servers, **kafka)
    group_consumer(servers:, "enable.auto.commit": false, **kafka).assign(name => { 0 => :beginning })
  end

  def periodic(name, every:, **kafka) = member(name, "enable.auto.commit": true, "auto.commit.interval.ms": every, **kafka)

  # Until the block returns true.
  # @return [Integer] how many there were at most
  def most_committers(&block)
    most = 0
    eventually { (most = [most, committers].max) && block.call }
    most
  end

  def commits(consumers) = consumers.map { |one| one.metrics.commits }

  def test_many_consumers_commit_with_one_thread
    name = filled(1)
    asynchronous = Array.new(10) { member(name) }
    periodic = Array.new(10) { periodic(name, every: 200) }
    periodic.each { |one| one.mark(take(one, 1).last) }
    asynchronous.each_with_index { |one, i| one.commit({ name => { 0 => i } }, async: true) }
    members = asynchronous + periodic
    assert_equal 1, (most_committers { commits(members).sum == 20 })
    assert_equal [1] * 20, commits(members)
    assert_equal [*0...10, *[1] * 10], (members.map { |one| one.committed(name, 0)[0] })
  end

  def test_the_thread_ends_without_work_and_starts_again
    name = filled(1)
    one = member(name)
    3.times do |i|
      one.commit({ name => { 0 => i } }, async: true)
      eventually { one.metrics.commits == i + 1 }
      eventually(5) { committers.zero? }
    end
    assert_equal({ 0 => 2 }, one.committed(name, 0))
  end

  def test_the_thread_ends_while_consumers_stay_open_that_have_nothing_to_commit
    name = filled(1)
    one = periodic(name, every: 20)
    one.mark(take(one, 1).last)
    eventually { one.metrics.commits == 1 }
    eventually(5) { committers.zero? }
    refute_predicate one, :closed?
  end

  def test_brokers_that_do_not_answer_one_consumer_delay_no_other
    own = own_cluster
    gate = gate(own)
    name = filled(10, on: own)
    slow = member(name, servers: gate.bootstrap_servers).tap { |one| one.committed(name, 0, timeout: 20) }
    other = periodic(name, every: 20, servers: own.bootstrap_servers)
    held = gate.hold(:offset_commit)
    slow.commit({ name => { 0 => 1 } }, async: true)
    held.await_request
    slow.commit({ name => { 0 => 2 } }, async: true) # waits for the first one
    5.times do |i|
      other.mark(take(other, 1).last)
      eventually { other.metrics.commits == (i * 2) + 1 }
      other.commit({ name => { 0 => i + 1 } }, async: true)
      eventually { other.metrics.commits == (i * 2) + 2 }
    end
    assert_equal [0, 1, 1], [slow.metrics.commits, gate.requests(:offset_commit), committers]
    held.release
    eventually { slow.metrics.commits == 2 }
    assert_equal({ 0 => 2 }, slow.committed(name, 0))
  end

  # Without a coordinator librdkafka answers no commit. Closing waits for one as long as session.timeout.ms.
  slow def test_a_consumer_without_brokers_delays_no_other
    name = filled(1)
    lost = unreachable_consumer("group.id": "lost", "enable.auto.commit": false, "session.timeout.ms": 4_000)
    lost.assign("orders" => [0])
    lost.commit({ "orders" => { 0 => 1 } }, async: true)
    one = member(name)
    one.commit({ name => { 0 => 1 } }, async: true)
    assert_equal 1, (most_committers { one.metrics.commits == 1 })
    assert_equal 0, lost.metrics.commits
    lost.close(timeout: 0.2)
    one.commit({ name => { 0 => 0 } }, async: true)
    eventually { one.metrics.commits == 2 }
  end

  def test_consumers_that_close_leave_the_thread_to_the_others
    name = filled(1)
    stays = member(name)
    20.times do |i|
      one = member(name)
      one.commit({ name => { 0 => i } }, async: true)
      stays.commit({ name => { 0 => i } }, async: true)
      assert_predicate one.close, :complete?
      assert_equal 1, one.metrics.commits
    end
    eventually { stays.committed(name, 0) == { 0 => 19 } }
  end

  # The thread of the parent has work when it forks, and exists only there.
  slow def test_a_fork_child_has_a_thread_of_its_own
    own = own_cluster
    gate = gate(own)
    servers = own.bootstrap_servers
    name = filled(1, on: own)
    one = member(name, servers: gate.bootstrap_servers).tap { |consumer| consumer.committed(name, 0, timeout: 20) }
    held = gate.hold(:offset_commit)
    one.commit({ name => { 0 => 1 } }, async: true)
    held.await_request
    result = in_child do
      before = committers
      childs = member(name, servers:)
      childs.commit({ name => { 0 => 1 } }, async: true)
      eventually { childs.metrics.commits == 1 }
      childs.close
      [before, childs.metrics.commits]
    end
    assert_equal [0, 1], result
    assert_equal 1, committers
    held.release
    eventually { one.metrics.commits == 1 }
  end

  # Threads commit with several consumers, which begin and end to have work all the time.
  slow def test_no_commit_is_forgotten
    name = filled(1)
    threads = Array.new(4) do |n|
      one = member(name).tap { |consumer| consumer.committed(name, 0, timeout: 20) }
      quiet_thread do
        50.times do |i|
          one.commit({ name => { 0 => i } }, async: true)
          eventually { one.metrics.commits > i }
          sleep 0.11 if (i % 10) == n # so that the thread ends now and then
        end
        one.committed(name, 0)
      end
    end
    assert_equal [{ 0 => 49 }] * 4, threads.map(&:value)
  end
end
