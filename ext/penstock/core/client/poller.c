/*
 * The one native thread that serves every client. It never holds the GVL and never calls Ruby.
 *
 * When a client's queue becomes non-empty, librdkafka calls ps_poller_ready_cb on one of its threads, with its locks held.
 * The callback pushes the client on a lock-free stack and writes to an eventfd. The poller takes the whole stack and visits
 * the clients round robin. It serves each for up to one time slice. So a turn's cost depends on the ready clients, not on the
 * idle ones.
 *
 * No wake-up is lost because
 *   - a client's `ready` mark means that it is in the stack. The poller clears it when it takes the client from there, before it
 *     drains the queue: a later event pushes the client again;
 *   - a drain goes on until the queue is empty, or else puts the client back;
 *   - a client is marked once after its callback was enabled.
 * The sweep still checks every client now and then. It counts a missed wake-up for each client whose queue has events although
 * none of the marks above is set. If the rules above hold, this count stays 0.
 *
 * The closing thread of a client disables the callback, then puts the client on the list `leaving`. The poller's thread drains
 * the client once more and removes it.
 *
 * A thread that produces a big batch borrows its client. It takes the events itself now and then, between two messages, so it
 * does not compete with the poller for librdkafka's locks and the allocator (that cost a third of the time, measured). A
 * thread that waits for a message and watches its client does the same (watch.c): the callback rings it instead of the
 * poller. `served` admits one of these threads to the queue at a time. A thread that finds it set also sets
 * `retry_requested`; the thread that hands the client back then marks it ready again.
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

static void poller_count(_Atomic uint64_t *counter)
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
    ps_wakeup_close(&poller->wakeup); /* in a fork child too: this closes only the child's descriptor */
    if (poller->generation != ps_generation()) return;
    pthread_mutex_destroy(&poller->lock);
    free(poller);
}

/* ---- becoming ready: any thread ---- */

void ps_poller_push(struct ps_polled *polled)
{
    if (atomic_exchange(&polled->ready, true)) return; /* marked already, so a visit will come */

    struct ps_poller *poller = polled->poller;
    struct ps_polled *head = atomic_load(&poller->ready_head);
    do polled->ready_next = head;
    while (!atomic_compare_exchange_weak(&poller->ready_head, &head, polled));
    if (!head) ps_wakeup_signal(&poller->wakeup); /* else the thread that made the stack non-empty has signalled */
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

/* The stack holds the latest first. The client that became ready first is visited first. */
static void poller_take_ready(struct ps_poller *poller)
{
    struct ps_polled *stack = atomic_exchange(&poller->ready_head, NULL), *queue = NULL;
    while (stack) {
        struct ps_polled *next = stack->ready_next;
        stack->ready_next = queue;
        queue = stack;
        stack = next;
    }
    while (queue) {
        /* M:ready_next_read_first */
        struct ps_polled *next = queue->ready_next; /* read first: from the next line on it may be pushed again */
        atomic_store(&queue->ready, false);
        run_append(poller, queue);
        queue = next;
    }
}

/* ---- one visit ---- */

/* False: there may be more events. The deadline came first, or the wait of `waiter` (may be NULL) ended first. */
static bool poller_drain(struct ps_polled *polled, int64_t deadline_us, const struct ps_waiter *waiter)
{
    rd_kafka_event_t *event;
    poller_count(&polled->poller->drains);
    while ((event = rd_kafka_queue_poll(polled->queue, 0))) {
        poller_count(&polled->poller->events);
        polled->kind->handle(polled, event);
        /* M:watch_leaves_rest */
        if (waiter && atomic_load(&waiter->state) != PS_WAITING) return rd_kafka_queue_length(polled->queue) == 0;
        if (ps_now_us() >= deadline_us) return false;
    }
    return true;
}

/* Called by the thread that has borrowed the client. It clears `retry_requested` before it drains: the drain takes the events
 * for which other threads have set it. */
static bool poller_serve(struct ps_polled *polled, int64_t now, const struct ps_waiter *waiter, int64_t deadline_us)
{
    atomic_store(&polled->retry_requested, false);
    int64_t slice_end_us = now + polled->max_time_us;
    bool empty = poller_drain(polled, slice_end_us < deadline_us ? slice_end_us : deadline_us, waiter); /* M:watch_deadline */
    polled->kind->work(polled, now);
    return empty;
}

static void poller_visit(struct ps_poller *poller, struct ps_polled *polled)
{
    polled->visited_us = ps_now_us();
    if (!ps_poller_borrow_or_retry(polled)) return;
    bool empty = poller_serve(polled, polled->visited_us, NULL, PS_FOREVER);
    ps_poller_hand_back(polled); /* M:poller_hands_back */
    if (empty) return;
    poller_count(&poller->slices_cut);
    run_append(poller, polled);
}

/* ---- borrowing: between ps_client_enter and exit; the poller itself need not enter ---- */

bool ps_poller_borrow(struct ps_polled *polled)
{
    return !atomic_exchange(&polled->served, true);
}

bool ps_poller_borrow_or_retry(struct ps_polled *polled)
{
    if (ps_poller_borrow(polled)) return true;
    atomic_store(&polled->retry_requested, true);
    return ps_poller_borrow(polled); /* false: the serving thread has yet to hand it back, and then sees `retry_requested` */
}

void ps_poller_serve(struct ps_polled *polled, const struct ps_waiter *waiter, int64_t deadline_us)
{
    if (!poller_serve(polled, ps_now_us(), waiter, deadline_us)) ps_poller_mark_ready(polled);
}

void ps_poller_hand_back(struct ps_polled *polled)
{
    atomic_store(&polled->served, false);
    if (atomic_load(&polled->retry_requested)) ps_poller_mark_ready(polled);
}

bool ps_poller_await_served(struct ps_polled *polled, int64_t deadline_us)
{
    while (!ps_poller_borrow(polled)) {
        if (ps_remaining_ms(deadline_us) == 0) return false;
        usleep(100);
    }
    ps_poller_hand_back(polled);
    return true;
}

/* ---- the sweep: the poller's thread ---- */

static void poller_sweep(struct ps_poller *poller, int64_t now)
{
    int64_t shortest = PS_FOREVER;
    poller_count(&poller->sweeps);
    pthread_mutex_lock(&poller->lock);
    for (struct ps_polled *polled = poller->clients; polled; polled = polled->next) {
        if (polled->sweep_us < shortest) shortest = polled->sweep_us;
        if (polled->kind->work_due(polled, now)) ps_poller_mark_ready(polled);
        if (now - polled->visited_us < polled->sweep_us) continue;
        polled->visited_us = now;
        if (!ps_poller_borrow(polled)) continue;
        /* The callback runs under the queue's lock, so it has already marked the client for each event that this length counts.
         * This reads ps_watch_looks before `ready` and `retry_requested`. A watching thread that leaves events in the queue
         * has pushed the client, or has found it served and set `retry_requested`, before it leaves the states LOOKS and RUNG. */
        bool missed = rd_kafka_queue_length(polled->queue) > 0 && !ps_watch_looks(polled) && !atomic_load(&polled->ready) &&
                      !polled->in_run && !atomic_load(&polled->retry_requested) && !atomic_load(&polled->callback_disabled);
        ps_poller_hand_back(polled);
        if (!missed) continue;
        poller_count(&poller->missed_wakeups);
        ps_poller_mark_ready(polled);
    }
    if (shortest != PS_FOREVER) atomic_store(&poller->sweep_us, shortest);
    poller->swept_us = now;
    pthread_mutex_unlock(&poller->lock);
}

/* A longer time counts from the next sweep on, which finds the shortest time of all clients. */
void ps_poller_sweep_every(struct ps_polled *polled, int64_t sweep_us)
{
    struct ps_poller *poller = polled->poller;
    polled->sweep_us = sweep_us;
    if (sweep_us < atomic_load(&poller->sweep_us)) atomic_store(&poller->sweep_us, sweep_us);
}

/* ---- leaving and stopping ---- */

static void list_remove(struct ps_poller *poller, struct ps_polled *polled)
{
    if (polled->prev) polled->prev->next = polled->next;
    else poller->clients = polled->next;
    if (polled->next) polled->next->prev = polled->prev;
    atomic_fetch_sub(&poller->count, 1);
}

static void poller_remove_leaving(struct ps_poller *poller)
{
    if (!atomic_load(&poller->has_leaving)) return;

    pthread_mutex_lock(&poller->lock);
    struct ps_polled *leaving = poller->leaving;
    poller->leaving = NULL;
    atomic_store(&poller->has_leaving, false);
    pthread_mutex_unlock(&poller->lock);

    poller_take_ready(poller); /* no callback can push these clients now, so they are in the run list or nowhere */
    for (struct ps_polled *polled = leaving; polled; polled = polled->leaving_next) {
        run_remove(poller, polled);
        poller_drain(polled, ps_now_us() + polled->max_time_us, NULL); /* settles its last messages */
    }

    pthread_mutex_lock(&poller->lock);
    for (struct ps_polled *polled = leaving, *next; polled; polled = next) {
        next = polled->leaving_next; /* read first: once `left` is set, its owner may free it */
        list_remove(poller, polled);
        atomic_store(&polled->left, 1);
        ps_word_wake(&polled->left); /* its owner may have freed it: only the address is used */
    }
    pthread_mutex_unlock(&poller->lock);
}

/*
 * The thread decides to stop and clears `running` without releasing the lock in between. A client that joins before that is
 * seen here. One that joins after that finds `running` false and starts a new thread.
 */
static bool poller_stop(struct ps_poller *poller)
{
    poller_remove_leaving(poller);
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
    if (now >= next_sweep_us(poller)) poller_sweep(poller, now);
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
    while (!poller_stop(poller)) {
        if (!poller->run_head && ps_wakeup_wait(&poller->wakeup, next_sweep_us(poller))) poller_count(&poller->wakeups);
        poller_take_ready(poller);
        if (poller->run_head) poller_visit(poller, run_shift(poller));
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
    poller_count(&poller->starts);
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
    /* The thread itself sets thread_id, and clears it before it ends. So `thread` is alive while thread_id is not 0. */
    stats->thread_id = poller->thread_id;
    stats->cpu_seconds = poller->thread_id ? thread_cpu_seconds(poller->thread) : 0;
    pthread_mutex_unlock(&poller->lock);
}
