/*
 * Closing: refuse new work, flush, purge what is left, leave the poller, destroy. It runs on a native
 * thread of its own, once per client, whoever asks; askers wait for that job, and an asker that is
 * interrupted leaves it running.
 *
 * A client is destroyed only when every accepted message has its verdict: librdkafka drops the
 * reports of a client that is destroyed earlier, and a waiter would sleep for ever.
 */
#include "core.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* rd_kafka_flush cannot be interrupted, so it is called for a while at a time. Whoever waits for the end
 * of all this is woken by it, not by a slice. */
static bool flush_slice(struct ps_client *client, int remaining_ms)
{
    int slice_ms = remaining_ms < 0 || remaining_ms > 100 ? 100 : remaining_ms;
    return rd_kafka_flush(client->open.rk, slice_ms) == RD_KAFKA_RESP_ERR_NO_ERROR;
}

static void settle_everything(struct ps_client *client)
{
    int remaining_ms;
    bool settled;
    do {
        remaining_ms = ps_remaining_ms(atomic_load(&client->open.close_by_us)); /* may be brought forward meanwhile */
        settled = flush_slice(client, remaining_ms);
    } while (!settled && remaining_ms != 0);

    while (!settled) {
        /* Not blocking: a broker thread may be inside a slow name lookup. The flush waits for the reports. */
        rd_kafka_purge(client->open.rk, PS_PURGE_ALL | RD_KAFKA_PURGE_F_NON_BLOCKING);
        settled = flush_slice(client, -1);
    }
}

static void destroy(struct ps_client *client)
{
    atomic_store(&client->deaf, true); /* before: the sweep is not to wonder */
    rd_kafka_queue_cb_event_enable(client->queue, NULL, NULL); /* after this no callback runs or will run */
    ps_poller_leave(client->poller, client);
    ps_topics_destroy(&client->topics);
    rd_kafka_queue_destroy(client->queue);
    ps_tokens_end(&client->open.tokens);
    rd_kafka_destroy(client->open.rk);
    client->queue = NULL;
    client->open.rk = NULL;
}

/* When nobody asked for this closing, nobody reads its result: what was lost must be said aloud. */
static void report_losses(struct ps_client *client)
{
    struct ps_close_counts counts;
    ps_client_close_counts(client, &counts);
    const char *reason = atomic_load(&client->open.closed_because);
    if (!reason || counts.failed + counts.purged == 0) return;

    char text[256];
    unsigned long long lost = counts.failed + counts.purged;
    snprintf(text, sizeof(text), "%llu message%s not delivered in time: the producer was %s", lost,
             lost == 1 ? " was" : "s were", reason);
    ps_open_log(&client->open, 3, "CLOSE", text);
}

void ps_client_closing(struct ps_open *open)
{
    struct ps_client *client = (struct ps_client *)open;
    client->before_close = (struct ps_close_counts){
        .delivered = atomic_load(&client->delivered),
        .failed = atomic_load(&client->failed),
        .purged = atomic_load(&client->purged),
    };
    ps_refusal_purges(&open->refusal, PS_NOT_REFUSED); /* what is purged from here on is so for being closed */
}

void ps_client_close(struct ps_open *open)
{
    struct ps_client *client = (struct ps_client *)open;
    ps_completion_wake(&client->space);
    ps_poller_insist(client->poller);
    settle_everything(client);
    ps_tokens_shut(&open->tokens);
    ps_open_await_calls(open); /* a metadata request may take some seconds */
    ps_open_await_long_calls(open);
    ps_transaction_close(client);
    settle_everything(client); /* what a call in progress still handed over */
    destroy(client);
    ps_poller_dismiss(client->poller);
    ps_unnoticed_log(client);
    report_losses(client);
}

void ps_client_closed(struct ps_open *open)
{
    ps_events_closed((struct ps_client *)open);
}

void ps_client_close_counts(struct ps_client *client, struct ps_close_counts *counts)
{
    *counts = (struct ps_close_counts){ .pending = ps_client_in_flight(client), .unnoticed = ps_unnoticed_count(client) };
    if (!client->open.close_job) return;
    counts->delivered = atomic_load(&client->delivered) - client->before_close.delivered;
    counts->failed = atomic_load(&client->failed) - client->before_close.failed;
    counts->purged = atomic_load(&client->purged) - client->before_close.purged;
}

/* ---- flush ---- */

/* When librdkafka has let go of the messages: once we can serve the client, nobody is still settling them. */
bool ps_client_await_verdicts(struct ps_client *client, int64_t deadline_us)
{
    while (!ps_poller_borrow(client)) {
        if (ps_remaining_ms(deadline_us) == 0) return false;
        usleep(100);
    }
    ps_poller_hand_back(client);
    return true;
}

/* Ends early when the asker has gone, and when the client is closed. */
static void flush_run(struct ps_job *job)
{
    struct ps_flush_job *flush = (struct ps_flush_job *)job;
    struct ps_client *client = flush->client;

    ps_poller_insist(client->poller);
    while (!atomic_load(&job->abandoned) && atomic_load(&client->open.state) == PS_OPEN) {
        int remaining_ms = ps_remaining_ms(flush->deadline_us);
        flush->flushed = flush_slice(client, remaining_ms);
        if (flush->flushed || remaining_ms == 0) break;
    }
    if (flush->flushed) flush->flushed = ps_client_await_verdicts(client, flush->deadline_us);
    ps_poller_dismiss(client->poller);
    ps_open_exit(&client->open);
}

static void flush_release(struct ps_job *job)
{
    ps_open_unref(&((struct ps_flush_job *)job)->client->open);
    free(job);
}

struct ps_flush_job *ps_client_flush(struct ps_client *client, int64_t timeout_ms)
{
    struct ps_flush_job *flush = calloc(1, sizeof(*flush));
    if (!flush) return NULL;
    ps_job_init(&flush->job, flush_run, flush_release);
    ps_open_retain(&client->open);
    flush->client = client;
    flush->deadline_us = ps_deadline_us(timeout_ms);

    if (!ps_open_enter(&client->open)) {
        ps_job_unref(&flush->job);
        return NULL;
    }
    if (ps_job_start(&flush->job, "penstock.flush") != 0) {
        ps_open_exit(&client->open);
        ps_job_unref(&flush->job);
        return NULL;
    }
    return flush;
}

/* ---- purge ---- */

struct purge_job {
    struct ps_job job;
    struct ps_client *client;
};

/* librdkafka asks each broker's thread to purge what that one has, and waits for it. A thread that came to it only later
 * would also purge what was produced in between. */
static void purge_run(struct ps_job *job)
{
    struct ps_client *client = ((struct purge_job *)job)->client;
    rd_kafka_purge(client->open.rk, PS_PURGE_ALL);
    ps_open_exit(&client->open);
}

static void purge_release(struct ps_job *job)
{
    ps_open_unref(&((struct purge_job *)job)->client->open);
    free(job);
}

struct ps_job *ps_client_purge(struct ps_client *client)
{
    if (!ps_open_enter(&client->open)) return NULL;
    ps_refusal_purges(&client->open.refusal, PS_NOT_REFUSED);
    struct purge_job *purge = calloc(1, sizeof(*purge));
    if (purge) {
        ps_job_init(&purge->job, purge_run, purge_release);
        ps_open_retain(&client->open);
        purge->client = client;
        if (ps_job_start(&purge->job, "penstock.purge") == 0) return &purge->job;
        ps_job_unref(&purge->job);
    }
    rd_kafka_purge(client->open.rk, PS_PURGE_ALL | RD_KAFKA_PURGE_F_NON_BLOCKING);
    ps_open_exit(&client->open);
    return NULL;
}
