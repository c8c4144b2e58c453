/*
 * "n things are pending", and the threads that wait until none is.
 *
 * Settling is the hot side: one atomic subtraction when nobody waits. A waiter therefore announces
 * itself (`waited`) before it looks at `pending`, and the settler looks at `waited` after it has
 * subtracted; the two fences make sure that at least one of them sees the other.
 */
#include "core.h"
#include <errno.h>
#include <limits.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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
    return waiter->delivery ? ps_delivery_settled(waiter->delivery) : ps_completion_done(completion);
}

static void unlink_waiter(struct ps_waiter *waiter, struct ps_completion *completion)
{
    if (waiter->prev) waiter->prev->next = waiter->next;
    else completion->waiters = waiter->next;
    if (waiter->next) waiter->next->prev = waiter->prev;
}

/* ---- one thread's sleep: a word that somebody else changes ---- */

#ifdef __linux__

/* False when a signal came in between. */
static bool sleep_until_changed(struct ps_waiter *waiter, int64_t deadline_us)
{
    struct timespec until, *timeout = NULL;
    if (deadline_us != PS_FOREVER) {
        until.tv_sec = deadline_us / 1000000;
        until.tv_nsec = deadline_us % 1000000 * 1000;
        timeout = &until;
    }
    /* FUTEX_WAIT_BITSET takes an absolute time on the monotonic clock, so a spurious wake needs no arithmetic. */
    return syscall(SYS_futex, &waiter->state, FUTEX_WAIT_BITSET_PRIVATE, PS_WAITING, timeout, NULL,
                   FUTEX_BITSET_MATCH_ANY) == 0 || errno != EINTR;
}

static void wake_sleeper(struct ps_waiter *waiter)
{
    syscall(SYS_futex, &waiter->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

#else

/* Without a futex, all sleepers of the process share one condition variable. Rare systems, few sleepers. */
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t sleep_changed = PTHREAD_COND_INITIALIZER;

static bool sleep_until_changed(struct ps_waiter *waiter, int64_t deadline_us)
{
    pthread_mutex_lock(&sleep_lock);
    if (atomic_load(&waiter->state) == PS_WAITING) {
        if (deadline_us == PS_FOREVER) {
            pthread_cond_wait(&sleep_changed, &sleep_lock);
        } else {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            int64_t nanoseconds = until.tv_nsec + (deadline_us - ps_now_us()) * 1000;
            if (nanoseconds < 0) nanoseconds = 0;
            until.tv_sec += nanoseconds / 1000000000;
            until.tv_nsec = nanoseconds % 1000000000;
            pthread_cond_timedwait(&sleep_changed, &sleep_lock, &until);
        }
    }
    pthread_mutex_unlock(&sleep_lock);
    return true;
}

static void wake_sleeper(struct ps_waiter *waiter)
{
    (void)waiter;
    pthread_mutex_lock(&sleep_lock);
    pthread_cond_broadcast(&sleep_changed);
    pthread_mutex_unlock(&sleep_lock);
}

#endif

uint32_t ps_waiter_sleep(struct ps_waiter *waiter, int64_t deadline_us)
{
    uint32_t state;
    while ((state = atomic_load(&waiter->state)) == PS_WAITING) {
        if (deadline_us != PS_FOREVER && ps_now_us() >= deadline_us) break;
        /* Ruby 3.1 does not always call the unblock function for a signal; its handler has run, though. */
        if (!sleep_until_changed(waiter, deadline_us)) ps_waiter_interrupt(waiter);
    }
    return state;
}

void ps_waiter_interrupt(void *arg)
{
    struct ps_waiter *waiter = arg;
    uint32_t waiting = PS_WAITING;
    atomic_compare_exchange_strong(&waiter->state, &waiting, PS_INTERRUPTED);
    wake_sleeper(waiter);
}

/* ---- joining, leaving, settling ---- */

bool ps_waiter_join(struct ps_waiter *waiter, struct ps_completion *completion, const struct ps_delivery *delivery)
{
    waiter->delivery = delivery;
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
    }
    pthread_mutex_unlock(completion->lock);
    return wait;
}

/*
 * Always takes the lock, also when the waiter was woken and is unlinked already: the settler may still
 * be inside wake_sleeper(), and the waiter lives on a stack that is about to go away.
 */
void ps_waiter_leave(struct ps_waiter *waiter, struct ps_completion *completion)
{
    pthread_mutex_lock(completion->lock);
    if (atomic_load(&waiter->state) != PS_DONE) unlink_waiter(waiter, completion);
    pthread_mutex_unlock(completion->lock);
}

static void wake_satisfied(struct ps_completion *completion)
{
    pthread_mutex_lock(completion->lock);
    for (struct ps_waiter *waiter = completion->waiters, *next; waiter; waiter = next) {
        next = waiter->next;
        if (!satisfied(waiter, completion)) continue;
        unlink_waiter(waiter, completion);
        atomic_store(&waiter->state, PS_DONE);
        wake_sleeper(waiter);
    }
    pthread_mutex_unlock(completion->lock);
}

bool ps_completion_settle(struct ps_completion *completion, uint32_t count)
{
    bool done = atomic_fetch_sub(&completion->pending, count) == count;
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load(&completion->waited)) wake_satisfied(completion);
    return done;
}
