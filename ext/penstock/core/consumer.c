/*
 * The life of one consuming rd_kafka_t, and what is done with its events. Owned by the Ruby object, its jobs and its
 * closing thread; counted references. Any thread, except where core.h says otherwise.
 *
 * No native thread takes a consumer's events while it is open: whoever wants messages does, so that librdkafka sees
 * when nobody does (max.poll.interval.ms). The consumer queue's callback only rings the bell.
 *
 * As with producing clients, nobody touches `rk` outside enter/exit, and what a forked child inherits is left alone.
 */
#include "core.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ps_open_kind consumer_kind;

/* ---- life ---- */

struct ps_consumer *ps_consumer_new(rd_kafka_conf_t *conf, const char *name, const struct ps_consumer_settings *settings)
{
    struct ps_consumer *consumer = calloc(1, sizeof(*consumer));
    if (!consumer) return NULL;
    atomic_init(&consumer->refs, 1);
    consumer->generation = ps_generation();
    consumer->address = ps_next_address();
    pthread_mutex_init(&consumer->lock, NULL);
    ps_bell_init(&consumer->bell);
    pthread_cond_init(&consumer->calls_ended, NULL);
    consumer->open.conf = conf;
    consumer->name = strdup(name);
    consumer->brokers = strdup("");
    consumer->settings = *settings;
    consumer->open.name = consumer->name;
    consumer->open.kind = &consumer_kind;
    consumer->open.lock = &consumer->lock;
    ps_bell_init(&consumer->open.tokens.bell);
    ps_refusal_init(&consumer->open.refusal, settings->refusal_us);
    ps_log_init(&consumer->log, consumer->name, consumer->address, settings->logs_to_mailbox);
    return consumer;
}

void ps_consumer_retain(struct ps_consumer *consumer)
{
    atomic_fetch_add(&consumer->refs, 1);
}

void ps_consumer_unref(struct ps_consumer *consumer)
{
    if (atomic_fetch_sub(&consumer->refs, 1) != 1) return;
    if (ps_consumer_inherited(consumer)) return; /* left as it is on purpose, like an inherited ps_client */
    rd_kafka_conf_destroy(consumer->open.conf);
    if (consumer->close_job) ps_job_unref(&consumer->close_job->job);
    pthread_cond_destroy(&consumer->calls_ended);
    pthread_mutex_destroy(&consumer->lock);
    ps_log_destroy(&consumer->log);
    ps_bell_destroy(&consumer->bell);
    ps_bell_destroy(&consumer->open.tokens.bell);
    ps_refusal_destroy(&consumer->open.refusal);
    free(consumer->name);
    free(consumer->brokers);
    free(consumer);
}

bool ps_consumer_inherited(const struct ps_consumer *consumer)
{
    return consumer->generation != ps_generation();
}

void ps_consumer_set_brokers(struct ps_consumer *consumer, const char *brokers)
{
    free(consumer->brokers);
    consumer->brokers = strdup(brokers);
}

static void retain_open(struct ps_open *open)
{
    ps_consumer_retain((struct ps_consumer *)open);
}

static void unref_open(struct ps_open *open)
{
    ps_consumer_unref((struct ps_consumer *)open);
}

static struct ps_job *close_open(struct ps_open *open, const char *reason)
{
    struct ps_consumer *consumer = (struct ps_consumer *)open;
    struct ps_consumer_job *closing = ps_consumer_close(consumer, consumer->settings.close_timeout_ms);
    (void)reason; /* nothing is lost by it that had to be said */
    return closing ? &closing->job : NULL;
}

static uint64_t pending_open(const struct ps_open *open)
{
    (void)open;
    return 0;
}

static bool inherited_open(const struct ps_open *open)
{
    return ps_consumer_inherited((const struct ps_consumer *)open);
}

static int state_open(const struct ps_open *open)
{
    return atomic_load(&((const struct ps_consumer *)open)->state);
}

static void leave(struct ps_consumer *consumer, _Atomic uint32_t *counter);

/* One of the long calls: leaving the group may take a login, and waits for none. */
static rd_kafka_t *enter_open(struct ps_open *open)
{
    struct ps_consumer *consumer = (struct ps_consumer *)open;
    atomic_fetch_add(&consumer->long_calls, 1);
    int state = atomic_load(&consumer->state);
    if (state == PS_CLIENT_OPEN || (state == PS_CLIENT_CLOSING && !atomic_load(&open->tokens.shut))) return consumer->rk;
    leave(consumer, &consumer->long_calls);
    return NULL;
}

static void leave_open(struct ps_open *open)
{
    struct ps_consumer *consumer = (struct ps_consumer *)open;
    leave(consumer, &consumer->long_calls);
}

static const struct ps_open_kind consumer_kind = {
    .retain = retain_open,
    .unref = unref_open,
    .close = close_open,
    .pending = pending_open,
    .inherited = inherited_open,
    .state = state_open,
    .enter = enter_open,
    .leave = leave_open,
};

static void notice_cb(rd_kafka_t *rk, void *arg)
{
    struct ps_consumer *consumer = arg;
    atomic_store(&consumer->noticed, true);
    ps_bell_ring_cb(rk, &consumer->bell);
}

static int open_locked(struct ps_consumer *consumer, char *errstr, size_t errstr_size)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_dup(consumer->open.conf);
    rd_kafka_conf_set_resolve_cb(conf, ps_resolve_cb);
    rd_kafka_conf_set_opaque(conf, &consumer->open);
    rd_kafka_conf_set_ssl_cert_verify_cb(conf, ps_certificate_cb); /* refused by a librdkafka without TLS, which needs none */
    ps_tokens_enable(conf, consumer->settings.token_provider);
    consumer->rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, errstr, errstr_size);
    if (!consumer->rk) {
        rd_kafka_conf_destroy(conf);
        return -1;
    }
    consumer->queue = rd_kafka_queue_get_consumer(consumer->rk);
    consumer->notices = rd_kafka_queue_get_main(consumer->rk);
    if (consumer->settings.logs_to_mailbox) rd_kafka_set_log_queue(consumer->rk, NULL);
    ps_tokens_begin(&consumer->open.tokens, consumer->rk);
    /* What is in the queues already needs no ring: who takes looks before it sleeps. */
    rd_kafka_queue_cb_event_enable(consumer->queue, ps_bell_ring_cb, &consumer->bell);
    rd_kafka_queue_cb_event_enable(consumer->notices, notice_cb, consumer);
    atomic_store(&consumer->noticed, true);
    ps_registry_add(&consumer->open);
    return 0;
}

int ps_consumer_open(struct ps_consumer *consumer, char *errstr, size_t errstr_size)
{
    int result = 0;
    pthread_mutex_lock(&consumer->lock);
    if (atomic_load(&consumer->state) == PS_CLIENT_NEW) {
        result = open_locked(consumer, errstr, errstr_size);
        if (result == 0) atomic_store(&consumer->state, PS_CLIENT_OPEN);
    }
    pthread_mutex_unlock(&consumer->lock);
    if (result == 0) ps_bell_ring(&consumer->open.tokens.bell); /* a token may have been asked for before it was open */
    return result;
}

/* ---- calls in progress ---- */

static void leave(struct ps_consumer *consumer, _Atomic uint32_t *counter)
{
    atomic_fetch_sub(counter, 1);
    if (atomic_load(&consumer->state) != PS_CLIENT_CLOSING) return;
    pthread_mutex_lock(&consumer->lock);
    pthread_cond_broadcast(&consumer->calls_ended);
    pthread_mutex_unlock(&consumer->lock);
}

bool ps_consumer_enter(struct ps_consumer *consumer)
{
    atomic_fetch_add(&consumer->calls, 1);
    if (atomic_load(&consumer->state) == PS_CLIENT_OPEN) return true;
    leave(consumer, &consumer->calls);
    return false;
}

void ps_consumer_exit(struct ps_consumer *consumer)
{
    leave(consumer, &consumer->calls);
}

static void await_none(struct ps_consumer *consumer, _Atomic uint32_t *counter)
{
    pthread_mutex_lock(&consumer->lock);
    while (atomic_load(counter) > 0) pthread_cond_wait(&consumer->calls_ended, &consumer->lock);
    pthread_mutex_unlock(&consumer->lock);
}

/* ---- events ---- */

/*
 * No wake-up is lost however many threads take: a thread sleeps only after it has read the bell's count and then found
 * the queue empty. When the queue stops being empty after that, the bell rings, and all who heard less look again.
 */

/* The notices are apart from the messages, so that who waits for something else can hear of them. */
static rd_kafka_event_t *take_notice(struct ps_consumer *consumer)
{
    if (!atomic_load(&consumer->noticed)) return NULL;
    atomic_store(&consumer->noticed, false); /* before we look: the callback comes when the queue stops being empty */
    rd_kafka_event_t *event = rd_kafka_queue_poll(consumer->notices, 0);
    if (event) atomic_store(&consumer->noticed, true); /* there may be more */
    return event;
}

rd_kafka_event_t *ps_consumer_take(struct ps_consumer *consumer)
{
    rd_kafka_event_t *event = consumer->held;
    consumer->held = NULL;
    if (!event) event = take_notice(consumer);
    return event ? event : rd_kafka_queue_poll(consumer->queue, 0);
}

void ps_consumer_hold(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    consumer->held = event;
    ps_bell_ring(&consumer->bell); /* another thread may sleep, having seen the queue empty */
}

static void note_error(struct ps_consumer *consumer, rd_kafka_resp_err_t err, const char *text)
{
    pthread_mutex_lock(&consumer->lock);
    /* That all brokers are down says less than why the last one is. */
    if (err != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || !*consumer->last_error)
        snprintf(consumer->last_error, sizeof(consumer->last_error), "%s (%s)", text, rd_kafka_err2name(err));
    pthread_mutex_unlock(&consumer->lock);
}

void ps_consumer_last_error(struct ps_consumer *consumer, char *text, size_t size)
{
    pthread_mutex_lock(&consumer->lock);
    snprintf(text, size, "%s", consumer->last_error);
    pthread_mutex_unlock(&consumer->lock);
}

static void consumer_log(struct ps_consumer *consumer, int level, const char *facility, const char *text)
{
    ps_log_line(&consumer->log, level, facility, text);
}

static void note_and_log(struct ps_consumer *consumer, rd_kafka_resp_err_t err, const char *text)
{
    note_error(consumer, err, text);
    consumer_log(consumer, 4, rd_kafka_err2name(err), text);
}

static bool cooperative(struct ps_consumer *consumer)
{
    const char *protocol = rd_kafka_rebalance_protocol(consumer->rk);
    return protocol && strcmp(protocol, "COOPERATIVE") == 0;
}

void ps_consumer_rebalance(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    rd_kafka_topic_partition_list_t *partitions = rd_kafka_event_topic_partition_list(event);
    bool assigned = rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    rd_kafka_resp_err_t err;

    if (cooperative(consumer)) {
        rd_kafka_error_t *error = assigned ? rd_kafka_incremental_assign(consumer->rk, partitions)
                                           : rd_kafka_incremental_unassign(consumer->rk, partitions);
        err = error ? rd_kafka_error_code(error) : RD_KAFKA_RESP_ERR_NO_ERROR;
        if (error) rd_kafka_error_destroy(error);
    } else {
        err = rd_kafka_assign(consumer->rk, assigned ? partitions : NULL);
    }
    if (err) note_and_log(consumer, err, assigned ? "the group's assignment was not taken on" : "partitions were not given up");
}

/* These come with every broker that restarts, and librdkafka goes on trying. */
static bool transient(rd_kafka_resp_err_t err)
{
    switch (err) {
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR__RESOLVE:
    case RD_KAFKA_RESP_ERR__SSL:
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
    case RD_KAFKA_RESP_ERR__WAIT_COORD:
    case RD_KAFKA_RESP_ERR__WAIT_CACHE:
    case RD_KAFKA_RESP_ERR__IN_PROGRESS:
    case RD_KAFKA_RESP_ERR__DESTROY:
    case RD_KAFKA_RESP_ERR__PARTITION_EOF: /* not an error at all */
    case RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
    case RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION:
    case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
    case RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR:
    case RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH:
    case RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH:
    case RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS:
    case RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_COORDINATOR:
    case RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS:
    case RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION:
    case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID:
        return true;
    default:
        return false;
    }
}

/* Without a group of its own, a consumer has no use for one, and need not hear what is wrong with it. */
static bool of_no_concern(const struct ps_consumer *consumer, rd_kafka_resp_err_t err)
{
    return !consumer->settings.grouped && (err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED ||
                                           err == RD_KAFKA_RESP_ERR_INVALID_GROUP_ID);
}

/* Those that say something of whether brokers take us. */
static bool of_connections(rd_kafka_resp_err_t err)
{
    return err == RD_KAFKA_RESP_ERR__TRANSPORT || err == RD_KAFKA_RESP_ERR__RESOLVE || err == RD_KAFKA_RESP_ERR__SSL ||
           err == RD_KAFKA_RESP_ERR__AUTHENTICATION || err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN;
}

static bool absorb_error(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    const char *text = rd_kafka_event_error_string(event);
    if (err == RD_KAFKA_RESP_ERR__FATAL || rd_kafka_event_error_is_fatal(event)) {
        char reason[256] = "";
        rd_kafka_resp_err_t fatal = rd_kafka_fatal_error(consumer->rk, reason, sizeof(reason));
        note_error(consumer, fatal, reason);
        consumer_log(consumer, 2, rd_kafka_err2name(fatal), reason);
        atomic_store(&consumer->fatal, fatal);
        return false;
    }
    if (err == RD_KAFKA_RESP_ERR__PARTITION_EOF) return true;
    bool refused = of_connections(err) && ps_refusal_error(&consumer->open.refusal, consumer->rk, err, text);
    if (!refused && !transient(err) && !of_no_concern(consumer, err)) return false;
    note_and_log(consumer, err, text);
    return true;
}

static void absorb_commit(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    const rd_kafka_topic_partition_list_t *offsets = rd_kafka_event_topic_partition_list(event);
    char text[256];
    if (err == RD_KAFKA_RESP_ERR__NO_OFFSET) return; /* there was nothing new to commit */
    if (err) {
        snprintf(text, sizeof(text), "offsets were not committed: %s", rd_kafka_err2str(err));
        note_and_log(consumer, err, text);
        return;
    }
    for (int i = 0; offsets && i < offsets->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &offsets->elems[i];
        if (!place->err) continue;
        snprintf(text, sizeof(text), "offset %lld of %s [%d] was not committed: %s", (long long)place->offset, place->topic,
                 (int)place->partition, rd_kafka_err2str(place->err));
        note_and_log(consumer, place->err, text);
    }
}

bool ps_consumer_absorb(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    const char *facility, *text;
    int level;
    switch (rd_kafka_event_type(event)) {
    case RD_KAFKA_EVENT_ERROR: return absorb_error(consumer, event);
    case RD_KAFKA_EVENT_OFFSET_COMMIT: absorb_commit(consumer, event); break;
    case RD_KAFKA_EVENT_LOG:
        if (rd_kafka_event_log(event, &facility, &text, &level) == 0) consumer_log(consumer, level, facility, text);
        break;
    default: break; /* nobody can have asked for it yet */
    }
    return true;
}

void ps_consumer_notice(struct ps_consumer *consumer)
{
    rd_kafka_event_t *event;
    while (!consumer->held && (event = take_notice(consumer))) {
        if (ps_consumer_absorb(consumer, event)) rd_kafka_event_destroy(event);
        else ps_consumer_hold(consumer, event);
    }
}

/* ---- blocking calls: a job's thread ---- */

static void from_error(struct ps_consumer_job *query, rd_kafka_error_t *error)
{
    if (!error) return;
    query->err = rd_kafka_error_code(error);
    snprintf(query->text, sizeof(query->text), "%s", rd_kafka_error_string(error));
    rd_kafka_error_destroy(error);
}

/*
 * What is asked of librdkafka's group handler has no time limit, and once the group is left there is no answer (or, to a
 * commit, an assertion that ends the process; 2.0.2 and 2.14). So closing first waits for consumer.calls, and a job counts
 * there until it has asked. One whose answer may take long goes on as one of consumer.long_calls, which do not keep
 * closing from leaving the group, and look for themselves whether there is still something to wait for.
 */
enum { SLICE_MS = 10000, UNANSWERED_MS = 500, ANSWER_MS = 50 };

static void go_on_as_long_call(struct ps_consumer *consumer)
{
    atomic_fetch_add(&consumer->long_calls, 1);
    leave(consumer, &consumer->calls);
}

static bool closing_gave_up(const struct ps_consumer *consumer)
{
    int64_t close_by_us = atomic_load(&consumer->open.close_by_us);
    return close_by_us != 0 && ps_now_us() >= close_by_us;
}

/* rd_kafka_commit in two steps. Without a coordinator it waits for session.timeout.ms, closing or not. */
static rd_kafka_resp_err_t commit(const struct ps_consumer_job *query)
{
    struct ps_consumer *consumer = query->consumer;
    rd_kafka_event_t *answer = NULL;
    rd_kafka_queue_t *answers = rd_kafka_queue_new(consumer->rk);
    rd_kafka_resp_err_t err = rd_kafka_commit_queue(consumer->rk, query->list, answers, NULL, NULL);
    go_on_as_long_call(consumer);
    for (bool closed = false; !err && !answer && !closed;) {
        /* Looked at first: what was answered before is in the queue then. */
        closed = rd_kafka_consumer_closed(consumer->rk) || closing_gave_up(consumer) || atomic_load(&query->job.abandoned);
        answer = rd_kafka_queue_poll(answers, ANSWER_MS);
    }
    if (!err) err = answer ? rd_kafka_event_error(answer) : RD_KAFKA_RESP_ERR__DESTROY;
    if (answer) rd_kafka_event_destroy(answer);
    rd_kafka_queue_destroy(answers);
    return err;
}

static rd_kafka_resp_err_t ask_once(struct ps_consumer_job *query, int timeout_ms)
{
    rd_kafka_t *rk = query->consumer->rk;
    if (query->call == PS_CONSUMER_COMMITTED) return rd_kafka_committed(rk, query->list, timeout_ms);
    const rd_kafka_topic_partition_t *place = &query->list->elems[0];
    return rd_kafka_query_watermark_offsets(rk, place->topic, place->partition, &query->low, &query->high, timeout_ms);
}

/* Before a broker has answered anything, there is no answer on its way that asking anew would miss. */
static int slice_ms(rd_kafka_t *rk)
{
    char *cluster = rd_kafka_clusterid(rk, 0);
    if (!cluster) return UNANSWERED_MS;
    rd_kafka_mem_free(rk, cluster);
    return SLICE_MS;
}

/* In slices, each of which asks anew, so that a question with much time does not keep the consumer from being destroyed. */
static rd_kafka_resp_err_t ask_again_and_again(struct ps_consumer_job *query)
{
    int64_t deadline_us = ps_deadline_us(query->timeout_ms);
    go_on_as_long_call(query->consumer);
    for (;;) {
        int remaining_ms = ps_remaining_ms(deadline_us);
        int slice = slice_ms(query->consumer->rk);
        bool last = remaining_ms >= 0 && remaining_ms <= slice;
        rd_kafka_resp_err_t err = ask_once(query, last ? remaining_ms : slice);
        if (last || err != RD_KAFKA_RESP_ERR__TIMED_OUT) return err;
        if (atomic_load(&query->consumer->state) != PS_CLIENT_OPEN || atomic_load(&query->job.abandoned))
            return RD_KAFKA_RESP_ERR__DESTROY;
    }
}

/* librdkafka's own lists hold on to its partitions, and it cannot be destroyed before they are. Ours are only text. */
static rd_kafka_topic_partition_list_t *plain_copy(rd_kafka_topic_partition_list_t *list)
{
    rd_kafka_topic_partition_list_t *copy = rd_kafka_topic_partition_list_new(list->cnt);
    for (int i = 0; i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *from = &list->elems[i];
        rd_kafka_topic_partition_t *to = rd_kafka_topic_partition_list_add(copy, from->topic, from->partition);
        to->offset = from->offset;
        to->err = from->err;
    }
    rd_kafka_topic_partition_list_destroy(list);
    return copy;
}

static bool answered_later(enum ps_consumer_call call)
{
    return call == PS_CONSUMER_COMMIT || call == PS_CONSUMER_COMMITTED || call == PS_CONSUMER_WATERMARKS;
}

static void job_run(struct ps_job *job)
{
    struct ps_consumer_job *query = (struct ps_consumer_job *)job;
    rd_kafka_t *rk = query->consumer->rk;
    bool nothing = !query->list || query->list->cnt == 0;

    switch (query->call) {
    case PS_CONSUMER_SUBSCRIBE: query->err = query->list ? rd_kafka_subscribe(rk, query->list) : rd_kafka_unsubscribe(rk); break;
    case PS_CONSUMER_ASSIGN: query->err = rd_kafka_assign(rk, nothing ? NULL : query->list); break;
    case PS_CONSUMER_ASSIGNMENT: query->err = rd_kafka_assignment(rk, &query->list); break;
    case PS_CONSUMER_COMMIT: query->err = commit(query); break;
    case PS_CONSUMER_COMMITTED:
    case PS_CONSUMER_WATERMARKS: query->err = ask_again_and_again(query); break;
    case PS_CONSUMER_SEEK: from_error(query, rd_kafka_seek_partitions(rk, query->list, query->timeout_ms)); break;
    case PS_CONSUMER_CLOSE: break;
    }
    if (query->list) query->list = plain_copy(query->list);
    leave(query->consumer, answered_later(query->call) ? &query->consumer->long_calls : &query->consumer->calls);
}

static void job_release(struct ps_job *job)
{
    struct ps_consumer_job *query = (struct ps_consumer_job *)job;
    if (query->list) rd_kafka_topic_partition_list_destroy(query->list);
    ps_consumer_unref(query->consumer);
    free(query);
}

struct ps_consumer_job *ps_consumer_start(struct ps_consumer *consumer, enum ps_consumer_call call,
                                          rd_kafka_topic_partition_list_t *list, int timeout_ms)
{
    struct ps_consumer_job *query = calloc(1, sizeof(*query));
    errno = query ? 0 : ENOMEM;
    if (!query || !ps_consumer_enter(consumer)) {
        if (list) rd_kafka_topic_partition_list_destroy(list);
        free(query);
        return NULL;
    }
    ps_job_init(&query->job, job_run, job_release);
    ps_consumer_retain(consumer);
    query->consumer = consumer;
    query->call = call;
    query->list = list;
    query->timeout_ms = timeout_ms;
    int failed = ps_job_start(&query->job, "penstock.consumer");
    if (failed) {
        ps_consumer_exit(consumer);
        ps_job_unref(&query->job);
        errno = failed;
        return NULL;
    }
    return query;
}

/* ---- closing ---- */

static void serve_while_closing(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_REBALANCE) ps_consumer_rebalance(consumer, event);
    else if (!ps_consumer_absorb(consumer, event))
        note_and_log(consumer, rd_kafka_event_error(event), rd_kafka_event_error_string(event));
    rd_kafka_event_destroy(event); /* a message that nobody took: its offset is not stored */
}

/*
 * Commits what is to be committed and leaves the group. False when the time was up first, or there is no use in it. Not
 * while there is something in the queue, however late: librdkafka waits for ever for the answer to a rebalance event,
 * also in rd_kafka_destroy.
 */
static bool leave_group(struct ps_consumer *consumer)
{
    rd_kafka_event_t *event;
    int64_t begun_us = ps_now_us();
    rd_kafka_error_t *error = rd_kafka_consumer_close_queue(consumer->rk, consumer->queue);
    if (error) { /* a fatal error: there is no group to leave any more */
        rd_kafka_error_destroy(error);
        return false;
    }
    while (!rd_kafka_consumer_closed(consumer->rk)) {
        int remaining_ms = ps_remaining_ms(atomic_load(&consumer->open.close_by_us)); /* may be brought forward meanwhile */
        bool late = remaining_ms == 0 && ps_now_us() - begun_us > 100000; /* a tenth of a second even when in a hurry */
        event = rd_kafka_queue_poll(consumer->queue, remaining_ms < 0 || remaining_ms > 50 ? 50 : 5);
        if (event) serve_while_closing(consumer, event);
        else if (late) return false;
    }
    while ((event = rd_kafka_queue_poll(consumer->queue, 0))) serve_while_closing(consumer, event);
    return true;
}

static void destroy(struct ps_consumer *consumer, bool left_group)
{
    rd_kafka_event_t *event;
    while ((event = rd_kafka_queue_poll(consumer->notices, 0))) serve_while_closing(consumer, event);
    rd_kafka_queue_destroy(consumer->queue);
    rd_kafka_queue_destroy(consumer->notices);
    ps_tokens_end(&consumer->open.tokens);
    rd_kafka_destroy_flags(consumer->rk, left_group ? 0 : RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    consumer->queue = consumer->notices = NULL;
    consumer->rk = NULL;
}

static void close_run(struct ps_job *job)
{
    struct ps_consumer *consumer = ((struct ps_consumer_job *)job)->consumer;

    pthread_mutex_lock(&consumer->lock); /* until whoever started this has said so in the consumer */
    pthread_mutex_unlock(&consumer->lock);

    ps_bell_ring(&consumer->bell);
    await_none(consumer, &consumer->calls);
    rd_kafka_queue_cb_event_enable(consumer->queue, NULL, NULL); /* after this no callback runs or will run */
    rd_kafka_queue_cb_event_enable(consumer->notices, NULL, NULL);
    if (consumer->held) serve_while_closing(consumer, ps_consumer_take(consumer));
    bool left_group = leave_group(consumer);
    ps_tokens_shut(&consumer->open.tokens);
    await_none(consumer, &consumer->long_calls);
    destroy(consumer, left_group);
    ps_registry_remove(&consumer->open);
    atomic_store(&consumer->state, PS_CLIENT_CLOSED);
    ps_bell_ring(&consumer->open.tokens.bell);
    ps_log_end(&consumer->log);
    if (consumer->settings.logs_to_mailbox) ps_mailbox_post(consumer->address, PS_MAIL_LAST, "");
    ps_consumer_unref(consumer); /* the thread's; the job, which the consumer owns, has none */
    ps_registry_closing(-1);
}

static void close_release(struct ps_job *job)
{
    free(job);
}

/* With the consumer's lock held. */
static void start_closing(struct ps_consumer *consumer, int64_t timeout_ms)
{
    struct ps_consumer_job *closing = calloc(1, sizeof(*closing));
    if (!closing) return;
    ps_job_init(&closing->job, close_run, close_release);
    closing->consumer = consumer;
    closing->call = PS_CONSUMER_CLOSE;
    atomic_store(&consumer->open.close_by_us, ps_deadline_us(timeout_ms));
    ps_consumer_retain(consumer);
    ps_registry_closing(+1);
    if (ps_job_start(&closing->job, "penstock.close") != 0) { /* no thread to be had now; asking again tries again */
        ps_registry_closing(-1);
        atomic_store(&consumer->open.close_by_us, 0);
        ps_job_unref(&closing->job);
        ps_consumer_unref(consumer);
        return;
    }
    consumer->close_job = closing;
    atomic_store(&consumer->state, PS_CLIENT_CLOSING);
}

struct ps_consumer_job *ps_consumer_close(struct ps_consumer *consumer, int64_t timeout_ms)
{
    pthread_mutex_lock(&consumer->lock);
    int state = atomic_load(&consumer->state);
    if (state == PS_CLIENT_NEW) {
        atomic_store(&consumer->state, PS_CLIENT_CLOSED);
        ps_bell_ring(&consumer->open.tokens.bell);
        if (consumer->settings.logs_to_mailbox) ps_mailbox_post(consumer->address, PS_MAIL_LAST, "");
    } else if (state == PS_CLIENT_OPEN) {
        start_closing(consumer, timeout_ms);
    }
    struct ps_consumer_job *closing = consumer->close_job;
    if (closing) ps_job_retain(&closing->job);
    pthread_mutex_unlock(&consumer->lock);
    return closing;
}

void ps_consumer_abandon(struct ps_consumer *consumer)
{
    if (ps_consumer_inherited(consumer)) return;
    struct ps_consumer_job *closing = ps_consumer_close(consumer, consumer->settings.close_timeout_ms);
    if (closing) ps_job_unref(&closing->job);
    else if (atomic_load(&consumer->state) == PS_CLIENT_OPEN) return; /* no thread: left to the end of the process */
    ps_consumer_unref(consumer);
}
