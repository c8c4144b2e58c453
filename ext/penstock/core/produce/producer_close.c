/*
 * Closing: raise on new calls, flush, purge the rest, leave the poller, destroy. It runs once per client, on its own native
 * thread. All callers of close wait for that job; an interrupted caller leaves it running.
 *
 * A client is destroyed only when every accepted message has its delivery result. librdkafka drops the reports of a client
 * that is destroyed earlier, and a waiter would sleep for ever.
 */
#include "produce/produce.h"
#include <stdio.h>
#include <stdlib.h>

/* rd_kafka_flush cannot be interrupted, so it is called in slices. The end of the job wakes the waiting callers, not the
 * end of a slice. */
static bool flush_slice(struct ps_producer *producer, int remaining_ms)
{
    int slice_ms = remaining_ms < 0 || remaining_ms > 100 ? 100 : remaining_ms;
    return rd_kafka_flush(producer->client.rk, slice_ms) == RD_KAFKA_RESP_ERR_NO_ERROR;
}

static void settle_everything(struct ps_producer *producer)
{
    int remaining_ms;
    bool settled;
    do {
        remaining_ms = ps_remaining_ms(atomic_load(&producer->client.close_by_us)); /* ps_client_hurry may shorten it */
        settled = flush_slice(producer, remaining_ms);
    } while (!settled && remaining_ms != 0);

    while (!settled) {
        /* Not blocking: a broker thread may be inside a slow name lookup. The flush waits for the reports. */
        rd_kafka_purge(producer->client.rk, PS_PURGE_ALL | RD_KAFKA_PURGE_F_NON_BLOCKING);
        settled = flush_slice(producer, -1);
    }
}

/* Afterwards every message has its delivery result. */
static void leave_poller(struct ps_producer *producer)
{
    /* Before the callback is disabled: otherwise the sweep could count the remaining events as missed. */
    atomic_store(&producer->polled.callback_disabled, true);
    rd_kafka_queue_cb_event_enable(producer->polled.queue, NULL, NULL); /* after this no callback runs or will run */
    ps_poller_leave(producer->polled.poller, &producer->polled);
}

static void producer_destroy(struct ps_producer *producer)
{
    ps_topics_destroy(&producer->topics);
    rd_kafka_queue_destroy(producer->polled.queue);
    ps_tokens_end(&producer->client.tokens);
    rd_kafka_destroy(producer->client.rk);
    producer->polled.queue = NULL;
    producer->client.rk = NULL;
}

/* A closing that no caller requested has no caller that reads its result, so losses go to the log. */
static void report_losses(struct ps_producer *producer)
{
    struct ps_close_counts counts;
    ps_producer_close_counts(producer, &counts);
    const char *reason = atomic_load(&producer->client.closed_because);
    if (!reason || counts.failed + counts.purged == 0) return;

    char text[256];
    unsigned long long lost = counts.failed + counts.purged;
    snprintf(text, sizeof(text), "%llu message%s not delivered in time: the producer was %s", lost,
             lost == 1 ? " was" : "s were", reason);
    ps_client_log(&producer->client, 3, "CLOSE", text);
}

void ps_producer_closing(struct ps_client *client)
{
    struct ps_producer *producer = (struct ps_producer *)client;
    producer->before_close = (struct ps_close_counts){
        .delivered = atomic_load(&producer->delivered),
        .failed = atomic_load(&producer->failed),
        .purged = atomic_load(&producer->purged),
    };
    ps_rejection_purges(&client->rejection, PS_NOT_REJECTED); /* messages purged from here on are purged because of closing */
}

void ps_producer_close(struct ps_client *client)
{
    struct ps_producer *producer = (struct ps_producer *)client;
    ps_space_freed(&producer->space, UINT32_MAX); /* waiting calls find the client closed */
    ps_flusher_end(producer); /* M:flusher_ends */
    settle_everything(producer);
    ps_tokens_shut(&client->tokens);
    ps_client_await_calls(client); /* a metadata request may take some seconds */
    ps_client_await_long_calls(client);
    ps_transaction_close(producer);
    settle_everything(producer); /* messages that a call in progress still handed over */
    leave_poller(producer);
    ps_unnoticed_log(producer);
    report_losses(producer); /* before the client is destroyed, which lasts as long as the lookup of a name that hangs */
    producer_destroy(producer);
}

void ps_producer_closed(struct ps_client *client)
{
    ps_events_closed(((struct ps_producer *)client)->events, client);
}

void ps_producer_close_counts(struct ps_producer *producer, struct ps_close_counts *counts)
{
    *counts = (struct ps_close_counts){ .pending = ps_producer_in_flight(producer), .unnoticed = ps_unnoticed_count(producer) };
    if (!producer->client.close_job) return;
    counts->delivered = atomic_load(&producer->delivered) - producer->before_close.delivered;
    counts->failed = atomic_load(&producer->failed) - producer->before_close.failed;
    counts->purged = atomic_load(&producer->purged) - producer->before_close.purged;
}

/* ---- flush ---- */

/* Ends early when the caller has stopped waiting, and when the client is closed. */
static void flush_run(struct ps_job *job)
{
    struct ps_flush_job *flush = (struct ps_flush_job *)job;
    struct ps_producer *producer = flush->producer;

    while (!atomic_load(&job->abandoned) && atomic_load(&producer->client.state) == PS_OPEN) {
        int remaining_ms = ps_remaining_ms(flush->deadline_us);
        flush->flushed = flush_slice(producer, remaining_ms);
        if (flush->flushed || remaining_ms == 0) break;
    }
    if (flush->flushed) flush->flushed = ps_poller_await_served(&producer->polled, flush->deadline_us);
    ps_client_exit(&producer->client);
}

static void flush_release(struct ps_job *job)
{
    ps_client_unref(&((struct ps_flush_job *)job)->producer->client);
    free(job);
}

struct ps_flush_job *ps_producer_flush(struct ps_producer *producer, int64_t timeout_ms)
{
    struct ps_flush_job *flush = calloc(1, sizeof(*flush));
    if (!flush) return NULL;
    ps_job_init(&flush->job, flush_run, flush_release);
    ps_client_retain(&producer->client);
    flush->producer = producer;
    flush->deadline_us = ps_deadline_us(timeout_ms);

    if (!ps_client_enter(&producer->client)) {
        ps_job_unref(&flush->job);
        return NULL;
    }
    if (ps_job_start(&flush->job, "penstock.flush") != 0) {
        ps_client_exit(&producer->client);
        ps_job_unref(&flush->job);
        return NULL;
    }
    return flush;
}

/* ---- purge ---- */

struct purge_job {
    struct ps_job job;
    struct ps_producer *producer;
};

/* librdkafka asks each broker's thread to purge its messages, and waits for it. Without waiting, a late thread would also
 * purge messages produced in between. */
static void purge_run(struct ps_job *job)
{
    struct ps_producer *producer = ((struct purge_job *)job)->producer;
    rd_kafka_purge(producer->client.rk, PS_PURGE_ALL);
    ps_client_exit(&producer->client);
}

static void purge_release(struct ps_job *job)
{
    ps_client_unref(&((struct purge_job *)job)->producer->client);
    free(job);
}

struct ps_job *ps_producer_purge(struct ps_producer *producer)
{
    if (!ps_client_enter(&producer->client)) return NULL;
    ps_rejection_purges(&producer->client.rejection, PS_NOT_REJECTED);
    struct purge_job *purge = calloc(1, sizeof(*purge));
    if (purge) {
        ps_job_init(&purge->job, purge_run, purge_release);
        ps_client_retain(&producer->client);
        purge->producer = producer;
        if (ps_job_start(&purge->job, "penstock.purge") == 0) return &purge->job;
        ps_job_unref(&purge->job);
    }
    rd_kafka_purge(producer->client.rk, PS_PURGE_ALL | RD_KAFKA_PURGE_F_NON_BLOCKING);
    ps_client_exit(&producer->client);
    return NULL;
}
