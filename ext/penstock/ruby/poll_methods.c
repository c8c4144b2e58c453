/*
 * Penstock::Native::ConsumerClient, continued: poll and poll_batch.
 *
 * A polling thread takes librdkafka's events and messages itself (core/consume/queues.c), copies the messages (fetched.c) and
 * destroys them before it returns, as librdkafka cannot be destroyed while one exists. It sleeps, and may be interrupted, only in
 * between, when it has not entered the client. So a trap may close the consumer that the interrupted thread polls.
 *
 * One thread takes at a time: it holds consumer->taking. A few messages are copied with the GVL. Many, and all rebalances, are
 * handled without it. A thread that holds the lock never waits for the GVL, and a thread with the GVL never waits for the lock.
 */
#include "ruby/penstock.h"
#include <stdlib.h>
#include <string.h>

static VALUE sym_timeout, sym_max;
static ID id_polled;

/*
 * A batch ends with the message that reaches one of these limits. librdkafka accepts 100,000 headers in each message, and it takes
 * ms to parse and copy so many, perhaps with the GVL. Without it, messages are taken in parts, and a batch may exceed the limits by
 * a part: at most by what librdkafka's queue may have (queued.max.messages.kbytes).
 */
enum { MOST_HEADERS = 100000, MOST_BYTES = 64 << 20 };

/* A batch of this size is one piece of memory. */
enum { FIRST_RECORDS = 16, FIRST_BYTES = 2048 };

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
    VALUE holder;               /* a Batch or Message that owns nothing yet */
    void (*own)(VALUE holder, struct ps_fetched *fetched);
    struct ps_fetched *fetched; /* NULL: nothing is taken yet */
    struct penstock_taker *taker; /* this fiber; NULL: it takes no messages */
    size_t max;
    size_t most_bytes;          /* 0: MOST_BYTES */
    size_t headers;
    int runs;                   /* of one partition's increasing offsets */
    bool control_only;          /* takes no messages */
    bool ends;                  /* the end of a partition ends the wait */
    bool one_partition;         /* the batch ends before a message of another partition */
    bool unreceived;            /* the ledger says so, as other threads may run before the call returns */
    enum fill_end end;
    struct ps_problem *problem; /* NULL: none; the call raises it when it has left the client */
};

static bool has_result(const struct taking *taking)
{
    return taking->fetched && (taking->fetched->count > 0 || taking->fetched->end_count > 0);
}

static size_t count_of(const struct taking *taking)
{
    return taking->fetched ? taking->fetched->count : 0;
}

static size_t most_bytes(const struct taking *taking)
{
    return taking->most_bytes ? taking->most_bytes : MOST_BYTES;
}

static bool full(const struct taking *taking)
{
    const struct ps_fetched *fetched = taking->fetched;
    /* M:batch_headers_bounded */
    return fetched && (fetched->count >= taking->max || taking->headers >= MOST_HEADERS || fetched->used >= most_bytes(taking));
}

/* ---- messages ---- */

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

/* False: no memory. */
static bool begin_fetched(struct taking *taking, const rd_kafka_message_t *first, const rd_kafka_headers_t *headers)
{
    bool single = taking->own == penstock_message_own; /* a batch's bytes can be released */
    size_t size = single ? ps_fetched_size_of(first, headers) : FIRST_BYTES;
    struct ps_fetched *fetched = ps_fetched_new(rd_kafka_topic_name(first->rkt), single ? 1 : FIRST_RECORDS, size);
    if (!fetched) return false;
    if (!single) fetched->expected = rd_kafka_queue_length(taking->consumer->data) + (size_t)taking->consumer->taken_count;
    if (fetched->expected > taking->max) fetched->expected = taking->max;
    fetched->most = most_bytes(taking);
    taking->fetched = fetched;
    return true;
}

static bool goes_on(const struct ps_fetched *fetched, const rd_kafka_message_t *message)
{
    if (!fetched || fetched->count == 0) return false;
    const struct ps_record *last = &fetched->records[fetched->count - 1];
    return last->partition == message->partition && last->offset < message->offset &&
           strcmp(fetched->topics[last->topic], rd_kafka_topic_name(message->rkt)) == 0;
}

/* librdkafka itself goes back to an earlier offset if the position no longer exists, for example as the topic was created anew. */
static void note_reset(const struct taking *taking, const rd_kafka_message_t *message)
{
    struct ps_consumer *consumer = taking->consumer;
    const char *topic = rd_kafka_topic_name(message->rkt);
    if (!ps_news_wanted(&consumer->news, PS_NEWS_RESET)) return;
    int64_t position = ps_ledger_position(&consumer->ledger, topic, message->partition);
    if (position <= message->offset) return;
    rd_kafka_topic_partition_list_t *places = rd_kafka_topic_partition_list_new(2);
    rd_kafka_topic_partition_list_add(places, topic, message->partition)->offset = message->offset;
    rd_kafka_topic_partition_list_add(places, topic, message->partition)->offset = position;
    ps_news_add(&consumer->news, PS_NEWS_RESET, RD_KAFKA_RESP_ERR_NO_ERROR, false, places, NULL);
    ps_bell_ring(&consumer->bell); /* a thread publishes it */
    rd_kafka_topic_partition_list_destroy(places);
}

/* What the ledger does not know, the program cannot mark, and a later commit would pass it. False: no memory. */
static bool reserve(struct taking *taking, const rd_kafka_message_t *message)
{
    if (goes_on(taking->fetched, message)) return true;
    note_reset(taking, message);
    return ps_ledger_reserve(&taking->consumer->ledger, rd_kafka_topic_name(message->rkt), message->partition, ++taking->runs);
}

/* False: no memory. */
static bool take_message(struct taking *taking, const rd_kafka_message_t *message)
{
    rd_kafka_headers_t *headers;
    if (repeated(taking, message)) return true;
    if (!reserve(taking, message)) return false; /* M:ledger_reserves_first */
    bool readable = read_headers(message, &headers);
    if (!taking->fetched && !begin_fetched(taking, message, headers)) return false;
    struct ps_fetched *fetched = taking->fetched;
    if (!ps_fetched_copy(fetched, message, headers)) return false;
    if (headers) taking->headers += rd_kafka_header_cnt(headers);
    if (!readable) fetched->records[fetched->count - 1].damaged = true; /* M:damaged_headers_flagged */
    return true;
}

/* The same. */
static bool take_end(struct taking *taking, const rd_kafka_message_t *end)
{
    if (!taking->fetched) taking->fetched = ps_fetched_new(NULL, 0, 0);
    return taking->fetched && ps_fetched_end(taking->fetched, rd_kafka_topic_name(end->rkt), end->partition, end->offset);
}

/* What librdkafka could not read comes in its place among the messages. Those behind it wait until the program knows of it. */
static bool use_error(struct taking *taking, const rd_kafka_message_t *message)
{
    if (ps_consumer_absorb_error(taking->consumer, message->err, false, rd_kafka_message_errstr(message))) return true;
    if (has_result(taking)) return false;
    ps_consumer_add_message_problem(taking->consumer, message);
    return true;
}

/* False: it stays for a later call, as what is behind it. */
static bool use(struct taking *taking, const rd_kafka_message_t *message)
{
    bool is_end = message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
    if (message->err && !is_end) return use_error(taking, message);
    if (is_end) { /* the fetched messages end here, also if the last ones are not shown to the program */
        ps_ledger_ended(&taking->consumer->ledger, rd_kafka_topic_name(message->rkt), message->partition, message->offset);
        if (!taking->ends || take_end(taking, message)) return true;
    } else {
        if (full(taking)) return false;
        if (taking->one_partition && count_of(taking) > 0 && !goes_on(taking->fetched, message)) return false;
        if (take_message(taking, message)) return true;
    }
    taking->end = NO_MEMORY; /* M:no_memory_raises */
    return false;
}

/* How many to take at once: librdkafka does not tell their sizes before. */
static size_t next_part(const struct taking *taking, bool with_gvl)
{
    const struct ps_fetched *fetched = taking->fetched;
    if (with_gvl) return 1;
    size_t most = taking->max - count_of(taking), fit = FIRST_RECORDS;
    if (fetched && fetched->count > 0) fit = (most_bytes(taking) - fetched->used) / (fetched->used / fetched->count + 1) + 1;
    return most < fit ? most : fit;
}

/* Takes some of the messages that are there. False: this call takes no more. */
static bool take_some(struct taking *taking, bool with_gvl)
{
    struct ps_consumer *consumer = taking->consumer;
    int used = 0, count = ps_consumer_take_messages(consumer, next_part(taking, with_gvl));
    while (used < count && !consumer->problems && use(taking, consumer->taken[used])) /* M:error_stops_batch */
        rd_kafka_message_destroy(consumer->taken[used++]);
    consumer->taken_count -= used;
    memmove(consumer->taken, consumer->taken + used, (size_t)consumer->taken_count * sizeof(consumer->taken[0]));
    if (consumer->taken_count > 0) ps_bell_ring(&consumer->bell); /* another thread may have found the queue empty, and sleep */
    return count > 0 && consumer->taken_count == 0 && !consumer->problems;
}

/* ---- events ---- */

/* Goes on with the rebalance that is not answered yet. Listeners learn of it before the program gets the next messages, so the call
 * takes none: the answer rings. */
static void answer(struct taking *taking, bool with_gvl)
{
    struct ps_consumer *consumer = taking->consumer;
    if (consumer->listening || ps_consumer_holds_back(consumer)) return;
    if (consumer->settings.listens && !consumer->prepared) {
        consumer->listening = true;
        taking->end = REBALANCE;
    } else if (with_gvl) {
        taking->end = WITHOUT_GVL;
    } else {
        ps_consumer_answer_locked(consumer, NULL);
    }
}

/* The program gets its messages first. So it can process them before the consumer loses the partition, and an error costs none. */
static void take_events(struct taking *taking, bool with_gvl)
{
    struct ps_consumer *consumer = taking->consumer;
    while (taking->control_only || !full(taking)) {
        if (consumer->answering) {
            answer(taking, with_gvl);
            return;
        }
        rd_kafka_event_t *event = ps_consumer_take(consumer);
        if (!event && !taking->control_only && !consumer->problems) {
            if (take_some(taking, with_gvl)) continue;
            if (has_result(taking) || taking->end != FILLED) return;
        }
        if (!event && !(event = ps_consumer_poll_control(consumer))) return;
        if (rd_kafka_event_type(event) != RD_KAFKA_EVENT_REBALANCE) {
            ps_consumer_absorb(consumer, event);
        } else if (has_result(taking)) {
            ps_consumer_hold(consumer, event);
            return;
        } else {
            ps_consumer_begin_answer(consumer, event);
        }
    }
}

static void fill_locked(struct taking *taking, bool with_gvl)
{
    struct ps_consumer *consumer = taking->consumer;
    taking->end = FILLED;
    ps_consumer_restart_if_due(consumer);
    take_events(taking, with_gvl);
    if (taking->control_only) return;
    struct ps_fetched *fetched = taking->fetched;
    if (fetched) {
        ps_consumer_count(consumer, fetched);
        taking->unreceived = consumer->settings.mark == PS_MARK_NEXT_POLL && !with_gvl;
        uint64_t owner = taking->taker->owner | (taking->unreceived ? PS_NOT_RECEIVED : 0);
        ps_ledger_handed_out_all(&consumer->ledger, fetched, owner); /* take_message has reserved what it needs */
    }
    if (!has_result(taking) && taking->end == FILLED) taking->problem = ps_consumer_take_due_problem(consumer);
    if (count_of(taking) > 0 && atomic_load(&consumer->size_error.due_us) != PS_FOREVER) ps_lasting_end(&consumer->size_error);
    if (consumer->settings.mark == PS_MARK_AT_ONCE) ps_ledger_finish(&consumer->ledger, taking->taker->owner); /* M:marked_at_once */
    if (count_of(taking) > 0) ps_consumer_store_sometimes(consumer);
    else ps_consumer_store(consumer);
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
    return taking->max >= MANY && !taking->control_only && rd_kafka_queue_length(taking->consumer->data) >= MANY;
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

/* The text without librdkafka's description of the code, with which the error's message ends anyway. */
static VALUE text_of(const struct ps_problem *problem)
{
    const char *description = rd_kafka_err2str(problem->err);
    size_t size = strlen(problem->text), tail = strlen(description) + 2;
    if (size > tail && strcmp(problem->text + size - tail + 2, description) == 0) size -= tail;
    return size > 0 ? penstock_text_sized(problem->text, size) : rb_str_new_cstr("the consumer had an error");
}

NORETURN(static void raise_problem(const struct taking *taking));
static void raise_problem(const struct taking *taking)
{
    struct ps_problem copy = *taking->problem, *problem = &copy;
    free(taking->problem);
    rd_kafka_resp_err_t reason = atomic_load(&taking->consumer->fatal); /* of the consumer, perhaps since another error came */
    bool fatal = reason && (problem->err == reason || problem->err == RD_KAFKA_RESP_ERR__FATAL);
    struct penstock_error_context context = {
        .err = fatal ? reason : problem->err,
        .client = &taking->consumer->client,
        .topic = *problem->topic ? penstock_text(problem->topic) : Qnil,
        .partition = problem->partition,
        .group = problem->group || fatal ? penstock_consumer_group(taking->consumer) : Qnil,
        .offset = problem->offset >= 0 ? &problem->offset : NULL,
        .fatal = fatal,
    };
    ps_increase(&taking->consumer->counts.errors, 1);
    VALUE error = penstock_error_new(penstock_consume_error, &context, text_of(problem));
    rb_funcall(penstock_consumer_callbacks(taking->self), rb_intern("poll_failed"), 1, error);
    rb_exc_raise(error);
}

static void raise_fatal(const struct ps_consumer *consumer)
{
    struct penstock_error_context context = penstock_no_context;
    context.err = atomic_load(&consumer->fatal);
    context.group = penstock_consumer_group(consumer);
    context.client = &consumer->client;
    context.fatal = true;
    penstock_raise(penstock_consume_error, &context, "the consumer has had a fatal error");
}

/*
 * Polls that were waiting when the fatal error came raise it at once. Each later one raises it when its time is up, or after this
 * time: a program that rescues the error and polls on would otherwise keep a processor busy.
 */
enum { LONGEST_FATAL_WAIT_US = 1000 * 1000 };

/* Looks for events once. True: there is nothing to wait for, because the call has its result or the consumer is closed. */
static bool take_once(struct taking *taking)
{
    struct ps_consumer *consumer = taking->consumer;
    if (!ps_client_enter(&consumer->client)) return true;
    fill(taking);
    ps_client_exit(&consumer->client);
    if (taking->fetched) taking->own(taking->holder, taking->fetched);
    if (count_of(taking) > 0) penstock_has_polled(taking->taker, taking->fetched);
    if (taking->problem) raise_problem(taking);
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
    int64_t restart_us = atomic_load(&consumer->restart_us);
    if (rejected_us) until_us = penstock_earlier(until_us, rejected_us);
    if (restart_us) until_us = penstock_earlier(until_us, restart_us);
    return hold_us ? penstock_earlier(until_us, hold_us) : until_us;
}

/* ---- what the caller of an earlier poll has not received ---- */

static bool all_held(struct ps_consumer *consumer, const struct ps_fetched *fetched)
{
    for (size_t i = 0; i < fetched->count; i++) {
        const struct ps_record *record = &fetched->records[i];
        if (!ps_ledger_holds(&consumer->ledger, fetched->topics[record->topic], record->partition, record->offset, fetched->epoch))
            return false;
    }
    return true;
}

void penstock_rewind_unreceived(VALUE self, struct ps_consumer *consumer)
{
    struct penstock_last_poll *polled = penstock_last_poll_of(penstock_taker(), consumer);
    if (!polled || !penstock_unreceived(polled)) return;
    penstock_consumer_rewind(self, polled->fetched);
    polled->interrupted = false;
}

/* The ledger still has this fiber as their owner. True: the call returns them. If this call asks for fewer messages, or another member
 * has some of them now, librdkafka reads again what is still this consumer's. */
static bool give_again(struct taking *taking)
{
    const struct penstock_last_poll *polled = penstock_last_poll_of(taking->taker, taking->consumer);
    if (!polled || !penstock_unreceived(polled)) return false;
    struct ps_fetched *fetched = polled->fetched;
    bool fits = fetched->count <= taking->max && all_held(taking->consumer, fetched);
    if (fits && ps_client_enter(&taking->consumer->client)) {
        fits = !rd_kafka_assignment_lost(taking->consumer->client.rk);
        ps_client_exit(&taking->consumer->client);
    }
    if (!fits) {
        penstock_rewind_unreceived(taking->self, taking->consumer);
        return false;
    }
    ps_fetched_retain(fetched);
    penstock_begin_poll(taking->taker, taking->consumer);
    taking->fetched = fetched;
    taking->unreceived = true;
    taking->own(taking->holder, fetched);
    penstock_has_polled(taking->taker, fetched);
    return true;
}

/* Waits for the first message, then takes all that are available. Returns when the time is up or the consumer was closed
 * meanwhile, without a message. */
static void wait_for_messages(struct taking *taking, VALUE timeout)
{
    int64_t deadline_us = ps_deadline_us(penstock_seconds(timeout));
    struct ps_consumer *opened = penstock_consumer_open(taking->self);
    bool was_fatal = atomic_load(&opened->fatal);
    if (was_fatal) deadline_us = penstock_earlier(deadline_us, ps_now_us() + LONGEST_FATAL_WAIT_US);
    taking->taker = penstock_taker();
    taking->consumer = opened;
    if (give_again(taking)) return;
    penstock_begin_poll(taking->taker, opened);
    /* M:poll_marks_previous */
    if (opened->settings.mark == PS_MARK_NEXT_POLL) ps_ledger_finish(&opened->ledger, taking->taker->owner);
    for (;; taking->consumer = penstock_consumer_get(taking->self)) { /* a trap may have forked during the wait */
        struct ps_consumer *consumer = taking->consumer;
        penstock_publish_news(taking->self, consumer); /* now, as an interrupt of a listener loses no message */
        uint32_t rings = atomic_load(&consumer->bell.rings); /* before it looks for events: see consumer.c */
        if (take_once(taking)) return;
        bool late = ps_now_us() >= deadline_us;
        if (atomic_load(&consumer->fatal) && (late || !was_fatal)) raise_fatal(consumer);
        penstock_consumer_check_rejected(consumer);
        if (late) return;
        ps_blocks_trim();
        penstock_wait_bell(&consumer->bell, rings, penstock_earlier(deadline_us, nap_until_us(consumer)));
    }
}

static void take_messages(struct taking *taking, VALUE timeout)
{
    wait_for_messages(taking, timeout);
    if (count_of(taking) == 0) ps_increase(&taking->consumer->counts.empty_polls, 1);
}

/* Handles rebalances and other requests of the group, once. Takes no message. Raises if the consumer is closed. */
static VALUE consumer_call_answer(VALUE self)
{
    struct ps_consumer *consumer = penstock_consumer_get(self);
    struct taking taking = { .self = self, .consumer = consumer, .max = 1, .control_only = true };
    penstock_publish_news(self, consumer);
    take_once(&taking);
    penstock_check_open(&consumer->client);
    return Qnil;
}

/* The same, and waits until there may be more. */
static VALUE consumer_call_serve(VALUE self)
{
    struct ps_consumer *consumer = penstock_consumer_get(self);
    uint32_t rings = atomic_load(&consumer->bell.rings); /* a consumer that is not open yet rings when it is */
    consumer_call_answer(self);
    penstock_wait_bell(&consumer->bell, rings, nap_until_us(consumer));
    return Qnil;
}

struct looking {
    struct ps_consumer *consumer;
    bool rebalances;
};

static void *look_nogvl(void *arg)
{
    struct looking *looking = arg;
    if (!ps_client_enter(&looking->consumer->client)) return NULL;
    pthread_mutex_lock(&looking->consumer->taking);
    looking->rebalances = ps_consumer_rebalances(looking->consumer);
    pthread_mutex_unlock(&looking->consumer->taking);
    ps_client_exit(&looking->consumer->client);
    return NULL;
}

/* Answers the rebalances that wait, as polls do. An answer to a former subscription would act on what the program assigns next. */
static VALUE consumer_call_settle(VALUE self)
{
    for (;;) {
        struct looking looking = { .consumer = penstock_consumer_get(self) };
        struct ps_consumer *consumer = looking.consumer;
        uint32_t rings = atomic_load(&consumer->bell.rings);
        consumer_call_answer(self);
        penstock_nogvl_now(look_nogvl, &looking);
        if (!looking.rebalances) return Qnil;
        penstock_wait_bell(&consumer->bell, rings, nap_until_us(consumer));
    }
}

/* Ends the wait of serve. */
static VALUE consumer_call_wake(VALUE self)
{
    ps_bell_ring(&penstock_consumer_get(self)->bell);
    return Qnil;
}

enum { DEFAULT_TIMEOUT_S = 1, DEFAULT_MAX = 100 };

static void publish_message(VALUE self, VALUE message)
{
    if (ps_news_wanted(&penstock_consumer_any(self)->news, PS_NEWS_POLLED))
        rb_funcall(penstock_consumer_callbacks(self), id_polled, 1, rb_ary_new_from_args(1, message));
}

static void give(const struct taking *taking, VALUE messages, void (*publish)(VALUE self, VALUE messages))
{
    struct penstock_returning returning = { taking->self, messages, taking->taker, taking->consumer, taking->fetched,
                                            taking->unreceived, publish };
    penstock_return(&returning);
}

/* `keeps`: the caller sees to interrupts. */
static VALUE poll_one(VALUE self, VALUE timeout, bool keeps)
{
    VALUE message = penstock_message_allocate(penstock_consumer_deserializer(self));
    struct taking taking = { .self = self, .holder = message, .own = penstock_message_own, .max = 1 };
    take_messages(&taking, timeout);
    if (count_of(&taking) == 0) return Qnil;
    if (keeps) {
        publish_message(self, message);
        if (taking.unreceived) ps_ledger_receive(&taking.consumer->ledger, taking.taker->owner, true);
    } else {
        give(&taking, message, publish_message);
    }
    return message;
}

/* next_message(timeout): the caller calls not_received if it is interrupted before it has kept the message. */
static VALUE consumer_call_poll(VALUE self, VALUE timeout)
{
    return poll_one(self, timeout, true);
}

static VALUE consumer_call_not_received(VALUE self)
{
    struct penstock_last_poll *polled = penstock_last_poll_of(penstock_taker(), penstock_consumer_any(self));
    if (!polled || !polled->fetched) return Qnil;
    polled->interrupted = polled->raised = true;
    ps_ledger_receive(&penstock_consumer_any(self)->ledger, penstock_taker()->owner, false);
    return Qnil;
}

VALUE penstock_consumer_poll(int argc, VALUE *argv, VALUE self)
{
    VALUE timeout = INT2FIX(DEFAULT_TIMEOUT_S);
    penstock_keywords(argc, argv, 0, "poll(timeout: 1)", 1, &sym_timeout, &timeout);
    return poll_one(self, timeout, false);
}

/* What this fiber has polled counts as processed, if polling again would say so. */
static VALUE consumer_call_finish(VALUE self)
{
    struct ps_consumer *consumer = penstock_consumer_get(self);
    if (consumer->settings.mark == PS_MARK_NEXT_POLL) ps_ledger_finish(&consumer->ledger, penstock_taker()->owner);
    return Qnil;
}

/* The block that processes what this fiber has polled was left early. */
static VALUE consumer_call_leave(VALUE self)
{
    struct penstock_last_poll *polled = penstock_last_poll_of(penstock_taker(), penstock_consumer_any(self));
    if (polled) polled->raised = true;
    return Qnil;
}

/* Whether that is so, or an exception was raised since this fiber has polled. */
static VALUE consumer_call_left(VALUE self)
{
    const struct penstock_last_poll *polled = penstock_last_poll_of(penstock_taker(), penstock_consumer_any(self));
    return polled && polled->raised ? Qtrue : Qfalse;
}

static void publish_batch(VALUE self, VALUE batch)
{
    const struct ps_news *news = &penstock_consumer_any(self)->news;
    const struct ps_fetched *fetched = penstock_batch_fetched(batch);
    VALUE callbacks = penstock_consumer_callbacks(self);
    if (fetched->count > 0 && ps_news_wanted(news, PS_NEWS_POLLED)) rb_funcall(callbacks, id_polled, 1, batch);
    if (fetched->end_count > 0 && ps_news_wanted(news, PS_NEWS_ENDS)) rb_funcall(callbacks, rb_intern("ended"), 1, batch);
}

static void return_batch(const struct taking *taking, VALUE batch)
{
    if (count_of(taking) > 0) give(taking, batch, publish_batch);
    else publish_batch(taking->self, batch);
}

VALUE penstock_consumer_poll_batch(int argc, VALUE *argv, VALUE self)
{
    const VALUE names[] = { sym_max, sym_timeout };
    VALUE values[] = { INT2FIX(DEFAULT_MAX), INT2FIX(DEFAULT_TIMEOUT_S) };
    penstock_keywords(argc, argv, 0, "poll_batch(max: 100, timeout: 1)", 2, names, values);
    long max = NUM2LONG(values[0]);
    if (max < 1) rb_raise(rb_eArgError, "max must be at least 1, not %ld", max);
    VALUE batch = penstock_batch_allocate();
    struct taking taking = { .self = self, .holder = batch, .own = penstock_batch_own, .max = (size_t)max };
    taking.ends = penstock_consumer_get(self)->settings.ends;
    take_messages(&taking, values[1]);
    batch = penstock_batch_finish(batch, penstock_consumer_deserializer(self));
    return_batch(&taking, batch);
    return batch;
}

/* poll_run(max, bytes): the messages of one partition that are there, in order, and ends of partitions; nil: there are none.
 * The message that reaches `bytes` is the last. Never waits. */
static VALUE consumer_call_poll_run(VALUE self, VALUE max, VALUE bytes)
{
    VALUE batch = penstock_batch_allocate();
    struct taking taking = { .self = self, .holder = batch, .own = penstock_batch_own, .max = NUM2SIZET(max), .one_partition = true };
    taking.most_bytes = NUM2SIZET(bytes);
    taking.ends = penstock_consumer_get(self)->settings.ends;
    take_messages(&taking, INT2FIX(0));
    batch = penstock_batch_finish(batch, penstock_consumer_deserializer(self));
    if (!has_result(&taking)) return Qnil;
    return_batch(&taking, batch);
    return batch;
}

void penstock_poll_methods_init(VALUE client_class)
{
    sym_timeout = ID2SYM(rb_intern("timeout"));
    sym_max = ID2SYM(rb_intern("max"));
    id_polled = rb_intern("polled");
    penstock_last_poll_init();
    rb_define_method(client_class, "poll", penstock_consumer_poll, -1);
    rb_define_method(client_class, "poll_batch", penstock_consumer_poll_batch, -1);
    rb_define_method(client_class, "next_message", consumer_call_poll, 1);
    rb_define_method(client_class, "finish", consumer_call_finish, 0);
    rb_define_method(client_class, "not_received", consumer_call_not_received, 0);
    rb_define_method(client_class, "block_left", consumer_call_leave, 0);
    rb_define_method(client_class, "block_left?", consumer_call_left, 0);
    rb_define_method(client_class, "poll_run", consumer_call_poll_run, 2);
    rb_define_method(client_class, "answer", consumer_call_answer, 0);
    rb_define_method(client_class, "serve", consumer_call_serve, 0);
    rb_define_method(client_class, "settle", consumer_call_settle, 0);
    rb_define_method(client_class, "wake", consumer_call_wake, 0);
}
