/*
 * Penstock::Consumer: Ruby's hold on one ps_consumer. Any thread of the process that opened it; several may poll at
 * once, and each message goes to one of them. Methods that wait release the GVL. What a forked child inherits open or
 * closed is of no use there (ForkedError); one that was only configured is put anew in its place at its first use.
 *
 * A thread that polls takes librdkafka's events itself, with the GVL, copies them and lets them go before it returns:
 * one that is held keeps librdkafka from ever being destroyed. It sleeps, and may be interrupted, only in between,
 * while it is not entered: so a trap may close the consumer that the interrupted thread is polling.
 */
#include "ruby/penstock.h"
#include <ruby/encoding.h>
#include <errno.h>
#include <string.h>

static VALUE consumer_class;
static VALUE sym_timeout, sym_max;

struct consumer_object {
    _Atomic(struct ps_consumer *) consumer; /* owns a reference */
    VALUE logger;                           /* nil: librdkafka's log goes to stderr */
    VALUE token_refresher;                  /* Penstock::TokenRefresher, or nil */
    VALUE last_topic;                       /* the latest message's, or nil */
};

/* ---- GC ---- */

static void consumer_mark(void *data)
{
    struct consumer_object *object = data;
    rb_gc_mark_movable(object->logger);
    rb_gc_mark_movable(object->token_refresher);
    rb_gc_mark_movable(object->last_topic);
}

static void consumer_compact(void *data)
{
    struct consumer_object *object = data;
    object->logger = rb_gc_location(object->logger);
    object->token_refresher = rb_gc_location(object->token_refresher);
    object->last_topic = rb_gc_location(object->last_topic);
}

/* Never blocks: a native thread leaves the group and closes. */
static void consumer_free(void *data)
{
    struct consumer_object *object = data;
    struct ps_consumer *consumer = atomic_load(&object->consumer);
    if (consumer) ps_client_abandon(&consumer->client);
    xfree(object);
}

static size_t consumer_size(const void *data)
{
    return sizeof(struct consumer_object) + sizeof(struct ps_consumer);
}

static const rb_data_type_t consumer_type = {
    .wrap_struct_name = "Penstock::Consumer",
    .function = { .dmark = consumer_mark, .dfree = consumer_free, .dsize = consumer_size, .dcompact = consumer_compact },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE consumer_allocate(VALUE klass)
{
    struct consumer_object *object;
    VALUE self = TypedData_Make_Struct(klass, struct consumer_object, &consumer_type, object);
    object->logger = object->token_refresher = object->last_topic = Qnil;
    return self;
}

/* ---- which native consumer ---- */

static struct ps_consumer *any_consumer(VALUE self) /* perhaps the parent's */
{
    struct consumer_object *object = penstock_data(self, &consumer_type);
    struct ps_consumer *consumer = atomic_load(&object->consumer);
    if (!consumer) penstock_raise_uninitialized(self);
    return consumer;
}

static struct ps_consumer *renew(VALUE self, struct ps_consumer *inherited)
{
    struct consumer_object *object = penstock_data(self, &consumer_type);
    struct ps_consumer *fresh = ps_consumer_new(rd_kafka_conf_dup(inherited->client.conf), inherited->client.name, &inherited->settings);
    if (!fresh) rb_memerror();
    ps_client_set_brokers(&fresh->client, inherited->client.brokers);
    if (atomic_compare_exchange_strong(&object->consumer, &inherited, fresh)) return fresh; /* the old one stays, untouched */
    ps_client_unref(&fresh->client);
    return inherited; /* another thread was first; this is what it put there */
}

static struct ps_consumer *consumer_get(VALUE self)
{
    struct ps_consumer *consumer = any_consumer(self);
    if (!ps_client_inherited(&consumer->client)) return consumer;
    if (atomic_load(&consumer->client.state) == PS_NEW) return renew(self, consumer);
    struct penstock_error_context context = penstock_no_context;
    context.client = &consumer->client;
    penstock_raise(penstock_forked_error, &context,
                   "the consumer was used before this process was forked, and stays the parent's; make a new one here");
}

/* The consumer, open; or raises. */
static struct ps_consumer *open_consumer(VALUE self)
{
    struct ps_consumer *consumer = consumer_get(self);
    if (atomic_load(&consumer->client.state) == PS_OPEN) return consumer;
    const struct consumer_object *object = penstock_data(self, &consumer_type);
    penstock_open(&consumer->client, object->logger, object->token_refresher, Qnil);
    return consumer;
}

/* ---- configuring ---- */

enum { LONGEST_NAP_MS = 1000 };

/* call_configure(id, kafka, logger, close_timeout, grouped, refusal_timeout, token_refresher) */
static VALUE consumer_configure(VALUE self, VALUE id, VALUE kafka, VALUE logger, VALUE close_timeout, VALUE grouped,
                                VALUE refusal_timeout, VALUE token_refresher)
{
    struct consumer_object *object = penstock_data(self, &consumer_type);
    if (atomic_load(&object->consumer)) rb_raise(rb_eTypeError, "already initialized");
    StringValueCStr(id);
    struct ps_consumer_settings settings = {
        .client = {
            .close_timeout_ms = NUM2LL(close_timeout),
            .refusal_us = NIL_P(refusal_timeout) ? -1 : NUM2LL(refusal_timeout) * 1000,
            .logs_to_mailbox = !NIL_P(logger),
            .token_provider = !NIL_P(token_refresher),
        },
        .grouped = RTEST(grouped),
    };
    RB_OBJ_WRITE(self, &object->logger, logger);
    RB_OBJ_WRITE(self, &object->token_refresher, token_refresher);

    /* It owns the configuration from the start, so that an error in it leaks nothing. */
    struct ps_consumer *consumer = ps_consumer_new(rd_kafka_conf_new(), RSTRING_PTR(id), &settings);
    if (!consumer) rb_memerror();
    atomic_store(&consumer->client.state, PS_CLOSED); /* until its configuration has turned out to be right */
    atomic_store(&object->consumer, consumer);

    struct penstock_consumer_conf_facts facts;
    penstock_consumer_conf_fill(consumer->client.conf, kafka, settings.client.logs_to_mailbox, &facts);
    if (settings.client.token_provider) penstock_conf_ask_for_tokens(consumer->client.conf, true, settings.client.logs_to_mailbox);
    int64_t nap_ms = facts.max_poll_interval_ms / 4;
    consumer->settings.nap_us = (nap_ms < 1 ? 1 : nap_ms > LONGEST_NAP_MS ? LONGEST_NAP_MS : nap_ms) * 1000;
    consumer->settings.stores_offsets = facts.stores_offsets;
    ps_client_set_brokers(&consumer->client, rb_string_value_cstr(&facts.brokers));
    atomic_store(&consumer->client.state, PS_NEW);
    return self;
}

/* ---- taking messages ---- */

/* What an ERROR event said, to be raised when nothing is held any more. */
struct problem {
    rd_kafka_resp_err_t err;
    bool fatal;
    int32_t partition;
    int64_t offset; /* -1: unknown */
    char topic[256];
    char text[512];
};

/*
 * A batch ends with the message that brings it to so many headers. Making Strings of 100,000 takes a tenth of a second with the
 * GVL, and librdkafka accepts as many in each message, so a batch of such messages would stop every thread for its whole length.
 */
enum { MOST_HEADERS = 100000 };

struct taking {
    VALUE self;
    struct ps_consumer *consumer;
    rd_kafka_event_t *event; /* in hand */
    VALUE messages;          /* Array, or nil: one is wanted */
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
    const char *description = rd_kafka_err2str(problem->err); /* which the error's message ends with anyway */
    size_t size = strlen(problem->text), tail = strlen(description) + 2;
    if (size > tail && strcmp(problem->text + size - tail + 2, description) == 0) problem->text[size - tail] = '\0';
}

/* One frozen String for each name, which messages mostly share with the one before them. */
static VALUE topic_name(VALUE self, const rd_kafka_message_t *message)
{
    struct consumer_object *object = penstock_data(self, &consumer_type);
    const char *name = rd_kafka_topic_name(message->rkt);
    VALUE last = object->last_topic;
    size_t size = strlen(name);
    if (!NIL_P(last) && (size_t)RSTRING_LEN(last) == size && memcmp(RSTRING_PTR(last), name, size) == 0) return last;
    VALUE topic = penstock_name(name);
    RB_OBJ_WRITE(self, &object->last_topic, topic);
    return topic;
}

/* Other clients write what they like. False: these headers cannot be read, and without them it is not what was sent. */
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
    taking->message = penstock_consumed_message_new(message, headers, topic_name(taking->self, message));
    if (!NIL_P(taking->messages)) rb_ary_push(taking->messages, taking->message);
    taking->count++;
    if (headers) taking->headers += rd_kafka_header_cnt(headers);
}

static void read_damaged(struct taking *taking)
{
    struct problem *problem = &taking->problem;
    struct ps_damaged *damaged = &taking->consumer->damaged;
    problem->err = RD_KAFKA_RESP_ERR__BAD_MSG; /* librdkafka says this or that a read ran short: the same to a program */
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

/* Entered. Nothing in here acts on interrupts, or runs Ruby code. */
static VALUE take_body(VALUE arg)
{
    struct taking *taking = (struct taking *)arg;
    while (taking->count < taking->max && taking->headers < MOST_HEADERS) {
        if (taking->consumer->damaged.waits) { /* as below: the messages first */
            if (taking->count == 0) read_damaged(taking);
            break;
        }
        rd_kafka_event_t *event = taking->event = ps_consumer_take(taking->consumer);
        if (!event) break;
        int type = rd_kafka_event_type(event);
        if (taking->count > 0 && (type == RD_KAFKA_EVENT_REBALANCE || type == RD_KAFKA_EVENT_ERROR)) {
            /* The messages first: whoever gets them should be able to deal with them before the partition is given up. */
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
    penstock_raise(penstock_consume_error, &context, "%s", *problem->text ? problem->text : "the consumer met an error");
}

/* Once the consumer has met a fatal error, each poll that finds nothing says so. */
static void check_fatal(const struct ps_consumer *consumer)
{
    struct penstock_error_context context = penstock_no_context;
    context.err = atomic_load(&consumer->fatal);
    if (!context.err) return;
    context.client = &consumer->client;
    context.fatal = true;
    penstock_raise(penstock_consume_error, &context, "the consumer has met a fatal error");
}

/* Brokers have refused the consumer for long enough: who waits for them is told, and somebody again each second. */
static void check_refused(struct ps_consumer *consumer)
{
    if (!ps_refusal_due(&consumer->client.refusal, ps_now_us()) || !ps_client_enter(&consumer->client)) return;
    bool refused = ps_refusal_give_up(&consumer->client.refusal, consumer->client.rk);
    ps_client_exit(&consumer->client);
    if (refused) penstock_raise_if_refused(&consumer->client, Qnil);
}

static int64_t earlier(int64_t one_us, int64_t other_us)
{
    return one_us < other_us ? one_us : other_us;
}

/* Waits for the first message, then takes what is there. False: nothing in time, or the consumer was closed meanwhile. */
static bool take(struct taking *taking, VALUE timeout)
{
    int64_t deadline_us = ps_deadline_us(penstock_seconds(timeout));
    open_consumer(taking->self);
    for (;;) {
        struct ps_consumer *consumer = taking->consumer = consumer_get(taking->self); /* a trap may have forked */
        uint32_t heard = atomic_load(&consumer->bell.rings);
        if (!ps_client_enter(&consumer->client)) return false;
        rb_ensure(take_body, (VALUE)taking, take_ensure, (VALUE)taking);
        if (taking->problem.err) raise_problem(taking);
        if (taking->count > 0) return true;

        check_fatal(consumer);
        check_refused(consumer);
        int64_t now = ps_now_us(), refused_us = atomic_load(&consumer->client.refusal.due_us);
        if (now >= deadline_us) return false;
        int64_t nap_until_us = now + consumer->settings.nap_us; /* librdkafka wants to see that somebody polls */
        if (refused_us) nap_until_us = earlier(nap_until_us, refused_us);
        penstock_wait_bell(&consumer->bell, heard, earlier(deadline_us, nap_until_us));
    }
}

enum { DEFAULT_TIMEOUT_S = 1 };

static VALUE consumer_poll(int argc, VALUE *argv, VALUE self)
{
    VALUE timeout = INT2FIX(DEFAULT_TIMEOUT_S);
    penstock_keywords(argc, argv, 0, "poll(timeout: 1)", 1, &sym_timeout, &timeout);
    struct taking taking = { .self = self, .messages = Qnil, .message = Qnil, .max = 1 };
    return take(&taking, timeout) ? taking.message : Qnil;
}

static VALUE consumer_poll_batch(int argc, VALUE *argv, VALUE self)
{
    const VALUE names[] = { sym_max, sym_timeout };
    VALUE values[] = { INT2FIX(100), INT2FIX(DEFAULT_TIMEOUT_S) };
    penstock_keywords(argc, argv, 0, "poll_batch(max: 100, timeout: 1)", 2, names, values);
    long max = NUM2LONG(values[0]);
    if (max < 1) rb_raise(rb_eArgError, "a batch has at least 1 message, not %ld", max);
    struct taking taking = { .self = self, .messages = rb_ary_new(), .message = Qnil, .max = max };
    take(&taking, values[1]);
    return taking.messages;
}

/* ---- lists of partitions: [[topic, partition, offset], ...] ---- */

struct place {
    VALUE topic;
    int32_t partition;
    int64_t offset;
};

static rd_kafka_topic_partition_list_t *list_from(VALUE places)
{
    VALUE buffer;
    Check_Type(places, T_ARRAY);
    long size = RARRAY_LEN(places);
    struct place *parsed = ALLOCV_N(struct place, buffer, size + 1);
    for (long i = 0; i < size; i++) {
        VALUE place = rb_ary_entry(places, i), topic = rb_ary_entry(place, 0);
        StringValueCStr(topic);
        parsed[i] = (struct place){ topic, NUM2INT(rb_ary_entry(place, 1)), NUM2LL(rb_ary_entry(place, 2)) };
    }
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)size); /* nothing raises from here on */
    for (long i = 0; i < size; i++)
        rd_kafka_topic_partition_list_add(list, RSTRING_PTR(parsed[i].topic), parsed[i].partition)->offset = parsed[i].offset;
    RB_GC_GUARD(places);
    ALLOCV_END(buffer);
    return list;
}

static VALUE offset_or_nil(int64_t offset)
{
    return offset < 0 ? Qnil : LL2NUM(offset);
}

static VALUE places_from(const rd_kafka_topic_partition_list_t *list)
{
    VALUE places = rb_ary_new();
    for (int i = 0; list && i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &list->elems[i];
        VALUE topic = penstock_name(place->topic);
        rb_ary_push(places, rb_ary_new_from_args(3, topic, INT2NUM(place->partition), offset_or_nil(place->offset)));
    }
    return places;
}

/* ---- blocking calls ---- */

struct asking {
    struct ps_consumer *consumer;
    struct ps_consumer_job *job;
    int64_t deadline_us;
    VALUE error_class;
    const char *what;
};

enum { LOOK_US = 250000 };

/* What librdkafka says of the connections: nobody else may look while a thread waits for an answer. */
static void notice(struct ps_consumer *consumer)
{
    if (!ps_client_enter(&consumer->client)) return;
    ps_consumer_notice(consumer);
    ps_client_exit(&consumer->client);
}

static bool await_answer(const struct asking *asking)
{
    struct ps_consumer *consumer = asking->consumer;
    for (;;) {
        int64_t until_us = earlier(asking->deadline_us, ps_now_us() + LOOK_US);
        if (penstock_wait(&asking->job->job.completion, until_us)) return true;
        if (until_us == asking->deadline_us) return false;
        notice(consumer);
        check_refused(consumer);
    }
}

static VALUE ask_body(VALUE arg)
{
    struct asking *asking = (struct asking *)arg;
    const struct ps_consumer_job *job = asking->job;
    struct penstock_error_context context = penstock_no_context;
    context.client = &asking->consumer->client;

    bool done = await_answer(asking);
    context.err = done ? job->err : RD_KAFKA_RESP_ERR__TIMED_OUT;
    const rd_kafka_topic_partition_list_t *list = done ? job->list : NULL;
    if (job->call == PS_CONSUMER_COMMIT && context.err == RD_KAFKA_RESP_ERR__NO_OFFSET) return Qnil; /* nothing new */

    for (int i = 0; list && i < list->cnt; i++) {
        if (!list->elems[i].err) continue;
        context.err = list->elems[i].err;
        context.topic = penstock_text(list->elems[i].topic);
        context.partition = list->elems[i].partition;
        break;
    }
    if (!context.err) {
        if (job->call == PS_CONSUMER_WATERMARKS) return rb_ary_new_from_args(2, LL2NUM(job->low), LL2NUM(job->high));
        return places_from(list);
    }
    if (context.err == RD_KAFKA_RESP_ERR__DESTROY) penstock_raise_closed(&asking->consumer->client); /* by another thread, meanwhile */
    bool timed_out = context.err == RD_KAFKA_RESP_ERR__TIMED_OUT;
    if (timed_out || context.err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || context.err == RD_KAFKA_RESP_ERR__TRANSPORT) {
        notice(asking->consumer);
        penstock_raise_if_refused(&asking->consumer->client, Qnil);
    }
    context.retriable = timed_out;
    penstock_raise(timed_out ? penstock_consume_timeout_error : asking->error_class, &context, "%s%s%s", asking->what,
                   done && *job->text ? ": " : "", done ? job->text : "");
}

static VALUE ask_ensure(VALUE arg)
{
    ps_job_abandon(&((struct asking *)arg)->job->job);
    return Qnil;
}

/*
 * The places it answered with, or a pair of watermarks. librdkafka keeps the time of most of these, but not all of it
 * (a request that was sent has until socket.timeout.ms), so we do too, a little later: its answer says more.
 */
static VALUE ask(VALUE self, enum ps_consumer_call call, VALUE places, VALUE seconds, const char *what)
{
    int64_t timeout = penstock_seconds(seconds);
    struct ps_consumer *consumer = open_consumer(self);
    rd_kafka_topic_partition_list_t *list = NIL_P(places) ? NULL : list_from(places);
    bool commit = call == PS_CONSUMER_COMMIT;

    struct asking asking = {
        .consumer = consumer,
        .deadline_us = timeout < 0 ? PS_FOREVER : ps_deadline_us(timeout + (commit ? 0 : 50)),
        .error_class = commit ? penstock_commit_error : penstock_consume_error,
        .what = what,
        .job = ps_consumer_start(consumer, call, list, timeout > INT32_MAX ? -1 : (int)timeout),
    };
    if (!asking.job) {
        int failed = errno;
        penstock_check_open(&consumer->client);
        rb_syserr_fail(failed ? failed : EAGAIN, "cannot start a thread for the consumer");
    }
    VALUE answer = rb_ensure(ask_body, (VALUE)&asking, ask_ensure, (VALUE)&asking);
    RB_GC_GUARD(self);
    return answer;
}

static VALUE consumer_call_subscribe(VALUE self, VALUE places)
{
    ask(self, PS_CONSUMER_SUBSCRIBE, places, Qnil, "the topics were not subscribed to");
    return Qnil;
}

static VALUE consumer_call_assign(VALUE self, VALUE places)
{
    ask(self, PS_CONSUMER_ASSIGN, places, Qnil, "the partitions were not assigned");
    return Qnil;
}

static VALUE consumer_call_assignment(VALUE self)
{
    return ask(self, PS_CONSUMER_ASSIGNMENT, Qnil, Qnil, "the assignment could not be read");
}

static VALUE consumer_call_commit(VALUE self, VALUE places, VALUE timeout)
{
    ask(self, PS_CONSUMER_COMMIT, places, timeout, "the offsets were not committed");
    return Qnil;
}

/* What becomes of it comes as an event. */
static VALUE consumer_call_commit_async(VALUE self, VALUE places)
{
    struct ps_consumer *consumer = open_consumer(self);
    rd_kafka_topic_partition_list_t *list = list_from(places);
    bool entered = ps_client_enter(&consumer->client);
    struct penstock_error_context context = penstock_no_context;
    context.client = &consumer->client;
    if (entered) {
        context.err = rd_kafka_commit(consumer->client.rk, list, 1);
        ps_client_exit(&consumer->client);
    }
    rd_kafka_topic_partition_list_destroy(list);
    if (!entered) penstock_raise_closed(&consumer->client);
    if (context.err) penstock_raise(penstock_commit_error, &context, "the offsets were not committed");
    return Qnil;
}

static VALUE consumer_call_committed(VALUE self, VALUE places, VALUE timeout)
{
    return ask(self, PS_CONSUMER_COMMITTED, places, timeout, "the committed offsets could not be read");
}

static VALUE consumer_call_watermarks(VALUE self, VALUE places, VALUE timeout)
{
    return ask(self, PS_CONSUMER_WATERMARKS, places, timeout, "the watermarks could not be read");
}

static VALUE consumer_call_seek(VALUE self, VALUE places, VALUE timeout)
{
    ask(self, PS_CONSUMER_SEEK, places, timeout, "the position was not changed");
    return Qnil;
}

/* Known here, so nothing is asked of anybody. */
static VALUE consumer_call_positions(VALUE self, VALUE places)
{
    struct ps_consumer *consumer = open_consumer(self);
    VALUE positions = rb_ary_new();
    rd_kafka_topic_partition_list_t *list = list_from(places);
    bool entered = ps_client_enter(&consumer->client);
    if (entered) {
        rd_kafka_position(consumer->client.rk, list);
        ps_client_exit(&consumer->client);
    }
    for (int i = 0; i < list->cnt; i++) rb_ary_push(positions, offset_or_nil(ps_consumer_position(consumer, &list->elems[i])));
    rd_kafka_topic_partition_list_destroy(list);
    if (!entered) penstock_raise_closed(&consumer->client);
    return positions;
}

/* [topic, partition, offset] of a Message */
static VALUE s_place_of(VALUE klass, VALUE message)
{
    int32_t partition;
    int64_t offset;
    VALUE topic = penstock_consumed_message_place(message, &partition, &offset);
    return rb_ary_new_from_args(3, topic, INT2NUM(partition), LL2NUM(offset));
}

/* ---- for transactional producers ---- */

struct group_call {
    struct ps_consumer *consumer;
    rd_kafka_consumer_group_metadata_t *metadata;
};

static void *group_nogvl(void *arg)
{
    struct group_call *call = arg;
    call->metadata = rd_kafka_consumer_group_metadata(call->consumer->client.rk);
    return NULL;
}

rd_kafka_consumer_group_metadata_t *penstock_consumer_group_metadata(VALUE self)
{
    struct group_call call = { .consumer = open_consumer(self) };
    struct penstock_error_context context = penstock_no_context;
    context.client = &call.consumer->client;
    if (!call.consumer->settings.grouped)
        penstock_raise(penstock_config_error, &context, "committing a consumer's offsets needs config.kafka[\"group.id\"]");
    if (!ps_client_enter(&call.consumer->client)) penstock_raise_closed(&call.consumer->client);
    penstock_nogvl_now(group_nogvl, &call);
    ps_client_exit(&call.consumer->client);
    if (!call.metadata) penstock_raise(penstock_consume_error, &context, "the consumer's group is not known");
    return call.metadata;
}

/* A copy as bytes: librdkafka's own form of them. */
static VALUE consumer_group_metadata(VALUE self)
{
    rd_kafka_consumer_group_metadata_t *metadata = penstock_consumer_group_metadata(self);
    void *bytes = NULL;
    size_t size = 0;
    rd_kafka_error_t *error = rd_kafka_consumer_group_metadata_write(metadata, &bytes, &size);
    rd_kafka_consumer_group_metadata_destroy(metadata);
    if (error) {
        struct penstock_error_context context = penstock_no_context;
        context.err = rd_kafka_error_code(error);
        rd_kafka_error_destroy(error);
        penstock_raise(penstock_consume_error, &context, "the group's metadata could not be written");
    }
    VALUE string = rb_str_new(bytes, (long)size);
    rd_kafka_mem_free(NULL, bytes);
    return string;
}

static VALUE consumer_call_set_credentials(VALUE self, VALUE user, VALUE password)
{
    struct ps_consumer *consumer = consumer_get(self);
    struct penstock_error_context context = penstock_no_context;
    context.client = &consumer->client;
    penstock_set_credentials(&consumer->client, &context, user, password);
    return Qnil;
}

/* ---- closing, asking ---- */

/* False: the time was up first. */
static VALUE consumer_call_close(VALUE self, VALUE timeout_ms)
{
    struct ps_consumer *consumer = any_consumer(self);
    if (ps_client_inherited(&consumer->client)) {
        if (atomic_load(&consumer->client.state) != PS_NEW) return Qtrue; /* the parent's business */
        consumer = consumer_get(self);
    }
    bool closed = penstock_close(&consumer->client, penstock_timeout_ms(timeout_ms), 200); /* to destroy */
    RB_GC_GUARD(self);
    return closed ? Qtrue : Qfalse;
}

/* :inherited in a forked child, where there is nothing left to do with it. */
static VALUE consumer_state(VALUE self)
{
    static const char *const names[] = { "configured", "open", "closing", "closed" };
    const struct ps_consumer *consumer = any_consumer(self);
    int state = atomic_load(&consumer->client.state);
    if (ps_client_inherited(&consumer->client) && state != PS_NEW) return ID2SYM(rb_intern("inherited"));
    return ID2SYM(rb_intern(names[state]));
}

void penstock_consumer_init(void)
{
    sym_timeout = ID2SYM(rb_intern("timeout"));
    sym_max = ID2SYM(rb_intern("max"));
    consumer_class = rb_const_get(penstock_module, rb_intern("Consumer"));
    rb_gc_register_mark_object(consumer_class);
    rb_define_alloc_func(consumer_class, consumer_allocate);
    rb_define_method(consumer_class, "poll", consumer_poll, -1);
    rb_define_method(consumer_class, "poll_batch", consumer_poll_batch, -1);
    rb_define_method(consumer_class, "group_metadata", consumer_group_metadata, 0);
    rb_define_private_method(consumer_class, "state", consumer_state, 0);
    rb_define_private_method(consumer_class, "call_configure", consumer_configure, 7);
    rb_define_private_method(consumer_class, "call_set_credentials", consumer_call_set_credentials, 2);
    rb_define_private_method(consumer_class, "call_subscribe", consumer_call_subscribe, 1);
    rb_define_private_method(consumer_class, "call_assign", consumer_call_assign, 1);
    rb_define_private_method(consumer_class, "call_assignment", consumer_call_assignment, 0);
    rb_define_private_method(consumer_class, "call_commit", consumer_call_commit, 2);
    rb_define_private_method(consumer_class, "call_commit_async", consumer_call_commit_async, 1);
    rb_define_private_method(consumer_class, "call_committed", consumer_call_committed, 2);
    rb_define_private_method(consumer_class, "call_watermarks", consumer_call_watermarks, 2);
    rb_define_private_method(consumer_class, "call_seek", consumer_call_seek, 2);
    rb_define_private_method(consumer_class, "call_positions", consumer_call_positions, 1);
    rb_define_private_method(consumer_class, "call_close", consumer_call_close, 1);
    rb_define_singleton_method(consumer_class, "place_of", s_place_of, 1);
}
