/*
 * core/client: what producing and consuming clients share: their life, settings and log, rejections, tokens, events, the
 * poller.
 *
 * Start at struct ps_client, below. C requires the structs that it embeds before it.
 */
#ifndef PENSTOCK_CLIENT_H
#define PENSTOCK_CLIENT_H

#include "wait/wait.h"

/* ---- the structs that a ps_client embeds ------------------------------------------------------------- */

struct ps_connections { /* in the ps_client; written by librdkafka's broker threads */
    _Atomic uint32_t working;
    _Atomic uint32_t outages;     /* how often the number of working connections has fallen to 0 */
    _Atomic int64_t tried_us;     /* the first attempt to connect since no connection works; 0: none */
    _Atomic int64_t handshake_us; /* since when a broker has not answered the TLS handshake; 0: no handshake is in progress */
    _Atomic int64_t refused_us;   /* the first attempt that made no connection, since one was made; 0: none */
    _Atomic uint32_t expecting;   /* connections that are made, and do not work yet */
    _Atomic bool down;            /* librdkafka has reported that all brokers are down, and none has worked since */
    _Atomic uint32_t rejecting;   /* brokers that accepted a connection, and ended it before they answered a request */
};

enum ps_rejected { /* see rejection.c */
    PS_NOT_REJECTED,
    PS_REJECTED_TLS,
    PS_REJECTED_AUTHENTICATION,
    PS_REJECTED_PROTOCOL,
    PS_UNREACHABLE, /* the client cannot reach any broker */
};

struct ps_purge { /* one or more purges in a row, for the same reason */
    int64_t at_us; /* the last of them; 0: none */
    int kind;      /* enum ps_rejected; PS_NOT_REJECTED: the program requested it */
    char text[512];
};

enum { PS_PURGES = 4 };

/*
 *  ACCEPTED  kind = PS_NOT_REJECTED, due_us = 0
 *     |      a broker rejects the client, and none has ever answered a request (`worked`)
 *  REJECTED  kind = the reason, due_us = now + rejection_timeout_us
 *     |      due_us passes: the client gives up what is in flight, and sets due_us to 1 s later; this repeats
 *  ACCEPTED  when a broker answers (for good), when brokers are merely unreachable, or with new credentials
 *
 * Independently of these states, the client is unreachable when it has had no connection for unreachable_us. It then gives up
 * what is in flight, and again at again_us.
 */
struct ps_rejection { /* in the ps_client */
    const struct ps_connections *connections;
    int64_t rejection_timeout_us; /* how long brokers may reject it; -1: for ever */
    int64_t unreachable_us;       /* a producer's only: how long it may have no connection; 0: for ever */
    _Atomic int64_t due_us;       /* when to give up what waits for brokers; 0: not rejected */
    _Atomic int kind;             /* enum ps_rejected: the reason of the latest rejection */
    _Atomic int x509_error;       /* why the latest certificate was not accepted, until it is reported; 0: none */
    _Atomic uint32_t given_up;    /* counts how often the client has given up */
    _Atomic bool unreachable;     /* the latest error was not a rejection, but for example a failed connection */
    _Atomic bool worked;          /* a broker has answered once: rejections no longer count */
    _Atomic int64_t again_us;     /* when to give up again while no broker can be reached */
    pthread_mutex_t lock;         /* guards what follows; a leaf */
    char text[512];
    struct ps_purge purges[PS_PURGES]; /* a producer's only: the latest ones, in order */
    unsigned latest_purge;
};

struct ps_tokens { /* in the ps_client */
    struct ps_bell bell;     /* rung when the client has opened, and when it has closed */
    rd_kafka_queue_t *queue; /* where librdkafka asks for tokens; NULL: it does not */
    _Atomic bool shut;
};

/* ---- client.c: what producers and consumers have in common ---------------------------------------------- */

enum ps_state {
    PS_NEW,     /* configured; no thread, no connection yet */
    PS_OPEN,
    PS_CLOSING, /* accepts no new work; finishes and destroys */
    PS_CLOSED,
};

struct ps_client_settings {
    int64_t close_timeout_ms; /* when it is dropped without close, and at the end of the process */
    int64_t abort_ms;         /* what closing keeps of its time to abort an open transaction */
    int64_t rejection_us;     /* how long brokers may reject it before callers get an error; -1: for ever */
    int64_t unreachable_us;   /* how long it may reach no broker before messages fail; 0: for ever */
    bool logs_to_mailbox;     /* else librdkafka's log goes to stderr */
    bool token_provider;      /* the program supplies tokens to log in with */
};

struct ps_client { /* the first member of ps_producer and ps_consumer, so a pointer to one is a pointer to the other */
    struct ps_client *next, *prev; /* in the registry, while it is open */
    const struct ps_client_kind *kind;
    const struct ps_client_settings *settings;
    _Atomic uint32_t refs;
    unsigned generation;
    uint64_t address;            /* where its log lines go in the mailbox */
    _Atomic int state;           /* enum ps_state */
    _Atomic uint32_t calls;      /* calls into librdkafka in progress */
    /* Calls that do not delay the start of closing: a consumer's that wait for brokers, and logins. */
    _Atomic uint32_t long_calls;
    rd_kafka_t *rk;
    _Atomic int64_t close_by_us, closed_by_us; /* see ps_close_times; 0: not closing. ps_client_hurry makes them earlier */
    pthread_mutex_t lock;        /* guards state changes, waiters of batches, last_error, close_job, turns */
    _Atomic uint32_t opening;    /* 1: a thread is in ps_client_open; the state stays PS_NEW until it has finished */
    bool abandoned;              /* lock held: its Ruby object is gone, so the opening thread abandons it */
    rd_kafka_conf_t *conf;       /* a template; each rd_kafka_t gets a copy */
    struct ps_job *close_job;
    _Atomic(const char *) closed_because; /* why no caller reads the result of closing; NULL: a caller does */
    char *name, *brokers;
    char last_error[512];
    struct ps_log log;
    struct ps_connections connections;
    struct ps_redaction redaction;
    struct ps_rejection rejection;
    struct ps_tokens tokens;
    bool conf_leaked;            /* of the opening thread: a failed attempt has leaked memory; see client.c */
};

struct ps_client_kind {
    rd_kafka_type_t type;
    /* A line of librdkafka, on its thread; true: it is not to be logged. May be NULL */
    bool (*log)(struct ps_client *client, int level, const char *facility, const char *text);
    bool (*intercept)(struct ps_client *client, rd_kafka_conf_t *conf); /* adds interceptors; false: none. May be NULL */
    /* Opening, after rk is made; -1: see errstr. */
    int (*begin)(struct ps_client *client, char *errstr, size_t errstr_size);
    uint64_t (*pending)(const struct ps_client *client);                              /* messages without a delivery result */
    void (*closing)(struct ps_client *client); /* lock held: closing begins; may be NULL */
    void (*close)(struct ps_client *client);   /* closing thread: all work before PS_CLOSED */
    void (*closed)(struct ps_client *client);  /* closing thread, after that; may be NULL */
    void (*changed)(struct ps_client *client); /* it has opened or closed; lock perhaps held; may be NULL */
    void (*dispose)(struct ps_client *client); /* with the last reference: frees its own members */
};

void ps_client_init(struct ps_client *client, const struct ps_client_kind *kind, rd_kafka_conf_t *conf, const char *name,
                  const struct ps_client_settings *settings); /* owns conf */
void ps_client_retain(struct ps_client *client);
void ps_client_unref(struct ps_client *client);
/* Made before a fork: do not call librdkafka for it. */
bool ps_client_inherited(const struct ps_client *client);
void ps_client_set_brokers(struct ps_client *client, const char *brokers);  /* before it is opened */
/* The first call blocks for some ms: it starts threads and reads certificates. Returns 0, or -1 with `errstr`. */
int ps_client_open(struct ps_client *client, char *errstr, size_t errstr_size);
bool ps_client_opening(const struct ps_client *client); /* tokens.bell rings when that is over */

/* Every use of `rk` is between these two. Enter returns false unless the client is open. */
bool ps_client_enter(struct ps_client *client);
void ps_client_exit(struct ps_client *client);
/* The same for a long call. The caller checks the state itself. */
void ps_client_enter_long(struct ps_client *client);
void ps_client_exit_long(struct ps_client *client);
void ps_client_become_long(struct ps_client *client); /* a call that has entered is a long one from here on */
void ps_client_await_calls(struct ps_client *client); /* closing thread */
void ps_client_await_long_calls(struct ps_client *client);

void ps_client_note_error(struct ps_client *client, rd_kafka_resp_err_t err, const char *text);
void ps_client_last_error(struct ps_client *client, char *text, size_t size);
void ps_client_log(struct ps_client *client, int level, const char *facility, const char *text);
void ps_client_log_librdkafka(struct ps_client *client, int level, const char *facility, const char *text);
bool ps_client_log_error(struct ps_client *client, int level, rd_kafka_resp_err_t err, const char *text);
bool ps_leader_moved(rd_kafka_resp_err_t err); /* another broker leads the partition now, or will */
/* Copies the first fatal error without secrets; between enter and exit. librdkafka owns the original text. */
rd_kafka_resp_err_t ps_client_fatal_error(struct ps_client *client, char *text, size_t size);
/* Copies a text from outside, without secrets. */
void ps_client_quote(struct ps_client *client, char *copy, size_t size, const char *text);

/* The two ends of a close's time; PS_FOREVER: without limit. */
struct ps_close_times {
    int64_t stop_us; /* closing stops delivering, or leaving its group, and begins its last steps: to purge, to abort, to destroy */
    int64_t done_us; /* callers stop waiting, and so does the end of the process; what is left of the last steps goes on by itself */
};
enum { PS_CLOSE_LEAST_MS = 500 }; /* what the last steps get, whatever the timeout is */

struct ps_close_times ps_client_close_times(const struct ps_client *client, int64_t timeout_ms);

struct ps_close_job {
    struct ps_job job;
    struct ps_client *client;
};

/* Starts closing, unless it has begun, and first waits for a thread that is opening the client. Returns the job to wait for,
 * retained. NULL: there is nothing to wait for, or, if the client is still open, no thread could start (errno). `reason`: why
 * no caller will read what was lost, or NULL. */
struct ps_job *ps_client_close(struct ps_client *client, int64_t timeout_ms, const char *reason);
struct ps_job *ps_client_close_by(struct ps_client *client, const struct ps_close_times *times, const char *reason);

/* At the end of the process: like ps_client_close. A closing in progress gets at most the time of one that begins now, and
 * its caller can no longer read its report. */
struct ps_job *ps_client_end(struct ps_client *client);
/* Shortens a closing in progress, so that its last steps begin by `stop_us`; never prolongs it. */
void ps_client_hurry(struct ps_client *client, int64_t stop_us);
void ps_client_abandon(struct ps_client *client); /* called by dfree: never blocks */

/* ---- connections.c: how many connections work, and since when none does ----------------------------- */

void ps_connections_watch(struct ps_connections *connections, rd_kafka_conf_t *conf); /* before rd_kafka_new */
void ps_connections_forget(struct ps_connections *connections); /* after rd_kafka_destroy, when another rd_kafka_t may follow */
bool ps_connections_none_for(const struct ps_connections *connections, int64_t time_us);
void ps_connections_all_down(struct ps_connections *connections); /* librdkafka reports that all brokers are down */
/* Since when librdkafka cannot connect to any broker; 0: it can, or may be about to, or has not tried all. */
int64_t ps_connections_away_since(const struct ps_connections *connections);
bool ps_connections_rejected(const struct ps_connections *connections); /* recently, by a broker; false also if not watched */
bool ps_connections_handshake_for(const struct ps_connections *connections, int64_t time_us);

/* ---- rejection.c: brokers that reject a client, or cannot be reached ---------------------------------- */

void ps_rejection_init(struct ps_rejection *rejection, const struct ps_connections *connections,
                       const struct ps_client_settings *settings);
void ps_rejection_destroy(struct ps_rejection *rejection);
/* Called for each error by the thread that serves the client. True: it counts as a rejection. */
bool ps_rejection_error(struct ps_rejection *rejection, rd_kafka_t *rk, rd_kafka_resp_err_t err, const char *text);
void ps_rejection_forget(struct ps_rejection *rejection);      /* after a change: the time counts anew */
bool ps_rejection_due(const struct ps_rejection *rejection, int64_t now);
bool ps_rejection_give_up(struct ps_rejection *rejection, rd_kafka_t *rk); /* when due; false: a broker has answered since */
enum ps_rejected ps_rejection_now(struct ps_rejection *rejection, char *text, size_t size); /* the current reason */
bool ps_rejection_unreachable(const struct ps_rejection *rejection); /* for unreachable_us: new messages fail at once */
void ps_rejection_unreachable_text(const struct ps_rejection *rejection, char *text, size_t size);
rd_kafka_resp_err_t ps_rejection_code(enum ps_rejected kind);
int ps_certificate_cb(rd_kafka_t *rk, const char *broker_name, int32_t broker_id, int *x509_error, int depth,
                      const char *certificate, size_t size, char *errstr, size_t errstr_size, void *client);
/* The reason to give up now, if any. A rejection takes precedence, as it explains more than PS_UNREACHABLE. */
enum ps_rejected ps_rejection_reason(struct ps_rejection *rejection, rd_kafka_t *rk, int64_t now);
/* Why the core purged a message that was produced at that time; PS_NOT_REJECTED: it did not. */
enum ps_rejected ps_rejection_purged_for(struct ps_rejection *rejection, int64_t produced_us, char *text, size_t size);
void ps_rejection_purges(struct ps_rejection *rejection, enum ps_rejected kind); /* before each purge of a producer's messages */

/* ---- credentials.c: tokens that expire, and passwords that change ------------------------------------------ */

void ps_tokens_enable(rd_kafka_conf_t *conf, bool provided);      /* before rd_kafka_new */
void ps_tokens_begin(struct ps_tokens *tokens, rd_kafka_t *rk);   /* after rd_kafka_new; the opening thread rings afterwards */
bool ps_tokens_wanted(struct ps_client *client);                      /* since the last call; never blocks */
void ps_tokens_ring(struct ps_client *client);                    /* the client has opened, or has closed */
/* Like ps_client_enter, but also allowed while the client closes, as it may still log in. NULL: not open. Otherwise call
 * ps_client_exit_long. */
rd_kafka_t *ps_tokens_enter(struct ps_client *client);
void ps_tokens_shut(struct ps_tokens *tokens);                    /* closing thread, before ps_client_await_long_calls */
void ps_tokens_end(struct ps_tokens *tokens);                     /* after that, before rd_kafka_destroy */
/* Takes effect at the next login; any thread. False: see errstr. An empty errstr means that another thread is opening the
 * client, and may have copied the old credentials: the caller then sets them again. */
bool ps_set_credentials(struct ps_client *client, const char *user, const char *password, char *errstr, size_t size);

/* ---- poller.c: the one thread that serves every client --------------------------------------------- */

struct ps_polled;

struct ps_polled_kind { /* called by the poller's thread, or by a thread that has borrowed the client */
    void (*handle)(struct ps_polled *polled, rd_kafka_event_t *event);      /* destroys the event */
    bool (*work_due)(const struct ps_polled *polled, int64_t now);          /* there is work besides events */
    void (*work)(struct ps_polled *polled, int64_t now);
};

struct ps_polled { /* in a producer: what the poller needs to serve it */
    const struct ps_polled_kind *kind;
    struct ps_client *client;
    struct ps_poller *poller;        /* retained */
    rd_kafka_queue_t *queue;         /* while it is open */
    int64_t max_time_us;             /* the time slice: the longest drain of one visit */
    int64_t sweep_us;                /* the sweep looks at it at least this often, with or without a wake-up */
    struct ps_polled *ready_next;
    struct ps_polled *run_next;
    struct ps_polled *leaving_next;
    struct ps_polled *next, *prev;   /* poller->clients, under poller->lock */
    _Atomic bool ready;              /* it is in the poller's stack of ready clients */
    _Atomic bool served;             /* the poller, or a thread that has borrowed the client, takes events from `queue` */
    _Atomic bool retry_requested;    /* a thread found `served` set: the serving thread marks the client ready afterwards */
    _Atomic bool callback_disabled;  /* it leaves the poller, which then drains its queue once more */
    _Atomic uint32_t watch;          /* see watch.c */
    _Atomic uint32_t left;           /* 1: it has left the poller, and its owner may free it */
    bool in_run;                     /* of the poller's thread: it is in the run list */
    int64_t visited_us;              /* of the poller's thread: its latest visit */
};

struct ps_poller_stats {
    uint64_t clients, wakeups, drains, events, messages, slices_cut, sweeps, missed_wakeups, starts;
    double cpu_seconds; /* of the running thread; 0: none runs */
    int thread_id;      /* the system's; 0: none runs */
};

struct ps_poller {
    _Atomic(struct ps_polled *) ready_head; /* a stack of clients with events; librdkafka's threads push */
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

    struct ps_polled *run_head, *run_tail; /* of its thread: the clients to visit next */
    int64_t swept_us;                      /* of its thread */
    _Atomic int64_t sweep_us;              /* the shortest of its clients' sweep_us */
    _Atomic uint64_t count, wakeups, drains, events, messages, slices_cut, sweeps, missed_wakeups, starts;
};

struct ps_poller *ps_poller_new(unsigned number); /* NULL: see errno */
void ps_poller_retain(struct ps_poller *poller);
void ps_poller_unref(struct ps_poller *poller);
int ps_poller_join(struct ps_poller *poller, struct ps_polled *polled);   /* starts the thread; 0 or errno */
void ps_poller_leave(struct ps_poller *poller, struct ps_polled *polled); /* blocks until `left` is set */
void ps_poller_ready_cb(rd_kafka_t *rk, void *polled);
void ps_poller_push(struct ps_polled *polled);       /* for a visit by the poller */
void ps_poller_mark_ready(struct ps_polled *polled); /* for the watching thread if there is one, else for a visit */
/* Makes the calling thread the one that serves the client, until it hands the client back. False: another thread serves it. */
bool ps_poller_borrow(struct ps_polled *polled);
/* The same. False: the thread that serves it marks it ready afterwards, so that its queue is visited again. */
bool ps_poller_borrow_or_retry(struct ps_polled *polled);
/* For one time slice; ends early with the wait of `waiter` (may be NULL), or at the deadline. */
void ps_poller_serve(struct ps_polled *polled, const struct ps_waiter *waiter, int64_t deadline_us);
void ps_poller_hand_back(struct ps_polled *polled);
void ps_poller_sweep_every(struct ps_polled *polled, int64_t sweep_us); /* the poller's thread, which serves the client */
/* Waits until no thread serves the client. False: the deadline came first. After a flush, all delivery results are settled then. */
bool ps_poller_await_served(struct ps_polled *polled, int64_t deadline_us);
void ps_poller_stats(struct ps_poller *poller, struct ps_poller_stats *stats);

/* ---- watch.c: a waiting thread that serves its own client ------------------------------------------ */

bool ps_watch_begin(struct ps_polled *polled, struct ps_waiter *waiter); /* before it joins; false: it may not watch */
void ps_watch_sleep(struct ps_polled *polled, struct ps_waiter *waiter, int64_t deadline_us); /* as ps_waiter_sleep */
void ps_watch_end(struct ps_polled *polled);                   /* before anything that may block, such as the GVL */
bool ps_watch_ring(struct ps_polled *polled);                  /* false: no thread watches */
bool ps_watch_looks(const struct ps_polled *polled);           /* a thread watches, and does not sleep */

/* ---- events.c: what happened, for listeners ------------------------------------------------------- */

/* kind(name, bit, Ruby's name) of what listeners get. EventSource#wanted= knows the kinds by their names. */
#define PS_EVENT_KINDS(kind) kind(DELIVERED, 1, delivered) kind(FAILED, 2, failed) kind(ERROR, 4, error) kind(STATISTICS, 8, statistics)

enum ps_event_kind {
#define PS_EVENT_KIND(name, bit, text) PS_EVENT_##name = (bit),
    PS_EVENT_KINDS(PS_EVENT_KIND)
#undef PS_EVENT_KIND
    PS_EVENT_CLOSED = 16, /* one of the producer's clients has closed; internal, not published to listeners */
};

enum { PS_EVENT_NAME_BUCKETS = 64 };

struct ps_event { /* first in a ps_delivery, which then owns a reference to its chunk, or in a ps_notice */
    struct ps_event *next;
    uint32_t kind;
    uint32_t label; /* its label's number in `labels`; 0: none */
};

struct ps_topic_name { /* a topic's; lives as long as the queue */
    struct ps_topic_name *next;
    char text[];
};

struct ps_client;

struct ps_notice {
    struct ps_event event; /* first, so a pointer to one is a pointer to the other */
    struct ps_client *client; /* retained */
    rd_kafka_resp_err_t err;
    bool fatal;
    size_t size;
    char text[]; /* the error's text, or the statistics as JSON */
};

struct ps_events { /* refs: one of the Ruby object, one of each client, one of the dispatch queue */
    _Atomic uint32_t refs;
    unsigned generation;
    uint64_t address;
    _Atomic uint32_t wanted; /* the kinds (enum ps_event_kind) that have listeners */
    _Atomic uint32_t clients; /* how many open clients put events here */
    _Atomic bool attached;   /* the producer has listeners, so PS_EVENT_CLOSED is wanted */
    uint32_t limit;
    bool drop_newest;        /* if the queue is full; else the oldest */
    void (*release_delivery)(struct ps_event *); /* frees what a delivered or failed event holds */
    pthread_mutex_t lock;
    struct ps_event *first, **last;
    _Atomic uint32_t size;
    _Atomic uint64_t queued, dropped;
    struct ps_topic_name *names[PS_EVENT_NAME_BUCKETS]; /* under lock */
    uint32_t *released;                           /* under lock: labels that are no longer needed */
    uint32_t released_count, released_capacity;
    /* The labels are Ruby's and opaque here. Only Ruby threads change them, under lock, with the GVL of their Ractor, and
     * without calling Ruby. So the GC, which stops all Ractors, may read and move them without the lock. */
    uintptr_t *labels;
    uint32_t *unused_labels;                      /* free places in `labels` */
    uint32_t label_count, label_capacity, unused_label_count;
    /* Under the dispatch queue's lock: */
    struct ps_events *ready_next;
    bool ready, served;
};

/* NULL: no memory */
struct ps_events *ps_events_new(uint32_t limit, bool drop_newest, void (*release_delivery)(struct ps_event *));
void ps_events_retain(struct ps_events *events);
void ps_events_unref(struct ps_events *events); /* may be NULL */
bool ps_events_wanted(const struct ps_events *events, uint32_t kinds);
void ps_events_append(struct ps_events *events, struct ps_event *first); /* owns the whole list */
/* `events` may be NULL: */
void ps_events_error(struct ps_events *events, struct ps_client *client, rd_kafka_resp_err_t err, const char *text, bool fatal);
void ps_events_statistics(struct ps_events *events, struct ps_client *client, const char *json);
void ps_events_closed(struct ps_events *events, struct ps_client *client);
struct ps_event *ps_events_take(struct ps_events *events); /* NULL: empty; the caller frees it */
void ps_events_clear(struct ps_events *events);
void ps_event_free(const struct ps_events *events, struct ps_event *event);
const struct ps_topic_name *ps_events_name(struct ps_events *events, const char *text); /* NULL: no memory */
void ps_events_release_label(struct ps_events *events, uint32_t label);
/* Any Ractor. Both functions also free the labels in `released`: if only failures have listeners, the queue may stay empty
 * for ever. */
uint32_t ps_events_keep_label(struct ps_events *events, uintptr_t label); /* its number; 0: no memory */
uintptr_t ps_events_take_label(struct ps_events *events, uint32_t number);
uint32_t ps_events_labels(struct ps_events *events); /* how many labels are kept */

/* ---- dispatch.c: which thread serves which producer's events -------------------------------------- */

struct ps_dispatcher { /* a thread that runs listeners; zeroed at first */
    _Atomic(struct ps_events *) events; /* the producer whose events it serves until its turn ends; NULL: none */
    _Atomic bool interrupted;
    bool runs; /* in its latest turn; under the lock of dispatch.c */
};

void ps_dispatch(struct ps_events *events);      /* it has events for listeners */
bool ps_dispatch_busy(struct ps_events *events); /* events are queued or being served */
/* Ends its turn and waits for the next. False: no turn before the deadline, or interrupted, perhaps before the call. */
bool ps_dispatcher_next(struct ps_dispatcher *dispatcher, int64_t deadline_us);
void ps_dispatcher_run(struct ps_dispatcher *dispatcher); /* its turn runs now: it has the GVL */
/* Its turn, if it has one; more: there may be events even if the queue is empty. */
void ps_dispatcher_end(struct ps_dispatcher *dispatcher, bool more);
void ps_dispatcher_interrupt(void *dispatcher);                      /* async-signal-safe */

/* ---- registry.c: the open clients of this process -------------------------------------------------- */

void ps_registry_add(struct ps_client *client);
void ps_registry_remove(struct ps_client *client);
unsigned ps_registry_count(void);
int64_t ps_registry_closed_by_us(void); /* the latest closed_by_us of all; 0: nothing is closing */
void ps_registry_hurry(void);           /* every closing in progress stops waiting for deliveries now */

struct ps_closing { /* both retained */
    struct ps_client *client;
    struct ps_job *job;
};

/* Starts closing every open client. Fills `closing` with those (at most `max`) that have a job to wait for. */
unsigned ps_registry_close_all(struct ps_closing *closing, unsigned max);
/* Counts closing threads that still run: one may be about to free memory after its client has left the registry. */
void ps_registry_closing(int change);
unsigned ps_registry_closing_count(void);
bool ps_registry_await_closing(int64_t deadline_us); /* false: some still run */

#endif
