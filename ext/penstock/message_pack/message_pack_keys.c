/*
 * A cache of the keys of Hashes that a Ractor has unpacked recently. Documents repeat keys. Ruby interns Strings in a table that
 * all Ractors share, and locks it for each lookup. A key goes into Ruby's table when it comes for the second time. For a key that
 * comes only once, such as an id, inserting it there and removing it again would cost more than a separate String.
 */
#include "message_pack/message_pack.h"
#include <ruby/ractor.h>

enum {
    KEYS_BITS = 9, /* 512 keys, all of which each GC marks */
    LONGEST_KEY = 64, /* bytes; longer keys are not kept */
    SEEN_BITS = 12 /* 4096 further keys, of which only a part of the hash is kept */
};

struct penstock_keys {
    VALUE kept[1 << KEYS_BITS];    /* frozen Strings and Symbols, or 0 */
    uint32_t part[1 << KEYS_BITS]; /* a part of each key's hash: most other keys are not compared */
    bool alone[1 << KEYS_BITS];    /* true: a String that is not in Ruby's table */
    uint16_t seen[1 << SEEN_BITS]; /* a part of the hash of the last key with this index */
};

static rb_ractor_local_key_t keys_of_ractor;

static void keys_mark(void *data)
{
    struct penstock_keys *keys = data;
    for (size_t i = 0; i < sizeof(keys->kept) / sizeof(*keys->kept); i++) rb_gc_mark(keys->kept[i]); /* M:pack_keys_mark */
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

/* Hashes a key. */
static uint64_t key_hash(const uint8_t *bytes, size_t size, bool symbolize)
{
    static const uint64_t factor = UINT64_C(0x9e3779b97f4a7c15); /* odd, with evenly spread bits */
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
    if (range != ENC_CODERANGE_7BIT && range != ENC_CODERANGE_VALID) /* unknown: the bytes end within a character */
        penstock_message_pack_raise("MalformedFormatError", "a Symbol's bytes are not valid UTF-8");
    VALUE symbol = rb_check_symbol_cstr(bytes, (long)size, rb_utf8_encoding());
    return NIL_P(symbol) ? rb_str_intern(rb_utf8_str_new(bytes, (long)size)) : symbol; /* a Symbol that the GC may free */
}

/* A Symbol of a bin, of any bytes, like Ruby's Symbol of a binary String. */
VALUE penstock_binary_symbol(const char *bytes, size_t size)
{
    VALUE symbol = rb_check_symbol_cstr(bytes, (long)size, rb_ascii8bit_encoding());
    return NIL_P(symbol) ? rb_str_intern(rb_str_new(bytes, (long)size)) : symbol;
}

static VALUE interned(const uint8_t *bytes, size_t size)
{
    return rb_enc_interned_str((const char *)bytes, (long)size, rb_utf8_encoding());
}

static VALUE alone(const uint8_t *bytes, size_t size)
{
    VALUE string = rb_str_new((const char *)bytes, (long)size);
    RB_ENCODING_SET_INLINED(string, rb_utf8_encindex());
    return rb_obj_freeze(string);
}

static bool seen_before(struct penstock_keys *keys, uint64_t hash)
{
    uint16_t *place = &keys->seen[hash >> (64 - KEYS_BITS - SEEN_BITS) & ((1 << SEEN_BITS) - 1)], part = (uint16_t)(hash >> 16);
    bool seen = *place == part;
    *place = part;
    return seen;
}

static bool is_key(VALUE key, const uint8_t *bytes, size_t size, bool symbolize)
{
    if (!key || SYMBOL_P(key) != symbolize) return false;
    VALUE string = symbolize ? rb_sym2str(key) : key;
    return (size_t)RSTRING_LEN(string) == size && memcmp(RSTRING_PTR(string), bytes, size) == 0;
}

VALUE penstock_key(struct penstock_keys *keys, const uint8_t *bytes, size_t size, bool symbolize, bool shared)
{
    if (size > LONGEST_KEY) return symbolize ? penstock_symbol((const char *)bytes, size) : interned(bytes, size);
    uint64_t hash = key_hash(bytes, size, symbolize);
    size_t place = hash >> (64 - KEYS_BITS);
    VALUE found = keys->kept[place];
    if (keys->part[place] == (uint32_t)hash && is_key(found, bytes, size, symbolize) && !(shared && keys->alone[place]))
        return found;

    bool by_itself = !symbolize && !shared && !seen_before(keys, hash);
    if (symbolize) found = penstock_symbol((const char *)bytes, size);
    else if (!by_itself) found = interned(bytes, size);
    else found = alone(bytes, size);
    keys->alone[place] = by_itself;
    keys->part[place] = (uint32_t)hash;
    return keys->kept[place] = found;
}

void penstock_message_pack_keys_init(void)
{
    keys_of_ractor = rb_ractor_local_storage_ptr_newkey(&keys_type);
}
