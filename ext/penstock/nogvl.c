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
    for (;;) {
        rb_nogvl(call_nogvl, &call, NULL, NULL, WAIT_FLAGS);
        if (call.done) return;
        rb_thread_check_ints();
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
    struct call first;
};

static void *sleep_nogvl(void *arg)
{
    struct sleep *sleep = arg;
    if (!sleep->first.done) call_nogvl(&sleep->first);
    ps_waiter_sleep(&sleep->waiter, sleep->deadline_us);
    return NULL;
}

static bool wait_for(struct sleep *sleep, struct ps_completion *completion, const struct ps_delivery *delivery)
{
    if (sleep->first.done) rb_thread_check_ints(); /* those deferred until a blocking call: this is one */
    for (;;) {
        if (!ps_waiter_join(&sleep->waiter, completion, delivery)) return true;
        rb_nogvl(sleep_nogvl, sleep, ps_waiter_interrupt, &sleep->waiter, WAIT_FLAGS);
        ps_waiter_leave(&sleep->waiter, completion);
        if (!sleep->first.done) call_nogvl(&sleep->first); /* an interrupt was pending: with the GVL, then */
        if (atomic_load(&sleep->waiter.state) == PS_DONE) return true;
        rb_thread_check_ints(); /* may raise; the waiter is no longer linked */
        if (sleep->deadline_us != PS_FOREVER && ps_now_us() >= sleep->deadline_us) return false;
    }
}

bool penstock_wait(struct ps_completion *completion, const struct ps_delivery *delivery, int64_t deadline_us)
{
    struct sleep sleep = { .deadline_us = deadline_us, .first.done = true };
    return wait_for(&sleep, completion, delivery);
}

bool penstock_do_and_wait(void *(*first)(void *), void *arg, struct ps_completion *completion, int64_t deadline_us)
{
    struct sleep sleep = { .deadline_us = deadline_us, .first = { .body = first, .arg = arg } };
    return wait_for(&sleep, completion, NULL);
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
