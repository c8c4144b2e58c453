/*
 * Messages in flight: what librdkafka holds as a message's opaque, and how its report becomes a delivery result. Only the
 * thread that serves the client (poller.c) writes results, without the GVL.
 */
#include "produce/produce.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- batches and their chunks ---- */

/* A batch's only chunk is allocated together with it. For a single message a second malloc(3) would add 7 % to the call. */
static bool allocated_with_batch(const struct ps_chunk *chunk)
{
    return chunk->size == chunk->batch->size;
}

static void chunk_unref(struct ps_chunk *chunk, uint32_t count)
{
    if (atomic_fetch_sub(&chunk->refs, count) != count) return;
    struct ps_batch *batch = chunk->batch;
    for (uint32_t i = 0; i < chunk->size; i++) {
        free(chunk->deliveries[i].partition_key);
        free(chunk->deliveries[i].reason);
    }
    if (!allocated_with_batch(chunk)) free(chunk); /* M:chunk_freed */
    if (atomic_fetch_sub(&batch->refs, 1) != 1) return;
    ps_client_unref(&batch->producer->client);
    free(batch);
}

static size_t chunk_bytes(uint32_t size)
{
    return sizeof(struct ps_chunk) + size * sizeof(struct ps_delivery);
}

static void chunk_init(struct ps_chunk *chunk, struct ps_batch *batch, uint32_t size)
{
    chunk->batch = batch;
    chunk->size = size;
    atomic_init(&chunk->refs, size + 1); /* one of each delivery, one of the call that makes the batch */
    for (uint32_t i = 0; i < size; i++)
        chunk->deliveries[i] = (struct ps_delivery){
            .chunk = chunk, .partition = RD_KAFKA_PARTITION_UA, .offset = RD_KAFKA_OFFSET_INVALID, .timestamp = -1,
        };
}

struct ps_batch *ps_batch_new(struct ps_producer *producer, uint32_t size)
{
    uint32_t count = size / PS_CHUNK + (size % PS_CHUNK > 0);
    size_t bytes = sizeof(struct ps_batch) + count * sizeof(struct ps_chunk *);
    struct ps_batch *batch = malloc(bytes + (count == 1 ? chunk_bytes(size) : 0));
    if (!batch) return NULL;
    ps_completion_init(&batch->completion, &producer->client.lock, size);
    atomic_init(&batch->refs, count);
    atomic_init(&batch->failed, 0);
    atomic_init(&batch->awaited, false);
    batch->size = size;
    batch->producer = producer;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t rest = size - i * PS_CHUNK, part = rest < PS_CHUNK ? rest : PS_CHUNK;
        struct ps_chunk *chunk = count == 1 ? (struct ps_chunk *)((char *)batch + bytes) : malloc(chunk_bytes(part));
        if (!chunk) {
            while (i > 0) free(batch->chunks[--i]);
            free(batch);
            return NULL;
        }
        chunk_init(batch->chunks[i] = chunk, batch, part);
    }
    ps_client_retain(&producer->client);
    return batch;
}

void ps_batch_release(struct ps_batch *batch)
{
    uint32_t size = batch->size; /* read first: the batch is freed with its last chunk */
    for (uint32_t i = 0; i < size; i += PS_CHUNK) chunk_unref(batch->chunks[i / PS_CHUNK], 1);
}

void ps_delivery_retain(struct ps_delivery *delivery)
{
    atomic_fetch_add_explicit(&delivery->chunk->refs, 1, memory_order_relaxed);
}

void ps_delivery_unref(struct ps_delivery *delivery)
{
    chunk_unref(delivery->chunk, 1);
}

void ps_delivery_release(struct ps_event *event)
{
    ps_delivery_unref((struct ps_delivery *)event);
}

/* ---- delivery results ---- */

bool ps_delivery_settled(const struct ps_delivery *delivery)
{
    return atomic_load(&delivery->settled);
}

/* True: the core purged it because of a rejection, which is its result. librdkafka's `status` stays. */
static bool read_rejection(struct ps_delivery *delivery, rd_kafka_resp_err_t err, int64_t produced_us)
{
    char text[512];
    if (err != RD_KAFKA_RESP_ERR__PURGE_QUEUE && err != RD_KAFKA_RESP_ERR__PURGE_INFLIGHT) return false;
    struct ps_rejection *rejection = &ps_delivery_producer(delivery)->client.rejection;
    enum ps_rejected kind = ps_rejection_purged_for(rejection, produced_us, text, sizeof(text));
    if (kind == PS_NOT_REJECTED) return false;
    delivery->rejected = kind;
    delivery->err = ps_rejection_code(kind);
    delivery->reason = strdup(text);
    return true;
}

/*
 * Which results a fatal error may have caused. At a fatal error librdkafka purges only its queue; the messages that it has
 * sent get their own results. For a transactional producer these do not matter: the transaction is lost.
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

/* True: it failed because of the producer's fatal error, which is its result. */
static bool read_fatal_error(struct ps_delivery *delivery)
{
    struct ps_producer *producer = ps_delivery_producer(delivery);
    struct ps_transaction_error fatal;
    if (!fatal_error_may_cause(producer, delivery) || !ps_producer_read_fatal_error(producer, &fatal)) return false;
    delivery->err = (int16_t)fatal.err;
    delivery->fatal = true;
    delivery->reason = strdup(fatal.text);
    return true;
}

static bool purged(const struct ps_delivery *delivery)
{
    return delivery->err == RD_KAFKA_RESP_ERR__PURGE_QUEUE || delivery->err == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT;
}

/* A message that is purged while no connection works was not sent because of that, whether the program, an abort or closing purges it. */
static void note_problem(struct ps_delivery *delivery)
{
    struct ps_client *client = &ps_delivery_producer(delivery)->client;
    char problem[512], text[600];
    if (!purged(delivery) || atomic_load(&client->connections.working) > 0) return;
    ps_client_last_error(client, problem, sizeof(problem));
    if (!*problem) return;
    snprintf(text, sizeof(text), "no connection works; last problem: %s", problem);
    delivery->reason = strdup(text);
}

static void read_result(struct ps_delivery *delivery, const rd_kafka_message_t *message, int64_t now)
{
    int64_t produced_us = delivery->latency_us;
    delivery->partition = message->partition;
    if (!message->err) delivery->offset = message->offset;
    delivery->timestamp = rd_kafka_message_timestamp(message, NULL);
    delivery->latency_us = now - produced_us; /* rd_kafka_message_latency would read the clock for each */
    delivery->err = message->err;
    delivery->status = rd_kafka_message_status(message);
    /* M:fatal_error_kept */
    if (message->err && (read_fatal_error(delivery) || read_rejection(delivery, message->err, produced_us))) return;
    note_problem(delivery);
#ifdef HAVE_RD_KAFKA_MESSAGE_PRODUCE_ERRSTR
    if (delivery->reason) return;
    const char *reason = message->err ? rd_kafka_message_produce_errstr(message) : NULL;
    if (!reason) return;
    delivery->reason = strdup(reason);
    if (delivery->reason) ps_redact(&ps_delivery_producer(delivery)->client.redaction, delivery->reason);
#endif
}

static void note_failed(struct ps_producer *producer, const struct ps_delivery *delivery, const char *topic)
{
    struct ps_failed_message *first = &producer->transactions.first_failed;
    pthread_mutex_lock(&producer->client.lock);
    if (!first->err) {
        first->status = delivery->status;
        first->rejected = delivery->rejected;
        first->fatal = delivery->fatal;
        first->partition = delivery->partition;
        snprintf(first->topic, sizeof(first->topic), "%s", topic);
        snprintf(first->reason, sizeof(first->reason), "%s", delivery->reason ? delivery->reason : "");
        first->err = delivery->err;
    }
    pthread_mutex_unlock(&producer->client.lock);
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

/* Only the thread that serves the client writes this counter, so no read-modify-write is needed. */
static void count_latency(struct ps_producer *producer, const struct ps_delivery *delivery)
{
    _Atomic uint32_t *bucket = &producer->latencies[ps_latency_bucket(delivery->latency_us)];
    atomic_store_explicit(bucket, atomic_load_explicit(bucket, memory_order_relaxed) + 1, memory_order_relaxed);
}

static void count_result(struct ps_producer *producer, rd_kafka_resp_err_t err)
{
    _Atomic uint64_t *counter = &producer->failed;
    if (!err) counter = &producer->delivered;
    else if (err == RD_KAFKA_RESP_ERR__PURGE_QUEUE || err == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT)
        counter = &producer->purged;
    /* As in count_latency, no read-modify-write is needed. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_release);
}

/* The kind of its event; 0: none. Messages that an abort purges have none: the transaction publishes them
 * as "message.purged". */
static uint32_t event_kind(const struct ps_producer *producer, const struct ps_delivery *delivery)
{
    uint32_t kind = delivery->err ? PS_EVENT_FAILED : PS_EVENT_DELIVERED;
    if (!delivery->topic_name || !ps_events_wanted(producer->events, kind)) return 0;
    return purged(delivery) && producer->settings.transactional ? 0 : kind;
}

/* True if the program may never learn that it failed; see unnoticed.c. */
static bool may_be_unnoticed(const struct ps_producer *producer, const struct ps_delivery *delivery)
{
    return delivery->err && !purged(delivery) && !ps_events_wanted(producer->events, PS_EVENT_FAILED);
}

/* Called while the delivery is being settled, when its chunk is still alive. True: the delivery is an event now, and owns a
 * reference to its chunk. */
static bool becomes_event(struct ps_producer *producer, struct ps_delivery *delivery)
{
    uint32_t kind = event_kind(producer, delivery);
    if (kind) {
        delivery->event.kind = kind;
        ps_delivery_retain(delivery);
    } else if (delivery->event.label) {
        ps_events_release_label(producer->events, delivery->event.label);
    }
    return kind != 0;
}

static void link_event(struct ps_event ***last, struct ps_delivery *delivery)
{
    delivery->event.next = NULL;
    **last = &delivery->event;
    *last = &delivery->event.next;
}

/* Deliveries with a topic_name may become events. In a fork child, an inherited batch stays as it is: at the fork, a thread of
 * the parent process may have held the locks of its client and of its events. */
void ps_batch_never_sent(struct ps_batch *batch, uint32_t from, rd_kafka_resp_err_t err)
{
    struct ps_producer *producer = batch->producer;
    if (ps_client_inherited(&producer->client)) return; /* M:fork_frees_nothing */
    bool unreachable = err == ps_rejection_code(PS_UNREACHABLE);
    bool has_handles = unreachable || err == RD_KAFKA_RESP_ERR__QUEUE_FULL; /* else the produce call raises the error */
    char text[512];
    if (unreachable) ps_rejection_unreachable_text(&producer->client.rejection, text, sizeof(text));
    struct ps_event *published = NULL, **last_published = &published;
    uint32_t size = batch->size, count = size - from; /* read first: the batch may be freed with the last delivery */
    if (!count) return;
    for (uint32_t i = from; i < size; i++) {
        struct ps_delivery *delivery = ps_batch_delivery(batch, i);
        delivery->err = err;
        delivery->status = RD_KAFKA_MSG_STATUS_NOT_PERSISTED;
        if (unreachable) {
            delivery->rejected = PS_UNREACHABLE;
            delivery->reason = strdup(text);
        }
        if (becomes_event(producer, delivery)) link_event(&last_published, delivery);
        if (has_handles && may_be_unnoticed(producer, delivery)) {
            pthread_mutex_lock(&producer->client.lock);
            ps_unnoticed_add(delivery, NULL);
            pthread_mutex_unlock(&producer->client.lock);
        }
        atomic_store(&delivery->settled, true);
    }
    if (has_handles) atomic_fetch_add(&producer->dropped, count);
    atomic_fetch_add(&batch->failed, count);
    ps_completion_settle(&batch->completion, count);
    for (uint32_t i = from; i < size; i++) ps_delivery_unref(ps_batch_delivery(batch, i));
    if (published) ps_events_append(producer->events, published); /* events keep their chunks alive, and so the client */
}

static void delivery_settle(struct ps_producer *producer, struct ps_delivery *delivery)
{
    atomic_store_explicit(&delivery->settled, true, memory_order_release);
    count_result(producer, delivery->err); /* after `settled`: if nothing is in flight, all delivery results are written */
}

/*
 * A failure enters `unnoticed` and `failed` under one lock. The thread that begins to close holds that lock while it reads
 * `failed`. So the CloseReport counts the failure as unnoticed if it came before that, else as failed, and never as both.
 */
static void settle_unnoticed(struct ps_producer *producer, struct ps_delivery *delivery, const char *topic)
{
    pthread_mutex_lock(&producer->client.lock);
    ps_unnoticed_add(delivery, topic);
    delivery_settle(producer, delivery);
    pthread_mutex_unlock(&producer->client.lock);
}

/* The topic of the first unnoticed failure, for the log line. Copied, as the event owns the rd_kafka_topic_t. */
static void copy_topic(char *copy, size_t size, const rd_kafka_message_t *message)
{
    if (!*copy) snprintf(copy, size, "%s", rd_kafka_topic_name(message->rkt));
}

/*
 * Two passes: the first reads the results, the second settles. The event is destroyed in between, because only that makes
 * librdkafka free the queue space. So a thread that sees a message settled can also produce the next one. Calls that wait for
 * space are woken after that.
 */
void ps_deliveries_settle(struct ps_producer *producer, rd_kafka_event_t *event)
{
    struct ps_event *first = NULL, **last = &first, *published = NULL, **last_published = &published;
    const rd_kafka_message_t *message;
    int64_t now = ps_now_us();
    bool has_listeners = ps_events_wanted(producer->events, PS_EVENT_DELIVERED | PS_EVENT_FAILED);
    char failed_topic[PS_TOPIC_SIZE] = "";
    const struct ps_topic_name *name = NULL;
    const rd_kafka_topic_t *named_topic = NULL; /* whose name `name` is */
    uint32_t freed = 0;

    while ((message = rd_kafka_event_message_next(event))) {
        struct ps_delivery *delivery = message->_private;
        read_result(delivery, message, now);
        if (has_listeners && message->rkt != named_topic) {
            named_topic = message->rkt;
            name = ps_events_name(producer->events, rd_kafka_topic_name(named_topic));
        }
        delivery->topic_name = name;
        if (message->err && producer->settings.transactional) note_failed(producer, delivery, rd_kafka_topic_name(message->rkt));
        freed++;
        if (!message->err) count_latency(producer, delivery);
        else if (may_be_unnoticed(producer, delivery)) copy_topic(failed_topic, sizeof(failed_topic), message);
        delivery->event.next = NULL;
        *last = &delivery->event;
        last = &delivery->event.next;
    }
    rd_kafka_event_destroy(event);

    while (first) { /* a run of deliveries of one chunk is settled, and its batch's waiters are checked, once */
        struct ps_chunk *chunk = ((struct ps_delivery *)first)->chunk;
        uint32_t count = 0, failed = 0;
        do {
            struct ps_delivery *settled = (struct ps_delivery *)first;
            first = first->next;
            bool publish = (has_listeners || settled->event.label) && becomes_event(producer, settled);
            if (publish) link_event(&last_published, settled);
            bool fails = settled->err;
            if (may_be_unnoticed(producer, settled)) settle_unnoticed(producer, settled, failed_topic);
            else delivery_settle(producer, settled);
            count++;
            failed += fails;
        } while (first && ((struct ps_delivery *)first)->chunk == chunk);
        if (failed) atomic_fetch_add(&chunk->batch->failed, failed);
        ps_completion_settle(&chunk->batch->completion, count); /* M:chunk_unref_last */
        chunk_unref(chunk, count); /* last: it may free the batch, and the `settled` that a linked waiter reads */
    }
    ps_space_freed(&producer->space, freed);
    if (published) ps_events_append(producer->events, published);
}
