# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# Which offsets are committed: those of processed messages.
class ConsumerMarkTest < ConsumerTestCase
  QUICK = { "auto.commit.interval.ms": 20 }.freeze

  def filled(count, partitions: 1)
    topic(partitions:).tap do |name|
      partitions.times { |partition| produce(name, Array.new(count) { |i| "#{partition}-#{i}" }, partition:) }
    end
  end

  # A member that reads chosen partitions: it does not wait for its group.
  def member(name, partitions: [0], group: "group-#{name}", **kafka, &block)
    group_consumer(group, **QUICK, **kafka, &block).assign(name => partitions)
  end

  def committed(name, partition = 0) = asker(name).committed(name, partition).fetch(partition)

  def asker(name) = (@askers ||= {})[name] ||= group_consumer("group-#{name}")

  # What a new member of the group would read first.
  def assert_committed(offset, name, partition = 0)
    eventually { committed(name, partition) == offset }
  end

  # Offsets are committed every 20 ms: this is long enough to see a wrong one.
  def assert_stays(offset, name)
    10.times do
      assert_equal_or_nil offset, committed(name)
      sleep 0.03
    end
  end

  def assert_equal_or_nil(expected, actual) = expected.nil? ? assert_nil(actual) : assert_equal(expected, actual)

  slow def test_what_is_processed_is_committed_although_the_program_does_not_poll
    name = filled(4)
    one = member(name, "auto.commit.interval.ms": 1_500)
    assert_nil committed(name) # it has connected
    take(one, 2)
    taken = now
    sleep 0.01 # librdkafka gets offsets once a millisecond at most
    one.poll_batch(max: 1, timeout: 5)
    early = committed(name)
    assert_nil early if now - taken < 0.25 # on a slow machine, the interval has passed before the answer
    assert_committed 2, name
  end

  def test_a_batch_that_is_committed_stays_committed_when_its_partition_is_taken_away
    name = filled(4, partitions: 2)
    one = member(name, "enable.auto.commit": false) { |config| config.mark = :manual }
    batch = one.poll_batch(max: 3, timeout: 10)
    assert_equal 3, batch.size
    assert one.mark(batch)
    assert one.commit
    one.assign(name => [1])
    assert one.commit(batch), "false says that the messages come again"
    assert one.commit(batch, async: true)
    one.assign(name => { 0 => 0 })
    refute one.commit(batch), "the program reads from the beginning, so they do come again"
  end

  def test_a_batch_that_only_a_rebalance_listener_has_committed_is_committed
    name = filled(4)
    listener = Object.new
    def listener.revoked(rebalance) = rebalance.consumer.commit
    one = group_consumer("group-#{name}", "enable.auto.commit": false) do |config|
      config.mark = :manual
      config.rebalance_listener = listener
    end
    one.subscribe(name)
    batch = one.poll_batch(max: 3, timeout: 10)
    assert one.mark(batch)
    one.unsubscribe
    eventually { one.poll(timeout: 0.01).nil? && one.revoked?(batch) }
    assert one.commit(batch)
    assert_equal batch.to_a.last.offset + 1, committed(name)
  end

  def test_a_batch_that_nobody_has_committed_is_not_committed_when_its_partition_is_taken_away
    name = filled(4, partitions: 2)
    one = member(name, "enable.auto.commit": false) { |config| config.mark = :manual }
    batch = one.poll_batch(max: 3, timeout: 10)
    assert one.mark(batch.first)
    assert one.commit
    one.assign(name => [1])
    refute one.commit(batch)
    refute one.commit(batch, async: true)
    assert one.commit(batch.first)
  end

  { "with_an_interval" => 60_000, "without_an_interval" => 0 }.each do |name, interval|
    define_method("test_a_batch_is_committed_with_enable_auto_commit_#{name}_when_its_partition_is_taken_away") do
      name = filled(4, partitions: 2)
      one = member(name, "auto.commit.interval.ms": interval) { |config| config.mark = :manual }
      batch = one.poll_batch(max: 3, timeout: 10)
      assert one.mark(batch)
      one.assign(name => [1])
      assert one.commit(batch)
      assert_committed 3, name
    end
  end

  def test_a_batch_is_not_committed_if_brokers_refuse_what_is_committed_as_its_partition_is_taken_away
    own = own_cluster
    own.create_topic("refused", partitions: 2)
    produce("refused", %w[a b c], on: producer(servers: own.bootstrap_servers))
    refusals = []
    one = group_consumer(servers: own.bootstrap_servers, "auto.commit.interval.ms": 60_000) do |config|
      config.mark = :manual
      config.logger = Logger.new(nil)
    end
    one.monitor.subscribe("offsets.commit_failed") { |event| refusals << event }
    one.assign("refused" => [0])
    batch = one.poll_batch(max: 3, timeout: 10)
    assert one.mark(batch)
    own.inject_errors(:offset_commit, :group_authorization_failed)
    one.assign("refused" => [1])
    eventually { one.poll(timeout: 0.01).nil? && refusals.any? }
    assert_equal({ 0 => nil }, one.committed("refused", 0))
    refute one.commit(batch), "the messages come again"
    refute one.commit(batch, async: true)
  end

  # As a program does that reads one more partition.
  def test_a_batch_that_is_committed_stays_committed_when_its_partition_is_assigned_again
    name = filled(4, partitions: 2)
    one = member(name, "enable.auto.commit": false) { |config| config.mark = :manual }
    batch = one.poll_batch(max: 3, timeout: 10)
    assert one.mark(batch)
    assert one.commit
    one.assign(name => [0, 1])
    assert one.commit(batch)
    assert_equal [batch.size], take(one, 4 + 4 - batch.size).select { |message| message.partition.zero? }.map(&:offset).first(1)
    assert one.commit(batch)
    one.seek(name => { 0 => 0 })
    refute one.commit(batch), "the program reads from the beginning, so they do come again"
  end

  def test_without_an_interval_nothing_is_committed_before_the_end
    name = filled(4)
    one = member(name, "auto.commit.interval.ms": 0)
    take(one, 4)
    one.poll(timeout: 0.1)
    assert_stays nil, name
    one.close
    assert_committed 4, name
  end

  def test_what_a_thread_works_on_is_not_committed
    name = filled(4)
    one = member(name)
    batch = eventually { one.poll_batch(max: 2, timeout: 1).then { |taken| taken unless taken.empty? } }
    assert_stays nil, name
    one.poll_batch(max: 1, timeout: 5)
    assert_committed batch.size, name
    assert_stays batch.size, name
  end

  def test_a_poll_that_returns_nothing_marks_too
    name = filled(3)
    one = member(name)
    take(one, 3)
    one.poll(timeout: 0)
    assert_committed 3, name
  end

  slow def test_a_crashed_process_loses_nothing
    name = filled(10)
    one = member(name)
    take(one, 5, batch: 1)
    Thread.new { one.close }.join # as if it had crashed: nobody said that the last message was processed
    two = member(name)
    assert_equal "0-4", take(two, 6).first.payload
  end

  def test_close_after_the_work_commits_all
    name = filled(5)
    one = member(name)
    take(one, 5, batch: 2)
    assert_predicate one.close, :complete?
    assert_equal 5, committed(name)
  end

  # What a thread was working on is not processed.
  { "an_exception" => -> { raise "failed" }, "the_end_of_its_thread" => -> { Thread.current.kill } }.each do |what, interrupt|
    define_method(:"test_close_does_not_commit_what_was_interrupted_by_#{what}") do
      name = filled(5)
      one = member(name)
      quiet_thread do
        take(one, 2, batch: 1)
        interrupt.call
      ensure
        one.close
      end.join
    rescue RuntimeError
      assert_equal 1, committed(name)
    else
      assert_equal 1, committed(name)
    end
  end

  def test_close_in_a_signal_trap_does_not_commit_what_the_main_thread_works_on
    name = filled(5)
    one = member(name)
    take(one, 2, batch: 1)
    in_trap { one.close }
    assert_equal 1, committed(name)
  end

  def test_each_marks_a_message_when_its_block_returns
    name = filled(5)
    one = member(name)
    error = assert_raises(RuntimeError) do
      one.each { |message| raise "cannot process #{message.payload}" if message.offset == 3 }
    end
    assert_equal "cannot process 0-3", error.message
    assert_predicate one.close, :complete?
    assert_equal 3, committed(name)
  end

  def test_another_threads_work_is_not_committed
    name = filled(6)
    one = member(name)
    taken = Queue.new
    go_on = Queue.new
    slow = Thread.new do
      taken << one.poll(timeout: 10)
      go_on.pop
      one.poll(timeout: 0)
    end
    first = taken.pop
    assert_equal 0, first.offset
    take(one, 5, batch: 1)
    one.poll(timeout: 0)
    assert_stays nil, name # messages 1 to 5 are processed, message 0 is not
    go_on << true
    slow.join
    assert_committed 6, name
  end

  def test_fibers_of_one_thread_are_told_apart
    name = filled(3)
    one = member(name)
    waiting = Fiber.new do
      first = eventually { one.poll(timeout: 1) }
      Fiber.yield first.offset
      one.poll(timeout: 0)
    end
    assert_equal 0, waiting.resume
    take(one, 2, batch: 1)
    one.poll(timeout: 0)
    assert_stays nil, name
    waiting.resume
    assert_committed 3, name
  end

  # defect C10
  def test_manual_marks
    name = filled(6)
    one = member(name) { |config| config.mark = :manual }
    messages = take(one, 6, batch: 2)
    one.poll(timeout: 0)
    assert_stays nil, name
    assert one.mark(messages[2])
    assert_committed 3, name
    assert one.mark(messages[0]) # already
    assert one.commit
    assert_equal 3, committed(name)
    one.mark(messages.last)
    assert one.commit
    assert_equal 6, committed(name)
  end

  def test_a_batch_is_marked_in_all_its_partitions
    name = filled(4, partitions: 3)
    one = member(name, partitions: [0, 1, 2]) { |config| config.mark = :manual }
    batches = []
    batches << one.poll_batch(max: 5, timeout: 5) until batches.sum(&:size) == 12
    batches.each { |batch| assert one.mark(batch) }
    3.times { |partition| assert_committed 4, name, partition }
  end

  def test_at_once
    name = filled(3)
    one = member(name) { |config| config.mark = :at_once }
    take(one, 1, batch: 1)
    assert_committed 1, name
  end

  def test_librdkafkas_setting_for_storing_offsets_chooses_the_kind_of_marks
    assert_equal :manual, consumer("enable.auto.offset.store": false).config.mark
    assert_equal :at_once, consumer("enable.auto.offset.store": "true").config.mark
    assert_equal :next_poll, consumer.config.mark
    assert_raises(Penstock::ConfigurationInvalidError) { consumer("enable.auto.offset.store": "perhaps") }
    assert_raises(Penstock::ConfigurationInvalidError) { consumer { |config| config.mark = :sometimes } }
  end

  def test_commit_of_a_batch
    name = filled(4, partitions: 2)
    one = member(name, partitions: [0, 1], "enable.auto.commit": false)
    batches = []
    batches << one.poll_batch(max: 3, timeout: 5) until batches.sum(&:size) == 8
    batches.each { |batch| assert one.commit(batch) }
    assert_equal [4, 4], [committed(name, 0), committed(name, 1)]
  end

  # defect C31
  def test_a_message_of_an_earlier_assignment_cannot_be_marked
    name = filled(4)
    one = member(name)
    old = take(one, 2, batch: 1)
    one.assign({})
    assert_equal [false, false], [one.mark(old.last), one.commit(old.last)]
    one.assign(name => { 0 => 0 })
    fresh = take(one, 4, batch: 1)
    assert_equal [false, false], [one.mark(old.last), one.commit(old.last)]
    assert one.mark(fresh.last)
  end

  # librdkafka gets the offsets of quick polls every ms only.
  def test_what_is_processed_when_the_assignment_changes_is_committed
    name = filled(40)
    one = member(name)
    take(one, 40, batch: 1)
    one.assign({})
    assert_committed 39, name
  end

  def test_a_message_of_another_consumer_cannot_be_marked
    name = filled(2)
    one = member(name)
    two = member(name)
    message = take(one, 1, batch: 1).first
    refute two.mark(message)
    assert_nil two.mark(Penstock::Message.new(topic: name, partition: 0, offset: 0))
    assert_match(/Penstock::Message or Penstock::Batch, .* String/, assert_raises(TypeError) { two.mark("a message") }.message)
  end

  def test_a_seek_forgets_what_was_polled
    name = filled(6)
    one = member(name)
    take(one, 4)
    one.seek(name, 0, 2)
    assert_nil one.position(name, 0)
    assert_equal 2, take(one, 1, batch: 1).first.offset
    assert_equal 3, one.poll(timeout: 5).offset # marks message 2
    Thread.new { one.close }.join
    assert_equal 3, committed(name)
  end

  def test_what_another_thread_polled_comes_again_after_a_seek
    name = filled(6)
    one = member(name)
    Thread.new { take(one, 4) }.join # the thread never polls again
    one.seek(name, 0, 0)
    take(one, 6)
    one.poll(timeout: 0)
    assert_committed 6, name
  end

  def test_what_another_thread_works_on_counts_after_a_seek
    name = filled(10)
    one = member(name)
    early = Thread.new { take(one, 4, batch: 4) }.value
    one.seek(name, 0, 2)
    refute one.mark(early.last)
    one.seek(name, 0, 8)
    assert_equal 8, take(one, 1, batch: 1).first.offset
    one.poll(timeout: 5)
    one.poll(timeout: 0)
    assert_stays nil, name
    assert one.mark(early[1])
    assert_committed 10, name
  end
end
