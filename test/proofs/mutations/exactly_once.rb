# frozen_string_literal: true

# What makes Producer#transaction with a consumer exactly once.
RUNNER = "lib/penstock/producer/exactly_once.rb"
TAKEN = "lib/penstock/producer/consumed_batch.rb"
CALLS = "ext/penstock/ruby/consumer_calls.c"

{ "the consumer goes back after an abort" =>
    [RUNNER, "left.settle unless left.undecided?", "nil",
     "test_after_an_abort_a_plain_poll_gets_the_messages_again"],
  "the next transaction goes back" =>
    [RUNNER, "left.settle\n          next unless", "next unless", "test_a_rewind_that_fails_is_done_by_the_next_transaction"],
  "partitions that were lost while offsets were sent are not committed" =>
    [RUNNER, "left.held?\n      rescue", "true\n      rescue",
     "test_partitions_that_are_lost_while_the_offsets_are_sent_are_not_committed"],
  "a member that was removed gets its messages again" =>
    [RUNNER, "raise unless ConsumedBatch::REMOVED.include?(e.number)", "raise",
     "test_a_member_that_the_coordinator_rejects_with_illegal_generation_gets_the_messages_again"],
  "what is committed does not come again after an unknown outcome" =>
    [TAKEN, "places = uncommitted(places) if undecided?", "",
     "test_after_a_commit_of_unknown_outcome_it_continues_if_the_offsets_are_committed"],
  "a partition begins at the committed offset" =>
    [RUNNER, "next false unless left.begun_as_committed?", "",
     "test_a_partition_that_begins_elsewhere_than_at_the_committed_offset_is_read_from_there"],
  "the producer connects before the poll" =>
    [RUNNER, "          prepare(left)\n", "", "test_the_producer_connects_before_the_first_message_comes"],
  "a batch behind messages in work is rejected" =>
    [RUNNER, "            left.check_order\n", "", "test_a_batch_behind_messages_in_work_is_rejected"],
  "a subscribed consumer without a membership commits nothing" =>
    ["lib/penstock/producer/transaction_runner.rb", "raise no_member(consumer) if", "nil if",
     "test_offsets_of_a_consumer_that_has_not_joined_its_group_yet_are_rejected"],
  "a removed member that has not polled since commits nothing" =>
    [CALLS, "bool lost = rd_kafka_assignment_lost(consumer->client.rk);", "bool lost = false;",
     "test_a_member_that_was_removed_and_has_not_polled_since_commits_nothing"] }
  .each do |what, (file, from, to, only)|
  Mutation.define "exactly once: #{what}", file:, from:, to:, test: "test/exactly_once_test.rb", only:
end

{ "partitions that were taken away are left alone" =>
    ["ext/penstock/core/consume/consumer_jobs.c", "if (rewind) keep_held(query);", "",
     "test_partitions_that_were_taken_away_are_left_alone"],
  "earlier messages can still be marked" =>
    ["ext/penstock/core/consume/ledger.c", " || (epoch >= place->assigned && offset < place->kept)", "",
     "test_what_other_threads_work_on_before_it_can_still_be_marked"] }
  .each do |what, (file, from, to, only)|
  Mutation.define "rewind: #{what}", file:, from:, to:, test: "test/consumer_rewind_test.rb", only:
end
