/*
 * What a member and its coordinator do, where librdkafka has no function for it. Its interceptors, on its broker threads, see the requests
 * and when they are answered, but not the answers: whether the member is joining its group again, and whether the coordinator has
 * answered that the member leaves. Its debug lines have the states of a join, and the answer to SyncGroup.
 *
 * librdkafka joins again with partitions by itself with cooperative rebalancing.
 * A commit meanwhile is refused. The broker handles it after the JoinGroup request that was sent before it, and its generation is then
 * an old one; or the group's leader has not assigned the partitions yet. Until 2.10.0 librdkafka then forgets its generation, and
 * loses all its partitions (#4059). So commits wait. Without partitions, as in the first join, they do not: nothing is processed.
 *
 * librdkafka's main thread decides to join, and reports each state of the join in a debug line, before it does anything else
 * (2.0.2 to 2.15). What makes it join are answers of brokers, and what the program does: its answers to rebalances, and
 * subscribe. So the thread that sends a commit holds `joining`. Meanwhile no such answer reaches the main thread, since the
 * threads of brokers wait for the lock, and no other thread answers or subscribes. Then it lets the main thread do its earlier
 * work, looks at the state, queues the commit, and lets the main thread take it. The main thread never waits for the lock, nor
 * for a thread that does.
 */
#include "consume/consume.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STATE_IS_OPTIONAL = 0x02030000 };
enum { METADATA = 3, OFFSET_COMMIT = 8, OFFSET_FETCH = 9, FIND_COORDINATOR = 10 }; /* Kafka's ApiKeys */
enum { JOIN_GROUP = 11, HEARTBEAT = 12, LEAVE_GROUP = 13, SYNC_GROUP = 14, CONSUMER_HEARTBEAT = 68 };
enum { LOOK_US = 100, LONGEST_HOLD_S = 5, DEBUG_LEVEL = 7 };

/* ---- the state ---- */

static bool begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* "[thrd:main]: Group \"g\" changed join state wait-join -> wait-sync (state up)" */
static void note_state(struct ps_consumer *consumer, const char *text)
{
    const char *state = strstr(text, " -> ");
    if (!state) return;
    state += strlen(" -> ");
    bool joins = begins_with(state, "init") || begins_with(state, "wait-join") || begins_with(state, "wait-metadata") ||
                 begins_with(state, "wait-sync");
    atomic_store(&consumer->joins, joins);
    ps_committer_joining_changed(&consumer->async_commits.work);
}

/* librdkafka reports an answer to SyncGroup only here. "[thrd:main]: SyncGroup response: Success (26 bytes of MemberState data)" */
static void note_sync(struct ps_consumer *consumer, const char *text)
{
    static const char begin[] = "SyncGroup response: ";
    const struct rd_kafka_err_desc *known;
    size_t count;
    if (!(text = strstr(text, begin))) return;
    text += sizeof(begin) - 1;
    rd_kafka_get_err_descs(&known, &count);
    for (size_t i = 0; i < count; i++) {
        size_t size = known[i].desc ? strlen(known[i].desc) : 0;
        if (size == 0 || strncmp(text, known[i].desc, size) != 0 || !begins_with(text + size, " (")) continue;
        atomic_store(&consumer->sync_error, known[i].code);
        if (known[i].code) ps_bell_ring(&consumer->bell); /* a poll raises it */
        return;
    }
}

bool ps_joining_log(struct ps_consumer *consumer, int level, const char *facility, const char *text)
{
    if (consumer->rejoins && strcmp(facility, "CGRPJOINSTATE") == 0) note_state(consumer, text);
    if (strcmp(facility, "SYNCGROUP") == 0) note_sync(consumer, text);
    return level > consumer->log_level;
}

bool ps_consumer_joins(const struct ps_consumer *consumer)
{
    /* M:joining_holds_commits */
    return atomic_load(&consumer->counts.assigned) > 0 && atomic_load(&consumer->joins);
}

/* ---- the lock ---- */

void ps_joining_lock(struct ps_consumer *consumer)
{
    pthread_mutex_lock(&consumer->joining);
}

void ps_joining_unlock(struct ps_consumer *consumer)
{
    pthread_mutex_unlock(&consumer->joining);
}

/* Returns when the main thread has done all that was in its queue. */
static void await_main_thread(struct ps_consumer *consumer)
{
    rd_kafka_topic_partition_list_t *topics = NULL;
    if (!rd_kafka_subscription(consumer->client.rk, &topics)) rd_kafka_topic_partition_list_destroy(topics);
}

/*
 * Without such a callback librdkafka reports no result of its own and asynchronous commits, even to programs that read events
 * (2.0.2). Events that are read call no callback. A commit with a callback of its own is reported to its own queue only.
 */
void ps_commit_cb(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *offsets, void *opaque)
{
    (void)rk, (void)err, (void)offsets, (void)opaque;
}

bool ps_joining_commit(struct ps_consumer *consumer, rd_kafka_topic_partition_list_t *list, rd_kafka_queue_t *answers,
                       rd_kafka_resp_err_t *err)
{
    if (consumer->rejoins) {
        ps_joining_lock(consumer);
        await_main_thread(consumer);
    }
    bool joins = ps_consumer_joins(consumer);
    /* M:sync_commit_reported_once */
    if (!joins) *err = rd_kafka_commit_queue(consumer->client.rk, list, answers, ps_commit_cb, NULL);
    if (consumer->rejoins) {
        if (!joins) await_main_thread(consumer);
        ps_joining_unlock(consumer);
    }
    return !joins;
}

/* Of a broker's thread. It goes on after some seconds in any case: librdkafka must not stand still for what nobody has thought
 * of. */
static void await_commit(struct ps_consumer *consumer)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LONGEST_HOLD_S;
    if (pthread_mutex_timedlock(&consumer->joining, &until) == 0) pthread_mutex_unlock(&consumer->joining);
}

/* ---- interceptors, on librdkafka's broker threads ---- */

static bool is_about_the_group(int16_t api_key)
{
    return api_key == METADATA || (api_key >= OFFSET_COMMIT && api_key <= SYNC_GROUP);
}

static rd_kafka_resp_err_t request_sent_cb(rd_kafka_t *rk, int socket, const char *broker_name, int32_t broker_id,
                                           int16_t api_key, int16_t api_version, int32_t correlation_id, size_t size, void *arg)
{
    struct ps_consumer *consumer = arg;
    (void)rk, (void)socket, (void)broker_name, (void)broker_id, (void)api_version, (void)correlation_id, (void)size;
    if (!consumer->rejoins) return RD_KAFKA_RESP_ERR_NO_ERROR;
    if (api_key == JOIN_GROUP) atomic_store(&consumer->joined_us, ps_now_us());
    if (api_key == JOIN_GROUP) atomic_fetch_add(&consumer->joins_sent, 1);
    if (api_key == SYNC_GROUP) atomic_fetch_add(&consumer->syncs_sent, 1);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* The main thread calls answered_cb itself for some requests that fail, and if librdkafka is destroyed. It must not wait for threads that
 * may wait for it. */
static _Thread_local bool is_main_thread;

static rd_kafka_resp_err_t thread_start_cb(rd_kafka_t *rk, rd_kafka_thread_type_t type, const char *name, void *unused)
{
    (void)rk, (void)name, (void)unused;
    is_main_thread = type == RD_KAFKA_THREAD_MAIN;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* Called before the main thread gets the answer, also for a request that fails, or has no answer in time. */
static rd_kafka_resp_err_t answered_cb(rd_kafka_t *rk, int socket, const char *broker_name, int32_t broker_id,
                                       int16_t api_key, int16_t api_version, int32_t correlation_id, size_t size,
                                       int64_t round_trip_us, rd_kafka_resp_err_t err, void *arg)
{
    struct ps_consumer *consumer = arg;
    (void)rk, (void)socket, (void)broker_name, (void)broker_id, (void)api_version, (void)correlation_id, (void)size;
    (void)round_trip_us;
    /* With KIP-848 a heartbeat says that the member leaves: the last one. */
    if (api_key == LEAVE_GROUP || (api_key == CONSUMER_HEARTBEAT && atomic_load(&consumer->leaving)))
        atomic_store(&consumer->left_group, !err);
    if (!consumer->rejoins) return RD_KAFKA_RESP_ERR_NO_ERROR;
    if (is_about_the_group(api_key) && !is_main_thread && err != RD_KAFKA_RESP_ERR__DESTROY) await_commit(consumer);
    if (api_key == JOIN_GROUP) atomic_fetch_add(&consumer->joins_answered, 1);
    /* For as long as the closing thread takes to queue its request. The main thread gets this answer afterwards, and drops it. */
    while (api_key == JOIN_GROUP && !is_main_thread && atomic_load(&consumer->no_joins)) usleep(LOOK_US);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t new_cb(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *consumer, char *errstr, size_t size)
{
    (void)conf, (void)errstr, (void)size;
    rd_kafka_interceptor_add_on_thread_start(rk, "penstock.joining", thread_start_cb, NULL);
    rd_kafka_interceptor_add_on_request_sent(rk, "penstock.joining", request_sent_cb, consumer);
    return rd_kafka_interceptor_add_on_response_received(rk, "penstock.joining", answered_cb, consumer);
}

/* The lines of `debug`; what the program has not asked for is not logged. */
static void read_debug_lines(struct ps_consumer *consumer, rd_kafka_conf_t *conf)
{
    char debug[512] = "", level[16] = "", both[600];
    size_t debug_size = sizeof(debug), level_size = sizeof(level);
    rd_kafka_conf_get(conf, "debug", debug, &debug_size);
    rd_kafka_conf_get(conf, "log_level", level, &level_size);
    int wanted = *debug ? DEBUG_LEVEL : atoi(level);
    consumer->log_level = *debug || wanted < DEBUG_LEVEL ? wanted : DEBUG_LEVEL - 1; /* without `debug` there are no debug lines */
    snprintf(both, sizeof(both), "%s%scgrp", debug, *debug ? "," : "");
    rd_kafka_conf_set(conf, "debug", both, NULL, 0);
}

bool ps_joining_watch(struct ps_consumer *consumer, rd_kafka_conf_t *conf)
{
    char strategies[512] = "";
    size_t size = sizeof(strategies);
    consumer->log_level = DEBUG_LEVEL;
    if (!consumer->settings.grouped || rd_kafka_conf_interceptor_add_on_new(conf, "penstock.joining", new_cb, consumer)) return false;
    rd_kafka_conf_get(conf, "partition.assignment.strategy", strategies, &size);
    consumer->rejoins = strstr(strategies, "cooperative") != NULL;
    read_debug_lines(consumer, conf);
    return true;
}

/* ---- what depends on it ---- */

/*
 * cooperative-sticky begins to keep a state with the first answer to SyncGroup. Before 2.3.0, librdkafka aborts the process (an
 * assertion, #4381) when it is destroyed after an answer to JoinGroup, and without this state. Brokers answer the first request only
 * with the member's id, so while the next one is on its way, the member has not joined.
 */
bool ps_joining_aborts(const struct ps_consumer *consumer)
{
    int answered = atomic_load(&consumer->joins_answered);
    if (!consumer->rejoins || rd_kafka_version() >= STATE_IS_OPTIONAL || consumer->assigned_once || answered == 0) return false;
    bool on_its_way = atomic_load(&consumer->joins_sent) > answered;
    return !on_its_way || answered > 1 || atomic_load(&consumer->syncs_sent) > 0;
}

bool ps_commit_refused(const struct ps_consumer *consumer, rd_kafka_resp_err_t err, int64_t sent_us)
{
    if (err == RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION)
        return ps_consumer_joins(consumer) || (consumer->rejoins && atomic_load(&consumer->joined_us) >= sent_us);
    return err == RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS && consumer->rejoins;
}
