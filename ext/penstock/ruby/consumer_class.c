/*
 * Penstock::Native::ConsumerClient: one configured librdkafka consumer, which Penstock::Consumer uses. It owns one ps_consumer. Any
 * thread of the process that opened it may use it. Several threads may poll at once, and each message goes to one of them. Methods
 * that wait release the GVL. In a fork child, an inherited client that was opened or closed raises ForkedError. One that was only
 * configured gets a new ps_consumer at its first use.
 */
#include "ruby/penstock.h"

static VALUE client_class;
static ID id_connected;

struct consumer_object {
    _Atomic(struct ps_consumer *) consumer; /* owns a reference */
    VALUE logger;                           /* nil: librdkafka's log goes to stderr */
    VALUE token_refresher;                  /* Penstock::Native::TokenRefresher, or nil */
    VALUE deserializer;                     /* Penstock::Deserializer, or nil */
    VALUE callbacks;                        /* Penstock::Consumer::Callbacks */
};

/* ---- GC ---- */

static void consumer_mark(void *data)
{
    struct consumer_object *object = data;
    rb_gc_mark_movable(object->logger); /* M:gc_consumer_logger_mark */
    rb_gc_mark_movable(object->token_refresher); /* M:gc_consumer_token_refresher_mark */
    rb_gc_mark_movable(object->deserializer);
    rb_gc_mark_movable(object->callbacks);
}

static void consumer_compact(void *data)
{
    struct consumer_object *object = data;
    object->logger = rb_gc_location(object->logger); /* M:gc_consumer_logger_relocation */
    object->token_refresher = rb_gc_location(object->token_refresher); /* M:gc_consumer_token_refresher_relocation */
    object->deserializer = rb_gc_location(object->deserializer);
    object->callbacks = rb_gc_location(object->callbacks);
}

/* Does not block: a native thread leaves the group and closes the consumer. */
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
    .wrap_struct_name = "Penstock::Native::ConsumerClient",
    .function = { .dmark = consumer_mark, .dfree = consumer_free, .dsize = consumer_size, .dcompact = consumer_compact },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE consumer_allocate(VALUE klass)
{
    struct consumer_object *object;
    VALUE self = TypedData_Make_Struct(klass, struct consumer_object, &consumer_type, object);
    object->logger = object->token_refresher = object->deserializer = object->callbacks = Qnil;
    return self;
}

/* ---- which native consumer ---- */

struct ps_consumer *penstock_consumer_any(VALUE self)
{
    struct consumer_object *object = penstock_data(self, &consumer_type);
    struct ps_consumer *consumer = atomic_load(&object->consumer);
    if (!consumer) penstock_raise_uninitialized(self);
    return consumer;
}

static struct ps_consumer *renew(VALUE self, struct ps_consumer *inherited)
{
    struct consumer_object *object = penstock_data(self, &consumer_type);
    rd_kafka_conf_t *conf = rd_kafka_conf_dup(inherited->client.conf);
    struct ps_consumer *fresh = ps_consumer_new(conf, inherited->client.name, &inherited->settings);
    if (!fresh) rb_memerror();
    ps_client_set_brokers(&fresh->client, inherited->client.brokers);
    atomic_store(&fresh->news.wanted, atomic_load(&inherited->news.wanted));
    /* The inherited consumer stays untouched. */
    if (atomic_compare_exchange_strong(&object->consumer, &inherited, fresh)) return fresh;
    ps_client_unref(&fresh->client);
    return inherited; /* another thread was first: the failed exchange has read that thread's consumer */
}

struct ps_consumer *penstock_consumer_get(VALUE self)
{
    struct ps_consumer *consumer = penstock_consumer_any(self);
    if (!ps_client_inherited(&consumer->client)) return consumer; /* M:fork_consumer_stays */
    if (atomic_load(&consumer->client.state) == PS_NEW) return renew(self, consumer);
    struct penstock_error_context context = penstock_no_context;
    context.client = &consumer->client;
    penstock_raise(penstock_forked_error, &context,
                   "the consumer was used before this process was forked, and belongs to the parent process; "
                   "make a new one here");
}

struct ps_consumer *penstock_consumer_open(VALUE self)
{
    struct ps_consumer *consumer = penstock_consumer_get(self);
    if (atomic_load(&consumer->client.state) == PS_OPEN) return consumer;
    const struct consumer_object *object = penstock_data(self, &consumer_type);
    penstock_open(&consumer->client, object->logger, object->token_refresher, Qnil);
    if (!atomic_exchange(&consumer->announced, true)) rb_funcall(object->callbacks, id_connected, 0);
    return consumer;
}

/* ---- configuring ---- */

enum { LONGEST_NAP_MS = 1000 };

static enum ps_mark mark_from(VALUE name)
{
    if (name == ID2SYM(rb_intern("manual"))) return PS_MARK_MANUAL;
    return name == ID2SYM(rb_intern("at_once")) ? PS_MARK_AT_ONCE : PS_MARK_NEXT_POLL;
}

/* initialize(settings): a Hash by name, see Penstock::Native::ConsumerClient. */
static VALUE consumer_initialize(VALUE self, VALUE given)
{
    struct consumer_object *object = penstock_data(self, &consumer_type);
    if (atomic_load(&object->consumer)) rb_raise(rb_eTypeError, "already initialized");
    Check_Type(given, T_HASH);
    VALUE id = penstock_given(given, "id"), kafka = penstock_given(given, "kafka"), logger = penstock_given(given, "logger");
    VALUE token_refresher = penstock_given(given, "token_refresher");
    VALUE rejection_timeout = penstock_given(given, "rejection_timeout");
    StringValueCStr(id);
    struct ps_consumer_settings settings = {
        .client = {
            .close_timeout_ms = NUM2LL(penstock_given(given, "close_timeout")),
            .rejection_us = NIL_P(rejection_timeout) ? -1 : NUM2LL(rejection_timeout) * 1000,
            .logs_to_mailbox = !NIL_P(logger),
            .token_provider = !NIL_P(token_refresher),
        },
        .grouped = RTEST(penstock_given(given, "grouped")),
        .mark = mark_from(penstock_given(given, "mark")),
        .listens = RTEST(penstock_given(given, "listens")),
        .hold_us = NUM2LL(penstock_given(given, "hold_rebalances")) * 1000,
    };
    RB_OBJ_WRITE(self, &object->logger, logger); /* M:gc_consumer_logger_barrier */
    RB_OBJ_WRITE(self, &object->token_refresher, token_refresher); /* M:gc_consumer_token_refresher_barrier */
    RB_OBJ_WRITE(self, &object->deserializer, penstock_given(given, "deserializer"));
    RB_OBJ_WRITE(self, &object->callbacks, penstock_given(given, "callbacks"));

    /* The consumer owns the configuration from the start, so an error in it leaks nothing. */
    struct ps_consumer *consumer = ps_consumer_new(rd_kafka_conf_new(), RSTRING_PTR(id), &settings);
    if (!consumer) rb_memerror();
    atomic_store(&consumer->client.state, PS_CLOSED); /* until the configuration is checked */
    atomic_store(&object->consumer, consumer);

    struct penstock_consumer_conf_facts facts;
    penstock_consumer_conf_fill(consumer->client.conf, kafka, settings.client.logs_to_mailbox, &facts);
    if (settings.client.token_provider)
        penstock_conf_ask_for_tokens(consumer->client.conf, true, settings.client.logs_to_mailbox);
    int64_t nap_ms = facts.max_poll_interval_ms / 4;
    consumer->settings.ends = facts.ends;
    consumer->settings.commit_every_us = facts.commit_every_ms * 1000;
    consumer->settings.commits_last = facts.commits_last;
    consumer->settings.queue_messages = facts.queue_messages;
    consumer->settings.queue_bytes = facts.queue_kilobytes * 1024;
    consumer->settings.set_polls_us = (facts.max_poll_interval_ms < 2 ? 1 : facts.max_poll_interval_ms / 2) * 1000;
    consumer->settings.nap_us = (nap_ms < 1 ? 1 : nap_ms > LONGEST_NAP_MS ? LONGEST_NAP_MS : nap_ms) * 1000;
    ps_client_set_brokers(&consumer->client, rb_string_value_cstr(&facts.brokers));
    atomic_store(&consumer->client.state, PS_NEW);
    RB_GC_GUARD(id);
    return self;
}

/* ---- for the methods in files of their own ---- */

VALUE penstock_consumer_callbacks(VALUE self)
{
    const struct consumer_object *object = penstock_data(self, &consumer_type);
    return object->callbacks;
}

bool penstock_is_consumer_client(VALUE object)
{
    return rb_typeddata_is_kind_of(object, &consumer_type);
}

VALUE penstock_consumer_deserializer(VALUE self)
{
    const struct consumer_object *object = penstock_data(self, &consumer_type);
    return object->deserializer;
}

static VALUE consumer_call_decode_with(VALUE self, VALUE deserializer)
{
    struct consumer_object *object = penstock_data(self, &consumer_type);
    RB_OBJ_WRITE(self, &object->deserializer, deserializer);
    return Qnil;
}

VALUE penstock_consumer_group(const struct ps_consumer *consumer)
{
    char group[1024] = "";
    size_t size = sizeof(group);
    if (!consumer->settings.grouped) return Qnil;
    if (rd_kafka_conf_get(consumer->client.conf, "group.id", group, &size)) return Qnil;
    return penstock_text(group);
}

void penstock_consumer_check_rejected(struct ps_consumer *consumer)
{
    if (!ps_rejection_due(&consumer->client.rejection, ps_now_us()) || !ps_client_enter(&consumer->client)) return;
    bool rejected = ps_rejection_give_up(&consumer->client.rejection, consumer->client.rk);
    ps_client_exit(&consumer->client);
    if (rejected) penstock_raise_if_rejected(&consumer->client, Qnil);
}

/* ---- logging in ---- */

static VALUE consumer_call_set_credentials(VALUE self, VALUE user, VALUE password)
{
    struct ps_consumer *consumer = penstock_consumer_get(self);
    struct penstock_error_context context = penstock_no_context;
    context.client = &consumer->client;
    penstock_set_credentials(&consumer->client, &context, user, password);
    return Qnil;
}

/* ---- closing, state ---- */

/* Calls that wait for answers end within this time, whatever timeouts they have, and leave closing what it needs at least. */
static VALUE consumer_call_end_within(VALUE self, VALUE timeout_ms)
{
    struct ps_consumer *consumer = penstock_consumer_any(self);
    int64_t within_ms = penstock_timeout_ms(timeout_ms);
    if (within_ms >= 0) within_ms = within_ms > PS_CLOSE_LEAST_MS ? within_ms - PS_CLOSE_LEAST_MS : 0;
    if (!ps_client_inherited(&consumer->client)) atomic_store(&consumer->calls_end_us, ps_deadline_us(within_ms));
    RB_GC_GUARD(self);
    return Qnil;
}

/* False: the time ran out first. */
static VALUE consumer_call_close(VALUE self, VALUE timeout_ms)
{
    struct ps_consumer *consumer = penstock_consumer_any(self);
    if (ps_client_inherited(&consumer->client)) {
        if (atomic_load(&consumer->client.state) != PS_NEW) return Qtrue; /* the parent process closes it */
        consumer = penstock_consumer_get(self);
    }
    struct ps_close_times times = ps_client_close_times(&consumer->client, penstock_timeout_ms(timeout_ms));
    bool closed = penstock_close(&consumer->client, &times);
    RB_GC_GUARD(self);
    return closed ? Qtrue : Qfalse;
}

/* The coordinator has answered that the member leaves. */
static VALUE consumer_call_left_group(VALUE self)
{
    bool left = atomic_load(&penstock_consumer_any(self)->left_group);
    RB_GC_GUARD(self);
    return left ? Qtrue : Qfalse;
}

/* :inherited in a fork child, which cannot use the consumer; :fatal after a poll has met a fatal error. */
static VALUE consumer_state(VALUE self)
{
    static const char *const names[] = { "configured", "open", "closing", "closed" };
    const struct ps_consumer *consumer = penstock_consumer_any(self);
    int state = atomic_load(&consumer->client.state);
    if (ps_client_inherited(&consumer->client) && state != PS_NEW) return ID2SYM(rb_intern("inherited"));
    if (state == PS_OPEN && atomic_load(&consumer->fatal)) return ID2SYM(rb_intern("fatal"));
    return ID2SYM(rb_intern(names[state]));
}

void penstock_consumer_init(void)
{
    client_class = rb_const_get(penstock_native, rb_intern("ConsumerClient"));
    rb_gc_register_mark_object(client_class);
    id_connected = rb_intern("connected");
    rb_define_alloc_func(client_class, consumer_allocate);
    penstock_poll_methods_init(client_class);
    penstock_consumer_calls_init(client_class);
    penstock_consumer_news_init(client_class);
    penstock_consumer_facade_init();
    rb_define_method(client_class, "state", consumer_state, 0);
    rb_define_method(client_class, "initialize", consumer_initialize, 1);
    rb_define_method(client_class, "decode_with", consumer_call_decode_with, 1);
    rb_define_method(client_class, "set_credentials", consumer_call_set_credentials, 2);
    rb_define_method(client_class, "end_within", consumer_call_end_within, 1);
    rb_define_method(client_class, "close", consumer_call_close, 1);
    rb_define_method(client_class, "left_group?", consumer_call_left_group, 0);
}
