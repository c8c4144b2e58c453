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

/* New ones have been refused since the state changed. */
static void await_calls_in_progress(struct ps_client *client)
{
    pthread_mutex_lock(&client->lock);
    while (atomic_load(&client->calls) > 0) pthread_cond_wait(&client->calls_ended, &client->lock);
    pthread_mutex_unlock(&client->lock);
}

/* rd_kafka_flush cannot be interrupted, so it is called for a while at a time. Whoever waits for the end
 * of all this is woken by it, not by a slice. */
static bool flush_slice(struct ps_client *client, int remaining_ms)
{
    int slice_ms = remaining_ms < 0 || remaining_ms > 100 ? 100 : remaining_ms;
    return rd_kafka_flush(client->rk, slice_ms) == RD_KAFKA_RESP_ERR_NO_ERROR;
}

enum { PURGE_ALL = RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT };

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
        rd_kafka_purge(client->rk, PURGE_ALL | RD_KAFKA_PURGE_F_NON_BLOCKING);
        settled = flush_slice(client, -1);
    }
}

static void destroy(struct ps_client *client)
{
    rd_kafka_queue_cb_event_enable(client->queue, NULL, NULL); /* after this no callback runs or will run */
    ps_poller_leave(client->poller, client);
    ps_topics_destroy(&client->topics);
    rd_kafka_queue_destroy(client->queue);
    ps_tokens_end(&client->open.tokens);
    rd_kafka_destroy(client->rk);
    client->queue = NULL;
    client->rk = NULL;
}

/* When nobody asked for this closing, nobody reads its result: what was lost must be said aloud. */
static void report_losses(struct ps_close_job *closing)
{
    struct ps_close_counts counts;
    ps_client_close_counts(closing->client, &counts);
    if (!closing->reason || counts.failed + counts.purged == 0) return;

    char text[256];
    snprintf(text, sizeof(text), "%llu messages were not delivered in time: the producer was %s",
             (unsigned long long)(counts.failed + counts.purged), closing->reason);
    ps_client_log(closing->client, 3, "CLOSE", text);
}

static void close_run(struct ps_job *job)
{
    struct ps_close_job *closing = (struct ps_close_job *)job;
    struct ps_client *client = closing->client;

    pthread_mutex_lock(&client->lock); /* until whoever started this has said so in the client */
    pthread_mutex_unlock(&client->lock);

    ps_completion_wake(&client->space);
    ps_poller_insist(client->poller);
    settle_everything(client);
    ps_tokens_shut(&client->open.tokens);
    await_calls_in_progress(client); /* a metadata request may take some seconds */
    ps_transaction_close(client);
    settle_everything(client); /* what a call in progress still handed over */
    destroy(client);
    ps_poller_dismiss(client->poller);
    report_losses(closing);
    ps_registry_remove(&client->open);
    atomic_store(&client->state, PS_CLIENT_CLOSED);
    ps_bell_ring(&client->open.tokens.bell);
    ps_log_end(&client->log);
    if (client->settings.logs_to_mailbox) ps_mailbox_post(client->address, PS_MAIL_LAST, "");
    ps_events_closed(client);
}

/* The client owns a reference to its job, so the job must not own one to the client: the thread does. */
static void close_release(struct ps_job *job)
{
    free(job);
}

static void close_run_and_unref(struct ps_job *job)
{
    struct ps_client *client = ((struct ps_close_job *)job)->client;
    close_run(job);
    ps_client_unref(client);
    ps_registry_closing(-1);
}

/* With the client's lock held. */
static void start_closing(struct ps_client *client, int64_t timeout_ms, const char *reason)
{
    struct ps_close_job *closing = calloc(1, sizeof(*closing));
    if (!closing) return;
    ps_job_init(&closing->job, close_run_and_unref, close_release);
    closing->client = client;
    closing->reason = reason;
    closing->delivered = atomic_load(&client->delivered);
    closing->failed = atomic_load(&client->failed);
    closing->purged = atomic_load(&client->purged);

    atomic_store(&client->open.refusal.purging, false); /* what is purged from here on is so for being closed */
    atomic_store(&client->open.close_by_us, ps_deadline_us(timeout_ms));
    ps_client_retain(client);
    ps_registry_closing(+1);
    if (ps_job_start(&closing->job, "penstock.close") != 0) {
        ps_registry_closing(-1);
        atomic_store(&client->open.close_by_us, 0);
        ps_job_unref(&closing->job); /* no thread to be had now; the client stays open, asking again tries again */
        ps_client_unref(client);
        return;
    }
    client->close_job = closing;
    atomic_store(&client->state, PS_CLIENT_CLOSING);
}

struct ps_close_job *ps_client_close(struct ps_client *client, int64_t timeout_ms, const char *reason)
{
    pthread_mutex_lock(&client->lock);
    int state = atomic_load(&client->state);
    if (state == PS_CLIENT_NEW) {
        atomic_store(&client->state, PS_CLIENT_CLOSED);
        ps_bell_ring(&client->open.tokens.bell);
        if (client->settings.logs_to_mailbox) ps_mailbox_post(client->address, PS_MAIL_LAST, "");
    } else if (state == PS_CLIENT_OPEN) {
        start_closing(client, timeout_ms, reason);
    }
    struct ps_close_job *closing = client->close_job;
    if (closing) ps_job_retain(&closing->job);
    pthread_mutex_unlock(&client->lock);
    return closing;
}

void ps_client_hurry(struct ps_client *client, int64_t deadline_us)
{
    int64_t before = atomic_load(&client->open.close_by_us);
    while (before != 0 && deadline_us < before)
        if (atomic_compare_exchange_weak(&client->open.close_by_us, &before, deadline_us)) break;
}

/* ---- what the registry asks for ---- */

static void retain_open(struct ps_open *open)
{
    ps_client_retain((struct ps_client *)open);
}

static void unref_open(struct ps_open *open)
{
    ps_client_unref((struct ps_client *)open);
}

static struct ps_job *close_open(struct ps_open *open, const char *reason)
{
    struct ps_client *client = (struct ps_client *)open;
    struct ps_close_job *closing = ps_client_close(client, client->settings.close_timeout_ms, reason);
    return closing ? &closing->job : NULL;
}

static uint64_t pending_open(const struct ps_open *open)
{
    return ps_client_in_flight((const struct ps_client *)open);
}

static bool inherited_open(const struct ps_open *open)
{
    return ps_client_inherited((const struct ps_client *)open);
}

static int state_open(const struct ps_open *open)
{
    return atomic_load(&((const struct ps_client *)open)->state);
}

static rd_kafka_t *enter_open(struct ps_open *open)
{
    struct ps_client *client = (struct ps_client *)open;
    atomic_fetch_add(&client->calls, 1);
    int state = atomic_load(&client->state);
    if (state == PS_CLIENT_OPEN || (state == PS_CLIENT_CLOSING && !atomic_load(&open->tokens.shut))) return client->rk;
    ps_client_exit(client);
    return NULL;
}

static void leave_open(struct ps_open *open)
{
    ps_client_exit((struct ps_client *)open);
}

const struct ps_open_kind ps_client_kind = {
    .retain = retain_open,
    .unref = unref_open,
    .close = close_open,
    .pending = pending_open,
    .inherited = inherited_open,
    .state = state_open,
    .enter = enter_open,
    .leave = leave_open,
};

void ps_client_close_counts(struct ps_client *client, struct ps_close_counts *counts)
{
    struct ps_close_job *closing = client->close_job;
    *counts = (struct ps_close_counts){ .pending = ps_client_in_flight(client) };
    if (!closing) return;
    counts->delivered = atomic_load(&client->delivered) - closing->delivered;
    counts->failed = atomic_load(&client->failed) - closing->failed;
    counts->purged = atomic_load(&client->purged) - closing->purged;
}

void ps_client_abandon(struct ps_client *client)
{
    if (ps_client_inherited(client)) return;
    struct ps_close_job *closing =
        ps_client_close(client, client->settings.close_timeout_ms, "dropped without close");
    if (closing) ps_job_unref(&closing->job);
    else if (atomic_load(&client->state) == PS_CLIENT_OPEN) return; /* no thread: left to the end of the process */
    ps_client_unref(client);
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
    while (!atomic_load(&job->abandoned) && atomic_load(&client->state) == PS_CLIENT_OPEN) {
        int remaining_ms = ps_remaining_ms(flush->deadline_us);
        flush->flushed = flush_slice(client, remaining_ms);
        if (flush->flushed || remaining_ms == 0) break;
    }
    if (flush->flushed) flush->flushed = ps_client_await_verdicts(client, flush->deadline_us);
    ps_poller_dismiss(client->poller);
    ps_client_exit(client);
}

static void flush_release(struct ps_job *job)
{
    ps_client_unref(((struct ps_flush_job *)job)->client);
    free(job);
}

struct ps_flush_job *ps_client_flush(struct ps_client *client, int64_t timeout_ms)
{
    struct ps_flush_job *flush = calloc(1, sizeof(*flush));
    if (!flush) return NULL;
    ps_job_init(&flush->job, flush_run, flush_release);
    ps_client_retain(client);
    flush->client = client;
    flush->deadline_us = ps_deadline_us(timeout_ms);

    if (!ps_client_enter(client)) {
        ps_job_unref(&flush->job);
        return NULL;
    }
    if (ps_job_start(&flush->job, "penstock.flush") != 0) {
        ps_client_exit(client);
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
    rd_kafka_purge(client->rk, PURGE_ALL);
    ps_client_exit(client);
}

static void purge_release(struct ps_job *job)
{
    ps_client_unref(((struct purge_job *)job)->client);
    free(job);
}

struct ps_job *ps_client_purge(struct ps_client *client)
{
    if (!ps_client_enter(client)) return NULL;
    atomic_store(&client->open.refusal.purging, false);
    struct purge_job *purge = calloc(1, sizeof(*purge));
    if (purge) {
        ps_job_init(&purge->job, purge_run, purge_release);
        ps_client_retain(client);
        purge->client = client;
        if (ps_job_start(&purge->job, "penstock.purge") == 0) return &purge->job;
        ps_job_unref(&purge->job);
    }
    rd_kafka_purge(client->rk, PURGE_ALL | RD_KAFKA_PURGE_F_NON_BLOCKING);
    ps_client_exit(client);
    return NULL;
}
