/* core/produce: a producing client: messages on their way, topics, transactions, closing. */
#ifndef PENSTOCK_PRODUCE_H
#define PENSTOCK_PRODUCE_H

#include "client/client.h"

/* ---- delivery.c: messages on their way ----------------------------------------------------------- */

/*
 * How many deliveries one allocation has. A handle that the program keeps keeps its chunk: 26 kB at most. malloc(3) maps
 * allocations of 128 kB and more, and unmaps them when they are freed. It uses the pages of smaller ones again, so the next batch
 * causes no page faults. Chunks of 64 and of 1,024 are no faster (CPU time of the call for 100,000 messages: 39.5 and 38.8 ms; 38.4 ms
 * with 256).
 */
enum { PS_CHUNK = 256 };

struct ps_chunk;

struct ps_bytes { /* an owned copy of a String */
    size_t size;
    char data[];
};

/* One message's promise and verdict: librdkafka's per-message opaque. */
struct ps_delivery {
    struct ps_event event;            /* first; links those of one librdkafka event, then those that are to be told */
    struct ps_chunk *chunk;           /* the one it lies in */
    const struct ps_topic_name *topic_name; /* its event's; NULL: nobody listened */
    struct ps_bytes *partition_key;   /* read by the partitioner on any thread; NULL if none */
    char *reason;                     /* why it failed, in the broker's or librdkafka's words; NULL if none */
    uintptr_t topic, label;           /* Ruby's, opaque here: only touched and marked by a DeliveryHandle */
    int64_t offset;
    int64_t timestamp;                /* ms since the epoch, -1 if unknown */
    int64_t latency_us;               /* until settled: when it was produced, by ps_now_us */
    int32_t partition;
    int16_t err;                      /* rd_kafka_resp_err_t */
    uint8_t status;                   /* rd_kafka_msg_status_t */
    uint8_t refused;                  /* enum ps_rejected: err is for that */
    bool fatal;                       /* err is the producer's fatal error, which kept the message from being sent */
    _Atomic uint16_t unnoticed;       /* the line of the log that counts it; 0: it was delivered, or its failure was noticed */
    _Atomic bool settled;             /* written last; the fields above are final once it is true */
};

/*
 * Up to PS_CHUNK deliveries of a batch. References: one by each delivery until it is settled, one by each DeliveryHandle, one by
 * each delivery that waits as an event, one by the call that made the batch.
 */
struct ps_chunk {
    struct ps_batch *batch; /* retained */
    _Atomic uint32_t refs;
    uint32_t size;
    struct ps_delivery deliveries[];
};

/* Messages that were handed over together and share one completion. References: one by each chunk. */
struct ps_batch {
    struct ps_completion completion;
    _Atomic uint32_t refs;
    uint32_t size;
    _Atomic uint32_t failed;      /* how many of those settled were not delivered */
    struct ps_producer *producer; /* retained */
    struct ps_chunk *chunks[];    /* each is freed with its last reference, whichever others live */
};

struct ps_batch *ps_batch_new(struct ps_producer *producer, uint32_t size); /* of at least 1; NULL: out of memory */
void ps_batch_release(struct ps_batch *batch); /* the references of the call that made it, one to each chunk */
void ps_batch_never_sent(struct ps_batch *batch, uint32_t from, rd_kafka_resp_err_t err); /* settles [from, size) at once */
void ps_deliveries_settle(struct ps_producer *producer, rd_kafka_event_t *event); /* who serves; destroys event */
void ps_delivery_retain(struct ps_delivery *delivery);
void ps_delivery_unref(struct ps_delivery *delivery);
void ps_delivery_release(struct ps_event *event); /* the reference of a delivery that was an event */
bool ps_delivery_settled(const struct ps_delivery *delivery);

/* The chunk has to live: until ps_batch_release, or until the delivery is settled. */
static inline struct ps_delivery *ps_batch_delivery(const struct ps_batch *batch, uint32_t i)
{
    return &batch->chunks[i / PS_CHUNK]->deliveries[i % PS_CHUNK];
}

static inline struct ps_producer *ps_delivery_producer(const struct ps_delivery *delivery)
{
    return delivery->chunk->batch->producer;
}

/* ---- space.c: who waits for space in librdkafka's queue, first in, first out ------------------------- */

struct ps_place { /* of one call that waits; owned by the call, or by the garbage collector if its fiber is dropped */
    struct ps_place *next, *prev;  /* in space.first, unless it has a turn */
    struct ps_producer *producer;  /* retained */
    struct ps_completion turn;     /* settled: the call may try */
    pthread_mutex_t lock;          /* of the turn's waiter; a leaf */
    uint64_t ticket;               /* its place in the line */
    uint64_t freed;                /* space.freed when the call began to try */
    int64_t turn_us;               /* when it got its turn */
    uint32_t want;                 /* how many messages wait with it */
    bool has_turn;
};

struct ps_space {
    pthread_mutex_t lock;          /* of what follows; then places' locks */
    struct ps_place *first, *last; /* without a turn, by their tickets */
    uint64_t last_ticket, freed;
    uint64_t due;                  /* messages that were freed, and for which nobody has got a turn yet */
    uint32_t stuck;                /* turns that their calls seem unable to take */
    bool slow;                     /* the latest turn was taken late */
    _Atomic uint32_t present;      /* in the list or with a turn */
    _Atomic uint32_t turns;        /* given and not ended */
    _Atomic int64_t turn_us;       /* when the latest was given */
};

void ps_space_init(struct ps_space *space);
void ps_space_destroy(struct ps_space *space);
bool ps_space_line(const struct ps_space *space); /* somebody waits: a new call has to queue behind */
void ps_space_freed(struct ps_space *space, uint32_t messages);
bool ps_space_stuck(const struct ps_space *space, int64_t now); /* a turn that was given is not taken */
void ps_space_unstick(struct ps_space *space);
struct ps_place *ps_place_join(struct ps_producer *producer, uint32_t want); /* NULL: no memory */
/* When `turn` is settled. False: another call comes first, and this one waits for another turn. */
bool ps_place_try(struct ps_place *place);
bool ps_place_full(struct ps_place *place); /* it found the queue full. False: space was freed meanwhile, it tries again */
void ps_place_leave(struct ps_place *place, bool used); /* frees it; `used`: it has tried, and waits no more */

/* ---- topic.c: one librdkafka topic handle per client and name ------------------------------------- */

typedef int32_t ps_partitioner(const rd_kafka_topic_t *, const void *, size_t, int32_t, void *, void *);

struct ps_topic {
    struct ps_topic *next; /* in its bucket */
    rd_kafka_topic_t *rkt;
    ps_partitioner *partitioner;
    int64_t sticky_ms;                  /* how long messages without a key stay on one partition; 0: off */
    _Atomic int32_t sticky_partition;
    _Atomic int64_t sticky_until_us;
    _Atomic int32_t partition_count;    /* last known, 0: never asked */
    _Atomic int64_t counted_at_us, asked_at_us;
    uint32_t hash;
    uint32_t length;
    char name[];
};

struct ps_topics {
    pthread_mutex_t making; /* held over calls of librdkafka, and so never waited for with the GVL */
    pthread_mutex_t lock;   /* of what follows; a leaf */
    struct ps_topic **buckets;
    uint32_t bucket_count, count;
};

/* Both between ps_client_enter and exit. */
struct ps_topic *ps_producer_known_topic(struct ps_producer *producer, const char *name, size_t length); /* NULL: not made yet */
/* Made if need be, which may block: without the GVL. NULL: librdkafka refused it, or no memory. */
struct ps_topic *ps_producer_topic(struct ps_producer *producer, const char *name, size_t length);
void ps_topics_destroy(struct ps_topics *topics);
bool ps_topic_name_valid(const char *name, size_t length);

/* ---- partitioner.c: chooses a message's partition ------------------------------------------------- */

void ps_partitioner_set(rd_kafka_topic_conf_t *conf, struct ps_topic *topic, int64_t sticky_ms);

/* ---- transaction.c: also fatal errors ------------------------------------------------------------- */

enum ps_transaction_call {
    PS_TRANSACTIONS_INIT,
    PS_TRANSACTION_BEGIN,
    PS_TRANSACTION_COMMIT,
    PS_TRANSACTION_ABORT,
    PS_TRANSACTION_OFFSETS,
};

enum ps_transaction_state {
    PS_TRANSACTIONS_NEW,
    PS_TRANSACTIONS_READY,     /* initialised; nothing was begun yet */
    PS_TRANSACTION_OPEN,
    PS_TRANSACTION_COMMITTING, /* a commit ran out of time: librdkafka takes nothing but its repetition */
    PS_TRANSACTION_COMMITTED,
    PS_TRANSACTION_ABORTED,
};

struct ps_transactions { /* in the client */
    uint32_t next;            /* ticket, under client.lock */
    _Atomic uint32_t serving; /* the ticket whose turn it is */
    /* only whose turn it is: */
    int state;
    bool failed;              /* librdkafka has said that the open one can only be aborted */
    uint64_t failures_before; /* messages that had failed or been purged when it began */
};

struct ps_transaction_error {
    rd_kafka_resp_err_t err; /* 0: none */
    bool fatal, retriable, abortable;
    enum ps_rejected refused; /* err is for that */
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
    bool committed; /* ABORT only: too late, an earlier commit has gone through */
};

/* timeout_ms < 0: transaction.timeout.ms, twice that for INIT. Owns `offsets` and `group` from here on, whatever becomes
 * of the call. NULL: not open, or no thread. */
struct ps_transaction_job *ps_transaction_start(struct ps_producer *producer, enum ps_transaction_call call,
                                                int64_t timeout_ms, rd_kafka_topic_partition_list_t *offsets,
                                                rd_kafka_consumer_group_metadata_t *group);
bool ps_transaction_cancel(struct ps_transaction_job *job); /* true: it has not begun and never will */
void ps_transaction_close(struct ps_producer *producer);        /* closing thread, when no call is in progress: may block */

/* What has ended the producer for good. False: nothing has, or it is not open. */
bool ps_producer_fatal_error(struct ps_producer *producer, struct ps_transaction_error *fatal);
bool ps_producer_read_fatal_error(struct ps_producer *producer, struct ps_transaction_error *fatal); /* between enter and exit, or who serves */
rd_kafka_resp_err_t ps_producer_test_fatal_error(struct ps_producer *producer, rd_kafka_resp_err_t err, const char *reason);

/* ---- retry_count.c: how often messages had to be sent --------------------------------------------------- */

void ps_requests_count(struct ps_producer *producer, rd_kafka_conf_t *conf); /* before an rd_kafka_t is made of it */

/* ---- producer.c: a producing rd_kafka_t ---------------------------------------------------------------- */

struct ps_producer_settings {
    struct ps_client_settings client;
    int64_t max_time_us, sweep_us; /* see ps_polled */
    int64_t sticky_ms;
    int64_t transaction_timeout_ms;
    int64_t abort_wait_ms;    /* how long aborting a transaction waits for what is in flight; 0: not at all */
    bool idempotent, transactional;
};

struct ps_close_counts {
    uint64_t delivered, failed, purged, pending;
    uint64_t unnoticed; /* failed before the closing began; see unnoticed.c */
};

/* Log-linear: 8 buckets for each power of two microseconds, so that a percentile is right within 12 %. */
enum { PS_LATENCY_BUCKETS = 8 * 36 };

uint32_t ps_latency_bucket(int64_t latency_us);
int64_t ps_latency_of_bucket(uint32_t bucket); /* us, its upper end */

enum { PS_TOPIC_SIZE = 256 }; /* of a topic's name, which has at most 249 characters */

struct ps_unnoticed { /* unnoticed.c's; under client.lock */
    uint64_t total;
    uint32_t unlogged;
    uint16_t line;           /* the next line's number, from 1 to 65535, and again */
    int16_t first_err;       /* of those unlogged */
    char first_topic[PS_TOPIC_SIZE];
    int64_t logged_us;
    _Atomic int64_t due_us;  /* when the next line is; 0: none */
};

struct ps_producer {
    struct ps_client client;

    struct ps_polled polled;         /* how the poller serves it */
    struct ps_space space;           /* in librdkafka's queue */
    struct ps_events *events;        /* retained; NULL: nobody can listen */
    struct ps_topics topics;
    struct ps_transactions transactions;
    struct ps_close_counts before_close; /* the counters when closing began */
    struct ps_unnoticed unnoticed;
    struct ps_producer_settings settings;

    /* Producing threads write the first, who serves the client the others: on cache lines of their own. */
    _Alignas(64) _Atomic uint64_t accepted;
    _Atomic uint64_t accepted_bytes; /* of payloads and keys */
    _Atomic uint64_t dropped;        /* failed for want of room, and not accepted */
    _Alignas(64) _Atomic uint64_t delivered;
    _Atomic uint64_t failed, purged;
    _Atomic uint32_t latencies[PS_LATENCY_BUCKETS]; /* of delivered messages */
    /* librdkafka's broker threads: */
    _Alignas(64) _Atomic uint64_t requests; /* Produce requests sent */
    _Atomic uint64_t retries;               /* those whose messages were not settled by it, and are sent again */
};

struct ps_producer *ps_producer_new(rd_kafka_conf_t *conf, const char *name, struct ps_poller *poller,
                                const struct ps_producer_settings *settings); /* owns conf; NULL: no memory */
void ps_producer_set_events(struct ps_producer *producer, struct ps_events *events); /* the same */
uint64_t ps_producer_in_flight(const struct ps_producer *producer);
extern const struct ps_client_kind ps_producer_kind;

/* ---- serve.c: a producing client's events --------------------------------------------------------------- */

extern const struct ps_polled_kind ps_producer_polled_kind;
struct ps_producer *ps_polled_producer(const struct ps_polled *polled); /* the one it is in */

/* ---- slot.c: a producer's client of the moment, for all Ractors ------------------------------------ */

struct ps_limits { /* on which a client takes messages */
    size_t payload; /* max_payload_size */
    size_t total;   /* message.max.bytes, of payload, key, headers and what the protocol adds */
    size_t queue;   /* queue.buffering.max.kbytes, of payload: librdkafka counts no more */
    int64_t queue_full_ms; /* how long to wait for room in librdkafka's queue; -1: without limit */
    bool drop_when_full;   /* with a verdict, instead of raising */
};

enum ps_slot_state {
    PS_SLOT_OPEN,    /* there is a client, or one can be had */
    PS_SLOT_BARRED,  /* the producer does something that only the main Ractor can; see `why` */
    PS_SLOT_CLOSED,
    PS_SLOT_FORKED,  /* it is the parent process's */
};

/*
 * The main Ractor puts clients in and takes them out; the handles of the other Ractors take references, and ask for a client
 * where there is none that is any good. One Ruby thread of the main Ractor answers.
 */
struct ps_slot { /* refs: of the main Ractor's Ruby object, of each handle */
    _Atomic uint32_t refs;
    unsigned generation;
    pthread_mutex_t lock;      /* a leaf */
    struct ps_producer *producer;  /* retained; NULL: there is none */
    struct ps_limits terms;     /* the latest client's */
    bool closed, attended;
    uint64_t changer;          /* the thread that is replacing the client, as Ruby knows it; 0: none */
    uint32_t handles;
    uint64_t asked, answered;
    char why[256];             /* why calls are refused for now; "": they are not */
    char trouble[512];         /* what came of the latest question, if it failed */
    struct ps_bell asks, answers;
};

struct ps_slot *ps_slot_new(void); /* NULL: no memory */
void ps_slot_retain(struct ps_slot *slot);
void ps_slot_unref(struct ps_slot *slot);
/* Of the main Ractor's; without effect in a forked child. */
void ps_slot_put(struct ps_slot *slot, struct ps_producer *producer, const struct ps_limits *terms); /* NULL: takes out */
void ps_slot_bar(struct ps_slot *slot, const char *why); /* "": lets calls through again */
void ps_slot_close(struct ps_slot *slot);
void ps_slot_change(struct ps_slot *slot, uint64_t thread); /* 0: done */
bool ps_slot_attend(struct ps_slot *slot, bool attend);  /* true: so it is now, and was not before */
/* The next question, or 0: none now. `over`: nobody is left to ask; it is attended to no longer. */
uint64_t ps_slot_question(struct ps_slot *slot, bool *over);
void ps_slot_answer(struct ps_slot *slot, uint64_t question, const char *trouble);
/* Of the handles', any Ractor. */
void ps_slot_handle_made(struct ps_slot *slot);
void ps_slot_handle_gone(struct ps_slot *slot);
enum ps_slot_state ps_slot_enter(struct ps_slot *slot, struct ps_limits *terms, char *why, size_t why_size);
struct ps_producer *ps_slot_take(struct ps_slot *slot); /* retained for the caller; NULL: there is none, or none may be had */
/* Whether there is another client than the one at `failed` (0: any that can go on). False: not yet; then `question` is
 * what to look for in `answered`, asked at the first call (0). */
bool ps_slot_renewed(struct ps_slot *slot, uint64_t failed, uint64_t *question, bool *answered);
/* Then whoever waited for another client would wait for itself. */
bool ps_slot_changed_by(struct ps_slot *slot, uint64_t thread);
void ps_slot_trouble(struct ps_slot *slot, char *text, size_t size); /* "": none */

/* ---- unnoticed.c: failed messages that the program has not noticed ----------------------------------- */

/* With client.lock, before it is settled; topic: NULL, if not known. */
void ps_unnoticed_add(struct ps_delivery *delivery, const char *topic);
void ps_unnoticed_read(const struct ps_delivery *delivery);             /* the program has read why it failed */
void ps_unnoticed_read_all(const struct ps_batch *batch);               /* before ps_batch_release */
bool ps_unnoticed_due(const struct ps_producer *producer, int64_t now);
void ps_unnoticed_log(struct ps_producer *producer);
uint64_t ps_unnoticed_count(struct ps_producer *producer);

/* ---- producer_close.c: flush, purge, leave the poller, destroy; and the same for all clients at exit ------- */

enum { PS_PURGE_ALL = RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT };

/* Of the ps_producer_kind: */
void ps_producer_closing(struct ps_client *client);
void ps_producer_close(struct ps_client *client);
void ps_producer_closed(struct ps_client *client);
void ps_producer_close_counts(struct ps_producer *producer, struct ps_close_counts *counts);

struct ps_flush_job {
    struct ps_job job;
    struct ps_producer *producer;
    int64_t deadline_us;
    bool flushed; /* else the time was up, or the client was closed first */
};

bool ps_producer_await_verdicts(struct ps_producer *producer, int64_t deadline_us); /* false: the deadline came first */
struct ps_flush_job *ps_producer_flush(struct ps_producer *producer, int64_t timeout_ms); /* NULL: not open, or no thread */

/* Everything in flight gets its verdict. Until the job is done, so may what is produced meanwhile. NULL: not open, or no
 * thread; then what is in flight gets its verdict all the same. */
struct ps_job *ps_producer_purge(struct ps_producer *producer);

/* ---- metadata.c: how many partitions has a topic, which brokers has the cluster? ----------------- */

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
/* 0: not known, or longer ago than max_age_us. */
int32_t ps_producer_known_partitions(struct ps_producer *producer, const char *topic, size_t length, int64_t max_age_us);
bool ps_producer_asked_lately(struct ps_producer *producer, const char *topic, size_t length); /* whether or not there was an answer */

struct ps_brokers_job {
    struct ps_job job;
    struct ps_producer *producer;
    int timeout_ms;
    rd_kafka_resp_err_t err;
    const struct rd_kafka_metadata *metadata; /* its brokers as they advertise themselves, and no topics; NULL after an error */
    char *cluster_id;                         /* NULL: not known */
    int32_t controller_id;                    /* -1: not known */
};

struct ps_brokers_job *ps_producer_brokers(struct ps_producer *producer, int timeout_ms); /* NULL: not open, or no thread */

#endif
