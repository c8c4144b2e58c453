/*
 * One librdkafka topic handle per client and topic name: naming the topic in each produce call would
 * cost a linear search under librdkafka's write lock, and up to a second for the first message (2.0.2).
 * Entries live as long as the client. Any thread.
 *
 * rd_kafka_topic_new takes librdkafka's lock, which it may not get for long, so it is called without `lock`: a thread that looks a
 * topic up, perhaps with the GVL, never waits for librdkafka. Threads that make topics wait for each other (`making`), so that there
 * is one entry for each handle of librdkafka's, whose partitioner is given that entry.
 *
 * The partitioner is ours so that `partition_key` can take the key's place without a metadata request:
 * librdkafka calls it when it knows the topic's partitions, with the message's delivery at hand.
 */
#include "produce/produce.h"
#include <stdlib.h>
#include <string.h>

bool ps_topic_name_valid(const char *name, size_t length)
{
    if (length == 0 || length > 249) return false;
    if (name[0] == '.' && (length == 1 || (length == 2 && name[1] == '.'))) return false;
    static const bool legal[256] = {
        ['a' ... 'z'] = true, ['A' ... 'Z'] = true, ['0' ... '9'] = true, ['.'] = true, ['_'] = true, ['-'] = true,
    };
    for (size_t i = 0; i < length; i++)
        if (!legal[(unsigned char)name[i]]) return false;
    return true;
}

/* ---- partitioning ---- */

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

/* What librdkafka's sticky.partitioning.linger.ms does, which it leaves out for a partitioner of one's own. */
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

/* librdkafka's rule: only its default partitioner takes an empty key for none. */
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

/* ---- the table ---- */

static uint32_t hash_of(const char *name, size_t length)
{
    uint32_t hash = 2166136261u; /* FNV-1a: names are short and our own */
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return hash;
}

static struct ps_topic *find(const struct ps_topics *topics, const char *name, size_t length, uint32_t hash)
{
    if (!topics->bucket_count) return NULL;
    struct ps_topic *topic = topics->buckets[hash & (topics->bucket_count - 1)];
    while (topic && !(topic->hash == hash && topic->length == length && !memcmp(topic->name, name, length)))
        topic = topic->next;
    return topic;
}

static bool grow(struct ps_topics *topics)
{
    uint32_t bucket_count = topics->bucket_count ? topics->bucket_count * 2 : 16;
    struct ps_topic **buckets = calloc(bucket_count, sizeof(*buckets));
    if (!buckets) return false;
    for (uint32_t i = 0; i < topics->bucket_count; i++) {
        for (struct ps_topic *topic = topics->buckets[i], *next; topic; topic = next) {
            next = topic->next;
            topic->next = buckets[topic->hash & (bucket_count - 1)];
            buckets[topic->hash & (bucket_count - 1)] = topic;
        }
    }
    free(topics->buckets);
    topics->buckets = buckets;
    topics->bucket_count = bucket_count;
    return true;
}

static struct ps_topic *make(struct ps_producer *producer, const char *name, size_t length, uint32_t hash)
{
    struct ps_topic *topic = calloc(1, sizeof(*topic) + length + 1);
    if (!topic) return NULL;
    memcpy(topic->name, name, length);
    topic->length = (uint32_t)length;
    topic->hash = hash;

    rd_kafka_topic_conf_t *conf = rd_kafka_default_topic_conf_dup(producer->client.rk);
    topic->partitioner = configured_partitioner(conf);
    topic->sticky_ms = spreads_messages_without_key(topic->partitioner) ? producer->settings.sticky_ms : 0;
    rd_kafka_topic_conf_set_partitioner_cb(conf, partition_cb);
    rd_kafka_topic_conf_set_opaque(conf, topic);
    topic->rkt = rd_kafka_topic_new(producer->client.rk, topic->name, conf); /* owns conf, also when it refuses */
    if (topic->rkt) return topic;
    free(topic);
    return NULL;
}

static bool insert(struct ps_topics *topics, struct ps_topic *topic)
{
    pthread_mutex_lock(&topics->lock);
    bool fits = topics->count < topics->bucket_count || grow(topics);
    if (fits) {
        struct ps_topic **bucket = &topics->buckets[topic->hash & (topics->bucket_count - 1)];
        topic->next = *bucket;
        *bucket = topic;
        topics->count++;
    }
    pthread_mutex_unlock(&topics->lock);
    return fits;
}

static struct ps_topic *look_up(struct ps_topics *topics, const char *name, size_t length, uint32_t hash)
{
    pthread_mutex_lock(&topics->lock);
    struct ps_topic *topic = find(topics, name, length, hash);
    pthread_mutex_unlock(&topics->lock);
    return topic;
}

struct ps_topic *ps_producer_known_topic(struct ps_producer *producer, const char *name, size_t length)
{
    return look_up(&producer->topics, name, length, hash_of(name, length));
}

struct ps_topic *ps_producer_topic(struct ps_producer *producer, const char *name, size_t length)
{
    struct ps_topics *topics = &producer->topics;
    uint32_t hash = hash_of(name, length);
    pthread_mutex_lock(&producer->topics.making);
    struct ps_topic *topic = look_up(topics, name, length, hash);
    if (!topic && (topic = make(producer, name, length, hash)) && !insert(topics, topic)) {
        rd_kafka_topic_destroy(topic->rkt);
        free(topic);
        topic = NULL;
    }
    pthread_mutex_unlock(&producer->topics.making);
    return topic;
}

/* Closing only: librdkafka's topic handles must go before their client does. */
void ps_topics_destroy(struct ps_topics *topics)
{
    for (uint32_t i = 0; i < topics->bucket_count; i++) {
        for (struct ps_topic *topic = topics->buckets[i], *next; topic; topic = next) {
            next = topic->next;
            rd_kafka_topic_destroy(topic->rkt);
            free(topic);
        }
    }
    free(topics->buckets);
    topics->buckets = NULL;
    topics->bucket_count = topics->count = 0;
}
