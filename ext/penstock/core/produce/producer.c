/*
 * The producing rd_kafka_t: how it is configured and opened (core/client/client.c), and its counters. Owned by the Ruby
 * object and by each batch. Any thread, except where produce.h says otherwise. Closing: producer_close.c.
 */
#include "produce/produce.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ps_producer *ps_producer_new(rd_kafka_conf_t *conf, const char *name, struct ps_poller *poller,
                                const struct ps_producer_settings *settings)
{
    struct ps_producer *producer = aligned_alloc(_Alignof(struct ps_producer), sizeof(*producer));
    if (!producer) return NULL;
    memset(producer, 0, sizeof(*producer));
    producer->settings = *settings;
    ps_client_init(&producer->client, &ps_producer_kind, conf, name, &producer->settings.client);
    ps_space_init(&producer->space);
    producer->unnoticed.line = 1;
    pthread_mutex_init(&producer->topics.making, NULL);
    pthread_mutex_init(&producer->topics.lock, NULL);
    producer->polled = (struct ps_polled){
        .kind = &ps_producer_polled_kind,
        .client = &producer->client,
        .poller = poller,
        .max_time_us = settings->max_time_us,
        .sweep_us = settings->sweep_us,
    };
    ps_poller_retain(poller);
    return producer;
}

static void producer_dispose(struct ps_client *client)
{
    struct ps_producer *producer = (struct ps_producer *)client;
    ps_poller_unref(producer->polled.poller);
    ps_events_unref(producer->events);
    ps_space_destroy(&producer->space);
    pthread_mutex_destroy(&producer->topics.lock);
    pthread_mutex_destroy(&producer->topics.making);
}

void ps_producer_set_events(struct ps_producer *producer, struct ps_events *events)
{
    ps_events_retain(events);
    ps_events_unref(producer->events);
    producer->events = events;
}

static bool producer_intercept(struct ps_client *client, rd_kafka_conf_t *conf)
{
    ps_requests_count((struct ps_producer *)client, conf);
    return true;
}

static int producer_begin(struct ps_client *client, char *errstr, size_t errstr_size)
{
    struct ps_producer *producer = (struct ps_producer *)client;
    if (client->settings->logs_to_mailbox) rd_kafka_set_log_queue(client->rk, NULL);
    producer->polled.queue = rd_kafka_queue_get_main(client->rk);
    int failed = ps_poller_join(producer->polled.poller, &producer->polled);
    if (failed) {
        snprintf(errstr, errstr_size, "cannot start the poller: %s", strerror(failed));
        rd_kafka_queue_destroy(producer->polled.queue);
        return -1;
    }
    if (producer->events) atomic_fetch_add(&producer->events->clients, 1);
    /* The callback only comes when the queue stops being empty. Mark the client once, for events that are already there. */
    rd_kafka_queue_cb_event_enable(producer->polled.queue, ps_poller_ready_cb, &producer->polled);
    ps_poller_mark_ready(&producer->polled);
    ps_first_message_hasten(producer);
    return 0;
}

uint64_t ps_producer_in_flight(const struct ps_producer *producer)
{
    /* Reads the settled ones first: a message accepted in between makes the result larger, never negative. */
    uint64_t settled =
        atomic_load(&producer->delivered) + atomic_load(&producer->failed) + atomic_load(&producer->purged);
    return atomic_load(&producer->accepted) - settled;
}

static uint64_t producer_pending(const struct ps_client *client)
{
    return ps_producer_in_flight((const struct ps_producer *)client);
}

const struct ps_client_kind ps_producer_kind = {
    .type = RD_KAFKA_PRODUCER,
    .intercept = producer_intercept,
    .begin = producer_begin,
    .pending = producer_pending,
    .closing = ps_producer_closing,
    .close = ps_producer_close,
    .closed = ps_producer_closed,
    .dispose = producer_dispose,
};
