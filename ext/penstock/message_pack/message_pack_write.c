/*
 * Writes Ruby objects as MessagePack. Objects' own methods and registered procs run meanwhile and may do anything: pack with the
 * same Packer, change the object that is being packed, raise. So the writer is read again after each call of user code. A
 * container that has another number of values than its header says raises.
 */
#include "message_pack/message_pack.h"

enum {
    LONG_STRING = 8192, /* a String of as many bytes is copied once, into a result of the exact size */
    CONTAINERS = 8, /* each eighth level of containers checks whether the stack ends */
    EXT_HEADER = 6      /* bytes of the longest header */
};

static ID id_to_msgpack;
static int utf8, us_ascii, binary; /* encodings */

/*
 * The bytes go to the stack first, then to a temporary String, which is freed at once, and last into a String of the exact size.
 * Shrinking a String that was too large would leave a hole in the heap each time.
 */
struct to_string {
    struct ps_writer writer; /* first */
    VALUE more;              /* the temporary String; nil: `first` suffices so far */
    char first[16384];
};

/* ---- depth ---- */

NORETURN(static void too_deep(uint32_t depth, const struct penstock_mp_options *options));

static void too_deep(uint32_t depth, const struct penstock_mp_options *options)
{
    if (depth >= options->max_depth)
        penstock_message_pack_raise("StackError", "nested more than %u deep (max_depth)", options->max_depth);
    rb_raise(rb_eSysStackError, "stack level too deep"); /* as Ruby would at the next call */
}

static void enter(struct penstock_packing *packing)
{
    /* M:pack_stack_checked */
    if (packing->depth >= packing->options->max_depth || ruby_stack_check()) too_deep(packing->depth, packing->options);
    packing->depth++;
}

/* The same for containers. They need so little stack that a few more fit after Ruby reports its end, so not each level checks. */
static void enter_container(struct penstock_packing *packing)
{
    /* M:pack_max_depth */
    if (packing->depth % CONTAINERS == CONTAINERS - 1 || packing->depth >= packing->options->max_depth) enter(packing);
    else packing->depth++;
}

/* Whether the stack ends soon. Nothing touches `room`: it moves Ruby's own check, which wants 16 KB, further down the stack. */
static __attribute__((noinline)) bool stack_ends_soon(void)
{
    char room[12288];
    __asm__ volatile("" : : "r"(room) : "memory"); /* keeps it */
    return ruby_stack_check();
}

/*
 * The same for user code. Ruby does not check the stack at each call from C. At the end of the stack it handles a signal and makes
 * an exception, and crashes if that begins a collection. So each nested call checks, but not those of the first levels.
 */
static bool is_too_deep(uint32_t depth, uint32_t max_depth)
{
    return depth >= max_depth || (depth >= CONTAINERS && stack_ends_soon());
}

static void enter_call(struct penstock_packing *packing)
{
    if (is_too_deep(packing->depth, packing->options->max_depth)) too_deep(packing->depth, packing->options);
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

/* ---- user code ---- */

static long long_strings_so_far(const struct penstock_packing *packing)
{
    return !packing->long_strings || NIL_P(*packing->long_strings) ? 0 : RARRAY_LEN(*packing->long_strings);
}

struct turn {
    uint64_t mine, outer;
    long long_strings;
};

static inline void begin_turn(struct penstock_packing *packing, struct turn *turn)
{
    struct penstock_packer *packer = packing->packer;
    packing->calls++;
    if (packer) {
        turn->outer = packer->turn;
        turn->mine = packer->turn = ++packer->turns;
        packer->depth = packing->depth;
    } else {
        turn->long_strings = long_strings_so_far(packing);
    }
}

/*
 * For use after user code. A continuation may have come back after this packing had continued or ended, or another Fiber may be
 * packing with the same Packer. Without a Packer, this detects it by a String that has moved, or by additional long Strings.
 */
static bool has_moved(const struct penstock_packing *packing, long long_strings)
{
    const struct to_string *to = (const struct to_string *)packing->writer;
    bool moved = !NIL_P(to->more) && RSTRING_PTR(to->more) != to->writer.data; /* M:pack_no_stale_memory */
    return moved || long_strings_so_far(packing) != long_strings;
}

NORETURN(static void gone_on(void));

static void gone_on(void)
{
    rb_raise(rb_eRuntimeError, "a continuation came back to packing that had continued without it");
}

/* Also removes what the object has left half-written. */
static inline void end_turn_of(struct penstock_packer *packer, uint64_t mine, uint64_t outer)
{
    if (packer->turn != mine) gone_on();
    penstock_buffer_settle(packer->bytes);
    packer->turn = outer;
}

static inline void end_turn(struct penstock_packing *packing, const struct turn *turn)
{
    struct penstock_packer *packer = packing->packer;
    if (!packer) {
        if (has_moved(packing, turn->long_strings)) gone_on();
        return;
    }
    end_turn_of(packer, turn->mine, turn->outer);
    packing->writer = &packer->bytes->writer; /* user code may have asked for the Buffer */
}

static void copy_parts(struct ps_writer *to, const struct ps_writer *from, VALUE long_strings);

/* User code needs a Packer to write to. From now on all bytes go to that Packer, long Strings included. */
NOINLINE(static void make_packer(struct penstock_packing *packing));

static void make_packer(struct penstock_packing *packing)
{
    struct to_string *to = (struct to_string *)packing->writer;
    packing->packer_value = penstock_packer_new(packing->registry_value, packing->options, &packing->packer);
    packing->writer = &packing->packer->bytes->writer;
    copy_parts(packing->writer, &to->writer, *packing->long_strings);
    packing->long_strings = NULL;
    if (!NIL_P(to->more)) rb_str_resize(to->more, 0);
}

/* ---- objects that pack themselves, and ext types ---- */

static VALUE call_proc(VALUE callable, VALUE object, int argc, VALUE packer)
{
    VALUE arguments[2] = { object, packer };
    if (SYMBOL_P(callable)) return rb_funcallv_public(object, SYM2ID(callable), argc - 1, arguments + 1);
    return rb_funcallv(callable, penstock_id_call, argc, arguments);
}

void penstock_pack_outer(struct penstock_buffer *bytes, const struct penstock_outer *outer)
{
    bytes->at = outer->at < bytes->writer.size ? outer->at : bytes->writer.size;
    bytes->base = outer->base < bytes->at ? outer->base : bytes->at;
    bytes->gone = outer->gone;
}

/* Leaves room for the longest header. The bytes before it are not accessible until the payload has ended. If the header turns out
 * to be shorter, the payload is moved. */
static void pack_recursive(struct penstock_packing *packing, const struct penstock_ext_packer *type, VALUE object)
{
    struct turn turn = { 0 };
    uint8_t header[16];
    struct ps_writer to_header = { .data = (char *)header, .capacity = sizeof(header) };

    if (!packing->packer) make_packer(packing);
    struct penstock_buffer *bytes = packing->packer->bytes;
    ps_write_room(&bytes->writer, EXT_HEADER);
    const struct penstock_outer outer = { .base = bytes->base, .at = bytes->at, .gone = bytes->gone };
    if (packing->payloads++ == 0) packing->outer = outer;
    size_t start = bytes->writer.size;
    bytes->writer.size = bytes->base = bytes->at = start + EXT_HEADER;

    begin_turn(packing, &turn);
    call_proc(type->callable, object, 2, packing->packer_value);
    end_turn(packing, &turn);

    bytes = packing->packer->bytes;
    size_t size = penstock_buffer_size(bytes);
    ps_write_ext_header(&to_header, type->type, size_of("a payload", size));
    if (start + to_header.size != bytes->at)
        memmove(bytes->writer.data + start + to_header.size, bytes->writer.data + bytes->at, size);
    memcpy(bytes->writer.data + start, header, to_header.size);
    bytes->writer.size = start + to_header.size + size;
    penstock_pack_outer(bytes, &outer);
    packing->payloads--;
}

NOINLINE(static void pack_registered(struct penstock_packing *packing, const struct penstock_ext_packer *type, VALUE object));

static void pack_registered(struct penstock_packing *packing, const struct penstock_ext_packer *type, VALUE object)
{
    if (packing->unprotected) {
        penstock_packer_protect(packing, penstock_pack, object);
        return;
    }
    enter_call(packing);
    if (type->recursive) {
        pack_recursive(packing, type, object);
    } else {
        struct turn turn = { 0 };
        begin_turn(packing, &turn);
        VALUE payload = call_proc(type->callable, object, 1, Qnil);
        StringValue(payload);
        end_turn(packing, &turn);
        uint32_t size = size_of("a payload", (size_t)RSTRING_LEN(payload));
        ps_write_ext_header(packing->writer, type->type, size);
        ps_write_bytes(packing->writer, RSTRING_PTR(payload), size);
        RB_GC_GUARD(payload);
    }
    leave(packing);
}

/* Remembers that objects of this class pack themselves. */
static void remember(const struct penstock_packing *packing, VALUE klass)
{
    struct penstock_packer *packer = packing->packer;
    if (packer->types == packing->registry && !packer->types->modules) /* a registered module could be included later */
        RB_OBJ_WRITE(packing->packer_value, &packer->own_classes[penstock_place_of(klass)], klass); /* M:pack_class_barrier */
}

NOINLINE(static void look_up(const struct penstock_packing *packing, VALUE object, struct penstock_found *found));

static void look_up(const struct penstock_packing *packing, VALUE object, struct penstock_found *found)
{
    VALUE klass = CLASS_OF(object);
    found->packer = penstock_registry_find(packing->registry, klass);
    found->extension = !found->packer && klass == penstock_extension_value; /* a subclass may have its own to_msgpack */
    found->own = !found->packer && !found->extension && rb_method_boundp(klass, id_to_msgpack, 0);
    found->klass = klass;
    if (found->own && packing->packer) remember(packing, klass);
}

static inline const struct penstock_found *find(struct penstock_packing *packing, VALUE object)
{
    VALUE klass = CLASS_OF(object);
    struct penstock_found *found = &packing->found[penstock_place_of(klass)];
    if (!packing->looked) memset(packing->found, 0, sizeof(packing->found));
    packing->looked = true;
    if (found->klass != klass) look_up(packing, object, found);
    return found;
}

static bool pack_if_registered(struct penstock_packing *packing, VALUE object)
{
    if (packing->registry->packer_count == 0) return false;
    const struct penstock_ext_packer *packer = find(packing, object)->packer;
    if (packer) pack_registered(packing, packer, object);
    return packer != NULL;
}

NOINLINE(static void call_if_there(struct penstock_packing *packing, VALUE object));

/* An object without to_msgpack may have a method_missing. */
static void call_if_there(struct penstock_packing *packing, VALUE object)
{
    if (rb_check_funcall(object, id_to_msgpack, 1, &packing->packer_value) != Qundef) return;
    rb_raise(rb_eNoMethodError, "%" PRIsVALUE " objects cannot be packed: register a type for them with a "
             "Penstock::MessagePack::Factory, or give them a method to_msgpack(packer)", rb_obj_class(object));
}

static inline void check_written(const struct penstock_packer *packer, uint64_t before, VALUE object)
{
    if (penstock_packer_written(packer) == before)
        rb_raise(rb_eRuntimeError, "%" PRIsVALUE "#to_msgpack wrote nothing to its packer", rb_obj_class(object));
}

static void pack_by_itself(struct penstock_packing *packing, VALUE object, bool has_method)
{
    struct turn turn = { 0 };
    if (packing->unprotected) {
        penstock_packer_protect(packing, penstock_pack, object);
        return;
    }
    if (!packing->packer) {
        make_packer(packing);
        if (has_method) remember(packing, CLASS_OF(object));
    }
    enter_call(packing);
    uint64_t before = penstock_packer_written(packing->packer);
    begin_turn(packing, &turn);
    if (has_method) rb_funcallv(object, id_to_msgpack, 1, &packing->packer_value);
    else call_if_there(packing, object);
    end_turn(packing, &turn);
    check_written(packing->packer, before, object);
    leave(packing);
}

void penstock_packer_call(struct penstock_packer *packer, const VALUE *self, VALUE object)
{
    if (is_too_deep(packer->depth, packer->options.max_depth)) too_deep(packer->depth, &packer->options);
    uint64_t before = penstock_packer_written(packer), outer = packer->turn, mine = ++packer->turns;
    packer->depth++;
    packer->turn = mine;
    rb_funcallv(object, id_to_msgpack, 1, self);
    end_turn_of(packer, mine, outer);
    check_written(packer, before, object);
}

/* The same as pack_by_itself, for a class that the Packer knows. */
static inline void pack_known(struct penstock_packing *packing, struct penstock_packer *packer, VALUE object)
{
    packing->calls++;
    packer->depth = packing->depth;
    penstock_packer_call(packer, &packing->packer_value, object);
    packing->writer = &packer->bytes->writer;
}

void penstock_pack_ext(struct penstock_packing *packing, VALUE type, VALUE payload)
{
    if (!RB_INTEGER_TYPE_P(type)) rb_raise(rb_eTypeError, "an ext type is an Integer, not a %" PRIsVALUE, rb_obj_class(type));
    if (!FIXNUM_P(type) || FIX2LONG(type) < -128 || FIX2LONG(type) > 127)
        rb_raise(rb_eRangeError, "%" PRIsVALUE " is not a valid ext type: -128 to 127", type);
    if (!RB_TYPE_P(payload, T_STRING)) {
        struct turn turn = { 0 };
        begin_turn(packing, &turn);
        StringValue(payload);
        end_turn(packing, &turn);
    }
    uint32_t size = size_of("a payload", (size_t)RSTRING_LEN(payload));
    ps_write_room(packing->writer, (size_t)size + EXT_HEADER);
    ps_write_ext_header(packing->writer, (int8_t)FIX2LONG(type), size);
    ps_write_bytes(packing->writer, RSTRING_PTR(payload), size);
    RB_GC_GUARD(payload);
}

void penstock_pack_extension(struct penstock_packing *packing, VALUE extension)
{
    VALUE type = rb_struct_aref(extension, INT2FIX(0)), payload = rb_struct_aref(extension, INT2FIX(1));
    if (packing->unprotected && !RB_TYPE_P(payload, T_STRING))
        penstock_packer_protect(packing, penstock_pack_extension, extension);
    else penstock_pack_ext(packing, type, payload);
}

NOINLINE(static void pack_other(struct penstock_packing *packing, VALUE object));
NOINLINE(static void pack_found(struct penstock_packing *packing, VALUE object));

static void pack_other(struct penstock_packing *packing, VALUE object)
{
    VALUE klass = CLASS_OF(object);
    if (packing->packer && penstock_packer_knows(packing->packer, klass) && !packing->unprotected) {
        pack_known(packing, packing->packer, object);
        return;
    }
    pack_found(packing, object);
}

static void pack_found(struct penstock_packing *packing, VALUE object)
{
    const struct penstock_found *found = find(packing, object);
    if (found->packer) pack_registered(packing, found->packer, object);
    else if (found->extension) penstock_pack_extension(packing, object);
    else pack_by_itself(packing, object, found->own);
}

/* ---- Ruby's classes ---- */

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
        rb_raise(rb_eRangeError, "%" PRIsVALUE " does not fit into 64 bits: register Integer with "
                 "oversized_integer_extension_type: true", integer);
}

void penstock_pack_integer(struct penstock_packing *packing, VALUE integer)
{
    if (FIXNUM_P(integer)) ps_write_int(packing->writer, FIX2LONG(integer));
    else if (RB_TYPE_P(integer, T_BIGNUM)) pack_bignum(packing, integer);
    else rb_raise(rb_eTypeError, "wrong argument type %" PRIsVALUE " (expected Integer)", rb_obj_class(integer));
}

/* Copies a String's bytes, now or at the end. */
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
    if (size <= UINT8_MAX && !packing->options->compatibility_mode) {
        uint8_t *at = ps_write_room(packing->writer, (size_t)size + 2);
        *at++ = 0xd9;
        *at++ = (uint8_t)size;
        memcpy(at, RSTRING_PTR(string), size);
        packing->writer->size += (size_t)size + 2;
    } else if (size < LONG_STRING) {
        ps_write_str(packing->writer, RSTRING_PTR(string), size, packing->options->compatibility_mode);
    } else {
        ps_write_str_header(packing->writer, size, packing->options->compatibility_mode);
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
    uint8_t *to = ps_write_room(packing->writer, PS_SHORT);
    ps_put_short_str(packing->writer, to, RSTRING_PTR(string), size); /* no GC may run between the two lines */
}

void penstock_pack_bin(struct penstock_packing *packing, VALUE string)
{
    uint32_t size = size_of("a String", (size_t)RSTRING_LEN(string));
    if (packing->options->compatibility_mode) ps_write_str_header(packing->writer, size, true);
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

/* Whether it is an Integer of one byte, as most in Arrays are. */
static inline bool is_small(VALUE object)
{
    return FIXNUM_P(object) && (unsigned long)FIX2LONG(object) < 0x80;
}

void penstock_pack_array(struct penstock_packing *packing, VALUE array)
{
    uint32_t count = size_of("an Array", (size_t)RARRAY_LEN(array));
    ps_write_array_header(packing->writer, count);
    if (count == 0) return;
    enter_container(packing);
    for (uint32_t i = 0; i < count; i++) {
        VALUE object = RARRAY_AREF(array, i);
        if (is_small(object)) {
            ps_write_byte(packing->writer, (uint8_t)FIX2LONG(object));
        } else if (FIXNUM_P(object)) {
            ps_write_int(packing->writer, FIX2LONG(object));
        } else {
            penstock_pack(packing, object);
            /* M:pack_array_size */
            if ((size_t)RARRAY_LEN(array) != count) rb_raise(rb_eRuntimeError, "an Array changed its size while it was packed");
        }
    }
    leave(packing);
}

static int pack_pair(VALUE key, VALUE value, VALUE arg)
{
    struct penstock_packing *packing = (struct penstock_packing *)arg;
    uint32_t left = packing->pairs;
    if (left == 0) return ST_STOP;
    if (RB_TYPE_P(key, T_STRING) && RBASIC_CLASS(key) == rb_cString) penstock_pack_string(packing, key);
    else penstock_pack(packing, key);
    if (FIXNUM_P(value)) ps_write_int(packing->writer, FIX2LONG(value));
    else penstock_pack(packing, value);
    packing->pairs = left - 1;
    return ST_CONTINUE;
}

void penstock_pack_hash(struct penstock_packing *packing, VALUE hash)
{
    uint32_t size = size_of("a Hash", RHASH_SIZE(hash)), calls = packing->calls;
    ps_write_map_header(packing->writer, size);
    if (size == 0) return;
    enter_container(packing);
    packing->pairs = size;
    rb_hash_foreach(hash, pack_pair, (VALUE)packing);
    if (packing->pairs > 0 || (packing->calls != calls && RHASH_SIZE(hash) != size)) /* M:pack_hash_size */
        rb_raise(rb_eRuntimeError, "a Hash changed its size while it was packed");
    leave(packing);
}

/* penstock_pack calls each of these last, so it needs no stack itself. Deeply nested objects pass through it at each level. */
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

/* An object of a program's subclass: as its registered type, or as a String, Array or Hash. */
static void pack_subclass(struct penstock_packing *packing, VALUE object)
{
    if (pack_if_registered(packing, object)) return;
    switch (RB_BUILTIN_TYPE(object)) {
    case T_STRING: penstock_pack_string(packing, object); break;
    case T_ARRAY: penstock_pack_array(packing, object); break;
    default: penstock_pack_hash(packing, object);
    }
}

/* For depths from PENSTOCK_GUARD_FROM on, so that other objects do not pay for the guard. */
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
    packing->guard_from = UINT32_MAX;
    penstock_guard_stack(pack_it, (VALUE)&guarded);
    packing->guard_from = PENSTOCK_GUARD_FROM;
}

void penstock_pack(struct penstock_packing *packing, VALUE object)
{
    if (packing->depth >= packing->guard_from) {
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

/* ---- packing into a String, without a Packer ---- */

static void grow(struct ps_writer *writer, size_t more)
{
    struct to_string *to = (struct to_string *)writer;
    size_t capacity = writer->capacity * (NIL_P(to->more) ? 8 : 4);
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

/* Copies the bytes, with each long String in its place. */
static void copy_parts(struct ps_writer *to, const struct ps_writer *from, VALUE long_strings)
{
    size_t done = 0;
    for (long i = 0; !NIL_P(long_strings) && i < RARRAY_LEN(long_strings); i += 2) {
        VALUE string = RARRAY_AREF(long_strings, i);
        size_t place = NUM2SIZET(RARRAY_AREF(long_strings, i + 1));
        ps_write_bytes(to, from->data + done, place - done);
        ps_write_bytes(to, RSTRING_PTR(string), (size_t)RSTRING_LEN(string));
        done = place;
    }
    ps_write_bytes(to, from->data + done, from->size - done);
}

static VALUE assemble(const struct ps_writer *writer, VALUE long_strings)
{
    size_t size = writer->size;
    for (long i = 0; i < RARRAY_LEN(long_strings); i += 2) size += (size_t)RSTRING_LEN(RARRAY_AREF(long_strings, i));
    VALUE result = rb_str_new(NULL, (long)size);
    struct ps_writer to = { .data = RSTRING_PTR(result), .capacity = size };
    copy_parts(&to, writer, long_strings);
    return result;
}

VALUE penstock_pack_to_string(VALUE object, VALUE registry, const struct penstock_mp_options *options)
{
    struct to_string to;
    VALUE long_strings = Qnil;
    to.more = Qnil;
    to.writer = (struct ps_writer){ .data = to.first, .capacity = sizeof(to.first), .grow = grow };
    struct penstock_packing packing;
    packing.writer = &to.writer;
    packing.registry = penstock_registry_of(registry);
    packing.registry_value = registry;
    packing.options = options;
    packing.depth = 0;
    packing.looked = packing.unprotected = false;
    packing.calls = 0;
    packing.guard_from = PENSTOCK_GUARD_FROM;
    packing.packer_value = Qnil;
    packing.packer = NULL;
    packing.long_strings = &long_strings;
    packing.payloads = 0;
    penstock_pack(&packing, object);
    RB_GC_GUARD(registry);
    if (packing.packer) {
        VALUE taken = penstock_packer_take(packing.packer);
        RB_GC_GUARD(packing.packer_value);
        return taken;
    }
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
