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
    LONGEST_KEY = 64 /* bytes of one that is looked for in `keys` */
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
    memset(building->keys, 0, sizeof(building->keys));
}

void penstock_build_end(struct penstock_building *building)
{
    if (building->more_items) rb_free_tmp_buffer(&building->more_items);
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

void penstock_build_restore(struct penstock_building *building, const VALUE *items, size_t size, const struct ps_frame *frames)
{
    struct ps_reader *reader = &building->reader;
    if (reader->depth > reader->max_depth) make_deeper(building, reader->depth);
    memcpy(reader->frames, frames, reader->depth * sizeof(*frames));
    for (size_t i = 0; i < size; i++) push(building, items[i]);
}

/* ---- values ---- */

/* Where a key is kept if it was seen lately. */
static VALUE *place_of(struct penstock_building *building, const struct ps_token *token)
{
    uint32_t mixed = token->size * 31 + token->bytes[0];
    mixed = mixed * 31 + token->bytes[token->size - 1];
    mixed = mixed * 31 + token->bytes[token->size / 2];
    return &building->keys[mixed % PENSTOCK_BUILD_KEYS];
}

static bool is_key(VALUE key, const struct ps_token *token)
{
    if (!key) return false;
    VALUE string = SYMBOL_P(key) ? rb_sym2str(key) : key;
    return (size_t)RSTRING_LEN(string) == token->size && memcmp(RSTRING_PTR(string), token->bytes, token->size) == 0;
}

static VALUE symbol(const struct ps_token *token)
{
    const char *bytes = (const char *)token->bytes;
    VALUE symbol = rb_check_symbol_cstr(bytes, token->size, rb_utf8_encoding());
    return NIL_P(symbol) ? rb_str_intern(rb_utf8_str_new(bytes, token->size)) : symbol; /* one that the GC may take again */
}

static VALUE new_key(const struct penstock_building *building, const struct ps_token *token)
{
    if (building->options->symbolize_keys) return symbol(token);
    return rb_enc_interned_str((const char *)token->bytes, token->size, rb_utf8_encoding());
}

static VALUE key(struct penstock_building *building, const struct ps_token *token)
{
    if (token->size == 0 || token->size > LONGEST_KEY) return new_key(building, token);
    VALUE *place = place_of(building, token);
    if (!is_key(*place, token)) *place = new_key(building, token);
    return *place;
}

static VALUE string(const struct penstock_building *building, const struct ps_token *token, int encoding, bool frozen)
{
    const char *bytes = (const char *)token->bytes;
    if (frozen || building->options->freeze) return rb_enc_interned_str(bytes, token->size, rb_enc_from_index(encoding));
    VALUE string = rb_str_new(bytes, token->size);
    RB_ENCODING_SET_INLINED(string, encoding);
    return string;
}

static VALUE extension_value(const struct penstock_building *building, int8_t type, VALUE payload)
{
    if (!building->options->allow_unknown_ext)
        penstock_message_pack_raise("UnknownExtTypeError", "nothing unpacks ext type %d: register it with a Factory, "
                                    "or set allow_unknown_ext", type);
    VALUE extension = rb_struct_new(penstock_extension_value, INT2FIX(type), payload);
    if (building->options->freeze) rb_obj_freeze(extension);
    return extension;
}

static VALUE ext(struct penstock_building *building, const struct ps_token *token)
{
    int8_t type = token->type;
    VALUE payload = rb_str_new((const char *)token->bytes, token->size);
    const struct penstock_ext_unpacker *unpacker = penstock_registry_unpacker(building->registry, type);
    if (!unpacker || NIL_P(unpacker->callable)) {
        if (building->options->freeze) rb_obj_freeze(payload);
        return extension_value(building, type, payload);
    }
    if (unpacker->symbols) return rb_str_intern(rb_enc_associate(payload, rb_utf8_encoding()));

    VALUE argument = payload;
    if (unpacker->recursive)
        argument = penstock_unpacker_over(payload, building->registry_value, building->options, building->reader.depth);
    if (SYMBOL_P(unpacker->callable)) return rb_funcallv_public(unpacker->klass, SYM2ID(unpacker->callable), 1, &argument);
    return rb_funcallv(unpacker->callable, penstock_id_call, 1, &argument);
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
    } else {
        container = rb_ary_new_from_values(count, values);
    }
    building->size = frame->base;
    ps_read_close(&building->reader);
    return building->options->freeze ? rb_obj_freeze(container) : container;
}

enum ps_read penstock_build(struct penstock_building *building, VALUE *value)
{
    struct ps_reader *reader = &building->reader;
    struct ps_token token;
    for (;;) {
        enum ps_read result = ps_read_value(reader, &token);
        if (result == PS_READ_TOO_DEEP && deeper(building)) continue;
        if (result != PS_READ_OK) return result;
        if (token.kind >= PS_ARRAY && token.size > 0) {
            open_container(building, &token);
            continue;
        }
        bool as_key = reader->depth > 0 && ps_read_frame(reader)->map && ps_read_frame(reader)->left % 2 == 0;
        *value = value_of(building, &token, as_key);
        while (reader->depth > 0 && put(building, *value)) *value = close_container(building);
        if (reader->depth == 0) return PS_READ_OK;
    }
}

/* ---- of a String, without an Unpacker ---- */

VALUE penstock_unpack_string(VALUE string, VALUE registry, const struct penstock_mp_options *options)
{
    struct penstock_building building;
    VALUE value = Qnil, held = rb_str_new_frozen(string);
    struct ps_reader reader = {
        .at = (const uint8_t *)RSTRING_PTR(held), .end = (const uint8_t *)RSTRING_END(held), .whole = true
    };
    penstock_build_begin(&building, reader, options, registry);
    enum ps_read result = penstock_build(&building, &value);
    if (result != PS_READ_OK) penstock_unread(result, options);
    size_t extra = (size_t)(building.reader.end - building.reader.at);
    if (extra > 0) penstock_message_pack_raise("MalformedFormatError", "%zu extra bytes after the object", extra);
    penstock_build_end(&building);
    RB_GC_GUARD(held);
    RB_GC_GUARD(registry);
    return value;
}

void penstock_message_pack_read_init(void)
{
    utf8 = rb_utf8_encindex();
    binary = rb_ascii8bit_encindex();
}
