/*
 * Penstock::Consumer, continued: poll and poll_batch.
 *
 * A polling thread takes librdkafka's events itself, copies their messages (core/consume/fetched.c) and destroys them before it
 * returns, as librdkafka cannot be destroyed while an event exists. It sleeps, and may be interrupted, only between events, when
 * it has not entered the client. So a trap may close the consumer that the interrupted thread polls.
 *
 * One thread takes at a time: it holds consumer->taking. A few messages are copied with the GVL. Many, and all rebalances, are
 * handled without it. A thread that holds the lock never waits for the GVL, and a thread with the GVL never waits for the lock.
 */
#include "ruby/penstock.h"
#include <string.h>

static VALUE sym_timeout, sym_max;
static ID id_taker, id_gave_up;

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
 * A batch ends with the message that reaches one of these limits. Making Strings of 100,000 headers takes a tenth of a second with
 * the GVL, and librdkafka accepts as many in each message.
 */
enum { MOST_HEADERS = 100000, MOST_BYTES = 64 << 20 };

/* From this number of available messages on, releasing the GVL costs less than it gains. */
enum { MANY = 32 };

enum fill_end {
    FILLED,  /* as full as it gets now */
    BUSY,    /* another thread takes */
    WITHOUT_GVL, /* the next event has to be handled without the GVL */
    REBALANCE, /* the listener has to be told */
    NO_MEMORY,
};

/* One call of poll or poll_batch. */
struct taking {
    VALUE self;
    struct ps_consumer *consumer;
    struct ps_fetched *fetched; /* a Ruby object owns it */
    uint64_t owner;             /* of what is taken */
    size_t max;
    size_t headers;
    enum fill_end end;
    struct problem problem;
};

static void read_problem(struct taking *taking, rd_kafka_event_t *event)
{
    struct problem *problem = &taking->problem;
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

/* False: no memory. */
static bool take_message(struct taking *taking, rd_kafka_event_t *event)
{
    rd_kafka_headers_t *headers;
    const rd_kafka_message_t *message = rd_kafka_event_message_next(event);
    if (!message) return true;
    if (!read_headers(message, &headers)) {
        ps_consumer_damaged(taking->consumer, message);
        return true;
    }
    if (!ps_fetched_copy(taking->fetched, message, headers)) return false;
    if (headers) taking->headers += rd_kafka_header_cnt(headers);
    return true;
}

static void read_damaged(struct taking *taking)
{
    struct problem *problem = &taking->problem;
    struct ps_damaged *damaged = &taking->consumer->damaged;
    problem->err = RD_KAFKA_RESP_ERR__BAD_MSG; /* librdkafka's code varies; programs get one */
    problem->partition = damaged->partition;
    problem->offset = damaged->offset;
    snprintf(problem->topic, sizeof(problem->topic), "%s", damaged->topic);
    snprintf(problem->text, sizeof(problem->text), "a message's headers cannot be read");
    damaged->waits = false;
    /* The program has got it, as an error. */
    ps_ledger_handed_out(&taking->consumer->ledger, damaged->topic, damaged->partition, damaged->offset, -1, taking->owner);
}

static bool full(const struct taking *taking)
{
    return taking->fetched->count >= taking->max || taking->headers >= MOST_HEADERS || taking->fetched->used >= MOST_BYTES;
}

/* Handles an event. False: it is left to a later call, which must then come without the GVL. */
static bool handle(struct taking *taking, rd_kafka_event_t *event, bool with_gvl)
{
    switch (rd_kafka_event_type(event)) {
    case RD_KAFKA_EVENT_FETCH:
        if (take_message(taking, event)) return true;
        taking->end = NO_MEMORY;
        return false;
    case RD_KAFKA_EVENT_REBALANCE:
        if (taking->consumer->settings.listens) {
            ps_consumer_ask_listener(taking->consumer, event);
            taking->end = REBALANCE;
            return true;
        }
        if (with_gvl) {
            taking->end = WITHOUT_GVL;
            return false;
        }
        ps_consumer_rebalance(taking->consumer, event, NULL);
        return true;
    default:
        if (!ps_consumer_absorb(taking->consumer, event)) read_problem(taking, event);
        return true;
    }
}

/* The program gets its messages first, so that it can process them before the consumer loses the partition. */
static bool ends_batch(const struct taking *taking, rd_kafka_event_t *event)
{
    int type = rd_kafka_event_type(event);
    return taking->fetched->count > 0 && (type == RD_KAFKA_EVENT_REBALANCE || type == RD_KAFKA_EVENT_ERROR);
}

static void take_events(struct taking *taking, bool with_gvl)
{
    struct ps_consumer *consumer = taking->consumer;
    while (!full(taking) && !taking->problem.err) {
        if (consumer->damaged.waits) { /* the program gets its messages first, and this error with the next call */
            if (taking->fetched->count == 0) read_damaged(taking);
            return;
        }
        rd_kafka_event_t *event = consumer->answering ? NULL : ps_consumer_take(consumer);
        if (!event) return;
        if (ends_batch(taking, event) || !handle(taking, event, with_gvl)) {
            ps_consumer_hold(consumer, event);
            return;
        }
        if (taking->end == REBALANCE) return;
        rd_kafka_event_destroy(event);
    }
}

static void fill_locked(struct taking *taking, bool with_gvl)
{
    struct ps_consumer *consumer = taking->consumer;
    struct ps_fetched *fetched = taking->fetched;
    taking->end = FILLED;
    take_events(taking, with_gvl);
    if (!ps_ledger_handed_out_all(&consumer->ledger, fetched, taking->owner)) taking->end = NO_MEMORY;
    if (consumer->settings.mark == PS_MARK_AT_ONCE) ps_ledger_finish(&consumer->ledger, taking->owner);
    if (fetched->count == 0) ps_consumer_store(consumer);
    else ps_consumer_store_sometimes(consumer);
}

static void *fill_nogvl(void *arg)
{
    struct taking *taking = arg;
    pthread_mutex_lock(&taking->consumer->taking);
    fill_locked(taking, false);
    pthread_mutex_unlock(&taking->consumer->taking);
    return NULL;
}

static bool many_wait(const struct taking *taking)
{
    return taking->max >= MANY && rd_kafka_queue_length(taking->consumer->data) >= MANY;
}

/* The client is entered. Runs no Ruby code, handles no interrupts, and raises nothing. */
static void fill(struct taking *taking)
{
    taking->end = WITHOUT_GVL;
    if (!many_wait(taking)) {
        taking->end = BUSY;
        if (pthread_mutex_trylock(&taking->consumer->taking) == 0) {
            fill_locked(taking, true);
            pthread_mutex_unlock(&taking->consumer->taking);
        }
    }
    if (taking->end == WITHOUT_GVL || taking->end == BUSY) penstock_nogvl_now(fill_nogvl, taking);
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
    if (problem->err == RD_KAFKA_RESP_ERR__BAD_MSG) { /* close does not take the damaged message for processed */
        rb_thread_local_aset(rb_thread_current(), id_gave_up, taking->self);
        atomic_store(&taking->consumer->gave_up, true);
    }
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

/* A number for this fiber that no other has. */
static uint64_t this_owner(void)
{
    static _Atomic uint64_t owners;
    VALUE thread = rb_thread_current(), number = rb_thread_local_aref(thread, id_taker); /* local to the fiber */
    if (NIL_P(number)) rb_thread_local_aset(thread, id_taker, number = ULL2NUM(atomic_fetch_add(&owners, 1) + 1));
    return NUM2ULL(number);
}

/* Waits for the first message, then takes all that are available. Returns when the time is up or the consumer was closed
 * meanwhile, without a message. */
static void take_messages(struct taking *taking, VALUE timeout)
{
    int64_t deadline_us = ps_deadline_us(penstock_seconds(timeout));
    struct ps_consumer *opened = penstock_consumer_open(taking->self);
    taking->owner = this_owner();
    if (opened->settings.mark == PS_MARK_NEXT_POLL) ps_ledger_finish(&opened->ledger, taking->owner);
    if (atomic_load(&opened->gave_up)) rb_thread_local_aset(rb_thread_current(), id_gave_up, Qnil);
    for (;;) {
        struct ps_consumer *consumer = taking->consumer = penstock_consumer_get(taking->self); /* a trap may have forked */
        uint32_t rings = atomic_load(&consumer->bell.rings); /* before it looks for events: see consumer.c */
        if (!ps_client_enter(&consumer->client)) return;
        fill(taking);
        ps_client_exit(&consumer->client);
        if (taking->problem.err) raise_problem(taking);
        if (taking->fetched->count > 0) return;
        if (taking->end == REBALANCE) {
            penstock_tell_rebalance(taking->self, consumer);
            continue;
        }
        if (taking->end == NO_MEMORY) rb_memerror();

        check_fatal(consumer);
        penstock_consumer_check_rejected(consumer);
        int64_t now = ps_now_us(), rejected_us = atomic_load(&consumer->client.rejection.due_us);
        if (now >= deadline_us) return;
        int64_t nap_until_us = now + consumer->settings.nap_us; /* polls before max.poll.interval.ms ends */
        if (rejected_us) nap_until_us = penstock_earlier(nap_until_us, rejected_us);
        penstock_wait_bell(&consumer->bell, rings, penstock_earlier(deadline_us, nap_until_us));
    }
}

enum { DEFAULT_TIMEOUT_S = 1, DEFAULT_MAX = 100 };

static VALUE consumer_poll(int argc, VALUE *argv, VALUE self)
{
    VALUE timeout = INT2FIX(DEFAULT_TIMEOUT_S);
    penstock_keywords(argc, argv, 0, "poll(timeout: 1)", 1, &sym_timeout, &timeout);
    struct taking taking = { .self = self, .max = 1 };
    VALUE batch = penstock_batch_allocate(1, &taking.fetched);
    take_messages(&taking, timeout);
    if (taking.fetched->count == 0) return Qnil;
    penstock_fetched_report(taking.fetched);
    VALUE message = penstock_batch_message(batch, 0);
    RB_GC_GUARD(batch);
    return message;
}

/* What this fiber has polled counts as processed, if polling again would say so. */
static VALUE consumer_call_finish(VALUE self)
{
    struct ps_consumer *consumer = penstock_consumer_get(self);
    if (consumer->settings.mark == PS_MARK_NEXT_POLL) ps_ledger_finish(&consumer->ledger, this_owner());
    return Qnil;
}

static VALUE consumer_poll_batch(int argc, VALUE *argv, VALUE self)
{
    const VALUE names[] = { sym_max, sym_timeout };
    VALUE values[] = { INT2FIX(DEFAULT_MAX), INT2FIX(DEFAULT_TIMEOUT_S) };
    penstock_keywords(argc, argv, 0, "poll_batch(max: 100, timeout: 1)", 2, names, values);
    long max = NUM2LONG(values[0]);
    if (max < 1) rb_raise(rb_eArgError, "max must be at least 1, not %ld", max);
    struct taking taking = { .self = self, .max = (size_t)max };
    VALUE batch = penstock_batch_allocate(0, &taking.fetched);
    take_messages(&taking, values[1]);
    return penstock_batch_finish(batch);
}

void penstock_poll_methods_init(VALUE consumer_class)
{
    sym_timeout = ID2SYM(rb_intern("timeout"));
    sym_max = ID2SYM(rb_intern("max"));
    id_taker = rb_intern("__penstock_taker__");
    id_gave_up = rb_intern("__penstock_gave_up__"); /* also set by Consumer#each */
    rb_define_method(consumer_class, "poll", consumer_poll, -1);
    rb_define_method(consumer_class, "poll_batch", consumer_poll_batch, -1);
    rb_define_private_method(consumer_class, "call_finish", consumer_call_finish, 0);
}
