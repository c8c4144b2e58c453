/*
 * Penstock::Native::EventWorker: registers a thread that runs listeners with the dispatch queue (core/client/dispatch.c).
 * lib/penstock/native/event_worker.rb has the rest. Threads of the main Ractor. In a fork child, the turn of an inherited
 * worker is over.
 */
#include "ruby/penstock.h"
#include <string.h>

/* Passes the worker's turn to another thread. */
static void worker_free(void *dispatcher)
{
    ps_dispatcher_end(dispatcher, true);
    xfree(dispatcher);
}

static size_t worker_size(const void *data)
{
    return sizeof(struct ps_dispatcher);
}

static const rb_data_type_t worker_type = {
    .wrap_struct_name = "Penstock::EventWorker",
    .function = { .dfree = worker_free, .dsize = worker_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE worker_allocate(VALUE klass)
{
    struct ps_dispatcher *dispatcher;
    return TypedData_Make_Struct(klass, struct ps_dispatcher, &worker_type, dispatcher); /* all 0 */
}

static struct ps_dispatcher *worker_get(VALUE self)
{
    return penstock_data(self, &worker_type);
}

enum { STALE_BYTES = 16384 };

/*
 * The GC treats each word on a thread's stack that looks like a reference as one, including words left by calls that have
 * returned. So a worker that waits long in `next` would keep its last listener alive, and the listener its producer (seen with
 * Ruby 3.4). Therefore listeners run in `apart`, where Ruby's interpreter has a frame of its own, and `next` wipes the stack
 * below.
 */
static VALUE worker_apart(VALUE self)
{
    return rb_yield(Qnil);
}

__attribute__((noinline)) void penstock_wipe_the_stack_below(void)
{
    char stale[STALE_BYTES];
    memset(stale, 0, sizeof(stale));
    __asm__ volatile("" : : "r"(stale) : "memory"); /* keeps the compiler from removing the memset */
}

struct next {
    struct ps_dispatcher *dispatcher;
    int64_t deadline_us;
    bool found;
};

static void *next_nogvl(void *arg)
{
    struct next *next = arg;
    next->found = ps_dispatcher_next(next->dispatcher, next->deadline_us);
    return NULL;
}

/* next(timeout_ms): ends this turn and waits for the next one. False: the time ran out, or it was interrupted. */
static VALUE worker_next(VALUE self, VALUE timeout_ms)
{
    struct next next = { .dispatcher = worker_get(self), .deadline_us = ps_deadline_us(NUM2LL(timeout_ms)) };
    penstock_wipe_the_stack_below();
    penstock_sleep(next_nogvl, &next, ps_dispatcher_interrupt, next.dispatcher);
    if (next.found) ps_dispatcher_run(next.dispatcher);
    RB_GC_GUARD(self);
    return next.found ? Qtrue : Qfalse;
}

static VALUE worker_address(VALUE self)
{
    const struct ps_events *events = atomic_load(&worker_get(self)->events);
    return events ? ULL2NUM(events->address) : Qnil;
}

static VALUE worker_discard(VALUE self)
{
    struct ps_events *events = atomic_load(&worker_get(self)->events);
    if (events && events->generation == ps_generation()) ps_events_clear(events);
    return Qnil;
}

static VALUE worker_end_turn(VALUE self, VALUE more)
{
    ps_dispatcher_end(worker_get(self), RTEST(more));
    return Qnil;
}

static VALUE worker_interrupt(VALUE self)
{
    ps_dispatcher_interrupt(worker_get(self));
    return Qnil;
}

void penstock_event_worker_init(void)
{
    VALUE worker_class = rb_const_get(penstock_native, rb_intern("EventWorker"));
    rb_define_alloc_func(worker_class, worker_allocate);
    rb_define_method(worker_class, "next", worker_next, 1);
    rb_define_method(worker_class, "apart", worker_apart, 0);
    rb_define_method(worker_class, "address", worker_address, 0);
    rb_define_method(worker_class, "discard", worker_discard, 0);
    rb_define_method(worker_class, "end_turn", worker_end_turn, 1);
    rb_define_method(worker_class, "interrupt", worker_interrupt, 0);
}
