/* core/wait: what threads and fibers wait for: completions, a scheduler's fibers, jobs on threads of their own. */
#ifndef PENSTOCK_WAIT_H
#define PENSTOCK_WAIT_H

#include "base/base.h"

/* ---- completion.c: "n things are pending", and who waits for them -------------------------------- */

/* The word of a thread that watches its client while it waits; see watch.c. */
enum { PS_WATCH_NONE, PS_WATCH_LOOKS, PS_WATCH_SLEEPS, PS_WATCH_RUNG };

/* One wait, zeroed before the first join. A thread's lives on its stack: unlinked before anything can unwind it. A
 * fiber's is counted (fibers.c). */
struct ps_waiter {
    struct ps_waiter *next, *prev;       /* in completion.waiters, under completion.lock */
    const _Atomic bool *settled;         /* what is waited for; NULL: the whole completion */
    _Atomic uint32_t state;
    struct ps_fibers *fibers;            /* retained; NULL: a thread's */
    _Atomic uint32_t *watch;             /* its client's, on which it sleeps instead of `state`; NULL: it keeps none */
    /* a fiber's only: */
    struct ps_waiter *woken_next;        /* in fibers->woken */
    _Atomic uint32_t refs;
    _Atomic bool woken;                  /* is in fibers->woken */
    _Atomic bool abandoned;              /* the fiber is gone for good, without having left */
};

enum { PS_WAITING, PS_INTERRUPTED, PS_DONE };

struct ps_completion {
    pthread_mutex_t *lock;       /* guards `waiters`; belongs to the client or the job */
    struct ps_waiter *waiters;
    _Atomic uint32_t pending;
    _Atomic bool waited;         /* someone is or was in `waiters`: settling must look */
};

void ps_completion_init(struct ps_completion *completion, pthread_mutex_t *lock, uint32_t pending);
bool ps_completion_settle(struct ps_completion *completion, uint32_t count); /* true: nothing left */
bool ps_completion_done(const struct ps_completion *completion);
void ps_completion_wake(struct ps_completion *completion); /* all who wait, with nothing settled */
void ps_completion_drop(struct ps_completion *completion); /* one that is never settled: nobody who lives waits any more */

bool ps_waiter_join(struct ps_waiter *waiter, struct ps_completion *completion,
                    const _Atomic bool *settled);           /* false: done already, not linked */
void ps_waiter_leave(struct ps_waiter *waiter, struct ps_completion *completion);
uint32_t ps_waiter_sleep(struct ps_waiter *waiter, int64_t deadline_us); /* the state it woke with */
void ps_waiter_interrupt(void *waiter);                     /* async-signal-safe */

/* ---- fibers.c: the waiting fibers of one scheduler -------------------------------------------------- */

struct ps_fibers { /* refs: of the scheduler, of each waiter */
    struct ps_wakeup wakeup;
    _Atomic(struct ps_waiter *) woken; /* whom to let go on; pushed by any thread */
    _Atomic bool forgotten;            /* nobody takes them any more */
    _Atomic uint32_t refs;
};

struct ps_fibers *ps_fibers_new(void); /* NULL: see errno */
void ps_fibers_unref(struct ps_fibers *fibers);
void ps_fibers_forget(struct ps_fibers *fibers); /* the same, for the scheduler's: nobody takes what is woken any more */
struct ps_waiter *ps_fibers_waiter(struct ps_fibers *fibers, size_t size); /* zeroed; first in a struct of that size; NULL: no memory */
void ps_waiter_unref(struct ps_waiter *waiter);
void ps_fibers_wake(struct ps_waiter *waiter);                    /* async-signal-safe */
struct ps_waiter *ps_fibers_take(struct ps_fibers *fibers);       /* all that were woken; the references go to the caller */

/* ---- bell.c: work may have come --------------------------------------------------------------------- */

/* Read `rings`, look whether there is work, and if not sleep until it is another: no ring in between is missed. */
struct ps_bell {
    _Atomic uint32_t rings;
    pthread_mutex_t lock; /* of the sleepers; a leaf */
    struct ps_completion sleepers;
};

void ps_bell_init(struct ps_bell *bell);
void ps_bell_destroy(struct ps_bell *bell);
void ps_bell_ring(struct ps_bell *bell);
void ps_bell_ring_cb(rd_kafka_t *rk, void *bell);

/* ---- job.c: a blocking librdkafka call on a native thread of its own ------------------------------ */

struct ps_job {
    struct ps_completion completion;
    pthread_mutex_t lock;
    _Atomic uint32_t refs;
    _Atomic bool abandoned; /* an asker has stopped waiting */
    void (*run)(struct ps_job *job);
    void (*release)(struct ps_job *job); /* frees the struct that embeds this one */
};

void ps_job_init(struct ps_job *job, void (*run)(struct ps_job *), void (*release)(struct ps_job *));
int ps_job_start(struct ps_job *job, const char *thread_name); /* 0 or errno; the thread owns a reference */
void ps_job_retain(struct ps_job *job);
void ps_job_unref(struct ps_job *job);
void ps_job_abandon(struct ps_job *job); /* says that the asker has stopped waiting, and unrefs */

#endif
