/*
 * The invariants of the MessagePack engines (message_pack/engine.h) for any input, for parts.c and fuzz.c.
 * check_bytes checks all of them. If one is violated, it prints which and aborts.
 */
#ifndef MSGPACK_CHECKS_H
#define MSGPACK_CHECKS_H

#include "message_pack/engine.h"
#include <stdio.h>
#include <stdlib.h>

__attribute__((noreturn)) static void die(const char *what)
{
    printf("BROKEN: %s\n", what);
    fflush(stdout);
    abort();
}

static void *room(size_t size)
{
    void *data = malloc(size ? size : 1);
    if (!data) die("no memory");
    return data;
}

/* ---- input in pieces ---- */

struct limits {
    uint32_t depth, bytes;
    uint64_t elements;
};

/* Feeds the input in pieces. Each piece, together with the bytes not yet read, is in a block of exactly this size. So the
 * sanitizer detects reads beyond its end and reads of a freed block. The array of frames, too, has exactly the limit's size. */
struct feed {
    const uint8_t *input;
    size_t size, fed;
    size_t longest; /* maximum size of a piece; 0: all at once */
    uint32_t seed;
    uint8_t *block;
    struct ps_reader reader;
};

/* The reader's position in the input. */
static size_t feed_at(const struct feed *feed)
{
    return feed->fed - (size_t)(feed->reader.end - feed->reader.at);
}

static void feed_block(struct feed *feed, size_t from, size_t to)
{
    uint8_t *block = room(to - from);
    if (to > from) memcpy(block, feed->input + from, to - from);
    free(feed->block);
    feed->block = block;
    feed->fed = to;
    feed->reader.at = block;
    feed->reader.end = block + (to - from);
}

static bool feed_more(struct feed *feed)
{
    size_t left = feed->size - feed->fed, piece = left;
    if (left == 0) return false;
    if (feed->longest > 0) {
        feed->seed = feed->seed * 1664525 + 1013904223;
        piece = 1 + (feed->seed >> 8) % feed->longest;
        if (piece > left) piece = left;
    }
    feed_block(feed, feed_at(feed), feed->fed + piece);
    return true;
}

static void feed_begin(struct feed *feed, const uint8_t *input, size_t size, struct limits limits, size_t longest)
{
    *feed = (struct feed){ .input = input, .size = size, .longest = longest, .seed = (uint32_t)size };
    feed->reader.frames = room(limits.depth * sizeof(struct ps_frame));
    feed->reader.max_depth = limits.depth;
    feed->reader.max_bytes = limits.bytes;
    feed->reader.max_elements = limits.elements;
    feed_block(feed, 0, 0);
    if (longest == 0) feed_more(feed);
}

static void feed_end(struct feed *feed)
{
    free(feed->block);
    free(feed->reader.frames);
}

/* ---- reading, as the engine's user does ---- */

struct seen {
    enum ps_kind kind;
    int8_t type;
    uint32_t size, depth;
    size_t at;     /* in the input */
    uint64_t bits; /* of a number; for bytes: their position in the input */
};

struct reading {
    struct seen *tokens;
    size_t count;
    enum ps_read result; /* the last result */
    size_t taken;
    bool open; /* the input ended inside a value */
};

static uint64_t values_of(enum ps_kind kind, uint32_t size)
{
    return kind < PS_ARRAY ? 0 : kind == PS_MAP ? (uint64_t)size * 2 : size;
}

static struct seen seen_token(const struct feed *feed, const struct ps_token *token, size_t at, uint32_t depth)
{
    struct seen seen = { .kind = token->kind, .depth = depth, .at = at };
    if (token->kind >= PS_STR) seen.size = token->size;
    if (token->kind == PS_EXT) seen.type = token->type;
    if (token->kind == PS_INT) seen.bits = (uint64_t)token->i;
    if (token->kind == PS_UINT) seen.bits = token->u;
    if (token->kind == PS_UINT && token->u <= INT64_MAX) die("a number that fits an int64_t is read as unsigned");
    if (token->kind == PS_FLOAT) memcpy(&seen.bits, &token->f, sizeof(seen.bits));
    if (token->kind >= PS_STR && token->kind <= PS_EXT) {
        seen.bits = feed_at(feed) - token->size;
        if (token->bytes + token->size != feed->reader.at) die("bytes that do not end where the token does");
        if (memcmp(token->bytes, feed->input + seen.bits, token->size) != 0) die("other bytes than in the input");
    }
    return seen;
}

/* The number of values that the open containers still need, by their frames. */
static uint64_t awaited_in(const struct ps_reader *reader)
{
    uint64_t awaited = 0;
    for (uint32_t i = 0; i < reader->depth; i++) awaited += reader->frames[i].left - (i > 0);
    return awaited;
}

/* A result that reports missing bytes or an exceeded limit is right. The next read reports it again and consumes nothing. */
static void check_rejection(struct feed *feed, enum ps_read result, uint64_t counted, struct limits limits)
{
    struct ps_reader *reader = &feed->reader;
    struct ps_reader unlimited = { .at = reader->at, .end = reader->end, .max_bytes = UINT32_MAX };
    struct ps_token token = { .kind = PS_NIL };
    enum ps_read there = ps_read_token(&unlimited, &token);
    uint64_t values = there == PS_READ_OK ? values_of(token.kind, token.size) : 0;
    bool bytes = token.kind >= PS_STR && token.kind <= PS_EXT;
    uint64_t left = (uint64_t)(unlimited.end - unlimited.at);
    bool right = false;
    switch (result) {
    case PS_READ_MORE:
        right = there == PS_READ_MORE || (reader->whole && values > 0 && reader->awaited + values - (reader->depth > 0) > left);
        break;
    case PS_READ_INVALID: right = *reader->at == 0xc1; break;
    case PS_READ_TOO_DEEP: right = values > 0 && reader->depth == limits.depth; break;
    case PS_READ_TOO_MANY: right = values > 0 && values > limits.elements - counted; break;
    case PS_READ_TOO_LONG: right = there == PS_READ_MORE || (there == PS_READ_OK && bytes && token.size > limits.bytes); break;
    default: break;
    }
    if (!right) die("a value is rejected without a reason");

    const uint8_t *at = reader->at;
    if (ps_read_next(reader, &token) != result || reader->at != at) die("a rejected value is not rejected again");
    if (reader->awaited != awaited_in(reader)) die("the number of awaited values changed with a rejection");
}

/* Reads up to `most` tokens, or until no more can be read. */
static struct reading read_some(struct feed *feed, struct limits limits, size_t most)
{
    struct reading reading = { .tokens = room(feed->size * sizeof(struct seen)) };
    struct ps_reader *reader = &feed->reader;
    uint64_t counted = 0;
    while (reading.count < most) {
        struct ps_token token;
        uint32_t depth = reader->depth;
        size_t at = feed_at(feed);
        reading.result = ps_read_next(reader, &token);
        if (reading.result == PS_READ_MORE && feed_more(feed)) continue;
        if (depth == 0) counted = reader->skipping > 0 ? reader->elements : 0; /* the rest of a skipped value is missing */
        if (reading.result != PS_READ_OK) {
            check_rejection(feed, reading.result, counted, limits);
            break;
        }
        if (feed_at(feed) == at) die("a value without bytes");
        if (depth == 0 && reader->skipping > 0) die("a value inside a skipped value");
        uint64_t values = values_of(token.kind, token.kind >= PS_STR ? token.size : 0);
        counted += values;
        reading.tokens[reading.count++] = seen_token(feed, &token, at, depth);
        if (token.kind >= PS_STR && token.kind <= PS_EXT && token.size > limits.bytes) die("more bytes than allowed");
        if (counted > limits.elements) die("more elements than allowed");
        if (reader->depth > limits.depth) die("deeper than allowed");
        if (values > 0 && ps_read_frame(reader)->map != (token.kind == PS_MAP)) die("another kind of container");
        if (values == 0)
            while (reader->depth > 0 && ps_read_ended(reader)) ps_read_close(reader);
        if (reader->awaited != awaited_in(reader)) die("the number of awaited values does not match the frames");
        if (reader->whole && values > 0 && reader->awaited > (uint64_t)(reader->end - reader->at))
            die("a container has more elements than the input has bytes");
    }
    reading.taken = feed_at(feed);
    reading.open = reader->depth > 0;
    return reading;
}

static bool same_token(const struct seen *one, const struct seen *other)
{
    return one->kind == other->kind && one->type == other->type && one->size == other->size && one->depth == other->depth &&
           one->at == other->at && one->bits == other->bits;
}

/* The second reading has the tokens of the first from `from` on, at least `count` of them. */
static void check_same(const struct reading *one, size_t from, const struct reading *other, size_t count)
{
    if (from + count > one->count || count > other->count) die("fewer tokens in pieces");
    for (size_t i = 0; i < count; i++)
        if (!same_token(&one->tokens[from + i], &other->tokens[i])) die("another token in pieces");
}

static void check_same_end(const struct reading *one, size_t from, const struct reading *other)
{
    check_same(one, from, other, one->count - from);
    if (other->count != one->count - from) die("more tokens in pieces");
    if (one->result != other->result || one->taken != other->taken) die("another end in pieces");
}

/* ---- the properties ---- */

static void check_pieces(const uint8_t *input, size_t size, struct limits limits, const struct reading *read, size_t longest)
{
    struct feed feed;
    feed_begin(&feed, input, size, limits, longest);
    struct reading pieces = read_some(&feed, limits, SIZE_MAX);
    check_same_end(read, 0, &pieces);
    free(pieces.tokens);
    feed_end(&feed);
}

/* A reader that knows that the input is complete may stop earlier, but only for that reason. */
static void check_whole(const uint8_t *input, size_t size, struct limits limits, const struct reading *read)
{
    struct feed feed;
    feed_begin(&feed, input, size, limits, 0);
    feed.reader.whole = true;
    struct reading whole = read_some(&feed, limits, SIZE_MAX);
    if (whole.result == PS_READ_MORE) check_same(read, 0, &whole, whole.count);
    else check_same_end(read, 0, &whole);
    free(whole.tokens);
    feed_end(&feed);
}

static enum ps_read skip(struct feed *feed)
{
    enum ps_read result;
    do result = ps_read_skip(&feed->reader);
    while (result == PS_READ_MORE && feed_more(feed));
    return result;
}

/* The first token from `from` on that begins an outermost value; without one, the number of tokens. */
static size_t next_outermost(const struct reading *read, size_t from)
{
    while (from < read->count && read->tokens[from].depth > 0) from++;
    return from;
}

/* Skipping is like reading, but does not limit the depth. It ends before the token `next`. */
static void check_skip(struct feed *feed, const struct reading *read, size_t next)
{
    enum ps_read result = skip(feed);
    if (next < read->count || !read->open) {
        if (result != PS_READ_OK) die("a value that can be read cannot be skipped");
        if (feed_at(feed) != (next < read->count ? read->tokens[next].at : read->taken)) die("skipping ends elsewhere");
    } else if (read->result != PS_READ_TOO_DEEP) {
        if (result != read->result || feed_at(feed) != read->taken) die("skipping ends with another result than reading");
        if (skip(feed) != result || feed_at(feed) != read->taken) die("skipping again ends with another result");
    }
}

static void check_skips(const uint8_t *input, size_t size, struct limits limits, const struct reading *read, size_t longest)
{
    struct feed feed;
    feed_begin(&feed, input, size, limits, longest);
    for (size_t next = 0; next < read->count;) {
        next = next_outermost(read, next + 1);
        check_skip(&feed, read, next);
    }
    if (!read->open && read->result != PS_READ_TOO_DEEP && skip(&feed) != read->result) die("skipping does not end like reading");
    feed_end(&feed);
}

/* Skips the rest of a value after `tokens` of its tokens were read. */
static void check_skip_after(const uint8_t *input, size_t size, struct limits limits, const struct reading *read, size_t tokens,
                             size_t longest)
{
    struct feed feed;
    feed_begin(&feed, input, size, limits, longest);
    free(read_some(&feed, limits, tokens).tokens);
    if (feed.reader.depth > 0) check_skip(&feed, read, next_outermost(read, tokens));
    feed_end(&feed);
}

/* The input ends inside a skipped value, after `cut` bytes. The next read finishes the skip. A reset discards it. */
static void check_cut_skip(const uint8_t *input, size_t size, struct limits limits, const struct reading *read, size_t cut,
                           bool reset)
{
    struct feed feed;
    feed_begin(&feed, input, cut, limits, 0);
    size_t began;
    enum ps_read result;
    do {
        began = feed_at(&feed);
        result = ps_read_skip(&feed.reader);
    } while (result == PS_READ_OK);
    bool in_value = feed_at(&feed) > began;
    feed.size = size;
    if (reset) {
        ps_read_reset(&feed.reader);
        feed_block(&feed, 0, size);
        struct reading again = read_some(&feed, limits, SIZE_MAX);
        check_same_end(read, 0, &again);
        free(again.tokens);
    } else if (result == PS_READ_MORE && read->result != PS_READ_TOO_DEEP) {
        size_t next = 0;
        while (next < read->count && read->tokens[next].at < began + in_value) next = next_outermost(read, next + 1);
        struct reading rest = read_some(&feed, limits, SIZE_MAX);
        /* It was read together with the rest of the skipped value. */
        if (rest.count > 0 && next < read->count) rest.tokens[0].at = read->tokens[next].at;
        check_same_end(read, next, &rest);
        free(rest.tokens);
    }
    feed_end(&feed);
}

/* ---- writing ---- */

static void grow_as_needed(struct ps_writer *writer, size_t more)
{
    char *data = room(writer->size + more);
    if (writer->size > 0) memcpy(data, writer->data, writer->size);
    free(writer->data);
    writer->data = data;
    writer->capacity = writer->size + more;
}

/* Writes a single-precision float if it loses nothing. */
static void write_float(struct ps_writer *writer, uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    float single = (float)value;
    double twice = (double)single;
    if (memcmp(&twice, &value, sizeof(value)) == 0) ps_write_float(writer, single);
    else ps_write_double(writer, value);
}

static void write_token(struct ps_writer *writer, const struct seen *token, const uint8_t *input, bool old)
{
    switch (token->kind) {
    case PS_NIL: ps_write_nil(writer); break;
    case PS_FALSE: case PS_TRUE: ps_write_bool(writer, token->kind == PS_TRUE); break;
    case PS_INT: ps_write_int(writer, (int64_t)token->bits); break;
    case PS_UINT: ps_write_uint(writer, token->bits); break;
    case PS_FLOAT: write_float(writer, token->bits); break;
    case PS_STR: ps_write_str_header(writer, token->size, old); break;
    case PS_BIN: ps_write_bin_header(writer, token->size); break;
    case PS_EXT: ps_write_ext_header(writer, token->type, token->size); break;
    case PS_ARRAY: ps_write_array_header(writer, token->size); break;
    case PS_MAP: ps_write_map_header(writer, token->size); break;
    }
    if (token->kind >= PS_STR && token->kind <= PS_EXT) ps_write_bytes(writer, input + token->bits, token->size);
}

/* Writes the tokens that were read. The output is not longer than the input, and reading it gives the same tokens. */
static void check_written(const uint8_t *input, struct limits limits, const struct reading *read, bool old)
{
    struct ps_writer writer = { .grow = grow_as_needed };
    ps_write_room(&writer, 1); /* so that there is data even without tokens */
    for (size_t i = 0; i < read->count; i++) write_token(&writer, &read->tokens[i], input, old);
    if (!old && writer.size > read->taken) die("not written in the shortest format");

    struct feed feed;
    feed_begin(&feed, (const uint8_t *)writer.data, writer.size, limits, 0);
    struct reading again = read_some(&feed, limits, SIZE_MAX);
    if (again.count != read->count || again.result != PS_READ_MORE || again.taken != writer.size) die("an unreadable output");
    for (size_t i = 0; i < again.count; i++) {
        struct seen *one = &read->tokens[i], *other = &again.tokens[i];
        if (one->kind >= PS_STR && one->kind <= PS_EXT && one->size == other->size) {
            if (memcmp(input + one->bits, writer.data + other->bits, one->size) != 0) die("other bytes than written");
            other->bits = one->bits;
        }
        other->at = one->at;
        if (!same_token(one, other)) die("another token than written");
    }
    free(again.tokens);
    free(writer.data);
    feed_end(&feed);
}

/* ---- all of them ---- */

/* The last three parameters choose the pieces and the positions of cuts. Returns the last result of reading. */
static enum ps_read check_bytes(const uint8_t *input, size_t size, struct limits limits, size_t longest, size_t tokens,
                                size_t cut)
{
    struct feed feed;
    feed_begin(&feed, input, size, limits, 0);
    struct reading read = read_some(&feed, limits, SIZE_MAX);
    check_whole(input, size, limits, &read);
    check_pieces(input, size, limits, &read, longest);
    if (size <= 256) check_pieces(input, size, limits, &read, 1);
    check_skips(input, size, limits, &read, 0);
    check_skips(input, size, limits, &read, longest);
    check_skip_after(input, size, limits, &read, tokens, longest);
    check_cut_skip(input, size, limits, &read, cut, false);
    check_cut_skip(input, size, limits, &read, cut, true);
    check_written(input, limits, &read, false);
    check_written(input, limits, &read, true);
    enum ps_read result = read.result;
    free(read.tokens);
    feed_end(&feed);
    return result;
}

#endif
