# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# What only applications call of consumers and sets.
class AppConsumerTest < ConsumerTestCase
  # ---- runs ----

  def test_a_run_has_messages_of_one_partition_in_order_and_never_waits
    name = topic(partitions: 2)
    2.times { |partition| produce(name, Array.new(50, &:to_s), partition:) }
    one = reading(name, partitions: [0, 1])
    runs = []
    eventually do
      batch = Internal.of(one).client.poll_run(30, 1 << 20)
      runs << batch if batch
      runs.sum(&:size) == 100
    end
    runs.each do |batch|
      assert_equal 1, batch.partitions.uniq.size
      assert_operator batch.size, :<=, 30
    end
    runs.group_by { |batch| batch.partitions.first }.each_value { |parts| assert_equal [*0..49], parts.flat_map(&:offsets) }
    assert_took(0.5, seconds_of { assert_nil Internal.of(one).client.poll_run(30, 1 << 20) })
  end

  def test_a_run_ends_with_the_message_that_reaches_its_bytes
    name = topic(partitions: 1)
    produce(name, ["x" * 10_000] * 20 + ["x" * 200_000] * 2)
    one = reading(name, partitions: [0])
    sizes = []
    eventually do
      batch = Internal.of(one).client.poll_run(500, 50_000)
      sizes << batch.size if batch
      sizes.sum == 22
    end
    assert_operator sizes.max, :<=, 5
    assert_equal [1, 1], sizes.last(2)
  end

  # ---- a set ----

  def test_a_wake_ends_a_wait_or_the_next_one
    set = Penstock::ConsumerSet.new(unreachable_consumer)
    set.__send__(:call_wake)
    assert_took(5, seconds_of { assert_empty set.wait(timeout: 30) })
    waiting = Thread.new { seconds_of { set.wait(timeout: 30) } }
    eventually { waiting.stop? }
    set.__send__(:call_wake)
    assert_took(5, waiting.value)
    assert_operator seconds_of { set.wait(timeout: 0.3) }, :>=, 0.2
  end

  # ---- holding back ----

  # @return [Float] seconds for which the first of two members holds back a revocation
  def seconds_held
    name = topic(partitions: 2)
    group = "group-#{rand(2**32)}"
    held = Thread::Queue.new
    gone = Thread::Queue.new
    one = group_consumer(group) { |config| config.hold_rebalances = 5_000 }
    one.monitor.subscribe("rebalance.held_back") { held << now }
    one.monitor.subscribe("rebalance.partitions_revoked") { gone << now }
    Internal.of(one).client.hold_always
    one.subscribe(name)
    eventually { one.poll(timeout: 0.1) || one.assignment.any? }
    two = group_consumer(group).subscribe(name)
    joining = quiet_thread { two.poll(timeout: 0.1) until two.assignment.any? }
    eventually { one.poll(timeout: 0.1) || held.size == 1 }
    yield one
    eventually { one.poll(timeout: 0.1) || gone.size == 1 }
    gone.pop - held.pop
  ensure
    joining&.join
  end

  thorough def test_a_revocation_waits_until_the_program_has_no_work_although_nothing_was_polled
    assert_operator seconds_held { |one| Internal.of(one).client.end_hold }, :<, 4
  end

  thorough def test_it_waits_no_longer_than_configured
    assert_operator seconds_held { nil }, :>=, 4
  end
end
