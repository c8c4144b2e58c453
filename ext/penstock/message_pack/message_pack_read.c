/*
 * Turns a reader's tokens into Ruby objects. Values wait on a stack of their own until their container has ended. Then the
 * container is made in its exact size. Values of a large container go into it one by one. So a header alone never allocates more
 * than the bytes behind it can fill.
 *
 * Registered procs run meanwhile and may do anything. What a read needs afterwards is on this stack, and the read keeps its bytes
 * alive.
 */
#include "message_pack/message_pack.h"

enum {
    LARGEST_ARRAY = 64, /* elements that wait on the stack; elements of a larger Array go into it in groups of this size */
    LARGEST_HASH = 8192, /* pairs that wait on the stack; pairs of a larger Hash go into it at once */
    SHORTEST_SHARED = 1024, /* a String of as many bytes may share the source's memory, */
    LEAST_PART = 16, /* if it is at least a sixteenth of that */
    SHORTEST_HELD = 128, /* a source of as many bytes is copied before user code runs; a longer one is shared */
    GUARDED_LEVEL = 8 /* payloads nested this deeply are guarded against the end of the stack */
};

static int utf8, binary; /* encodings */
static ID id_eql, id_equal, id_freeze;

/* ---- the stacks of values and frames ---- */

/* How deeply the value that is read may be nested. */
static uint32_t depth_limit(const struct penstock_building *building)
{
    return building->options->max_depth - building->depth_before;
}

void penstock_build_begin(struct penstock_building *building, const struct penstock_room *room,
                          const struct penstock_mp_options *options, VALUE registry, uint32_t depth_before)
{
    building->options = options;
    building->depth_before = depth_before;
    uint32_t limit = depth_limit(building);
    building->reader.frames = room->frames;
    building->reader.max_depth = limit < room->frame_count ? limit : room->frame_count;
    building->reader.max_bytes = options->max_bytes;
    building->reader.max_elements = options->max_elements;
    building->registry_value = registry;
    building->registry = penstock_registry_of(registry);
    building->items = room->items;
    building->size = 0;
    building->capacity = room->item_count;
    building->more_items = building->more_frames = Qfalse;
    building->source = building->unpacker = building->payloads = building->turns_held = Qfalse;
    building->level = 0;
    building->turns = NULL;
    building->users_code = building->plain_integers = false;
    building->keys = NULL;
}

/* Frees memory, except after user code: a continuation may come back to this memory, so the GC frees it. */
static inline void release(const struct penstock_building *building, VALUE *memory)
{
    if (*memory && !building->users_code) rb_free_tmp_buffer(memory);
    *memory = Qfalse;
}

void penstock_build_end(struct penstock_building *building)
{
    release(building, &building->more_items);
    release(building, &building->more_frames);
}

/*
 * Moves values or frames into more memory, which the GC scans like a stack. The old memory stays referenced until they are
 * copied, because the allocation may run the GC.
 */
static void *enlarge(const struct penstock_building *building, VALUE *more, const void *data, size_t size, size_t wanted)
{
    VALUE larger;
    void *moved = rb_alloc_tmp_buffer(&larger, (long)wanted); /* M:unpack_values_scanned */
    memcpy(moved, data, size);
    release(building, more);
    *more = larger;
    return moved;
}

static void make_room(struct penstock_building *building, size_t capacity)
{
    building->items = enlarge(building, &building->more_items, building->items, building->size * sizeof(VALUE),
                              capacity * sizeof(VALUE));
    building->capacity = capacity;
}

static inline void push(struct penstock_building *building, VALUE value)
{
    if (building->size == building->capacity) make_room(building, building->capacity * 2); /* M:unpack_room_for_value */
    building->items[building->size++] = value;
}

static void make_deeper(struct penstock_building *building, uint32_t depth)
{
    struct ps_reader *reader = &building->reader;
    reader->frames = enlarge(building, &building->more_frames, reader->frames, reader->depth * sizeof(*reader->frames),
                             depth * sizeof(*reader->frames));
    reader->max_depth = depth;
}

/* False: the value exceeds max_depth. */
static bool deeper(struct penstock_building *building)
{
    uint32_t depth = building->reader.max_depth, limit = depth_limit(building);
    if (depth == limit) return false; /* M:unpack_frame_limit */
    make_deeper(building, depth < limit / 2 ? depth * 2 : limit);
    return true;
}

void penstock_build_restore(struct penstock_building *building, struct penstock_kept *kept)
{
    building->more_items = kept->items;
    building->items = kept->item;
    building->size = kept->size;
    building->capacity = kept->capacity;
    building->more_frames = kept->frames;
    building->reader.frames = kept->frame;
    building->reader.max_depth = kept->frame_capacity;
    building->users_code = kept->users_code;
    kept->items = kept->frames = Qfalse;
}

void penstock_build_keep(struct penstock_building *building, VALUE unpacker, struct penstock_kept *kept)
{
    struct ps_reader *reader = &building->reader;
    if (reader->depth == 0) return;
    if (!building->more_items) make_room(building, building->size < 8 ? 16 : building->size * 2);
    if (!building->more_frames) make_deeper(building, reader->max_depth);
    kept->item = building->items;
    kept->size = building->size;
    kept->capacity = building->capacity;
    kept->frame = reader->frames;
    kept->frame_capacity = reader->max_depth;
    kept->users_code = building->users_code;
    RB_OBJ_WRITE(unpacker, &kept->items, building->more_items);
    RB_OBJ_WRITE(unpacker, &kept->frames, building->more_frames);
    building->more_items = building->more_frames = Qfalse;
}

/* ---- user code ---- */

static void take_turn(struct penstock_building *building)
{
    building->turn = building->turns->current = ++building->turns->last;
}

void penstock_build_begin_turn(struct penstock_building *building)
{
    building->turn_before = building->turns->current;
    take_turn(building);
}

/* For a read of a String. An Unpacker has its own. */
static void make_turns(struct penstock_building *building)
{
    building->turns = rb_alloc_tmp_buffer(&building->turns_held, sizeof(*building->turns));
    *building->turns = (struct penstock_turns){ 0 };
}

/* A frozen String with the source's bytes. For a few bytes, a copy costs less than sharing. */
static VALUE held(VALUE source)
{
    if (RSTRING_LEN(source) > SHORTEST_HELD) return rb_str_new_frozen(source);
    return rb_obj_freeze(rb_str_new(RSTRING_PTR(source), RSTRING_LEN(source)));
}

/*
 * User code runs between these two functions. It may change a source String that is not frozen, so the read continues with a
 * frozen String of the same bytes. A continuation of user code may come back after the read has continued or ended. A Fiber may
 * come back after the Unpacker has been reset.
 */
static void before_users_code(struct penstock_building *building)
{
    struct ps_reader *reader = &building->reader;
    if (!building->turns) make_turns(building);
    building->users_code = true;
    building->plain_integers = false;
    take_turn(building);
    if (building->unpacker) penstock_unpacker_reads(building->unpacker);
    if (!building->source || OBJ_FROZEN(building->source)) return;
    size_t left = (size_t)(reader->end - reader->at);
    building->source = held(building->source); /* M:unpack_source_held */
    reader->end = (const uint8_t *)RSTRING_END(building->source);
    reader->at = reader->end - left; /* M:unpack_position_follows */
}

static void after_users_code(struct penstock_building *building)
{
    if (!penstock_build_turn(building))
        rb_raise(rb_eRuntimeError, "a read that a continuation or Unpacker#reset had ended cannot go on");
    take_turn(building);
}

/* ---- values ---- */

static VALUE key(struct penstock_building *building, const struct ps_token *token)
{
    if (!building->keys) building->keys = penstock_keys();
    return penstock_key(building->keys, token->bytes, token->size, building->options->symbolize_keys, building->options->freeze);
}

/*
 * A long String at the end of its source may share the source's bytes, as slices do. It then keeps all of the source's memory
 * alive, so it must be a good part of it. 0: it does not share. Sharing would change a frozen source of another class, which
 * other Ractors may be using.
 */
static VALUE shared(struct penstock_building *building, const struct ps_token *token)
{
    if (!building->source || token->size < SHORTEST_SHARED || building->reader.at != building->reader.end) return 0;
    if (rb_obj_class(building->source) != rb_cString) return 0;
    VALUE root = rb_str_new_frozen(building->source);
    bool slice = RB_FL_ANY_RAW(root, RUBY_ELTS_SHARED); /* a slice of a larger String */
    if (slice || token->size < rb_str_capacity(root) / LEAST_PART) return 0;
    return rb_str_subseq(root, RSTRING_LEN(root) - (long)token->size, (long)token->size);
}

static VALUE with_encoding(VALUE string, int encoding)
{
    RB_ENC_CODERANGE_CLEAR(string);
    RB_ENCODING_SET_INLINED(string, encoding);
    return string;
}

static VALUE interned(const struct ps_token *token, int encoding)
{
    return rb_enc_interned_str((const char *)token->bytes, token->size, rb_enc_from_index(encoding));
}

static inline VALUE string(const struct ps_token *token, int encoding, bool freeze)
{
    if (freeze) return interned(token, encoding);
    return with_encoding(rb_str_new((const char *)token->bytes, token->size), encoding);
}

VALUE penstock_plain_value(const struct ps_token *token, bool freeze)
{
    VALUE empty;
    switch (token->kind) {
    case PS_NIL: return Qnil;
    case PS_FALSE: return Qfalse;
    case PS_TRUE: return Qtrue;
    case PS_INT: return LONG2NUM(token->i);
    case PS_UINT: return ULL2NUM(token->u);
    case PS_FLOAT: return DBL2NUM(token->f);
    case PS_STR: return string(token, utf8, freeze);
    case PS_BIN: return string(token, binary, freeze);
    default:
        empty = token->kind == PS_ARRAY ? rb_ary_new() : rb_hash_new();
        return freeze ? rb_obj_freeze(empty) : empty;
    }
}

static VALUE payload(struct penstock_building *building, const struct ps_token *token)
{
    VALUE bytes = shared(building, token);
    return bytes ? with_encoding(bytes, binary) : rb_str_new((const char *)token->bytes, token->size);
}

static VALUE extension_value(struct penstock_building *building, int8_t type, VALUE payload)
{
    if (!building->options->allow_unknown_ext)
        penstock_message_pack_raise("UnknownExtTypeError", "nothing unpacks ext type %d: register it with a Factory, "
                                    "or set allow_unknown_ext", type);
    before_users_code(building); /* `initialize` may be overridden or traced */
    VALUE extension = rb_struct_new(penstock_extension_value, INT2FIX(type), payload);
    after_users_code(building);
    if (building->options->freeze) rb_obj_freeze(extension);
    return extension;
}

struct calling {
    VALUE callable, klass, argument;
};

static VALUE call_proc(VALUE arg)
{
    struct calling *calling = (struct calling *)arg;
    VALUE callable = calling->callable;
    if (!SYMBOL_P(callable)) {
        if (CLASS_OF(callable) == rb_cProc) return rb_proc_call_with_block(callable, 1, &calling->argument, Qnil);
        return rb_funcallv(callable, penstock_id_call, 1, &calling->argument);
    }
    return rb_funcallv_public(calling->klass, SYM2ID(calling->callable), 1, &calling->argument);
}

/* For `freeze: true`. Does not freeze classes and modules: they belong to the program, not to the data. */
static VALUE frozen(VALUE value)
{
    if (OBJ_FROZEN(value) || RB_TYPE_P(value, T_CLASS) || RB_TYPE_P(value, T_MODULE)) return value;
    if (rb_check_funcall(value, id_freeze, 0, NULL) == Qundef) rb_obj_freeze(value);
    return value;
}

static VALUE call_unpacker(struct penstock_building *building, const struct penstock_ext_unpacker *unpacker,
                           const struct ps_token *token)
{
    struct calling calling = { .callable = unpacker->callable, .klass = unpacker->klass };
    bool recursive = unpacker->recursive, guarded = recursive && building->level == GUARDED_LEVEL;
    if (!recursive) calling.argument = payload(building, token);
    else if (!building->turns) building->turns = penstock_unpacker_turns(building);
    size_t size = token->size;
    before_users_code(building);
    if (recursive) calling.argument = penstock_unpacker_open(building, building->reader.at - size, size);
    VALUE value = guarded ? penstock_guard_stack(call_proc, (VALUE)&calling) : call_proc((VALUE)&calling);
    if (building->options->freeze) frozen(value);
    after_users_code(building);
    if (recursive) penstock_unpacker_close(building, calling.argument, token->type);
    return value;
}

static VALUE ext(struct penstock_building *building, const struct ps_token *token)
{
    const struct penstock_ext_unpacker *unpacker = penstock_registry_unpacker(building->registry, token->type);
    if (unpacker && unpacker->symbols) return penstock_symbol((const char *)token->bytes, token->size);
    if (unpacker && !NIL_P(unpacker->callable)) return call_unpacker(building, unpacker, token);

    VALUE bytes = payload(building, token);
    if (building->options->freeze) rb_obj_freeze(bytes);
    return extension_value(building, token->type, bytes);
}

static VALUE bin_key(const struct penstock_building *building, const struct ps_token *token)
{
    if (building->options->symbolize_keys) return penstock_binary_symbol((const char *)token->bytes, token->size);
    return interned(token, binary);
}

/* For SHORTEST_SHARED bytes and more. */
static VALUE long_string(struct penstock_building *building, const struct ps_token *token)
{
    bool freeze = building->options->freeze;
    VALUE string = freeze ? 0 : shared(building, token);
    return string ? with_encoding(string, token->kind == PS_STR ? utf8 : binary) : penstock_plain_value(token, freeze);
}

static inline VALUE value_of(struct penstock_building *building, const struct ps_token *token, bool as_key)
{
    if (token->kind == PS_EXT) return ext(building, token);
    if (token->kind == PS_STR || token->kind == PS_BIN) {
        if (as_key) return token->kind == PS_STR ? key(building, token) : bin_key(building, token);
        if (token->size >= SHORTEST_SHARED) return long_string(building, token);
    }
    return penstock_plain_value(token, building->options->freeze);
}

/* ---- containers ---- */

/* For how many elements to allocate at once: none if the bytes that are there cannot contain them. */
static long room_for(const struct ps_reader *reader, uint32_t count)
{
    return reader->awaited <= (size_t)(reader->end - reader->at) ? (long)count : 0; /* M:unpack_claimed_size */
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

/* Moves the waiting elements of a large Array into it. */
static void move_into(struct penstock_building *building, const struct ps_frame *frame)
{
    size_t first = frame->base + 1;
    rb_ary_cat(building->items[frame->base], building->items + first, (long)(building->size - first));
    building->size = first;
}

/* The kinds of keys in a Hash. */
enum { STRINGS = 1, SYMBOLS = 2, INTEGERS = 4, OTHERS = 8 };

static inline uint8_t kind_of_key(VALUE key)
{
    if (RB_FIXNUM_P(key)) return INTEGERS;
    if (RB_STATIC_SYM_P(key)) return SYMBOLS;
    if (RB_SPECIAL_CONST_P(key)) return OTHERS;
    if (RB_BUILTIN_TYPE(key) == T_STRING && RBASIC_CLASS(key) == rb_cString) return STRINGS;
    return RB_BUILTIN_TYPE(key) == T_SYMBOL ? SYMBOLS : OTHERS;
}

/*
 * Whether Ruby may call methods of keys, which a program may have redefined. Ruby hashes and compares Strings and Symbols itself.
 * It hashes small Integers itself, but compares two with the same hash by `eql?` or `==`.
 */
static bool calls_methods(struct penstock_building *building, uint8_t kinds)
{
    if (kinds == STRINGS || kinds == SYMBOLS) return false;
    if (kinds != INTEGERS) return true;
    if (!building->plain_integers)
        building->plain_integers = rb_method_basic_definition_p(rb_cInteger, id_eql) &&
                                   rb_method_basic_definition_p(rb_cInteger, id_equal);
    return !building->plain_integers;
}

/* Puts a pair into a large Hash. */
static void put_pair(struct penstock_building *building, struct ps_frame *frame, VALUE value)
{
    VALUE key = building->items[building->size - 1], hash = building->items[frame->base];
    frame->keys |= kind_of_key(key);
    bool users_code = calls_methods(building, frame->keys);
    if (users_code) before_users_code(building);
    rb_hash_aset(hash, key, value);
    if (users_code) after_users_code(building);
    building->size--;
}

/* True: the container has ended with this value. */
static inline bool put(struct penstock_building *building, VALUE value)
{
    struct ps_frame *frame = ps_read_frame(&building->reader);
    if (frame->direct && frame->map && frame->left % 2 == 1) {
        put_pair(building, frame, value);
    } else {
        push(building, value);
        if (frame->direct && !frame->map && building->size - frame->base > LARGEST_ARRAY) move_into(building, frame);
    }
    return ps_read_ended(&building->reader);
}

static VALUE hash_of(struct penstock_building *building, long count, const VALUE *values)
{
    uint8_t kinds = 0;
    for (long i = 0; i < count; i += 2) kinds |= kind_of_key(values[i]);
    bool users_code = calls_methods(building, kinds);
    VALUE hash = new_hash(count / 2);
    if (users_code) before_users_code(building); /* M:unpack_held_before_keys */
    rb_hash_bulk_insert(count, values, hash);
    if (users_code) after_users_code(building);
    return hash;
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
        container = hash_of(building, count, values);
    } else {
        container = rb_ary_new_from_values(count, values);
    }
    building->size = frame->base;
    ps_read_close(&building->reader);
    return building->options->freeze ? rb_obj_freeze(container) : container;
}

static inline bool awaits_key(const struct ps_reader *reader)
{
    if (reader->depth == 0) return false;
    const struct ps_frame *frame = &reader->frames[reader->depth - 1];
    return frame->map && frame->left % 2 == 0;
}

enum ps_read penstock_build(struct penstock_building *building, VALUE *value)
{
    struct ps_reader *reader = &building->reader;
    struct ps_token token;
    for (;;) {
        bool as_key = awaits_key(reader);
        enum ps_read result = ps_read_next(reader, &token);
        if (result == PS_READ_TOO_DEEP && deeper(building)) continue;
        if (result != PS_READ_OK) return result;
        if (token.kind >= PS_ARRAY && token.size > 0) {
            open_container(building, &token);
            continue;
        }
        *value = token.kind == PS_INT ? LONG2NUM(token.i) : value_of(building, &token, as_key);
        while (reader->depth > 0 && put(building, *value)) *value = close_container(building);
        if (reader->depth == 0) return PS_READ_OK;
    }
}

/* ---- reading a String, without an Unpacker ---- */

VALUE penstock_unpack_string(VALUE string, VALUE registry, const struct penstock_mp_options *options)
{
    struct penstock_building building;
    VALUE value = Qnil, items[PENSTOCK_ROOM_ITEMS];
    struct ps_frame frames[PENSTOCK_ROOM_FRAMES];
    struct penstock_room room = { items, frames, PENSTOCK_ROOM_ITEMS, PENSTOCK_ROOM_FRAMES };
    building.reader = (struct ps_reader){
        .at = (const uint8_t *)RSTRING_PTR(string), .end = (const uint8_t *)RSTRING_END(string), .whole = true
    };
    penstock_build_begin(&building, &room, options, registry, 0);
    building.source = string;
    enum ps_read result = penstock_build(&building, &value);
    if (result != PS_READ_OK) penstock_unread(result, options);
    size_t extra = (size_t)(building.reader.end - building.reader.at);
    if (extra > 0) penstock_message_pack_raise("MalformedFormatError", "invalid data: %zu extra bytes after the object", extra);
    penstock_build_end(&building);
    RB_GC_GUARD(string);
    RB_GC_GUARD(registry);
    return value;
}

void penstock_message_pack_read_init(void)
{
    utf8 = rb_utf8_encindex();
    binary = rb_ascii8bit_encindex();
    id_eql = rb_intern("eql?");
    id_equal = rb_intern("==");
    id_freeze = rb_intern("freeze");
}
