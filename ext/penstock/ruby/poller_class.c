/*
 * Penstock::Poller: owns a ps_poller. Each process makes the native poller at its first use. So a fork child gets its own, and
 * does not use the parent process's, whose thread does not exist in the child.
 */
#include "ruby/penstock.h"
#include <errno.h>

static VALUE poller_class;
static _Atomic unsigned next_number;

struct poller_object {
    _Atomic(struct ps_poller *) poller;
    unsigned number;
};

/* ---- GC ---- */

static void poller_free(void *data)
{
    struct poller_object *object = data;
    struct ps_poller *poller = atomic_load(&object->poller);
    if (poller) ps_poller_unref(poller);
    xfree(object);
}

static size_t poller_size(const void *data)
{
    return sizeof(struct poller_object) + sizeof(struct ps_poller);
}

static const rb_data_type_t poller_type = {
    .wrap_struct_name = "Penstock::Poller",
    .function = { .dfree = poller_free, .dsize = poller_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED | RUBY_TYPED_FROZEN_SHAREABLE,
};

static VALUE poller_allocate(VALUE klass)
{
    struct poller_object *object;
    VALUE self = TypedData_Make_Struct(klass, struct poller_object, &poller_type, object);
    object->number = atomic_fetch_add(&next_number, 1);
    return self;
}

struct ps_poller *penstock_poller_get(VALUE self)
{
    struct poller_object *object = penstock_data(self, &poller_type);
    struct ps_poller *poller = atomic_load(&object->poller);
    if (poller && poller->generation == ps_generation()) return poller; /* M:fork_renews_poller */

    struct ps_poller *fresh = ps_poller_new(object->number);
    if (!fresh) rb_syserr_fail(errno, "Penstock::Poller");
    if (atomic_compare_exchange_strong(&object->poller, &poller, fresh)) {
        if (poller) ps_poller_unref(poller); /* the parent process's: its last unref closes the copied descriptor */
        return fresh;
    }
    ps_poller_unref(fresh);
    return poller;
}

/* ---- methods; documented in lib/penstock/native/poller.rb ---- */

static VALUE poller_id(VALUE self)
{
    const struct poller_object *object = penstock_data(self, &poller_type);
    return UINT2NUM(object->number);
}

static void put(VALUE hash, const char *name, VALUE value)
{
    rb_hash_aset(hash, ID2SYM(rb_intern(name)), value);
}

static VALUE poller_stats(VALUE self)
{
    struct ps_poller_stats stats;
    ps_poller_stats(penstock_poller_get(self), &stats);
    VALUE hash = rb_hash_new();
    put(hash, "clients", ULL2NUM(stats.clients));
    put(hash, "wakeups", ULL2NUM(stats.wakeups));
    put(hash, "drains", ULL2NUM(stats.drains));
    put(hash, "events", ULL2NUM(stats.events));
    put(hash, "messages", ULL2NUM(stats.messages));
    put(hash, "slices_cut", ULL2NUM(stats.slices_cut));
    put(hash, "sweeps", ULL2NUM(stats.sweeps));
    put(hash, "missed_wakeups", ULL2NUM(stats.missed_wakeups));
    put(hash, "starts", ULL2NUM(stats.starts));
    put(hash, "cpu_seconds", DBL2NUM(stats.cpu_seconds));
    put(hash, "thread_id", stats.thread_id ? INT2NUM(stats.thread_id) : Qnil);
    return hash;
}

void penstock_poller_init(void)
{
    poller_class = rb_const_get(penstock_module, rb_intern("Poller"));
    rb_gc_register_mark_object(poller_class);
    rb_define_alloc_func(poller_class, poller_allocate);
    rb_define_method(poller_class, "id", poller_id, 0);
    rb_define_method(poller_class, "stats", poller_stats, 0);
}
