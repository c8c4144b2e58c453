/*
 * Failed messages that the program has not noticed: "error.occurred" has no listener, and the program has not read their
 * handles. They are counted, logged and part of the CloseReport, so a failed produce_async leaves a trace.
 *
 * The thread that settles a failed message adds it, before any thread can see the failure. A thread that reads the failure
 * from the message's handle removes it again. A line is logged when the oldest has waited for DELAY_US, so a caller that was
 * about to read it causes none. There is at most one line each PERIOD_US, with the number of failures and the first of them.
 * The poller's sweep finds that a line is due; the thread that serves the client writes it. Purged messages are not counted:
 * the caller of purge, abort_transaction or close requested that, and close reports it.
 *
 * A delivered message costs nothing here. Guarded by client.lock; the two atomics may be read without it.
 */
#include "produce/produce.h"
#include <stdio.h>
#include <string.h>

enum { DELAY_US = 1000000, PERIOD_US = 10000000 };

/* With the lock held. */
static void schedule(struct ps_unnoticed *unnoticed)
{
    int64_t due_us = ps_now_us() + DELAY_US, next_us = unnoticed->logged_us + PERIOD_US;
    if (unnoticed->logged_us && next_us > due_us) due_us = next_us;
    atomic_store(&unnoticed->due_us, due_us);
}

void ps_unnoticed_add(struct ps_delivery *delivery, const char *topic)
{
    struct ps_producer *producer = ps_delivery_producer(delivery);
    struct ps_unnoticed *unnoticed = &producer->unnoticed;
    if (atomic_load(&producer->client.close_by_us) != 0) return; /* the CloseReport has it */
    if (unnoticed->unlogged++ == 0) {
        unnoticed->first_err = delivery->err;
        snprintf(unnoticed->first_topic, sizeof(unnoticed->first_topic), "%s", topic ? topic : "");
        schedule(unnoticed);
    }
    unnoticed->total++;
    atomic_store(&delivery->unnoticed, unnoticed->line);
}

void ps_unnoticed_read(const struct ps_delivery *read)
{
    struct ps_delivery *delivery = (struct ps_delivery *)read; /* its public fields stay as they are */
    struct ps_producer *producer = ps_delivery_producer(delivery);
    if (atomic_load(&delivery->unnoticed) == 0 || ps_client_inherited(&producer->client)) return;
    pthread_mutex_lock(&producer->client.lock);
    uint16_t line = atomic_exchange(&delivery->unnoticed, 0);
    if (line) producer->unnoticed.total--;
    if (line && line == producer->unnoticed.line && producer->unnoticed.unlogged > 0) producer->unnoticed.unlogged--;
    pthread_mutex_unlock(&producer->client.lock);
}

void ps_unnoticed_read_all(const struct ps_batch *batch)
{
    if (atomic_load(&batch->failed) == 0) return;
    for (uint32_t i = 0; i < batch->size; i++) ps_unnoticed_read(ps_batch_delivery(batch, i));
}

bool ps_unnoticed_due(const struct ps_producer *producer, int64_t now)
{
    int64_t due_us = atomic_load_explicit(&producer->unnoticed.due_us, memory_order_relaxed);
    return due_us != 0 && now >= due_us;
}

uint64_t ps_unnoticed_count(struct ps_producer *producer)
{
    pthread_mutex_lock(&producer->client.lock);
    uint64_t count = producer->unnoticed.total;
    pthread_mutex_unlock(&producer->client.lock);
    return count;
}

void ps_unnoticed_log(struct ps_producer *producer)
{
    struct ps_unnoticed *unnoticed = &producer->unnoticed;
    char text[512];

    pthread_mutex_lock(&producer->client.lock);
    uint32_t count = unnoticed->unlogged;
    bool named = *unnoticed->first_topic;
    atomic_store(&unnoticed->due_us, 0);
    snprintf(text, sizeof(text),
             "%u message%s not delivered, and nothing in the program has noticed: there is no listener of error.occurred, and "
             "their handles were not read. The first: %s%s%s%s.",
             count, count == 1 ? " was" : "s were", named ? "topic " : "", unnoticed->first_topic,
             named ? ", " : "", rd_kafka_err2str(unnoticed->first_err));
    if (count) { /* else the program has read them all */
        unnoticed->logged_us = ps_now_us();
        unnoticed->unlogged = 0;
        unnoticed->line = unnoticed->line % UINT16_MAX + 1; /* never 0 */
    }
    pthread_mutex_unlock(&producer->client.lock);
    if (count) ps_client_log(&producer->client, 3, "UNDELIVERED", text);
}
