/*
 * Penstock::Native::ProducerClient: one configured librdkafka producer, which Penstock::Producer uses. It owns a ps_producer. The
 * ps_producer is made with the configuration, and opened (threads, connections) at its first use. In a fork child, the first use
 * replaces the inherited ps_producer with a new one of the same configuration.
 *
 * Any thread and fiber, in the parent process and in fork children. Methods that wait release the GVL.
 */
#include "ruby/penstock.h"
#include <errno.h>
#include <string.h>

static VALUE client_class;

/* ---- GC ---- */

static void client_mark(void *data)
{
    struct penstock_producer_client *object = data;
    rb_gc_mark_movable(object->poller); /* M:gc_producer_poller_mark */
    rb_gc_mark_movable(object->logger); /* M:gc_producer_logger_mark */
    rb_gc_mark_movable(object->source); /* M:gc_producer_source_mark */
    rb_gc_mark_movable(object->token_refresher); /* M:gc_producer_token_refresher_mark */
    rb_gc_mark_movable(object->last_topic); /* M:gc_producer_last_topic_mark */
}

static void client_compact(void *data)
{
    struct penstock_producer_client *object = data;
    object->poller = rb_gc_location(object->poller); /* M:gc_producer_poller_relocation */
    object->logger = rb_gc_location(object->logger); /* M:gc_producer_logger_relocation */
    object->source = rb_gc_location(object->source); /* M:gc_producer_source_relocation */
    object->token_refresher = rb_gc_location(object->token_refresher); /* M:gc_producer_token_refresher_relocation */
    object->last_topic = rb_gc_location(object->last_topic); /* M:gc_producer_last_topic_relocation */
}

/* Does not block. If the client was not closed, native threads keep it until its messages have their delivery results. */
static void client_free(void *data)
{
    struct penstock_producer_client *object = data;
    struct ps_producer *producer = atomic_load(&object->producer);
    if (producer) ps_client_abandon(&producer->client); /* M:dropped_client_closed */
    xfree(object);
}

static size_t client_size(const void *data)
{
    return sizeof(struct penstock_producer_client) + sizeof(struct ps_producer);
}

static const rb_data_type_t client_type = {
    .wrap_struct_name = "Penstock::Native::ProducerClient",
    .function = { .dmark = client_mark, .dfree = client_free, .dsize = client_size, .dcompact = client_compact },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE client_allocate(VALUE klass)
{
    struct penstock_producer_client *object;
    VALUE self = TypedData_Make_Struct(klass, struct penstock_producer_client, &client_type, object);
    object->poller = object->logger = object->source = object->token_refresher = object->last_topic = Qnil;
    return self;
}

/* ---- this process's native client, opened at its first use ---- */

static struct ps_producer *renew(struct penstock_producer_client *object, struct ps_producer *inherited)
{
    struct ps_poller *poller = penstock_poller_get(object->poller); /* may raise, so it comes first */
    struct ps_events *events = NIL_P(object->source) ? NULL : penstock_event_source_get(object->source);
    struct ps_producer *fresh =
        ps_producer_new(rd_kafka_conf_dup(inherited->client.conf), inherited->client.name, poller, &inherited->settings);
    if (!fresh) rb_memerror();
    ps_client_set_brokers(&fresh->client, inherited->client.brokers);
    if (events) ps_producer_set_events(fresh, events);
    if (atomic_load(&inherited->client.state) >= PS_CLOSING) atomic_store(&fresh->client.state, PS_CLOSED);
    if (atomic_compare_exchange_strong(&object->producer, &inherited, fresh)) return fresh; /* inherited one: untouched */
    ps_client_unref(&fresh->client);
    return inherited; /* another thread was first: the failed exchange has read that thread's producer */
}

static struct ps_producer *client_get(VALUE self)
{
    struct penstock_producer_client *object = penstock_data(self, &client_type);
    struct ps_producer *producer = atomic_load(&object->producer);
    if (!producer) penstock_raise_uninitialized(self);
    return ps_client_inherited(&producer->client) ? renew(object, producer) : producer; /* M:fork_replaces_client */
}

bool penstock_producer_open_if_new(VALUE self, struct ps_producer *producer)
{
    const struct penstock_producer_client *object = penstock_data(self, &client_type);
    return penstock_open(&producer->client, object->logger, object->token_refresher, object->source);
}

/* ---- configuring ---- */

/* initialize(settings): a Hash by name, see Penstock::Native::ProducerClient. */
static VALUE client_initialize(VALUE self, VALUE given)
{
    struct penstock_producer_client *object = penstock_data(self, &client_type);
    if (atomic_load(&object->producer)) rb_raise(rb_eTypeError, "already initialized");
    Check_Type(given, T_HASH);
    VALUE id = penstock_given(given, "id"), kafka = penstock_given(given, "kafka"), logger = penstock_given(given, "logger");
    VALUE poller = penstock_given(given, "poller"), rejection_timeout = penstock_given(given, "rejection_timeout");
    struct ps_poller *native_poller = penstock_poller_get(poller);
    StringValueCStr(id);

    /* The client owns the configuration from the start, so an error in it leaks nothing. */
    struct ps_producer_settings settings = {
        .client = {
            .close_timeout_ms = NUM2LL(penstock_given(given, "close_timeout")),
            .rejection_us = NIL_P(rejection_timeout) ? -1 : NUM2LL(rejection_timeout) * 1000,
            .unreachable_us = NUM2LL(penstock_given(given, "unreachable_timeout")) * 1000,
            .logs_to_mailbox = !NIL_P(logger),
        },
        .max_time_us = NUM2LL(penstock_given(given, "max_time")) * 1000,
        .sweep_us = NUM2LL(penstock_given(given, "periodic_poll_interval")) * 1000,
        .abort_wait_ms = NUM2LL(penstock_given(given, "wait_timeout_on_transaction_abort")),
    };
    bool flush_on_wait = RTEST(penstock_given(given, "flush_on_wait"));
    object->terms.payload = NUM2SIZET(penstock_given(given, "max_payload_size"));
    object->terms.queue_full_ms = penstock_timeout_ms(penstock_given(given, "wait_timeout_on_queue_full"));
    object->terms.drop_when_full = RTEST(penstock_given(given, "drop_on_queue_full"));
    RB_OBJ_WRITE(self, &object->poller, poller); /* M:gc_producer_poller_barrier */
    RB_OBJ_WRITE(self, &object->logger, logger); /* M:gc_producer_logger_barrier */

    struct ps_producer *producer = ps_producer_new(rd_kafka_conf_new(), RSTRING_PTR(id), native_poller, &settings);
    if (!producer) rb_memerror();
    atomic_store(&producer->client.state, PS_CLOSED); /* until the configuration is checked */
    atomic_store(&object->producer, producer);

    struct penstock_conf_facts facts;
    penstock_conf_fill(producer->client.conf, kafka, settings.client.logs_to_mailbox, &facts);
    object->terms.total = facts.message_max_bytes;
    object->terms.queue = facts.queue_max_bytes;
    producer->settings.sticky_ms = facts.sticky_ms;
    producer->settings.linger_us = flush_on_wait ? facts.linger_us : 0;
    producer->settings.idempotent = facts.idempotent;
    producer->settings.transactional = facts.transactional;
    producer->settings.client.abort_ms = facts.transactional ? 1000 : 0;
    producer->settings.transaction_timeout_ms = facts.transaction_timeout_ms;
    ps_client_set_brokers(&producer->client, rb_string_value_cstr(&facts.brokers));
    atomic_store(&producer->client.state, PS_NEW);
    RB_GC_GUARD(id);
    return self;
}

/* ---- logging in ---- */

/* Call it before the client is opened. The refresher supplies the client's tokens. */
static VALUE client_set_token_refresher(VALUE self, VALUE refresher)
{
    struct penstock_producer_client *object = penstock_data(self, &client_type);
    struct ps_producer *producer = client_get(self);
    RB_OBJ_WRITE(self, &object->token_refresher, refresher); /* M:gc_producer_token_refresher_barrier */
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

struct penstock_producer_client *penstock_producer_data(VALUE self)
{
    return penstock_data(self, &client_type);
}

struct ps_producer *penstock_producer_get(VALUE self)
{
    return client_get(self);
}

struct ps_producer *penstock_producer_open(VALUE self)
{
    struct ps_producer *producer = client_get(self);
    penstock_producer_open_if_new(self, producer);
    return producer;
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
    penstock_wait_job(&((struct ps_flush_job *)flush)->job, PS_FOREVER); /* the job observes the deadline */
    return Qnil;
}

/* True: nothing is in flight any more. False: the time ran out. */
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
    uint32_t given_up = atomic_load(&producer->client.rejection.given_up);
    ps_job_retain(&flush->job);
    int interrupted = 0;
    rb_protect(wait_for_flush, (VALUE)flush, &interrupted);
    bool flushed = flush->flushed;
    ps_job_unref(&flush->job);
    if (interrupted) rb_jump_tag(interrupted);
    if (!flushed) penstock_check_open(&producer->client); /* the closing thread settles the messages */
    if (atomic_load(&producer->client.rejection.given_up) != given_up) penstock_raise_if_rejected(&producer->client, Qnil);
    return flushed ? Qtrue : Qfalse;
}

/*
 * close(timeout_ms, stop_ms = nil): closing takes up to `timeout_ms`, and stops delivering after `stop_ms`; nil: in time.
 * [delivered, failed, purged, pending, unnoticed]: the outcomes of the messages that were in flight when closing began.
 */
static VALUE client_close(int argc, VALUE *argv, VALUE self)
{
    VALUE timeout_ms = Qnil, stop_ms = Qnil;
    rb_scan_args(argc, argv, "11", &timeout_ms, &stop_ms);
    struct ps_producer *producer = client_get(self);
    struct ps_close_times times = ps_client_close_times(&producer->client, penstock_timeout_ms(timeout_ms));
    if (!NIL_P(stop_ms)) times.stop_us = ps_deadline_us(penstock_timeout_ms(stop_ms));
    penstock_close(&producer->client, &times);
    struct ps_close_counts counts;
    ps_producer_close_counts(producer, &counts);
    VALUE result[] = { ULL2NUM(counts.delivered), ULL2NUM(counts.failed), ULL2NUM(counts.purged), ULL2NUM(counts.pending),
                       ULL2NUM(counts.unnoticed) };
    return rb_ary_new_from_values(5, result);
}

/* Starts closing, which goes on by itself. */
static VALUE client_begin_closing(VALUE self, VALUE timeout_ms)
{
    penstock_begin_closing(&client_get(self)->client, penstock_timeout_ms(timeout_ms));
    return Qnil;
}

/* Limits how long a closing client goes on delivering. A limit that ends earlier stays. */
static VALUE client_hurry(VALUE self, VALUE timeout_ms)
{
    ps_client_hurry(&client_get(self)->client, ps_deadline_us(penstock_timeout_ms(timeout_ms)));
    return Qnil;
}

/* Call it before the client is opened. The client publishes its events through this source. */
static VALUE client_set_event_source(VALUE self, VALUE source)
{
    struct ps_producer *producer = client_get(self);
    if (atomic_load(&producer->client.state) != PS_NEW)
        penstock_raise(penstock_usage_error, &penstock_no_context, "the client was opened already");
    struct penstock_producer_client *object = penstock_data(self, &client_type);
    ps_producer_set_events(producer, penstock_event_source_get(source));
    RB_OBJ_WRITE(self, &object->source, source); /* M:gc_producer_source_barrier */
    return source;
}

static VALUE s_open_count(VALUE self)
{
    return UINT2NUM(ps_registry_count());
}

/* ---- state and counters ---- */

static VALUE client_queue_size(VALUE self)
{
    return ULL2NUM(ps_producer_in_flight(client_get(self)));
}

/* The names of a producer's counters for Ruby: what Penstock::CounterSnapshot adds up. */
static const struct {
    const char *name;
    size_t place;
} counters[] = {
    { "messages", offsetof(struct ps_producer, accepted) },    { "delivered", offsetof(struct ps_producer, delivered) },
    { "failed", offsetof(struct ps_producer, failed) },        { "purged", offsetof(struct ps_producer, purged) },
    { "dropped", offsetof(struct ps_producer, dropped) }, /* failed without being accepted */
    { "bytes", offsetof(struct ps_producer, accepted_bytes) }, { "requests", offsetof(struct ps_producer, requests) },
    { "retries", offsetof(struct ps_producer, retries) }, /* requests that brought no delivery result */
};

/* { name: number } since the client was opened */
static VALUE client_counters(VALUE self)
{
    const char *producer = (const char *)client_get(self);
    VALUE numbers = rb_hash_new();
    for (size_t i = 0; i < sizeof(counters) / sizeof(*counters); i++) {
        _Atomic uint64_t *counter = (_Atomic uint64_t *)(producer + counters[i].place);
        rb_hash_aset(numbers, ID2SYM(rb_intern(counters[i].name)), ULL2NUM(atomic_load(counter)));
    }
    return numbers;
}

/* { upper bound in us: number of deliveries } */
static VALUE client_latencies(VALUE self)
{
    const struct ps_producer *producer = client_get(self);
    VALUE latencies = rb_hash_new();
    for (uint32_t i = 0; i < PS_LATENCY_BUCKETS; i++) {
        uint32_t count = atomic_load_explicit(&producer->latencies[i], memory_order_relaxed);
        if (count) rb_hash_aset(latencies, LL2NUM(ps_latency_of_bucket(i)), UINT2NUM(count));
    }
    return latencies;
}

static VALUE client_state(VALUE self)
{
    static const char *const names[] = { "configured", "open", "closing", "closed" };
    return ID2SYM(rb_intern(names[atomic_load(&client_get(self)->client.state)]));
}

static VALUE client_connect(VALUE self)
{
    struct ps_producer *producer = client_get(self);
    penstock_producer_open_if_new(self, producer);
    penstock_check_open(&producer->client);
    return self;
}

void penstock_producer_init(void)
{
    client_class = rb_const_get(penstock_native, rb_intern("ProducerClient"));
    rb_gc_register_mark_object(client_class);
    rb_define_alloc_func(client_class, client_allocate);
    rb_define_method(client_class, "initialize", client_initialize, 1);
    rb_define_method(client_class, "flush", client_flush, 1);
    rb_define_method(client_class, "close", client_close, -1);
    rb_define_method(client_class, "begin_closing", client_begin_closing, 1);
    rb_define_method(client_class, "hurry", client_hurry, 1);
    rb_define_method(client_class, "timeout_error", client_timeout_error, 2);
    rb_define_method(client_class, "connect", client_connect, 0);
    rb_define_method(client_class, "event_source=", client_set_event_source, 1);
    rb_define_method(client_class, "latencies", client_latencies, 0);
    rb_define_method(client_class, "token_refresher=", client_set_token_refresher, 1);
    rb_define_method(client_class, "set_credentials", client_set_credentials, 2);
    rb_define_method(client_class, "state", client_state, 0);
    rb_define_method(client_class, "queue_size", client_queue_size, 0);
    rb_define_method(client_class, "counters", client_counters, 0);
    penstock_produce_methods_init(client_class);
    penstock_metadata_methods_init(client_class);
    penstock_transaction_methods_init(client_class);
    rb_define_singleton_method(client_class, "setting_lines", penstock_setting_lines, 0);
    rb_define_singleton_method(client_class, "features", penstock_features, 0);
    rb_define_singleton_method(client_class, "open_count", s_open_count, 0);
}
