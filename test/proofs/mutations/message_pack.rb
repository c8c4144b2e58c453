# frozen_string_literal: true

# Penstock::MessagePack between its engines and Ruby's objects: docs/evidence/safety.md, "MessagePack".
module MessagePackMutations
  # Those of one C file.
  class Part
    def initialize(file)
      @name = file[/message_pack_(\w+)\.c/, 1] || "options"
      @file = "ext/penstock/message_pack/#{file}"
    end

    # @param test [Symbol] of which file: test/message_pack_..._test.rb
    # @param mutations [Hash{String => String, Array(String, String)}] what is protected; what is taken out, and what stands there
    #   instead
    def shown(test, only, mutations)
      mutations.each do |what, (from, to)|
        Mutation.define("messagepack codec: #{@name}: #{what}", file: @file, from:, to: to || "",
                                                                test: "test/message_pack_#{test}_test.rb", only:)
      end
    end
  end

  def self.in_file(file, &block) = Part.new(file).instance_eval(&block)
end

MessagePackMutations.in_file("message_pack_registry.c") do
  shown :held, "test_a_registry_keeps_its_packers_and_unpackers",
        "the mark of packers" => "    rb_gc_mark_movable(registry->packers);\n",
        "the mark of unpackers" => "    rb_gc_mark_movable(registry->unpackers);\n"

  shown :held, "test_references_of_a_registry_are_updated_after_a_move",
        "the relocation of packers" => ["registry->packers = rb_gc_location(registry->packers);", ";"],
        "the relocation of unpackers" => ["registry->unpackers = rb_gc_location(registry->unpackers);", ";"],
        "the relocation of by_class[i].klass" =>
          ["registry->by_class[i].klass = rb_gc_location(registry->by_class[i].klass);", ";"],
        "the relocation of by_class[i].callable" =>
          ["registry->by_class[i].callable = rb_gc_location(registry->by_class[i].callable);", ";"],
        "the relocation of by_place[i].klass" =>
          ["registry->by_place[i].klass = rb_gc_location(registry->by_place[i].klass);", ";"],
        "the relocation of by_place[i].callable" =>
          ["registry->by_place[i].callable = rb_gc_location(registry->by_place[i].callable);", ";"]

  shown :ractor, "test_one_shareable_factory_and_its_pool_serve_all_ractors_at_once",
        "it is shareable" => " | RUBY_TYPED_FROZEN_SHAREABLE"

  shown :factory, "test_an_object_that_pretends_to_be_an_integer_is_rejected_as_a_type",
        "a type that is packed is an Integer" => "    Check_Type(part(values, 0), T_FIXNUM); /* is_a? may be wrong */\n",
        "a type that is unpacked is an Integer" => "    Check_Type(type, T_FIXNUM);\n"

  shown :factory, "test_anonymous_classes_modules_and_singleton_classes_can_be_registered",
        "modules are looked for among all ancestors" => "    if (RB_TYPE_P(klass, T_MODULE)) registry->modules = true;\n"

  shown :factory, "test_all_types_may_be_registered_at_once_except_the_reserved_one",
        "no more types than there are places" => ["if (RHASH_SIZE(unpackers) > 255)", "if (false)"]
end

MessagePackMutations.in_file("message_pack_buffer.c") do
  shown :held, "test_a_buffer_keeps_a_long_string",
        "the mark of held" => "    rb_gc_mark(buffer->held); /* not movable: its bytes are read in place */\n"

  shown :held, "test_references_of_a_buffer_are_updated_after_a_move_or_pinned",
        "held stays where it is" => ["rb_gc_mark(buffer->held);", "rb_gc_mark_movable(buffer->held);"],
        "the relocation of io" => ["buffer->io = rb_gc_location(buffer->io);", ";"]

  shown :held, "test_a_buffer_keeps_its_io",
        "the mark of io" => "    rb_gc_mark_movable(buffer->io);\n"

  shown :held, "test_an_old_buffer_keeps_a_young_long_string",
        "the write barrier of held" => ["RB_OBJ_WRITE(owner, &buffer->held, holder);", "buffer->held = holder;"]

  shown :held, "test_an_old_buffer_keeps_a_young_io",
        "the write barrier of io" =>
          ["io_buffer_size;\n    RB_OBJ_WRITE(self, &buffer->io, io);", "io_buffer_size;\n    buffer->io = io;"]

  shown :unpacker, "test_registered_unpackers_may_not_change_the_types_or_the_buffer",
        "it is not cleared while it is read" =>
          ["    penstock_buffer_check(buffer);\n    buffer->gone += penstock", "    buffer->gone += penstock"],
        "nothing is added while it is read" =>
          ["    penstock_buffer_check(buffer);\n    if (penstock_buffer_size", "    if (penstock_buffer_size"],
        "nothing is taken while it is read" => ["    penstock_buffer_check(buffer);\n    buffer->at", "    buffer->at"]

  shown :buffer, "test_a_string_may_change_after_it_was_written",
        "a long String is held as it was" => ["VALUE held = rb_str_new_frozen(string);", "VALUE held = string;"]

  shown :io, "test_an_io_that_returns_something_other_than_a_string_raises",
        "an io gives Strings" => "    StringValue(bytes);\n"

  shown :io, "test_an_empty_string_from_an_io_does_not_loop_endlessly",
        "an io that gives nothing is at its end" => ["return RSTRING_LEN(bytes) == 0 ? Qnil : bytes;", "return bytes;"]

  shown :packer, "test_after_an_error_only_earlier_bytes_that_were_not_consumed_remain",
        "bytes that are dropped at once are counted" => "    buffer->gone += penstock_buffer_size(buffer);\n",
        "consumed bytes are counted" => "    buffer->gone += size;\n"

  shown :packer, "test_bytes_that_the_io_did_not_accept_are_kept",
        "bytes that an io did not accept are kept" => "        put_back(self, bytes);\n"

  shown :buffer, "test_a_long_string_may_change_after_it_was_read",
        "a held String is not given itself" =>
          ["rb_str_subseq(held, 0, (long)size);\n        rb_enc_associate_index(taken, rb_ascii8bit_encindex())", "held"],
        "a held String is shared only as a whole" =>
          [" && size == (size_t)RSTRING_LEN(held) && buffer->writer.data + buffer->at == RSTRING_PTR(held)", ""]

  shown :packer, "test_bytes_that_the_io_writes_to_the_packer_follow_a_long_string",
        "a long String is in the buffer while the io writes what comes before it" =>
          ["    penstock_buffer_put(self, buffer, string);\n    give_taken(self, buffer->io, before);",
           "    give_taken(self, buffer->io, before);\n    penstock_buffer_put(self, buffer, string);"]

  shown :buffer, "test_an_argument_that_cannot_be_filled_raises_and_nothing_is_consumed",
        "what is filled is a String" => "        Check_Type(out, T_STRING);\n",
        "what is filled is not frozen" => "        rb_str_modify(out);\n"

  shown :packer, "test_while_a_payload_is_written_only_the_payload_is_accessible",
        "what encloses a payload is not cleared" =>
          ["buffer->writer.size = buffer->at = buffer->base;", "buffer->writer.size = buffer->at = 0;"],
        "what encloses a payload is not flushed" =>
          ["buffer->base == 0 && penstock_buffer_size(buffer) > 0", "penstock_buffer_size(buffer) > 0"]

  shown :packer, "test_payloads_of_each_size_get_their_header_and_enclosing_values_are_kept",
        "what encloses a payload stays when it grows" => ["buffer->base > 0 ? 0 : buffer->at", "buffer->at"],
        "what encloses a payload is not replaced by a long String" =>
          ["buffer->base == 0 && RSTRING_LEN(string) >= HELD_FROM", "RSTRING_LEN(string) >= HELD_FROM"]

  shown :packer, "test_the_buffer_may_be_requested_during_a_write",
        "a Packer's own memory is copied to its Buffer" =>
          "    if (from->first) data = memcpy(xmalloc(from->writer.capacity), data, from->writer.size);\n",
        "a Packer's own memory is not freed as a Buffer's" => [" && !buffer->first) xfree", ") xfree"]

  shown :packer, "test_the_buffer_has_no_bytes_of_a_write_that_raised",
        "a Buffer shows nothing of a write that raised" => "    penstock_buffer_settle(buffer);\n"

  shown :packer, "test_after_an_error_only_earlier_bytes_that_were_not_consumed_remain",
        "what was taken meanwhile is not older than the write" => ["began > buffer->gone ? began - buffer->gone : 0", "began"]

  shown :buffer, "test_a_buffer_cannot_be_copied",
        "it is not copied" => "    rb_undef_method(buffer_class, \"initialize_copy\");\n"
end

MessagePackMutations.in_file("message_pack_packer.c") do
  shown :held, "test_a_packer_keeps_its_buffer",
        "the mark of buffer" => "    rb_gc_mark_movable(packer->buffer);\n"

  shown :held, "test_a_packer_keeps_its_registry",
        "the mark of registry" => "    rb_gc_mark_movable(packer->registry);\n"

  shown :held, "test_references_of_a_packer_are_updated_after_a_move",
        "the relocation of buffer" => ["packer->buffer = rb_gc_location(packer->buffer);", ";"],
        "the relocation of registry" => ["packer->registry = rb_gc_location(packer->registry);", ";"]

  shown :held, "test_an_old_packer_keeps_a_young_buffer",
        "the write barrier of buffer" => ["RB_OBJ_WRITE(self, &packer->buffer, penstock_buffer_wrap(&packer->own));",
                                          "packer->buffer = penstock_buffer_wrap(&packer->own);"]

  shown :held, "test_an_old_packer_keeps_the_young_buffer_of_its_io",
        "the write barrier of an io's buffer" =>
          ["RB_OBJ_WRITE(self, &packer->buffer, penstock_buffer_new(io, options->io_buffer_size));",
           "packer->buffer = penstock_buffer_new(io, options->io_buffer_size);"]

  shown :held, "test_an_old_packer_keeps_its_own_types",
        "the write barrier of a later registry" =>
          ["    RB_OBJ_WRITE(self, &packer->registry, registry);\n    return registry;",
           "    packer->registry = registry;\n    return registry;"]

  shown :packer, "test_an_uninitialized_packer_raises",
        "it has been initialized" => ["if (!packer || !packer->bytes)", "if (false)"]

  shown :packer, "test_within_another_object_a_long_string_stays_in_the_buffer",
        "no part of an object goes to the io" => [" && packer->depth == 0) packing.long", ") packing.long"]

  shown :packer, "test_a_packer_cannot_be_copied",
        "it is not copied" => "    rb_undef_method(packer_class, \"initialize_copy\");\n"

  shown :packer, "test_after_an_error_the_packer_keeps_earlier_bytes_and_stays_usable",
        "what a failed write of plain data has added is taken back" => "    penstock_buffer_settle(packer->bytes);\n"

  shown :packer, "test_an_error_that_an_enclosing_object_rescues_leaves_no_bytes_of_the_failed_object",
        "what a failed write has added is taken back" => "    penstock_buffer_take_back(bytes, writing->began);\n",
        "a write that raised is no turn any more" => "    packer->turn = writing->turn;\n"

  shown :packer, "test_objects_of_a_class_that_was_packed_before_leave_no_bytes_when_they_raise",
        "what a failed write of a known class has added is taken back" =>
          "    penstock_buffer_take_back(packer->bytes, calling->began);\n",
        "a write of a known class that raised is no turn any more" => "    packer->turn = calling->turn;\n",
        "how deep it is counts anew after a known class" => "    packer->depth = calling->depth;\n"

  shown :deep, "test_max_depth_counts_objects_of_a_class_that_was_packed_before",
        "a known class is a level, too" =>
          ["    if (penstock_packer_knows(packer, klass)) return",
           "    packer->depth = 0;\n    if (penstock_packer_knows(packer, klass)) return"],
        "a short Array of Integers is a level" => " || packer->depth >= packer->options.max_depth"

  shown :packer, "test_an_array_with_other_values_after_integers_is_written_once",
        "an Array that is found not to be one of Integers leaves nothing" => "            writer->size = before;\n"

  shown :packer, "test_values_within_a_failed_payload_are_discarded_with_it",
        "the bytes around a payload that raised are accessible again" =>
          "    if (writing->packing.payloads > 0 && bytes->base > 0) penstock_pack_outer(bytes, &writing->packing.outer);\n"

  shown :packer, "test_reset_makes_a_packer_usable_after_a_fiber_was_abandoned_in_a_payload",
        "a reset gives up a payload" => ["    if (bytes->base > 0) {", "    if (false) {"]

  shown :packer, "test_a_type_registered_later_is_used_from_then_on",
        "classes are looked for anew in another registry" =>
          "    memset(packer->own_classes, 0, sizeof(packer->own_classes));\n"

  shown :held, "test_a_packer_keeps_the_class_that_it_packed_last",
        "the mark of classes" => ["rb_gc_mark(packer->own_classes[i]);", ";"]

  shown :held, "test_references_of_a_packer_are_updated_after_a_move",
        "classes stay where they are" => ["rb_gc_mark(packer->own_classes[i]);", "rb_gc_mark_movable(packer->own_classes[i]);"]

  shown :packer, "test_a_packer_cannot_be_initialized_twice",
        "it is initialized once" => ["if (packer->bytes)", "if (false)"]

  shown :packer, "test_headers_raise_for_counts_above_32_bits_and_negative_counts",
        "a header's count is not negative" => ["else if (FIX2LONG(number) < 0)", "else if (false)"]

  shown :packer, "test_each_write_starts_at_depth_zero_however_the_previous_write_ended",
        "how deep it is counts anew for each write" => "    packer->depth = writing->depth;\n"

  shown :packer, "test_a_frozen_packer_rejects_types",
        "a frozen one takes no types" => "    rb_check_frozen(self);\n"
end

MessagePackMutations.in_file("message_pack_unpacker.c") do
  shown :payload, "test_each_value_of_a_payload_counts",
        "a small Integer in a payload is counted" => "        if (ps_read_begin(reader) != PS_READ_OK) return false;\n"

  shown :source, "test_a_continuation_does_not_come_back_to_a_small_document_of_feed",
        "what has ended is not ended again" => "    if (!penstock_build_turn(building)) return Qnil;\n"

  shown :held, "test_an_unpacker_keeps_its_buffer",
        "the mark of what was fed" => "    penstock_buffer_mark(&unpacker->own);\n"

  shown :held, "test_an_unpacker_keeps_the_buffer_that_it_returned",
        "the mark of buffer" => "    rb_gc_mark_movable(unpacker->buffer);\n"

  shown :held, "test_an_unpacker_keeps_its_registry",
        "the mark of registry" => "    rb_gc_mark_movable(unpacker->registry);\n"

  shown :held, "test_an_unpacker_keeps_the_values_of_an_unfinished_object",
        "the mark of values of an object that is not whole" =>
          "    rb_gc_mark(unpacker->kept.items);\n"

  shown :held, "test_references_of_an_unpacker_are_updated_after_a_move",
        "the relocation of registry" => ["unpacker->registry = rb_gc_location(unpacker->registry);", ";"],
        "the values of an object that is not whole stay where they are" =>
          ["rb_gc_mark(unpacker->kept.items);", "rb_gc_mark_movable(unpacker->kept.items);"]

  shown :held, "test_the_source_of_an_unpacker_is_updated_after_a_move",
        "the relocation of its io" => "    penstock_buffer_compact(&unpacker->own);\n",
        "the relocation of buffer" => ["unpacker->buffer = rb_gc_location(unpacker->buffer);", ";"]

  shown :held, "test_an_old_unpacker_keeps_a_young_io",
        "the write barrier of io" => ["RB_OBJ_WRITE(self, &unpacker->own.io, io);", "unpacker->own.io = io;"]

  shown :held, "test_an_old_unpacker_keeps_a_young_buffer",
        "the write barrier of buffer" =>
          ["RB_OBJ_WRITE(self, &unpacker->buffer, penstock_buffer_wrap(&unpacker->own));",
           "unpacker->buffer = penstock_buffer_wrap(&unpacker->own);"]

  shown :held, "test_an_old_unpacker_keeps_its_own_types",
        "the write barrier of a later registry" =>
          ["penstock_buffer_check(unpacker->bytes);\n    RB_OBJ_WRITE(self, &unpacker->registry, registry);",
           "penstock_buffer_check(unpacker->bytes);\n    unpacker->registry = registry;"]

  shown :unpacker, "test_an_uninitialized_unpacker_raises",
        "it has been initialized" => ["if (!unpacker || !unpacker->bytes)", "if (false)"]

  shown :unpacker, "test_an_unpacker_cannot_be_initialized_twice",
        "it is initialized once" => ["if (unpacker->bytes)", "if (false)"]

  shown :unpacker, "test_an_unpacker_cannot_be_copied",
        "it is not copied" => "    rb_undef_method(unpacker_class, \"initialize_copy\");\n"

  shown :unpacker, "test_registered_unpackers_may_not_use_the_unpacker",
        "its bytes are locked" => "    bytes->locked = true;\n",
        "one at a time reads" => ["    penstock_buffer_check(bytes);\n    bytes->locked = true;", "    bytes->locked = true;"],
        "every exception releases the lock" =>
          ["rb_ensure(read_it, (VALUE)&reading, read_ended, (VALUE)&reading);",
           "read_it((VALUE)&reading);\n    read_ended((VALUE)&reading);"]

  shown :unpacker, "test_registered_unpackers_may_not_change_the_types_or_the_buffer",
        "its types stay while it reads" => "    penstock_buffer_check(unpacker->bytes);\n"

  shown :unpacker, "test_a_frozen_unpacker_rejects_types",
        "a frozen one takes no types" => "    rb_check_frozen(self);\n"

  shown :unpacker, "test_a_registered_unpacker_that_raises_discards_the_unfinished_object",
        "after an error what was begun is forgotten" => "    if (reading->done) return Qnil;\n    forget(unpacker);"

  shown :unpacker, "test_a_skip_that_fails_is_discarded",
        "after an error in skipping, too" => ["    forget(unpacker);\n    if (result", "    if (result"]

  shown :unpacker, "test_reset_discards_fed_bytes_and_unfinished_objects",
        "a reset forgets" => ["    forget(unpacker);\n    return Qnil;", "    return Qnil;"]

  shown :unpacker, "test_a_malformed_byte_discards_the_unfinished_object",
        "a byte that begins no value is skipped after its error" => "    if (result == PS_READ_INVALID) unpacker->bytes->at++;"

  shown :unpacker, "test_an_unfinished_skip_is_finished_before_anything_else",
        "a skip is ended before anything else" =>
          "    if (unpacker->reader.skipping > 0 && !with_bytes(self, unpacker, skip_object, value)) return false;\n"

  shown :unpacker, "test_headers_and_skip_nil_are_rejected_in_the_middle_of_an_object",
        "no header in the middle of an object" => ["reader.depth == 0 && token.kind", "token.kind"],
        "no nil in the middle of an object" => ["reader.depth == 0 && *reader.at", "*reader.at"]

  shown :unpacker, "test_reading_a_header_of_another_kind_raises_and_leaves_the_value",
        "of what is no such header nothing is taken" => "    if (!fits) reader.at = began;\n"

  shown :io, "test_an_io_that_ends_within_an_object_raises_and_reading_resumes_when_it_grows",
        "an io may not end within a container" =>
          ["return unpacker->reader.depth == 0 && unpacker", "return unpacker"]

  shown :io, "test_an_io_that_ends_within_a_header_a_string_or_a_skipped_value_raises",
        "an io may not end within what is skipped" => " && unpacker->reader.skipping == 0",
        "an io may not end within a header or a text" => [" && penstock_buffer_size(unpacker->bytes) == 0;", ";"]

  shown :limits, "test_recursive_types_count_as_levels",
        "a payload is a level" => ["unpacker->depth_before = depth + 1;", "unpacker->depth_before = depth;"],
        "a payload at the last level" =>
          "    if (depth >= building->options->max_depth) penstock_unread(PS_READ_TOO_DEEP, building->options);\n"

  shown :payload, "test_the_bytes_around_a_payload_stay_allocated_after_reset_while_its_unpacker_lives",
        "what is around a payload is kept again" =>
          ["RB_OBJ_WRITE(owner(self, unpacker), &bytes->held, building->window_held);", ";"]

  shown :payload, "test_a_reset_ends_payloads_within_fed_bytes",
        "a reset ends what is in what a payload was fed" =>
          ["    shut_payloads(unpacker);\n    unpacker->turns", "    unpacker->turns"]

  shown :payload, "test_the_end_of_a_payload_ends_payloads_within_its_fed_bytes",
        "a payload ends what is in what it was fed" =>
          "        shut_payloads(unpacker); /* one in its bytes may still be open, in a Fiber that was abandoned */\n"

  shown :payload, "test_a_payload_that_is_not_read_to_its_end_is_malformed",
        "a payload is read to its end" => ["if (left > 0 || !ended)", "if (false)"]

  shown :payload, "test_a_payload_that_ends_early_is_malformed",
        "a payload that ends early is malformed" =>
          ["if (unpacker->window) penstock_message_pack", "if (false) penstock_message_pack"],
        "a payload has ended where each ends in it" => [" && !unpacker->window; /* more may be fed", "; /* more may be fed"]

  shown :payload, "test_an_error_of_a_nested_payload_may_be_rescued",
        "after an error in it a payload is where it was" => "    if (unpacker->window) put_back_window(reading);\n"

  shown :payload, "test_max_elements_is_shared_by_all_payloads",
        "what is read of a payload counts" => "    building->reader.elements = unpacker->reader.elements;\n",
        "what was read before a payload counts" => "    unpacker->reader.elements = building->reader.elements;\n"

  shown :payload, "test_the_unpacker_of_a_payload_may_be_fed_more_bytes",
        "memory of what was fed is not another payload's" => " && reader->bytes->writer.capacity == 0"

  shown :payload, "test_reset_frees_an_unpacker_that_a_fiber_left_in_a_payload",
        "an abandoned read raises" =>
          ["    unpacker->bytes->locked = false;\n    unpacker->turns.current = 0;", "    unpacker->bytes->locked = false;"],
        "a reset frees it" => "    abandon(unpacker);\n"

  shown :payload, "test_a_fiber_that_resumes_after_reset_reads_nothing_of_the_next_object",
        "payloads of an abandoned read are shut" => "    unpacker->fiber = Qfalse;\n    shut_payloads(unpacker);\n"

  shown :unpacker, "test_bytes_after_the_document_are_malformed",
        "no bytes behind the only object" => ["if (extra > 0)", "if (false)"]
end

MessagePackMutations.in_file("message_pack_keys.c") do
  shown :keys, "test_cached_keys_survive_a_collection",
        "the mark of keys" => ["rb_gc_mark(keys->kept[i])", "(void)keys"]

  shown :keys, "test_cached_keys_do_not_move",
        "keys stay where they are" => ["rb_gc_mark(keys->kept[i])", "rb_gc_mark_movable(keys->kept[i])"]

  shown :keys, "test_similar_keys_are_not_mixed_up",
        "keys are compared" => [" == size && memcmp(RSTRING_PTR(string), bytes, size) == 0", " == size"]

  shown :keys, "test_keys_that_are_frozen_are_the_same_object_as_equal_strings",
        "keys of frozen objects are Ruby's own" => [" && !(shared && keys->alone[place])", ""]

  shown :factory, "test_invalid_utf_8_is_not_unpacked_as_a_symbol",
        "a Symbol is UTF-8" => ["if (range != ENC_CODERANGE_7BIT && range != ENC_CODERANGE_VALID)", "if (false)"]
end

MessagePackMutations.in_file("message_pack_read.c") do
  shown :deep, "test_a_value_too_deep_for_the_stack_of_a_thread_raises_an_error",
        "the end of the stack within ext types is a StackError" =>
          ["penstock_guard_stack(call_proc, (VALUE)&calling)", "call_proc((VALUE)&calling)"]

  shown :held, "test_many_values_of_open_containers_stay_alive_during_unpacking",
        "more values wait where the collector looks" =>
          ["rb_alloc_tmp_buffer(&larger, (long)wanted)", "(larger = Qfalse, xmalloc(wanted))"]

  shown :boundaries, "test_own_keys_under_stress_where_memory_grows",
        "values stay referenced while they move to more memory" =>
          ["    void *moved = rb_alloc_tmp_buffer", "    *more = Qfalse;\n    void *moved = rb_alloc_tmp_buffer"]

  shown :held, "test_the_source_string_may_change_during_unpacking",
        "the string is held as it was" => ["building->source = held(building->source);", ";"]

  shown :source, "test_methods_of_keys_may_change_the_source",
        "it is held before a key's methods run" =>
          ["    if (users_code) before_users_code(building);\n    rb_hash_bulk", "    rb_hash_bulk"]

  shown :source, "test_a_short_source_may_be_changed_too",
        "what is read is where the held one's bytes are" => "    reader->at = reader->end - left;\n"

  shown :source, "test_a_continuation_does_not_come_back_to_a_deep_document_of_load",
        "a continuation does not come back into it" =>
          ["    after_users_code(building);\n    if (recursive)", "    if (recursive)"]

  shown :source, "test_a_small_part_does_not_keep_a_large_source_alive",
        "what is shared is a good part of the source" =>
          ["token->size < rb_str_capacity(root) / LEAST_PART", "false"]

  shown :source, "test_a_source_that_holds_more_than_its_bytes_is_not_shared",
        "it is no slice of a larger one" => ["if (slice || ", "if ("]

  shown :source, "test_a_source_of_another_class_is_not_shared",
        "a source of Ractors is not changed" => ["if (rb_obj_class(building->source) != rb_cString)", "if (false)"]

  shown :source, "test_an_extension_values_initialize_may_change_the_source",
        "it is held before initialize runs" =>
          "    before_users_code(building); /* `initialize` may be overridden or traced */\n"

  shown :source, "test_comparing_integers_may_change_the_source",
        "it is held before Integers are compared" => ["    return !building->plain_integers;", "    return false;"]

  shown :source, "test_comparing_a_symbol_with_an_integer_may_change_the_source",
        "it is held before a Symbol is compared with an Integer" => ["    if (kinds != INTEGERS) return true;\n", ""]

  shown :source, "test_the_validity_of_a_binary_source_does_not_apply_to_its_parts",
        "properties of the source do not apply to its parts" => "    RB_ENC_CODERANGE_CLEAR(string);\n"

  shown :payload, "test_freeze_calls_the_freeze_method_of_values_that_unpackers_return",
        "what unpackers return is frozen" => "    if (building->options->freeze) frozen(value);\n"

  shown :payload, "test_freeze_does_not_freeze_classes_and_modules",
        "classes are not frozen" => " || RB_TYPE_P(value, T_CLASS) || RB_TYPE_P(value, T_MODULE)"

  shown :limits, "test_arrays_may_be_128_deep_and_deeper_only_with_max_depth",
        "no more frames than allowed" => "    if (depth == limit) return false;\n"

  shown :limits, "test_maps_may_be_128_deep_and_deeper_only_with_max_depth",
        "there is room for one more value" => ["if (building->size == building->capacity)", "if (false)"]

  shown :limits, "test_containers_are_not_allocated_in_their_claimed_size",
        "what a header claims takes no memory" =>
          ["reader->awaited <= (size_t)(reader->end - reader->at) ? (long)count : 0", "(long)count"]

  shown :unpacker, "test_bytes_after_the_document_are_malformed",
        "no bytes behind the only object" => ["if (extra > 0)", "if (false)"]
end

MessagePackMutations.in_file("message_pack_write.c") do
  shown :source, "test_a_continuation_does_not_come_back_to_packing_many",
        "a continuation does not come back to a String that has moved" =>
          ["!NIL_P(to->more) && RSTRING_PTR(to->more) != to->writer.data", "false"]

  shown :source, "test_a_continuation_does_not_come_back_to_packing_long_strings",
        "a continuation does not come back to more long Strings" => [" || long_strings_so_far(packing) != long_strings", ""]

  shown :source, "test_a_continuation_does_not_come_back_to_packing_payloads",
        "a continuation does not come back to a Packer that has gone on" => "    if (packer->turn != mine) gone_on();\n"

  shown :packer, "test_fibers_that_use_one_packer_alternately_raise_and_leave_no_bytes",
        "a Fiber does not go on in what another writes" => "    if (packer->turn != mine) gone_on();\n"

  shown :packer, "test_an_error_that_an_object_rescues_leaves_no_bytes_of_the_failed_part",
        "what an object left half-written is taken back when its method ends" => "    penstock_buffer_settle(packer->bytes);\n"

  shown :packer, "test_the_buffer_may_be_requested_during_a_write",
        "the writer is read again" =>
          "    packing->writer = &packer->bytes->writer; /* user code may have asked for the Buffer */\n"

  shown :packer, "test_a_registered_module_that_is_included_later_applies",
        "a class that may get a registered module is looked for anew" => " && !packer->types->modules"

  shown :held, "test_an_old_packer_keeps_a_young_class",
        "the write barrier of classes" =>
          ["RB_OBJ_WRITE(packing->packer_value, &packer->own_classes[penstock_place_of(klass)], klass);",
           "packer->own_classes[penstock_place_of(klass)] = klass;"]

  shown :deep, "test_max_depth_limits_packing",
        "max_depth" => [" || packing->depth >= packing->options->max_depth) enter(packing);", ") enter(packing);"]

  shown :deep, "test_a_collection_near_the_end_of_the_stack_has_enough_stack_left",
        "the end of the stack is checked for" => " || ruby_stack_check()"

  shown :packer, "test_an_object_that_writes_nothing_to_its_packer_raises",
        "an object that writes itself writes something" => ["if (penstock_packer_written(packer) == before)", "if (false)"]

  shown :deep, "test_an_object_that_writes_itself_endlessly_raises_wherever_it_is",
        "the end of the stack is checked wherever an object begins" =>
          ["if (packing->depth >= packing->guard_from) {", "if (packing->depth == packing->guard_from) {"]

  shown :deep, "test_a_value_too_deep_for_the_stack_of_a_thread_raises_an_error",
        "the end of the stack is a StackError" => ["if (packing->depth >= packing->guard_from) {", "if (false) {"]

  shown :deep, "test_max_depth_counts_objects_that_write_themselves_and_registered_types",
        "calls of users' code are a level" =>
          ["    if (is_too_deep(packing->depth, packing->options->max_depth)) too_deep(packing->depth, packing->options);\n", ""],
        "what they write goes on at the same depth" =>
          ["++packer->turns;\n        packer->depth = packing->depth;\n", "++packer->turns;\n"]

  shown :deep, "test_a_collection_near_the_end_of_the_stack_has_enough_stack_left",
        "a nested call of users' code checks the stack" => [" || (depth >= CONTAINERS && stack_ends_soon())", ""]

  shown :deep, "test_max_depth_counts_types_that_write_to_the_packer_that_packs_them",
        "what is written to the same Packer goes on at the same depth" =>
          ["++packer->turns;\n        packer->depth = packing->depth;\n", "++packer->turns;\n"]

  shown :deep, "test_an_array_that_changes_its_size_raises_and_leaves_no_bytes",
        "an Array has as many elements as its header" => ["if ((size_t)RARRAY_LEN(array) != count)", "if (false)"]

  shown :deep, "test_an_array_that_gets_shorter_is_not_read_beyond_its_end",
        "an Array is not read behind its end" => ["if ((size_t)RARRAY_LEN(array) != count)", "if (false)"]

  shown :deep, "test_a_hash_that_changes_its_size_raises_and_leaves_no_bytes",
        "a Hash has no fewer pairs than its header" =>
          ["packing->pairs > 0 || (packing->calls != calls && RHASH_SIZE(hash) != size)", "false"]

  shown :factory, "test_a_packer_that_returns_no_string_raises_and_leaves_no_bytes",
        "a payload is a String" => ["Qnil);\n        StringValue(payload);\n", "Qnil);\n"]

  shown :deep, "test_a_long_string_is_written_as_it_was_before_a_later_change",
        "a long String is held as it was" =>
          ["rb_ary_push(*packing->long_strings, rb_str_new_frozen(string));", "rb_ary_push(*packing->long_strings, string);"],
        "a Packer copies long Strings at once" => ["size < LONG_STRING || !packing->long_strings", "size < LONG_STRING"],
        "long Strings are put where they belong" =>
          ["NIL_P(long_strings) ? rb_str_new", "true ? rb_str_new"]
end

MessagePackMutations.in_file("message_pack.c") do
  shown :packer, "test_option_names_must_be_symbols",
        "they are a Hash" => "    Check_Type(options, T_HASH);\n",
        "their names are Symbols" => "!SYMBOL_P(name) || "

  shown :packer, "test_options_of_other_classes_are_rejected",
        "each belongs to the class that it is given to" => "!(known_options[i].known & parsing->kinds) || "

  shown :unpacker, "test_limits_are_integers_or_nil_and_no_less_than_one",
        "limits are Integers" => ["    if (!RB_INTEGER_TYPE_P(value))\n", "    if (false)\n"],
        "no limit is below its least" => "FIX2LONG(value) < (long)option->least || ",
        "no limit is above its most" => " || (uint64_t)FIX2LONG(value) > option->most",
        "no limit has more than 63 bits" => "!FIXNUM_P(value) || "
end
