/*
 * Asks the cluster, on a native thread, how many partitions a topic has and which brokers there are. Partition counts are
 * remembered for a while.
 */
#include "produce/produce.h"
#include <stdlib.h>
#include <string.h>

static rd_kafka_resp_err_t ask(struct ps_metadata_job *query, struct ps_topic *topic)
{
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t err = rd_kafka_metadata(query->producer->client.rk, 0, topic->rkt, &metadata, query->timeout_ms);
    if (!err) {
        const struct rd_kafka_metadata_topic *answer = metadata->topic_cnt == 1 ? &metadata->topics[0] : NULL;
        if (answer && answer->partition_cnt > 0) query->partition_count = answer->partition_cnt;
        rd_kafka_metadata_destroy(metadata);
    }
    if (query->partition_count > 0) { /* a missing topic is not remembered, as it may exist in a moment */
        atomic_store(&topic->partition_count, query->partition_count);
        atomic_store(&topic->counted_at_us, ps_now_us());
    }
    atomic_store(&topic->asked_at_us, ps_now_us());
    return err;
}

static void metadata_run(struct ps_job *job)
{
    struct ps_metadata_job *query = (struct ps_metadata_job *)job;
    struct ps_topic *topic = ps_producer_topic(query->producer, query->name, query->length);
    query->err = topic ? ask(query, topic) : RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE;
    ps_client_exit(&query->producer->client);
}

static void metadata_release(struct ps_job *job)
{
    ps_client_unref(&((struct ps_metadata_job *)job)->producer->client);
    free(job);
}

struct ps_metadata_job *ps_producer_metadata(struct ps_producer *producer, const char *name, size_t length, int timeout_ms)
{
    struct ps_metadata_job *query = calloc(1, sizeof(*query) + length);
    if (!query) return NULL;
    ps_job_init(&query->job, metadata_run, metadata_release);
    ps_client_retain(&producer->client);
    query->producer = producer;
    query->timeout_ms = timeout_ms;
    query->partition_count = -1;
    query->length = length;
    memcpy(query->name, name, length);

    if (!ps_client_enter(&producer->client)) {
        ps_job_unref(&query->job);
        return NULL;
    }
    if (ps_job_start(&query->job, "penstock.meta") != 0) {
        ps_client_exit(&producer->client);
        ps_job_unref(&query->job);
        return NULL;
    }
    return query;
}

int32_t ps_producer_known_partitions(struct ps_producer *producer, const char *name, size_t length, int64_t max_age_us)
{
    int32_t count = 0;
    if (!ps_client_enter(&producer->client)) return 0;
    const struct ps_topic *topic = ps_producer_known_topic(producer, name, length);
    if (topic && ps_now_us() - atomic_load(&topic->counted_at_us) < max_age_us) count = atomic_load(&topic->partition_count);
    ps_client_exit(&producer->client);
    return count;
}

enum { LATELY_US = 1000000 };

bool ps_producer_asked_lately(struct ps_producer *producer, const char *name, size_t length)
{
    if (!ps_client_enter(&producer->client)) return false; /* a later call raises that the client is not open */
    const struct ps_topic *topic = ps_producer_known_topic(producer, name, length);
    bool lately = topic && ps_now_us() - atomic_load(&topic->asked_at_us) < LATELY_US;
    ps_client_exit(&producer->client);
    return lately;
}

/* ---- the brokers ---- */

static void brokers_run(struct ps_job *job)
{
    struct ps_brokers_job *query = (struct ps_brokers_job *)job;
    rd_kafka_t *rk = query->producer->client.rk;

    query->err = rd_kafka_metadata(rk, 0, NULL, &query->metadata, query->timeout_ms);
    if (query->err) {
        query->metadata = NULL;
    } else {
        char *cluster_id = rd_kafka_clusterid(rk, 0); /* known from that answer, if the broker has one */
        query->cluster_id = cluster_id ? strdup(cluster_id) : NULL;
        rd_kafka_mem_free(rk, cluster_id);
        query->controller_id = rd_kafka_controllerid(rk, 0);
    }
    ps_client_exit(&query->producer->client);
}

static void brokers_release(struct ps_job *job)
{
    struct ps_brokers_job *query = (struct ps_brokers_job *)job;
    if (query->metadata) rd_kafka_metadata_destroy(query->metadata);
    free(query->cluster_id);
    ps_client_unref(&query->producer->client);
    free(query);
}

struct ps_brokers_job *ps_producer_brokers(struct ps_producer *producer, int timeout_ms)
{
    struct ps_brokers_job *query = calloc(1, sizeof(*query));
    if (!query) return NULL;
    ps_job_init(&query->job, brokers_run, brokers_release);
    ps_client_retain(&producer->client);
    query->producer = producer;
    query->timeout_ms = timeout_ms;
    query->controller_id = -1;

    if (!ps_client_enter(&producer->client)) {
        ps_job_unref(&query->job);
        return NULL;
    }
    if (ps_job_start(&query->job, "penstock.meta") != 0) {
        ps_client_exit(&producer->client);
        ps_job_unref(&query->job);
        return NULL;
    }
    return query;
}
