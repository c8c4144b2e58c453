# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../proofs/support/consumer_storm"

# That a storm of rebalances can fail: what its checker finds in ledgers of members that do wrong.
class ConsumerStormCheckerTest < PenstockTest
  # Two members after one another. The first is killed in the middle of its third batch.
  LEDGER = [
    ["one", "assigned", [0, 1]],
    ["one", "got", [[0, 0, 9], [1, 0, 4]]],
    ["one", "processed", [[0, 0, 9], [1, 0, 4]]],
    ["one", "committed", { "0" => 10, "1" => 5 }],
    ["one", "got", [[0, 10, 19]]],
    ["one", "processed", [[0, 10, 19]]],
    ["one", "got", [[1, 5, 9]]],
    ["observer", "observed", { "0" => 10, "1" => 5 }],
    ["two", "assigned", [0, 1]],
    ["two", "got", [[0, 10, 29]]],
    ["two", "processed", [[0, 10, 29]]],
    ["two", "got", [[1, 5, 9]]],
    ["two", "processed", [[1, 5, 9]]],
    ["two", "committed", { "0" => 30, "1" => 10 }],
    ["observer", "observed", { "0" => 30, "1" => 10 }],
    ["two", "revoked", [0, 1]]
  ].freeze
  ENDS = { 0 => 30, 1 => 10 }.freeze

  # @return [Array<String>] the problems of the ledger in which lines were replaced: index => line, or nil for none
  def problems(changes = {}, ends: ENDS)
    ledger = LEDGER.each_with_index.flat_map do |line, i|
      changes.key?(i) ? Array(changes[i] && [changes[i]]) : [line]
    end
    ConsumerStorm::Checker.new.check(events_of(ledger).shuffle, ends)
  end

  def events_of(ledger)
    ledger.each_with_index.map do |(member, kind, data), i|
      [i.to_f, member, kind, kind == "observed" ? [i - 0.5, data] : data]
    end
  end

  def test_a_member_that_dies_in_its_work_loses_and_repeats_nothing_that_is_committed
    assert_empty problems
  end

  {
    "a_message_that_nobody_processed" => [{ 12 => nil }, /gap: partition 1 is processed up to 5 of 10/],
    "a_member_that_skips_one" => [{ 2 => ["one", "processed", [[0, 0, 9], [1, 1, 4]]] }, /commit: one has 1 committed at 5/],
    "a_member_that_skips_messages_of_its_assignment" => [{ 9 => ["two", "got", [[0, 21, 29]]] }, /gap: two began/],
    "a_member_that_gets_a_gap" => [{ 4 => ["one", "got", [[0, 11, 19]]] }, %r{gap: one got 0/11 after 9}],
    "a_member_that_gets_messages_twice" => [{ 4 => ["one", "got", [[0, 9, 19]]] }, %r{order: one got 0/9 after 9}],
    "a_commit_before_the_work" => [{ 5 => ["one", "committed", { "0" => 20 }] }, /commit: one has 0 committed at 20/],
    "a_committed_offset_before_the_work" => [{ 7 => ["observer", "observed", { "1" => 10 }] }, /commit: observer has 1/],
    "a_committed_offset_that_falls" => [{ 14 => ["observer", "observed", { "0" => 10 }] }, /fall: committed of 0 is 10/],
    "a_repetition_of_what_was_committed" => [{ 9 => ["two", "got", [[0, 9, 29]]] }, /repeat: two began 0 at 9, committed was 10/],
    "a_message_after_the_revocation" => [{ 6 => ["one", "revoked", [0]], 5 => nil, 4 => nil, 7 => ["one", "got", [[0, 10, 12]]] },
                                         %r{one got 0/10, which it is not assigned}],
    "a_mark_that_was_rejected" => [{ 3 => ["one", "marked", false], 6 => ["one", "marked", true] }, /could not mark/]
  }.each do |what, (changes, problem)|
    define_method(:"test_the_checker_finds_#{what}") do
      found = problems(changes)
      assert found.any?(problem), found.inspect
    end
  end

  # Its outcome is unknown: the broker may handle it after a later commit.
  FALL = [["observer", "observed", { "0" => 20, "1" => 10 }], ["three", "assigned", [0]], ["three", "got", [[0, 20, 29]]],
          ["observer", "observed", { "0" => 30 }]].freeze

  def problems_of_fall(time, timed_out)
    events = events_of(LEDGER + FALL) << [time, "two", "timed_out", timed_out]
    ConsumerStorm::Checker.new.check(events.shuffle, ENDS)
  end

  def test_a_fall_to_the_offset_of_a_commit_that_timed_out_is_no_defect
    assert_empty problems_of_fall(12.5, { "0" => 20 })
    assert_empty problems_of_fall(99.0, { "0" => 20 }), "it is written after the fall"
  end

  def test_a_fall_to_another_offset_than_that_of_a_commit_that_timed_out_is_one
    [{ "0" => 19 }, { "0" => 21 }, { "1" => 20 }, {}].each do |timed_out|
      found = problems_of_fall(12.5, timed_out)
      assert found.any?(/fall: committed of 0 is 20, and was 30/), found.inspect
      assert found.any?(/repeat: three began 0 at 20, committed was 30/), found.inspect
    end
  end

  # Before the observer sees it.
  def test_a_member_that_begins_where_a_commit_that_timed_out_has_let_the_offset_fall_repeats_nothing
    events = events_of(LEDGER + FALL.drop(1))
    assert(ConsumerStorm::Checker.new.check(events, ENDS).any?(/repeat: three began 0 at 20/))
    assert_empty ConsumerStorm::Checker.new.check(events << [12.5, "two", "timed_out", { "0" => 20 }], ENDS)
  end

  def test_after_such_a_fall_the_offset_may_not_fall_again
    events = events_of(LEDGER + FALL + [["observer", "observed", { "0" => 25 }]]) << [12.5, "two", "timed_out", { "0" => 20 }]
    assert(ConsumerStorm::Checker.new.check(events, ENDS).any?(/fall: committed of 0 is 25, and was 30/))
  end

  thorough def test_a_member_writes_the_offsets_of_a_commit_that_timed_out
    cluster = own_cluster
    cluster.create_topic("storm", partitions: 2)
    Dir.mktmpdir do |directory|
      kafka = { "bootstrap.servers": cluster.bootstrap_servers, "group.id": "storm", "enable.auto.commit": false }
      member = ConsumerStorm::Member.new(id: "one", directory:, topic: "storm", manual: true, kafka:)
      member.instance_variable_set(:@ledger, File.open(ledger = File.join(directory, "one.ledger"), "a"))
      consumer = member.__send__(:make_consumer)
      cluster.set_round_trip_time(seconds: 0.3)
      assert_raises(Penstock::ConsumeTimeoutError) { consumer.commit({ "storm" => { 0 => 5, 1 => 7 } }, timeout: 0.05) }
      lines = File.readlines(ledger).map { |line| JSON.parse(line) }
      assert_equal([["one", "timed_out", { "0" => 5, "1" => 7 }]], lines.map { |line| line.drop(1) })
    ensure
      consumer&.close
    end
  end

  # A member may be frozen between the broker's answer and its ledger's line.
  def test_an_earlier_question_that_is_answered_late_is_no_fall
    events = events_of(LEDGER) << [14.1, "observer", "observed", [12.5, { "0" => 10 }]]
    assert_empty ConsumerStorm::Checker.new.check(events, ENDS)
  end

  def test_a_confirmation_that_is_written_late_is_no_fall
    late = { 3 => nil, 11 => ["one", "committed", { "0" => 10 }] }
    assert_empty problems(late, ends: { 0 => 30 })
  end

  def test_a_range_is_processed_up_to_its_first_gap
    processed = ConsumerStorm::Checker::Processed.new
    [[5, 9], [0, 3], [10, 10], [2, 3]].each { |range| processed.add(*range) }
    assert_equal 4, processed.upto
    processed.add(4, 4)
    assert_equal 11, processed.upto
  end
end
