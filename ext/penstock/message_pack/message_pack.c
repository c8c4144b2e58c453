/*
 * The entry point of the extension penstock/message_pack; packing and unpacking in one call; the options and errors that the
 * classes share. lib/penstock/message_pack/codec.rb defines the module and the errors before it loads this.
 */
#include "message_pack/message_pack.h"

VALUE penstock_message_pack, penstock_extension_value;
ID penstock_id_call;

/* ---- errors ---- */

void penstock_message_pack_raise(const char *class_name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    VALUE text = rb_vsprintf(format, arguments);
    va_end(arguments);
    VALUE error_class = rb_const_get(penstock_message_pack, rb_intern(class_name));
    VALUE factory = rb_const_get(rb_const_get(rb_cObject, rb_intern("Penstock")), rb_intern("ErrorFactory"));
    rb_exc_raise(rb_funcall(factory, rb_intern("build"), 2, error_class, text));
}

void penstock_unread(enum ps_read why, const struct penstock_mp_options *options)
{
    switch (why) {
    case PS_READ_INVALID: penstock_message_pack_raise("MalformedFormatError", "invalid byte: no value begins with 0xc1");
    case PS_READ_TOO_DEEP: penstock_message_pack_raise("StackError", "nested more than %u deep (max_depth)", options->max_depth);
    case PS_READ_TOO_MANY:
        penstock_message_pack_raise("LimitError", "more than %llu values in one object (max_elements)",
                                    (unsigned long long)options->max_elements);
    case PS_READ_TOO_LONG:
        penstock_message_pack_raise("LimitError", "a String or payload of more than %u bytes (max_bytes)", options->max_bytes);
    default: rb_raise(rb_eEOFError, "the data ends within an object");
    }
}

static VALUE beyond_the_stack(VALUE arg, VALUE error)
{
    penstock_message_pack_raise("StackError", "nested too deeply for this thread's stack, or contains itself");
}

VALUE penstock_guard_stack(VALUE (*function)(VALUE arg), VALUE arg)
{
    return rb_rescue2(function, arg, beyond_the_stack, Qnil, rb_eSysStackError, (VALUE)0);
}

/* ---- options ---- */

enum option_kind { FLAG, NUMBER, NUMBER64, SIZE, UNUSED, UNUSED_FLAG }; /* unused: accepted, as the msgpack gem has them */

#define PLACE(field) offsetof(struct penstock_mp_options, field)

static const struct option {
    const char *name;
    unsigned known; /* the kinds that have it */
    enum option_kind kind;
    size_t place;
    uint64_t least, most; /* nil means `most` */
} known_options[] = {
    { "symbolize_keys", PENSTOCK_MP_UNPACK, FLAG, PLACE(symbolize_keys), 0, 0 },
    { "freeze", PENSTOCK_MP_UNPACK, FLAG, PLACE(freeze), 0, 0 },
    { "allow_unknown_ext", PENSTOCK_MP_UNPACK, FLAG, PLACE(allow_unknown_ext), 0, 0 },
    { "key_cache", PENSTOCK_MP_UNPACK, UNUSED_FLAG, 0, 0, 0 }, /* keys are interned anyway */
    { "max_depth", PENSTOCK_MP_PACK | PENSTOCK_MP_UNPACK, NUMBER, PLACE(max_depth), 1, UINT32_MAX },
    { "max_elements", PENSTOCK_MP_UNPACK, NUMBER64, PLACE(max_elements), 1, INT64_MAX },
    { "max_bytes", PENSTOCK_MP_UNPACK, NUMBER, PLACE(max_bytes), 1, UINT32_MAX },
    { "compatibility_mode", PENSTOCK_MP_PACK, FLAG, PLACE(compatibility_mode), 0, 0 },
    { "io_buffer_size", PENSTOCK_MP_BUFFER, SIZE, PLACE(io_buffer_size), 1024, INT32_MAX },
    { "read_reference_threshold", PENSTOCK_MP_BUFFER, UNUSED, 0, 0, INT32_MAX },
    { "write_reference_threshold", PENSTOCK_MP_BUFFER, UNUSED, 0, 0, INT32_MAX },
};

enum { OPTIONS = sizeof(known_options) / sizeof(*known_options) };
static ID option_ids[OPTIONS];

struct parsing {
    struct penstock_mp_options options;
    unsigned kinds;
};

static VALUE known_names(unsigned kinds)
{
    VALUE names = rb_ary_new();
    for (int i = 0; i < OPTIONS; i++)
        if (known_options[i].known & kinds) rb_ary_push(names, rb_str_new_cstr(known_options[i].name));
    return rb_ary_join(names, rb_str_new_cstr(", "));
}

static uint64_t option_number(const struct option *option, VALUE value)
{
    if (NIL_P(value)) return option->most;
    if (!RB_INTEGER_TYPE_P(value))
        rb_raise(rb_eTypeError, "%s is an Integer or nil, not %" PRIsVALUE, option->name, rb_inspect(value));
    /* M:pack_limit_maximum */
    if (!FIXNUM_P(value) || FIX2LONG(value) < (long)option->least || (uint64_t)FIX2LONG(value) > option->most)
        rb_raise(rb_eArgError, "%s is from %llu to %llu, not %" PRIsVALUE, option->name, (unsigned long long)option->least,
                 (unsigned long long)option->most, value);
    return (uint64_t)FIX2LONG(value);
}

static void set_option(const struct option *option, struct penstock_mp_options *options, VALUE value)
{
    char *place = (char *)options + option->place;
    switch (option->kind) {
    case FLAG: *(bool *)place = RTEST(value); break;
    case NUMBER: *(uint32_t *)place = (uint32_t)option_number(option, value); break;
    case NUMBER64: *(uint64_t *)place = option_number(option, value); break;
    case SIZE: *(size_t *)place = (size_t)option_number(option, value); break;
    case UNUSED: option_number(option, value); break;
    case UNUSED_FLAG: break;
    }
}

static int parse_option(VALUE name, VALUE value, VALUE arg)
{
    struct parsing *parsing = (struct parsing *)arg;
    for (int i = 0; i < OPTIONS; i++) {
        if (!(known_options[i].known & parsing->kinds) || !SYMBOL_P(name) || option_ids[i] != SYM2ID(name)) continue;
        set_option(&known_options[i], &parsing->options, value);
        return ST_CONTINUE;
    }
    rb_raise(rb_eArgError, "unknown option %" PRIsVALUE "; known: %" PRIsVALUE, rb_inspect(name), known_names(parsing->kinds));
}

struct penstock_mp_options penstock_mp_options(VALUE options, unsigned kinds)
{
    struct parsing parsing = {
        .options = {
            .max_depth = kinds & PENSTOCK_MP_UNPACK ? 128 : UINT32_MAX,
            .max_bytes = 256 << 20,
            .max_elements = 16 << 20,
            .io_buffer_size = 32 << 10,
        },
        .kinds = kinds,
    };
    if (NIL_P(options)) return parsing.options;
    Check_Type(options, T_HASH);
    rb_hash_foreach(options, parse_option, (VALUE)&parsing);
    return parsing.options;
}

void penstock_io_and_options(int argc, const VALUE *argv, VALUE *io, VALUE *options)
{
    rb_check_arity(argc, 0, 2);
    bool only_options = argc == 1 && RB_TYPE_P(argv[0], T_HASH);
    *io = argc > 0 && !only_options ? argv[0] : Qnil;
    *options = only_options ? argv[0] : argc > 1 ? argv[1] : Qnil;
}

/* ---- packing and unpacking in one call: by the module, with an empty Registry, or by a Registry ---- */

static VALUE pack(VALUE registry, int argc, const VALUE *argv)
{
    VALUE io, given;
    rb_check_arity(argc, 1, 3);
    penstock_io_and_options(argc - 1, argv + 1, &io, &given);
    struct penstock_mp_options options = penstock_mp_options(given, PENSTOCK_MP_PACK | PENSTOCK_MP_BUFFER);
    VALUE packed = penstock_pack_to_string(argv[0], registry, &options);
    if (NIL_P(io)) return packed;
    penstock_io_write(io, packed);
    return Qnil;
}

static VALUE unpack(VALUE registry, int argc, const VALUE *argv)
{
    rb_check_arity(argc, 1, 2);
    struct penstock_mp_options options = penstock_mp_options(argc > 1 ? argv[1] : Qnil, PENSTOCK_MP_UNPACK | PENSTOCK_MP_BUFFER);
    VALUE source = argv[0], string = rb_check_string_type(source);
    if (!NIL_P(string)) return penstock_unpack_string(string, registry, &options);
    return penstock_unpacker_full(penstock_unpacker_new(source, registry, &options));
}

static VALUE s_pack(int argc, VALUE *argv, VALUE self)
{
    return pack(penstock_empty_registry, argc, argv);
}

static VALUE s_unpack(int argc, VALUE *argv, VALUE self)
{
    return unpack(penstock_empty_registry, argc, argv);
}

static VALUE registry_pack(int argc, VALUE *argv, VALUE self)
{
    return pack(self, argc, argv);
}

static VALUE registry_unpack(int argc, VALUE *argv, VALUE self)
{
    return unpack(self, argc, argv);
}

/*
 * Every static variable of this extension is a class, an ID, an index of an encoding, a table that is set here once, or Ruby's name
 * for what belongs to one Ractor.
 */
RUBY_FUNC_EXPORTED void Init_message_pack(void)
{
    rb_ext_ractor_safe(true); /* M:codec_ractor_safe */
    VALUE penstock = rb_const_get(rb_cObject, rb_intern("Penstock"));
    penstock_error_freeze_init(penstock);
    penstock_message_pack = rb_const_get(penstock, rb_intern("MessagePack"));
    rb_gc_register_mark_object(penstock_message_pack);
    penstock_extension_value = rb_const_get(penstock_message_pack, rb_intern("ExtensionValue"));
    rb_gc_register_mark_object(penstock_extension_value);
    penstock_id_call = rb_intern("call");
    for (int i = 0; i < OPTIONS; i++) option_ids[i] = rb_intern(known_options[i].name);
    penstock_registry_init();
    penstock_buffer_init();
    penstock_message_pack_write_init();
    penstock_message_pack_keys_init();
    penstock_message_pack_read_init();
    penstock_packer_init();
    penstock_unpacker_init();

    VALUE registry = rb_const_get(penstock_message_pack, rb_intern("Registry"));
    rb_define_method(registry, "pack", registry_pack, -1);
    rb_define_method(registry, "unpack", registry_unpack, -1);
    rb_define_singleton_method(penstock_message_pack, "pack", s_pack, -1);
    rb_define_singleton_method(penstock_message_pack, "dump", s_pack, -1);
    rb_define_singleton_method(penstock_message_pack, "unpack", s_unpack, -1);
    rb_define_singleton_method(penstock_message_pack, "load", s_unpack, -1);
}
