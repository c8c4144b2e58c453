# frozen_string_literal: true

# docs/evidence/safety.md, "MessagePack".
reader = { file: "ext/penstock/message_pack/engine_read.c", test: "test/proofs/message_pack_engine_test.rb",
           only: "test_written_values_are_read_back_and_arbitrary_bytes_are_handled_safely" }

Mutation.define "messagepack: the bytes of a token are there before it is taken", **reader,
                from: "    if (there(reader) - header < size) return PS_READ_MORE;\n"

Mutation.define "messagepack: an extension's type is there before it is read", **reader,
                from: "    if (there(reader) < header) return PS_READ_MORE;\n    token->type", to: "    token->type"

Mutation.define "messagepack: a header's number is there before it is read", **reader,
                from: "    if (there(reader) < header) return PS_READ_MORE;\n    uint64_t value", to: "    uint64_t value"

Mutation.define "messagepack: there is a byte before it is read", **reader,
                from: "    if (reader->at == reader->end) return PS_READ_MORE;\n"

Mutation.define "messagepack: strings, binaries and extensions are no longer than allowed", **reader,
                from: "    if (size > reader->max_bytes) return PS_READ_TOO_LONG;\n"

Mutation.define "messagepack: there are as many frames as the depth that is allowed", **reader,
                from: "    if (reader->depth == reader->max_depth) return PS_READ_TOO_DEEP;\n"

Mutation.define "messagepack: no more elements are read than allowed", **reader,
                from: "    if (values > reader->max_elements - reader->elements) return PS_READ_TOO_MANY;\n"

Mutation.define "messagepack: no more elements are skipped than allowed", **reader,
                from: "    if (values > reader->max_elements - reader->elements) {", to: "    if (values > UINT64_MAX - 1) {"

Mutation.define "messagepack: elements that are read are counted", **reader,
                from: "    reader->elements += values;\n    reader->awaited", to: "    reader->awaited"

Mutation.define "messagepack: elements that are skipped are counted", **reader,
                from: "    reader->elements += values;\n    reader->skipping", to: "    reader->skipping"

Mutation.define "messagepack: elements of what is read count anew for each outermost value", **reader,
                file: "ext/penstock/message_pack/engine.h",
                from: "    if (!reader->part) reader->elements = 0;\n    else if", to: "    if"

Mutation.define "messagepack: elements of what is skipped count anew for each outermost value", **reader,
                from: "        result = ps_read_begin(reader);\n", to: ""

Mutation.define "messagepack: what cannot fit into the bytes that there are ends at its header", **reader,
                from: "    if (reader->whole && reader->awaited + values > there(reader)) return PS_READ_MORE;"

Mutation.define "messagepack: what is still to come of containers around takes bytes, too", **reader,
                from: "reader->awaited + values > there(reader)", to: "values > there(reader)"

Mutation.define "messagepack: a value that has begun is not counted as missing", **reader,
                from: "    if (reader->depth > 0) reader->awaited--;\n    else result", to: "    if (reader->depth == 0) result"

Mutation.define "messagepack: a rejected container is still counted as missing", **reader,
                from: "    if (reader->depth > 0) reader->awaited++;\n"

Mutation.define "messagepack: nothing of a rejected container is consumed", **reader,
                from: "    reader->at = began;\n    return result;", to: "    (void)began;\n    return result;"

Mutation.define "messagepack: nothing of a container that is not skipped is consumed", **reader,
                from: "        reader->at = began;\n        return PS_READ_TOO_MANY;",
                to: "        (void)began;\n        return PS_READ_TOO_MANY;"

Mutation.define "messagepack: a skip that ran out of bytes is finished before anything is read", **reader,
                from: "reader->skipping > 0 ? ps_read_skip(reader) : PS_READ_OK", to: "PS_READ_OK"

Mutation.define "messagepack: a skip that consumed nothing does not continue", **reader,
                from: "        if (result != PS_READ_OK) reader->skipping = 0;"

Mutation.define "messagepack: a reset discards an unfinished skip", **reader,
                file: "ext/penstock/message_pack/engine.h",
                from: "    reader->awaited = 0;\n    reader->skipping = 0;\n", to: "    reader->awaited = 0;\n"

Mutation.define "messagepack: a number's bytes count up to 64 bits", **reader,
                from: "    if (value > INT64_MAX) {", to: "    if (value > UINT64_MAX - 1) {"

Mutation.define "messagepack: an open map is recorded as a map", **reader,
                from: "open_container(reader, token->kind == PS_MAP, values)", to: "open_container(reader, false, values)"

Mutation.define "messagepack: there is space for a header before it is written", **reader,
                file: "ext/penstock/message_pack/engine.h", from: "ps_write_room(writer, 9)", to: "ps_write_room(writer, 1)"
