# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/native_program"

# The native core without Ruby, under sanitizers: as a whole (test/c/core_storm.c), and each part alone (test/c/core_parts.c).
# Longer: rake test:tsan, test:ubsan.
class CoreTest < PenstockTest
  PARTS = %w[wakeup completion bell bells mailbox ready watch events rejected open commits taking slot chunks text redaction space
             admin ledger fetched blocks].freeze

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

  # A client that had used up its time slice and became ready again was pushed twice, so the poller's list became circular.
  def test_clients_served_one_event_at_a_time_get_all_delivery_results
    storm(0, 4, 16, 5, 0, 0)
  end

  def test_opening_and_closing_clients_leaks_nothing
    storm(100_000, 4, 8, 5, 1, 0)
  end

  def test_every_event_and_label_is_published_once_while_clients_open_and_close
    storm(100_000, 4, 8, 5, 1, 1)
  end

  # The configuration of a topic that librdkafka rejected was freed twice.
  # defect 1
  def test_no_part_of_the_core_uses_freed_memory_or_leaks
    parts("address")
  end

  # defect 13, 33
  def test_no_part_of_the_core_has_a_data_race
    parts("thread")
  end

  def test_no_part_of_the_core_has_undefined_behaviour
    parts("undefined")
  end

  def test_every_part_of_the_core_works_without_futex_and_eventfd
    parts("address,undefined", portable: true)
  end

  def test_the_storm_loses_no_message_without_futex_and_eventfd
    storm(100_000, 4, 8, 3, 1, 1, portable: true)
  end

  # defect 33
  def test_the_storm_has_no_data_race
    storm(100_000, 4, 8, 3, 1, 1, sanitizer: "thread")
  end
end
