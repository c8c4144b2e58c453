/*
 * Penstock::MessagePack::Unpacker: reads objects from bytes that arrive piece by piece, or from an io. One thread's at a time. An
 * object whose bytes end too early is kept as far as it got, and goes on when more have been fed.
 */
#include "message_pack.h"

struct unpacker {
    VALUE buffer;
    struct penstock_buffer *bytes; /* its */
    VALUE registry;
    struct penstock_mp_options options;
    struct ps_reader reader; /* as it stands between two calls: its bytes and frames are set anew for each */
    VALUE *kept;             /* values of an object that is not whole yet */
    size_t kept_count;
    struct ps_frame *frames; /* its */
};

static VALUE unpacker_class;

static void unpacker_mark(void *data)
{
    struct unpacker *unpacker = data;
    rb_gc_mark_movable(unpacker->buffer);
    rb_gc_mark_movable(unpacker->registry);
    for (size_t i = 0; i < unpacker->kept_count; i++) rb_gc_mark_movable(unpacker->kept[i]);
}

static void unpacker_compact(void *data)
{
    struct unpacker *unpacker = data;
    unpacker->buffer = rb_gc_location(unpacker->buffer);
    unpacker->registry = rb_gc_location(unpacker->registry);
    for (size_t i = 0; i < unpacker->kept_count; i++) unpacker->kept[i] = rb_gc_location(unpacker->kept[i]);
}

static void unpacker_free(void *data)
{
    struct unpacker *unpacker = data;
    xfree(unpacker->frames);
    xfree(unpacker->kept);
    xfree(unpacker);
}

static size_t unpacker_size(const void *data)
{
    const struct unpacker *unpacker = data;
    return sizeof(*unpacker) + unpacker->reader.depth * sizeof(struct ps_frame) + unpacker->kept_count * sizeof(VALUE);
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
    struct unpacker *unpacker = rb_check_typeddata(self, &unpacker_type);
    if (!unpacker->bytes) rb_raise(rb_eArgError, "the Unpacker has not been initialized");
    return unpacker;
}

static VALUE unpacker_allocate(VALUE klass)
{
    struct unpacker *unpacker;
    VALUE self = TypedData_Make_Struct(klass, struct unpacker, &unpacker_type, unpacker);
    unpacker->buffer = unpacker->registry = Qnil;
    return self;
}

static void set_up(VALUE self, VALUE io, VALUE registry, const struct penstock_mp_options *options)
{
    struct unpacker *unpacker = rb_check_typeddata(self, &unpacker_type);
    if (unpacker->bytes) rb_raise(rb_eRuntimeError, "an Unpacker is initialized once"); /* its buffer may be in use */
    penstock_registry_get(registry);
    unpacker->options = *options;
    RB_OBJ_WRITE(self, &unpacker->registry, registry);
    RB_OBJ_WRITE(self, &unpacker->buffer, penstock_buffer_new(io, options->io_buffer_size));
    unpacker->bytes = penstock_buffer_get(unpacker->buffer);
}

VALUE penstock_unpacker_new(VALUE io, VALUE registry, const struct penstock_mp_options *options)
{
    VALUE self = unpacker_allocate(unpacker_class);
    set_up(self, io, registry, options);
    return self;
}

VALUE penstock_unpacker_over(VALUE payload, VALUE registry, const struct penstock_mp_options *options, uint32_t depth)
{
    struct penstock_mp_options deeper = *options;
    if (depth >= deeper.max_depth) penstock_unread(PS_READ_TOO_DEEP, options);
    deeper.max_depth -= depth + 1; /* it is a level itself */
    VALUE self = penstock_unpacker_new(Qnil, registry, &deeper);
    penstock_buffer_append(unpacker_get(self)->buffer, payload);
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

/* ---- an object that is not whole yet ---- */

static void forget(struct unpacker *unpacker)
{
    ps_read_reset(&unpacker->reader);
    unpacker->kept_count = 0;
}

static void keep(VALUE self, struct unpacker *unpacker, const struct penstock_building *building)
{
    uint32_t depth = building->reader.depth;
    unpacker->kept_count = 0; /* while memory is made */
    if (depth == 0) return;
    REALLOC_N(unpacker->frames, struct ps_frame, depth);
    memcpy(unpacker->frames, building->reader.frames, depth * sizeof(struct ps_frame));
    REALLOC_N(unpacker->kept, VALUE, building->size);
    for (size_t i = 0; i < building->size; i++) {
        unpacker->kept[i] = building->items[i];
        unpacker->kept_count = i + 1;
        RB_OBJ_WRITTEN(self, Qundef, building->items[i]);
    }
}

/* ---- reading ---- */

/* The bytes stay where they are until `unlock`. */
static struct ps_reader lock(struct unpacker *unpacker)
{
    struct penstock_buffer *bytes = unpacker->bytes;
    struct ps_reader reader = unpacker->reader;
    penstock_buffer_check(bytes);
    bytes->locked = true;
    reader.at = (const uint8_t *)bytes->writer.data + bytes->at;
    reader.end = reader.at + penstock_buffer_size(bytes);
    reader.max_bytes = unpacker->options.max_bytes;
    reader.max_elements = unpacker->options.max_elements;
    return reader;
}

static void unlock(struct unpacker *unpacker, const struct ps_reader *reader)
{
    struct penstock_buffer *bytes = unpacker->bytes;
    unpacker->reader = *reader;
    bytes->locked = false;
    bytes->at = bytes->writer.size - (size_t)(reader->end - reader->at);
    if (reader->at == reader->end) penstock_buffer_clear(bytes);
}

struct reading {
    VALUE self, value;
    struct unpacker *unpacker;
    struct penstock_building *building;
    enum ps_read result;
    bool kept;
};

static VALUE read_it(VALUE arg)
{
    struct reading *reading = (struct reading *)arg;
    struct unpacker *unpacker = reading->unpacker;
    penstock_build_restore(reading->building, unpacker->kept, unpacker->kept_count, unpacker->frames);
    reading->result = penstock_build(reading->building, &reading->value);
    if (reading->result == PS_READ_OK || reading->result == PS_READ_MORE) {
        keep(reading->self, unpacker, reading->building);
        reading->kept = true;
    }
    penstock_build_end(reading->building);
    return Qnil;
}

static VALUE read_ended(VALUE arg)
{
    struct reading *reading = (struct reading *)arg;
    if (!penstock_build_turn(reading->building)) return Qnil;
    unlock(reading->unpacker, &reading->building->reader);
    if (!reading->kept) forget(reading->unpacker);
    return Qnil;
}

static enum ps_read read_object(VALUE self, struct unpacker *unpacker, VALUE *value)
{
    struct penstock_building building;
    struct reading reading = { .self = self, .value = Qnil, .unpacker = unpacker, .building = &building };
    penstock_build_begin(&building, lock(unpacker), &unpacker->options, unpacker->registry);
    rb_ensure(read_it, (VALUE)&reading, read_ended, (VALUE)&reading);
    *value = reading.value;
    return reading.result;
}

static enum ps_read skip_object(VALUE self, struct unpacker *unpacker, VALUE *value)
{
    struct ps_reader reader = lock(unpacker);
    unpacker->kept_count = 0;
    enum ps_read result = ps_read_skip(&reader);
    unlock(unpacker, &reader);
    return result;
}

static enum ps_read finish_skipping(VALUE self, struct unpacker *unpacker, VALUE *value)
{
    return unpacker->reader.skipping > 0 ? skip_object(self, unpacker, value) : PS_READ_OK;
}

/* The next token without its frame, if it is of the kind that is asked for (in `value`), else it stays. */
static enum ps_read read_header(VALUE self, struct unpacker *unpacker, VALUE *value)
{
    struct ps_token token;
    struct ps_reader reader = lock(unpacker);
    const uint8_t *began = reader.at;
    enum ps_read result = ps_read_token(&reader, &token);
    bool fits = result == PS_READ_OK && reader.depth == 0 && token.kind == (enum ps_kind)FIX2INT(*value);
    if (!fits) reader.at = began;
    unlock(unpacker, &reader);
    if (result != PS_READ_OK) return result;
    if (!fits)
        penstock_message_pack_raise("UnexpectedTypeError", reader.depth > 0 ? "in the middle of an object" :
                                    FIX2INT(*value) == PS_ARRAY ? "the next object is no array" : "the next object is no map");
    *value = UINT2NUM(token.size);
    return PS_READ_OK;
}

/* Does one of the above with as many bytes as it takes. False: they are not there (yet). */
static bool with_bytes(VALUE self, enum ps_read (*step)(VALUE self, struct unpacker *unpacker, VALUE *value), VALUE *value)
{
    struct unpacker *unpacker = unpacker_get(self);
    enum ps_read result;
    while ((result = step(self, unpacker, value)) == PS_READ_MORE)
        if (!penstock_buffer_fill(unpacker->buffer)) return false;
    if (result == PS_READ_OK) return true;
    forget(unpacker);
    if (result == PS_READ_INVALID) unpacker->bytes->at++; /* so that who goes on after it does not meet it for ever */
    penstock_unread(result, &unpacker->options);
}

static bool try(VALUE self, enum ps_read (*step)(VALUE self, struct unpacker *unpacker, VALUE *value), VALUE *value)
{
    return with_bytes(self, finish_skipping, value) && with_bytes(self, step, value);
}

static void need(bool there, struct unpacker *unpacker)
{
    if (!there) penstock_unread(PS_READ_MORE, &unpacker->options);
}

static VALUE unpacker_read(VALUE self)
{
    VALUE value = Qnil;
    need(try(self, read_object, &value), unpacker_get(self));
    return value;
}

static VALUE unpacker_skip(VALUE self)
{
    VALUE value = Qnil;
    need(with_bytes(self, skip_object, &value), unpacker_get(self));
    return Qnil;
}

static enum ps_read look_for_nil(VALUE self, struct unpacker *unpacker, VALUE *value)
{
    struct ps_reader reader = lock(unpacker);
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
    need(try(self, look_for_nil, &value), unpacker_get(self));
    return value;
}

static VALUE unpacker_read_array_header(VALUE self)
{
    VALUE value = INT2FIX(PS_ARRAY);
    need(try(self, read_header, &value), unpacker_get(self));
    return value;
}

static VALUE unpacker_read_map_header(VALUE self)
{
    VALUE value = INT2FIX(PS_MAP);
    need(try(self, read_header, &value), unpacker_get(self));
    return value;
}

static VALUE unpacker_feed(VALUE self, VALUE data)
{
    StringValue(data);
    penstock_buffer_append(unpacker_get(self)->buffer, data);
    return self;
}

static VALUE unpacker_each(VALUE self)
{
    VALUE value;
    RETURN_ENUMERATOR(self, 0, 0);
    while (try(self, read_object, &value)) rb_yield(value);
    struct unpacker *unpacker = unpacker_get(self);
    bool whole = unpacker->reader.depth == 0 && unpacker->reader.skipping == 0 && penstock_buffer_size(unpacker->bytes) == 0;
    need(whole || NIL_P(unpacker->bytes->io), unpacker); /* what is fed may go on; an io has ended */
    return Qnil;
}

static VALUE unpacker_feed_each(VALUE self, VALUE data)
{
    RETURN_ENUMERATOR(self, 1, &data);
    unpacker_feed(self, data);
    return unpacker_each(self);
}

static VALUE unpacker_reset(VALUE self)
{
    struct unpacker *unpacker = unpacker_get(self);
    penstock_buffer_clear(unpacker->bytes);
    forget(unpacker);
    return Qnil;
}

VALUE penstock_unpacker_full(VALUE self)
{
    VALUE value = unpacker_read(self);
    size_t extra = penstock_buffer_size(unpacker_get(self)->bytes);
    if (extra > 0) penstock_message_pack_raise("MalformedFormatError", "%zu extra bytes after the object", extra);
    unpacker_reset(self);
    return value;
}

/* ---- what it is like ---- */

static VALUE unpacker_buffer(VALUE self)
{
    return unpacker_get(self)->buffer;
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
