/*
 * The two engines of Penstock::MessagePack: a writer, and a reader whose bytes may arrive in parts. They implement the format and
 * know nothing of Ruby or Kafka. One thread at a time may use an engine. The caller owns the memory.
 *
 * The format: https://github.com/msgpack/msgpack/blob/master/spec.md
 */
#ifndef PENSTOCK_MSGPACK_H
#define PENSTOCK_MSGPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- engine_write.c: the writer -------------------------------------------------------------------- */

/* Writes each value in the shortest format that can represent it. */
struct ps_writer {
    char *data;
    size_t size, capacity;
    /* Makes room for `more` bytes, or does not return. */
    void (*grow)(struct ps_writer *writer, size_t more);
};

/*
 * Returns room for `more` bytes. The caller writes the bytes and adds their number to `size`. A writer without capacity
 * references bytes that it does not own.
 */
static inline uint8_t *ps_write_room(struct ps_writer *writer, size_t more)
{
    if (writer->size + more > writer->capacity) writer->grow(writer, more);
    return (uint8_t *)writer->data + writer->size;
}

static inline void ps_write_bytes(struct ps_writer *writer, const void *bytes, size_t size)
{
    if (size == 0) return;
    memcpy(ps_write_room(writer, size), bytes, size);
    writer->size += size;
}

static inline void ps_write_byte(struct ps_writer *writer, uint8_t byte)
{
    *ps_write_room(writer, 1) = byte;
    writer->size++;
}

enum { PS_BYTE_NIL = 0xc0, PS_BYTE_FALSE = 0xc2, PS_BYTE_TRUE = 0xc3 };

static inline void ps_write_nil(struct ps_writer *writer)
{
    ps_write_byte(writer, PS_BYTE_NIL);
}

static inline void ps_write_bool(struct ps_writer *writer, bool value)
{
    ps_write_byte(writer, value ? PS_BYTE_TRUE : PS_BYTE_FALSE);
}

/* All numbers are big-endian. Compilers turn these into a single store. */
static inline void ps_put16(uint8_t *at, uint64_t value)
{
    at[0] = (uint8_t)(value >> 8), at[1] = (uint8_t)value;
}

static inline void ps_put32(uint8_t *at, uint64_t value)
{
    ps_put16(at, value >> 16);
    ps_put16(at + 2, value);
}

static inline void ps_put64(uint8_t *at, uint64_t value)
{
    ps_put32(at, value >> 32);
    ps_put32(at + 4, value);
}

/* Writes a format's byte and a number of 1, 2, 4 or 8 bytes. */
static inline void ps_write_number(struct ps_writer *writer, uint8_t format, uint64_t value, int bytes)
{
    uint8_t *at = ps_write_room(writer, 9); /* M:write_header_room */
    *at++ = format;
    if (bytes == 1) *at = (uint8_t)value;
    else if (bytes == 2) ps_put16(at, value);
    else if (bytes == 4) ps_put32(at, value);
    else ps_put64(at, value);
    writer->size += 1 + (size_t)bytes;
}

static inline void ps_write_uint(struct ps_writer *writer, uint64_t value)
{
    if (value < 0x80) ps_write_byte(writer, (uint8_t)value);
    else if (value <= UINT8_MAX) ps_write_number(writer, 0xcc, value, 1);
    else if (value <= UINT16_MAX) ps_write_number(writer, 0xcd, value, 2);
    else if (value <= UINT32_MAX) ps_write_number(writer, 0xce, value, 4);
    else ps_write_number(writer, 0xcf, value, 8);
}

static inline void ps_write_int(struct ps_writer *writer, int64_t value)
{
    uint64_t bits = (uint64_t)value;
    if (value >= 0) ps_write_uint(writer, bits);
    else if (value >= -32) ps_write_byte(writer, (uint8_t)bits);
    else if (value >= INT8_MIN) ps_write_number(writer, 0xd0, bits, 1);
    else if (value >= INT16_MIN) ps_write_number(writer, 0xd1, bits, 2);
    else if (value >= INT32_MIN) ps_write_number(writer, 0xd2, bits, 4);
    else ps_write_number(writer, 0xd3, bits, 8);
}

static inline void ps_write_double(struct ps_writer *writer, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    ps_write_number(writer, 0xcb, bits, 8);
}

void ps_write_float(struct ps_writer *writer, float value);
/* Headers for the given number of bytes, elements or pairs. `old`: without str 8, which the first edition of the format lacks. */
void ps_write_str_header(struct ps_writer *writer, uint32_t size, bool old);
void ps_write_bin_header(struct ps_writer *writer, uint32_t size);
void ps_write_ext_header(struct ps_writer *writer, int8_t type, uint32_t size);
void ps_write_long_array_header(struct ps_writer *writer, uint32_t count);
void ps_write_long_map_header(struct ps_writer *writer, uint32_t count);

static inline void ps_write_array_header(struct ps_writer *writer, uint32_t count)
{
    if (count < 16) ps_write_byte(writer, (uint8_t)(0x90 | count));
    else ps_write_long_array_header(writer, count);
}

static inline void ps_write_map_header(struct ps_writer *writer, uint32_t count)
{
    if (count < 16) ps_write_byte(writer, (uint8_t)(0x80 | count));
    else ps_write_long_map_header(writer, count);
}

/* Header and bytes. */
void ps_write_str(struct ps_writer *writer, const void *bytes, uint32_t size, bool old);

enum { PS_SHORT = 32 }; /* Strings with fewer bytes have a header of one byte */

/* For most Strings: copies them without a call, with two overlapping moves. The writer must have room for PS_SHORT bytes. */
static inline void ps_put_short_str(struct ps_writer *writer, uint8_t *to, const void *bytes, size_t size)
{
    const uint8_t *from = bytes;
    *to++ = (uint8_t)(0xa0 | size);
    writer->size += 1 + size;
    if (size >= 16) {
        memcpy(to, from, 16);
        memcpy(to + size - 16, from + size - 16, 16);
    } else if (size >= 8) {
        memcpy(to, from, 8);
        memcpy(to + size - 8, from + size - 8, 8);
    } else if (size >= 4) {
        memcpy(to, from, 4);
        memcpy(to + size - 4, from + size - 4, 4);
    } else if (size > 0) {
        to[0] = from[0];
        to[size / 2] = from[size / 2];
        to[size - 1] = from[size - 1];
    }
}

/* ---- engine_read.c: the reader --------------------------------------------------------------------- */

enum ps_kind { PS_NIL, PS_FALSE, PS_TRUE, PS_INT, PS_UINT, PS_FLOAT, PS_STR, PS_BIN, PS_EXT, PS_ARRAY, PS_MAP };

struct ps_token {
    enum ps_kind kind;
    int8_t type;   /* of PS_EXT */
    uint32_t size; /* bytes of PS_STR, PS_BIN and PS_EXT; elements of PS_ARRAY, pairs of PS_MAP */
    union {
        int64_t i;
        uint64_t u; /* PS_UINT: above INT64_MAX */
        double f;
        const uint8_t *bytes;
    };
};

enum ps_read {
    PS_READ_OK,
    PS_READ_MORE,     /* the bytes end within the value; nothing was taken */
    PS_READ_INVALID,  /* no value begins with this byte */
    PS_READ_TOO_DEEP, /* this and the rest: a limit is exceeded */
    PS_READ_TOO_MANY,
    PS_READ_TOO_LONG
};

/* A container that is being read. */
struct ps_frame {
    uint64_t left; /* values that have not ended yet; a pair counts as two */
    uint32_t base; /* for the caller, as are `direct` and `keys` */
    bool direct;
    uint8_t keys;
    bool map;
};

struct ps_reader {
    const uint8_t *at, *end;
    struct ps_frame *frames; /* room for max_depth */
    uint32_t depth, max_depth;
    uint32_t max_bytes;
    uint64_t max_elements; /* limits the counts in the headers of all containers of one outermost value */
    uint64_t elements;
    uint64_t awaited;  /* values of open containers that have not begun */
    uint64_t skipping; /* values left of a skip for which the bytes did not suffice */
    bool whole;        /* no more bytes will come: a header whose count cannot fit into the bytes that are there fails at once */
    bool part;         /* this reads a part of a larger value: `elements` is not reset, and each value that is read adds one */
};

/* Whether this byte alone is an Integer. */
static inline bool ps_read_is_small(uint8_t format)
{
    return format < 0x80 || format >= 0xe0;
}

/* False: a value that begins with this byte is a container with values or an ext type. */
static inline bool ps_read_is_plain(uint8_t format)
{
    if (format < 0xc0) return format < 0x80 || format >= 0xa0 || (format & 0x0f) == 0;
    return format >= 0xe0 || (UINT32_C(0x0e0ffc7d) >> (format - 0xc0) & 1);
}

/* Counts an outermost value before it is read. If the result is not PS_READ_OK, nothing was counted. */
static inline enum ps_read ps_read_begin(struct ps_reader *reader)
{
    if (!reader->part) reader->elements = 0;
    else if (reader->elements == reader->max_elements) return PS_READ_TOO_MANY;
    else reader->elements++;
    return PS_READ_OK;
}

/* Reads a value or a container's header, without frames. */
enum ps_read ps_read_token(struct ps_reader *reader, struct ps_token *token);
/* Reads the next part of the outermost value. Opens a frame for a container that is not empty. After any other value, and after
 * closing a frame, the caller calls ps_read_ended. */
enum ps_read ps_read_value(struct ps_reader *reader, struct ps_token *token);
/* The same, without a call for the most frequent values in containers: small numbers and short Strings. */
static inline enum ps_read ps_read_next(struct ps_reader *reader, struct ps_token *token)
{
    if (reader->depth == 0 || reader->skipping > 0 || reader->at == reader->end) return ps_read_value(reader, token);
    uint8_t format = *reader->at;
    size_t size = 0;
    if (ps_read_is_small(format)) {
        token->kind = PS_INT;
        token->i = (int8_t)format;
    } else {
        size = format & 0x1f;
        if (format < 0xa0 || format >= 0xc0 || size >= (size_t)(reader->end - reader->at) || size > reader->max_bytes)
            return ps_read_value(reader, token);
        token->kind = PS_STR;
        token->size = (uint32_t)size;
        token->bytes = reader->at + 1;
    }
    reader->at += 1 + size;
    reader->awaited--;
    return PS_READ_OK;
}

/* Skips a whole value of any depth. If the bytes end within it, the next call continues the skip; so does ps_read_value before it
 * reads anything. */
enum ps_read ps_read_skip(struct ps_reader *reader);

/* Forgets the value that is being read, but not the bytes. */
static inline void ps_read_reset(struct ps_reader *reader)
{
    reader->depth = 0;
    reader->awaited = 0;
    reader->skipping = 0;
}

static inline struct ps_frame *ps_read_frame(struct ps_reader *reader)
{
    return &reader->frames[reader->depth - 1];
}

/* True: the innermost container has ended with this value. The caller closes it. */
static inline bool ps_read_ended(struct ps_reader *reader)
{
    return --ps_read_frame(reader)->left == 0;
}

static inline void ps_read_close(struct ps_reader *reader)
{
    reader->depth--;
}

#endif
