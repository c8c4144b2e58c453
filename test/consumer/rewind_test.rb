# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# Consumer#rewind: messages whose work has failed come again.
class ConsumerRewindTest < ConsumerTestCase
  def filled(count, partitions: 1)
    topic(partitions:).tap do |name|
      partitions.times { |partition| produce(name, Array.new(count) { |i| "#{partition}-#{i}" }, partition:) }
    end
  end

  # A member that reads chosen partitions: it does not wait for its group.
  def member(name, partitions: [0], **kafka, &block)
    group_consumer("group-#{name}", **kafka, &block).assign(name => partitions.to_h { |partition| [partition, 0] })
  end

  def batch(consumer, max: 100) = eventually { consumer.poll_batch(max:, timeout: 1).then { |taken| taken unless taken.empty? } }

  def committed(name) = group_consumer("group-#{name}").committed(name, 0).fetch(0)

  def test_a_batch_comes_again
    name = filled(6)
    one = member(name)
    take(one, 2)
    rewound = batch(one, max: 3)
    assert one.rewind(rewound)
    assert_equal 2, one.position(name, 0)
    assert_equal [2, 3, 4, 5], take(one, 4).map(&:offset)
  end

  def test_a_batch_of_several_partitions_comes_again_and_others_go_on
    name = filled(3, partitions: 3)
    one = member(name, partitions: [0, 1, 2])
    batches = []
    batches << batch(one, max: 4) until batches.sum(&:size) == 9
    rewound = batches.last
    assert one.rewind(rewound)
    assert_equal rewound.map(&:payload).sort, take(one, rewound.size).map(&:payload).sort
    assert_nil one.poll(timeout: 0.2)
  end

  def test_a_message_comes_again_with_those_behind_it
    name = filled(5)
    one = member(name)
    messages = take(one, 4)
    assert one.rewind(messages[2])
    assert_equal [2, 3, 4], take(one, 3).map(&:offset)
  end

  def test_what_was_before_it_is_processed_and_what_comes_again_is_not
    name = filled(5)
    one = member(name, "enable.auto.commit": false)
    take(one, 2)
    old = batch(one, max: 2) # the first two are processed
    one.rewind(old)
    refute one.mark(old)
    assert one.commit
    assert_equal 2, committed(name)
    assert one.mark(take(one, 2).last)
    assert one.commit
    assert_equal 4, committed(name)
  end

  # Their work does not come again, so it must count.
  def test_what_other_threads_work_on_before_it_can_still_be_marked
    name = filled(6)
    one = member(name, "enable.auto.commit": false) { |config| config.mark = :manual }
    earlier = Thread.new { batch(one, max: 2) }.value
    rewound = batch(one, max: 2)
    later = Thread.new { batch(one, max: 1) }.value
    assert one.rewind(rewound)
    assert one.mark(earlier)
    assert_equal [false, false], [one.mark(rewound), one.mark(later)]
    assert one.commit
    assert_equal earlier.size, committed(name)
    assert_equal 6 - earlier.size, take(one, 6 - earlier.size).size
  end

  slow def test_a_marked_batch_is_no_longer_processed_when_it_is_rewound
    name = filled(4)
    one = member(name, "enable.auto.commit": false)
    taken = batch(one, max: 3)
    assert one.mark(taken)
    assert one.rewind(taken)
    assert one.commit
    assert_equal 0, committed(name)
  end

  def test_a_rewind_to_an_earlier_message_includes_later_ones
    name = filled(6)
    one = member(name)
    first = take(one, 2)
    second = batch(one, max: 2)
    assert one.rewind(first.first)
    refute one.rewind(second)
    assert_equal [0, 1, 2, 3, 4, 5], take(one, 6).map(&:offset)
    refute one.rewind(second)
  end

  # Another member may have processed it meanwhile.
  def test_partitions_that_were_taken_away_are_left_alone
    name = filled(4, partitions: 2)
    one = member(name, partitions: [0, 1])
    old = take(one, 8)
    one.assign(name => { 0 => 3 })
    assert_equal [false, false], (old.values_at(0, -1).map { |message| one.rewind(message) })
    assert_equal ["0-3"], take(one, 1).map(&:payload)
    assert_nil one.poll(timeout: 0.2)
  end

  slow def test_a_paused_partition_stays_paused
    name = filled(3)
    one = member(name)
    taken = take(one, 2)
    one.pause
    assert one.rewind(taken[0])
    assert_nil one.poll(timeout: 0.3)
    one.resume
    assert_equal [0, 1, 2], take(one, 3).map(&:offset)
  end

  def test_an_interrupted_rewind_is_done
    name = filled(20)
    one = member(name)
    taken = take(one, 20)
    20.times do
      thread = quiet_thread { one.rewind(taken.first) }
      thread.kill if rand(2).zero?
      thread.join
      one.rewind(taken.first)
      taken = take(one, 20)
      assert_equal Array.new(20, &:itself), taken.map(&:offset)
    end
  end

  def test_other_things_and_other_consumers
    name = filled(2)
    one = member(name)
    message = take(one, 2).first
    assert_raises(TypeError) { one.rewind("a message") }
    assert_raises(TypeError) { one.rewind(nil) }
    assert_match(/rewind\(batch, timeout: 5\)/, assert_raises(ArgumentError) { one.rewind("orders" => { 0 => 1 }) }.message)
    two = group_consumer.assign(name => [1])
    refute two.rewind(message)
    one.close
    assert_raises(Penstock::ConsumerClosedError) { one.rewind(message) }
  end

  def test_an_empty_batch_has_nothing_to_rewind
    one = member(topic)
    assert one.rewind(one.poll_batch(timeout: 0))
  end

  # Each batch is polled by a fiber of its own, as by a thread that works on it.
  def batch_of(consumer, max) = Fiber.new { batch(consumer, max:) }.resume

  def offsets(batch) = batch.map(&:offset)

  def test_a_later_rewind_does_not_concern_what_an_earlier_one_has_let_come_again
    name = filled(30)
    one = member(name, "enable.auto.commit": false)
    one.rewind(batch_of(one, 10))
    first, second, third = Array.new(3) { batch_of(one, 10) }
    one.rewind(third)
    assert_equal [true, true, false], [second, first, third].map { |taken| one.mark(taken) }
    assert one.commit(first)
    assert_equal third.first.offset, committed(name)
  end

  def test_messages_can_be_marked_after_any_number_of_rewinds_of_later_ones
    name = filled(40)
    one = member(name, "enable.auto.commit": false)
    first = batch_of(one, 2)
    40.times { |i| one.rewind(batch_of(one, 1 + (i % 3))) && batch_of(one, 1) if i < 38 }
    assert one.mark(first)
  end

  def test_what_a_seek_skips_of_what_was_to_come_again_can_be_marked
    name = filled(30)
    one = member(name, "enable.auto.commit": false)
    early = batch_of(one, 10)
    one.rewind(early)
    assert_equal [0, 1, 2], offsets(batch_of(one, 3))
    one.seek(name, 0, 6)
    assert_equal [false, false, true, true, false], [2, 0, 3, 5, 6].map { |i| one.mark(early[i]) }
  end

  def test_a_seek_to_the_position_invalidates_no_work
    name = filled(20)
    one = member(name, "enable.auto.commit": false)
    work = batch_of(one, 10)
    one.seek(name, 0, one.position(name, 0))
    assert one.commit(take(one, 5, batch: 5).last)
    assert_nil committed(name)
    assert one.commit(work)
    assert_equal work.last.offset + 6, committed(name)
  end

  # librdkafka commits what it has stored when partitions are given up, even if that is lower.
  def test_a_close_after_a_rewind_does_not_lower_the_committed_offset
    name = filled(10)
    one = member(name, "auto.commit.interval.ms": 60_000) { |config| config.mark = :manual }
    work = take(one, 10, batch: 10)
    assert one.commit(work.last)
    assert one.rewind(work.first)
    assert one.mark(take(one, 1, batch: 1).first)
    one.close
    assert_equal 10, committed(name)
  end

  def test_a_close_after_a_seek_back_does_not_lower_what_an_earlier_member_has_committed
    name = filled(10)
    one = member(name)
    assert one.commit(take(one, 10, batch: 10).last)
    one.close
    two = group_consumer("group-#{name}") { |config| config.mark = :manual }.assign(name => [0])
    eventually { two.poll(timeout: 0.01).nil? && two.lag.dig(name, 0)&.zero? }
    two.seek(name, 0, 0)
    assert two.mark(take(two, 1, batch: 1).first)
    two.close
    assert_equal 10, committed(name)
  end
end
