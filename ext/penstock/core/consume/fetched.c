/*
 * Messages that were copied out of librdkafka: the memory behind a Penstock::Batch and its Penstock::Messages. librdkafka's own
 * memory is freed at once, so a program may keep messages for as long as it likes, also when the consumer is closed.
 *
 * One thread fills a ps_fetched, with or without the GVL. After that its records do not change, so any thread of any Ractor may
 * read them. The Batch and each Message have a reference. Whoever reads bytes (keys, payloads, headers) calls ps_fetched_read and
 * ps_fetched_done around it: ps_fetched_release frees the bytes early, while other threads may be reading them.
 *
 * `readers` counts the threads that read bytes; RELEASED is its highest bit. The bytes are freed by the release, or by the last
 * reader after it.
 */
#include "consume/consume.h"
#include <stdlib.h>
#include <string.h>

#define RELEASED 0x80000000u

/* One piece of memory for what a small batch needs, and for the name of the first topic. What outgrows it gets blocks of its own. */
struct ps_fetched *ps_fetched_new(const char *topic, size_t records, size_t bytes)
{
    size_t name_size = topic ? strlen(topic) + 1 : 0;
    struct ps_fetched *fetched = malloc(sizeof(*fetched) + records * sizeof(struct ps_record) + bytes + name_size);
    if (!fetched) return NULL;
    memset(fetched, 0, sizeof(*fetched));
    fetched->refs = 1;
    fetched->records = (struct ps_record *)(fetched + 1);
    fetched->room = records;
    fetched->bytes = (char *)(fetched->records + records);
    fetched->capacity = bytes;
    if (!topic) return fetched;
    fetched->first_topic = memcpy(fetched->bytes + bytes, topic, name_size);
    fetched->topics = &fetched->first_topic;
    fetched->topic_count = 1;
    return fetched;
}

void ps_fetched_retain(struct ps_fetched *fetched)
{
    atomic_fetch_add_explicit(&fetched->refs, 1, memory_order_relaxed);
}

static void free_bytes(struct ps_fetched *fetched)
{
    if (fetched->own_bytes) {
        ps_block_free(fetched->bytes, fetched->capacity);
        fetched->capacity = 0;
    }
    fetched->own_bytes = false;
    fetched->bytes = NULL;
}

bool ps_fetched_unref(struct ps_fetched *fetched)
{
    if (atomic_fetch_sub(&fetched->refs, 1) != 1) return false;
    for (int i = fetched->first_topic ? 1 : 0; i < fetched->topic_count; i++) free(fetched->topics[i]);
    if (fetched->topics != &fetched->first_topic) free(fetched->topics);
    free(fetched->ends);
    if (fetched->own_records) ps_block_free(fetched->records, fetched->room * sizeof(struct ps_record));
    free_bytes(fetched);
    free(fetched);
    return true;
}

/* ---- filling ---- */

enum { FIRST_RECORDS = 16, FIRST_BYTES = 2048, MOST_EXPECTED = 4 << 20 };

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A block of at least `size` bytes, with the first `used` bytes of the old memory. NULL: no memory, and nothing has changed. */
static void *grow(void *old, bool own, size_t old_size, size_t used, size_t *size)
{
    void *block = ps_block_new(size);
    if (!block) return NULL;
    if (used) memcpy(block, old, used); /* M:grown_batch_keeps_bytes */
    if (own) ps_block_free(old, old_size);
    return block;
}

static bool grow_records(struct ps_fetched *fetched)
{
    size_t size = larger(larger(2 * fetched->room, FIRST_RECORDS), fetched->expected) * sizeof(struct ps_record);
    size_t used = fetched->count * sizeof(struct ps_record);
    void *records = grow(fetched->records, fetched->own_records, fetched->room * sizeof(struct ps_record), used, &size);
    if (!records) return false;
    fetched->records = records;
    fetched->own_records = true;
    fetched->room = size / sizeof(struct ps_record);
    return true;
}

/* Messages of one batch are often of about one size. */
static bool grow_bytes(struct ps_fetched *fetched, size_t more)
{
    size_t size = larger(larger(2 * fetched->capacity, FIRST_BYTES), fetched->used + more);
    if (fetched->count >= FIRST_RECORDS) {
        size_t one = fetched->used / fetched->count, expected = one * fetched->expected / 8 * 9;
        if (fetched->most && expected > fetched->most + 2 * one) expected = fetched->most + 2 * one;
        size = larger(size, expected < MOST_EXPECTED ? expected : MOST_EXPECTED);
    }
    void *bytes = grow(fetched->bytes, fetched->own_bytes, fetched->capacity, fetched->used, &size);
    if (!bytes) return false;
    fetched->bytes = bytes;
    fetched->own_bytes = true;
    fetched->capacity = size;
    return true;
}

static bool make_room(struct ps_fetched *fetched, size_t size)
{
    if (fetched->count == fetched->room && !grow_records(fetched)) return false;
    return size <= fetched->capacity - fetched->used || grow_bytes(fetched, size); /* M:batch_bytes_grow */
}

static bool grow_topics(struct ps_fetched *fetched)
{
    char **old = fetched->topics == &fetched->first_topic ? NULL : fetched->topics;
    char **topics = realloc(old, (size_t)(fetched->topic_count + 1) * sizeof(*topics));
    if (!topics) return false;
    if (!old && fetched->first_topic) topics[0] = fetched->first_topic;
    fetched->topics = topics;
    return true;
}

/* Most messages have the topic of the one before. -1: no memory. */
static int topic_number(struct ps_fetched *fetched, const char *topic)
{
    for (int i = fetched->topic_count - 1; i >= 0; i--)
        if (strcmp(fetched->topics[i], topic) == 0) return i;
    if (!grow_topics(fetched)) return -1;
    char *copy = strdup(topic);
    if (!copy) return -1;
    fetched->topics[fetched->topic_count] = copy;
    return fetched->topic_count++;
}

struct ps_record *ps_fetched_add(struct ps_fetched *fetched, const char *topic, size_t size)
{
    int number = topic_number(fetched, topic);
    if (number < 0 || !make_room(fetched, size)) return NULL;
    struct ps_record *record = &fetched->records[fetched->count];
    memset(record, 0, sizeof(*record));
    record->fetched = fetched;
    record->topic = number;
    record->place = fetched->used;
    record->leader_epoch = -1;
    record->timestamp = -1;
    fetched->used += size;
    fetched->count++;
    return record;
}

bool ps_fetched_end(struct ps_fetched *fetched, const char *topic, int32_t partition, int64_t offset)
{
    int number = topic_number(fetched, topic);
    struct ps_end *ends = number < 0 ? NULL : realloc(fetched->ends, (size_t)(fetched->end_count + 1) * sizeof(*ends));
    if (!ends) return false;
    fetched->ends = ends;
    ends[fetched->end_count++] = (struct ps_end){ number, partition, offset };
    return true;
}

/*
 * Headers are kept as: size of the name (4 bytes), name, 0, size of the value (4 bytes; -1: none), value. They are read one after
 * the other.
 */
size_t ps_header_size(size_t name_size, int32_t value_size)
{
    return sizeof(uint32_t) + name_size + 1 + sizeof(int32_t) + (value_size > 0 ? (size_t)value_size : 0);
}

char *ps_header_write(char *to, const char *name, size_t name_size, const void *value, int32_t value_size)
{
    uint32_t size = (uint32_t)name_size;
    memcpy(to, &size, sizeof(size));
    to += sizeof(size);
    memcpy(to, name, name_size);
    to[name_size] = '\0';
    to += name_size + 1;
    memcpy(to, &value_size, sizeof(value_size));
    to += sizeof(value_size);
    if (value_size <= 0) return to;
    memcpy(to, value, (size_t)value_size);
    return to + value_size;
}

const char *ps_header_read(const char *from, struct ps_header *header)
{
    uint32_t size;
    memcpy(&size, from, sizeof(size));
    header->name = from + sizeof(size);
    from = header->name + size + 1;
    memcpy(&header->value_size, from, sizeof(header->value_size));
    header->value = from + sizeof(header->value_size);
    return header->value + (header->value_size > 0 ? header->value_size : 0);
}

struct native_headers {
    const rd_kafka_headers_t *list;
    size_t count, size;
};

/* Returns the value's size, -1 without a value. */
static int32_t native_header(const rd_kafka_headers_t *list, size_t i, const char **name, const void **value)
{
    size_t size = 0;
    if (rd_kafka_header_get_all(list, i, name, value, &size)) *value = NULL;
    return *value ? (int32_t)size : -1; /* M:nil_header_values */
}

static struct native_headers measure_headers(const rd_kafka_headers_t *list)
{
    struct native_headers headers = { .list = list };
    if (list) headers.count = rd_kafka_header_cnt(list);
    for (size_t i = 0; i < headers.count; i++) {
        const char *name = "";
        const void *value;
        int32_t size = native_header(list, i, &name, &value);
        headers.size += ps_header_size(strlen(name), size);
    }
    return headers;
}

static void copy_headers(char *to, const struct native_headers *headers)
{
    for (size_t i = 0; i < headers->count; i++) {
        const char *name = "";
        const void *value;
        int32_t size = native_header(headers->list, i, &name, &value);
        to = ps_header_write(to, name, strlen(name), value, size);
    }
}

size_t ps_fetched_size_of(const rd_kafka_message_t *message, const rd_kafka_headers_t *list)
{
    return message->key_len + message->len + measure_headers(list).size;
}

bool ps_fetched_copy(struct ps_fetched *fetched, const rd_kafka_message_t *message, const rd_kafka_headers_t *list)
{
    rd_kafka_timestamp_type_t type;
    struct native_headers headers = measure_headers(list);
    size_t size = message->key_len + message->len + headers.size;
    struct ps_record *record = ps_fetched_add(fetched, rd_kafka_topic_name(message->rkt), size);
    if (!record) return false;
    record->partition = message->partition;
    record->offset = message->offset;
    record->timestamp = rd_kafka_message_timestamp(message, &type);
    record->logged = type == RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME;
    if (type == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE) record->timestamp = -1;
#ifdef HAVE_RD_KAFKA_MESSAGE_LEADER_EPOCH
    record->leader_epoch = rd_kafka_message_leader_epoch(message);
#endif
    record->has_key = message->key != NULL;
    record->has_payload = message->payload != NULL; /* M:nil_payloads */
    record->key_size = (uint32_t)message->key_len;
    record->payload_size = (uint32_t)message->len;
    record->headers = (uint32_t)headers.count;
    char *bytes = fetched->bytes + record->place;
    if (message->key_len) memcpy(bytes, message->key, message->key_len);
    if (message->len) memcpy(bytes + message->key_len, message->payload, message->len);
    copy_headers(bytes + message->key_len + message->len, &headers);
    return true;
}

/* ---- reading ---- */

bool ps_fetched_read(struct ps_fetched *fetched)
{
    if (!(atomic_fetch_add(&fetched->readers, 1) & RELEASED)) return true; /* M:released_bytes_refused */
    ps_fetched_done(fetched);
    return false;
}

/* The last reader after the release changes RELEASED to RELEASED | RELEASED >> 1, so that only one thread frees. */
#define FREED (RELEASED | RELEASED >> 1)

static void free_if_last(struct ps_fetched *fetched)
{
    uint32_t last = RELEASED;
    if (atomic_compare_exchange_strong(&fetched->readers, &last, FREED)) free_bytes(fetched);
}

void ps_fetched_done(struct ps_fetched *fetched)
{
    if (atomic_fetch_sub(&fetched->readers, 1) == (RELEASED | 1)) free_if_last(fetched);
}

void ps_fetched_release(struct ps_fetched *fetched)
{
    atomic_fetch_or(&fetched->readers, RELEASED);
    free_if_last(fetched); /* M:release_waits_for_readers */
}

size_t ps_fetched_size(const struct ps_fetched *fetched)
{
    return sizeof(*fetched) + fetched->room * sizeof(struct ps_record) + fetched->capacity;
}
