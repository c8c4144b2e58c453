# frozen_string_literal: true

require "timeout"
require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# What was polled and did not reach its caller, or was not worked on to the end, is not processed.
class InterruptedPollTest < ConsumerTestCase
  Stop = Class.new(StandardError)

  def filled(count, partitions: 1)
    topic(partitions:).tap do |name|
      partitions.times { |partition| produce(name, Array.new(count) { |i| "#{partition}-#{i}" }, partition:) }
    end
  end

  # @return [Penstock::Consumer] whose next poll with messages is interrupted after it has taken them
  def interrupted(name, partitions: [0], **kafka, &block)
    one = group_consumer("group-#{name}", "auto.commit.interval.ms": 20, **kafka, &block)
    @interrupts = 1
    one.monitor.subscribe("messages.polled") { Thread.current.raise(Stop) if (@interrupts -= 1) >= 0 }
    one.assign(name => partitions.to_h { |partition| [partition, 0] })
  end

  def committed(name) = group_consumer("group-#{name}").committed(name, 0).fetch(0)

  # Polls until the interrupt comes out of a poll.
  def interrupt(&poll)
    loop(&poll)
  rescue Stop
    nil
  end

  def batch(consumer, max: 100) = eventually { consumer.poll_batch(max:, timeout: 1).then { |taken| taken unless taken.empty? } }

  def test_the_next_poll_returns_what_an_interrupted_one_has_taken
    name = filled(6)
    one = interrupted(name)
    interrupt { one.poll_batch(max: 3) }
    assert_equal 0, batch(one, max: 100).offsets.first
    one.close
    assert_equal 6, drained(name)
  end

  # @return [Integer] the offset after the last message that the group reads
  def drained(name)
    one = group_consumer("group-#{name}", "auto.offset.reset": "earliest").assign(name => [0])
    one.poll_batch(timeout: 0.1) until one.lag[name][0].zero?
    one.position(name, 0) || committed(name)
  end

  def test_the_next_single_poll_returns_what_an_interrupted_one_has_taken
    name = filled(3)
    one = interrupted(name)
    interrupt { one.poll }
    assert_equal [0, 1, 2], take(one, 3, batch: 1).map(&:offset)
  end

  def test_a_poll_for_fewer_messages_returns_them_too
    name = filled(6)
    one = interrupted(name)
    interrupt { one.poll_batch(max: 6) }
    assert_equal (0..5).to_a, Array.new(6) { eventually { one.poll(timeout: 1) }.offset }
  end

  def test_what_a_caller_has_not_received_is_not_committed
    name = filled(6)
    one = interrupted(name)
    interrupt { one.poll_batch(max: 6) }
    assert one.commit
    assert_nil committed(name)
    assert_equal 0, batch(one).offsets.first
  end

  def test_the_commit_of_another_thread_leaves_out_what_a_caller_has_not_received
    name = filled(6)
    one = interrupted(name)
    Thread.new { interrupt { one.poll_batch(max: 6) } }.join
    assert one.commit
    one.close
    assert_nil committed(name)
  end

  def test_each_goes_on_with_the_message_that_its_caller_has_not_received
    name = filled(4)
    one = interrupted(name)
    seen = []
    interrupt { one.each { |message| seen << message.offset } }
    one.each { |message| break if (seen << message.offset).size == 4 }
    assert_equal [0, 1, 2, 3], seen
  end

  # As Timeout interrupts in Ruby 3.1.
  def test_each_that_is_left_by_a_throw_keeps_the_message_that_its_block_has_not_got
    name = filled(2)
    one = interrupted(name)
    thrower = Stop.new
    thrower.define_singleton_method(:exception) { |*| throw :left }
    one.monitor.subscribe("messages.polled") { Thread.current.raise(thrower) if (@throws = @throws.to_i + 1) == 1 }
    @interrupts = 0
    catch(:left) { one.each { flunk "the block got a message" } }
    assert_equal [0, 1], take(one, 2, batch: 1).map(&:offset)
  end

  # Before the program has looked at a message, for example when the block of Timeout.timeout returns it.
  def test_a_timeout_that_comes_before_the_caller_has_kept_the_messages
    name = filled(4)
    one = group_consumer("group-#{name}", "auto.commit.interval.ms": 20).assign(name => { 0 => 0 })
    assert_raises(Timeout::Error) { one.poll_batch(timeout: 5) && raise(Timeout::Error, "in the block of Timeout.timeout") }
    assert_equal 0, batch(one).offsets.first
  end

  # As tools do that copy or show them.
  def test_a_program_may_look_at_all_variables_of_a_fiber_that_polls
    group_consumer.assign(topic => [0]).poll(timeout: 0)
    keys = Thread.current.keys
    assert_equal keys.size, keys.map { |key| Thread.current[key].inspect }.size
  end

  # A worker may have it.
  def test_another_exception_repeats_nothing
    name = filled(4)
    one = group_consumer("group-#{name}").assign(name => { 0 => 0 })
    queue = SizedQueue.new(1)
    queue << one.poll(timeout: 5)
    assert_raises(ThreadError) { queue.push(one.poll(timeout: 5), true) }
    assert_equal 2, one.poll(timeout: 5).offset
  end

  def test_what_was_taken_away_meanwhile_does_not_come
    name = filled(4)
    one = interrupted(name)
    interrupt { one.poll_batch(max: 4) }
    one.assign(name => { 0 => 2 })
    assert_equal 2, batch(one).offsets.first
  end

  def test_a_set_returns_them_again
    name = filled(4)
    one = interrupted(name)
    set = Penstock::ConsumerSet.new(one)
    interrupt { one.poll_batch(max: 4) }
    offsets = []
    set.wait(timeout: 5).each { |consumer| offsets.concat(consumer.poll_batch(timeout: 0).offsets) } while offsets.size < 4
    assert_equal [0, 1, 2, 3], offsets
  ensure
    set&.clear
  end

  # ---- the block of the work ----

  def self.time_out_in_block(consumer)
    entered = false
    Timeout.timeout(0.1) { consumer.each { (entered = true) && sleep } } until entered
  rescue Timeout::Error
    entered ? nil : retry
  end

  # rubocop:disable Lint/UnreachableLoop -- the loops are left early
  LEFT = {
    "an exception" => ->(one, _) { one.each { raise Stop } },
    "a break" => ->(one, _) { one.each { break } },
    "a throw" => ->(one, _) { catch(:done) { one.each { throw :done } } },
    "a Timeout" => ->(one, _) { InterruptedPollTest.time_out_in_block(one) },
    "a batch in a set" => ->(_, set) { set.each_batch { break } },
    "an exception in a loop" => ->(one, _) { loop { one.poll_batch(timeout: 5).payloads && raise(Stop) } },
    "StopIteration" => ->(one, _) { one.each { raise StopIteration } }
  }.freeze
  # rubocop:enable Lint/UnreachableLoop

  def leave(consumer, set, how)
    how.call(consumer, set)
  rescue Stop, StopIteration
    nil
  end

  LEFT.each do |how, how_left|
    define_method(:"test_close_does_not_commit_what_was_left_by_#{how.downcase.tr(" ", "_")}") do
      name = filled(1)
      one = group_consumer("group-#{name}").assign(name => { 0 => 0 })
      leave(one, set = Penstock::ConsumerSet.new(one), how_left)
      set.clear
      one.close
      assert_nil committed(name)
    end
  end

  def test_an_exception_of_the_block_reaches_the_caller
    one = group_consumer("group").assign(filled(1) => { 0 => 0 })
    assert_raises(StopIteration) { one.each { [].each.next } }
  end

  def test_a_normal_end_counts
    name = filled(2)
    one = group_consumer("group-#{name}").assign(name => { 0 => 0 })
    take(one, 2)
    one.close
    assert_equal 2, committed(name)
  end
end
