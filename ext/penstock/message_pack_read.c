/*
 * A reader's tokens as Ruby's objects. Values wait on a stack of their own until their container has ended, which is then made
 * at once, in its right size; of a large one, they go into it one by one. So a header alone allocates nothing but what the
 * bytes behind it can fill.
 *
 * Registered procs run in the middle of it and may do anything: what is needed afterwards is on this stack, and the bytes are
 * held by who reads them.
 */
#include "message_pack.h"

enum {
    LARGEST_ARRAY = 64, /* elements that wait on the stack; of a larger one, so many go into it at a time */
    LARGEST_HASH = 1024, /* pairs that wait there; of a larger one, each goes into it at once */
    SHORTEST_SHARED = 1024, /* bytes of a String that shares those of the source, */
    LEAST_PART = 16 /* of which it is a sixteenth or more */
};

static int utf8, binary; /* encodings */

/* ---- the stacks of values and frames ---- */

void penstock_build_begin(struct penstock_building *building, struct ps_reader reader,
                          const struct penstock_mp_options *options, VALUE registry)
{
    building->reader = reader;
    building->reader.frames = building->first_frames;
    building->reader.max_depth = options->max_depth < PENSTOCK_BUILD_FRAMES ? options->max_depth : PENSTOCK_BUILD_FRAMES;
    building->reader.max_bytes = options->max_bytes;
    building->reader.max_elements = options->max_elements;
    building->options = options;
    building->registry_value = registry;
    building->registry = penstock_registry_get(registry);
    building->items = building->first_items;
    building->size = 0;
    building->capacity = PENSTOCK_BUILD_STACK;
    building->more_items = building->more_frames = Qfalse;
    building->source = Qfalse;
    building->turns = NULL;
    building->keys = NULL;
}

void penstock_build_end(struct penstock_building *building)
{
    if (building->more_items && !building->turns) rb_free_tmp_buffer(&building->more_items);
    if (building->more_frames) rb_free_tmp_buffer(&building->more_frames);
}

/* Puts them into more memory, which the GC looks into as it does into a stack. */
static void *enlarge(VALUE *more, const void *data, size_t size, size_t wanted)
{
    VALUE larger;
    void *moved = rb_alloc_tmp_buffer(&larger, (long)wanted);
    memcpy(moved, data, size);
    if (*more) rb_free_tmp_buffer(more);
    *more = larger;
    return moved;
}

static void push(struct penstock_building *building, VALUE value)
{
    size_t size = building->size * sizeof(value);
    if (building->size == building->capacity) {
        if (building->turns) building->more_items = Qfalse; /* left to the GC */
        building->items = enlarge(&building->more_items, building->items, size, size * 2);
        building->capacity *= 2;
    }
    building->items[building->size++] = value;
}

static void make_deeper(struct penstock_building *building, uint32_t depth)
{
    struct ps_reader *reader = &building->reader;
    reader->frames = enlarge(&building->more_frames, reader->frames, reader->max_depth * sizeof(*reader->frames),
                             depth * sizeof(*reader->frames));
    reader->max_depth = depth;
}

/* False: it is too deep indeed. */
static bool deeper(struct penstock_building *building)
{
    uint32_t depth = building->reader.max_depth, limit = building->options->max_depth;
    if (depth == limit) return false;
    make_deeper(building, depth < limit / 2 ? depth * 2 : limit);
    return true;
}

/* ---- code of users' ---- */

/*
 * Code of users' runs between these two. A String that it may change is not read any further, but a frozen one with its bytes. And
 * a continuation of its may come back when all has gone on or ended: that is refused before anything is looked at, so it is
 * counted where continuations set nothing back.
 */
static void before_users_code(struct penstock_building *building)
{
    struct ps_reader *reader = &building->reader;
    if (!building->turns) {
        building->turns = rb_alloc_tmp_buffer(&building->turns_held, sizeof(*building->turns));
        *building->turns = 0;
    }
    building->turn = ++*building->turns;
    if (!building->source || OBJ_FROZEN(building->source)) return;
    size_t left = (size_t)(reader->end - reader->at);
    building->source = rb_str_new_frozen(building->source);
    reader->end = (const uint8_t *)RSTRING_END(building->source);
    reader->at = reader->end - left;
}

bool penstock_build_turn(struct penstock_building *building)
{
    if (!building->turns) return true;
    if (*building->turns != building->turn) return false;
    building->turn = ++*building->turns;
    return true;
}

static void after_users_code(struct penstock_building *building)
{
    if (!penstock_build_turn(building)) rb_raise(rb_eRuntimeError, "a continuation came back to where unpacking had gone on");
}

void penstock_build_restore(struct penstock_building *building, const VALUE *items, size_t size, const struct ps_frame *frames)
{
    struct ps_reader *reader = &building->reader;
    if (reader->depth > reader->max_depth) make_deeper(building, reader->depth);
    memcpy(reader->frames, frames, reader->depth * sizeof(*frames));
    if (size > 0) before_users_code(building); /* keys may be among them */
    for (size_t i = 0; i < size; i++) push(building, items[i]);
}

/* ---- values ---- */

static VALUE key(struct penstock_building *building, const struct ps_token *token)
{
    if (!building->keys) building->keys = penstock_keys();
    return penstock_key(building->keys, token->bytes, token->size, building->options->symbolize_keys);
}

/*
 * A long String that ends where its source ends may share the source's bytes, as slices do, if it is a good part of all that lives
 * for as long as it does then. 0: it may not. A frozen source of another class would be changed by it, and may be other Ractors'.
 */
static VALUE shared(struct penstock_building *building, const struct ps_token *token)
{
    if (!building->source || token->size < SHORTEST_SHARED || building->reader.at != building->reader.end) return 0;
    if (rb_obj_class(building->source) != rb_cString) return 0;
    VALUE root = rb_str_new_frozen(building->source);
    bool slice = RB_FL_ANY_RAW(root, RUBY_ELTS_SHARED); /* of something larger */
    if (slice || token->size < rb_str_capacity(root) / LEAST_PART) return 0;
    return rb_str_subseq(root, RSTRING_LEN(root) - (long)token->size, (long)token->size);
}

static VALUE string(struct penstock_building *building, const struct ps_token *token, int encoding, bool frozen)
{
    const char *bytes = (const char *)token->bytes;
    if (frozen || building->options->freeze) return rb_enc_interned_str(bytes, token->size, rb_enc_from_index(encoding));
    VALUE string = shared(building, token);
    if (!string) string = rb_str_new(bytes, token->size);
    RB_ENC_CODERANGE_CLEAR(string);
    RB_ENCODING_SET_INLINED(string, encoding);
    return string;
}

static VALUE extension_value(struct penstock_building *building, int8_t type, VALUE payload)
{
    if (!building->options->allow_unknown_ext)
        penstock_message_pack_raise("UnknownExtTypeError", "nothing unpacks ext type %d: register it with a Factory, "
                                    "or set allow_unknown_ext", type);
    before_users_code(building); /* `initialize`, which may be prepended to, or traced */
    VALUE extension = rb_struct_new(penstock_extension_value, INT2FIX(type), payload);
    after_users_code(building);
    if (building->options->freeze) rb_obj_freeze(extension);
    return extension;
}

struct calling {
    VALUE callable, klass, argument;
};

static VALUE call(VALUE arg)
{
    struct calling *calling = (struct calling *)arg;
    if (!SYMBOL_P(calling->callable)) return rb_funcallv(calling->callable, penstock_id_call, 1, &calling->argument);
    return rb_funcallv_public(calling->klass, SYM2ID(calling->callable), 1, &calling->argument);
}

static VALUE call_unpacker(struct penstock_building *building, const struct penstock_ext_unpacker *unpacker, VALUE payload)
{
    VALUE value;
    struct calling calling = { .callable = unpacker->callable, .klass = unpacker->klass, .argument = payload };
    before_users_code(building);
    if (unpacker->recursive) {
        calling.argument = penstock_unpacker_over(payload, building->registry_value, building->options, building->reader.depth);
        value = penstock_guard_stack(call, (VALUE)&calling);
    } else {
        value = call((VALUE)&calling);
    }
    after_users_code(building);
    return value;
}

static VALUE ext(struct penstock_building *building, const struct ps_token *token)
{
    int8_t type = token->type;
    const char *bytes = (const char *)token->bytes;
    const struct penstock_ext_unpacker *unpacker = penstock_registry_unpacker(building->registry, type);
    if (unpacker && unpacker->symbols) return penstock_symbol(bytes, token->size);

    VALUE payload = rb_str_new(bytes, token->size);
    if (unpacker && !NIL_P(unpacker->callable)) return call_unpacker(building, unpacker, payload);
    if (building->options->freeze) rb_obj_freeze(payload);
    return extension_value(building, type, payload);
}

static VALUE value_of(struct penstock_building *building, const struct ps_token *token, bool as_key)
{
    VALUE empty;
    switch (token->kind) {
    case PS_NIL: return Qnil;
    case PS_FALSE: return Qfalse;
    case PS_TRUE: return Qtrue;
    case PS_INT: return LONG2NUM(token->i);
    case PS_UINT: return ULL2NUM(token->u);
    case PS_FLOAT: return DBL2NUM(token->f);
    case PS_STR: return as_key ? key(building, token) : string(building, token, utf8, false);
    case PS_BIN: return string(building, token, binary, as_key);
    case PS_EXT: return ext(building, token);
    default:
        empty = token->kind == PS_ARRAY ? rb_ary_new() : rb_hash_new();
        return building->options->freeze ? rb_obj_freeze(empty) : empty;
    }
}

/* ---- containers ---- */

/* How many elements are worth room at once: no more than the bytes that are there can be. */
static long room_for(const struct ps_reader *reader, uint32_t count)
{
    return reader->awaited <= (size_t)(reader->end - reader->at) ? (long)count : 0;
}

static VALUE new_hash(long room)
{
#ifdef HAVE_RB_HASH_NEW_CAPA
    return rb_hash_new_capa(room);
#else
    return rb_hash_new();
#endif
}

static void open_container(struct penstock_building *building, const struct ps_token *token)
{
    struct ps_frame *frame = ps_read_frame(&building->reader);
    frame->base = (uint32_t)building->size;
    frame->direct = token->size > (frame->map ? LARGEST_HASH : LARGEST_ARRAY);
    if (!frame->direct) return;
    long room = room_for(&building->reader, token->size);
    push(building, frame->map ? new_hash(room) : rb_ary_new_capa(room));
}

/* What waits for a large Array. */
static void move_into(struct penstock_building *building, const struct ps_frame *frame)
{
    size_t first = frame->base + 1;
    rb_ary_cat(building->items[frame->base], building->items + first, (long)(building->size - first));
    building->size = first;
}

/* True when its container has ended with it. */
static bool put(struct penstock_building *building, VALUE value)
{
    const struct ps_frame *frame = ps_read_frame(&building->reader);
    if (frame->direct && frame->map && frame->left % 2 == 1) {
        rb_hash_aset(building->items[frame->base], building->items[--building->size], value);
        after_users_code(building); /* keys' methods */
    } else {
        push(building, value);
        if (frame->direct && !frame->map && building->size - frame->base > LARGEST_ARRAY) move_into(building, frame);
    }
    return ps_read_ended(&building->reader);
}

static VALUE close_container(struct penstock_building *building)
{
    const struct ps_frame *frame = ps_read_frame(&building->reader);
    VALUE *values = building->items + frame->base, container;
    long count = (long)(building->size - frame->base);
    if (frame->direct) {
        if (!frame->map) move_into(building, frame);
        container = *values;
    } else if (frame->map) {
        container = new_hash(count / 2);
        rb_hash_bulk_insert(count, values, container);
        after_users_code(building);
    } else {
        container = rb_ary_new_from_values(count, values);
    }
    building->size = frame->base;
    ps_read_close(&building->reader);
    return building->options->freeze ? rb_obj_freeze(container) : container;
}

static bool awaits_key(const struct ps_reader *reader)
{
    if (reader->depth == 0) return false;
    const struct ps_frame *frame = &reader->frames[reader->depth - 1];
    return frame->map && frame->left % 2 == 0;
}

/* Of Strings, and of Symbols, Ruby calls neither `hash` nor `eql?`; to compare one with the other it may call `eql?`. */
static bool plain_key(const struct penstock_building *building, const struct ps_token *token)
{
    return token->kind == PS_STR || (token->kind == PS_BIN && !building->options->symbolize_keys);
}

enum ps_read penstock_build(struct penstock_building *building, VALUE *value)
{
    struct ps_reader *reader = &building->reader;
    struct ps_token token;
    for (;;) {
        bool as_key = awaits_key(reader);
        enum ps_read result = ps_read_value(reader, &token);
        if (result == PS_READ_TOO_DEEP && deeper(building)) continue;
        if (result != PS_READ_OK) return result;
        if (as_key && !plain_key(building, &token)) before_users_code(building);
        if (token.kind >= PS_ARRAY && token.size > 0) {
            open_container(building, &token);
            continue;
        }
        *value = value_of(building, &token, as_key);
        while (reader->depth > 0 && put(building, *value)) *value = close_container(building);
        if (reader->depth == 0) return PS_READ_OK;
    }
}

/* ---- of a String, without an Unpacker ---- */

VALUE penstock_unpack_string(VALUE string, VALUE registry, const struct penstock_mp_options *options)
{
    struct penstock_building building;
    VALUE value = Qnil;
    struct ps_reader reader = {
        .at = (const uint8_t *)RSTRING_PTR(string), .end = (const uint8_t *)RSTRING_END(string), .whole = true
    };
    penstock_build_begin(&building, reader, options, registry);
    building.source = string;
    enum ps_read result = penstock_build(&building, &value);
    if (result != PS_READ_OK) penstock_unread(result, options);
    size_t extra = (size_t)(building.reader.end - building.reader.at);
    if (extra > 0) penstock_message_pack_raise("MalformedFormatError", "%zu extra bytes after the object", extra);
    penstock_build_end(&building);
    RB_GC_GUARD(string);
    RB_GC_GUARD(registry);
    return value;
}

void penstock_message_pack_read_init(void)
{
    utf8 = rb_utf8_encindex();
    binary = rb_ascii8bit_encindex();
}
