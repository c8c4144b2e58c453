/*
 * The Ruby layer above the core: one C file per Ruby class, and a few shared files.
 *
 *   Ruby code decides what happens. C moves bytes between Ruby objects and librdkafka.
 *   The poller thread turns librdkafka's events into settled deliveries and full mailboxes.
 *
 * Names: penstock_x_init() defines class x. Other files use penstock_...; all other functions are static.
 * A function's suffix tells where it runs and what it may do:
 *   (none)    on a Ruby thread with the GVL: may touch VALUEs and raise; must not block
 *   _nogvl    on the same thread without the GVL: may block; must not touch VALUEs or raise
 *   _cb       on a librdkafka thread: may use only atomics and write(2)
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <ruby.h>
#include <ruby/thread.h>
#include "shared/shared.h"
#include "admin/admin.h"
#include "consume/consume.h"
#include "produce/produce.h"

#undef snprintf /* ruby.h replaces it with Ruby's own, which threads without the GVL must not call */ /* M:snprintf_without_gvl */

extern VALUE penstock_module;
extern VALUE penstock_native; /* Penstock::Native: internal classes */

/* ---- error.c: the only C file that builds and raises Penstock's errors ----------------------------- */

extern VALUE penstock_usage_error, penstock_cluster_error, penstock_config_error, penstock_message_error, penstock_closed_error,
    penstock_forked_error, penstock_queue_full_error, penstock_produce_error, penstock_delivery_error,
    penstock_message_timed_out_error, penstock_timeout_error, penstock_transaction_error, penstock_committed_error,
    penstock_fatal_error;
extern VALUE penstock_admin_error, penstock_admin_timeout_error, penstock_admin_unreachable_error, penstock_admin_closed_error;
extern VALUE penstock_unsupported_error;
extern VALUE penstock_consumer_closed_error, penstock_consume_error, penstock_commit_error, penstock_consume_timeout_error;
extern VALUE penstock_not_shareable_error;
extern VALUE penstock_listener_deadlock_error;

struct penstock_error_context {
    rd_kafka_resp_err_t err;
    const struct ps_client *client; /* the client or consumer; may be NULL */
    VALUE producer_id;          /* used if `client` is NULL: String, nil or false */
    VALUE topic;                /* String or nil */
    int32_t partition;          /* -1: unknown */
    const int64_t *offset;      /* NULL: unknown */
    VALUE group;                /* String, nil or false: the consumer group concerned */
    rd_kafka_resp_err_t reason; /* the advice is for this error; 0: for `err` */
    bool fatal, retriable, abortable;
};

extern const struct penstock_error_context penstock_no_context;

/*
 * The text is one sentence without its full stop. It does not repeat the context. ErrorFactory adds the capital letter, the
 * context, the full stop and the advice.
 */
VALUE penstock_error_new(VALUE error_class, const struct penstock_error_context *context, VALUE text);
NORETURN(void penstock_raise(VALUE error_class, const struct penstock_error_context *context, const char *format, ...));
NORETURN(void penstock_raise_closed(const struct ps_client *client));
VALUE penstock_delivery_error_new(const struct ps_delivery *delivery, VALUE topic);
/* Of the first message of the latest transaction that was not delivered; nil: there is none. */
VALUE penstock_failed_message_error(struct ps_producer *producer);
VALUE penstock_failed_message_text(struct ps_producer *producer); /* for the end of a sentence; empty: there is none */
VALUE penstock_rejected_error_class(enum ps_rejected kind);
NORETURN(void penstock_raise_rejected(enum ps_rejected kind, const struct penstock_error_context *context, const char *text));
void penstock_raise_if_rejected(struct ps_client *client, VALUE topic); /* returns unless brokers reject the client now */
void penstock_error_init(void);

/* ---- foreign_text.c: the only file that makes Strings of text from outside ------------------------ */

/* Each returns valid UTF-8, whatever the bytes are, except penstock_text_of_metadata. */
VALUE penstock_text(const char *text); /* for display: escapes control characters; NULL: nil */
VALUE penstock_text_sized(const char *text, size_t size);
VALUE penstock_name(const char *name);        /* for display, frozen and interned */
VALUE penstock_header_name(const char *name); /* frozen; escapes nothing, as programs look things up by such a name */
VALUE penstock_setting(const char *value);    /* librdkafka's value of a setting; escapes nothing */
/* Of a committed offset, frozen: the bytes unchanged. They are binary if they are not valid UTF-8. */
VALUE penstock_text_of_metadata(const char *metadata, size_t size);
VALUE penstock_json(const char *text, size_t size); /* frozen; stays JSON */

/* ---- nogvl.c: the only file that releases the GVL ------------------------------------------------- */

/*
 * Runs a job that takes at most a few ms, without the GVL. In a fiber with a scheduler, the job runs on a thread of its own. The
 * job owns all that it reads and writes: a scheduler may discard the fiber and its stack before the call ends. The caller holds a
 * reference, reads the results and releases the reference. If this function raises, it has released the reference.
 */
void penstock_call(struct ps_job *job);
/* Runs a body on this thread, so the body may use this stack. Never raises: if an interrupt is pending, the body runs with the
 * GVL. */
void penstock_nogvl_now(void *(*body)(void *), void *arg);

/*
 * Waiting: a thread sleeps without the GVL; a fiber with a scheduler blocks through it (fiber_wait.c). Each function may raise
 * the exception that interrupts it. It unlinks its waiter first.
 */

/* Wait until all of the completion, the batch, or one delivery is settled. False: the deadline passed. */
bool penstock_wait(struct ps_completion *completion, int64_t deadline_us);
bool penstock_wait_batch(struct ps_batch *batch, int64_t deadline_us);
bool penstock_wait_delivery(const struct ps_delivery *delivery, int64_t deadline_us);
/* The same for a job. Abandons the job, which releases the caller's reference, also when it raises. */
bool penstock_wait_job(struct ps_job *job, int64_t deadline_us);
/* Runs a body that sleeps, once. `interrupt` is async-signal-safe and makes the body return early. For threads without fibers. */
void penstock_sleep(void *(*body)(void *), void *arg, void (*interrupt)(void *), void *sleeper);
/* Waits until the bell's count of rings differs from `heard`, or until the deadline. May run a signal trap that closes the owner
 * of the bell. */
void penstock_wait_bell(struct ps_bell *bell, uint32_t heard, int64_t deadline_us);

static inline int64_t penstock_earlier(int64_t one_us, int64_t other_us)
{
    return one_us < other_us ? one_us : other_us;
}

/* ---- fiber_wait.c: the same for fibers ------------------------------------------------------------ */

struct penstock_wait {
    struct ps_completion *completion;
    const _Atomic bool *settled; /* the flag of the one delivery to wait for; NULL: the whole completion */
    struct ps_polled *watched;   /* a waiting thread serves this client's events meanwhile; NULL: none */
    bool (*attempt)(void *); /* NULL, or returns true when the wait is over; runs with the GVL and must not raise */
    void *arg;
    int64_t deadline_us;
};

VALUE penstock_fiber_scheduler(void); /* the scheduler to wait through; nil: the thread has to block */
bool penstock_wait_as_fiber(VALUE scheduler, const struct penstock_wait *wait);
void penstock_check_forked(unsigned generation); /* raises if the process was forked since */
void penstock_fiber_wait_init(void);

/* ---- opening.c: opening and closing, for ProducerClient and Consumer ------------------------------- */

void penstock_check_open(const struct ps_client *client); /* raises if it is closing or closed */
/* Opens the client if it is new; raises if that fails. True: it opened the client, and released the GVL. The caller keeps the
 * VALUEs alive. */
bool penstock_open(struct ps_client *client, VALUE logger, VALUE token_refresher, VALUE source);
/* False: the time ran out, and closing goes on. Waits a tenth and `margin_ms` longer than the timeout, as machines are busy. */
bool penstock_close(struct ps_client *client, const struct ps_close_times *times);
void penstock_begin_closing(struct ps_client *client, int64_t timeout_ms); /* does not wait */

/* ---- config.c: Hash to rd_kafka_conf_t ------------------------------------------------------------ */

struct penstock_conf_facts { /* the settings that Penstock's own code needs */
    VALUE brokers;           /* String */
    int64_t sticky_ms;
    size_t message_max_bytes, queue_max_bytes;
    int64_t transaction_timeout_ms;
    bool idempotent, transactional;
    int64_t linger_us;
};

/* Fills `conf`. The caller owns it, also when this raises. */
void penstock_conf_fill(rd_kafka_conf_t *conf, VALUE settings, bool logs_to_mailbox, struct penstock_conf_facts *facts);
/* Makes librdkafka ask for tokens by events. */
void penstock_conf_ask_for_tokens(rd_kafka_conf_t *conf, bool consumer, bool logs_to_mailbox);
VALUE penstock_setting_lines(VALUE self);
VALUE penstock_setting_read(VALUE self, VALUE name, VALUE value); /* Settings.read */
VALUE penstock_features(VALUE self);

struct penstock_consumer_conf_facts {
    VALUE brokers;
    int64_t max_poll_interval_ms;
    int64_t commit_every_ms; /* 0: the program commits by itself */
    bool commits_last; /* enable.auto.commit */
    int64_t queue_messages, queue_kilobytes; /* with which librdkafka's queue is full */
    bool ends; /* enable.partition.eof */
};

void penstock_consumer_conf_fill(rd_kafka_conf_t *conf, VALUE settings, bool logs_to_mailbox,
                                 struct penstock_consumer_conf_facts *facts); /* the same for a consumer */

void penstock_admin_conf_fill(rd_kafka_conf_t *conf, VALUE settings, bool logs_to_mailbox, VALUE *brokers);

/* ---- secret.c: values of settings that must not be shown ------------------------------------------- */

bool penstock_is_text(VALUE string);              /* valid UTF-8 without a zero byte */
bool penstock_is_secret(VALUE value);
const char *penstock_secret_text(VALUE secret);   /* valid while the secret lives; NULL: it is not text */
void penstock_secret_init(void);

/* ---- weak_list.c ---- */

void penstock_weak_list_init(void);

/* ---- message.c: Hash to one record ----------------------------------------------------------------- */

/* First the String of the message, later its bytes. */
struct penstock_bytes {
    union {
        VALUE string;     /* or nil */
        const char *data; /* or NULL */
    };
    size_t size;
};

/* Holds VALUEs: keep it on the stack or where produce_methods.c keeps a batch, so that the GC marks and pins them. */
struct penstock_message {
    VALUE topic;                        /* frozen and interned */
    VALUE label;
    struct penstock_bytes payload, key; /* Strings until penstock_message_to_bytes */
    struct penstock_bytes partition_key;
    union {
        VALUE headers;
        rd_kafka_headers_t *native_headers; /* librdkafka owns them once it has accepted the message */
    };
    struct ps_topic *native_topic;      /* valid only between ps_client_enter and exit: closing frees it */
    int64_t timestamp; /* ms since the epoch; 0: the time it is handed over */
    int32_t partition;
    bool foreign_timestamp; /* not parsed yet: penstock_message_plain has to make it a number first */
};

/* `index`: in produce_many's Array; -1 for a single message. `last_topic`: the topic of an earlier message, as most messages
 * share it; or nil. Raises MessageInvalidError. */
void penstock_message_parse(struct penstock_message *message, VALUE hash, long index,
                            const struct ps_limits *limits, VALUE last_topic);
/* Returns a copy of a message's Hash with the timestamp as an Integer. For timestamps whose is_a?(Time) is true although they
 * are no Time, such as ActiveSupport::TimeWithZone. Runs the timestamp's Ruby code, so call it before the final parse of the
 * messages. */
VALUE penstock_message_plain(VALUE hash, long index);
NORETURN(void penstock_message_raise_label(VALUE label, long index)); /* the label must be shareable, and is not */
/* For handing over without the GVL, in two steps. This first step may raise. It returns how many bytes the second step copies,
 * and puts the Strings that the second step does not copy into `kept`. The caller keeps `kept` alive. */
size_t penstock_message_freeze(struct penstock_message *message, VALUE kept);
/* Turns Strings into bytes, and headers into librdkafka's. Advances `copies`; NULL: copies nothing, for use with the GVL held. */
void penstock_message_to_bytes(struct penstock_message *message, char **copies);
void penstock_check_topic_name(VALUE name, long index); /* raises unless it is a String with a valid topic name */
void penstock_message_init(void);

/* ---- handover.c -------------------------------------------------------------------------------------- */

struct penstock_handover_error { /* why librdkafka did not accept a message; err 0: it did */
    rd_kafka_resp_err_t err;
    bool fatal;
    char text[256];
};

/* Messages handed over by one call. */
struct penstock_handover {
    struct ps_producer *producer;
    struct ps_batch *batch;
    struct penstock_message *messages;
    char *copies;                    /* copies of Strings, for handing over without the GVL; owned */
    uint32_t prepared, sent;         /* numbers of messages, from the batch's first on */
    bool given_up;                   /* the messages that were not sent have their delivery results */
    bool topic_failed;               /* librdkafka made no handle of a topic, now or in an earlier attempt: no further attempt */
    struct penstock_handover_error rejection; /* of messages[sent], if sent < batch->size */
};

/*
 * Three steps, and nothing may raise before the last. The first, prepare, needs the GVL. If `release` is true, the second,
 * handing over, runs without the GVL. It continues where it stopped when it is called again. The third, giving up, is for a batch
 * that librdkafka did not accept completely: the other messages get `err` as their delivery result.
 */
enum penstock_prepared {
    PENSTOCK_PREPARED,
    PENSTOCK_READ_AGAIN, /* topics were made without the GVL: the batch is discarded; read the Ruby objects again */
    PENSTOCK_NO_MEMORY
};

enum penstock_prepared penstock_handover_prepare(struct penstock_handover *handover, bool release, size_t copies_size);
void *penstock_handover_nogvl(void *handover);
bool penstock_handover_keep_bytes(struct penstock_handover *handover); /* call before the GVL is released; false: no memory */
void penstock_handover_give_up(struct penstock_handover *handover, rd_kafka_resp_err_t err);
void penstock_handover_find_full(struct penstock_handover *handover); /* as if librdkafka had reported a full queue */
bool penstock_handover_queue_full(const struct penstock_handover *handover);
bool penstock_handover_unreachable(const struct penstock_handover *handover); /* no broker can be reached */
bool penstock_handover_place_unknown(const struct penstock_handover *handover); /* librdkafka knows no such topic or partition */
VALUE penstock_handover_error(const struct penstock_handover *handover); /* why messages[sent] was not accepted */

/* ---- queue_space.c ---------------------------------------------------------------------------------- */

bool penstock_has_to_queue(const struct penstock_handover *handover); /* true: other calls wait for queue space, and go first */
/* Waits for queue space for `want` messages. Makes the attempt, with the GVL, whenever it is this call's turn, until the attempt
 * succeeds. False: the deadline passed. */
bool penstock_wait_for_space(struct ps_producer *producer, uint32_t want, bool (*attempt)(void *), void *arg,
                             int64_t deadline_us);

/* ---- delivery_handle.c ------------------------------------------------------------------------------ */

VALUE penstock_delivery_handle_new(void);
void penstock_delivery_handle_attach(VALUE handle, struct ps_delivery *delivery, VALUE topic, VALUE label);
/* `topic` and `label` are passed, since those in the delivery belong to its handle, which may have been freed. */
VALUE penstock_delivery_report_new(const struct ps_delivery *delivery, VALUE topic, VALUE label);
const struct ps_producer *penstock_delivery_handle_producer(VALUE handle);
void penstock_delivery_handle_init(void);

/* ---- event_source.c --------------------------------------------------------------------------------- */

struct ps_events *penstock_event_source_get(VALUE source); /* of this process; borrowed from the object */
/* Keeps the label if the delivery's events have subscribers. Call it before handing over. Any Ractor. False: no memory. */
bool penstock_keep_label(struct ps_delivery *delivery, VALUE label);
void penstock_event_source_hold(VALUE source);
void penstock_event_source_init(void);

/* ---- poller_class.c --------------------------------------------------------------------------------- */

struct ps_poller *penstock_poller_get(VALUE poller); /* of this process; borrowed from the object */
void penstock_poller_init(void);

/* ---- exit.c ------------------------------------------------------------------------------------------- */

void penstock_exit_init(void);
void penstock_exit_arm(void); /* makes the end of the process close every open client */

/* ---- keywords.c ------------------------------------------------------------------------------------- */

/* Reads the keywords `names` of a method's arguments into `values`. A keyword that is not given leaves its value unchanged.
 * Raises ArgumentError, with `form` in the message, for other keywords and another number of positional arguments. */
void penstock_keywords(int argc, const VALUE *argv, int positional, const char *form, int count, const VALUE *names,
                       VALUE *values);
/* A `timeout:` in ms (-1: no limit), by the rules of Penstock::Seconds; raises ArgumentError. */
int64_t penstock_seconds(VALUE seconds);
/* A member of a Hash of settings. KeyError: it is missing. */
VALUE penstock_given(VALUE settings, const char *name);
void penstock_keywords_init(void);

/* ---- consumer_class.c: Penstock::Native::ConsumerClient; more of its methods: poll_methods.c, consumer_calls.c, consumer_news.c ---- */

struct ps_consumer *penstock_consumer_any(VALUE client);  /* perhaps the parent process's */
struct ps_consumer *penstock_consumer_get(VALUE client);  /* this process's, perhaps not open; raises ForkedError */
struct ps_consumer *penstock_consumer_open(VALUE client); /* the same, opened if it is new; raises if it is closed */
/* Raises once brokers have rejected the consumer for long enough: in each thread that waits for them, and again each second. */
void penstock_consumer_check_rejected(struct ps_consumer *consumer);
VALUE penstock_consumer_group(const struct ps_consumer *consumer); /* its group.id; nil: none */
VALUE penstock_consumer_callbacks(VALUE client); /* Penstock::Consumer::Callbacks: what it calls when something happens */
bool penstock_is_consumer_client(VALUE object);
void penstock_poll_methods_init(VALUE client_class);
VALUE penstock_consumer_poll(int argc, VALUE *argv, VALUE client);
VALUE penstock_consumer_poll_batch(int argc, VALUE *argv, VALUE client);
/* Calls the listener for the rebalance, then answers. Raises what the listener raises. */
void penstock_tell_rebalance(VALUE self, struct ps_consumer *consumer);
void penstock_consumer_calls_init(VALUE client_class);
VALUE penstock_consumer_mark(VALUE client, VALUE what); /* a Message or Batch */
void penstock_consumer_rewind(VALUE client, const struct ps_fetched *fetched); /* its messages come again */
/* Publishes what the core has found for listeners. May run Ruby code, so call it where no message is in hand. */
void penstock_publish_news(VALUE self, struct ps_consumer *consumer);
void penstock_consumer_news_init(VALUE client_class);

/* ---- last_poll.c: what each fiber has polled last ---- */

struct penstock_last_poll {
    struct penstock_last_poll *next;  /* of another consumer: only what its caller has not received */
    const struct ps_consumer *consumer; /* to compare: perhaps it is freed */
    struct ps_fetched *fetched;    /* NULL: nothing */
    bool raised;                   /* an exception was raised since, or the block of each was left early */
    bool interrupted;              /* perhaps before the caller has received it */
};

struct penstock_taker { /* a fiber that polls */
    uint64_t owner;                /* of what it polls; see ledger.c */
    struct penstock_last_poll *latest; /* NULL: it has not polled */
};

struct penstock_taker *penstock_taker(void); /* of this fiber */
VALUE penstock_taker_object(void);
struct penstock_taker *penstock_taker_of(VALUE object);
/* What it has polled last from the consumer. NULL: nothing. */
struct penstock_last_poll *penstock_last_poll_of(const struct penstock_taker *taker, const struct ps_consumer *consumer);
bool penstock_unreceived(const struct penstock_last_poll *polled);
/* A poll begins: it makes what was polled before from the consumer `latest`, and forgets it; takes messages; and returns them, if no
 * interrupt is due. */
void penstock_begin_poll(struct penstock_taker *taker, const struct ps_consumer *consumer);
void penstock_has_polled(const struct penstock_taker *taker, struct ps_fetched *fetched);
struct penstock_returning {
    VALUE self, messages;
    const struct penstock_taker *taker;
    struct ps_consumer *consumer;
    struct ps_fetched *fetched;
    bool unreceived;               /* the ledger says so: other threads have run since the messages were taken */
    void (*publish)(VALUE self, VALUE messages);
};
void penstock_return(const struct penstock_returning *returning);
void penstock_last_poll_init(void);
VALUE penstock_places_in(const struct ps_fetched *fetched); /* as ConsumerClient.places_of */
/* Messages that this fiber has polled from the consumer, and has not received, come again. Otherwise does nothing. */
void penstock_rewind_unreceived(VALUE self, struct ps_consumer *consumer);

/* What a transactional producer needs to commit this consumer's offsets. The caller destroys it. Raises when the consumer is
 * closed, inherited, or has no group. */
rd_kafka_consumer_group_metadata_t *penstock_consumer_group_metadata(VALUE client);
void penstock_consumer_init(void);

/* ---- consumer_facade.c: methods of Penstock::Consumer ---- */

VALUE penstock_consumer_client(VALUE consumer); /* its ConsumerClient; raises TypeError */
void penstock_consumer_facade_init(void);

/* ---- consumed_message.c ---- */

/* Takes a reference to its ps_fetched. The deserializer is a Penstock::Deserializer or nil. */
VALUE penstock_message_of(struct ps_record *record, VALUE deserializer);
/* A Message without a record. Its methods raise until it owns one. */
VALUE penstock_message_allocate(VALUE deserializer);
void penstock_message_own(VALUE message, struct ps_fetched *fetched); /* with one record; takes the caller's reference */
VALUE penstock_consumer_deserializer(VALUE client);
/* Frozen Strings, or nil. Between ps_fetched_read and ps_fetched_done. */
VALUE penstock_record_key(const struct ps_record *record);
VALUE penstock_record_payload(const struct ps_record *record);
const struct ps_record *penstock_message_record(VALUE message); /* raises TypeError for any other object */
void penstock_consumed_message_init(void);

/* Places: [[topic, partition, offset, leader epoch, metadata], ...]; the last two may be nil or missing. */
rd_kafka_topic_partition_list_t *penstock_list_from(VALUE places);                /* the caller destroys it */
VALUE penstock_places_from(const rd_kafka_topic_partition_list_t *list); /* nil for an unknown offset */

/* ---- admin_client.c; admin_topics.c and others: methods of Native::AdminClient ------------------------------------- */

struct penstock_admin_request { /* one of librdkafka's requests; constant */
    rd_kafka_admin_op_t op;
    bool changes;                                               /* something in the cluster; so it may not be repeated blindly */
    bool each;                                                  /* a request for each row; else one for all */
    void *(*make)(VALUE row, char *errstr, size_t size);        /* reads what it needs of the row, which may raise, and then makes
                                                                   librdkafka's item; NULL: see errstr */
    void (*fill)(const struct ps_admin *admin, void *item, VALUE row); /* adds the rest; may raise; may be NULL */
    void (*dispose)(void *item);
    void (*submit)(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options, rd_kafka_queue_t *queue);
    VALUE (*read)(const struct ps_admin *admin, rd_kafka_event_t *event); /* of an answer without error; may raise */
};

/*
 * Gives librdkafka the requests for the rows, waits for all answers, and returns an Array of what `read` returns, or a
 * Penstock::AdminError, one for each request. `options`: a Hash with :timeout in ms, and whatever set_options knows. Raises if the
 * client is closed or rejected.
 */
VALUE penstock_admin_ask(VALUE self, const struct penstock_admin_request *request, VALUE rows, VALUE options);
/* Asks on a thread of its own; owns the list. Returns what `read` returns. Raises Penstock::AdminError. */
VALUE penstock_admin_question(VALUE self, enum ps_admin_question question, rd_kafka_topic_partition_list_t *list,
                              VALUE options, VALUE (*read)(const struct ps_admin_job *job, VALUE arg), VALUE arg);
struct ps_admin *penstock_admin_open(VALUE self);
/* A Penstock::AdminError; nil if there is no error. `text`, `topic`: NULL, and `partition`: -1, for nothing known. */
VALUE penstock_admin_error_of(const struct ps_admin *admin, rd_kafka_resp_err_t err, const char *text, const char *topic,
                              int32_t partition);
VALUE penstock_admin_item_error(const struct ps_admin *admin, const rd_kafka_error_t *error);
/* The same of a consumer group: `group` is its id, or nil. Programs compare ids and send them back, so nothing is escaped. */
VALUE penstock_admin_place_error(const struct ps_admin *admin, rd_kafka_resp_err_t err, const char *text, VALUE group,
                                 const char *topic, int32_t partition);
VALUE penstock_admin_group_error(const struct ps_admin *admin, const rd_kafka_error_t *error, VALUE group);
const char *penstock_admin_cstr(VALUE row, long index); /* a String in the row, that librdkafka sends unchanged; raises */
const char *penstock_admin_sent(const char *text, size_t size); /* returns it, if librdkafka sends it unchanged; raises */
VALUE penstock_admin_operations(const rd_kafka_AclOperation_t *operations, size_t count);
VALUE penstock_admin_node(const rd_kafka_Node_t *node);
VALUE penstock_admin_topic_results(const struct ps_admin *admin, const rd_kafka_topic_result_t **results, size_t count);
/* [[topic, partition, offset, leader epoch, metadata, error], ...]; nil for what is unknown. `group`: of a consumer group, or nil.
 * Partitions with this error are left out: no broker has answered for them. */
#define PENSTOCK_ADMIN_UNANSWERED RD_KAFKA_RESP_ERR__IN_PROGRESS
VALUE penstock_admin_places(const struct ps_admin *admin, const rd_kafka_topic_partition_list_t *list, VALUE group);
void penstock_admin_init(void);
void penstock_admin_topics_init(VALUE client_class);
void penstock_admin_cluster_init(VALUE client_class);
void penstock_admin_configs_init(VALUE client_class);
void penstock_admin_access_init(VALUE client_class);
void penstock_admin_groups_init(VALUE client_class);
void penstock_admin_group_offsets_init(VALUE client_class);
void penstock_admin_offsets_init(VALUE client_class);

/* ---- consumer_set_class.c ---------------------------------------------------------------------------- */

void penstock_consumer_set_init(void);

/* ---- batch.c ---------------------------------------------------------------------------------------- */

VALUE penstock_batch_allocate(void); /* not frozen, so its methods raise */
void penstock_batch_own(VALUE batch, struct ps_fetched *fetched); /* takes the caller's reference */
VALUE penstock_batch_finish(VALUE batch, VALUE deserializer); /* tells the GC of its memory, and freezes it */
bool penstock_is_batch(VALUE object);
const struct ps_fetched *penstock_batch_fetched(VALUE batch); /* raises TypeError for any other object */
void penstock_fetched_report(struct ps_fetched *fetched);
void penstock_fetched_free(struct ps_fetched *fetched); /* releases a reference, in a dfree function */
NORETURN(void penstock_raise_released(void));
void penstock_batch_init(void);

/* ---- ledger_class.c --------------------------------------------------------------------------------- */

void penstock_ledger_init(void);

/* ---- produce_methods.c ----------------------------------------------------------------------------- */

/* The client to produce through: a Penstock::Native::ProducerClient's, or the one in a slot. */
struct penstock_sender {
    VALUE self;              /* the Penstock::Native::ProducerClient; nil: a call through a slot, from any Ractor */
    struct ps_producer *producer;
    struct ps_slot *slot;    /* NULL: use `producer` */
    struct ps_limits terms;
};

/* Implement ProducerClient#produce and #produce_many. Return nil if the slot is empty. */
VALUE penstock_produce(const struct penstock_sender *sender, VALUE hash);
void penstock_before_producing_many(VALUE timeout_ms);
VALUE penstock_produce_many(const struct penstock_sender *sender, VALUE hashes, VALUE timeout_ms, VALUE tally);

/* ---- shareable_producer.c -------------------------------------------------------------------------- */

void penstock_shareable_producer_init(void);

/* ---- producer_class.c ---------------------------------------------------------------------------------- */

struct penstock_producer_client { /* the data of a ProducerClient */
    _Atomic(struct ps_producer *) producer; /* owns a reference */
    VALUE poller;                       /* Penstock::Poller */
    VALUE logger;                       /* nil: librdkafka's log goes to stderr */
    VALUE source;                       /* Penstock::Native::EventSource; nil: the client publishes no events */
    struct ps_limits terms;
    VALUE token_refresher;              /* Penstock::Native::TokenRefresher, or nil */
    VALUE last_topic;                   /* the latest message's, or nil */
};

struct penstock_producer_client *penstock_producer_data(VALUE client);
struct ps_producer *penstock_producer_get(VALUE client);  /* this process's; borrowed from the object */
struct ps_producer *penstock_producer_open(VALUE client); /* the same, opened if it is new; raises if it is closed */
/* True: it opened the client, and released the GVL meanwhile. Read again what was read from Ruby objects before. */
bool penstock_producer_open_if_new(VALUE client, struct ps_producer *producer);
int64_t penstock_timeout_ms(VALUE milliseconds); /* Numeric or nil (-1: no limit); raises ArgumentError */
void penstock_producer_init(void);
void penstock_produce_methods_init(VALUE client_class);
void penstock_metadata_methods_init(VALUE client_class);

/* ---- embedded_cluster.c, log_dispatcher.c, event_worker.c, shared_thread.c ------------------------------ */

void penstock_embedded_cluster_init(void);
void penstock_log_dispatcher_init(void);
void penstock_event_worker_init(void);
void penstock_shared_thread_init(void);
void penstock_wipe_the_stack_below(void); /* for a thread that waits long, and must keep nothing alive meanwhile */

/* ---- bearer.c ---------------------------------------------------------------------------------------- */

VALUE penstock_bearer_new(struct ps_client *client);
/* Call it before the client is opened. `refresher` (Penstock::Native::TokenRefresher, or nil) supplies the client's tokens. */
void penstock_attach_refresher(VALUE refresher, uint64_t address, struct ps_client *client);
void penstock_set_credentials(struct ps_client *client, const struct penstock_error_context *context, VALUE user, VALUE password);
void penstock_bearer_init(void);

/* ---- transaction_methods.c: more methods of ProducerClient ----------------------------------------- */

void penstock_transaction_methods_init(VALUE client_class);

#endif
