/*
 * Penstock::MessagePack::Packer: packs one object after the other into its Buffer. One thread at a time may use it. An object's
 * own to_msgpack(packer) may use it while another object is being packed. A write that raises leaves no bytes behind. The Packer
 * makes the Buffer's Ruby object only if the program asks for it, or if there is an io.
 */
#include "message_pack/message_pack.h"

static VALUE packer_class;

static void packer_mark(void *data)
{
    struct penstock_packer *packer = data;
    rb_gc_mark_movable(packer->buffer);
    rb_gc_mark_movable(packer->registry);
    /* M:pack_classes_pinned */
    for (int i = 0; i < PENSTOCK_FOUND; i++) rb_gc_mark(packer->own_classes[i]); /* not movable: compared by address */
}

static void packer_compact(void *data)
{
    struct penstock_packer *packer = data;
    packer->buffer = rb_gc_location(packer->buffer);
    packer->registry = rb_gc_location(packer->registry);
}

static void packer_free(void *data)
{
    struct penstock_packer *packer = data;
    penstock_buffer_release(&packer->own);
    xfree(packer);
}

static size_t packer_size(const void *data)
{
    const struct penstock_packer *packer = data;
    return sizeof(*packer) + (packer->own.first ? 0 : packer->own.writer.capacity);
}

static const rb_data_type_t packer_type = {
    .wrap_struct_name = "Penstock::MessagePack::Packer",
    .function = {
        .dmark = packer_mark,
        .dfree = packer_free,
        .dsize = packer_size,
        .dcompact = packer_compact,
    },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

NORETURN(static void not_usable(const struct penstock_packer *packer));

static void not_usable(const struct penstock_packer *packer)
{
    if (packer && packer->types)
        rb_raise(rb_eArgError, "the Packer is in its Pool again: use it only within the block that `pool.packer` calls with it");
    rb_raise(rb_eArgError, "the Packer has not been initialized");
}

static struct penstock_packer *packer_get(VALUE self)
{
    struct penstock_packer *packer = RTYPEDDATA_DATA(self); /* unchecked: only a Packer has these methods */
    if (!packer || !packer->bytes) not_usable(packer); /* M:packer_initialized */
    penstock_buffer_settle(packer->bytes);
    return packer;
}

static VALUE packer_allocate(VALUE klass)
{
    struct penstock_packer *packer = xmalloc(sizeof(*packer));
    memset(packer, 0, offsetof(struct penstock_packer, first));
    packer->buffer = packer->registry = Qnil;
    packer->own = penstock_buffer_empty();
    return TypedData_Wrap_Struct(klass, &packer_type, packer);
}

static void use_first_memory(struct penstock_packer *packer)
{
    packer->own.writer.data = packer->first;
    packer->own.writer.capacity = sizeof(packer->first);
    packer->own.first = true;
}

static void set_up(VALUE self, struct penstock_packer *packer, VALUE io, VALUE registry,
                   const struct penstock_mp_options *options)
{
    packer->options = *options;
    packer->types = penstock_registry_get(registry);
    RB_OBJ_WRITE(self, &packer->registry, registry);
    if (NIL_P(io)) {
        use_first_memory(packer);
        packer->own.io_size = options->io_buffer_size;
        packer->bytes = &packer->own;
    } else {
        RB_OBJ_WRITE(self, &packer->buffer, penstock_buffer_new(io, options->io_buffer_size));
        packer->bytes = penstock_buffer_get(packer->buffer);
    }
}

/* The first call moves what was written into a new Buffer. Most Packers never need one. */
static VALUE buffer_of(VALUE self, struct penstock_packer *packer)
{
    if (NIL_P(packer->buffer)) {
        RB_OBJ_WRITE(self, &packer->buffer, penstock_buffer_wrap(&packer->own));
        packer->bytes = penstock_buffer_get(packer->buffer);
    }
    return packer->buffer;
}

VALUE penstock_packer_new(VALUE registry, const struct penstock_mp_options *options, struct penstock_packer **packer)
{
    VALUE self = packer_allocate(packer_class);
    *packer = RTYPEDDATA_DATA(self);
    set_up(self, *packer, Qnil, registry, options);
    return self;
}

VALUE penstock_packer_take(struct penstock_packer *packer)
{
    VALUE bytes = penstock_buffer_to_s(packer->bytes);
    penstock_buffer_clear(packer->bytes);
    penstock_buffer_release(packer->bytes);
    return bytes;
}

static VALUE initialize(int argc, const VALUE *argv, VALUE self, VALUE registry)
{
    struct penstock_packer *packer = penstock_data(self, &packer_type);
    VALUE io, given;
    penstock_io_and_options(argc, argv, &io, &given);
    struct penstock_mp_options options = penstock_mp_options(given, PENSTOCK_MP_PACK | PENSTOCK_MP_BUFFER);
    if (packer->bytes) rb_raise(rb_eRuntimeError, "a Packer is initialized once"); /* its buffer may be in use */
    set_up(self, packer, io, registry, &options);
    return self;
}

static VALUE packer_initialize(int argc, VALUE *argv, VALUE self)
{
    return initialize(argc, argv, self, penstock_empty_registry);
}

static VALUE registry_packer(int argc, VALUE *argv, VALUE registry)
{
    return initialize(argc, argv, packer_allocate(packer_class), registry);
}

/* ---- for a Pool ---- */

/* A Pool lends a Packer to one block after the other. In between, `bytes` is NULL, so all methods raise. */
static VALUE registry_lend(RB_UNUSED_VAR(VALUE registry), VALUE self)
{
    struct penstock_packer *packer = penstock_data(self, &packer_type);
    packer->bytes = &packer->own;
    return self;
}

enum { KEPT = 16 * 1024 }; /* bytes of memory that a Packer keeps in its Pool */

/*
 * False: the Pool must not lend the Packer again, and the Packer stays usable for code that has kept it. The reasons: it is
 * frozen; it has a Buffer, which the block may have kept; it has types of its own; it is in the Pool already (a continuation came
 * back); or its writes called user code. In the last case a Fiber or thread may still be in the middle of such a write, and would
 * go on writing after the Pool has lent the Packer to another block.
 */
static VALUE registry_take_back(VALUE registry, VALUE self)
{
    struct penstock_packer *packer = penstock_data(self, &packer_type);
    if (packer->bytes != &packer->own || packer->registry != registry || packer->turns > 0 || OBJ_FROZEN(self)) return Qfalse;
    penstock_buffer_settle(&packer->own);
    if (packer->own.writer.capacity > KEPT) {
        penstock_buffer_release(&packer->own);
        use_first_memory(packer);
    }
    penstock_buffer_clear(&packer->own);
    packer->bytes = NULL;
    return Qtrue;
}

/* ---- writing ---- */

struct writing {
    struct penstock_packing packing; /* first */
    void (*write)(struct penstock_packing *packing, VALUE object);
    VALUE object;
    uint64_t began; /* the total of bytes written before it */
    uint64_t turn;  /* of the user code that makes this write; 0: none */
    uint32_t depth;
    bool done;
};

static inline void begin(struct penstock_packing *packing, VALUE self, struct penstock_packer *packer)
{
    packing->writer = &packer->bytes->writer;
    packing->registry = packer->types;
    packing->registry_value = packer->registry;
    packing->options = &packer->options;
    packing->depth = packer->depth;
    packing->looked = packing->unprotected = false;
    packing->calls = 0;
    packing->guard_from = PENSTOCK_GUARD_FROM;
    packing->packer_value = self;
    packing->packer = packer;
    packing->long_strings = NULL;
    packing->payloads = 0;
}

static VALUE write_it(VALUE arg)
{
    struct writing *writing = (struct writing *)arg;
    writing->write(&writing->packing, writing->object);
    writing->done = true;
    return Qnil;
}

/* Removes what a failed write has written, and restores the state around it. */
static VALUE take_back(VALUE arg)
{
    struct writing *writing = (struct writing *)arg;
    struct penstock_packer *packer = writing->packing.packer;
    struct penstock_buffer *bytes = packer->bytes;
    packer->depth = writing->depth;
    if (writing->done) return Qnil;
    packer->turn = writing->turn;
    if (writing->packing.payloads > 0 && bytes->base > 0) penstock_pack_outer(bytes, &writing->packing.outer);
    penstock_buffer_take_back(bytes, writing->began); /* M:pack_failed_write_undone */
    return Qnil;
}

static void protect(struct writing *writing, void (*write)(struct penstock_packing *packing, VALUE object), VALUE object)
{
    writing->write = write;
    writing->object = object;
    writing->done = false;
    rb_ensure(write_it, (VALUE)writing, take_back, (VALUE)writing);
}

void penstock_packer_protect(struct penstock_packing *packing, void (*write)(struct penstock_packing *packing, VALUE object),
                             VALUE object)
{
    struct penstock_packer *packer = packing->packer;
    packing->unprotected = packer->bytes->unfinished = false;
    protect((struct writing *)packing, write, object);
    packing->unprotected = packer->bytes->unfinished = true;
    packer->bytes->began = ((struct writing *)packing)->began;
}

static VALUE written(VALUE self, const struct penstock_packer *packer)
{
    if (!NIL_P(packer->buffer) && !NIL_P(packer->bytes->io) && packer->depth == 0 &&
        penstock_buffer_size(packer->bytes) >= packer->bytes->io_size)
        penstock_buffer_flush(packer->buffer);
    return self;
}

/*
 * Appends `string`. The io gets it without a copy if a flush is due, or if the String is so long that two writes cost less than
 * copying it into the buffer and out of it.
 */
static void add_long_string(struct penstock_packer *packer, VALUE string)
{
    struct penstock_buffer *bytes = packer->bytes;
    size_t size = (size_t)RSTRING_LEN(string);
    if (size >= bytes->io_size / 2 || penstock_buffer_size(bytes) + size >= bytes->io_size)
        penstock_buffer_give_with(packer->buffer, string);
    else
        ps_write_bytes(&bytes->writer, RSTRING_PTR(string), size);
    RB_GC_GUARD(string);
}

/* Most containers hold nothing that calls user code. So these are protected only when an object is found that does. */
static bool looks_plain(VALUE object)
{
    if (RB_TYPE_P(object, T_ARRAY)) object = RARRAY_LEN(object) > 0 ? RARRAY_AREF(object, 0) : Qnil;
    if (RB_SPECIAL_CONST_P(object)) return true;
    enum ruby_value_type type = RB_BUILTIN_TYPE(object);
    return type == T_HASH || type == T_STRING || type == T_ARRAY || type == T_FLOAT || type == T_BIGNUM;
}

static VALUE write_with(VALUE self, struct penstock_packer *packer,
                        void (*write)(struct penstock_packing *packing, VALUE object), VALUE object)
{
    struct writing writing;
    begin(&writing.packing, self, packer);
    writing.began = penstock_packer_written(packer);
    writing.turn = packer->turn;
    writing.depth = packer->depth;
    if (looks_plain(object)) {
        writing.packing.unprotected = packer->bytes->unfinished = true;
        packer->bytes->began = writing.began;
        write(&writing.packing, object);
        packer->bytes->unfinished = false;
    } else {
        protect(&writing, write, object);
    }
    RB_GC_GUARD(writing.packing.registry_value);
    return written(self, packer);
}

/*
 * Writes an object whose class is known to have a to_msgpack and not to be registered. Does the same as penstock_pack, with the
 * same protection, but needs no `struct penstock_packing`.
 */
struct calling {
    VALUE self, object;
    struct penstock_packer *packer;
    uint64_t began; /* as in `struct writing` */
    uint64_t turn;
    uint32_t depth;
    bool done;
};

static VALUE call_own(VALUE arg)
{
    struct calling *calling = (struct calling *)arg;
    penstock_packer_call(calling->packer, &calling->self, calling->object);
    calling->done = true;
    return Qnil;
}

static VALUE own_ended(VALUE arg)
{
    const struct calling *calling = (const struct calling *)arg;
    struct penstock_packer *packer = calling->packer;
    packer->depth = calling->depth;
    if (calling->done) return Qnil;
    packer->turn = calling->turn;
    penstock_buffer_take_back(packer->bytes, calling->began);
    return Qnil;
}

NOINLINE(static VALUE write_own(VALUE self, struct penstock_packer *packer, VALUE object));

static VALUE write_own(VALUE self, struct penstock_packer *packer, VALUE object)
{
    struct calling calling = {
        .self = self, .object = object, .packer = packer,
        .began = penstock_packer_written(packer), .turn = packer->turn, .depth = packer->depth
    };
    rb_ensure(call_own, (VALUE)&calling, own_ended, (VALUE)&calling);
    return written(self, packer);
}

/* For writes that call no user code, and raise only before they write: nothing ever has to be removed. */
static VALUE write_plain(VALUE self, struct penstock_packer *packer,
                         void (*write)(struct penstock_packing *packing, VALUE object), VALUE object)
{
    struct penstock_packing packing;
    VALUE long_strings = Qnil;
    begin(&packing, self, packer);
    if (!NIL_P(packer->bytes->io) && packer->depth == 0) packing.long_strings = &long_strings;
    write(&packing, object);
    if (!NIL_P(long_strings)) add_long_string(packer, RARRAY_AREF(long_strings, 0));
    return written(self, packer);
}

enum { FEW = 16 }; /* elements of an Array whose header has one byte */

/* Writes a short Array of Integers, such as coordinates. Makes room first, so nothing raises in the middle. False: it is another
 * Array. */
static bool write_integers(struct penstock_packer *packer, VALUE array)
{
    struct ps_writer *writer = &packer->bytes->writer;
    long count = RARRAY_LEN(array);
    if (count >= FEW || packer->depth >= packer->options.max_depth) return false;
    ps_write_room(writer, 1 + (FEW - 1) * 9);
    size_t before = writer->size;
    ps_write_byte(writer, (uint8_t)(0x90 | count));
    for (long i = 0; i < count; i++) {
        VALUE object = RARRAY_AREF(array, i);
        if (!FIXNUM_P(object)) {
            writer->size = before;
            return false;
        }
        ps_write_int(writer, FIX2LONG(object));
    }
    return true;
}

/* For depths below PENSTOCK_GUARD_FROM, which need no guard against the end of the stack. */
static VALUE write_object(VALUE self, struct penstock_packer *packer, VALUE object)
{
    VALUE klass = CLASS_OF(object);
    if (penstock_packer_knows(packer, klass)) return write_own(self, packer, object); /* M:pack_known_class_depth */
    if (klass == rb_cHash) return write_with(self, packer, penstock_pack_hash, object);
    if (klass == rb_cArray && write_integers(packer, object)) return written(self, packer);
    if (klass == rb_cArray) return write_with(self, packer, penstock_pack_array, object);
    return write_with(self, packer, penstock_pack, object);
}

/* Writes any object. Checks the most frequent kinds first. */
static VALUE packer_write(VALUE self, VALUE object)
{
    struct penstock_packer *packer = packer_get(self);
    if (FIXNUM_P(object)) ps_write_int(&packer->bytes->writer, FIX2LONG(object));
    else if (RB_FLOAT_TYPE_P(object)) ps_write_double(&packer->bytes->writer, RFLOAT_VALUE(object));
    else if (NIL_P(object)) ps_write_nil(&packer->bytes->writer);
    else if (object == Qtrue || object == Qfalse) ps_write_bool(&packer->bytes->writer, object == Qtrue);
    else if (SYMBOL_P(object) && !packer->types->symbols) return write_plain(self, packer, penstock_pack_symbol, object);
    else if (RB_TYPE_P(object, T_STRING) && RBASIC_CLASS(object) == rb_cString)
        return write_plain(self, packer, penstock_pack_string, object);
    else if (packer->depth < PENSTOCK_GUARD_FROM) return write_object(self, packer, object);
    else return write_with(self, packer, penstock_pack, object);
    return written(self, packer);
}

static VALUE packer_write_nil(VALUE self)
{
    struct penstock_packer *packer = packer_get(self);
    ps_write_nil(&packer->bytes->writer);
    return written(self, packer);
}

static VALUE packer_write_true(VALUE self)
{
    struct penstock_packer *packer = packer_get(self);
    ps_write_bool(&packer->bytes->writer, true);
    return written(self, packer);
}

static VALUE packer_write_false(VALUE self)
{
    struct penstock_packer *packer = packer_get(self);
    ps_write_bool(&packer->bytes->writer, false);
    return written(self, packer);
}

static void check(VALUE object, VALUE klass)
{
    if (RTEST(rb_obj_is_kind_of(object, klass))) return;
    rb_raise(rb_eTypeError, "wrong argument type %" PRIsVALUE " (expected %" PRIsVALUE ")", rb_obj_class(object), klass);
}

static double to_double(VALUE number)
{
    if (RB_FLOAT_TYPE_P(number)) return RFLOAT_VALUE(number);
    check(number, rb_cNumeric);
    return NUM2DBL(number);
}

static VALUE packer_write_float(VALUE self, VALUE number)
{
    double value = to_double(number);
    struct penstock_packer *packer = packer_get(self);
    ps_write_double(&packer->bytes->writer, value);
    return written(self, packer);
}

static VALUE packer_write_float32(VALUE self, VALUE number)
{
    double value = to_double(number);
    struct penstock_packer *packer = packer_get(self);
    ps_write_float(&packer->bytes->writer, (float)value);
    return written(self, packer);
}

static VALUE packer_write_int(VALUE self, VALUE integer)
{
    struct penstock_packer *packer = packer_get(self);
    if (!FIXNUM_P(integer)) return write_with(self, packer, penstock_pack_integer, integer);
    ps_write_int(&packer->bytes->writer, FIX2LONG(integer));
    return written(self, packer);
}

static VALUE packer_write_string(VALUE self, VALUE string)
{
    Check_Type(string, T_STRING);
    return write_plain(self, packer_get(self), penstock_pack_string, string);
}

static VALUE packer_write_bin(VALUE self, VALUE string)
{
    Check_Type(string, T_STRING);
    return write_plain(self, packer_get(self), penstock_pack_bin, string);
}

static VALUE packer_write_symbol(VALUE self, VALUE symbol)
{
    struct penstock_packer *packer = packer_get(self);
    Check_Type(symbol, T_SYMBOL);
    return (packer->types->symbols ? write_with : write_plain)(self, packer, penstock_pack_symbol, symbol);
}

static VALUE packer_write_array(VALUE self, VALUE array)
{
    Check_Type(array, T_ARRAY);
    return write_with(self, packer_get(self), penstock_pack_array, array);
}

static VALUE packer_write_hash(VALUE self, VALUE hash)
{
    Check_Type(hash, T_HASH);
    return write_with(self, packer_get(self), penstock_pack_hash, hash);
}

/* Whether it is a Penstock ExtensionValue, or a Struct with the same two members, such as the msgpack gem's. */
static bool is_extension(VALUE object)
{
    if (!RB_TYPE_P(object, T_STRUCT)) return false;
    if (RTEST(rb_obj_is_kind_of(object, penstock_extension_value))) return true;
    VALUE names = rb_struct_members(object), expected = rb_struct_s_members(penstock_extension_value);
    return RARRAY_LEN(names) == 2 && RARRAY_AREF(names, 0) == RARRAY_AREF(expected, 0) &&
           RARRAY_AREF(names, 1) == RARRAY_AREF(expected, 1);
}

static VALUE packer_write_extension(VALUE self, VALUE extension)
{
    if (!is_extension(extension)) check(extension, penstock_extension_value);
    return write_plain(self, packer_get(self), penstock_pack_extension, extension);
}

static VALUE packer_write_ext(VALUE self, VALUE type, VALUE payload)
{
    struct penstock_packing packing;
    struct penstock_packer *packer = packer_get(self);
    begin(&packing, self, packer);
    penstock_pack_ext(&packing, type, payload);
    return written(self, packer);
}

static uint32_t header_count(VALUE number)
{
    if (!FIXNUM_P(number)) check(number, rb_cInteger);
    else if (FIX2LONG(number) < 0) /* M:pack_count_not_negative */
        rb_raise(rb_eRangeError, "a header's count is not negative: %" PRIsVALUE, number);
    return NUM2UINT(number);
}

static inline VALUE write_header(VALUE self, void (*write)(struct ps_writer *writer, uint32_t count), VALUE number)
{
    struct penstock_packer *packer = packer_get(self);
    bool small = FIXNUM_P(number) && FIX2LONG(number) >= 0 && FIX2LONG(number) < 16; /* most are */
    write(&packer->bytes->writer, small ? (uint32_t)FIX2LONG(number) : header_count(number));
    return written(self, packer);
}

static VALUE packer_write_array_header(VALUE self, VALUE number)
{
    return write_header(self, ps_write_array_header, number);
}

static VALUE packer_write_map_header(VALUE self, VALUE number)
{
    return write_header(self, ps_write_map_header, number);
}

static VALUE packer_write_bin_header(VALUE self, VALUE number)
{
    return write_header(self, ps_write_bin_header, number);
}

/* ---- the written bytes ---- */

/* Most Packers with an io are flushed once. The first flush frees their memory, so that it does not bring the next GC closer. */
static VALUE packer_flush(VALUE self)
{
    struct penstock_packer *packer = packer_get(self);
    if (NIL_P(packer->buffer)) return self;
    penstock_buffer_flush(packer->buffer);
    bool unused = packer->bytes->base == 0 && penstock_buffer_size(packer->bytes) == 0;
    if (!packer->flushed && unused) penstock_buffer_free(packer->bytes);
    packer->flushed = true;
    return self;
}

/* Discards also a payload that is being written, and all that encloses it: the write may be in a Fiber that is never resumed. If
 * such a write goes on, it raises. */
static VALUE packer_reset(VALUE self)
{
    struct penstock_packer *packer = packer_get(self);
    struct penstock_buffer *bytes = packer->bytes;
    penstock_buffer_check(bytes);
    if (bytes->base > 0) {
        bytes->base = 0;
        packer->turn = packer->depth = 0;
    }
    penstock_buffer_clear(bytes);
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
    struct penstock_packer *packer = packer_get(self);
    if (!NIL_P(packer->bytes->io) && packer->bytes->base == 0) {
        penstock_buffer_flush(packer->buffer); /* bytes that the io's code adds meanwhile stay */
        return Qnil;
    }
    VALUE packed = packer_to_s(self);
    penstock_buffer_clear(packer->bytes);
    return packed;
}

static VALUE packer_write_to(VALUE self, VALUE io)
{
    return penstock_buffer_give(buffer_of(self, packer_get(self)), io);
}

static VALUE packer_buffer(VALUE self)
{
    return buffer_of(self, packer_get(self));
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
    struct penstock_packer *packer = packer_get(self);
    const struct penstock_registry *types = penstock_registry_get(registry);
    rb_check_frozen(self);
    packer->types = types;
    memset(packer->own_classes, 0, sizeof(packer->own_classes));
    RB_OBJ_WRITE(self, &packer->registry, registry);
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
    rb_define_method(rb_obj_class(penstock_empty_registry), "packer", registry_packer, -1);
    rb_define_method(rb_obj_class(penstock_empty_registry), "lend", registry_lend, 1);
    rb_define_method(rb_obj_class(penstock_empty_registry), "take_back", registry_take_back, 1);
    rb_define_private_method(packer_class, "registry", packer_registry, 0);
    rb_define_private_method(packer_class, "registry=", packer_registry_set, 1);
}
