# frozen_string_literal: true

# Penstock::MessagePack between its engines and Ruby's objects: docs/safety.md, "MessagePack".
module MessagePackMutations
  # Those of one C file.
  class Part
    def initialize(file)
      @name = file[/message_pack_(\w+)\.c/, 1] || "options"
      @file = "ext/penstock/#{file}"
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
  shown :held, "test_a_registry_keeps_what_is_listed",
        "the mark of packers" => "    rb_gc_mark_movable(registry->packers);\n",
        "the mark of unpackers" => "    rb_gc_mark_movable(registry->unpackers);\n"

  shown :held, "test_what_a_registry_holds_moves_with_it",
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

  shown :factory, "test_a_type_that_only_says_it_is_an_integer_is_refused",
        "a type that is packed is an Integer" => "    Check_Type(part(values, 0), T_FIXNUM); /* it may only have said so */\n",
        "a type that is unpacked is an Integer" => "    Check_Type(type, T_FIXNUM);\n"

  shown :factory, "test_all_types_but_one_may_be_registered",
        "no more types than there are places" => ["if (RHASH_SIZE(unpackers) > 255)", "if (false)"]
end

MessagePackMutations.in_file("message_pack_buffer.c") do
  shown :held, "test_a_buffer_keeps_a_long_string",
        "the mark of held" => "    rb_gc_mark(buffer->held); /* not movable: what it holds is read where it is */\n"

  shown :held, "test_what_a_buffer_holds_moves_with_it_or_stays_where_it_is",
        "held stays where it is" => ["rb_gc_mark(buffer->held);", "rb_gc_mark_movable(buffer->held);"],
        "the relocation of io" => ["buffer->io = rb_gc_location(buffer->io);", ";"]

  shown :held, "test_a_buffer_keeps_its_io",
        "the mark of io" => "    rb_gc_mark_movable(buffer->io);\n"

  shown :held, "test_an_old_buffer_keeps_a_young_long_string",
        "the write barrier of held" => ["RB_OBJ_WRITE(self, &buffer->held, held);", "buffer->held = held;"]

  shown :held, "test_an_old_buffer_keeps_a_young_io",
        "the write barrier of io" =>
          ["io_buffer_size;\n    RB_OBJ_WRITE(self, &buffer->io, io);", "io_buffer_size;\n    buffer->io = io;"]

  shown :unpacker, "test_its_own_unpackers_may_not_change_its_types_or_its_buffer",
        "it is not cleared while it is read" =>
          ["    penstock_buffer_check(buffer);\n    buffer->gone += penstock", "    buffer->gone += penstock"],
        "nothing is added while it is read" =>
          ["    penstock_buffer_check(buffer);\n    if (penstock_buffer_size", "    if (penstock_buffer_size"],
        "nothing is taken while it is read" => ["    penstock_buffer_check(buffer);\n    buffer->at", "    buffer->at"]

  shown :buffer, "test_a_text_that_was_written_may_change_afterwards",
        "a long String is held as it was" => ["VALUE held = rb_str_new_frozen(string);", "VALUE held = string;"]

  shown :io, "test_an_io_that_gives_something_else_than_a_string_is_refused",
        "an io gives Strings" => "    StringValue(bytes);\n"

  shown :io, "test_an_empty_answer_is_the_end_or_a_pause_but_no_endless_loop",
        "an io that gives nothing is at its end" => "    if (RSTRING_LEN(bytes) == 0) return false;\n"

  shown :packer, "test_after_an_error_only_what_was_there_before_and_was_not_taken_is_left",
        "what is dropped at once is counted" => "    buffer->gone += penstock_buffer_size(buffer);\n",
        "what is taken is counted" => "    buffer->gone += size;\n"

  shown :packer, "test_what_an_io_did_not_take_stays",
        "what an io did not take stays" => "        put_back(self, bytes);\n"

  shown :buffer, "test_what_cannot_be_filled_is_refused_and_nothing_is_taken",
        "what is filled is a String" => "        Check_Type(out, T_STRING);\n",
        "what is filled is not frozen" => "        rb_str_modify(out);\n"

  shown :buffer, "test_a_buffer_is_not_copied",
        "it is not copied" => "    rb_undef_method(buffer_class, \"initialize_copy\");\n"
end

MessagePackMutations.in_file("message_pack_packer.c") do
  shown :held, "test_a_packer_keeps_its_buffer",
        "the mark of buffer" => "    rb_gc_mark_movable(packer->buffer);\n"

  shown :held, "test_a_packer_keeps_its_registry",
        "the mark of registry" => "    rb_gc_mark_movable(packer->registry);\n"

  shown :held, "test_what_a_packer_holds_moves_with_it",
        "the relocation of buffer" => ["packer->buffer = rb_gc_location(packer->buffer);", ";"],
        "the relocation of registry" => ["packer->registry = rb_gc_location(packer->registry);", ";"]

  shown :held, "test_an_old_packer_keeps_a_young_buffer",
        "the write barrier of buffer" =>
          ["RB_OBJ_WRITE(self, &packer->buffer, penstock_buffer_new(io, options.io_buffer_size));",
           "packer->buffer = penstock_buffer_new(io, options.io_buffer_size);"]

  shown :held, "test_an_old_packer_keeps_types_of_its_own",
        "the write barrier of a later registry" =>
          ["RB_OBJ_WRITE(self, &packer_get(self)->registry, registry);", "packer_get(self)->registry = registry;"]

  shown :packer, "test_one_without_its_initialize_is_refused",
        "it has been initialized" => ["if (!packer->bytes)", "if (false)"]

  shown :packer, "test_a_packer_is_not_copied",
        "it is not copied" => "    rb_undef_method(packer_class, \"initialize_copy\");\n"

  shown :packer, "test_after_an_error_the_packer_has_what_it_had_before_and_goes_on",
        "what a failed write has added is taken back" =>
          "    if (before < penstock_buffer_size(bytes)) bytes->writer.size = bytes->at + (size_t)before;\n"

  shown :packer, "test_after_an_error_only_what_was_there_before_and_was_not_taken_is_left",
        "what was taken meanwhile is not older than the write" =>
          ["writing->began > bytes->gone ? writing->began - bytes->gone : 0", "writing->began"]

  shown :packer, "test_a_packer_is_initialized_once",
        "it is initialized once" => ["if (packer->bytes)", "if (false)"]

  shown :packer, "test_headers_refuse_more_than_32_bits_and_negative_counts",
        "a header's count is not negative" => ["if (FIXNUM_P(number) && FIX2LONG(number) < 0)", "if (false)"]

  shown :packer, "test_how_deep_it_is_counts_anew_for_each_write_whatever_became_of_the_one_before",
        "how deep it is counts anew for each write" => "    writing->packer->depth = writing->depth;\n"

  shown :deep, "test_max_depth_counts_objects_that_write_themselves_and_registered_types",
        "a Packer beside goes on at the same depth" => "    penstock_packer_depth(self, depth);\n"

  shown :packer, "test_one_that_is_frozen_takes_no_types",
        "a frozen one takes no types" => "    rb_check_frozen(self);\n"
end

MessagePackMutations.in_file("message_pack_unpacker.c") do
  shown :source, "test_a_continuation_does_not_come_back_to_a_small_document_of_feed",
        "what has ended is not ended again" => "    if (!penstock_build_turn(reading->building)) return Qnil;\n"

  shown :held, "test_an_unpacker_keeps_its_buffer",
        "the mark of buffer" => "    rb_gc_mark_movable(unpacker->buffer);\n"

  shown :held, "test_an_unpacker_keeps_its_registry",
        "the mark of registry" => "    rb_gc_mark_movable(unpacker->registry);\n"

  shown :held, "test_an_unpacker_keeps_the_values_of_an_object_that_is_not_whole",
        "the mark of values of an object that is not whole" =>
          "    for (size_t i = 0; i < unpacker->kept_count; i++) rb_gc_mark_movable(unpacker->kept[i]);\n"

  shown :held, "test_what_an_unpacker_holds_moves_with_it",
        "the relocation of buffer" => ["unpacker->buffer = rb_gc_location(unpacker->buffer);", ";"],
        "the relocation of registry" => ["unpacker->registry = rb_gc_location(unpacker->registry);", ";"],
        "the relocation of kept[i]" => ["unpacker->kept[i] = rb_gc_location(unpacker->kept[i]);", ";"]

  shown :held, "test_an_old_unpacker_keeps_a_young_buffer",
        "the write barrier of buffer" =>
          ["RB_OBJ_WRITE(self, &unpacker->buffer, penstock_buffer_new(io, options->io_buffer_size));",
           "unpacker->buffer = penstock_buffer_new(io, options->io_buffer_size);"]

  shown :held, "test_an_old_unpacker_keeps_types_of_its_own",
        "the write barrier of a later registry" =>
          ["penstock_buffer_check(unpacker->bytes);\n    RB_OBJ_WRITE(self, &unpacker->registry, registry);",
           "penstock_buffer_check(unpacker->bytes);\n    unpacker->registry = registry;"]

  shown :held, "test_an_old_unpacker_keeps_young_values",
        "the write barrier of values of an object that is not whole" =>
          "        RB_OBJ_WRITTEN(self, Qundef, building->items[i]);\n"

  shown :unpacker, "test_one_without_its_initialize_is_refused",
        "it has been initialized" => ["if (!unpacker->bytes)", "if (false)"]

  shown :unpacker, "test_an_unpacker_is_initialized_once",
        "it is initialized once" => ["if (unpacker->bytes)", "if (false)"]

  shown :unpacker, "test_an_unpacker_is_not_copied",
        "it is not copied" => "    rb_undef_method(unpacker_class, \"initialize_copy\");\n"

  shown :unpacker, "test_its_own_unpackers_may_not_use_it",
        "its bytes are locked" => "    bytes->locked = true;\n",
        "one at a time reads" => ["    penstock_buffer_check(bytes);\n    bytes->locked = true;", "    bytes->locked = true;"],
        "whatever is raised, the lock is let go" =>
          ["rb_ensure(read_it, (VALUE)&reading, read_ended, (VALUE)&reading);",
           "read_it((VALUE)&reading);\n    read_ended((VALUE)&reading);"]

  shown :unpacker, "test_its_own_unpackers_may_not_change_its_types_or_its_buffer",
        "its types stay while it reads" => "    penstock_buffer_check(unpacker->bytes);\n"

  shown :unpacker, "test_one_that_is_frozen_takes_no_types",
        "a frozen one takes no types" => "    rb_check_frozen(self);\n"

  shown :unpacker, "test_what_was_begun_is_dropped_when_an_unpacker_of_ones_own_raises",
        "after an error what was begun is forgotten" => "    if (!reading->kept) forget(reading->unpacker);\n"

  shown :unpacker, "test_what_cannot_be_skipped_to_its_end_is_forgotten",
        "after an error in skipping, too" => ["    forget(unpacker);\n    if (result", "    if (result"]

  shown :unpacker, "test_reset_forgets_what_was_fed_and_what_was_begun",
        "a reset forgets" => ["    forget(unpacker);\n    return Qnil;", "    return Qnil;"]

  shown :unpacker, "test_after_a_malformed_byte_what_was_begun_is_dropped",
        "who goes on meets a byte that begins nothing once" => "    if (result == PS_READ_INVALID) unpacker->bytes->at++;"

  shown :unpacker, "test_what_is_being_skipped_is_skipped_before_anything_else",
        "a skip is ended before anything else" => "with_bytes(self, finish_skipping, value) && "

  shown :unpacker, "test_in_the_middle_of_an_object_there_is_no_header_and_no_nil_to_skip",
        "no header in the middle of an object" => ["reader.depth == 0 && token.kind", "token.kind"],
        "no nil in the middle of an object" => ["reader.depth == 0 && *reader.at", "*reader.at"]

  shown :unpacker, "test_a_header_of_something_else_is_refused_and_the_value_is_still_there",
        "of what is no such header nothing is taken" => "    if (!fits) reader.at = began;\n"

  shown :io, "test_an_io_that_ends_within_an_object_is_an_error_and_if_it_grows_it_goes_on",
        "an io may not end within a container" =>
          ["unpacker->reader.depth == 0 && unpacker->reader.skipping", "unpacker->reader.skipping"]

  shown :io, "test_an_io_that_ends_within_a_header_a_text_or_what_is_skipped_is_an_error",
        "an io may not end within what is skipped" => "unpacker->reader.skipping == 0 && ",
        "an io may not end within a header or a text" => [" && penstock_buffer_size(unpacker->bytes) == 0;", ";"]

  shown :gc, "test_after_the_end_of_an_object_an_unpacker_keeps_nothing_of_it",
        "what was kept of an object is let go when it is whole" =>
          "    unpacker->kept_count = 0; /* while memory is made */\n"

  shown :limits, "test_recursive_types_count_as_levels",
        "a payload is a level" => "    deeper.max_depth -= depth + 1; /* it is a level itself */\n",
        "a payload at the last level" => "    if (depth >= deeper.max_depth) penstock_unread(PS_READ_TOO_DEEP, options);\n"

  shown :unpacker, "test_bytes_behind_the_document_are_malformed",
        "no bytes behind the only object" => ["if (extra > 0)", "if (false)"]
end

MessagePackMutations.in_file("message_pack_keys.c") do
  shown :keys, "test_keys_that_only_the_ractor_keeps_stay",
        "the mark of keys" => ["rb_gc_mark(keys->kept[i])", "(void)keys"]

  shown :keys, "test_keys_that_the_ractor_keeps_do_not_move",
        "keys stay where they are" => ["rb_gc_mark(keys->kept[i])", "rb_gc_mark_movable(keys->kept[i])"]

  shown :keys, "test_keys_that_are_alike_are_not_mixed_up",
        "a String is no Symbol" => ["SYMBOL_P(key) != symbolize", "false"],
        "keys are compared" => [" == size && memcmp(RSTRING_PTR(string), bytes, size) == 0", " == size"]

  shown :factory, "test_bytes_that_are_no_utf_8_are_no_symbol",
        "a Symbol is UTF-8" => ["if (range != ENC_CODERANGE_7BIT && range != ENC_CODERANGE_VALID)", "if (false)"]
end

MessagePackMutations.in_file("message_pack_read.c") do
  shown :deep, "test_what_is_too_deep_for_the_stack_of_a_thread_is_an_error",
        "the end of the stack within ext types is a StackError" =>
          ["penstock_guard_stack(call, (VALUE)&calling)", "call((VALUE)&calling)"]

  shown :held, "test_many_values_of_open_containers_stay_while_it_is_unpacked",
        "more values wait where the collector looks" =>
          ["rb_alloc_tmp_buffer(&larger, (long)wanted)", "(larger = Qfalse, xmalloc(wanted))"]

  shown :held, "test_the_string_that_is_unpacked_may_change_meanwhile",
        "the string is held as it was" => ["building->source = rb_str_new_frozen(building->source);", ";"]

  shown :source, "test_methods_of_keys_may_change_it",
        "it is held before a key's methods run" => ["if (as_key && !plain_key(building, &token))", "if (false)"]

  shown :source, "test_what_is_short_may_be_changed_too",
        "what is read is where the held one's bytes are" => "    reader->at = reader->end - left;\n"

  shown :source, "test_a_continuation_does_not_come_back_to_a_deep_document_of_load",
        "a continuation does not come back into it" =>
          ["    after_users_code(building);\n    return value;\n", "    return value;\n"]

  shown :source, "test_a_small_part_keeps_no_large_source",
        "what is shared is a good part of the source" =>
          ["token->size < rb_str_capacity(root) / LEAST_PART", "false"]

  shown :source, "test_a_source_that_holds_more_than_its_bytes_is_not_shared",
        "it is no slice of a larger one" => ["if (slice || ", "if ("]

  shown :source, "test_a_source_of_another_class_is_not_shared",
        "a source of Ractors is not changed" => ["if (rb_obj_class(building->source) != rb_cString)", "if (false)"]

  shown :source, "test_an_extension_values_initialize_may_change_it",
        "it is held before initialize runs" =>
          "    before_users_code(building); /* `initialize`, which may be prepended to, or traced */\n"

  shown :source, "test_comparing_symbols_with_strings_may_change_it",
        "it is held before a Symbol is compared with a String" => [" && !building->options->symbolize_keys)", ")"]

  shown :source, "test_a_continuation_does_not_come_back_to_a_key_that_was_read_before",
        "keys that were read before are keys" => "    if (size > 0) before_users_code(building); /* keys may be among them */\n"

  shown :source, "test_what_was_not_said_to_be_valid_is_not",
        "what was known of the source is not said of its parts" => "    RB_ENC_CODERANGE_CLEAR(string);\n"

  shown :unpacker, "test_what_is_deep_is_read_byte_by_byte",
        "what is deep when it goes on has frames" =>
          "    if (reader->depth > reader->max_depth) make_deeper(building, reader->depth);\n"

  shown :limits, "test_arrays_may_be_128_deep_and_no_deeper_unless_told_so",
        "no more frames than allowed" => "    if (depth == limit) return false;\n"

  shown :limits, "test_maps_may_be_128_deep_and_no_deeper_unless_told_so",
        "there is room for one more value" => ["if (building->size == building->capacity)", "if (false)"]

  shown :limits, "test_containers_are_not_made_in_the_size_that_a_header_claims",
        "what a header claims takes no memory" =>
          ["reader->awaited <= (size_t)(reader->end - reader->at) ? (long)count : 0", "(long)count"]

  shown :unpacker, "test_bytes_behind_the_document_are_malformed",
        "no bytes behind the only object" => ["if (extra > 0)", "if (false)"]
end

MessagePackMutations.in_file("message_pack_write.c") do
  shown :source, "test_a_continuation_does_not_come_back_to_packing_many",
        "a continuation does not come back to a String that has moved" =>
          ["!NIL_P(to->more) && RSTRING_PTR(to->more) != to->writer.data", "false"]

  shown :source, "test_a_continuation_does_not_come_back_to_packing_long_strings",
        "a continuation does not come back to more long Strings" => [" || long_strings_so_far(packing) != before", ""]

  shown :deep, "test_max_depth_bounds_what_is_packed",
        "max_depth" => ["packing->depth >= packing->options.max_depth || ruby_stack_check()", "ruby_stack_check()"]

  shown :deep, "test_a_collection_at_the_end_of_the_stack_has_room",
        "the end of the stack is looked for" => " || ruby_stack_check()"

  shown :packer, "test_an_object_that_writes_nothing_to_its_packer_is_refused",
        "who writes itself writes something" => ["if (penstock_packer_written(packer) == before)", "if (false)"]

  shown :deep, "test_what_writes_itself_without_end_is_refused_wherever_it_stands",
        "the end of the stack is seen to wherever an object begins" =>
          ["if (packing->depth >= GUARDED_DEPTH &&", "if (packing->depth == GUARDED_DEPTH &&"]

  shown :deep, "test_what_is_too_deep_for_the_stack_of_a_thread_is_an_error",
        "the end of the stack is a StackError" => ["if (packing->depth >= GUARDED_DEPTH && !packing->guarded)", "if (false)"]

  shown :deep, "test_max_depth_counts_objects_that_write_themselves_and_registered_types",
        "objects that write themselves are a level" =>
          [": packing->packer;\n    enter(packing);", ": packing->packer;\n    packing->depth++;"],
        "registered types are a level" => ["    enter(packing);\n    if (!NIL_P", "    packing->depth++;\n    if (!NIL_P"]

  shown :deep, "test_max_depth_counts_types_that_write_to_the_packer_that_packs_them",
        "what is written to the same Packer goes on at the same depth" =>
          "    if (!NIL_P(packing->packer)) penstock_packer_depth(packing->packer, packing->depth);\n"

  shown :deep, "test_an_array_that_changes_its_size_is_refused_and_leaves_nothing",
        "an Array has as many elements as it said" => ["if ((size_t)RARRAY_LEN(array) != count)", "if (false)"]

  shown :deep, "test_an_array_that_gets_shorter_is_not_read_behind_its_end",
        "an Array is not read behind its end" => " && i < (size_t)RARRAY_LEN(array)"

  shown :deep, "test_a_hash_that_changes_its_size_is_refused_and_leaves_nothing",
        "a Hash has no fewer pairs than it said" => ["pairs.left > 0 || RHASH_SIZE(hash) != size", "false"]

  shown :factory, "test_a_packer_that_gives_no_string_is_refused_and_leaves_nothing",
        "a payload is a String" => "        StringValue(payload);\n"

  shown :deep, "test_a_long_string_that_changes_later_is_written_as_it_was",
        "a long String is held as it was" =>
          ["rb_ary_push(*packing->long_strings, rb_str_new_frozen(string));", "rb_ary_push(*packing->long_strings, string);"],
        "a Packer copies long Strings at once" => ["size < LONG_STRING || !packing->long_strings", "size < LONG_STRING"],
        "long Strings are put where they belong" =>
          ["NIL_P(long_strings) ? rb_str_new", "true ? rb_str_new"]
end

MessagePackMutations.in_file("message_pack.c") do
  shown :packer, "test_options_are_a_hash_with_symbols",
        "they are a Hash" => "    Check_Type(options, T_HASH);\n",
        "their names are Symbols" => "!SYMBOL_P(name) || "

  shown :packer, "test_options_of_something_else_are_refused",
        "each is of who it is given to" => "!(known_options[i].known & parsing->kinds) || "

  shown :unpacker, "test_limits_are_integers_or_nil_and_no_less_than_one",
        "limits are Integers" => ["    if (!RB_INTEGER_TYPE_P(value))\n", "    if (false)\n"],
        "no limit is below its least" => "FIX2LONG(value) < (long)option->least || ",
        "no limit is above its most" => " || (uint64_t)FIX2LONG(value) > option->most",
        "no limit has more than 63 bits" => "!FIXNUM_P(value) || "
end
