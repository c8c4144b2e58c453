# frozen_string_literal: true

# docs/evidence/safety.md, "Fork and exit" and "Overload".

Mutation.area("fork", test: "test/process/fork_test.rb") do
  without :forks_counted, "forks are counted",
          by: "(void)in_child;", only: "test_a_child_can_use_producers_that_its_parent_configured_used_or_closed"
  without :fork_replaces_client, "a child replaces its client",
          by: "return producer;", only: "test_a_child_can_use_producers_that_its_parent_configured_used_or_closed"
  without :fork_renews_poller, "the poller is created anew",
          sub: { " && poller->generation == ps_generation()" => "" },
          only: "test_the_poller_of_a_child_is_a_new_thread_with_statistics_of_its_own"
  without :fork_handle_raises, "a handle of the parent process raises",
          by: "if (producer) return;", only: "test_waiting_in_the_child_for_a_message_of_the_parent_raises_at_once"
  without :fork_in_wait_raises, "a wait raises in the child that a trap forked during it",
          sub: { " == ps_generation()" => "" }, only: "test_a_wait_interrupted_by_a_fork_in_a_signal_handler_raises_in_the_child"
end

Mutation.area("fork", test: "test/proofs/fork_locks_test.rb") do
  without :fork_closes_nothing, "inherited objects are not closed",
          only: "test_children_forked_while_any_lock_is_held_work_and_exit_cleanly"
  without :fork_frees_nothing, "inherited objects are not freed",
          only: "test_children_forked_while_any_lock_is_held_work_and_exit_cleanly"
  without :fork_renews_singletons, "singletons of a process are created anew",
          sub: { " && found->generation == ps_generation()" => "" },
          only: "test_children_forked_while_any_lock_is_held_work_and_exit_cleanly"
  without :fork_renews_singletons, "the locks that replace a futex are created anew",
          by: "if (found && (kind->size > 2048 || found->generation == ps_generation())) return found;",
          only: "test_children_forked_without_futex_and_eventfd_exit_cleanly", runs: 3
end

Mutation.area("fork", test: "test/consumer/consumer_test.rb") do
  without :fork_consumer_stays, "a used consumer stays with the parent process",
          sub: { "!ps_client_inherited(&consumer->client)" => "consumer" },
          only: "test_a_fork_child_cannot_use_its_parents_consumer_and_does_not_disturb_it"
end

Mutation.area("exit", test: "test/process/exit_test.rb") do
  without :exit_closes_clients, "open clients are closed",
          sub: { "close_all()" => "(void)close_all" }, only: "test_lost_messages_are_logged_by_the_producers_logger"
  without :exit_armed_again, "a client opened later arms it again",
          only: "test_a_producer_first_used_inside_at_exit_after_others_were_closed_is_closed_before_the_process_ends"
  without :exit_ignores_thread_errors, "another thread's error does not interrupt closing",
          by: "if (closing) return false;", only: "test_an_error_of_another_thread_does_not_abort_closing_at_exit"
  without :exit_interrupts_listeners, "listeners that never end are interrupted",
          sub: { "Thread.handle_interrupt(Object => :immediate, &block)" => "yield" },
          only: "test_a_listener_that_never_returns_does_not_prevent_the_exit"
  without :exit_signal_hurries, "a signal interrupts closing", only: "test_control_c_aborts_closing_at_exit"
end

Mutation.area("dropped", test: "test/process/exit_test.rb") do
  without :dropped_client_closed, "a separate thread closes the client",
          by: "(void)producer;", only: "test_a_producer_dropped_without_close_delivers_and_its_threads_end"
end

Mutation.area("dropped", test: "test/proofs/fork_and_exit_test.rb") do
  without :listeners_release_producer, "listeners do not keep a producer alive",
          only: "test_a_program_that_drops_without_close_exits_cleanly_and_loses_no_confirmed_message"
end

Mutation.area("dropped", test: "test/instrumentation/events_test.rb") do
  without :pending_events_hold_producer, "listeners keep a producer alive while messages are in flight",
          sub: { "atomic_load(&object->held)" => "object" },
          only: "test_a_producer_without_references_publishes_its_pending_events_and_is_collected", runs: 3
end

Mutation.area("signals", test: "test/process/exit_test.rb") do
  without :threads_block_signals, "native threads block signals",
          sub: { "&all" => "NULL" }, only: "test_native_threads_block_every_signal"
end

Mutation.area("overload", test: "test/proofs/overload_test.rb") do
  without :full_queue_waits, "a full queue waits for space",
          by: "if (rest) return false;", only: "test_a_full_queue_neither_loses_messages_nor_reports_them_twice_with_any_policy"
  without :dropped_message_has_result, "a dropped message has one delivery result, and an event",
          by: "(void)set_topic_names;", only: "test_a_full_queue_neither_loses_messages_nor_reports_them_twice_with_any_policy"
  without :unheard_statistics_freed, "statistics without a listener are freed",
          sub: { "ps_events_statistics(producer->events, &producer->client, rd_kafka_event_stats(event)); break" => "return" },
          only: "test_unread_statistics_and_log_lines_take_no_memory"
  without :handle_frees_delivery, "handles free their memory",
          by: "(void)data;", only: "test_handles_without_a_waiter_leak_no_memory"
end

Mutation.area("overload", test: "test/consumer/consumer_test.rb") do
  without :consumer_log_queue, "a consumer's log lines wait in no queue of librdkafka",
          sub: { "client->kind->type == RD_KAFKA_CONSUMER || " => "" }, only: "test_log_lines_arrive_while_no_thread_polls"
end

Mutation.area("overload", test: "test/instrumentation/logger_test.rb") do
  without :log_lines_bounded, "log lines that are not read are dropped and counted",
          sub: { " && (mailbox->size < MAILBOX_LIMIT || level == PS_MAIL_LAST)" => "" },
          only: "test_lines_that_overflow_a_slow_loggers_queue_are_dropped_and_counted"
end

Mutation.area("overload", test: "test/instrumentation/events_test.rb") do
  without :events_bounded, "events that are not read are dropped and counted",
          by: "if (size >= UINT32_MAX)", only: "test_a_full_queue_costs_no_memory_and_with_drop_oldest_counts_lost_events"
end

Mutation.area("consumer events", test: "test/consumer/events_test.rb") do
  without :polled_message_survives_interrupt, "a message in hand is not lost to an interrupt",
          sub: { "Thread.handle_interrupt(Object => :never)" => "begin; end.then" },
          only: "test_an_interrupt_during_a_listener_of_messages_comes_after_the_poll"
  without :async_commit_results, "results of asynchronous commits are reported",
          only: "test_each_commit_is_published_with_its_offsets"
  without :sync_commit_reported_once, "a commit that waits is reported once",
          sub: { "ps_commit_cb" => "NULL" }, only: "test_each_commit_is_published_with_its_offsets"
end

Mutation.area("exit", test: "test/process/close_within_test.rb") do
  without :offsets_wait_ends, "a transaction that sends a consumer's offsets ends when its producer closes",
          only: "test_a_transaction_of_a_consumer_ends_while_its_offsets_are_sent"
end
