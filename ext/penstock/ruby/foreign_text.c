/*
 * The only file that makes Ruby Strings of text from outside: texts of brokers and librdkafka, names of brokers, clusters and
 * topics, statistics, log lines. core/base/text.c describes how the bytes are cleaned. `rake test:static` checks that no other file
 * does this. Payloads, keys and values of headers are data: consumed_message.c copies them unchanged. So is the metadata of a
 * committed offset. Penstock::Text.printable cleans users' Strings that become part of a sentence.
 *
 * These functions need the GVL. They run no Ruby code and handle no interrupts, so a caller that is taking an event cannot lose
 * it.
 */
#include "ruby/penstock.h"
#include <ruby/encoding.h>
#include <string.h>

static VALUE clean(const char *text, size_t size, enum ps_text_use use)
{
    size_t needed = ps_text_clean(NULL, 0, text, size, use);
    VALUE string = rb_utf8_str_new(NULL, (long)needed); /* M:broker_text_cleaned */
    ps_text_clean(RSTRING_PTR(string), needed + 1, text, size, use);
    return string;
}

VALUE penstock_text_sized(const char *text, size_t size)
{
    return clean(text, size, PS_TEXT_SHOWN);
}

VALUE penstock_text(const char *text)
{
    return text ? penstock_text_sized(text, strlen(text)) : Qnil;
}

VALUE penstock_json(const char *text, size_t size)
{
    return rb_obj_freeze(clean(text, size, PS_TEXT_JSON));
}

/* Nearly all names are plain. Ruby finds the interned String of a plain name without allocating a new String. */
static bool plain(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (text[i] < ' ' || text[i] > '~') return false;
    return true;
}

static VALUE interned(const char *text, enum ps_text_use use)
{
    size_t size = strlen(text);
    if (plain(text, size)) return rb_enc_interned_str(text, (long)size, rb_utf8_encoding());
    return rb_str_to_interned_str(clean(text, size, use));
}

VALUE penstock_name(const char *name)
{
    return interned(name, PS_TEXT_SHOWN);
}

VALUE penstock_header_name(const char *name)
{
    return interned(name, PS_TEXT_NAME);
}

VALUE penstock_setting(const char *value)
{
    return clean(value, strlen(value), PS_TEXT_NAME);
}

VALUE penstock_text_of_metadata(const char *metadata, size_t size)
{
    VALUE string = rb_utf8_str_new(metadata, (long)size);
    if (rb_enc_str_coderange(string) == ENC_CODERANGE_BROKEN) rb_enc_associate(string, rb_ascii8bit_encoding());
    return rb_obj_freeze(string);
}
