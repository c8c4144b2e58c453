/*
 * core/admin: a client that asks a cluster and changes it. The poller serves it: it hands each answer to the thread that waits.
 *
 *   admin.c       the client: opening, closing, what the poller does for it
 *   admin_call.c  one request: its answer, its waiting caller, its references
 *   admin_job.c   requests for which librdkafka has only blocking functions, each on a thread of its own
 */
#ifndef PENSTOCK_ADMIN_H
#define PENSTOCK_ADMIN_H

#include "client/client.h"

struct ps_admin_settings {
    struct ps_client_settings client;
    int64_t max_time_us, sweep_us; /* see ps_polled */
    int64_t unreachable_us;        /* how long a call waits while librdkafka cannot connect to any broker; 0: until its timeout */
    bool consumer;                 /* a client with a consumer's settings, such as a group of its own */
};

struct ps_admin {
    struct ps_client client;
    struct ps_polled polled;
    struct ps_admin_settings settings;
    struct ps_admin_call *calls; /* under client.lock: those whose answer has not come, or was not taken */
    bool watches;                /* of the poller's thread: librdkafka has reported that all brokers are down */
    bool shut;                   /* under client.lock: the closing thread has ended all calls, and no call begins any more */
    unsigned users;              /* under client.lock: between ps_admin_use and ps_admin_release */
    bool stale;                  /* under client.lock: librdkafka keeps a request to a coordinator that nobody waits for, or a
                                    coordinator that is none any more */
    _Atomic bool retired;        /* its last user has closed it, as it was stale: the next one uses another */
    _Atomic int cluster;         /* enum ps_admin_cluster */
};

enum ps_admin_cluster { PS_ADMIN_UNKNOWN, PS_ADMIN_KAFKA, PS_ADMIN_EMBEDDED };

bool ps_admin_is(const struct ps_client *client); /* of one of the two kinds of admin clients */

struct ps_admin *ps_admin_new(rd_kafka_conf_t *conf, const char *name, struct ps_poller *poller,
                              const struct ps_admin_settings *settings); /* owns conf; NULL: no memory */

/*
 * Around a program's call. librdkafka never forgets a request to a group's coordinator that it has not sent: if the request times
 * out, and the coordinator can be reached later, librdkafka uses freed memory, or fails an assertion, which ends the process (2.0.2
 * and 2.14.2). So it gets an hour for such a request, and the caller waits for its own timeout. If the caller leaves without an
 * answer, the client is stale. Its last user then closes it, as destroying the rd_kafka_t destroys such requests properly.
 */
bool ps_admin_use(struct ps_admin *admin); /* false: it was retired */
void ps_admin_release(struct ps_admin *admin);
/*
 * Between them: a broker is no longer the coordinator of a group. librdkafka (2.0.2 and 2.14.2) asks it all the same, as long as it
 * can be reached: an admin request never removes a coordinator from the cache, and using an entry keeps it from expiring. So the
 * client is stale, too.
 */
void ps_admin_forget_coordinators(struct ps_admin *admin);

/* ---- admin_call.c ---- */

enum ps_admin_end { /* why a call no longer waits */
    PS_ADMIN_WAITS,
    PS_ADMIN_ANSWERED,
    PS_ADMIN_CLOSED,
    PS_ADMIN_REJECTED, /* brokers reject the client; rejection.c has the reason */
    PS_ADMIN_UNREACHABLE, /* no broker can be reached */
};

/*
 * One request, or the wait for one job. References: one of the caller; one of the admin client, until the answer was taken, or came
 * after the caller had left, or the job is done, or librdkafka is destroyed. The call is the opaque of librdkafka's request, so it
 * lives until no answer can come.
 */
struct ps_admin_call {
    struct ps_admin_call *next, *prev; /* in admin->calls */
    struct ps_admin_call *ended_next;  /* of the thread that ends the waits of all */
    struct ps_completion completion;   /* settled when `end` is no longer PS_ADMIN_WAITS */
    pthread_mutex_t lock;
    _Atomic uint32_t refs;
    _Atomic int end;                   /* enum ps_admin_end; written under client.lock */
    int64_t begun_us;
    bool left;                         /* under client.lock: the caller has stopped waiting, and takes no answer */
    bool coordinated;                  /* the request goes to a group's coordinator; set before it is given to librdkafka */
    rd_kafka_event_t *answer;          /* under client.lock: not taken yet */
};

/* Begins a call; the caller then passes it to librdkafka as opaque, between ps_client_enter and exit. NULL: closing has begun, or
 * no memory (errno). */
struct ps_admin_call *ps_admin_call_begin(struct ps_admin *admin);
/* The poller's thread: an answer has come. Owns the event. */
void ps_admin_call_answer(struct ps_admin *admin, rd_kafka_event_t *event);
/* Between ps_client_enter and exit: the answer, which the caller destroys before the exit. NULL: it has not come, or the client
 * is closing. */
rd_kafka_event_t *ps_admin_call_take(struct ps_admin *admin, struct ps_admin_call *call);
/* The text of the answer's error, or NULL. */
const char *ps_admin_answer_text(rd_kafka_event_t *answer);
void ps_admin_answer_destroy(rd_kafka_event_t *answer);
void ps_admin_call_finish(struct ps_admin *admin, struct ps_admin_call *call); /* a job's thread: the job is done */
void ps_admin_call_leave(struct ps_admin *admin, struct ps_admin_call *call); /* releases the caller's reference; never blocks */
/* Ends the waits of all callers that have begun until then, without answers. PS_ADMIN_CLOSED: of later ones, too. Whether other
 * callers still wait. */
bool ps_admin_calls_end(struct ps_admin *admin, enum ps_admin_end end, int64_t begun_us);
/* Closing thread, when no call is entered: destroys the answers that nobody took. */
void ps_admin_calls_discard(struct ps_admin *admin);
void ps_admin_calls_forget(struct ps_admin *admin); /* closing thread, after rd_kafka_destroy */

/* ---- admin_job.c ---- */

enum ps_admin_question {
    PS_ADMIN_BROKERS, /* and the cluster's id and controller */
    PS_ADMIN_TOPICS,  /* all of them: librdkafka would create a topic that it is asked for by name */
    PS_ADMIN_OFFSETS, /* of `list`, whose offsets are times in ms, or -1 and -2 for the end and the beginning */
    PS_ADMIN_LEADERS, /* of the topics of `list`: no result, but librdkafka knows them then */
};

struct ps_admin_job {
    struct ps_job job;
    struct ps_admin *admin;         /* retained */
    struct ps_admin_call *call;     /* of the thread, until it has finished the call */
    enum ps_admin_question question;
    int timeout_ms;
    rd_kafka_topic_partition_list_t *list; /* owned */
    /* Results, when the job is done: */
    rd_kafka_resp_err_t err;
    const struct rd_kafka_metadata *metadata;
    char *cluster_id;
    int32_t controller_id;          /* -1: unknown */
};

/* The caller waits for the call, which it leaves, and abandons the job when it has read the results. NULL: the client is closing,
 * or no thread started (errno). Owns the list. */
struct ps_admin_job *ps_admin_ask(struct ps_admin *admin, enum ps_admin_question question,
                                  rd_kafka_topic_partition_list_t *list, int timeout_ms, struct ps_admin_call **call);

#endif
