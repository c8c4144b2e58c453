/*
 * The life of one consuming rd_kafka_t, and the handling of its events. Owned by the Ruby object, its jobs and its closing
 * thread, by reference count. Any thread, except where consume.h says otherwise.
 *
 * No native thread takes a consumer's events while it is open. Only the program's threads do, when they want messages, so
 * librdkafka notices when the program stops polling (max.poll.interval.ms). The queues' callbacks only ring the bell.
 *
 * As with producers, every use of `rk` is between enter and exit, and a fork child leaves an inherited consumer alone.
 */
#include "consume/consume.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ps_client_kind consumer_kind;

/* ---- life ---- */

struct ps_consumer *ps_consumer_new(rd_kafka_conf_t *conf, const char *name, const struct ps_consumer_settings *settings)
{
    struct ps_consumer *consumer = calloc(1, sizeof(*consumer));
    if (!consumer) return NULL;
    consumer->settings = *settings;
    rd_kafka_conf_set_offset_commit_cb(conf, ps_commit_cb); /* M:async_commit_results */
    rd_kafka_conf_set_error_cb(conf, ps_partition_error_cb);
    if (!ps_ledger_init(&consumer->ledger)) {
        free(consumer);
        return NULL;
    }
    consumer->assigned = rd_kafka_topic_partition_list_new(8);
    ps_client_init(&consumer->client, &consumer_kind, conf, name, &consumer->settings.client);
    ps_bell_init(&consumer->bell);
    ps_news_init(&consumer->news);
    ps_lasting_init(&consumer->group_error);
    ps_lasting_init(&consumer->size_error);
    ps_async_commits_init(consumer);
    pthread_mutex_init(&consumer->assigning, NULL);
    pthread_mutex_init(&consumer->joining, NULL);
    pthread_mutex_init(&consumer->taking, NULL);
    return consumer;
}

static void consumer_dispose(struct ps_client *client)
{
    struct ps_consumer *consumer = (struct ps_consumer *)client;
    ps_bell_destroy(&consumer->bell);
    ps_ledger_destroy(&consumer->ledger);
    ps_news_destroy(&consumer->news);
    ps_lasting_destroy(&consumer->group_error);
    ps_lasting_destroy(&consumer->size_error);
    ps_async_commits_destroy(&consumer->async_commits);
    rd_kafka_topic_partition_list_destroy(consumer->assigned);
    free(consumer->aside);
    pthread_mutex_destroy(&consumer->assigning);
    pthread_mutex_destroy(&consumer->joining);
    pthread_mutex_destroy(&consumer->taking);
}

/* librdkafka reads several words for each of its values, and returns one of them. */
static int64_t reset_offset(rd_kafka_t *rk)
{
    char value[32] = "";
    size_t size = sizeof(value);
    if (rd_kafka_conf_get(rd_kafka_conf(rk), "auto.offset.reset", value, &size)) return RD_KAFKA_OFFSET_END; /* no topic setting was set */
    if (strcmp(value, "smallest") == 0 || strcmp(value, "earliest") == 0) return RD_KAFKA_OFFSET_BEGINNING;
    if (strcmp(value, "largest") == 0 || strcmp(value, "latest") == 0) return RD_KAFKA_OFFSET_END;
    return RD_KAFKA_OFFSET_INVALID;
}

static int consumer_begin(struct ps_client *client, char *errstr, size_t errstr_size)
{
    struct ps_consumer *consumer = (struct ps_consumer *)client;
    (void)errstr, (void)errstr_size;
    consumer->reset = reset_offset(client->rk);
    ps_queues_open(consumer);
    ps_refetch_open(consumer);
    return 0;
}

void ps_consumer_set_statistics(struct ps_consumer *consumer, const char *interval_ms)
{
    struct ps_client *client = &consumer->client;
    pthread_mutex_lock(&client->lock); /* a thread that opens the client copies `conf` */
    if (atomic_load(&client->state) == PS_NEW) rd_kafka_conf_set(client->conf, "statistics.interval.ms", interval_ms, NULL, 0);
    pthread_mutex_unlock(&client->lock);
}

/* ---- membership ---- */

/*
 * librdkafka has no function for the generation (KIP-848: the member epoch). Its form of the group's metadata contains it (2.0.2 to
 * 2.14): "CGMDv2:", the generation as 4 bytes in the machine's order, group and member id.
 */
static int32_t generation_of(const rd_kafka_consumer_group_metadata_t *metadata)
{
    static const char magic[] = "CGMDv2:";
    size_t size = 0;
    void *bytes = NULL;
    int32_t generation = -1;
    rd_kafka_error_t *error = rd_kafka_consumer_group_metadata_write(metadata, &bytes, &size);
    if (error) {
        rd_kafka_error_destroy(error);
        return -1;
    }
    const size_t skipped = sizeof(magic) - 1;
    if (size >= skipped + sizeof(generation) && memcmp(bytes, magic, skipped) == 0)
        memcpy(&generation, (const char *)bytes + skipped, sizeof(generation));
    rd_kafka_mem_free(NULL, bytes);
    return generation;
}

void ps_consumer_membership(struct ps_membership *membership)
{
    struct ps_consumer *consumer = membership->consumer;
    rd_kafka_t *rk = consumer->client.rk;
    membership->generation = -1;
    pthread_mutex_lock(&consumer->taking);
    bool member = consumer->member && !rd_kafka_assignment_lost(rk); /* perhaps no thread has met the event yet */
    membership->failed = !member && ps_lasting_read(&consumer->group_error, &membership->problem);
    membership->state = consumer->rebalance.state != PS_REBALANCE_NONE ? "rebalancing" : member ? "stable" : "joining";
    pthread_mutex_unlock(&consumer->taking);
    rd_kafka_consumer_group_metadata_t *metadata = rd_kafka_consumer_group_metadata(rk);
    if (metadata) {
        membership->generation = generation_of(metadata);
        rd_kafka_consumer_group_metadata_destroy(metadata);
    }
    char *id = rd_kafka_memberid(rk);
    if (!id) return;
    snprintf(membership->member_id, sizeof(membership->member_id), "%s", id);
    rd_kafka_mem_free(rk, id);
}

/* ---- as a client ---- */

static void consumer_changed(struct ps_client *client)
{
    ps_bell_ring(&((struct ps_consumer *)client)->bell);
}

static bool consumer_intercept(struct ps_client *client, rd_kafka_conf_t *conf)
{
    return ps_joining_watch((struct ps_consumer *)client, conf);
}

static bool consumer_log(struct ps_client *client, int level, const char *facility, const char *text)
{
    return ps_joining_log((struct ps_consumer *)client, level, facility, text);
}

static uint64_t no_pending(const struct ps_client *client)
{
    (void)client;
    return 0;
}

static const struct ps_client_kind consumer_kind = {
    .type = RD_KAFKA_CONSUMER,
    .intercept = consumer_intercept,
    .log = consumer_log,
    .begin = consumer_begin,
    .pending = no_pending,
    .close = ps_consumer_close,
    .changed = consumer_changed,
    .dispose = consumer_dispose,
};
