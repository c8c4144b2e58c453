/* core/client: what producing and consuming clients share: their life, settings and log, what brokers reject, tokens, events, the poller. */
#ifndef PENSTOCK_CLIENT_H
#define PENSTOCK_CLIENT_H

#include "wait/wait.h"

/* ---- connections.c: how many connections work, and since when none does ----------------------------- */

struct ps_connections { /* in the ps_client; written by librdkafka's broker threads */
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

/* ---- rejection.c: brokers that do not want this client or consumer, or cannot be reached --------------- */

struct ps_client_settings;

enum ps_rejected { /* see rejection.c */
    PS_NOT_REJECTED,
    PS_REFUSED_TLS,
    PS_REFUSED_AUTHENTICATION,
    PS_REFUSED_PROTOCOL,
    PS_UNREACHABLE, /* no broker can be reached */
};

struct ps_purge { /* one or more in a row, for the same reason */
    int64_t at_us; /* the last of them; 0: there was none */
    int kind;      /* enum ps_rejected; PS_NOT_REJECTED: the program asked for it */
    char text[512];
};

enum { PS_PURGES = 4 };

struct ps_rejection { /* in the ps_client */
    const struct ps_connections *connections;
    int64_t rejection_timeout_us;        /* how long brokers may refuse; -1: for ever */
    int64_t unreachable_us;     /* a client's only: how long there may be no connection; 0: for ever */
    _Atomic int64_t due_us;     /* when to give up what waits for brokers; 0: not refused */
    _Atomic int kind;           /* enum ps_rejected: of the latest rejection, with nothing better since */
    _Atomic int x509_error;     /* why the latest certificate was not accepted, until it is told; 0: none */
    _Atomic uint32_t given_up;  /* how often */
    _Atomic bool unreachable;   /* the latest error was another one, such as a connection that failed */
    _Atomic bool worked;        /* a broker has answered once: never given up any more */
    _Atomic int64_t again_us;   /* when to give up once more what no broker could be reached for */
    pthread_mutex_t lock;       /* of what follows; a leaf */
    char text[512];
    struct ps_purge purges[PS_PURGES]; /* a producer's only: the latest, in order */
    unsigned latest_purge;
};

void ps_rejection_init(struct ps_rejection *rejection, const struct ps_connections *connections,
                     const struct ps_client_settings *settings);
void ps_rejection_destroy(struct ps_rejection *rejection);
/* Of each error; by who serves. True: it is a rejection, and counted as one. */
bool ps_rejection_error(struct ps_rejection *rejection, rd_kafka_t *rk, rd_kafka_resp_err_t err, const char *text);
void ps_rejection_forget(struct ps_rejection *rejection);      /* something has changed: the time counts anew */
bool ps_rejection_due(const struct ps_rejection *rejection, int64_t now);
bool ps_rejection_give_up(struct ps_rejection *rejection, rd_kafka_t *rk); /* when due; false: a broker has answered after all */
enum ps_rejected ps_rejection_now(struct ps_rejection *rejection, char *text, size_t size); /* why, if it is refused just now */
bool ps_rejection_unreachable(const struct ps_rejection *rejection); /* for longer than it may be: what is sent fails at once */
void ps_rejection_unreachable_text(const struct ps_rejection *rejection, char *text, size_t size);
rd_kafka_resp_err_t ps_rejection_code(enum ps_rejected kind);
int ps_certificate_cb(rd_kafka_t *rk, const char *broker_name, int32_t broker_id, int *x509_error, int depth,
                      const char *certificate, size_t size, char *errstr, size_t errstr_size, void *client);
/* To give up just now, if anything: brokers that refuse say more than that none can be reached. */
enum ps_rejected ps_rejection_reason(struct ps_rejection *rejection, rd_kafka_t *rk, int64_t now);
/* Why we have purged the message that was produced then; PS_NOT_REJECTED: we have not. */
enum ps_rejected ps_rejection_purged_for(struct ps_rejection *rejection, int64_t produced_us, char *text, size_t size);
void ps_rejection_purges(struct ps_rejection *rejection, enum ps_rejected kind); /* before each purge of a producer's messages */

/* ---- credentials.c: tokens that expire, and passwords that change ------------------------------------------ */

struct ps_tokens { /* in the ps_client */
    struct ps_bell bell;     /* rung when one is wanted, and when none ever will be */
    rd_kafka_queue_t *queue; /* where librdkafka asks for one; NULL: it does not */
    _Atomic bool shut;
};

struct ps_client;

void ps_tokens_enable(rd_kafka_conf_t *conf, bool provided);      /* before an rd_kafka_t is made of it */
void ps_tokens_begin(struct ps_tokens *tokens, rd_kafka_t *rk);   /* when it was made; who opens it rings when that is done */
bool ps_tokens_wanted(struct ps_client *client);                      /* since this was asked last; never blocks */
/* Like the owner's enter, also while it is closing and may yet log in. NULL: it is not open, or not yet; else leave it again. */
rd_kafka_t *ps_tokens_enter(struct ps_client *client);
void ps_tokens_shut(struct ps_tokens *tokens);                    /* closing thread, before it waits for those who have entered */
void ps_tokens_end(struct ps_tokens *tokens);                     /* and after that, before the rd_kafka_t is destroyed */
/* From the next login on; any thread. False: see errstr; when the client is being opened, errstr stays empty, and the caller sets
 * them again afterwards, as they may have come too late. */
bool ps_set_credentials(struct ps_client *client, const char *user, const char *password, char *errstr, size_t size);

/* ---- client.c: what producing clients and consumers have in common -------------------------------------- */

enum ps_state {
    PS_NEW,     /* configured; no thread, no connection yet */
    PS_OPEN,
    PS_CLOSING, /* takes no new work; finishing, destroying */
    PS_CLOSED,
};

struct ps_client_settings {
    int64_t close_timeout_ms; /* when it is dropped without close, and at the end of the process */
    int64_t rejection_us;       /* how long brokers may refuse it before who waits is told; -1: for ever */
    int64_t unreachable_us;   /* how long no broker may be reached before messages fail; 0: for ever */
    bool logs_to_mailbox;     /* else librdkafka's log goes to stderr */
    bool token_provider;      /* somebody brings tokens to log in with */
};

struct ps_client { /* first in a ps_producer or ps_consumer, so that one is the other */
    struct ps_client *next, *prev; /* in the registry, while it is open */
    const struct ps_client_kind *kind;
    const struct ps_client_settings *settings;
    _Atomic uint32_t refs;
    unsigned generation;
    uint64_t address;            /* of its mail */
    _Atomic int state;           /* enum ps_state */
    _Atomic uint32_t calls;      /* calls into librdkafka in progress */
    _Atomic uint32_t long_calls; /* those that closing has to go on beside: a consumer's that wait for brokers, and logins */
    rd_kafka_t *rk;
    _Atomic int64_t close_by_us; /* when closing gives up delivering, or leaving its group; 0: not closing */
    pthread_mutex_t lock;        /* state changes, waiters of batches, last_error, close_job, turns */
    _Atomic uint32_t opening;    /* 1: a thread is in ps_client_open; the state is PS_NEW until it is done */
    bool abandoned;              /* lock held: nobody wants it any more, which the opening thread sees to */
    rd_kafka_conf_t *conf;       /* a template; each rd_kafka_t gets a copy */
    struct ps_job *close_job;
    _Atomic(const char *) closed_because; /* nobody is there to read what became of it; NULL: somebody is */
    char *name, *brokers;
    char last_error[512];
    struct ps_log log;
    struct ps_connections connections;
    struct ps_redaction redaction;
    struct ps_rejection rejection;
    struct ps_tokens tokens;
    bool conf_leaked;            /* the opening thread's: see client.c */
};

struct ps_client_kind {
    rd_kafka_type_t type;
    void (*intercept)(struct ps_client *client, rd_kafka_conf_t *conf);               /* adds interceptors; may be NULL */
    int (*begin)(struct ps_client *client, char *errstr, size_t errstr_size);         /* opening, rk made; -1: see errstr */
    uint64_t (*pending)(const struct ps_client *client);                              /* messages without a verdict */
    void (*closing)(struct ps_client *client); /* lock held: closing begins; may be NULL */
    void (*close)(struct ps_client *client);   /* closing thread: all that is to be done before the state is CLOSED */
    void (*closed)(struct ps_client *client);  /* closing thread, after that; may be NULL */
    void (*dispose)(struct ps_client *client); /* with the last reference: of what is its own */
};

void ps_client_init(struct ps_client *client, const struct ps_client_kind *kind, rd_kafka_conf_t *conf, const char *name,
                  const struct ps_client_settings *settings); /* owns conf */
void ps_client_retain(struct ps_client *client);
void ps_client_unref(struct ps_client *client);
bool ps_client_inherited(const struct ps_client *client);                   /* made before a fork: librdkafka must not see it */
void ps_client_set_brokers(struct ps_client *client, const char *brokers);  /* before it is opened */
/* Blocks for some ms at the first call (threads are made, certificates read). 0, or -1 with `errstr`. */
int ps_client_open(struct ps_client *client, char *errstr, size_t errstr_size);
bool ps_client_opening(const struct ps_client *client); /* tokens.bell is rung when that is over */

/* Every use of `rk` stands between these two. Enter is false when it is not open. */
bool ps_client_enter(struct ps_client *client);
void ps_client_exit(struct ps_client *client);
/* The same for a long call; who enters looks at the state. */
void ps_client_enter_long(struct ps_client *client);
void ps_client_exit_long(struct ps_client *client);
void ps_client_await_calls(struct ps_client *client); /* closing thread */
void ps_client_await_long_calls(struct ps_client *client);

void ps_client_note_error(struct ps_client *client, rd_kafka_resp_err_t err, const char *text);
void ps_client_last_error(struct ps_client *client, char *text, size_t size);
void ps_client_log(struct ps_client *client, int level, const char *facility, const char *text);
void ps_client_log_librdkafka(struct ps_client *client, int level, const char *facility, const char *text);
bool ps_client_log_error(struct ps_client *client, int level, rd_kafka_resp_err_t err, const char *text);
/* The first fatal error, whose text librdkafka keeps, without secrets; between enter and exit. */
rd_kafka_resp_err_t ps_client_fatal_error(struct ps_client *client, char *text, size_t size);
void ps_client_quote(struct ps_client *client, char *copy, size_t size, const char *text); /* a copy of what others wrote, without secrets */

struct ps_close_job {
    struct ps_job job;
    struct ps_client *client;
};

/* Starts closing unless it has been, and waits for a thread that is opening it. Returns the job to wait for, retained. NULL: there is nothing to do, or, when it
 * is still open then, no thread to do it (errno). Reason: why nobody is there to hear what was lost by it, or NULL. */
struct ps_job *ps_client_close(struct ps_client *client, int64_t timeout_ms, const char *reason);

/* At the end of the process: like ps_client_close. A closing that goes on already gets no more time than one that begins now,
 * and its caller cannot read its report any more. */
struct ps_job *ps_client_end(struct ps_client *client);
void ps_client_hurry(struct ps_client *client, int64_t deadline_us); /* of a closing that goes on; never makes it later */
void ps_client_abandon(struct ps_client *client);                    /* dfree: never blocks */

/* ---- poller.c: the one thread that serves every client --------------------------------------------- */

struct ps_polled;

struct ps_polled_kind { /* the poller's thread calls these, or a thread that has borrowed the client */
    void (*handle)(struct ps_polled *polled, rd_kafka_event_t *event);      /* destroys the event */
    bool (*work_due)(const struct ps_polled *polled, int64_t now);          /* there is more to do than events */
    void (*work)(struct ps_polled *polled, int64_t now);
};

struct ps_polled { /* in a client: what the poller serves it by */
    const struct ps_polled_kind *kind;
    struct ps_client *client;
    struct ps_poller *poller;        /* retained */
    rd_kafka_queue_t *queue;         /* while it is open */
    int64_t max_time_us;             /* longest drain in one turn */
    int64_t sweep_us;                /* looked at at least this often, wake-up or not */
    struct ps_polled *ready_next;
    struct ps_polled *run_next;
    struct ps_polled *leaving_next;
    struct ps_polled *next, *prev;   /* poller->clients, under poller->lock */
    _Atomic bool ready;              /* is in the stack */
    _Atomic bool served;             /* the poller, or a thread that has borrowed the client, takes events from `queue` */
    _Atomic bool retry_requested;    /* another thread was turned away meanwhile */
    _Atomic bool callback_disabled;  /* it leaves the poller, which then looks once more */
    _Atomic uint32_t watch;          /* watch.c's: see there */
    _Atomic uint32_t left;           /* 1: the poller has let go of it, and its owner may free it */
    bool in_run;
    int64_t visited_us;
};

struct ps_poller_stats {
    uint64_t clients, wakeups, drains, events, messages, slices_cut, sweeps, missed_wakeups, starts;
    double cpu_seconds; /* of the running thread; 0 when none runs */
    int thread_id;      /* the system's; 0 when none runs */
};

struct ps_poller {
    _Atomic(struct ps_polled *) ready_head; /* clients with something to read; pushed by librdkafka's threads */
    struct ps_wakeup wakeup;
    _Atomic uint32_t refs;
    unsigned generation;
    unsigned number;

    pthread_mutex_t lock;
    struct ps_polled *clients; /* under lock */
    struct ps_polled *leaving; /* under lock */
    _Atomic bool has_leaving;
    bool running;              /* under lock */
    pthread_t thread;
    int thread_id;

    struct ps_polled *run_head, *run_tail; /* its thread's: whom to visit next */
    int64_t swept_us;                      /* its thread's */
    _Atomic int64_t sweep_us;              /* shortest of its clients */
    _Atomic uint64_t count, wakeups, drains, events, messages, slices_cut, sweeps, missed_wakeups, starts;
};

struct ps_poller *ps_poller_new(unsigned number); /* NULL: see errno */
void ps_poller_retain(struct ps_poller *poller);
void ps_poller_unref(struct ps_poller *poller);
int ps_poller_join(struct ps_poller *poller, struct ps_polled *polled);   /* starts the thread; 0 or errno */
void ps_poller_leave(struct ps_poller *poller, struct ps_polled *polled); /* blocks until the poller let go */
void ps_poller_ready_cb(rd_kafka_t *rk, void *polled);
void ps_poller_push(struct ps_polled *polled);       /* to be visited */
void ps_poller_mark_ready(struct ps_polled *polled); /* to be looked at by the watching thread, else visited */
/* A thread that hands over much, or keeps watch, serves its own client; see poller.c. False: somebody is at it. */
bool ps_poller_borrow(struct ps_polled *polled);
bool ps_poller_claim(struct ps_polled *polled);      /* the same; who is at it will mark the client ready */
/* For a time slice, and no longer than the wait of `waiter`, which may be NULL, and its deadline. */
void ps_poller_serve(struct ps_polled *polled, const struct ps_waiter *waiter, int64_t deadline_us);
void ps_poller_hand_back(struct ps_polled *polled);
void ps_poller_stats(struct ps_poller *poller, struct ps_poller_stats *stats);

/* ---- watch.c: a waiting thread that serves its own client ------------------------------------------ */

bool ps_watch_begin(struct ps_polled *polled, struct ps_waiter *waiter); /* before it joins; false: it is not to */
void ps_watch_sleep(struct ps_polled *polled, struct ps_waiter *waiter, int64_t deadline_us); /* as ps_waiter_sleep */
void ps_watch_end(struct ps_polled *polled);                   /* before anything that may take its time, such as the GVL */
bool ps_watch_ring(struct ps_polled *polled);                  /* false: nobody keeps watch */
bool ps_watch_looks(const struct ps_polled *polled);           /* somebody keeps watch, and does not sleep */

/* ---- events.c: what happened, for listeners ------------------------------------------------------- */

enum ps_event_kind {
    PS_EVENT_DELIVERED = 1,
    PS_EVENT_FAILED = 2,
    PS_EVENT_ERROR = 4,
    PS_EVENT_STATISTICS = 8,
    PS_EVENT_CLOSED = 16, /* a client of the producer has ended; nobody is told of it */
};

enum { PS_EVENT_NAME_BUCKETS = 64 };

struct ps_event { /* the head of a ps_delivery, which then owns a reference to its chunk, or of a ps_notice */
    struct ps_event *next;
    uint32_t kind;
    uint32_t label; /* which of the labels kept for listeners is its own; 0: it has none */
};

struct ps_topic_name { /* of a topic; lives as long as the queue */
    struct ps_topic_name *next;
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

struct ps_events { /* refs: of the Ruby object, its clients, the dispatch queue */
    _Atomic uint32_t refs;
    unsigned generation;
    uint64_t address;
    _Atomic uint32_t wanted; /* enum ps_event_kind, those that somebody listens to */
    _Atomic uint32_t client;   /* clients */
    _Atomic bool attached;   /* somebody wants to know when they end */
    uint32_t limit;
    bool drop_newest;        /* when it is full; else the oldest */
    void (*release_delivery)(struct ps_event *); /* frees what a delivered or failed event holds */
    pthread_mutex_t lock;
    struct ps_event *first, **last;
    _Atomic uint32_t size;
    _Atomic uint64_t queued, dropped;
    struct ps_topic_name *names[PS_EVENT_NAME_BUCKETS]; /* under lock */
    uint32_t *released;                           /* under lock: labels that nobody needs any more */
    uint32_t released_count, released_capacity;
    /* The labels: Ruby's, opaque here. Changed under lock and by Ruby threads only, with the GVL of their Ractor and nothing
     * of Ruby's called meanwhile; so the GC, for which all Ractors stop, reads and moves them without. */
    uintptr_t *labels;
    uint32_t *unused_labels;                      /* their places */
    uint32_t label_count, label_capacity, unused_label_count;
    /* the dispatch queue's, under its lock: */
    struct ps_events *ready_next;
    bool ready, served;
};

/* NULL: no memory */
struct ps_events *ps_events_new(uint32_t limit, bool drop_newest, void (*release_delivery)(struct ps_event *));
void ps_events_retain(struct ps_events *events);
void ps_events_unref(struct ps_events *events); /* may be NULL */
bool ps_events_wanted(const struct ps_events *events, uint32_t kinds);
void ps_events_append(struct ps_events *events, struct ps_event *first); /* owns all that are linked behind it */
/* `events` may be NULL: */
void ps_events_error(struct ps_events *events, struct ps_client *client, rd_kafka_resp_err_t err, const char *text, bool fatal);
void ps_events_statistics(struct ps_events *events, struct ps_client *client, const char *json);
void ps_events_closed(struct ps_events *events, struct ps_client *client);
struct ps_event *ps_events_take(struct ps_events *events); /* NULL: empty; else to be freed */
void ps_events_clear(struct ps_events *events);
void ps_event_free(const struct ps_events *events, struct ps_event *event);
const struct ps_topic_name *ps_events_name(struct ps_events *events, const char *text); /* NULL: no memory */
void ps_events_release_label(struct ps_events *events, uint32_t label);
/* Any Ractor. Both drop what was released: where only failures are listened to, there may never be anything to take. */
uint32_t ps_events_keep_label(struct ps_events *events, uintptr_t label); /* its number; 0: no memory */
uintptr_t ps_events_take_label(struct ps_events *events, uint32_t number);
uint32_t ps_events_labels(struct ps_events *events); /* how many are kept */

/* ---- dispatch.c: which thread serves which producer's events -------------------------------------- */

struct ps_dispatcher { /* a thread that runs listeners; all 0 at first */
    _Atomic(struct ps_events *) events; /* what it serves; NULL: nothing. Its own until its turn ends */
    _Atomic bool interrupted;
};

void ps_dispatch(struct ps_events *events);      /* it has something for listeners */
bool ps_dispatch_busy(struct ps_events *events); /* something is queued, or served */
/* Ends its turn and waits for the next one. False: there was none in time, or it was interrupted, perhaps before the call. */
bool ps_dispatcher_next(struct ps_dispatcher *dispatcher, int64_t deadline_us);
void ps_dispatcher_end(struct ps_dispatcher *dispatcher, bool more); /* its turn, if it has one; more: the queue may seem empty */
void ps_dispatcher_interrupt(void *dispatcher);                      /* async-signal-safe */

/* ---- registry.c: what is open in this process ------------------------------------------------------ */

void ps_registry_add(struct ps_client *client);
void ps_registry_remove(struct ps_client *client);
unsigned ps_registry_count(void);
int64_t ps_registry_close_by_us(void); /* the latest close_by_us of all; 0: nothing is closing */
void ps_registry_hurry(void);          /* whatever is closing gives up its good manners now */

struct ps_closing { /* both retained */
    struct ps_client *client;
    struct ps_job *job;
};

/* Starts closing everything that is open; fills `closing` with at most `max` of them, whose job to wait for. */
unsigned ps_registry_close_all(struct ps_closing *closing, unsigned max);
/* Closing threads that still run: one may be about to free things after its client has left the registry. */
void ps_registry_closing(int change);
unsigned ps_registry_closing_count(void);
bool ps_registry_await_closing(int64_t deadline_us); /* false: some still run */

#endif
