/*
 * Attending to a poller without a thread (config.polling.mode = :reactor): a fiber of the running scheduler waits until the
 * poller's wakeup can be read, and drains it, while messages are in flight. It is scheduled by the fiber that hands over a
 * message, or waits for one, when nobody attends; and ends a moment after the last verdict, so that it keeps no scheduler
 * from ending. Where there is no scheduler, and when the fiber is stopped, a thread takes over until nothing is in flight.
 */
#include "penstock.h"
#include <ruby/fiber/scheduler.h>
#include <ruby/io.h>

/* How long it stays when nothing is in flight: a program that sends one message after the other needs one fiber. */
enum { LINGER_US = 10000 };

static ID id_schedule;
static VALUE fiber_class;

struct attendant {
    struct ps_poller *poller; /* retained */
    VALUE io;
    uintptr_t who; /* the thread */
    bool scheduled, left;
};

static void attendant_mark(void *data)
{
    rb_gc_mark(((struct attendant *)data)->io);
}

/* A scheduler may forget a fiber, and nothing unwinds it then. */
static void attendant_free(void *data)
{
    struct attendant *attendant = data;
    if (attendant->scheduled && !attendant->left) ps_poller_desert(attendant->poller, attendant->who);
    if (attendant->poller) ps_poller_unref(attendant->poller);
    xfree(attendant);
}

static size_t attendant_size(const void *data)
{
    return sizeof(struct attendant);
}

static const rb_data_type_t attendant_type = {
    .wrap_struct_name = "Penstock::Attendant",
    .function = { .dmark = attendant_mark, .dfree = attendant_free, .dsize = attendant_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static void *drain_nogvl(void *poller)
{
    ps_poller_drain(poller);
    return NULL;
}

static VALUE attend(VALUE self)
{
    const struct attendant *attendant = rb_check_typeddata(self, &attendant_type);
    struct ps_poller *poller = attendant->poller;
    VALUE scheduler = rb_fiber_scheduler_current();
    int64_t idle_us = PS_FOREVER; /* when it ends unless there is something to do */
    while (ps_now_us() < idle_us) {
        bool busy = ps_poller_busy(poller);
        if (busy) idle_us = PS_FOREVER;
        else if (idle_us == PS_FOREVER) idle_us = ps_now_us() + LINGER_US;
        rb_fiber_scheduler_io_wait(scheduler, attendant->io, INT2FIX(RUBY_IO_READABLE),
                                   penstock_seconds_until(busy ? ps_poller_next_sweep_us(poller) : idle_us));
        penstock_check_forked(poller->generation);
        penstock_nogvl_now(drain_nogvl, poller);
    }
    return Qnil;
}

static VALUE leave(VALUE self)
{
    struct attendant *attendant = rb_check_typeddata(self, &attendant_type);
    attendant->left = true;
    ps_poller_desert(attendant->poller, attendant->who);
    return Qnil;
}

static VALUE attend_and_leave(RB_BLOCK_CALL_FUNC_ARGLIST(unused, self))
{
    return rb_ensure(attend, self, leave, self);
}

struct scheduling {
    struct ps_poller *poller;
    uintptr_t who;
    bool asked; /* the scheduler: what is raised from then on may be its refusal */
};

static VALUE schedule(VALUE arg)
{
    struct scheduling *scheduling = (struct scheduling *)arg;
    if (NIL_P(penstock_fiber_scheduler())) return Qfalse;
    struct attendant *attendant;
    VALUE self = TypedData_Make_Struct(rb_cObject, struct attendant, &attendant_type, attendant);
    attendant->poller = scheduling->poller;
    attendant->who = scheduling->who;
    ps_poller_retain(attendant->poller);
    RB_OBJ_WRITE(self, &attendant->io, penstock_wakeup_io(&attendant->poller->wakeup));
    rb_thread_check_ints(); /* else the scheduler's Ruby code would be the first to meet them */
    scheduling->asked = true;
    rb_block_call(fiber_class, id_schedule, 0, NULL, attend_and_leave, self);
    attendant->scheduled = true;
    RB_GC_GUARD(self);
    return Qtrue;
}

/* Nothing depends on the fiber, so an error that keeps it from being made is nobody's. */
static bool refused(const struct scheduling *scheduling)
{
    VALUE error = rb_errinfo();
    if (rb_obj_is_kind_of(error, rb_eSystemCallError)) return true; /* no descriptor */
    return scheduling->asked && (rb_obj_is_kind_of(error, rb_eStandardError) || rb_obj_is_kind_of(error, rb_eScriptError));
}

bool penstock_attend(struct ps_poller *poller)
{
    uintptr_t here = (uintptr_t)pthread_self(), who = ps_poller_attend(poller, here);
    if (who) return who == here || who == PS_ATTENDED_BY_USER;
    VALUE before = rb_errinfo();
    struct scheduling scheduling = { .poller = poller, .who = here };
    int interrupted = 0;
    if (RTEST(rb_protect(schedule, (VALUE)&scheduling, &interrupted))) return true;
    ps_poller_desert(poller, here);
    if (!interrupted) return false;
    if (!refused(&scheduling)) rb_jump_tag(interrupted);
    rb_set_errinfo(before);
    return false;
}

void penstock_attendant_init(void)
{
    id_schedule = rb_intern("schedule");
    fiber_class = rb_const_get(rb_cObject, rb_intern("Fiber"));
    rb_gc_register_mark_object(fiber_class);
}
