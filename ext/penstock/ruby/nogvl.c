/*
 * The only file that releases the GVL. All calls use RB_NOGVL_INTR_FAIL. With it, Ruby does not run the body while an interrupt
 * is pending, and does not handle an interrupt before this code has cleaned up. This code handles interrupts itself
 * (rb_thread_check_ints), at points where an exception leaks nothing.
 */
#include "ruby/penstock.h"

#ifdef PS_LINUX
/* The unblock function is one atomic operation and one futex(2). With this flag, Ruby 3.1 needs no helper thread per wait. */
#define WAIT_FLAGS (RB_NOGVL_INTR_FAIL | RB_NOGVL_UBF_ASYNC_SAFE)
#else
#define WAIT_FLAGS RB_NOGVL_INTR_FAIL
#endif

/* Call it only where nothing is held. Raises if a trap has forked: the object of the wait then belongs to the parent process, and
 * its locks may be held for ever in the fork child. */
static void check_ints(unsigned generation)
{
    rb_thread_check_ints();
    penstock_check_forked(generation);
}

void penstock_check_forked(unsigned generation)
{
    if (generation == ps_generation()) return; /* M:fork_in_wait_raises */
    penstock_raise(penstock_forked_error, &penstock_no_context,
                   "the process was forked while this thread waited; only the parent process gets the result");
}

/* ---- calls ---- */

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

static void *run_nogvl(void *arg)
{
    struct ps_job *job = arg;
    job->run(job);
    return NULL;
}

static void *await_job_nogvl(void *arg)
{
    struct ps_job *job = arg;
    struct ps_waiter waiter = { 0 };
    while (ps_waiter_join(&waiter, &job->completion, NULL)) {
        ps_waiter_sleep(&waiter, PS_FOREVER);
        ps_waiter_leave(&waiter, &job->completion);
    }
    return NULL;
}

/* Holds the caller's reference while a fiber waits. If the scheduler discards the fiber, the GC releases the reference. */
static void holder_free(void *job)
{
    ps_job_unref(job);
}

static const rb_data_type_t holder_type = {
    .wrap_struct_name = "Penstock::Native::ProducerClient/call",
    .function = { .dfree = holder_free },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static VALUE await_call(VALUE job)
{
    penstock_wait(&((struct ps_job *)job)->completion, PS_FOREVER);
    return Qnil;
}

/* Runs the job on a thread of its own, while other fibers run. An interrupted fiber still waits for the call's end, as its
 * caller uses what the call has changed. In a fork child it does not wait, as the thread does not exist there. False: no thread
 * started. */
static bool call_on_own_thread(struct ps_job *job)
{
    unsigned generation = ps_generation();
    int interrupted = 0;
    VALUE holder = TypedData_Wrap_Struct(0, &holder_type, NULL);
    if (ps_job_start(job, "penstock.call") != 0) return false;
    DATA_PTR(holder) = job; /* M:dropped_call_freed */
    rb_protect(await_call, (VALUE)job, &interrupted);
    if (interrupted && generation == ps_generation()) penstock_nogvl_now(await_job_nogvl, job);
    DATA_PTR(holder) = NULL;
    RB_GC_GUARD(holder);
    if (interrupted) rb_jump_tag(interrupted);
    return true;
}

static VALUE call_body(VALUE arg)
{
    struct ps_job *job = (struct ps_job *)arg;
    if (!NIL_P(penstock_fiber_scheduler()) && call_on_own_thread(job)) return Qnil;
    struct call call = { .body = run_nogvl, .arg = job };
    unsigned generation = ps_generation();
    for (;;) {
        rb_nogvl(call_nogvl, &call, NULL, NULL, WAIT_FLAGS);
        if (call.done) return Qnil;
        check_ints(generation);
    }
}

void penstock_call(struct ps_job *job)
{
    int interrupted = 0;
    rb_protect(call_body, (VALUE)job, &interrupted);
    if (!interrupted) return;
    ps_job_unref(job); /* M:interrupted_call_freed */
    rb_jump_tag(interrupted);
}

void penstock_nogvl_now(void *(*body)(void *), void *arg)
{
    struct call call = { .body = body, .arg = arg };
    rb_nogvl(call_nogvl, &call, NULL, NULL, WAIT_FLAGS);
    if (!call.done) body(arg);
}

/* ---- waiting ---- */

struct sleep {
    struct ps_waiter waiter;
    struct ps_polled *watched; /* NULL: none */
    int64_t deadline_us;
};

static void end_watch(struct sleep *sleep)
{
    if (sleep->watched) ps_watch_end(sleep->watched);
    sleep->watched = NULL;
}

static void *sleep_nogvl(void *arg)
{
    struct sleep *sleep = arg;
    if (sleep->watched) ps_watch_sleep(sleep->watched, &sleep->waiter, sleep->deadline_us);
    else ps_waiter_sleep(&sleep->waiter, sleep->deadline_us);
    end_watch(sleep); /* now, so that other threads need not wait until this one has the GVL */
    return NULL;
}

static void begin_watch(struct sleep *sleep, const struct penstock_wait *wait)
{
    if (wait->watched && ps_watch_begin(wait->watched, &sleep->waiter)) sleep->watched = wait->watched;
}

/* Joins before the attempt. So a settling thread that makes the attempt succeed after it has failed wakes this thread. */
static bool wait_as_thread(const struct penstock_wait *wait)
{
    struct sleep sleep = { .deadline_us = wait->deadline_us }; /* the waiter belongs to no fiber */
    unsigned generation = ps_generation();
    check_ints(generation); /* raises interrupts deferred until a blocking call, such as this */
    for (;;) {
        begin_watch(&sleep, wait);
        bool joined = ps_waiter_join(&sleep.waiter, wait->completion, wait->settled);
        bool done = wait->attempt ? wait->attempt(wait->arg) : !joined;
        if (!done) rb_nogvl(sleep_nogvl, &sleep, ps_waiter_interrupt, &sleep.waiter, WAIT_FLAGS);
        end_watch(&sleep); /* M:watch_ends_in_nogvl */
        if (joined) ps_waiter_leave(&sleep.waiter, wait->completion);
        if (done || atomic_load(&sleep.waiter.state) == PS_DONE) return true;
        check_ints(generation); /* may raise, as the waiter is no longer linked */
        if (wait->deadline_us != PS_FOREVER && ps_now_us() >= wait->deadline_us) return false;
    }
}

static bool wait_for(const struct penstock_wait *wait)
{
    VALUE scheduler = penstock_fiber_scheduler();
    return NIL_P(scheduler) ? wait_as_thread(wait) : penstock_wait_as_fiber(scheduler, wait);
}

bool penstock_wait(struct ps_completion *completion, int64_t deadline_us)
{
    struct penstock_wait wait = { .completion = completion, .deadline_us = deadline_us };
    return wait_for(&wait);
}

static void *lead_nogvl(void *lead)
{
    ps_flusher_lead(lead);
    return NULL;
}

static void lead_interrupt_nogvl(void *lead)
{
    atomic_store(&((struct ps_lead *)lead)->interrupted, true);
}

/* If an interrupt is pending, lead_nogvl does not run. Waiting then raises, or handles it. */
static void lead_flushing(struct ps_batch *batch, const _Atomic bool *settled, int64_t deadline_us)
{
    struct ps_lead lead = { .batch = batch, .settled = settled, .deadline_us = deadline_us };
    rb_nogvl(lead_nogvl, &lead, lead_interrupt_nogvl, &lead, WAIT_FLAGS);
    ps_flusher_lead_end(&lead);
}

static bool wait_for_results(struct ps_batch *batch, const _Atomic bool *settled, int64_t deadline_us)
{
    struct penstock_wait wait = {
        .completion = &batch->completion, .settled = settled, .watched = &batch->producer->polled, .deadline_us = deadline_us,
    };
    VALUE scheduler = penstock_fiber_scheduler();
    bool can_block = NIL_P(scheduler) && (deadline_us == PS_FOREVER || ps_now_us() < deadline_us);
    if (ps_flusher_await(batch, can_block)) lead_flushing(batch, settled, deadline_us);
    return NIL_P(scheduler) ? wait_as_thread(&wait) : penstock_wait_as_fiber(scheduler, &wait);
}

bool penstock_wait_batch(struct ps_batch *batch, int64_t deadline_us)
{
    return wait_for_results(batch, NULL, deadline_us);
}

bool penstock_wait_delivery(const struct ps_delivery *delivery, int64_t deadline_us)
{
    return wait_for_results(delivery->chunk->batch, &delivery->settled, deadline_us);
}

struct job_wait {
    struct ps_job *job;
    int64_t deadline_us;
};

static VALUE job_wait_body(VALUE arg)
{
    struct job_wait *wait = (struct job_wait *)arg;
    return penstock_wait(&wait->job->completion, wait->deadline_us) ? Qtrue : Qfalse;
}

static VALUE job_wait_ensure(VALUE arg)
{
    ps_job_abandon(((struct job_wait *)arg)->job);
    return Qnil;
}

/* The job goes on if the waiting thread is interrupted; see ps_job.abandoned. */
bool penstock_wait_job(struct ps_job *job, int64_t deadline_us)
{
    struct job_wait wait = { .job = job, .deadline_us = deadline_us };
    return RTEST(rb_ensure(job_wait_body, (VALUE)&wait, job_wait_ensure, (VALUE)&wait));
}

void penstock_sleep(void *(*body)(void *), void *arg, void (*interrupt)(void *), void *sleeper)
{
    struct call call = { .body = body, .arg = arg };
    while (!call.done) {
        rb_nogvl(call_nogvl, &call, interrupt, sleeper, WAIT_FLAGS);
        rb_thread_check_ints();
    }
}

struct bell_wait {
    struct ps_bell *bell;
    uint32_t heard;
};

static bool has_rung(void *arg)
{
    const struct bell_wait *wait = arg;
    return atomic_load(&wait->bell->rings) != wait->heard;
}

void penstock_wait_bell(struct ps_bell *bell, uint32_t heard, int64_t deadline_us)
{
    struct bell_wait bell_wait = { .bell = bell, .heard = heard };
    struct penstock_wait wait = {
        .completion = &bell->sleepers, .attempt = has_rung, .arg = &bell_wait, .deadline_us = deadline_us,
    };
    wait_for(&wait);
}
