/*
 * What happened to a producer's messages and client, for its listeners. Each producer has one queue. The thread that serves
 * the producer's client fills it without the GVL; one dispatcher at a time empties it (dispatch.c). It is bounded: events
 * that do not fit are dropped and counted. A queue's lock is a leaf.
 */
#include "client/client.h"
#include <stdlib.h>
#include <string.h>

/* ---- life of a queue ---- */

struct ps_events *ps_events_new(uint32_t limit, bool drop_newest, void (*release_delivery)(struct ps_event *))
{
    struct ps_events *events = calloc(1, sizeof(*events));
    if (!events) return NULL;
    atomic_init(&events->refs, 1);
    events->generation = ps_generation();
    events->address = ps_mailbox_address();
    events->limit = limit;
    events->drop_newest = drop_newest;
    events->release_delivery = release_delivery;
    events->last = &events->first;
    pthread_mutex_init(&events->lock, NULL);
    return events;
}

void ps_events_retain(struct ps_events *events)
{
    atomic_fetch_add_explicit(&events->refs, 1, memory_order_relaxed);
}

static void free_chain(const struct ps_events *events, struct ps_event *event)
{
    while (event) {
        struct ps_event *next = event->next;
        ps_event_free(events, event);
        event = next;
    }
}

/* Events keep chunks alive, chunks their client, and the client this queue. So ps_events_clear must empty it first. */
void ps_events_unref(struct ps_events *events)
{
    if (!events || atomic_fetch_sub(&events->refs, 1) != 1) return;
    if (events->generation != ps_generation()) return; /* its lock may be held for ever */
    for (size_t i = 0; i < PS_EVENT_NAME_BUCKETS; i++)
        for (struct ps_topic_name *name = events->names[i], *next; name; name = next) {
            next = name->next;
            free(name);
        }
    free(events->released);
    free(events->labels);
    free(events->unused_labels);
    pthread_mutex_destroy(&events->lock);
    free(events);
}

void ps_event_free(const struct ps_events *events, struct ps_event *event)
{
    if (event->kind == PS_EVENT_DELIVERED || event->kind == PS_EVENT_FAILED) {
        events->release_delivery(event);
        return;
    }
    struct ps_client *client = ((struct ps_notice *)event)->client;
    free(event);
    ps_client_unref(client);
}

/* ---- labels and names ---- */

/* With the queue's lock held. Without memory, the label lives as long as its producer. */
static void release_label(struct ps_events *events, uint32_t label)
{
    if (!label) return;
    if (events->released_count == events->released_capacity) {
        uint32_t capacity = events->released_capacity ? events->released_capacity * 2 : 64;
        uint32_t *larger = realloc(events->released, capacity * sizeof(*larger));
        if (!larger) return;
        events->released = larger;
        events->released_capacity = capacity;
    }
    events->released[events->released_count++] = label;
}

void ps_events_release_label(struct ps_events *events, uint32_t label)
{
    pthread_mutex_lock(&events->lock);
    release_label(events, label);
    pthread_mutex_unlock(&events->lock);
}

/* With the lock held. Each number is freed once: by ps_events_take_label, or as released. */
static uintptr_t drop_label(struct ps_events *events, uint32_t number)
{
    uintptr_t label = events->labels[number - 1];
    events->labels[number - 1] = 0; /* 0 needs no marking */
    events->unused_labels[events->unused_label_count++] = number;
    return label;
}

static void drop_released(struct ps_events *events)
{
    while (events->released_count > 0) drop_label(events, events->released[--events->released_count]);
}

static bool room_for_labels(struct ps_events *events)
{
    uint32_t capacity = events->label_capacity ? events->label_capacity * 2 : 64;
    uint32_t *unused = realloc(events->unused_labels, capacity * sizeof(*unused));
    if (unused) events->unused_labels = unused;
    uintptr_t *labels = realloc(events->labels, capacity * sizeof(*labels));
    if (labels) events->labels = labels;
    if (labels && unused) events->label_capacity = capacity;
    return labels && unused;
}

uint32_t ps_events_keep_label(struct ps_events *events, uintptr_t label)
{
    uint32_t number = 0;
    pthread_mutex_lock(&events->lock);
    drop_released(events);
    if (events->unused_label_count > 0) number = events->unused_labels[--events->unused_label_count];
    else if (events->label_count < events->label_capacity || room_for_labels(events)) number = ++events->label_count;
    if (number) events->labels[number - 1] = label;
    pthread_mutex_unlock(&events->lock);
    return number;
}

uintptr_t ps_events_take_label(struct ps_events *events, uint32_t number)
{
    pthread_mutex_lock(&events->lock);
    drop_released(events);
    uintptr_t label = drop_label(events, number);
    pthread_mutex_unlock(&events->lock);
    return label;
}

uint32_t ps_events_labels(struct ps_events *events)
{
    pthread_mutex_lock(&events->lock);
    uint32_t count = events->label_count - events->unused_label_count;
    pthread_mutex_unlock(&events->lock);
    return count;
}

const struct ps_topic_name *ps_events_name(struct ps_events *events, const char *text)
{
    uint32_t hash = 2166136261u;
    for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    struct ps_topic_name **bucket = &events->names[hash % PS_EVENT_NAME_BUCKETS];

    pthread_mutex_lock(&events->lock);
    struct ps_topic_name *name = *bucket;
    while (name && strcmp(name->text, text) != 0) name = name->next;
    if (!name) {
        size_t size = strlen(text);
        name = malloc(sizeof(*name) + size + 1);
        if (name) {
            memcpy(name->text, text, size + 1);
            name->next = *bucket;
            *bucket = name;
        }
    }
    pthread_mutex_unlock(&events->lock);
    return name;
}

/* ---- filling: the thread that serves a client ---- */

bool ps_events_wanted(const struct ps_events *events, uint32_t kinds)
{
    return events && (atomic_load_explicit(&events->wanted, memory_order_relaxed) & kinds);
}

/* With the queue's lock held: the oldest event that may be dropped. PS_EVENT_CLOSED is never dropped. */
static struct ps_event *drop_oldest(struct ps_events *events)
{
    struct ps_event **link = &events->first;
    while (*link && (*link)->kind == PS_EVENT_CLOSED) link = &(*link)->next;
    struct ps_event *event = *link;
    if (!event) return NULL;
    *link = event->next;
    if (!*link) events->last = link;
    return event;
}

/* Takes ownership of the list that starts at `first`. */
void ps_events_append(struct ps_events *events, struct ps_event *first)
{
    struct ps_event *dropped = NULL;
    uint64_t queued = 0, lost = 0;

    pthread_mutex_lock(&events->lock);
    uint32_t size = atomic_load(&events->size);
    for (struct ps_event *event = first, *next; event; event = next) {
        struct ps_event *victim = NULL;
        next = event->next;
        event->next = NULL;
        queued++;
        if (size >= events->limit && event->kind != PS_EVENT_CLOSED) /* M:events_bounded */
            victim = events->drop_newest ? event : drop_oldest(events);
        if (victim != event) {
            *events->last = event;
            events->last = &event->next;
            size++;
        }
        if (!victim) continue;
        if (victim != event) size--;
        lost++;
        release_label(events, victim->label);
        victim->next = dropped;
        dropped = victim;
    }
    atomic_store(&events->size, size);
    pthread_mutex_unlock(&events->lock);

    atomic_fetch_add(&events->queued, queued);
    if (lost) atomic_fetch_add(&events->dropped, lost);
    free_chain(events, dropped);
    ps_dispatch(events);
}

static struct ps_notice *notice_new(struct ps_client *client, uint32_t kind, const char *text, size_t size)
{
    struct ps_notice *notice = malloc(sizeof(*notice) + size + 1);
    if (!notice) return NULL;
    memset(notice, 0, sizeof(*notice));
    notice->event.kind = kind;
    notice->client = client;
    ps_client_retain(client);
    notice->size = size;
    memcpy(notice->text, text, size);
    notice->text[size] = '\0';
    return notice;
}

void ps_events_error(struct ps_events *events, struct ps_client *client, rd_kafka_resp_err_t err, const char *text, bool fatal)
{
    if (!ps_events_wanted(events, PS_EVENT_ERROR)) return;
    struct ps_notice *notice = notice_new(client, PS_EVENT_ERROR, text, strlen(text));
    if (!notice) return;
    notice->err = err;
    notice->fatal = fatal;
    ps_events_append(events, &notice->event);
}

void ps_events_statistics(struct ps_events *events, struct ps_client *client, const char *json)
{
    if (!ps_events_wanted(events, PS_EVENT_STATISTICS)) return;
    struct ps_notice *notice = notice_new(client, PS_EVENT_STATISTICS, json, strlen(json));
    if (notice) ps_events_append(events, &notice->event);
}

void ps_events_closed(struct ps_events *events, struct ps_client *client)
{
    if (!events) return;
    /* Before it reads `attached`: a thread that attaches sets that first, and then reads `client`. */
    atomic_fetch_sub(&events->clients, 1);
    if (!atomic_load(&events->attached)) return;
    struct ps_notice *notice = notice_new(client, PS_EVENT_CLOSED, "", 0);
    if (notice) ps_events_append(events, &notice->event);
}

/* ---- emptying: a dispatcher ---- */

struct ps_event *ps_events_take(struct ps_events *events)
{
    pthread_mutex_lock(&events->lock);
    struct ps_event *event = events->first;
    if (event) {
        events->first = event->next;
        if (!events->first) events->last = &events->first;
        atomic_fetch_sub(&events->size, 1);
    }
    pthread_mutex_unlock(&events->lock);
    return event;
}

void ps_events_clear(struct ps_events *events)
{
    pthread_mutex_lock(&events->lock);
    struct ps_event *all = events->first;
    events->first = NULL;
    events->last = &events->first;
    atomic_store(&events->size, 0);
    for (struct ps_event *event = all; event; event = event->next) release_label(events, event->label);
    pthread_mutex_unlock(&events->lock);
    free_chain(events, all);
}
