/*
 * Penstock::MessagePack::Buffer: a queue of bytes. A Packer writes to it, an Unpacker reads from it. It may have an io. It owns
 * its memory. A large String that is written to an empty buffer is kept instead of copied.
 */
#include "message_pack/message_pack.h"

enum { HELD_FROM = 4096, SMALLEST = 128 };

static VALUE buffer_class;
static ID id_write, id_append, id_readpartial, id_read, id_close, id_write_array_header, id_buffer;

void penstock_buffer_mark(void *data)
{
    struct penstock_buffer *buffer = data;
    rb_gc_mark(buffer->held); /* not movable: its bytes are read in place */ /* M:pack_held_pinned */
    rb_gc_mark_movable(buffer->io);
}

void penstock_buffer_compact(void *data)
{
    struct penstock_buffer *buffer = data;
    buffer->io = rb_gc_location(buffer->io);
}

static void buffer_free(void *data)
{
    penstock_buffer_release(data);
    xfree(data);
}

static size_t buffer_size(const void *data)
{
    const struct penstock_buffer *buffer = data;
    return sizeof(*buffer) + buffer->writer.capacity;
}

static const rb_data_type_t buffer_type = {
    .wrap_struct_name = "Penstock::MessagePack::Buffer",
    .function = {
        .dmark = penstock_buffer_mark,
        .dfree = buffer_free,
        .dsize = buffer_size,
        .dcompact = penstock_buffer_compact,
    },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

struct penstock_buffer *penstock_buffer_get(VALUE self)
{
    struct penstock_buffer *buffer = penstock_data(self, &buffer_type);
    penstock_buffer_settle(buffer);
    return buffer;
}

void penstock_buffer_take_back(struct penstock_buffer *buffer, uint64_t began)
{
    uint64_t before = began > buffer->gone ? began - buffer->gone : 0; /* older bytes that are still there */
    if (before < penstock_buffer_size(buffer)) buffer->writer.size = buffer->at + (size_t)before;
    buffer->unfinished = false;
}

void penstock_buffer_locked(void)
{
    rb_raise(rb_eRuntimeError, "an object is being read from this buffer: code that the read calls must not use it (reset an "
             "Unpacker whose read a Fiber has abandoned)");
}

/* ---- memory ---- */

static void forget_bytes(struct penstock_buffer *buffer)
{
    buffer->writer.data = NULL;
    buffer->writer.size = buffer->at = 0;
    buffer->held = Qnil;
}

void penstock_buffer_clear(struct penstock_buffer *buffer)
{
    penstock_buffer_check(buffer); /* M:pack_clear_checks_lock */
    buffer->gone += penstock_buffer_size(buffer);
    if (buffer->writer.capacity == 0) forget_bytes(buffer);
    buffer->writer.size = buffer->at = buffer->base; /* M:pack_payload_base_kept */
}

static void release_memory(struct penstock_buffer *buffer)
{
    if (buffer->writer.capacity > 0 && !buffer->first) xfree(buffer->writer.data); /* M:pack_own_memory_unfreed */
    buffer->first = false;
    buffer->writer.capacity = 0;
}

void penstock_buffer_release(struct penstock_buffer *buffer)
{
    release_memory(buffer);
    forget_bytes(buffer);
}

void penstock_buffer_free(struct penstock_buffer *buffer)
{
    penstock_buffer_check(buffer);
    penstock_buffer_release(buffer);
}

/* Reuses the memory of bytes that were read, unless the bytes enclose a payload. Copies the unread bytes of a kept String. */
static void grow(struct ps_writer *writer, size_t more)
{
    struct penstock_buffer *buffer = (struct penstock_buffer *)writer;
    size_t from = buffer->base > 0 ? 0 : buffer->at, at = buffer->at - from, left = writer->size - from;
    char *data = writer->data;
    if (writer->capacity > 0 && from > 0 && from >= left && writer->capacity - left >= more) {
        memmove(data, data + from, left);
    } else {
        size_t least = NIL_P(buffer->io) ? 512 : 4096; /* a buffer with an io usually gets several objects */
        size_t capacity = left * 2 < least ? least : left * 2;
        if (more > SIZE_MAX / 4 - left) rb_memerror();
        if (capacity - left < more) capacity = left + more;
        char *larger = xmalloc(capacity);
        if (left > 0) memcpy(larger, data + from, left);
        release_memory(buffer);
        forget_bytes(buffer);
        writer->data = larger;
        writer->capacity = capacity;
    }
    buffer->at = at;
    writer->size = left;
}

struct penstock_buffer penstock_buffer_empty(void)
{
    return (struct penstock_buffer){ .writer = { .grow = grow }, .held = Qnil, .io = Qnil };
}

/* Little memory, for a document that is fed whole. Most such buffers are short-lived, and each byte brings the next GC closer. */
static void begin_small(struct penstock_buffer *buffer, size_t size)
{
    if (size == 0 || size > SMALLEST) return;
    forget_bytes(buffer);
    buffer->writer.data = xmalloc(SMALLEST);
    buffer->writer.capacity = SMALLEST;
}

void penstock_buffer_put(VALUE owner, struct penstock_buffer *buffer, VALUE string)
{
    penstock_buffer_check(buffer); /* M:pack_add_checks_lock */
    if (penstock_buffer_size(buffer) == 0 && buffer->base == 0 && RSTRING_LEN(string) >= HELD_FROM) {
        VALUE held = rb_str_new_frozen(string); /* M:pack_held_frozen */
        penstock_buffer_over(owner, buffer, held, RSTRING_PTR(held), (size_t)RSTRING_LEN(held));
        return;
    }
    if (buffer->writer.capacity == 0 && penstock_buffer_size(buffer) == 0) begin_small(buffer, (size_t)RSTRING_LEN(string));
    ps_write_bytes(&buffer->writer, RSTRING_PTR(string), (size_t)RSTRING_LEN(string));
    RB_GC_GUARD(string);
}

void penstock_buffer_append(VALUE self, VALUE string)
{
    penstock_buffer_put(self, penstock_buffer_get(self), string);
}

void penstock_buffer_over(VALUE owner, struct penstock_buffer *buffer, VALUE holder, const void *bytes, size_t size)
{
    penstock_buffer_release(buffer);
    RB_OBJ_WRITE(owner, &buffer->held, holder); /* M:pack_held_barrier */
    buffer->writer.data = (char *)bytes;
    buffer->writer.size = size;
    buffer->locked = false;
}

VALUE penstock_buffer_to_s(const struct penstock_buffer *buffer)
{
    return rb_str_new(buffer->writer.data + buffer->at, (long)penstock_buffer_size(buffer));
}

static void drop_bytes(struct penstock_buffer *buffer, size_t size)
{
    penstock_buffer_check(buffer); /* M:pack_take_checks_lock */
    buffer->at += size;
    buffer->gone += size;
    if (penstock_buffer_size(buffer) == 0) penstock_buffer_clear(buffer);
}

/* Shares a kept String of which nothing was read, instead of copying it: Ruby copies the bytes before a change of either
 * String. */
static VALUE take_bytes(struct penstock_buffer *buffer, size_t size)
{
    VALUE taken, held = buffer->held;
    if (RB_TYPE_P(held, T_STRING) && size == (size_t)RSTRING_LEN(held) && buffer->writer.data + buffer->at == RSTRING_PTR(held)) {
        taken = rb_str_subseq(held, 0, (long)size); /* M:pack_held_copied */
        rb_enc_associate_index(taken, rb_ascii8bit_encindex());
    } else {
        taken = rb_str_new(buffer->writer.data + buffer->at, (long)size);
    }
    drop_bytes(buffer, size);
    return taken;
}

/* ---- the io ---- */

/* If the io is a Packer, Penstock's or the msgpack gem's, the bytes go to its buffer: the Packer would pack them as a String. */
void penstock_io_write(VALUE io, VALUE string)
{
    if (rb_respond_to(io, id_write_array_header)) io = rb_funcall(io, id_buffer, 0);
    rb_funcall(io, rb_respond_to(io, id_write) ? id_write : id_append, 1, string);
}

struct giving {
    VALUE io, bytes;
};

static VALUE give(VALUE arg)
{
    const struct giving *giving = (const struct giving *)arg;
    penstock_io_write(giving->io, giving->bytes);
    return Qnil;
}

static void put_back(VALUE self, VALUE bytes)
{
    struct penstock_buffer *buffer = penstock_buffer_get(self);
    VALUE newer = take_bytes(buffer, penstock_buffer_size(buffer));
    buffer->gone -= (uint64_t)(RSTRING_LEN(bytes) + RSTRING_LEN(newer));
    penstock_buffer_append(self, bytes);
    penstock_buffer_append(self, newer);
}

static VALUE give_taken(VALUE self, VALUE io, VALUE taken)
{
    struct giving giving = { .io = io, .bytes = taken };
    VALUE bytes = rb_str_new_frozen(giving.bytes); /* the io may change what it gets */
    int state;
    rb_protect(give, (VALUE)&giving, &state);
    if (state) {
        put_back(self, bytes);
        rb_jump_tag(state);
    }
    return LONG2NUM(RSTRING_LEN(bytes));
}

/* The buffer does not contain the bytes while the io writes, as the io's code may use the buffer. */
VALUE penstock_buffer_give(VALUE self, VALUE io)
{
    struct penstock_buffer *buffer = penstock_buffer_get(self);
    return give_taken(self, io, take_bytes(buffer, penstock_buffer_size(buffer)));
}

/* While the io writes the bytes before the String, the buffer already contains the String. So bytes that the io's code writes
 * to the same buffer come after it, and a flush by that code writes the String first. */
void penstock_buffer_give_with(VALUE self, VALUE string)
{
    struct penstock_buffer *buffer = penstock_buffer_get(self);
    VALUE before = take_bytes(buffer, penstock_buffer_size(buffer));
    penstock_buffer_put(self, buffer, string);
    give_taken(self, buffer->io, before);
    penstock_buffer_flush(self);
}

void penstock_buffer_flush(VALUE self)
{
    const struct penstock_buffer *buffer = penstock_buffer_get(self);
    if (!NIL_P(buffer->io) && buffer->base == 0 && penstock_buffer_size(buffer) > 0) penstock_buffer_give(self, buffer->io);
}

struct reading {
    VALUE io;
    size_t size;
};

static VALUE read_some(VALUE arg)
{
    const struct reading *reading = (const struct reading *)arg;
    ID method = rb_respond_to(reading->io, id_readpartial) ? id_readpartial : id_read;
    return rb_funcall(reading->io, method, 1, SIZET2NUM(reading->size));
}

static VALUE at_its_end(VALUE arg, VALUE error)
{
    return Qnil;
}

VALUE penstock_io_read(VALUE io, size_t size)
{
    if (NIL_P(io)) return Qnil;
    struct reading reading = { .io = io, .size = size };
    VALUE bytes = rb_rescue2(read_some, (VALUE)&reading, at_its_end, Qnil, rb_eEOFError, (VALUE)0);
    if (NIL_P(bytes)) return Qnil;
    StringValue(bytes); /* M:pack_io_gives_strings */
    return RSTRING_LEN(bytes) == 0 ? Qnil : bytes;
}

/* Reads from the io. False: the io has ended, or there is none. */
static bool fill_from_io(VALUE self)
{
    const struct penstock_buffer *buffer = penstock_buffer_get(self);
    VALUE bytes = penstock_io_read(buffer->io, buffer->io_size);
    if (NIL_P(bytes)) return false;
    penstock_buffer_append(self, bytes);
    return true;
}

/* ---- Ruby's methods ---- */

static VALUE buffer_allocate(VALUE klass)
{
    struct penstock_buffer *buffer;
    VALUE self = TypedData_Make_Struct(klass, struct penstock_buffer, &buffer_type, buffer);
    *buffer = penstock_buffer_empty();
    return self;
}

VALUE penstock_buffer_wrap(struct penstock_buffer *from)
{
    VALUE self = buffer_allocate(buffer_class);
    struct penstock_buffer *buffer = penstock_buffer_get(self);
    char *data = from->writer.data;
    if (from->first) data = memcpy(xmalloc(from->writer.capacity), data, from->writer.size); /* M:pack_own_memory_copied */
    *buffer = *from;
    buffer->writer.data = data;
    buffer->first = false;
    *from = penstock_buffer_empty();
    RB_OBJ_WRITTEN(self, Qundef, buffer->held);
    RB_OBJ_WRITTEN(self, Qundef, buffer->io);
    return self;
}

VALUE penstock_buffer_new(VALUE io, size_t io_size)
{
    VALUE self = buffer_allocate(buffer_class);
    struct penstock_buffer *buffer = penstock_buffer_get(self);
    RB_OBJ_WRITE(self, &buffer->io, io);
    buffer->io_size = io_size;
    return self;
}

static VALUE buffer_initialize(int argc, VALUE *argv, VALUE self)
{
    VALUE io, options;
    penstock_io_and_options(argc, argv, &io, &options);
    struct penstock_buffer *buffer = penstock_buffer_get(self);
    buffer->io_size = penstock_mp_options(options, PENSTOCK_MP_BUFFER).io_buffer_size;
    RB_OBJ_WRITE(self, &buffer->io, io);
    return self;
}

static VALUE buffer_write(VALUE self, VALUE string)
{
    StringValue(string);
    penstock_buffer_append(self, string);
    return LONG2NUM(RSTRING_LEN(string));
}

static VALUE buffer_append(VALUE self, VALUE string)
{
    buffer_write(self, string);
    return self;
}

/* Reads from the io until `size` bytes are there or it ends. Returns how many of the `size` bytes are there. */
static size_t fill_up(VALUE self, size_t size)
{
    const struct penstock_buffer *buffer = penstock_buffer_get(self);
    while (penstock_buffer_size(buffer) < size && fill_from_io(self)) continue;
    return penstock_buffer_size(buffer) < size ? penstock_buffer_size(buffer) : size;
}

static size_t byte_count(VALUE number)
{
    long size = NUM2LONG(number);
    if (size < 0) rb_raise(rb_eArgError, "a count of bytes is not negative: %ld", size);
    return (size_t)size;
}

static size_t all_of(VALUE self, VALUE number)
{
    size_t wanted = byte_count(number);
    if (fill_up(self, wanted) < wanted) rb_raise(rb_eEOFError, "the buffer has fewer than %zu bytes", wanted);
    return wanted;
}

static VALUE read_into(VALUE self, size_t size, VALUE out)
{
    if (!NIL_P(out)) { /* may raise, so it comes first */
        Check_Type(out, T_STRING);
        rb_str_modify(out);
    }
    VALUE bytes = take_bytes(penstock_buffer_get(self), size);
    return NIL_P(out) ? bytes : rb_str_replace(out, bytes);
}

static VALUE buffer_read(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 0, 2);
    VALUE number = argc > 0 ? argv[0] : Qnil, out = argc > 1 ? argv[1] : Qnil;
    if (NIL_P(number)) return read_into(self, fill_up(self, SIZE_MAX), out);
    size_t wanted = byte_count(number), there = fill_up(self, wanted);
    return there == 0 && wanted > 0 ? Qnil : read_into(self, there, out);
}

static VALUE buffer_read_all(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 0, 2);
    VALUE number = argc > 0 ? argv[0] : Qnil, out = argc > 1 ? argv[1] : Qnil;
    return read_into(self, NIL_P(number) ? fill_up(self, SIZE_MAX) : all_of(self, number), out);
}

static VALUE buffer_skip(VALUE self, VALUE number)
{
    size_t there = fill_up(self, byte_count(number));
    drop_bytes(penstock_buffer_get(self), there);
    return SIZET2NUM(there);
}

static VALUE buffer_skip_all(VALUE self, VALUE number)
{
    size_t wanted = all_of(self, number);
    drop_bytes(penstock_buffer_get(self), wanted);
    return self;
}

static VALUE buffer_io(VALUE self)
{
    return penstock_buffer_get(self)->io;
}

static VALUE buffer_flush(VALUE self)
{
    penstock_buffer_flush(self);
    return self;
}

static VALUE buffer_close(VALUE self)
{
    VALUE io = penstock_buffer_get(self)->io;
    return NIL_P(io) ? Qnil : rb_funcall(io, id_close, 0);
}

static VALUE buffer_length(VALUE self)
{
    return SIZET2NUM(penstock_buffer_size(penstock_buffer_get(self)));
}

static VALUE buffer_empty_p(VALUE self)
{
    return penstock_buffer_size(penstock_buffer_get(self)) == 0 ? Qtrue : Qfalse;
}

static VALUE buffer_clear(VALUE self)
{
    penstock_buffer_clear(penstock_buffer_get(self));
    return Qnil;
}

static VALUE buffer_to_s(VALUE self)
{
    return penstock_buffer_to_s(penstock_buffer_get(self));
}

static VALUE buffer_to_a(VALUE self)
{
    return rb_ary_new_from_args(1, buffer_to_s(self));
}

void penstock_buffer_init(void)
{
    id_write = rb_intern("write");
    id_append = rb_intern("<<");
    id_readpartial = rb_intern("readpartial");
    id_read = rb_intern("read");
    id_close = rb_intern("close");
    id_write_array_header = rb_intern("write_array_header");
    id_buffer = rb_intern("buffer");

    buffer_class = rb_define_class_under(penstock_message_pack, "Buffer", rb_cObject);
    rb_gc_register_mark_object(buffer_class);
    rb_define_alloc_func(buffer_class, buffer_allocate);
    rb_undef_method(buffer_class, "initialize_copy");
    rb_define_method(buffer_class, "initialize", buffer_initialize, -1);
    rb_define_method(buffer_class, "write", buffer_write, 1);
    rb_define_method(buffer_class, "<<", buffer_append, 1);
    rb_define_method(buffer_class, "read", buffer_read, -1);
    rb_define_method(buffer_class, "read_all", buffer_read_all, -1);
    rb_define_method(buffer_class, "skip", buffer_skip, 1);
    rb_define_method(buffer_class, "skip_all", buffer_skip_all, 1);
    rb_define_method(buffer_class, "io", buffer_io, 0);
    rb_define_method(buffer_class, "flush", buffer_flush, 0);
    rb_define_method(buffer_class, "close", buffer_close, 0);
    rb_define_method(buffer_class, "write_to", penstock_buffer_give, 1);
    rb_define_method(buffer_class, "size", buffer_length, 0);
    rb_define_method(buffer_class, "empty?", buffer_empty_p, 0);
    rb_define_method(buffer_class, "clear", buffer_clear, 0);
    rb_define_method(buffer_class, "to_s", buffer_to_s, 0);
    rb_define_method(buffer_class, "to_str", buffer_to_s, 0);
    rb_define_method(buffer_class, "to_a", buffer_to_a, 0);
}
