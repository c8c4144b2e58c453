/*
 * Stress tests of the native core's parts, one at a time, without Ruby. For SECONDS, several threads use a part in every way that
 * its header allows, and the test checks its invariants. Built with sanitizers; see rakelib/sanitizers.rake.
 *
 *   core_parts SECONDS [PART...]
 *
 * Prints the number of rounds of each part, or the violated invariant.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "admin/admin.h"
#include "consume/consume.h"
#include "produce/produce.h"
#include <errno.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

enum { PATIENCE_US = 20 * 1000 * 1000 };

static char bootstraps[512];
static int64_t length_us, end_us; /* of each part */
static _Atomic unsigned long rounds;

static void die(const char *what)
{
    printf("BROKEN: %s\n", what);
    fflush(stdout);
    _exit(1);
}

static void begin(void)
{
    end_us = ps_now_us() + length_us;
}

static bool time_is_up(void)
{
    return ps_now_us() >= end_us;
}

static int random_below(int limit)
{
    static _Thread_local unsigned seed;
    if (!seed) seed = (unsigned)(uintptr_t)&seed;
    return rand_r(&seed) % limit;
}

static void run_threads(int count, void *(*const *bodies)(void *), void *arg)
{
    pthread_t threads[16];
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, bodies[i], arg) != 0) die("no thread");
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

/* ---- wake-up: a thread that is signalled after it looked wakes up ---- */

static struct {
    struct ps_wakeup wakeup;
    _Atomic unsigned long work, signallers;
} woken;

static void *signal_work(void *unused)
{
    (void)unused;
    while (!time_is_up()) {
        atomic_fetch_add(&woken.work, 1);
        ps_wakeup_signal(&woken.wakeup);
        if (random_below(8) == 0) usleep(random_below(200));
    }
    atomic_fetch_sub(&woken.signallers, 1);
    ps_wakeup_signal(&woken.wakeup);
    return NULL;
}

static void *sleep_for_work(void *unused)
{
    (void)unused;
    for (;;) {
        bool last = atomic_load(&woken.signallers) == 0;
        rounds += atomic_exchange(&woken.work, 0) > 0;
        if (last) return NULL;
        if (!ps_wakeup_wait(&woken.wakeup, ps_now_us() + PATIENCE_US)) die("a signal that woke no thread");
        if (random_below(4) == 0) ps_wakeup_take(&woken.wakeup); /* then this thread also handles later signals */
    }
}

/* While no thread reads, signals do not block the writers; the next reader is woken, once. */
static void flood(void)
{
    struct ps_wakeup wakeup;
    if (ps_wakeup_open(&wakeup) != 0) die("no wakeup");
    for (int i = 0; i < 1000000; i++) ps_wakeup_signal(&wakeup);
    if (!ps_wakeup_wait(&wakeup, ps_now_us() + PATIENCE_US)) die("a million signals that woke no thread");
    if (ps_wakeup_take(&wakeup)) die("signals that were not all taken together");
    ps_wakeup_close(&wakeup);
}

static void wakeup_part(void)
{
    flood();
    begin(); /* the flood may have taken long on a busy machine */
    static void *(*const bodies[])(void *) = { signal_work, signal_work, signal_work, sleep_for_work };
    if (ps_wakeup_open(&woken.wakeup) != 0) die("no wakeup");
    woken.signallers = 3;
    run_threads(4, bodies, NULL);
    ps_wakeup_close(&woken.wakeup);
}

/* ---- completion: threads and fibers wait, are woken, stop waiting and wait again; each handle gets its own result ---- */

enum { PENDING = 8 };

struct promise { /* like the completion of a batch */
    pthread_mutex_t lock;
    struct ps_completion completion;
    struct ps_delivery deliveries[PENDING];
    int results[PENDING]; /* not atomic: final once `settled` is */
    _Atomic uint32_t refs;
};

static pthread_mutex_t promises_lock = PTHREAD_MUTEX_INITIALIZER;
static struct promise *promises[4]; /* under promises_lock */

static void promise_unref(struct promise *promise)
{
    if (atomic_fetch_sub(&promise->refs, 1) != 1) return;
    pthread_mutex_destroy(&promise->lock);
    free(promise);
}

static struct promise *promise_get(int slot)
{
    pthread_mutex_lock(&promises_lock);
    struct promise *promise = promises[slot];
    if (promise) atomic_fetch_add(&promise->refs, 1);
    pthread_mutex_unlock(&promises_lock);
    return promise;
}

static void promise_put(int slot, struct promise *promise)
{
    pthread_mutex_lock(&promises_lock);
    struct promise *before = promises[slot];
    promises[slot] = promise;
    pthread_mutex_unlock(&promises_lock);
    if (before) promise_unref(before);
}

static void *settle_promises(void *unused)
{
    (void)unused;
    while (!time_is_up()) {
        struct promise *promise = calloc(1, sizeof(*promise));
        pthread_mutex_init(&promise->lock, NULL);
        ps_completion_init(&promise->completion, &promise->lock, PENDING);
        atomic_init(&promise->refs, 2);
        promise_put(random_below(4), promise);
        for (int i = 0; i < PENDING;) {
            int count = 1 + random_below(PENDING - i);
            if (random_below(4) == 0) usleep(random_below(300));
            if (random_below(4) == 0) ps_completion_wake(&promise->completion);
            for (int end = i + count; i < end; i++) {
                promise->results[i] = i + 1;
                atomic_store_explicit(&promise->deliveries[i].settled, true, memory_order_release);
            }
            if (ps_completion_settle(&promise->completion, (uint32_t)count) != (i == PENDING)) die("a settled completion");
        }
        promise_unref(promise);
        rounds++;
    }
    return NULL;
}

static void check_results(const struct promise *promise, const struct ps_delivery *delivery)
{
    for (int i = 0; i < PENDING; i++)
        if (!delivery || delivery == &promise->deliveries[i])
            if (promise->results[i] != i + 1) die("a wait that ended before its delivery result was there");
}

static void *await_promises(void *unused)
{
    (void)unused;
    while (!time_is_up()) {
        struct promise *promise = promise_get(random_below(4));
        if (!promise) continue;
        struct ps_waiter waiter = { 0 };
        const struct ps_delivery *delivery = random_below(2) ? &promise->deliveries[random_below(PENDING)] : NULL;
        int64_t deadline_us = ps_now_us() + PATIENCE_US;
        bool patient = true, done = false;
        while (patient && !done) {
            done = !ps_waiter_join(&waiter, &promise->completion, delivery ? &delivery->settled : NULL);
            if (done) break;
            bool brief = random_below(3) == 0;
            ps_waiter_sleep(&waiter, brief ? ps_now_us() + random_below(100) : deadline_us);
            ps_waiter_leave(&waiter, &promise->completion);
            done = atomic_load(&waiter.state) == PS_DONE;
            patient = !brief || random_below(2);
            if (ps_now_us() >= deadline_us) die("a waiter that no thread woke");
        }
        if (done) check_results(promise, delivery);
        promise_unref(promise);
    }
    return NULL;
}

static void take_woken(struct ps_fibers *fibers)
{
    for (struct ps_waiter *waiter = ps_fibers_take(fibers), *next; waiter; waiter = next) {
        next = waiter->woken_next;
        atomic_store(&waiter->woken, false);
        ps_waiter_unref(waiter);
    }
}

static void await_as_fiber(struct ps_fibers *fibers, struct promise *promise)
{
    struct ps_waiter *waiter = ps_fibers_waiter(fibers, sizeof(*waiter));
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    bool gone = random_below(8) == 0, done = false;
    while (!done && ps_waiter_join(waiter, &promise->completion, NULL)) {
        if (gone) { /* for good, like a fiber that the GC freed */
            atomic_store(&waiter->abandoned, true);
            ps_waiter_unref(waiter);
            return;
        }
        while (atomic_load(&waiter->state) == PS_WAITING) {
            ps_wakeup_wait(&fibers->wakeup, deadline_us);
            take_woken(fibers);
            if (ps_now_us() >= deadline_us) die("a fiber that no thread woke");
        }
        ps_waiter_leave(waiter, &promise->completion);
        done = atomic_load(&waiter->state) == PS_DONE;
    }
    check_results(promise, NULL);
    ps_waiter_unref(waiter);
}

static void *await_as_fibers(void *unused)
{
    (void)unused;
    while (!time_is_up()) {
        struct ps_fibers *fibers = ps_fibers_new();
        for (int i = 0; i < 100 && !time_is_up(); i++) {
            struct promise *promise = promise_get(random_below(4));
            if (!promise) continue;
            await_as_fiber(fibers, promise);
            promise_unref(promise);
        }
        ps_fibers_forget(fibers);
    }
    return NULL;
}

static void completion_part(void)
{
    static void *(*const bodies[])(void *) = { settle_promises, settle_promises, await_promises, await_promises,
                                                await_as_fibers };
    run_threads(5, bodies, NULL);
    for (int i = 0; i < 4; i++) promise_put(i, NULL);
}

/* ---- bell: a thread notices a ring that comes after its last look ---- */

static struct {
    struct ps_bell bell;
    _Atomic unsigned long work;
    _Atomic unsigned ringers;
} rung;

static void *ring_bell(void *unused)
{
    (void)unused;
    while (!time_is_up()) {
        atomic_fetch_add(&rung.work, 1);
        if (random_below(2)) ps_bell_ring(&rung.bell);
        else ps_bell_ring_cb(NULL, &rung.bell);
        if (random_below(4) == 0) usleep(random_below(200));
    }
    atomic_fetch_sub(&rung.ringers, 1);
    ps_bell_ring(&rung.bell);
    return NULL;
}

static void await_ring(struct ps_bell *bell, uint32_t heard, const char *what)
{
    struct ps_waiter waiter = { 0 };
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    ps_waiter_join(&waiter, &bell->sleepers, NULL);
    if (atomic_load(&bell->rings) == heard && ps_waiter_sleep(&waiter, deadline_us) == PS_WAITING) die(what);
    ps_waiter_leave(&waiter, &bell->sleepers);
}

static void *wait_for_bell(void *unused)
{
    (void)unused;
    unsigned long seen = 0;
    for (;;) {
        uint32_t heard = atomic_load(&rung.bell.rings);
        unsigned long work = atomic_load(&rung.work);
        if (atomic_load(&rung.ringers) == 0) return NULL;
        if (work != seen) {
            seen = work;
            rounds++;
            continue;
        }
        await_ring(&rung.bell, heard, "a ring that a waiting thread missed");
    }
}

static void bell_part(void)
{
    static void *(*const bodies[])(void *) = { ring_bell, ring_bell, wait_for_bell, wait_for_bell };
    ps_bell_init(&rung.bell);
    rung.ringers = 2;
    run_threads(4, bodies, NULL);
    ps_bell_destroy(&rung.bell);
}

/* ---- bells: a thread that waits for many bells finds all their work, also if bells leave and join the set ---- */

enum { BELLS = 12 };

struct worker { /* a queue that rings, as librdkafka's does, only when it stops being empty */
    struct ps_bell bell;
    pthread_mutex_t lock;
    unsigned long queued;
    struct bell_place *place; /* in the set, under many.turn; NULL: it has left */
    bool candidate;           /* under many.turn */
};

struct bell_place {
    struct ps_bell_member member;
    struct worker *worker; /* NULL: it has left */
};

static struct {
    struct ps_bell_set set;
    struct worker workers[BELLS];
    pthread_mutex_t turn; /* stands for the GVL */
    _Atomic unsigned long put, taken;
    _Atomic unsigned putters;
} many;

static void *put_work(void *unused)
{
    (void)unused;
    while (!time_is_up()) {
        struct worker *worker = &many.workers[random_below(BELLS)];
        atomic_fetch_add(&many.put, 1);
        pthread_mutex_lock(&worker->lock);
        if (worker->queued++ == 0) ps_bell_ring(&worker->bell);
        pthread_mutex_unlock(&worker->lock);
        if (random_below(8) == 0) usleep(random_below(100));
    }
    atomic_fetch_sub(&many.putters, 1);
    ps_bell_ring(&many.set.bell);
    return NULL;
}

static void bell_joins(struct worker *worker)
{
    struct bell_place *place = calloc(1, sizeof(*place));
    atomic_init(&place->member.refs, 1);
    place->member.set = &many.set;
    place->worker = worker;
    worker->place = place;
    if (!ps_bell_join(&worker->bell, &place->member)) die("a bell that joined twice");
    if (ps_bell_join(&worker->bell, &place->member)) die("a bell in two sets");
}

static void bell_leaves(struct worker *worker)
{
    ps_bell_leave(&worker->bell);
    worker->place->worker = NULL;
    ps_bell_member_unref(&worker->place->member);
    worker->place = NULL;
    worker->candidate = false;
}

static void take_bells(void)
{
    for (struct ps_bell_member *member = ps_bell_set_take(&many.set), *next; member; member = next) {
        struct worker *worker = ((struct bell_place *)member)->worker;
        next = ps_bell_member_taken(member);
        if (worker) worker->candidate = true;
        ps_bell_member_unref(member);
    }
}

/* Takes some of a candidate's work. It stays a candidate until it was found empty. */
static unsigned long take_work(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    unsigned long some = worker->queued > 2 ? 1 + (unsigned long)random_below(2) : worker->queued;
    if (worker->queued == 0) worker->candidate = false;
    worker->queued -= some;
    pthread_mutex_unlock(&worker->lock);
    atomic_fetch_add(&many.taken, some);
    return some;
}

static void *wait_for_bells(void *unused)
{
    (void)unused;
    for (;;) {
        bool ended = atomic_load(&many.putters) == 0;
        uint32_t heard = atomic_load(&many.set.bell.rings);
        unsigned long some = 0;
        pthread_mutex_lock(&many.turn);
        take_bells();
        for (int i = 0; i < BELLS; i++)
            if (many.workers[i].candidate) some += take_work(&many.workers[i]);
        pthread_mutex_unlock(&many.turn);
        rounds++;
        if (some) continue;
        if (ended) return NULL;
        await_ring(&many.set.bell, heard, "a ring of one of many bells that a waiting thread missed");
    }
}

static void *change_bells(void *unused)
{
    (void)unused;
    while (!time_is_up()) {
        struct worker *worker = &many.workers[random_below(BELLS)];
        pthread_mutex_lock(&many.turn);
        if (worker->place) bell_leaves(worker);
        else bell_joins(worker);
        pthread_mutex_unlock(&many.turn);
        usleep(random_below(50));
    }
    pthread_mutex_lock(&many.turn);
    for (int i = 0; i < BELLS; i++)
        if (!many.workers[i].place) bell_joins(&many.workers[i]);
    pthread_mutex_unlock(&many.turn);
    atomic_fetch_sub(&many.putters, 1);
    ps_bell_ring(&many.set.bell);
    return NULL;
}

static void bells_part(void)
{
    static void *(*const bodies[])(void *) = { put_work, put_work, put_work, change_bells, wait_for_bells, wait_for_bells };
    ps_bell_set_init(&many.set);
    pthread_mutex_init(&many.turn, NULL);
    many.putters = 4;
    for (int i = 0; i < BELLS; i++) {
        ps_bell_init(&many.workers[i].bell);
        pthread_mutex_init(&many.workers[i].lock, NULL);
        bell_joins(&many.workers[i]);
    }
    run_threads(6, bodies, NULL);
    if (many.put != many.taken) die("work of one of many bells that no thread found");
    for (int i = 0; i < BELLS; i++) {
        bell_leaves(&many.workers[i]);
        ps_bell_destroy(&many.workers[i].bell);
    }
    take_bells();
    ps_bell_set_destroy(&many.set);
}

/* ---- mailbox and log: every posted line is taken once, or counted as dropped ---- */

static _Atomic unsigned long posted, taken;
static _Atomic unsigned posters;

static void *post(void *shared)
{
    struct ps_log *log = shared;
    while (!time_is_up()) {
        if (ps_mailbox_post(7, 3, "a line")) atomic_fetch_add(&posted, 1);
        ps_log_line(log, random_below(8), "FACILITY", "a line that may be dropped");
        if (random_below(64) == 0) ps_log_end(log);
        if (random_below(8) == 0) usleep(random_below(200));
    }
    if (atomic_fetch_sub(&posters, 1) == 1) ps_mailbox_interrupt(NULL);
    return NULL;
}

static void *take_mail(void *unused)
{
    struct ps_mail *mail;
    (void)unused;
    for (bool last = false; !last;) {
        last = atomic_load(&posters) == 0;
        while ((mail = ps_mailbox_take())) {
            if (mail->address == 7) atomic_fetch_add(&taken, 1);
            if (strlen(mail->text) != mail->size) die("a mail's size");
            free(mail);
            rounds++;
        }
        ps_mailbox_dropped();
        if (!last) ps_mailbox_wait();
    }
    return NULL;
}

static void mailbox_part(void)
{
    static void *(*const bodies[])(void *) = { post, post, post, take_mail };
    struct ps_log log = { 0 };
    posters = 3;
    ps_log_init(&log, "parts", 8, true);
    run_threads(4, bodies, &log);
    ps_log_destroy(&log);
    if (posted != taken) die("a line that was taken twice, or never");
}

/* ---- clients and consumers ---- */

static struct ps_poller *poller, *other_poller;
static struct ps_producer_settings client_settings = {
    .max_time_us = 100000, .sweep_us = 1000000, .sticky_ms = 10, .transaction_timeout_ms = 3000, .client.close_timeout_ms = 500,
    .client.rejection_us = 1000000,
};
static struct ps_consumer_settings consumer_settings = {
    .nap_us = 1000, .client.close_timeout_ms = 300, .client.rejection_us = 1000000
};

static void set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    char errstr[256];
    if (rd_kafka_conf_set(conf, name, value, errstr, sizeof(errstr)) != RD_KAFKA_CONF_OK) die(errstr);
}

static rd_kafka_conf_t *conf_for(const char *servers, const char *transactional_id)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "log_level", "0");
    set(conf, "bootstrap.servers", servers);
    set(conf, "linger.ms", "0");
    set(conf, "reconnect.backoff.max.ms", "200");
    set(conf, "reconnect.backoff.ms", "50");
    if (transactional_id) set(conf, "transactional.id", transactional_id);
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_STATS);
    return conf;
}

static void await_job(struct ps_job *job, const char *what)
{
    struct ps_waiter waiter = { 0 };
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    while (ps_waiter_join(&waiter, &job->completion, NULL)) {
        ps_waiter_sleep(&waiter, deadline_us);
        ps_waiter_leave(&waiter, &job->completion);
        if (atomic_load(&waiter.state) == PS_DONE) break;
        if (ps_now_us() >= deadline_us) die(what);
    }
}

static void await_empty_registry(void)
{
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    for (; ps_registry_count() > 0 || ps_registry_closing_count() > 0; usleep(1000))
        if (ps_now_us() > deadline_us) die("an unreferenced client that is never closed");
}

/* ---- ready list: the poller visits each client that is marked ---- */

enum { CLIENTS = 6 };

static struct ps_producer *marked[CLIENTS];
static _Atomic unsigned markers;

static void *mark(void *unused)
{
    (void)unused;
    while (!time_is_up()) {
        struct ps_producer *producer = marked[random_below(CLIENTS)];
        ps_poller_mark_ready(&producer->polled);
        rounds++;
        if (random_below(4) == 0 && ps_poller_borrow(&producer->polled)) {
            ps_poller_serve(&producer->polled, NULL, PS_FOREVER);
            if (random_below(4) == 0) usleep(random_below(200));
            ps_poller_hand_back(&producer->polled);
        }
        if (random_below(16) == 0) usleep(random_below(300));
    }
    atomic_fetch_sub(&markers, 1);
    return NULL;
}

static void *read_stats(void *unused)
{
    (void)unused;
    while (atomic_load(&markers) > 0) {
        struct ps_poller_stats stats;
        ps_poller_stats(poller, &stats);
        ps_poller_stats(other_poller, &stats);
        usleep(random_below(300));
    }
    return NULL;
}

static void ready_part(void)
{
    static void *(*const bodies[])(void *) = { mark, mark, mark, read_stats };
    char errstr[256];
    for (int i = 0; i < CLIENTS; i++) {
        marked[i] = ps_producer_new(conf_for(bootstraps, NULL), "marked", i % 2 ? other_poller : poller, &client_settings);
        if (ps_client_open(&marked[i]->client, errstr, sizeof(errstr)) < 0) die(errstr);
    }
    markers = 3;
    run_threads(4, bodies, NULL);
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    for (int i = 0; i < CLIENTS; i++)
        for (; atomic_load(&marked[i]->polled.ready); usleep(1000))
            if (ps_now_us() > deadline_us) die("a client that was marked, and never visited");
    for (int i = 0; i < CLIENTS; i++) ps_client_abandon(&marked[i]->client);
    await_empty_registry();
}

/* ---- watch: threads that wait, and serve their client meanwhile; whichever thread settles, every waiter is woken ---- */

enum { WATCHED = 3, WATCHERS = 3 };

static struct ps_producer *watched[WATCHED];
static _Atomic unsigned watchers, next_watcher;
static struct {
    pthread_mutex_t lock;
    struct ps_waiter *waiter; /* under lock */
} watches[WATCHERS];

static void send_batch(struct ps_producer *producer, struct ps_batch *batch)
{
    uint32_t sent = 0;
    if (ps_client_enter(&producer->client)) {
        struct ps_topic *topic = ps_producer_topic(producer, "parts", 5);
        atomic_fetch_add(&producer->accepted, batch->size);
        while (sent < batch->size && rd_kafka_produce(topic->rkt, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, "x", 1, NULL, 0,
                                                      ps_batch_delivery(batch, sent)) == 0)
            sent++;
        atomic_fetch_sub(&producer->accepted, batch->size - sent);
        ps_client_exit(&producer->client);
    }
    ps_batch_never_sent(batch, sent, RD_KAFKA_RESP_ERR__CONFLICT);
}

static void show(unsigned me, struct ps_waiter *waiter)
{
    pthread_mutex_lock(&watches[me].lock);
    watches[me].waiter = waiter;
    pthread_mutex_unlock(&watches[me].lock);
}

/* Waits like nogvl.c. The wait sometimes ends, at its deadline or by an interrupt, and starts again. */
static void await_watching(unsigned me, struct ps_producer *producer, struct ps_batch *batch)
{
    struct ps_waiter waiter = { 0 };
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    for (bool done = false; !done;) {
        int64_t until_us = random_below(4) ? deadline_us : ps_now_us() + random_below(1000);
        bool watching = random_below(8) && ps_watch_begin(&producer->polled, &waiter);
        bool joined = ps_waiter_join(&waiter, &batch->completion, &ps_batch_delivery(batch, batch->size - 1)->settled);
        show(me, &waiter);
        if (joined && random_below(16)) {
            if (watching) ps_watch_sleep(&producer->polled, &waiter, until_us);
            else ps_waiter_sleep(&waiter, until_us);
        }
        if (watching) ps_watch_end(&producer->polled);
        show(me, NULL);
        if (joined) ps_waiter_leave(&waiter, &batch->completion);
        done = !joined || atomic_load(&waiter.state) == PS_DONE;
        waiter.watch = NULL;
        if (!done && ps_now_us() >= deadline_us) die("a thread that waits for a message and serves its client was not woken");
    }
}

static void *keep_watch(void *unused)
{
    (void)unused;
    unsigned me = atomic_fetch_add(&next_watcher, 1) % WATCHERS;
    while (!time_is_up()) {
        struct ps_producer *producer = watched[random_below(WATCHED)];
        struct ps_batch *batch = ps_batch_new(producer, random_below(4) ? 1 : 5);
        send_batch(producer, batch);
        await_watching(me, producer, batch);
        if (!ps_delivery_settled(ps_batch_delivery(batch, batch->size - 1))) die("a wait that ended too early");
        ps_batch_release(batch);
        rounds++;
    }
    atomic_fetch_sub(&watchers, 1);
    return NULL;
}

static void *interrupt_watchers(void *unused)
{
    (void)unused;
    while (atomic_load(&watchers) > 0) {
        unsigned watcher = random_below(WATCHERS);
        pthread_mutex_lock(&watches[watcher].lock);
        if (watches[watcher].waiter) ps_waiter_interrupt(watches[watcher].waiter);
        pthread_mutex_unlock(&watches[watcher].lock);
        usleep(random_below(500));
    }
    return NULL;
}

/* Does the work of a large batch, of a flush and of the sweep, and sends messages that no thread watches. */
static void *meddle(void *unused)
{
    (void)unused;
    while (atomic_load(&watchers) > 0) {
        struct ps_producer *producer = watched[random_below(WATCHED)];
        struct ps_batch *batch = ps_batch_new(producer, 3);
        bool serving = random_below(2) && ps_poller_borrow(&producer->polled);
        send_batch(producer, batch);
        if (serving && random_below(2)) ps_poller_serve(&producer->polled, NULL, PS_FOREVER);
        if (serving && random_below(4) == 0) usleep(random_below(300));
        if (serving) ps_poller_hand_back(&producer->polled);
        if (random_below(4) == 0) ps_poller_mark_ready(&producer->polled);
        ps_batch_release(batch);
        if (random_below(4) == 0) ps_poller_push(&producer->polled); /* the poller also looks while a thread watches */
        usleep(random_below(500));
    }
    return NULL;
}

static uint64_t drains(void)
{
    struct ps_poller_stats stats;
    ps_poller_stats(poller, &stats);
    return stats.drains;
}

/* The poller, delayed while it settles a message, looks again for a thread that found the client served. */
static void turn_away(void)
{
    struct ps_producer_settings settings = client_settings;
    struct ps_waiter waiter = { 0 };
    char errstr[256];
    settings.sweep_us = 60 * 1000 * 1000;
    struct ps_producer *producer = ps_producer_new(conf_for(bootstraps, NULL), "turned away", poller, &settings);
    if (ps_client_open(&producer->client, errstr, sizeof(errstr)) < 0) die(errstr);
    struct ps_batch *batch = ps_batch_new(producer, 1);
    ps_waiter_join(&waiter, &batch->completion, NULL);
    pthread_mutex_lock(&producer->client.lock);
    send_batch(producer, batch);
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    for (; !ps_delivery_settled(ps_batch_delivery(batch, 0)); usleep(1000))
        if (ps_now_us() > deadline_us) die("a message that the poller settles");
    if (ps_poller_borrow_or_retry(&producer->polled)) die("two threads that serve one client");
    uint64_t before = drains();
    pthread_mutex_unlock(&producer->client.lock);
    for (; drains() == before; usleep(1000))
        if (ps_now_us() > deadline_us) die("a client that the poller did not check again");
    ps_waiter_leave(&waiter, &batch->completion);
    ps_batch_release(batch);
    ps_client_abandon(&producer->client);
    await_empty_registry();
}

static void await_queued(struct ps_producer *producer, size_t count)
{
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    for (; rd_kafka_queue_length(producer->polled.queue) < count; usleep(1000))
        if (ps_now_us() > deadline_us) die("a delivery result that no thread takes");
}

/* A wait ends at its deadline, even if more events are queued. */
static void run_out_of_time(void)
{
    struct ps_producer_settings settings = client_settings;
    struct ps_waiter waiter = { 0 };
    char errstr[256];
    settings.max_time_us = PATIENCE_US;
    struct ps_producer *producer = ps_producer_new(conf_for(bootstraps, NULL), "out of time", poller, &settings);
    if (ps_client_open(&producer->client, errstr, sizeof(errstr)) < 0) die(errstr);
    while (!ps_poller_borrow_or_retry(&producer->polled)) usleep(1000);
    for (size_t count = 1; count <= 2; count++) {
        struct ps_batch *batch = ps_batch_new(producer, 1);
        send_batch(producer, batch);
        ps_batch_release(batch);
        await_queued(producer, count);
    }
    ps_poller_serve(&producer->polled, &waiter, ps_now_us());
    if (rd_kafka_queue_length(producer->polled.queue) == 0) die("a wait that did not end at its deadline");
    ps_poller_hand_back(&producer->polled);
    ps_client_abandon(&producer->client);
    await_empty_registry();
}

/* An event that comes while a client leaves the poller is not a missed wake-up. */
static void leave_amid_events(void)
{
    struct ps_producer_settings settings = client_settings;
    char errstr[256];
    settings.sweep_us = 100;
    for (int i = 0; i < 40; i++) {
        rd_kafka_conf_t *conf = conf_for(bootstraps, NULL);
        set(conf, "statistics.interval.ms", "1");
        struct ps_producer *producer = ps_producer_new(conf, "leaving", poller, &settings);
        if (ps_client_open(&producer->client, errstr, sizeof(errstr)) < 0) die(errstr);
        usleep(3000);
        ps_client_abandon(&producer->client);
        await_empty_registry();
    }
}

/* The sweep, which runs all the time here, finds a client with an event that no thread serves. */
static void watch_part(void)
{
    static void *(*const bodies[])(void *) = { keep_watch, keep_watch, keep_watch, interrupt_watchers, meddle };
    struct ps_producer_settings settings = client_settings;
    char errstr[256];
    turn_away();
    run_out_of_time();
    leave_amid_events();
    begin();
    settings.sweep_us = 300;
    watchers = WATCHERS;
    for (int i = 0; i < WATCHERS; i++) pthread_mutex_init(&watches[i].lock, NULL);
    for (int i = 0; i < WATCHED; i++) {
        settings.max_time_us = i ? 100000 : 0;
        watched[i] = ps_producer_new(conf_for(bootstraps, NULL), "watched", i == 2 ? other_poller : poller, &settings);
        if (ps_client_open(&watched[i]->client, errstr, sizeof(errstr)) < 0) die(errstr);
    }
    run_threads(5, bodies, NULL);
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    for (int i = 0; i < WATCHED; i++)
        for (; ps_producer_in_flight(watched[i]) > 0; usleep(1000))
            if (ps_now_us() > deadline_us) die("messages that were left to the poller");
    for (int i = 0; i < WATCHED; i++) ps_client_abandon(&watched[i]->client);
    await_empty_registry();
    for (int i = 0; i < WATCHERS; i++) pthread_mutex_destroy(&watches[i].lock);
}

/* ---- chunks: each is freed with its last delivery, whichever thread settles, releases or sends last ---- */

enum { HANDLES = 64, SENDERS = 3 };

static _Atomic(struct ps_delivery *) handles[HANDLES]; /* each owns a reference, like a DeliveryHandle */
static struct ps_producer *chunked[2];
static _Atomic unsigned senders;

static bool freed(const void *memory)
{
#ifdef __SANITIZE_ADDRESS__
    return __asan_address_is_poisoned(memory);
#else
    (void)memory;
    return true;
#endif
}

/* Like the GC when it frees a handle, whether or not its message is settled. */
static void drop_handle(struct ps_delivery *delivery)
{
    if (!delivery) return;
    if (delivery->chunk->batch->producer != chunked[0] && delivery->chunk->batch->producer != chunked[1])
        die("a chunk without its batch");
    ps_delivery_unref(delivery);
}

static void *send_in_chunks(void *unused)
{
    static const uint32_t sizes[] = { 1, 2, PS_CHUNK - 1, PS_CHUNK, PS_CHUNK + 1, 2 * PS_CHUNK, 3 * PS_CHUNK - 5 };
    (void)unused;
    while (!time_is_up()) {
        struct ps_producer *producer = chunked[random_below(2)];
        uint32_t size = sizes[random_below(sizeof(sizes) / sizeof(*sizes))];
        struct ps_batch *batch = ps_batch_new(producer, size);
        bool serving = random_below(2) && ps_poller_borrow(&producer->polled);
        if (random_below(8)) send_batch(producer, batch);
        else ps_batch_never_sent(batch, 0, RD_KAFKA_RESP_ERR__QUEUE_FULL);
        for (int i = random_below(8); i > 0; i--) {
            struct ps_delivery *delivery = ps_batch_delivery(batch, (uint32_t)random_below((int)size));
            ps_delivery_retain(delivery);
            drop_handle(atomic_exchange(&handles[random_below(HANDLES)], delivery));
        }
        if (random_below(2)) ps_unnoticed_read_all(batch);
        ps_batch_release(batch);
        if (serving) ps_poller_serve(&producer->polled, NULL, PS_FOREVER);
        if (serving) ps_poller_hand_back(&producer->polled);
        rounds++;
    }
    atomic_fetch_sub(&senders, 1);
    return NULL;
}

static void *wait_and_drop(void *unused)
{
    (void)unused;
    while (atomic_load(&senders) > 0) {
        struct ps_delivery *delivery = atomic_exchange(&handles[random_below(HANDLES)], NULL);
        if (!delivery) {
            usleep(random_below(100));
            continue;
        }
        struct ps_completion *completion = &delivery->chunk->batch->completion;
        struct ps_waiter waiter = { 0 };
        if (random_below(2) && ps_waiter_join(&waiter, completion, random_below(2) ? &delivery->settled : NULL)) {
            ps_waiter_sleep(&waiter, ps_now_us() + random_below(1000));
            ps_waiter_leave(&waiter, completion);
        }
        drop_handle(delivery);
    }
    return NULL;
}

static void await_nothing_in_flight(const struct ps_producer *producer)
{
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    for (; ps_producer_in_flight(producer) > 0; usleep(1000))
        if (ps_now_us() > deadline_us) die("messages of a batch that are not settled");
}

/* One handle of a large batch keeps its own chunk alive, and no other. */
static void keep_one(struct ps_producer *producer)
{
    enum { COUNT = 80 };
    struct ps_chunk *chunks[COUNT];
    struct ps_batch *batch = ps_batch_new(producer, COUNT * PS_CHUNK);
    memcpy(chunks, batch->chunks, sizeof(chunks));
    struct ps_delivery *kept = ps_batch_delivery(batch, 7 * PS_CHUNK + 7);
    ps_delivery_retain(kept);
    ps_batch_never_sent(batch, 0, RD_KAFKA_RESP_ERR__QUEUE_FULL);
    for (int i = 0; i < COUNT; i++)
        if (chunks[i]->size != PS_CHUNK) die("a chunk that is freed before the call that created its batch has ended");
    ps_batch_release(batch);
    for (int i = 0; i < COUNT; i++)
        if (i != 7 && !freed(chunks[i])) die("a chunk that outlives its last delivery");
    if (!ps_delivery_settled(kept) || kept->chunk->batch != batch) die("a handle without its delivery");
    ps_delivery_unref(kept);
    if (!freed(chunks[7]) || !freed(batch)) die("a batch that outlives its last chunk");
}

static void chunks_part(void)
{
    static void *(*const bodies[])(void *) = { send_in_chunks, send_in_chunks, send_in_chunks, wait_and_drop, wait_and_drop };
    char errstr[256];
    for (int i = 0; i < 2; i++) {
        chunked[i] = ps_producer_new(conf_for(bootstraps, NULL), "chunked", i ? other_poller : poller, &client_settings);
        if (ps_client_open(&chunked[i]->client, errstr, sizeof(errstr)) < 0) die(errstr);
    }
    keep_one(chunked[0]);
    begin();
    senders = SENDERS;
    run_threads(SENDERS + 2, bodies, NULL);
    for (int i = 0; i < HANDLES; i++) drop_handle(atomic_exchange(&handles[i], NULL));
    for (int i = 0; i < 2; i++) await_nothing_in_flight(chunked[i]);
    for (int i = 0; i < 2; i++) ps_client_abandon(&chunked[i]->client);
    await_empty_registry();
}

/* ---- events: in order, published once or counted as dropped ---- */

enum { QUEUES = 2, PUBLISHERS = 3, DISPATCHERS = 2 };

static struct {
    struct ps_events *events;
    struct ps_producer *producer;
    unsigned long latest[PUBLISHERS]; /* of the thread that serves the queue */
    _Atomic unsigned long published;
} event_queues[QUEUES];
static _Atomic unsigned publishers, next_publisher;
static struct ps_dispatcher dispatchers[DISPATCHERS];
static _Atomic unsigned next_dispatcher;

static void *publish(void *unused)
{
    (void)unused;
    unsigned me = atomic_fetch_add(&next_publisher, 1) % PUBLISHERS;
    for (unsigned long i = 1; !time_is_up(); i++) {
        int queue = random_below(QUEUES);
        char text[64];
        snprintf(text, sizeof(text), "%u %lu", me, i);
        ps_events_statistics(event_queues[queue].events, &event_queues[queue].producer->client, text);
        if (random_below(8) == 0) {
            ps_events_release_label(event_queues[queue].events, ps_events_keep_label(event_queues[queue].events, i));
            snprintf(text, sizeof(text), "topic-%d", random_below(200));
            if (strcmp(ps_events_name(event_queues[queue].events, text)->text, text) != 0) die("a name");
        }
        if (random_below(8) == 0) usleep(random_below(200));
    }
    if (atomic_fetch_sub(&publishers, 1) == 1)
        for (int i = 0; i < DISPATCHERS; i++) ps_dispatcher_interrupt(&dispatchers[i]);
    return NULL;
}

static void take_one_event(int queue)
{
    struct ps_event *event = ps_events_take(event_queues[queue].events);
    if (!event) return;
    unsigned publisher;
    unsigned long number;
    if (sscanf(((struct ps_notice *)event)->text, "%u %lu", &publisher, &number) != 2) die("an event's text");
    if (number <= event_queues[queue].latest[publisher]) die("events out of order");
    event_queues[queue].latest[publisher] = number;
    event_queues[queue].published++;
    ps_event_free(event_queues[queue].events, event);
    rounds++;
}

static bool all_taken(void)
{
    bool taken = atomic_load(&publishers) == 0;
    for (int i = 0; i < QUEUES; i++) taken = taken && !ps_dispatch_busy(event_queues[i].events);
    return taken;
}

static void *listen_to_events(void *unused)
{
    (void)unused;
    struct ps_dispatcher *me = &dispatchers[atomic_fetch_add(&next_dispatcher, 1) % DISPATCHERS];
    while (!all_taken()) {
        /* After the last publisher the other dispatcher may take the last events, so do not wait long. */
        int64_t patience_us = atomic_load(&publishers) ? PATIENCE_US : 2000;
        if (!ps_dispatcher_next(me, ps_now_us() + patience_us)) continue;
        if (random_below(32) == 0) usleep(random_below(9000)); /* as if another thread had the GVL */
        ps_dispatcher_run(me);
        int queue = atomic_load(&me->events) == event_queues[1].events;
        if (random_below(32) == 0) usleep(random_below(6000)); /* so that other dispatchers take over */
        for (int i = random_below(20); i >= 0; i--) take_one_event(queue);
        if (random_below(8) == 0) ps_dispatcher_end(me, false);
    }
    return NULL;
}

static void events_part(void)
{
    static void *(*const bodies[])(void *) = { publish, publish, publish, listen_to_events, listen_to_events };
    for (int i = 0; i < QUEUES; i++) {
        event_queues[i].events = ps_events_new(i ? 1000000 : 20, false, ps_delivery_release);
        atomic_store(&event_queues[i].events->wanted, PS_EVENT_STATISTICS);
        event_queues[i].producer = ps_producer_new(conf_for(bootstraps, NULL), "events", poller, &client_settings);
        ps_producer_set_events(event_queues[i].producer, event_queues[i].events);
    }
    publishers = PUBLISHERS;
    run_threads(5, bodies, NULL);
    for (int i = 0; i < QUEUES; i++) {
        struct ps_events *events = event_queues[i].events;
        if (atomic_load(&events->queued) != event_queues[i].published + atomic_load(&events->dropped))
            die("events published twice, or never");
        /* ps_events_keep_label frees released labels. */
        if (ps_events_take_label(events, ps_events_keep_label(events, 4711)) != 4711) die("a label");
        if (ps_events_labels(events) != 0) die("labels that were not released");
        ps_client_abandon(&event_queues[i].producer->client);
        ps_events_unref(events);
    }
}

/* ---- client.c: opened, used, closed and dropped by all threads at once ---- */

struct shared { /* a client or a consumer; each thread has a reference */
    struct ps_client *client;
    bool consumer, transactional;
};

static void use_client(struct ps_producer *producer, bool transactional)
{
    char text[256];
    switch (random_below(9)) {
    case 0: {
        struct ps_batch *batch = ps_batch_new(producer, 4);
        send_batch(producer, batch);
        ps_batch_release(batch);
        break;
    }
    case 1: {
        struct ps_flush_job *flush = ps_producer_flush(producer, random_below(50));
        if (flush) ps_job_abandon(&flush->job);
        break;
    }
    case 2: {
        struct ps_job *purge = ps_producer_purge(producer);
        if (purge) ps_job_unref(purge);
        break;
    }
    case 3: {
        snprintf(text, sizeof(text), "parts-%d", random_below(40));
        struct ps_metadata_job *query = ps_producer_metadata(producer, text, strlen(text), 100);
        if (query) ps_job_abandon(&query->job);
        ps_producer_known_partitions(producer, text, strlen(text), 1000000);
        ps_producer_asked_lately(producer, text, strlen(text));
        break;
    }
    case 4: {
        struct ps_transaction_error fatal;
        ps_producer_fatal_error(producer, &fatal);
        break;
    }
    case 5: ps_producer_in_flight(producer); break;
    default: {
        if (!transactional) break;
        rd_kafka_topic_partition_list_t *offsets = NULL;
        rd_kafka_consumer_group_metadata_t *group = NULL;
        enum ps_transaction_call call = (enum ps_transaction_call)random_below(5);
        if (call == PS_TRANSACTION_OFFSETS) {
            offsets = rd_kafka_topic_partition_list_new(1);
            rd_kafka_topic_partition_list_add(offsets, "parts", 0)->offset = 1;
            group = rd_kafka_consumer_group_metadata_new("parts");
        }
        struct ps_transaction_job *job = ps_transaction_start(producer, call, 300, offsets, group);
        if (!job) break;
        if (random_below(3) == 0) ps_transaction_cancel(job);
        if (random_below(2)) await_job(&job->job, "a transaction's call");
        ps_job_abandon(&job->job);
    }
    }
}

/* Like Ruby's polls (poll_methods.c), with a listener that returns at once. Returns what it has taken, or NULL. */
static struct ps_fetched *poll_once(struct ps_consumer *consumer, struct ps_taking *taking)
{
    taking->consumer = consumer;
    if (consumer->settings.mark == PS_MARK_NEXT_POLL) ps_ledger_finish(&consumer->ledger, taking->owner);
    if (!ps_client_enter(&consumer->client)) return NULL;
    enum ps_taken taken = ps_take_now(taking);
    if (taken == PS_TAKE_BLOCKS) taken = ps_take(taking);
    if (taken == PS_TAKE_NO_MEMORY) die("a poll without memory");
    if (taken == PS_TAKE_LISTENER && random_below(4) == 0) ps_consumer_answer_later(consumer);
    else if (taken == PS_TAKE_LISTENER) ps_consumer_answer(consumer, NULL);
    ps_client_exit(&consumer->client);
    free(taking->problem);
    if (ps_taking_count(taking) > 0) ps_ledger_receive(&consumer->ledger, taking->owner, true);
    return taking->fetched;
}

static void use_consumer(struct ps_consumer *consumer)
{
    if (random_below(3) == 0) {
        struct ps_taking taking = { .owner = 1 + (uint64_t)random_below(3), .max = 1 + (size_t)random_below(100) };
        struct ps_fetched *fetched = poll_once(consumer, &taking);
        if (fetched) ps_fetched_unref(fetched);
        if (random_below(2) && ps_client_enter(&consumer->client)) {
            ps_consumer_notice(consumer);
            ps_client_exit(&consumer->client);
        }
        return;
    }
    enum ps_consumer_call call = (enum ps_consumer_call)random_below(9);
    rd_kafka_topic_partition_list_t *list = NULL;
    if (call != PS_CONSUMER_ASSIGNMENT) {
        list = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(list, "parts", call == PS_CONSUMER_SUBSCRIBE ? RD_KAFKA_PARTITION_UA : 0)->offset = 0;
    }
    struct ps_consumer_job *job = ps_consumer_start(consumer, call, list, 100, 0);
    if (!job) return;
    if (random_below(2)) await_job(&job->job, "a consumer's call");
    ps_job_abandon(&job->job);
}

static void use(struct shared *shared)
{
    struct ps_client *client = shared->client;
    char text[512];
    switch (random_below(16)) {
    case 0: ps_client_last_error(client, text, sizeof(text)); break;
    case 1: ps_client_note_error(client, RD_KAFKA_RESP_ERR__TRANSPORT, "an error"); break;
    case 2: ps_client_log(client, 6, "FACILITY", "a line"); break;
    case 3: ps_set_credentials(client, "user", "password", text, sizeof(text)); break;
    case 4: ps_tokens_wanted(client); break;
    case 5:
        if (ps_tokens_enter(client)) ps_client_exit_long(client);
        break;
    case 6: ps_rejection_now(&client->rejection, text, sizeof(text)); break;
    case 7: ps_registry_closed_by_us(); break;
    default:
        if (shared->consumer) use_consumer((struct ps_consumer *)client);
        else use_client((struct ps_producer *)client, shared->transactional);
    }
}

static struct ps_job *close_somehow(struct ps_client *client)
{
    struct ps_job *closing = NULL;
    struct ps_closing all[16];
    switch (random_below(4)) {
    case 0:
        for (unsigned i = 0, count = ps_registry_close_all(all, 16); i < count; i++) {
            ps_job_unref(all[i].job);
            ps_client_unref(all[i].client);
        }
        break;
    case 1: ps_registry_hurry(); break;
    default: closing = ps_client_close(client, random_below(300), random_below(2) ? "closed" : NULL);
    }
    if (random_below(2)) ps_client_hurry(client, ps_now_us() + random_below(50000));
    return closing;
}

static void *handle_open(void *arg)
{
    struct shared *shared = arg;
    struct ps_client *client = shared->client;
    char errstr[512];
    if (random_below(4)) usleep(random_below(3000));
    if (random_below(16) && ps_client_open(client, errstr, sizeof(errstr)) < 0) die(errstr);
    for (int i = random_below(30); i > 0; i--) use(shared);
    struct ps_job *closing = close_somehow(client);
    for (int i = random_below(10); i > 0; i--) use(shared);
    if (closing) {
        if (random_below(2)) await_job(closing, "a closing");
        ps_job_unref(closing);
    }
    ps_client_unref(client);
    return NULL;
}

static struct ps_client *new_open(const struct shared *shared)
{
    static _Atomic unsigned made;
    unsigned count = made++;
    char id[32];
    snprintf(id, sizeof(id), "parts-%u", count);
    if (!shared->consumer) {
        struct ps_producer_settings settings = client_settings;
        settings.transactional = settings.idempotent = shared->transactional;
        return &ps_producer_new(conf_for(bootstraps, shared->transactional ? id : NULL), id, count % 4 ? poller : other_poller,
                                &settings)->client;
    }
    rd_kafka_conf_t *conf = conf_for(bootstraps, NULL);
    /* Each consumer has its own group: a second member fails an assertion in 2.0.2's mock cluster, which ends the process. */
    set(conf, "group.id", id);
    set(conf, "enable.auto.commit", "false");
    set(conf, "socket.timeout.ms", "1000");
    set(conf, "session.timeout.ms", "2000"); /* librdkafka waits this long for a coordinator, even during close */
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_REBALANCE | RD_KAFKA_EVENT_OFFSET_COMMIT | RD_KAFKA_EVENT_ERROR);
    struct ps_consumer_settings settings = consumer_settings;
    settings.grouped = true;
    return &ps_consumer_new(conf, id, &settings)->client;
}

static void *open_and_close(void *unused)
{
    static void *(*const bodies[])(void *) = { handle_open, handle_open, handle_open };
    (void)unused;
    for (int kind = random_below(3); !time_is_up(); kind++, rounds++) {
        struct shared shared = { .consumer = kind % 3 == 1, .transactional = kind % 3 == 2 };
        struct ps_client *client = shared.client = new_open(&shared);
        for (int i = 0; i < 3; i++) ps_client_retain(client);
        run_threads(3, bodies, &shared);
        struct ps_job *closing = ps_client_close(client, 0, NULL);
        if (closing) {
            await_job(closing, "the last close");
            ps_job_unref(closing);
        }
        if (atomic_load(&client->state) != PS_CLOSED) die("a client that is not closed after its close");
        if (atomic_load(&client->calls) > 0 || atomic_load(&client->long_calls) > 0) die("calls that never left");
        if (client->kind->pending(client) > 0) die("messages of a closed client");
        ps_client_abandon(client);
    }
    return NULL;
}

static void open_part(void)
{
    static void *(*const bodies[])(void *) = { open_and_close, open_and_close, open_and_close, open_and_close };
    run_threads(4, bodies, NULL);
    await_empty_registry();
}

/* ---- commits: the committer forgets no consumer, while they begin and end to have commits, open and close ---- */

enum { COMMITTING = 6 };

static struct committing {
    pthread_rwlock_t used; /* written: no other thread calls anything of the consumer */
    pthread_mutex_t lock;
    struct ps_consumer *consumer;
} committing[COMMITTING];

static struct ps_consumer *new_committing(void)
{
    static _Atomic unsigned made;
    unsigned count = made++;
    char id[32], errstr[512];
    snprintf(id, sizeof(id), "commits-%u", count);
    rd_kafka_conf_t *conf = conf_for(bootstraps, NULL);
    set(conf, "group.id", id);
    set(conf, "enable.auto.commit", "false");
    set(conf, "socket.timeout.ms", "1000");
    set(conf, "session.timeout.ms", "2000");
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_REBALANCE | RD_KAFKA_EVENT_OFFSET_COMMIT | RD_KAFKA_EVENT_ERROR);
    struct ps_consumer_settings settings = consumer_settings;
    settings.grouped = true;
    settings.commit_every_us = 2000;
    struct ps_consumer *consumer = ps_consumer_new(conf, id, &settings);
    if (ps_client_open(&consumer->client, errstr, sizeof(errstr)) < 0) die(errstr);
    return consumer;
}

static rd_kafka_topic_partition_list_t *places_to_commit(void)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, "commits", random_below(3))->offset = random_below(1000);
    return list;
}

static void take_commit_turn(struct ps_consumer *consumer)
{
    struct ps_commit_turn turn = { .yields = random_below(2) };
    ps_commit_turn_join(consumer, &turn);
    for (int i = random_below(20); i > 0 && !ps_commit_turn_has_come(consumer, &turn); i--) usleep(random_below(500));
    ps_commit_turn_leave(consumer, &turn);
}

/* As the callbacks of joining.c, and the thread that answers rebalances. */
static void join_somehow(struct ps_consumer *consumer)
{
    atomic_store(&consumer->counts.assigned, 1);
    atomic_store(&consumer->joins, true);
    ps_committer_joining_changed(&consumer->async_commits.work);
    if (random_below(2)) ps_consumer_commit_async(consumer, random_below(4) ? places_to_commit() : NULL);
    usleep(random_below(2000));
    if (random_below(2)) atomic_store(&consumer->joins, false);
    else atomic_store(&consumer->counts.assigned, 0);
    ps_committer_joining_changed(&consumer->async_commits.work);
}

static void revoke_places(struct ps_consumer *consumer)
{
    rd_kafka_topic_partition_list_t *list = places_to_commit();
    if (ps_client_enter(&consumer->client)) {
        ps_async_commits_revoked(consumer, list);
        ps_client_exit(&consumer->client);
    }
    rd_kafka_topic_partition_list_destroy(list);
}

/* No commit, turn or timer is left: the committer has ended the consumer's work. */
static void await_end_of_commits(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    for (bool ended = false; !ended;) {
        pthread_mutex_lock(&commits->lock);
        ended = !commits->answers;
        pthread_mutex_unlock(&commits->lock);
        if (ended) return;
        if (ps_now_us() > deadline_us) die("a commit that the committer has forgotten");
        usleep(1000);
    }
}

static void end_consumer(struct ps_consumer *consumer, int timeout_ms)
{
    struct ps_job *closing = ps_client_close(&consumer->client, timeout_ms, NULL);
    if (closing) {
        await_job(closing, "a close with commits");
        ps_job_unref(closing);
    }
    if (atomic_load(&consumer->client.long_calls) > 0) die("a commit that never left");
    await_end_of_commits(consumer);
    ps_client_abandon(&consumer->client);
}

static void replace(struct committing *place)
{
    struct ps_consumer *fresh = new_committing();
    pthread_mutex_lock(&place->lock);
    struct ps_consumer *old = place->consumer;
    place->consumer = fresh;
    pthread_mutex_unlock(&place->lock);
    end_consumer(old, random_below(300));
}

static void *commit_and_close(void *unused)
{
    (void)unused;
    while (!time_is_up()) {
        struct committing *place = &committing[random_below(COMMITTING)];
        int what = random_below(1000);
        if (what < 50) { /* nothing rings the committer but answers and times */
            pthread_rwlock_wrlock(&place->used);
            await_end_of_commits(place->consumer);
            pthread_rwlock_unlock(&place->used);
            continue;
        }
        pthread_rwlock_rdlock(&place->used);
        pthread_mutex_lock(&place->lock);
        struct ps_consumer *consumer = place->consumer;
        ps_client_retain(&consumer->client);
        pthread_mutex_unlock(&place->lock);
        if (what < 51) replace(place);
        else if (what < 250) take_commit_turn(consumer);
        else if (what < 450) join_somehow(consumer);
        else if (what < 475) revoke_places(consumer);
        else if (what < 550) ps_async_commits_stored(consumer);
        else rounds += ps_consumer_commit_async(consumer, random_below(4) ? places_to_commit() : NULL) == 0;
        ps_client_unref(&consumer->client);
        pthread_rwlock_unlock(&place->used);
    }
    return NULL;
}

static void commits_part(void)
{
    static void *(*const bodies[])(void *) = { commit_and_close, commit_and_close, commit_and_close, commit_and_close };
    for (int i = 0; i < COMMITTING; i++) {
        pthread_mutex_init(&committing[i].lock, NULL);
        pthread_rwlock_init(&committing[i].used, NULL);
        committing[i].consumer = new_committing();
        ps_consumer_commit_async(committing[i].consumer, places_to_commit());
    }
    for (int i = 0; i < COMMITTING; i++) await_end_of_commits(committing[i].consumer);
    begin(); /* they know their coordinators */
    run_threads(4, bodies, NULL);
    for (int i = 0; i < COMMITTING; i++) {
        struct ps_consumer *consumer = committing[i].consumer;
        await_end_of_commits(consumer);
        end_consumer(consumer, 300);
        pthread_mutex_destroy(&committing[i].lock);
        pthread_rwlock_destroy(&committing[i].used);
    }
    await_empty_registry();
}

/* ---- taking: polls of several threads, beside rebalances, rewinds, seeks, pauses and assignments ---- */

enum { TAKEN_PARTITIONS = 3, TAKEN_MESSAGES = 500, TAKE_US = 5000 * 1000 };

static struct taking_part {
    struct ps_consumer *consumer;
    int64_t until_us;
    _Atomic uint64_t next_owner;
    bool chosen; /* the program assigns the partitions, and no group */
} takes;

static void check_report_cb(rd_kafka_t *rk, const rd_kafka_message_t *message, void *unused)
{
    (void)rk, (void)unused;
    if (message->err || message->offset != (int64_t)(intptr_t)message->_private) die("a message to take that has another offset");
}

/* The payload of each message is its offset. */
static void produce_messages_to_take(void)
{
    char errstr[256], payload[32];
    rd_kafka_conf_t *conf = conf_for(bootstraps, NULL);
    rd_kafka_conf_set_events(conf, 0);
    rd_kafka_conf_set_dr_msg_cb(conf, check_report_cb);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, errstr, sizeof(errstr));
    if (!rk) die(errstr);
    for (intptr_t i = 0; i < TAKEN_MESSAGES; i++) {
        int size = snprintf(payload, sizeof(payload), "%ld", (long)i);
        for (int32_t partition = 0; partition < TAKEN_PARTITIONS; partition++)
            if (rd_kafka_producev(rk, RD_KAFKA_V_TOPIC("takes"), RD_KAFKA_V_PARTITION(partition), RD_KAFKA_V_VALUE(payload, (size_t)size),
                                  RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_OPAQUE((void *)i), RD_KAFKA_V_END))
                die("a message to take");
    }
    if (rd_kafka_flush(rk, PATIENCE_US / 1000)) die("messages to take that were not delivered");
    rd_kafka_destroy(rk);
}

static void check_taken(struct ps_fetched *fetched)
{
    int64_t before[TAKEN_PARTITIONS] = { -1, -1, -1 };
    if (!ps_fetched_read(fetched)) die("released messages");
    for (size_t i = 0; i < fetched->count; i++) {
        const struct ps_record *record = &fetched->records[i];
        char payload[32] = "";
        if (strcmp(fetched->topics[record->topic], "takes") != 0) continue;
        memcpy(payload, fetched->bytes + record->place + record->key_size, record->payload_size);
        if (atoll(payload) != record->offset) die("a message with another payload");
        if (record->offset <= before[record->partition]) die("messages of one poll out of order");
        before[record->partition] = record->offset;
    }
    ps_fetched_done(fetched);
}

static void mark_some(struct ps_consumer *consumer, const struct ps_fetched *fetched)
{
    for (size_t i = 0; i < fetched->count; i++) {
        const struct ps_record *record = &fetched->records[i];
        if (random_below(8)) continue;
        ps_ledger_mark(&consumer->ledger, fetched->topics[record->topic], record->partition, record->offset, -1, fetched->epoch);
        ps_consumer_marked(consumer);
    }
}

static void *take_and_mark(void *unused)
{
    (void)unused;
    struct ps_consumer *consumer = takes.consumer;
    uint64_t owner = atomic_fetch_add(&takes.next_owner, 1) + 1;
    while (ps_now_us() < takes.until_us) {
        struct ps_taking taking = {
            .owner = owner, .max = 1 + (size_t)random_below(100), .ends = random_below(2), .one_partition = random_below(4) == 0,
            .most_bytes = random_below(4) ? 0 : 1 + (size_t)random_below(500), .control_only = random_below(16) == 0,
        };
        taking.single = taking.max == 1;
        struct ps_fetched *fetched = poll_once(consumer, &taking);
        if (fetched) check_taken(fetched);
        if (fetched && random_below(2)) mark_some(consumer, fetched);
        if (fetched && fetched->count > 0) rounds++;
        if (fetched) ps_fetched_unref(fetched);
        else usleep(random_below(500));
    }
    return NULL;
}

static rd_kafka_topic_partition_list_t *places_to_take(int64_t offset)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(TAKEN_PARTITIONS);
    for (int32_t i = 0; i < TAKEN_PARTITIONS; i++)
        if (random_below(2)) rd_kafka_topic_partition_list_add(list, "takes", i)->offset = offset;
    return list;
}

static struct ps_consumer_job *latest_call; /* whose end no thread has awaited; of one thread */

static void await_latest_call(void)
{
    if (!latest_call) return;
    await_job(&latest_call->job, "a call of a consumer that takes messages");
    ps_job_unref(&latest_call->job);
    latest_call = NULL;
}

/* Owns the list. Two calls may run at a time. */
static void call_to_take(enum ps_consumer_call call, rd_kafka_topic_partition_list_t *list, uint64_t epoch, bool awaits)
{
    struct ps_consumer_job *job = ps_consumer_start(takes.consumer, call, list, 5000, epoch);
    if (!job) die("a call of a consumer that takes messages");
    if (call == PS_CONSUMER_COMMIT_PROCESSED) { /* it waits for as long as the member joins its group, and reading does not depend on it */
        ps_job_abandon(&job->job);
        return;
    }
    await_latest_call();
    latest_call = job;
    if (awaits) await_latest_call();
}

/* The group assigns again: the member stays, and subscribes to other topics. */
static void subscribe_to_take(bool more, bool awaits)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(2);
    rd_kafka_topic_partition_list_add(list, "takes", RD_KAFKA_PARTITION_UA);
    if (more) rd_kafka_topic_partition_list_add(list, "commits", RD_KAFKA_PARTITION_UA);
    call_to_take(PS_CONSUMER_SUBSCRIBE, list, 0, awaits);
}

static void *move_and_pause(void *unused)
{
    (void)unused;
    struct ps_consumer *consumer = takes.consumer;
    int64_t rejoins_us = takes.chosen ? PS_FOREVER : takes.until_us - TAKE_US + random_below(TAKE_US / 4);
    while (ps_now_us() < takes.until_us) {
        bool awaits = random_below(2);
        int64_t offset = random_below(TAKEN_MESSAGES);
        switch (random_below(12)) {
        case 0: call_to_take(PS_CONSUMER_SEEK, places_to_take(random_below(4) ? offset : RD_KAFKA_OFFSET_BEGINNING), 0, awaits); break;
        case 1: call_to_take(PS_CONSUMER_SEEK_BACK, places_to_take(offset / 2), 0, awaits); break;
        case 2: call_to_take(PS_CONSUMER_REWIND, places_to_take(offset), ps_ledger_epoch(&consumer->ledger), awaits); break;
        case 3: call_to_take(PS_CONSUMER_PAUSE, places_to_take(0), 0, awaits); break;
        case 4:
        case 5: call_to_take(PS_CONSUMER_RESUME, places_to_take(0), 0, awaits); break;
        case 6: call_to_take(PS_CONSUMER_COMMIT_PROCESSED, NULL, ps_ledger_epoch(&consumer->ledger), awaits); break;
        case 7: ps_consumer_commit_async(consumer, NULL); break;
        case 8: call_to_take(PS_CONSUMER_RESTART, places_to_take(0), 0, awaits); break;
        case 9:
            if (takes.chosen) call_to_take(PS_CONSUMER_ASSIGN, places_to_take(offset), 0, awaits);
            break;
        default: usleep(random_below(5000));
        }
        if (ps_now_us() >= rejoins_us) {
            subscribe_to_take(true, awaits);
            rejoins_us = PS_FOREVER;
        }
    }
    await_latest_call();
    return NULL;
}

/* As ConsumerSet#wait, Consumer#lag, keep_alive and others do. */
static void *look_at_taking(void *unused)
{
    (void)unused;
    struct ps_consumer *consumer = takes.consumer;
    struct ps_membership membership = { .consumer = consumer };
    uint64_t owner = atomic_fetch_add(&takes.next_owner, 1) + 1;
    while (ps_now_us() < takes.until_us) {
        bool worked_on;
        if (!ps_client_enter(&consumer->client)) die("a consumer that is not open");
        switch (random_below(6)) {
        case 0: ps_consumer_may_take(consumer, owner, &worked_on); break;
        case 1: ps_consumer_notice(consumer); break;
        case 2: ps_consumer_passed(consumer, "takes", random_below(TAKEN_PARTITIONS)); break;
        case 3: ps_consumer_membership(&membership); break;
        case 4: ps_consumer_must_answer(consumer); break;
        default: ps_consumer_look_again_us(consumer);
        }
        ps_client_exit(&consumer->client);
        usleep(random_below(1000));
    }
    return NULL;
}

static struct ps_consumer *new_taking(void)
{
    static unsigned made;
    char id[32], errstr[512];
    snprintf(id, sizeof(id), "takes-%u", made++);
    rd_kafka_conf_t *conf = conf_for(bootstraps, NULL);
    set(conf, "group.id", id);
    set(conf, "enable.auto.commit", "false");
    set(conf, "enable.partition.eof", "true");
    set(conf, "auto.offset.reset", "earliest");
    set(conf, "session.timeout.ms", "4000"); /* the cluster answers the first JoinGroup after 3 s, and later ones a second less than this */
    set(conf, "heartbeat.interval.ms", "500");
    set(conf, "partition.assignment.strategy", random_below(2) ? "range" : "cooperative-sticky");
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_REBALANCE | RD_KAFKA_EVENT_OFFSET_COMMIT | RD_KAFKA_EVENT_ERROR);
    struct ps_consumer_settings settings = consumer_settings;
    settings.grouped = true;
    settings.listens = random_below(4) > 0;
    settings.ends = true;
    settings.hold_us = random_below(2) ? 20000 : 0;
    settings.mark = (enum ps_mark)random_below(3);
    settings.commit_every_us = random_below(4) ? 2000 : 0;
    struct ps_consumer *consumer = ps_consumer_new(conf, id, &settings);
    if (ps_client_open(&consumer->client, errstr, sizeof(errstr)) < 0) die(errstr);
    return consumer;
}

static void poll_until_assigned(void)
{
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    while (atomic_load(&takes.consumer->counts.assigned) < TAKEN_PARTITIONS) {
        struct ps_taking taking = { .owner = UINT64_C(1) << 32, .max = 10, .control_only = true };
        poll_once(takes.consumer, &taking);
        if (ps_now_us() > deadline_us) die("partitions that the group did not assign");
        usleep(1000);
    }
}

/* Answers the rebalances of the subscription that has ended. */
static void settle_rebalances(void)
{
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    while (ps_consumer_must_answer(takes.consumer)) {
        struct ps_taking taking = { .owner = UINT64_C(1) << 32, .max = 1, .control_only = true };
        poll_once(takes.consumer, &taking);
        if (ps_now_us() > deadline_us) die("a rebalance that is not answered");
        usleep(1000);
    }
}

static rd_kafka_topic_partition_list_t *all_to_take(void)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(TAKEN_PARTITIONS);
    for (int32_t i = 0; i < TAKEN_PARTITIONS; i++) rd_kafka_topic_partition_list_add(list, "takes", i)->offset = 0;
    return list;
}

static bool called_with_success(enum ps_consumer_call call)
{
    struct ps_consumer_job *job = ps_consumer_start(takes.consumer, call, all_to_take(), 5000, 0);
    if (!job) die("a last call of a consumer that takes messages");
    await_job(&job->job, "a last call of a consumer that takes messages");
    bool success = !job->err;
    for (int i = 0; call == PS_CONSUMER_SEEK && i < job->list->cnt; i++) success &= !job->list->elems[i].err;
    ps_job_unref(&job->job);
    return success;
}

/* A cooperative member seeks, because librdkafka does not let it assign when it has unsubscribed (2.0.2). */
static void read_from_the_beginning(bool seeks)
{
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    if (!seeks && !takes.chosen) call_to_take(PS_CONSUMER_SUBSCRIBE, NULL, 0, true);
    for (bool begun = false; !begun; usleep(1000)) {
        if (ps_now_us() > deadline_us) die("partitions that cannot be read from the beginning");
        if (seeks) poll_until_assigned();
        else settle_rebalances();
        begun = seeks ? called_with_success(PS_CONSUMER_RESUME) && called_with_success(PS_CONSUMER_SEEK)
                      : called_with_success(PS_CONSUMER_ASSIGN);
    }
}

/* From the beginning each message comes once, in order, whatever was done before. If the group has rebalanced meanwhile, for example as a
 * busy machine has let the session end, false. */
static bool take_all(void)
{
    int64_t next[TAKEN_PARTITIONS] = { 0 }, deadline_us = ps_now_us() + PATIENCE_US;
    bool seeks = !takes.chosen && takes.consumer->rebalance.cooperative;
    if (seeks) poll_until_assigned();
    uint64_t rebalances = atomic_load(&takes.consumer->counts.rebalances);
    read_from_the_beginning(seeks);
    if (!seeks) rebalances = atomic_load(&takes.consumer->counts.rebalances);
    for (int left = TAKEN_PARTITIONS * TAKEN_MESSAGES; left > 0;) {
        struct ps_taking taking = { .owner = UINT64_C(1) << 32, .max = 100 };
        struct ps_fetched *fetched = poll_once(takes.consumer, &taking);
        if (atomic_load(&takes.consumer->counts.rebalances) != rebalances) {
            if (fetched) ps_fetched_unref(fetched);
            return false;
        }
        for (size_t i = 0; fetched && i < fetched->count; i++, left--)
            if (fetched->records[i].offset != next[fetched->records[i].partition]++) die("a message that was lost, or came twice");
        if (fetched) ps_fetched_unref(fetched);
        else usleep(1000);
        if (ps_now_us() > deadline_us) die("messages that did not come");
    }
    return true;
}

static void taking_part(void)
{
    static void *(*const bodies[])(void *) = { take_and_mark, take_and_mark, take_and_mark, move_and_pause, look_at_taking };
    produce_messages_to_take();
    do {
        takes.consumer = new_taking();
        takes.chosen = random_below(3) == 0;
        if (!takes.chosen) {
            subscribe_to_take(false, true);
            poll_until_assigned();
        }
        takes.until_us = ps_now_us() + TAKE_US;
        run_threads(5, bodies, NULL);
        if (!takes.chosen && atomic_load(&takes.consumer->counts.rebalances) == 0) die("no rebalance");
        while (!take_all()) {}
        end_consumer(takes.consumer, 2000);
    } while (!time_is_up());
    await_empty_registry();
}

/* ---- slot: a handle that requests a client gets a usable one or an answer, while handles and answering threads start and end
 * ---- */

static struct {
    struct ps_slot *slot;
    pthread_mutex_t connecting; /* guards the client, like the lock of a Connection */
    struct ps_producer *producer;
    _Atomic int servers, users;
} slotted;

static void give_client_up(void)
{
    struct ps_producer *producer = slotted.producer;
    slotted.producer = NULL;
    ps_slot_put(slotted.slot, NULL, NULL);
    if (!producer) return;
    struct ps_job *closing = ps_client_close(&producer->client, 0, NULL);
    if (closing) ps_job_unref(closing);
    ps_client_abandon(&producer->client);
}

static void see_to_a_client(void)
{
    static const struct ps_limits terms = { .payload = 1000, .total = 1000, .queue = 1000 };
    char text[512];
    struct ps_transaction_error fatal;
    if (slotted.producer && ps_producer_fatal_error(slotted.producer, &fatal)) give_client_up();
    if (!slotted.producer) {
        struct ps_producer_settings settings = client_settings;
        settings.idempotent = true;
        slotted.producer = ps_producer_new(conf_for(bootstraps, NULL), "slot", poller, &settings);
        if (ps_client_open(&slotted.producer->client, text, sizeof(text)) < 0) die(text);
    }
    ps_slot_put(slotted.slot, slotted.producer, &terms);
}

static void *answer_questions(void *unused) /* the penstock.ractors thread */
{
    (void)unused;
    for (;;) {
        bool over;
        uint32_t heard = atomic_load(&slotted.slot->asks.rings);
        uint64_t question = ps_slot_question(slotted.slot, &over);
        if (over) break;
        if (!question) {
            await_ring(&slotted.slot->asks, heard, "handles that never end");
            continue;
        }
        bool trouble = random_below(8) == 0;
        pthread_mutex_lock(&slotted.connecting);
        if (trouble) give_client_up();
        else see_to_a_client();
        pthread_mutex_unlock(&slotted.connecting);
        ps_slot_answer(slotted.slot, question, trouble ? "there is no client" : "");
    }
    atomic_fetch_sub(&slotted.servers, 1);
    return NULL;
}

static void *own_slot(void *unused) /* the main Ractor's calls */
{
    char text[64];
    (void)unused;
    while (!time_is_up()) {
        pthread_mutex_lock(&slotted.connecting);
        ps_slot_change(slotted.slot, 1);
        if (!ps_slot_changed_by(slotted.slot, 1) || ps_slot_changed_by(slotted.slot, 2))
            die("the wrong thread changes the client");
        switch (random_below(4)) {
        case 0: give_client_up(); break;
        case 1: see_to_a_client(); break;
        case 2:
            if (slotted.producer)
                ps_producer_test_fatal_error(slotted.producer, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, "a test");
            break;
        default:
            ps_slot_bar(slotted.slot, "barred");
            usleep(random_below(100));
            ps_slot_bar(slotted.slot, "");
        }
        ps_slot_change(slotted.slot, 0);
        pthread_mutex_unlock(&slotted.connecting);
        ps_slot_trouble(slotted.slot, text, sizeof(text));
        usleep(random_below(3000));
    }
    while (atomic_load(&slotted.users) > 1) usleep(1000);
    ps_slot_close(slotted.slot); /* perhaps while a handle asks */
    pthread_mutex_lock(&slotted.connecting);
    give_client_up();
    pthread_mutex_unlock(&slotted.connecting);
    return NULL;
}

static void renew_client(uint64_t failed)
{
    struct ps_limits terms;
    char why[256];
    uint64_t question = 0;
    bool answered = false, renewed = false;
    while (!renewed && !answered) {
        uint32_t heard = atomic_load(&slotted.slot->answers.rings);
        if (ps_slot_enter(slotted.slot, &terms, why, sizeof(why)) != PS_SLOT_OPEN) return;
        renewed = ps_slot_renewed(slotted.slot, failed, &question, &answered);
        if (!renewed && !answered) await_ring(&slotted.slot->answers, heard, "a question without an answer");
    }
    rounds++;
}

static void *use_slot(void *unused) /* like the producer's `shareable`, and then the handle's calls */
{
    pthread_t server;
    (void)unused;
    do {
        ps_slot_handle_made(slotted.slot);
        if (ps_slot_attend(slotted.slot, true)) {
            atomic_fetch_add(&slotted.servers, 1);
            if (pthread_create(&server, NULL, answer_questions, NULL) != 0) die("no thread");
            pthread_detach(server);
        }
        for (int i = random_below(30); i > 0; i--) {
            struct ps_producer *producer = ps_slot_take(slotted.slot);
            uint64_t failed = producer && random_below(4) ? producer->client.address : 0;
            if (producer) {
                use_client(producer, false);
                ps_client_unref(&producer->client);
            }
            if (!producer || random_below(8) == 0) renew_client(failed);
        }
        ps_slot_handle_gone(slotted.slot);
    } while (!time_is_up());
    atomic_fetch_sub(&slotted.users, 1);
    return NULL;
}

static void slot_part(void)
{
    static void *(*const bodies[])(void *) = { own_slot, use_slot, use_slot, use_slot };
    slotted.slot = ps_slot_new();
    if (!slotted.slot) die("no slot");
    pthread_mutex_init(&slotted.connecting, NULL);
    slotted.users = 3;
    run_threads(4, bodies, NULL);
    while (atomic_load(&slotted.servers) > 0) usleep(1000);
    ps_slot_unref(slotted.slot);
    pthread_mutex_destroy(&slotted.connecting);
    await_empty_registry();
}

/* ---- configurations that librdkafka rejects ---- */

/* Functions of LeakSanitizer. librdkafka 2.14 leaks two lists of interceptors for each client whose first configuration fails
 * (core/client/client.c). */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

static int open_in_vain(struct ps_client *client, char *errstr, size_t size, bool first)
{
    bool loses = first && rd_kafka_version() >= 0x020e0000 && __lsan_disable;
    if (loses) __lsan_disable();
    int result = ps_client_open(client, errstr, size);
    if (loses) __lsan_enable();
    return result;
}

/* Fails like the start of the poller's thread, at a time when librdkafka has already tried to connect. */
static int begin_in_vain(struct ps_client *client, char *errstr, size_t size)
{
    const struct rd_kafka_metadata *metadata;
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    while (atomic_load(&client->connections.tried_us) == 0) {
        if (ps_now_us() > deadline_us) die("librdkafka does not try to connect");
        if (!rd_kafka_metadata(client->rk, 0, NULL, &metadata, 10)) die("an answer from a port where no broker listens");
    }
    snprintf(errstr, size, "in vain");
    return -1;
}

static void begin_again(void)
{
    char errstr[512];
    struct ps_client_kind kind = ps_producer_kind;
    struct ps_producer *producer = ps_producer_new(conf_for("127.0.0.1:1", NULL), "rejected", poller, &client_settings);
    kind.begin = begin_in_vain;
    producer->client.kind = &kind;
    if (ps_client_open(&producer->client, errstr, sizeof(errstr)) == 0 || strcmp(errstr, "in vain") != 0)
        die("a failed opening without its error");
    if (atomic_load(&producer->client.connections.tried_us) != 0) die("connection attempts of a destroyed client still count");
    producer->client.kind = &ps_producer_kind;
    if (ps_client_open(&producer->client, errstr, sizeof(errstr)) < 0) die(errstr);
    ps_client_abandon(&producer->client);
}

static void rejected_part(void)
{
    char errstr[512], name[600];
    begin_again();
    memset(name, 'a', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    while (!time_is_up()) {
        struct ps_producer *producer = ps_producer_new(conf_for(bootstraps, NULL), "rejected", poller, &client_settings);
        if (ps_client_open(&producer->client, errstr, sizeof(errstr)) < 0) die(errstr);
        for (int i = 0; i < 10; i++)
            if (ps_producer_topic(producer, name, strlen(name))) die("a topic name of 599 characters");
        ps_client_abandon(&producer->client);

        rd_kafka_conf_t *conf = conf_for(bootstraps, NULL);
        set(conf, "ssl.ca.location", "/nowhere");
        set(conf, "security.protocol", "ssl");
        struct ps_consumer *consumer = ps_consumer_new(conf, "rejected", &consumer_settings);
        for (int i = 0; i < 3; i++)
            if (open_in_vain(&consumer->client, errstr, sizeof(errstr), i == 0) == 0) die("a missing certificate authority");
        ps_client_abandon(&consumer->client);
        rounds++;
    }
    await_empty_registry();
}

/* ---- text: any bytes, into a buffer of any size ---- */

static size_t random_text(char *text, size_t most, unsigned *seed)
{
    static const char *const pieces[] = { "a", "\"", "\\", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xE2\x82", "\xF0\x9F",
                                          "\xFF", "\xED\xA0", "\xE2\x80\xAE", "\xC2\x9B", "\x1B", "\n" };
    size_t size = 0;
    for (int i = rand_r(seed) % 12; i > 0; i--) {
        const char *piece = pieces[rand_r(seed) % (sizeof(pieces) / sizeof(*pieces))];
        size_t length = strlen(piece);
        if (size + length > most) break;
        memcpy(text + size, piece, length);
        size += length;
    }
    return size;
}

/* The output is the start of the complete result and ends with a NUL. Cleaning it again changes nothing. */
static void text_part(void)
{
    unsigned seed = 16;
    while (!time_is_up()) {
        char bytes[48], all[512], again[512];
        size_t size = random_text(bytes, sizeof(bytes), &seed);
        enum ps_text_use use = (enum ps_text_use)(rand_r(&seed) % 3);
        char *text = malloc(size + 1); /* exactly this size, so that the sanitizer detects an overrun */
        memcpy(text, bytes, size);
        size_t needed = ps_text_clean(NULL, 0, text, size, use);
        if (ps_text_clean(all, sizeof(all), text, size, use) != needed || strlen(all) != needed) die("text of another size");
        for (size_t room = 1; room <= needed + 2; room++) {
            char *out = malloc(room);
            if (ps_text_clean(out, room, text, size, use) != needed) die("the size depends on the buffer");
            if (strlen(out) >= room || strncmp(out, all, strlen(out)) != 0) die("text that does not fit is not cut");
            if (room > needed && strlen(out) != needed) die("text that fits is cut");
            if (ps_text_clean(again, sizeof(again), out, strlen(out), PS_TEXT_NAME) != strlen(out)) die("cut within a character");
            free(out);
        }
        if (ps_text_clean(again, sizeof(again), all, needed, use) != needed || strcmp(again, all) != 0) die("cleaned twice");
        free(text);
        atomic_fetch_add(&rounds, 1);
    }
}

/* ---- redaction: no secret stays in a text of any length, while threads add others ---- */

static const char *const settings_secret[] = { "sasl.password", "inner-secret", "ssl.key.password", "an-inner-secret-within" };

static rd_kafka_conf_t *conf_with_secrets(void)
{
    rd_kafka_conf_t *conf = conf_for("127.0.0.1:1", NULL);
    for (size_t i = 0; i < 4; i += 2) rd_kafka_conf_set(conf, settings_secret[i], settings_secret[i + 1], NULL, 0);
    rd_kafka_conf_set(conf, "sasl.oauthbearer.config", "principal=word-one  scope=word-two", NULL, 0);
    return conf;
}

static char *exactly(const char *text) /* exactly sized, so that the sanitizer detects an overrun */
{
    char *copy = malloc(strlen(text) + 1);
    return strcpy(copy, text);
}

static void check_redacted(struct ps_redaction *redaction, const char *text, const char *expected)
{
    char *copy = exactly(text);
    ps_redact(redaction, copy);
    if (strcmp(copy, expected) != 0) die(copy);
    free(copy);
}

static void *redact_body(void *arg)
{
    static const char *const words[] = { "inner-secret", "an-inner-secret-within", "principal=word-one", "scope=word-two" };
    struct ps_redaction *redaction = arg;
    while (!time_is_up()) {
        char text[128];
        const char *word = words[random_below(4)];
        int before = random_below(40), cut = random_below(30);
        snprintf(text, sizeof(text), "%.*s%s%.*s", before, "........................................", word, cut,
                 "..............................");
        char *copy = exactly(text);
        ps_redact(redaction, copy);
        if (strstr(copy, word) || strlen(copy) > strlen(text)) die("a secret was left in a text");
        free(copy);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

static void *give_secret_body(void *arg)
{
    while (!time_is_up()) {
        char secret[32];
        snprintf(secret, sizeof(secret), "given-%d", random_below(1000000));
        ps_redaction_add(arg, secret);
        ps_redaction_add(arg, random_below(2) ? "" : "abc");
    }
    return NULL;
}

static void redaction_part(void)
{
    struct ps_redaction redaction = { .next = 0 };
    rd_kafka_conf_t *conf = conf_with_secrets();
    ps_redaction_init(&redaction);
    ps_redaction_of_conf(&redaction, conf);
    ps_redaction_of_conf(&redaction, conf); /* as if opening failed and is retried */
    check_redacted(&redaction, "", "");
    check_redacted(&redaction, "an-inner-secret-within", "***");
    check_redacted(&redaction, "inner-secret and inner-secret", "*** and ***");
    check_redacted(&redaction, "beginning at: scope=word-two", "beginning at: ***");
    check_redacted(&redaction, "cut off: an-inner-secret", "cut off: ***");
    check_redacted(&redaction, "cut off: principal=w", "cut off: ***");
    check_redacted(&redaction, "no file -----BEGIN PRIVATE KEY-----\nabc", "no file ***");
    check_redacted(&redaction, "-----BEGIN ", "***");
    check_redacted(&redaction, "-----BEGIN", "-----BEGIN");
    ps_redaction_add(&redaction, "secret-of-later");
    check_redacted(&redaction, "secret-of-later is given", "*** is given");

    void *(*const bodies[])(void *) = { redact_body, redact_body, redact_body, give_secret_body };
    run_threads(4, bodies, &redaction);
    ps_redaction_destroy(&redaction);
    rd_kafka_conf_destroy(conf);
}

/* ---- space: calls that wait for queue space, threads that free it, and calls that stop waiting ---- */

enum { QUEUERS = 6 };

static struct {
    struct ps_producer *producer;
    _Atomic int free, in_use, ended;
} queue;

/* Like librdkafka when it accepts or rejects a message. */
static bool take_space(void)
{
    int space = atomic_load(&queue.free);
    while (space > 0)
        if (atomic_compare_exchange_weak(&queue.free, &space, space - 1)) return true;
    return false;
}

static bool has_turn(const struct ps_space_place *place)
{
    return ps_completion_done(&place->turn);
}

/* Checks which call gets a turn, and when. Nothing here depends on time. */
static void turns_in_order(void)
{
    struct ps_space *space = &queue.producer->space;
    struct ps_space_place *places[6];
    ps_place_leave(ps_place_join(queue.producer, 1), false);
    for (int i = 0; i < 6; i++) {
        if (ps_space_line(space) != (i > 0)) die("a line that is empty with waiting calls, or not empty without");
        places[i] = ps_place_join(queue.producer, i == 3 ? 5 : 1);
    }
    if (!has_turn(places[0]) || has_turn(places[1])) die("not exactly the first call has a turn");
    if (!ps_place_try(places[0])) die("the first call may not try");
    ps_space_freed(space, 1);
    if (ps_place_full(places[0])) die("space freed during the attempt is lost");
    if (!ps_place_full(places[0]) || has_turn(places[0])) die("a call that found the queue full keeps its turn");
    if (!has_turn(places[1])) die("space freed during another call's attempt is lost");
    if (ps_place_try(places[1])) die("a call that overtakes the first, which found the queue full");
    if (!has_turn(places[0])) die("the space is not left to the first call");
    if (!ps_place_try(places[0]) || !ps_place_full(places[0])) die("a call that found the queue full keeps its turn");
    ps_space_freed(space, 4);
    if (!has_turn(places[0]) || !has_turn(places[1]) || has_turn(places[2])) die("not exactly the first two calls have turns");
    ps_place_leave(places[0], true);
    if (!has_turn(places[2]) || has_turn(places[3])) die("not exactly the third call gets the turn of a finished call");
    ps_place_leave(places[1], false);
    if (!has_turn(places[3]) || has_turn(places[4])) die("no turn for the fourth call");
    if (!ps_place_try(places[2])) die("the third call is first and may not try");
    ps_place_leave(places[2], true);
    if (has_turn(places[4])) die("more turns than freed messages");
    ps_place_leave(places[3], false); /* like an interrupted call */
    if (!has_turn(places[4]) || has_turn(places[5])) die("the turn of an interrupted call is lost");
    if (!ps_place_try(places[4]) || !ps_place_full(places[4])) die("a call that found the queue full keeps its turn");
    ps_place_leave(places[4], false); /* like a call that ran out of time */
    if (!has_turn(places[5])) die("the turn of a timed-out call is lost");
    if (ps_space_stuck(space, ps_now_us() + 2000000)) die("stuck without a waiting call");
    struct ps_space_place *behind = ps_place_join(queue.producer, 1);
    if (ps_space_stuck(space, ps_now_us())) die("an unused turn that counts as stuck at once");
    if (!ps_space_stuck(space, ps_now_us() + 2000000)) die("an unused turn that never counts as stuck");
    ps_space_unstick(space);
    if (!has_turn(behind)) die("no other turn while one turn is unused");
    struct ps_space_place *last = ps_place_join(queue.producer, 1);
    ps_place_leave(behind, true);
    if (!has_turn(last)) die("turns stop while one turn is unused");
    ps_place_leave(places[5], true);
    ps_place_leave(last, true);
    if (ps_space_line(space)) die("an empty line that is not empty");
}

static void *queue_for_space(void *unused)
{
    (void)unused;
    struct ps_space *space = &queue.producer->space;
    while (!time_is_up()) {
        struct ps_space_place *place = ps_place_join(queue.producer, 1 + (uint32_t)random_below(3));
        int64_t deadline_us = ps_now_us() + (random_below(8) ? PATIENCE_US : random_below(300));
        bool done = false, patient = true;
        while (!done && patient) {
            struct ps_waiter waiter = { 0 };
            if (ps_waiter_join(&waiter, &place->turn, NULL)) {
                patient = ps_waiter_sleep(&waiter, deadline_us) == PS_DONE;
                ps_waiter_leave(&waiter, &place->turn);
            }
            if (!patient && ps_now_us() - deadline_us >= 0 && deadline_us > end_us + PATIENCE_US / 2) die("a turn that was lost");
            if (!patient || !ps_place_try(place)) continue;
            do done = take_space();
            while (!done && !ps_place_full(place));
        }
        ps_place_leave(place, done);
        if (!done) continue;
        rounds++;
        if (random_below(16) == 0) { /* a rejected message holds space for a moment */
            atomic_fetch_add(&queue.free, 1);
            ps_space_freed(space, 1);
        } else {
            atomic_fetch_add(&queue.in_use, 1);
        }
    }
    atomic_fetch_add(&queue.ended, 1);
    return NULL;
}

static void *free_space(void *unused)
{
    (void)unused;
    while (atomic_load(&queue.ended) < QUEUERS) {
        int count = atomic_exchange(&queue.in_use, 0);
        if (count) {
            atomic_fetch_add(&queue.free, count);
            ps_space_freed(&queue.producer->space, random_below(4) ? (uint32_t)count : 1);
        }
        if (random_below(4) == 0) usleep(random_below(100));
    }
    return NULL;
}

static void space_part(void)
{
    queue.producer = ps_producer_new(conf_for(bootstraps, NULL), "space", poller, &client_settings);
    turns_in_order();
    queue.free = 3;
    begin();
    void *(*const bodies[])(void *) = { queue_for_space, queue_for_space, queue_for_space, queue_for_space, queue_for_space,
                                        queue_for_space, free_space };
    run_threads(QUEUERS + 1, bodies, NULL);
    if (queue.free + queue.in_use != 3 || ps_space_line(&queue.producer->space)) die("queue space that is lost");
    ps_client_unref(&queue.producer->client);
}

/* ---- the ledger ---- */

enum { OWNERS = 4 };

static struct {
    struct ps_ledger ledger;
    pthread_mutex_t taking;
    int64_t next;
    uint64_t owners;
} desk;

static int64_t processed(void)
{
    rd_kafka_topic_partition_list_t *list = ps_ledger_processed(&desk.ledger);
    int64_t offset = list->cnt ? list->elems[0].offset : 0;
    rd_kafka_topic_partition_list_destroy(list);
    return offset;
}

/* Takes messages, as one of several owners, and finishes them somehow. Nothing that it works on may count as processed. */
static void *work_off(void *arg)
{
    uint64_t owner = __atomic_add_fetch(&desk.owners, 1, __ATOMIC_SEQ_CST);
    (void)arg;
    while (!time_is_up()) {
        struct ps_fetched *fetched = random_below(2) ? ps_fetched_new("desk", 2, 16) : ps_fetched_new(NULL, 0, 0);
        int count = 1 + random_below(5);
        pthread_mutex_lock(&desk.taking);
        int64_t first = desk.next;
        for (int i = 0; i < count; i++) ps_fetched_add(fetched, "desk", 1)->offset = desk.next++;
        if (!ps_ledger_handed_out_all(&desk.ledger, fetched, owner)) die("no memory");
        pthread_mutex_unlock(&desk.taking);
        if (processed() > first) die("work that is not done counts as processed");
        if (random_below(3) == 0) {
            int64_t some = first + random_below(count);
            if (!ps_ledger_mark(&desk.ledger, "desk", 0, some, -1, fetched->epoch)) die("a mark that is refused");
            if (some < first + count - 1 && processed() > some + 1) die("more than was marked counts as processed");
        }
        ps_ledger_finish(&desk.ledger, owner);
        if (ps_ledger_position(&desk.ledger, "desk", 0) < first + count) die("a position that goes back");
        ps_fetched_unref(fetched);
        __atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void *look_on(void *arg)
{
    int64_t before = 0;
    (void)arg;
    while (!time_is_up()) {
        int64_t now = processed();
        if (now < before) die("processed offsets that go back");
        before = now;
        usleep(20);
    }
    return NULL;
}

static void check_epochs(void)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    struct ps_ledger *ledger = &desk.ledger;
    uint64_t before = ledger->epoch;
    rd_kafka_topic_partition_list_add(list, "desk", 0);
    ps_ledger_revoked(ledger, list, false);
    if (ps_ledger_mark(ledger, "desk", 0, 0, -1, before)) die("a mark of a revoked partition");
    ps_ledger_assigned(ledger);
    if (!ps_ledger_handed_out(ledger, "desk", 0, 7, -1, 1)) die("no memory");
    if (ps_ledger_mark(ledger, "desk", 0, 7, -1, before)) die("a mark from an earlier assignment");
    if (!ps_ledger_mark(ledger, "desk", 0, 7, -1, ledger->epoch) || processed() != 8) die("a mark that is refused");
    ps_ledger_seek(ledger, "desk", 0, -1, false);
    if (ps_ledger_position(ledger, "desk", 0) != -1) die("a position after a seek");
    ps_ledger_pause(ledger, "desk", 0, true);
    rd_kafka_topic_partition_list_t *paused = ps_ledger_paused(ledger, list);
    if (paused->cnt != 1) die("a pause that is forgotten");
    rd_kafka_topic_partition_list_destroy(paused);
    rd_kafka_topic_partition_list_destroy(list);
}

static void ledger_part(void)
{
    pthread_mutex_init(&desk.taking, NULL);
    if (!ps_ledger_init(&desk.ledger)) die("no memory");
    void *(*const bodies[])(void *) = { work_off, work_off, work_off, work_off, look_on };
    run_threads(OWNERS + 1, bodies, NULL);
    if (processed() != desk.next) die("finished work that does not count as processed");
    check_epochs();
    ps_ledger_destroy(&desk.ledger);
    pthread_mutex_destroy(&desk.taking);
}

/* ---- copied messages ---- */

static struct ps_fetched *open_book;

static void *read_book(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        struct ps_record *record = &open_book->records[i % 3];
        if (!ps_fetched_read(open_book)) break;
        for (int j = 0; j < 4000; j += 500)
            if (open_book->bytes[record->place + (size_t)j] != 'a' + i % 3) die("other bytes");
        ps_fetched_done(open_book);
    }
    ps_fetched_unref(open_book);
    return NULL;
}

static void *release_book(void *arg)
{
    (void)arg;
    if (random_below(2)) usleep((unsigned)random_below(50));
    ps_fetched_release(open_book);
    if (ps_fetched_read(open_book)) die("released bytes that can be read");
    ps_fetched_release(open_book);
    ps_fetched_unref(open_book);
    return NULL;
}

static void fetched_part(void)
{
    while (!time_is_up()) {
        open_book = random_below(2) ? ps_fetched_new("one", 1, 4000) : ps_fetched_new(NULL, 0, 0);
        for (int i = 0; i < 3; i++) {
            struct ps_record *record = ps_fetched_add(open_book, i == 1 ? "two" : "one", 4000);
            memset(open_book->bytes + record->place, 'a' + i, 4000);
        }
        if (open_book->topic_count != 2) die("topics that are not told apart");
        for (int i = 0; i < 4; i++) ps_fetched_retain(open_book);
        void *(*const bodies[])(void *) = { read_book, read_book, release_book, release_book };
        struct ps_fetched *kept = open_book;
        run_threads(4, bodies, NULL);
        if (!ps_fetched_unref(kept)) die("memory that is not freed");
        rounds++;
    }
}

/* ---- requests of admin clients: every wait ends, every answer is destroyed, and no call that a caller uses is freed ---- */

static const struct ps_admin_settings admin_settings = {
    .max_time_us = 100000, .sweep_us = 1000000, .client.close_timeout_ms = 300, .client.rejection_us = 1000000,
};
static struct ps_admin *asked;

/* For some ms. A thread that has entered finds that closing has begun, and has ended the waits of all calls. */
static void await_closing(void)
{
    for (int i = 0; i < 50 && atomic_load(&asked->client.state) == PS_OPEN; i++) usleep(100);
    usleep(random_below(1000));
}

/* The broker answers at once, with an error. The cluster has no controller, so other requests are answered when their time is over.
 * NULL: closing has begun. */
static struct ps_admin_call *ask(int timeout_ms)
{
    char errstr[256];
    if (!ps_admin_use(asked)) return NULL;
    if (!ps_client_enter(&asked->client)) {
        ps_admin_release(asked);
        return NULL;
    }
    if (random_below(3) == 0) await_closing();
    struct ps_admin_call *call = ps_admin_call_begin(asked);
    if (call) {
        call->coordinated = random_below(30) == 0; /* without an answer, the last user closes the client */
        rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(asked->client.rk, RD_KAFKA_ADMIN_OP_DELETETOPICS);
        rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, errstr, sizeof(errstr));
        if (random_below(2)) rd_kafka_AdminOptions_set_broker(options, 1, errstr, sizeof(errstr));
        rd_kafka_AdminOptions_set_opaque(options, call);
        rd_kafka_DeleteTopic_t *topic = rd_kafka_DeleteTopic_new("none");
        rd_kafka_DeleteTopics(asked->client.rk, &topic, 1, options, asked->polled.queue);
        rd_kafka_DeleteTopic_destroy(topic);
        rd_kafka_AdminOptions_destroy(options);
    }
    ps_client_exit(&asked->client);
    if (!call) ps_admin_release(asked);
    return call;
}

static void leave(struct ps_admin_call *call)
{
    ps_admin_call_leave(asked, call);
    ps_admin_release(asked);
    rounds++;
}

static void await_call(struct ps_admin_call *call, int64_t deadline_us)
{
    struct ps_waiter waiter = { 0 };
    while (ps_waiter_join(&waiter, &call->completion, NULL)) {
        ps_waiter_sleep(&waiter, deadline_us);
        ps_waiter_leave(&waiter, &call->completion);
        if (atomic_load(&waiter.state) == PS_DONE || ps_now_us() >= deadline_us) break;
    }
}

static void take_answer(struct ps_admin_call *call)
{
    if (!ps_client_enter(&asked->client)) return;
    rd_kafka_event_t *answer = ps_admin_call_take(asked, call);
    if (answer && rd_kafka_event_opaque(answer) != call) die("the answer of another call");
    if (answer) rd_kafka_event_destroy(answer);
    ps_client_exit(&asked->client);
}

/* Until the client closes. Sometimes the thread leaves before the answer, or does not take it. */
static void *ask_and_leave(void *unused)
{
    (void)unused;
    struct ps_admin_call *call;
    for (bool patient = true; (call = ask(patient ? 1 + random_below(5) : 1000)); patient = random_below(2)) {
        await_call(call, ps_now_us() + (patient ? PATIENCE_US : random_below(2000)));
        int end = atomic_load(&call->end);
        if (patient && end == PS_ADMIN_WAITS) die("a request that nothing has ended");
        if (end == PS_ADMIN_ANSWERED && random_below(4) > 0) take_answer(call);
        leave(call);
    }
    return NULL;
}

/* Waits longer than a test may last, until the client closes. */
static void *ask_and_wait(void *unused)
{
    (void)unused;
    struct ps_admin_call *call;
    while ((call = ask(3600 * 1000))) {
        await_call(call, ps_now_us() + PATIENCE_US);
        if (atomic_load(&call->end) == PS_ADMIN_WAITS) die("a request that a close has not ended");
        leave(call);
    }
    return NULL;
}

static void *question(void *unused)
{
    (void)unused;
    for (;;) {
        struct ps_admin_call *call;
        struct ps_admin_job *job = ps_admin_ask(asked, random_below(2) ? PS_ADMIN_TOPICS : PS_ADMIN_BROKERS, NULL, 1000, &call);
        if (!job) return NULL;
        await_call(call, ps_now_us() + (random_below(2) ? PATIENCE_US : random_below(1000)));
        if (atomic_load(&call->end) == PS_ADMIN_ANSWERED && !job->err && job->metadata->broker_cnt < 1) die("no broker");
        ps_admin_call_leave(asked, call);
        ps_job_abandon(&job->job);
        rounds++;
    }
}

static void *close_soon(void *unused)
{
    (void)unused;
    usleep(random_below(50000));
    struct ps_job *job = ps_client_close(&asked->client, 300, NULL);
    await_job(job, "an admin client that does not close");
    ps_job_unref(job);
    return NULL;
}

static void admin_part(void)
{
    static void *(*const bodies[])(void *) = { ask_and_leave, ask_and_leave, ask_and_wait, question, close_soon };
    char errstr[256];
    while (!time_is_up()) {
        const char *servers = random_below(4) ? bootstraps : "127.0.0.1:1";
        asked = ps_admin_new(conf_for(servers, NULL), "asked", random_below(2) ? other_poller : poller, &admin_settings);
        if (ps_client_open(&asked->client, errstr, sizeof(errstr)) < 0) die(errstr);
        run_threads(5, bodies, NULL);
        ps_client_unref(&asked->client);
    }
    await_empty_registry();
}

/* ---- memory that is used again ---- */

/* Nobody else has the block, and all of it can be written. */
static void *use_blocks(void *arg)
{
    int mine = random_below(100);
    (void)arg;
    while (!time_is_up()) {
        size_t wanted = (size_t)1 + (size_t)random_below(1 << random_below(23)), size = wanted;
        char *block = ps_block_new(&size);
        if (!block || size < wanted) die("a block that is too small");
        block[0] = block[size / 2] = block[size - 1] = (char)mine;
        if (random_below(2)) sched_yield();
        if (block[0] != mine || block[size / 2] != mine || block[size - 1] != mine) die("a block that two have");
        ps_block_free(block, size);
        __atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void blocks_part(void)
{
    void *(*const bodies[])(void *) = { use_blocks, use_blocks, use_blocks, use_blocks };
    run_threads(4, bodies, NULL);
}

/* ---- all of them ---- */

static const struct part {
    const char *name;
    void (*run)(void);
} parts[] = {
    { "wakeup", wakeup_part }, { "completion", completion_part }, { "bell", bell_part },
    { "bells", bells_part },   { "mailbox", mailbox_part },
    { "ready", ready_part },   { "watch", watch_part },           { "events", events_part },   { "rejected", rejected_part },
    { "open", open_part },     { "commits", commits_part },       { "taking", taking_part },
    { "slot", slot_part },       { "chunks", chunks_part },
    { "text", text_part },
    { "redaction", redaction_part }, { "space", space_part },
    { "admin", admin_part },
    { "ledger", ledger_part }, { "fetched", fetched_part }, { "blocks", blocks_part },
};

static bool chosen(const char *name, int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], name) == 0) return true;
    return argc == 2;
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    ps_fork_init();
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf_for("127.0.0.1:1", NULL), NULL, 0);
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(rk, 1);
    snprintf(bootstraps, sizeof(bootstraps), "%s", rd_kafka_mock_cluster_bootstraps(cluster));
    rd_kafka_mock_topic_create(cluster, "takes", TAKEN_PARTITIONS, 1);
    rd_kafka_mock_topic_create(cluster, "commits", 3, 1); /* librdkafka repeats commits of unknown topics for half a second */
    poller = ps_poller_new(1);
    other_poller = ps_poller_new(2);

    length_us = (int64_t)(atof(argv[1]) * 1e6);
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        if (!chosen(parts[i].name, argc, argv)) continue;
        rounds = 0;
        begin();
        parts[i].run();
        printf("%s %lu\n", parts[i].name, rounds);
        fflush(stdout);
        if (rounds == 0) die("a part without a round");
    }

    struct ps_poller_stats stats[2];
    ps_poller_stats(poller, &stats[0]);
    ps_poller_stats(other_poller, &stats[1]);
    if (stats[0].missed_wakeups + stats[1].missed_wakeups > 0) die("missed wake-ups");
    ps_poller_unref(poller);
    ps_poller_unref(other_poller);
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(rk);
    return 0;
}
