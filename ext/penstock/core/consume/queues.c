/*
 * A consumer's three queues: which partitions' messages come to `data`, how events and messages are taken, and which of them are
 * kept for a later call (decision 0011). Of the taking thread, except the callbacks.
 */
#include "consume/consume.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* rd_kafka_consume_batch_queue skips messages before 2.13.2 (#4208, #4844). */
enum { BATCHES_ARE_SAFE = 0x020d0200 };

enum { NS_PER_S = 1000000000, LONGEST_LOOK_NS = 10000000 };

/* ---- callbacks ---- */

/*
 * No wake-up is lost with any number of taking threads. A thread reads the bell's count, then finds the queue empty, then
 * sleeps until the count changes. If the queue stops being empty in between, the callback rings the bell and changes the
 * count. So the threads that have read the older count look at the queue again.
 */

/* Called for the first event in an empty queue. */
static void data_cb(rd_kafka_t *rk, void *arg)
{
    struct ps_consumer *consumer = arg;
    ps_bell_ring_cb(rk, &consumer->bell);
}

static void alert_cb(rd_kafka_t *rk, void *arg)
{
    struct ps_consumer *consumer = arg;
    atomic_store(&consumer->alerted, true);
    data_cb(rk, consumer);
}

/* Called for messages in a partition's own queue, which is empty while it is forwarded. */
static void astray_cb(rd_kafka_t *rk, void *arg)
{
    struct ps_consumer *consumer = arg;
    atomic_store(&consumer->astray, true);
    alert_cb(rk, consumer);
}

/* ---- life ---- */

void ps_queues_open(struct ps_consumer *consumer)
{
    rd_kafka_t *rk = consumer->client.rk;
    consumer->takes_batches = rd_kafka_version() >= BATCHES_ARE_SAFE;
    consumer->data = rd_kafka_queue_new(rk);
    consumer->control = rd_kafka_queue_get_consumer(rk);
    consumer->notices = rd_kafka_queue_get_main(rk);
    /* Events that are already in the queues need no ring: a taking thread looks before it sleeps. */
    rd_kafka_queue_cb_event_enable(consumer->data, data_cb, consumer);
    rd_kafka_queue_cb_event_enable(consumer->control, alert_cb, consumer);
    rd_kafka_queue_cb_event_enable(consumer->notices, alert_cb, consumer);
    atomic_store(&consumer->alerted, true);
}

void ps_queues_silence(struct ps_consumer *consumer)
{
    rd_kafka_queue_cb_event_enable(consumer->data, NULL, NULL);
    rd_kafka_queue_cb_event_enable(consumer->control, NULL, NULL);
    rd_kafka_queue_cb_event_enable(consumer->notices, NULL, NULL);
}

void ps_queues_close(struct ps_consumer *consumer)
{
    rd_kafka_queue_destroy(consumer->data); /* with the messages that no thread has taken: their offsets are not stored */
    rd_kafka_queue_destroy(consumer->control);
    rd_kafka_queue_destroy(consumer->notices);
    consumer->data = consumer->control = consumer->notices = NULL;
}

/* ---- which partitions ---- */

/*
 * Forwards the partitions' queues to `data`, with the messages that are in them. This happens before the partitions are assigned:
 * then librdkafka does not forward them to its consumer queue. If librdkafka stops an earlier assignment of a partition after that,
 * it ends the forwarding, and does not begin it again. The next messages of such a partition call astray_cb, and the taking thread
 * forwards again.
 */
static void forward_to_data(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions)
{
    for (int i = 0; i < partitions->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &partitions->elems[i];
        rd_kafka_queue_t *queue = rd_kafka_queue_get_partition(consumer->client.rk, place->topic, place->partition);
        if (!queue) continue;
        rd_kafka_queue_cb_event_enable(queue, astray_cb, consumer);
        rd_kafka_queue_forward(queue, consumer->data);
        rd_kafka_queue_destroy(queue);
    }
}

void ps_consumer_add_assigned(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions)
{
    for (int i = 0; partitions && i < partitions->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &partitions->elems[i];
        rd_kafka_topic_partition_t *to = rd_kafka_topic_partition_list_find(consumer->assigned, place->topic, place->partition);
        if (!to) to = rd_kafka_topic_partition_list_add(consumer->assigned, place->topic, place->partition);
        to->offset = place->offset;
    }
    atomic_store(&consumer->counts.assigned, (uint32_t)consumer->assigned->cnt);
    forward_to_data(consumer, consumer->assigned);
}

void ps_consumer_remove_assigned(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions)
{
    for (int i = consumer->assigned->cnt - 1; i >= 0; i--) {
        const rd_kafka_topic_partition_t *place = &consumer->assigned->elems[i];
        if (!partitions || rd_kafka_topic_partition_list_find(partitions, place->topic, place->partition))
            rd_kafka_topic_partition_list_del_by_idx(consumer->assigned, i);
    }
    atomic_store(&consumer->counts.assigned, (uint32_t)consumer->assigned->cnt);
}

void ps_consumer_forward(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions)
{
    ps_consumer_remove_assigned(consumer, NULL);
    ps_consumer_add_assigned(consumer, partitions);
}

void ps_consumer_resume_revoked(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *revoked)
{
    rd_kafka_topic_partition_list_t *list = ps_ledger_paused(&consumer->ledger, revoked);
    if (list->cnt > 0) rd_kafka_resume_partitions(consumer->client.rk, list);
    rd_kafka_topic_partition_list_destroy(list);
}

/* ---- events of `control` and `notices` ---- */

/* Control events come seldom, so a thread that takes messages looks for them only after their callback. */
static rd_kafka_event_t *take_alert(struct ps_consumer *consumer)
{
    if (!atomic_load(&consumer->alerted)) return NULL;
    atomic_store(&consumer->alerted, false); /* before the polls: a later event makes the callback set it again */
    if (atomic_exchange(&consumer->astray, false)) forward_to_data(consumer, consumer->assigned);
    rd_kafka_event_t *event = rd_kafka_queue_poll(consumer->control, 0);
    if (!event) event = rd_kafka_queue_poll(consumer->notices, 0);
    if (event) atomic_store(&consumer->alerted, true); /* there may be more */
    return event;
}

/*
 * Control events come before messages: the group waits for the answer to a rebalance, and librdkafka drops the messages that were
 * fetched before it.
 */
rd_kafka_event_t *ps_consumer_take(struct ps_consumer *consumer)
{
    rd_kafka_event_t *held = consumer->held;
    consumer->held = NULL;
    return held ? held : take_alert(consumer);
}

rd_kafka_event_t *ps_consumer_poll_control(struct ps_consumer *consumer)
{
    return rd_kafka_queue_poll(consumer->control, 0);
}

void ps_consumer_hold(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    consumer->held = event;
    ps_bell_ring(&consumer->bell); /* another thread may have found the queues empty, and sleep */
}

void ps_consumer_notice(struct ps_consumer *consumer)
{
    rd_kafka_event_t *event;
    if (pthread_mutex_trylock(&consumer->taking)) return; /* the thread that takes events reads these too */
    while ((event = rd_kafka_queue_poll(consumer->notices, 0))) ps_consumer_absorb(consumer, event);
    /* A consumer that joins no group has no rebalances there, and need not poll. */
    while (!atomic_load(&consumer->ever_subscribed) && (event = rd_kafka_queue_poll(consumer->control, 0)))
        ps_consumer_absorb(consumer, event);
    pthread_mutex_unlock(&consumer->taking);
}

/* ---- messages of `data` ---- */

static int take_batch(struct ps_consumer *consumer, size_t most)
{
    ssize_t count = rd_kafka_consume_batch_queue(consumer->data, 0, consumer->taken, most);
    return count > 0 ? (int)count : 0;
}

static int take_singly(struct ps_consumer *consumer, size_t most)
{
    int count = 0;
    while (count < (int)most && (consumer->taken[count] = rd_kafka_consume_queue(consumer->data, 0))) count++;
    return count;
}

/* True: the program can get it, or its partition ends with it. It is no error. */
static bool is_message(const rd_kafka_message_t *message)
{
    return !message->err || message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
}

static bool is_of(const rd_kafka_message_t *message, const rd_kafka_topic_partition_list_t *partitions)
{
    rd_kafka_topic_partition_list_t *list = (rd_kafka_topic_partition_list_t *)partitions; /* it changes nothing */
    return is_message(message) && rd_kafka_topic_partition_list_find(list, rd_kafka_topic_name(message->rkt), message->partition);
}

static int count_of(const struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions)
{
    int count = 0;
    for (int i = 0; i < consumer->taken_count; i++) count += is_of(consumer->taken[i], partitions);
    return count;
}

/* What is left in `taken` is earlier than what was set aside before: nothing is taken from `data` before that is due. */
bool ps_consumer_set_aside(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions)
{
    int moved = 0, left = 0, more = count_of(consumer, partitions);
    if (more == 0) return true;
    rd_kafka_message_t **grown = malloc((size_t)(consumer->aside_count + more) * sizeof(*grown));
    if (!grown) return false;
    for (int i = 0; i < consumer->taken_count; i++) {
        rd_kafka_message_t *message = consumer->taken[i];
        if (is_of(message, partitions)) grown[moved++] = message;
        else consumer->taken[left++] = message;
    }
    for (int i = 0; i < consumer->aside_count; i++) grown[moved++] = consumer->aside[i]; /* M:aside_keeps_earlier */
    free(consumer->aside);
    consumer->aside = grown;
    consumer->aside_count = moved;
    consumer->taken_count = left;
    return true;
}

void ps_consumer_use_aside(struct ps_consumer *consumer)
{
    if (consumer->aside_count == 0) return;
    consumer->aside_due = true;
    ps_bell_ring(&consumer->bell); /* a thread may have found nothing, and sleep */
}

static int take_aside(struct ps_consumer *consumer, int most)
{
    int count = 0, left = 0;
    rd_kafka_topic_partition_list_t *paused = ps_ledger_paused(&consumer->ledger, NULL);
    for (int i = 0; i < consumer->aside_count; i++) {
        rd_kafka_message_t *message = consumer->aside[i];
        if (count < most && !is_of(message, paused)) consumer->taken[count++] = message;
        else consumer->aside[left++] = message;
    }
    consumer->aside_count = left;
    consumer->aside_due = count == most; /* there may be more */
    rd_kafka_topic_partition_list_destroy(paused);
    return count;
}

int ps_consumer_take_messages(struct ps_consumer *consumer, size_t most)
{
    if (consumer->taken_count > 0) return consumer->taken_count;
    if (most > PS_MOST_TAKEN) most = PS_MOST_TAKEN;
    if (consumer->aside_due) consumer->taken_count = take_aside(consumer, (int)most); /* M:aside_messages_resumed */
    if (consumer->taken_count > 0) return consumer->taken_count;
    consumer->taken_count = most > 1 && consumer->takes_batches ? take_batch(consumer, most) : take_singly(consumer, most);
    ps_refetch_taken(consumer, consumer->taken_count);
    return consumer->taken_count;
}

/* Returns how many are left. */
static int drop_of(rd_kafka_message_t **messages, int count, const rd_kafka_topic_partition_list_t *partitions)
{
    int left = 0;
    for (int i = 0; i < count; i++) {
        if (partitions ? is_of(messages[i], partitions) : is_message(messages[i])) rd_kafka_message_destroy(messages[i]);
        else messages[left++] = messages[i];
    }
    return left;
}

void ps_consumer_drop_messages(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions)
{
    ps_lasting_end(&consumer->size_error); /* something else is read from now on */
    consumer->taken_count = drop_of(consumer->taken, consumer->taken_count, partitions); /* M:seek_drops_taken */
    consumer->aside_count = drop_of(consumer->aside, consumer->aside_count, partitions); /* M:seek_drops_aside */
}

void ps_consumer_drop_taken(struct ps_consumer *consumer)
{
    ps_consumer_drop_messages(consumer, NULL);
    for (int i = 0; i < consumer->taken_count; i++) {
        rd_kafka_message_t *message = consumer->taken[i];
        ps_consumer_log_error(consumer, message->err, rd_kafka_message_errstr(message));
        rd_kafka_message_destroy(message);
    }
    consumer->taken_count = 0;
}

bool ps_consumer_rebalances(const struct ps_consumer *consumer)
{
    return consumer->rebalance.state != PS_REBALANCE_NONE || consumer->held || rd_kafka_queue_length(consumer->control) > 0;
}

/* librdkafka passes the markers of transactions on to no program, but counts them. Where it has come to only counts if the program
 * has got all before it. */
int64_t ps_consumer_passed(struct ps_consumer *consumer, const char *topic, int32_t partition)
{
    int64_t passed = RD_KAFKA_OFFSET_INVALID;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    if ((until.tv_nsec += LONGEST_LOOK_NS) >= NS_PER_S) until = (struct timespec){ until.tv_sec + 1, until.tv_nsec - NS_PER_S };
    if (pthread_mutex_timedlock(&consumer->taking, &until)) return passed; /* a thread takes messages for long, or it seeks */
    bool all = rd_kafka_topic_partition_list_find(consumer->assigned, topic, partition) && !consumer->taken_count;
    if (all && !consumer->aside_count) {
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(list, topic, partition);
        if (!rd_kafka_position(consumer->client.rk, list)) passed = list->elems[0].offset;
        rd_kafka_topic_partition_list_destroy(list);
    }
    pthread_mutex_unlock(&consumer->taking);
    return passed;
}
