/*
 * Whether a member with partitions is joining its group again. librdkafka does this by itself with cooperative rebalancing, and does
 * not tell. Its interceptors, on its broker threads, see the requests.
 *
 * A commit meanwhile is refused. The broker handles it after the JoinGroup request that was sent before it, and its generation is then
 * an old one; or the group's leader has not assigned the partitions yet. Until 2.10.0 librdkafka then forgets its generation, and
 * loses all its partitions (#4059). So commits wait. Without partitions, as in the first join, they do not: nothing is processed.
 */
#include "consume/consume.h"
#include <string.h>
#include <unistd.h>

enum { STATE_IS_OPTIONAL = 0x02030000 };
enum { JOIN_GROUP = 11, HEARTBEAT = 12, LEAVE_GROUP = 13, SYNC_GROUP = 14 }; /* Kafka's ApiKeys */
enum {
    INTERVAL_US = 1000 * 1000,  /* librdkafka joins once in this time, at most */
    REACTING_US = 5 * 1000,     /* longest time from what makes it join to the JoinGroup request, if it has not joined lately */
    ANSWERED_US = 100 * 1000,   /* the same after the answer to a rebalance: it stops and commits partitions first */
    LOOK_US = 100,
    ASSIGNING_US = 2000 * 1000, /* from JoinGroup's answer to SyncGroup, as the leader assigns the partitions; or to the next attempt */
};

/* When it has joined, if it joins within this time. */
static int64_t joining_until(const struct ps_consumer *consumer, int64_t time_us)
{
    int64_t until_us = ps_now_us() + time_us, again_us = atomic_load(&consumer->joined_us) + INTERVAL_US + REACTING_US;
    return until_us < again_us ? again_us : until_us;
}

static void joins_within(struct ps_consumer *consumer, int64_t time_us)
{
    int64_t until_us = atomic_load(&consumer->joining_until_us), new_us = joining_until(consumer, time_us);
    while (until_us < new_us && !atomic_compare_exchange_weak(&consumer->joining_until_us, &until_us, new_us)) {}
}

void ps_joining_answered(struct ps_consumer *consumer)
{
    joins_within(consumer, ANSWERED_US);
}

static bool is_about_the_group(int16_t api_key)
{
    return api_key == JOIN_GROUP || api_key == SYNC_GROUP || api_key == LEAVE_GROUP || api_key == HEARTBEAT;
}

static rd_kafka_resp_err_t request_sent_cb(rd_kafka_t *rk, int socket, const char *broker_name, int32_t broker_id,
                                           int16_t api_key, int16_t api_version, int32_t correlation_id, size_t size, void *arg)
{
    struct ps_consumer *consumer = arg;
    (void)rk, (void)socket, (void)broker_name, (void)broker_id, (void)api_version, (void)correlation_id, (void)size;
    if (api_key == JOIN_GROUP) atomic_store(&consumer->joined_us, ps_now_us());
    if (api_key == JOIN_GROUP) atomic_fetch_add(&consumer->joins_sent, 1);
    if (api_key == SYNC_GROUP) atomic_fetch_add(&consumer->syncs_sent, 1);
    if (api_key == JOIN_GROUP || api_key == SYNC_GROUP) atomic_store(&consumer->joining_until_us, PS_FOREVER);
    if (api_key == LEAVE_GROUP) atomic_store(&consumer->joining_until_us, 0);
    if (is_about_the_group(api_key)) ps_committer_joining_changed(&consumer->async_commits.work);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/*
 * Also called for a request that fails, or has no answer in time. A heartbeat's answer says whether the member has to join again. So
 * may SyncGroup's, and a JoinGroup that has failed is sent again.
 */
static rd_kafka_resp_err_t answered_cb(rd_kafka_t *rk, int socket, const char *broker_name, int32_t broker_id,
                                       int16_t api_key, int16_t api_version, int32_t correlation_id, size_t size,
                                       int64_t round_trip_us, rd_kafka_resp_err_t err, void *arg)
{
    struct ps_consumer *consumer = arg;
    (void)rk, (void)socket, (void)broker_name, (void)broker_id, (void)api_version, (void)correlation_id, (void)size;
    (void)round_trip_us;
    int64_t time_us = api_key == JOIN_GROUP && !err ? ASSIGNING_US : REACTING_US;
    if (api_key == HEARTBEAT) joins_within(consumer, time_us);
    if (api_key == JOIN_GROUP || api_key == SYNC_GROUP) atomic_store(&consumer->joining_until_us, joining_until(consumer, time_us));
    if (is_about_the_group(api_key)) ps_committer_joining_changed(&consumer->async_commits.work);
    if (api_key == JOIN_GROUP) atomic_fetch_add(&consumer->joins_answered, 1);
    /* For as long as the closing thread takes to queue its request. The main thread gets this answer afterwards, and drops it. */
    while (api_key == JOIN_GROUP && atomic_load(&consumer->no_joins)) usleep(LOOK_US);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t new_cb(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *consumer, char *errstr, size_t size)
{
    (void)conf, (void)errstr, (void)size;
    rd_kafka_interceptor_add_on_request_sent(rk, "penstock.joining", request_sent_cb, consumer);
    return rd_kafka_interceptor_add_on_response_received(rk, "penstock.joining", answered_cb, consumer);
}

bool ps_joining_watch(struct ps_consumer *consumer, rd_kafka_conf_t *conf)
{
    char strategies[512] = "";
    size_t size = sizeof(strategies);
    if (!consumer->settings.grouped || rd_kafka_conf_get(conf, "partition.assignment.strategy", strategies, &size)) return false;
    if (!strstr(strategies, "cooperative")) return false;
    consumer->rejoins = !rd_kafka_conf_interceptor_add_on_new(conf, "penstock.joining", new_cb, consumer);
    return consumer->rejoins;
}

bool ps_consumer_joins(const struct ps_consumer *consumer)
{
    /* M:joining_holds_commits */
    return atomic_load(&consumer->counts.assigned) > 0 && ps_now_us() < atomic_load(&consumer->joining_until_us);
}

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
