/* The native part of Penstock::SharedThread: how its threads wait. Any Ractor. */
#include "ruby/penstock.h"

static VALUE s_changes(VALUE self)
{
    return UINT2NUM(ps_tasks_changes());
}

/* In a signal trap too. */
static VALUE s_changed(VALUE self)
{
    ps_tasks_changed();
    return Qnil;
}

struct await {
    uint32_t seen;
    int64_t deadline_us;
};

static void *await_nogvl(void *arg)
{
    const struct await *await = arg;
    ps_tasks_await(await->seen, await->deadline_us);
    return NULL;
}

/* await(changes, timeout_ms): waits without the GVL until there are other changes, or until the time is over (negative: never).
 * May return early. */
static VALUE s_await(VALUE self, VALUE changes, VALUE timeout_ms)
{
    struct await await = { .seen = NUM2UINT(changes), .deadline_us = ps_deadline_us(NUM2LL(timeout_ms)) };
    penstock_wipe_the_stack_below();
    penstock_sleep(await_nogvl, &await, ps_tasks_interrupt, NULL);
    return Qnil;
}

/* apart { ... }: see penstock_wipe_the_stack_below. */
static VALUE s_apart(VALUE self)
{
    return rb_yield(Qnil);
}

void penstock_shared_thread_init(void)
{
    VALUE shared_thread = rb_const_get(penstock_module, rb_intern("SharedThread"));
    rb_define_singleton_method(shared_thread, "changes", s_changes, 0);
    rb_define_singleton_method(shared_thread, "changed", s_changed, 0);
    rb_define_singleton_method(shared_thread, "await", s_await, 2);
    rb_define_singleton_method(shared_thread, "apart", s_apart, 0);
}
