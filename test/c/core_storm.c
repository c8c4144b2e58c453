/*
 * The native core without Ruby: clients open and close on one poller while threads produce, flush, request metadata and wait.
 * Built with sanitizers and run by test/proofs/core_test.rb.
 *
 *   core_storm MAX_TIME_US CLIENTS THREADS SECONDS CHURN LISTENED
 *
 * MAX_TIME_US 0 ends every drain after one event, so clients enter the poller's run list and its stack in every order. CHURN 1
 * opens and closes clients all the time, borrows them and flushes. LISTENED 1 gives the clients event queues. Fast, slow and
 * interrupted threads publish their events, and every event and label must be published once. Every second wait is a fiber's.
 * Threads that wait for a batch watch their client, or flush for it if all flushers are busy. Prints "batches N missed N", or
 * what got stuck.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_tryjoin_np */
#endif
#include "consume/consume.h"
#include "produce/produce.h"
#include <librdkafka/rdkafka_mock.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_US = 10 * 1000 * 1000 };

static char bootstraps[512];
static struct ps_producer_settings settings = {
    .sweep_us = 1000 * 1000, .client.close_timeout_ms = 5000, .sticky_ms = 10, .linger_us = 5000,
};
static struct ps_poller *poller;
static _Atomic bool stop;
static _Atomic long batches;
static bool churn;
static _Thread_local struct ps_fibers *fibers; /* each thread acts as if it had a scheduler */
static _Thread_local unsigned waits;

static void die(const char *what)
{
    struct ps_poller_stats stats;
    ps_poller_stats(poller, &stats);
    printf("STUCK: %s; drains %llu, sweeps %llu, missed %llu\n", what, (unsigned long long)stats.drains,
           (unsigned long long)stats.sweeps, (unsigned long long)stats.missed_wakeups);
    fflush(stdout);
    _exit(1);
}

/* Waits as a thread, and watches the client meanwhile, if there is one. */
static void wait_for(struct ps_producer *producer, struct ps_completion *completion, const char *what)
{
    struct ps_waiter waiter = { 0 }; /* a thread's, not a fiber's */
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    for (bool done = false; !done;) {
        bool watching = producer && ps_watch_begin(&producer->polled, &waiter), joined = ps_waiter_join(&waiter, completion, NULL);
        if (joined && watching) ps_watch_sleep(&producer->polled, &waiter, deadline_us);
        else if (joined) ps_waiter_sleep(&waiter, deadline_us);
        if (watching) ps_watch_end(&producer->polled);
        if (joined) ps_waiter_leave(&waiter, completion);
        done = !joined || atomic_load(&waiter.state) == PS_DONE;
        if (!done && ps_now_us() >= deadline_us) die(what);
    }
}

/* Waits like fiber_wait.c. Sometimes it stops waiting and joins again, while its waiter may be on the stack of woken fibers. */
static void wait_as_fiber(struct ps_completion *completion, const char *what)
{
    if (!fibers) fibers = ps_fibers_new();
    struct ps_waiter *waiter = ps_fibers_waiter(fibers, sizeof(*waiter)), *woken;
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    bool done = false;
    while (!done && ps_waiter_join(waiter, completion, NULL)) {
        int64_t until_us = ps_now_us() + waits % 7 * 1000;
        while (atomic_load(&waiter->state) == PS_WAITING && (waits % 3 || ps_now_us() < until_us)) {
            struct pollfd readable = { .fd = fibers->wakeup.reader, .events = POLLIN };
            poll(&readable, 1, waits % 3 ? ps_remaining_ms(deadline_us) : 1);
            for (struct ps_waiter *next = ps_fibers_take(fibers); (woken = next);) {
                next = woken->woken_next;
                atomic_store(&woken->woken, false);
                ps_waiter_unref(woken);
            }
            if (ps_now_us() >= deadline_us) die(what);
        }
        ps_waiter_leave(waiter, completion);
        done = atomic_load(&waiter->state) == PS_DONE;
    }
    ps_waiter_unref(waiter);
}

static void wait_either_way(struct ps_producer *producer, struct ps_completion *completion, const char *what)
{
    if (waits++ % 2) wait_as_fiber(completion, what);
    else wait_for(producer, completion, what);
}

static void wait_for_results(struct ps_batch *batch)
{
    struct ps_lead lead = { .batch = batch, .deadline_us = PS_FOREVER };
    if (ps_flusher_await(batch, waits % 2 == 0)) {
        ps_flusher_lead(&lead);
        ps_flusher_lead_end(&lead);
    }
    wait_either_way(batch->producer, &batch->completion, "a batch");
}

/* ---- listeners ---- */

enum { QUEUES = 3, DISPATCHERS = 4, TURN = 16 };

static struct {
    struct ps_events *events;
    _Atomic bool served;
    _Atomic unsigned turns;
} queues[QUEUES];
static struct ps_dispatcher dispatchers_of_events[DISPATCHERS];
static _Atomic bool listened, quiet, all_published;
static _Atomic unsigned long published, labels_given;

static void publish_some(struct ps_events *events)
{
    struct ps_event *event;
    for (int i = 0; i < TURN && (event = ps_events_take(events)); i++) {
        if (event->label && !ps_events_take_label(events, event->label)) die("a label that was released twice");
        published++;
        ps_event_free(events, event);
    }
}

static int queue_of(const struct ps_events *events)
{
    int i = 0;
    while (i < QUEUES && queues[i].events != events) i++;
    if (i == QUEUES) die("an unknown queue");
    return i;
}

/* Only the first dispatcher waits with a deadline, so a missing notification makes the others sleep for ever. While `quiet` is
 * set, the first dispatcher leaves, so that it cannot hide this. A turn ends with the call for the next turn, or earlier. Then
 * the dispatcher may pause. */
static void *dispatch(void *slot)
{
    struct ps_dispatcher *dispatcher = slot;
    bool first = dispatcher == dispatchers_of_events;
    unsigned seed = (unsigned)(dispatcher - dispatchers_of_events) + 1;
    while (!atomic_load(&all_published)) {
        if (first && quiet) ps_dispatcher_end(dispatcher, false);
        while (first && quiet && !all_published) usleep(100);
        bool found = ps_dispatcher_next(dispatcher, first ? ps_now_us() + rand_r(&seed) % 4000 : PS_FOREVER);
        struct ps_events *events = atomic_load(&dispatcher->events);
        if (found != (events != NULL)) die("a turn without events, or events without a turn");
        if (!found) {
            if (rand_r(&seed) % 4 == 0) usleep(rand_r(&seed) % 5000);
            continue;
        }
        int queue = queue_of(events);
        if (atomic_exchange(&queues[queue].served, true)) die("a queue that two dispatchers serve");
        queues[queue].turns++;
        if (rand_r(&seed) % 50 == 0) usleep(rand_r(&seed) % 8000); /* as if another thread had the GVL */
        ps_dispatcher_run(dispatcher);
        if (rand_r(&seed) % 50 == 0) usleep(rand_r(&seed) % 8000);
        publish_some(events);
        atomic_store(&queues[queue].served, false);
        if (rand_r(&seed) % 8 == 0) ps_dispatcher_end(dispatcher, rand_r(&seed) % 2);
        if (first && rand_r(&seed) % 8 == 0) usleep(rand_r(&seed) % 5000);
    }
    ps_dispatcher_end(dispatcher, false);
    return NULL;
}

static bool is_waiting(int queue, unsigned turns)
{
    return queues[queue].turns == turns && !queues[queue].served && ps_dispatch_busy(queues[queue].events);
}

/* While nothing else wakes the dispatchers, each queue with events must get a turn. */
static void watch(void)
{
    quiet = true;
    for (int i = 0; i < QUEUES; i++) {
        int64_t deadline_us = ps_now_us() + PATIENCE_US;
        for (unsigned turns = queues[i].turns; is_waiting(i, turns); usleep(500))
            if (ps_now_us() > deadline_us) die("a queue that no dispatcher serves");
    }
    quiet = false;
}

static void *disturb(void *unused)
{
    unsigned seed = 1;
    (void)unused;
    while (!stop) {
        for (int i = 0; i < 10; i++) {
            usleep(rand_r(&seed) % 3000);
            ps_dispatcher_interrupt(&dispatchers_of_events[rand_r(&seed) % DISPATCHERS]);
        }
        watch();
    }
    quiet = true;
    return NULL;
}

static void listen_to(void)
{
    for (int i = 0; i < QUEUES; i++) {
        queues[i].events = ps_events_new(i == 0 ? 50 : 1000000, i == 1, ps_delivery_release);
        atomic_store(&queues[i].events->wanted, i == 2 ? PS_EVENT_FAILED : PS_EVENT_DELIVERED | PS_EVENT_FAILED | PS_EVENT_ERROR);
        atomic_store(&queues[i].events->attached, i != 1);
    }
    listened = true;
}

/* Called before the dispatchers are interrupted: a dispatcher that missed an event would now sleep for ever. */
static void await_published(void)
{
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    for (int i = 0; i < QUEUES; i++)
        for (; ps_dispatch_busy(queues[i].events); usleep(1000))
            if (ps_now_us() > deadline_us) die("an event");
    atomic_store(&all_published, true);
}

static void stop_listening(pthread_t *dispatchers)
{
    unsigned long queued = 0, dropped = 0;
    for (int i = 0; i < DISPATCHERS; i++) {
        int64_t deadline_us = ps_now_us() + PATIENCE_US;
        while (pthread_tryjoin_np(dispatchers[i], NULL) != 0) {
            ps_dispatcher_interrupt(&dispatchers_of_events[i]);
            usleep(1000);
            if (ps_now_us() > deadline_us) die("a dispatcher");
        }
    }
    for (int i = 0; i < QUEUES; i++) {
        queued += atomic_load(&queues[i].events->queued);
        dropped += atomic_load(&queues[i].events->dropped);
        ps_events_take_label(queues[i].events, ps_events_keep_label(queues[i].events, 1)); /* frees released labels */
        if (ps_events_labels(queues[i].events) != 0) die("labels that were released twice, or never");
        ps_events_unref(queues[i].events);
    }
    if (queued != published + dropped || queued == 0) die("events that were published twice, or never");
    if (labels_given == 0) die("no message had a label");
}

/* ---- clients ---- */

static rd_kafka_conf_t *quiet_conf(void)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "log_level", "0", NULL, 0);
    return conf;
}

static struct ps_producer *open_client(void)
{
    char errstr[256];
    rd_kafka_conf_t *conf = quiet_conf();
    rd_kafka_conf_set(conf, "bootstrap.servers", bootstraps, NULL, 0);
    rd_kafka_conf_set(conf, "linger.ms", "0", NULL, 0);
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR);
    struct ps_producer *producer = ps_producer_new(conf, "storm", poller, &settings);
    static _Atomic unsigned opened;
    if (listened) ps_producer_set_events(producer, queues[opened++ % QUEUES].events);
    if (ps_client_open(&producer->client, errstr, sizeof(errstr)) < 0) die(errstr);
    return producer;
}

static void close_client(struct ps_producer *producer)
{
    struct ps_job *closing = ps_client_close(&producer->client, 5000, NULL);
    wait_either_way(NULL, &closing->completion, "a close");
    ps_job_unref(closing);
    if (ps_producer_in_flight(producer)) die("a message of a closed client");
    ps_client_unref(&producer->client);
}

static bool produce_one(struct ps_producer *producer, struct ps_topic *topic, struct ps_delivery *delivery)
{
    rd_kafka_vu_t arguments[] = {
        { .vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = topic->rkt },
        { .vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY },
        { .vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = delivery },
        { .vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = { "x", 1 } },
    };
    rd_kafka_error_t *error = rd_kafka_produceva(producer->client.rk, arguments, 4);
    if (error) rd_kafka_error_destroy(error);
    return !error;
}

static void produce(struct ps_producer *producer, uint32_t size, bool borrow)
{
    struct ps_batch *batch = ps_batch_new(producer, size);
    uint32_t sent = 0;
    for (uint32_t i = 0; listened && i < size; i += 3)
        ps_batch_delivery(batch, i)->event.label = ps_events_keep_label(producer->events, ++labels_given);
    if (ps_client_enter(&producer->client)) {
        struct ps_topic *topic = ps_producer_topic(producer, "storm", 5);
        bool serving = borrow && ps_poller_borrow(&producer->polled);
        atomic_fetch_add(&producer->accepted, size);
        for (; sent < size && produce_one(producer, topic, ps_batch_delivery(batch, sent)); sent++)
            if (serving && sent % 4 == 3) ps_poller_serve(&producer->polled, NULL, PS_FOREVER);
        atomic_fetch_sub(&producer->accepted, size - sent);
        if (serving) ps_poller_hand_back(&producer->polled);
        ps_client_exit(&producer->client);
    }
    ps_batch_never_sent(batch, sent, RD_KAFKA_RESP_ERR__CONFLICT);
    wait_for_results(batch);
    ps_batch_release(batch);
    batches++;
}

static void flush(struct ps_producer *producer)
{
    struct ps_flush_job *flush = ps_producer_flush(producer, 1000);
    if (!flush) return;
    wait_either_way(NULL, &flush->job.completion, "a flush");
    ps_job_abandon(&flush->job);
}

static void *storm(void *shared)
{
    unsigned seed = (unsigned)(uintptr_t)&seed;
    while (!stop) {
        struct ps_producer *producer = churn && rand_r(&seed) % 8 == 0 ? open_client() : shared;
        produce(producer, rand_r(&seed) % 64 ? 1 + rand_r(&seed) % 16 : 2 * PS_CHUNK + 3, churn && rand_r(&seed) % 2);
        if (churn && rand_r(&seed) % 16 == 0) flush(producer);
        if (producer == shared) continue;
        if (rand_r(&seed) % 2) close_client(producer);
        else ps_client_abandon(&producer->client);
    }
    if (fibers) ps_fibers_forget(fibers);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 7) return 2;
    settings.max_time_us = atol(argv[1]);
    int client_count = atoi(argv[2]), thread_count = atoi(argv[3]);
    churn = atoi(argv[5]);
    ps_fork_init();
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, quiet_conf(), NULL, 0);
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(rk, 1);
    snprintf(bootstraps, sizeof(bootstraps), "%s", rd_kafka_mock_cluster_bootstraps(cluster));

    poller = ps_poller_new(0);
    struct ps_producer *clients[64];
    pthread_t threads[256], dispatchers[DISPATCHERS], disturber;
    if (atoi(argv[6])) {
        listen_to();
        for (int i = 0; i < DISPATCHERS; i++) pthread_create(&dispatchers[i], NULL, dispatch, &dispatchers_of_events[i]);
        pthread_create(&disturber, NULL, disturb, NULL);
    }
    for (int i = 0; i < client_count; i++) clients[i] = open_client();
    for (int i = 0; i < thread_count; i++) pthread_create(&threads[i], NULL, storm, clients[i % client_count]);
    sleep(atoi(argv[4]));
    stop = true;
    for (int i = 0; i < thread_count; i++) pthread_join(threads[i], NULL);
    if (listened) pthread_join(disturber, NULL);
    for (int i = 0; i < client_count; i++) close_client(clients[i]);
    for (int64_t deadline_us = ps_now_us() + PATIENCE_US; ps_registry_count() > 0; usleep(1000))
        if (ps_now_us() > deadline_us) die("abandoned clients that are not closed");
    while (ps_registry_closing_count() > 0) usleep(1000); /* their close is an event too */
    if (listened) {
        await_published();
        stop_listening(dispatchers);
    }
    if (fibers) ps_fibers_forget(fibers);

    struct ps_poller_stats stats;
    ps_poller_stats(poller, &stats);
    printf("batches %ld missed %llu clients %llu\n", batches, (unsigned long long)stats.missed_wakeups,
           (unsigned long long)stats.clients);
    ps_poller_unref(poller);
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(rk);
    return 0;
}
