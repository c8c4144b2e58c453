/*
 * Before 2.2.0, a broker's thread that finds librdkafka's queue full sleeps for up to a second, unless a request or an answer wakes it.
 * A program that empties the queue in 100 ms would get a tenth of what it could. So whenever it has taken half of a full queue, the
 * consumer sends a request to the leaders, and does not wait for the answer. (Measured with 2.0.2, messages of 1 KB, and
 * config.memory of 8 MB: 29,000 messages/s without, 430,000 with it.) From 2.2.0 on fetch.queue.backoff.ms is 10, see FetchLimits.
 *
 * No Ruby. Of the taking thread.
 */
#include "consume/consume.h"

enum { BACKS_OFF_BRIEFLY = 0x02020000 };

/* A request has all partitions, and takes its time with many: 4 ms with 1,000. A program may want a queue of few messages, of
 * which an answer has more than a hundred times as many. So the requests take at most a tenth of the time, while messages are
 * left. */
enum { LEAST_US = 50, SELDOM = 10 };

void ps_refetch_open(struct ps_consumer *consumer)
{
    bool needed = rd_kafka_version() < BACKS_OFF_BRIEFLY;
    const struct ps_consumer_settings *settings = &consumer->settings;
    consumer->refetch = (struct ps_refetch){
        .messages = needed ? settings->queue_messages / 2 + 1 : INT64_MAX,
        .bytes = needed ? settings->queue_bytes / 2 + 1 : INT64_MAX,
    };
}

/* Asks for the ends, as for times that are RD_KAFKA_OFFSET_END: brokers look nothing up for it. */
static void wake_brokers(struct ps_consumer *consumer)
{
    rd_kafka_topic_partition_list_t *list = ps_plain_copy(consumer->assigned);
    for (int i = 0; i < list->cnt; i++) list->elems[i].offset = RD_KAFKA_OFFSET_END;
    rd_kafka_offsets_for_times(consumer->client.rk, list, 0);
    rd_kafka_topic_partition_list_destroy(list);
}

void ps_refetch_taken(struct ps_consumer *consumer, int count)
{
    struct ps_refetch *refetch = &consumer->refetch;
    refetch->taken_messages += count;
    for (int i = 0; i < count; i++) refetch->taken_bytes += (int64_t)consumer->taken[i]->len;
    if (refetch->taken_messages < refetch->messages && refetch->taken_bytes < refetch->bytes) return;
    int64_t now_us = ps_now_us();
    if (now_us < refetch->again_us && rd_kafka_queue_length(consumer->data) > 0) return;
    refetch->taken_messages = refetch->taken_bytes = 0;
    if (consumer->assigned->cnt == 0) return;
    wake_brokers(consumer);
    int64_t took_us = ps_now_us() - now_us;
    refetch->again_us = now_us + (took_us < LEAST_US ? LEAST_US : took_us) * SELDOM;
}
