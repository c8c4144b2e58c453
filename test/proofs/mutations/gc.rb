# frozen_string_literal: true

# The garbage collector: each mark, write barrier, relocation and guard that a test can show, by file. docs/evidence/safety.md
# names those that no test can show.
module GCMutations
  HELD = { test: "test/proofs/gc_held_test.rb" }.freeze
  MOVED = { test: "test/proofs/gc_moved_test.rb" }.freeze
  NOBODY_WAITS = "test_a_schedulers_fiber_group_is_kept_while_no_fiber_waits"
  FIBERS = { test: "test/proofs/gc_fibers_test.rb" }.freeze

  # The mutations of one C file.
  class Part
    def initialize(file)
      @name = file.delete_suffix(".c")
      @file = Dir.glob("ext/penstock/{,ruby/}#{file}", base: Mutation::ROOT).first
    end

    def take_out(what, from, to = "", **options)
      Mutation.define("gc: #{@name}: #{what}", file: @file, from:, to:, **options)
    end

    def mark(field, only, from: "    rb_gc_mark_movable(object->#{field});\n", to: "", **options)
      take_out("the mark of #{field}", from, to, only:, **HELD, **options)
    end

    def relocation(field, only, object: "object", **options)
      take_out("the relocation of #{field}", "    #{object}->#{field} = rb_gc_location(#{object}->#{field});\n",
               only:, **MOVED, **options)
    end

    def barrier(field, only, value: field, object: "object", **options)
      take_out("the write barrier of #{field}", "RB_OBJ_WRITE(self, &#{object}->#{field}, #{value});",
               "#{object}->#{field} = #{value};", only:, **HELD, **options)
    end

    # Without its registration, the object may be collected or moved.
    def registered(variable, only, **options)
      take_out("#{variable}, registered", "    rb_gc_register_mark_object(#{variable});\n", only:, **MOVED, **options)
    end
  end

  def self.in_file(file, &block) = Part.new(file).instance_eval(&block)

  in_file("producer_class.c") do
    mark "poller", "test_a_client_keeps_its_poller"
    mark "logger", "test_a_client_keeps_its_logger"
    mark "source", "test_a_client_keeps_its_event_source"
    mark "token_refresher", "test_a_client_keeps_its_token_refresher"
    mark "last_topic", "test_a_client_keeps_the_name_of_its_latest_topic"
    barrier "poller", "test_an_old_client_keeps_a_young_poller"
    barrier "logger", "test_an_old_client_keeps_a_young_logger"
    barrier "source", "test_an_old_client_keeps_a_young_event_source"
    barrier "token_refresher", "test_an_old_client_keeps_a_young_token_refresher", value: "refresher"
    %w[poller logger source token_refresher last_topic].each do |field|
      relocation field, "test_objects_held_by_clients_can_move"
    end
  end

  in_file("produce_methods.c") do
    take_out "the write barrier of last_topic", "RB_OBJ_WRITE(sender->self, &object->last_topic, message->topic);",
             "object->last_topic = message->topic;",
             **HELD, only: "test_an_old_client_keeps_the_young_name_of_its_latest_topic"
    take_out "the buffer that lets the GC see the batch",
             "    if (first) rb_gc_mark_locations(first, first + batch_call->size / sizeof(VALUE));\n", "    (void)first;\n",
             **HELD, only: "test_a_batch_keeps_the_names_of_its_topics_during_its_creation"
    take_out "the guard of the objects that a batch keeps", "    RB_GC_GUARD(kept);\n", **HELD,
             only: "test_large_payloads_that_wait_for_queue_space_do_not_change"
  end

  in_file("consumer_class.c") do
    mark "logger", "test_a_consumer_keeps_its_logger"
    mark "token_refresher", "test_a_consumer_keeps_its_token_refresher"
    barrier "logger", "test_an_old_consumer_keeps_a_young_logger"
    barrier "token_refresher", "test_an_old_consumer_keeps_a_young_token_refresher"
    %w[logger token_refresher].each { |field| relocation field, "test_objects_held_by_consumers_can_move" }
  end

  in_file("consumed_message.c") do
    take_out "a message's hold on its memory", "    ps_fetched_retain(record->fetched);\n    set_record(self, record);\n",
             "    record->fetched->refs = 1;\n    set_record(self, record);\n", **HELD,
             only: "test_a_message_keeps_its_topic_key_payload_and_headers"
    registered "message_class", "test_native_code_creates_objects_after_everything_moved"
    registered "no_headers", "test_a_message_keeps_the_shared_empty_headers", **HELD
  end

  in_file("batch.c") do
    registered "batch_class", "test_native_code_creates_objects_after_everything_moved"
    take_out "the end of a batch's hold on its memory", "if (ps_fetched_unref(fetched)) rb_gc", "if (0) rb_gc",
             test: "test/batch_test.rb", only: "test_the_memory_of_collected_batches_is_freed"
    take_out "released bytes, out of reach", "    if (!ps_fetched_read(fetched)) penstock_raise_released();\n    VALUE values",
             "    ps_fetched_read(fetched);\n    VALUE values",
             test: "test/batch_test.rb", only: "test_released_bytes_cannot_be_read"
  end

  in_file("delivery_handle.c") do
    mark "topic", "test_a_handle_keeps_the_name_of_its_topic", from: "    rb_gc_mark_movable(delivery->topic);\n"
    mark "label", "test_a_handle_keeps_its_label", from: "    rb_gc_mark_movable(delivery->label);\n"
    %w[topic label].each { |field| relocation field, "test_objects_held_by_handles_can_move", object: "delivery" }
    registered "handle_class", "test_native_code_creates_objects_after_everything_moved"
    registered "report_class", "test_native_code_creates_objects_after_everything_moved"
  end

  in_file("error.c") do
    take_out "the classes, registered", "        rb_gc_register_mark_object(*classes[i].error_class);\n",
             **MOVED, only: "test_native_code_creates_errors_after_everything_moved"
    registered "error_factory", "test_native_code_creates_errors_after_everything_moved"
  end

  in_file("bearer.c") { registered "bearer_class", "test_native_code_accepts_tokens_after_everything_moved" }

  in_file("penstock.c") { registered "penstock_module", "test_native_code_creates_objects_after_everything_moved" }

  in_file("fiber_wait.c") do
    registered "group_class", "test_fibers_can_wait_while_everything_moves"
    take_out "the pinning of a waiting fiber", "rb_gc_mark(wait->fiber);", "rb_gc_mark_movable(wait->fiber);",
             **MOVED, only: "test_fibers_can_wait_while_everything_moves"
    mark "io", NOBODY_WAITS, from: "    rb_gc_mark(group->io);\n", **FIBERS
    mark "mutex", NOBODY_WAITS, from: "    rb_gc_mark(group->mutex);\n", **FIBERS
    mark "waiting fibers", "test_a_waiting_fiber_is_not_collected", from: "rb_gc_mark(wait->fiber);", to: "(void)wait;", **FIBERS
  end

  in_file("message.c") do
    take_out "large payloads, kept", "    rb_ary_push(kept, bytes->string);\n", **HELD,
             only: "test_large_payloads_that_wait_for_queue_space_do_not_change"
    take_out "large payloads, frozen", "    bytes->string = rb_str_new_frozen(bytes->string);\n", **HELD,
             only: "test_large_payloads_that_wait_for_queue_space_do_not_change"
  end

  in_file("handover.c") do
    take_out "the copies of payloads before a wait", "    if (handover->copies) return true; /* prepare has copied them */\n",
             "    return true;\n", **HELD, only: "test_small_payloads_that_wait_for_queue_space_do_not_change"
  end
end
