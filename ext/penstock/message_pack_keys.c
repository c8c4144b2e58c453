/*
 * The keys of Hashes that a Ractor unpacked lately. Documents repeat them, and Ruby looks each of them up in a table that all
 * Ractors share, under a lock of theirs.
 */
#include "message_pack.h"
#include <ruby/ractor.h>

enum {
    KEYS_BITS = 9, /* of their number: 512, which the GC visits each time */
    LONGEST_KEY = 64 /* bytes of one that is kept */
};

struct penstock_keys {
    VALUE kept[1 << KEYS_BITS]; /* frozen Strings and Symbols, or 0 */
};

static rb_ractor_local_key_t keys_of_ractor;

static void keys_mark(void *data)
{
    struct penstock_keys *keys = data;
    for (size_t i = 0; i < sizeof(keys->kept) / sizeof(*keys->kept); i++) rb_gc_mark(keys->kept[i]);
}

static const struct rb_ractor_local_storage_type keys_type = { .mark = keys_mark, .free = ruby_xfree };

struct penstock_keys *penstock_keys(void)
{
    struct penstock_keys *keys = rb_ractor_local_storage_ptr(keys_of_ractor);
    if (keys) return keys;
    keys = ZALLOC(struct penstock_keys);
    rb_ractor_local_storage_ptr_set(keys_of_ractor, keys);
    return keys;
}

static uint64_t eight(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

/* Nearly each key another number. */
static uint64_t mixed(const uint8_t *bytes, size_t size, bool symbolize)
{
    static const uint64_t factor = UINT64_C(0x9e3779b97f4a7c15); /* odd, and its bits are spread */
    uint64_t word = size * 2 + symbolize;
    if (size < 8) {
        for (size_t i = 0; i < size; i++) word = word << 8 | bytes[i];
    } else {
        for (size_t i = 0; i < size - 8; i += 8) word = (word ^ eight(bytes + i)) * factor;
        word ^= eight(bytes + size - 8);
    }
    return word * factor;
}

VALUE penstock_symbol(const char *bytes, size_t size)
{
    int range = ENC_CODERANGE_UNKNOWN;
    rb_str_coderange_scan_restartable(bytes, bytes + size, rb_utf8_encoding(), &range);
    if (range != ENC_CODERANGE_7BIT && range != ENC_CODERANGE_VALID) /* unknown: it ends within a character */
        penstock_message_pack_raise("MalformedFormatError", "a Symbol's bytes are no UTF-8");
    VALUE symbol = rb_check_symbol_cstr(bytes, (long)size, rb_utf8_encoding());
    return NIL_P(symbol) ? rb_str_intern(rb_utf8_str_new(bytes, (long)size)) : symbol; /* one that the GC may take again */
}

static VALUE new_key(const uint8_t *bytes, size_t size, bool symbolize)
{
    if (symbolize) return penstock_symbol((const char *)bytes, size);
    return rb_enc_interned_str((const char *)bytes, (long)size, rb_utf8_encoding());
}

static bool is_key(VALUE key, const uint8_t *bytes, size_t size, bool symbolize)
{
    if (!key || SYMBOL_P(key) != symbolize) return false;
    VALUE string = symbolize ? rb_sym2str(key) : key;
    return (size_t)RSTRING_LEN(string) == size && memcmp(RSTRING_PTR(string), bytes, size) == 0;
}

VALUE penstock_key(struct penstock_keys *keys, const uint8_t *bytes, size_t size, bool symbolize)
{
    if (size > LONGEST_KEY) return new_key(bytes, size, symbolize);
    VALUE *place = &keys->kept[mixed(bytes, size, symbolize) >> (64 - KEYS_BITS)];
    if (!is_key(*place, bytes, size, symbolize)) *place = new_key(bytes, size, symbolize);
    return *place;
}

void penstock_message_pack_keys_init(void)
{
    keys_of_ractor = rb_ractor_local_storage_ptr_newkey(&keys_type);
}
