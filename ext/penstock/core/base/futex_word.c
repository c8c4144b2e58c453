/*
 * A word that threads sleep on until another thread changes it: a futex on Linux. There, waking is async-signal-safe.
 * PENSTOCK_PORTABLE builds the implementation for other systems.
 */
#include "base/base.h"
#include <errno.h>
#include <limits.h>
#include <time.h>
#ifdef PS_LINUX
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

/*
 * Without a futex: a table of locks and conditions, indexed by the word's address.
 *
 * No wake-up is lost: a sleeping thread reads the word with the lock held, and the waking thread takes that lock after it has
 * changed the word. So the change cannot fall between the read and the sleep. Threads whose words share an entry wake up
 * needlessly, and look again.
 *
 * A table is never freed, since a thread may still be in it. A fork child makes its own: the threads that sleep in the
 * parent's table do not exist in the child.
 */
enum { PLACES = 64 };

struct table {
    struct ps_singleton singleton;
    struct sleepers {
        _Alignas(64) pthread_mutex_t lock;
        pthread_cond_t changed;
    } of[PLACES];
};

#ifdef __APPLE__
#define HAS_MONOTONIC_CONDITIONS 0
#else
#define HAS_MONOTONIC_CONDITIONS 1
#endif

static void table_init(void *made)
{
    struct table *table = made;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
#if HAS_MONOTONIC_CONDITIONS
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    for (int i = 0; i < PLACES; i++) {
        pthread_mutex_init(&table->of[i].lock, NULL);
        pthread_cond_init(&table->of[i].changed, &attributes);
    }
    pthread_condattr_destroy(&attributes);
}

static struct ps_singleton_kind tables = { .size = sizeof(struct table), .init = table_init };

static struct sleepers *sleepers_of(const _Atomic uint32_t *word)
{
    struct table *table = ps_singleton_get(&tables);
    return &table->of[((uintptr_t)word >> 2) * 2654435761u % PLACES];
}

static void sleep_until(struct sleepers *sleepers, int64_t deadline_us)
{
    struct timespec until;
#if HAS_MONOTONIC_CONDITIONS
    until.tv_sec = deadline_us / 1000000;
    until.tv_nsec = deadline_us % 1000000 * 1000;
    pthread_cond_timedwait(&sleepers->changed, &sleepers->lock, &until);
#else
    int64_t left_us = deadline_us - ps_now_us();
    if (left_us < 0) left_us = 0;
    until.tv_sec = left_us / 1000000;
    until.tv_nsec = left_us % 1000000 * 1000;
    pthread_cond_timedwait_relative_np(&sleepers->changed, &sleepers->lock, &until);
#endif
}

bool ps_word_sleep(_Atomic uint32_t *word, uint32_t value, int64_t deadline_us)
{
    struct sleepers *sleepers = sleepers_of(word);
    pthread_mutex_lock(&sleepers->lock);
    if (atomic_load(word) == value) {
        if (deadline_us == PS_FOREVER) pthread_cond_wait(&sleepers->changed, &sleepers->lock);
        else sleep_until(sleepers, deadline_us);
    }
    pthread_mutex_unlock(&sleepers->lock);
    return true;
}

/* Uses no more than the word's address. */
void ps_word_wake(_Atomic uint32_t *word)
{
    struct sleepers *sleepers = sleepers_of(word);
    pthread_mutex_lock(&sleepers->lock);
    pthread_cond_broadcast(&sleepers->changed);
    pthread_mutex_unlock(&sleepers->lock);
}

#endif
