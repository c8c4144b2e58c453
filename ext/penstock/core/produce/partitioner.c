/*
 * Chooses a message's partition. librdkafka calls partition_cb when it knows the topic's partitions: within the produce call,
 * on the producing thread, or later on one of its own. Not for messages with an explicit partition.
 *
 * librdkafka's partitioners choose. The callback is Penstock's so that `partition_key` can replace the key without a metadata
 * request.
 */
#include "produce/produce.h"
#include <string.h>

static const struct {
    const char *name;
    ps_partitioner *function;
} partitioners[] = {
    { "consistent_random", rd_kafka_msg_partitioner_consistent_random }, /* librdkafka's default */
    { "random", rd_kafka_msg_partitioner_random },
    { "consistent", rd_kafka_msg_partitioner_consistent },
    { "murmur2", rd_kafka_msg_partitioner_murmur2 },
    { "murmur2_random", rd_kafka_msg_partitioner_murmur2_random },
    { "fnv1a", rd_kafka_msg_partitioner_fnv1a },
    { "fnv1a_random", rd_kafka_msg_partitioner_fnv1a_random },
};

static ps_partitioner *configured_partitioner(rd_kafka_topic_conf_t *conf)
{
    char name[64] = "";
    size_t size = sizeof(name);
    rd_kafka_topic_conf_get(conf, "partitioner", name, &size);
    for (size_t i = 0; i < sizeof(partitioners) / sizeof(*partitioners); i++)
        if (!strcmp(partitioners[i].name, name)) return partitioners[i].function;
    return partitioners[0].function;
}

static bool spreads_messages_without_key(ps_partitioner *function)
{
    return function != rd_kafka_msg_partitioner_consistent && function != rd_kafka_msg_partitioner_murmur2 &&
           function != rd_kafka_msg_partitioner_fnv1a;
}

/* Implements sticky.partitioning.linger.ms, which librdkafka ignores for a custom partitioner. */
static int32_t stick(struct ps_topic *topic, const rd_kafka_topic_t *rkt, int32_t partition_count)
{
    int64_t now = ps_about_now_us();
    int32_t partition = atomic_load_explicit(&topic->sticky_partition, memory_order_relaxed);
    if (partition < partition_count && now < atomic_load_explicit(&topic->sticky_until_us, memory_order_relaxed))
        return partition;

    partition = rd_kafka_msg_partitioner_random(rkt, NULL, 0, partition_count, NULL, NULL);
    atomic_store_explicit(&topic->sticky_partition, partition, memory_order_relaxed);
    atomic_store_explicit(&topic->sticky_until_us, now + topic->sticky_ms * 1000, memory_order_relaxed);
    return partition;
}

/* librdkafka's rule: only its default partitioner treats an empty key as no key. */
static bool no_key(const struct ps_topic *topic, const void *key, size_t key_size)
{
    return !key || (key_size == 0 && topic->partitioner == rd_kafka_msg_partitioner_consistent_random);
}

static int32_t partition_cb(const rd_kafka_topic_t *rkt, const void *key, size_t key_size, int32_t partition_count,
                            void *topic_opaque, void *delivery_opaque)
{
    struct ps_topic *topic = topic_opaque;
    const struct ps_bytes *partition_key = ((struct ps_delivery *)delivery_opaque)->partition_key;

    if (partition_key) {
        key = partition_key->data;
        key_size = partition_key->size;
    } else if (topic->sticky_ms > 0 && no_key(topic, key, key_size)) {
        return stick(topic, rkt, partition_count);
    }
    return topic->partitioner(rkt, key, key_size, partition_count, NULL, NULL);
}

void ps_partitioner_set(rd_kafka_topic_conf_t *conf, struct ps_topic *topic, int64_t sticky_ms)
{
    topic->partitioner = configured_partitioner(conf);
    topic->sticky_ms = spreads_messages_without_key(topic->partitioner) ? sticky_ms : 0;
    rd_kafka_topic_conf_set_partitioner_cb(conf, partition_cb);
    rd_kafka_topic_conf_set_opaque(conf, topic);
}
