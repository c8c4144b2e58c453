# frozen_string_literal: true

# docs/evidence/safety.md, "Sanitizers" and "Static checks".

Mutation.area("native", test: "test/proofs/core_test.rb", runs: 3) do
  without :topic_conf_freed_once, "a rejected topic's configuration is freed once",
          before: "rd_kafka_topic_conf_destroy(conf);", only: "test_no_part_of_the_core_uses_freed_memory_or_leaks"
  without :ready_next_read_first, "the ready list is read before a client can be pushed again",
          by: "atomic_store(&queue->ready, false);\nrun_append(poller, queue);\nqueue = queue->ready_next;", lines: 4,
          only: "test_no_part_of_the_core_has_a_data_race"
  without :chunk_freed, "a chunk is freed with its last delivery",
          by: "(void)allocated_with_batch;", only: "test_no_part_of_the_core_uses_freed_memory_or_leaks"
  without :chunk_unref_last, "a chunk stays until the waiters of its batch are woken",
          by: "chunk_unref(chunk, count);\nps_completion_settle(&chunk->batch->completion, count);", lines: 2,
          only: "test_no_part_of_the_core_uses_freed_memory_or_leaks"
  without :waiters_lock, "waiters are unlinked under their lock",
          sub: { "mutex_lock" => "mutex_trylock" }, only: "test_no_part_of_the_core_has_a_data_race"
  without :last_error_lock, "a client's last error has a lock",
          before: "memcpy(text, client->last_error, size);", only: "test_no_part_of_the_core_has_a_data_race"
  without :slot_call_retains, "a handle has a reference to the client it takes from the slot",
          only: "test_no_part_of_the_core_uses_freed_memory_or_leaks"
  without :slot_answer_lock, "the answer to a handle's question has a lock",
          by: "slot->answered = question;", lines: 4, only: "test_no_part_of_the_core_has_a_data_race"
end

Mutation.area("native", test: "test/producer/topic_test.rb") do
  without :new_topic_without_gvl, "a new topic's handle is made without the GVL",
          by: "make_topic_nogvl(&topic);", only: "test_other_threads_run_while_a_new_topic_is_slow_in_produce_beside_known"
  without :new_topic_reads_again, "messages are read again after a new topic's handle was made",
          before: "if (again) return penstock_handover_prepare(handover, release, copies_size);",
          only: "test_a_payload_that_changes_while_a_new_topic_is_made_is_sent_in_its_new_state"
  without :topic_lookup_lock_free, "a topic is looked up without waiting for one that is being made",
          before: "pthread_mutex_lock(&producer->topics.making);\npthread_mutex_unlock(&producer->topics.making);",
          only: "test_other_threads_run_while_a_new_topic_is_slow_in_produce_beside_known"
end

Mutation.area("native", test: "test/consumer/consumer_test.rb") do
  without :stopped_before_assigned, "partitions are assigned when those before have stopped",
          sub: { "STEPS_OF_STOPPING = 10" => "STEPS_OF_STOPPING = 0" }, only: "test_partitions_can_be_reassigned_at_any_moment",
          runs: 3
end

Mutation.area("native", test: "test/consumer/pause_test.rb") do
  without :paused_messages_set_aside, "messages behind an error wait while their partition is paused",
          sub: { "paused && !ps_consumer_set_aside(consumer, changed)" => "false" },
          only: "test_messages_behind_an_error_wait_while_their_partition_is_paused"
  without :aside_messages_resumed, "messages behind an error come when their partition is resumed",
          sub: { "consumer->aside_due" => "false" },
          only: "test_messages_behind_an_error_keep_their_order_with_any_number_of_pauses"
  without :seek_drops_aside, "a seek drops messages behind an error", only: "test_messages_behind_an_error_are_dropped_by_a_seek"
end

Mutation.area("native", test: "test/proofs/gc_test.rb") do
  without :chunk_size, "a handle keeps no more of a batch than its chunk",
          sub: { "256" => "65536" }, only: "test_a_kept_handle_keeps_only_its_own_chunk_of_a_large_batch"
end

Mutation.area("native", test: "test/producer/backpressure_test.rb") do
  without :batch_kept_for_handles, "the deliveries of a batch stay until their handles are made",
          before: "ps_batch_release(handover->batch);",
          only: "test_messages_of_a_large_batch_that_are_settled_before_their_handles_are_made_keep_their_results", runs: 3
  without :reread_messages_given_up, "dropped messages that were read again have a delivery result",
          only: "test_dropped_messages_of_new_topics_have_a_delivery_result_at_once"
end

Mutation.area("native", test: "test/project/misuse_test.rb") do
  without :data_checked, "an object without its struct raises",
          only: "test_a_delivery_handle_without_a_message_raises_a_type_error"
  without :batch_not_resumed, "a continuation does not come back to a batch that was handed over",
          by: "(void)check_not_resumed;", only: "test_a_continuation_cannot_reenter_a_batch_of_1000_after_its_handover"
end

Mutation.area("native", test: "test/producer/recovery_test.rb") do
  without :fatal_error_kept, "a message that a fatal error kept from being sent has that error",
          sub: { "read_fatal_error(delivery) || " => "" }, only: "test_every_call_on_a_fenced_producer_raises_a_fenced_error"
end

Mutation.area("native", test: "test/native/call_test.rb") do
  without :interrupted_call_freed, "a call's answer is freed when its fiber is interrupted",
          only: "test_the_result_of_a_call_whose_fiber_is_interrupted_is_freed"
  without :dropped_call_freed, "a call's answer is freed when its fiber is dropped",
          only: "test_the_result_of_a_call_whose_fiber_is_dropped_by_its_scheduler_is_freed"
end

Mutation.area("native", test: "test/consumer/rebalance_protocol_test.rb") do
  without :leaving_skips_protocol, "a consumer that leaves its group does not ask for the protocol",
          by: "{", only: "test_the_protocol_is_queried_once_for_an_assignment_and_not_while_closing_range"
end

Mutation.area("native",
              test: "test/proofs/allocations_test.rb", only: "test_error_paths_destroy_every_librdkafka_object_they_create") do
  without :unsent_headers_freed, "headers of messages that are not accepted are destroyed", by: ";"
  without :fiber_message_on_heap, "a message that waits for queue space in a fiber is discarded with the fiber"
  without :fiber_batch_given_up, "a batch that waits for queue space in a fiber is discarded with the fiber"
  without :librdkafka_error_freed, "librdkafka's errors are destroyed"
  without :rejected_conf_freed, "the configuration of a rejected consumer is destroyed"
  without :transaction_offsets_freed, "the offsets of a rejected transaction call are destroyed"
end

Mutation.area("native", test: "test/producer/transaction_native_test.rb") do
  without :transaction_least_time, "a transaction call lasts until librdkafka has seen it",
          sub: { " > LEAST_MS ? remaining_ms : LEAST_MS" => "" },
          only: "test_transactions_whose_commits_are_resumed_as_they_end_stay_apart", runs: 3
end

Mutation.area("native", test: "test/project/static_checks_test.rb") do
  without :snprintf_without_gvl, "nothing of Ruby is called without the GVL",
          sub: { "undef snprintf" => "define SNPRINTF_IS_RUBYS" }, only: "test_penstocks_sources_have_no_findings"
  without :exports_init_only, "nothing is exported but Init_penstock",
          by: "RUBY_FUNC_EXPORTED VALUE penstock_module;", only: "test_penstocks_sources_have_no_findings"
end

Mutation.area("space", test: "test/proofs/core_test.rb", only: "test_no_part_of_the_core_uses_freed_memory_or_leaks", runs: 3) do
  without :space_turn_passed_on, "a call that gives up passes its turn on", by: "(void)used, (void)first;", lines: 2
  without :space_freed_noticed, "a call notices space that is freed during its attempt",
          sub: { "space->freed != place->freed" => "false" }
  without :space_first_waiter, "a call leaves the space to the first waiting call", by: "bool is_next = true;"
  without :space_turns_go_on, "turns go on until the queue is full"
end

Mutation.area("space", test: "test/producer/backpressure_test.rb") do
  without :space_new_call_queues, "a new call queues behind the waiting ones",
          sub: { "ps_space_line(&producer->space)" => "false" },
          only: "test_no_thread_waits_for_space_while_each_other_thread_gets_it_several_times"
end

Mutation.area("space", test: "test/waiting/fiber_life_test.rb") do
  without :space_stuck_turn, "an unused turn does not block the others",
          sub: { "ps_space_unstick(&producer->space)" => "(void)0" },
          only: "test_dropped_fibers_that_wait_for_queue_space_block_no_other_thread"
end

Mutation.area("flusher", test: "test/producer/flush_on_wait_test.rb") do
  without :flusher_keeps_batches, "asynchronous messages keep most of their batch size beside callers that wait",
          only: "test_synchronous_calls_linger_if_they_would_cut_short_most_batches_of_asynchronous_calls"
  without :flusher_flushes_until_all_is_sent, "a flush is repeated if some brokers' threads have not looked yet",
          sub: { " || took_us < ENOUGH_US" => "" }, runs: 3,
          only: "test_batches_of_many_producers_for_several_brokers_do_not_linger"
  without :flusher_ends, "the closing thread wakes the flusher", only: "test_closing_does_not_wait_for_an_idle_flusher"
end
