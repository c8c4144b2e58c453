# frozen_string_literal: true

# What makes Producer#transaction with a consumer exactly once.

Mutation.area("exactly once", test: "test/consumer/exactly_once_test.rb") do
  without :abort_rewinds, "the consumer goes back after an abort",
          sub: { "left.settle unless left.undecided?" => "nil" }, only: "test_after_an_abort_a_plain_poll_gets_the_messages_again"
  without :next_transaction_rewinds, "the next transaction goes back",
          only: "test_a_rewind_that_fails_is_done_by_the_next_transaction"
  without :lost_partitions_uncommitted, "partitions that were lost while offsets were sent are not committed",
          sub: { "left.held?" => "true" }, only: "test_partitions_that_are_lost_while_the_offsets_are_sent_are_not_committed"
  without :removed_member_retries, "a member that was removed gets its messages again",
          by: "raise", only: "test_a_member_that_the_coordinator_rejects_with_illegal_generation_gets_the_messages_again"
  without :committed_places_skipped, "what is committed does not come again after an unknown outcome",
          only: "test_after_a_commit_of_unknown_outcome_it_continues_if_the_offsets_are_committed"
  without :begins_at_committed, "a partition begins at the committed offset",
          only: "test_a_partition_that_begins_elsewhere_than_at_the_committed_offset_is_read_from_there"
  without :producer_connects_first, "the producer connects before the poll",
          only: "test_the_producer_connects_before_the_first_message_comes"
  without :batch_order_checked, "a batch behind messages in work is rejected",
          only: "test_a_batch_behind_messages_in_work_is_rejected"
  without :no_member_commits_nothing, "a subscribed consumer without a membership commits nothing",
          only: "test_offsets_of_a_consumer_that_has_not_joined_its_group_yet_are_rejected"
  without :lost_assignment_commits_nothing, "a removed member that has not polled since commits nothing",
          by: "bool lost = false;", only: "test_a_member_that_was_removed_and_has_not_polled_since_commits_nothing"
end

Mutation.area("rewind", test: "test/consumer/rewind_test.rb") do
  without :rewind_keeps_held, "partitions that were taken away are left alone",
          only: "test_partitions_that_were_taken_away_are_left_alone"
end
