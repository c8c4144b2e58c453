/*
 * One librdkafka topic handle per client and topic name. Naming the topic in each produce call would cost a linear search
 * under librdkafka's write lock, and up to a second for the first message (2.0.2). Entries live as long as the client. Any
 * thread.
 *
 * rd_kafka_topic_new waits for librdkafka's lock, perhaps for long, so it is called without `lock`. A thread that looks up a
 * topic, perhaps with the GVL, thus never waits for librdkafka. `making` serializes the threads that make topics, so there is
 * one entry for each librdkafka handle, and the handle's partitioner gets that entry.
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

/* ---- the table ---- */

static uint32_t hash_of(const char *name, size_t length)
{
    uint32_t hash = 2166136261u; /* FNV-1a: names are short, and not chosen by attackers */
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return hash;
}

static struct ps_topic *topic_find(const struct ps_topics *topics, const char *name, size_t length, uint32_t hash)
{
    if (!topics->bucket_count) return NULL;
    struct ps_topic *topic = topics->buckets[hash & (topics->bucket_count - 1)];
    while (topic && !(topic->hash == hash && topic->length == length && !memcmp(topic->name, name, length)))
        topic = topic->next;
    return topic;
}

static bool topics_grow(struct ps_topics *topics)
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

static struct ps_topic *topic_make(struct ps_producer *producer, const char *name, size_t length, uint32_t hash)
{
    struct ps_topic *topic = calloc(1, sizeof(*topic) + length + 1);
    if (!topic) return NULL;
    memcpy(topic->name, name, length);
    topic->length = (uint32_t)length;
    topic->hash = hash;

    rd_kafka_topic_conf_t *conf = rd_kafka_default_topic_conf_dup(producer->client.rk);
    ps_partitioner_set(conf, topic, producer->settings.sticky_ms);
    topic->rkt = rd_kafka_topic_new(producer->client.rk, topic->name, conf); /* owns conf, even if it fails */
    if (topic->rkt) return topic;
    free(topic); /* M:topic_conf_freed_once */
    return NULL;
}

static bool topic_insert(struct ps_topics *topics, struct ps_topic *topic)
{
    pthread_mutex_lock(&topics->lock);
    bool fits = topics->count < topics->bucket_count || topics_grow(topics);
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
    struct ps_topic *topic = topic_find(topics, name, length, hash);
    pthread_mutex_unlock(&topics->lock);
    return topic;
}

struct ps_topic *ps_producer_known_topic(struct ps_producer *producer, const char *name, size_t length)
{
    return look_up(&producer->topics, name, length, hash_of(name, length)); /* M:topic_lookup_lock_free */
}

struct ps_topic *ps_producer_topic(struct ps_producer *producer, const char *name, size_t length)
{
    struct ps_topics *topics = &producer->topics;
    uint32_t hash = hash_of(name, length);
    pthread_mutex_lock(&producer->topics.making);
    struct ps_topic *topic = look_up(topics, name, length, hash);
    if (!topic && (topic = topic_make(producer, name, length, hash)) && !topic_insert(topics, topic)) {
        rd_kafka_topic_destroy(topic->rkt);
        free(topic);
        topic = NULL;
    }
    pthread_mutex_unlock(&producer->topics.making);
    return topic;
}

/* Closing only: librdkafka requires that topic handles are destroyed before their client. */
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
