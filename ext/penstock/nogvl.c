/*
 * The only file that releases the GVL. RB_NOGVL_INTR_FAIL everywhere: Ruby then neither runs the body
 * while an interrupt is pending nor acts on one before we have put our things in order; we ask for
 * interrupts ourselves (rb_thread_check_ints), at points where nothing is held.
 */
#include "penstock.h"

#ifdef __linux__
/* Our unblock function is one atomic and one futex(2). Saying so spares Ruby 3.1 a helper thread per wait. */
#define WAIT_FLAGS (RB_NOGVL_INTR_FAIL | RB_NOGVL_UBF_ASYNC_SAFE)
#else
#define WAIT_FLAGS RB_NOGVL_INTR_FAIL
#endif

/* When nothing is held. A trap may have forked: what is waited for is the parent's then, and its locks may be held for
 * ever. */
static void check_ints(unsigned generation)
{
    rb_thread_check_ints();
    if (generation == ps_generation()) return;
    penstock_raise(penstock_forked_error, &penstock_no_context,
                   "the process was forked while this thread waited; only the parent learns what it waited for");
}

struct call {
    void *(*body)(void *);
    void *arg;
    bool done;
};

static void *call_nogvl(void *arg)
{
    struct call *call = arg;
    call->body(call->arg);
    call->done = true;
    return NULL;
}

void penstock_nogvl(void *(*body)(void *), void *arg)
{
    struct call call = { .body = body, .arg = arg };
    unsigned generation = ps_generation();
    for (;;) {
        rb_nogvl(call_nogvl, &call, NULL, NULL, WAIT_FLAGS);
        if (call.done) return;
        check_ints(generation);
    }
}

void penstock_nogvl_now(void *(*body)(void *), void *arg)
{
    struct call call = { .body = body, .arg = arg };
    rb_nogvl(call_nogvl, &call, NULL, NULL, WAIT_FLAGS);
    if (!call.done) body(arg);
}

struct sleep {
    struct ps_waiter waiter;
    int64_t deadline_us;
};

static void *sleep_nogvl(void *arg)
{
    struct sleep *sleep = arg;
    ps_waiter_sleep(&sleep->waiter, sleep->deadline_us);
    return NULL;
}

bool penstock_wait(struct ps_completion *completion, const struct ps_delivery *delivery, int64_t deadline_us)
{
    struct sleep sleep = { .deadline_us = deadline_us };
    unsigned generation = ps_generation();
    check_ints(generation); /* those deferred until a blocking call: this is one */
    for (;;) {
        if (!ps_waiter_join(&sleep.waiter, completion, delivery)) return true;
        rb_nogvl(sleep_nogvl, &sleep, ps_waiter_interrupt, &sleep.waiter, WAIT_FLAGS);
        ps_waiter_leave(&sleep.waiter, completion);
        if (atomic_load(&sleep.waiter.state) == PS_DONE) return true;
        check_ints(generation); /* may raise; the waiter is no longer linked */
        if (deadline_us != PS_FOREVER && ps_now_us() >= deadline_us) return false;
    }
}

/* Joined before the attempt: what frees space after it interrupts the sleep. */
bool penstock_wait_for_space(struct ps_client *client, bool (*attempt)(void *), void *arg, int64_t deadline_us)
{
    struct sleep sleep = { .deadline_us = deadline_us };
    unsigned generation = ps_generation();
    check_ints(generation); /* as above */
    for (;;) {
        ps_waiter_join(&sleep.waiter, &client->space, NULL);
        bool done = attempt(arg);
        if (!done) rb_nogvl(sleep_nogvl, &sleep, ps_waiter_interrupt, &sleep.waiter, WAIT_FLAGS);
        ps_waiter_leave(&sleep.waiter, &client->space);
        if (done) return true;
        check_ints(generation);
        if (deadline_us != PS_FOREVER && ps_now_us() >= deadline_us) return false;
    }
}

struct job_wait {
    struct ps_job *job;
    int64_t deadline_us;
};

static VALUE job_wait_body(VALUE arg)
{
    struct job_wait *wait = (struct job_wait *)arg;
    return penstock_wait(&wait->job->completion, NULL, wait->deadline_us) ? Qtrue : Qfalse;
}

static VALUE job_wait_ensure(VALUE arg)
{
    ps_job_abandon(((struct job_wait *)arg)->job);
    return Qnil;
}

/* The job outlives an asker that is interrupted; see ps_job.abandoned. */
bool penstock_wait_job(struct ps_job *job, int64_t deadline_us)
{
    struct job_wait wait = { .job = job, .deadline_us = deadline_us };
    return RTEST(rb_ensure(job_wait_body, (VALUE)&wait, job_wait_ensure, (VALUE)&wait));
}

static void *mailbox_wait_nogvl(void *unused)
{
    ps_mailbox_wait();
    return NULL;
}

void penstock_mailbox_wait(void)
{
    rb_nogvl(mailbox_wait_nogvl, NULL, ps_mailbox_interrupt, NULL, RB_NOGVL_INTR_FAIL);
    rb_thread_check_ints();
}

struct bell_wait {
    struct ps_bell *bell;
    uint32_t heard;
    int64_t deadline_us;
};

static void *bell_wait_nogvl(void *arg)
{
    struct bell_wait *wait = arg;
    ps_bell_sleep(wait->bell, wait->heard, wait->deadline_us);
    return NULL;
}

/* Others who sleep on the same bell wake for nothing; rare, and they go back to sleep. */
static void bell_wait_interrupt(void *arg)
{
    ps_bell_ring(((struct bell_wait *)arg)->bell);
}

void penstock_wait_bell(struct ps_bell *bell, uint32_t heard, int64_t deadline_us)
{
    struct bell_wait wait = { .bell = bell, .heard = heard, .deadline_us = deadline_us };
    rb_thread_check_ints(); /* as in penstock_wait */
    rb_nogvl(bell_wait_nogvl, &wait, bell_wait_interrupt, &wait, WAIT_FLAGS);
    rb_thread_check_ints();
}
