/*
 * Events of a consumer, for its listeners. The threads that take librdkafka's events, or close the consumer, add items without the GVL.
 * The thread that polls next publishes them (ruby/consumer_news.c). No Ruby; any thread. The lock is a leaf.
 *
 * If a program has listeners and does not poll, the oldest items are dropped and counted, so that they do not fill the memory.
 */
#include "consume/consume.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NEWS = 1000 };

void ps_news_init(struct ps_news *news)
{
    pthread_mutex_init(&news->lock, NULL);
    news->last = &news->first;
}

void ps_news_free(struct ps_news_item *item)
{
    if (item && item->list) rd_kafka_topic_partition_list_destroy(item->list);
    free(item);
}

void ps_news_destroy(struct ps_news *news)
{
    for (struct ps_news_item *item; (item = ps_news_take(news));) ps_news_free(item);
    free(news->statistics);
    pthread_mutex_destroy(&news->lock);
}

bool ps_news_wanted(const struct ps_news *news, uint32_t kinds)
{
    return atomic_load_explicit(&news->wanted, memory_order_relaxed) & kinds;
}

struct ps_news_item *ps_news_take(struct ps_news *news)
{
    pthread_mutex_lock(&news->lock);
    struct ps_news_item *item = news->first;
    if (item) {
        if (!(news->first = item->next)) news->last = &news->first;
        atomic_fetch_sub(&news->count, 1);
    }
    pthread_mutex_unlock(&news->lock);
    return item;
}

/* The list may be NULL; it is copied, as librdkafka's own must not be kept. */
void ps_news_add(struct ps_news *news, enum ps_news_kind kind, rd_kafka_resp_err_t err, bool lost,
                 const rd_kafka_topic_partition_list_t *list, const char *text)
{
    struct ps_news_item *item, *dropped = NULL;
    if (!ps_news_wanted(news, kind)) return;
    if (!(item = calloc(1, sizeof(*item)))) {
        atomic_fetch_add(&news->dropped, 1);
        return;
    }
    item->kind = kind;
    item->err = err;
    item->lost = lost;
    if (list) item->list = ps_plain_copy(list);
    if (text) snprintf(item->text, sizeof(item->text), "%s", text);
    if (atomic_load(&news->count) >= MOST_NEWS && (dropped = ps_news_take(news))) atomic_fetch_add(&news->dropped, 1);
    ps_news_free(dropped);
    pthread_mutex_lock(&news->lock);
    *news->last = item;
    news->last = &item->next;
    atomic_fetch_add(&news->count, 1);
    pthread_mutex_unlock(&news->lock);
}

/* ---- statistics: only the latest are kept ---- */

/* With the lock held. */
static bool has_statistics(const struct ps_news *news)
{
    const struct ps_news_item *item = news->first;
    while (item && item->kind != PS_NEWS_STATISTICS) item = item->next;
    return item != NULL;
}

void ps_news_statistics(struct ps_news *news, const char *json)
{
    size_t size = strlen(json);
    char *copy = malloc(size + 1), *old;
    if (!copy) return;
    memcpy(copy, json, size + 1);
    pthread_mutex_lock(&news->lock);
    old = news->statistics;
    news->statistics = copy;
    bool waits = has_statistics(news);
    pthread_mutex_unlock(&news->lock);
    free(old);
    if (!waits) ps_news_add(news, PS_NEWS_STATISTICS, RD_KAFKA_RESP_ERR_NO_ERROR, false, NULL, NULL);
}

char *ps_news_latest_statistics(struct ps_news *news)
{
    char *copy = NULL;
    pthread_mutex_lock(&news->lock);
    if (news->statistics) copy = strdup(news->statistics);
    pthread_mutex_unlock(&news->lock);
    return copy;
}
