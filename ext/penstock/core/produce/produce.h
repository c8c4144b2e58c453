/*
 * core/produce: a producing client: messages in flight, topics, transactions, closing.
 *
 * Start at struct ps_producer, below. C requires the structs that it embeds before it.
 */
#ifndef PENSTOCK_PRODUCE_H
#define PENSTOCK_PRODUCE_H

#include "client/client.h"

/* ---- the structs that a ps_producer embeds ------------------------------------------------------------ */

struct ps_producer_settings {
    struct ps_client_settings client;
    int64_t max_time_us, sweep_us; /* see ps_polled */
    int64_t sticky_ms;
    int64_t transaction_timeout_ms;
    int64_t linger_us;        /* linger.ms, if the producer has a flusher; else 0 */
    int64_t abort_wait_ms;    /* how long an abort waits for messages in flight; 0: not at all */
    bool idempotent, transactional;
};

struct ps_close_counts {
    uint64_t delivered, failed, purged, pending;
    uint64_t unnoticed; /* failed before closing began; see unnoticed.c */
};

/* Log-linear: 8 buckets for each power of two microseconds, so a percentile is exact to 12 %. */
enum { PS_LATENCY_BUCKETS = 8 * 36 };

enum { PS_TOPIC_SIZE = 256 }; /* a topic's name has at most 249 characters */

struct ps_unnoticed { /* of unnoticed.c; under client.lock */
    uint64_t total;
    uint32_t unlogged;
    uint16_t line;           /* the next line's number, from 1 to 65535, then from 1 again */
    int16_t first_err;       /* of the unlogged ones */
    char first_topic[PS_TOPIC_SIZE];
    int64_t logged_us;
    _Atomic int64_t due_us;  /* when the next line is due; 0: none */
};

struct ps_space {
    pthread_mutex_t lock;          /* guards what follows; places' locks come after it */
    struct ps_space_place *first, *last; /* the places without a turn, by their tickets */
    uint64_t last_ticket, freed;
    uint64_t due;                  /* freed messages for which no place has got a turn yet */
    uint32_t stuck;                /* turns that their calls seem unable to use */
    bool slow;                     /* the latest turn was used late */
    _Atomic uint32_t present;      /* places in the list or with a turn */
    _Atomic uint32_t turns;        /* turns that have not ended */
    _Atomic int64_t turn_us;       /* when the latest turn began */
};

struct ps_topics {
    pthread_mutex_t making; /* held over librdkafka calls, so no thread waits for it with the GVL */
    pthread_mutex_t lock;   /* guards what follows; a leaf */
    struct ps_topic **buckets;
    uint32_t bucket_count, count;
};

/* The first message of a transaction that was not delivered. The commit fails because of it, and does not name it. */
struct ps_failed_message {
    int16_t err; /* rd_kafka_resp_err_t; 0: none has failed */
    uint8_t status, rejected;
    bool fatal;
    int32_t partition;
    char topic[PS_TOPIC_SIZE], reason[512];
};

struct ps_transactions { /* in the ps_producer */
    uint32_t next;            /* the next ticket; under client.lock */
    _Atomic uint32_t serving; /* the ticket whose turn it is */
    /* Only used by the call whose turn it is: */
    int state;
    bool failed;              /* librdkafka has reported that the open transaction can only be aborted */
    bool resumed;             /* a call of librdkafka's ran out of time and has not ended yet */
    uint64_t failures_before; /* messages that had failed or were purged when it began */
    struct ps_failed_message first_failed; /* under client.lock */
    _Atomic int64_t began_us, ended_us; /* the latest transaction; 0: none, not yet */
};

struct ps_flusher { /* of flusher.c */
    _Atomic uint32_t word;    /* enum ps_flusher_state */
    _Atomic uint64_t awaited; /* messages that callers have waited for, or wait for */
    /* Under the lock of flusher.c: */
    struct ps_producer *next; /* in the queue */
    _Atomic bool queued;      /* changed under the lock */
    bool joined;              /* it has wanted a flush */
    bool led;                 /* a thread that waits for results flushes */
    bool ended;               /* it closes: it does not come into the queue again */
    /* Of the thread that flushes: */
    int64_t began_us;         /* when the first flush for the latest request began */
    uint64_t requests;        /* how many had been sent then */
    uint64_t settled;         /* how many messages had a result then */
    int ms;                   /* how long the next flush takes, if no other producer waits */
    uint64_t shared_from;     /* see flush_for */
    int64_t measured_us;      /* when the current measurement of asynchronous messages began */
    int64_t asynchronous;     /* how many there had been then */
    double latest, per_linger; /* asynchronous messages per linger.ms: the latest result; see measure */
};

/* ---- producer.c: a producing rd_kafka_t ---------------------------------------------------------------- */

struct ps_producer {
    struct ps_client client;

    struct ps_polled polled;         /* what the poller needs to serve it */
    struct ps_space space;           /* the line of calls that wait for space in librdkafka's queue */
    struct ps_events *events;        /* retained; NULL: it can have no listeners */
    struct ps_topics topics;
    struct ps_transactions transactions;
    _Alignas(64) struct ps_flusher flusher; /* waiting callers write to it: it has its own cache lines */
    _Alignas(64) struct ps_close_counts before_close; /* the counters when closing began */
    struct ps_unnoticed unnoticed;
    struct ps_producer_settings settings;

    /* Producing threads write the first group, the serving thread the second: each has its own cache lines. */
    _Alignas(64) _Atomic uint64_t accepted;
    _Atomic uint64_t accepted_bytes; /* of payloads and keys */
    _Atomic uint64_t dropped;        /* failed because the queue was full, and not accepted */
    _Alignas(64) _Atomic uint64_t delivered;
    _Atomic uint64_t failed, purged;
    _Atomic uint32_t latencies[PS_LATENCY_BUCKETS]; /* of delivered messages */
    /* Written by librdkafka's broker threads: */
    _Alignas(64) _Atomic uint64_t requests; /* Produce requests sent */
    _Atomic uint64_t retries;               /* requests that settled nothing, so their messages are sent again */
};

struct ps_producer *ps_producer_new(rd_kafka_conf_t *conf, const char *name, struct ps_poller *poller,
                                const struct ps_producer_settings *settings); /* owns conf; NULL: no memory */
void ps_producer_set_events(struct ps_producer *producer, struct ps_events *events); /* retained; before it is opened */
uint64_t ps_producer_in_flight(const struct ps_producer *producer);
extern const struct ps_client_kind ps_producer_kind;

/* ---- delivery.c: messages in flight ------------------------------------------------------------------ */

/*
 * How many deliveries one allocation has. A handle that the program keeps also keeps its chunk: at most 26 kB. malloc(3) maps
 * allocations of 128 kB and more, and unmaps them when they are freed. It reuses the pages of smaller ones, so the next batch
 * causes no page faults. Chunks of 64 and of 1,024 are no faster (CPU time of the call for 100,000 messages: 39.5 and 38.8
 * ms; 38.4 ms with 256).
 */
enum { PS_CHUNK = 256 }; /* M:chunk_size */

struct ps_chunk;

struct ps_bytes { /* an owned copy of a String */
    size_t size;
    char data[];
};

/* One message and its delivery result: librdkafka's per-message opaque. */
struct ps_delivery {
    struct ps_event event;            /* first; links the deliveries of one librdkafka event, then those that become events */
    struct ps_chunk *chunk;           /* the chunk that it is part of */
    const struct ps_topic_name *topic_name; /* of its event; NULL: there was no listener */
    struct ps_bytes *partition_key;   /* read by the partitioner on any thread; NULL: none */
    char *reason;                     /* why it failed, in the broker's or librdkafka's words; NULL: none */
    uintptr_t topic, label;           /* Ruby objects, opaque here: only a DeliveryHandle uses and marks them */
    int64_t offset;
    int64_t timestamp;                /* ms since the epoch; -1: unknown */
    int64_t latency_us;               /* until settled: when it was produced, by ps_now_us */
    int32_t partition;
    int16_t err;                      /* rd_kafka_resp_err_t */
    uint8_t status;                   /* rd_kafka_msg_status_t */
    uint8_t rejected;                  /* enum ps_rejected: the rejection that caused `err` */
    bool fatal;                       /* `err` is the producer's fatal error, and the message was not sent */
    _Atomic uint16_t unnoticed;       /* the log line that counts it; 0: delivered, or its failure was noticed */
    _Atomic bool settled;             /* written last; the fields above are final once it is true */
};

/*
 * Up to PS_CHUNK deliveries of a batch. References: one of each delivery until it is settled, one of each DeliveryHandle, one
 * of each delivery in the event queue, one of the call that made the batch.
 */
struct ps_chunk {
    struct ps_batch *batch; /* retained */
    _Atomic uint32_t refs;
    uint32_t size;
    struct ps_delivery deliveries[];
};

/* Messages of one call, which share one completion. References: one of each chunk. */
struct ps_batch {
    struct ps_completion completion;
    _Atomic uint32_t refs;
    uint32_t size;
    _Atomic uint32_t failed;      /* how many of the settled ones were not delivered */
    _Atomic bool awaited;         /* a caller waits for results, or has */
    struct ps_producer *producer; /* retained */
    struct ps_chunk *chunks[];    /* each is freed with its own last reference */
};

struct ps_batch *ps_batch_new(struct ps_producer *producer, uint32_t size); /* `size` is at least 1; NULL: out of memory */
void ps_batch_release(struct ps_batch *batch); /* releases the references of the call that made it, one to each chunk */
/* Settles [from, size) as failed, at once. */
void ps_batch_never_sent(struct ps_batch *batch, uint32_t from, rd_kafka_resp_err_t err);
void ps_deliveries_settle(struct ps_producer *producer, rd_kafka_event_t *event); /* serving thread; destroys event */
void ps_delivery_retain(struct ps_delivery *delivery);
void ps_delivery_unref(struct ps_delivery *delivery);
void ps_delivery_release(struct ps_event *event); /* releases the reference of a delivery in the event queue */
bool ps_delivery_settled(const struct ps_delivery *delivery);
uint32_t ps_latency_bucket(int64_t latency_us);
int64_t ps_latency_of_bucket(uint32_t bucket); /* in us; the bucket's upper end */

/* The chunk must be alive: it is until ps_batch_release, and until the delivery is settled. */
static inline struct ps_delivery *ps_batch_delivery(const struct ps_batch *batch, uint32_t i)
{
    return &batch->chunks[i / PS_CHUNK]->deliveries[i % PS_CHUNK];
}

static inline struct ps_producer *ps_delivery_producer(const struct ps_delivery *delivery)
{
    return delivery->chunk->batch->producer;
}

/* ---- flusher.c: the threads that flush for callers that wait ------------------------------------------- */

enum ps_flusher_state { PS_FLUSHER_IDLE, PS_FLUSHER_WANTED, PS_FLUSHER_FLUSHING };

struct ps_lead { /* a thread that waits for results, and flushes for its producer */
    struct ps_batch *batch;
    const _Atomic bool *settled; /* NULL: it waits for the whole batch */
    int64_t deadline_us;         /* of its wait */
    _Atomic bool interrupted;
    bool again;                  /* messages are left that are not sent */
};

/* A caller begins to wait for results; never blocks. True: it shall lead, and then end to lead, before it sleeps. */
bool ps_flusher_await(struct ps_batch *batch, bool can_lead);
void ps_flusher_lead(struct ps_lead *lead); /* blocks for 1 to 10 ms, or until it is interrupted */
void ps_flusher_lead_end(const struct ps_lead *lead);
void ps_flusher_end(struct ps_producer *producer);     /* closing thread: no flush runs or comes afterwards; waits up to a flush */

/* ---- space.c: the calls that wait for space in librdkafka's queue, first in, first out --------------- */

/*
 * The calls are those of queue_space.c. A call that finds librdkafka's queue full joins the line of `ps_space` with a
 * `ps_space_place`. When messages are settled, `ps_space_freed` settles the `turn` of the first places. The waiting call then calls
 * `ps_place_try`. True: it tries to hand over its messages. If the queue is still full, it calls `ps_place_full`, which puts
 * the place back into the line; if space was freed meanwhile, the call tries again at once. At the end it calls
 * `ps_place_leave`.
 */
struct ps_space_place { /* a waiting call's; owned by the call, or by the garbage collector if the scheduler drops its fiber */
    struct ps_space_place *next, *prev;  /* in space.first, unless it has a turn */
    struct ps_producer *producer;  /* retained */
    struct ps_completion turn;     /* settled: the call may try */
    pthread_mutex_t lock;          /* guards the turn's waiters; a leaf */
    uint64_t ticket;               /* its position in the line */
    uint64_t freed;                /* space.freed when the call began to try */
    int64_t turn_us;               /* when it got its turn */
    uint32_t want;                 /* how many messages the call waits with */
    bool has_turn;
};

void ps_space_init(struct ps_space *space);
void ps_space_destroy(struct ps_space *space);
bool ps_space_line(const struct ps_space *space); /* true: calls wait, so a new call must join the line */
void ps_space_freed(struct ps_space *space, uint32_t messages);
bool ps_space_stuck(const struct ps_space *space, int64_t now); /* a call does not use its turn */
void ps_space_unstick(struct ps_space *space);
struct ps_space_place *ps_place_join(struct ps_producer *producer, uint32_t want); /* NULL: no memory */
/* When `turn` is settled. False: another call comes first, and this one waits for another turn. */
bool ps_place_try(struct ps_space_place *place);
/* The queue was full: the place goes back into the line. False: space was freed meanwhile, so the call tries again. */
bool ps_place_full(struct ps_space_place *place);
void ps_place_leave(struct ps_space_place *place, bool used); /* frees the place; `used`: the call has tried, and no longer waits */

/* ---- topic.c: one librdkafka topic handle per client and name ------------------------------------- */

typedef int32_t ps_partitioner(const rd_kafka_topic_t *, const void *, size_t, int32_t, void *, void *);

struct ps_topic {
    struct ps_topic *next; /* in its bucket */
    rd_kafka_topic_t *rkt;
    ps_partitioner *partitioner;
    int64_t sticky_ms;                  /* how long messages without a key stay on one partition; 0: off */
    _Atomic int32_t sticky_partition;
    _Atomic int64_t sticky_until_us;
    _Atomic int32_t partition_count;    /* last known; 0: never asked */
    _Atomic int64_t counted_at_us, asked_at_us;
    uint32_t hash;
    uint32_t length;
    char name[];
};

/* Both between ps_client_enter and exit. */
struct ps_topic *ps_producer_known_topic(struct ps_producer *producer, const char *name, size_t length); /* NULL: not made yet */
/* Makes it if needed, which may block: call it without the GVL. NULL: librdkafka rejected the name, or no memory. */
struct ps_topic *ps_producer_topic(struct ps_producer *producer, const char *name, size_t length);
void ps_topics_destroy(struct ps_topics *topics);
bool ps_topic_name_valid(const char *name, size_t length);

/* ---- partitioner.c: chooses a message's partition ------------------------------------------------- */

void ps_partitioner_set(rd_kafka_topic_conf_t *conf, struct ps_topic *topic, int64_t sticky_ms);

/* ---- transaction.c: transactions and fatal errors ---------------------------------------------------- */

enum ps_transaction_call {
    PS_TRANSACTIONS_INIT,
    PS_TRANSACTION_BEGIN,
    PS_TRANSACTION_COMMIT,
    PS_TRANSACTION_ABORT,
    PS_TRANSACTION_OFFSETS,
};

enum ps_transaction_state {
    PS_TRANSACTIONS_NEW,
    PS_TRANSACTIONS_READY,     /* initialised; no transaction has begun yet */
    PS_TRANSACTION_OPEN,
    PS_TRANSACTION_COMMITTING, /* a commit ran out of time: librdkafka accepts no other call than the same commit */
    PS_TRANSACTION_COMMITTED,
    PS_TRANSACTION_ABORTED,
};

struct ps_transaction_error {
    rd_kafka_resp_err_t err; /* 0: none */
    bool fatal, retriable, abortable;
    enum ps_rejected rejected; /* the rejection that caused `err` */
    char text[512];
};

enum { PS_TRANSACTION_QUEUED, PS_TRANSACTION_RUNNING, PS_TRANSACTION_CANCELLED };

struct ps_transaction_job {
    struct ps_job job;
    struct ps_producer *producer;
    enum ps_transaction_call call;
    int64_t deadline_us;
    uint32_t ticket;
    _Atomic int stage;
    rd_kafka_topic_partition_list_t *offsets;  /* OFFSETS only: owned */
    rd_kafka_consumer_group_metadata_t *group; /* OFFSETS only: owned */
    struct ps_transaction_error error;
    bool committed; /* ABORT only: too late, an earlier commit has succeeded */
};

/* timeout_ms < 0: transaction.timeout.ms, twice that for INIT. Owns `offsets` and `group` from here on, even if it fails.
 * NULL: not open, or no thread. */
struct ps_transaction_job *ps_transaction_start(struct ps_producer *producer, enum ps_transaction_call call,
                                                int64_t timeout_ms, rd_kafka_topic_partition_list_t *offsets,
                                                rd_kafka_consumer_group_metadata_t *group);
/* True if the latest transaction lasted longer than transaction.timeout.ms: then the cluster has aborted it and fences the
 * producer, as if another one had taken over. */
bool ps_transaction_overran(const struct ps_producer *producer);
bool ps_transaction_cancel(struct ps_transaction_job *job); /* true: it has not begun, and will not */
bool ps_transaction_queued(const struct ps_transaction_job *job);   /* its turn has not come */
bool ps_transaction_given_up(const struct ps_transaction_job *job); /* its producer closes, and the time for that is up */
/* Its producer has reached no broker for unreachable_us; fills `error`. */
bool ps_transaction_unreachable(struct ps_transaction_job *job, struct ps_transaction_error *error);
void ps_transaction_close(struct ps_producer *producer);        /* closing thread, when no call is in progress; may block */

/* The fatal error that has ended the producer. False: none, or it is not open. */
bool ps_producer_fatal_error(struct ps_producer *producer, struct ps_transaction_error *fatal);
/* Between enter and exit, or by the serving thread. */
bool ps_producer_read_fatal_error(struct ps_producer *producer, struct ps_transaction_error *fatal);
rd_kafka_resp_err_t ps_producer_test_fatal_error(struct ps_producer *producer, rd_kafka_resp_err_t err, const char *reason);

/* ---- retry_count.c: how often messages were sent ------------------------------------------------------ */

void ps_requests_count(struct ps_producer *producer, rd_kafka_conf_t *conf); /* before rd_kafka_new */

/* ---- first_message.c: the first message of an idempotent producer ---------------------------------------- */

void ps_first_message_hasten(struct ps_producer *producer); /* opening thread, after rd_kafka_new */

/* ---- serve.c: a producing client's events --------------------------------------------------------------- */

extern const struct ps_polled_kind ps_producer_polled_kind;
struct ps_producer *ps_polled_producer(const struct ps_polled *polled); /* the producer that embeds it */

/* ---- slot.c: a producer's current client, for all Ractors --------------------------------------------- */

struct ps_limits { /* of a client, for the messages that it accepts */
    size_t payload; /* max_payload_size */
    size_t total;   /* message.max.bytes: payload, key, headers and the protocol's overhead */
    size_t queue;   /* queue.buffering.max.kbytes, of payloads: librdkafka counts nothing else */
    int64_t queue_full_ms; /* how long to wait for queue space; -1: without limit */
    bool drop_when_full;   /* with a delivery result, instead of raising */
};

enum ps_slot_state {
    PS_SLOT_OPEN,    /* there is a client, or the main Ractor can make one */
    PS_SLOT_BARRED,  /* the producer uses something that only the main Ractor can do; see `why` */
    PS_SLOT_CLOSED,
    PS_SLOT_FORKED,  /* it belongs to the parent process */
};

/*
 * The main Ractor puts clients in and takes them out. Handles of other Ractors take references. A handle that finds no usable
 * client asks for one; a Ruby thread of the main Ractor answers.
 */
struct ps_slot { /* refs: one of the main Ractor's Ruby object, one of each handle */
    _Atomic uint32_t refs;
    unsigned generation;
    pthread_mutex_t lock;      /* a leaf */
    struct ps_producer *producer; /* retained; NULL: none */
    struct ps_limits terms;    /* of the latest client */
    bool closed;
    bool attended;             /* a Ruby thread of the main Ractor answers the handles' questions */
    uint64_t changer;          /* the thread that is replacing the client, as Ruby knows it; 0: none */
    uint32_t handles;
    uint64_t asked, answered;  /* the numbers of the latest question, and of the latest that was answered; from 1 */
    char why[256];             /* why handles may not produce for now; "": they may */
    char trouble[512];         /* the error of the latest answer; "": none */
    struct ps_bell asks, answers;
};

struct ps_slot *ps_slot_new(void); /* NULL: no memory */
void ps_slot_retain(struct ps_slot *slot);
void ps_slot_unref(struct ps_slot *slot);

/* Called by the main Ractor; without effect in a fork child: */
/* `producer` NULL: removes the client. */
void ps_slot_put(struct ps_slot *slot, struct ps_producer *producer, const struct ps_limits *terms);
void ps_slot_bar(struct ps_slot *slot, const char *why); /* "": lets handles produce again */
void ps_slot_close(struct ps_slot *slot);
void ps_slot_change(struct ps_slot *slot, uint64_t thread); /* the thread begins to replace the client; 0: it has finished */
bool ps_slot_attend(struct ps_slot *slot, bool attend);     /* sets `attended`; true: this changed it */
/* The next question; 0: none now. `over`: no handle can ask any more, and `attended` is now false. */
uint64_t ps_slot_question(struct ps_slot *slot, bool *over);
void ps_slot_answer(struct ps_slot *slot, uint64_t question, const char *trouble);

/* Called by handles, in any Ractor: */
void ps_slot_handle_made(struct ps_slot *slot);
void ps_slot_handle_gone(struct ps_slot *slot);
enum ps_slot_state ps_slot_enter(struct ps_slot *slot, struct ps_limits *terms, char *why, size_t why_size);
struct ps_producer *ps_slot_take(struct ps_slot *slot); /* retained for the caller; NULL: none, or handles may not produce */
/* True: there is a usable client other than `failed` (the failed client's address; 0: none has failed). False: not yet. The
 * first call passes question 0 and asks. Later calls pass the same variable, and see in `answered` whether the main Ractor has
 * answered. */
bool ps_slot_renewed(struct ps_slot *slot, uint64_t failed, uint64_t *question, bool *answered);
/* True: this thread is replacing the client, and would wait for itself. */
bool ps_slot_changed_by(struct ps_slot *slot, uint64_t thread);
void ps_slot_trouble(struct ps_slot *slot, char *text, size_t size); /* "": none */

/* ---- unnoticed.c: failed messages that the program has not noticed ----------------------------------- */

/* With client.lock, before the delivery is settled; topic: NULL if unknown. */
void ps_unnoticed_add(struct ps_delivery *delivery, const char *topic);
void ps_unnoticed_read(const struct ps_delivery *delivery);             /* the program has read why it failed */
void ps_unnoticed_read_all(const struct ps_batch *batch);               /* before ps_batch_release */
bool ps_unnoticed_due(const struct ps_producer *producer, int64_t now);
void ps_unnoticed_log(struct ps_producer *producer);
uint64_t ps_unnoticed_count(struct ps_producer *producer);

/* ---- producer_close.c: flush, purge, leave the poller, destroy ----------------------------------------- */

enum { PS_PURGE_ALL = RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT };

/* Members of ps_producer_kind: */
void ps_producer_closing(struct ps_client *client);
void ps_producer_close(struct ps_client *client);
void ps_producer_closed(struct ps_client *client);
void ps_producer_close_counts(struct ps_producer *producer, struct ps_close_counts *counts);

struct ps_flush_job {
    struct ps_job job;
    struct ps_producer *producer;
    int64_t deadline_us;
    bool flushed; /* else time ran out, or the client was closed first */
};

struct ps_flush_job *ps_producer_flush(struct ps_producer *producer, int64_t timeout_ms); /* NULL: not open, or no thread */

/* Every message in flight gets its delivery result, and so may messages produced until the job is done. NULL: not open, or no
 * thread; messages in flight get their result anyway. */
struct ps_job *ps_producer_purge(struct ps_producer *producer);

/* ---- metadata.c: a topic's partitions and the cluster's brokers --------------------------------------- */

struct ps_metadata_job {
    struct ps_job job;
    struct ps_producer *producer;
    int timeout_ms;
    rd_kafka_resp_err_t err;
    int32_t partition_count; /* -1: no such topic */
    size_t length;
    char name[];             /* the topic's */
};

/* NULL: not open, or no thread. */
struct ps_metadata_job *ps_producer_metadata(struct ps_producer *producer, const char *topic, size_t length, int timeout_ms);
/* 0: unknown, or older than max_age_us. */
int32_t ps_producer_known_partitions(struct ps_producer *producer, const char *topic, size_t length, int64_t max_age_us);
bool ps_producer_asked_lately(struct ps_producer *producer, const char *topic, size_t length); /* with or without an answer */

struct ps_brokers_job {
    struct ps_job job;
    struct ps_producer *producer;
    int timeout_ms;
    rd_kafka_resp_err_t err;
    const struct rd_kafka_metadata *metadata; /* its brokers as they advertise themselves, no topics; NULL after an error */
    char *cluster_id;                         /* NULL: unknown */
    int32_t controller_id;                    /* -1: unknown */
};

struct ps_brokers_job *ps_producer_brokers(struct ps_producer *producer, int timeout_ms); /* NULL: not open, or no thread */

#endif
