/* core/consume: a consuming client. */
#ifndef PENSTOCK_CONSUME_H
#define PENSTOCK_CONSUME_H

#include "client/client.h"

/* ---- consumer.c: a consuming rd_kafka_t --------------------------------------------------------------- */

struct ps_consumer_settings {
    struct ps_client_settings client;
    int64_t nap_us;      /* longest sleep of a polling thread before it polls again, far below max.poll.interval.ms */
    bool grouped;        /* has a group.id of its own */
    bool stores_offsets; /* librdkafka does, of what is taken, to commit them by and by */
};

/* A message that cannot be delivered as it is. */
struct ps_damaged {
    bool waits; /* to be told */
    int32_t partition;
    int64_t offset;
    char topic[256];
};

struct ps_consumer {
    struct ps_client client;
    struct ps_bell bell;       /* rung when there may be something to take, and when closing begins */
    _Atomic int fatal;         /* rd_kafka_resp_err_t: it can consume nothing more */
    rd_kafka_queue_t *queue;   /* messages, rebalances, and errors of those */
    rd_kafka_queue_t *notices; /* librdkafka's main queue: errors of connections */
    _Atomic bool noticed;      /* there may be something in `notices` */
    pthread_mutex_t assigning; /* held while librdkafka's main thread is waited for */
    rd_kafka_event_t *held;    /* is yet to be served, such as for ending a batch: who takes, one at a time */
    struct ps_damaged damaged; /* the same, before `held` */
    bool cooperative;          /* who takes, one at a time, then the closing thread: how the group assigns, as of the latest assignment */
    bool leaving;              /* the closing thread's: it has told librdkafka to leave the group */
    struct ps_consumer_settings settings;
};

/* What a blocking call was asked for, and answered. */
enum ps_consumer_call {
    PS_CONSUMER_SUBSCRIBE, PS_CONSUMER_ASSIGN, PS_CONSUMER_ASSIGNMENT, PS_CONSUMER_COMMIT, PS_CONSUMER_COMMITTED,
    PS_CONSUMER_WATERMARKS, PS_CONSUMER_SEEK,
};

struct ps_consumer_job {
    struct ps_job job;
    struct ps_consumer *consumer;
    enum ps_consumer_call call;
    rd_kafka_topic_partition_list_t *list; /* asked for or answered; owned; may be NULL */
    int timeout_ms;
    int64_t low, high;
    rd_kafka_resp_err_t err;
    char text[256];                        /* more about it; may be empty */
};

struct ps_consumer *ps_consumer_new(rd_kafka_conf_t *conf, const char *name,
                                    const struct ps_consumer_settings *settings); /* owns conf; NULL: no memory */
/* Never blocks. NULL: nothing there; else an event to handle and destroy, or to hold. */
rd_kafka_event_t *ps_consumer_take(struct ps_consumer *consumer);
void ps_consumer_hold(struct ps_consumer *consumer, rd_kafka_event_t *event); /* the next to be taken */
/* Who takes, one at a time: of a message that came from librdkafka and will not be delivered. It is not committed for that. */
void ps_consumer_damaged(struct ps_consumer *consumer, const rd_kafka_message_t *message);
/* Of a place that librdkafka has filled in: a damaged message counts once it was told. */
int64_t ps_consumer_position(const struct ps_consumer *consumer, const rd_kafka_topic_partition_t *place);
/* Follows the group's wishes; blocks for as long as librdkafka's main thread takes, a ms or so. */
void ps_consumer_rebalance(struct ps_consumer *consumer, rd_kafka_event_t *event);
/* For who waits and does not take: what `notices` has is absorbed; an error that somebody has to hear of is held. Entered. */
void ps_consumer_notice(struct ps_consumer *consumer);
/* Results of commits, and errors that go away by themselves. False: the caller has to hear of this error. */
bool ps_consumer_absorb(struct ps_consumer *consumer, rd_kafka_event_t *event);

/* A librdkafka call on a thread of its own. Owns `list`, also when it fails. NULL: not open, or no thread (errno). */
struct ps_consumer_job *ps_consumer_start(struct ps_consumer *consumer, enum ps_consumer_call call,
                                          rd_kafka_topic_partition_list_t *list, int timeout_ms);

#endif
