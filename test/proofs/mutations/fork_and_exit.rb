# frozen_string_literal: true

# "Fork and exit" and "Overload" of docs/evidence/safety.md.
locks = { test: "test/proofs/fork_locks_test.rb", only: "test_children_forked_while_any_lock_is_held_work_and_exit_cleanly" }

Mutation.define("fork: forks are counted",
                file: "ext/penstock/core/base/platform.c",
                from: "pthread_atfork(ps_random_before_fork, ps_random_after_fork, in_child);",
                to: "(void)in_child;", test: "test/fork_test.rb",
                only: "test_a_child_can_use_producers_that_its_parent_configured_used_or_closed")
Mutation.define("fork: a child replaces its client",
                file: "ext/penstock/ruby/producer_class.c",
                from: "return ps_client_inherited(&producer->client) ? renew(object, producer) : producer;",
                to: "return producer;",
                test: "test/fork_test.rb", only: "test_a_child_can_use_producers_that_its_parent_configured_used_or_closed")
Mutation.define("fork: inherited objects are not closed",
                file: "ext/penstock/core/client/client.c",
                from: "    if (ps_client_inherited(client)) return;\n    if (leave_to_opener",
                to: "    if (leave_to_opener", **locks)
Mutation.define("fork: inherited objects are not freed",
                file: "ext/penstock/core/produce/delivery.c",
                from: "    if (ps_client_inherited(&producer->client)) return;\n", to: "", **locks)
Mutation.define("fork: singletons of a process are created anew",
                file: "ext/penstock/core/base/singleton.c",
                from: "if (found && found->generation == ps_generation()) return found;",
                to: "if (found) return found;", **locks)
# The table of these locks is larger than any other such table.
Mutation.define("fork: the locks that replace a futex are created anew",
                file: "ext/penstock/core/base/singleton.c",
                from: "if (found && found->generation == ps_generation()) return found;",
                to: "if (found && (kind->size > 2048 || found->generation == ps_generation())) return found;",
                test: "test/proofs/fork_locks_test.rb",
                only: "test_children_forked_without_futex_and_eventfd_exit_cleanly", runs: 3)
Mutation.define("fork: the poller is created anew",
                file: "ext/penstock/ruby/poller_class.c",
                from: "if (poller && poller->generation == ps_generation()) return poller;",
                to: "if (poller) return poller;", test: "test/fork_test.rb",
                only: "test_the_poller_of_a_child_is_a_new_thread_with_statistics_of_its_own")
Mutation.define("fork: a handle of the parent process raises",
                file: "ext/penstock/ruby/delivery_handle.c",
                from: "if (ps_delivery_settled(delivery) || !ps_client_inherited(&producer->client)) return;",
                to: "if (producer) return;",
                test: "test/fork_test.rb", only: "test_waiting_in_the_child_for_a_message_of_the_parent_raises_at_once")
Mutation.define("fork: a wait raises in the child that a trap forked during it",
                file: "ext/penstock/ruby/nogvl.c",
                from: "    if (generation == ps_generation()) return;\n    penstock_raise",
                to: "    if (generation) return;\n    penstock_raise", test: "test/fork_test.rb",
                only: "test_a_wait_interrupted_by_a_fork_in_a_signal_handler_raises_in_the_child")
Mutation.define("fork: a used consumer stays with the parent process",
                file: "ext/penstock/ruby/consumer_class.c",
                from: "if (!ps_client_inherited(&consumer->client)) return consumer;",
                to: "if (consumer) return consumer;", test: "test/consumer_test.rb",
                only: "test_a_fork_child_cannot_use_its_parents_consumer_and_does_not_disturb_it")
Mutation.define("exit: open clients are closed",
                file: "ext/penstock/ruby/exit.c",
                from: "    close_all();\n    rb_funcall", to: "    (void)close_all;\n    rb_funcall",
                test: "test/exit_test.rb", only: "test_lost_messages_are_logged_by_the_producers_logger")
Mutation.define("exit: a client opened later arms it again",
                file: "ext/penstock/ruby/opening.c",
                from: "    penstock_exit_arm();\n", test: "test/exit_test.rb",
                only: "test_a_producer_first_used_inside_at_exit_after_others_were_closed_is_closed_before_the_process_ends")
Mutation.define("exit: another thread's error does not interrupt closing",
                file: "ext/penstock/ruby/exit.c",
                from: "if (!rb_obj_is_kind_of(rb_errinfo(), rb_eStandardError)) return false;",
                to: "if (closing) return false;", test: "test/exit_test.rb",
                only: "test_an_error_of_another_thread_does_not_abort_closing_at_exit")
Mutation.define("exit: listeners that never end are interrupted",
                file: "lib/penstock/base/threads.rb", from: "Thread.handle_interrupt(Object => :immediate, &block)", to: "yield",
                test: "test/exit_test.rb", only: "test_a_listener_that_never_returns_does_not_prevent_the_exit")
Mutation.define("exit: a signal interrupts closing",
                file: "ext/penstock/ruby/exit.c",
                from: "        ps_registry_hurry(); /* await_closing waits for the rest */\n",
                test: "test/exit_test.rb", only: "test_control_c_aborts_closing_at_exit")
Mutation.define("dropped: a separate thread closes the client",
                file: "ext/penstock/ruby/producer_class.c",
                from: "    if (producer) ps_client_abandon(&producer->client);\n", to: "    (void)producer;\n",
                test: "test/exit_test.rb", only: "test_a_producer_dropped_without_close_delivers_and_its_threads_end")
Mutation.define("dropped: listeners do not keep a producer alive",
                file: "lib/penstock/instrumentation/event_dispatcher.rb",
                from: "          @held = nil\n", test: "test/proofs/fork_and_exit_test.rb",
                only: "test_a_program_that_drops_without_close_exits_cleanly_and_loses_no_confirmed_message")
Mutation.define("dropped: listeners keep a producer alive while messages are in flight",
                file: "ext/penstock/ruby/event_source.c",
                from: "    if (atomic_load(&object->held)) return;\n",
                to: "    if (object) return;\n", test: "test/events_test.rb",
                only: "test_a_producer_without_references_publishes_its_pending_events_and_is_collected", runs: 3)
Mutation.define("signals: native threads block signals",
                file: "ext/penstock/core/base/platform.c",
                from: "    pthread_sigmask(SIG_SETMASK, &all, &before);\n",
                to: "    pthread_sigmask(SIG_SETMASK, NULL, &before);\n", test: "test/exit_test.rb",
                only: "test_native_threads_block_every_signal")
Mutation.define("overload: a full queue waits for space",
                file: "ext/penstock/ruby/produce_methods.c",
                from: "    if (rest->queue_full_ms == 0 || !penstock_handover_keep_bytes(rest->handover)) return false;\n",
                to: "    if (rest) return false;\n", test: "test/proofs/overload_test.rb",
                only: "test_a_full_queue_neither_loses_messages_nor_reports_them_twice_with_any_policy")
Mutation.define("overload: a dropped message has one delivery result, and an event",
                file: "ext/penstock/ruby/produce_methods.c",
                from: "    if (result) set_topic_names(handover);\n", to: "    (void)set_topic_names;\n",
                test: "test/proofs/overload_test.rb",
                only: "test_a_full_queue_neither_loses_messages_nor_reports_them_twice_with_any_policy")
Mutation.define("consumer events: a message in hand is not lost to an interrupt",
                file: "lib/penstock/consumer/notifier.rb",
                from: "Thread.handle_interrupt(Object => :never) { instrument", to: "begin; end.then { instrument",
                test: "test/consumer_events_test.rb",
                only: "test_an_interrupt_during_a_listener_of_messages_comes_after_the_poll")
Mutation.define("consumer events: results of asynchronous commits are reported",
                file: "ext/penstock/core/consume/consumer.c",
                from: "rd_kafka_conf_set_offset_commit_cb(conf, ps_commit_cb);", to: "",
                test: "test/consumer_events_test.rb", only: "test_each_commit_is_published_with_its_offsets")
Mutation.define("consumer events: a commit that waits is reported once",
                file: "ext/penstock/core/consume/consumer_jobs.c",
                from: "answers, ps_commit_cb, NULL);", to: "answers, NULL, NULL);",
                test: "test/consumer_events_test.rb", only: "test_each_commit_is_published_with_its_offsets")
Mutation.define("overload: statistics without a listener are freed",
                file: "ext/penstock/core/produce/serve.c",
                from: "ps_events_statistics(producer->events, &producer->client, rd_kafka_event_stats(event)); break;",
                to: "return;",
                test: "test/proofs/overload_test.rb",
                only: "test_unread_statistics_and_log_lines_take_no_memory")
Mutation.define("overload: a consumer's log lines wait in no queue of librdkafka",
                file: "ext/penstock/core/client/client.c",
                from: "    return client->kind->type == RD_KAFKA_CONSUMER || !client->settings->logs_to_mailbox;\n",
                to: "    return !client->settings->logs_to_mailbox;\n",
                test: "test/consumer_test.rb", only: "test_log_lines_arrive_while_no_thread_polls")
Mutation.define("overload: log lines that are not read are dropped and counted",
                file: "ext/penstock/core/base/log_mailbox.c",
                from: "mail && (mailbox->size < MAILBOX_LIMIT || level == PS_MAIL_LAST);",
                to: "mail;", test: "test/logger_test.rb",
                only: "test_lines_that_overflow_a_slow_loggers_queue_are_dropped_and_counted")
Mutation.define("overload: events that are not read are dropped and counted",
                file: "ext/penstock/core/client/events.c",
                from: "if (size >= events->limit && event->kind != PS_EVENT_CLOSED)",
                to: "if (size >= UINT32_MAX)", test: "test/events_test.rb",
                only: "test_a_full_queue_costs_no_memory_and_with_drop_oldest_counts_lost_events")
Mutation.define("overload: handles free their memory",
                file: "ext/penstock/ruby/delivery_handle.c",
                from: "    ps_delivery_unref(data);\n", to: "    (void)data;\n",
                test: "test/proofs/overload_test.rb", only: "test_handles_without_a_waiter_leak_no_memory")
