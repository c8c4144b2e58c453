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
static ID id_taker, id_publish_polled;

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
    REBALANCE, /* this thread has to call the listener */
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
    bool control_only;          /* takes no messages */
    bool ends;                  /* the end of a partition ends the wait */
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

/* Other clients may write damaged headers. False: they cannot be read. */
static bool read_headers(const rd_kafka_message_t *message, rd_kafka_headers_t **headers)
{
    rd_kafka_resp_err_t err = rd_kafka_message_headers(message, headers);
    if (err) *headers = NULL;
    return !err || err == RD_KAFKA_RESP_ERR__NOENT;
}

static bool repeated(const struct taking *taking, const rd_kafka_message_t *message)
{
    struct ps_ledger *ledger = &taking->consumer->ledger;
    return atomic_load_explicit(&ledger->repeating, memory_order_relaxed) &&
           ps_ledger_repeated(ledger, rd_kafka_topic_name(message->rkt), message->partition, message->offset);
}

/* False: no memory. Then the event is held, for a later call. */
static bool take_message(struct taking *taking, rd_kafka_event_t *event)
{
    rd_kafka_headers_t *headers;
    struct ps_fetched *fetched = taking->fetched;
    const rd_kafka_message_t *message = ps_consumer_message(taking->consumer, event);
    if (!message || repeated(taking, message)) return true;
    bool readable = read_headers(message, &headers);
    if (!ps_fetched_copy(fetched, message, headers)) {
        ps_consumer_hold_message(taking->consumer, event, message);
        return false;
    }
    if (headers) taking->headers += rd_kafka_header_cnt(headers);
    if (!readable) fetched->records[fetched->count - 1].damaged = true;
    return true;
}

static bool full(const struct taking *taking)
{
    return taking->fetched->count >= taking->max || taking->headers >= MOST_HEADERS || taking->fetched->used >= MOST_BYTES;
}

/* The same. */
static bool take_end(struct taking *taking, rd_kafka_event_t *event)
{
    rd_kafka_topic_partition_t *place = rd_kafka_event_topic_partition(event);
    bool taken = !place || ps_fetched_end(taking->fetched, place->topic, place->partition, place->offset);
    if (place) rd_kafka_topic_partition_destroy(place);
    if (!taken) ps_consumer_hold(taking->consumer, event);
    return taken;
}

static bool is_end(rd_kafka_event_t *event)
{
    return rd_kafka_event_type(event) == RD_KAFKA_EVENT_ERROR &&
           rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__PARTITION_EOF;
}

/* Handles an event, and destroys it unless a later call needs it. False: this call takes no more. */
static bool handle(struct taking *taking, rd_kafka_event_t *event)
{
    struct ps_consumer *consumer = taking->consumer;
    bool handled = true;
    if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_REBALANCE) {
        ps_consumer_begin_answer(consumer, event);
        return true;
    }
    if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_FETCH) handled = take_message(taking, event);
    else if (is_end(event) && taking->ends) handled = take_end(taking, event);
    else if (!ps_consumer_absorb(consumer, event)) {
        if (taking->control_only) { /* the program's next poll raises it */
            ps_consumer_hold_last(consumer, event);
            return true;
        }
        read_problem(taking, event);
    }
    if (handled) rd_kafka_event_destroy(event);
    else taking->end = NO_MEMORY;
    return handled;
}

static bool has_result(const struct taking *taking)
{
    return taking->fetched->count > 0 || taking->fetched->end_count > 0;
}

/* The program gets its messages first, so that it can process them before the consumer loses the partition. */
static bool ends_batch(const struct taking *taking, rd_kafka_event_t *event)
{
    int type = rd_kafka_event_type(event);
    return has_result(taking) && (type == RD_KAFKA_EVENT_REBALANCE || (type == RD_KAFKA_EVENT_ERROR && !is_end(event)));
}

/* Goes on with the rebalance that is not answered yet. False: this thread can do no more for it now. */
static bool answer(struct taking *taking, bool with_gvl)
{
    struct ps_consumer *consumer = taking->consumer;
    if (consumer->listening || ps_consumer_holds_back(consumer)) return false;
    if (consumer->settings.listens) {
        consumer->listening = true;
        taking->end = REBALANCE;
        return false;
    }
    if (with_gvl) {
        taking->end = WITHOUT_GVL;
        return false;
    }
    ps_consumer_answer_locked(consumer, NULL);
    return true;
}

static void take_events(struct taking *taking, bool with_gvl)
{
    struct ps_consumer *consumer = taking->consumer;
    while (!full(taking) && !taking->problem.err) {
        if (consumer->answering) {
            if (!answer(taking, with_gvl)) return;
            continue;
        }
        rd_kafka_event_t *event = taking->control_only ? ps_consumer_take_control(consumer) : ps_consumer_take(consumer);
        if (!event) return;
        if (ends_batch(taking, event)) {
            ps_consumer_hold(consumer, event);
            return;
        }
        if (!handle(taking, event)) return;
    }
}

static void fill_locked(struct taking *taking, bool with_gvl)
{
    struct ps_consumer *consumer = taking->consumer;
    struct ps_fetched *fetched = taking->fetched;
    taking->end = FILLED;
    take_events(taking, with_gvl);
    if (taking->control_only) return;
    ps_consumer_count(consumer, fetched);
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
    ps_increase(&taking->consumer->counts.errors, 1);
    VALUE text = penstock_text(*problem->text ? problem->text : "the consumer had an error");
    VALUE error = penstock_error_new(penstock_consume_error, &context, text);
    rb_funcall(taking->self, rb_intern("publish_poll_error"), 1, error);
    rb_exc_raise(error);
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

uint64_t penstock_this_owner(void)
{
    return this_owner();
}

/* Looks for events once. True: there is nothing to wait for, because the call has its result or the consumer is closed. */
static bool take_once(struct taking *taking)
{
    struct ps_consumer *consumer = taking->consumer;
    if (!ps_client_enter(&consumer->client)) return true;
    fill(taking);
    ps_client_exit(&consumer->client);
    if (taking->problem.err) raise_problem(taking);
    if (has_result(taking)) return true;
    if (taking->end == REBALANCE) penstock_tell_rebalance(taking->self, consumer); /* the answer rings the bell */
    if (taking->end == NO_MEMORY) rb_memerror();
    return false;
}

/* When a thread that waits for events looks again without being woken. */
static int64_t nap_until_us(const struct ps_consumer *consumer)
{
    int64_t until_us = ps_now_us() + consumer->settings.nap_us; /* polls before max.poll.interval.ms ends */
    int64_t rejected_us = atomic_load(&consumer->client.rejection.due_us), hold_us = atomic_load(&consumer->hold_until_us);
    if (rejected_us) until_us = penstock_earlier(until_us, rejected_us);
    return hold_us ? penstock_earlier(until_us, hold_us) : until_us;
}

/* Waits for the first message, then takes all that are available. Returns when the time is up or the consumer was closed
 * meanwhile, without a message. */
static void wait_for_messages(struct taking *taking, VALUE timeout)
{
    int64_t deadline_us = ps_deadline_us(penstock_seconds(timeout));
    struct ps_consumer *opened = penstock_consumer_open(taking->self);
    taking->owner = this_owner();
    if (opened->settings.mark == PS_MARK_NEXT_POLL) ps_ledger_finish(&opened->ledger, taking->owner);
    for (;;) {
        struct ps_consumer *consumer = taking->consumer = penstock_consumer_get(taking->self); /* a trap may have forked */
        penstock_publish_news(taking->self, consumer); /* now, as an interrupt of a listener loses no message */
        uint32_t rings = atomic_load(&consumer->bell.rings); /* before it looks for events: see consumer.c */
        if (take_once(taking)) return;
        check_fatal(consumer);
        penstock_consumer_check_rejected(consumer);
        if (ps_now_us() >= deadline_us) return;
        penstock_wait_bell(&consumer->bell, rings, penstock_earlier(deadline_us, nap_until_us(consumer)));
    }
}

static void take_messages(struct taking *taking, VALUE timeout)
{
    wait_for_messages(taking, timeout);
    if (taking->fetched->count == 0) ps_increase(&taking->consumer->counts.empty_polls, 1);
}

/* Handles rebalances and other requests of the group, once, and waits until there may be more. Takes no message. Raises if the
 * consumer is closed. */
static VALUE consumer_call_serve(VALUE self)
{
    struct ps_consumer *consumer = penstock_consumer_get(self);
    uint32_t rings = atomic_load(&consumer->bell.rings);
    struct taking taking = { .self = self, .consumer = consumer, .max = 1, .control_only = true };
    VALUE batch = penstock_batch_allocate(0, &taking.fetched);
    penstock_publish_news(self, consumer);
    take_once(&taking);
    RB_GC_GUARD(batch);
    penstock_check_open(&consumer->client); /* a consumer that is not open yet rings when it is */
    penstock_wait_bell(&consumer->bell, rings, nap_until_us(consumer));
    return Qnil;
}

/* Ends the wait of call_serve. */
static VALUE consumer_call_wake(VALUE self)
{
    ps_bell_ring(&penstock_consumer_get(self)->bell);
    return Qnil;
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
    VALUE message = penstock_message_of(&taking.fetched->records[0], penstock_consumer_deserializer(self));
    RB_GC_GUARD(batch);
    if (ps_news_wanted(&taking.consumer->news, PS_NEWS_POLLED))
        rb_funcall(self, id_publish_polled, 1, rb_ary_new_from_args(1, message));
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
    struct taking taking = { .self = self, .max = (size_t)max, .ends = penstock_consumer_get(self)->settings.ends };
    VALUE batch = penstock_batch_allocate(0, &taking.fetched);
    take_messages(&taking, values[1]);
    batch = penstock_batch_finish(batch, penstock_consumer_deserializer(self));
    if (taking.fetched->count > 0 && ps_news_wanted(&taking.consumer->news, PS_NEWS_POLLED))
        rb_funcall(self, id_publish_polled, 1, batch);
    if (taking.fetched->end_count > 0 && ps_news_wanted(&taking.consumer->news, PS_NEWS_ENDS))
        rb_funcall(self, rb_intern("publish_ends"), 1, batch);
    return batch;
}

void penstock_poll_methods_init(VALUE consumer_class)
{
    sym_timeout = ID2SYM(rb_intern("timeout"));
    sym_max = ID2SYM(rb_intern("max"));
    id_publish_polled = rb_intern("publish_polled");
    id_taker = rb_intern("__penstock_taker__");
    rb_define_method(consumer_class, "poll", consumer_poll, -1);
    rb_define_method(consumer_class, "poll_batch", consumer_poll_batch, -1);
    rb_define_private_method(consumer_class, "call_finish", consumer_call_finish, 0);
    rb_define_private_method(consumer_class, "call_serve", consumer_call_serve, 0);
    rb_define_private_method(consumer_class, "call_wake", consumer_call_wake, 0);
}
