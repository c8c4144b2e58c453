/* core/consume: a consuming client. Start at struct ps_consumer. */
#ifndef PENSTOCK_CONSUME_H
#define PENSTOCK_CONSUME_H

#include "client/client.h"

/* ---- consumer.c: a consuming rd_kafka_t --------------------------------------------------------------- */

struct ps_consumer_settings {
    struct ps_client_settings client;
    int64_t nap_us;      /* longest sleep of a polling thread before it polls again, far below max.poll.interval.ms */
    bool grouped;        /* the program has set a group.id */
    /* librdkafka stores the offsets of the messages that the consumer takes, and commits them now and then. */
    bool stores_offsets;
};

/* A message that cannot be delivered as it is. */
struct ps_damaged {
    bool waits; /* the program has not got its error yet */
    int32_t partition;
    int64_t offset;
    char topic[256];
};

struct ps_consumer {
    struct ps_client client;
    struct ps_bell bell;       /* rung when there may be events to take, and when closing begins */
    _Atomic int fatal;         /* rd_kafka_resp_err_t: the consumer can consume nothing more */
    rd_kafka_queue_t *queue;   /* messages, rebalances, and their errors */
    rd_kafka_queue_t *notices; /* librdkafka's main queue: errors of connections */
    _Atomic bool noticed;      /* there may be events in `notices` */
    pthread_mutex_t assigning; /* held by the thread that assigns, until librdkafka has stopped the earlier assignment */
    /* Of the taking thread, one at a time: an event to serve later, for example because it ends a batch. */
    rd_kafka_event_t *held;
    struct ps_damaged damaged; /* the same, reported before `held` */
    bool cooperative;          /* of the taking thread, then the closing thread: the group's protocol at the latest assignment */
    bool leaving;              /* of the closing thread: librdkafka has begun to leave the group */
    struct ps_consumer_settings settings;
};

/* The blocking calls, and their arguments and results. */
enum ps_consumer_call {
    PS_CONSUMER_SUBSCRIBE, PS_CONSUMER_ASSIGN, PS_CONSUMER_ASSIGNMENT, PS_CONSUMER_COMMIT, PS_CONSUMER_COMMITTED,
    PS_CONSUMER_WATERMARKS, PS_CONSUMER_SEEK,
};

struct ps_consumer_job {
    struct ps_job job;
    struct ps_consumer *consumer;
    enum ps_consumer_call call;
    rd_kafka_topic_partition_list_t *list; /* argument or result; owned; may be NULL */
    int timeout_ms;
    int64_t low, high;
    rd_kafka_resp_err_t err;
    char text[256];                        /* details of `err`; may be empty */
};

struct ps_consumer *ps_consumer_new(rd_kafka_conf_t *conf, const char *name,
                                    const struct ps_consumer_settings *settings); /* owns conf; NULL: no memory */
/* Never blocks. NULL: no event. The caller handles and destroys the event, or holds it. */
rd_kafka_event_t *ps_consumer_take(struct ps_consumer *consumer);
void ps_consumer_hold(struct ps_consumer *consumer, rd_kafka_event_t *event); /* ps_consumer_take returns it next */
/* Called by the taking thread, one at a time, for a message that cannot be delivered. librdkafka then does not commit its
 * offset by itself. */
void ps_consumer_damaged(struct ps_consumer *consumer, const rd_kafka_message_t *message);
/* The consumer's position in a partition, for an entry that librdkafka has filled in. A damaged message counts only when the
 * program has got its error. */
int64_t ps_consumer_position(const struct ps_consumer *consumer, const rd_kafka_topic_partition_t *place);
/* Does what the group requires. Blocks while librdkafka's main thread answers, for about a ms. */
void ps_consumer_rebalance(struct ps_consumer *consumer, rd_kafka_event_t *event);
/* For a thread that waits without taking: absorbs the events of `notices`, and holds an error that the program must get.
 * Entered. */
void ps_consumer_notice(struct ps_consumer *consumer);
/* Handles results of commits, and errors that pass by themselves. False: the caller must raise this error. */
bool ps_consumer_absorb(struct ps_consumer *consumer, rd_kafka_event_t *event);

/* Starts a librdkafka call on its own thread. Owns `list`, even if it fails. NULL: not open, or no thread (errno). */
struct ps_consumer_job *ps_consumer_start(struct ps_consumer *consumer, enum ps_consumer_call call,
                                          rd_kafka_topic_partition_list_t *list, int timeout_ms);

#endif
