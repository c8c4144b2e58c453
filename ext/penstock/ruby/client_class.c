/*
 * Penstock::Client: one configured librdkafka producer, what Penstock::Producer stands on. It owns a
 * ps_producer, made when configured and opened (threads, connections) at its first use. In a forked child
 * the first use finds the parent's client and puts a fresh one, with the same configuration, in its place.
 *
 * Any thread and fiber of any process of the family; methods that wait release the GVL.
 */
#include "ruby/penstock.h"
#include <ruby/encoding.h>
#include <ruby/ractor.h>
#include <errno.h>
#include <string.h>

static VALUE client_class;

struct client_object {
    _Atomic(struct ps_producer *) producer; /* owns a reference */
    VALUE poller;                       /* Penstock::Poller */
    VALUE logger;                       /* nil: librdkafka's log goes to stderr */
    VALUE source;                       /* Penstock::EventSource, or nil: nobody can listen */
    struct ps_terms terms;
    VALUE token_refresher;              /* Penstock::TokenRefresher, or nil */
    VALUE last_topic;                   /* the latest message's, or nil */
};

/* ---- GC ---- */

static void client_mark(void *data)
{
    struct client_object *object = data;
    rb_gc_mark_movable(object->poller);
    rb_gc_mark_movable(object->logger);
    rb_gc_mark_movable(object->source);
    rb_gc_mark_movable(object->token_refresher);
    rb_gc_mark_movable(object->last_topic);
}

static void client_compact(void *data)
{
    struct client_object *object = data;
    object->poller = rb_gc_location(object->poller);
    object->logger = rb_gc_location(object->logger);
    object->source = rb_gc_location(object->source);
    object->token_refresher = rb_gc_location(object->token_refresher);
    object->last_topic = rb_gc_location(object->last_topic);
}

/* Never blocks: a client that was not closed goes on, on native threads, until its messages have a verdict. */
static void client_free(void *data)
{
    struct client_object *object = data;
    struct ps_producer *producer = atomic_load(&object->producer);
    if (producer) ps_client_abandon(&producer->client);
    xfree(object);
}

static size_t client_size(const void *data)
{
    return sizeof(struct client_object) + sizeof(struct ps_producer);
}

static const rb_data_type_t client_type = {
    .wrap_struct_name = "Penstock::Client",
    .function = { .dmark = client_mark, .dfree = client_free, .dsize = client_size, .dcompact = client_compact },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE client_allocate(VALUE klass)
{
    struct client_object *object;
    VALUE self = TypedData_Make_Struct(klass, struct client_object, &client_type, object);
    object->poller = object->logger = object->source = object->token_refresher = object->last_topic = Qnil;
    return self;
}

/* ---- which native client: this process's, open if need be ---- */

static struct ps_producer *renew(struct client_object *object, struct ps_producer *inherited)
{
    struct ps_poller *poller = penstock_poller_get(object->poller); /* may raise, so before there is anything to lose */
    struct ps_events *events = NIL_P(object->source) ? NULL : penstock_event_source_get(object->source);
    struct ps_producer *fresh =
        ps_producer_new(rd_kafka_conf_dup(inherited->client.conf), inherited->client.name, poller, &inherited->settings);
    if (!fresh) rb_memerror();
    ps_client_set_brokers(&fresh->client, inherited->client.brokers);
    if (events) ps_producer_set_events(fresh, events);
    if (atomic_load(&inherited->client.state) >= PS_CLOSING) atomic_store(&fresh->client.state, PS_CLOSED);
    if (atomic_compare_exchange_strong(&object->producer, &inherited, fresh)) return fresh; /* the old one stays, untouched */
    ps_client_unref(&fresh->client);
    return inherited; /* another thread was first; this is what it put there */
}

static struct ps_producer *client_get(VALUE self)
{
    struct client_object *object = penstock_data(self, &client_type);
    struct ps_producer *producer = atomic_load(&object->producer);
    if (!producer) penstock_raise_uninitialized(self);
    return ps_client_inherited(&producer->client) ? renew(object, producer) : producer;
}

/* Releases the GVL when it has to open: what was read from Ruby objects before must be read again. True: it did. */
static bool client_open(VALUE self, struct ps_producer *producer)
{
    const struct client_object *object = penstock_data(self, &client_type);
    return penstock_open(&producer->client, object->logger, object->token_refresher, object->source);
}

/* ---- configuring ---- */

static VALUE client_initialize(VALUE self, VALUE id, VALUE kafka, VALUE poller, VALUE logger, VALUE max_payload_size,
                               VALUE close_timeout, VALUE max_time, VALUE periodic_poll_interval, VALUE queue_full_ms,
                               VALUE drop_when_full, VALUE abort_wait, VALUE refusal_timeout, VALUE unreachable_timeout)
{
    struct client_object *object = penstock_data(self, &client_type);
    if (atomic_load(&object->producer)) rb_raise(rb_eTypeError, "already initialized");
    struct ps_poller *native_poller = penstock_poller_get(poller);
    StringValueCStr(id);

    /* The client owns the configuration from the start, so that an error in it leaks nothing. */
    struct ps_producer_settings settings = {
        .client = {
            .close_timeout_ms = NUM2LL(close_timeout),
            .refusal_us = NIL_P(refusal_timeout) ? -1 : NUM2LL(refusal_timeout) * 1000,
            .unreachable_us = NUM2LL(unreachable_timeout) * 1000,
            .logs_to_mailbox = !NIL_P(logger),
        },
        .max_time_us = NUM2LL(max_time) * 1000,
        .sweep_us = NUM2LL(periodic_poll_interval) * 1000,
        .abort_wait_ms = NUM2LL(abort_wait),
    };
    object->terms.payload = NUM2SIZET(max_payload_size);
    object->terms.queue_full_ms = penstock_timeout_ms(queue_full_ms);
    object->terms.drop_when_full = RTEST(drop_when_full);
    RB_OBJ_WRITE(self, &object->poller, poller);
    RB_OBJ_WRITE(self, &object->logger, logger);

    struct ps_producer *producer = ps_producer_new(rd_kafka_conf_new(), RSTRING_PTR(id), native_poller, &settings);
    if (!producer) rb_memerror();
    atomic_store(&producer->client.state, PS_CLOSED); /* until its configuration has turned out to be right */
    atomic_store(&object->producer, producer);

    struct penstock_conf_facts facts;
    penstock_conf_fill(producer->client.conf, kafka, settings.client.logs_to_mailbox, &facts);
    object->terms.total = facts.message_max_bytes;
    object->terms.queue = facts.queue_max_bytes;
    producer->settings.sticky_ms = facts.sticky_ms;
    producer->settings.idempotent = facts.idempotent;
    producer->settings.transactional = facts.transactional;
    producer->settings.transaction_timeout_ms = facts.transaction_timeout_ms;
    ps_client_set_brokers(&producer->client, rb_string_value_cstr(&facts.brokers));
    atomic_store(&producer->client.state, PS_NEW);
    return self;
}

/* ---- logging in ---- */

/* Before it is opened: this refresher brings its tokens. */
static VALUE client_set_token_refresher(VALUE self, VALUE refresher)
{
    struct client_object *object = penstock_data(self, &client_type);
    struct ps_producer *producer = client_get(self);
    RB_OBJ_WRITE(self, &object->token_refresher, refresher);
    penstock_conf_ask_for_tokens(producer->client.conf, false, producer->settings.client.logs_to_mailbox);
    producer->settings.client.token_provider = true;
    return refresher;
}

static VALUE client_set_credentials(VALUE self, VALUE user, VALUE password)
{
    struct ps_producer *producer = client_get(self);
    struct penstock_error_context context = penstock_no_context;
    context.client = &producer->client;
    penstock_set_credentials(&producer->client, &context, user, password);
    return Qnil;
}

/* ---- for client methods in files of their own ---- */

struct ps_producer *penstock_client_get(VALUE self)
{
    return client_get(self);
}

struct ps_producer *penstock_client_open(VALUE self)
{
    struct ps_producer *producer = client_get(self);
    client_open(self, producer);
    return producer;
}

/* ---- producing ---- */

const struct ps_terms *penstock_client_terms(VALUE self)
{
    const struct client_object *object = penstock_data(self, &client_type);
    return &object->terms;
}

/* `last_topic`: of the message before, in the same call; or nil. */
static void parse(const struct penstock_sender *sender, struct penstock_message *message, VALUE hash, long index,
                  VALUE last_topic)
{
    if (NIL_P(sender->self)) {
        penstock_message_parse(message, hash, index, &sender->terms, last_topic);
        if (!rb_ractor_shareable_p(message->label)) penstock_message_refuse_label(message->label, index);
        return;
    }
    struct client_object *object = penstock_data(sender->self, &client_type);
    penstock_message_parse(message, hash, index, &sender->terms, object->last_topic);
    if (message->topic != object->last_topic) RB_OBJ_WRITE(sender->self, &object->last_topic, message->topic);
}

static void check_sender(const struct penstock_sender *sender)
{
    if (sender->producer) penstock_check_open(&sender->producer->client);
}

/* True: it had to be opened, and what was read from Ruby objects before must be read again. */
static bool open_sender(const struct penstock_sender *sender)
{
    return sender->producer && client_open(sender->self, sender->producer);
}

/* A new batch, which keeps its client. False: the slot has none. */
static bool begin_batch(const struct penstock_sender *sender, struct penstock_handover *handover, uint32_t size)
{
    struct ps_producer *taken = sender->slot ? ps_slot_take(sender->slot) : NULL;
    struct ps_producer *producer = sender->slot ? taken : sender->producer;
    if (!producer) return false;
    handover->producer = producer;
    handover->batch = ps_batch_new(producer, size);
    if (taken) ps_client_unref(&taken->client); /* the batch has its own */
    if (!handover->batch) rb_memerror();
    return true;
}

/* What librdkafka did not take at once. */
struct rest {
    struct penstock_handover *handover;
    uint32_t sent_before;
    int64_t queue_full_ms;
    bool drop;
    VALUE tally;
};

/* How many have been handed over, for a caller whose thread may be interrupted or killed before it is told. */
static void count(VALUE tally, const struct penstock_handover *handover)
{
    if (!NIL_P(tally)) rb_ary_store(tally, 0, UINT2NUM(handover->sent));
}

static bool some_more(void *arg)
{
    const struct rest *rest = arg;
    penstock_handover_nogvl(rest->handover); /* with the GVL: it is about a few messages at a time */
    return rest->handover->sent > rest->sent_before || !penstock_handover_queue_full(rest->handover);
}

/* False: there was none in time. The time counts anew whenever there was room for a message. */
static bool wait_for_space(struct rest *rest)
{
    if (rest->queue_full_ms == 0 || !penstock_handover_keep_bytes(rest->handover)) return false;
    rest->sent_before = rest->handover->sent;
    uint32_t want = rest->handover->batch->size - rest->handover->sent;
    return penstock_wait_for_space(rest->handover->producer, want, some_more, rest, ps_deadline_us(rest->queue_full_ms));
}

enum { LOOK_AGAIN_MS = 1000 };

/*
 * librdkafka looks at a topic every topic.metadata.refresh.interval.ms, 5 minutes. It would refuse a topic that was made
 * since, or a partition that was added, without asking anybody. False: there is nothing new to be learnt.
 */
static bool look_again(struct rest *rest)
{
    struct penstock_handover *handover = rest->handover;
    VALUE topic = handover->messages[handover->sent].topic; /* native_topic may have gone with a client that was closed */
    const char *name = RSTRING_PTR(topic);
    size_t length = RSTRING_LEN(topic);
    if (ps_producer_asked_lately(handover->producer, name, length) || !penstock_handover_keep_bytes(handover)) return false;

    struct ps_metadata_job *query = ps_producer_metadata(handover->producer, name, length, LOOK_AGAIN_MS);
    if (!query) return false;
    penstock_wait_job(&query->job, PS_FOREVER); /* librdkafka keeps the deadline */
    penstock_nogvl_now(penstock_handover_nogvl, handover);
    return true;
}

static VALUE insist(VALUE arg)
{
    struct rest *rest = (struct rest *)arg;
    bool more = true;
    while (more) {
        if (penstock_handover_queue_full(rest->handover)) more = wait_for_space(rest);
        else more = penstock_handover_place_unknown(rest->handover) && look_again(rest);
    }
    return Qnil;
}

/* The result of what librdkafka does not get, and the caller is to find in its handles; no error: the caller gets an exception. */
static rd_kafka_resp_err_t result_at_once(const struct rest *rest)
{
    if (penstock_handover_unreachable(rest->handover)) return ps_refusal_code(PS_UNREACHABLE);
    if (rest->drop && penstock_handover_queue_full(rest->handover)) return RD_KAFKA_RESP_ERR__QUEUE_FULL;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* For their listeners. */
static void name_dropped(const struct penstock_handover *handover)
{
    struct ps_events *events = handover->producer->events;
    if (!ps_events_wanted(events, PS_EVENT_FAILED)) return;
    for (uint32_t i = handover->sent; i < handover->batch->size; i++) {
        VALUE topic = handover->messages[i].topic;
        char name[256]; /* a topic's has 249 at most */
        snprintf(name, sizeof(name), "%.*s", (int)RSTRING_LEN(topic), RSTRING_PTR(topic));
        handover->batch->deliveries[i].topic_name = ps_events_name(events, name);
    }
}

static VALUE give_up(VALUE arg)
{
    const struct rest *rest = (struct rest *)arg;
    struct penstock_handover *handover = rest->handover;
    count(rest->tally, handover);
    if (handover->sent == handover->batch->size || ps_client_inherited(&handover->producer->client)) return Qnil;
    rd_kafka_resp_err_t result = result_at_once(rest);
    if (result) name_dropped(handover);
    penstock_handover_give_up(handover, result ? result : RD_KAFKA_RESP_ERR__CONFLICT);
    if (result) handover->sent = handover->batch->size; /* as far as the caller is concerned: all have a verdict to come */
    count(rest->tally, handover);
    return Qnil;
}

/* Tries again if that may help, and sees to it that all have a verdict. */
static void hand_over_the_rest(const struct penstock_sender *sender, struct penstock_handover *handover, VALUE tally)
{
    struct rest rest = {
        .handover = handover,
        .queue_full_ms = sender->terms.queue_full_ms,
        .drop = sender->terms.drop_when_full,
        .tally = tally,
    };
    rb_ensure(insist, (VALUE)&rest, give_up, (VALUE)&rest);
}

/* A call that does not wait for space tries its luck. */
static bool has_to_queue(const struct penstock_sender *sender, struct penstock_handover *handover)
{
    if (sender->terms.queue_full_ms == 0 || !penstock_has_to_queue(handover)) return false;
    penstock_handover_find_full(handover);
    return true;
}

VALUE penstock_produce(const struct penstock_sender *sender, VALUE hash)
{
    struct penstock_message message;
    struct penstock_handover handover = { .messages = &message };
    VALUE handle;

    check_sender(sender);
    do {
        parse(sender, &message, hash, -1, Qnil);
        while (message.foreign_timestamp) parse(sender, &message, hash = penstock_message_plain(hash, -1), -1, Qnil);
        if (open_sender(sender)) parse(sender, &message, hash, -1, Qnil);

        handle = penstock_delivery_handle_new();
        if (!begin_batch(sender, &handover, 1)) return Qnil;
        penstock_delivery_handle_attach(handle, &handover.batch->deliveries[0], message.topic, message.label);
        ps_batch_unref(handover.batch); /* the handle has its own */
        penstock_keep_label(&handover.batch->deliveries[0], message.label);
    } while (penstock_handover_prepare(&handover, false, 0) == PENSTOCK_READ_AGAIN);
    if (!has_to_queue(sender, &handover)) penstock_handover_nogvl(&handover); /* giving up the GVL costs more than this takes */
    if (!handover.sent) hand_over_the_rest(sender, &handover, Qnil);
    RB_GC_GUARD(hash);
    if (!handover.sent) rb_exc_raise(penstock_handover_error(&handover));
    RB_GC_GUARD(handle);
    return handle;
}

/* Runs Ruby code now and then, so nothing may have been read from Ruby objects before; and a trap may fork meanwhile. */
static struct penstock_sender sender_of(VALUE self)
{
    const struct client_object *object = penstock_data(self, &client_type);
    if (!NIL_P(object->source)) penstock_event_source_hold(object->source);
    return (struct penstock_sender){ .self = self, .producer = client_get(self), .terms = object->terms };
}

static VALUE client_produce(VALUE self, VALUE hash)
{
    struct penstock_sender sender = sender_of(self);
    return penstock_produce(&sender, hash);
}

/* A batch's messages while they are checked and handed over. Marked word by word, as a stack is: some are VALUEs, some not
 * written yet. */
static void parsed_mark(void *messages)
{
    const VALUE *first = messages;
    rb_gc_mark_locations(first, first + ps_block_size(messages) / sizeof(VALUE));
}

static void parsed_free(void *messages)
{
    ps_block_give(messages);
}

static size_t parsed_memsize(const void *messages)
{
    return ps_block_size(messages);
}

static const rb_data_type_t parsed_type = {
    .wrap_struct_name = "Penstock::Client/messages",
    .function = { .dmark = parsed_mark, .dfree = parsed_free, .dsize = parsed_memsize },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static struct penstock_message *parsed_new(VALUE holder, long size)
{
    if ((size_t)size > SIZE_MAX / 4 / sizeof(struct penstock_message)) rb_memerror(); /* their deliveries fit, too */
    if (!(DATA_PTR(holder) = ps_block_take((size_t)size * sizeof(struct penstock_message)))) rb_memerror();
    return DATA_PTR(holder);
}

/* The GC, which does not know how much it is, may come late. */
static VALUE parsed_end(VALUE holder)
{
    ps_block_give(DATA_PTR(holder));
    DATA_PTR(holder) = NULL;
    return Qnil;
}

static void parse_all(const struct penstock_sender *sender, VALUE hashes, struct penstock_message *messages)
{
    bool foreign = false;
    for (long i = 0; i < RARRAY_LEN(hashes); i++) {
        parse(sender, &messages[i], RARRAY_AREF(hashes, i), i, i > 0 ? messages[i - 1].topic : Qnil);
        foreign |= messages[i].foreign_timestamp;
    }
    if (!foreign) return;
    for (long i = 0; i < RARRAY_LEN(hashes); i++)
        if (messages[i].foreign_timestamp) rb_ary_store(hashes, i, penstock_message_plain(RARRAY_AREF(hashes, i), i));
    parse_all(sender, hashes, messages);
}

static VALUE new_handle(struct ps_batch *batch, const struct penstock_message *messages, uint32_t i)
{
    VALUE handle = penstock_delivery_handle_new();
    penstock_delivery_handle_attach(handle, &batch->deliveries[i], messages[i].topic, messages[i].label);
    return handle;
}

/* Below this, giving up the GVL would cost more than it gives to others. */
enum { RELEASE_FROM = 100 };

/* Before the sender is made. What waits for a blocking call comes now: the handing over must not be cut short. */
void penstock_before_producing_many(VALUE timeout_ms)
{
    if (timeout_ms != Qfalse) rb_thread_check_ints();
}

struct many {
    const struct penstock_sender *sender;
    VALUE hashes, tally, holder;
    bool wait;
    int64_t deadline_us;
};

static VALUE produce_many(VALUE arg)
{
    const struct many *many = (struct many *)arg;
    const struct penstock_sender *sender = many->sender;
    long size = RARRAY_LEN(many->hashes);
    bool release = size >= RELEASE_FROM;
    VALUE error = Qnil, verdict = Qnil, handles = rb_ary_new_capa(size), kept, first;
    struct penstock_message *messages = parsed_new(many->holder, size);
    struct penstock_handover handover = { .messages = messages };
    struct ps_batch *batch;
    enum penstock_prepared prepared;

    do {
        parse_all(sender, many->hashes, messages);
        if (open_sender(sender)) parse_all(sender, many->hashes, messages);
        size_t copies_size = 0;
        kept = rb_ary_new();
        first = penstock_delivery_handle_new();
        if (release)
            for (long i = 0; i < size; i++) copies_size += penstock_message_freeze(&messages[i], kept);

        if (!begin_batch(sender, &handover, (uint32_t)size)) return Qnil;
        batch = handover.batch;
        penstock_delivery_handle_attach(first, &batch->deliveries[0], messages[0].topic, messages[0].label);
        ps_batch_unref(batch); /* the handles own it */
        for (uint32_t i = 0; i < size; i++) penstock_keep_label(&batch->deliveries[i], messages[i].label);
        prepared = penstock_handover_prepare(&handover, release, copies_size);
    } while (prepared == PENSTOCK_READ_AGAIN);
    if (prepared == PENSTOCK_NO_MEMORY) {
        ps_batch_never_sent(batch, 0, RD_KAFKA_RESP_ERR__CONFLICT);
        rb_memerror();
    }
    if (!has_to_queue(sender, &handover)) {
        if (release) penstock_nogvl_now(penstock_handover_nogvl, &handover);
        else penstock_handover_nogvl(&handover);
    }
    count(many->tally, &handover);
    if (handover.sent < size) hand_over_the_rest(sender, &handover, many->tally);

    /* The other handles are made while the broker is at work. */
    if (handover.sent > 0) rb_ary_push(handles, first);
    for (uint32_t i = 1; i < handover.sent; i++) rb_ary_push(handles, new_handle(batch, messages, i));
    if (handover.sent < size) error = penstock_handover_error(&handover);
    parsed_end(many->holder);

    if (many->wait && penstock_wait_batch(batch, many->deadline_us)) {
        verdict = atomic_load(&batch->failed) == 0 ? Qtrue : Qfalse;
        ps_unnoticed_read_all(batch); /* the caller raises */
    }
    RB_GC_GUARD(first);
    RB_GC_GUARD(kept);
    return rb_ary_new_from_args(3, handles, error, verdict);
}

/*
 * produce_many(messages, timeout_ms, tally = nil): checks all messages, then hands them over, many without the GVL.
 * timeout_ms false: does not wait. tally: an Array whose first element becomes the number of messages that were handed
 * over, also when the call is interrupted. Returns
 *   [handles of the messages that were taken, why the next one was not or nil, verdict]
 * where the verdict is true: all delivered, false: not all, nil: unknown yet.
 */
VALUE penstock_produce_many(const struct penstock_sender *sender, VALUE hashes, VALUE timeout_ms, VALUE tally)
{
    if (!NIL_P(tally)) Check_Type(tally, T_ARRAY);
    bool wait = timeout_ms != Qfalse;
    int64_t deadline_us = wait ? ps_deadline_us(penstock_timeout_ms(timeout_ms)) : 0;

    check_sender(sender);
    if (!RB_TYPE_P(hashes, T_ARRAY))
        penstock_raise(penstock_message_error, &penstock_no_context, "produce_many takes an Array of messages, not %" PRIsVALUE,
                       rb_obj_class(hashes));
    hashes = rb_ary_dup(hashes);
    long size = RARRAY_LEN(hashes);
    if (size == 0) return rb_ary_new_from_args(3, hashes, Qnil, Qtrue);
    if (size > INT32_MAX) rb_raise(rb_eArgError, "too many messages for one batch");

    VALUE holder = TypedData_Wrap_Struct(0, &parsed_type, NULL);
    struct many many = { sender, hashes, tally, holder, wait, deadline_us };
    VALUE result = rb_ensure(produce_many, (VALUE)&many, parsed_end, holder);
    RB_GC_GUARD(holder);
    return result;
}

static VALUE client_produce_many(int argc, VALUE *argv, VALUE self)
{
    VALUE hashes, timeout_ms, tally;
    rb_scan_args(argc, argv, "21", &hashes, &timeout_ms, &tally);
    penstock_before_producing_many(timeout_ms);
    struct penstock_sender sender = sender_of(self);
    return penstock_produce_many(&sender, hashes, timeout_ms, tally);
}

/* check(message, index or nil, max_payload_size, message_max_bytes): checks a message as producing it would, and returns
 * its topic; for clients that send nothing. */
static VALUE s_check(VALUE self, VALUE hash, VALUE index, VALUE max_payload_size, VALUE message_max_bytes)
{
    struct ps_terms limits = {
        .payload = NUM2SIZET(max_payload_size), .total = NUM2SIZET(message_max_bytes), .queue = SIZE_MAX, /* there is none */
    };
    struct penstock_message message;
    long place = NIL_P(index) ? -1 : NUM2LONG(index);
    penstock_message_parse(&message, hash, place, &limits, Qnil);
    if (message.foreign_timestamp) penstock_message_plain(hash, place);
    return message.topic;
}

/* ---- flush, close ---- */

int64_t penstock_timeout_ms(VALUE milliseconds)
{
    if (NIL_P(milliseconds)) return -1;
    if (!RB_INTEGER_TYPE_P(milliseconds) && !RB_FLOAT_TYPE_P(milliseconds))
        rb_raise(rb_eArgError, "a timeout is an Integer, Float or nil, not %" PRIsVALUE, rb_obj_class(milliseconds));
    double value = NUM2DBL(milliseconds);
    if (!(value >= 0)) rb_raise(rb_eArgError, "a timeout is not negative: %" PRIsVALUE, milliseconds);
    return value > 1e15 ? -1 : (int64_t)(value + 0.999);
}

static VALUE client_timeout_error(VALUE self, VALUE text, VALUE topic)
{
    struct penstock_error_context context = {
        .err = RD_KAFKA_RESP_ERR__TIMED_OUT, .client = &client_get(self)->client, .topic = topic, .partition = -1,
    };
    return penstock_error_new(penstock_timeout_error, &context, text);
}

static VALUE wait_for_flush(VALUE flush)
{
    penstock_wait_job(&((struct ps_flush_job *)flush)->job, PS_FOREVER); /* the job itself keeps the deadline */
    return Qnil;
}

/* True when nothing is in flight any more, false when the time was up. */
static VALUE client_flush(VALUE self, VALUE timeout_ms)
{
    struct ps_producer *producer = client_get(self);
    int64_t timeout = penstock_timeout_ms(timeout_ms);
    penstock_check_open(&producer->client);
    if (ps_producer_in_flight(producer) == 0) return Qtrue;

    struct ps_flush_job *flush = ps_producer_flush(producer, timeout);
    if (!flush) {
        int failed = errno;
        penstock_check_open(&producer->client);
        rb_syserr_fail(failed ? failed : EAGAIN, "cannot start a thread to flush");
    }
    uint32_t given_up = atomic_load(&producer->client.refusal.given_up);
    ps_job_retain(&flush->job);
    int interrupted = 0;
    rb_protect(wait_for_flush, (VALUE)flush, &interrupted);
    bool flushed = flush->flushed;
    ps_job_unref(&flush->job);
    if (interrupted) rb_jump_tag(interrupted);
    if (!flushed) penstock_check_open(&producer->client); /* whoever closed it sees to the messages */
    if (atomic_load(&producer->client.refusal.given_up) != given_up) penstock_raise_if_refused(&producer->client, Qnil);
    return flushed ? Qtrue : Qfalse;
}

/* [delivered, failed, purged, pending]: what became of the messages in flight when closing began. */
static VALUE client_close(VALUE self, VALUE timeout_ms)
{
    struct ps_producer *producer = client_get(self);
    penstock_close(&producer->client, penstock_timeout_ms(timeout_ms), 500); /* to purge what could not be flushed, and to destroy */
    struct ps_close_counts counts;
    ps_producer_close_counts(producer, &counts);
    VALUE result[] = { ULL2NUM(counts.delivered), ULL2NUM(counts.failed), ULL2NUM(counts.purged), ULL2NUM(counts.pending),
                       ULL2NUM(counts.unnoticed) };
    return rb_ary_new_from_values(5, result);
}

/* Closing begins, and goes on by itself. */
static VALUE client_begin_closing(VALUE self, VALUE timeout_ms)
{
    penstock_begin_closing(&client_get(self)->client, penstock_timeout_ms(timeout_ms));
    return Qnil;
}

/* A client that is closing gives up delivering after this time, if it would not before. */
static VALUE client_hurry(VALUE self, VALUE timeout_ms)
{
    ps_client_hurry(&client_get(self)->client, ps_deadline_us(penstock_timeout_ms(timeout_ms)));
    return Qnil;
}

/* Whose listeners are told what happens to it; before it is opened. */
static VALUE client_set_event_source(VALUE self, VALUE source)
{
    struct ps_producer *producer = client_get(self);
    if (atomic_load(&producer->client.state) != PS_NEW)
        penstock_raise(penstock_error, &penstock_no_context, "the client was opened already");
    struct client_object *object = penstock_data(self, &client_type);
    ps_producer_set_events(producer, penstock_event_source_get(source));
    RB_OBJ_WRITE(self, &object->source, source);
    return source;
}

static VALUE s_open_count(VALUE self)
{
    return UINT2NUM(ps_registry_count());
}

/* ---- asking ---- */

static VALUE client_queue_size(VALUE self)
{
    return ULL2NUM(ps_producer_in_flight(client_get(self)));
}

/* [accepted, delivered, failed, purged, failed without being accepted] since the client was opened. */
static VALUE client_counters(VALUE self)
{
    const struct ps_producer *producer = client_get(self);
    return rb_ary_new_from_args(5, ULL2NUM(atomic_load(&producer->accepted)), ULL2NUM(atomic_load(&producer->delivered)),
                                ULL2NUM(atomic_load(&producer->failed)), ULL2NUM(atomic_load(&producer->purged)),
                                ULL2NUM(atomic_load(&producer->dropped)));
}

/* [bytes accepted, Array of how many deliveries took how long: upper end in us, number, ..., Produce requests sent, of which
 * in vain] */
static VALUE client_measures(VALUE self)
{
    const struct ps_producer *producer = client_get(self);
    VALUE latencies = rb_ary_new();
    for (uint32_t i = 0; i < PS_LATENCY_BUCKETS; i++) {
        uint32_t count = atomic_load_explicit(&producer->latencies[i], memory_order_relaxed);
        if (!count) continue;
        rb_ary_push(latencies, LL2NUM(ps_latency_of_bucket(i)));
        rb_ary_push(latencies, UINT2NUM(count));
    }
    return rb_ary_new_from_args(4, ULL2NUM(atomic_load(&producer->accepted_bytes)), latencies,
                                ULL2NUM(atomic_load(&producer->requests)), ULL2NUM(atomic_load(&producer->retries)));
}

static VALUE client_state(VALUE self)
{
    static const char *const names[] = { "configured", "open", "closing", "closed" };
    return ID2SYM(rb_intern(names[atomic_load(&client_get(self)->client.state)]));
}

static VALUE client_connect(VALUE self)
{
    struct ps_producer *producer = client_get(self);
    client_open(self, producer);
    penstock_check_open(&producer->client);
    return self;
}

static VALUE await_job(VALUE job)
{
    return penstock_wait(&((struct ps_job *)job)->completion, PS_FOREVER) ? Qtrue : Qfalse; /* librdkafka keeps the deadline */
}

static VALUE count_or_nil(int32_t count)
{
    return count < 0 ? Qnil : INT2NUM(count);
}

/* nil: the cluster does not know the topic. */
static VALUE client_partition_count(VALUE self, VALUE name, VALUE timeout_ms, VALUE max_age_ms)
{
    struct ps_producer *producer = client_get(self);
    int64_t timeout = penstock_timeout_ms(timeout_ms), max_age_us = NUM2LL(max_age_ms) * 1000;
    penstock_check_open(&producer->client);
    penstock_check_topic_name(name, -1);
    name = rb_str_new_frozen(name); /* opening releases the GVL */
    client_open(self, producer);

    int32_t known = ps_producer_known_partitions(producer, RSTRING_PTR(name), RSTRING_LEN(name), max_age_us);
    if (known) return count_or_nil(known);

    struct ps_metadata_job *query = ps_producer_metadata(producer, RSTRING_PTR(name), RSTRING_LEN(name), (int)timeout);
    if (!query) {
        int failed = errno;
        penstock_check_open(&producer->client);
        rb_syserr_fail(failed ? failed : EAGAIN, "cannot start a thread to ask for metadata");
    }
    int state = 0;
    rb_protect(await_job, (VALUE)&query->job, &state);
    struct penstock_error_context context = {
        .err = query->err, .client = &producer->client, .topic = name, .partition = -1, .retriable = true,
    };
    int32_t count = query->partition_count;
    ps_job_abandon(&query->job);
    if (state) rb_jump_tag(state);
    if (context.err) {
        penstock_raise_if_refused(&producer->client, name);
        penstock_raise(penstock_error, &context, "the partitions of the topic could not be learnt");
    }
    return count_or_nil(count);
}

static VALUE brokers_to_ruby(VALUE arg)
{
    const struct ps_brokers_job *query = (const struct ps_brokers_job *)arg;
    VALUE brokers = rb_ary_new();
    for (int i = 0; i < query->metadata->broker_cnt; i++) {
        const struct rd_kafka_metadata_broker *broker = &query->metadata->brokers[i];
        rb_ary_push(brokers, rb_ary_new_from_args(3, INT2NUM(broker->id), penstock_text(broker->host), INT2NUM(broker->port)));
    }
    VALUE cluster_id = penstock_text(query->cluster_id);
    return rb_ary_new_from_args(3, cluster_id, INT2NUM(query->controller_id), brokers);
}

static VALUE client_brokers(VALUE self, VALUE timeout_ms)
{
    struct ps_producer *producer = client_get(self);
    int64_t timeout = penstock_timeout_ms(timeout_ms);
    client_open(self, producer);

    struct ps_brokers_job *query = ps_producer_brokers(producer, (int)timeout);
    if (!query) {
        int failed = errno;
        penstock_check_open(&producer->client);
        rb_syserr_fail(failed ? failed : EAGAIN, "cannot start a thread to ask for the brokers");
    }
    int state = 0;
    VALUE answer = Qnil;
    rb_protect(await_job, (VALUE)&query->job, &state);
    struct penstock_error_context context = {
        .err = query->err, .client = &producer->client, .topic = Qnil, .partition = -1, .retriable = true,
    };
    if (!state && !context.err) answer = rb_protect(brokers_to_ruby, (VALUE)query, &state);
    ps_job_abandon(&query->job);
    if (state) rb_jump_tag(state);
    if (context.err) {
        penstock_raise_if_refused(&producer->client, Qnil);
        penstock_raise(penstock_error, &context, "the brokers could not be learnt");
    }
    return answer;
}

void penstock_client_init(void)
{
    client_class = rb_const_get(penstock_native, rb_intern("Client"));
    rb_gc_register_mark_object(client_class);
    rb_define_alloc_func(client_class, client_allocate);
    rb_define_method(client_class, "initialize", client_initialize, 13);
    rb_define_method(client_class, "produce", client_produce, 1);
    rb_define_method(client_class, "produce_many", client_produce_many, -1);
    rb_define_method(client_class, "flush", client_flush, 1);
    rb_define_method(client_class, "close", client_close, 1);
    rb_define_method(client_class, "begin_closing", client_begin_closing, 1);
    rb_define_method(client_class, "hurry", client_hurry, 1);
    rb_define_method(client_class, "timeout_error", client_timeout_error, 2);
    rb_define_method(client_class, "connect", client_connect, 0);
    rb_define_method(client_class, "event_source=", client_set_event_source, 1);
    rb_define_method(client_class, "measures", client_measures, 0);
    rb_define_method(client_class, "token_refresher=", client_set_token_refresher, 1);
    rb_define_method(client_class, "set_credentials", client_set_credentials, 2);
    rb_define_method(client_class, "state", client_state, 0);
    rb_define_method(client_class, "queue_size", client_queue_size, 0);
    rb_define_method(client_class, "counters", client_counters, 0);
    rb_define_method(client_class, "partition_count", client_partition_count, 3);
    rb_define_method(client_class, "brokers", client_brokers, 1);
    penstock_transaction_methods_init(client_class);
    rb_define_singleton_method(client_class, "check", s_check, 4);
    rb_define_singleton_method(client_class, "setting_lines", penstock_setting_lines, 0);
    rb_define_singleton_method(client_class, "features", penstock_features, 0);
    rb_define_singleton_method(client_class, "open_count", s_open_count, 0);
}
