# frozen_string_literal: true

# The MessagePack codec: memory safety, limits and values (docs/evidence/safety.md, "MessagePack").

Mutation.area("messagepack", test: "test/message_pack/held_test.rb") do
  without :pack_class_relocation, "registry: the relocation of by_place[i].klass",
          by: ";", only: "test_references_of_a_registry_are_updated_after_a_move"
  without :pack_held_pinned, "buffer: the mark of held", only: "test_a_buffer_keeps_a_long_string"
  without :pack_held_pinned, "buffer: held stays where it is",
          sub: { "rb_gc_mark" => "rb_gc_mark_movable" }, only: "test_references_of_a_buffer_are_updated_after_a_move_or_pinned"
  without :pack_held_barrier, "buffer: the write barrier of held",
          by: "buffer->held = holder;", only: "test_an_old_buffer_keeps_a_young_long_string"
  without :pack_classes_pinned, "packer: the mark of classes",
          sub: { "rb_gc_mark(packer->own_classes[i])" => "" }, only: "test_a_packer_keeps_the_class_that_it_packed_last"
  without :unpack_fed_mark, "unpacker: the mark of what was fed", only: "test_an_unpacker_keeps_its_buffer"
  without :unpack_values_pinned, "unpacker: the mark of values of an object that is not whole",
          only: "test_an_unpacker_keeps_the_values_of_an_unfinished_object"
  without :unpack_values_pinned, "unpacker: the values of an object that is not whole stay where they are",
          sub: { "rb_gc_mark" => "rb_gc_mark_movable" }, only: "test_references_of_an_unpacker_are_updated_after_a_move"
  without :unpack_values_scanned, "read: more values wait where the collector looks",
          sub: { "rb_alloc_tmp_buffer(&larger, (long)wanted)" => "(larger = Qfalse, xmalloc(wanted))" },
          only: "test_many_values_of_open_containers_stay_alive_during_unpacking"
  without :unpack_source_held, "read: the string is held as it was",
          by: ";", only: "test_the_source_string_may_change_during_unpacking"
  without :pack_class_barrier, "write: the write barrier of classes",
          by: "packer->own_classes[penstock_place_of(klass)] = klass;", only: "test_an_old_packer_keeps_a_young_class"
end

Mutation.area("messagepack", test: "test/message_pack/unpacker_test.rb") do
  without :pack_clear_checks_lock, "buffer: it is not cleared while it is read",
          only: "test_registered_unpackers_may_not_change_the_types_or_the_buffer"
  without :pack_add_checks_lock, "buffer: nothing is added while it is read",
          only: "test_registered_unpackers_may_not_change_the_types_or_the_buffer"
  without :pack_take_checks_lock, "buffer: nothing is taken while it is read",
          only: "test_registered_unpackers_may_not_change_the_types_or_the_buffer"
  without :unpacker_initialized, "unpacker: it has been initialized",
          sub: { "!unpacker || !unpacker->bytes" => "false" }, only: "test_an_uninitialized_unpacker_raises"
  without :unpack_one_reader, "unpacker: one at a time reads", only: "test_registered_unpackers_may_not_use_the_unpacker"
  without :unpack_lock_released, "unpacker: every exception releases the lock",
          by: "read_it((VALUE)&reading);\nread_ended((VALUE)&reading);",
          only: "test_registered_unpackers_may_not_use_the_unpacker"
  without :pack_limit_maximum, "options: no limit is above its most",
          sub: { " || (uint64_t)FIX2LONG(value) > option->most" => "" },
          only: "test_limits_are_integers_or_nil_and_no_less_than_one"
end

Mutation.area("messagepack", test: "test/message_pack/buffer_test.rb") do
  without :pack_held_frozen, "buffer: a long String is held as it was",
          sub: { "rb_str_new_frozen(string)" => "string" }, only: "test_a_string_may_change_after_it_was_written"
  without :pack_held_copied, "buffer: a held String is not given itself",
          by: "taken = held;", lines: 2, only: "test_a_long_string_may_change_after_it_was_read"
end

Mutation.area("messagepack", test: "test/message_pack/io_test.rb") do
  without :pack_io_gives_strings, "buffer: an io gives Strings",
          only: "test_an_io_that_returns_something_other_than_a_string_raises"
end

Mutation.area("messagepack", test: "test/message_pack/packer_test.rb") do
  without :pack_payload_base_kept, "buffer: what encloses a payload is not cleared",
          sub: { "buffer->base" => "0" }, only: "test_while_a_payload_is_written_only_the_payload_is_accessible"
  without :pack_own_memory_copied, "buffer: a Packer's own memory is copied to its Buffer",
          only: "test_the_buffer_may_be_requested_during_a_write"
  without :pack_own_memory_unfreed, "buffer: a Packer's own memory is not freed as a Buffer's",
          sub: { " && !buffer->first" => "" }, only: "test_the_buffer_may_be_requested_during_a_write"
  without :packer_initialized, "packer: it has been initialized",
          sub: { "!packer || !packer->bytes" => "false" }, only: "test_an_uninitialized_packer_raises"
  without :pack_failed_write_undone, "packer: what a failed write has added is taken back",
          only: "test_an_error_that_an_enclosing_object_rescues_leaves_no_bytes_of_the_failed_object"
  without :pack_count_not_negative, "packer: a header's count is not negative",
          sub: { "FIX2LONG(number) < 0" => "false" }, only: "test_headers_raise_for_counts_above_32_bits_and_negative_counts"
end

Mutation.area("messagepack", test: "test/message_pack/deep_test.rb") do
  without :pack_known_class_depth, "packer: a known class is a level, too",
          before: "packer->depth = 0;", only: "test_max_depth_counts_objects_of_a_class_that_was_packed_before"
  without :pack_max_depth, "write: max_depth",
          sub: { " || packing->depth >= packing->options->max_depth" => "" }, only: "test_max_depth_limits_packing"
  without :pack_stack_checked, "write: the end of the stack is checked for",
          sub: { " || ruby_stack_check()" => "" }, only: "test_a_collection_near_the_end_of_the_stack_has_enough_stack_left"
  without :pack_array_size, "write: an Array is not read behind its end",
          sub: { "(size_t)RARRAY_LEN(array) != count" => "false" },
          only: "test_an_array_that_gets_shorter_is_not_read_beyond_its_end"
  without :pack_hash_size, "write: a Hash has no fewer pairs than its header",
          sub: { "packing->pairs > 0 || (packing->calls != calls && RHASH_SIZE(hash) != size)" => "false" },
          only: "test_a_hash_that_changes_its_size_raises_and_leaves_no_bytes"
end

Mutation.area("messagepack", test: "test/message_pack/limits_test.rb") do
  without :unpack_payload_depth, "unpacker: a payload is a level",
          sub: { " + 1" => "" }, only: "test_recursive_types_count_as_levels"
  without :unpack_frame_limit, "read: no more frames than allowed",
          only: "test_arrays_may_be_128_deep_and_deeper_only_with_max_depth"
  without :unpack_room_for_value, "read: there is room for one more value",
          sub: { "building->size == building->capacity" => "false" },
          only: "test_maps_may_be_128_deep_and_deeper_only_with_max_depth"
  without :unpack_claimed_size, "read: what a header claims takes no memory",
          sub: { "reader->awaited <= (size_t)(reader->end - reader->at) ? (long)count : 0" => "(long)count" },
          only: "test_containers_are_not_allocated_in_their_claimed_size"
end

Mutation.area("messagepack", test: "test/message_pack/payload_test.rb") do
  without :unpack_payload_elements, "unpacker: what is read of a payload counts",
          only: "test_max_elements_is_shared_by_all_payloads"
  without :unpack_fed_memory_own, "unpacker: memory of what was fed is not another payload's",
          sub: { " && reader->bytes->writer.capacity == 0" => "" }, only: "test_the_unpacker_of_a_payload_may_be_fed_more_bytes"
end

Mutation.area("messagepack", test: "test/message_pack/keys_test.rb") do
  without :pack_keys_mark, "keys: the mark of keys",
          sub: { "rb_gc_mark(keys->kept[i])" => "(void)keys" }, only: "test_cached_keys_survive_a_collection"
end

Mutation.area("messagepack", test: "test/message_pack/boundaries_test.rb") do
  without :unpack_values_scanned, "read: values stay referenced while they move to more memory",
          before: "*more = Qfalse;", only: "test_own_keys_under_stress_where_memory_grows"
end

Mutation.area("messagepack", test: "test/message_pack/source_test.rb") do
  without :unpack_held_before_keys, "read: it is held before a key's methods run",
          only: "test_methods_of_keys_may_change_the_source"
  without :unpack_position_follows, "read: what is read is where the held one's bytes are",
          only: "test_a_short_source_may_be_changed_too"
  without :pack_no_stale_memory, "write: a continuation does not come back to a String that has moved",
          sub: { "!NIL_P(to->more) && RSTRING_PTR(to->more) != to->writer.data" => "false" },
          only: "test_a_continuation_does_not_come_back_to_packing_many"
end

Mutation.area("messagepack",
              test: "test/proofs/message_pack_engine_test.rb",
              only: "test_written_values_are_read_back_and_arbitrary_bytes_are_handled_safely") do
  without :read_token_bytes, "the bytes of a token are there before it is taken"
  without :read_ext_type, "an extension's type is there before it is read"
  without :read_header_bytes, "a header's number is there before it is read"
  without :read_first_byte, "there is a byte before it is read"
  without :read_max_bytes, "strings, binaries and extensions are no longer than allowed"
  without :read_max_depth, "there are as many frames as the depth that is allowed"
  without :read_max_elements, "no more elements are read than allowed"
  without :read_missing_bytes, "what cannot fit into the bytes that there are ends at its header",
          sub: { "if (reader->whole && reader->awaited + values > there(reader)) return PS_READ_MORE;" => "" }
  without :read_64_bits, "a number's bytes count up to 64 bits", sub: { "INT64_MAX" => "UINT64_MAX - 1" }
  without :write_header_room, "there is space for a header before it is written",
          sub: { "ps_write_room(writer, 9)" => "ps_write_room(writer, 1)" }
end

Mutation.area("messagepack", test: "test/message_pack/loading_test.rb") do
  without :codec_autoloaded, "message_pack.rb: loads it by its autoload, for which other threads wait",
          by: 'require_relative "message_pack/codec"',
          only: "test_a_thread_sees_all_of_the_codec_if_it_is_named_while_another_thread_has_required_it"
  without :codec_same_module, "codec: an interrupted autoload goes on with the same module",
          sub: { "@message_pack ||= " => "" }, only: "test_the_codec_is_whole_after_an_exception_interrupted_its_loading"
  without :codec_files_whole, "codec: its files are loaded as a whole",
          by: "1.times do", only: "test_the_codec_is_whole_after_an_exception_interrupted_its_loading"
end

Mutation.area("messagepack", test: "test/message_pack/ractor_test.rb") do
  without :codec_ractor_safe, "the extension declares itself safe for Ractors",
          only: "test_the_module_methods_and_the_default_factory_work_in_a_ractor"
end
