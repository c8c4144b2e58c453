# frozen_string_literal: true

# The marks, write barriers, relocations and guards that a test can show. docs/evidence/safety.md names the others.

Mutation.area("gc", test: "test/proofs/ffi_defect_test.rb") do
  without :gc_handle_label_mark, "a handle's label is marked (shown by the copy of ffi's loop)",
          only: "test_producers_handles_reports_and_messages_survive_the_same_usage", runs: 3
  without :ffi_layout_barrier, "the write barrier of the layout in ffi's loop",
          by: "if (RTEST(barrier)) layout->field_map = field_map;", only: "test_a_hash_stored_with_a_write_barrier_is_kept",
          runs: 3
end

Mutation.area("gc", test: "test/proofs/gc_held_test.rb") do
  without :gc_producer_poller_mark, "producer_class: the mark of poller", only: "test_a_client_keeps_its_poller"
  without :gc_producer_logger_mark, "producer_class: the mark of logger", only: "test_a_client_keeps_its_logger"
  without :gc_producer_source_mark, "producer_class: the mark of source", only: "test_a_client_keeps_its_event_source"
  without :gc_producer_token_refresher_mark, "producer_class: the mark of token_refresher",
          only: "test_a_client_keeps_its_token_refresher"
  without :gc_producer_last_topic_mark, "producer_class: the mark of last_topic",
          only: "test_a_client_keeps_the_name_of_its_latest_topic"
  without :gc_producer_poller_barrier, "producer_class: the write barrier of poller",
          by: "object->poller = poller;", only: "test_an_old_client_keeps_a_young_poller"
  without :gc_producer_logger_barrier, "producer_class: the write barrier of logger",
          by: "object->logger = logger;", only: "test_an_old_client_keeps_a_young_logger"
  without :gc_producer_source_barrier, "producer_class: the write barrier of source",
          by: "object->source = source;", only: "test_an_old_client_keeps_a_young_event_source"
  without :gc_producer_token_refresher_barrier, "producer_class: the write barrier of token_refresher",
          by: "object->token_refresher = refresher;", only: "test_an_old_client_keeps_a_young_token_refresher"
  without :gc_produce_last_topic_barrier, "produce_methods: the write barrier of last_topic",
          sub: { "RB_OBJ_WRITE(sender->self, &object->last_topic, message->topic)" => "object->last_topic = message->topic" },
          only: "test_an_old_client_keeps_the_young_name_of_its_latest_topic"
  without :gc_batch_buffer_marked, "produce_methods: the buffer that lets the GC see the batch",
          by: "(void)first;", only: "test_a_batch_keeps_the_names_of_its_topics_during_its_creation"
  without :gc_batch_guard, "produce_methods: the guard of the objects that a batch keeps",
          only: "test_large_payloads_that_wait_for_queue_space_do_not_change"
  without :gc_consumer_logger_mark, "consumer_class: the mark of logger", only: "test_a_consumer_keeps_its_logger"
  without :gc_consumer_token_refresher_mark, "consumer_class: the mark of token_refresher",
          only: "test_a_consumer_keeps_its_token_refresher"
  without :gc_consumer_logger_barrier, "consumer_class: the write barrier of logger",
          by: "object->logger = logger;", only: "test_an_old_consumer_keeps_a_young_logger"
  without :gc_consumer_token_refresher_barrier, "consumer_class: the write barrier of token_refresher",
          by: "object->token_refresher = token_refresher;", only: "test_an_old_consumer_keeps_a_young_token_refresher"
  without :gc_message_retains_memory, "consumed_message: a message's hold on its memory",
          by: "record->fetched->refs = 1;", only: "test_a_message_keeps_its_topic_key_payload_and_headers"
  without :gc_no_headers, "consumed_message: no_headers, registered", only: "test_a_message_keeps_the_shared_empty_headers"
  without :gc_handle_topic_mark, "delivery_handle: the mark of topic", only: "test_a_handle_keeps_the_name_of_its_topic"
  without :gc_handle_label_mark, "delivery_handle: the mark of label", only: "test_a_handle_keeps_its_label"
  without :gc_large_payloads_kept, "message: large payloads, kept",
          only: "test_large_payloads_that_wait_for_queue_space_do_not_change"
  without :gc_large_payloads_frozen, "message: large payloads, frozen",
          only: "test_large_payloads_that_wait_for_queue_space_do_not_change"
  without :gc_payloads_copied, "handover: the copies of payloads before a wait",
          by: "return true;", only: "test_small_payloads_that_wait_for_queue_space_do_not_change"
end

Mutation.area("gc", test: "test/proofs/gc_moved_test.rb") do
  without :gc_producer_poller_relocation, "producer_class: the relocation of poller",
          only: "test_objects_held_by_clients_can_move"
  without :gc_producer_logger_relocation, "producer_class: the relocation of logger",
          only: "test_objects_held_by_clients_can_move"
  without :gc_producer_source_relocation, "producer_class: the relocation of source",
          only: "test_objects_held_by_clients_can_move"
  without :gc_producer_token_refresher_relocation, "producer_class: the relocation of token_refresher",
          only: "test_objects_held_by_clients_can_move"
  without :gc_producer_last_topic_relocation, "producer_class: the relocation of last_topic",
          only: "test_objects_held_by_clients_can_move"
  without :gc_consumer_logger_relocation, "consumer_class: the relocation of logger",
          only: "test_objects_held_by_consumers_can_move"
  without :gc_consumer_token_refresher_relocation, "consumer_class: the relocation of token_refresher",
          only: "test_objects_held_by_consumers_can_move"
  without :gc_message_class, "consumed_message: message_class, registered",
          only: "test_native_code_creates_objects_after_everything_moved"
  without :gc_batch_class, "batch: batch_class, registered", only: "test_native_code_creates_objects_after_everything_moved"
  without :gc_handle_topic_relocation, "delivery_handle: the relocation of topic", only: "test_objects_held_by_handles_can_move"
  without :gc_handle_label_relocation, "delivery_handle: the relocation of label", only: "test_objects_held_by_handles_can_move"
  without :gc_handle_class, "delivery_handle: handle_class, registered",
          only: "test_native_code_creates_objects_after_everything_moved"
  without :gc_report_class, "delivery_handle: report_class, registered",
          only: "test_native_code_creates_objects_after_everything_moved"
  without :gc_error_classes, "error: the classes, registered", only: "test_native_code_creates_errors_after_everything_moved"
  without :gc_error_factory, "error: error_factory, registered", only: "test_native_code_creates_errors_after_everything_moved"
  without :gc_bearer_class, "bearer: bearer_class, registered", only: "test_native_code_accepts_tokens_after_everything_moved"
  without :gc_penstock_module, "penstock: penstock_module, registered",
          only: "test_native_code_creates_objects_after_everything_moved"
  without :gc_fiber_group_class, "fiber_wait: group_class, registered", only: "test_fibers_can_wait_while_everything_moves"
  without :gc_waiting_fibers, "fiber_wait: the pinning of a waiting fiber",
          sub: { "rb_gc_mark" => "rb_gc_mark_movable" }, only: "test_fibers_can_wait_while_everything_moves"
end

Mutation.area("gc", test: "test/consumer/batch_test.rb") do
  without :gc_batch_releases_memory, "batch: the end of a batch's hold on its memory",
          sub: { "ps_fetched_unref(fetched)" => "0" }, only: "test_the_memory_of_collected_batches_is_freed"
  without :gc_released_bytes_raise, "batch: released bytes, out of reach",
          by: "ps_fetched_read(fetched);", only: "test_released_bytes_cannot_be_read"
end

Mutation.area("gc", test: "test/proofs/gc_fibers_test.rb") do
  without :gc_fiber_io_mark, "fiber_wait: the mark of io", only: "test_a_schedulers_fiber_group_is_kept_while_no_fiber_waits"
  without :gc_fiber_mutex_mark, "fiber_wait: the mark of mutex",
          only: "test_a_schedulers_fiber_group_is_kept_while_no_fiber_waits"
  without :gc_waiting_fibers, "fiber_wait: the mark of waiting fibers",
          sub: { "rb_gc_mark(wait->fiber)" => "(void)wait" }, only: "test_a_waiting_fiber_is_not_collected"
end
