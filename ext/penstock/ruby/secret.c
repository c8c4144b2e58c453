/*
 * Penstock::Secret: the value of a setting that must not be shown. Its bytes are malloc'ed, where neither a method nor a walk
 * through Ruby's heap finds them. Only config.c and bearer.c read them. Immutable, so any Ractor may use it.
 */
#include "ruby/penstock.h"
#include <ruby/encoding.h>
#include <stdlib.h>
#include <string.h>

struct secret {
    size_t size;
    bool text;    /* UTF-8 without a zero byte */
    char bytes[]; /* and a zero byte */
};

static void secret_free(void *data)
{
    struct secret *secret = data;
    for (volatile char *c = secret->bytes; c < secret->bytes + secret->size; c++) *c = 0; /* volatile: compilers keep it */
    free(secret);
}

static size_t secret_size(const void *data)
{
    return sizeof(struct secret) + ((const struct secret *)data)->size + 1;
}

static const rb_data_type_t secret_type = {
    .wrap_struct_name = "Penstock::Secret",
    .function = { .dfree = secret_free, .dsize = secret_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED | RUBY_TYPED_FROZEN_SHAREABLE,
};

static const struct secret *secret_get(VALUE self)
{
    return penstock_data(self, &secret_type);
}

/* ---- texts ---- */

static bool is_utf8(const char *bytes, const char *end)
{
    for (int size; bytes < end; bytes += size) {
        int found = rb_enc_precise_mbclen(bytes, end, rb_utf8_encoding());
        if (!MBCLEN_CHARFOUND_P(found)) return false;
        size = MBCLEN_CHARFOUND_LEN(found);
    }
    return true;
}

bool penstock_is_text(VALUE string)
{
    rb_encoding *encoding = rb_enc_get(string);
    const char *bytes = RSTRING_PTR(string), *end = bytes + RSTRING_LEN(string);
    if (!rb_enc_asciicompat(encoding) || memchr(bytes, '\0', (size_t)RSTRING_LEN(string))) return false;
    if (encoding == rb_utf8_encoding() || encoding == rb_ascii8bit_encoding()) return is_utf8(bytes, end);
    return rb_enc_str_coderange(string) == ENC_CODERANGE_7BIT;
}

/* ---- making and reading one ---- */

static VALUE s_secret_new(VALUE self, VALUE string)
{
    StringValue(string);
    size_t size = (size_t)RSTRING_LEN(string);
    struct secret *secret = malloc(sizeof(*secret) + size + 1);
    if (!secret) rb_memerror();
    secret->size = size;
    secret->text = penstock_is_text(string);
    memcpy(secret->bytes, RSTRING_PTR(string), size); /* M:secret_copied */
    secret->bytes[size] = '\0';
    return rb_obj_freeze(TypedData_Wrap_Struct(self, &secret_type, secret));
}

const char *penstock_secret_text(VALUE value)
{
    if (!rb_typeddata_is_kind_of(value, &secret_type)) return NULL;
    const struct secret *secret = secret_get(value);
    return secret->text ? secret->bytes : NULL;
}

bool penstock_is_secret(VALUE value)
{
    return rb_typeddata_is_kind_of(value, &secret_type);
}

/* ---- its methods ---- */

/* Takes the same time wherever the first difference is. */
static bool same(const struct secret *secret, const char *bytes, size_t size)
{
    unsigned char difference = 0;
    if (secret->size != size) return false;
    for (size_t i = 0; i < size; i++) difference |= (unsigned char)(secret->bytes[i] ^ bytes[i]);
    return difference == 0;
}

/* == with another secret or a String. */
static VALUE secret_equal(VALUE self, VALUE other)
{
    if (RB_TYPE_P(other, T_STRING))
        return same(secret_get(self), RSTRING_PTR(other), (size_t)RSTRING_LEN(other)) ? Qtrue : Qfalse;
    if (!penstock_is_secret(other)) return Qfalse;
    return same(secret_get(self), secret_get(other)->bytes, secret_get(other)->size) ? Qtrue : Qfalse;
}

static VALUE secret_eql(VALUE self, VALUE other)
{
    return penstock_is_secret(other) ? secret_equal(self, other) : Qfalse;
}

static VALUE secret_hash(VALUE self)
{
    const struct secret *secret = secret_get(self);
    return ST2FIX(rb_memhash(secret->bytes, (long)secret->size));
}

static VALUE secret_empty(VALUE self)
{
    return secret_get(self)->size == 0 ? Qtrue : Qfalse;
}

static VALUE secret_is_text(VALUE self)
{
    return secret_get(self)->text ? Qtrue : Qfalse;
}

static VALUE secret_pem(VALUE self)
{
    const struct secret *secret = secret_get(self);
    return ps_secret_text(secret->bytes, secret->size) ? Qtrue : Qfalse;
}

/* ---- Penstock::Settings: which values are secrets ---- */

static VALUE s_settings_secret(VALUE self, VALUE name)
{
    if (SYMBOL_P(name)) name = rb_sym2str(name);
    if (!RB_TYPE_P(name, T_STRING) || !penstock_is_text(name)) return Qtrue; /* treats an unreadable name as that of a secret */
    return ps_secret_setting(rb_string_value_cstr(&name)) ? Qtrue : Qfalse;
}

static VALUE s_settings_text(VALUE self, VALUE string)
{
    if (penstock_is_secret(string)) return secret_is_text(string);
    return RB_TYPE_P(string, T_STRING) && penstock_is_text(string) ? Qtrue : Qfalse;
}

void penstock_secret_init(void)
{
    VALUE settings = rb_const_get(penstock_module, rb_intern("Settings"));
    rb_define_singleton_method(settings, "secret?", s_settings_secret, 1);
    rb_define_singleton_method(settings, "text?", s_settings_text, 1);
    rb_define_singleton_method(settings, "read", penstock_setting_read, 2);

    VALUE secret_class = rb_const_get(penstock_module, rb_intern("Secret"));
    rb_undef_alloc_func(secret_class);
    rb_define_singleton_method(secret_class, "new", s_secret_new, 1);
    rb_define_method(secret_class, "==", secret_equal, 1);
    rb_define_method(secret_class, "eql?", secret_eql, 1);
    rb_define_method(secret_class, "hash", secret_hash, 0);
    rb_define_method(secret_class, "empty?", secret_empty, 0);
    rb_define_method(secret_class, "text?", secret_is_text, 0);
    rb_define_method(secret_class, "pem?", secret_pem, 0);
}
