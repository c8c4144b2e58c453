/*
 * Handing checked messages to librdkafka. A thread that produces prepares them with the GVL. It hands them over with or without
 * the GVL, at once or, when the queue is full, in several attempts. The core then owns the messages that librdkafka has accepted.
 * The others get a delivery result when the call gives up.
 */
#include "ruby/penstock.h"
#include <string.h>

static void set_rejection(struct penstock_handover_error *rejection, rd_kafka_resp_err_t err, const char *text)
{
    rejection->err = err;
    snprintf(rejection->text, sizeof(rejection->text), "%s", text);
}

/* ---- preparing: with the GVL ---- */

static bool copy_partition_key(struct ps_delivery *delivery, const struct penstock_bytes *key)
{
    if (NIL_P(key->string)) return true;
    struct ps_bytes *bytes = malloc(sizeof(*bytes) + key->size);
    if (!bytes) return false;
    bytes->size = key->size;
    memcpy(bytes->data, RSTRING_PTR(key->string), bytes->size);
    delivery->partition_key = bytes;
    return true;
}

static struct ps_topic *known_topic(const struct penstock_handover *handover, uint32_t i)
{
    VALUE name = handover->messages[i].topic;
    return ps_producer_known_topic(handover->producer, RSTRING_PTR(name), RSTRING_LEN(name));
}

static bool prepare(struct penstock_handover *handover, uint32_t i, char **copies)
{
    struct penstock_message *message = &handover->messages[i];
    const struct penstock_message *last = i > 0 ? message - 1 : NULL;

    message->native_topic = last && last->topic == message->topic ? last->native_topic : known_topic(handover, i);
    if (!message->native_topic) return false;
    if (!copy_partition_key(ps_batch_delivery(handover->batch, i), &message->partition_key)) return false;
    penstock_message_to_bytes(message, copies);
    return true;
}

struct new_topic {
    struct ps_producer *producer;
    bool made;
    size_t length;
    char name[256];
};

static void *make_topic_nogvl(void *arg)
{
    struct new_topic *topic = arg;
    topic->made = ps_producer_topic(topic->producer, topic->name, topic->length);
    return NULL;
}

/* Makes librdkafka's handles of new topics. librdkafka's lock may be held for long, so this releases the GVL for other
 * threads. */
static void make_topics(struct penstock_handover *handover)
{
    for (uint32_t i = handover->prepared; i < handover->batch->size && !handover->topic_failed; i++) {
        if (known_topic(handover, i)) continue;
        VALUE name = handover->messages[i].topic;
        struct new_topic topic = { .producer = handover->producer, .length = RSTRING_LEN(name) }; /* 249 bytes at most */
        memcpy(topic.name, RSTRING_PTR(name), topic.length);
        penstock_nogvl_now(make_topic_nogvl, &topic); /* M:new_topic_without_gvl */
        handover->topic_failed = !topic.made;
    }
}

enum penstock_prepared penstock_handover_prepare(struct penstock_handover *handover, bool release, size_t copies_size)
{
    char *copies = NULL;
    if (release) {
        handover->copies = copies = malloc(copies_size + 1);
        if (!copies) return PENSTOCK_NO_MEMORY;
    }
    if (!ps_client_enter(&handover->producer->client)) return PENSTOCK_PREPARED; /* handing over reports it */
    while (handover->prepared < handover->batch->size && prepare(handover, handover->prepared, release ? &copies : NULL))
        handover->prepared++;
    bool again = handover->prepared < handover->batch->size && !handover->messages[handover->prepared].native_topic &&
                 !handover->topic_failed;
    if (again) make_topics(handover);
    ps_client_exit(&handover->producer->client); /* if it can be entered again, it is still open and still has its topics */
    if (!again) return PENSTOCK_PREPARED; /* M:new_topic_reads_again */
    penstock_handover_give_up(handover, RD_KAFKA_RESP_ERR__CONFLICT);
    handover->prepared = 0;
    handover->given_up = false; /* the next batch is not */ /* M:reread_messages_given_up */
    return PENSTOCK_READ_AGAIN;
}

/* ---- handing over ---- */

/* RUN: one call of librdkafka and one reading of the clock handle up to so many messages. A batch of at least twice SERVE_EVERY
 * messages serves its own client in between. */
enum { RUN = 64, SERVE_EVERY = 1024 };
_Static_assert(PS_CHUNK % RUN == 0, "a run's deliveries are in one chunk");

/* Whether rd_kafka_produce_batch can express the message. */
static bool is_plain(const struct penstock_message *message)
{
    return message->partition == RD_KAFKA_PARTITION_UA && !message->timestamp && !message->native_headers;
}

/*
 * Hands over plain messages of one topic, beginning with the first of `messages`. This is a tenth faster than one by one. Returns
 * how many librdkafka accepted. After the first that it does not accept, it accepts none: a full queue, a fatal error and an
 * unknown topic (its state is locked for the call) concern all that follow, and message.c has raised for messages that are too
 * large.
 */
static uint32_t enqueue_run(const struct penstock_message *messages, struct ps_delivery *deliveries, uint32_t limit)
{
    rd_kafka_message_t run[RUN];
    uint32_t length = 0, taken = 0;
    while (length < limit && is_plain(&messages[length]) && messages[length].native_topic == messages->native_topic) {
        const struct penstock_message *message = &messages[length];
        run[length] = (rd_kafka_message_t){
            .payload = (void *)message->payload.data,
            .len = message->payload.size,
            .key = (void *)message->key.data,
            .key_len = message->key.size,
            ._private = &deliveries[length],
        };
        length++;
    }
    if (length == 0) return 0;
    int64_t now_us = ps_now_us();
    for (uint32_t i = 0; i < length; i++) deliveries[i].latency_us = now_us;
    rd_kafka_produce_batch(messages->native_topic->rkt, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, run, (int)length);
    while (taken < length && !run[taken].err) taken++;
    return taken;
}

static rd_kafka_vu_t bytes_vu(rd_kafka_vtype_t type, const struct penstock_bytes *bytes)
{
    return (rd_kafka_vu_t){ .vtype = type, .u.mem = { (void *)bytes->data, bytes->size } };
}

/* Hands over one message of any kind. Sets `rejection` if librdkafka does not accept it. */
static void enqueue(struct ps_producer *producer, struct penstock_message *message, struct ps_delivery *delivery,
                    struct penstock_handover_error *rejection)
{
    rd_kafka_vu_t arguments[8] = {
        { .vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = message->native_topic->rkt },
        { .vtype = RD_KAFKA_VTYPE_PARTITION, .u.i32 = message->partition },
        { .vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY },
        { .vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = delivery },
        { .vtype = RD_KAFKA_VTYPE_TIMESTAMP, .u.i64 = message->timestamp },
        bytes_vu(RD_KAFKA_VTYPE_VALUE, &message->payload),
        bytes_vu(RD_KAFKA_VTYPE_KEY, &message->key),
        { .vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = message->native_headers },
    };
    delivery->latency_us = ps_now_us();
    rd_kafka_error_t *error = rd_kafka_produceva(producer->client.rk, arguments, message->native_headers ? 8 : 7);
    if (!error) {
        message->native_headers = NULL;
        return;
    }
    set_rejection(rejection, rd_kafka_error_code(error), rd_kafka_error_string(error));
    ps_redact(&producer->client.redaction, rejection->text); /* it may contain a fatal error's text, which a broker wrote */
    rejection->fatal = rd_kafka_error_is_fatal(error);
    rd_kafka_error_destroy(error); /* M:librdkafka_error_freed */
}

/*
 * While no broker has been reachable for longer than config.unreachable_timeout, messages fail at once and are not handed to
 * librdkafka. Messages of a transaction are: librdkafka has to see them fail, so that it does not commit the transaction without
 * them. They are purged later.
 */
static bool reject_unreachable(struct penstock_handover *handover)
{
    struct ps_producer *producer = handover->producer;
    if (producer->settings.transactional || !ps_rejection_unreachable(&producer->client.rejection)) return false;
    set_rejection(&handover->rejection, ps_rejection_code(PS_UNREACHABLE), "no broker can be reached");
    return true;
}

/* Hands messages over up to the first rejection. */
static void hand_over(struct penstock_handover *handover)
{
    struct ps_producer *producer = handover->producer;
    if (reject_unreachable(handover)) return;
    uint32_t size = handover->prepared, i = handover->sent, served = i;
    bool serving = size - i >= 2 * SERVE_EVERY && ps_poller_borrow(&producer->polled);

    while (i < size) {
        uint32_t limit = RUN - i % RUN; /* up to the end of a chunk */
        if (limit > size - i) limit = size - i;
        uint32_t taken = enqueue_run(&handover->messages[i], ps_batch_delivery(handover->batch, i), limit);
        i += taken;
        if (taken < limit) {
            struct penstock_handover_error rejection = { 0 };
            enqueue(producer, &handover->messages[i], ps_batch_delivery(handover->batch, i), &rejection);
            if (rejection.err) {
                handover->rejection = rejection;
                /* librdkafka reserved space for the message, and has freed it again. */
                if (rejection.err != RD_KAFKA_RESP_ERR__QUEUE_FULL) ps_space_freed(&producer->space, 1);
                break;
            }
            i++;
        }
        if (serving && i - served >= SERVE_EVERY) {
            ps_poller_serve(&producer->polled, NULL, PS_FOREVER);
            served = i;
        }
    }
    if (serving) ps_poller_hand_back(&producer->polled);
    handover->sent = i;
}

static uint64_t handed_over_bytes(const struct penstock_handover *handover, uint32_t from)
{
    uint64_t bytes = 0;
    for (uint32_t i = from; i < handover->sent; i++)
        bytes += handover->messages[i].payload.size + handover->messages[i].key.size;
    return bytes;
}

void *penstock_handover_nogvl(void *arg)
{
    struct penstock_handover *handover = arg;
    struct ps_producer *producer = handover->producer;

    if (ps_client_enter(&producer->client)) {
        uint32_t rest = handover->prepared - handover->sent;
        atomic_fetch_add(&producer->accepted, rest); /* first, as a delivery result may come before hand_over returns */
        hand_over(handover);
        atomic_fetch_sub(&producer->accepted, handover->prepared - handover->sent);
        atomic_fetch_add_explicit(&producer->accepted_bytes, handed_over_bytes(handover, handover->prepared - rest),
                                  memory_order_relaxed);
        ps_client_exit(&producer->client);
        if (handover->sent == handover->prepared && handover->prepared < handover->batch->size)
            set_rejection(&handover->rejection, RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE,
                          "librdkafka rejected the topic, or there is no memory left");
    } else {
        set_rejection(&handover->rejection, RD_KAFKA_RESP_ERR__DESTROY, "the producer is closed");
    }
    if (handover->sent == handover->batch->size) {
        free(handover->copies); /* librdkafka has copied them */
        handover->copies = NULL;
    }
    return NULL;
}

static void keep(struct penstock_bytes *bytes, char **copies)
{
    if (!bytes->data) return;
    bytes->data = memcpy(*copies, bytes->data, bytes->size);
    *copies += bytes->size;
}

bool penstock_handover_keep_bytes(struct penstock_handover *handover)
{
    if (handover->copies) return true; /* prepare has copied them */ /* M:gc_payloads_copied */
    size_t size = 0;
    for (uint32_t i = handover->sent; i < handover->prepared; i++)
        size += handover->messages[i].payload.size + handover->messages[i].key.size;
    char *copies = handover->copies = malloc(size + 1);
    if (!copies) return false;
    for (uint32_t i = handover->sent; i < handover->prepared; i++) {
        keep(&handover->messages[i].payload, &copies);
        keep(&handover->messages[i].key, &copies);
    }
    return true;
}

void penstock_handover_find_full(struct penstock_handover *handover)
{
    rd_kafka_resp_err_t full = RD_KAFKA_RESP_ERR__QUEUE_FULL;
    char text[sizeof(handover->rejection.text)];
    snprintf(text, sizeof(text), "Unable to produce message: %s", rd_kafka_err2str(full));
    set_rejection(&handover->rejection, full, text);
}

bool penstock_handover_queue_full(const struct penstock_handover *handover)
{
    return handover->sent < handover->batch->size && handover->rejection.err == RD_KAFKA_RESP_ERR__QUEUE_FULL;
}

bool penstock_handover_unreachable(const struct penstock_handover *handover)
{
    return handover->sent < handover->batch->size && handover->rejection.err == ps_rejection_code(PS_UNREACHABLE);
}

bool penstock_handover_place_unknown(const struct penstock_handover *handover)
{
    rd_kafka_resp_err_t err = handover->rejection.err;
    return handover->sent < handover->batch->size &&
           (err == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION || err == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC);
}

void penstock_handover_give_up(struct penstock_handover *handover, rd_kafka_resp_err_t err)
{
    if (handover->given_up || handover->sent == handover->batch->size || ps_client_inherited(&handover->producer->client)) return;
    handover->given_up = true;
    for (uint32_t i = handover->sent; i < handover->prepared; i++)
        /* M:unsent_headers_freed */
        if (handover->messages[i].native_headers) rd_kafka_headers_destroy(handover->messages[i].native_headers);
    free(handover->copies);
    handover->copies = NULL;
    ps_batch_never_sent(handover->batch, handover->sent, err);
}

VALUE penstock_handover_error(const struct penstock_handover *handover)
{
    const struct penstock_handover_error *rejection = &handover->rejection;
    struct penstock_error_context context = {
        .err = rejection->err,
        .client = &handover->producer->client,
        .topic = handover->messages[handover->sent].topic,
        .partition = handover->messages[handover->sent].partition,
        .fatal = rejection->fatal,
        .retriable = rejection->err == RD_KAFKA_RESP_ERR__QUEUE_FULL,
    };
    VALUE error_class = penstock_produce_error;
    if (rejection->err == RD_KAFKA_RESP_ERR__QUEUE_FULL) error_class = penstock_queue_full_error;
    if (rejection->err == RD_KAFKA_RESP_ERR__DESTROY) error_class = penstock_closed_error;
    if (rejection->err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) error_class = penstock_message_error;
    VALUE text = penstock_text(rejection->text);
    if (rejection->err == RD_KAFKA_RESP_ERR__STATE) text = rb_str_plus(text, penstock_failed_message_text(handover->producer));
    return penstock_error_new(error_class, &context, text);
}
