# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../proofs/support/consumer_storm"

# That a storm of threads can fail: what its checker finds in ledgers of consumers that do wrong.
class ConsumerThreadsCheckerTest < PenstockTest
  # Two threads of a consumer, and a consumer after it that reads what is left.
  LEDGER = [
    ["one.1", "life", [1, "mixed", false, false, false]],
    ["one.1", "assigned", [0]],
    ["one.1", "got", [1, 1, 5, 1.5, [[0, 0, 9]]]],
    ["one.1", "got", [2, 2, 5, 2.5, [[0, 10, 19]]]],
    ["one.1", "processed", [2, [[0, 10, 19]]]],
    ["one.1", "marked", [2, [[0, 10, 19]], true, 4.5, true, "mark"]],
    ["one.1", "processed", [1, [[0, 0, 9]]]],
    ["one.1", "marked", [1, [[0, 0, 9]], true, 6.5, true, "mark"]],
    ["one.1", "committing", [3, nil]],
    ["one.1", "committed", [3, true]],
    ["observer", "observed", { "0" => 20 }],
    ["one.1", "got", [1, 4, 5, 10.5, [[0, 20, 29]]]],
    ["one.1", "rewinding", [5, { "0" => 20 }]],
    ["one.1", "rewound", [5, { "0" => 20 }, true]],
    ["one.1", "marked", [4, [[0, 20, 29]], false, 13.5, true, "mark"]],
    ["one.1", "got", [2, 6, 6, 14.5, [[0, 20, 29]]]],
    ["one.1", "revoked", [0]],
    ["two", "assigned", [0]],
    ["two", "got", [[0, 20, 29]]],
    ["two", "processed", [[0, 20, 29]]],
    ["observer", "observed", { "0" => 30 }]
  ].freeze
  ENDS = { 0 => 30 }.freeze

  # @return [Array<String>] the problems of the ledger in which lines were replaced: index => lines, or nil for none
  def problems(changes = {}, ends: ENDS)
    ledger = LEDGER.each_with_index.flat_map do |line, i|
      next [[i, line]] unless changes.key?(i)

      lines = Array(changes[i]).first.is_a?(Array) ? changes[i] : [changes[i]].compact
      lines.each_with_index.map { |other, j| [i + (j / 10.0), other] }
    end
    events = ledger.map { |time, (life, kind, data)| [time.to_f, life, kind, kind == "observed" ? [time - 0.05, data] : data] }
    ConsumerStorm::ThreadsChecker.new.check(events.shuffle, ends)
  end

  def test_threads_that_do_right_have_no_problem
    assert_empty problems
  end

  {
    "a_commit_before_the_work" => [{ 6 => nil, 18 => ["two", "got", [[0, 0, 29]]], 19 => ["two", "processed", [[0, 0, 29]]] },
                                   %r{early: 0/0\.\.9 is not processed, and 20 is committed at 10\.0\d*: one.1 \(mixed\) 0/0}],
    "a_commit_of_what_nobody_processed" => [{ 6 => nil }, %r{lost: 0/0\.\.9 was processed by nobody and committed}],
    "a_message_that_nobody_processed" => [{ 19 => nil, 20 => nil }, %r{gap: 0/20\.\.29 was processed by nobody: two}],
    "a_mark_that_is_false_for_no_reason" =>
      [{ 7 => ["one.1", "marked", [1, [[0, 0, 9]], false, 6.5, true, "mark"]], 8 => nil, 9 => nil },
       %r{false: mark by one\.1 .* of 0/0\.\.9 .* returned false, and nobody got}],
    "a_committed_offset_that_falls" => [{ 20 => ["observer", "observed", { "0" => 19 }] }, /fall: committed of 0 is 19 .*was 20/],
    "a_commit_that_returns_true_and_commits_too_little" =>
      [{ 10 => ["observer", "observed", { "0" => 10 }] }, /fall: committed of 0 is 10 .*, and was 20 by a commit of one\.1/],
    "what_is_committed_and_comes_again" => [{ 18 => ["two", "got", [[0, 19, 29]]] },
                                            %r{repeat: two got 0/19\.\.29 .*, but 20 was committed when it was assigned}],
    "a_message_that_two_threads_get" => [{ 15 => ["one.1", "got", [2, 6, 5, 14.5, [[0, 20, 29]]]] },
                                         %r{repeat: threads of one\.1 got 0/20\.\.29 .* and 0/20\.\.29}],
    "a_thread_that_goes_back" => [{ 11 => ["one.1", "got", [2, 4, 5, 10.5, [[0, 5, 9]]]], 14 => nil },
                                  %r{order: thread 2 of one\.1 got 0/5\.\.9 .* after 0/10\.\.19}]
  }.each do |what, (changes, problem)|
    define_method(:"test_the_checker_finds_#{what}") do
      found = problems(changes)
      assert found.any?(problem), found.inspect
    end
  end

  def test_a_mark_is_false_if_another_consumer_gets_the_message_again
    assert_empty problems({ 15 => nil })
  end

  def test_a_second_mark_may_be_false
    assert_empty problems({ 8 => [["one.1", "marked", [1, [[0, 0, 9]], false, 7.5, false, "mark"]], LEDGER[8]] })
  end

  # A seek went back over them, and another consumer got the partition, behind them.
  def test_a_mark_of_messages_that_were_marked_before_may_be_false
    back = [["one.1", "seeking", [9, { "0" => 0 }]], ["one.1", "sought", [9, { "0" => 0 }, true]]]
    again = [["one.1", "got", [1, 7, 7, 7.3, [[0, 0, 9]]]], ["one.1", "marked", [7, [[0, 0, 9]], false, 7.35, true, "mark"]]]
    found = problems({ 8 => [*back, *again, LEDGER[8]], 10 => nil, 15 => nil })
    refute found.any?(/false:/), found.inspect
  end

  def test_a_call_may_lower_the_committed_offset
    call = [["one.1", "falling", [9, { "0" => 7 }]], ["one.1", "fell", [9, { "0" => 7 }, true]]]
    assert_empty problems({ 16 => [*call, ["observer", "observed", { "0" => 7 }], LEDGER[16]] })
    found = problems({ 16 => [*call, ["observer", "observed", { "0" => 6 }], LEDGER[16]] })
    assert found.any?(/fall: committed of 0 is 6/), found.inspect
  end

  def test_after_such_a_call_and_a_later_offset_it_may_not_fall_again
    call = [["one.1", "falling", [9, { "0" => 7 }]], ["one.1", "fell", [9, { "0" => 7 }, true]]]
    seen = [12, 7].map { |offset| ["observer", "observed", { "0" => offset }] }
    found = problems({ 16 => [*call, *seen, LEDGER[16]] })
    assert found.any?(/fall: committed of 0 is 7/), found.inspect
  end

  def test_what_a_rewind_has_cut_is_not_confirmed
    changes = { 8 => [["one.1", "rewinding", [9, { "0" => 10 }]], ["one.1", "rewound", [9, { "0" => 10 }, true]], LEDGER[8]],
                10 => ["observer", "observed", { "0" => 10 }] }
    assert_empty problems(changes)
  end

  def test_a_consumer_that_says_that_all_is_processed_loses_nothing
    call = [["one.1", "declaring", [9, nil]], ["one.1", "declared", [9, true]]]
    assert_empty problems({ 6 => nil, 7 => nil, 8 => call, 9 => nil })
  end

  def test_with_next_poll_a_poll_marks_what_was_processed_before
    changes = { 0 => ["one.1", "life", [1, "mixed", true, false, false]], 5 => nil, 7 => nil,
                8 => [["one.1", "got", [1, 7, 5, 7.9, [[0, 20, 20]]]], ["one.1", "got", [2, 8, 5, 7.9, [[0, 21, 21]]]],
                      LEDGER[8]], 11 => nil, 14 => nil }
    assert_empty problems(changes)
    found = problems({ **changes, 10 => ["observer", "observed", { "0" => 10 }] })
    assert found.any?(/fall: committed of 0 is 10 .*by a commit of one\.1/), found.inspect
  end

  def test_ranges_are_a_set
    random = Random.new(1)
    200.times do
      ranges = ConsumerStorm::Ranges.new
      set = []
      15.times do
        first = random.rand(40)
        last = first + random.rand(6)
        cuts = random.rand(5).zero?
        set = cuts ? set.select { |one| one < first } : set | (first..last).to_a
        cuts ? ranges.cut(first) : ranges.add(first, last)
      end
      missing = ((0..50).to_a - set).slice_when { |one, other| other != one + 1 }.map { |run| [run.first, run.last] }
      assert_equal missing, ranges.gaps(0, 50)
      assert_equal missing.first.first, ranges.end_of_run(0)
    end
  end
end
