/*
 * core/consume: a consuming client. Start at struct ps_consumer, and at `take` in take.c.
 *
 * The files, from the lowest on; none calls a file below it in this list:
 *
 *   partition_list.c, fetched.c, lasting.c   lists of partitions; copied messages; errors that last
 *   news.c, ledger.c                         what listeners get; what the program has got and processed
 *   committer.c, joining.c                   the thread that sends commits; what the member and its coordinator do
 *   consumer_errors.c, queues.c, commits.c   what librdkafka reports; its queues; what is committed, and when
 *   ask.c, starts.c, commit_job.c            questions to brokers; where partitions begin; commits for which a caller waits
 *   consumer_jobs.c                          the blocking calls, each on a thread of its own
 *   rebalance.c                              from the group's event to the answer
 *   take.c                                   how a poll takes messages
 *   consumer_close.c, consumer.c             how a consumer closes; its life
 *   consumer_set.c                           waits for any number of consumers
 *
 * "On the taking thread" means: with consumer->taking held.
 */
#ifndef PENSTOCK_CONSUME_H
#define PENSTOCK_CONSUME_H

#include "client/client.h"

/* ---- partition_list.c: librdkafka's lists of partitions ------------------------------------------------- */

/* librdkafka's own lists hold references to its partitions, and it cannot be destroyed before they are released. A copy has only
 * names and numbers. */
rd_kafka_topic_partition_list_t *ps_plain_copy(const rd_kafka_topic_partition_list_t *list);
void ps_copy_place(rd_kafka_topic_partition_list_t *list, const rd_kafka_topic_partition_t *from);
void ps_list_destroy(rd_kafka_topic_partition_list_t **list); /* and forgets it; it may be NULL */
/* Adds the places of `earlier` that `later` does not have, destroys `earlier`, and returns `later`. Either may be NULL. */
rd_kafka_topic_partition_list_t *ps_list_merge(rd_kafka_topic_partition_list_t *later, rd_kafka_topic_partition_list_t *earlier);
/* Brokers compare an offset's leader epoch with theirs, to find that the partition was truncated. Before 2.1.0 librdkafka has none. */
void ps_set_leader_epoch(rd_kafka_topic_partition_t *place, int32_t leader_epoch); /* -1: unknown */
int32_t ps_leader_epoch(const rd_kafka_topic_partition_t *place);
void ps_set_metadata(rd_kafka_topic_partition_t *place, const void *metadata, size_t size); /* copies it */

/* ---- fetched.c: messages copied out of librdkafka ------------------------------------------------------ */

struct ps_record { /* one message */
    struct ps_fetched *fetched;
    int64_t offset;
    int64_t timestamp;     /* ms since the epoch; -1: none */
    size_t place;          /* in `fetched->bytes`: key, payload, headers */
    uint32_t key_size, payload_size;
    uint32_t headers;      /* how many */
    int32_t partition;
    int32_t leader_epoch;  /* -1: unknown */
    int topic;             /* index into `fetched->topics` */
    bool has_key, has_payload;
    bool logged;           /* the timestamp is the broker's */
    bool damaged;          /* its headers could not be read */
};

struct ps_fetched {
    _Atomic uint32_t refs;
    _Atomic uint32_t readers;
    _Atomic bool seen;     /* the program has looked at it */
    struct ps_record *records;
    size_t count, room;
    size_t expected;       /* how many messages will be added, probably; 0: unknown */
    size_t most;           /* about so many bytes will be added at most; 0: unknown */
    char *bytes;           /* only between ps_fetched_read and ps_fetched_done */
    size_t used, capacity;
    bool own_records, own_bytes; /* they are in blocks of their own */
    _Atomic size_t reported; /* the size that Ruby's GC knows of */
    char **topics;
    char *first_topic;     /* in this piece of memory; NULL: it was made without a topic */
    int topic_count;
    struct ps_end *ends;   /* of partitions; see Batch#ends */
    int end_count;
    uint64_t epoch;        /* the assignment in which they were taken; 0: a program made them */
};

struct ps_end { /* the program has got everything that the partition had */
    int topic;             /* index into `fetched->topics` */
    int32_t partition;
    int64_t offset;        /* of the partition's next message */
};

struct ps_header {
    const char *name, *value; /* the name ends with a 0 */
    int32_t value_size;       /* -1: it has no value */
};

/* With room for so much. `topic`: of the first message, or NULL. NULL: no memory */
struct ps_fetched *ps_fetched_new(const char *topic, size_t records, size_t bytes);
void ps_fetched_retain(struct ps_fetched *fetched);
bool ps_fetched_unref(struct ps_fetched *fetched);               /* true: it was freed */
/* Adds a record with room for `size` bytes at its place. NULL: no memory. */
struct ps_record *ps_fetched_add(struct ps_fetched *fetched, const char *topic, size_t size);
size_t ps_fetched_size_of(const rd_kafka_message_t *message, const rd_kafka_headers_t *headers); /* of the copy's bytes */
/* Adds a copy of a message, with its parsed headers or NULL. False: no memory. */
bool ps_fetched_copy(struct ps_fetched *fetched, const rd_kafka_message_t *message, const rd_kafka_headers_t *headers);
/* Adds the end of a partition. False: no memory. */
bool ps_fetched_end(struct ps_fetched *fetched, const char *topic, int32_t partition, int64_t offset);
size_t ps_header_size(size_t name_size, int32_t value_size);
char *ps_header_write(char *to, const char *name, size_t name_size, const void *value, int32_t value_size); /* returns its end */
const char *ps_header_read(const char *from, struct ps_header *header);                                  /* returns its end */
/* Around reading `bytes`. False: they were released. */
bool ps_fetched_read(struct ps_fetched *fetched);
void ps_fetched_done(struct ps_fetched *fetched);
void ps_fetched_release(struct ps_fetched *fetched);
size_t ps_fetched_size(const struct ps_fetched *fetched);

/* ---- ledger.c: what the program has got and processed ---------------------------------------------------- */

struct ps_ledger {
    pthread_mutex_t lock;
    struct ps_place **rows; /* a table of partitions */
    struct ps_place **former; /* the same of those that were taken away: what is committed, as far as is known */
    struct range *open;     /* what was handed out and is not processed */
    uint64_t epoch;         /* of the latest assignment */
    bool dirty;             /* librdkafka does not know all offsets yet */
    uint64_t calls;         /* that handed messages out */
    int64_t resumed_us;     /* when librdkafka resumed partitions */
    _Atomic int repeating;  /* how many partitions have messages that may come again */
    /* Of the taking thread: what it has reserved. */
    struct range *spare;
    int spares;
    struct ps_place *reserved; /* the latest partition; NULL: it was removed */
};

bool ps_ledger_init(struct ps_ledger *ledger); /* false: no memory */
void ps_ledger_destroy(struct ps_ledger *ledger);
uint64_t ps_ledger_new_epoch(void);
/* `commits`: librdkafka commits what it has stored of them. */
void ps_ledger_clear(struct ps_ledger *ledger, bool commits);
void ps_ledger_assigned(struct ps_ledger *ledger);
/* Messages of these partitions cannot be marked any more. */
void ps_ledger_revoked(struct ps_ledger *ledger, const rd_kafka_topic_partition_list_t *list, bool commits);
/* Whether messages before `next`, which were taken in `epoch`, are known to be committed, and do not come again. False says nothing. */
bool ps_ledger_has_committed(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t next, uint64_t epoch);
/* Brokers have these offsets. What is processed before them, again, is not stored, and what was stored is replaced: librdkafka would
 * commit it when the partition is given up. */
void ps_ledger_committed(struct ps_ledger *ledger, rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *offsets);
/* Brokers have refused them. */
void ps_ledger_not_committed(struct ps_ledger *ledger, const rd_kafka_topic_partition_list_t *offsets);
/* What the group has of what is being assigned, where it is known. NULL: nothing is. */
void ps_ledger_begin_committed(struct ps_ledger *ledger, const rd_kafka_topic_partition_list_t *offsets);
bool ps_ledger_pause(struct ps_ledger *ledger, const char *topic, int32_t partition, bool paused); /* false: nothing changed */
/* Which of these partitions are paused; NULL: of all. The caller destroys the list. */
rd_kafka_topic_partition_list_t *ps_ledger_paused(struct ps_ledger *ledger, const rd_kafka_topic_partition_list_t *among);
/* Reading begins here; negative: where librdkafka finds it. */
void ps_ledger_begin(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset);
/* The program reads on at `offset`; negative: not known as a number. `rewinds`: librdkafka stores it, too, and what the program works on
 * holds back no commit any more. */
void ps_ledger_seek(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset, bool rewinds);
void ps_ledger_ended(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset); /* fetched up to here */
/* This offset and later ones come again. */
void ps_ledger_rewind(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset);
/* Whether a message that was taken in `epoch` (0: not compared) can be marked: the partition was not taken away since, and the message
 * does not come again. */
bool ps_ledger_holds(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset, uint64_t epoch);
/* The epoch in which the partition was assigned, or the first one after that in which messages of it were handed out. 0: none, or
 * the program has chosen where to read. */
uint64_t ps_ledger_began_itself(struct ps_ledger *ledger, const char *topic, int32_t partition);
/* Whether messages before `offset` were handed out and are not processed. */
bool ps_ledger_open_before(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset);
/* Nothing was handed out since it was assigned, and librdkafka has no offset that it may commit. */
bool ps_ledger_untouched(struct ps_ledger *ledger, const char *topic, int32_t partition);
int64_t ps_ledger_position(struct ps_ledger *ledger, const char *topic, int32_t partition); /* -1: none */
/* The next offset: the position, without one where reading began, or the end if the program has got all before it. Negative: one of
 * librdkafka's numbers for a place, RD_KAFKA_OFFSET_INVALID if it is unknown. */
int64_t ps_ledger_reached(struct ps_ledger *ledger, const char *topic, int32_t partition);
/* Messages that this owner gets. False: no memory. */
bool ps_ledger_handed_out(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset, int32_t leader_epoch,
                          uint64_t owner);
bool ps_ledger_handed_out_all(struct ps_ledger *ledger, struct ps_fetched *fetched, uint64_t owner);
/* Of the taking thread, before a message is taken. So much memory is reserved that ps_ledger_handed_out_all does not fail. `ranges`: how
 * many runs of one partition's increasing offsets there are in the call, with this message. False: no memory. */
bool ps_ledger_reserve(struct ps_ledger *ledger, const char *topic, int32_t partition, int ranges);
uint64_t ps_ledger_epoch(struct ps_ledger *ledger); /* of the latest assignment */
bool ps_ledger_open(struct ps_ledger *ledger); /* something that was handed out is not marked */
/* Marks all that the owner has got. 0: what all owners have got, without what their callers have not received (last_poll.c). */
void ps_ledger_finish(struct ps_ledger *ledger, uint64_t owner);
/* While the caller of a poll has not received messages, their owner is `owner | PS_NOT_RECEIVED`. ps_ledger_receive clears or sets this
 * bit. */
#define PS_NOT_RECEIVED (UINT64_C(1) << 63)
void ps_ledger_receive(struct ps_ledger *ledger, uint64_t owner, bool received);
/* Marks a message, and the earlier ones of its partition that the same owner has got. False: see ps_ledger_holds, or the message was
 * not handed out. */
bool ps_ledger_mark(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset, int32_t leader_epoch,
                    uint64_t epoch);
/* librdkafka has paused all partitions, and resumes those that stay: the messages that were handed out last may come again. */
void ps_ledger_resumed(struct ps_ledger *ledger);
/* Whether this is such a message. For each message while `ledger->repeating` is not 0. */
bool ps_ledger_repeated(struct ps_ledger *ledger, const char *topic, int32_t partition, int64_t offset);
/* Whether these partitions have messages that were handed out, and are not processed. */
bool ps_ledger_in_work(struct ps_ledger *ledger, const rd_kafka_topic_partition_list_t *list);
/* Whether a message that was handed out in that epoch can still be marked. */
bool ps_ledger_owns(struct ps_ledger *ledger, const char *topic, int32_t partition, uint64_t epoch);
bool ps_ledger_store(struct ps_ledger *ledger, rd_kafka_t *rk); /* gives librdkafka what is processed. False: nothing new is */
rd_kafka_topic_partition_list_t *ps_ledger_processed(struct ps_ledger *ledger); /* the caller destroys the list */

/* ---- committer.c: the thread that sends all consumers' asynchronous commits ------------------------------- */

struct ps_consumer;

enum ps_commits_state {
    PS_COMMITS_WAIT,  /* for a ring, or for `due_us`; PS_FOREVER: only for a ring */
    PS_COMMITS_ENDED, /* nothing is left */
    PS_COMMITS_NONE,  /* there was nothing */
};

struct ps_commit_line { /* the word on which threads sleep that wait for their turns */
    _Atomic uint32_t changes;
    _Atomic uint32_t sleepers;
};

struct ps_commit_work { /* one consumer's, in its ps_async_commits */
    struct ps_consumer *consumer;
    /* On the committer's thread: sends and receives what it can without waiting. */
    enum ps_commits_state (*serve)(struct ps_consumer *consumer, int64_t *due_us);
    struct ps_commit_work *rung_next;
    _Atomic bool rung; /* it is in the stack */
    _Atomic bool held; /* something is not sent while the member joins its group again */
    struct ps_commit_line line;
    /* Of the committer's thread: */
    struct ps_commit_work *next, *prev; /* in the list of times */
    int64_t due_us;
    bool listed;
};

/* With async_commits.lock. The committer works for the consumer until `serve` returns PS_COMMITS_ENDED. Returns 0 or errno. */
int ps_committer_begin(struct ps_commit_work *work);
/* The committer looks at the consumer at once. With async_commits.lock, and only while it works for the consumer. */
void ps_committer_ring(struct ps_commit_work *work);
void ps_committer_ring_cb(rd_kafka_t *rk, void *work);
/* On any thread, and in librdkafka's callbacks, after a change of what ps_consumer_joins reads. */
void ps_committer_joining_changed(struct ps_commit_work *work);
/* On any thread, and in librdkafka's callbacks, when a turn may have come. */
void ps_commit_line_changed(struct ps_commit_line *line);

/* ---- commits.c: what is committed, and when; its functions come below --------------------------------- */

struct ps_commit_turn { /* in the line of commits: of a commit for which a caller waits, an assignment, a revocation, or closing */
    struct ps_commit_turn *next;
    rd_kafka_topic_partition_list_t *after; /* offsets for the committer that wait for the end of this turn; NULL: none */
    bool come;      /* a thread uses it */
    bool yields;    /* of a revocation: its turn passes if no thread uses it soon. The program may wait in a commit, and not poll */
    int64_t come_us; /* of such a turn: when it came; 0: it has not */
};

struct ps_async_commits {
    pthread_mutex_t lock;
    struct ps_commit_turn *turns;             /* the line: the first one has a request in flight, or waits until it may send one */
    rd_kafka_topic_partition_list_t *waiting; /* offsets for the next request, before all turns; NULL: none. Only with `answers` */
    rd_kafka_topic_partition_list_t *sent;    /* offsets in flight, which may have to be sent again */
    _Atomic int64_t stored_due_us;            /* when to commit the offsets that librdkafka has stored; 0: it has no new ones */
    bool stored_asked;                        /* the program has asked for that: a revocation then sends them, too */
    bool stored_sent;                         /* stored offsets are in flight */
    int64_t sent_us;                          /* when the latest request was sent */
    int on_their_way;                         /* requests in flight; more than one only if partitions were revoked */
    rd_kafka_queue_t *answers;                /* NULL: the committer does not work for the consumer */
    int attempts;                             /* how often `waiting` was sent before */
    int64_t again_us;                         /* when `waiting` may be sent again */
    struct ps_commit_work work;
    /* Of the committer's thread while it works: */
    bool long_call;                           /* it sends nothing more: see consumer_jobs.c */
    int64_t closing_us;                       /* when it has seen that closing has begun; 0: it has not */
};

void ps_async_commits_init(struct ps_consumer *consumer);
void ps_async_commits_destroy(struct ps_async_commits *commits);

/* ---- news.c: what happened, for listeners --------------------------------------------------------------- */

/* kind(name, bit, Ruby's name). ConsumerClient#news and #listen know the kinds by their names. */
#define PS_NEWS_KINDS(kind) \
    kind(ERROR, 1, error) \
    kind(COMMIT, 2, commit) /* has a result, for some partitions perhaps an error */ \
    kind(ASSIGNED, 4, assigned) \
    kind(REVOKED, 8, revoked) \
    kind(STATISTICS, 16, statistics) \
    kind(POLLED, 32, polled) /* never queued: the polling thread has the messages */ \
    kind(HELD_BACK, 64, held_back) /* a revocation waits for work */ \
    kind(ENDS, 128, ends) /* never queued, as the messages */ \
    kind(RESET, 256, reset) /* a partition goes on at an earlier offset; the list has this place, and the one with its position */ \
    kind(REWOUND, 512, rewound) /* the messages from these places on come again */

enum ps_news_kind {
#define PS_NEWS_KIND(name, bit, text) PS_NEWS_##name = (bit),
    PS_NEWS_KINDS(PS_NEWS_KIND)
#undef PS_NEWS_KIND
};

/* Why an assigned partition begins where it does: `opaque` of the places of PS_NEWS_ASSIGNED. */
enum ps_start { PS_START_UNKNOWN, PS_START_COMMITTED, PS_START_RESET, PS_START_CHOSEN };

struct ps_news_item {
    struct ps_news_item *next;
    enum ps_news_kind kind;
    rd_kafka_resp_err_t err;
    bool lost;                             /* of PS_NEWS_REVOKED: the group had taken the partitions away before */
    rd_kafka_topic_partition_list_t *list; /* owned; may be NULL */
    char text[512];
};

struct ps_news {
    pthread_mutex_t lock;
    struct ps_news_item *first, **last;
    _Atomic uint32_t count;
    _Atomic uint32_t wanted;  /* the kinds that have listeners */
    _Atomic uint64_t dropped;
    char *statistics;         /* the latest, as JSON; NULL: none came */
};

void ps_news_init(struct ps_news *news);
void ps_news_destroy(struct ps_news *news);
bool ps_news_wanted(const struct ps_news *news, uint32_t kinds);
void ps_news_add(struct ps_news *news, enum ps_news_kind kind, rd_kafka_resp_err_t err, bool lost,
                 const rd_kafka_topic_partition_list_t *list, const char *text); /* does nothing if no listener wants it */
void ps_news_statistics(struct ps_news *news, const char *json);
char *ps_news_latest_statistics(struct ps_news *news); /* NULL: none came; the caller frees the copy */
struct ps_news_item *ps_news_take(struct ps_news *news); /* NULL: there is none; the caller frees it */
void ps_news_free(struct ps_news_item *item);

/* ---- consumer.c: a consuming rd_kafka_t --------------------------------------------------------------- */

/* When a message counts as processed. */
enum ps_mark {
    PS_MARK_NEXT_POLL, /* at the next poll of the fiber that got it */
    PS_MARK_MANUAL,    /* when the program marks it */
    PS_MARK_AT_ONCE,   /* when the program gets it */
};

struct ps_consumer_settings {
    struct ps_client_settings client;
    int64_t nap_us;      /* longest sleep of a polling thread before it polls again, far below max.poll.interval.ms */
    int64_t set_polls_us; /* how often a set asks the program to poll it: half of max.poll.interval.ms */
    bool grouped;        /* the program has set a group.id */
    enum ps_mark mark;
    bool listens;        /* the polling thread calls the program's listener before it answers a rebalance */
    bool ends;           /* the program wants to know of the ends of partitions */
    int64_t hold_us;     /* how long a revocation may wait while messages of its partitions are in work */
    bool holds_always;   /* it waits until ps_consumer_end_hold, whatever is in work */
    int64_t commit_every_us; /* auto.commit.interval.ms; 0: the program commits by itself */
    bool commits_last;   /* enable.auto.commit: librdkafka commits what it has stored of partitions that are given up */
    int64_t queue_messages, queue_bytes; /* with which librdkafka's queue is full */
};

/* An error that a poll raises. */
struct ps_problem {
    struct ps_problem *next;
    rd_kafka_resp_err_t err;
    int32_t partition;
    int64_t offset;          /* -1: unknown */
    bool group;              /* the group does not let the consumer join */
    char topic[256];         /* "": of no partition */
    char text[512];
};

/* ---- lasting.c: errors that are kept until they are over --------------------------------------------------- */

struct ps_lasting {
    pthread_mutex_t lock;
    struct ps_problem problem;
    bool known;              /* it lasts */
    bool begins_anew;        /* the program has subscribed anew: the next error is raised at once */
    _Atomic int64_t due_us;  /* when a poll raises it again; PS_FOREVER: it does not last */
};

void ps_lasting_init(struct ps_lasting *lasting);
void ps_lasting_destroy(struct ps_lasting *lasting);
bool ps_lasting_note(struct ps_lasting *lasting, const struct ps_problem *problem); /* true: the program must get it now */
struct ps_problem *ps_lasting_take_due(struct ps_lasting *lasting); /* NULL: nothing is due; the caller frees the copy */
/* The program tries again what has failed, or (not `repeats`) does not want it any more. */
void ps_lasting_begin_anew(struct ps_lasting *lasting, bool repeats);
void ps_lasting_end(struct ps_lasting *lasting);
bool ps_lasting_read(struct ps_lasting *lasting, struct ps_problem *problem); /* false: there is none */

enum { PS_MOST_TAKEN = 512 };

/* All since the consumer was opened. A thread that holds `taking` is the only one to write the first three. */
/* ConsumerClient#counts has these names, and Penstock::ConsumerMetrics says what they mean. */
#define PS_CONSUMER_COUNTS(count) \
    count(messages) count(bytes) count(batches) /* that the program got */ \
    count(empty_polls) count(rebalances) count(commits) count(failed_commits) count(errors) count(pauses) \
    count(lost_partitions) /* that the group took away before the consumer could answer */

struct ps_consumer_counts {
#define PS_CONSUMER_COUNT(name) _Atomic uint64_t name;
    PS_CONSUMER_COUNTS(PS_CONSUMER_COUNT)
#undef PS_CONSUMER_COUNT
    _Atomic uint32_t assigned; /* partitions now */
};

/* ---- rebalance.c: from the group's event to the answer; its functions come below --------------------- */

/*
 *     NONE       no rebalance is to be answered, and threads may take messages
 *       |        a thread takes the group's event
 *    ARRIVED     a revocation waits while the program works on messages of its partitions, for up to settings.hold_us
 *       |  ^     without a listener (settings.listens): at once PREPARED
 *       |  |     a thread begins to call the listener; back: the call was ended, and the next poll calls the listener again
 *    LISTENS
 *       |        the listener has returned
 *    PREPARED    a revocation waits for its turn among the commits, an assignment for the job that asks where partitions begin
 *       |        a thread does what the event says, and answers the group
 *     NONE
 *
 * The closing thread answers in any of these states.
 */
enum ps_rebalance_state { PS_REBALANCE_NONE, PS_REBALANCE_ARRIVED, PS_REBALANCE_LISTENS, PS_REBALANCE_PREPARED };

struct ps_consumer_job;

struct ps_rebalance { /* guarded by `taking` */
    enum ps_rebalance_state state;
    rd_kafka_event_t *event;       /* owned; NULL: PS_REBALANCE_NONE */
    bool lost;                     /* the group had taken its partitions away before */
    bool held_back;                /* listeners know that it waits for work */
    _Atomic int64_t hold_until_us; /* when it stops waiting for work, or for its turn; 0: it waits for neither */
    _Atomic bool hold_ended;       /* the program has no more work of its partitions */
    struct ps_consumer_job *starts; /* asks where its partitions begin; NULL: no job does */
    rd_kafka_topic_partition_list_t *chosen; /* where the program lets some of them begin; NULL: it has chosen nothing */
    struct ps_commit_turn turn;    /* of a revocation */
    bool has_turn;                 /* `turn` is in the line */
    bool cooperative;              /* the group's protocol, as `cooperative` has asked for it at the latest assignment */
};

struct ps_refetch { /* of the taking thread; see refetch.c */
    int64_t messages, bytes;             /* after which the brokers' threads are woken; INT64_MAX: never */
    int64_t taken_messages, taken_bytes; /* since the last time */
    int64_t again_us;                    /* not before, while messages are left */
};

struct ps_consumer {
    struct ps_client client;
    struct ps_news news;
    struct ps_consumer_counts counts;
    _Atomic bool announced;    /* listeners know that it is open */
    _Atomic int64_t calls_end_us; /* a close has begun, and calls that wait for answers end then; 0: none has */
    struct ps_ledger ledger;
    struct ps_async_commits async_commits;
    struct ps_bell bell;       /* rung when there may be events to take, and when closing begins */
    _Atomic int fatal;         /* rd_kafka_resp_err_t: the consumer can consume nothing more */
    rd_kafka_queue_t *data;    /* messages, and errors and ends of partitions */
    rd_kafka_queue_t *control; /* librdkafka's consumer queue: rebalances, errors of the group, results of commits */
    rd_kafka_queue_t *notices; /* librdkafka's main queue: errors of connections */
    _Atomic bool alerted;      /* there may be events in `control` or `notices`, or `astray` is set */
    _Atomic bool astray;       /* a partition's messages did not go to `data` */
    pthread_mutex_t assigning; /* held by the thread that assigns, until librdkafka has stopped the earlier assignment */
    pthread_mutex_t taking;    /* held by the thread that takes events; never while it waits for the GVL */
    /* Of the taking thread: what is assigned, by the group or the program, and where librdkafka was to begin. */
    rd_kafka_topic_partition_list_t *assigned;
    rd_kafka_event_t *held;    /* of the taking thread: a rebalance that has ended a batch, and comes next; NULL: none */
    struct ps_problem *problems; /* of the taking thread: errors that polls have to raise */
    struct ps_lasting group_error, size_error; /* the group does not let the consumer join; a broker's answers are too large */
    _Atomic bool subscribed, ever_subscribed, resubscribed; /* the last one: more than once */
    _Atomic int sync_error;    /* the latest answer to SyncGroup, of librdkafka's codes; 0: it was no error, or polls know it */
    /* Of the taking thread: messages taken from `data`. Between calls only those behind an error, or without memory for them. */
    rd_kafka_message_t *taken[PS_MOST_TAKEN];
    int taken_count;
    /* Of the taking thread, and the thread that pauses: messages of partitions that were paused meanwhile, in their order. They come
     * before the messages that librdkafka has: librdkafka takes them for read. */
    rd_kafka_message_t **aside;
    int aside_count;
    bool aside_due;            /* perhaps one of them is of a partition that is not paused any more */
    bool takes_batches;        /* librdkafka can hand out many messages at once */
    struct ps_refetch refetch;
    struct ps_rebalance rebalance;
    _Atomic bool member;       /* the group has assigned partitions, perhaps none, and not removed the consumer since */
    _Atomic int64_t restart_us; /* when `restart` begins; 0: nothing has failed */
    struct ps_consumer_job *restart; /* assigns partitions anew that librdkafka could not begin; NULL: no job does, as far as is known */
    bool rejoins;              /* its settings let it join again with partitions; set before it opens */
    pthread_mutex_t joining;   /* see joining.c */
    _Atomic bool joins;        /* it is joining its group, as far as librdkafka's main thread has come */
    _Atomic int64_t joined_us; /* when it has sent its latest JoinGroup request; 0: it has not */
    int log_level;             /* lines above are only for joining.c */
    _Atomic int joins_sent, joins_answered, syncs_sent; /* JoinGroup and SyncGroup requests; only if `rejoins` */
    _Atomic bool no_joins;     /* of the closing thread: no answer to a JoinGroup request reaches librdkafka's main thread */
    bool assigned_once;        /* of the taking thread, then the closing thread: an assignment was answered */
    int64_t reset;             /* auto.offset.reset: RD_KAFKA_OFFSET_BEGINNING or _END; RD_KAFKA_OFFSET_INVALID: an error */
    int64_t stored_us;         /* of the taking thread: when it last gave offsets to librdkafka */
    _Atomic bool leaving;      /* librdkafka has begun to leave the group */
    _Atomic bool left_group;   /* the coordinator has answered that the member has left */
    _Atomic bool settled;      /* closing has committed everything that is processed, and librdkafka commits it once more */
    struct ps_consumer_settings settings;
};

static inline void ps_increase(_Atomic uint64_t *count, uint64_t number)
{
    atomic_fetch_add_explicit(count, number, memory_order_relaxed);
}

struct ps_consumer *ps_consumer_new(rd_kafka_conf_t *conf, const char *name,
                                    const struct ps_consumer_settings *settings); /* owns conf; NULL: no memory */
void ps_consumer_set_statistics(struct ps_consumer *consumer, const char *interval_ms); /* before it opens */

/* ---- consumer_errors.c: what librdkafka reports beside messages and rebalances. On the taking thread --------------- */

/* Handles an event that is no rebalance, and destroys it. */
void ps_consumer_absorb(struct ps_consumer *consumer, rd_kafka_event_t *event);
bool ps_error_passes(rd_kafka_resp_err_t err); /* whether the error passes by itself */
/* Logs an error that passes by itself. False: it does not, and a poll has to raise it. */
bool ps_consumer_absorb_error(struct ps_consumer *consumer, rd_kafka_resp_err_t err, bool fatal, const char *text);
/* librdkafka 2.14 reports each second that all brokers are down, as long as they are. Listeners get it once. */
void ps_consumer_log_error(struct ps_consumer *consumer, rd_kafka_resp_err_t err, const char *text);
/* On any thread, before another commit is sent: the ledger learns what the answer says is committed. Otherwise a rewind meanwhile would
 * let the next commit lower it. */
void ps_consumer_note_committed(struct ps_consumer *consumer, rd_kafka_event_t *answer);
/* On any thread: the result of a commit that no caller waits for, be it librdkafka's own or the committer's. `offsets` may be NULL. */
void ps_consumer_commit_result(struct ps_consumer *consumer, rd_kafka_resp_err_t err,
                               const rd_kafka_topic_partition_list_t *offsets);
/* An error that a poll has to raise. `place`: its partition, or NULL. */
struct ps_problem ps_consumer_problem(struct ps_consumer *consumer, rd_kafka_resp_err_t err, const char *text,
                                      const rd_kafka_topic_partition_t *place);
void ps_consumer_add_problem(struct ps_consumer *consumer, const struct ps_problem *problem);
void ps_consumer_add_message_problem(struct ps_consumer *consumer, const rd_kafka_message_t *message); /* the message is an error */
struct ps_problem *ps_consumer_take_problem(struct ps_consumer *consumer); /* NULL: there is none; the caller frees it */
/* As ps_consumer_take_problem, or an error that lasts, when it is time to raise that again. */
struct ps_problem *ps_consumer_take_due_problem(struct ps_consumer *consumer);
bool ps_consumer_wants_to_join(const struct ps_consumer *consumer); /* it has subscribed, and is no member yet, or no longer */
void ps_consumer_group_answers(struct ps_consumer *consumer); /* a commit, or a question for committed offsets, has succeeded */
int64_t ps_consumer_problem_due_us(const struct ps_consumer *consumer); /* any thread: when that is; PS_FOREVER: never */
void ps_consumer_drop_problems(struct ps_consumer *consumer);             /* logs them */
/* Called by librdkafka in ps_consumer_take_messages, for an error that is no message. */
void ps_partition_error_cb(rd_kafka_t *rk, int err, const char *reason, void *opaque);
enum { PS_RESTART_US = 1000 * 1000 }; /* a partition that librdkafka could not begin is assigned anew after this time */

/* ---- refetch.c: a queue that was full --------------------------------------------------------------------- */

void ps_refetch_open(struct ps_consumer *consumer);
void ps_refetch_taken(struct ps_consumer *consumer, int count); /* the first of `taken` were in librdkafka's queue */

/* ---- queues.c: the consumer's queues. On the taking thread, and none of these blocks --------------------- */

void ps_queues_open(struct ps_consumer *consumer);
void ps_queues_silence(struct ps_consumer *consumer); /* after this no callback runs or will run */
void ps_queues_close(struct ps_consumer *consumer);
/* The messages of these partitions go to `data`, too. Call it before they are assigned. NULL: no further ones. */
void ps_consumer_add_assigned(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions);
void ps_consumer_remove_assigned(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions); /* NULL: all */
void ps_consumer_forward(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions); /* only these */
/* Resumes paused partitions of these, or of all (NULL): librdkafka would keep them paused when they are assigned again. */
void ps_consumer_resume_revoked(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *revoked);
/* Returns an event of `control` or `notices`. NULL: no callback has announced one. The caller handles it, or holds it. */
rd_kafka_event_t *ps_consumer_take(struct ps_consumer *consumer);
/* Returns an event of `control`, announced or not. librdkafka takes this call as a poll of the program (max.poll.interval.ms). It takes
 * a call that finds messages as one, too, but only after a partition's messages go to `data`. */
rd_kafka_event_t *ps_consumer_poll_control(struct ps_consumer *consumer);
void ps_consumer_hold(struct ps_consumer *consumer, rd_kafka_event_t *event); /* ps_consumer_take returns it next */
/* For a thread that waits and takes nothing: handles the events of `notices`. A later poll raises their errors. Entered; any thread. */
void ps_consumer_notice(struct ps_consumer *consumer);
/* Fills `taken` with up to `most` messages, errors and ends of partitions, and returns their number. The caller destroys those that it
 * has used, and leaves the others in `taken`, for the next call. */
int ps_consumer_take_messages(struct ps_consumer *consumer, size_t most);
/* Messages in `taken` of partitions that are paused now wait in `aside`. False: no memory, and nothing has changed. */
bool ps_consumer_set_aside(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions);
void ps_consumer_use_aside(struct ps_consumer *consumer); /* partitions were resumed, and their messages in `aside` come next */
/* Destroys the messages in `taken` and `aside` of these partitions, or all of them (NULL): the partitions were revoked, or are read from
 * another offset. */
void ps_consumer_drop_messages(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions);
void ps_consumer_drop_taken(struct ps_consumer *consumer); /* destroys everything, and logs errors */
/* The next offset, as ps_ledger_reached, but behind offsets without a message at the end, such as a transaction's marker. Any thread;
 * entered. RD_KAFKA_OFFSET_INVALID: unknown. The program has not got all messages before it, or a thread holds `taking` for 10 ms. */
int64_t ps_consumer_passed(struct ps_consumer *consumer, const char *topic, int32_t partition);
/* Whether a rebalance may wait for its answer: the events of `control` may also be others. */
bool ps_consumer_rebalances(const struct ps_consumer *consumer);

/* ---- commits.c: what is committed, and when -------------------------------------------------------------- */

/* Gives librdkafka the processed offsets, if there are new ones. Entered. */
void ps_consumer_store(struct ps_consumer *consumer);
/* On the taking thread, while the program polls without pause: ps_consumer_store, at most once every ms. */
void ps_consumer_store_sometimes(struct ps_consumer *consumer);
/* After messages were marked: a thread looks whether the revocation that waits for them can be answered. */
void ps_consumer_marked(struct ps_consumer *consumer);
/* Whether the group answers no request any more: closing has left it, or the time for closing is up. */
bool ps_consumer_left(const struct ps_consumer *consumer);
/* Owns `list`, offsets that the program has chosen. NULL: the committer commits the messages that are processed when it sends. 0: the
 * committer will send it, and pass the result to ps_consumer_commit_result. -1: the consumer is not open. Otherwise errno. */
int ps_consumer_commit_async(struct ps_consumer *consumer, rd_kafka_topic_partition_list_t *list);
/* Whether messages before these places, which were taken in `epoch`, are known to be committed, by any thread, and do not come again. */
bool ps_consumer_has_committed(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *places, uint64_t epoch);
/* The same of messages that were just marked, or whether the next commit includes them. Otherwise a poll returns them again. */
bool ps_consumer_keeps(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *places, uint64_t epoch);
bool ps_commit_is_stale(rd_kafka_event_t *answer); /* the member got a new epoch between request and answer */
/* A turn in the line of commits: the thread joins, waits until its turn has come (no earlier commit is in flight), sends, and leaves. */
void ps_commit_turn_join(struct ps_consumer *consumer, struct ps_commit_turn *turn);
bool ps_commit_turn_has_come(struct ps_consumer *consumer, struct ps_commit_turn *turn);
/* Sleeps until the turn may have come, or until `until_us`, or for some ms. */
void ps_commit_turn_sleep(struct ps_consumer *consumer, struct ps_commit_turn *turn, int64_t until_us);
void ps_commit_turn_leave(struct ps_consumer *consumer, struct ps_commit_turn *turn);
enum { PS_TURN_COMES_WITHIN_US = 5 * 1000 * 1000 }; /* how long a revocation or an assignment waits for its turn */

/* librdkafka has got new offsets: the committer commits them after auto.commit.interval.ms. Does nothing if the consumer is not open. */
void ps_async_commits_stored(struct ps_consumer *consumer);
void ps_async_commits_closing(struct ps_consumer *consumer); /* makes the committer and waiting jobs see that closing has begun */
/* Before partitions are unassigned: sends the queued commits, and repeats none of these partitions afterwards. Entered, or on the closing
 * thread. True: they include what librdkafka has stored. */
bool ps_async_commits_revoked(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *revoked);

/* ---- joining.c: what the member and its coordinator do -------------------------------------------------- */

/* Before rd_kafka_new. False: it has added no interceptor. */
bool ps_joining_watch(struct ps_consumer *consumer, rd_kafka_conf_t *conf);
bool ps_consumer_joins(const struct ps_consumer *consumer); /* a member with partitions joins its group again: no thread commits */
/* On librdkafka's threads, for each line of its log. True: the line was only for this file. */
bool ps_joining_log(struct ps_consumer *consumer, int level, const char *facility, const char *text);
/* A thread that may make the member join again holds this lock. */
void ps_joining_lock(struct ps_consumer *consumer);
void ps_joining_unlock(struct ps_consumer *consumer);
void ps_commit_cb(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *offsets, void *opaque); /* does nothing */
/* Sends a commit with rd_kafka_commit_queue. False: the member joins its group again, and nothing was sent. Blocks until librdkafka's
 * main thread has answered twice. */
bool ps_joining_commit(struct ps_consumer *consumer, rd_kafka_topic_partition_list_t *list, rd_kafka_queue_t *answers,
                       rd_kafka_resp_err_t *err);
/* The coordinator has rejected a commit because the member joined just then, or other members join. It can be sent again. */
bool ps_commit_refused(const struct ps_consumer *consumer, rd_kafka_resp_err_t err, int64_t sent_us);
/* Whether librdkafka would abort the process if it were destroyed now. */
bool ps_joining_aborts(const struct ps_consumer *consumer);
enum { PS_COMMIT_ATTEMPTS = 20, PS_COMMIT_PAUSE_US = 100 * 1000 }; /* of a commit that is repeated */

/* ---- consumer.c, continued: membership ---------------------------------------------------------------- */

enum { PS_MOST_MEMBER_ID = 512 };

struct ps_membership {
    struct ps_consumer *consumer;
    const char *state;                 /* see Penstock::Membership */
    int32_t generation;                /* -1: unknown */
    char member_id[PS_MOST_MEMBER_ID]; /* empty: none */
    bool failed;                       /* `problem` is why it could not join */
    struct ps_problem problem;
};

void ps_consumer_membership(struct ps_membership *membership); /* entered; asks librdkafka's main thread */

/* ---- consumer_jobs.c: its blocking calls -------------------------------------------------------------- */

/* The calls, and their arguments and results. */
enum ps_consumer_call {
    PS_CONSUMER_SUBSCRIBE, PS_CONSUMER_ASSIGN, PS_CONSUMER_ASSIGNMENT, PS_CONSUMER_COMMITTED,
    PS_CONSUMER_COMMIT,     /* offsets that the program has chosen */
    PS_CONSUMER_COMMIT_PROCESSED, /* messages that are processed when its turn comes, if ps_consumer_keeps says so */
    PS_CONSUMER_OFFSETS,    /* those of times (ms), RD_KAFKA_OFFSET_BEGINNING or RD_KAFKA_OFFSET_END; -1: no message so late */
    PS_CONSUMER_PARTITIONS, /* all partitions of topics */
    PS_CONSUMER_SEEK,
    PS_CONSUMER_SEEK_BACK,  /* a seek after which librdkafka commits the earlier offsets */
    PS_CONSUMER_REWIND,     /* a seek of the partitions that the consumer has held since `epoch` */
    PS_CONSUMER_PAUSE, PS_CONSUMER_RESUME,
    PS_CONSUMER_STARTS,     /* where partitions begin that the group has assigned: see starts.c */
    PS_CONSUMER_RESTART,    /* assigns partitions anew that librdkafka has not begun */
};

struct ps_consumer_job {
    struct ps_job job;
    struct ps_consumer *consumer;
    enum ps_consumer_call call;
    rd_kafka_topic_partition_list_t *list; /* argument or result; owned; may be NULL */
    rd_kafka_topic_partition_list_t *committed; /* of starts.c: the offsets that the group has committed; owned; NULL: no answer */
    int timeout_ms;
    uint64_t epoch;                        /* of a rewind: the result lacks partitions that were revoked since. Of a commit: see
                                            * PS_CONSUMER_COMMIT_PROCESSED */
    _Atomic bool done;                     /* `list` has the result */
    rd_kafka_resp_err_t err;
    char text[256];                        /* details of `err`; may be empty */
};

/* ---- ask.c: questions to brokers. On a job's thread --------------------------------------------------- */

bool ps_ask_goes_on(const struct ps_consumer_job *query); /* false: closing has begun, or the caller has stopped waiting */
/* Whether brokers may answer the same question later. */
bool ps_ask_passes(rd_kafka_resp_err_t err, const rd_kafka_topic_partition_list_t *list);
bool ps_ask_again(const struct ps_consumer_job *query, int64_t deadline_us); /* sleeps, if there is time and it goes on; else false */
bool ps_ask_has_answers(rd_kafka_t *rk); /* whether a broker has answered any request of this client */
/* The list has times, or RD_KAFKA_OFFSET_BEGINNING or _END. It gets the offsets, unless no broker answers. */
rd_kafka_resp_err_t ps_ask_offsets(struct ps_consumer_job *query, rd_kafka_topic_partition_list_t **list, int timeout_ms);
rd_kafka_resp_err_t ps_ask(struct ps_consumer_job *query); /* asks what `query->call` says, as a long call */

/* ---- starts.c: where partitions begin. On a job's thread ----------------------------------------------- */

/* Sets the offsets in the job's list. False: it asked, and meanwhile the caller has stopped waiting, or closing has begun. */
bool ps_starts_find(struct ps_consumer_job *query);

/* ---- commit_job.c: commits for which a caller waits. On the job's thread -------------------------------- */

rd_kafka_resp_err_t ps_commit_job_run(struct ps_consumer_job *query);
/* For a job that has joined the line of commits. False: see ps_ask_goes_on, or the time is up. */
bool ps_job_await_turn(struct ps_consumer_job *query, struct ps_commit_turn *turn, int64_t until_us);

/* ---- consumer_jobs.c, continued ------------------------------------------------------------------------ */

/* Starts a librdkafka call on its own thread. Owns `list`, even if it fails. NULL: not open, or no thread (errno). */
struct ps_consumer_job *ps_consumer_start(struct ps_consumer *consumer, enum ps_consumer_call call,
                                          rd_kafka_topic_partition_list_t *list, int timeout_ms, uint64_t epoch);
/* On the taking thread: starts the job that assigns partitions anew, when it is time. */
void ps_consumer_restart_if_due(struct ps_consumer *consumer);
void ps_consumer_end_restart(struct ps_consumer *consumer); /* on the closing thread */

/* ---- rebalance.c: from the group's event to the answer ------------------------------------------------- */

/* On the taking thread. Owns the event. */
void ps_consumer_begin_answer(struct ps_consumer *consumer, rd_kafka_event_t *event);
/* On the taking thread. Whether the pending rebalance must wait: for unmarked messages of its partitions, a commit in flight, or the
 * job that looks up start offsets. */
bool ps_consumer_holds_back(struct ps_consumer *consumer);
/* On the taking thread, after the listener: does what the group requires. Blocks while librdkafka's main thread answers, for about a
 * ms. `chosen`: NULL, or the offsets at which some of the assigned partitions begin. If the rebalance must wait now, a later call
 * answers, when ps_consumer_holds_back is false. It waits for nothing while closing. */
void ps_consumer_answer_locked(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *chosen);
/* The same, on the thread that has called the listener. Does nothing if the closing thread has answered. Entered. */
void ps_consumer_answer(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *chosen);
/* On the thread that has called the listener, instead of the answer: the next poll calls the listener again. Entered. */
void ps_consumer_answer_later(struct ps_consumer *consumer);
void ps_consumer_end_hold(struct ps_consumer *consumer); /* of settings.holds_always */
/* On the taking thread, or the closing thread: does what the event says, and answers. The caller destroys the event. */
void ps_consumer_change_assignment(struct ps_consumer *consumer, rd_kafka_event_t *event);

/* ---- take.c: how a poll takes messages ------------------------------------------------------------------- */

struct ps_taking { /* one call: what it may take, and what it has taken */
    struct ps_consumer *consumer;
    uint64_t owner;             /* see ledger.c */
    size_t max;                 /* messages */
    size_t most_bytes;          /* 0: no limit of its own */
    bool single;                /* `max` is 1, and the memory has no room for more */
    bool control_only;          /* takes no messages */
    bool ends;                  /* takes the ends of partitions, too */
    bool one_partition;         /* ends before a message of another partition */
    struct ps_fetched *fetched; /* NULL: nothing is taken yet */
    struct ps_problem *problem; /* NULL: none. The caller raises it, and frees it */
    bool unreceived;            /* the ledger says so, as other threads may run before the call returns: see ps_ledger_receive */
    size_t headers;
    int runs;                   /* of one partition's increasing offsets */
};

enum ps_taken {
    PS_TAKEN,          /* what there is, perhaps nothing */
    PS_TAKE_BLOCKS,    /* ps_take has to go on */
    PS_TAKE_LISTENER,  /* this thread has to call the listener of a rebalance, and then ps_consumer_answer or _answer_later */
    PS_TAKE_NO_MEMORY,
};

/* Both are entered. Neither waits for messages. */
enum ps_taken ps_take_now(struct ps_taking *taking); /* never blocks */
enum ps_taken ps_take(struct ps_taking *taking);     /* blocks while another thread takes, and while librdkafka answers */
size_t ps_taking_count(const struct ps_taking *taking);
bool ps_taking_has_result(const struct ps_taking *taking); /* messages, or ends of partitions */
/* On the taking thread: whether a poll would find something. */
bool ps_consumer_has_events(struct ps_consumer *consumer);
/* For ConsumerSet#wait. Returns whether a poll of this consumer may find something; if false, its bell rings later. Marks what `owner`
 * polled before, as another poll would. `worked_on`: other owners still work on their messages. Never blocks. */
bool ps_consumer_may_take(struct ps_consumer *consumer, uint64_t owner, bool *worked_on);
/* When a thread that waits for the bell has to look again, rung or not. */
int64_t ps_consumer_look_again_us(const struct ps_consumer *consumer);
/* Whether all these messages can still be marked, and the group has not taken their partitions away. */
bool ps_consumer_still_holds(struct ps_consumer *consumer, const struct ps_fetched *fetched);
bool ps_consumer_must_answer(struct ps_consumer *consumer); /* perhaps a rebalance waits for its answer. Blocks as ps_take */

/* ---- consumer_close.c --------------------------------------------------------------------------------- */

void ps_consumer_close(struct ps_client *client); /* on the closing thread */

/* ---- consumer_set.c: waits for any number of consumers ------------------------------------------------------ */

struct ps_set_consumer { /* one consumer in a set */
    struct ps_bell_member member;   /* first, so a pointer to one is a pointer to the other */
    struct ps_consumer *consumer;   /* retained; NULL: it has left the set */
    uintptr_t object;               /* the owner's: Ruby's Consumer */
    struct ps_set_consumer *next, *prev;
    struct ps_set_consumer *candidate_next, *candidate_prev;
    int64_t due_us;                 /* when the program has to poll it, if only to keep its membership */
    int64_t listed_us;              /* its place in set->consumers; never after due_us */
    bool candidate;                 /* it is in set->candidates */
    bool due;                       /* due_us has come, and no wait has returned it since */
    bool ready;                     /* the latest look found that a wait has to return it */
};

struct ps_consumer_set {            /* one thread at a time; see consumer_set.c */
    struct ps_bell_set bells;       /* any thread */
    unsigned generation;
    struct ps_set_consumer *consumers, *last;           /* ordered by listed_us */
    struct ps_set_consumer *candidates, *last_candidate; /* those that the next look has to look at */
    size_t size;
    bool woken;                     /* the wait ends now, or the next one at once */
};

enum ps_set_add { PS_SET_ADDED, PS_SET_HAS_IT, PS_SET_ANOTHER_HAS_IT, PS_SET_NO_MEMORY };

struct ps_consumer_set *ps_consumer_set_new(void); /* NULL: no memory */
void ps_consumer_set_free(struct ps_consumer_set *set);
enum ps_set_add ps_consumer_set_add(struct ps_consumer_set *set, struct ps_consumer *consumer, uintptr_t object);
struct ps_set_consumer *ps_consumer_set_find(struct ps_consumer_set *set, struct ps_consumer *consumer); /* NULL: it is not in it */
void ps_consumer_set_delete(struct ps_consumer_set *set, struct ps_set_consumer *one);
/* Returns how many of the candidates are `ready`. Read set->bells.bell.rings before. `owner`: see ps_consumer_may_take. */
size_t ps_consumer_set_look(struct ps_consumer_set *set, uint64_t owner, int64_t now_us);
int64_t ps_consumer_set_due_us(const struct ps_consumer_set *set); /* when to look again, rung or not */

#endif
