/*
 * Penstock::ConsumerSet: owns one ps_consumer_set, and keeps its consumers alive. Its methods run with the GVL of the one Ractor
 * that has it, so they exclude each other. Only the sleep releases the GVL, and keeps no pointers over it.
 */
#include "ruby/penstock.h"

static VALUE sym_timeout;

/* ---- GC ---- */

/* Pins the consumers, as the core keeps their addresses. */
static void set_mark(void *data)
{
    const struct ps_consumer_set *set = data;
    for (const struct ps_set_consumer *one = set->consumers; one; one = one->next) rb_gc_mark((VALUE)one->object);
}

static void set_free(void *data)
{
    ps_consumer_set_free(data);
}

static size_t set_size(const void *data)
{
    const struct ps_consumer_set *set = data;
    return sizeof(*set) + set->size * sizeof(struct ps_set_consumer);
}

/* Not write-barrier protected: it marks references in C structs. */
static const rb_data_type_t set_type = {
    .wrap_struct_name = "Penstock::ConsumerSet",
    .function = { .dmark = set_mark, .dfree = set_free, .dsize = set_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static VALUE set_allocate(VALUE klass)
{
    VALUE self = TypedData_Wrap_Struct(klass, &set_type, NULL);
    struct ps_consumer_set *set = ps_consumer_set_new();
    if (!set) rb_memerror();
    DATA_PTR(self) = set;
    return self;
}

static struct ps_consumer_set *set_get(VALUE self)
{
    struct ps_consumer_set *set = penstock_data(self, &set_type);
    if (set->generation == ps_generation()) return set;
    penstock_raise(penstock_forked_error, &penstock_no_context,
                   "the consumer set was made before this process was forked, and belongs to the parent process; "
                   "make a new one here");
}

/* ---- its consumers ---- */

static VALUE set_add(VALUE self, VALUE consumer)
{
    struct ps_consumer_set *set = set_get(self);
    struct ps_consumer *native = penstock_consumer_get(penstock_consumer_client(consumer));
    penstock_check_open(&native->client);
    switch (ps_consumer_set_add(set, native, (uintptr_t)consumer)) {
    case PS_SET_ANOTHER_HAS_IT: rb_raise(rb_eArgError, "the consumer is in another ConsumerSet; delete it there first");
    case PS_SET_NO_MEMORY: rb_memerror();
    default: return self;
    }
}

static VALUE set_delete(VALUE self, VALUE consumer)
{
    struct ps_consumer_set *set = set_get(self);
    struct ps_set_consumer *one = ps_consumer_set_find(set, penstock_consumer_get(penstock_consumer_client(consumer)));
    if (one) ps_consumer_set_delete(set, one);
    RB_GC_GUARD(consumer);
    return self;
}

static VALUE set_include(VALUE self, VALUE consumer)
{
    struct ps_consumer_set *set = set_get(self);
    return ps_consumer_set_find(set, penstock_consumer_get(penstock_consumer_client(consumer))) ? Qtrue : Qfalse;
}

static VALUE set_consumers(VALUE self)
{
    const struct ps_consumer_set *set = set_get(self);
    VALUE consumers = rb_ary_new_capa((long)set->size);
    for (const struct ps_set_consumer *one = set->consumers; one; one = one->next) rb_ary_push(consumers, (VALUE)one->object);
    return consumers;
}

static VALUE set_count(VALUE self)
{
    return SIZET2NUM(set_get(self)->size);
}

/* ---- waiting ---- */

/* Those that the look found. One that closes is returned once more, and leaves the set. */
static VALUE take_ready(struct ps_consumer_set *set, size_t count)
{
    struct ps_set_consumer *next;
    VALUE ready = rb_ary_new_capa((long)count);
    for (struct ps_set_consumer *one = set->candidates; one; one = next) {
        next = one->candidate_next;
        if (!one->ready) continue;
        rb_ary_push(ready, (VALUE)one->object);
        if (atomic_load(&one->consumer->client.state) >= PS_CLOSING) ps_consumer_set_delete(set, one);
    }
    return ready;
}

/* The consumer of a poll may be freed, so it is only compared. */
static struct ps_set_consumer *polled_by(const struct ps_consumer_set *set, const struct penstock_last_poll *polled)
{
    struct ps_set_consumer *one = set->consumers;
    while (one && one->consumer != polled->consumer) one = one->next;
    return one;
}

/* The wait counts as polling again. */
static void rewind_unreceived(const struct ps_consumer_set *set)
{
    for (const struct penstock_last_poll *polled = penstock_taker()->latest; polled; polled = polled->next) {
        const struct ps_set_consumer *one = penstock_unreceived(polled) ? polled_by(set, polled) : NULL;
        if (one) penstock_rewind_unreceived(penstock_consumer_client((VALUE)one->object), one->consumer);
    }
}

static VALUE set_wait(int argc, VALUE *argv, VALUE self)
{
    VALUE timeout = INT2FIX(1);
    penstock_keywords(argc, argv, 0, "wait(timeout: 1)", 1, &sym_timeout, &timeout);
    int64_t deadline_us = ps_deadline_us(penstock_seconds(timeout));
    rewind_unreceived(set_get(self));
    uint64_t owner = penstock_taker()->owner;
    for (bool had_some = false;;) {
        struct ps_consumer_set *set = set_get(self); /* a trap may have forked */
        uint32_t rings = atomic_load(&set->bells.bell.rings); /* before it looks: see bell.c */
        int64_t now_us = ps_now_us();
        size_t count = ps_consumer_set_look(set, owner, now_us);
        bool emptied = had_some && set->size == 0, woken = set->woken;
        set->woken = false;
        if (count > 0 || emptied || woken || now_us >= deadline_us) return take_ready(set, count);
        had_some = set->size > 0;
        int64_t until_us = penstock_earlier(ps_blocks_trim(), ps_consumer_set_due_us(set));
        penstock_wait_bell(&set->bells.bell, rings, penstock_earlier(deadline_us, until_us));
    }
}

/* Ends the wait of another thread, or the next one. */
static VALUE set_call_wake(VALUE self)
{
    struct ps_consumer_set *set = set_get(self);
    set->woken = true;
    ps_bell_ring(&set->bells.bell);
    return Qnil;
}

void penstock_consumer_set_init(void)
{
    VALUE set_class = rb_const_get(penstock_module, rb_intern("ConsumerSet"));
    sym_timeout = ID2SYM(rb_intern("timeout"));
    rb_define_alloc_func(set_class, set_allocate);
    rb_define_method(set_class, "add", set_add, 1);
    rb_define_method(set_class, "delete", set_delete, 1);
    rb_define_method(set_class, "include?", set_include, 1);
    rb_define_method(set_class, "consumers", set_consumers, 0);
    rb_define_method(set_class, "size", set_count, 0);
    rb_define_method(set_class, "wait", set_wait, -1);
    rb_define_private_method(set_class, "call_wake", set_call_wake, 0);
}
