/*
 * Penstock::MessagePack: the engines in core/msgpack.h, and what is between them and Ruby's objects.
 *
 * Nothing here is shared by the process but classes and IDs, set once. A Registry never changes; Packers, Unpackers and Buffers
 * belong to the Ractor that made them, and what a single call needs is on its stack.
 */
#ifndef PENSTOCK_MESSAGE_PACK_H
#define PENSTOCK_MESSAGE_PACK_H

#include "ruby/penstock.h"
#include "message_pack/engine.h"
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
    bool modules; /* there are some among the packers' classes */
    struct penstock_ext_packer *by_class;
    struct penstock_ext_unpacker *by_place;
    uint8_t places[256]; /* of a type, from -128 on, in by_place; 0: none, else one more than that */
    const struct penstock_ext_packer *symbols, *oversized; /* of Symbols; of Integers that no format has room for */
};

const struct penstock_registry *penstock_registry_get(VALUE registry); /* raises if it is none */
static inline const struct penstock_registry *penstock_registry_of(VALUE registry) /* of one that is known to be one */
{
    return RTYPEDDATA_DATA(registry);
}
const struct penstock_ext_packer *penstock_registry_find(const struct penstock_registry *registry, VALUE klass);
static inline const struct penstock_ext_unpacker *penstock_registry_unpacker(const struct penstock_registry *registry, int8_t type)
{
    uint8_t place = registry->places[type + 128];
    return place ? &registry->by_place[place - 1] : NULL;
}
extern VALUE penstock_empty_registry;
void penstock_registry_init(void);

/* ---- message_pack_buffer.c: bytes in, bytes out --------------------------------------------------------- */

struct penstock_buffer {
    struct ps_writer writer; /* first; its data up to `at` has been read. Without capacity the data is `held`'s */
    size_t at;
    VALUE held; /* what keeps bytes that are not its own: a frozen String or an Unpacker; or nil */
    VALUE io;
    size_t io_size;
    size_t base;    /* data up to here belongs to what encloses a payload that a Packer is writing: it stays until that has ended */
    uint64_t gone;  /* bytes of a Packer's that were taken or dropped: so it knows which of the rest are older than a write */
    uint64_t began; /* after so many bytes of all that there were, what is being written */
    bool unfinished; /* it runs no code of users': whoever uses the buffer and finds it so comes after it has raised */
    bool first;     /* its memory is a part of its owner */
    bool locked;    /* an Unpacker reads its bytes where they are */
};

void penstock_buffer_take_back(struct penstock_buffer *buffer, uint64_t began); /* what was written since and is there still */
static inline void penstock_buffer_settle(struct penstock_buffer *buffer)
{
    if (buffer->unfinished) penstock_buffer_take_back(buffer, buffer->began);
}

void penstock_io_write(VALUE io, VALUE string); /* all of it, or raises */
VALUE penstock_io_read(VALUE io, size_t size); /* nil at its end, or without one */
VALUE penstock_buffer_new(VALUE io, size_t io_size);
struct penstock_buffer *penstock_buffer_get(VALUE buffer);
NORETURN(void penstock_buffer_locked(void));
static inline void penstock_buffer_check(const struct penstock_buffer *buffer) /* raises when it is locked: before any change */
{
    if (buffer->locked) penstock_buffer_locked();
}
void penstock_buffer_append(VALUE self, VALUE string);

/* One that is a part of a Packer or Unpacker, until its Ruby object is asked for. */
struct penstock_buffer penstock_buffer_empty(void);
void penstock_buffer_mark(void *buffer);
void penstock_buffer_compact(void *buffer);
void penstock_buffer_release(struct penstock_buffer *buffer); /* its memory and what it holds */
void penstock_buffer_free(struct penstock_buffer *buffer); /* its memory: it is empty */
VALUE penstock_buffer_wrap(struct penstock_buffer *buffer); /* a Ruby Buffer with all that it has; it is empty then */
void penstock_buffer_put(VALUE owner, struct penstock_buffer *buffer, VALUE string);
/* Instead of what it has, not copied. */
void penstock_buffer_over(VALUE owner, struct penstock_buffer *buffer, VALUE holder, const void *bytes, size_t size);

VALUE penstock_buffer_give(VALUE self, VALUE io); /* all of it; how much that was. What the io raises leaves it as it was */
void penstock_buffer_flush(VALUE self);           /* the same with its own io, if there is one; no part of a payload */
/* Writes all of it to its io, and then the long String, which is not copied. */
void penstock_buffer_give_with(VALUE self, VALUE string);
void penstock_buffer_clear(struct penstock_buffer *buffer);
VALUE penstock_buffer_to_s(const struct penstock_buffer *buffer);
static inline size_t penstock_buffer_size(const struct penstock_buffer *buffer) { return buffer->writer.size - buffer->at; }
void penstock_buffer_init(void);

/* ---- message_pack_write.c: Ruby's objects into a writer --------------------------------------------------- */

enum { PENSTOCK_FOUND = 4, PENSTOCK_GUARD_FROM = 32 };

struct penstock_packer;

struct penstock_packing {
    struct ps_writer *writer; /* the Packer's may be another one after code of users' */
    const struct penstock_registry *registry;
    const struct penstock_mp_options *options;
    VALUE registry_value;
    uint32_t depth;
    uint32_t guard_from; /* the depth from which the end of the stack is still to be seen to */
    bool looked;  /* `found` is in use */
    bool unprotected; /* of a Packer's write: what it adds is taken back later, if it raises; code of users' is not called */
    VALUE packer_value; /* whose writer it is, for code of users'; nil: there is none yet, and `writer` is on the stack */
    struct penstock_packer *packer;
    VALUE *long_strings; /* an Array for those that are copied in the end, if at all: each, and where it belongs. NULL: none */
    uint32_t calls; /* of code of users' */
    uint32_t pairs; /* of the innermost Hash that are still to be written */
    uint32_t payloads;   /* of recursive types that are being written, one within the other */
    struct penstock_outer { size_t base, at; uint64_t gone; } outer; /* the buffer's before the first of them */
    struct penstock_found {
        VALUE klass;
        const struct penstock_ext_packer *packer; /* NULL: not registered */
        bool own, extension; /* it has a to_msgpack; it is an ExtensionValue */
    } found[PENSTOCK_FOUND]; /* classes that were looked for lately */
};

void penstock_pack(struct penstock_packing *packing, VALUE object);
void penstock_pack_string(struct penstock_packing *packing, VALUE string);
void penstock_pack_bin(struct penstock_packing *packing, VALUE string);
void penstock_pack_symbol(struct penstock_packing *packing, VALUE symbol);
void penstock_pack_integer(struct penstock_packing *packing, VALUE integer);
void penstock_pack_array(struct penstock_packing *packing, VALUE array);
void penstock_pack_hash(struct penstock_packing *packing, VALUE hash);
void penstock_pack_ext(struct penstock_packing *packing, VALUE type, VALUE payload);
void penstock_pack_extension(struct penstock_packing *packing, VALUE extension);
VALUE penstock_pack_to_string(VALUE object, VALUE registry, const struct penstock_mp_options *options);
/* A payload has ended: makes reachable again what encloses it. */
void penstock_pack_outer(struct penstock_buffer *bytes, const struct penstock_outer *outer);
void penstock_message_pack_write_init(void);

/* ---- message_pack_packer.c --------------------------------------------------------------------------------- */

struct penstock_packer {
    VALUE buffer;                  /* nil until it is asked for, or there is an io */
    struct penstock_buffer *bytes; /* its, or `own`; NULL: not initialized */
    VALUE registry;
    const struct penstock_registry *types; /* its */
    struct penstock_mp_options options;
    uint32_t depth; /* of what is being packed: at which its methods go on */
    uint64_t turn;  /* of the code of users' that runs within a write: a number that no other has had. 0: none */
    uint64_t turns;
    bool flushed; /* once, by its method */
    VALUE own_classes[PENSTOCK_FOUND]; /* not registered, and with a to_msgpack; they do not move */
    struct penstock_buffer own;
    char first[256]; /* of `own` */
};

/* For code of users' that a call without a Packer runs. */
VALUE penstock_packer_new(VALUE registry, const struct penstock_mp_options *options, struct penstock_packer **packer);
/* For what calls code of users', of a write that is not protected: whatever is raised, the write is taken back. */
void penstock_packer_protect(struct penstock_packing *packing, void (*write)(struct penstock_packing *packing, VALUE object),
                             VALUE object);
/* Lets an object write itself, whose class is known to have a to_msgpack and not to be registered. */
void penstock_packer_call(struct penstock_packer *packer, const VALUE *self, VALUE object);
/* All that it has written. It is empty then, and whatever comes back to that write raises. */
VALUE penstock_packer_take(struct penstock_packer *packer);

/* Where a class is among `own_classes` and `found`. Classes are at least as far apart as most objects are large. */
static inline size_t penstock_place_of(VALUE klass)
{
    return (klass >> 6) % PENSTOCK_FOUND;
}

static inline bool penstock_packer_knows(const struct penstock_packer *packer, VALUE klass)
{
    return packer->own_classes[penstock_place_of(klass)] == klass;
}

static inline uint64_t penstock_packer_written(const struct penstock_packer *packer) /* bytes, ever */
{
    return packer->bytes->gone + penstock_buffer_size(packer->bytes);
}

void penstock_packer_init(void);

/* ---- message_pack_keys.c: keys of Hashes that were seen lately -------------------------------------------------- */

struct penstock_keys;

struct penstock_keys *penstock_keys(void); /* the Ractor's, for as long as it lives */
/* `shared`: the same String for the same bytes, always; else for as long as the Ractor keeps it. */
VALUE penstock_key(struct penstock_keys *keys, const uint8_t *bytes, size_t size, bool symbolize, bool shared);
VALUE penstock_symbol(const char *bytes, size_t size);
VALUE penstock_binary_symbol(const char *bytes, size_t size);
void penstock_message_pack_keys_init(void);

/* ---- message_pack_read.c: a reader's tokens into Ruby's objects ---------------------------------------------- */

/* Where the first values and frames are, on the stack of the thread that reads. A payload has a smaller one: it may be deep in others. */
enum { PENSTOCK_ROOM_ITEMS = 128, PENSTOCK_ROOM_FRAMES = 32, PENSTOCK_SMALL_ITEMS = 32, PENSTOCK_SMALL_FRAMES = 4 };

struct penstock_room {
    VALUE *items;
    struct ps_frame *frames;
    uint32_t item_count, frame_count;
};

/*
 * Which read may go on, where neither a continuation nor an abandoned Fiber sets anything back: reads and the users' code in them take
 * numbers, and a read that comes back from users' code goes on only if its number is the current one.
 */
struct penstock_turns {
    uint64_t last, current;
};

/* On the stack of the thread that reads, where the GC finds what it holds. */
struct penstock_building {
    struct ps_reader reader; /* its max_depth is what there are frames for */
    const struct penstock_mp_options *options;
    const struct penstock_registry *registry;
    VALUE registry_value;
    VALUE *items; /* values of containers that have not ended, and large containers */
    size_t size, capacity;
    VALUE more_items, more_frames; /* hold them when they do not fit into the room on the stack; else false */
    VALUE source;   /* the String that is read, and may change when users' code runs; false: the bytes stay where they are */
    VALUE unpacker; /* the Unpacker that reads, or false */
    char *window; /* the Unpacker's bytes, which another payload may take the place of */
    size_t window_size;
    VALUE window_held; /* what keeps them, or nil */
    uint32_t depth_before, level; /* around the payload that is read; how many payloads that is in */
    VALUE payloads; /* the Unpacker for recursive ext types, or false */
    struct penstock_turns *turns; /* NULL: no users' code has run */
    uint64_t turn, turn_before;
    VALUE turns_held;  /* that memory, or false */
    bool users_code;   /* has run: its continuations may come back to memory that is left to the GC therefore */
    bool plain_integers; /* since then nothing has redefined how Integers are compared */
    struct penstock_keys *keys; /* the Ractor's; NULL until one is needed */
};

/* Memory of values and frames, which the GC looks into as it does into a stack. It stays as it is between two reads of an object. */
struct penstock_kept {
    VALUE items, frames; /* that memory, or false */
    VALUE *item;
    struct ps_frame *frame;
    size_t size, capacity;
    uint32_t frame_capacity;
    bool users_code;
};

/* After its reader has been set, of which it sets the frames and limits. */
void penstock_build_begin(struct penstock_building *building, const struct penstock_room *room,
                          const struct penstock_mp_options *options, VALUE registry, uint32_t depth_before);
void penstock_build_begin_turn(struct penstock_building *building);
/* Goes on with what was kept of an object, if anything was, and leaves nothing there. */
void penstock_build_restore(struct penstock_building *building, struct penstock_kept *kept);
/* Keeps what is there, for the Unpacker that owns `kept`. */
void penstock_build_keep(struct penstock_building *building, VALUE unpacker, struct penstock_kept *kept);
enum ps_read penstock_build(struct penstock_building *building, VALUE *value);
VALUE penstock_plain_value(const struct ps_token *token, bool freeze); /* of all but ext types and containers with values */
/* False: the read that comes back was ended meanwhile, and may touch nothing. */
static inline bool penstock_build_turn(const struct penstock_building *building)
{
    return !building->turns || building->turns->current == building->turn;
}
void penstock_build_end(struct penstock_building *building); /* need not be called when something is raised */
VALUE penstock_unpack_string(VALUE string, VALUE registry, const struct penstock_mp_options *options);
void penstock_message_pack_read_init(void);

/* ---- message_pack_unpacker.c ----------------------------------------------------------------------------------- */

VALUE penstock_unpacker_new(VALUE io, VALUE registry, const struct penstock_mp_options *options);
void penstock_unpacker_reads(VALUE unpacker); /* users' code runs in it: notes the Fiber */
struct penstock_turns *penstock_unpacker_turns(struct penstock_building *building); /* of the Unpacker that the next returns */
/* The Unpacker over a payload where it is, for a recursive ext type; the bytes have to stay until it is closed. */
VALUE penstock_unpacker_open(struct penstock_building *building, const uint8_t *bytes, size_t size);
/* Raises when the payload does not end where the objects end that were read from it. */
void penstock_unpacker_close(struct penstock_building *building, VALUE unpacker, int8_t type);
VALUE penstock_unpacker_full(VALUE unpacker);
void penstock_unpacker_init(void);

#endif
