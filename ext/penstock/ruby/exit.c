/*
 * The end of the process: closes all open clients at the same time, while Ruby can still wait for them. It is armed when the
 * library is loaded, so it runs after the program's own at_exit blocks, which may still produce. It is armed again when a client
 * is opened after it ran, as in a test suite that runs at exit.
 */
#include "ruby/penstock.h"
#include <ruby/vm.h>

/*
 * All of it ends with the time of the clients that are closing, or after LEAST_MS. Listeners and loggers, which come after them, have
 * HAND_OVER_MS of that. Closing threads that are about to end have LAST_MS in any case: they must not run on while the process tears
 * down what they use.
 */
enum { CLOSE_AT_ONCE = 1024, LEAST_MS = 1000, HAND_OVER_MS = 200, LAST_MS = 100 };

static _Atomic bool armed;
/* Of the thread that ends the process: until when it waits for any client, and until when for the last one. 0: it does not end yet. */
static int64_t least_until_us, ends_by_us;

static VALUE wait_for_close(VALUE arg)
{
    const struct ps_closing *closing = (const struct ps_closing *)arg;
    const struct ps_client *client = closing->client;
    int64_t stop_us = atomic_load(&client->close_by_us), deadline_us = atomic_load(&client->closed_by_us);
    if (deadline_us < least_until_us) deadline_us = least_until_us; /* perhaps its close has ended late, and it is not done yet */
    if (deadline_us != PS_FOREVER) deadline_us -= HAND_OVER_MS * 1000;
    if (deadline_us < stop_us) deadline_us = stop_us;
    bool closed = penstock_wait(&closing->job->completion, deadline_us);
    unsigned long long pending = client->kind->pending(client);
    if (!closed && pending > 0) {
        VALUE name = penstock_text(client->name);
        fprintf(stderr, "penstock: [%s] %llu message%s had no delivery result yet when the process ended\n", RSTRING_PTR(name),
                pending, pending == 1 ? "" : "s");
        RB_GC_GUARD(name);
    }
    return closed ? Qtrue : Qfalse;
}

/*
 * Another thread's error may be raised here (Thread.abort_on_exception), for example because a consumer that it polls has just
 * been closed. Such an error ends the program, which is ending already, but does not end this wait for deliveries. Any other
 * interrupt ends it: a signal, an exit, a kill.
 */
static bool await(struct ps_closing *closing, int *interrupted, VALUE *error)
{
    VALUE before = rb_errinfo();
    for (;;) {
        VALUE closed = rb_protect(wait_for_close, (VALUE)closing, interrupted);
        if (!*interrupted) return RTEST(closed);
        if (!rb_obj_is_kind_of(rb_errinfo(), rb_eStandardError)) return false; /* M:exit_ignores_thread_errors */
        if (ps_client_inherited(closing->client)) { /* a trap has forked: the parent process closes the client */
            rb_set_errinfo(before);
            *interrupted = 0;
            return false;
        }
        *error = rb_errinfo();
        rb_set_errinfo(before);
    }
}

static void note_time(const struct ps_client *client)
{
    int64_t closed_by_us = atomic_load(&client->closed_by_us);
    if (closed_by_us > ends_by_us) ends_by_us = closed_by_us;
}

/* Bounded by the clients' close_timeout, also for clients that are closing already. Interruptible. */
static void close_all(void)
{
    VALUE buffer, error = Qnil;
    struct ps_closing *closing = ALLOCV_N(struct ps_closing, buffer, CLOSE_AT_ONCE);
    unsigned count;
    int interrupted = 0;
    bool all_closed = true;
    do {
        count = ps_registry_close_all(closing, CLOSE_AT_ONCE);
        for (unsigned i = 0; i < count; i++) note_time(closing[i].client);
        for (unsigned i = 0; i < count; i++) {
            struct ps_client *client = closing[i].client;
            if (!interrupted && !await(&closing[i], &interrupted, &error)) all_closed = false;
            ps_job_abandon(closing[i].job);
            ps_client_unref(client);
        }
    } while (count > 0 && all_closed && !interrupted);
    ALLOCV_END(buffer);
    if (interrupted) {
        ps_registry_hurry(); /* await_closing waits for the rest */ /* M:exit_signal_hurries */
        rb_jump_tag(interrupted);
    }
    if (!NIL_P(error)) rb_exc_raise(error);
}

static VALUE log_unsent(VALUE unused)
{
    return rb_funcall(rb_const_get(penstock_module, rb_intern("ProducerRegistry")), rb_intern("log_unsent"), 0);
}

/* For listeners, or loggers: up to a second. */
static VALUE seconds_left(void)
{
    int64_t left_ms = ps_remaining_ms(ends_by_us);
    if (left_ms < 0 || left_ms > 1000) left_ms = 1000;
    return DBL2NUM((double)(left_ms > HAND_OVER_MS / 2 ? left_ms : HAND_OVER_MS / 2) / 1000);
}

static VALUE close_and_finish(VALUE dispatcher)
{
    close_all(); /* M:exit_closes_clients */
    rb_funcall(rb_const_get(penstock_module, rb_intern("EventDispatcher")), rb_intern("finish"), 1, seconds_left());
    rb_funcall(dispatcher, rb_intern("finish"), 1, seconds_left());
    return Qnil;
}

static void at_exit(VALUE dispatcher)
{
    atomic_store(&armed, false);
    least_until_us = ends_by_us = ps_deadline_us(LEAST_MS);
    rb_ensure(log_unsent, Qnil, close_and_finish, dispatcher);
}

static int64_t give_up_us(int64_t least_us)
{
    int64_t closed_by_us = ps_registry_closed_by_us();
    return closed_by_us > least_us ? closed_by_us : least_us;
}

/*
 * Runs after Ruby has ended. Two kinds of clients are still closing then: those whose close was interrupted above, and those that
 * threads opened after the last at_exit block (Ruby has just collected them).
 */
static void await_closing(ruby_vm_t *vm)
{
    int64_t least_us = ps_deadline_us(LAST_MS), until_us;
    if (least_us < least_until_us) least_us = least_until_us;
    do until_us = give_up_us(least_us);
    while (!ps_registry_await_closing(until_us) && ps_now_us() < give_up_us(least_us));
}

void penstock_exit_init(void)
{
    ruby_vm_at_exit(await_closing);
    penstock_exit_arm();
}

void penstock_exit_arm(void)
{
    if (atomic_exchange(&armed, true)) return;
    rb_set_end_proc(at_exit, rb_const_get(penstock_module, rb_intern("LogDispatcher")));
}
