/*
 * The producing rd_kafka_t: how it is configured and opened (open.c), and what is counted of it. Owned by the Ruby object
 * and by each batch. Any thread, except where core.h says otherwise. How it ends: close.c.
 */
#include "core.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ps_client *ps_client_new(rd_kafka_conf_t *conf, const char *name, struct ps_poller *poller,
                                const struct ps_client_settings *settings)
{
    struct ps_client *client = aligned_alloc(_Alignof(struct ps_client), sizeof(*client));
    if (!client) return NULL;
    memset(client, 0, sizeof(*client));
    client->settings = *settings;
    ps_open_init(&client->open, &ps_client_kind, conf, name, &client->settings.open);
    ps_completion_init(&client->space, &client->open.lock, 1);
    client->space.client = client;
    client->unnoticed.line = 1;
    pthread_mutex_init(&client->topics.lock, NULL);
    ps_transactions_init(&client->transactions);
    client->poller = poller;
    ps_poller_retain(poller);
    return client;
}

static void client_dispose(struct ps_open *open)
{
    struct ps_client *client = (struct ps_client *)open;
    ps_poller_unref(client->poller);
    ps_events_unref(client->events);
    ps_completion_drop(&client->space);
    ps_transactions_destroy(&client->transactions);
    pthread_mutex_destroy(&client->topics.lock);
}

void ps_client_set_events(struct ps_client *client, struct ps_events *events)
{
    ps_events_retain(events);
    ps_events_unref(client->events);
    client->events = events;
}

static void client_intercept(struct ps_open *open, rd_kafka_conf_t *conf)
{
    ps_requests_count((struct ps_client *)open, conf);
}

static int client_begin(struct ps_open *open, char *errstr, size_t errstr_size)
{
    struct ps_client *client = (struct ps_client *)open;
    if (open->settings->logs_to_mailbox) rd_kafka_set_log_queue(open->rk, NULL);
    client->queue = rd_kafka_queue_get_main(open->rk);
    int failed = ps_poller_join(client->poller, client);
    if (failed) {
        snprintf(errstr, errstr_size, "cannot start the poller: %s", strerror(failed));
        rd_kafka_queue_destroy(client->queue);
        return -1;
    }
    if (client->events) atomic_fetch_add(&client->events->open, 1);
    /* The callback comes only when the queue stops being empty, so what is there already needs a mark. */
    rd_kafka_queue_cb_event_enable(client->queue, ps_poller_ready_cb, client);
    ps_poller_mark_ready(client);
    return 0;
}

uint64_t ps_client_in_flight(const struct ps_client *client)
{
    /* Verdicts first: what is accepted in between makes the answer larger, never negative. */
    uint64_t settled =
        atomic_load(&client->delivered) + atomic_load(&client->failed) + atomic_load(&client->purged);
    return atomic_load(&client->accepted) - settled;
}

static uint64_t client_pending(const struct ps_open *open)
{
    return ps_client_in_flight((const struct ps_client *)open);
}

const struct ps_open_kind ps_client_kind = {
    .type = RD_KAFKA_PRODUCER,
    .intercept = client_intercept,
    .begin = client_begin,
    .pending = client_pending,
    .closing = ps_client_closing,
    .close = ps_client_close,
    .closed = ps_client_closed,
    .dispose = client_dispose,
};
