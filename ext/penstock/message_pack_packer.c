/*
 * Penstock::MessagePack::Packer: packs one object after the other into its Buffer. One thread's at a time; an object's own
 * to_msgpack(packer) may use it in the middle of another object. A write that raises leaves nothing of itself behind.
 */
#include "message_pack.h"

struct packer {
    VALUE buffer;
    struct penstock_buffer *bytes; /* its */
    VALUE registry;
    struct penstock_mp_options options;
    uint32_t depth; /* of what is being packed */
};

static VALUE packer_class;

static void packer_mark(void *data)
{
    struct packer *packer = data;
    rb_gc_mark_movable(packer->buffer);
    rb_gc_mark_movable(packer->registry);
}

static void packer_compact(void *data)
{
    struct packer *packer = data;
    packer->buffer = rb_gc_location(packer->buffer);
    packer->registry = rb_gc_location(packer->registry);
}

static size_t packer_size(const void *data)
{
    return sizeof(struct packer);
}

static const rb_data_type_t packer_type = {
    .wrap_struct_name = "Penstock::MessagePack::Packer",
    .function = {
        .dmark = packer_mark,
        .dfree = RUBY_TYPED_DEFAULT_FREE,
        .dsize = packer_size,
        .dcompact = packer_compact,
    },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static struct packer *packer_get(VALUE self)
{
    struct packer *packer = rb_check_typeddata(self, &packer_type);
    if (!packer->bytes) rb_raise(rb_eArgError, "the Packer has not been initialized");
    return packer;
}

static VALUE packer_allocate(VALUE klass)
{
    struct packer *packer;
    VALUE self = TypedData_Make_Struct(klass, struct packer, &packer_type, packer);
    packer->buffer = packer->registry = Qnil;
    return self;
}

static void set_up(VALUE self, VALUE io, VALUE registry, struct penstock_mp_options options)
{
    struct packer *packer = rb_check_typeddata(self, &packer_type);
    if (packer->bytes) rb_raise(rb_eRuntimeError, "a Packer is initialized once"); /* its buffer may be in use */
    penstock_registry_get(registry);
    RB_OBJ_WRITE(self, &packer->registry, registry);
    RB_OBJ_WRITE(self, &packer->buffer, penstock_buffer_new(io, options.io_buffer_size));
    packer->bytes = penstock_buffer_get(packer->buffer);
    packer->options = options;
}

VALUE penstock_packer_new(VALUE registry, struct penstock_mp_options options, uint32_t depth)
{
    VALUE self = packer_allocate(packer_class);
    set_up(self, Qnil, registry, options);
    penstock_packer_depth(self, depth);
    return self;
}

void penstock_packer_bytes(VALUE self, const char **bytes, size_t *size)
{
    const struct penstock_buffer *buffer = packer_get(self)->bytes;
    *bytes = buffer->writer.data + buffer->at;
    *size = penstock_buffer_size(buffer);
}

uint64_t penstock_packer_written(VALUE self)
{
    const struct penstock_buffer *buffer = packer_get(self)->bytes;
    return buffer->gone + penstock_buffer_size(buffer);
}

void penstock_packer_depth(VALUE self, uint32_t depth)
{
    packer_get(self)->depth = depth;
}

static VALUE packer_initialize(int argc, VALUE *argv, VALUE self)
{
    VALUE io, options, registry = penstock_empty_registry;
    if (argc > 0 && rb_typeddata_is_kind_of(argv[0], RTYPEDDATA_TYPE(penstock_empty_registry))) { /* a Factory's */
        registry = *argv++;
        argc--;
    }
    penstock_io_and_options(argc, argv, &io, &options);
    set_up(self, io, registry, penstock_mp_options(options, PENSTOCK_MP_PACK | PENSTOCK_MP_BUFFER));
    return self;
}

/* ---- writing ---- */

struct writing {
    struct packer *packer;
    void (*write)(struct penstock_packing *packing, VALUE object);
    VALUE self, object;
    uint64_t began; /* after so many bytes of all that there were in the buffer */
    uint32_t depth;
    bool done;
};

static VALUE write_it(VALUE arg)
{
    struct writing *writing = (struct writing *)arg;
    struct packer *packer = writing->packer;
    struct penstock_packing packing = {
        .writer = &packer->bytes->writer,
        .registry_value = packer->registry,
        .registry = penstock_registry_get(packer->registry),
        .options = packer->options,
        .depth = packer->depth,
        .packer = writing->self,
    };
    writing->write(&packing, writing->object);
    writing->done = true;
    RB_GC_GUARD(packing.registry_value);
    return Qnil;
}

static VALUE take_back(VALUE arg)
{
    struct writing *writing = (struct writing *)arg;
    struct penstock_buffer *bytes = writing->packer->bytes;
    writing->packer->depth = writing->depth;
    if (writing->done) return Qnil;
    uint64_t before = writing->began > bytes->gone ? writing->began - bytes->gone : 0; /* bytes of others that are there still */
    if (before < penstock_buffer_size(bytes)) bytes->writer.size = bytes->at + (size_t)before;
    return Qnil;
}

static VALUE written(VALUE self, const struct packer *packer)
{
    if (!NIL_P(packer->bytes->io) && packer->depth == 0 && penstock_buffer_size(packer->bytes) >= packer->bytes->io_size)
        penstock_buffer_flush(packer->buffer);
    return self;
}

static VALUE write_with(VALUE self, void (*write)(struct penstock_packing *packing, VALUE object), VALUE object)
{
    struct packer *packer = packer_get(self);
    struct writing writing = {
        .packer = packer,
        .write = write,
        .self = self,
        .object = object,
        .began = packer->bytes->gone + penstock_buffer_size(packer->bytes),
        .depth = packer->depth,
    };
    rb_ensure(write_it, (VALUE)&writing, take_back, (VALUE)&writing);
    return written(self, packer);
}

static VALUE packer_write(VALUE self, VALUE object)
{
    return write_with(self, penstock_pack, object);
}

static struct ps_writer *writer_of(VALUE self)
{
    return &packer_get(self)->bytes->writer;
}

static VALUE packer_write_nil(VALUE self)
{
    ps_write_nil(writer_of(self));
    return written(self, packer_get(self));
}

static VALUE packer_write_true(VALUE self)
{
    ps_write_bool(writer_of(self), true);
    return written(self, packer_get(self));
}

static VALUE packer_write_false(VALUE self)
{
    ps_write_bool(writer_of(self), false);
    return written(self, packer_get(self));
}

static void check(VALUE object, VALUE klass)
{
    if (RTEST(rb_obj_is_kind_of(object, klass))) return;
    rb_raise(rb_eTypeError, "wrong argument type %" PRIsVALUE " (expected %" PRIsVALUE ")", rb_obj_class(object), klass);
}

static double to_double(VALUE number)
{
    check(number, rb_cNumeric);
    return NUM2DBL(number);
}

static VALUE packer_write_float(VALUE self, VALUE number)
{
    double value = to_double(number);
    ps_write_double(writer_of(self), value);
    return written(self, packer_get(self));
}

static VALUE packer_write_float32(VALUE self, VALUE number)
{
    double value = to_double(number);
    ps_write_float(writer_of(self), (float)value);
    return written(self, packer_get(self));
}

static VALUE packer_write_int(VALUE self, VALUE integer)
{
    return write_with(self, penstock_pack_integer, integer);
}

static VALUE packer_write_string(VALUE self, VALUE string)
{
    Check_Type(string, T_STRING);
    return write_with(self, penstock_pack_string, string);
}

static VALUE packer_write_bin(VALUE self, VALUE string)
{
    Check_Type(string, T_STRING);
    return write_with(self, penstock_pack_bin, string);
}

static VALUE packer_write_symbol(VALUE self, VALUE symbol)
{
    Check_Type(symbol, T_SYMBOL);
    return write_with(self, penstock_pack_symbol, symbol);
}

static VALUE packer_write_array(VALUE self, VALUE array)
{
    Check_Type(array, T_ARRAY);
    return write_with(self, penstock_pack_array, array);
}

static VALUE packer_write_hash(VALUE self, VALUE hash)
{
    Check_Type(hash, T_HASH);
    return write_with(self, penstock_pack_hash, hash);
}

static void pack_extension(struct penstock_packing *packing, VALUE extension)
{
    penstock_pack_ext(packing, rb_struct_aref(extension, INT2FIX(0)), rb_struct_aref(extension, INT2FIX(1)));
}

static VALUE packer_write_extension(VALUE self, VALUE extension)
{
    check(extension, penstock_extension_value);
    return write_with(self, pack_extension, extension);
}

static VALUE packer_write_ext(VALUE self, VALUE type, VALUE payload)
{
    return packer_write_extension(self, rb_struct_new(penstock_extension_value, type, payload));
}

static uint32_t header_count(VALUE number)
{
    check(number, rb_cInteger);
    if (FIXNUM_P(number) && FIX2LONG(number) < 0)
        rb_raise(rb_eRangeError, "a header's count is not negative: %" PRIsVALUE, number);
    return NUM2UINT(number);
}

static VALUE packer_write_array_header(VALUE self, VALUE number)
{
    uint32_t count = header_count(number);
    ps_write_array_header(writer_of(self), count);
    return written(self, packer_get(self));
}

static VALUE packer_write_map_header(VALUE self, VALUE number)
{
    uint32_t count = header_count(number);
    ps_write_map_header(writer_of(self), count);
    return written(self, packer_get(self));
}

static VALUE packer_write_bin_header(VALUE self, VALUE number)
{
    uint32_t count = header_count(number);
    ps_write_bin_header(writer_of(self), count);
    return written(self, packer_get(self));
}

/* ---- what was written ---- */

static VALUE packer_flush(VALUE self)
{
    penstock_buffer_flush(packer_get(self)->buffer);
    return self;
}

static VALUE packer_reset(VALUE self)
{
    penstock_buffer_clear(packer_get(self)->bytes);
    return Qnil;
}

static VALUE packer_length(VALUE self)
{
    return SIZET2NUM(penstock_buffer_size(packer_get(self)->bytes));
}

static VALUE packer_empty_p(VALUE self)
{
    return penstock_buffer_size(packer_get(self)->bytes) == 0 ? Qtrue : Qfalse;
}

static VALUE packer_to_s(VALUE self)
{
    return penstock_buffer_to_s(packer_get(self)->bytes);
}

static VALUE packer_to_a(VALUE self)
{
    return rb_ary_new_from_args(1, packer_to_s(self));
}

static VALUE packer_full_pack(VALUE self)
{
    struct packer *packer = packer_get(self);
    if (!NIL_P(packer->bytes->io)) {
        penstock_buffer_flush(packer->buffer); /* what the io adds meanwhile stays */
        return Qnil;
    }
    VALUE packed = packer_to_s(self);
    penstock_buffer_clear(packer->bytes);
    return packed;
}

static VALUE packer_write_to(VALUE self, VALUE io)
{
    return penstock_buffer_give(packer_get(self)->buffer, io);
}

static VALUE packer_buffer(VALUE self)
{
    return packer_get(self)->buffer;
}

static VALUE packer_compatibility_mode_p(VALUE self)
{
    return packer_get(self)->options.compatibility_mode ? Qtrue : Qfalse;
}

static VALUE packer_registry(VALUE self)
{
    return packer_get(self)->registry;
}

static VALUE packer_registry_set(VALUE self, VALUE registry)
{
    penstock_registry_get(registry);
    rb_check_frozen(self);
    RB_OBJ_WRITE(self, &packer_get(self)->registry, registry);
    return registry;
}

void penstock_packer_init(void)
{
    packer_class = rb_define_class_under(penstock_message_pack, "Packer", rb_cObject);
    rb_gc_register_mark_object(packer_class);
    rb_define_alloc_func(packer_class, packer_allocate);
    rb_undef_method(packer_class, "initialize_copy");
    rb_define_method(packer_class, "initialize", packer_initialize, -1);
    rb_define_method(packer_class, "write", packer_write, 1);
    rb_define_method(packer_class, "pack", packer_write, 1);
    rb_define_method(packer_class, "write_nil", packer_write_nil, 0);
    rb_define_method(packer_class, "write_true", packer_write_true, 0);
    rb_define_method(packer_class, "write_false", packer_write_false, 0);
    rb_define_method(packer_class, "write_float", packer_write_float, 1);
    rb_define_method(packer_class, "write_float32", packer_write_float32, 1);
    rb_define_method(packer_class, "write_int", packer_write_int, 1);
    rb_define_method(packer_class, "write_string", packer_write_string, 1);
    rb_define_method(packer_class, "write_bin", packer_write_bin, 1);
    rb_define_method(packer_class, "write_symbol", packer_write_symbol, 1);
    rb_define_method(packer_class, "write_array", packer_write_array, 1);
    rb_define_method(packer_class, "write_hash", packer_write_hash, 1);
    rb_define_method(packer_class, "write_extension", packer_write_extension, 1);
    rb_define_method(packer_class, "write_ext", packer_write_ext, 2);
    rb_define_method(packer_class, "write_array_header", packer_write_array_header, 1);
    rb_define_method(packer_class, "write_map_header", packer_write_map_header, 1);
    rb_define_method(packer_class, "write_bin_header", packer_write_bin_header, 1);
    rb_define_method(packer_class, "flush", packer_flush, 0);
    rb_define_method(packer_class, "reset", packer_reset, 0);
    rb_define_method(packer_class, "clear", packer_reset, 0);
    rb_define_method(packer_class, "size", packer_length, 0);
    rb_define_method(packer_class, "empty?", packer_empty_p, 0);
    rb_define_method(packer_class, "to_s", packer_to_s, 0);
    rb_define_method(packer_class, "to_str", packer_to_s, 0);
    rb_define_method(packer_class, "to_a", packer_to_a, 0);
    rb_define_method(packer_class, "full_pack", packer_full_pack, 0);
    rb_define_method(packer_class, "write_to", packer_write_to, 1);
    rb_define_method(packer_class, "buffer", packer_buffer, 0);
    rb_define_method(packer_class, "compatibility_mode?", packer_compatibility_mode_p, 0);
    rb_define_private_method(packer_class, "registry", packer_registry, 0);
    rb_define_private_method(packer_class, "registry=", packer_registry_set, 1);
}
