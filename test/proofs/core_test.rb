# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/native_program"

# The native core without Ruby, under sanitizers: test/c/core_storm.c, and its parts one by one, test/c/core_parts.c. Longer:
# rake test:tsan, test:ubsan.
class CoreTest < PenstockTest
  PARTS = %w[wakeup completion bell mailbox ready watch events refused open slot chunks text redaction space].freeze

  def storm(*arguments, sanitizer: "address", portable: false)
    result = NativeProgram.new("core_storm", sanitizer, portable:).run(*arguments)
    assert_predicate result, :passed?, result.reports.first || result.output[-3_000..] || result.output
    batches, missed, clients = result.output.match(/^batches (\d+) missed (\d+) clients (\d+)$/).captures.map(&:to_i)
    assert_equal [0, 0], [missed, clients]
    assert_operator batches, :>, 100
  end

  def parts(sanitizer, portable: false)
    result = NativeProgram.new("core_parts", sanitizer, portable:).run(1)
    assert_predicate result, :passed?, result.reports.first || result.output[-3_000..] || result.output
    assert_equal PARTS, result.output.scan(/^([a-z]+) [1-9]\d*$/).flatten
  end

  # A client that was cut short and became ready again was pushed twice, and the poller walked in a circle.
  def test_clients_that_are_cut_short_after_every_event_get_all_their_verdicts
    storm(0, 4, 16, 5, 0, 0)
  end

  def test_clients_that_come_and_go_leave_nothing_behind
    storm(100_000, 4, 8, 5, 1, 0)
  end

  def test_every_event_and_label_of_clients_that_come_and_go_comes_out_once
    storm(100_000, 4, 8, 5, 1, 1)
  end

  # A topic that librdkafka refused had its configuration freed twice.
  def test_each_part_by_itself_touches_nothing_that_is_freed_and_leaks_nothing
    parts("address")
  end

  def test_each_part_by_itself_has_no_data_race
    parts("thread")
  end

  def test_each_part_by_itself_does_nothing_undefined
    parts("undefined")
  end

  def test_each_part_does_the_same_without_futex_and_eventfd
    parts("address,undefined", portable: true)
  end

  def test_the_storm_loses_nothing_without_futex_and_eventfd
    storm(100_000, 4, 8, 3, 1, 1, portable: true)
  end

  def test_the_storm_has_no_data_race
    storm(100_000, 4, 8, 3, 1, 1, sanitizer: "thread")
  end
end
