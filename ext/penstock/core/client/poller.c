/*
 * The one native thread that serves every client. It never holds the GVL and never calls Ruby.
 *
 * librdkafka says that a client's queue stopped being empty by calling ps_poller_ready_cb on a thread of
 * its own, with its locks held: the callback pushes the client on a lock-free stack and writes an
 * eventfd. The poller takes the whole stack, and visits the clients round robin, each for at most its
 * time slice. So a turn costs what the ready clients cost, however many idle ones there are.
 *
 * No wake-up is lost because
 *   - a client's mark means that it is in the stack. It is cleared when the client is taken from there,
 *     before its queue is drained: what comes later pushes it again;
 *   - a drain goes on until the queue is empty, or puts the client back itself;
 *   - a client is marked once after its callback was enabled.
 * The sweep looks at everybody now and then all the same, and counts what it finds: that count is the
 * number of defects in the above.
 *
 * Leaving is asked for under the lock, after the callback was disabled, and done by the poller's thread.
 *
 * A thread that produces a big batch borrows its client: it takes the events itself every now and then,
 * between two messages, instead of fighting the poller for librdkafka's locks and the allocator (a third
 * of the time, measured). So does a thread that waits for a message and keeps watch over its client (watch.c):
 * while it does, it is rung instead of the poller. `served` lets one of them at the queue. Who wants to look and
 * is turned away says so in `retry_requested`; whoever hands the client back then marks it again.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "client/client.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef PS_LINUX
#include <sys/syscall.h>
#endif

static void count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* ---- life ---- */

struct ps_poller *ps_poller_new(unsigned number)
{
    struct ps_poller *poller = calloc(1, sizeof(*poller));
    if (!poller) return NULL;
    int failed = ps_wakeup_open(&poller->wakeup);
    if (failed) {
        free(poller);
        errno = failed;
        return NULL;
    }
    atomic_init(&poller->refs, 1);
    poller->generation = ps_generation();
    poller->number = number;
    poller->sweep_us = 1000000;
    pthread_mutex_init(&poller->lock, NULL);
    return poller;
}

void ps_poller_retain(struct ps_poller *poller)
{
    atomic_fetch_add(&poller->refs, 1);
}

void ps_poller_unref(struct ps_poller *poller)
{
    if (atomic_fetch_sub(&poller->refs, 1) != 1) return;
    ps_wakeup_close(&poller->wakeup); /* in a forked child too: this closes only the child's descriptor */
    if (poller->generation != ps_generation()) return;
    pthread_mutex_destroy(&poller->lock);
    free(poller);
}

/* ---- becoming ready: any thread ---- */

void ps_poller_push(struct ps_polled *polled)
{
    if (atomic_exchange(&polled->ready, true)) return; /* marked already: it will be visited */

    struct ps_poller *poller = polled->poller;
    struct ps_polled *head = atomic_load(&poller->ready_head);
    do polled->ready_next = head;
    while (!atomic_compare_exchange_weak(&poller->ready_head, &head, polled));
    if (!head) ps_wakeup_signal(&poller->wakeup); /* else whoever made the stack non-empty has signalled */
}

void ps_poller_mark_ready(struct ps_polled *polled)
{
    if (!ps_watch_ring(polled)) ps_poller_push(polled);
}

void ps_poller_ready_cb(rd_kafka_t *rk, void *polled)
{
    (void)rk;
    ps_poller_mark_ready(polled);
}

/* ---- the run list: the poller's thread ---- */

static void run_append(struct ps_poller *poller, struct ps_polled *polled)
{
    if (polled->in_run) return;
    polled->in_run = true;
    polled->run_next = NULL;
    if (poller->run_tail) poller->run_tail->run_next = polled;
    else poller->run_head = polled;
    poller->run_tail = polled;
}

static struct ps_polled *run_shift(struct ps_poller *poller)
{
    struct ps_polled *polled = poller->run_head;
    poller->run_head = polled->run_next;
    if (!poller->run_head) poller->run_tail = NULL;
    polled->in_run = false;
    return polled;
}

static void run_remove(struct ps_poller *poller, struct ps_polled *polled)
{
    if (!polled->in_run) return;
    struct ps_polled **link = &poller->run_head, *previous = NULL;
    while (*link != polled) {
        previous = *link;
        link = &previous->run_next;
    }
    *link = polled->run_next;
    if (poller->run_tail == polled) poller->run_tail = previous;
    polled->in_run = false;
}

/* The stack gives the latest first; whoever became ready first is visited first. */
static void take_ready(struct ps_poller *poller)
{
    struct ps_polled *stack = atomic_exchange(&poller->ready_head, NULL), *queue = NULL;
    while (stack) {
        struct ps_polled *next = stack->ready_next;
        stack->ready_next = queue;
        queue = stack;
        stack = next;
    }
    while (queue) {
        struct ps_polled *next = queue->ready_next; /* read first: from the next line on it may be pushed again */
        atomic_store(&queue->ready, false);
        run_append(poller, queue);
        queue = next;
    }
}

/* ---- one visit ---- */

/* False when there is more: the time slice ended first, or the wait of `waiter`, which may be NULL. */
static bool drain(struct ps_polled *polled, int64_t deadline_us, const struct ps_waiter *waiter)
{
    rd_kafka_event_t *event;
    count(&polled->poller->drains);
    while ((event = rd_kafka_queue_poll(polled->queue, 0))) {
        count(&polled->poller->events);
        polled->kind->handle(polled, event);
        if (waiter && atomic_load(&waiter->state) != PS_WAITING) return rd_kafka_queue_length(polled->queue) == 0;
        if (ps_now_us() >= deadline_us) return false;
    }
    return true;
}

/* Who has borrowed it. What others were turned away for is in the queue by now, so they need no mark. */
static bool serve(struct ps_polled *polled, int64_t now, const struct ps_waiter *waiter, int64_t deadline_us)
{
    atomic_store(&polled->retry_requested, false);
    int64_t slice_us = now + polled->max_time_us;
    bool empty = drain(polled, slice_us < deadline_us ? slice_us : deadline_us, waiter);
    polled->kind->work(polled, now);
    return empty;
}

static void visit(struct ps_poller *poller, struct ps_polled *polled)
{
    polled->visited_us = ps_now_us();
    if (!ps_poller_claim(polled)) return;
    bool empty = serve(polled, polled->visited_us, NULL, PS_FOREVER);
    ps_poller_hand_back(polled);
    if (empty) return;
    count(&poller->slices_cut);
    run_append(poller, polled);
}

/* ---- borrowing: between ps_client_enter and exit, but for the poller itself ---- */

bool ps_poller_borrow(struct ps_polled *polled)
{
    return !atomic_exchange(&polled->served, true);
}

bool ps_poller_claim(struct ps_polled *polled)
{
    if (ps_poller_borrow(polled)) return true;
    atomic_store(&polled->retry_requested, true);
    return ps_poller_borrow(polled); /* no: who hands it back sees `retry_requested` */
}

void ps_poller_serve(struct ps_polled *polled, const struct ps_waiter *waiter, int64_t deadline_us)
{
    if (!serve(polled, ps_now_us(), waiter, deadline_us)) ps_poller_mark_ready(polled);
}

void ps_poller_hand_back(struct ps_polled *polled)
{
    atomic_store(&polled->served, false);
    if (atomic_load(&polled->retry_requested)) ps_poller_mark_ready(polled);
}

/* ---- the sweep: the poller's thread ---- */

static void sweep(struct ps_poller *poller, int64_t now)
{
    int64_t shortest = PS_FOREVER;
    count(&poller->sweeps);
    pthread_mutex_lock(&poller->lock);
    for (struct ps_polled *polled = poller->clients; polled; polled = polled->next) {
        if (polled->sweep_us < shortest) shortest = polled->sweep_us;
        if (polled->kind->work_due(polled, now)) ps_poller_mark_ready(polled);
        if (now - polled->visited_us < polled->sweep_us) continue;
        polled->visited_us = now;
        if (!ps_poller_borrow(polled)) continue;
        /* The callback runs under the queue's lock, so whatever this length counts has already marked its polled. Who kept
         * watch was asked first: it has pushed the polled, or was turned away, before it stopped looking. */
        bool missed = rd_kafka_queue_length(polled->queue) > 0 && !ps_watch_looks(polled) && !atomic_load(&polled->ready) &&
                      !polled->in_run && !atomic_load(&polled->retry_requested) && !atomic_load(&polled->callback_disabled);
        ps_poller_hand_back(polled);
        if (!missed) continue;
        count(&poller->missed_wakeups);
        ps_poller_mark_ready(polled);
    }
    if (shortest != PS_FOREVER) atomic_store(&poller->sweep_us, shortest);
    poller->swept_us = now;
    pthread_mutex_unlock(&poller->lock);
}

/* ---- leaving and stopping ---- */

static void list_remove(struct ps_poller *poller, struct ps_polled *polled)
{
    if (polled->prev) polled->prev->next = polled->next;
    else poller->clients = polled->next;
    if (polled->next) polled->next->prev = polled->prev;
    atomic_fetch_sub(&poller->count, 1);
}

static void let_go(struct ps_poller *poller)
{
    if (!atomic_load(&poller->has_leaving)) return;

    pthread_mutex_lock(&poller->lock);
    struct ps_polled *leaving = poller->leaving;
    poller->leaving = NULL;
    atomic_store(&poller->has_leaving, false);
    pthread_mutex_unlock(&poller->lock);

    take_ready(poller); /* no callback can push them again, so from here on they are in the run list or nowhere */
    for (struct ps_polled *polled = leaving; polled; polled = polled->leaving_next) {
        run_remove(poller, polled);
        drain(polled, ps_now_us() + polled->max_time_us, NULL); /* its messages have their verdicts */
    }

    pthread_mutex_lock(&poller->lock);
    for (struct ps_polled *polled = leaving, *next; polled; polled = next) {
        next = polled->leaving_next; /* read first: `left` lets its owner free it */
        list_remove(poller, polled);
        atomic_store(&polled->left, 1);
        ps_word_wake(&polled->left); /* its owner may have freed it: only the address is used */
    }
    pthread_mutex_unlock(&poller->lock);
}

/*
 * Deciding to stop and saying so happen in one section under the lock: a client that joins meanwhile either is seen here or
 * starts a new thread.
 */
static bool stop(struct ps_poller *poller)
{
    let_go(poller);
    if (atomic_load(&poller->count) > 0) return false;
    pthread_mutex_lock(&poller->lock);
    bool stop = !poller->clients;
    if (stop) {
        poller->running = false;
        poller->thread_id = 0;
    }
    pthread_mutex_unlock(&poller->lock);
    return stop;
}

static int64_t next_sweep_us(const struct ps_poller *poller)
{
    return poller->swept_us + atomic_load(&poller->sweep_us);
}

static void sweep_if_due(struct ps_poller *poller)
{
    int64_t now = ps_now_us();
    if (now >= next_sweep_us(poller)) sweep(poller, now);
}

static void *poller_main(void *arg)
{
    struct ps_poller *poller = arg;

    pthread_mutex_lock(&poller->lock);
    poller->thread = pthread_self();
#ifdef PS_LINUX
    poller->thread_id = (int)syscall(SYS_gettid);
#else
    poller->thread_id = (int)getpid(); /* not 0: it runs */
#endif
    pthread_mutex_unlock(&poller->lock);

    poller->swept_us = ps_now_us();
    while (!stop(poller)) {
        if (!poller->run_head && ps_wakeup_wait(&poller->wakeup, next_sweep_us(poller))) count(&poller->wakeups);
        take_ready(poller);
        if (poller->run_head) visit(poller, run_shift(poller));
        sweep_if_due(poller);
    }
    ps_poller_unref(poller);
    return NULL;
}

/* With the lock held. 0 or errno. */
static int start_thread(struct ps_poller *poller)
{
    if (poller->running) return 0;
    char name[32];
    snprintf(name, sizeof(name), "penstock.poller#%u", poller->number);
    ps_poller_retain(poller); /* the thread's */
    int failed = ps_thread_start(name, poller_main, poller);
    if (failed) {
        ps_poller_unref(poller);
        return failed;
    }
    poller->running = true;
    count(&poller->starts);
    return 0;
}

/* ---- for the clients' owners ---- */

int ps_poller_join(struct ps_poller *poller, struct ps_polled *polled)
{
    pthread_mutex_lock(&poller->lock);
    int64_t sweep_us = atomic_load(&poller->sweep_us);
    if (!poller->clients || polled->sweep_us < sweep_us)
        atomic_store(&poller->sweep_us, polled->sweep_us);

    polled->visited_us = ps_now_us();
    polled->prev = NULL;
    polled->next = poller->clients;
    if (polled->next) polled->next->prev = polled;
    poller->clients = polled;
    atomic_fetch_add(&poller->count, 1);

    int failed = start_thread(poller);
    if (failed) list_remove(poller, polled);
    pthread_mutex_unlock(&poller->lock);
    return failed;
}

void ps_poller_leave(struct ps_poller *poller, struct ps_polled *polled)
{
    pthread_mutex_lock(&poller->lock);
    polled->leaving_next = poller->leaving;
    poller->leaving = polled;
    atomic_store(&poller->has_leaving, true);
    ps_wakeup_signal(&poller->wakeup);
    pthread_mutex_unlock(&poller->lock);
    while (!atomic_load(&polled->left)) ps_word_sleep(&polled->left, 0, PS_FOREVER);
}

static double thread_cpu_seconds(pthread_t thread)
{
#ifdef __APPLE__
    (void)thread;
    return 0; /* no per-thread CPU clock for other threads */
#else
    clockid_t clock;
    struct timespec used;
    if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
#endif
}

void ps_poller_stats(struct ps_poller *poller, struct ps_poller_stats *stats)
{
    stats->clients = atomic_load(&poller->count);
    stats->wakeups = atomic_load(&poller->wakeups);
    stats->drains = atomic_load(&poller->drains);
    stats->events = atomic_load(&poller->events);
    stats->messages = atomic_load(&poller->messages);
    stats->slices_cut = atomic_load(&poller->slices_cut);
    stats->sweeps = atomic_load(&poller->sweeps);
    stats->missed_wakeups = atomic_load(&poller->missed_wakeups);
    stats->starts = atomic_load(&poller->starts);

    pthread_mutex_lock(&poller->lock);
    /* thread_id is set by the thread itself and cleared before it ends: in between `thread` is alive. */
    stats->thread_id = poller->thread_id;
    stats->cpu_seconds = poller->thread_id ? thread_cpu_seconds(poller->thread) : 0;
    pthread_mutex_unlock(&poller->lock);
}
