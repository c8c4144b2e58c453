/*
 * Penstock::MessagePack: the layer between the engines (engine.h) and Ruby objects. It is an extension of its own,
 * penstock/message_pack, which knows nothing of Kafka.
 *
 * The process shares only classes and IDs, which are set once. A Registry never changes. Packers, Unpackers and Buffers belong to
 * the Ractor that made them. The state of a single call is on its stack.
 *
 * "User code" is Ruby code of the program that packing or unpacking calls: registered procs, to_msgpack, an io's methods.
 */
#ifndef PENSTOCK_MESSAGE_PACK_H
#define PENSTOCK_MESSAGE_PACK_H

#include <ruby.h>
#include <ruby/encoding.h>
#include "shared/shared.h"
#include "message_pack/engine.h"

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

/* Reads a Hash or nil. Raises for an option that none of the `kinds` has. */
struct penstock_mp_options penstock_mp_options(VALUE options, unsigned kinds);
/* Reads arguments of the form (io = nil, options = nil), either of which may be left out. */
void penstock_io_and_options(int argc, const VALUE *argv, VALUE *io, VALUE *options);

NORETURN(void penstock_message_pack_raise(const char *class_name, const char *format, ...));
/* Raises the error for a read that failed. */
NORETURN(void penstock_unread(enum ps_read why, const struct penstock_mp_options *options));
/* Calls the function. Where the stack ends, Ruby raises SystemStackError, which a `rescue` without a class does not catch. This
 * function, which has room on the stack again, turns it into a StackError. */
VALUE penstock_guard_stack(VALUE (*function)(VALUE arg), VALUE arg);

/* ---- message_pack_registry.c: registered classes and ext types ---------------------------------------- */

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
    bool modules; /* some of the packers are registered for modules */
    struct penstock_ext_packer *by_class;
    struct penstock_ext_unpacker *by_place;
    uint8_t places[256]; /* for each type from -128 on: 1 + its index in by_place; 0: not registered */
    const struct penstock_ext_packer *symbols, *oversized; /* for Symbols; for Integers that need more than 64 bits */
};

const struct penstock_registry *penstock_registry_get(VALUE registry); /* raises if it is not a Registry */
static inline const struct penstock_registry *penstock_registry_of(VALUE registry) /* does not check */
{
    return RTYPEDDATA_DATA(registry);
}
const struct penstock_ext_packer *penstock_registry_find(const struct penstock_registry *registry, VALUE klass);
static inline const struct penstock_ext_unpacker *penstock_registry_unpacker(const struct penstock_registry *registry,
                                                                             int8_t type)
{
    uint8_t place = registry->places[type + 128];
    return place ? &registry->by_place[place - 1] : NULL;
}
extern VALUE penstock_empty_registry;
void penstock_registry_init(void);

/* ---- message_pack_buffer.c: bytes in, bytes out --------------------------------------------------------- */

struct penstock_buffer {
    struct ps_writer writer; /* first; data up to `at` has been read. Without capacity, `held` owns the data */
    size_t at;
    VALUE held; /* owner of bytes that the buffer does not own: a frozen String or an Unpacker; or nil */
    VALUE io;
    size_t io_size;
    size_t base;    /* data before it encloses the payload that a Packer is writing, and stays until the payload has ended */
    uint64_t gone;  /* total of bytes taken or discarded: tells a Packer which of the remaining bytes are older than a write */
    uint64_t began; /* the total of bytes written, ever, when the current write began */
    bool unfinished; /* a write without user code has not ended; any other use of the buffer sees this only if the write raised */
    bool first;     /* the memory is a part of the owner's struct */
    bool locked;    /* an Unpacker reads the bytes in place */
};

void penstock_buffer_take_back(struct penstock_buffer *buffer, uint64_t began); /* removes what was written since and is there */
static inline void penstock_buffer_settle(struct penstock_buffer *buffer)
{
    if (buffer->unfinished) penstock_buffer_take_back(buffer, buffer->began);
}

void penstock_io_write(VALUE io, VALUE string); /* all of it, or raises */
VALUE penstock_io_read(VALUE io, size_t size); /* nil at its end, or without one */
VALUE penstock_buffer_new(VALUE io, size_t io_size);
struct penstock_buffer *penstock_buffer_get(VALUE buffer);
NORETURN(void penstock_buffer_locked(void));
static inline void penstock_buffer_check(const struct penstock_buffer *buffer) /* before any change: raises if it is locked */
{
    if (buffer->locked) penstock_buffer_locked();
}
void penstock_buffer_append(VALUE self, VALUE string);

/* A buffer inside a Packer or Unpacker, until the program asks for the Ruby object. */
struct penstock_buffer penstock_buffer_empty(void);
void penstock_buffer_mark(void *buffer);
void penstock_buffer_compact(void *buffer);
void penstock_buffer_release(struct penstock_buffer *buffer); /* releases its memory and `held` */
void penstock_buffer_free(struct penstock_buffer *buffer); /* the same for an empty buffer, checked */
VALUE penstock_buffer_wrap(struct penstock_buffer *buffer); /* moves everything into a new Ruby Buffer */
void penstock_buffer_put(VALUE owner, struct penstock_buffer *buffer, VALUE string);
/* Replaces the content by these bytes of `holder`, without a copy. */
void penstock_buffer_over(VALUE owner, struct penstock_buffer *buffer, VALUE holder, const void *bytes, size_t size);

VALUE penstock_buffer_give(VALUE self, VALUE io); /* moves all bytes to the io, returns how many; if the io raises, they stay */
void penstock_buffer_flush(VALUE self);           /* the same to its own io, if it has one; does nothing within a payload */
/* Writes all bytes to its io, and then the long String, without a copy. */
void penstock_buffer_give_with(VALUE self, VALUE string);
void penstock_buffer_clear(struct penstock_buffer *buffer);
VALUE penstock_buffer_to_s(const struct penstock_buffer *buffer);
static inline size_t penstock_buffer_size(const struct penstock_buffer *buffer) { return buffer->writer.size - buffer->at; }
void penstock_buffer_init(void);

/* ---- message_pack_write.c: Ruby's objects into a writer --------------------------------------------------- */

enum { PENSTOCK_FOUND = 4, PENSTOCK_GUARD_FROM = 32 };

struct penstock_packer;

struct penstock_packing {
    struct ps_writer *writer; /* user code may replace the Packer's writer */
    const struct penstock_registry *registry;
    const struct penstock_mp_options *options;
    VALUE registry_value;
    uint32_t depth;
    uint32_t guard_from; /* from this depth on, packing is guarded against the end of the stack */
    bool looked;  /* `found` is in use */
    bool unprotected; /* a Packer's write without rb_ensure or user code: if it raises, the next use of the buffer removes it */
    VALUE packer_value; /* the Packer that owns the writer, for user code; nil: none yet, and `writer` is on the stack */
    struct penstock_packer *packer;
    VALUE *long_strings; /* Array of long Strings that are copied last or never, each with its place. NULL: copy them at once */
    uint32_t calls; /* of user code */
    uint32_t pairs; /* of the innermost Hash that are still to be written */
    uint32_t payloads;   /* nested payloads of recursive types that are being written */
    struct penstock_outer { size_t base, at; uint64_t gone; } outer; /* the buffer's state before the first of them */
    struct penstock_found {
        VALUE klass;
        const struct penstock_ext_packer *packer; /* NULL: not registered */
        bool own, extension; /* its objects have a to_msgpack; it is ExtensionValue */
    } found[PENSTOCK_FOUND]; /* recently looked up classes */
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
/* A payload has ended: makes the bytes around it accessible again. */
void penstock_pack_outer(struct penstock_buffer *bytes, const struct penstock_outer *outer);
void penstock_message_pack_write_init(void);

/* ---- message_pack_packer.c --------------------------------------------------------------------------------- */

struct penstock_packer {
    VALUE buffer;                  /* a Ruby Buffer; nil until the program asks for it, unless there is an io */
    struct penstock_buffer *bytes; /* that of `buffer`, or `own`; NULL: not initialized */
    VALUE registry;
    const struct penstock_registry *types; /* the registry's struct */
    struct penstock_mp_options options;
    uint32_t depth; /* the depth at which user code's calls of this Packer write */
    uint64_t turn;  /* unique number of the user code that runs within a write; 0: none runs */
    uint64_t turns;
    bool flushed; /* `flush` was called */
    VALUE own_classes[PENSTOCK_FOUND]; /* classes that are not registered and have a to_msgpack; pinned */
    struct penstock_buffer own;
    char first[256]; /* the first memory of `own` */
};

/* Makes a Packer for user code that a call without a Packer runs. */
VALUE penstock_packer_new(VALUE registry, const struct penstock_mp_options *options, struct penstock_packer **packer);
/* For a part of an unprotected write that calls user code: if that raises anything, the whole write is removed. */
void penstock_packer_protect(struct penstock_packing *packing, void (*write)(struct penstock_packing *packing, VALUE object),
                             VALUE object);
/* Calls to_msgpack of an object whose class is known to have it and not to be registered. */
void penstock_packer_call(struct penstock_packer *packer, const VALUE *self, VALUE object);
/* Takes all that the Packer has written. Any code that comes back to that write raises. */
VALUE penstock_packer_take(struct penstock_packer *packer);

/* A class's index in `own_classes` and `found`: a hash of its address. Addresses of classes differ by at least 64 in most
 * cases. */
static inline size_t penstock_place_of(VALUE klass)
{
    return (klass >> 6) % PENSTOCK_FOUND;
}

static inline bool penstock_packer_knows(const struct penstock_packer *packer, VALUE klass)
{
    return packer->own_classes[penstock_place_of(klass)] == klass;
}

static inline uint64_t penstock_packer_written(const struct penstock_packer *packer) /* total of bytes, ever */
{
    return packer->bytes->gone + penstock_buffer_size(packer->bytes);
}

void penstock_packer_init(void);

/* ---- message_pack_keys.c: a cache of keys of Hashes ------------------------------------------------------------- */

struct penstock_keys;

struct penstock_keys *penstock_keys(void); /* the Ractor's, as long as the Ractor lives */
/* `shared`: always the same String for the same bytes. Otherwise only while the Ractor's cache keeps the String. */
VALUE penstock_key(struct penstock_keys *keys, const uint8_t *bytes, size_t size, bool symbolize, bool shared);
VALUE penstock_symbol(const char *bytes, size_t size);
VALUE penstock_binary_symbol(const char *bytes, size_t size);
void penstock_message_pack_keys_init(void);

/* ---- message_pack_read.c: a reader's tokens into Ruby objects ------------------------------------------------- */

/* The first memory of values and frames, on the stack of the reading thread. A payload gets less, as payloads may nest deeply. */
enum { PENSTOCK_ROOM_ITEMS = 128, PENSTOCK_ROOM_FRAMES = 32, PENSTOCK_SMALL_ITEMS = 32, PENSTOCK_SMALL_FRAMES = 4 };

struct penstock_room {
    VALUE *items;
    struct ps_frame *frames;
    uint32_t item_count, frame_count;
};

/*
 * Decides which read may continue. User code may be left by a continuation or an abandoned Fiber, which run no cleanup. So reads,
 * and the user code in them, take numbers. A read that returns from user code continues only if its number is the current one.
 */
struct penstock_turns {
    uint64_t last, current;
};

/* Keep it on the stack of the reading thread, where the GC finds its references. */
struct penstock_building {
    struct ps_reader reader; /* its max_depth is the number of frames that there is memory for */
    const struct penstock_mp_options *options;
    const struct penstock_registry *registry;
    VALUE registry_value;
    VALUE *items; /* values of containers that have not ended, and large containers */
    size_t size, capacity;
    VALUE more_items, more_frames; /* memory for what does not fit on the stack; false: none */
    VALUE source;   /* the String that is read, which user code may change; false: the bytes stay in place */
    VALUE unpacker; /* the Unpacker that reads, or false */
    char *window; /* the Unpacker's bytes, which a nested payload may replace */
    size_t window_size;
    VALUE window_held; /* the owner of these bytes, or nil */
    uint32_t depth_before, level; /* depth around the payload that is read; number of payloads around it */
    VALUE payloads; /* the Unpacker for recursive ext types, or false */
    struct penstock_turns *turns; /* NULL: no user code has run */
    uint64_t turn, turn_before;
    VALUE turns_held;  /* memory of `turns`, or false */
    bool users_code;   /* user code has run: its continuations may come back to this read's memory, so only the GC frees it */
    bool plain_integers; /* no program has redefined Integer#eql? or #==; checked since user code last ran */
    struct penstock_keys *keys; /* the Ractor's; NULL until they are needed */
};

/* Memory of values and frames, which the GC scans like a stack. It is kept between two reads of one object. */
struct penstock_kept {
    VALUE items, frames; /* that memory, or false */
    VALUE *item;
    struct ps_frame *frame;
    size_t size, capacity;
    uint32_t frame_capacity;
    bool users_code;
};

/* The caller has set the reader's bytes. This sets its frames and limits. */
void penstock_build_begin(struct penstock_building *building, const struct penstock_room *room,
                          const struct penstock_mp_options *options, VALUE registry, uint32_t depth_before);
void penstock_build_begin_turn(struct penstock_building *building);
/* Moves what was kept of an unfinished object back into `building`. */
void penstock_build_restore(struct penstock_building *building, struct penstock_kept *kept);
/* Keeps an unfinished object, for the Unpacker that owns `kept`. */
void penstock_build_keep(struct penstock_building *building, VALUE unpacker, struct penstock_kept *kept);
enum ps_read penstock_build(struct penstock_building *building, VALUE *value);
VALUE penstock_plain_value(const struct ps_token *token, bool freeze); /* not for ext types and containers with values */
/* False: this read was ended while user code ran, and must not touch anything. */
static inline bool penstock_build_turn(const struct penstock_building *building)
{
    return !building->turns || building->turns->current == building->turn;
}
void penstock_build_end(struct penstock_building *building); /* need not be called after an exception */
VALUE penstock_unpack_string(VALUE string, VALUE registry, const struct penstock_mp_options *options);
void penstock_message_pack_read_init(void);

/* ---- message_pack_unpacker.c ----------------------------------------------------------------------------------- */

VALUE penstock_unpacker_new(VALUE io, VALUE registry, const struct penstock_mp_options *options);
void penstock_unpacker_reads(VALUE unpacker); /* before user code runs in its read: stores the Fiber */
struct penstock_turns *penstock_unpacker_turns(struct penstock_building *building); /* of the Unpacker that `open` will return */
/* Returns the Unpacker over a payload in place, for a recursive ext type. The bytes must stay until it is closed. */
VALUE penstock_unpacker_open(struct penstock_building *building, const uint8_t *bytes, size_t size);
/* Raises if not all of the payload was read, or if an object in it is not complete. */
void penstock_unpacker_close(struct penstock_building *building, VALUE unpacker, int8_t type);
VALUE penstock_unpacker_full(VALUE unpacker);
void penstock_unpacker_init(void);

#endif
