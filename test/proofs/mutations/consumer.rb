# frozen_string_literal: true

# What a consumer hands out, remembers and commits.

Mutation.area("ledger", test: "test/consumer/mark_test.rb") do
  without :poll_marks_own_ranges, "the work of other threads is not marked by a poll",
          only: "test_another_threads_work_is_not_committed"
  without :mark_checks_epoch, "a message is not marked in a later assignment",
          sub: { "held(place, offset, epoch) && " => "" }, only: "test_a_message_of_an_earlier_assignment_cannot_be_marked"
  without :open_range_stops_progress, "nothing is processed behind an open range",
          sub: { " && !is_open(range)" => "" }, only: "test_another_threads_work_is_not_committed"
  without :close_stores_processed, "closing stores what is processed", only: "test_a_crashed_process_loses_nothing"
end

Mutation.area("ledger", test: "test/consumer/ledger_test.rb") do
  without :marked_ranges_join, "what is marked behind open work takes no more memory with each poll",
          only: "test_what_a_thread_still_works_on_does_not_make_the_rest_grow"
  without :cuts_are_limited, "what comes again cannot be marked",
          by: "for (int i = 0; i < 0; i++) {", only: "test_a_message_can_be_marked_if_and_only_if_it_does_not_come_again"
  without :new_log_cuts, "what was polled from a log that has begun anew cannot be marked",
          by: "(void)notice_new_logs;", only: "test_what_was_polled_before_the_log_began_anew_cannot_be_marked"
  without :skipped_messages_markable, "what a seek skips can be marked",
          by: "for (int i = 0; i < 0; i++) {", only: "test_a_message_can_be_marked_if_and_only_if_it_does_not_come_again"
end

Mutation.area("ledger", test: "test/consumer/memory_test.rb") do
  without :ledger_reserves_first, "nothing is handed out that it cannot note",
          by: "(void)reserve;", only: "test_no_message_is_returned_for_which_the_ledger_has_no_memory"
end

Mutation.area("ledger", test: "test/proofs/core_test.rb", only: "test_no_part_of_the_core_uses_freed_memory_or_leaks") do
  without :ranges_have_one_owner, "messages of two fibers are not in one range", sub: { "range->owner == owner && " => "" }
  without :mark_keeps_to_owner, "a mark does not count for messages of other fibers",
          sub: { "range->owner == of->owner" => "true" }
  without :revoked_places_removed, "nothing is known of a partition that was revoked", by: "(void)remove_place, (void)link;"
end

Mutation.area("ledger", test: "test/consumer/offsets_test.rb") do
  without :seek_sets_begin, "the ledger knows where reading goes on after a seek", only: "test_lag_after_a_seek_counts_from_there"
  without :failed_start_restarted, "a partition that librdkafka could not begin is assigned again",
          by: "(void)PS_RESTART_US;", only: "test_a_partition_whose_committed_offset_cannot_be_read_begins_later"
end

Mutation.area("pausing", test: "test/consumer/pause_test.rb") do
  without :revoked_partitions_resumed, "a partition is not revoked while it is paused",
          only: "test_a_partition_that_is_revoked_by_the_group_is_not_paused"
  without :reassigned_partitions_resumed, "an assignment by hand ends pauses",
          only: "test_a_partition_that_is_assigned_again_is_not_paused"
  without :listener_pauses_assigned, "what the listener pauses is paused", only: "test_the_listener_pauses_what_it_is_assigned"
end

Mutation.area("rebalance listener", test: "test/consumer/rebalance_listener_test.rb") do
  without :close_answers_running_listener, "closing answers for a listener that runs",
          sub: { "answer_now(consumer);" => "" }, only: "test_close_while_the_listener_is_told_of_what_is_revoked"
end

Mutation.area("closing", test: "test/consumer/closing_test.rb") do
  without :close_answers_waiting_rebalance, "rebalances that wait are answered before the group is left",
          only: "test_an_assignment_that_nobody_has_polled_is_answered_before_the_group_is_left"
  without :aborting_client_kept, "librdkafka's client is not destroyed if that aborts the process", # before 2.3.0
          sub: { "if (aborts)" => "if (false)" }, only: "test_closing_before_the_first_assignment_with_cooperative_sticky"
end

Mutation.area("config.start_at", test: "test/consumer/start_at_test.rb") do
  without :unknown_start_answers_later, "a poll that does not learn the places leaves the rebalance unanswered",
          sub: { "telling->later = true;" => "" }, only: "test_polls_raise_and_ask_again_while_nobody_answers"
end

Mutation.area("polling", test: "test/consumer/consumer_test.rb") do
  without :error_stops_batch, "messages behind an error come after it",
          sub: { "!consumer->problems && " => "" }, only: "test_messages_behind_an_error_come_after_it"
end

Mutation.area("polling", test: "test/consumer/memory_test.rb") do
  without :no_memory_raises, "a poll without memory raises",
          only: "test_a_message_for_which_there_was_no_memory_comes_with_the_next_poll"
end

Mutation.area("polling", test: "test/consumer/mark_test.rb") do
  without :poll_marks_previous, "a poll marks what the caller got before", only: "test_a_poll_that_returns_nothing_marks_too"
  without :marked_at_once, "config.mark = :at_once marks messages when they are returned", only: "test_at_once"
end

Mutation.area("offsets", test: "test/consumer/offsets_test.rb") do
  without :moved_leader_asked, "a leader that has moved is asked for",
          sub: { "(!ps_leader_moved(err) && !ps_leader_moved(place->err))" => "true" },
          only: "test_a_leader_that_has_moved_is_found"
  without :rewound_offset_stored, "librdkafka stores the earlier offset",
          sub: { "stored->cnt > 0 && consumer->settings.grouped" => "false" },
          only: "test_a_seek_with_commit_goes_back_for_all_members"
  without :rewound_offset_known, "the ledger knows that librdkafka stores the earlier offset",
          only: "test_a_seek_with_commit_goes_back_for_all_members"
  without :commits_coalesced, "asynchronous commits are coalesced",
          by: "return true;", only: "test_asynchronous_commits_are_coalesced"
  without :commit_repeated, "an asynchronous commit is repeated for a new epoch",
          sub: { "open && " => "false && open && " },
          only: "test_an_asynchronous_commit_is_repeated_if_the_member_has_a_new_epoch"
end

Mutation.area("offsets", test: "test/consumer/defects_test.rb") do
  without :commits_coalesced, "periodic commits wait for each other",
          by: "return true;", only: "test_34_periodic_commits_do_not_overtake_each_other"
end

Mutation.area("starts", test: "test/consumer/defects_test.rb") do
  without :assignment_finds_starts, "an assignment by hand finds out where partitions begin",
          only: "test_36_a_partition_that_is_assigned_again_is_not_moved_by_a_leader_that_answers_slowly"
  without :seek_finds_starts, "a seek finds out where the end is",
          by: "if (false) {", only: "test_35_a_seek_after_a_seek_to_the_end_is_not_undone_by_a_leader_that_answers_slowly"
  without :group_finds_starts, "it is found out where the group's partitions begin",
          sub: { "ask_for_starts(consumer, partitions)" => "false" }, only: "test_36_a_partition_that_comes_back_repeats_nothing"
  without :revocation_takes_turn, "a revocation takes its turn among the commits",
          sub: { "atomic_load(&consumer->client.state) == PS_OPEN && waits_for_turn(consumer)" => "false" },
          only: "test_34_the_last_commit_before_a_revocation_is_not_overtaken_by_an_earlier_one"
  without :close_takes_turn, "a close takes its turn among the commits",
          only: "test_34_the_last_commit_before_a_close_is_not_overtaken_by_an_earlier_one"
  without :assignment_takes_turn, "an assignment by hand takes its turn among the commits",
          only: "test_34_the_last_commit_before_an_assignment_is_not_overtaken_by_an_earlier_one"
  without :turn_passes, "a revocation's turn passes",
          by: "return first;", only: "test_34_a_commit_between_the_listener_and_the_answer_succeeds"
  without :commit_waits_for_async, "a commit waits for one that no caller waits for",
          sub: { "!commits->waiting && commits->on_their_way == 0 && " => "" },
          only: "test_34_a_commit_that_is_repeated_does_not_overtake_a_later_one"
  without :commit_waits_for_threads, "a commit waits for one of another thread",
          sub: { "idle && is_next(commits, turn)" => "idle" },
          only: "test_34_a_commit_of_another_thread_that_is_repeated_does_not_overtake_a_later_one"
  without :turn_keeps_order, "a commit that passes a revocation does not pass what waits behind it",
          sub: { " && !first->after" => "" }, only: "test_34_a_commit_that_passes_a_revocation_does_not_pass_earlier_commits"
  without :starts_before_answer, "an assignment without a listener is not answered before",
          only: "test_35_a_seek_after_the_groups_assignment_is_not_undone_by_a_late_answer"
end

Mutation.area("joining", test: "test/consumer/defects_test.rb") do
  without :joining_holds_commits, "no commit is sent while the member joins its group again",
          sub: { "atomic_load(&consumer->joins)" => "false" },
          only: "test_07_commits_while_the_member_joins_its_group_again"
end

Mutation.area("interrupted polls", test: "test/consumer/interrupted_poll_test.rb") do
  without :each_keeps_its_message, "each keeps a message that its block has not got",
          sub: { "@client.not_received" => "nil" }, only: "test_each_goes_on_with_the_message_that_its_caller_has_not_received"
end

Mutation.area("rewind", test: "test/consumer/rewind_test.rb") do
  without :committed_offset_stays, "what is processed again does not lower the committed offset",
          only: "test_a_close_after_a_rewind_does_not_lower_the_committed_offset"
  without :rewind_lowers_processed, "messages that come again are no longer processed",
          only: "test_a_marked_batch_is_no_longer_processed_when_it_is_rewound"
end

Mutation.area("fetched", test: "test/proofs/core_test.rb", only: "test_no_part_of_the_core_uses_freed_memory_or_leaks") do
  without :release_waits_for_readers, "bytes are freed when no thread reads them", by: "free_bytes(fetched);"
end

Mutation.area("fetched", test: "test/consumer/batch_test.rb") do
  without :released_bytes_refused, "released bytes cannot be read",
          sub: { "& RELEASED" => "& 0" }, only: "test_released_bytes_cannot_be_read"
  without :batch_bytes_grow, "bytes are copied only to where there is memory",
          sub: { "|| grow_bytes(fetched, size)" => "|| true" },
          only: "test_the_memory_of_collected_batches_is_freed"
  without :grown_batch_keeps_bytes, "a batch keeps its bytes when it grows",
          only: "test_threads_that_poll_at_once_get_each_message_once"
end

Mutation.area("fetched", test: "test/consumer/consumer_test.rb") do
  without :nil_payloads, "a message without a payload has nil",
          sub: { "message->payload != NULL" => "true" }, only: "test_nil_and_empty_keys_and_payloads_stay_different"
  without :nil_header_values, "a header without a value has nil",
          by: "return (int32_t)size;", only: "test_headers_of_other_clients_can_be_read"
end

Mutation.area("queues", test: "test/consumer/pause_test.rb") do
  without :aside_keeps_earlier, "messages that were set aside before are kept",
          only: "test_messages_behind_an_error_keep_their_order_with_any_number_of_pauses"
  without :seek_drops_taken, "a seek drops messages that were taken before",
          only: "test_messages_behind_an_error_are_dropped_by_a_seek"
end

Mutation.area("asynchronous commits", test: "test/consumer/offsets_test.rb") do
  without :merged_commits_keep_places, "commits of different partitions that wait are all sent",
          only: "test_asynchronous_commits_of_different_partitions_are_all_sent"
end

Mutation.area("asynchronous commits", test: "test/consumer/defects_test.rb") do
  without :async_commit_waits_behind, "an asynchronous commit waits for one whose caller waits",
          sub: { "if (last)" => "if (false)" }, only: "test_34_an_asynchronous_commit_waits_for_one_whose_caller_waits"
end

Mutation.area("the committer", test: "test/consumer/committer_test.rb") do
  without :committer_clears_mark, "a consumer that was looked at can ring the committer again",
          only: "test_the_thread_ends_without_work_and_starts_again"
  without :committer_is_shared, "all consumers share the committer",
          sub: { "committer->running ? 0 : " => "" }, only: "test_many_consumers_commit_with_one_thread"
end
