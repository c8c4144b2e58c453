/*
 * A word that threads sleep on until somebody changes it: a futex where there is one. Waking is async-signal-safe there.
 */
#include "base/base.h"
#include <errno.h>
#include <limits.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

bool ps_word_sleep(_Atomic uint32_t *word, uint32_t value, int64_t deadline_us)
{
    struct timespec until, *timeout = NULL;
    if (deadline_us != PS_FOREVER) {
        until.tv_sec = deadline_us / 1000000;
        until.tv_nsec = deadline_us % 1000000 * 1000;
        timeout = &until;
    }
    /* FUTEX_WAIT_BITSET takes an absolute time on the monotonic clock, so a spurious wake needs no arithmetic. */
    return syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, timeout, NULL, FUTEX_BITSET_MATCH_ANY) == 0 ||
           errno != EINTR;
}

void ps_word_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#else

/* Without a futex, all sleepers of the process share one condition variable. Rare systems, few sleepers. */
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t sleep_changed = PTHREAD_COND_INITIALIZER;

bool ps_word_sleep(_Atomic uint32_t *word, uint32_t value, int64_t deadline_us)
{
    pthread_mutex_lock(&sleep_lock);
    if (atomic_load(word) == value) {
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

void ps_word_wake(_Atomic uint32_t *word)
{
    (void)word;
    pthread_mutex_lock(&sleep_lock);
    pthread_cond_broadcast(&sleep_changed);
    pthread_mutex_unlock(&sleep_lock);
}

#endif
