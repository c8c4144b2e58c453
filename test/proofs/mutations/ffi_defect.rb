# frozen_string_literal: true

twin = "test_producers_handles_reports_and_messages_survive_the_same_usage"

Mutation.define "a handle's label is marked (shown by the copy of ffi's loop)",
                file: "ext/penstock/ruby/delivery_handle.c", from: "    rb_gc_mark_movable(delivery->label);\n",
                test: "test/proofs/ffi_defect_test.rb", only: twin, runs: 3

Mutation.define "the write barrier of the layout in ffi's loop",
                file: "test/ext/layout_churn/layout_churn.c",
                from: "if (RTEST(barrier)) RB_OBJ_WRITE(self, &layout->field_map, field_map);",
                to: "if (RTEST(barrier)) layout->field_map = field_map;",
                test: "test/proofs/ffi_defect_test.rb", only: "test_a_hash_stored_with_a_write_barrier_is_kept", runs: 3
