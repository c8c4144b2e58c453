# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"
require_relative "../support/fiber_schedulers"

# Penstock::ConsumerSet, Consumer.select.
class ConsumerSetTest < ConsumerTestCase
  include SharedCluster::ForGroups

  include FiberSchedulers

  slow(/random_changes|keeps_its_membership|uses_no_cpu|hundred/)

  Set = Penstock::ConsumerSet

  # Consumers that have found out that their topics are empty, and the topics.
  def idle(count)
    topics = Array.new(count) { topic(partitions: 1) }
    consumers = topics.map { |name| reading(name) }
    consumers.each { |one| one.poll(timeout: 0.05) }
    [consumers, topics]
  end

  # Polls until nothing comes any more.
  def quiet(set)
    until (ready = set.wait(timeout: 0.2)).empty?
      ready.each { |one| one.poll_batch(timeout: 0) }
    end
  end

  # Reads until it has `count` messages.
  # @return [Hash{Penstock::Consumer => Array<String>}] payloads
  def read_all(set, count, max: 100, seconds: 30)
    got = Hash.new { |hash, one| hash[one] = [] }.compare_by_identity
    deadline = Slowness.deadline(seconds)
    while got.sum { |_, payloads| payloads.size } < count && !deadline.passed?
      set.wait(timeout: 0.5).each { |one| got[one].concat(one.poll_batch(max:, timeout: 0).payloads) }
    end
    assert_equal count, got.sum { |_, payloads| payloads.size }, "messages within #{seconds} s"
    got
  end

  # ---- which consumers a wait returns ----

  slow def test_wait_returns_only_the_consumers_that_have_messages
    consumers, topics = idle(4)
    set = Set.new(*consumers)
    quiet(set)
    produce(topics[2], %w[a])
    assert_equal [consumers[2]], set.wait(timeout: 10)
    assert_equal "a", consumers[2].poll(timeout: 0).payload
    assert_empty set.wait(timeout: 0.1)
  end

  def test_a_consumer_is_returned_until_it_has_no_more_messages
    consumers, topics = idle(2)
    set = Set.new(*consumers)
    produce(topics[0], Array.new(5, &:to_s))
    eventually { set.wait(timeout: 1).include?(consumers[0]) }
    got = []
    while got.size < 5
      assert_includes set.wait(timeout: 10), consumers[0]
      got << consumers[0].poll(timeout: 0)&.payload
      got.compact!
    end
    assert_equal %w[0 1 2 3 4], got
    quiet(set)
    assert_empty set.wait(timeout: 0.1)
  end

  # What the consumer meets in the background is published by a poll.
  def test_events_of_an_idle_consumer_do_not_wait_for_a_message
    own = own_cluster
    own.create_topic("orders", partitions: 1)
    one = group_consumer(servers: own.bootstrap_servers, "enable.auto.commit": false) { |config| config.logger = Logger.new(nil) }
    one.assign("orders" => { 0 => 0 })
    seen = []
    one.monitor.subscribe("offsets.commit_failed") { |event| seen << event }
    set = Set.new(one)
    quiet(set)
    own.inject_errors(:offset_commit, :group_authorization_failed)
    one.commit({ "orders" => { 0 => 1 } }, async: true)
    eventually do
      set.wait(timeout: 60).each { |ready| ready.poll_batch(timeout: 0) }
      seen.any?
    end
    assert_equal :group_authorization_failed, seen.first[:error].code
  end

  # The program may have rescued the first error.
  def test_a_consumer_with_a_fatal_error_is_returned_again
    own = own_cluster
    own.create_topic("fatal", partitions: 1)
    kafka = { "group.instance.id": "me", "heartbeat.interval.ms": 50, log_level: 0 }
    one = group_consumer(servers: own.bootstrap_servers, **kafka) { |config| config.logger = Logger.new(nil) }.subscribe("fatal")
    set = Set.new(one)
    own.inject_errors(:heartbeat, :fenced_instance_id)
    raised = 0
    eventually do
      set.wait(timeout: 60).each { |ready| ready.poll_batch(timeout: 0) }
      false
    rescue Penstock::ConsumeError => e
      assert_equal [:fenced_instance_id, true], [e.code, e.fatal?]
      (raised += 1) == 3
    end
  end

  def test_a_consumer_that_already_has_messages_when_it_is_added_is_returned
    name = topic(partitions: 1)
    produce(name, %w[a b])
    one = reading(name)
    assert_equal "a", one.poll(timeout: 10).payload
    assert_equal %w[b], read_all(Set.new(one), 1)[one]
  end

  def test_messages_wake_a_waiting_thread
    consumers, topics = idle(3)
    set = Set.new(*consumers)
    quiet(set)
    waiting = Thread.new { [set.wait(timeout: 100), now] }
    eventually { waiting.stop? }
    start = now
    produce(topics[1], %w[a])
    ready, woken = waiting.value
    assert_equal [consumers[1]], ready
    assert_operator woken - start, :<, 50, "the message did not wake the thread"
  end

  def test_wait_returns_an_empty_array_when_the_time_is_up
    set = Set.new(*idle(1).first)
    quiet(set)
    ready = nil
    assert_operator seconds_of { ready = set.wait(timeout: 0.3) }, :>=, 0.29 # and not much longer: conformance_test.rb
    assert_empty ready
    assert_empty set.wait(timeout: 0)
    assert_operator seconds_of { assert_empty Set.new.wait(timeout: 0.3) }, :>=, 0.29
  end

  def test_wrong_arguments_raise_clear_errors
    set = Set.new
    assert_match(/write wait\(timeout: 1\)/, assert_raises(ArgumentError) { set.wait(1) }.message)
    assert_match(/write wait\(timeout: 1\)/, assert_raises(ArgumentError) { set.wait(tiemout: 1) }.message)
    assert_match(/timeout/, assert_raises(ArgumentError) { set.wait(timeout: 5_000) }.message)
    assert_raises(ArgumentError) { set.wait(timeout: -1) }
    assert_match(/write each_batch/, assert_raises(ArgumentError) { set.each_batch(min: 1) { nil } }.message)
    assert_match(/write select/, assert_raises(ArgumentError) { Penstock::Consumer.select([], 1) }.message)
    assert_raises(TypeError) { set.add(nil) }
    assert_match(/\*consumers/, assert_raises(TypeError) { Penstock::ConsumerSet.new([]) }.message)
    assert_raises(TypeError) { set.delete("x") }
    assert_raises(TypeError) { set.dup }
  end

  # ---- members ----

  def test_a_set_knows_its_consumers
    one, other = Array.new(2) { unreachable_consumer }
    set = Set.new(one)
    assert_same set, set.add(other).add(other)
    assert_equal [2, true, false], [set.size, set.include?(other), set.empty?]
    assert_equal [one, other].sort_by(&:id), set.consumers.sort_by(&:id)
    assert_same set, set.delete(one).delete(one)
    assert_equal [[other], false], [set.consumers, set.include?(one)]
    assert_equal "#<Penstock::ConsumerSet 1 consumer>", set.inspect
    assert_predicate set.clear, :empty?
  end

  def test_a_consumer_can_be_in_one_set
    one = unreachable_consumer
    set = Set.new(one)
    assert_match(/another ConsumerSet/, assert_raises(ArgumentError) { Set.new.add(one) }.message)
    assert_raises(ArgumentError) { Penstock::Consumer.select([one], timeout: 0) }
    set.delete(one)
    assert_equal [one], Set.new(one).consumers
  end

  def test_a_set_that_cannot_be_made_holds_no_consumer
    one = unreachable_consumer
    assert_raises(TypeError) { Set.new(one, nil) }
    assert_raises(Penstock::ConsumerClosedError) { Set.new(one, unreachable_consumer.tap(&:close)) }
    assert_equal [one], Set.new(one).consumers
  end

  def test_a_thread_that_waits_gets_a_consumer_that_is_added_meanwhile
    name = topic(partitions: 1)
    produce(name, %w[a])
    one = reading(name)
    eventually { one.poll(timeout: 1) && one.seek(name, 0, 0) }
    set = Set.new
    waiting = Thread.new { set.wait(timeout: 30) }
    eventually { waiting.stop? }
    set.add(one)
    assert_equal [one], waiting.value
  end

  def test_a_thread_that_waits_returns_when_the_last_consumer_is_deleted
    consumers, = idle(2)
    set = Set.new(*consumers)
    quiet(set)
    waiting = Thread.new { set.wait(timeout: nil) }
    eventually { waiting.stop? }
    set.delete(consumers[0])
    assert_nil waiting.join(0.2)
    set.delete(consumers[1])
    assert_empty waiting.value
  end

  def test_a_deleted_consumer_is_not_returned
    consumers, topics = idle(2)
    set = Set.new(*consumers)
    topics.each { |name| produce(name, %w[a]) }
    eventually { set.wait(timeout: 1).size == 2 }
    set.delete(consumers[0])
    assert_equal [consumers[1]], set.wait(timeout: 1)
    assert_equal "a", consumers[0].poll(timeout: 5).payload
  end

  def test_adding_and_deleting_for_ever_needs_no_wait_and_no_memory
    one, = idle(1).first
    set = Set.new
    20_000.times { set.add(one).delete(one) }
    before = resident
    100_000.times { set.add(one).delete(one) }
    assert_operator resident - before, :<, 4_000 # kB; each of the structs has more than 100 bytes
  end

  def resident = File.read("/proc/self/statm").split[1].to_i * 4

  # ---- closing ----

  slow def test_a_closed_consumer_is_returned_once_and_leaves_the_set
    consumers, = idle(2)
    set = Set.new(*consumers)
    quiet(set)
    waiting = Thread.new { set.wait(timeout: 30) }
    eventually { waiting.stop? }
    consumers[0].close
    assert_equal [consumers[0]], waiting.value
    assert_equal [consumers[1]], set.consumers
    assert_empty set.wait(timeout: 0.1)
  end

  def test_a_consumer_that_is_closed_before_its_first_use_is_returned_too
    one = unreachable_consumer
    set = Set.new(one)
    assert_empty set.wait(timeout: 0)
    waiting = Thread.new { set.wait(timeout: 30) }
    eventually { waiting.stop? }
    one.close
    assert_equal [one], waiting.value
    assert_predicate set, :empty?
  end

  def test_a_consumer_that_is_used_only_after_it_was_added_is_returned
    name = topic(partitions: 1)
    produce(name, %w[a])
    one = consumer
    set = Set.new(one)
    waiting = Thread.new { read_all(set, 1)[one] }
    eventually { waiting.stop? }
    one.assign(name => { 0 => 0 })
    assert_equal %w[a], waiting.value
  end

  slow def test_select_waits_once_and_keeps_nothing
    consumers, topics = idle(3)
    consumers.each { |one| one.poll_batch(timeout: 0.1) }
    assert_empty Penstock::Consumer.select(consumers, timeout: 0.1)
    produce(topics[1], %w[a])
    assert_equal [consumers[1]], Penstock::Consumer.select(consumers, timeout: 10)
    assert_equal 3, Set.new(*consumers).size
  end

  # ---- groups ----

  slow def test_members_of_groups_join_and_read_through_a_set
    names = Array.new(3) { topic(partitions: 2) }
    names.each { |name| 2.times { |partition| produce(name, %w[a b c], partition:) } }
    members = names.map { |name| group_consumer.subscribe(name) }
    got = read_all(Set.new(*members), 18, max: 2)
    assert_equal [%w[a a b b c c]] * 3, members.map { |one| got[one].sort }
  end

  slow def test_waiting_counts_what_was_polled_as_processed
    name = topic(partitions: 1)
    produce(name, %w[a b c])
    one = group_consumer("auto.commit.interval.ms": 50).subscribe(name)
    set = Set.new(one)
    read_all(set, 3)
    assert_nil one.committed(name, 0)[0]
    eventually { set.wait(timeout: 0.1) && one.committed(name, 0)[0] == 3 }
  end

  # With two threads in wait, the one that looks first must not forget what the other one works on.
  slow def test_waiting_counts_what_this_thread_has_polled_even_if_another_waited_in_between
    name = topic(partitions: 1)
    produce(name, %w[a b c])
    one = group_consumer("auto.commit.interval.ms": 50).subscribe(name)
    set = Set.new(one)
    read_all(set, 3)
    Thread.new { assert_empty set.wait(timeout: 0.2) }.join
    assert_nil one.committed(name, 0)[0]
    set.wait(timeout: 0)
    eventually { one.committed(name, 0)[0] == 3 }
  end

  slow def test_marking_is_left_to_the_program_if_it_wants_to
    name = topic(partitions: 1)
    produce(name, %w[a])
    one = group_consumer("auto.commit.interval.ms": 50) { |config| config.mark = :manual }.subscribe(name)
    set = Set.new(one)
    read_all(set, 1)
    3.times { set.wait(timeout: 0.1) }
    assert_nil one.committed(name, 0)[0]
  end

  alone slow def test_an_idle_consumer_is_returned_for_a_poll_in_half_of_max_poll_interval
    one, other = idle(2).first
    brief = consumer("group.id": "brief", "max.poll.interval.ms": 1_000, "session.timeout.ms": 1_000,
                     "heartbeat.interval.ms": 300).assign(topic => { 0 => 0 })
    set = Set.new(one, other, brief)
    quiet(set)
    returned = 3.times.map do
      seconds_of { assert_equal [brief], set.wait(timeout: 5) }
    end
    returned.each { |seconds| assert_in_delta 0.5, seconds, 0.3 }
  end

  thorough def test_an_idle_member_keeps_its_membership_in_a_set
    name = topic(partitions: 1)
    one = group_consumer("max.poll.interval.ms": 6_000).subscribe(name)
    busy = topic(partitions: 1)
    set = Set.new(one, reading(busy))
    eventually { set.wait(timeout: 0.1).each { _1.poll(timeout: 0) } && !one.assignment.empty? }
    deadline = now + 10
    until now > deadline
      produce(busy, %w[x])
      set.wait(timeout: 0.1).each { |ready| ready.poll_batch(timeout: 0) } # an eviction would raise :max_poll_exceeded
    end
    assert_equal({ name => [0] }, one.assignment)
  end

  class Slow
    def assigned(_rebalance)
      @running = true
      sleep 0.6
      @running = false
      @done = true
    end

    def running? = @running
    def done? = @done
  end

  # Its queue is not empty, but no thread can take anything.
  thorough def test_a_revocation_is_held_back_no_longer_than_configured
    name = topic(partitions: 2)
    2.times { |partition| produce(name, %w[a b], partition:) }
    one = group_consumer(name) do |config|
      config.hold_rebalances = 1_000
      config.mark = :manual # the messages stay in work
    end
    one.subscribe(name)
    set = Set.new(one)
    read_all(set, 4)
    other = group_consumer(name).subscribe(name)
    thread = quiet_thread { other.poll(timeout: 0.1) }
    eventually { set.wait(timeout: 0.1).each { |consumer| consumer.poll(timeout: 0) } && one.membership.state == :rebalancing }
    start = now
    set.wait(timeout: 60).each { |consumer| consumer.poll(timeout: 0) }
    refute_equal :rebalancing, one.membership.state
    assert_took(30, now - start, "the configured second did not end the wait")
  ensure
    thread&.kill
  end

  slow def test_a_consumer_whose_listener_runs_in_another_thread_is_not_returned_over_and_over
    name = topic(partitions: 1)
    listener = Slow.new
    one = group_consumer { |config| config.rebalance_listener = listener }.subscribe(name)
    set = Set.new(one)
    polling = Thread.new { one.poll(timeout: 0.1) until listener.done? }
    eventually { listener.running? }
    returned = 0
    returned += set.wait(timeout: 0.1).size while listener.running?
    assert_operator returned, :<, 20
    polling.join
  end

  # ---- fairness ----

  # A consumer that has fetched its messages, or most of them.
  def backlog(count)
    name = topic(partitions: 1)
    produce(name, ["x"] * (count + 20))
    reading(name).tap { |one| take(one, 20, batch: 1) }
  end

  def test_a_consumer_with_a_backlog_does_not_starve_others
    consumers = [backlog(3_000), backlog(60), backlog(60)]
    order = []
    Set.new(*consumers).each_batch(max: 2) do |one, _batch|
      order << consumers.index(one)
      break if order.size == 30
    end
    assert_equal [10, 10, 10], order.tally.values_at(0, 1, 2), order.inspect
  end

  def test_a_program_that_polls_only_the_first_one_serves_all
    consumers = Array.new(3) { backlog(60) }
    set = Set.new(*consumers)
    assert_equal [10, 10, 10], Array.new(30) { set.wait(timeout: 1).first.tap { _1.poll(timeout: 0) } }.tally.values
  end

  # ---- each_batch ----

  def test_each_batch_yields_all_messages_until_every_consumer_is_closed
    consumers, topics = idle(3)
    topics.each { |name| produce(name, %w[a b c d]) }
    set = Set.new(*consumers)
    got = Hash.new(0)
    result = set.each_batch(max: 3) do |one, batch|
      assert_operator batch.size, :<=, 3
      one.close if (got[one] += batch.size) == 4
    end
    assert_same set, result
    assert_equal [4, 4, 4], got.values
    assert_predicate set, :empty?
  end

  def test_each_batch_is_an_enumerator_without_a_block
    consumers, topics = idle(1)
    produce(topics[0], %w[a])
    one, batch = Set.new(*consumers).each_batch(max: 1).first
    assert_equal [consumers[0], %w[a]], [one, batch.payloads]
  end

  slow def test_a_batch_counts_as_processed_when_the_block_returns
    name = topic(partitions: 1)
    produce(name, %w[a b])
    group = "group-#{name}"
    one = group_consumer(group).subscribe(name)
    set = Set.new(one)
    assert_raises(IOError) do
      set.each_batch(max: 1) { |_, batch| raise IOError if batch.first.offset == 1 }
    end
    one.close
    assert_equal 1, group_consumer(group).committed(name, 0)[0]
  end

  def test_each_batch_continues_after_an_error
    name = topic(partitions: 1)
    produce(name, %w[a b c])
    set = Set.new(one = reading(name))
    got = []
    loop do
      set.each_batch(max: 1) do |_, batch|
        got.concat(batch.payloads)
        raise IOError if got.size == 2

        one.close if got.size == 3
      end
      break
    rescue IOError
      nil
    end
    assert_equal %w[a b c], got
  end

  # ---- threads, interrupts ----

  slow def test_several_threads_share_a_set_and_each_message_is_read_once
    names = Array.new(6) { topic(partitions: 1) }
    names.each { |name| produce(name, Array.new(200) { |i| "#{name} #{i}" }) }
    set = Set.new(*names.map { |name| reading(name) })
    got = Queue.new
    threads = Array.new(3) do
      Thread.new do
        until got.size >= 1_200
          set.wait(timeout: 0.1).each { |one| one.poll_batch(max: 7, timeout: 0).payloads.each { |payload| got << payload } }
        end
      end
    end
    threads.each { |thread| assert Slowness.join(thread, 30) }
    payloads = Array.new(got.size) { got.pop }
    assert_equal [1_200, 1_200], [payloads.size, payloads.uniq.size]
  end

  def test_a_wait_without_a_timeout_can_be_interrupted
    set = Set.new(*idle(1).first)
    quiet(set)
    waiting = quiet_thread { set.wait(timeout: nil) }
    eventually { waiting.stop? }
    waiting.raise(IOError)
    assert_raises(IOError) { waiting.value }
    assert_raises(Timeout::Error) { Timeout.timeout(0.2) { set.wait(timeout: nil) } }
    killed = Thread.new { set.wait(timeout: nil) }
    eventually { killed.stop? }
    killed.kill.join
    assert_empty set.wait(timeout: 0.05)
  end

  def test_a_wait_that_a_trap_changes_goes_on
    consumers, topics = idle(2)
    set = Set.new
    quiet(set)
    waiting = Thread.new { set.wait(timeout: 30) }
    eventually { waiting.stop? }
    in_trap { set.add(consumers[0]).add(consumers[1]).delete(consumers[0]) }
    produce(topics[1], %w[a])
    assert_equal [consumers[1]], waiting.value
  end

  # ---- fibers ----

  FiberSchedulers::KINDS.each do |kind|
    define_method(:"test_a_fiber_waits_while_others_run_#{kind}") do
      consumers, topics = idle(3)
      writer = producer
      set = Set.new(*consumers)
      quiet(set)
      with_scheduler(kind) do |fibers|
        ran = 0
        others = fibers.start { 20.times { sleep(0.005) && ran += 1 } }
        waiting = fibers.start { set.wait(timeout: 20) }
        assert_empty set.wait(timeout: 0.3)
        others.join
        assert_equal 20, ran
        writer.produce_async(topic: topics[1], payload: "a", partition: 0)
        assert_equal [consumers[1]], waiting.join
      end
    end

    define_method(:"test_a_waiting_fiber_can_be_interrupted_#{kind}") do
      set = Set.new(*idle(1).first)
      quiet(set)
      with_scheduler(kind) do |fibers|
        assert_raises(fibers.timeout_error) { fibers.timeout(0.1) { set.wait(timeout: nil) } }
        waiting = fibers.start { set.wait(timeout: nil) }
        sleep 0.05
        fibers.cancel(waiting)
        sleep 0.001 until waiting.done?
        assert_instance_of Cancelled, waiting.error
        assert_empty set.wait(timeout: 0.05)
      end
    end

    define_method(:"test_many_fibers_wait_for_sets_of_their_own_#{kind}") do
      consumers, topics = idle(8)
      writer = producer
      with_scheduler(kind) do |fibers|
        readers = consumers.each_slice(2).map { |pair| fibers.start { read_all(Set.new(*pair), 20).values.map(&:size) } }
        writer.produce_many_async(topics.flat_map { |topic| Array.new(10) { { topic:, payload: "x", partition: 0 } } })
        assert_equal [[10, 10]] * 4, readers.map(&:join)
      end
    end
  end

  # ---- fork, GC, Ractors ----

  def test_a_set_of_the_parent_process_raises_in_a_child
    consumers, = idle(1)
    set = Set.new(*consumers)
    quiet(set)
    errors = in_child do
      fresh = Set.new
      GC.start
      calls = [-> { set.wait(timeout: 0) }, -> { set.size }, -> { set.add(unreachable_consumer) }, -> { fresh.add(consumers[0]) }]
      [*calls.map do |call|
        call.call && nil
      rescue Penstock::ForkedError => e
        e.message[/\A\w+ (consumer set|consumer)/, 1] || e.message
      end, fresh.wait(timeout: 0)]
    end
    assert_equal ["consumer set", "consumer set", "consumer set", "consumer", []], errors
    assert_equal 1, set.size
  end

  def test_a_thread_whose_trap_forks_gets_an_error_in_the_child
    set = Set.new(*idle(1).first)
    quiet(set)
    reader, writer = IO.pipe
    child = nil
    parent = Process.pid
    before = Signal.trap("USR2") { child ||= fork }
    Thread.new { sleep(0.2) && Process.kill(:USR2, parent) }
    begin
      set.wait(timeout: 0.6) until child # on a busy machine the signal may come later
    rescue Penstock::ForkedError
      writer.write("forked") unless Process.pid == parent
    ensure
      exit!(0) unless Process.pid == parent
    end
    writer.close
    Process.wait(child)
    assert_equal "forked", reader.read
  ensure
    Signal.trap("USR2", before || "DEFAULT")
  end

  # In a method of its own, so that the stack does not keep the set.
  def abandon_sets(consumers)
    50.times { Set.new(*consumers).tap { |set| set.wait(timeout: 0) }.clear }
    Set.new(*consumers)
    nil
  end

  def test_a_set_is_collected_while_its_consumers_live
    consumers, topics = idle(2)
    Thread.new { abandon_sets(consumers) }.join
    set = nil
    eventually do
      GC.start
      set = begin
        Set.new(*consumers)
      rescue ArgumentError
        nil
      end
    end
    produce(topics[0], %w[a])
    assert_equal %w[a], read_all(set, 1)[consumers[0]]
  end

  def test_a_set_keeps_its_consumers_alive
    name = topic(partitions: 1)
    set = Set.new
    Thread.new { set.add(Penstock::Consumer.new("bootstrap.servers": cluster.bootstrap_servers).assign(name => { 0 => 0 })) }.join
    3.times { GC.start }
    GC.compact if GC.respond_to?(:compact)
    produce(name, %w[a])
    assert_equal [%w[a]], read_all(set, 1).values
    set.consumers.each(&:close)
  end

  def test_a_set_and_its_consumers_are_collected_together
    ruby!(<<~RUBY, cluster.bootstrap_servers, topic(partitions: 1))
      20.times do
        set = Penstock::ConsumerSet.new
        3.times { set.add(Penstock::Consumer.new("bootstrap.servers": ARGV[0]).assign(ARGV[1] => { 0 => 0 })) }
        set.wait(timeout: 0)
        set = nil
        GC.start
      end
    RUBY
  end

  def test_another_ractor_may_have_a_set
    name = topic(partitions: 1)
    produce(name, %w[a])
    output = ruby!(<<~RUBY, cluster.bootstrap_servers, name)
      $VERBOSE = nil
      reading = Ractor.new(*ARGV) do |servers, name|
        one = Penstock::Consumer.new("bootstrap.servers": servers).assign(name => { 0 => 0 })
        payload = nil
        Penstock::ConsumerSet.new(one).each_batch { |_, batch| (payload = batch.payloads[0]) && one.close }
        payload
      end
      print reading.respond_to?(:take) ? reading.take : reading.value
    RUBY
    assert_equal "a", output
  end

  # ---- cost, stress ----

  def thread_cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)

  alone thorough def test_a_set_of_idle_consumers_uses_no_cpu
    set = Set.new(*idle(30).first)
    quiet(set)
    before = thread_cpu
    assert_empty set.wait(timeout: 2)
    assert_operator thread_cpu - before, :<, 0.01
  end

  # One thread writes, one moves consumers from set to set at random, and two read each set.
  class Storm
    attr_reader :got, :total

    def initialize(consumers, topics, writer)
      @consumers = consumers
      @topics = topics
      @writer = writer
      @got = Queue.new
      @total = topics.size * 400
      @sets = Array.new(2) { ConsumerSetTest::Set.new }
      consumers.each { |one| @sets.sample.add(one) }
    end

    # @return [Boolean] whether the readers ended when their sets were emptied
    def run
      readers = (@sets * 2).map { |set| Thread.new { read(set) while @got.size < @total } }
      writing = Thread.new { write }
      move while writing.alive?
      yield
      @sets.each(&:clear)
      readers.all? { |reader| Slowness.join(reader, 5) }
    end

    private

    def read(set)
      set.wait(timeout: nil).each do |one|
        one.poll_batch(max: rand(1..5), timeout: 0).payloads.each { |payload| @got << payload }
      end
    end

    def write
      400.times do |i|
        @writer.produce_many_async(@topics.shuffle.map { |topic| { topic:, payload: "#{topic} #{i}", partition: 0 } })
        sleep(rand * 0.004)
      end
    end

    def move
      one = @consumers.sample
      @sets.find { |set| set.include?(one) }&.delete(one)
      sleep(rand * 0.002)
      @sets.sample.add(one)
    end
  end

  # Nothing but a wake-up ends the waits.
  def test_no_message_is_missed_during_random_changes
    storm = Storm.new(*idle(10), producer)
    ended = storm.run { eventually(20, -> { "#{storm.got.size} of #{storm.total} messages" }) { storm.got.size == storm.total } }
    assert ended, "a thread still waits"
    assert_equal storm.total, Array.new(storm.total) { storm.got.pop }.uniq.size
  end
end
