/*
 * Penstock::Batch: messages that one call of poll_batch took. Its data pointer is a ps_fetched, which never changes once the batch is
 * frozen, so any thread of any Ractor may use a batch. It holds no Ruby objects: each method makes new ones. Only the batch of a
 * consumer with deserializers has one, its Penstock::Deserializer, as a hidden instance variable. A field would cost all others.
 */
#include "ruby/penstock.h"
#include <math.h>
#include <time.h>

static VALUE batch_class;
static ID id_deserializer;

/* ---- GC ---- */

void penstock_fetched_free(struct ps_fetched *fetched)
{
    size_t reported = atomic_load(&fetched->reported);
    if (ps_fetched_unref(fetched)) rb_gc_adjust_memory_usage(-(ssize_t)reported); /* M:gc_batch_releases_memory */
}

static void batch_free(void *data)
{
    penstock_fetched_free(data);
}

static size_t batch_size(const void *data)
{
    return ps_fetched_size(data);
}

static const rb_data_type_t batch_type = {
    .wrap_struct_name = "Penstock::Batch",
    .function = { .dfree = batch_free, .dsize = batch_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED | RUBY_TYPED_FROZEN_SHAREABLE,
};

/* ObjectSpace shows a batch before it is frozen. */
static struct ps_fetched *batch_get(VALUE self)
{
    if (!OBJ_FROZEN(self)) rb_raise(rb_eTypeError, "the batch is not complete yet");
    struct ps_fetched *fetched = penstock_data(self, &batch_type);
    atomic_store_explicit(&fetched->seen, true, memory_order_relaxed);
    return fetched;
}

bool penstock_is_batch(VALUE object)
{
    return rb_typeddata_is_kind_of(object, &batch_type);
}

const struct ps_fetched *penstock_batch_fetched(VALUE self)
{
    return batch_get(self);
}

/* ---- making ---- */

VALUE penstock_batch_allocate(void)
{
    return TypedData_Wrap_Struct(batch_class, &batch_type, NULL);
}

void penstock_batch_own(VALUE self, struct ps_fetched *fetched)
{
    DATA_PTR(self) = fetched;
}

/* Without it the GC would not know that a small object keeps megabytes. */
void penstock_fetched_report(struct ps_fetched *fetched)
{
    size_t size = ps_fetched_size(fetched), before = atomic_exchange(&fetched->reported, size);
    rb_gc_adjust_memory_usage((ssize_t)size - (ssize_t)before);
}

VALUE penstock_batch_finish(VALUE self, VALUE deserializer)
{
    if (!DATA_PTR(self) && !(DATA_PTR(self) = ps_fetched_new(NULL, 0, 0))) rb_memerror();
    penstock_fetched_report(DATA_PTR(self));
    if (!NIL_P(deserializer)) rb_ivar_set(self, id_deserializer, deserializer);
    return rb_obj_freeze(self);
}

/* ---- columns ---- */

/* Messages of the batch: `count` from the index `first` on. */
struct span {
    size_t first, count;
};

/* As the arguments `first = 0, count = size` say; like Array#[], except that nothing is counted from the end. */
static struct span span_of(int argc, VALUE *argv, const struct ps_fetched *fetched)
{
    rb_check_arity(argc, 0, 2);
    long first = argc > 0 ? NUM2LONG(argv[0]) : 0, count = argc > 1 ? NUM2LONG(argv[1]) : LONG_MAX;
    if (first < 0 || (size_t)first > fetched->count)
        rb_raise(rb_eIndexError, "index %ld is outside the batch of %zu messages", first, fetched->count);
    if (count < 0) rb_raise(rb_eArgError, "a number of messages must not be negative");
    size_t rest = fetched->count - (size_t)first;
    return (struct span){(size_t)first, (size_t)count < rest ? (size_t)count : rest};
}

static VALUE column(VALUE self, struct span span, VALUE (*value)(const struct ps_record *))
{
    const struct ps_fetched *fetched = batch_get(self);
    VALUE values = rb_ary_new_capa((long)span.count);
    for (size_t i = 0; i < span.count; i++) rb_ary_push(values, value(&fetched->records[span.first + i]));
    RB_GC_GUARD(self);
    return rb_ary_freeze(values);
}

/* A column of keys or payloads: the bytes must not be released meanwhile. (Only NoMemoryError can interrupt this. Then they are
 * freed with the last message.) */
static VALUE column_of_bytes(VALUE self, int argc, VALUE *argv, VALUE (*value)(const struct ps_record *))
{
    struct ps_fetched *fetched = batch_get(self);
    struct span span = span_of(argc, argv, fetched);
    if (!ps_fetched_read(fetched)) penstock_raise_released(); /* M:gc_released_bytes_raise */
    VALUE values = column(self, span, value);
    ps_fetched_done(fetched);
    return values;
}

static VALUE batch_payloads(int argc, VALUE *argv, VALUE self)
{
    return column_of_bytes(self, argc, argv, penstock_record_payload);
}

static VALUE batch_keys(int argc, VALUE *argv, VALUE self)
{
    return column_of_bytes(self, argc, argv, penstock_record_key);
}

static VALUE offset_of(const struct ps_record *record)
{
    return LL2NUM(record->offset);
}

static VALUE batch_offsets(int argc, VALUE *argv, VALUE self)
{
    return column(self, span_of(argc, argv, batch_get(self)), offset_of);
}

static VALUE partition_of(const struct ps_record *record)
{
    return INT2NUM(record->partition);
}

static VALUE batch_partitions(VALUE self)
{
    return column(self, span_of(0, NULL, batch_get(self)), partition_of);
}

static VALUE timestamp_of(const struct ps_record *record)
{
    return record->timestamp < 0 ? Qnil : LL2NUM(record->timestamp);
}

static VALUE batch_timestamps(int argc, VALUE *argv, VALUE self)
{
    return column(self, span_of(argc, argv, batch_get(self)), timestamp_of);
}

/* Most messages have the topic of the one before. */
static VALUE batch_topics(VALUE self)
{
    const struct ps_fetched *fetched = batch_get(self);
    VALUE values = rb_ary_new_capa((long)fetched->count), name = Qnil;
    int last = -1;
    for (size_t i = 0; i < fetched->count; i++) {
        int topic = fetched->records[i].topic;
        if (topic != last) name = penstock_name(fetched->topics[last = topic]);
        rb_ary_push(values, name);
    }
    RB_GC_GUARD(self);
    return rb_ary_freeze(values);
}

/* ---- messages ---- */

static VALUE batch_deserializer(VALUE self)
{
    return rb_attr_get(self, id_deserializer);
}

static VALUE batch_length(VALUE self)
{
    return SIZET2NUM(batch_get(self)->count);
}

static VALUE batch_length_of_enum(VALUE self, VALUE args, VALUE enumerator)
{
    (void)args, (void)enumerator;
    return batch_length(self);
}

static VALUE batch_each(VALUE self)
{
    RETURN_SIZED_ENUMERATOR(self, 0, 0, batch_length_of_enum);
    const struct ps_fetched *fetched = batch_get(self);
    VALUE deserializer = batch_deserializer(self);
    for (size_t i = 0; i < fetched->count; i++) rb_yield(penstock_message_of(&fetched->records[i], deserializer));
    RB_GC_GUARD(self);
    return self;
}

static bool is_over(double latest)
{
    struct timespec now;
    return !isnan(latest) && !clock_gettime(CLOCK_MONOTONIC, &now) && (double)now.tv_sec + (double)now.tv_nsec / 1e9 >= latest;
}

/* walk(first, count, latest): calls the block for each of these messages, until `latest`, in seconds of the monotonic clock; nil: for
 * all. They share one lookup of the deserializer. */
static VALUE batch_walk(VALUE self, VALUE first, VALUE count, VALUE latest)
{
    const struct ps_fetched *fetched = batch_get(self);
    struct span span = span_of(2, (VALUE[]){ first, count }, fetched);
    VALUE deserializer = batch_deserializer(self);
    double until = NIL_P(latest) ? NAN : NUM2DBL(latest);
    for (size_t i = 0; i < span.count && !is_over(until); i++)
        rb_yield(penstock_message_of(&fetched->records[span.first + i], deserializer));
    RB_GC_GUARD(self);
    return Qnil;
}

static VALUE batch_each_payload(VALUE self)
{
    RETURN_SIZED_ENUMERATOR(self, 0, 0, batch_length_of_enum);
    struct ps_fetched *fetched = batch_get(self);
    for (size_t i = 0; i < fetched->count; i++) {
        if (!ps_fetched_read(fetched)) penstock_raise_released();
        VALUE payload = penstock_record_payload(&fetched->records[i]);
        ps_fetched_done(fetched);
        rb_yield(payload);
    }
    return self;
}

static VALUE batch_epoch(VALUE self)
{
    return ULL2NUM(batch_get(self)->epoch);
}

static VALUE batch_at(VALUE self, VALUE index)
{
    const struct ps_fetched *fetched = batch_get(self);
    long i = NUM2LONG(index);
    if (i < 0) i += (long)fetched->count;
    if (i < 0 || (size_t)i >= fetched->count) return Qnil;
    VALUE message = penstock_message_of(&fetched->records[i], batch_deserializer(self));
    RB_GC_GUARD(self);
    return message;
}

/* Whether {Batch#errors} has any. */
static VALUE batch_damaged_p(VALUE self)
{
    const struct ps_fetched *fetched = batch_get(self);
    bool damaged = false;
    for (size_t i = 0; !damaged && i < fetched->count; i++) damaged = fetched->records[i].damaged;
    RB_GC_GUARD(self);
    return damaged ? Qtrue : Qfalse;
}

/* [[topic, partition, offset], ...] */
static VALUE batch_call_ends(VALUE self)
{
    const struct ps_fetched *fetched = batch_get(self);
    VALUE ends = rb_ary_new_capa(fetched->end_count);
    for (int i = 0; i < fetched->end_count; i++) {
        const struct ps_end *end = &fetched->ends[i];
        VALUE topic = penstock_name(fetched->topics[end->topic]);
        rb_ary_push(ends, rb_ary_new_from_args(3, topic, INT2NUM(end->partition), LL2NUM(end->offset)));
    }
    RB_GC_GUARD(self);
    return ends;
}

static VALUE batch_bytesize(VALUE self)
{
    const struct ps_fetched *fetched = batch_get(self);
    size_t size = 0;
    for (size_t i = 0; i < fetched->count; i++) size += (size_t)fetched->records[i].key_size + fetched->records[i].payload_size;
    RB_GC_GUARD(self);
    return SIZET2NUM(size);
}

static VALUE batch_release(VALUE self)
{
    struct ps_fetched *fetched = batch_get(self);
    ps_fetched_release(fetched);
    penstock_fetched_report(fetched);
    return Qnil;
}

/* What its messages take. */
static VALUE batch_call_memory(VALUE self)
{
    const struct ps_fetched *fetched = batch_get(self);
    size_t size = fetched->used + fetched->count * sizeof(struct ps_record);
    RB_GC_GUARD(self);
    return SIZET2NUM(size);
}

void penstock_batch_init(void)
{
    batch_class = rb_const_get(penstock_module, rb_intern("Batch"));
    rb_gc_register_mark_object(batch_class); /* M:gc_batch_class */
    id_deserializer = rb_intern("__deserializer__"); /* Ruby code cannot name it */
    rb_undef_alloc_func(batch_class);
    rb_undef_method(CLASS_OF(batch_class), "new");
    rb_define_method(batch_class, "size", batch_length, 0);
    rb_define_method(batch_class, "bytesize", batch_bytesize, 0);
    rb_define_private_method(batch_class, "call_memory", batch_call_memory, 0);
    rb_define_method(batch_class, "length", batch_length, 0);
    rb_define_method(batch_class, "each", batch_each, 0);
    rb_define_private_method(batch_class, "at", batch_at, 1);
    rb_define_private_method(batch_class, "walk", batch_walk, 3);
    rb_define_private_method(batch_class, "deserializer", batch_deserializer, 0);
    rb_define_method(batch_class, "payloads", batch_payloads, -1);
    rb_define_method(batch_class, "each_payload", batch_each_payload, 0);
    rb_define_method(batch_class, "epoch", batch_epoch, 0);
    rb_define_method(batch_class, "keys", batch_keys, -1);
    rb_define_method(batch_class, "offsets", batch_offsets, -1);
    rb_define_method(batch_class, "timestamps", batch_timestamps, -1);
    rb_define_method(batch_class, "partitions", batch_partitions, 0);
    rb_define_method(batch_class, "topics", batch_topics, 0);
    rb_define_private_method(batch_class, "damaged?", batch_damaged_p, 0);
    rb_define_private_method(batch_class, "call_ends", batch_call_ends, 0);
    rb_define_method(batch_class, "release", batch_release, 0);
}
