/*
 * Ruby's objects as MessagePack. Objects' own methods and registered procs run in the middle of it and may do anything:
 * pack with the same Packer, change what is being packed, raise. So the writer is looked at anew after each, and a container
 * that does not have as many values as its header said is an error.
 */
#include "message_pack.h"

enum {
    LONG_STRING = 8192, /* bytes of one that is copied once, into a result of the right size */
    GUARDED_DEPTH = 32
};

static ID id_to_msgpack;
static int utf8, us_ascii, binary; /* encodings */

/*
 * What is written goes to the stack, then to a String that is thrown away at once, and last into one of the right size: to give
 * back the end of a String that was too large would leave a hole in the heap each time.
 */
struct to_string {
    struct ps_writer writer; /* first */
    VALUE more;              /* the String; nil: there is still room in `first` */
    char first[16384];
};

/* ---- depth ---- */

NORETURN(static void too_deep(const struct penstock_packing *packing));

static void too_deep(const struct penstock_packing *packing)
{
    if (packing->depth >= packing->options.max_depth)
        penstock_message_pack_raise("StackError", "nested more than %u deep (max_depth)", packing->options.max_depth);
    rb_raise(rb_eSysStackError, "stack level too deep"); /* Ruby would raise the same at the next call */
}

static void enter(struct penstock_packing *packing)
{
    if (packing->depth >= packing->options.max_depth || ruby_stack_check()) too_deep(packing);
    packing->depth++;
}

static void leave(struct penstock_packing *packing)
{
    packing->depth--;
}

static uint32_t size_of(const char *what, size_t size)
{
    if (size > UINT32_MAX) rb_raise(rb_eArgError, "%s of %zu is too long for MessagePack (2^32 - 1)", what, size);
    return (uint32_t)size;
}

/* ---- objects that pack themselves, and ext types ---- */

static VALUE call(VALUE callable, VALUE object, int argc, VALUE packer)
{
    VALUE arguments[2] = { object, packer };
    if (SYMBOL_P(callable)) return rb_funcallv_public(object, SYM2ID(callable), argc - 1, arguments + 1);
    return rb_funcallv(callable, penstock_id_call, argc, arguments);
}

static long long_strings_so_far(const struct penstock_packing *packing)
{
    return !packing->long_strings || NIL_P(*packing->long_strings) ? 0 : RARRAY_LEN(*packing->long_strings);
}

/* After code of users', a continuation of which may come back when this has gone on or ended: to a String that has another place
 * since, or to more long ones than there were. A Packer has its bytes for ever. */
static void check_turn(const struct penstock_packing *packing, long before)
{
    if (!packing->long_strings) return;
    const struct to_string *to = (const struct to_string *)packing->writer;
    bool moved = !NIL_P(to->more) && RSTRING_PTR(to->more) != to->writer.data;
    if (moved || long_strings_so_far(packing) != before)
        rb_raise(rb_eRuntimeError, "a continuation came back to where packing had gone on");
}

static VALUE packer_beside(const struct penstock_packing *packing)
{
    return penstock_packer_new(packing->registry_value, packing->options, packing->depth);
}

static void pack_registered(struct penstock_packing *packing, const struct penstock_ext_packer *packer, VALUE object)
{
    struct penstock_ext_packer kept = *packer;
    VALUE payload, beside = Qnil;
    const char *bytes;
    size_t size;
    long before = long_strings_so_far(packing);

    enter(packing);
    if (!NIL_P(packing->packer)) penstock_packer_depth(packing->packer, packing->depth);
    if (kept.recursive) {
        beside = packer_beside(packing);
        payload = call(kept.callable, object, 2, beside);
        penstock_packer_bytes(beside, &bytes, &size);
    } else {
        payload = call(kept.callable, object, 1, Qnil);
        StringValue(payload);
        bytes = RSTRING_PTR(payload);
        size = (size_t)RSTRING_LEN(payload);
    }
    check_turn(packing, before);
    ps_write_ext_header(packing->writer, kept.type, size_of("a payload", size));
    ps_write_bytes(packing->writer, bytes, size);
    RB_GC_GUARD(payload);
    RB_GC_GUARD(beside);
    leave(packing);
}

static const struct penstock_ext_packer *find(struct penstock_packing *packing, VALUE object)
{
    if (packing->registry->packer_count == 0) return NULL;
    VALUE klass = CLASS_OF(object);
    if (klass != packing->found_class) {
        packing->found = penstock_registry_find(packing->registry, klass);
        packing->found_class = klass;
    }
    return packing->found;
}

static bool pack_if_registered(struct penstock_packing *packing, VALUE object)
{
    const struct penstock_ext_packer *packer = find(packing, object);
    if (packer) pack_registered(packing, packer, object);
    return packer != NULL;
}

static void pack_by_itself(struct penstock_packing *packing, VALUE object)
{
    VALUE packer = NIL_P(packing->packer) ? packer_beside(packing) : packing->packer;
    enter(packing);
    penstock_packer_depth(packer, packing->depth);
    uint64_t before = penstock_packer_written(packer);
    long long_strings = long_strings_so_far(packing);
    if (rb_check_funcall(object, id_to_msgpack, 1, &packer) == Qundef)
        rb_raise(rb_eNoMethodError, "%" PRIsVALUE " objects cannot be packed: register a type for them with a "
                 "Penstock::MessagePack::Factory, or give them a method to_msgpack(packer)", rb_obj_class(object));
    if (penstock_packer_written(packer) == before)
        rb_raise(rb_eRuntimeError, "%" PRIsVALUE "#to_msgpack wrote nothing to its packer", rb_obj_class(object));
    if (NIL_P(packing->packer)) {
        const char *bytes;
        size_t size;
        penstock_packer_bytes(packer, &bytes, &size);
        check_turn(packing, long_strings);
        ps_write_bytes(packing->writer, bytes, size);
    }
    RB_GC_GUARD(packer);
    leave(packing);
}

void penstock_pack_ext(struct penstock_packing *packing, VALUE type, VALUE payload)
{
    if (!RB_INTEGER_TYPE_P(type)) rb_raise(rb_eTypeError, "an ext type is an Integer, not a %" PRIsVALUE, rb_obj_class(type));
    if (!FIXNUM_P(type) || FIX2LONG(type) < -128 || FIX2LONG(type) > 127)
        rb_raise(rb_eRangeError, "%" PRIsVALUE " is no ext type: they are from -128 to 127", type);
    StringValue(payload);
    uint32_t size = size_of("a payload", (size_t)RSTRING_LEN(payload));
    ps_write_ext_header(packing->writer, (int8_t)FIX2LONG(type), size);
    ps_write_bytes(packing->writer, RSTRING_PTR(payload), size);
    RB_GC_GUARD(payload);
}

NOINLINE(static void pack_other(struct penstock_packing *packing, VALUE object));

static void pack_other(struct penstock_packing *packing, VALUE object)
{
    if (pack_if_registered(packing, object)) return;
    if (rb_obj_class(object) == penstock_extension_value)
        penstock_pack_ext(packing, rb_struct_aref(object, INT2FIX(0)), rb_struct_aref(object, INT2FIX(1)));
    else
        pack_by_itself(packing, object);
}

/* ---- each class of Ruby's ---- */

NOINLINE(static void pack_bignum(struct penstock_packing *packing, VALUE integer));

static void pack_bignum(struct penstock_packing *packing, VALUE integer)
{
    bool negative = RBIGNUM_NEGATIVE_P(integer);
    int unused_bits;
    size_t bytes = rb_absint_size(integer, &unused_bits);
    if (bytes <= 8 && !negative)
        ps_write_uint(packing->writer, rb_big2ull(integer));
    else if (bytes <= 8 && (unused_bits > 0 || rb_absint_singlebit_p(integer)))
        ps_write_int(packing->writer, rb_big2ll(integer));
    else if (packing->registry->oversized)
        pack_registered(packing, packing->registry->oversized, integer);
    else
        rb_raise(rb_eRangeError, "%" PRIsVALUE " has no room in 64 bits: register Integer with "
                 "oversized_integer_extension_type: true", integer);
}

void penstock_pack_integer(struct penstock_packing *packing, VALUE integer)
{
    if (FIXNUM_P(integer)) ps_write_int(packing->writer, FIX2LONG(integer));
    else if (RB_TYPE_P(integer, T_BIGNUM)) pack_bignum(packing, integer);
    else rb_raise(rb_eTypeError, "wrong argument type %" PRIsVALUE " (expected Integer)", rb_obj_class(integer));
}

/* Copies a String's bytes, now or in the end. */
static void write_bytes(struct penstock_packing *packing, VALUE string, uint32_t size)
{
    if (size < LONG_STRING || !packing->long_strings) {
        ps_write_bytes(packing->writer, RSTRING_PTR(string), size);
        return;
    }
    if (NIL_P(*packing->long_strings)) *packing->long_strings = rb_ary_new();
    rb_ary_push(*packing->long_strings, rb_str_new_frozen(string));
    rb_ary_push(*packing->long_strings, SIZET2NUM(packing->writer->size));
}

NOINLINE(static void write_long_str(struct penstock_packing *packing, VALUE string, size_t long_size));

static void write_long_str(struct penstock_packing *packing, VALUE string, size_t long_size)
{
    uint32_t size = size_of("a String", long_size);
    if (size < LONG_STRING) {
        ps_write_str(packing->writer, RSTRING_PTR(string), size, packing->options.compatibility_mode);
    } else {
        ps_write_str_header(packing->writer, size, packing->options.compatibility_mode);
        write_bytes(packing, string, size);
    }
    RB_GC_GUARD(string);
}

static void write_str(struct penstock_packing *packing, VALUE string)
{
    size_t size = (size_t)RSTRING_LEN(string);
    if (size >= PS_SHORT) {
        write_long_str(packing, string, size);
        return;
    }
    ps_write_short_str(packing->writer, RSTRING_PTR(string), size);
    RB_GC_GUARD(string);
}

void penstock_pack_bin(struct penstock_packing *packing, VALUE string)
{
    uint32_t size = size_of("a String", (size_t)RSTRING_LEN(string));
    if (packing->options.compatibility_mode) ps_write_str_header(packing->writer, size, true);
    else ps_write_bin_header(packing->writer, size);
    write_bytes(packing, string, size);
    RB_GC_GUARD(string);
}

void penstock_pack_string(struct penstock_packing *packing, VALUE string)
{
    int encoding = RB_ENCODING_GET(string);
    if (encoding == utf8 || encoding == us_ascii)
        write_str(packing, string);
    else if (encoding == binary)
        penstock_pack_bin(packing, string);
    else if (rb_enc_asciicompat(rb_enc_from_index(encoding)) && rb_enc_str_asciionly_p(string))
        write_str(packing, string);
    else
        write_str(packing, rb_str_encode(string, rb_enc_from_encoding(rb_utf8_encoding()), 0, Qnil));
}

void penstock_pack_symbol(struct penstock_packing *packing, VALUE symbol)
{
    const struct penstock_ext_packer *packer = packing->registry->symbols;
    if (packer) pack_registered(packing, packer, symbol);
    else penstock_pack_string(packing, rb_sym2str(symbol));
}

void penstock_pack_array(struct penstock_packing *packing, VALUE array)
{
    uint32_t count = size_of("an Array", (size_t)RARRAY_LEN(array));
    ps_write_array_header(packing->writer, count);
    if (count == 0) return;
    enter(packing);
    for (uint32_t i = 0; i < count && i < (size_t)RARRAY_LEN(array); i++) penstock_pack(packing, RARRAY_AREF(array, i));
    if ((size_t)RARRAY_LEN(array) != count) rb_raise(rb_eRuntimeError, "an Array changed its size while it was packed");
    leave(packing);
}

struct pairs {
    struct penstock_packing *packing;
    uint32_t left;
};

static int pack_pair(VALUE key, VALUE value, VALUE arg)
{
    struct pairs *pairs = (struct pairs *)arg;
    if (pairs->left == 0) return ST_STOP;
    pairs->left--;
    penstock_pack(pairs->packing, key);
    penstock_pack(pairs->packing, value);
    return ST_CONTINUE;
}

void penstock_pack_hash(struct penstock_packing *packing, VALUE hash)
{
    uint32_t size = size_of("a Hash", RHASH_SIZE(hash));
    struct pairs pairs = { .packing = packing, .left = size };
    ps_write_map_header(packing->writer, pairs.left);
    if (pairs.left == 0) return;
    enter(packing);
    rb_hash_foreach(hash, pack_pair, (VALUE)&pairs);
    if (pairs.left > 0 || RHASH_SIZE(hash) != size) rb_raise(rb_eRuntimeError, "a Hash changed its size while it was packed");
    leave(packing);
}

/* Each is called last by penstock_pack, which so takes nothing of the stack: what is deep goes through it at each level. */
NOINLINE(static void pack_fixnum(struct penstock_packing *packing, VALUE object));
NOINLINE(static void pack_float(struct penstock_packing *packing, VALUE object));
NOINLINE(static void pack_constant(struct penstock_packing *packing, VALUE object));
NOINLINE(static void pack_subclass(struct penstock_packing *packing, VALUE object));

static void pack_fixnum(struct penstock_packing *packing, VALUE object)
{
    ps_write_int(packing->writer, FIX2LONG(object));
}

static void pack_float(struct penstock_packing *packing, VALUE object)
{
    ps_write_double(packing->writer, RFLOAT_VALUE(object));
}

/* nil, true, false */
static void pack_constant(struct penstock_packing *packing, VALUE object)
{
    ps_write_byte(packing->writer, object == Qnil ? PS_BYTE_NIL : object == Qtrue ? PS_BYTE_TRUE : PS_BYTE_FALSE);
}

/* Of a class of the program's: registered, or as what it is. */
static void pack_subclass(struct penstock_packing *packing, VALUE object)
{
    if (pack_if_registered(packing, object)) return;
    switch (RB_BUILTIN_TYPE(object)) {
    case T_STRING: penstock_pack_string(packing, object); break;
    case T_ARRAY: penstock_pack_array(packing, object); break;
    default: penstock_pack_hash(packing, object);
    }
}

/* What is not so deep does not pay for it. */
struct guarded {
    struct penstock_packing *packing;
    VALUE object;
};

static VALUE pack_it(VALUE arg)
{
    struct guarded *guarded = (struct guarded *)arg;
    penstock_pack(guarded->packing, guarded->object);
    return Qnil;
}

NOINLINE(static void pack_guarded(struct penstock_packing *packing, VALUE object));

static void pack_guarded(struct penstock_packing *packing, VALUE object)
{
    struct guarded guarded = { .packing = packing, .object = object };
    packing->guarded = true;
    penstock_guard_stack(pack_it, (VALUE)&guarded);
    packing->guarded = false;
}

void penstock_pack(struct penstock_packing *packing, VALUE object)
{
    if (packing->depth >= GUARDED_DEPTH && !packing->guarded) {
        pack_guarded(packing, object);
        return;
    }
    switch (rb_type(object)) {
    case T_NIL:
    case T_TRUE:
    case T_FALSE: pack_constant(packing, object); break;
    case T_FIXNUM: pack_fixnum(packing, object); break;
    case T_BIGNUM: pack_bignum(packing, object); break;
    case T_FLOAT: pack_float(packing, object); break;
    case T_SYMBOL: penstock_pack_symbol(packing, object); break;
    case T_STRING: (RBASIC_CLASS(object) == rb_cString ? penstock_pack_string : pack_subclass)(packing, object); break;
    case T_ARRAY: (RBASIC_CLASS(object) == rb_cArray ? penstock_pack_array : pack_subclass)(packing, object); break;
    case T_HASH: (RBASIC_CLASS(object) == rb_cHash ? penstock_pack_hash : pack_subclass)(packing, object); break;
    default: pack_other(packing, object);
    }
}

/* ---- into a String, without a Packer ---- */

static void grow(struct ps_writer *writer, size_t more)
{
    struct to_string *to = (struct to_string *)writer;
    size_t capacity = writer->capacity * 4;
    if (capacity - writer->size < more) capacity = writer->size + more;
    if (NIL_P(to->more)) {
        to->more = rb_str_buf_new((long)capacity);
        memcpy(RSTRING_PTR(to->more), writer->data, writer->size);
    } else {
        rb_str_set_len(to->more, (long)writer->size);
        rb_str_modify_expand(to->more, (long)(capacity - writer->size));
    }
    writer->data = RSTRING_PTR(to->more);
    writer->capacity = capacity;
}

/* What was written, with the long Strings where they belong. */
static VALUE assemble(const struct ps_writer *writer, VALUE long_strings)
{
    size_t size = writer->size, from = 0;
    for (long i = 0; i < RARRAY_LEN(long_strings); i += 2) size += (size_t)RSTRING_LEN(RARRAY_AREF(long_strings, i));
    VALUE result = rb_str_new(NULL, (long)size);
    char *at = RSTRING_PTR(result);
    for (long i = 0; i < RARRAY_LEN(long_strings); i += 2) {
        VALUE string = RARRAY_AREF(long_strings, i);
        size_t to = NUM2SIZET(RARRAY_AREF(long_strings, i + 1));
        at = (char *)memcpy(at, writer->data + from, to - from) + (to - from);
        at = (char *)memcpy(at, RSTRING_PTR(string), (size_t)RSTRING_LEN(string)) + RSTRING_LEN(string);
        from = to;
    }
    memcpy(at, writer->data + from, writer->size - from);
    return result;
}

VALUE penstock_pack_to_string(VALUE object, VALUE registry, struct penstock_mp_options options)
{
    struct to_string to;
    VALUE long_strings = Qnil;
    to.more = Qnil;
    to.writer = (struct ps_writer){ .data = to.first, .capacity = sizeof(to.first), .grow = grow };
    struct penstock_packing packing = {
        .writer = &to.writer,
        .registry_value = registry,
        .registry = penstock_registry_get(registry),
        .options = options,
        .packer = Qnil,
        .long_strings = &long_strings,
    };
    penstock_pack(&packing, object);
    RB_GC_GUARD(registry);
    VALUE packed = NIL_P(long_strings) ? rb_str_new(to.writer.data, (long)to.writer.size) : assemble(&to.writer, long_strings);
    if (!NIL_P(to.more)) rb_str_resize(to.more, 0);
    return packed;
}

void penstock_message_pack_write_init(void)
{
    id_to_msgpack = rb_intern("to_msgpack");
    utf8 = rb_utf8_encindex();
    us_ascii = rb_usascii_encindex();
    binary = rb_ascii8bit_encindex();
}
