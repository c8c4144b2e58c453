/*
 * Penstock::MessagePack: the engines in core/msgpack.h, and what is between them and Ruby's objects.
 *
 * Nothing here is shared by the process but classes and IDs, set once. A Registry never changes; Packers, Unpackers and Buffers
 * belong to the Ractor that made them, and what a single call needs is on its stack.
 */
#ifndef PENSTOCK_MESSAGE_PACK_H
#define PENSTOCK_MESSAGE_PACK_H

#include "penstock.h"
#include "core/msgpack.h"
#include <ruby/encoding.h>

/* ---- message_pack.c: the module's functions, options and errors -------------------------------------- */

struct penstock_mp_options {
    bool symbolize_keys, freeze, allow_unknown_ext; /* of unpacking */
    bool compatibility_mode;                        /* of packing */
    uint32_t max_depth, max_bytes;
    uint64_t max_elements;
    size_t io_buffer_size;
};

extern VALUE penstock_message_pack, penstock_extension_value;
extern ID penstock_id_call;

enum { PENSTOCK_MP_PACK = 1, PENSTOCK_MP_UNPACK = 2, PENSTOCK_MP_BUFFER = 4 };

/* From a Hash or nil; raises for what none of the `kinds` knows. */
struct penstock_mp_options penstock_mp_options(VALUE options, unsigned kinds);
/* What the methods take as (io = nil, options = nil), with either left out. */
void penstock_io_and_options(int argc, const VALUE *argv, VALUE *io, VALUE *options);

NORETURN(void penstock_message_pack_raise(const char *class_name, const char *format, ...));
/* Raises what it means. */
NORETURN(void penstock_unread(enum ps_read why, const struct penstock_mp_options *options));
/* Calls it. Ruby can only raise its SystemStackError where the stack ends, which no `rescue` without a class sees: it becomes a
 * StackError here, where there is room again. */
VALUE penstock_guard_stack(VALUE (*function)(VALUE arg), VALUE arg);
void penstock_message_pack_init(void);

/* ---- message_pack_registry.c: what is registered, for the life of a Packer ---------------------------- */

struct penstock_ext_packer {
    VALUE klass;    /* class or module */
    VALUE callable; /* Symbol: a method of the object */
    int8_t type;
    bool recursive;
};

struct penstock_ext_unpacker {
    VALUE klass;    /* or nil */
    VALUE callable; /* Symbol: a method of the class */
    bool recursive, symbols;
};

struct penstock_registry {
    VALUE packers, unpackers; /* frozen Hashes, as Ruby gave them */
    size_t packer_count, unpacker_count;
    struct penstock_ext_packer *by_class;
    struct penstock_ext_unpacker *by_place;
    uint8_t places[256]; /* of a type, from -128 on, in by_place; 0: none, else one more than that */
    const struct penstock_ext_packer *symbols, *oversized; /* of Symbols; of Integers that no format has room for */
};

const struct penstock_registry *penstock_registry_get(VALUE registry);
const struct penstock_ext_packer *penstock_registry_find(const struct penstock_registry *registry, VALUE klass);
const struct penstock_ext_unpacker *penstock_registry_unpacker(const struct penstock_registry *registry, int8_t type);
extern VALUE penstock_empty_registry;
void penstock_registry_init(void);

/* ---- message_pack_buffer.c: bytes in, bytes out --------------------------------------------------------- */

struct penstock_buffer {
    struct ps_writer writer; /* first; its data up to `at` has been read. Without capacity the data is `held`'s */
    size_t at;
    VALUE held; /* a frozen String, or nil */
    VALUE io;
    size_t io_size;
    uint64_t gone;  /* bytes of a Packer's that were taken or dropped: so it knows which of the rest are older than a write */
    bool locked;    /* somebody reads its bytes where they are */
};

void penstock_io_write(VALUE io, VALUE string); /* all of it, or raises */
VALUE penstock_buffer_new(VALUE io, size_t io_size);
struct penstock_buffer *penstock_buffer_get(VALUE buffer);
void penstock_buffer_check(const struct penstock_buffer *buffer); /* raises when it is locked: before any change */
void penstock_buffer_append(VALUE self, VALUE string);
bool penstock_buffer_fill(VALUE self); /* from the io; false at its end, or without one */
VALUE penstock_buffer_give(VALUE self, VALUE io); /* all of it; how much that was. What the io raises leaves it as it was */
void penstock_buffer_flush(VALUE self);           /* the same with its own io, if there is one */
void penstock_buffer_clear(struct penstock_buffer *buffer);
VALUE penstock_buffer_to_s(const struct penstock_buffer *buffer);
static inline size_t penstock_buffer_size(const struct penstock_buffer *buffer) { return buffer->writer.size - buffer->at; }
void penstock_buffer_init(void);

/* ---- message_pack_write.c: Ruby's objects into a writer --------------------------------------------------- */

struct penstock_packing {
    struct ps_writer *writer;
    VALUE registry_value; /* of the next */
    const struct penstock_registry *registry;
    struct penstock_mp_options options;
    uint32_t depth;
    bool guarded; /* the end of the stack is seen to */
    VALUE packer; /* the Packer whose writer it is, for the objects' own methods; nil: none */
    VALUE found_class; /* the last that was looked for, and what was found */
    const struct penstock_ext_packer *found;
    VALUE *long_strings; /* an Array for those that are copied in the end: each, and where it belongs. NULL: none */
};

void penstock_pack(struct penstock_packing *packing, VALUE object);
void penstock_pack_string(struct penstock_packing *packing, VALUE string);
void penstock_pack_bin(struct penstock_packing *packing, VALUE string);
void penstock_pack_symbol(struct penstock_packing *packing, VALUE symbol);
void penstock_pack_integer(struct penstock_packing *packing, VALUE integer);
void penstock_pack_array(struct penstock_packing *packing, VALUE array);
void penstock_pack_hash(struct penstock_packing *packing, VALUE hash);
void penstock_pack_ext(struct penstock_packing *packing, VALUE type, VALUE payload);
VALUE penstock_pack_to_string(VALUE object, VALUE registry, struct penstock_mp_options options);
void penstock_message_pack_write_init(void);

/* ---- message_pack_packer.c --------------------------------------------------------------------------------- */

VALUE penstock_packer_new(VALUE registry, struct penstock_mp_options options, uint32_t depth);
void penstock_packer_bytes(VALUE packer, const char **bytes, size_t *size);
uint64_t penstock_packer_written(VALUE packer); /* bytes, ever */
void penstock_packer_depth(VALUE packer, uint32_t depth); /* at which its methods go on */
void penstock_packer_init(void);

/* ---- message_pack_keys.c: keys of Hashes that were seen lately -------------------------------------------------- */

struct penstock_keys;

struct penstock_keys *penstock_keys(void); /* the Ractor's, for as long as it lives */
VALUE penstock_key(struct penstock_keys *keys, const uint8_t *bytes, size_t size, bool symbolize);
VALUE penstock_symbol(const char *bytes, size_t size);
void penstock_message_pack_keys_init(void);

/* ---- message_pack_read.c: a reader's tokens into Ruby's objects ---------------------------------------------- */

enum { PENSTOCK_BUILD_STACK = 128, PENSTOCK_BUILD_FRAMES = 32 };

/* On the stack of who reads, where the GC finds what it holds. */
struct penstock_building {
    struct ps_reader reader; /* its max_depth is what there are frames for */
    const struct penstock_mp_options *options;
    const struct penstock_registry *registry;
    VALUE registry_value;
    VALUE *items; /* values of containers that have not ended, and large containers */
    size_t size, capacity;
    VALUE more_items, more_frames; /* hold them when they do not fit into the arrays below; else false */
    VALUE source; /* the String that is read, and may change when code of users' runs; false: the bytes stay where they are */
    uint64_t *turns, turn; /* how often code of users' began and ended, NULL: never; and what that was here */
    VALUE turns_held; /* that memory */
    struct penstock_keys *keys; /* the Ractor's; NULL until one is needed */
    VALUE first_items[PENSTOCK_BUILD_STACK];
    struct ps_frame first_frames[PENSTOCK_BUILD_FRAMES];
};

void penstock_build_begin(struct penstock_building *building, struct ps_reader reader,
                          const struct penstock_mp_options *options, VALUE registry);
/* Goes on with what was kept of an object. */
void penstock_build_restore(struct penstock_building *building, const VALUE *items, size_t size, const struct ps_frame *frames);
enum ps_read penstock_build(struct penstock_building *building, VALUE *value);
/* False: something has come back to what has gone on since, and may touch nothing. */
bool penstock_build_turn(struct penstock_building *building);
void penstock_build_end(struct penstock_building *building); /* need not be called when something is raised */
VALUE penstock_unpack_string(VALUE string, VALUE registry, const struct penstock_mp_options *options);
void penstock_message_pack_read_init(void);

/* ---- message_pack_unpacker.c ----------------------------------------------------------------------------------- */

VALUE penstock_unpacker_new(VALUE io, VALUE registry, const struct penstock_mp_options *options);
VALUE penstock_unpacker_over(VALUE payload, VALUE registry, const struct penstock_mp_options *options, uint32_t depth);
VALUE penstock_unpacker_full(VALUE unpacker);
void penstock_unpacker_init(void);

#endif
