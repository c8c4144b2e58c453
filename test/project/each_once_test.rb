# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/each_once"
require_relative "../proofs/support/consumer_storm"

# The runner of the tests looks for the beginning of these failures.
class EachOnceTest < PenstockTest
  include EachOnce

  { "lost" => [[1, 3], /\ALOST OR REPEATED: 1 lost, such as \[2\]\z/],
    "repeated" => [[1, 2, 2, 3], /\ALOST OR REPEATED: 1 repeated, such as \[2\]\z/],
    "never_sent" => [[1, 2, 3, 4], /\ALOST OR REPEATED: 1 never sent, such as \[4\]\z/],
    "out_of_order" => [[1, 3, 2], /\ALOST OR REPEATED: out of order: 3 where 2 was expected\z/] }
    .each do |what, (got, message)|
    define_method(:"test_a_message_that_is_#{what}_fails") do
      assert_match message, assert_raises(Minitest::Assertion) { assert_each_once([1, 2, 3], got) }.message
    end
  end

  def test_each_message_once_is_right
    assert_each_once([1, 2, 3], [1, 2, 3])
    assert_each_once([1, 2, 3], [3, 1, 2], ordered: false)
  end

  def test_the_failure_names_which_messages_they_are
    error = assert_raises(Minitest::Assertion) { assert_each_once([1], [], "partition 3") }
    assert_equal "LOST OR REPEATED: partition 3: 1 lost, such as [1]", error.message
  end

  def test_the_report_of_storms_begins_with_what_is_lost
    report = ConsumerStorm.report(["member-1 does not end", "#{EachOnce::LOST_OR_REPEATED}range: gap: one got 0/3 after 1"])
    assert_match(/\ALOST OR REPEATED: range: gap.*\nmember-1 does not end\z/, report)
  end

  def test_a_storms_checker_tells_lost_messages_from_other_problems
    lost = ["gap: one got 0/11 after 9", "order: one got 0/9 after 9", "repeat: two began 0 at 9, committed was 10",
            "commit: one has 0 committed at 20, processed was what is before 10", "fall: committed of 0 is 10, and was 30",
            "one got 0/10, which it is not assigned"]
    assert_empty(lost.reject { |problem| ConsumerStorm::Checker.lost_or_repeated?(problem) })
    refute ConsumerStorm::Checker.lost_or_repeated?("one could not mark a batch, and then could, without a revocation")
  end
end
