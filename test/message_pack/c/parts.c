/*
 * The MessagePack engines without Ruby: each format at its limits. Then, for SECONDS each: documents, all their prefixes,
 * documents with wrong bytes, and random bytes. Built with sanitizers; see rakelib/sanitizers.rake.
 *
 *   parts SECONDS [SEED]
 *
 * Prints the seed and the number of rounds of each part, or the violated invariant.
 */
#include "checks.h"
#include <time.h>

static const struct limits unlimited = { 64, UINT32_MAX, UINT64_MAX };
static uint64_t seed;
static unsigned long rounds;
static double length_s;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint64_t random_bits(void)
{
    seed ^= seed << 13; /* xorshift64 */
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static size_t random_below(size_t limit)
{
    return (size_t)((random_bits() >> 16) % limit);
}

static void written_is(struct ps_writer *writer, const void *bytes, size_t size)
{
    if (writer->size != size || memcmp(writer->data, bytes, size) != 0) die("the bytes written differ from the format");
}

static void forget(struct ps_writer *writer)
{
    free(writer->data);
    writer->data = NULL;
    writer->size = writer->capacity = 0;
}

/* Reads the token of these bytes, in a block of exactly their size. Every prefix of them is too short, and reading it consumes
 * nothing. */
static struct ps_token token_of(const void *bytes, size_t size)
{
    struct ps_token token;
    for (size_t length = 0; length <= size; length++) {
        uint8_t *block = room(length);
        memcpy(block, bytes, length);
        struct ps_reader reader = { .at = block, .end = block + length, .max_bytes = UINT32_MAX };
        enum ps_read result = ps_read_token(&reader, &token);
        if (result != (length < size ? PS_READ_MORE : PS_READ_OK)) die("a complete token is not read, or an incomplete one is");
        if (reader.at != (length < size ? block : reader.end)) die("a token ends at another position");
        free(block); /* token.bytes is not used any more */
        rounds++;
    }
    return token;
}

/* ---- the formats of the specification ---- */

#define BYTES(text) text, sizeof(text) - 1

static void integers(void)
{
    static const struct {
        int64_t value;
        const char *bytes;
        size_t size;
    } table[] = {
        { 0, BYTES("\x00") },
        { 1, BYTES("\x01") },
        { 127, BYTES("\x7f") },
        { 128, BYTES("\xcc\x80") },
        { 255, BYTES("\xcc\xff") },
        { 256, BYTES("\xcd\x01\x00") },
        { 65535, BYTES("\xcd\xff\xff") },
        { 65536, BYTES("\xce\x00\x01\x00\x00") },
        { 4294967295, BYTES("\xce\xff\xff\xff\xff") },
        { 4294967296, BYTES("\xcf\x00\x00\x00\x01\x00\x00\x00\x00") },
        { INT64_MAX, BYTES("\xcf\x7f\xff\xff\xff\xff\xff\xff\xff") },
        { -1, BYTES("\xff") },
        { -32, BYTES("\xe0") },
        { -33, BYTES("\xd0\xdf") },
        { -128, BYTES("\xd0\x80") },
        { -129, BYTES("\xd1\xff\x7f") },
        { -32768, BYTES("\xd1\x80\x00") },
        { -32769, BYTES("\xd2\xff\xff\x7f\xff") },
        { -2147483648LL, BYTES("\xd2\x80\x00\x00\x00") },
        { -2147483649LL, BYTES("\xd3\xff\xff\xff\xff\x7f\xff\xff\xff") },
        { INT64_MIN, BYTES("\xd3\x80\x00\x00\x00\x00\x00\x00\x00") },
        /* longer than necessary: only read */
        { 5, BYTES("\xcc\x05") },
        { 5, BYTES("\xcd\x00\x05") },
        { 5, BYTES("\xce\x00\x00\x00\x05") },
        { 5, BYTES("\xcf\x00\x00\x00\x00\x00\x00\x00\x05") },
        { 5, BYTES("\xd0\x05") },
        { 128, BYTES("\xd1\x00\x80") },
        { 32768, BYTES("\xd2\x00\x00\x80\x00") },
        { -1, BYTES("\xd0\xff") },
        { -1, BYTES("\xd1\xff\xff") },
        { -1, BYTES("\xd2\xff\xff\xff\xff") },
        { -1, BYTES("\xd3\xff\xff\xff\xff\xff\xff\xff\xff") },
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct ps_writer writer = { .grow = grow_as_needed };
        ps_write_int(&writer, table[i].value);
        if (i < 21) written_is(&writer, table[i].bytes, table[i].size);
        else if (writer.size >= table[i].size) die("written longer than necessary");
        struct ps_token token = token_of(table[i].bytes, table[i].size);
        if (token.kind != PS_INT || token.i != table[i].value) die("another number");
        forget(&writer);
    }
    struct ps_writer writer = { .grow = grow_as_needed };
    ps_write_uint(&writer, (uint64_t)INT64_MAX + 1);
    written_is(&writer, BYTES("\xcf\x80\x00\x00\x00\x00\x00\x00\x00"));
    struct ps_token token = token_of(writer.data, writer.size);
    if (token.kind != PS_UINT || token.u != (uint64_t)INT64_MAX + 1) die("the large number is read differently");
    forget(&writer);
}

static void others(void)
{
    static const struct {
        enum ps_kind kind;
        double value;
        const char *bytes;
        size_t size;
    } table[] = {
        { PS_NIL, 0, BYTES("\xc0") },
        { PS_FALSE, 0, BYTES("\xc2") },
        { PS_TRUE, 0, BYTES("\xc3") },
        { PS_FLOAT, 0.5, BYTES("\xca\x3f\x00\x00\x00") },
        { PS_FLOAT, -3.0, BYTES("\xca\xc0\x40\x00\x00") },
        { PS_FLOAT, 1.1, BYTES("\xcb\x3f\xf1\x99\x99\x99\x99\x99\x9a") },
        { PS_FLOAT, 1e300, BYTES("\xcb\x7e\x37\xe4\x3c\x88\x00\x75\x9c") },
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct ps_token token = token_of(table[i].bytes, table[i].size);
        if (token.kind != table[i].kind) die("a token of another kind");
        if (token.kind == PS_FLOAT && token.f != table[i].value) die("another float");
        struct ps_writer writer = { .grow = grow_as_needed };
        struct seen seen = { .kind = token.kind };
        if (token.kind == PS_FLOAT) memcpy(&seen.bits, &token.f, sizeof(seen.bits));
        write_token(&writer, &seen, NULL, false);
        written_is(&writer, table[i].bytes, table[i].size);
        forget(&writer);
    }
    uint8_t never = 0xc1;
    struct ps_token token;
    struct ps_reader reader = { .at = &never, .end = &never + 1, .max_bytes = UINT32_MAX };
    if (ps_read_token(&reader, &token) != PS_READ_INVALID || reader.at != &never) die("a value that begins with 0xc1");
}

struct header {
    enum ps_kind kind;
    uint32_t size;
    bool old;
    const char *bytes;
    size_t length;
};

static const struct header headers[] = {
    { PS_STR, 0, false, BYTES("\xa0") },
    { PS_STR, 31, false, BYTES("\xbf") },
    { PS_STR, 32, false, BYTES("\xd9\x20") },
    { PS_STR, 255, false, BYTES("\xd9\xff") },
    { PS_STR, 256, false, BYTES("\xda\x01\x00") },
    { PS_STR, 65535, false, BYTES("\xda\xff\xff") },
    { PS_STR, 65536, false, BYTES("\xdb\x00\x01\x00\x00") },
    { PS_STR, UINT32_MAX, false, BYTES("\xdb\xff\xff\xff\xff") },
    { PS_STR, 31, true, BYTES("\xbf") },
    { PS_STR, 32, true, BYTES("\xda\x00\x20") },
    { PS_STR, 255, true, BYTES("\xda\x00\xff") },
    { PS_STR, 65536, true, BYTES("\xdb\x00\x01\x00\x00") },
    { PS_BIN, 0, false, BYTES("\xc4\x00") },
    { PS_BIN, 255, false, BYTES("\xc4\xff") },
    { PS_BIN, 256, false, BYTES("\xc5\x01\x00") },
    { PS_BIN, 65535, false, BYTES("\xc5\xff\xff") },
    { PS_BIN, 65536, false, BYTES("\xc6\x00\x01\x00\x00") },
    { PS_BIN, UINT32_MAX, false, BYTES("\xc6\xff\xff\xff\xff") },
    { PS_EXT, 0, false, BYTES("\xc7\x00\xf9") },
    { PS_EXT, 1, false, BYTES("\xd4\xf9") },
    { PS_EXT, 2, false, BYTES("\xd5\xf9") },
    { PS_EXT, 3, false, BYTES("\xc7\x03\xf9") },
    { PS_EXT, 4, false, BYTES("\xd6\xf9") },
    { PS_EXT, 5, false, BYTES("\xc7\x05\xf9") },
    { PS_EXT, 8, false, BYTES("\xd7\xf9") },
    { PS_EXT, 9, false, BYTES("\xc7\x09\xf9") },
    { PS_EXT, 16, false, BYTES("\xd8\xf9") },
    { PS_EXT, 17, false, BYTES("\xc7\x11\xf9") },
    { PS_EXT, 255, false, BYTES("\xc7\xff\xf9") },
    { PS_EXT, 256, false, BYTES("\xc8\x01\x00\xf9") },
    { PS_EXT, 65535, false, BYTES("\xc8\xff\xff\xf9") },
    { PS_EXT, 65536, false, BYTES("\xc9\x00\x01\x00\x00\xf9") },
    { PS_EXT, UINT32_MAX, false, BYTES("\xc9\xff\xff\xff\xff\xf9") },
    { PS_ARRAY, 0, false, BYTES("\x90") },
    { PS_ARRAY, 15, false, BYTES("\x9f") },
    { PS_ARRAY, 16, false, BYTES("\xdc\x00\x10") },
    { PS_ARRAY, 65535, false, BYTES("\xdc\xff\xff") },
    { PS_ARRAY, 65536, false, BYTES("\xdd\x00\x01\x00\x00") },
    { PS_ARRAY, UINT32_MAX, false, BYTES("\xdd\xff\xff\xff\xff") },
    { PS_MAP, 0, false, BYTES("\x80") },
    { PS_MAP, 15, false, BYTES("\x8f") },
    { PS_MAP, 16, false, BYTES("\xde\x00\x10") },
    { PS_MAP, 65535, false, BYTES("\xde\xff\xff") },
    { PS_MAP, 65536, false, BYTES("\xdf\x00\x01\x00\x00") },
    { PS_MAP, UINT32_MAX, false, BYTES("\xdf\xff\xff\xff\xff") },
};
enum { HEADERS = sizeof(headers) / sizeof(*headers) };

static enum ps_read value_of(const void *bytes, size_t size, struct limits limits, bool whole)
{
    struct feed feed;
    struct ps_token token;
    feed_begin(&feed, bytes, size, limits, 0);
    feed.reader.whole = whole;
    enum ps_read result = ps_read_value(&feed.reader, &token);
    feed_end(&feed);
    return result;
}

/* A value of 4 GB is rejected if it exceeds a limit. Otherwise the reader waits for it, without reading beyond the input. */
static void huge(const struct header *header)
{
    uint64_t elements = values_of(header->kind, header->size);
    bool container = elements > 0;
    struct limits less = { 1, UINT32_MAX - 1, elements - 1 }, just = { 1, UINT32_MAX, elements };
    if (value_of(header->bytes, header->length, less, false) != (container ? PS_READ_TOO_MANY : PS_READ_TOO_LONG))
        die("4 GB are accepted although the limit is lower");
    if (value_of(header->bytes, header->length, just, false) != (container ? PS_READ_OK : PS_READ_MORE)) die("4 GB are rejected");
    if (value_of(header->bytes, header->length, just, true) != PS_READ_MORE) die("4 GB of a shorter, complete input");
}

static void sizes(void)
{
    for (int i = 0; i < HEADERS; i++) {
        const struct header *header = &headers[i];
        struct ps_writer writer = { .grow = grow_as_needed };
        struct seen seen = { .kind = header->kind, .type = -7, .size = header->size };
        if (header->kind == PS_STR) ps_write_str_header(&writer, header->size, header->old);
        else if (header->kind == PS_BIN) ps_write_bin_header(&writer, header->size);
        else if (header->kind == PS_EXT) ps_write_ext_header(&writer, seen.type, header->size);
        else write_token(&writer, &seen, NULL, false);
        written_is(&writer, header->bytes, header->length);

        struct ps_token token = { .kind = PS_NIL };
        if (header->size == UINT32_MAX) huge(header);
        if (header->kind >= PS_ARRAY) {
            token = token_of(writer.data, writer.size);
        } else if (header->size < UINT32_MAX) {
            uint8_t *content = room(header->size);
            for (uint32_t at = 0; at < header->size; at++) content[at] = (uint8_t)random_bits();
            ps_write_bytes(&writer, content, header->size);
            free(content);
            if (header->size <= 256) token = token_of(writer.data, writer.size);
            if (check_bytes((uint8_t *)writer.data, writer.size, unlimited, 20000, 1, header->length) != PS_READ_MORE)
                die("a written value is rejected");
        }
        if (token.kind != PS_NIL && (token.kind != header->kind || token.size != header->size)) die("a token of another size");
        if (token.kind == PS_EXT && token.type != -7) die("a token of another type");
        forget(&writer);
    }
}

static void borders_part(void)
{
    integers();
    others();
    sizes();
}

/* ---- limits: each allows exactly its value ---- */

static void allows(const void *bytes, size_t size, struct limits limits, enum ps_read expected)
{
    struct limits lower = limits;
    if (expected == PS_READ_TOO_DEEP) lower.depth--;
    else if (expected == PS_READ_TOO_MANY) lower.elements--;
    else lower.bytes--;
    if (check_bytes(bytes, size, limits, 1, 1, size / 2) != PS_READ_MORE) die("a value within a limit is rejected");
    if (check_bytes(bytes, size, lower, 1, 1, size / 2) != expected) die("a value beyond a limit is not rejected");
    rounds++;
}

static void limits_part(void)
{
    allows(BYTES("\x91\x91\x91\x01"), (struct limits){ 3, 9, 9 }, PS_READ_TOO_DEEP);
    allows(BYTES("\x81\x01\x81\x02\x90"), (struct limits){ 2, 9, 9 }, PS_READ_TOO_DEEP);
    allows(BYTES("\x93\x01\x02\x03"), (struct limits){ 9, 9, 3 }, PS_READ_TOO_MANY);
    allows(BYTES("\x82\x01\x02\x03\x04"), (struct limits){ 9, 9, 4 }, PS_READ_TOO_MANY);
    allows(BYTES("\x92\x92\x01\x02\x81\x03\x04"), (struct limits){ 9, 9, 6 }, PS_READ_TOO_MANY);
    /* The count of elements starts again with each outermost value. */
    allows(BYTES("\x93\x01\x02\x03\x92\x91\x01\x02\x93\x01\x02\x03"), (struct limits){ 9, 9, 3 }, PS_READ_TOO_MANY);
    allows(BYTES("\xa4just"), (struct limits){ 9, 4, 9 }, PS_READ_TOO_LONG);
    allows(BYTES("\xd9\x04just"), (struct limits){ 9, 4, 9 }, PS_READ_TOO_LONG);
    allows(BYTES("\xc4\x04just"), (struct limits){ 9, 4, 9 }, PS_READ_TOO_LONG);
    allows(BYTES("\xc7\x04\x01just"), (struct limits){ 9, 4, 9 }, PS_READ_TOO_LONG);
    allows(BYTES("\xd6\x01just"), (struct limits){ 9, 4, 9 }, PS_READ_TOO_LONG);

    /* Skipping needs no frames at any depth. */
    enum { DEEP = 100000 };
    uint8_t *deep = room(DEEP);
    memset(deep, 0x91, DEEP - 1);
    deep[DEEP - 1] = 0x01;
    struct feed feed;
    feed_begin(&feed, deep, DEEP, (struct limits){ 2, 9, DEEP }, 999);
    if (skip(&feed) != PS_READ_OK || feed_at(&feed) != DEEP) die("a deep value is not skipped");
    feed_end(&feed);
    free(deep);
}

/* ---- random documents ---- */

static const uint32_t lengths[] = { 0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 255, 256 };

static void write_some(struct ps_writer *writer, int depth)
{
    static const uint8_t content[256] = "any content";
    uint64_t bits = random_bits() >> random_below(64);
    uint32_t size = lengths[random_below(random_below(2) ? 15 : 6)];
    double value;
    memcpy(&value, &bits, sizeof(value));
    switch (random_below(depth > 0 ? 14 : 10)) {
    case 0: ps_write_nil(writer); return;
    case 1: ps_write_bool(writer, bits & 1); return;
    case 2: ps_write_uint(writer, bits); return;
    case 3: ps_write_int(writer, (int64_t)bits); return;
    case 4: ps_write_int(writer, -(int64_t)(bits >> 1)); return;
    case 5: ps_write_float(writer, (float)(uint32_t)bits); return;
    case 6: ps_write_double(writer, value); return;
    case 7: ps_write_str_header(writer, size, bits & 1); break;
    case 8: ps_write_bin_header(writer, size); break;
    case 9: ps_write_ext_header(writer, (int8_t)bits, size); break;
    default:
        size = lengths[random_below(random_below(4) ? 4 : 10)];
        if (bits & 1) ps_write_array_header(writer, size);
        else ps_write_map_header(writer, size);
        for (uint32_t i = 0; i < size * (bits & 1 ? 1 : 2); i++) write_some(writer, depth - 1);
        return;
    }
    ps_write_bytes(writer, content, size);
}

static void write_document(struct ps_writer *writer)
{
    *writer = (struct ps_writer){ .grow = grow_as_needed };
    for (size_t i = 0, values = 1 + random_below(3); i < values; i++) write_some(writer, 1 + (int)random_below(5));
}

static struct limits random_limits(void)
{
    return (struct limits){ (uint32_t)random_below(6), (uint32_t)random_below(300), random_below(60) };
}

static enum ps_read check_anyhow(const void *bytes, size_t size, struct limits limits)
{
    rounds++;
    return check_bytes(bytes, size, limits, 1 + random_below(60), random_below(30), random_below(size + 1));
}

static void documents(void)
{
    struct ps_writer writer;
    write_document(&writer);
    if (check_anyhow(writer.data, writer.size, unlimited) != PS_READ_MORE) die("a document is not read to its end");
    check_anyhow(writer.data, writer.size, random_limits());
    free(writer.data);
}

/* Every prefix of a document is incomplete, and is not rejected for any other reason. */
static void beginnings(void)
{
    struct ps_writer writer;
    write_document(&writer);
    for (size_t size = 0; size < writer.size && size < 300; size++)
        if (check_anyhow(writer.data, size, unlimited) != PS_READ_MORE) die("a prefix of a document is rejected");
    free(writer.data);
}

static void mutants(void)
{
    struct ps_writer writer;
    write_document(&writer);
    for (size_t i = 0, changes = 1 + random_below(4); i < changes; i++)
        writer.data[random_below(writer.size)] = (char)(random_below(2) ? random_bits() : 0xc0 + random_below(32));
    check_anyhow(writer.data, writer.size, random_below(2) ? unlimited : random_limits());
    free(writer.data);
}

static void noise(void)
{
    uint8_t bytes[200];
    size_t size = random_below(sizeof(bytes));
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)(random_below(4) ? random_bits() : 0x80 + random_below(0x60));
    check_anyhow(bytes, size, random_below(2) ? unlimited : random_limits());
}

/* ---- all of them ---- */

static const struct part {
    const char *name;
    void (*run)(void);
    bool once;
} parts[] = {
    { "borders", borders_part, true }, { "limits", limits_part, true }, { "documents", documents, false },
    { "beginnings", beginnings, false }, { "mutants", mutants, false }, { "noise", noise, false },
};

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    length_s = atof(argv[1]);
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)(now_s() * 1e9) | 1;
    printf("seed: %llu\n", (unsigned long long)seed);
    fflush(stdout);
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        double end_s = now_s() + length_s;
        rounds = 0;
        do parts[i].run();
        while (!parts[i].once && now_s() < end_s);
        printf("%s %lu\n", parts[i].name, rounds);
        fflush(stdout);
    }
    return 0;
}
