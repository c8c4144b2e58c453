/*
 * Penstock::Native::AdminClient: one configured admin client, which Penstock::Admin uses. It owns a ps_admin, which opens at its
 * first use. In a fork child, the first use replaces the inherited ps_admin with a new one of the same configuration. So it is with
 * one that was retired (core/admin/admin.h).
 *
 * Any thread and fiber. A method that asks the cluster gives librdkafka its requests, and waits for the answers without the GVL.
 * It then makes Ruby objects of each answer and destroys it, while it holds the client open. The methods are in files of their own
 * (admin_topics.c and others): a penstock_admin_request says how the request is made of Ruby's rows, and what the answer becomes.
 */
#include "ruby/penstock.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct admin_client {
    _Atomic(struct ps_admin *) admin; /* owns a reference */
    VALUE poller;                     /* Penstock::Poller */
    VALUE logger;                     /* nil: librdkafka's log goes to stderr */
    VALUE token_refresher;            /* Penstock::Native::TokenRefresher, or nil */
    bool closed;                      /* a new ps_admin is closed from the start */
    struct reading *readings;         /* of threads that make Ruby objects of an answer, on their stacks */
};

struct reading { /* one answer, while its thread holds the client open */
    struct reading *next;
    VALUE thread;
    const struct asking *asking;
    rd_kafka_event_t *event;
    VALUE group; /* see group_of */
};

/* ---- GC ---- */

static void client_mark(void *data)
{
    struct admin_client *object = data;
    rb_gc_mark_movable(object->poller);
    rb_gc_mark_movable(object->logger);
    rb_gc_mark_movable(object->token_refresher);
}

static void client_compact(void *data)
{
    struct admin_client *object = data;
    object->poller = rb_gc_location(object->poller);
    object->logger = rb_gc_location(object->logger);
    object->token_refresher = rb_gc_location(object->token_refresher);
}

/* Does not block: a native thread closes the client. */
static void client_free(void *data)
{
    struct admin_client *object = data;
    struct ps_admin *admin = atomic_load(&object->admin);
    if (admin) ps_client_abandon(&admin->client);
    xfree(object);
}

static size_t client_size(const void *data)
{
    return sizeof(struct admin_client) + sizeof(struct ps_admin);
}

static const rb_data_type_t client_type = {
    .wrap_struct_name = "Penstock::Native::AdminClient",
    .function = { .dmark = client_mark, .dfree = client_free, .dsize = client_size, .dcompact = client_compact },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE client_allocate(VALUE klass)
{
    struct admin_client *object;
    VALUE self = TypedData_Make_Struct(klass, struct admin_client, &client_type, object);
    object->poller = object->logger = object->token_refresher = Qnil;
    return self;
}

/* ---- this process's native client, opened at its first use ---- */

/* `former` was inherited, or retired. */
static struct ps_admin *renew(struct admin_client *object, struct ps_admin *former)
{
    struct ps_poller *poller = penstock_poller_get(object->poller); /* may raise, so it comes first */
    bool inherited = ps_client_inherited(&former->client);
    struct ps_admin *replaced = former,
                    *fresh = ps_admin_new(rd_kafka_conf_dup(former->client.conf), former->client.name, poller, &former->settings);
    if (!fresh) rb_memerror();
    ps_client_set_brokers(&fresh->client, former->client.brokers);
    /* M:replaced_client_stays_accepted */
    if (atomic_load(&former->client.rejection.worked)) atomic_store(&fresh->client.rejection.worked, true);
    bool closed = object->closed || (inherited && !atomic_load(&former->retired) && atomic_load(&former->client.state) >= PS_CLOSING);
    if (closed) atomic_store(&fresh->client.state, PS_CLOSED);
    if (atomic_compare_exchange_strong(&object->admin, &replaced, fresh)) {
        if (inherited) object->readings = NULL; /* of threads that do not exist in this process; the former stays untouched */
        else ps_client_unref(&former->client);
        return fresh;
    }
    ps_client_unref(&fresh->client);
    return replaced; /* another thread was first: the failed exchange has read that thread's client */
}

static struct ps_admin *client_get(VALUE self)
{
    struct admin_client *object = penstock_data(self, &client_type);
    struct ps_admin *admin = atomic_load(&object->admin);
    if (!admin) penstock_raise_uninitialized(self);
    return ps_client_inherited(&admin->client) || atomic_load(&admin->retired) ? renew(object, admin) : admin;
}

static struct ps_admin *client_open(VALUE self)
{
    struct ps_admin *admin = client_get(self);
    const struct admin_client *object = penstock_data(self, &client_type);
    penstock_open(&admin->client, object->logger, object->token_refresher, Qnil);
    return admin;
}

/* ---- configuring, state, closing ---- */

/* initialize(settings): a Hash by name, see Penstock::Native::AdminClient. */
static VALUE client_initialize(VALUE self, VALUE given)
{
    struct admin_client *object = penstock_data(self, &client_type);
    if (atomic_load(&object->admin)) rb_raise(rb_eTypeError, "already initialized");
    Check_Type(given, T_HASH);
    VALUE id = penstock_given(given, "id"), kafka = penstock_given(given, "kafka"), logger = penstock_given(given, "logger");
    VALUE poller = penstock_given(given, "poller"), rejection_timeout = penstock_given(given, "rejection_timeout");
    VALUE token_refresher = penstock_given(given, "token_refresher");
    struct ps_poller *native_poller = penstock_poller_get(poller);
    StringValueCStr(id);
    struct ps_admin_settings settings = {
        .client = {
            .close_timeout_ms = NUM2LL(penstock_given(given, "close_timeout")),
            .rejection_us = NIL_P(rejection_timeout) ? -1 : NUM2LL(rejection_timeout) * 1000,
            .logs_to_mailbox = !NIL_P(logger),
            .token_provider = !NIL_P(token_refresher),
        },
        .max_time_us = 100000,
        .sweep_us = 1000000,
        .unreachable_us = NUM2LL(penstock_given(given, "unreachable_timeout")) * 1000,
        .consumer = RTEST(penstock_given(given, "consumer")),
    };
    RB_OBJ_WRITE(self, &object->poller, poller);
    RB_OBJ_WRITE(self, &object->logger, logger);
    RB_OBJ_WRITE(self, &object->token_refresher, token_refresher);

    /* The client owns the configuration from the start, so an error in it leaks nothing. */
    struct ps_admin *admin = ps_admin_new(rd_kafka_conf_new(), RSTRING_PTR(id), native_poller, &settings);
    if (!admin) rb_memerror();
    atomic_store(&admin->client.state, PS_CLOSED); /* until the configuration is checked */
    atomic_store(&object->admin, admin);
    VALUE brokers;
    bool logs_to_queue = settings.client.logs_to_mailbox && !settings.consumer;
    penstock_admin_conf_fill(admin->client.conf, kafka, logs_to_queue, &brokers);
    if (settings.client.token_provider) penstock_conf_ask_for_tokens(admin->client.conf, false, logs_to_queue);
    ps_client_set_brokers(&admin->client, rb_string_value_cstr(&brokers));
    atomic_store(&admin->client.state, PS_NEW);
    RB_GC_GUARD(id);
    return self;
}

static VALUE client_state(VALUE self)
{
    static const char *const names[] = { "configured", "open", "closing", "closed" };
    return ID2SYM(rb_intern(names[atomic_load(&client_get(self)->client.state)]));
}

static VALUE client_set_credentials(VALUE self, VALUE user, VALUE password)
{
    struct ps_admin *admin = client_get(self);
    struct penstock_error_context context = penstock_no_context;
    context.client = &admin->client;
    penstock_set_credentials(&admin->client, &context, user, password);
    return Qnil;
}

/* Whether a signal trap of this thread has interrupted it while it reads an answer. */
static bool reads_here(const struct admin_client *object)
{
    for (const struct reading *reading = object->readings; reading; reading = reading->next)
        if (reading->thread == rb_thread_current()) return true;
    return false;
}

/* False: the time ran out first, or closing waits for this very thread, which reads an answer. */
static VALUE client_close(VALUE self, VALUE timeout_ms)
{
    struct admin_client *object = penstock_data(self, &client_type);
    struct ps_admin *admin = client_get(self);
    object->closed = true; /* the client may be retired while this waits */
    if (reads_here(object)) { /* M:trap_close_skips_own_thread */
        penstock_begin_closing(&admin->client, penstock_timeout_ms(timeout_ms));
        return Qfalse;
    }
    struct ps_close_times times = ps_client_close_times(&admin->client, penstock_timeout_ms(timeout_ms));
    bool closed = penstock_close(&admin->client, &times);
    RB_GC_GUARD(self);
    return closed ? Qtrue : Qfalse;
}

/* ---- errors ---- */

static VALUE error_of(const struct ps_admin *admin, rd_kafka_resp_err_t err, const char *text, VALUE group, const char *topic,
                      int32_t partition, bool repeatable)
{
    if (!err) return Qnil;
    /* M:stale_coordinator_forgotten */
    if (err == RD_KAFKA_RESP_ERR_NOT_COORDINATOR) ps_admin_forget_coordinators((struct ps_admin *)admin);
    struct penstock_error_context context = penstock_no_context;
    context.group = group;
    context.topic = penstock_text(topic);
    context.partition = partition;
    /* A question fails with the second one if no broker can be reached, when its time is over. */
    bool timed_out = err == RD_KAFKA_RESP_ERR__TIMED_OUT || err == RD_KAFKA_RESP_ERR__TRANSPORT ||
                     err == RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT;
    context.err = err;
    context.client = &admin->client;
    context.retriable = timed_out && repeatable;
    char quoted[1024] = "";
    if (text) ps_client_quote((struct ps_client *)&admin->client, quoted, sizeof(quoted), text);
    VALUE error_class = timed_out ? penstock_admin_timeout_error : penstock_admin_error;
    if (err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
        context.retriable = repeatable;
        error_class = penstock_admin_unreachable_error;
    }
    return penstock_error_new(error_class, &context, *quoted ? penstock_text(quoted) : Qnil);
}

static VALUE unreachable_error(const struct ps_admin *admin, VALUE group, bool repeatable)
{
    char text[64];
    snprintf(text, sizeof(text), "no broker could be reached for %d ms", (int)(admin->settings.unreachable_us / 1000));
    return error_of(admin, RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, text, group, NULL, -1, repeatable);
}

VALUE penstock_admin_error_of(const struct ps_admin *admin, rd_kafka_resp_err_t err, const char *text, const char *topic,
                              int32_t partition)
{
    return error_of(admin, err, text, Qnil, topic, partition, false);
}

VALUE penstock_admin_place_error(const struct ps_admin *admin, rd_kafka_resp_err_t err, const char *text, VALUE group,
                                 const char *topic, int32_t partition)
{
    return error_of(admin, err, text, group, topic, partition, false);
}

VALUE penstock_admin_group_error(const struct ps_admin *admin, const rd_kafka_error_t *error, VALUE group)
{
    if (!error) return Qnil;
    return error_of(admin, rd_kafka_error_code(error), rd_kafka_error_string(error), group, NULL, -1, false);
}

VALUE penstock_admin_item_error(const struct ps_admin *admin, const rd_kafka_error_t *error)
{
    return penstock_admin_group_error(admin, error, Qnil);
}

/* ---- options of a request ---- */

static VALUE option(VALUE options, const char *name)
{
    return rb_hash_lookup(options, ID2SYM(rb_intern(name)));
}

static int64_t timeout_of(VALUE options)
{
    return NUM2LL(option(options, "timeout"));
}

static void raise_option(const struct ps_admin *admin, rd_kafka_resp_err_t err, const char *text)
{
    if (err) rb_exc_raise(penstock_admin_error_of(admin, err, text, NULL, -1));
}

static void take_option_error(const struct ps_admin *admin, rd_kafka_error_t *error)
{
    if (!error) return;
    VALUE exception = penstock_admin_item_error(admin, error);
    rd_kafka_error_destroy(error);
    rb_exc_raise(exception);
}

enum { HOUR_MS = 3600000 };

/* librdkafka rejects an option that a request does not have. */
static void set_options(const struct ps_admin *admin, rd_kafka_AdminOptions_t *native, VALUE options, int timeout_ms)
{
    char errstr[256] = "";
    VALUE value;
    raise_option(admin, rd_kafka_AdminOptions_set_request_timeout(native, timeout_ms, errstr, sizeof(errstr)), errstr);
    if (!NIL_P(value = option(options, "operation")))
        raise_option(admin, rd_kafka_AdminOptions_set_operation_timeout(native, NUM2INT(value), errstr, sizeof(errstr)), errstr);
    if (RTEST(option(options, "validate_only")))
        raise_option(admin, rd_kafka_AdminOptions_set_validate_only(native, 1, errstr, sizeof(errstr)), errstr);
    if (RTEST(option(options, "stable"))) take_option_error(admin, rd_kafka_AdminOptions_set_require_stable_offsets(native, 1));
#ifdef HAVE_RD_KAFKA_ADMINOPTIONS_SET_INCLUDE_AUTHORIZED_OPERATIONS
    if (RTEST(option(options, "authorized")))
        take_option_error(admin, rd_kafka_AdminOptions_set_include_authorized_operations(native, 1));
#endif
#ifdef HAVE_RD_KAFKA_ADMINOPTIONS_SET_ISOLATION_LEVEL
    if (!NIL_P(value = option(options, "isolation")))
        take_option_error(admin, rd_kafka_AdminOptions_set_isolation_level(native, (rd_kafka_IsolationLevel_t)NUM2INT(value)));
#endif
    if (!NIL_P(value = option(options, "states"))) {
        rd_kafka_consumer_group_state_t states[16];
        long size = RARRAY_LEN(value) < 16 ? RARRAY_LEN(value) : 16;
        for (long i = 0; i < size; i++) states[i] = (rd_kafka_consumer_group_state_t)NUM2INT(rb_ary_entry(value, i));
        take_option_error(admin, rd_kafka_AdminOptions_set_match_consumer_group_states(native, states, (size_t)size));
    }
#ifdef HAVE_RD_KAFKA_ADMINOPTIONS_SET_MATCH_CONSUMER_GROUP_TYPES
    if (!NIL_P(value = option(options, "types"))) {
        rd_kafka_consumer_group_type_t types[16];
        long size = RARRAY_LEN(value) < 16 ? RARRAY_LEN(value) : 16;
        for (long i = 0; i < size; i++) types[i] = (rd_kafka_consumer_group_type_t)NUM2INT(rb_ary_entry(value, i));
        take_option_error(admin, rd_kafka_AdminOptions_set_match_consumer_group_types(native, types, (size_t)size));
    }
#endif
}

/* ---- requests and their answers ---- */

/* One method's call. A Ruby object owns it: if a scheduler drops the calling fiber, nothing unwinds the fiber's stack, and the GC
 * ends the call. */
struct asking {
    const struct penstock_admin_request *request;
    VALUE self, rows, options, answers;
    struct ps_admin *admin;       /* retained, and used */
    int64_t deadline_us;
    int timeout_ms;               /* for librdkafka */
    bool coordinated;             /* see admin.h */
    rd_kafka_AdminOptions_t *native_options;
    void **items;                 /* made of the rows */
    size_t made;
    struct ps_admin_call **calls; /* NULL in the place of a call that was not begun, or has been left */
    size_t call_count;
    struct ps_admin_job *job;     /* of a question; its call is the only one */
};

static void asking_mark(void *data)
{
    const struct asking *asking = data;
    rb_gc_mark(asking->self);
    rb_gc_mark(asking->rows);
    rb_gc_mark(asking->options);
    rb_gc_mark(asking->answers);
}

static void asking_end(struct asking *asking)
{
    for (size_t i = 0; asking->calls && i < asking->call_count; i++)
        if (asking->calls[i]) ps_admin_call_leave(asking->admin, asking->calls[i]);
    free(asking->calls);
    while (asking->made > 0) asking->request->dispose(asking->items[--asking->made]);
    free(asking->items);
    if (asking->native_options) rd_kafka_AdminOptions_destroy(asking->native_options);
    if (asking->job) ps_job_abandon(&asking->job->job);
    ps_admin_release(asking->admin);
    ps_client_unref(&asking->admin->client);
    xfree(asking);
}

static void asking_free(void *asking)
{
    asking_end(asking);
}

static size_t asking_size(const void *data)
{
    const struct asking *asking = data;
    return sizeof(*asking) + asking->call_count * (sizeof(*asking->calls) + sizeof(**asking->calls));
}

static const rb_data_type_t asking_type = {
    .wrap_struct_name = "Penstock::Native::AdminClient/call",
    .function = { .dmark = asking_mark, .dfree = asking_free, .dsize = asking_size }, /* M:dropped_fiber_call_freed */
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static VALUE asking_new(VALUE self, VALUE options, struct asking **asking)
{
    Check_Type(options, T_HASH);
    int64_t timeout_ms = timeout_of(options);
    VALUE holder = TypedData_Wrap_Struct(0, &asking_type, NULL);
    struct ps_admin *admin = client_open(self);
    *asking = ZALLOC(struct asking); /* may run the GC, and so retire the client that another fiber has used */
    if (!ps_admin_use(admin)) {
        xfree(*asking);
        return asking_new(self, options, asking);
    }
    (*asking)->self = self;
    (*asking)->rows = (*asking)->answers = Qnil;
    (*asking)->options = options;
    (*asking)->deadline_us = ps_deadline_us(timeout_ms + timeout_ms / 20 + 20);
    (*asking)->admin = admin;
    ps_client_retain(&admin->client);
    DATA_PTR(holder) = *asking;
    return holder;
}

static VALUE ask_ensure(VALUE holder)
{
    struct asking *asking = DATA_PTR(holder);
    DATA_PTR(holder) = NULL;
    asking_end(asking);
    return Qnil;
}

NORETURN(static void raise_not_begun(const struct ps_admin *admin, int failed));

static void raise_not_begun(const struct ps_admin *admin, int failed)
{
    penstock_check_open(&admin->client);
    if (failed == ENOMEM) rb_memerror();
    penstock_raise_closed(&admin->client);
}

/* Rows are checked before. So an error here is of something that only librdkafka checks. */
static void make_items(struct asking *asking)
{
    const struct penstock_admin_request *request = asking->request;
    long size = RARRAY_LEN(asking->rows);
    asking->items = calloc((size_t)size + 1, sizeof(*asking->items));
    if (!asking->items) rb_memerror();
    for (long i = 0; i < size; i++) {
        char errstr[512] = "";
        VALUE row = rb_ary_entry(asking->rows, i);
        void *item = request->make(row, errstr, sizeof(errstr));
        if (!item) rb_exc_raise(rb_exc_new_str(rb_eArgError, penstock_text(*errstr ? errstr : "librdkafka takes no such value")));
        asking->items[asking->made++] = item;
        if (request->fill) request->fill(asking->admin, item, row);
    }
}

/* ---- the kind of cluster ---- */

static bool is_coordinated(rd_kafka_admin_op_t op)
{
    return op == RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS || op == RD_KAFKA_ADMIN_OP_DELETEGROUPS ||
           op == RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS || op == RD_KAFKA_ADMIN_OP_ALTERCONSUMERGROUPOFFSETS ||
           op == RD_KAFKA_ADMIN_OP_DELETECONSUMERGROUPOFFSETS;
}

static bool describes(rd_kafka_admin_op_t op)
{
#ifdef HAVE_RD_KAFKA_DESCRIBECLUSTER
    return op == RD_KAFKA_ADMIN_OP_DESCRIBETOPICS || op == RD_KAFKA_ADMIN_OP_DESCRIBECLUSTER;
#else
    (void)op;
    return false;
#endif
}

static bool embedded_knows(rd_kafka_admin_op_t op)
{
#ifdef HAVE_RD_KAFKA_LISTOFFSETS
    if (op == RD_KAFKA_ADMIN_OP_LISTOFFSETS) return true;
#endif
    return op == RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS || op == RD_KAFKA_ADMIN_OP_ALTERCONSUMERGROUPOFFSETS;
}

static void note_cluster_id(struct ps_admin *admin, const char *id)
{
    bool embedded = id && strncmp(id, "mockCluster", 11) == 0;
    atomic_store(&admin->cluster, embedded ? PS_ADMIN_EMBEDDED : PS_ADMIN_KAFKA);
}

static VALUE note_cluster(const struct ps_admin_job *job, VALUE arg)
{
    note_cluster_id(job->admin, job->cluster_id);
    return Qnil;
}

/* Between ps_client_enter and exit. Does nothing if the client has no metadata yet. */
static void look_at_cluster(struct ps_admin *admin)
{
    char *id = atomic_load(&admin->cluster) == PS_ADMIN_UNKNOWN ? rd_kafka_clusterid(admin->client.rk, 0) : NULL;
    if (!id) return;
    note_cluster_id(admin, id);
    rd_kafka_mem_free(admin->client.rk, id);
}

/* The embedded cluster has no controller: librdkafka would wait for it until the timeout. */
static void raise_if_embedded_lacks(const struct ps_admin *admin, rd_kafka_admin_op_t op)
{
    if (atomic_load(&admin->cluster) != PS_ADMIN_EMBEDDED || embedded_knows(op)) return;
    struct penstock_error_context context = penstock_no_context;
    context.client = &admin->client;
    penstock_raise(penstock_unsupported_error, &context, "the embedded cluster does not know this request");
}

static void make_options(struct asking *asking)
{
    struct ps_admin *admin = asking->admin;
    if (!ps_client_enter(&admin->client)) raise_not_begun(admin, 0);
    look_at_cluster(admin);
    asking->native_options = rd_kafka_AdminOptions_new(admin->client.rk, asking->request->op);
    ps_client_exit(&admin->client);
    raise_if_embedded_lacks(admin, asking->request->op); /* M:embedded_lacks_request */
    if (!asking->native_options) rb_memerror();
    set_options(admin, asking->native_options, asking->options, asking->timeout_ms);
}

/* Gives librdkafka one request. */
static void begin(struct asking *asking, size_t index)
{
    struct ps_admin *admin = asking->admin;
    if (!ps_client_enter(&admin->client)) raise_not_begun(admin, 0);
    struct ps_admin_call *call = ps_admin_call_begin(admin);
    int failed = errno;
    if (call) {
        bool each = asking->request->each;
        asking->calls[index] = call;
        call->coordinated = asking->coordinated;
        rd_kafka_AdminOptions_set_opaque(asking->native_options, call);
        asking->request->submit(admin->client.rk, asking->items + (each ? index : 0), each ? 1 : asking->made,
                                asking->native_options, admin->polled.queue);
    }
    ps_client_exit(&admin->client);
    if (!call) raise_not_begun(admin, failed);
}

static VALUE read_answer(VALUE arg)
{
    const struct reading *reading = (const struct reading *)arg;
    struct ps_admin *admin = reading->asking->admin;
    rd_kafka_resp_err_t err = rd_kafka_event_error(reading->event);
    if (!err) return reading->asking->request->read(admin, reading->event);
    penstock_raise_if_rejected(&admin->client, Qnil);
    if (err == RD_KAFKA_RESP_ERR__DESTROY) penstock_raise_closed(&admin->client);
    return error_of(admin, err, ps_admin_answer_text(reading->event), reading->group, NULL, -1, !reading->asking->request->changes);
}

/* Whatever it raises, the event is destroyed, and the client no longer held open. */
static VALUE read_and_destroy(const struct asking *asking, VALUE group, rd_kafka_event_t *event, int *state)
{
    struct admin_client *object = penstock_data(asking->self, &client_type);
    struct reading reading = {
        .next = object->readings, .thread = rb_thread_current(), .asking = asking, .event = event, .group = group,
    };
    object->readings = &reading;
    VALUE answer = rb_protect(read_answer, (VALUE)&reading, state);
    struct reading **link = &object->readings; /* other threads may have begun to read since */
    while (*link && *link != &reading) link = &(*link)->next;
    if (*link) *link = reading.next; /* else a trap has forked, and this is the child */
    ps_admin_answer_destroy(event);
    return answer;
}

/* The consumer group whose coordinator the call asks, or nil. Each request to a coordinator is for one group. */
static VALUE group_of(const struct asking *asking, size_t index)
{
    return asking->coordinated ? rb_ary_entry(rb_ary_entry(asking->rows, (long)index), 0) : Qnil;
}

/* What `read` returns, or an error. librdkafka observes the timeout; it may take a little longer to say so. */
static VALUE await_answer(const struct asking *asking, size_t index)
{
    struct ps_admin *admin = asking->admin;
    struct ps_admin_call *call = asking->calls[index];
    VALUE group = group_of(asking, index);
    if (!penstock_wait(&call->completion, asking->deadline_us)) {
        penstock_raise_if_rejected(&admin->client, Qnil);
        return error_of(admin, RD_KAFKA_RESP_ERR__TIMED_OUT, "no answer came in time", group, NULL, -1,
                        !asking->request->changes);
    }
    int end = atomic_load(&call->end);
    if (end == PS_ADMIN_UNREACHABLE) return unreachable_error(admin, group, !asking->request->changes);
    if (end == PS_ADMIN_REJECTED) {
        penstock_raise_if_rejected(&admin->client, Qnil);
        return error_of(admin, RD_KAFKA_RESP_ERR__TIMED_OUT, "the brokers rejected the client until now", group, NULL, -1,
                        !asking->request->changes);
    }
    if (end == PS_ADMIN_CLOSED || !ps_client_enter(&admin->client)) penstock_raise_closed(&admin->client);
    rd_kafka_event_t *event = ps_admin_call_take(admin, call);
    int state = 0;
    VALUE answer = event ? read_and_destroy(asking, group, event, &state) : Qnil;
    ps_client_exit(&admin->client);
    if (state) rb_jump_tag(state);
    if (!event) penstock_raise_closed(&admin->client); /* the closing thread has taken it */
    return answer;
}

static VALUE ask_body(VALUE holder)
{
    struct asking *asking = DATA_PTR(holder);
    make_items(asking);
    make_options(asking);
    asking->call_count = asking->request->each ? asking->made : 1;
    asking->calls = calloc(asking->call_count + 1, sizeof(*asking->calls));
    if (!asking->calls) rb_memerror();
    asking->answers = rb_ary_new_capa((long)asking->call_count);
    for (size_t i = 0; i < asking->call_count; i++) begin(asking, i);
    for (size_t i = 0; i < asking->call_count; i++) {
        rb_ary_push(asking->answers, await_answer(asking, i));
        ps_admin_call_leave(asking->admin, asking->calls[i]);
        asking->calls[i] = NULL;
    }
    return asking->answers;
}

/*
 * Before the first request to a coordinator, or for a description. If a coordinator does not know the request, librdkafka uses freed
 * memory (2.0.2 and 2.14.2). Kafka knows all of these since 2.4. If no broker can be reached, the caller learns it here, before
 * librdkafka has a request that it cannot forget.
 */
static void await_cluster(VALUE self, VALUE options)
{
    if (atomic_load(&client_open(self)->cluster) == PS_ADMIN_UNKNOWN)
        penstock_admin_question(self, PS_ADMIN_BROKERS, NULL, options, note_cluster, Qnil);
}

/*
 * These requests begin in librdkafka with a look for the leaders, in this thread. If it does not know all, or the time of the request
 * is over, its main thread looks at the same time, and one of them uses what the other has freed (2.0.2 to 2.14.2). So it learns the
 * leaders before, and has time enough.
 */
enum { SAFE_MS = 1000 };

static bool asks_leaders(rd_kafka_admin_op_t op)
{
#ifdef HAVE_RD_KAFKA_LISTOFFSETS
    if (op == RD_KAFKA_ADMIN_OP_LISTOFFSETS) return true;
#endif
    return op == RD_KAFKA_ADMIN_OP_DELETERECORDS;
}

static VALUE no_result(const struct ps_admin_job *job, VALUE arg)
{
    return Qnil;
}

/* The rows have places, of which those of a topic follow each other. */
static void await_leaders(VALUE self, VALUE rows, VALUE options)
{
    VALUE places = rb_ary_new(), latest = Qnil;
    for (long i = 0; i < RARRAY_LEN(rows); i++) {
        VALUE row = rb_ary_entry(rb_ary_entry(rows, i), 0);
        for (long j = 0; j < RARRAY_LEN(row); j++) {
            VALUE topic = rb_ary_entry(rb_ary_entry(row, j), 0);
            if (topic == latest || rb_equal(topic, latest)) continue;
            rb_ary_push(places, rb_ary_new_from_args(3, topic, INT2FIX(0), INT2FIX(0)));
            latest = topic;
        }
    }
    if (RARRAY_LEN(places) > 0)
        penstock_admin_question(self, PS_ADMIN_LEADERS, penstock_list_from(places), options, no_result, Qnil);
}

VALUE penstock_admin_ask(VALUE self, const struct penstock_admin_request *request, VALUE rows, VALUE options)
{
    Check_Type(rows, T_ARRAY);
    Check_Type(options, T_HASH);
    bool coordinated = is_coordinated(request->op);
    int64_t deadline_us = ps_deadline_us(timeout_of(options));
    if (coordinated || describes(request->op)) await_cluster(self, options);
    if (asks_leaders(request->op)) await_leaders(self, rows, options);
    struct asking *asking;
    VALUE holder = asking_new(self, options, &asking);
    asking->request = request;
    asking->rows = rows;
    asking->coordinated = coordinated;
    asking->timeout_ms = (int)timeout_of(options);
    if (coordinated) {
        asking->deadline_us = deadline_us; /* librdkafka does not observe it */
        asking->timeout_ms = HOUR_MS; /* M:coordinator_request_untimed */
    }
    if (asks_leaders(request->op)) {
        int left_ms = ps_remaining_ms(deadline_us);
        asking->deadline_us = ps_deadline_us(left_ms + asking->timeout_ms / 20 + 20);
        asking->timeout_ms = left_ms > SAFE_MS ? left_ms : SAFE_MS;
    }
    VALUE answers = rb_ensure(ask_body, holder, ask_ensure, holder);
    RB_GC_GUARD(holder);
    return answers;
}

struct ps_admin *penstock_admin_open(VALUE self)
{
    return client_open(self);
}

/* The protocol has 16 bits for the length of a text. librdkafka writes the lowest ones, and then the whole text: brokers would
 * read the rest as other fields of the request. */
const char *penstock_admin_sent(const char *text, size_t size)
{
    if (size > INT16_MAX) rb_raise(rb_eArgError, "a text must have at most %d bytes, not %" PRIuSIZE, INT16_MAX, size);
    return text;
}

const char *penstock_admin_cstr(VALUE row, long index)
{
    VALUE string = rb_ary_entry(row, index);
    const char *text = StringValueCStr(string); /* the row keeps the String alive */
    return penstock_admin_sent(text, (size_t)RSTRING_LEN(string));
}

/* ---- questions on a thread of their own ---- */

struct questioning {
    VALUE holder;
    VALUE (*read)(const struct ps_admin_job *job, VALUE arg);
    VALUE arg;
};

struct beginning {
    VALUE self, options;
    struct asking **asking;
};

static VALUE question_new(VALUE arg)
{
    const struct beginning *beginning = (const struct beginning *)arg;
    VALUE holder = asking_new(beginning->self, beginning->options, beginning->asking);
    struct asking *asking = *beginning->asking;
    if (!(asking->calls = calloc(1, sizeof(*asking->calls)))) rb_memerror();
    asking->call_count = 1;
    return holder;
}

/* The results belong to the job, so the client need not be held open. */
static VALUE question_body(VALUE arg)
{
    const struct questioning *asked = (const struct questioning *)arg;
    const struct asking *asking = DATA_PTR(asked->holder);
    struct ps_admin *admin = asking->admin;
    bool settled = penstock_wait(&asking->calls[0]->completion, asking->deadline_us);
    int end = settled ? atomic_load(&asking->calls[0]->end) : PS_ADMIN_WAITS;
    if (end == PS_ADMIN_CLOSED) penstock_raise_closed(&admin->client);
    if (end == PS_ADMIN_UNREACHABLE) rb_exc_raise(unreachable_error(admin, Qnil, true));
    rd_kafka_resp_err_t err = end == PS_ADMIN_ANSWERED ? asking->job->err : RD_KAFKA_RESP_ERR__TIMED_OUT;
    if (!err) return asked->read(asking->job, asked->arg);
    penstock_raise_if_rejected(&admin->client, Qnil);
    if (err == RD_KAFKA_RESP_ERR__DESTROY) penstock_raise_closed(&admin->client);
    rb_exc_raise(error_of(admin, err, NULL, Qnil, NULL, -1, true));
}

static VALUE question_ensure(VALUE arg)
{
    return ask_ensure(((const struct questioning *)arg)->holder);
}

VALUE penstock_admin_question(VALUE self, enum ps_admin_question question, rd_kafka_topic_partition_list_t *list,
                              VALUE options, VALUE (*read)(const struct ps_admin_job *job, VALUE arg), VALUE arg)
{
    struct asking *asking;
    struct beginning beginning = { .self = self, .options = options, .asking = &asking };
    int state = 0;
    struct questioning asked = { .holder = rb_protect(question_new, (VALUE)&beginning, &state), .read = read, .arg = arg };
    if (state) {
        if (list) rd_kafka_topic_partition_list_destroy(list);
        rb_jump_tag(state);
    }
    asking->job = ps_admin_ask(asking->admin, question, list, (int)timeout_of(options), asking->calls);
    int failed = errno;
    if (!asking->job) {
        penstock_check_open(&asking->admin->client);
        rb_syserr_fail(failed ? failed : EAGAIN, "cannot start a thread to ask the cluster");
    }
    VALUE answer = rb_ensure(question_body, (VALUE)&asked, question_ensure, (VALUE)&asked);
    RB_GC_GUARD(asked.holder);
    return answer;
}

void penstock_admin_init(void)
{
    VALUE client_class = rb_const_get(penstock_native, rb_intern("AdminClient"));
    rb_define_alloc_func(client_class, client_allocate);
    rb_define_method(client_class, "initialize", client_initialize, 1);
    rb_define_method(client_class, "state", client_state, 0);
    rb_define_method(client_class, "set_credentials", client_set_credentials, 2);
    rb_define_method(client_class, "close", client_close, 1);
    penstock_admin_topics_init(client_class);
    penstock_admin_cluster_init(client_class);
    penstock_admin_configs_init(client_class);
    penstock_admin_access_init(client_class);
    penstock_admin_groups_init(client_class);
    penstock_admin_group_offsets_init(client_class);
    penstock_admin_offsets_init(client_class);
}
