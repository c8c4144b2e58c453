/*
 * The native core: everything of Penstock that knows librdkafka and threads but not Ruby.
 *
 *   Ruby says what is wanted. C moves bytes between Ruby objects and librdkafka.
 *   One poller turns librdkafka's events into resolved handles and full mailboxes.
 *
 * Nothing below this directory includes ruby.h: it may be called from any thread, with or without the
 * GVL, never raises, and can be built and tested alone. Suffix `_cb`: called by a librdkafka thread, so
 * it only does atomics and one write(2) or futex(2), or rings a bell.
 *
 * Lock order, outermost first: poller.turn, then open.lock, then registry.lock or poller.lock, then librdkafka's own. topics.lock
 * and consumer.assigning may be held while calling librdkafka too. job.lock, bell.lock, log.lock, redaction.lock, refusal.lock,
 * mailbox.lock, events.lock, slot.lock and the office's (events.c) are leaves.
 */
#ifndef PENSTOCK_CORE_H
#define PENSTOCK_CORE_H

#include <librdkafka/rdkafka.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- platform.c: clock, fork, threads ------------------------------------------------------------- */

#define PS_FOREVER INT64_MAX /* a deadline that never comes */

int64_t ps_now_us(void);                     /* monotonic */
int64_t ps_about_now_us(void);               /* the same, some ms behind and several times cheaper */
int64_t ps_wall_clock_ms(void);              /* since the epoch, Kafka's timestamps */
int64_t ps_deadline_us(int64_t timeout_ms);  /* now + timeout; negative: PS_FOREVER */
int ps_remaining_ms(int64_t deadline_us);    /* rounded up, never negative, -1 for PS_FOREVER */

void ps_generation_init(void);
unsigned ps_generation(void); /* which process of a family of forks this is */

int ps_thread_start(const char *name, void *(*body)(void *), void *arg); /* detached; 0, or errno set too */

/* ---- text.c: text that others have written ------------------------------------------------------- */

enum ps_text_use {
    PS_TEXT_SHOWN, /* for people: control characters and marks of direction are escaped, as \n, \x1B or \u202E */
    PS_TEXT_NAME,  /* for programs: only made valid */
    PS_TEXT_JSON   /* made valid, and control characters in its Strings are escaped, which JSON demands */
};

/* Makes valid UTF-8 of any bytes; what is none becomes U+FFFD. Writes whole characters and a NUL behind them, as far as there is
 * room. How many bytes all of it has, as snprintf returns it; that is `size` for text that is clean. */
size_t ps_text_clean(char *out, size_t room, const char *text, size_t size, enum ps_text_use use);

/* ---- blocks.c: large blocks of memory, kept for a moment for whoever needs one next ----------------- */

void *ps_block_take(size_t size); /* not cleared; NULL: out of memory */
void ps_block_give(void *block);
size_t ps_block_size(const void *block); /* at least what was asked for */
void ps_blocks_sweep(void);       /* frees what has lain there since the last sweep */
void ps_blocks_end(void);         /* a poller stops: frees all, and keeps none until another has swept */
size_t ps_blocks_kept(void);      /* bytes, about */

/* ---- wakeup.c: wakes one thread that sleeps in poll(2) ------------------------------------------- */

struct ps_wakeup {
    int reader;
    int writer; /* the same eventfd on Linux, the other end of a pipe elsewhere */
};

int ps_wakeup_open(struct ps_wakeup *wakeup);
void ps_wakeup_close(struct ps_wakeup *wakeup);
void ps_wakeup_signal(struct ps_wakeup *wakeup);                       /* async-signal-safe */
bool ps_wakeup_wait(struct ps_wakeup *wakeup, int64_t deadline_us);    /* true: was signalled */
bool ps_wakeup_take(struct ps_wakeup *wakeup);                         /* the same, without waiting */

/* ---- word.c: threads that sleep until a word changes -------------------------------------------- */

bool ps_word_sleep(_Atomic uint32_t *word, uint32_t value, int64_t deadline_us); /* false: a signal came in between */
void ps_word_wake(_Atomic uint32_t *word);                                       /* everybody who sleeps on it */

/* ---- completion.c: "n things are pending", and who waits for them -------------------------------- */

struct ps_delivery;

/* One wait, zeroed before the first join. A thread's lives on its stack: unlinked before anything can unwind it. A
 * fiber's is counted (fibers.c). */
struct ps_waiter {
    struct ps_waiter *next, *prev;       /* in completion.waiters, under completion.lock */
    const struct ps_delivery *delivery;  /* what is waited for; NULL: the whole completion */
    _Atomic uint32_t state;
    struct ps_fibers *fibers;            /* retained; NULL: a thread's */
    _Atomic uint32_t *watch;             /* its client's, on which it sleeps instead of `state`; NULL: it keeps none */
    /* a fiber's only: */
    struct ps_waiter *woken_next;        /* in fibers->woken */
    _Atomic uint32_t refs;
    _Atomic bool woken;                  /* is in fibers->woken */
    _Atomic bool abandoned;              /* the fiber is gone for good, without having left */
};

enum { PS_WAITING, PS_INTERRUPTED, PS_DONE };

struct ps_completion {
    pthread_mutex_t *lock;       /* guards `waiters`; belongs to the client or the job */
    struct ps_client *client;    /* whose events settle it; NULL: nobody's */
    struct ps_waiter *waiters;
    _Atomic uint32_t pending;
    _Atomic bool waited;         /* someone is or was in `waiters`: settling must look */
};

void ps_completion_init(struct ps_completion *completion, pthread_mutex_t *lock, uint32_t pending);
bool ps_completion_settle(struct ps_completion *completion, uint32_t count); /* true: nothing left */
bool ps_completion_done(const struct ps_completion *completion);
void ps_completion_wake(struct ps_completion *completion); /* all who wait, with nothing settled */
void ps_completion_drop(struct ps_completion *completion); /* one that is never settled: nobody who lives waits any more */

bool ps_waiter_join(struct ps_waiter *waiter, struct ps_completion *completion,
                    const struct ps_delivery *delivery);    /* false: done already, not linked */
void ps_waiter_leave(struct ps_waiter *waiter, struct ps_completion *completion);
uint32_t ps_waiter_sleep(struct ps_waiter *waiter, int64_t deadline_us); /* the state it woke with */
void ps_waiter_interrupt(void *waiter);                     /* async-signal-safe */

/* ---- fibers.c: the waiting fibers of one scheduler -------------------------------------------------- */

struct ps_fibers { /* refs: of the scheduler, of each waiter */
    struct ps_wakeup wakeup;
    _Atomic(struct ps_waiter *) woken; /* whom to let go on; pushed by any thread */
    _Atomic bool forgotten;            /* nobody takes them any more */
    _Atomic uint32_t refs;
};

struct ps_fibers *ps_fibers_new(void); /* NULL: see errno */
void ps_fibers_unref(struct ps_fibers *fibers);
void ps_fibers_forget(struct ps_fibers *fibers); /* the same, for the scheduler's: nobody takes what is woken any more */
struct ps_waiter *ps_fibers_waiter(struct ps_fibers *fibers, size_t size); /* zeroed; first in a struct of that size; NULL: no memory */
void ps_waiter_unref(struct ps_waiter *waiter);
void ps_fibers_wake(struct ps_waiter *waiter);                    /* async-signal-safe */
struct ps_waiter *ps_fibers_take(struct ps_fibers *fibers);       /* all that were woken; the references go to the caller */

/* ---- bell.c: work may have come --------------------------------------------------------------------- */

/* Read `rings`, look whether there is work, and if not sleep until it is another: no ring in between is missed. */
struct ps_bell {
    _Atomic uint32_t rings;
    pthread_mutex_t lock; /* of the sleepers; a leaf */
    struct ps_completion sleepers;
};

void ps_bell_init(struct ps_bell *bell);
void ps_bell_destroy(struct ps_bell *bell);
void ps_bell_ring(struct ps_bell *bell);
void ps_bell_ring_cb(rd_kafka_t *rk, void *bell);

/* ---- job.c: a blocking librdkafka call on a native thread of its own ------------------------------ */

struct ps_job {
    struct ps_completion completion;
    pthread_mutex_t lock;
    _Atomic uint32_t refs;
    _Atomic bool abandoned; /* an asker has stopped waiting */
    void (*run)(struct ps_job *job);
    void (*release)(struct ps_job *job); /* frees the struct that embeds this one */
};

void ps_job_init(struct ps_job *job, void (*run)(struct ps_job *), void (*release)(struct ps_job *));
int ps_job_start(struct ps_job *job, const char *thread_name); /* 0 or errno; the thread owns a reference */
void ps_job_retain(struct ps_job *job);
void ps_job_unref(struct ps_job *job);
void ps_job_abandon(struct ps_job *job); /* says that the asker has stopped waiting, and unrefs */

/* ---- events.c: what happened, for listeners ------------------------------------------------------- */

enum ps_event_kind {
    PS_EVENT_DELIVERED = 1,
    PS_EVENT_FAILED = 2,
    PS_EVENT_ERROR = 4,
    PS_EVENT_STATISTICS = 8,
    PS_EVENT_CLOSED = 16, /* a client of the producer has ended; nobody is told of it */
};

enum { PS_EVENT_NAME_BUCKETS = 64 };

struct ps_event { /* the head of a ps_delivery, which then owns a reference to its batch, or of a ps_notice */
    struct ps_event *next;
    uint32_t kind;
    uint32_t label; /* which of the labels kept for listeners is its own; 0: it has none */
};

struct ps_name { /* of a topic; lives as long as the queue */
    struct ps_name *next;
    char text[];
};

struct ps_client;

struct ps_notice {
    struct ps_event event; /* first, so that one is the other */
    struct ps_client *client; /* retained */
    rd_kafka_resp_err_t err;
    bool fatal;
    size_t size;
    char text[]; /* the error's, or the statistics as JSON */
};

struct ps_events { /* refs: of the Ruby object, its clients, the office */
    _Atomic uint32_t refs;
    unsigned generation;
    uint64_t address;
    _Atomic uint32_t wanted; /* enum ps_event_kind, those that somebody listens to */
    _Atomic uint32_t open;   /* clients */
    _Atomic bool attached;   /* somebody wants to know when they end */
    uint32_t limit;
    bool drop_newest;        /* when it is full; else the oldest */
    pthread_mutex_t lock;
    struct ps_event *first, **last;
    _Atomic uint32_t size;
    _Atomic uint64_t queued, dropped;
    struct ps_name *names[PS_EVENT_NAME_BUCKETS]; /* under lock */
    uint32_t *released;                           /* under lock: labels that nobody needs any more */
    uint32_t released_count, released_capacity;
    /* The labels: Ruby's, opaque here. Changed under lock and by Ruby threads only, with the GVL of their Ractor and nothing
     * of Ruby's called meanwhile; so the GC, for which all Ractors stop, reads and moves them without. */
    uintptr_t *labels;
    uint32_t *unused_labels;                      /* their places */
    uint32_t label_count, label_capacity, unused_label_count;
    /* the office's, under its lock: */
    struct ps_events *office_next;
    bool ready, served;
    int64_t since_us;
};

struct ps_events *ps_events_new(uint32_t limit, bool drop_newest); /* NULL: no memory */
void ps_events_retain(struct ps_events *events);
void ps_events_unref(struct ps_events *events); /* may be NULL */
bool ps_events_wanted(const struct ps_events *events, uint32_t kinds);
void ps_events_append(struct ps_events *events, struct ps_event *first); /* owns all that are linked behind it */
void ps_events_error(struct ps_client *client, rd_kafka_resp_err_t err, const char *text, bool fatal);
void ps_events_statistics(struct ps_client *client, const char *json);
void ps_events_closed(struct ps_client *client);
struct ps_event *ps_events_take(struct ps_events *events); /* NULL: empty; else to be freed */
void ps_events_clear(struct ps_events *events);
void ps_event_free(struct ps_event *event);
const struct ps_name *ps_events_name(struct ps_events *events, const char *text); /* NULL: no memory */
void ps_events_release_label(struct ps_events *events, uint32_t label);
/* Any Ractor. Both drop what was released: where only failures are listened to, there may never be anything to take. */
uint32_t ps_events_keep_label(struct ps_events *events, uintptr_t label); /* its number; 0: no memory */
uintptr_t ps_events_take_label(struct ps_events *events, uint32_t number);
uint32_t ps_events_labels(struct ps_events *events); /* how many are kept */

struct ps_events_wait {
    int64_t deadline_us;
    uint32_t calls;            /* ps_events_calls() as it was: another number ends the wait */
    _Atomic bool interrupted;
    struct ps_events *found;   /* NULL: none; else it is the caller's until ps_events_done */
    unsigned idle;             /* others who wait */
};

void ps_events_next(struct ps_events_wait *wait);
void ps_events_interrupt(void *wait);  /* async-signal-safe */
void ps_events_done(uint64_t address, bool more);
void ps_events_discard(uint64_t address); /* of one that is served: nobody wants to know */
bool ps_events_busy(struct ps_events *events); /* something is queued or being told */
uint32_t ps_events_calls(void);
void ps_events_call_all(void);         /* out of their wait */

/* ---- delivery.c: messages on their way ----------------------------------------------------------- */

struct ps_batch;

struct ps_bytes { /* an owned copy of a String */
    size_t size;
    char data[];
};

/* One message's promise and verdict: librdkafka's per-message opaque. */
struct ps_delivery {
    struct ps_event event;            /* first; links those of one librdkafka event, then those that are to be told */
    struct ps_batch *batch;
    const struct ps_name *topic_name; /* its event's; NULL: nobody listened */
    struct ps_bytes *partition_key;   /* read by the partitioner on any thread; NULL if none */
    char *reason;                     /* why it failed, in the broker's or librdkafka's words; NULL if none */
    uintptr_t topic, label;           /* Ruby's, opaque here: only touched and marked by a DeliveryHandle */
    int64_t offset;
    int64_t timestamp;                /* ms since the epoch, -1 if unknown */
    int64_t latency_us;               /* until settled: when it was produced, by ps_now_us */
    int32_t partition;
    int16_t err;                      /* rd_kafka_resp_err_t */
    uint8_t status;                   /* rd_kafka_msg_status_t */
    uint8_t refused;                  /* enum ps_refused: err is for that */
    _Atomic uint16_t unnoticed;       /* the line of the log that counts it; 0: it was delivered, or its failure was noticed */
    _Atomic bool settled;             /* written last; the fields above are final once it is true */
};

/*
 * Messages that were handed over together and share one completion. References: one by all messages in
 * flight together, one by each DeliveryHandle, one by the call that made it.
 */
struct ps_batch {
    struct ps_completion completion;
    _Atomic uint32_t refs;
    uint32_t size;
    _Atomic uint32_t failed;  /* how many of those settled were not delivered */
    struct ps_client *client; /* retained */
    struct ps_delivery deliveries[];
};

struct ps_batch *ps_batch_new(struct ps_client *client, uint32_t size); /* NULL: out of memory */
void ps_batch_retain(struct ps_batch *batch);
void ps_batch_unref(struct ps_batch *batch);
void ps_batch_settle(struct ps_batch *batch, uint32_t count);
void ps_batch_never_sent(struct ps_batch *batch, uint32_t from, rd_kafka_resp_err_t err); /* settles [from, size) at once */
void ps_deliveries_settle(struct ps_client *client, rd_kafka_event_t *event); /* who serves; destroys event */
bool ps_delivery_settled(const struct ps_delivery *delivery);

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
    pthread_mutex_t lock;
    struct ps_topic **buckets;
    uint32_t bucket_count, count;
};

struct ps_topic *ps_client_topic(struct ps_client *client, const char *name, size_t length); /* NULL: see errno */
void ps_topics_destroy(struct ps_topics *topics);
bool ps_topic_name_valid(const char *name, size_t length);

enum ps_refused { /* see refusal.c */
    PS_NOT_REFUSED,
    PS_REFUSED_TLS,
    PS_REFUSED_AUTHENTICATION,
    PS_REFUSED_PROTOCOL,
    PS_UNREACHABLE, /* no broker can be reached */
};

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
    pthread_cond_t turn;
    uint64_t next, serving; /* tickets, under open.lock */
    /* only whose turn it is: */
    int state;
    bool failed;              /* librdkafka has said that the open one can only be aborted */
    uint64_t failures_before; /* messages that had failed or been purged when it began */
};

struct ps_transaction_error {
    rd_kafka_resp_err_t err; /* 0: none */
    bool fatal, retriable, abortable;
    enum ps_refused refused; /* err is for that */
    char text[512];
};

enum { PS_TRANSACTION_QUEUED, PS_TRANSACTION_RUNNING, PS_TRANSACTION_CANCELLED };

struct ps_transaction_job {
    struct ps_job job;
    struct ps_client *client;
    enum ps_transaction_call call;
    int64_t deadline_us;
    uint64_t ticket;
    _Atomic int stage;
    rd_kafka_topic_partition_list_t *offsets;  /* OFFSETS only: owned */
    rd_kafka_consumer_group_metadata_t *group; /* OFFSETS only: owned */
    struct ps_transaction_error error;
    bool committed; /* ABORT only: too late, an earlier commit has gone through */
};

void ps_transactions_init(struct ps_transactions *transactions);
void ps_transactions_destroy(struct ps_transactions *transactions);
/* timeout_ms < 0: transaction.timeout.ms, twice that for INIT. Owns `offsets` and `group` from here on, whatever becomes
 * of the call. NULL: not open, or no thread. */
struct ps_transaction_job *ps_transaction_start(struct ps_client *client, enum ps_transaction_call call,
                                                int64_t timeout_ms, rd_kafka_topic_partition_list_t *offsets,
                                                rd_kafka_consumer_group_metadata_t *group);
bool ps_transaction_cancel(struct ps_transaction_job *job); /* true: it has not begun and never will */
void ps_transaction_close(struct ps_client *client);        /* closing thread, when no call is in progress: may block */

rd_kafka_resp_err_t ps_client_fatal_error(struct ps_client *client, char *text, size_t size); /* 0: none, or not open */
rd_kafka_resp_err_t ps_client_test_fatal_error(struct ps_client *client, rd_kafka_resp_err_t err, const char *reason);

/* ---- connections.c: how many connections work, and since when none does ----------------------------- */

struct ps_connections { /* in the ps_open; written by librdkafka's broker threads */
    _Atomic uint32_t working;
    _Atomic uint32_t outages;     /* how often the last of them was lost */
    _Atomic int64_t tried_us;     /* the first attempt since then; 0: none */
    _Atomic int64_t handshake_us; /* since when a broker has not answered TLS's handshake; 0: none is being made */
    _Atomic uint32_t rejecting;   /* brokers that took a connection, and ended it before they answered a request */
};

void ps_connections_watch(struct ps_connections *connections, rd_kafka_conf_t *conf); /* before an rd_kafka_t is made of it */
void ps_connections_forget(struct ps_connections *connections); /* when the rd_kafka_t was destroyed, and another may be made */
bool ps_connections_none_for(const struct ps_connections *connections, int64_t time_us);
bool ps_connections_rejected(const struct ps_connections *connections); /* by some broker, of late; false: or not watched */
bool ps_connections_handshake_for(const struct ps_connections *connections, int64_t time_us);

/* ---- refusal.c: brokers that do not want this client or consumer, or cannot be reached --------------- */

struct ps_open_settings;

struct ps_purge { /* one or more in a row, for the same reason */
    int64_t at_us; /* the last of them; 0: there was none */
    int kind;      /* enum ps_refused; PS_NOT_REFUSED: the program asked for it */
    char text[512];
};

enum { PS_PURGES = 4 };

struct ps_refusal { /* in the ps_open */
    const struct ps_connections *connections;
    int64_t patience_us;        /* how long brokers may refuse; -1: for ever */
    int64_t unreachable_us;     /* a client's only: how long there may be no connection; 0: for ever */
    _Atomic int64_t due_us;     /* when to give up what waits for brokers; 0: not refused */
    _Atomic int kind;           /* enum ps_refused: of the latest refusal, with nothing better since */
    _Atomic int x509_error;     /* why the latest certificate was not accepted, until it is told; 0: none */
    _Atomic uint32_t given_up;  /* how often */
    _Atomic bool unreachable;   /* the latest error was another one, such as a connection that failed */
    _Atomic bool worked;        /* a broker has answered once: never given up any more */
    _Atomic int64_t again_us;   /* when to give up once more what no broker could be reached for */
    pthread_mutex_t lock;       /* of what follows; a leaf */
    char text[512];
    struct ps_purge purges[PS_PURGES]; /* a client's only: the latest, in order */
    unsigned latest_purge;
};

void ps_refusal_init(struct ps_refusal *refusal, const struct ps_connections *connections,
                     const struct ps_open_settings *settings);
void ps_refusal_destroy(struct ps_refusal *refusal);
/* Of each error; by who serves. True: it is a refusal, and counted as one. */
bool ps_refusal_error(struct ps_refusal *refusal, rd_kafka_t *rk, rd_kafka_resp_err_t err, const char *text);
void ps_refusal_forget(struct ps_refusal *refusal);      /* something has changed: the time counts anew */
bool ps_refusal_due(const struct ps_refusal *refusal, int64_t now);
bool ps_refusal_give_up(struct ps_refusal *refusal, rd_kafka_t *rk); /* when due; false: a broker has answered after all */
enum ps_refused ps_refusal_now(struct ps_refusal *refusal, char *text, size_t size); /* why, if it is refused just now */
bool ps_refusal_unreachable(const struct ps_refusal *refusal); /* for longer than it may be: what is sent fails at once */
void ps_refusal_unreachable_text(const struct ps_refusal *refusal, char *text, size_t size);
void ps_refusal_purges(struct ps_refusal *refusal, enum ps_refused kind); /* before each purge of a client's messages */
rd_kafka_resp_err_t ps_refusal_code(enum ps_refused kind);
int ps_certificate_cb(rd_kafka_t *rk, const char *broker_name, int32_t broker_id, int *x509_error, int depth,
                      const char *certificate, size_t size, char *errstr, size_t errstr_size, void *open);
/* A client's: */
void ps_refusal_act(struct ps_client *client);                                       /* who serves, when it is due */
/* Why we have purged this message; PS_NOT_REFUSED: we have not. */
enum ps_refused ps_refusal_verdict(struct ps_client *client, rd_kafka_resp_err_t err, int64_t produced_us, char *text, size_t size);

/* ---- login.c: tokens that expire, and passwords that change ------------------------------------------ */

struct ps_tokens { /* in the ps_open */
    struct ps_bell bell;     /* rung when one is wanted, and when none ever will be */
    rd_kafka_queue_t *queue; /* where librdkafka asks for one; NULL: it does not */
    _Atomic bool shut;
};

struct ps_open;

void ps_tokens_enable(rd_kafka_conf_t *conf, bool provided);      /* before an rd_kafka_t is made of it */
void ps_tokens_begin(struct ps_tokens *tokens, rd_kafka_t *rk);   /* when it was made; who opens it rings when that is done */
bool ps_tokens_wanted(struct ps_open *open);                      /* since this was asked last; never blocks */
/* Like the owner's enter, also while it is closing and may yet log in. NULL: it is not open; else leave it again. */
rd_kafka_t *ps_tokens_enter(struct ps_open *open);
void ps_tokens_shut(struct ps_tokens *tokens);                    /* closing thread, before it waits for those who have entered */
void ps_tokens_end(struct ps_tokens *tokens);                     /* and after that, before the rd_kafka_t is destroyed */
/* From the next login on; any thread. False: see errstr. */
bool ps_set_credentials(struct ps_open *open, const char *user, const char *password, char *errstr, size_t size);

/* ---- log.c: what a client has to say ----------------------------------------------------------------- */

enum { PS_LOG_KINDS = 16, PS_LOG_PROBLEMS = 32 };

struct ps_log { /* in the client or consumer */
    pthread_mutex_t lock; /* of `kinds` and `problems`; a leaf */
    const char *name;
    uint64_t address;
    bool to_mailbox;      /* else to stderr */
    struct ps_log_kind {
        int64_t ends_us;  /* when the period ends in which these were counted */
        unsigned lines, left_out;
        int level;
        char facility[32];
    } kinds[PS_LOG_KINDS];
    struct ps_log_problem {
        uint32_t hash;
        int64_t until_us; /* until when it is not logged again; 0: there is none here */
        unsigned left_out;
        int level;
        char facility[32];
    } problems[PS_LOG_PROBLEMS];
};

void ps_log_init(struct ps_log *log, const char *name, uint64_t address, bool to_mailbox);
void ps_log_destroy(struct ps_log *log);
void ps_log_line(struct ps_log *log, int level, const char *facility, const char *text); /* unless there were too many */
/* What librdkafka writes into its log, and reports as an error: often the same. `outage`: a problem of another one is another. */
void ps_log_librdkafka(struct ps_log *log, uint32_t outage, int level, const char *facility, const char *text);
bool ps_log_error(struct ps_log *log, uint32_t outage, int level, rd_kafka_resp_err_t err, const char *text); /* false: it was there */
void ps_log_end(struct ps_log *log);                                                     /* says what was left out */

/* ---- redact.c: keeps a client's secrets out of texts that others wrote ---------------------------------- */

enum { PS_SECRETS_GIVEN = 4, PS_SECRETS = 32 };

struct ps_redaction { /* in the client or consumer */
    pthread_mutex_t lock;     /* a leaf */
    char *words[PS_SECRETS];  /* the first PS_SECRETS_GIVEN were given since it was configured */
    size_t next;              /* which of those is the oldest */
};

bool ps_secret_setting(const char *name);              /* nobody may see its value */
bool ps_secret_text(const char *text, size_t size);    /* nor this one, whatever setting it is in: a PEM */
void ps_redaction_init(struct ps_redaction *redaction);
void ps_redaction_destroy(struct ps_redaction *redaction);
void ps_redaction_of_conf(struct ps_redaction *redaction, rd_kafka_conf_t *conf); /* its secret settings */
void ps_redaction_add(struct ps_redaction *redaction, const char *secret);        /* a password or token given since */
void ps_redact(struct ps_redaction *redaction, char *text);                       /* in place: it becomes no longer */

/* ---- open.c: what producing clients and consumers have in common -------------------------------------- */

enum ps_state {
    PS_NEW,     /* configured; no thread, no connection yet */
    PS_OPEN,
    PS_CLOSING, /* takes no new work; finishing, destroying */
    PS_CLOSED,
};

struct ps_open_settings {
    int64_t close_timeout_ms; /* when it is dropped without close, and at the end of the process */
    int64_t refusal_us;       /* how long brokers may refuse it before who waits is told; -1: for ever */
    int64_t unreachable_us;   /* how long no broker may be reached before messages fail; 0: for ever */
    bool logs_to_mailbox;     /* else librdkafka's log goes to stderr */
    bool token_provider;      /* somebody brings tokens to log in with */
};

struct ps_open { /* first in a ps_client or ps_consumer, so that one is the other */
    struct ps_open *next, *prev; /* in the registry, while it is open */
    const struct ps_open_kind *kind;
    const struct ps_open_settings *settings;
    _Atomic uint32_t refs;
    unsigned generation;
    uint64_t address;            /* of its mail */
    _Atomic int state;           /* enum ps_state */
    _Atomic uint32_t calls;      /* calls into librdkafka in progress */
    _Atomic uint32_t long_calls; /* those that closing has to go on beside: a consumer's that wait for brokers, and logins */
    rd_kafka_t *rk;
    _Atomic int64_t close_by_us; /* when closing gives up delivering, or leaving its group; 0: not closing */
    pthread_mutex_t lock;        /* state changes, waiters of batches and of space, last_error, close_job, turns */
    pthread_cond_t calls_ended;
    rd_kafka_conf_t *conf;       /* a template; each rd_kafka_t gets a copy */
    struct ps_job *close_job;
    _Atomic(const char *) closed_because; /* nobody is there to read what became of it; NULL: somebody is */
    char *name, *brokers;
    char last_error[512];
    struct ps_log log;
    struct ps_connections connections;
    struct ps_redaction redaction;
    struct ps_refusal refusal;
    struct ps_tokens tokens;
    bool wasted_conf;            /* lock held: see open.c */
};

struct ps_open_kind {
    rd_kafka_type_t type;
    void (*intercept)(struct ps_open *open, rd_kafka_conf_t *conf);               /* adds interceptors; may be NULL */
    int (*begin)(struct ps_open *open, char *errstr, size_t errstr_size);         /* lock held, rk made; -1: see errstr */
    uint64_t (*pending)(const struct ps_open *open);                              /* messages without a verdict */
    void (*closing)(struct ps_open *open); /* lock held: closing begins; may be NULL */
    void (*close)(struct ps_open *open);   /* closing thread: all that is to be done before the state is CLOSED */
    void (*closed)(struct ps_open *open);  /* closing thread, after that; may be NULL */
    void (*dispose)(struct ps_open *open); /* with the last reference: of what is its own */
};

void ps_open_init(struct ps_open *open, const struct ps_open_kind *kind, rd_kafka_conf_t *conf, const char *name,
                  const struct ps_open_settings *settings); /* owns conf */
void ps_open_retain(struct ps_open *open);
void ps_open_unref(struct ps_open *open);
bool ps_open_inherited(const struct ps_open *open);                   /* made before a fork: librdkafka must not see it */
void ps_open_set_brokers(struct ps_open *open, const char *brokers);  /* before it is opened */
/* Blocks for some ms at the first call (threads are made, certificates read). 0, or -1 with `errstr`. */
int ps_open_once(struct ps_open *open, char *errstr, size_t errstr_size);

/* Every use of `rk` stands between these two. Enter is false when it is not open. */
bool ps_open_enter(struct ps_open *open);
void ps_open_exit(struct ps_open *open);
/* The same for a long call; who enters looks at the state. */
void ps_open_enter_long(struct ps_open *open);
void ps_open_exit_long(struct ps_open *open);
void ps_open_await_calls(struct ps_open *open); /* closing thread */
void ps_open_await_long_calls(struct ps_open *open);

void ps_open_note_error(struct ps_open *open, rd_kafka_resp_err_t err, const char *text);
void ps_open_last_error(struct ps_open *open, char *text, size_t size);
void ps_open_log(struct ps_open *open, int level, const char *facility, const char *text);
void ps_open_log_librdkafka(struct ps_open *open, int level, const char *facility, const char *text);
bool ps_open_log_error(struct ps_open *open, int level, rd_kafka_resp_err_t err, const char *text);
/* The first fatal error, whose text librdkafka keeps, without secrets; between enter and exit. */
rd_kafka_resp_err_t ps_open_fatal_error(struct ps_open *open, char *text, size_t size);
void ps_open_quote(struct ps_open *open, char *copy, size_t size, const char *text); /* a copy of what others wrote, without secrets */

struct ps_close_job {
    struct ps_job job;
    struct ps_open *open;
};

/* Starts closing unless it has been. Returns the job to wait for, retained. NULL: there is nothing to do, or, when it
 * is still open then, no thread to do it (errno). Reason: why nobody is there to hear what was lost by it, or NULL. */
struct ps_job *ps_open_close(struct ps_open *open, int64_t timeout_ms, const char *reason);

/* At the end of the process: like ps_open_close. A closing that goes on already gets no more time than one that begins now,
 * and its caller cannot read its report any more. */
struct ps_job *ps_open_end(struct ps_open *open);
void ps_open_hurry(struct ps_open *open, int64_t deadline_us); /* of a closing that goes on; never makes it later */
void ps_open_abandon(struct ps_open *open);                    /* dfree: never blocks */

/* ---- requests.c: how often messages had to be sent --------------------------------------------------- */

void ps_requests_count(struct ps_client *client, rd_kafka_conf_t *conf); /* before an rd_kafka_t is made of it */

/* ---- client.c: a producing rd_kafka_t ------------------------------------------------------------------ */

struct ps_client_settings {
    struct ps_open_settings open;
    int64_t max_time_us;      /* poller: longest drain in one turn */
    int64_t sweep_us;         /* poller: looked at at least this often, wake-up or not */
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

struct ps_unnoticed { /* unnoticed.c's; under open.lock */
    uint64_t total;
    uint32_t unlogged;
    uint16_t line;           /* the next line's number, from 1 to 65535, and again */
    int16_t first_err;       /* of those unlogged */
    char first_topic[PS_TOPIC_SIZE];
    int64_t logged_us;
    _Atomic int64_t due_us;  /* when the next line is; 0: none */
};

struct ps_client {
    struct ps_open open;

    /* poller.c's: see there */
    struct ps_client *ready_next;
    struct ps_client *run_next;
    struct ps_client *leaving_next;
    struct ps_client *next, *prev;   /* poller->clients, under poller->lock */
    _Atomic bool ready;              /* is in the stack */
    _Atomic bool served;             /* somebody takes events from `queue`: the poller, or who has borrowed the client */
    _Atomic bool passed_over;        /* somebody else came by meanwhile */
    _Atomic bool deaf;               /* its callback is no longer called: it leaves the poller, which then looks once more */
    _Atomic uint32_t watch;          /* watch.c's: see there */
    bool in_run, left;
    int64_t visited_us;

    struct ps_completion space;      /* never settled: who waits for room in librdkafka's queue */
    rd_kafka_queue_t *queue;
    struct ps_poller *poller;        /* retained */
    struct ps_events *events;        /* retained; NULL: nobody can listen */
    struct ps_topics topics;
    struct ps_transactions transactions;
    struct ps_close_counts before_close; /* the counters when closing began */
    struct ps_unnoticed unnoticed;
    struct ps_client_settings settings;

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

struct ps_client *ps_client_new(rd_kafka_conf_t *conf, const char *name, struct ps_poller *poller,
                                const struct ps_client_settings *settings); /* owns conf; NULL: no memory */
void ps_client_set_events(struct ps_client *client, struct ps_events *events); /* the same */
uint64_t ps_client_in_flight(const struct ps_client *client);
extern const struct ps_open_kind ps_client_kind;

/* ---- slot.c: a producer's client of the moment, for all Ractors ------------------------------------ */

struct ps_terms { /* on which a client takes messages */
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
    struct ps_client *client;  /* retained; NULL: there is none */
    struct ps_terms terms;     /* the latest client's */
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
void ps_slot_put(struct ps_slot *slot, struct ps_client *client, const struct ps_terms *terms); /* NULL: takes out */
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
enum ps_slot_state ps_slot_enter(struct ps_slot *slot, struct ps_terms *terms, char *why, size_t why_size);
struct ps_client *ps_slot_take(struct ps_slot *slot); /* retained for the caller; NULL: there is none, or none may be had */
/* Whether there is another client than the one at `failed` (0: any that can go on). False: not yet; then `question` is
 * what to look for in `answered`, asked at the first call (0). */
bool ps_slot_renewed(struct ps_slot *slot, uint64_t failed, uint64_t *question, bool *answered);
/* Then whoever waited for another client would wait for itself. */
bool ps_slot_changed_by(struct ps_slot *slot, uint64_t thread);
void ps_slot_trouble(struct ps_slot *slot, char *text, size_t size); /* "": none */

/* ---- unnoticed.c: failed messages that the program has not noticed ----------------------------------- */

/* With open.lock, before it is settled; topic: NULL, if not known. */
void ps_unnoticed_add(struct ps_delivery *delivery, const char *topic);
void ps_unnoticed_read(const struct ps_delivery *delivery);             /* the program has read why it failed */
void ps_unnoticed_read_all(const struct ps_batch *batch);
bool ps_unnoticed_due(const struct ps_client *client, int64_t now);
void ps_unnoticed_log(struct ps_client *client);
uint64_t ps_unnoticed_count(struct ps_client *client);

/* ---- close.c: flush, purge, leave the poller, destroy; and the same for all clients at exit ------- */

enum { PS_PURGE_ALL = RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT };

/* Of the ps_client_kind: */
void ps_client_closing(struct ps_open *open);
void ps_client_close(struct ps_open *open);
void ps_client_closed(struct ps_open *open);
void ps_client_close_counts(struct ps_client *client, struct ps_close_counts *counts);

struct ps_flush_job {
    struct ps_job job;
    struct ps_client *client;
    int64_t deadline_us;
    bool flushed; /* else the time was up, or the client was closed first */
};

bool ps_client_await_verdicts(struct ps_client *client, int64_t deadline_us); /* false: the deadline came first */
struct ps_flush_job *ps_client_flush(struct ps_client *client, int64_t timeout_ms); /* NULL: not open, or no thread */

/* Everything in flight gets its verdict. Until the job is done, so may what is produced meanwhile. NULL: not open, or no
 * thread; then what is in flight gets its verdict all the same. */
struct ps_job *ps_client_purge(struct ps_client *client);

/* ---- metadata.c: how many partitions has a topic, which brokers has the cluster? ----------------- */

struct ps_metadata_job {
    struct ps_job job;
    struct ps_client *client;
    struct ps_topic *topic;
    int timeout_ms;
    rd_kafka_resp_err_t err;
    int32_t partition_count; /* -1: no such topic */
};

/* NULL: not open, no such topic name, or no thread. */
struct ps_metadata_job *ps_client_metadata(struct ps_client *client, const char *topic, size_t length, int timeout_ms);
/* 0: not known, or longer ago than max_age_us. */
int32_t ps_client_known_partitions(struct ps_client *client, const char *topic, size_t length, int64_t max_age_us);
bool ps_client_asked_lately(struct ps_client *client, const char *topic, size_t length); /* whether or not there was an answer */

struct ps_brokers_job {
    struct ps_job job;
    struct ps_client *client;
    int timeout_ms;
    rd_kafka_resp_err_t err;
    const struct rd_kafka_metadata *metadata; /* its brokers as they advertise themselves, and no topics; NULL after an error */
    char *cluster_id;                         /* NULL: not known */
    int32_t controller_id;                    /* -1: not known */
};

struct ps_brokers_job *ps_client_brokers(struct ps_client *client, int timeout_ms); /* NULL: not open, or no thread */

/* ---- consumer.c: a consuming rd_kafka_t --------------------------------------------------------------- */

struct ps_consumer_settings {
    struct ps_open_settings open;
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
    struct ps_open open;
    struct ps_bell bell;       /* rung when there may be something to take, and when closing begins */
    _Atomic int fatal;         /* rd_kafka_resp_err_t: it can consume nothing more */
    rd_kafka_queue_t *queue;   /* messages, rebalances, and errors of those */
    rd_kafka_queue_t *notices; /* librdkafka's main queue: errors of connections */
    _Atomic bool noticed;      /* there may be something in `notices` */
    pthread_mutex_t assigning; /* held while librdkafka's main thread is waited for */
    rd_kafka_event_t *held;    /* is yet to be served, such as for ending a batch: who takes, one at a time */
    struct ps_damaged damaged; /* the same, before `held` */
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

/* ---- registry.c: what is open in this process ------------------------------------------------------ */

void ps_registry_add(struct ps_open *open);
void ps_registry_remove(struct ps_open *open);
unsigned ps_registry_count(void);
int64_t ps_registry_close_by_us(void); /* the latest close_by_us of all; 0: nothing is closing */
void ps_registry_hurry(void);          /* whatever is closing gives up its good manners now */

struct ps_closing { /* both retained */
    struct ps_open *open;
    struct ps_job *job;
};

/* Starts closing everything that is open; fills `closing` with at most `max` of them, whose job to wait for. */
unsigned ps_registry_close_all(struct ps_closing *closing, unsigned max);
/* Closing threads that still run: one may be about to free things after its client has left the registry. */
void ps_registry_closing(int change);
unsigned ps_registry_closing_count(void);

/* ---- poller.c: the one thread that serves every client, or the turns that others take ------------- */

struct ps_poller_stats {
    uint64_t clients, wakeups, drains, events, messages, slices_cut, sweeps, missed_wakeups, starts;
    double cpu_seconds; /* of the running thread; 0 when none runs */
    int thread_id;      /* the system's; 0 when none runs */
};

struct ps_poller {
    _Atomic(struct ps_client *) ready_head; /* clients with something to read; pushed by librdkafka's threads */
    struct ps_wakeup wakeup;
    _Atomic uint32_t refs;
    unsigned generation;
    unsigned number;
    bool driven; /* has a thread only while nobody else takes its turns; see ps_poller_call */

    pthread_mutex_t turn; /* held by whoever takes a turn; outside of `lock` */
    pthread_mutex_t lock;
    pthread_cond_t left;
    struct ps_client *clients; /* under lock */
    struct ps_client *leaving; /* under lock */
    _Atomic bool has_leaving;
    bool running;              /* under lock */
    pthread_t thread;
    int thread_id;
    unsigned callers;          /* under lock; driven: wait for what it does and cannot take turns themselves */
    bool deserted;             /* under lock; driven: what is in flight is left to a thread */
    _Atomic uintptr_t attended; /* driven: who waits for its wakeup and takes its turns; 0: nobody */

    struct ps_client *run_head, *run_tail; /* under turn: whom to visit next */
    _Atomic int64_t swept_us;
    _Atomic int64_t sweep_us;              /* shortest of its clients */
    _Atomic uint64_t count, wakeups, drains, events, messages, slices_cut, sweeps, missed_wakeups, starts;
};

struct ps_poller *ps_poller_new(unsigned number, bool driven); /* NULL: see errno */
void ps_poller_retain(struct ps_poller *poller);
void ps_poller_unref(struct ps_poller *poller);
int ps_poller_join(struct ps_poller *poller, struct ps_client *client);   /* starts the thread; 0 or errno */
void ps_poller_leave(struct ps_poller *poller, struct ps_client *client); /* blocks until the poller let go */
/*
 * A driven poller has no thread of its own: somebody attends to it, waits until its wakeup can be read, and drains. Who has
 * to wait for what it does and does not know that somebody does so calls for a thread, for as long as it waits. Nothing
 * happens for a poller that has its thread anyway.
 */
int ps_poller_call(struct ps_poller *poller);        /* 0 or errno */
void ps_poller_insist(struct ps_poller *poller);     /* the same, trying until there is a thread to be had: may block */
void ps_poller_dismiss(struct ps_poller *poller);
/* `who`: a number of the caller's, not 0. 0: nobody has attended, and `who` does from here on; else who does. */
uintptr_t ps_poller_attend(struct ps_poller *poller, uintptr_t who);
#define PS_ATTENDED_BY_USER 1
void ps_poller_desert(struct ps_poller *poller, uintptr_t who); /* `who` does no more: a thread does until nothing is in flight */
bool ps_poller_drain(struct ps_poller *poller);      /* one turn; true: there is more to do at once, and it can be read */
bool ps_poller_busy(struct ps_poller *poller);       /* messages are in flight */
int64_t ps_poller_next_sweep_us(struct ps_poller *poller); /* drain by then, whether or not it can be read */
void ps_poller_ready_cb(rd_kafka_t *rk, void *client);
void ps_poller_push(struct ps_client *client);       /* to be visited */
void ps_poller_mark_ready(struct ps_client *client); /* to be looked at by who keeps watch, else visited */
/* A thread that hands over much, or keeps watch, serves its own client; see poller.c. False: somebody is at it. */
bool ps_poller_borrow(struct ps_client *client);
bool ps_poller_claim(struct ps_client *client);      /* the same; who is at it will mark the client ready */
/* For a time slice, and no longer than the wait of `waiter`, which may be NULL, and its deadline. */
void ps_poller_serve(struct ps_client *client, const struct ps_waiter *waiter, int64_t deadline_us);
void ps_poller_hand_back(struct ps_client *client);
void ps_poller_stats(struct ps_poller *poller, struct ps_poller_stats *stats);

/* ---- watch.c: a waiting thread that serves its own client ------------------------------------------ */

bool ps_watch_begin(struct ps_client *client, struct ps_waiter *waiter); /* before it joins; false: it is not to */
void ps_watch_sleep(struct ps_client *client, struct ps_waiter *waiter, int64_t deadline_us); /* as ps_waiter_sleep */
void ps_watch_end(struct ps_client *client);                   /* before anything that may take its time, such as the GVL */
bool ps_watch_ring(struct ps_client *client);                  /* false: nobody keeps watch */
bool ps_watch_looks(const struct ps_client *client);           /* somebody keeps watch, and does not sleep */
void ps_watch_nudge(_Atomic uint32_t *watch);                  /* look at your wait; async-signal-safe */

/* ---- mailbox.c: what the core has to say to Ruby, until the dispatcher takes it -------------------- */

struct ps_mail {
    struct ps_mail *next;
    uint64_t address;   /* whose logger; see Penstock::Dispatcher */
    int level;          /* syslog's 0..7; -1: this address sends no more */
    size_t size;
    char text[];
};

#define PS_MAIL_LAST (-1)

uint64_t ps_mailbox_address(void); /* one that nobody has had */
bool ps_mailbox_post(uint64_t address, int level, const char *text); /* false: full or no memory, counted */
struct ps_mail *ps_mailbox_take(void);                               /* NULL: empty */
uint64_t ps_mailbox_dropped(void);                                   /* and sets it back to 0 */
/* Sleeps until there is mail, or until interrupted. */
void ps_mailbox_wait(void);
void ps_mailbox_interrupt(void *unused);

#endif
