/*
 * Penstock::MessagePack::Unpacker: reads objects from bytes that arrive in parts, or from an io. One thread at a time may
 * use it. If the bytes end within an object, the Unpacker keeps the part that it has read. It continues when more bytes have
 * been fed.
 *
 * The unpacker proc of a recursive ext type gets a window: an Unpacker that reads the payload where it is, without a copy.
 * One such Unpacker serves all payloads of an outermost read, consecutive and nested ones.
 */
#include "message_pack/message_pack.h"

struct unpacker {
    struct penstock_buffer own; /* used until the program asks for the Buffer */
    VALUE buffer;               /* the Ruby Buffer, or false */
    struct penstock_buffer *bytes; /* that of `buffer`, or `own` */
    VALUE registry;
    VALUE payloads; /* the Unpacker for recursive ext types, or false */
    VALUE fiber;    /* the Fiber that reads, or false */
    struct penstock_mp_options options;
    struct ps_reader reader; /* the state between two calls; each call sets its bytes and frames */
    struct penstock_kept kept; /* the part of an unfinished object */
    struct penstock_turns turns;
    uint32_t depth_before, level; /* around the payload, see struct penstock_building */
    bool window;
};

static VALUE unpacker_class;

static void unpacker_mark(void *data)
{
    struct unpacker *unpacker = data;
    penstock_buffer_mark(&unpacker->own); /* M:unpack_fed_mark */
    rb_gc_mark_movable(unpacker->buffer);
    rb_gc_mark_movable(unpacker->registry);
    rb_gc_mark_movable(unpacker->payloads);
    rb_gc_mark_movable(unpacker->fiber);
    rb_gc_mark(unpacker->kept.items); /* M:unpack_values_pinned */
    rb_gc_mark(unpacker->kept.frames);
}

static void unpacker_compact(void *data)
{
    struct unpacker *unpacker = data;
    penstock_buffer_compact(&unpacker->own);
    unpacker->buffer = rb_gc_location(unpacker->buffer);
    unpacker->registry = rb_gc_location(unpacker->registry);
    unpacker->payloads = rb_gc_location(unpacker->payloads);
    unpacker->fiber = rb_gc_location(unpacker->fiber);
}

static void unpacker_free(void *data)
{
    struct unpacker *unpacker = data;
    penstock_buffer_release(&unpacker->own);
    xfree(unpacker);
}

static size_t unpacker_size(const void *data)
{
    const struct unpacker *unpacker = data;
    const struct penstock_kept *kept = &unpacker->kept;
    size_t size = sizeof(*unpacker) + unpacker->own.writer.capacity;
    if (kept->items) size += kept->capacity * sizeof(VALUE) + kept->frame_capacity * sizeof(struct ps_frame);
    return size;
}

static const rb_data_type_t unpacker_type = {
    .wrap_struct_name = "Penstock::MessagePack::Unpacker",
    .function = {
        .dmark = unpacker_mark,
        .dfree = unpacker_free,
        .dsize = unpacker_size,
        .dcompact = unpacker_compact,
    },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static struct unpacker *unpacker_get(VALUE self)
{
    struct unpacker *unpacker = RTYPEDDATA_DATA(self); /* unchecked: only an Unpacker has these methods */
    /* M:unpacker_initialized */
    if (!unpacker || !unpacker->bytes) rb_raise(rb_eArgError, "the Unpacker has not been initialized");
    return unpacker;
}

/* The Ruby object that owns `bytes`. */
static VALUE owner(VALUE self, const struct unpacker *unpacker)
{
    return unpacker->buffer ? unpacker->buffer : self;
}

static VALUE unpacker_allocate(VALUE klass)
{
    struct unpacker *unpacker;
    VALUE self = TypedData_Make_Struct(klass, struct unpacker, &unpacker_type, unpacker);
    unpacker->own = penstock_buffer_empty();
    unpacker->registry = Qnil; /* the other references are false */
    return self;
}

static void set_options(struct unpacker *unpacker, const struct penstock_mp_options *options)
{
    unpacker->options = *options;
    unpacker->reader.max_bytes = options->max_bytes;
    unpacker->reader.max_elements = options->max_elements;
}

static void set_up(VALUE self, VALUE io, VALUE registry, const struct penstock_mp_options *options)
{
    struct unpacker *unpacker = penstock_data(self, &unpacker_type);
    if (unpacker->bytes) rb_raise(rb_eRuntimeError, "an Unpacker is initialized once"); /* its buffer may be in use */
    set_options(unpacker, options);
    RB_OBJ_WRITE(self, &unpacker->registry, registry);
    RB_OBJ_WRITE(self, &unpacker->own.io, io);
    unpacker->own.io_size = options->io_buffer_size;
    unpacker->bytes = &unpacker->own;
}

VALUE penstock_unpacker_new(VALUE io, VALUE registry, const struct penstock_mp_options *options)
{
    VALUE self = unpacker_allocate(unpacker_class);
    set_up(self, io, registry, options);
    return self;
}

static VALUE unpacker_initialize(int argc, VALUE *argv, VALUE self)
{
    VALUE io, given, registry = penstock_empty_registry;
    if (argc > 0 && rb_typeddata_is_kind_of(argv[0], RTYPEDDATA_TYPE(penstock_empty_registry))) { /* a Factory's */
        registry = *argv++;
        argc--;
    }
    penstock_io_and_options(argc, argv, &io, &given);
    struct penstock_mp_options options = penstock_mp_options(given, PENSTOCK_MP_UNPACK | PENSTOCK_MP_BUFFER);
    set_up(self, io, registry, &options);
    return self;
}

static void forget(struct unpacker *unpacker)
{
    ps_read_reset(&unpacker->reader);
    unpacker->kept.items = unpacker->kept.frames = Qfalse;
}

/* ---- payloads of recursive ext types ---- */

static void shut_payloads(struct unpacker *unpacker);

/* Ends all reads of this Unpacker, and of payloads in bytes that it was fed. A read that comes back later raises. */
static void shut(VALUE self)
{
    struct unpacker *unpacker = RTYPEDDATA_DATA(self);
    shut_payloads(unpacker);
    unpacker->turns.current = 0;
    penstock_buffer_over(owner(self, unpacker), unpacker->bytes, Qnil, NULL, 0);
    forget(unpacker);
}

static void shut_payloads(struct unpacker *unpacker)
{
    if (unpacker->payloads) shut(unpacker->payloads);
}

/* The Unpacker for a payload: the reading one if it is a window itself and has not been fed; otherwise one that is kept. */
static VALUE window_for(struct penstock_building *building)
{
    struct unpacker *reader = building->unpacker ? RTYPEDDATA_DATA(building->unpacker) : NULL;
    if (reader && reader->window && reader->bytes->writer.capacity == 0) return building->unpacker; /* M:unpack_fed_memory_own */
    VALUE kept = reader ? reader->payloads : building->payloads;
    if (kept && !((struct unpacker *)RTYPEDDATA_DATA(kept))->bytes->locked) return kept;

    VALUE made = penstock_unpacker_new(Qnil, building->registry_value, building->options);
    if (reader) RB_OBJ_WRITE(building->unpacker, &reader->payloads, made);
    else building->payloads = made;
    return made;
}

struct penstock_turns *penstock_unpacker_turns(struct penstock_building *building)
{
    return &((struct unpacker *)RTYPEDDATA_DATA(window_for(building)))->turns;
}

VALUE penstock_unpacker_open(struct penstock_building *building, const uint8_t *bytes, size_t size)
{
    uint32_t depth = building->depth_before + building->reader.depth;
    if (depth >= building->options->max_depth) penstock_unread(PS_READ_TOO_DEEP, building->options);
    VALUE self = window_for(building), holder = building->unpacker ? building->unpacker : building->source;
    struct unpacker *unpacker = RTYPEDDATA_DATA(self);
    struct penstock_buffer *buffer = unpacker->bytes;
    if (self != building->unpacker) { /* otherwise options, registry and holder are the same */
        set_options(unpacker, building->options);
        if (unpacker->registry != building->registry_value) RB_OBJ_WRITE(self, &unpacker->registry, building->registry_value);
        if (buffer->held != holder) penstock_buffer_over(owner(self, unpacker), buffer, holder, NULL, 0);
    }
    buffer->writer.data = (char *)bytes;
    buffer->writer.size = size;
    buffer->at = 0;
    buffer->locked = false;
    forget(unpacker);
    unpacker->reader.elements = building->reader.elements;
    unpacker->reader.whole = unpacker->reader.part = unpacker->window = true;
    unpacker->depth_before = depth + 1; /* a payload is a level of its own */ /* M:unpack_payload_depth */
    unpacker->level = building->level + 1;
    return self;
}

static bool between_objects(const struct unpacker *unpacker)
{
    return unpacker->reader.depth == 0 && unpacker->reader.skipping == 0;
}

void penstock_unpacker_close(struct penstock_building *building, VALUE self, int8_t type)
{
    struct unpacker *unpacker = RTYPEDDATA_DATA(self);
    struct penstock_buffer *bytes = unpacker->bytes;
    bool reading = bytes->locked;
    bool ended = between_objects(unpacker);
    size_t left = penstock_buffer_size(bytes);
    building->reader.elements = unpacker->reader.elements; /* M:unpack_payload_elements */
    bool fed = bytes->writer.capacity > 0;
    if (fed) {
        shut_payloads(unpacker); /* one in its bytes may still be open, in a Fiber that was abandoned */
        penstock_buffer_over(owner(self, unpacker), bytes, Qnil, NULL, 0);
    }
    bytes->writer.size = bytes->at = 0;
    forget(unpacker);
    bytes->locked = self == building->unpacker;
    if (!bytes->locked) {
        unpacker->turns.current = 0;
    } else {
        if (bytes->held != building->window_held) /* a reset or a feed has released it */
            RB_OBJ_WRITE(owner(self, unpacker), &bytes->held, building->window_held);
        if (!fed) { /* back to the enclosing window */
            bytes->writer.data = building->window;
            bytes->writer.size = building->window_size;
            unpacker->depth_before = building->depth_before;
            unpacker->level = building->level;
        }
    }
    if (reading) rb_raise(rb_eRuntimeError, "the unpacker of ext type %d left its Unpacker in the middle of a read", type);
    if (left > 0 || !ended)
        penstock_message_pack_raise("MalformedFormatError", "invalid data: %zu bytes of a payload of ext type %d were not read",
                                    left, type);
}

/* ---- reading ---- */

/* The bytes stay in place until `unlock`. */
static void lock(struct unpacker *unpacker, struct ps_reader *reader)
{
    struct penstock_buffer *bytes = unpacker->bytes;
    penstock_buffer_check(bytes); /* M:unpack_one_reader */
    bytes->locked = true;
    *reader = unpacker->reader;
    reader->at = (const uint8_t *)bytes->writer.data + bytes->at;
    reader->end = reader->at + penstock_buffer_size(bytes);
}

/* A window keeps its holder for the next payload. */
static void clear_bytes(struct unpacker *unpacker)
{
    struct penstock_buffer *bytes = unpacker->bytes;
    if (unpacker->window && bytes->writer.capacity == 0) bytes->at = bytes->writer.size;
    else penstock_buffer_clear(bytes);
}

static void unlock(struct unpacker *unpacker, const struct ps_reader *reader)
{
    struct penstock_buffer *bytes = unpacker->bytes;
    unpacker->reader.depth = reader->depth;
    unpacker->reader.elements = reader->elements;
    unpacker->reader.awaited = reader->awaited;
    unpacker->reader.skipping = reader->skipping;
    bytes->locked = false;
    bytes->at = bytes->writer.size - (size_t)(reader->end - reader->at);
    if (reader->at == reader->end) clear_bytes(unpacker);
}

struct reading {
    VALUE self, value;
    struct unpacker *unpacker;
    struct penstock_building *building;
    enum ps_read result;
    bool done;
};

static VALUE read_it(VALUE arg)
{
    struct reading *reading = (struct reading *)arg;
    struct unpacker *unpacker = reading->unpacker;
    if (unpacker->kept.items) penstock_build_restore(reading->building, &unpacker->kept);
    reading->result = penstock_build(reading->building, &reading->value);
    if (reading->result == PS_READ_MORE) penstock_build_keep(reading->building, reading->self, &unpacker->kept);
    penstock_build_end(reading->building);
    reading->done = reading->result == PS_READ_OK || reading->result == PS_READ_MORE;
    return Qnil;
}

/* If a nested payload raised or was fed, makes its window the window of this read again. */
static void put_back_window(const struct reading *reading)
{
    struct unpacker *unpacker = reading->unpacker;
    struct penstock_buffer *bytes = unpacker->bytes;
    const struct penstock_building *building = reading->building;
    if (bytes->writer.data == building->window) return;
    penstock_buffer_over(owner(reading->self, unpacker), bytes, building->window_held, building->window, building->window_size);
    unpacker->depth_before = building->depth_before;
    unpacker->level = building->level;
}

static VALUE read_ended(VALUE arg)
{
    struct reading *reading = (struct reading *)arg;
    struct unpacker *unpacker = reading->unpacker;
    struct penstock_building *building = reading->building;
    if (!penstock_build_turn(building)) return Qnil;
    unpacker->turns.current = building->turn_before;
    unpacker->fiber = Qfalse;
    if (unpacker->window) put_back_window(reading);
    unlock(unpacker, &building->reader);
    if (reading->done) return Qnil;
    forget(unpacker);
    shut_payloads(unpacker);
    return Qnil;
}

void penstock_unpacker_reads(VALUE self)
{
    struct unpacker *unpacker = RTYPEDDATA_DATA(self);
    if (!unpacker->window) RB_OBJ_WRITE(self, &unpacker->fiber, rb_fiber_current());
}

NOINLINE(static bool read_longer(struct unpacker *unpacker, VALUE *value));

static bool read_longer(struct unpacker *unpacker, VALUE *value)
{
    struct penstock_buffer *bytes = unpacker->bytes;
    struct ps_reader *reader = &unpacker->reader;
    struct ps_token token;
    reader->at = (const uint8_t *)bytes->writer.data + bytes->at;
    reader->end = (const uint8_t *)bytes->writer.data + bytes->writer.size;
    if (ps_read_value(reader, &token) != PS_READ_OK) return false;
    *value = token.kind == PS_INT ? LONG2NUM(token.i) : penstock_plain_value(&token, unpacker->options.freeze);
    bytes->at = bytes->writer.size - (size_t)(reader->end - reader->at);
    return true;
}

/* Reads a value that is neither a container with values nor an ext type: runs no user code and keeps nothing. False: the next
 * value is another one, or its bytes are not all there. */
static bool read_plain(struct unpacker *unpacker, VALUE *value)
{
    struct penstock_buffer *bytes = unpacker->bytes;
    penstock_buffer_check(bytes);
    if (penstock_buffer_size(bytes) == 0 || !between_objects(unpacker)) return false;
    uint8_t format = (uint8_t)bytes->writer.data[bytes->at];
    if (!ps_read_is_plain(format)) return false;
    struct ps_reader *reader = &unpacker->reader;
    if (ps_read_is_small(format)) {
        if (ps_read_begin(reader) != PS_READ_OK) return false;
        *value = INT2FIX((int8_t)format);
        bytes->at++;
    } else if (!read_longer(unpacker, value)) {
        return false;
    }
    if (bytes->at == bytes->writer.size) clear_bytes(unpacker);
    return true;
}

static enum ps_read read_with(VALUE self, struct unpacker *unpacker, VALUE *value, const struct penstock_room *room)
{
    struct penstock_building building;
    struct reading reading = { .self = self, .value = Qnil, .unpacker = unpacker, .building = &building };
    lock(unpacker, &building.reader);
    penstock_build_begin(&building, room, &unpacker->options, unpacker->registry, unpacker->depth_before);
    building.unpacker = self;
    building.level = unpacker->level;
    building.turns = &unpacker->turns;
    building.window = unpacker->bytes->writer.data;
    building.window_size = unpacker->bytes->writer.size;
    building.window_held = unpacker->bytes->held;
    penstock_build_begin_turn(&building);
    rb_ensure(read_it, (VALUE)&reading, read_ended, (VALUE)&reading); /* M:unpack_lock_released */
    *value = reading.value;
    RB_GC_GUARD(self);
    return reading.result;
}

NOINLINE(static enum ps_read read_payload(VALUE self, struct unpacker *unpacker, VALUE *value));
NOINLINE(static enum ps_read read_outermost(VALUE self, struct unpacker *unpacker, VALUE *value));

static enum ps_read read_payload(VALUE self, struct unpacker *unpacker, VALUE *value)
{
    VALUE items[PENSTOCK_SMALL_ITEMS];
    struct ps_frame frames[PENSTOCK_SMALL_FRAMES];
    struct penstock_room room = { items, frames, PENSTOCK_SMALL_ITEMS, PENSTOCK_SMALL_FRAMES };
    return read_with(self, unpacker, value, &room);
}

static enum ps_read read_outermost(VALUE self, struct unpacker *unpacker, VALUE *value)
{
    VALUE items[PENSTOCK_ROOM_ITEMS];
    struct ps_frame frames[PENSTOCK_ROOM_FRAMES];
    struct penstock_room room = { items, frames, PENSTOCK_ROOM_ITEMS, PENSTOCK_ROOM_FRAMES };
    return read_with(self, unpacker, value, &room);
}

static enum ps_read read_other(VALUE self, struct unpacker *unpacker, VALUE *value)
{
    return (unpacker->window ? read_payload : read_outermost)(self, unpacker, value);
}

static enum ps_read read_object(VALUE self, struct unpacker *unpacker, VALUE *value)
{
    return read_plain(unpacker, value) ? PS_READ_OK : read_other(self, unpacker, value);
}

static enum ps_read skip_object(VALUE self, struct unpacker *unpacker, VALUE *value)
{
    struct ps_reader reader;
    lock(unpacker, &reader);
    unpacker->kept.items = unpacker->kept.frames = Qfalse;
    enum ps_read result = ps_read_skip(&reader);
    unlock(unpacker, &reader);
    return result;
}

/* Reads the next token without a frame if it is of the kind in `value`. Otherwise the token stays. */
static enum ps_read read_header(VALUE self, struct unpacker *unpacker, VALUE *value)
{
    struct ps_token token;
    struct ps_reader reader;
    lock(unpacker, &reader);
    const uint8_t *began = reader.at;
    enum ps_read result = ps_read_token(&reader, &token);
    bool fits = result == PS_READ_OK && reader.depth == 0 && token.kind == (enum ps_kind)FIX2INT(*value);
    if (!fits) reader.at = began;
    unlock(unpacker, &reader);
    if (result != PS_READ_OK) return result;
    if (!fits)
        penstock_message_pack_raise("UnexpectedTypeError", reader.depth > 0 ? "in the middle of an object" :
                                    FIX2INT(*value) == PS_ARRAY ? "the next object is not an array" :
                                    "the next object is not a map");
    *value = UINT2NUM(token.size);
    return PS_READ_OK;
}

NORETURN(static void ends_early(const struct unpacker *unpacker));

static void ends_early(const struct unpacker *unpacker)
{
    if (unpacker->window) penstock_message_pack_raise("MalformedFormatError", "the payload of an ext type ends within an object");
    penstock_unread(PS_READ_MORE, &unpacker->options);
}

/* Reads from the io. The io's code may ask for the Buffer. */
static bool fill_from_io(VALUE self, struct unpacker *unpacker)
{
    VALUE bytes = penstock_io_read(unpacker->bytes->io, unpacker->bytes->io_size);
    if (NIL_P(bytes)) return false;
    penstock_buffer_put(owner(self, unpacker), unpacker->bytes, bytes);
    return true;
}

/* `result` is that of `step`. Repeats `step` with more bytes of the io as long as it needs more. False: there are no more
 * (yet). */
static bool go_on(VALUE self, struct unpacker *unpacker,
                  enum ps_read (*step)(VALUE self, struct unpacker *unpacker, VALUE *value), VALUE *value, enum ps_read result)
{
    for (; result == PS_READ_MORE; result = step(self, unpacker, value))
        if (!fill_from_io(self, unpacker)) return false;
    if (result == PS_READ_OK) return true;
    forget(unpacker);
    if (result == PS_READ_INVALID) unpacker->bytes->at++; /* so that the next read begins after it */
    penstock_unread(result, &unpacker->options);
}

static bool with_bytes(VALUE self, struct unpacker *unpacker,
                       enum ps_read (*step)(VALUE self, struct unpacker *unpacker, VALUE *value), VALUE *value)
{
    return go_on(self, unpacker, step, value, step(self, unpacker, value));
}

static bool with_more_bytes(VALUE self, struct unpacker *unpacker,
                            enum ps_read (*step)(VALUE self, struct unpacker *unpacker, VALUE *value), VALUE *value)
{
    if (unpacker->reader.skipping > 0 && !with_bytes(self, unpacker, skip_object, value)) return false;
    return with_bytes(self, unpacker, step, value);
}

static void need(bool there, struct unpacker *unpacker)
{
    if (!there) ends_early(unpacker);
}

static VALUE unpacker_read(VALUE self)
{
    VALUE value = Qnil;
    struct unpacker *unpacker = unpacker_get(self);
    if (read_plain(unpacker, &value)) return value;
    if (unpacker->window && !unpacker->reader.skipping) {
        enum ps_read result = read_payload(self, unpacker, &value);
        if (result != PS_READ_OK) need(go_on(self, unpacker, read_payload, &value, result), unpacker);
        return value;
    }
    need(with_more_bytes(self, unpacker, read_other, &value), unpacker);
    return value;
}

static VALUE unpacker_skip(VALUE self)
{
    VALUE value = Qnil;
    struct unpacker *unpacker = unpacker_get(self);
    need(with_bytes(self, unpacker, skip_object, &value), unpacker);
    return Qnil;
}

static enum ps_read look_for_nil(VALUE self, struct unpacker *unpacker, VALUE *value)
{
    struct ps_reader reader;
    lock(unpacker, &reader);
    enum ps_read result = reader.at < reader.end ? PS_READ_OK : PS_READ_MORE;
    bool nil = result == PS_READ_OK && reader.depth == 0 && *reader.at == 0xc0;
    if (nil) reader.at++;
    unlock(unpacker, &reader);
    *value = nil ? Qtrue : Qfalse;
    return result;
}

static VALUE unpacker_skip_nil(VALUE self)
{
    VALUE value = Qnil;
    struct unpacker *unpacker = unpacker_get(self);
    need(with_more_bytes(self, unpacker, look_for_nil, &value), unpacker);
    return value;
}

static VALUE unpacker_read_array_header(VALUE self)
{
    VALUE value = INT2FIX(PS_ARRAY);
    struct unpacker *unpacker = unpacker_get(self);
    need(with_more_bytes(self, unpacker, read_header, &value), unpacker);
    return value;
}

static VALUE unpacker_read_map_header(VALUE self)
{
    VALUE value = INT2FIX(PS_MAP);
    struct unpacker *unpacker = unpacker_get(self);
    need(with_more_bytes(self, unpacker, read_header, &value), unpacker);
    return value;
}

static VALUE unpacker_feed(VALUE self, VALUE data)
{
    StringValue(data);
    struct unpacker *unpacker = unpacker_get(self);
    penstock_buffer_put(owner(self, unpacker), unpacker->bytes, data);
    return self;
}

static VALUE unpacker_each(VALUE self)
{
    VALUE value;
    RETURN_ENUMERATOR(self, 0, 0);
    struct unpacker *unpacker = unpacker_get(self);
    while (with_more_bytes(self, unpacker, read_object, &value)) rb_yield(value);
    bool whole = between_objects(unpacker) && penstock_buffer_size(unpacker->bytes) == 0;
    bool may_go_on = NIL_P(unpacker->bytes->io) && !unpacker->window; /* more may be fed; an io and a payload have ended */
    need(whole || may_go_on, unpacker);
    return Qnil;
}

static VALUE unpacker_feed_each(VALUE self, VALUE data)
{
    RETURN_ENUMERATOR(self, 1, &data);
    unpacker_feed(self, data);
    return unpacker_each(self);
}

/* If another Fiber than this was reading, that Fiber has been abandoned: its read ends, and raises if the Fiber comes back. */
static void abandon(struct unpacker *unpacker)
{
    if (!unpacker->bytes->locked || unpacker->window || unpacker->fiber == rb_fiber_current()) return;
    unpacker->bytes->locked = false;
    unpacker->turns.current = 0;
    unpacker->fiber = Qfalse;
    shut_payloads(unpacker);
    unpacker->payloads = Qfalse;
}

static VALUE unpacker_reset(VALUE self)
{
    struct unpacker *unpacker = unpacker_get(self);
    abandon(unpacker);
    penstock_buffer_clear(unpacker->bytes);
    forget(unpacker);
    return Qnil;
}

VALUE penstock_unpacker_full(VALUE self)
{
    VALUE value = unpacker_read(self);
    size_t extra = penstock_buffer_size(unpacker_get(self)->bytes);
    if (extra > 0) penstock_message_pack_raise("MalformedFormatError", "invalid data: %zu extra bytes after the object", extra);
    unpacker_reset(self);
    return value;
}

/* ---- attributes ---- */

static VALUE unpacker_buffer(VALUE self)
{
    struct unpacker *unpacker = unpacker_get(self);
    if (!unpacker->buffer) {
        RB_OBJ_WRITE(self, &unpacker->buffer, penstock_buffer_wrap(&unpacker->own));
        unpacker->bytes = penstock_buffer_get(unpacker->buffer);
    }
    return unpacker->buffer;
}

static VALUE unpacker_symbolize_keys_p(VALUE self)
{
    return unpacker_get(self)->options.symbolize_keys ? Qtrue : Qfalse;
}

static VALUE unpacker_freeze_p(VALUE self)
{
    return unpacker_get(self)->options.freeze ? Qtrue : Qfalse;
}

static VALUE unpacker_allow_unknown_ext_p(VALUE self)
{
    return unpacker_get(self)->options.allow_unknown_ext ? Qtrue : Qfalse;
}

static VALUE unpacker_registry(VALUE self)
{
    return unpacker_get(self)->registry;
}

static VALUE unpacker_registry_set(VALUE self, VALUE registry)
{
    struct unpacker *unpacker = unpacker_get(self);
    penstock_registry_get(registry);
    rb_check_frozen(self);
    penstock_buffer_check(unpacker->bytes);
    RB_OBJ_WRITE(self, &unpacker->registry, registry);
    return registry;
}

void penstock_unpacker_init(void)
{
    unpacker_class = rb_define_class_under(penstock_message_pack, "Unpacker", rb_cObject);
    rb_gc_register_mark_object(unpacker_class);
    rb_define_alloc_func(unpacker_class, unpacker_allocate);
    rb_undef_method(unpacker_class, "initialize_copy");
    rb_define_method(unpacker_class, "initialize", unpacker_initialize, -1);
    rb_define_method(unpacker_class, "feed", unpacker_feed, 1);
    rb_define_method(unpacker_class, "feed_reference", unpacker_feed, 1);
    rb_define_method(unpacker_class, "read", unpacker_read, 0);
    rb_define_method(unpacker_class, "unpack", unpacker_read, 0);
    rb_define_method(unpacker_class, "skip", unpacker_skip, 0);
    rb_define_method(unpacker_class, "skip_nil", unpacker_skip_nil, 0);
    rb_define_method(unpacker_class, "read_array_header", unpacker_read_array_header, 0);
    rb_define_method(unpacker_class, "read_map_header", unpacker_read_map_header, 0);
    rb_define_method(unpacker_class, "each", unpacker_each, 0);
    rb_define_method(unpacker_class, "feed_each", unpacker_feed_each, 1);
    rb_define_method(unpacker_class, "full_unpack", penstock_unpacker_full, 0);
    rb_define_method(unpacker_class, "reset", unpacker_reset, 0);
    rb_define_method(unpacker_class, "buffer", unpacker_buffer, 0);
    rb_define_method(unpacker_class, "symbolize_keys?", unpacker_symbolize_keys_p, 0);
    rb_define_method(unpacker_class, "freeze?", unpacker_freeze_p, 0);
    rb_define_method(unpacker_class, "allow_unknown_ext?", unpacker_allow_unknown_ext_p, 0);
    rb_define_private_method(unpacker_class, "registry", unpacker_registry, 0);
    rb_define_private_method(unpacker_class, "registry=", unpacker_registry_set, 1);
}
