/*
 * Penstock::Consumer, continued: poll and poll_batch.
 *
 * A polling thread takes librdkafka's events itself, with the GVL. It copies and destroys them before it returns, as librdkafka
 * cannot be destroyed while an event exists. It sleeps, and may be interrupted, only between events, when it has not entered the
 * client. So a trap may close the consumer that the interrupted thread polls.
 */
#include "ruby/penstock.h"
#include <string.h>

static VALUE sym_timeout, sym_max;

/* A copy of an error event. The call raises it when it has destroyed the event and has left the client. */
struct problem {
    rd_kafka_resp_err_t err;
    bool fatal;
    int32_t partition;
    int64_t offset; /* -1: unknown */
    char topic[256];
    char text[512];
};

/*
 * A batch ends with the message that reaches this number of headers. Making Strings of 100,000 headers takes a tenth of a second
 * with the GVL, and librdkafka accepts as many in each message. A batch of such messages would stop all threads for as long as it
 * takes to build.
 */
enum { MOST_HEADERS = 100000 };

/* One call of poll or poll_batch. */
struct taking {
    VALUE self;
    struct ps_consumer *consumer;
    rd_kafka_event_t *event; /* the event that is being handled; destroyed afterwards */
    VALUE messages;          /* Array; nil for a single message */
    VALUE message;           /* the latest */
    long count, max;
    size_t headers;
    struct problem problem;
};

static void read_problem(struct taking *taking)
{
    struct problem *problem = &taking->problem;
    rd_kafka_event_t *event = taking->event;
    rd_kafka_topic_partition_t *place = rd_kafka_event_topic_partition(event);
    const char *text = rd_kafka_event_error_string(event);

    problem->err = rd_kafka_event_error(event);
    problem->fatal = atomic_load(&taking->consumer->fatal) != 0;
    problem->partition = place ? place->partition : -1;
    problem->offset = place && place->offset >= 0 ? place->offset : -1;
    if (place) {
        snprintf(problem->topic, sizeof(problem->topic), "%s", place->topic);
        rd_kafka_topic_partition_destroy(place);
    }
    if (!text) return;
    ps_client_quote(&taking->consumer->client, problem->text, sizeof(problem->text), text);
    const char *description = rd_kafka_err2str(problem->err); /* the error's message ends with it anyway */
    size_t size = strlen(problem->text), tail = strlen(description) + 2;
    if (size > tail && strcmp(problem->text + size - tail + 2, description) == 0) problem->text[size - tail] = '\0';
}

/* Other clients may write damaged headers. False: the headers cannot be read. Without them the message is not what was sent,
 * so the consumer raises an error for it. */
static bool read_headers(const rd_kafka_message_t *message, rd_kafka_headers_t **headers)
{
    rd_kafka_resp_err_t err = rd_kafka_message_headers(message, headers);
    if (err) *headers = NULL;
    return !err || err == RD_KAFKA_RESP_ERR__NOENT;
}

static void take_message(struct taking *taking)
{
    rd_kafka_headers_t *headers;
    const rd_kafka_message_t *message = rd_kafka_event_message_next(taking->event);
    if (!message) return;
    if (!read_headers(message, &headers)) {
        ps_consumer_damaged(taking->consumer, message);
        return;
    }
    taking->message = penstock_consumed_message_new(message, headers, penstock_consumer_topic_name(taking->self, message));
    if (!NIL_P(taking->messages)) rb_ary_push(taking->messages, taking->message);
    taking->count++;
    if (headers) taking->headers += rd_kafka_header_cnt(headers);
}

static void read_damaged(struct taking *taking)
{
    struct problem *problem = &taking->problem;
    struct ps_damaged *damaged = &taking->consumer->damaged;
    problem->err = RD_KAFKA_RESP_ERR__BAD_MSG; /* librdkafka's code varies; programs get one */
    problem->partition = damaged->partition;
    problem->offset = damaged->offset;
    memcpy(problem->topic, damaged->topic, sizeof(problem->topic));
    snprintf(problem->text, sizeof(problem->text), "a message's headers cannot be read");
    damaged->waits = false;
}

static void *rebalance_nogvl(void *arg)
{
    struct taking *taking = arg;
    ps_consumer_rebalance(taking->consumer, taking->event);
    return NULL;
}

/* The client is entered. Nothing in here handles interrupts or runs Ruby code. */
static VALUE take_body(VALUE arg)
{
    struct taking *taking = (struct taking *)arg;
    while (taking->count < taking->max && taking->headers < MOST_HEADERS) {
        if (taking->consumer->damaged.waits) { /* the program gets its messages first, and this error with the next call */
            if (taking->count == 0) read_damaged(taking);
            break;
        }
        rd_kafka_event_t *event = taking->event = ps_consumer_take(taking->consumer);
        if (!event) break;
        int type = rd_kafka_event_type(event);
        if (taking->count > 0 && (type == RD_KAFKA_EVENT_REBALANCE || type == RD_KAFKA_EVENT_ERROR)) {
            /* The program gets its messages first, so that it can process them before the consumer loses the partition. */
            ps_consumer_hold(taking->consumer, event);
            taking->event = NULL;
            break;
        }
        if (type == RD_KAFKA_EVENT_FETCH) take_message(taking);
        else if (type == RD_KAFKA_EVENT_REBALANCE) penstock_nogvl_now(rebalance_nogvl, taking);
        else if (!ps_consumer_absorb(taking->consumer, event)) read_problem(taking);
        rd_kafka_event_destroy(event);
        taking->event = NULL;
        if (taking->problem.err) break;
    }
    return Qnil;
}

static VALUE take_ensure(VALUE arg)
{
    struct taking *taking = (struct taking *)arg;
    if (taking->event) rd_kafka_event_destroy(taking->event);
    ps_client_exit(&taking->consumer->client);
    return Qnil;
}

NORETURN(static void raise_problem(const struct taking *taking));
static void raise_problem(const struct taking *taking)
{
    const struct problem *problem = &taking->problem;
    struct penstock_error_context context = {
        .err = problem->fatal ? atomic_load(&taking->consumer->fatal) : problem->err,
        .client = &taking->consumer->client,
        .topic = *problem->topic ? penstock_text(problem->topic) : Qnil,
        .partition = problem->partition,
        .offset = problem->offset >= 0 ? &problem->offset : NULL,
        .fatal = problem->fatal,
    };
    penstock_raise(penstock_consume_error, &context, "%s", *problem->text ? problem->text : "the consumer had an error");
}

/* After a fatal error, each poll that finds no message raises it. */
static void check_fatal(const struct ps_consumer *consumer)
{
    struct penstock_error_context context = penstock_no_context;
    context.err = atomic_load(&consumer->fatal);
    if (!context.err) return;
    context.client = &consumer->client;
    context.fatal = true;
    penstock_raise(penstock_consume_error, &context, "the consumer has had a fatal error");
}

/* Waits for the first message, then takes all that are available. False: the time ran out, or the consumer was closed
 * meanwhile. */
static bool take_messages(struct taking *taking, VALUE timeout)
{
    int64_t deadline_us = ps_deadline_us(penstock_seconds(timeout));
    penstock_consumer_open(taking->self);
    for (;;) {
        struct ps_consumer *consumer = taking->consumer = penstock_consumer_get(taking->self); /* a trap may have forked */
        uint32_t rings = atomic_load(&consumer->bell.rings); /* before it looks for events: see consumer.c */
        if (!ps_client_enter(&consumer->client)) return false;
        rb_ensure(take_body, (VALUE)taking, take_ensure, (VALUE)taking);
        if (taking->problem.err) raise_problem(taking);
        if (taking->count > 0) return true;

        check_fatal(consumer);
        penstock_consumer_check_rejected(consumer);
        int64_t now = ps_now_us(), rejected_us = atomic_load(&consumer->client.rejection.due_us);
        if (now >= deadline_us) return false;
        int64_t nap_until_us = now + consumer->settings.nap_us; /* polls before max.poll.interval.ms ends */
        if (rejected_us) nap_until_us = penstock_earlier(nap_until_us, rejected_us);
        penstock_wait_bell(&consumer->bell, rings, penstock_earlier(deadline_us, nap_until_us));
    }
}

enum { DEFAULT_TIMEOUT_S = 1 };

static VALUE consumer_poll(int argc, VALUE *argv, VALUE self)
{
    VALUE timeout = INT2FIX(DEFAULT_TIMEOUT_S);
    penstock_keywords(argc, argv, 0, "poll(timeout: 1)", 1, &sym_timeout, &timeout);
    struct taking taking = { .self = self, .messages = Qnil, .message = Qnil, .max = 1 };
    return take_messages(&taking, timeout) ? taking.message : Qnil;
}

static VALUE consumer_poll_batch(int argc, VALUE *argv, VALUE self)
{
    const VALUE names[] = { sym_max, sym_timeout };
    VALUE values[] = { INT2FIX(100), INT2FIX(DEFAULT_TIMEOUT_S) };
    penstock_keywords(argc, argv, 0, "poll_batch(max: 100, timeout: 1)", 2, names, values);
    long max = NUM2LONG(values[0]);
    if (max < 1) rb_raise(rb_eArgError, "max must be at least 1, not %ld", max);
    struct taking taking = { .self = self, .messages = rb_ary_new(), .message = Qnil, .max = max };
    take_messages(&taking, values[1]);
    return taking.messages;
}

void penstock_poll_methods_init(VALUE consumer_class)
{
    sym_timeout = ID2SYM(rb_intern("timeout"));
    sym_max = ID2SYM(rb_intern("max"));
    rb_define_method(consumer_class, "poll", consumer_poll, -1);
    rb_define_method(consumer_class, "poll_batch", consumer_poll_batch, -1);
}
