/*
 * What the cluster knows, asked on a native thread: how many partitions a topic has, which is remembered for a while; and
 * which brokers there are.
 */
#include "core.h"
#include <stdlib.h>
#include <string.h>

static void metadata_run(struct ps_job *job)
{
    struct ps_metadata_job *query = (struct ps_metadata_job *)job;
    const struct rd_kafka_metadata *metadata;

    query->err = rd_kafka_metadata(query->client->open.rk, 0, query->topic->rkt, &metadata, query->timeout_ms);
    if (!query->err) {
        const struct rd_kafka_metadata_topic *topic = metadata->topic_cnt == 1 ? &metadata->topics[0] : NULL;
        if (topic && topic->partition_cnt > 0) query->partition_count = topic->partition_cnt;
        rd_kafka_metadata_destroy(metadata);
    }
    if (query->partition_count > 0) { /* that there is no such topic may be over in a moment: not remembered */
        atomic_store(&query->topic->partition_count, query->partition_count);
        atomic_store(&query->topic->counted_at_us, ps_now_us());
    }
    atomic_store(&query->topic->asked_at_us, ps_now_us());
    ps_open_exit(&query->client->open);
}

static void metadata_release(struct ps_job *job)
{
    ps_open_unref(&((struct ps_metadata_job *)job)->client->open);
    free(job);
}

struct ps_metadata_job *ps_client_metadata(struct ps_client *client, const char *name, size_t length, int timeout_ms)
{
    struct ps_metadata_job *query = calloc(1, sizeof(*query));
    if (!query) return NULL;
    ps_job_init(&query->job, metadata_run, metadata_release);
    ps_open_retain(&client->open);
    query->client = client;
    query->timeout_ms = timeout_ms;
    query->partition_count = -1;

    if (!ps_open_enter(&client->open)) {
        ps_job_unref(&query->job);
        return NULL;
    }
    query->topic = ps_client_topic(client, name, length);
    if (!query->topic || ps_job_start(&query->job, "penstock.meta") != 0) {
        ps_open_exit(&client->open);
        ps_job_unref(&query->job);
        return NULL;
    }
    return query;
}

int32_t ps_client_known_partitions(struct ps_client *client, const char *name, size_t length, int64_t max_age_us)
{
    int32_t count = 0;
    if (!ps_open_enter(&client->open)) return 0;
    const struct ps_topic *topic = ps_client_topic(client, name, length);
    if (topic && ps_now_us() - atomic_load(&topic->counted_at_us) < max_age_us) count = atomic_load(&topic->partition_count);
    ps_open_exit(&client->open);
    return count;
}

enum { LATELY_US = 1000000 };

bool ps_client_asked_lately(struct ps_client *client, const char *name, size_t length)
{
    if (!ps_open_enter(&client->open)) return false; /* whoever asks then is told so */
    const struct ps_topic *topic = ps_client_topic(client, name, length);
    bool lately = topic && ps_now_us() - atomic_load(&topic->asked_at_us) < LATELY_US;
    ps_open_exit(&client->open);
    return lately;
}

/* ---- the brokers ---- */

static void brokers_run(struct ps_job *job)
{
    struct ps_brokers_job *query = (struct ps_brokers_job *)job;
    rd_kafka_t *rk = query->client->open.rk;

    query->err = rd_kafka_metadata(rk, 0, NULL, &query->metadata, query->timeout_ms);
    if (query->err) {
        query->metadata = NULL;
    } else {
        char *cluster_id = rd_kafka_clusterid(rk, 0); /* known since that answer, if the broker has one */
        query->cluster_id = cluster_id ? strdup(cluster_id) : NULL;
        rd_kafka_mem_free(rk, cluster_id);
        query->controller_id = rd_kafka_controllerid(rk, 0);
    }
    ps_open_exit(&query->client->open);
}

static void brokers_release(struct ps_job *job)
{
    struct ps_brokers_job *query = (struct ps_brokers_job *)job;
    if (query->metadata) rd_kafka_metadata_destroy(query->metadata);
    free(query->cluster_id);
    ps_open_unref(&query->client->open);
    free(query);
}

struct ps_brokers_job *ps_client_brokers(struct ps_client *client, int timeout_ms)
{
    struct ps_brokers_job *query = calloc(1, sizeof(*query));
    if (!query) return NULL;
    ps_job_init(&query->job, brokers_run, brokers_release);
    ps_open_retain(&client->open);
    query->client = client;
    query->timeout_ms = timeout_ms;
    query->controller_id = -1;

    if (!ps_open_enter(&client->open)) {
        ps_job_unref(&query->job);
        return NULL;
    }
    if (ps_job_start(&query->job, "penstock.meta") != 0) {
        ps_open_exit(&client->open);
        ps_job_unref(&query->job);
        return NULL;
    }
    return query;
}
