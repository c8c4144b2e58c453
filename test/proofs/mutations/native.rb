# frozen_string_literal: true

# docs/evidence/safety.md, "Sanitizers" and "Static checks".
parts = { test: "test/proofs/core_test.rb", runs: 3 }
races = { **parts, only: "test_no_part_of_the_core_has_a_data_race" }
allocations = { test: "test/proofs/allocations_test.rb", only: "test_error_paths_destroy_every_librdkafka_object_they_create" }
sources = { test: "test/static_checks_test.rb", only: "test_penstocks_sources_have_no_findings" }

Mutation.define "native: a rejected topic's configuration is freed once",
                file: "ext/penstock/core/produce/topic.c", from: "    if (topic->rkt) return topic;\n",
                to: "    if (topic->rkt) return topic;\n    rd_kafka_topic_conf_destroy(conf);\n",
                **parts, only: "test_no_part_of_the_core_uses_freed_memory_or_leaks"

Mutation.define "native: a new topic's handle is made without the GVL",
                file: "ext/penstock/ruby/handover.c", from: "penstock_nogvl_now(make_topic_nogvl, &topic);",
                to: "make_topic_nogvl(&topic);", test: "test/topic_test.rb",
                only: "test_other_threads_run_while_a_new_topic_is_slow_in_produce_beside_known"
Mutation.define "native: messages are read again after a new topic's handle was made",
                file: "ext/penstock/ruby/handover.c",
                from: "    if (!again) return PENSTOCK_PREPARED;\n",
                to: "    if (again) return penstock_handover_prepare(handover, release, copies_size);\n" \
                    "    if (!again) return PENSTOCK_PREPARED;\n",
                test: "test/topic_test.rb",
                only: "test_a_payload_that_changes_while_a_new_topic_is_made_is_sent_in_its_new_state"
Mutation.define "native: a topic is looked up without waiting for one that is being made",
                file: "ext/penstock/core/produce/topic.c",
                from: "    return look_up(&producer->topics, name, length, hash_of(name, length));\n",
                to: "    pthread_mutex_lock(&producer->topics.making);\n    pthread_mutex_unlock(&producer->topics.making);\n" \
                    "    return look_up(&producer->topics, name, length, hash_of(name, length));\n", test: "test/topic_test.rb",
                only: "test_other_threads_run_while_a_new_topic_is_slow_in_produce_beside_known"

Mutation.define "native: partitions are assigned when those before have stopped",
                file: "ext/penstock/core/consume/consumer_jobs.c", from: "STEPS_OF_STOPPING = 10", to: "STEPS_OF_STOPPING = 0",
                test: "test/consumer_test.rb", only: "test_partitions_can_be_reassigned_at_any_moment", runs: 3

{ "messages behind an error wait while their partition is paused" =>
    ["consumer_jobs", "if (paused && !ps_consumer_set_aside(consumer, changed)) query", "if (false) query",
     "test_messages_behind_an_error_wait_while_their_partition_is_paused"],
  "they come when it is resumed" =>
    ["queues", "if (consumer->aside_due) consumer", "if (false) consumer",
     "test_messages_behind_an_error_keep_their_order_with_any_number_of_pauses"],
  "a seek drops them" =>
    ["queues", "    consumer->aside_count = drop_of(consumer->aside, consumer->aside_count, partitions);\n", "",
     "test_messages_behind_an_error_are_dropped_by_a_seek"] }
  .each do |what, (file, from, to, only)|
  Mutation.define "native: #{what}", file: "ext/penstock/core/consume/#{file}.c", from:, to:,
                                     test: "test/consumer_pause_test.rb", only:
end

Mutation.define "native: the ready list is read before a client can be pushed again",
                file: "ext/penstock/core/client/poller.c",
                from: <<-BEFORE, to: <<-AFTER, **races
        struct ps_polled *next = queue->ready_next; /* read first: from the next line on it may be pushed again */
        atomic_store(&queue->ready, false);
        run_append(poller, queue);
        queue = next;
                BEFORE
        atomic_store(&queue->ready, false);
        run_append(poller, queue);
        queue = queue->ready_next;
                AFTER

chunks = { file: "ext/penstock/core/produce/delivery.c", test: "test/proofs/core_test.rb",
           only: "test_no_part_of_the_core_uses_freed_memory_or_leaks", runs: 3 }

Mutation.define "native: a handle keeps no more of a batch than its chunk",
                file: "ext/penstock/core/produce/produce.h", from: "PS_CHUNK = 256", to: "PS_CHUNK = 65536",
                test: "test/proofs/gc_test.rb", only: "test_a_kept_handle_keeps_only_its_own_chunk_of_a_large_batch"

Mutation.define "native: a chunk is freed with its last delivery",
                from: "    if (!allocated_with_batch(chunk)) free(chunk);\n", to: "    (void)allocated_with_batch;\n", **chunks

Mutation.define "native: a chunk stays until the waiters of its batch are woken",
                from: "        ps_completion_settle(&chunk->batch->completion, count);\n        chunk_unref(chunk, count);",
                to: "        chunk_unref(chunk, count);\n        ps_completion_settle(&chunk->batch->completion, count);",
                **chunks

Mutation.define "native: the deliveries of a batch stay until their handles are made",
                file: "ext/penstock/ruby/produce_methods.c",
                from: "    struct ps_batch *batch = handover->batch;\n    if (!has_to_queue",
                to: "    struct ps_batch *batch = handover->batch;\n    ps_batch_release(batch);\n    if (!has_to_queue",
                test: "test/producer_backpressure_test.rb", runs: 3,
                only: "test_messages_of_a_large_batch_that_are_settled_before_their_handles_are_made_keep_their_results"

Mutation.define "native: waiters are unlinked under their lock",
                file: "ext/penstock/core/wait/completion.c",
                from: "wake_satisfied(struct ps_completion *completion)\n{\n    pthread_mutex_lock",
                to: "wake_satisfied(struct ps_completion *completion)\n{\n    pthread_mutex_trylock",
                **races

Mutation.define "native: an object without its struct raises",
                file: "ext/penstock/ruby/penstock.h", from: "    if (!data) penstock_raise_uninitialized(object);\n",
                test: "test/misuse_test.rb", only: "test_a_delivery_handle_without_a_message_raises_a_type_error"

Mutation.define "native: a message that a fatal error kept from being sent has that error",
                file: "ext/penstock/core/produce/delivery.c",
                from: "(read_fatal_error(delivery) || ", to: "(",
                test: "test/producer_recovery_test.rb", only: "test_every_call_on_a_fenced_producer_raises_a_fenced_error"

Mutation.define "native: a call's answer is freed when its fiber is interrupted",
                file: "ext/penstock/ruby/nogvl.c", from: "    ps_job_unref(job);\n    rb_jump_tag(interrupted);\n",
                to: "    rb_jump_tag(interrupted);\n",
                test: "test/call_test.rb", only: "test_the_result_of_a_call_whose_fiber_is_interrupted_is_freed"

Mutation.define "native: a call's answer is freed when its fiber is dropped",
                file: "ext/penstock/ruby/nogvl.c", from: "    DATA_PTR(holder) = job;\n",
                test: "test/call_test.rb", only: "test_the_result_of_a_call_whose_fiber_is_dropped_by_its_scheduler_is_freed"

Mutation.define "native: a consumer that leaves its group does not ask for the protocol",
                file: "ext/penstock/core/consume/consumer.c", from: "if (assigned && !consumer->leaving) {", to: "{",
                test: "test/rebalance_protocol_test.rb",
                only: "test_the_protocol_is_queried_once_for_an_assignment_and_not_while_closing_range"

Mutation.define "native: a client's last error has a lock",
                file: "ext/penstock/core/client/client.c",
                from: "last_error(struct ps_client *client, char *text, size_t size)\n{\n",
                to: "last_error(struct ps_client *client, char *text, size_t size)\n{\n" \
                    "    memcpy(text, client->last_error, size);\n",
                **races

Mutation.define "native: a handle has a reference to the client it takes from the slot",
                file: "ext/penstock/core/produce/slot.c",
                from: "slot->producer;\n    if (producer) ps_client_retain(&producer->client);\n", to: "slot->producer;\n",
                **parts, only: "test_no_part_of_the_core_uses_freed_memory_or_leaks"

Mutation.define "native: the answer to a handle's question has a lock",
                file: "ext/penstock/core/produce/slot.c",
                from: "pthread_mutex_lock(&slot->lock);\n    slot->answered = question;\n    snprintf(slot->trouble, " \
                      "sizeof(slot->trouble), \"%s\", trouble);\n    pthread_mutex_unlock(&slot->lock);\n",
                to: "slot->answered = question;\n", **races

Mutation.define "native: headers of messages that are not accepted are destroyed",
                file: "ext/penstock/ruby/handover.c",
                from: "if (handover->messages[i].native_headers) rd_kafka_headers_destroy(handover->messages[i].native_headers);",
                to: ";", **allocations

Mutation.define "native: a message that waits for queue space in a fiber is discarded with the fiber",
                file: "ext/penstock/ruby/produce_methods.c", from: "    move_to_heap(rest);\n    rest->sent_before",
                to: "    rest->sent_before", **allocations

Mutation.define "native: a batch that waits for queue space in a fiber is discarded with the fiber",
                file: "ext/penstock/ruby/produce_methods.c",
                from: "        penstock_handover_give_up(&batch_call->handover, RD_KAFKA_RESP_ERR__CONFLICT);\n", **allocations

Mutation.define "native: dropped messages that were read again have a delivery result",
                file: "ext/penstock/ruby/handover.c", from: "    handover->given_up = false; /* the next batch is not */\n",
                test: "test/producer_backpressure_test.rb",
                only: "test_dropped_messages_of_new_topics_have_a_delivery_result_at_once"

Mutation.define "native: a continuation does not come back to a batch that was handed over",
                file: "ext/penstock/ruby/produce_methods.c",
                from: "        check_not_resumed(many);\n", to: "        (void)check_not_resumed;\n",
                test: "test/misuse_test.rb",
                only: "test_a_continuation_cannot_reenter_a_batch_of_1000_after_its_handover"

Mutation.define "native: librdkafka's errors are destroyed",
                file: "ext/penstock/ruby/handover.c",
                from: "    rejection->fatal = rd_kafka_error_is_fatal(error);\n    rd_kafka_error_destroy(error);\n",
                to: "    rejection->fatal = rd_kafka_error_is_fatal(error);\n", **allocations

Mutation.define "native: the configuration of a rejected consumer is destroyed",
                file: "ext/penstock/core/client/client.c",
                from: "    if (!client->conf_leaked || rd_kafka_version() >= FREES_INTERCEPTORS_ONCE) " \
                      "rd_kafka_conf_destroy(conf);\n",
                **allocations

Mutation.define "native: a transaction call lasts until librdkafka has seen it",
                file: "ext/penstock/core/produce/transaction.c",
                from: "return remaining_ms > LEAST_MS ? remaining_ms : LEAST_MS;", to: "return remaining_ms;",
                test: "test/transaction_native_test.rb", runs: 3,
                only: "test_transactions_whose_commits_are_resumed_as_they_end_stay_apart"

Mutation.define "native: the offsets of a rejected transaction call are destroyed",
                file: "ext/penstock/core/produce/transaction.c",
                from: "    if (job->offsets) rd_kafka_topic_partition_list_destroy(job->offsets);\n    if (job->group)",
                to: "    if (job->group)", **allocations

Mutation.define "native: nothing of Ruby is called without the GVL",
                file: "ext/penstock/ruby/penstock.h",
                from: "#undef snprintf", to: "#define SNPRINTF_IS_RUBYS", **sources

Mutation.define "native: nothing is exported but Init_penstock",
                file: "ext/penstock/penstock.c", from: "VALUE penstock_module;\n",
                to: "RUBY_FUNC_EXPORTED VALUE penstock_module;\n", **sources

space = { file: "ext/penstock/core/produce/space.c" }

Mutation.define "space: a call that gives up passes its turn on",
                **space, to: "    (void)used, (void)first;\n",
                         from: "    if (had_turn && !used) space->due++;\n    if (had_turn || first) give_due_turns(space);\n",
                         **parts, only: "test_no_part_of_the_core_uses_freed_memory_or_leaks"

Mutation.define "space: a call notices space that is freed during its attempt",
                **space, from: "bool again = space->freed != place->freed;", to: "bool again = false;",
                         **parts, only: "test_no_part_of_the_core_uses_freed_memory_or_leaks"

Mutation.define "space: a call leaves the space to the first waiting call",
                **space, from: "bool is_next = !space->first || space->first->ticket > place->ticket;",
                         to: "bool is_next = true;",
                         **parts, only: "test_no_part_of_the_core_uses_freed_memory_or_leaks"

Mutation.define "space: turns go on until the queue is full",
                **space, from: "    if (active_turns(space) == 0 && space->first) give_turn(space, space->first);\n", to: "",
                         **parts, only: "test_no_part_of_the_core_uses_freed_memory_or_leaks"

Mutation.define "space: a new call queues behind the waiting ones",
                file: "ext/penstock/ruby/queue_space.c",
                from: "return ps_space_line(&producer->space) && ", to: "return false && ",
                test: "test/producer_backpressure_test.rb",
                only: "test_no_thread_waits_for_space_while_each_other_thread_gets_it_several_times"

Mutation.define "space: an unused turn does not block the others",
                file: "ext/penstock/core/produce/serve.c", from: "ps_space_unstick(&producer->space);", to: "(void)0;",
                test: "test/fiber_life_test.rb", only: "test_dropped_fibers_that_wait_for_queue_space_block_no_other_thread"

flushing = { test: "test/flush_on_wait_test.rb" }

Mutation.define "flusher: asynchronous messages keep most of their batch size beside callers that wait",
                file: "ext/penstock/core/produce/flusher.c",
                from: "    if (shared && before < flusher->shared_from) return false;\n",
                **flushing,
                only: "test_synchronous_calls_linger_if_they_would_cut_short_most_batches_of_asynchronous_calls"

Mutation.define "flusher: the closing thread wakes it",
                file: "ext/penstock/core/produce/producer_close.c", from: "    ps_flusher_end(producer);\n",
                **flushing, only: "test_closing_does_not_wait_for_an_idle_flusher"
