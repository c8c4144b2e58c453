/*
 * Messages on their way: what librdkafka holds as a message's opaque, and how its report becomes a
 * verdict. Verdicts are written without the GVL by whoever serves the client (poller.c), nobody else.
 */
#include "produce/produce.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ps_batch *ps_batch_new(struct ps_producer *producer, uint32_t size)
{
    struct ps_batch *batch = ps_block_take(sizeof(*batch) + size * sizeof(struct ps_delivery));
    if (!batch) return NULL;
    memset(batch, 0, sizeof(*batch));
    ps_completion_init(&batch->completion, &producer->client.lock, size);
    atomic_init(&batch->refs, size > 0 ? 2 : 1); /* the caller's, and that of the messages in flight */
    batch->size = size;
    batch->producer = producer;
    ps_client_retain(&producer->client);
    for (uint32_t i = 0; i < size; i++)
        batch->deliveries[i] = (struct ps_delivery){
            .batch = batch, .partition = RD_KAFKA_PARTITION_UA, .offset = RD_KAFKA_OFFSET_INVALID, .timestamp = -1,
        };
    return batch;
}

void ps_batch_retain(struct ps_batch *batch)
{
    atomic_fetch_add_explicit(&batch->refs, 1, memory_order_relaxed);
}

void ps_batch_unref(struct ps_batch *batch)
{
    if (atomic_fetch_sub(&batch->refs, 1) != 1) return;
    for (uint32_t i = 0; i < batch->size; i++) {
        free(batch->deliveries[i].partition_key);
        free(batch->deliveries[i].reason);
    }
    ps_client_unref(&batch->producer->client);
    ps_block_give(batch);
}

/* The last message's settling also drops the reference that those in flight own together. */
void ps_batch_settle(struct ps_batch *batch, uint32_t count)
{
    if (ps_completion_settle(&batch->completion, count)) ps_batch_unref(batch);
}

void ps_delivery_release(struct ps_event *event)
{
    ps_batch_unref(((struct ps_delivery *)event)->batch);
}

bool ps_delivery_settled(const struct ps_delivery *delivery)
{
    return atomic_load(&delivery->settled);
}

/* True: we have purged it ourselves, and why is its result. What librdkafka knows of where it is stays as it is. */
static bool read_refusal(struct ps_delivery *delivery, rd_kafka_resp_err_t err, int64_t produced_us)
{
    char text[512];
    if (err != RD_KAFKA_RESP_ERR__PURGE_QUEUE && err != RD_KAFKA_RESP_ERR__PURGE_INFLIGHT) return false;
    enum ps_refused kind = ps_refusal_purged_for(&delivery->batch->producer->client.refusal, produced_us, text, sizeof(text));
    if (kind == PS_NOT_REFUSED) return false;
    delivery->refused = kind;
    delivery->err = ps_refusal_code(kind);
    delivery->reason = strdup(text);
    return true;
}

/*
 * Which results a fatal error may have caused. At a fatal error librdkafka purges its queue, and only then; what it has sent
 * gets its own result. Of a transactional producer that stays without effect, whatever the result: the transaction is lost.
 */
static bool fatal_error_may_cause(const struct ps_producer *producer, const struct ps_delivery *delivery)
{
    switch (delivery->err) {
    case RD_KAFKA_RESP_ERR__PURGE_QUEUE:
    case RD_KAFKA_RESP_ERR__FATAL:
        return producer->settings.transactional || delivery->status == RD_KAFKA_MSG_STATUS_NOT_PERSISTED;
    case RD_KAFKA_RESP_ERR__PURGE_INFLIGHT:
    case RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH:
    case RD_KAFKA_RESP_ERR_PRODUCER_FENCED:
        return producer->settings.transactional;
    default:
        return false;
    }
}

/* True: the producer's fatal error is why it failed, and is its result. */
static bool read_fatal_error(struct ps_delivery *delivery)
{
    struct ps_producer *producer = delivery->batch->producer;
    struct ps_transaction_error fatal;
    if (!fatal_error_may_cause(producer, delivery) || !ps_producer_read_fatal_error(producer, &fatal)) return false;
    delivery->err = (int16_t)fatal.err;
    delivery->fatal = true;
    delivery->reason = strdup(fatal.text);
    return true;
}

static void read_verdict(struct ps_delivery *delivery, const rd_kafka_message_t *message, int64_t now)
{
    int64_t produced_us = delivery->latency_us;
    delivery->partition = message->partition;
    if (!message->err) delivery->offset = message->offset;
    delivery->timestamp = rd_kafka_message_timestamp(message, NULL);
    delivery->latency_us = now - produced_us; /* rd_kafka_message_latency would read the clock for each */
    delivery->err = message->err;
    delivery->status = rd_kafka_message_status(message);
    if (message->err && (read_fatal_error(delivery) || read_refusal(delivery, message->err, produced_us))) return;
#ifdef HAVE_RD_KAFKA_MESSAGE_PRODUCE_ERRSTR
    const char *reason = message->err ? rd_kafka_message_produce_errstr(message) : NULL;
    if (!reason) return;
    delivery->reason = strdup(reason);
    if (delivery->reason) ps_redact(&delivery->batch->producer->client.redaction, delivery->reason);
#endif
}

uint32_t ps_latency_bucket(int64_t latency_us)
{
    if (latency_us < 8) return latency_us < 0 ? 0 : (uint32_t)latency_us;
    int power = 63 - __builtin_clzll((unsigned long long)latency_us);
    uint32_t bucket = (uint32_t)(power - 2) * 8 + (uint32_t)(latency_us >> (power - 3) & 7);
    return bucket < PS_LATENCY_BUCKETS ? bucket : PS_LATENCY_BUCKETS - 1;
}

int64_t ps_latency_of_bucket(uint32_t bucket)
{
    if (bucket < 8) return bucket;
    int power = (int)(bucket / 8) + 2;
    return ((int64_t)1 << power) + ((int64_t)(bucket % 8 + 1) << (power - 3)) - 1;
}

/* One thread at a time serves a client and writes these, so no read-modify-write is needed. */
static void count_latency(struct ps_producer *producer, const struct ps_delivery *delivery)
{
    _Atomic uint32_t *bucket = &producer->latencies[ps_latency_bucket(delivery->latency_us)];
    atomic_store_explicit(bucket, atomic_load_explicit(bucket, memory_order_relaxed) + 1, memory_order_relaxed);
}

static void count_verdict(struct ps_producer *producer, rd_kafka_resp_err_t err)
{
    _Atomic uint64_t *counter = &producer->failed;
    if (!err) counter = &producer->delivered;
    else if (err == RD_KAFKA_RESP_ERR__PURGE_QUEUE || err == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT)
        counter = &producer->purged;
    /* One thread at a time serves a client and writes these, so no read-modify-write is needed. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_release);
}

static bool purged(const struct ps_delivery *delivery)
{
    return delivery->err == RD_KAFKA_RESP_ERR__PURGE_QUEUE || delivery->err == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT;
}

/* What listeners are told of it; 0: nothing. What an abort purges the transaction itself tells. */
static uint32_t event_kind(const struct ps_producer *producer, const struct ps_delivery *delivery)
{
    uint32_t kind = delivery->err ? PS_EVENT_FAILED : PS_EVENT_DELIVERED;
    if (!delivery->topic_name || !ps_events_wanted(producer->events, kind)) return 0;
    return purged(delivery) && producer->settings.transactional ? 0 : kind;
}

/* Whether the program may never learn that it failed; see unnoticed.c. */
static bool may_be_unnoticed(const struct ps_producer *producer, const struct ps_delivery *delivery)
{
    return delivery->err && !purged(delivery) && !ps_events_wanted(producer->events, PS_EVENT_FAILED);
}

/* Of a delivery that is being settled, whose batch lives until that is done. True: it is an event now. */
static bool becomes_event(struct ps_producer *producer, struct ps_delivery *delivery)
{
    uint32_t kind = event_kind(producer, delivery);
    if (kind) {
        delivery->event.kind = kind;
        ps_batch_retain(delivery->batch);
    } else if (delivery->event.label) {
        ps_events_release_label(producer->events, delivery->event.label);
    }
    return kind != 0;
}

static void link_told(struct ps_event ***last, struct ps_delivery *delivery)
{
    delivery->event.next = NULL;
    **last = &delivery->event;
    *last = &delivery->event.next;
}

/* Those that have a topic_name may be told. An inherited batch stays as it is: a thread of the parent may have held the locks of its
 * client and of its events at the fork. */
void ps_batch_never_sent(struct ps_batch *batch, uint32_t from, rd_kafka_resp_err_t err)
{
    struct ps_producer *producer = batch->producer;
    if (ps_client_inherited(&producer->client)) return;
    bool unreachable = err == ps_refusal_code(PS_UNREACHABLE), in_handles = unreachable || err == RD_KAFKA_RESP_ERR__QUEUE_FULL;
    char text[512];
    if (unreachable) ps_refusal_unreachable_text(&producer->client.refusal, text, sizeof(text));
    struct ps_event *told = NULL, **last_told = &told;
    uint32_t count = batch->size - from;
    if (!count) return;
    for (uint32_t i = from; i < batch->size; i++) {
        struct ps_delivery *delivery = &batch->deliveries[i];
        delivery->err = err;
        delivery->status = RD_KAFKA_MSG_STATUS_NOT_PERSISTED;
        if (unreachable) {
            delivery->refused = PS_UNREACHABLE;
            delivery->reason = strdup(text);
        }
        if (becomes_event(producer, delivery)) link_told(&last_told, delivery);
        if (in_handles && may_be_unnoticed(producer, delivery)) { /* else the error is raised */
            pthread_mutex_lock(&producer->client.lock);
            ps_unnoticed_add(delivery, NULL);
            pthread_mutex_unlock(&producer->client.lock);
        }
        atomic_store(&delivery->settled, true);
    }
    if (in_handles) atomic_fetch_add(&producer->dropped, count);
    atomic_fetch_add(&batch->failed, count);
    ps_batch_settle(batch, count);
    if (told) ps_events_append(producer->events, told); /* which hold the batch, and so the client */
}

static void settle(struct ps_producer *producer, struct ps_delivery *delivery)
{
    atomic_store_explicit(&delivery->settled, true, memory_order_release);
    count_verdict(producer, delivery->err); /* after `settled`: nothing in flight means all verdicts are in */
}

/*
 * A failure enters `unnoticed` and `failed` under one lock, which the thread that begins to close holds while it reads `failed`.
 * So the CloseReport counts it as unnoticed if it came before that, else as failed, and never as both.
 */
static void settle_unnoticed(struct ps_producer *producer, struct ps_delivery *delivery, const char *topic)
{
    pthread_mutex_lock(&producer->client.lock);
    ps_unnoticed_add(delivery, topic);
    settle(producer, delivery);
    pthread_mutex_unlock(&producer->client.lock);
}

/* Of the first failure that is counted as unnoticed, for the line of the log. Its rd_kafka_topic_t goes with the event. */
static void copy_topic(char *copy, size_t size, const rd_kafka_message_t *message)
{
    if (!*copy) snprintf(copy, size, "%s", rd_kafka_topic_name(message->rkt));
}

/*
 * Two passes with the event destroyed in between, because librdkafka gives the queue's space back only
 * then: whoever sees a message settled can also produce the next one, and who waits for space is woken.
 */
void ps_deliveries_settle(struct ps_producer *producer, rd_kafka_event_t *event)
{
    struct ps_event *first = NULL, **last = &first, *told = NULL, **last_told = &told;
    const rd_kafka_message_t *message;
    int64_t now = ps_now_us();
    bool heard = ps_events_wanted(producer->events, PS_EVENT_DELIVERED | PS_EVENT_FAILED);
    char failed_topic[PS_TOPIC_SIZE] = "";
    const struct ps_name *name = NULL;
    const rd_kafka_topic_t *named = NULL;
    uint32_t freed = 0;

    while ((message = rd_kafka_event_message_next(event))) {
        struct ps_delivery *delivery = message->_private;
        read_verdict(delivery, message, now);
        if (heard && message->rkt != named) {
            named = message->rkt;
            name = ps_events_name(producer->events, rd_kafka_topic_name(named));
        }
        delivery->topic_name = name;
        freed++;
        if (!message->err) count_latency(producer, delivery);
        else if (may_be_unnoticed(producer, delivery)) copy_topic(failed_topic, sizeof(failed_topic), message);
        delivery->event.next = NULL;
        *last = &delivery->event;
        last = &delivery->event.next;
    }
    rd_kafka_event_destroy(event);

    while (first) { /* a run of one batch is settled, and its waiters looked at, once */
        struct ps_batch *batch = ((struct ps_delivery *)first)->batch;
        uint32_t count = 0, failed = 0;
        bool shared = batch->size > 1; /* another thread may settle its last message while we look for waiters */
        if (shared) ps_batch_retain(batch);
        do {
            struct ps_delivery *settled = (struct ps_delivery *)first;
            first = first->next;
            bool tell = (heard || settled->event.label) && becomes_event(producer, settled);
            if (tell) link_told(&last_told, settled);
            bool fails = settled->err;
            if (may_be_unnoticed(producer, settled)) settle_unnoticed(producer, settled, failed_topic);
            else settle(producer, settled);
            count++;
            failed += fails;
        } while (first && ((struct ps_delivery *)first)->batch == batch);
        if (failed) atomic_fetch_add(&batch->failed, failed);
        ps_batch_settle(batch, count);
        if (shared) ps_batch_unref(batch);
    }
    ps_space_freed(&producer->space, freed);
    if (told) ps_events_append(producer->events, told);
}
