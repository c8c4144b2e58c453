/*
 * "n things are pending", and the threads and fibers that wait until none is.
 *
 * Settling is the hot path: one atomic subtraction when there is no waiter. A waiting thread therefore stores `waited` before
 * it reads `pending`, and the settling thread reads `waited` after it has subtracted from `pending`. The two fences exclude
 * that both read the old value. So the waiting thread sees that nothing is pending, or the settling thread takes the lock and
 * finds the waiter.
 */
#include "wait/wait.h"

void ps_completion_init(struct ps_completion *completion, pthread_mutex_t *lock, uint32_t pending)
{
    completion->lock = lock;
    completion->waiters = NULL;
    atomic_init(&completion->pending, pending);
    atomic_init(&completion->waited, false);
}

bool ps_completion_done(const struct ps_completion *completion)
{
    return atomic_load(&completion->pending) == 0;
}

static bool satisfied(const struct ps_waiter *waiter, const struct ps_completion *completion)
{
    return waiter->settled ? atomic_load(waiter->settled) : ps_completion_done(completion);
}

static void unlink_waiter(struct ps_waiter *waiter, struct ps_completion *completion)
{
    if (waiter->prev) waiter->prev->next = waiter->next;
    else completion->waiters = waiter->next;
    if (waiter->next) waiter->next->prev = waiter->prev;
    waiter->next = waiter->prev = NULL;
}

/* With the lock held. This may free a fiber's waiter. */
static void unlink_and_unref(struct ps_waiter *waiter, struct ps_completion *completion)
{
    unlink_waiter(waiter, completion);
    if (waiter->fibers) ps_waiter_unref(waiter);
}

uint32_t ps_waiter_sleep(struct ps_waiter *waiter, int64_t deadline_us)
{
    uint32_t state;
    while ((state = atomic_load(&waiter->state)) == PS_WAITING) {
        if (deadline_us != PS_FOREVER && ps_now_us() >= deadline_us) break;
        /* False: a signal ended the sleep. Its handler has run by now. Ruby 3.1 does not always call the unblock function for a
         * signal, so the thread marks its own waiter as interrupted. */
        if (!ps_word_sleep(&waiter->state, PS_WAITING, deadline_us)) ps_waiter_interrupt(waiter);
    }
    return state;
}

/* Wakes the watching thread: it checks its own wait before it sleeps again. If another thread watches the client by now, it
 * checks its wait too, and sleeps again. */
static void watch_nudge(_Atomic uint32_t *watch)
{
    uint32_t sleeps = PS_WATCH_SLEEPS;
    if (atomic_compare_exchange_strong(watch, &sleeps, PS_WATCH_LOOKS)) ps_word_wake(watch); /* M:watch_interrupt_wakes */
}

static void waiter_wake(struct ps_waiter *waiter)
{
    if (waiter->fibers) ps_fibers_wake(waiter);
    else if (waiter->watch) watch_nudge(waiter->watch);
    else ps_word_wake(&waiter->state);
}

void ps_waiter_interrupt(void *arg)
{
    struct ps_waiter *waiter = arg;
    uint32_t waiting = PS_WAITING;
    atomic_compare_exchange_strong(&waiter->state, &waiting, PS_INTERRUPTED);
    waiter_wake(waiter);
}

/* ---- joining, leaving, settling ---- */

bool ps_waiter_join(struct ps_waiter *waiter, struct ps_completion *completion, const _Atomic bool *settled)
{
    waiter->settled = settled;
    atomic_init(&waiter->state, PS_WAITING);

    pthread_mutex_lock(completion->lock);
    atomic_store(&completion->waited, true);
    atomic_thread_fence(memory_order_seq_cst);
    bool wait = !satisfied(waiter, completion);
    if (wait) {
        waiter->prev = NULL;
        waiter->next = completion->waiters;
        if (waiter->next) waiter->next->prev = waiter;
        completion->waiters = waiter;
        if (waiter->fibers) atomic_fetch_add(&waiter->refs, 1);
    }
    pthread_mutex_unlock(completion->lock);
    return wait;
}

/* The thread that stored PS_DONE has unlinked the waiter, and no longer reads it. */
void ps_waiter_leave(struct ps_waiter *waiter, struct ps_completion *completion)
{
    if (atomic_load(&waiter->state) == PS_DONE) return;
    pthread_mutex_lock(completion->lock);
    if (atomic_load(&waiter->state) != PS_DONE) unlink_and_unref(waiter, completion);
    pthread_mutex_unlock(completion->lock);
}

/*
 * When `state` is PS_DONE, the waiting thread may return at any time, and its waiter is on its stack. So this function reads
 * the waiter's members before it stores PS_DONE. Afterwards it uses only the address of the word that it wakes. If another
 * thread sleeps at the same address by then, that thread wakes up, checks its word and sleeps again.
 */
static void waiter_finish(struct ps_waiter *waiter)
{
    bool of_fiber = waiter->fibers; /* then the completion's reference keeps it alive */
    _Atomic uint32_t *state = &waiter->state, *watch = waiter->watch;
    atomic_store(state, PS_DONE);
    if (!of_fiber) {
        if (watch) watch_nudge(watch);
        else ps_word_wake(state);
        return;
    }
    ps_fibers_wake(waiter);
    ps_waiter_unref(waiter);
}

static void wake_satisfied(struct ps_completion *completion)
{
    pthread_mutex_lock(completion->lock); /* M:waiters_lock */
    for (struct ps_waiter *waiter = completion->waiters, *next; waiter; waiter = next) {
        next = waiter->next;
        if (!satisfied(waiter, completion)) continue;
        unlink_waiter(waiter, completion);
        waiter_finish(waiter);
    }
    pthread_mutex_unlock(completion->lock);
}

void ps_completion_wake(struct ps_completion *completion)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load(&completion->waited)) return;
    pthread_mutex_lock(completion->lock);
    for (struct ps_waiter *waiter = completion->waiters, *next; waiter; waiter = next) {
        next = waiter->next;
        if (atomic_load(&waiter->abandoned)) unlink_and_unref(waiter, completion);
        else ps_waiter_interrupt(waiter);
    }
    pthread_mutex_unlock(completion->lock);
}

void ps_completion_drop(struct ps_completion *completion)
{
    while (completion->waiters) unlink_and_unref(completion->waiters, completion);
}

bool ps_completion_settle(struct ps_completion *completion, uint32_t count)
{
    bool done = atomic_fetch_sub(&completion->pending, count) == count;
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load(&completion->waited)) wake_satisfied(completion);
    return done;
}
