/*
 * Handing checked messages to librdkafka, with or without the GVL: prepared with it, handed over by
 * whichever thread produces, in one go. From then on they are the core's; those that librdkafka does not
 * take have their verdict, and nothing is left of them.
 */
#include "penstock.h"
#include <string.h>

bool penstock_handover_prepare(struct penstock_handover *handover, bool release, size_t copies_size)
{
    char *copies = NULL;
    if (release) {
        handover->copies = copies = malloc(copies_size);
        if (!copies) return false;
    }
    struct penstock_message *messages = handover->messages;
    for (uint32_t i = 0; i < handover->batch->size; i++)
        penstock_message_to_bytes(&messages[i], i > 0 ? &messages[i - 1] : NULL, release ? &copies : NULL);
    return true;
}

static void refuse(struct penstock_refusal *refusal, rd_kafka_resp_err_t err, const char *text)
{
    refusal->err = err;
    snprintf(refusal->text, sizeof(refusal->text), "%s", text);
}

static bool copy_partition_key(struct ps_delivery *delivery, const struct penstock_bytes *key)
{
    if (!key->data) return true;
    struct ps_bytes *bytes = malloc(sizeof(*bytes) + key->size);
    if (!bytes) return false;
    bytes->size = key->size;
    memcpy(bytes->data, key->data, bytes->size);
    delivery->partition_key = bytes;
    return true;
}

static rd_kafka_vu_t bytes_vu(rd_kafka_vtype_t type, const struct penstock_bytes *bytes)
{
    return (rd_kafka_vu_t){ .vtype = type, .u.mem = { (void *)bytes->data, bytes->size } };
}

/* Hands one message to librdkafka, which copies it: a fraction of a microsecond. */
static void enqueue(struct ps_client *client, struct ps_topic *topic, struct penstock_message *message,
                    struct ps_delivery *delivery, struct penstock_refusal *refusal)
{
    if (!copy_partition_key(delivery, &message->partition_key)) {
        refuse(refusal, RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE, "out of memory");
        return;
    }
    rd_kafka_vu_t arguments[8] = {
        { .vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = topic->rkt },
        { .vtype = RD_KAFKA_VTYPE_PARTITION, .u.i32 = message->partition },
        { .vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY },
        { .vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = delivery },
        { .vtype = RD_KAFKA_VTYPE_TIMESTAMP, .u.i64 = message->timestamp },
        bytes_vu(RD_KAFKA_VTYPE_VALUE, &message->payload),
        bytes_vu(RD_KAFKA_VTYPE_KEY, &message->key),
        { .vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = message->native_headers },
    };
    rd_kafka_error_t *error = rd_kafka_produceva(client->rk, arguments, message->native_headers ? 8 : 7);
    if (!error) {
        message->native_headers = NULL;
        return;
    }
    refuse(refusal, rd_kafka_error_code(error), rd_kafka_error_string(error));
    refusal->fatal = rd_kafka_error_is_fatal(error);
    rd_kafka_error_destroy(error);
}

/* Clocks are read for every CLOCK_EVERY messages; a batch of twice SERVE_EVERY serves its own client. */
enum { CLOCK_EVERY = 64, SERVE_EVERY = 1024 };

static struct ps_topic *topic_of(struct ps_client *client, struct ps_topic *last, const struct penstock_bytes *name)
{
    if (last && last->length == name->size && memcmp(last->name, name->data, name->size) == 0) return last;
    return ps_client_topic(client, name->data, name->size);
}

/* Hands messages over up to the first refusal. */
static void hand_over(struct penstock_handover *handover)
{
    struct ps_client *client = handover->client;
    struct ps_batch *batch = handover->batch;
    struct penstock_refusal *refusal = &handover->refusal;
    struct ps_topic *topic = NULL;
    bool serving = batch->size >= 2 * SERVE_EVERY && ps_poller_borrow(client);
    int64_t now_us = 0, now_ms = 0;
    uint32_t i;

    for (i = 0; i < batch->size; i++) {
        struct penstock_message *message = &handover->messages[i];
        if (i % CLOCK_EVERY == 0) {
            now_us = ps_now_us();
            now_ms = ps_wall_clock_ms();
        }
        batch->deliveries[i].latency_us = now_us;
        if (!message->timestamp) message->timestamp = now_ms;
        topic = topic_of(client, topic, &message->topic);
        if (topic) enqueue(client, topic, message, &batch->deliveries[i], refusal);
        else refuse(refusal, RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE, "librdkafka refused the topic, or out of memory");
        if (refusal->err) break;
        if (serving && i % SERVE_EVERY == SERVE_EVERY - 1) ps_poller_serve(client);
    }
    if (serving) ps_poller_hand_back(client);
    handover->sent = i;
}

void *penstock_handover_nogvl(void *arg)
{
    struct penstock_handover *handover = arg;
    struct ps_client *client = handover->client;
    uint32_t size = handover->batch->size;

    if (ps_client_enter(client)) {
        atomic_fetch_add(&client->accepted, size); /* before: a verdict may be in before its message's turn is over */
        hand_over(handover);
        atomic_fetch_sub(&client->accepted, size - handover->sent);
        ps_client_exit(client);
    } else {
        refuse(&handover->refusal, RD_KAFKA_RESP_ERR__DESTROY, "the producer is closed");
    }
    for (uint32_t i = handover->sent; i < size; i++)
        if (handover->messages[i].native_headers) rd_kafka_headers_destroy(handover->messages[i].native_headers);
    free(handover->copies); /* librdkafka has its own */
    ps_batch_never_sent(handover->batch, handover->sent);
    return NULL;
}

VALUE penstock_handover_error(const struct penstock_handover *handover)
{
    const struct penstock_refusal *refusal = &handover->refusal;
    struct penstock_error_context context = {
        .err = refusal->err,
        .client = handover->client,
        .topic = (VALUE)handover->batch->deliveries[handover->sent].topic,
        .partition = handover->messages[handover->sent].partition,
        .fatal = refusal->fatal,
        .retriable = refusal->err == RD_KAFKA_RESP_ERR__QUEUE_FULL,
    };
    VALUE error_class = penstock_produce_error;
    if (refusal->err == RD_KAFKA_RESP_ERR__QUEUE_FULL) error_class = penstock_queue_full_error;
    if (refusal->err == RD_KAFKA_RESP_ERR__DESTROY) error_class = penstock_closed_error;
    if (refusal->err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) error_class = penstock_message_error;
    return penstock_error_new(error_class, &context, rb_utf8_str_new_cstr(refusal->text));
}
