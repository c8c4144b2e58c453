/*
 * Penstock::Native::ConsumerClient, continued: poll and poll_batch.
 *
 * A polling thread takes librdkafka's events and messages itself (core/consume/take.c), and destroys them before it returns, as
 * librdkafka cannot be destroyed while one exists. It sleeps, and may be interrupted, only in between, when it has not entered the
 * client. So a trap may close the consumer that the interrupted thread polls.
 *
 * One thread takes at a time: it holds consumer->taking. A few messages are copied with the GVL. Many, and all rebalances, are
 * handled without it. A thread that holds the lock never waits for the GVL, and a thread with the GVL never waits for the lock.
 */
#include "ruby/penstock.h"
#include <stdlib.h>
#include <string.h>

static VALUE sym_timeout, sym_max;
static ID id_polled;

/* One call of poll or poll_batch. */
struct polling {
    struct ps_taking taking;
    VALUE self;
    VALUE holder;               /* a Batch or Message that owns nothing yet */
    void (*own)(VALUE holder, struct ps_fetched *fetched);
    struct penstock_taker *taker; /* this fiber; NULL: it takes no messages, or is still to be looked up */
    enum ps_taken taken;
};

static void *take_nogvl(void *arg)
{
    struct polling *polling = arg;
    polling->taken = ps_take(&polling->taking);
    return NULL;
}

/* The client is entered. Runs no Ruby code, handles no interrupts, and raises nothing. */
static void take(struct polling *polling)
{
    polling->taken = ps_take_now(&polling->taking);
    if (polling->taken == PS_TAKE_BLOCKS) penstock_nogvl_now(take_nogvl, polling);
}

/* The text without librdkafka's description of the code, with which the error's message ends anyway. */
static VALUE text_of(const struct ps_problem *problem)
{
    const char *description = rd_kafka_err2str(problem->err);
    size_t size = strlen(problem->text), tail = strlen(description) + 2;
    if (size > tail && strcmp(problem->text + size - tail + 2, description) == 0) size -= tail;
    return size > 0 ? penstock_text_sized(problem->text, size) : rb_str_new_cstr("the consumer had an error");
}

NORETURN(static void raise_problem(const struct polling *polling));
static void raise_problem(const struct polling *polling)
{
    struct ps_consumer *consumer = polling->taking.consumer;
    struct ps_problem copy = *polling->taking.problem, *problem = &copy;
    free(polling->taking.problem);
    rd_kafka_resp_err_t reason = atomic_load(&consumer->fatal); /* of the consumer, perhaps since another error came */
    bool fatal = reason && (problem->err == reason || problem->err == RD_KAFKA_RESP_ERR__FATAL);
    struct penstock_error_context context = {
        .err = fatal ? reason : problem->err,
        .client = &consumer->client,
        .topic = *problem->topic ? penstock_text(problem->topic) : Qnil,
        .partition = problem->partition,
        .group = problem->group || fatal ? penstock_consumer_group(consumer) : Qnil,
        .offset = problem->offset >= 0 ? &problem->offset : NULL,
        .fatal = fatal,
    };
    ps_increase(&consumer->counts.errors, 1);
    VALUE error = penstock_error_new(penstock_consume_error, &context, text_of(problem));
    rb_funcall(penstock_consumer_callbacks(polling->self), rb_intern("poll_failed"), 1, error);
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
static bool take_once(struct polling *polling)
{
    struct ps_taking *taking = &polling->taking;
    struct ps_consumer *consumer = taking->consumer;
    if (!ps_client_enter(&consumer->client)) return true;
    take(polling);
    ps_client_exit(&consumer->client);
    if (taking->fetched) polling->own(polling->holder, taking->fetched);
    if (ps_taking_count(taking) > 0) penstock_has_polled(polling->taker, taking->fetched);
    if (taking->problem) raise_problem(polling);
    if (ps_taking_has_result(taking)) return true;
    if (polling->taken == PS_TAKE_LISTENER) penstock_tell_rebalance(polling->self, consumer); /* the answer rings the bell */
    if (polling->taken == PS_TAKE_NO_MEMORY) rb_memerror();
    return false;
}

/* ---- what the caller of an earlier poll has not received ---- */

void penstock_rewind_unreceived(VALUE self, struct ps_consumer *consumer)
{
    struct penstock_last_poll *polled = penstock_last_poll_of(penstock_taker(), consumer);
    if (!polled || !penstock_unreceived(polled)) return;
    penstock_consumer_rewind(self, polled->fetched);
    polled->interrupted = false;
}

/* The ledger still has this fiber as their owner. True: the call returns them. If this call asks for fewer messages, or another member
 * has some of them now, librdkafka reads again what is still this consumer's. */
static bool give_again(struct polling *polling)
{
    struct ps_taking *taking = &polling->taking;
    const struct penstock_last_poll *polled = penstock_last_poll_of(polling->taker, taking->consumer);
    if (!polled || !penstock_unreceived(polled)) return false;
    struct ps_fetched *fetched = polled->fetched;
    if (fetched->count > taking->max || !ps_consumer_still_holds(taking->consumer, fetched)) {
        penstock_rewind_unreceived(polling->self, taking->consumer);
        return false;
    }
    ps_fetched_retain(fetched);
    penstock_begin_poll(polling->taker, taking->consumer);
    taking->fetched = fetched;
    taking->unreceived = true;
    polling->own(polling->holder, fetched);
    penstock_has_polled(polling->taker, fetched);
    return true;
}

/* Waits for the first message, then takes all that are available. Returns when the time is up or the consumer was closed
 * meanwhile, without a message. */
static void wait_for_messages(struct polling *polling, VALUE timeout)
{
    int64_t deadline_us = ps_deadline_us(penstock_seconds(timeout));
    struct ps_consumer *opened = penstock_consumer_open(polling->self);
    bool was_fatal = atomic_load(&opened->fatal);
    if (was_fatal) deadline_us = penstock_earlier(deadline_us, ps_now_us() + LONGEST_FATAL_WAIT_US);
    if (!polling->taker) polling->taker = penstock_taker();
    polling->taking.owner = polling->taker->owner;
    polling->taking.consumer = opened;
    if (give_again(polling)) return;
    penstock_begin_poll(polling->taker, opened);
    /* M:poll_marks_previous */
    if (opened->settings.mark == PS_MARK_NEXT_POLL) ps_ledger_finish(&opened->ledger, polling->taker->owner);
    for (;; polling->taking.consumer = penstock_consumer_get(polling->self)) { /* a trap may have forked during the wait */
        struct ps_consumer *consumer = polling->taking.consumer;
        penstock_publish_news(polling->self, consumer); /* now, as an interrupt of a listener loses no message */
        uint32_t rings = atomic_load(&consumer->bell.rings); /* before it looks for events: see queues.c */
        if (take_once(polling)) return;
        bool late = ps_now_us() >= deadline_us;
        if (atomic_load(&consumer->fatal) && (late || !was_fatal)) raise_fatal(consumer);
        penstock_consumer_check_rejected(consumer);
        if (late) return;
        ps_blocks_trim();
        penstock_wait_bell(&consumer->bell, rings, penstock_earlier(deadline_us, ps_consumer_look_again_us(consumer)));
    }
}

static void take_messages(struct polling *polling, VALUE timeout)
{
    wait_for_messages(polling, timeout);
    if (ps_taking_count(&polling->taking) == 0) ps_increase(&polling->taking.consumer->counts.empty_polls, 1);
}

/* Handles rebalances and other requests of the group, once. Takes no message. Raises if the consumer is closed. */
static VALUE consumer_call_answer(VALUE self)
{
    struct ps_consumer *consumer = penstock_consumer_get(self);
    struct polling polling = { .taking = { .consumer = consumer, .max = 1, .control_only = true }, .self = self };
    penstock_publish_news(self, consumer);
    take_once(&polling);
    penstock_check_open(&consumer->client);
    return Qnil;
}

/* The same, and waits until there may be more. */
static VALUE consumer_call_serve(VALUE self)
{
    struct ps_consumer *consumer = penstock_consumer_get(self);
    uint32_t rings = atomic_load(&consumer->bell.rings); /* a consumer that is not open yet rings when it is */
    consumer_call_answer(self);
    penstock_wait_bell(&consumer->bell, rings, ps_consumer_look_again_us(consumer));
    return Qnil;
}

struct looking {
    struct ps_consumer *consumer;
    bool rebalances;
};

static void *look_nogvl(void *arg)
{
    struct looking *looking = arg;
    looking->rebalances = ps_consumer_must_answer(looking->consumer);
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
        penstock_wait_bell(&consumer->bell, rings, ps_consumer_look_again_us(consumer));
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

static void give(const struct polling *polling, VALUE messages, void (*publish)(VALUE self, VALUE messages))
{
    const struct ps_taking *taking = &polling->taking;
    struct penstock_returning returning = { polling->self, messages, polling->taker, taking->consumer, taking->fetched,
                                            taking->unreceived, publish };
    penstock_return(&returning);
}

/* `taker`: the caller sees to interrupts. */
static VALUE poll_one(VALUE self, VALUE timeout, struct penstock_taker *taker)
{
    VALUE message = penstock_message_allocate(penstock_consumer_deserializer(self));
    struct polling polling = { .taking = { .max = 1, .single = true }, .self = self, .holder = message, .own = penstock_message_own,
                               .taker = taker };
    take_messages(&polling, timeout);
    if (ps_taking_count(&polling.taking) == 0) return Qnil;
    if (taker) {
        publish_message(self, message);
        if (polling.taking.unreceived) ps_ledger_receive(&polling.taking.consumer->ledger, polling.taker->owner, true);
    } else {
        give(&polling, message, publish_message);
    }
    return message;
}

/* What this fiber is for next_message. */
static VALUE consumer_call_taker(VALUE self)
{
    return penstock_taker_object();
}

/* next_message(timeout, taker): the caller calls not_received if it is interrupted before it has kept the message. */
static VALUE consumer_call_poll(VALUE self, VALUE timeout, VALUE taker)
{
    return poll_one(self, timeout, penstock_taker_of(taker));
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
    return poll_one(self, timeout, NULL);
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

static void return_batch(const struct polling *polling, VALUE batch)
{
    if (ps_taking_count(&polling->taking) > 0) give(polling, batch, publish_batch);
    else publish_batch(polling->self, batch);
}

/* Returns a Batch, perhaps an empty one. */
static VALUE poll_many(struct polling *polling, VALUE timeout)
{
    VALUE batch = polling->holder = penstock_batch_allocate();
    polling->own = penstock_batch_own;
    polling->taking.ends = penstock_consumer_get(polling->self)->settings.ends;
    take_messages(polling, timeout);
    return penstock_batch_finish(batch, penstock_consumer_deserializer(polling->self));
}

VALUE penstock_consumer_poll_batch(int argc, VALUE *argv, VALUE self)
{
    const VALUE names[] = { sym_max, sym_timeout };
    VALUE values[] = { INT2FIX(DEFAULT_MAX), INT2FIX(DEFAULT_TIMEOUT_S) };
    penstock_keywords(argc, argv, 0, "poll_batch(max: 100, timeout: 1)", 2, names, values);
    long max = NUM2LONG(values[0]);
    if (max < 1) rb_raise(rb_eArgError, "max must be at least 1, not %ld", max);
    struct polling polling = { .taking = { .max = (size_t)max }, .self = self };
    VALUE batch = poll_many(&polling, values[1]);
    return_batch(&polling, batch);
    return batch;
}

/* poll_run(max, bytes): the messages of one partition that are there, in order, and ends of partitions; nil: there are none.
 * The message that reaches `bytes` is the last. Never waits. */
static VALUE consumer_call_poll_run(VALUE self, VALUE max, VALUE bytes)
{
    struct ps_taking taking = { .max = NUM2SIZET(max), .most_bytes = NUM2SIZET(bytes), .one_partition = true };
    struct polling polling = { .taking = taking, .self = self };
    VALUE batch = poll_many(&polling, INT2FIX(0));
    if (!ps_taking_has_result(&polling.taking)) return Qnil;
    return_batch(&polling, batch);
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
    rb_define_method(client_class, "taker", consumer_call_taker, 0);
    rb_define_method(client_class, "next_message", consumer_call_poll, 2);
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
