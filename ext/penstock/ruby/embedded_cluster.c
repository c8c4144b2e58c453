/*
 * Penstock::EmbeddedCluster: librdkafka's mock cluster, in this process. Its brokers listen on real sockets of 127.0.0.1. One
 * librdkafka client owns the cluster. The cluster's own thread answers calls, so callers release the GVL. Any thread may call;
 * `lock` keeps `close` from destroying the cluster during a call.
 */
#include "ruby/penstock.h"
#include <signal.h>
#include <librdkafka/rdkafka_mock.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

static VALUE cluster_class;

struct cluster_object {
    pthread_mutex_t lock; /* held during calls into librdkafka, without the GVL */
    rd_kafka_t *rk;
    rd_kafka_mock_cluster_t *cluster; /* NULL: closed */
    unsigned generation;
    _Atomic uint32_t refs;            /* of the Ruby object and of calls */
};

/* ---- GC ---- */

static void destroy_cluster(struct cluster_object *object)
{
    pthread_mutex_lock(&object->lock);
    if (object->cluster) rd_kafka_mock_cluster_destroy(object->cluster);
    if (object->rk) rd_kafka_destroy(object->rk);
    object->cluster = NULL;
    object->rk = NULL;
    pthread_mutex_unlock(&object->lock);
}

static void *destroy_and_free_nogvl(void *arg)
{
    destroy_cluster(arg);
    pthread_mutex_destroy(&((struct cluster_object *)arg)->lock);
    free(arg);
    ps_random_end(); /* before the process may exit, which frees what OpenSSL has */
    ps_registry_closing(-1);
    return NULL;
}

/* Destroying blocks, so a thread of its own does it, and the end of the process waits for that thread. A fork child leaves an
 * inherited cluster alone. Any thread. */
static void cluster_unref(struct cluster_object *object)
{
    if (atomic_fetch_sub(&object->refs, 1) != 1) return;
    if (!object->rk) {
        pthread_mutex_destroy(&object->lock);
        free(object);
    } else if (object->generation == ps_generation()) {
        ps_registry_closing(+1);
        if (ps_thread_start("penstock.cluster", destroy_and_free_nogvl, object) != 0) ps_registry_closing(-1);
    }
}

static void cluster_free(void *object)
{
    cluster_unref(object);
}

static size_t cluster_size(const void *data)
{
    return sizeof(struct cluster_object);
}

static const rb_data_type_t cluster_type = {
    .wrap_struct_name = "Penstock::EmbeddedCluster",
    .function = { .dfree = cluster_free, .dsize = cluster_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE cluster_allocate(VALUE klass)
{
    VALUE self = TypedData_Wrap_Struct(klass, &cluster_type, NULL);
    struct cluster_object *object = calloc(1, sizeof(*object)); /* not xcalloc, as a native thread frees it */
    if (!object) rb_memerror();
    pthread_mutex_init(&object->lock, NULL);
    object->generation = ps_generation();
    atomic_init(&object->refs, 1);
    RTYPEDDATA_DATA(self) = object;
    return self;
}

static struct cluster_object *cluster_get(VALUE self)
{
    return penstock_data(self, &cluster_type);
}

/* ---- one call into the cluster ---- */

enum operation {
    START, CREATE_TOPIC, INJECT_ERRORS, CLEAR_ERRORS, SET_RTT, BROKER_DOWN, BROKER_UP, MOVE_LEADER, BOOTSTRAPS, CLOSE,
};

struct cluster_call {
    struct ps_job job;
    struct cluster_object *object; /* retained */
    enum operation operation;
    char topic[256];
    int numbers[3];
    bool closed;
    rd_kafka_resp_err_t err;
    char text[512]; /* START: why it failed */
    char *answer;   /* BOOTSTRAPS; malloc'ed */
    size_t error_count;
    rd_kafka_resp_err_t errors[]; /* INJECT_ERRORS */
};

static bool listens_on(int fd, int port)
{
    struct sockaddr_in address;
    int listening = 0;
    socklen_t address_size = sizeof(address), size = sizeof(listening);
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening &&
           getsockname(fd, (struct sockaddr *)&address, &address_size) == 0 && address.sin_family == AF_INET &&
           ntohs(address.sin_port) == port;
}

/*
 * The mock brokers leave Nagle's algorithm on. With the peer's delayed acknowledgements it delays every other answer by 40 ms,
 * unlike a real broker. Connections inherit the option from their listening socket. librdkafka has no function that returns that
 * socket, so this searches for it.
 */
static void answer_at_once(const rd_kafka_mock_cluster_t *cluster)
{
    struct rlimit descriptors;
    const int on = 1;
    getrlimit(RLIMIT_NOFILE, &descriptors);
    int last = descriptors.rlim_cur < 65536 ? (int)descriptors.rlim_cur : 65536;

    const char *rest = rd_kafka_mock_cluster_bootstraps(cluster);
    while ((rest = strchr(rest, ':'))) {
        int port = (int)strtol(rest + 1, NULL, 10);
        for (int fd = 0; fd < last; fd++) {
            if (!listens_on(fd, port)) continue;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            break;
        }
        rest++;
    }
}

/* A signal would end the cluster's thread. So all signals are blocked while librdkafka starts it: a thread inherits the mask. */
static rd_kafka_mock_cluster_t *start_without_signals(rd_kafka_t *rk, int brokers)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(rk, brokers);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return cluster;
}

static void start_cluster(struct cluster_call *call)
{
    struct cluster_object *object = call->object;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "log_level", "3", NULL, 0);
    ps_random_watch_threads(conf);
    bool began = ps_random_begin();
    object->rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, call->text, sizeof(call->text));
    if (began) ps_random_end();
    if (!object->rk) {
        rd_kafka_conf_destroy(conf);
        call->err = RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE;
        return;
    }
    object->cluster = start_without_signals(object->rk, call->numbers[0]);
    ps_pipes_keep();
    if (object->cluster) answer_at_once(object->cluster);
    else call->err = RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE;
}

static void call_run_nogvl(struct ps_job *job)
{
    struct cluster_call *call = (struct cluster_call *)job;
    struct cluster_object *object = call->object;
    const int *numbers = call->numbers;

    if (call->operation == CLOSE) {
        destroy_cluster(object);
        return;
    }
    pthread_mutex_lock(&object->lock);
    rd_kafka_mock_cluster_t *cluster = object->cluster;
    call->closed = !cluster && call->operation != START;
    if (!call->closed) {
        switch (call->operation) {
        case START: start_cluster(call); break;
        case BOOTSTRAPS: call->answer = strdup(rd_kafka_mock_cluster_bootstraps(cluster)); break;
        case CREATE_TOPIC: call->err = rd_kafka_mock_topic_create(cluster, call->topic, numbers[0], numbers[1]); break;
        case INJECT_ERRORS:
            rd_kafka_mock_push_request_errors_array(cluster, (int16_t)numbers[0], call->error_count, call->errors);
            break;
        case CLEAR_ERRORS: rd_kafka_mock_clear_request_errors(cluster, (int16_t)numbers[0]); break;
        case SET_RTT: call->err = rd_kafka_mock_broker_set_rtt(cluster, numbers[0], numbers[1]); break;
        case BROKER_DOWN: call->err = rd_kafka_mock_broker_set_down(cluster, numbers[0]); break;
        case BROKER_UP: call->err = rd_kafka_mock_broker_set_up(cluster, numbers[0]); break;
        case MOVE_LEADER: call->err = rd_kafka_mock_partition_set_leader(cluster, call->topic, numbers[0], numbers[1]); break;
        case CLOSE: break;
        }
    }
    pthread_mutex_unlock(&object->lock);
}

static void call_release_nogvl(struct ps_job *job)
{
    struct cluster_call *call = (struct cluster_call *)job;
    cluster_unref(call->object);
    free(call->answer);
    free(call);
}

/* A new call. Nothing may raise until penstock_call: that would leak the call. */
static struct cluster_call *new_call(VALUE self, enum operation operation, long error_count)
{
    struct cluster_object *object = cluster_get(self);
    if (object->generation != ps_generation())
        penstock_raise(penstock_forked_error, &penstock_no_context, "the embedded cluster runs in the parent process only");
    struct cluster_call *call = calloc(1, sizeof(*call) + (size_t)error_count * sizeof(*call->errors));
    if (!call) rb_memerror();
    ps_job_init(&call->job, call_run_nogvl, call_release_nogvl);
    atomic_fetch_add(&object->refs, 1);
    call->object = object;
    call->operation = operation;
    call->error_count = (size_t)error_count;
    return call;
}

/* Makes the call and raises its error, or returns its answer, which the caller frees, or NULL. */
static char *make_call(struct cluster_call *call, VALUE topic)
{
    penstock_call(&call->job);
    bool closed = call->closed;
    struct penstock_error_context context = { .err = call->err, .topic = topic, .partition = -1 };
    char *answer = call->answer, text[sizeof(call->text)];
    memcpy(text, call->text, sizeof(text));
    call->answer = NULL;
    ps_job_unref(&call->job);
    if (closed) penstock_raise(penstock_closed_error, &penstock_no_context, "the embedded cluster is closed");
    if (context.err)
        penstock_raise(penstock_cluster_error, &context, "the embedded cluster rejected the call%s%s", *text ? ": " : "", text);
    return answer;
}

/* ---- methods; documented in lib/penstock/testing/embedded_cluster.rb, which checks the arguments ---- */

static VALUE cluster_call_numbers(VALUE self, enum operation operation, VALUE topic, VALUE first, VALUE second)
{
    int numbers[] = { NUM2INT(first), NUM2INT(second) };
    const char *name = "";
    if (!NIL_P(topic)) {
        penstock_check_topic_name(topic, -1);
        name = rb_string_value_cstr(&topic);
    }
    struct cluster_call *call = new_call(self, operation, 0);
    snprintf(call->topic, sizeof(call->topic), "%s", name); /* at most 249 characters */
    memcpy(call->numbers, numbers, sizeof(numbers));
    make_call(call, topic);
    return Qnil;
}

static VALUE cluster_start(VALUE self, VALUE brokers)
{
    if (cluster_get(self)->rk) rb_raise(rb_eTypeError, "already started");
    cluster_call_numbers(self, START, Qnil, brokers, INT2FIX(0));
    return self;
}

static VALUE cluster_bootstrap_servers(VALUE self)
{
    char *answer = make_call(new_call(self, BOOTSTRAPS, 0), Qnil);
    if (!answer) rb_memerror();
    VALUE servers = penstock_text(answer);
    free(answer);
    return servers;
}

static VALUE cluster_call_create_topic(VALUE self, VALUE topic, VALUE partitions, VALUE replication_factor)
{
    return cluster_call_numbers(self, CREATE_TOPIC, topic, partitions, replication_factor);
}

static VALUE cluster_call_inject_errors(VALUE self, VALUE api, VALUE codes)
{
    int number = NUM2INT(api);
    long count = RARRAY_LEN(codes);
    for (long i = 0; i < count; i++) NUM2INT(RARRAY_AREF(codes, i)); /* raises here, so that it does not raise below */
    struct cluster_call *call = new_call(self, INJECT_ERRORS, count);
    call->numbers[0] = number;
    for (long i = 0; i < count; i++) call->errors[i] = NUM2INT(RARRAY_AREF(codes, i));
    make_call(call, Qnil);
    return Qnil;
}

static VALUE cluster_call_clear_errors(VALUE self, VALUE api)
{
    return cluster_call_numbers(self, CLEAR_ERRORS, Qnil, api, INT2FIX(0));
}

static VALUE cluster_call_set_rtt(VALUE self, VALUE broker, VALUE milliseconds)
{
    return cluster_call_numbers(self, SET_RTT, Qnil, broker, milliseconds);
}

static VALUE cluster_call_broker_down(VALUE self, VALUE broker)
{
    return cluster_call_numbers(self, BROKER_DOWN, Qnil, broker, INT2FIX(0));
}

static VALUE cluster_call_broker_up(VALUE self, VALUE broker)
{
    return cluster_call_numbers(self, BROKER_UP, Qnil, broker, INT2FIX(0));
}

static VALUE cluster_call_move_leader(VALUE self, VALUE topic, VALUE partition, VALUE broker)
{
    return cluster_call_numbers(self, MOVE_LEADER, topic, partition, broker);
}

static VALUE cluster_close(VALUE self)
{
    if (cluster_get(self)->generation == ps_generation()) make_call(new_call(self, CLOSE, 0), Qnil);
    return Qnil;
}

static VALUE cluster_closed_p(VALUE self)
{
    return cluster_get(self)->cluster ? Qfalse : Qtrue;
}

/* Kafka's error codes by librdkafka's names: { not_leader_for_partition: 6, ... } */
static VALUE s_error_codes(VALUE self)
{
    const struct rd_kafka_err_desc *descriptions;
    size_t count;
    VALUE codes = rb_hash_new();
    rd_kafka_get_err_descs(&descriptions, &count);
    for (size_t i = 0; i < count; i++) {
        if (!descriptions[i].name || descriptions[i].code == RD_KAFKA_RESP_ERR_NO_ERROR) continue;
        VALUE name = rb_funcall(penstock_text(descriptions[i].name), rb_intern("downcase"), 0);
        rb_hash_aset(codes, rb_str_intern(name), INT2NUM(descriptions[i].code));
    }
    return codes;
}

void penstock_embedded_cluster_init(void)
{
    cluster_class = rb_const_get(penstock_module, rb_intern("EmbeddedCluster"));
    rb_gc_register_mark_object(cluster_class);
    rb_define_alloc_func(cluster_class, cluster_allocate);
    rb_define_method(cluster_class, "bootstrap_servers", cluster_bootstrap_servers, 0);
    rb_define_method(cluster_class, "close", cluster_close, 0);
    rb_define_method(cluster_class, "closed?", cluster_closed_p, 0);
    rb_define_private_method(cluster_class, "call_start", cluster_start, 1);
    rb_define_private_method(cluster_class, "call_create_topic", cluster_call_create_topic, 3);
    rb_define_private_method(cluster_class, "call_inject_errors", cluster_call_inject_errors, 2);
    rb_define_private_method(cluster_class, "call_clear_errors", cluster_call_clear_errors, 1);
    rb_define_private_method(cluster_class, "call_set_rtt", cluster_call_set_rtt, 2);
    rb_define_private_method(cluster_class, "call_broker_down", cluster_call_broker_down, 1);
    rb_define_private_method(cluster_class, "call_broker_up", cluster_call_broker_up, 1);
    rb_define_private_method(cluster_class, "call_move_leader", cluster_call_move_leader, 3);
    rb_define_private_method(rb_singleton_class(cluster_class), "error_codes", s_error_codes, 0);
}
