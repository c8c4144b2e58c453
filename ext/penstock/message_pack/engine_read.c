/*
 * Turns MessagePack's bytes into tokens; see engine.h. The reader takes a token only when all of its bytes are there. So a reader
 * that ran out of bytes continues with the same token when more bytes are there. It allocates nothing: the caller provides the
 * frames.
 */
#include "message_pack/engine.h"

static inline uint64_t number16(const uint8_t *at)
{
    return (uint64_t)at[0] << 8 | at[1];
}

static inline uint64_t number32(const uint8_t *at)
{
    return number16(at) << 16 | number16(at + 2);
}

static uint64_t number(const uint8_t *at, int bytes)
{
    switch (bytes) {
    case 1: return at[0];
    case 2: return number16(at);
    case 4: return number32(at);
    case 8: return number32(at) << 32 | number32(at + 4);
    default: return 0;
    }
}

static size_t there(const struct ps_reader *reader)
{
    return (size_t)(reader->end - reader->at);
}

static enum ps_read take_int(struct ps_reader *reader, struct ps_token *token, int64_t value, size_t size)
{
    token->kind = PS_INT;
    token->i = value;
    reader->at += size;
    return PS_READ_OK;
}

static enum ps_read take_uint(struct ps_reader *reader, struct ps_token *token, uint64_t value, size_t size)
{
    take_int(reader, token, (int64_t)value, size);
    if (value > INT64_MAX) { /* M:read_64_bits */
        token->kind = PS_UINT;
        token->u = value;
    }
    return PS_READ_OK;
}

static enum ps_read take_float(struct ps_reader *reader, struct ps_token *token, double value, size_t size)
{
    token->kind = PS_FLOAT;
    token->f = value;
    reader->at += size;
    return PS_READ_OK;
}

/* For PS_STR, PS_BIN and PS_EXT: the bytes begin after `header` bytes. */
static enum ps_read take_bytes(struct ps_reader *reader, struct ps_token *token, enum ps_kind kind, size_t header, uint64_t size)
{
    if (size > reader->max_bytes) return PS_READ_TOO_LONG; /* M:read_max_bytes */
    if (there(reader) - header < size) return PS_READ_MORE; /* M:read_token_bytes */
    token->kind = kind;
    token->size = (uint32_t)size;
    token->bytes = reader->at + header;
    reader->at += header + size;
    return PS_READ_OK;
}

static enum ps_read take_ext(struct ps_reader *reader, struct ps_token *token, size_t header, uint64_t size)
{
    if (there(reader) < header) return PS_READ_MORE; /* M:read_ext_type */
    token->type = (int8_t)reader->at[header - 1];
    return take_bytes(reader, token, PS_EXT, header, size);
}

static enum ps_read take_container(struct ps_reader *reader, struct ps_token *token, enum ps_kind kind, size_t header,
                                   uint64_t count)
{
    token->kind = kind;
    token->size = (uint32_t)count;
    reader->at += header;
    return PS_READ_OK;
}

static float single(uint64_t number)
{
    uint32_t bits = (uint32_t)number;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static double twice(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The size of the number that follows a format's first byte: 1, 2, 4 or 8 bytes; 0: no number follows. */
static int number_size(uint8_t format)
{
    static const uint8_t sizes[32] = {
        0, 0, 0, 0, 1, 2, 4, 1, 2, 4, 4, 8, 1, 2, 4, 8, /* c0 to cf */
        1, 2, 4, 8, 0, 0, 0, 0, 0, 1, 2, 4, 2, 4, 2, 4, /* d0 to df */
    };
    return sizes[format - 0xc0];
}

static enum ps_read read_other(struct ps_reader *reader, struct ps_token *token, uint8_t format)
{
    int size = number_size(format);
    size_t header = 1 + (size_t)size;
    if (there(reader) < header) return PS_READ_MORE; /* M:read_header_bytes */
    uint64_t value = number(reader->at + 1, size);

    switch (format) {
    case 0xc0: token->kind = PS_NIL; break;
    case 0xc1: return PS_READ_INVALID;
    case 0xc2: token->kind = PS_FALSE; break;
    case 0xc3: token->kind = PS_TRUE; break;
    case 0xc4: case 0xc5: case 0xc6: return take_bytes(reader, token, PS_BIN, header, value);
    case 0xc7: case 0xc8: case 0xc9: return take_ext(reader, token, header + 1, value);
    case 0xca: return take_float(reader, token, (double)single(value), header);
    case 0xcb: return take_float(reader, token, twice(value), header);
    case 0xcc: case 0xcd: case 0xce: case 0xcf: return take_uint(reader, token, value, header);
    case 0xd0: return take_int(reader, token, (int8_t)value, header);
    case 0xd1: return take_int(reader, token, (int16_t)value, header);
    case 0xd2: return take_int(reader, token, (int32_t)value, header);
    case 0xd3: return take_int(reader, token, (int64_t)value, header);
    case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8: return take_ext(reader, token, 2, UINT64_C(1) << (format - 0xd4));
    case 0xd9: case 0xda: case 0xdb: return take_bytes(reader, token, PS_STR, header, value);
    case 0xdc: case 0xdd: return take_container(reader, token, PS_ARRAY, header, value);
    default: return take_container(reader, token, PS_MAP, header, value);
    }
    reader->at++;
    return PS_READ_OK;
}

static inline enum ps_read read_token(struct ps_reader *reader, struct ps_token *token)
{
    if (reader->at == reader->end) return PS_READ_MORE; /* M:read_first_byte */
    uint8_t format = *reader->at;
    if (format < 0x80) return take_int(reader, token, format, 1);
    if (format < 0x90) return take_container(reader, token, PS_MAP, 1, format & 0x0f);
    if (format < 0xa0) return take_container(reader, token, PS_ARRAY, 1, format & 0x0f);
    if (format < 0xc0) return take_bytes(reader, token, PS_STR, 1, format & 0x1f);
    if (format >= 0xe0) return take_int(reader, token, (int8_t)format, 1);
    return read_other(reader, token, format);
}

enum ps_read ps_read_token(struct ps_reader *reader, struct ps_token *token)
{
    return read_token(reader, token);
}

/* How many values follow a container's header; 0 for any other token. */
static uint64_t values_in(const struct ps_token *token)
{
    if (token->kind < PS_ARRAY) return 0;
    return (uint64_t)token->size * (token->kind == PS_MAP ? 2 : 1);
}

static enum ps_read open_container(struct ps_reader *reader, bool map, uint64_t values)
{
    if (reader->depth == reader->max_depth) return PS_READ_TOO_DEEP; /* M:read_max_depth */
    if (values > reader->max_elements - reader->elements) return PS_READ_TOO_MANY; /* M:read_max_elements */
    /* M:read_missing_bytes */
    if (reader->whole && reader->awaited + values > there(reader)) return PS_READ_MORE; /* each has at least one byte */
    reader->elements += values;
    reader->awaited += values;
    reader->frames[reader->depth++] = (struct ps_frame){ .left = values, .map = map };
    return PS_READ_OK;
}

enum ps_read ps_read_value(struct ps_reader *reader, struct ps_token *token)
{
    enum ps_read result = reader->skipping > 0 ? ps_read_skip(reader) : PS_READ_OK;
    if (result != PS_READ_OK) return result;
    const uint8_t *began = reader->at;
    result = read_token(reader, token);
    if (result != PS_READ_OK) return result;
    uint64_t before = reader->elements;
    if (reader->depth > 0) reader->awaited--;
    else result = ps_read_begin(reader);
    uint64_t values = values_in(token);
    if (result == PS_READ_OK && values > 0) result = open_container(reader, token->kind == PS_MAP, values);
    if (result == PS_READ_OK) return PS_READ_OK;

    if (reader->depth > 0) reader->awaited++;
    reader->elements = before;
    reader->at = began;
    return result;
}

/* Skips one token: one value less to skip, plus the values inside it. */
static enum ps_read skip_token(struct ps_reader *reader)
{
    const uint8_t *began = reader->at;
    struct ps_token token;
    enum ps_read result = ps_read_token(reader, &token);
    if (result != PS_READ_OK) return result;
    uint64_t values = values_in(&token);
    if (values > reader->max_elements - reader->elements) {
        reader->at = began;
        return PS_READ_TOO_MANY;
    }
    reader->elements += values;
    reader->skipping += values - 1;
    return PS_READ_OK;
}

enum ps_read ps_read_skip(struct ps_reader *reader)
{
    enum ps_read result = PS_READ_OK;
    if (reader->depth > 0) { /* the rest of a value that is being read */
        uint64_t rest = reader->awaited;
        ps_read_reset(reader);
        reader->skipping = rest;
    } else if (reader->skipping == 0) {
        result = ps_read_begin(reader);
        if (result != PS_READ_OK) return result;
        reader->skipping = 1;
        result = skip_token(reader);
        if (result != PS_READ_OK) reader->skipping = 0; /* nothing was taken, so there is no skip to continue */
    }
    while (reader->skipping > 0 && result == PS_READ_OK) result = skip_token(reader);
    return result;
}
