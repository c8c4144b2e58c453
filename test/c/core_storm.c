/*
 * The native core alone, without Ruby: clients come and go on one poller while threads produce, flush, ask for
 * metadata and wait. Built with sanitizers and run by test/core_test.rb.
 *
 *   core_storm MAX_TIME_US CLIENTS THREADS SECONDS CHURN
 *
 * MAX_TIME_US 0 cuts every drain after one event, which puts a client on the poller's run list and its stack in every
 * order. CHURN 1 closes and makes clients all the time, borrows them and flushes. Prints "batches N missed N", or says what got stuck.
 */
#include "core.h"
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_US = 10 * 1000 * 1000 };

static char bootstraps[512];
static struct ps_client_settings settings = { .sweep_us = 1000 * 1000, .close_timeout_ms = 5000, .sticky_ms = 10 };
static struct ps_poller *poller;
static _Atomic bool stop;
static _Atomic long batches;
static bool churn;

static void die(const char *what)
{
    struct ps_poller_stats stats;
    ps_poller_stats(poller, &stats);
    printf("STUCK: %s; drains %llu, sweeps %llu, missed %llu\n", what, (unsigned long long)stats.drains,
           (unsigned long long)stats.sweeps, (unsigned long long)stats.missed_wakeups);
    fflush(stdout);
    _exit(1);
}

static void wait_for(struct ps_completion *completion, const char *what)
{
    struct ps_waiter waiter = { 0 }; /* no fiber's */
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    while (ps_waiter_join(&waiter, completion, NULL)) {
        uint32_t state = ps_waiter_sleep(&waiter, deadline_us);
        ps_waiter_leave(&waiter, completion);
        if (state == PS_DONE) return;
        if (ps_now_us() >= deadline_us) die(what);
    }
}

static rd_kafka_conf_t *quiet_conf(void)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "log_level", "0", NULL, 0);
    return conf;
}

static struct ps_client *open_client(void)
{
    char errstr[256];
    rd_kafka_conf_t *conf = quiet_conf();
    rd_kafka_conf_set(conf, "bootstrap.servers", bootstraps, NULL, 0);
    rd_kafka_conf_set(conf, "linger.ms", "0", NULL, 0);
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR);
    struct ps_client *client = ps_client_new(conf, "storm", poller, &settings);
    if (ps_client_open(client, errstr, sizeof(errstr)) < 0) die(errstr);
    return client;
}

static void close_client(struct ps_client *client)
{
    struct ps_close_job *closing = ps_client_close(client, 5000, NULL);
    wait_for(&closing->job.completion, "a close");
    ps_job_unref(&closing->job);
    if (ps_client_in_flight(client)) die("a message of a closed client");
    ps_client_unref(client);
}

static bool produce_one(struct ps_client *client, struct ps_topic *topic, struct ps_delivery *delivery)
{
    rd_kafka_vu_t arguments[] = {
        { .vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = topic->rkt },
        { .vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY },
        { .vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = delivery },
        { .vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = { "x", 1 } },
    };
    rd_kafka_error_t *error = rd_kafka_produceva(client->rk, arguments, 4);
    if (error) rd_kafka_error_destroy(error);
    return !error;
}

static void produce(struct ps_client *client, uint32_t size, bool borrow)
{
    struct ps_batch *batch = ps_batch_new(client, size);
    uint32_t sent = 0;
    if (ps_client_enter(client)) {
        struct ps_topic *topic = ps_client_topic(client, "storm", 5);
        bool serving = borrow && ps_poller_borrow(client);
        atomic_fetch_add(&client->accepted, size);
        for (; sent < size && produce_one(client, topic, &batch->deliveries[sent]); sent++)
            if (serving && sent % 4 == 3) ps_poller_serve(client);
        atomic_fetch_sub(&client->accepted, size - sent);
        if (serving) ps_poller_hand_back(client);
        ps_client_exit(client);
    }
    ps_batch_never_sent(batch, sent, RD_KAFKA_RESP_ERR__CONFLICT);
    wait_for(&batch->completion, "a batch");
    ps_batch_unref(batch);
    batches++;
}

static void flush(struct ps_client *client)
{
    struct ps_flush_job *flush = ps_client_flush(client, 1000);
    if (!flush) return;
    wait_for(&flush->job.completion, "a flush");
    ps_job_abandon(&flush->job);
}

static void *storm(void *shared)
{
    unsigned seed = (unsigned)(uintptr_t)&seed;
    while (!stop) {
        struct ps_client *client = churn && rand_r(&seed) % 8 == 0 ? open_client() : shared;
        produce(client, 1 + rand_r(&seed) % 16, churn && rand_r(&seed) % 2);
        if (churn && rand_r(&seed) % 16 == 0) flush(client);
        if (client == shared) continue;
        if (rand_r(&seed) % 2) close_client(client);
        else ps_client_abandon(client);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 6) return 2;
    settings.max_time_us = atol(argv[1]);
    int client_count = atoi(argv[2]), thread_count = atoi(argv[3]);
    churn = atoi(argv[5]);
    ps_generation_init();
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, quiet_conf(), NULL, 0);
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(rk, 1);
    snprintf(bootstraps, sizeof(bootstraps), "%s", rd_kafka_mock_cluster_bootstraps(cluster));

    poller = ps_poller_new(0, false);
    struct ps_client *clients[64];
    pthread_t threads[256];
    for (int i = 0; i < client_count; i++) clients[i] = open_client();
    for (int i = 0; i < thread_count; i++) pthread_create(&threads[i], NULL, storm, clients[i % client_count]);
    sleep(atoi(argv[4]));
    stop = true;
    for (int i = 0; i < thread_count; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < client_count; i++) close_client(clients[i]);
    for (int64_t deadline_us = ps_now_us() + PATIENCE_US; ps_registry_count() > 0; usleep(1000))
        if (ps_now_us() > deadline_us) die("the abandoned clients");

    struct ps_poller_stats stats;
    ps_poller_stats(poller, &stats);
    printf("batches %ld missed %llu clients %llu\n", batches, (unsigned long long)stats.missed_wakeups,
           (unsigned long long)stats.clients);
    ps_poller_unref(poller);
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(rk);
    return 0;
}
