/* core/wait: how threads and fibers wait: completions, a scheduler's fibers, bells, tasks of shared threads, jobs on threads
 * of their own. */
#ifndef PENSTOCK_WAIT_H
#define PENSTOCK_WAIT_H

#include "base/base.h"

/* ---- completion.c: "n things are pending", and the threads and fibers that wait for them ----------------- */

/* The states of ps_polled.watch, the word on which a thread that watches its client sleeps; see watch.c. */
enum { PS_WATCH_NONE, PS_WATCH_LOOKS, PS_WATCH_SLEEPS, PS_WATCH_RUNG };

/* One wait, zeroed before the first join. A thread's waiter lives on its stack and is unlinked before the stack can unwind. A
 * fiber's waiter is reference counted (fibers.c). */
struct ps_waiter {
    struct ps_waiter *next, *prev;       /* in completion.waiters, under completion.lock */
    const _Atomic bool *settled;         /* the wait ends when this is true; NULL: when nothing is pending */
    _Atomic uint32_t state;
    struct ps_fibers *fibers;            /* retained; NULL: a thread's waiter */
    /* The word `watch` of the client that its thread watches: the thread sleeps on it instead of `state`. NULL: none. */
    _Atomic uint32_t *watch;
    /* Of a fiber's waiter only: */
    struct ps_waiter *woken_next;        /* in fibers->woken */
    _Atomic uint32_t refs;
    _Atomic bool woken;                  /* it is in fibers->woken */
    _Atomic bool abandoned;              /* the fiber will never run again, and has not left */
};

enum { PS_WAITING, PS_INTERRUPTED, PS_DONE };

struct ps_completion {
    pthread_mutex_t *lock;       /* guards `waiters`; belongs to the client or the job */
    struct ps_waiter *waiters;
    _Atomic uint32_t pending;
    _Atomic bool waited;         /* a waiter has joined at least once, so a settling thread must look at `waiters` */
};

void ps_completion_init(struct ps_completion *completion, pthread_mutex_t *lock, uint32_t pending);
bool ps_completion_settle(struct ps_completion *completion, uint32_t count); /* true: nothing is pending any more */
bool ps_completion_done(const struct ps_completion *completion);
void ps_completion_wake(struct ps_completion *completion); /* wakes all waiters, and settles nothing */
/* Before it is freed unsettled: releases its waiters, which must all be of fibers that never run again. */
void ps_completion_drop(struct ps_completion *completion);

bool ps_waiter_join(struct ps_waiter *waiter, struct ps_completion *completion,
                    const _Atomic bool *settled);           /* false: done already, not linked */
void ps_waiter_leave(struct ps_waiter *waiter, struct ps_completion *completion);
uint32_t ps_waiter_sleep(struct ps_waiter *waiter, int64_t deadline_us); /* returns the state it woke with */
void ps_waiter_interrupt(void *waiter);                     /* async-signal-safe */

/* ---- fibers.c: the waiting fibers of one scheduler -------------------------------------------------- */

struct ps_fibers { /* refs: one of the scheduler, one of each waiter */
    struct ps_wakeup wakeup;
    _Atomic(struct ps_waiter *) woken; /* a stack of waiters whose fibers may go on; any thread pushes */
    _Atomic bool forgotten;            /* the scheduler takes no more waiters */
    _Atomic uint32_t refs;
};

struct ps_fibers *ps_fibers_new(void); /* NULL: see errno */
void ps_fibers_unref(struct ps_fibers *fibers);
void ps_fibers_forget(struct ps_fibers *fibers); /* the scheduler releases its reference, and takes no more */
/* Allocates `size` zeroed bytes, for a ps_waiter or a struct that begins with one. NULL: no memory. */
struct ps_waiter *ps_fibers_waiter(struct ps_fibers *fibers, size_t size);
void ps_waiter_unref(struct ps_waiter *waiter);
void ps_fibers_wake(struct ps_waiter *waiter);                    /* async-signal-safe */
struct ps_waiter *ps_fibers_take(struct ps_fibers *fibers);       /* all woken waiters; the caller owns their references */

/* ---- bell.c: wakes threads that look for work ------------------------------------------------------ */

/* A waiting thread reads `rings`, looks for work, and if there is none sleeps until `rings` changes. So it misses no ring in
 * between. */
struct ps_bell {
    _Atomic uint32_t rings;
    pthread_mutex_t lock; /* guards `sleepers` and changes of `member`. With it held, only the bell of a set is rung */
    struct ps_completion sleepers;
    _Atomic(struct ps_bell_member *) member; /* what the bell is in a set of bells; NULL: it is in none */
};

/* Any number of bells, for a thread that waits until one of them rings. `bell` rings when `rung` stops being empty. */
struct ps_bell_set {
    struct ps_bell bell;
    _Atomic(struct ps_bell_member *) rung; /* a stack of members whose bells have rung; any thread pushes */
};

struct ps_bell_member { /* refs: one of its owner, one of the stack */
    struct ps_bell_set *set;
    struct ps_bell_member *rung_next;
    _Atomic bool rung;    /* it is in the stack */
    _Atomic uint32_t refs;
};

void ps_bell_init(struct ps_bell *bell);
void ps_bell_destroy(struct ps_bell *bell);
void ps_bell_ring(struct ps_bell *bell);
void ps_bell_ring_cb(rd_kafka_t *rk, void *bell);

void ps_bell_set_init(struct ps_bell_set *set);
void ps_bell_set_destroy(struct ps_bell_set *set);           /* after all members have left and the stack was taken */
/* Counts as a ring of the bell. False: the bell is in a set already. The caller has set up `member->set` and one reference. */
bool ps_bell_join(struct ps_bell *bell, struct ps_bell_member *member);
void ps_bell_leave(struct ps_bell *bell);                    /* afterwards no thread pushes the member */
/* The members that have rung, the first one first. The caller calls ps_bell_member_taken for each. */
struct ps_bell_member *ps_bell_set_take(struct ps_bell_set *set);
struct ps_bell_member *ps_bell_member_taken(struct ps_bell_member *member); /* from now on it may be pushed; returns the next */
void ps_bell_member_unref(struct ps_bell_member *member);    /* frees it with the last reference */

/* ---- tasks.c: wakes Ruby threads that many clients share --------------------------------------------- */

uint32_t ps_tasks_changes(void);
void ps_tasks_changed(void); /* a task may be due, or over. Any thread, librdkafka's too */
void ps_tasks_interrupt(void *unused); /* ends the waits, which then look again */
void ps_tasks_await(uint32_t seen, int64_t deadline_us); /* until ps_tasks_changes() differs; may return early */

/* ---- job.c: a blocking librdkafka call on a native thread of its own ------------------------------ */

struct ps_job {
    struct ps_completion completion;
    pthread_mutex_t lock;
    _Atomic uint32_t refs;
    _Atomic bool abandoned; /* a caller has stopped waiting */
    void (*run)(struct ps_job *job);
    void (*release)(struct ps_job *job); /* frees the struct that embeds this one */
};

void ps_job_init(struct ps_job *job, void (*run)(struct ps_job *), void (*release)(struct ps_job *));
int ps_job_start(struct ps_job *job, const char *thread_name); /* 0 or errno; the thread owns a reference */
void ps_job_retain(struct ps_job *job);
void ps_job_unref(struct ps_job *job);
void ps_job_abandon(struct ps_job *job); /* the caller stops waiting, and releases its reference */

#endif
