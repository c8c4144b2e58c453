/*
 * librdkafka's lists of partitions: copies, and what a place may have beside its offset. No Ruby; any thread.
 */
#include "consume/consume.h"
#include <stdlib.h>
#include <string.h>

void ps_copy_place(rd_kafka_topic_partition_list_t *list, const rd_kafka_topic_partition_t *from)
{
    rd_kafka_topic_partition_t *to = rd_kafka_topic_partition_list_add(list, from->topic, from->partition);
    to->offset = from->offset;
    to->err = from->err;
    to->opaque = from->opaque;
    ps_set_leader_epoch(to, ps_leader_epoch(from));
    ps_set_metadata(to, from->metadata, from->metadata_size);
}

rd_kafka_topic_partition_list_t *ps_plain_copy(const rd_kafka_topic_partition_list_t *list)
{
    rd_kafka_topic_partition_list_t *copy = rd_kafka_topic_partition_list_new(list->cnt);
    for (int i = 0; i < list->cnt; i++) ps_copy_place(copy, &list->elems[i]);
    return copy;
}

void ps_set_leader_epoch(rd_kafka_topic_partition_t *place, int32_t leader_epoch)
{
#ifdef HAVE_RD_KAFKA_TOPIC_PARTITION_SET_LEADER_EPOCH
    if (leader_epoch >= 0) rd_kafka_topic_partition_set_leader_epoch(place, leader_epoch);
#else
    (void)place, (void)leader_epoch;
#endif
}

int32_t ps_leader_epoch(const rd_kafka_topic_partition_t *place)
{
#ifdef HAVE_RD_KAFKA_TOPIC_PARTITION_SET_LEADER_EPOCH
    return rd_kafka_topic_partition_get_leader_epoch(place);
#else
    (void)place;
    return -1;
#endif
}

/* librdkafka frees it with the list. */
void ps_set_metadata(rd_kafka_topic_partition_t *place, const void *metadata, size_t size)
{
    if (!metadata || !(place->metadata = malloc(size + 1))) return;
    memcpy(place->metadata, metadata, size);
    place->metadata_size = size;
}

void ps_list_destroy(rd_kafka_topic_partition_list_t **list)
{
    if (*list) rd_kafka_topic_partition_list_destroy(*list);
    *list = NULL;
}

rd_kafka_topic_partition_list_t *ps_list_merge(rd_kafka_topic_partition_list_t *later, rd_kafka_topic_partition_list_t *earlier)
{
    if (!later || !earlier) return later ? later : earlier;
    for (int i = 0; i < earlier->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &earlier->elems[i];
        /* M:merged_commits_keep_places */
        if (!rd_kafka_topic_partition_list_find(later, place->topic, place->partition)) ps_copy_place(later, place);
    }
    rd_kafka_topic_partition_list_destroy(earlier);
    return later;
}
