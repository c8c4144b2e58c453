# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/overload"
require_relative "../support/reader"
require "tmpdir"

# Seconds each; `rake test:overload` runs the same for longer. What leaks grows in each phase by more than the bounds here;
# what is only taken once is taken before.
class OverloadTest < PenstockTest
  def run_overload(program, *numbers, topic: self.topic(partitions: 1))
    skip "no /proc here" unless File.exist?("/proc/self/status")
    Overload.new(cluster.bootstrap_servers).run(program, topic, *numbers)
  end

  def test_a_full_queue_loses_nothing_and_tells_nothing_twice_with_any_policy
    name = topic(partitions: 1)
    Dir.mktmpdir do |dir|
      counts = run_overload(Overload::QUEUE, 2_000, "#{dir}/told", topic: name).transform_values(&:to_i)
      assert_equal [2_000, 0, 0], counts.values_at(:wait_delivered, :wait_failed, :wait_refused)
      assert_equal [2_000, 0], [counts[:raise_delivered] + counts[:raise_refused], counts[:raise_failed]]
      assert_equal [2_000, 0], [counts[:drop_delivered] + counts[:drop_failed], counts[:drop_refused]]
      assert_operator counts[:raise_refused], :>, 0
      assert_operator counts[:drop_failed], :>, 0
      told = %w[wait raise drop].flat_map { |policy| File.readlines("#{dir}/told.#{policy}", chomp: true) }
      stored = Reader.new(cluster.bootstrap_servers).read(name).map(&:payload)
      assert_equal told.sort, stored.grep_v(/first/).sort
    end
  end

  def test_a_flood_of_large_payloads_leaves_no_memory_behind
    found = run_overload(Overload::PAYLOADS, 60, 2)
    assert_equal %w[180 0], found.values_at(:messages, :failed)
    assert_operator found[:last_kb].to_i, :<, 20_000 # one in three that stays would show
  end

  def test_handles_that_nobody_waits_for_leave_no_memory_behind
    found = run_overload(Overload::HANDLES, 20_000, 2)
    assert_equal %w[60000 0], found.values_at(:messages, :failed)
    assert_operator found[:left].to_i, :<, 100
    assert_operator found[:last_kb].to_i, :<, 3_000 # each takes 200 bytes
  end

  # Unread statistics alone take some MB a second here, unread lines for debugging several 100 kB.
  def test_what_comes_by_itself_and_nobody_wants_takes_no_memory
    found = run_overload(Overload::IDLE, 1, 2, 2)
    assert_operator found[:events].to_i, :>, 100
    assert_operator found[:last_kb].to_i, :<, 1_000
  end

  # Ruby takes the GVL from a thread after 0.1 s, and five want it here; so what is delivered must not need it.
  def test_a_thread_that_polls_and_never_sleeps_holds_up_nothing
    found = run_overload(Overload::SPIN, 4, topic: topic(partitions: 4)).transform_values(&:to_f)
    assert_operator found[:polls], :>, 1_000
    assert_operator found[:stall_s], :<, 3, found.inspect
    assert_operator found[:reading_stall_s], :<, 3, found.inspect
  end

  # What is kept of each topic or fiber would be 1,000 objects a round, and some 100 kB.
  def test_topics_fibers_and_settings_that_are_met_once_leave_nothing_behind
    found = run_overload(Overload::NAMES, 1_000, 1_000, 10)
    assert_equal %w[11000 11000], found.values_at(:topics, :fibers)
    assert_operator found[:least_objects].to_i, :<, 200, found.inspect
    assert_operator found[:least_kb].to_i, :<, 600, found.inspect
    assert_operator found[:clients].to_i, :<, 20
  end
end
