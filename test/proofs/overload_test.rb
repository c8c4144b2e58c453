# frozen_string_literal: true

require_relative "../test_helper"
require_relative "support/overload"
require_relative "../support/reader"
require "tmpdir"

# A few seconds each. `rake test:overload` runs the same for longer. A leak grows in each phase by more than the limits here.
# Memory that is allocated only once is allocated before the phases.
class OverloadTest < PenstockTest
  def run_overload(program, *numbers, topic: self.topic(partitions: 1))
    skip "no /proc here" unless File.exist?("/proc/self/status")
    Overload.new(cluster.bootstrap_servers).run(program, topic, *numbers)
  end

  def test_a_full_queue_neither_loses_messages_nor_reports_them_twice_with_any_policy
    name = topic(partitions: 1)
    Dir.mktmpdir do |dir|
      counts = run_overload(Overload::QUEUE, 2_000, "#{dir}/delivered", topic: name).transform_values(&:to_i)
      assert_equal [2_000, 0, 0], counts.values_at(:wait_delivered, :wait_failed, :wait_rejected)
      assert_equal [2_000, 0], [counts[:raise_delivered] + counts[:raise_rejected], counts[:raise_failed]]
      assert_equal [2_000, 0], [counts[:drop_delivered] + counts[:drop_failed], counts[:drop_rejected]]
      assert_operator counts[:raise_rejected], :>, 0
      assert_operator counts[:drop_failed], :>, 0
      delivered = %w[wait raise drop].flat_map { |policy| File.readlines("#{dir}/delivered.#{policy}", chomp: true) }
      stored = Reader.new(cluster.bootstrap_servers).read(name).map(&:payload)
      assert_equal delivered.sort, stored.grep_v(/first/).sort
    end
  end

  def test_a_flood_of_large_payloads_leaks_no_memory
    found = run_overload(Overload::PAYLOADS, 60, 2)
    assert_equal %w[180 0], found.values_at(:messages, :failed)
    assert_operator found[:last_kb].to_i, :<, 20_000 # a leak of one in three would exceed this
  end

  def test_handles_without_a_waiter_leak_no_memory
    found = run_overload(Overload::HANDLES, 20_000, 2)
    assert_equal %w[60000 0], found.values_at(:messages, :failed)
    assert_operator found[:left].to_i, :<, 100
    assert_operator found[:last_kb].to_i, :<, 3_000 # each handle has 200 bytes
  end

  # Unread statistics alone would take some MB a second here, unread debug lines several 100 kB.
  # defect 31
  def test_unread_statistics_and_log_lines_take_no_memory
    found = run_overload(Overload::IDLE, 1, 2, 2)
    assert_operator found[:events].to_i, :>, 100
    assert_operator found[:last_kb].to_i, :<, 1_000
  end

  # Ruby preempts a thread after 0.1 s, and five threads want the GVL here. So delivery must not need the GVL.
  # defect 15
  def test_a_thread_that_polls_without_sleeping_delays_no_delivery
    found = run_overload(Overload::SPIN, 4, topic: topic(partitions: 4)).transform_values(&:to_f)
    assert_operator found[:polls], :>, 1_000
    assert_operator found[:stall_s], :<, 3, found.inspect
    assert_operator found[:reading_stall_s], :<, 3, found.inspect
  end

  # A leak per topic or fiber would be 1,000 objects a round, and some 100 kB.
  # defect 32
  def test_topics_fibers_and_settings_that_are_used_once_leak_nothing
    found = run_overload(Overload::NAMES, 1_000, 1_000, 10)
    assert_equal %w[11000 11000], found.values_at(:topics, :fibers)
    assert_operator found[:least_objects].to_i, :<, 200, found.inspect
    assert_operator found[:least_kb].to_i, :<, 600, found.inspect
    assert_operator found[:clients].to_i, :<, 20
  end
end
