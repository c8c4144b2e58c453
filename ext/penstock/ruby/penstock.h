/*
 * The Ruby face of the core: one C file per Ruby class and a few shared ones.
 *
 *   Ruby says what is wanted. C moves bytes between Ruby objects and librdkafka.
 *   One poller turns librdkafka's events into resolved handles and full mailboxes.
 *
 * Names: penstock_x_init() defines class x; penstock_... is used by other files; the rest is static.
 * Suffixes say what a function may do:
 *   (none)    on a Ruby thread with the GVL: may touch VALUEs, may raise, must not block
 *   _nogvl    the same thread without the GVL: may block; no VALUE, no raising
 *   _cb       on a librdkafka thread: atomics and write(2) only
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <ruby.h>
#include <ruby/thread.h>
#include "consume/consume.h"
#include "produce/produce.h"

#undef snprintf /* ruby.h puts Ruby's own in its place, which is not for threads without the GVL */

extern VALUE penstock_module;
extern VALUE penstock_native; /* Penstock::Native: the classes that users never name */

/* ---- error.c: the only C file that makes and raises Penstock's errors ------------------------------ */

extern VALUE penstock_usage_error, penstock_cluster_error, penstock_config_error, penstock_message_error, penstock_closed_error,
    penstock_forked_error, penstock_queue_full_error, penstock_produce_error, penstock_delivery_error,
    penstock_message_timed_out_error, penstock_timeout_error, penstock_transaction_error, penstock_committed_error,
    penstock_fatal_error;
extern VALUE penstock_consumer_closed_error, penstock_consume_error, penstock_commit_error, penstock_consume_timeout_error;
extern VALUE penstock_not_shareable_error;
extern VALUE penstock_listener_deadlock_error;

struct penstock_error_context {
    rd_kafka_resp_err_t err;
    const struct ps_client *client; /* the client or consumer; may be NULL */
    VALUE producer_id;          /* where there is no client at hand: String, or nil or false */
    VALUE topic;                /* String or nil */
    int32_t partition;          /* -1: unknown */
    const int64_t *offset;      /* NULL: unknown */
    bool fatal, retriable, abortable;
};

extern const struct penstock_error_context penstock_no_context;

/* The text is one sentence without its full stop, and does not name what the context has: ErrorFactory adds that. */
VALUE penstock_error_new(VALUE error_class, const struct penstock_error_context *context, VALUE text);
NORETURN(void penstock_raise(VALUE error_class, const struct penstock_error_context *context, const char *format, ...));
NORETURN(void penstock_raise_closed(const struct ps_client *client));
NORETURN(void penstock_raise_uninitialized(VALUE object));
VALUE penstock_delivery_error_new(const struct ps_delivery *delivery, VALUE topic);
VALUE penstock_rejected_error_class(enum ps_rejected kind);
NORETURN(void penstock_raise_rejected(enum ps_rejected kind, const struct penstock_error_context *context, const char *text));
void penstock_raise_if_rejected(struct ps_client *client, VALUE topic); /* by brokers, just now; else returns */
void penstock_error_init(void);

/*
 * An object's struct. Raises TypeError for an object of another type, and for an object that has no struct yet: a thread that
 * searches the heap (ObjectSpace.each_object) finds objects that another thread is making.
 */
static inline void *penstock_data(VALUE object, const rb_data_type_t *type)
{
    void *data = rb_check_typeddata(object, type);
    if (!data) penstock_raise_uninitialized(object);
    return data;
}

/* ---- foreign_text.c: the only place that makes Strings of text from outside ---------------------- */

/* Each returns valid UTF-8, whatever the bytes are. */
VALUE penstock_text(const char *text); /* to be shown: control characters are escaped; NULL: nil */
VALUE penstock_text_sized(const char *text, size_t size);
VALUE penstock_name(const char *name);        /* the same, frozen and one for each name */
VALUE penstock_header_name(const char *name); /* frozen; only made valid, as programs look it up */
VALUE penstock_setting(const char *value);  /* what librdkafka has for a setting; only made valid */
VALUE penstock_json(const char *text, size_t size); /* frozen; stays JSON */
VALUE penstock_printable(VALUE object);       /* a String of any encoding, or an object's to_s, to be shown; may raise what that does */
void penstock_foreign_text_init(void);

/* ---- nogvl.c: the only place that releases the GVL ------------------------------------------------ */

/*
 * Runs a job that takes some ms at most, without the GVL; of a fiber with a scheduler, on a thread of its own. The job owns all that it
 * reads and writes: a scheduler may drop the fiber, and its stack with it, before the call ends. Whoever calls has a reference,
 * reads the results and drops it. When this raises, it has dropped it.
 */
void penstock_call(struct ps_job *job);
/* Runs a body on this thread, which may use its stack. Never raises: when an interrupt is pending, the call is made with the GVL. */
void penstock_nogvl_now(void *(*body)(void *), void *arg);

/*
 * Waiting: a thread sleeps without the GVL, a fiber with a scheduler gives way to others (fiber_wait.c). Each may raise what
 * interrupts it; nothing stays linked then.
 */

/* Sleep until all of the completion, the batch, or one delivery is settled. False: the deadline passed. */
bool penstock_wait(struct ps_completion *completion, int64_t deadline_us);
bool penstock_wait_batch(struct ps_batch *batch, int64_t deadline_us);
bool penstock_wait_delivery(const struct ps_delivery *delivery, int64_t deadline_us);
/* The same for a job; abandons it, which drops the caller's reference, also when it raises. */
bool penstock_wait_job(struct ps_job *job, int64_t deadline_us);
/* Runs a body that sleeps, once; `interrupt`, which is async-signal-safe, makes it return early. For threads that run no fibers. */
void penstock_sleep(void *(*body)(void *), void *arg, void (*interrupt)(void *), void *sleeper);
/* Sleeps until the bell has been rung since it was `heard`, or until the deadline. May run a trap that closes what the bell
 * belongs to. */
void penstock_wait_bell(struct ps_bell *bell, uint32_t heard, int64_t deadline_us);

static inline int64_t penstock_earlier(int64_t one_us, int64_t other_us)
{
    return one_us < other_us ? one_us : other_us;
}

/* ---- fiber_wait.c: the same for fibers ------------------------------------------------------------ */

struct penstock_wait {
    struct ps_completion *completion;
    const _Atomic bool *settled; /* of what is waited for; NULL: the whole completion */
    struct ps_polled *watched;   /* the client whose events settle it, which a thread serves meanwhile; NULL: none */
    bool (*attempt)(void *); /* if not NULL, true when there is no need to wait (any more); with the GVL, must not raise */
    void *arg;
    int64_t deadline_us;
};

VALUE penstock_fiber_scheduler(void); /* who is asked to wait here; nil: nobody, the thread has to block */
bool penstock_wait_as_fiber(VALUE scheduler, const struct penstock_wait *wait);
void penstock_check_forked(unsigned generation); /* raises if the process was forked since */
void penstock_fiber_wait_init(void);

/* ---- opening.c: opening and closing, of a Client and a Consumer ---------------------------------- */

void penstock_check_open(const struct ps_client *client); /* raises if it is closing or closed */
/* Opens it unless that was done; raises if it cannot be. True: it did, and has released the GVL; who calls keeps the VALUEs. */
bool penstock_open(struct ps_client *client, VALUE logger, VALUE token_refresher, VALUE source);
/* False: the time was up first, of which a tenth and `margin_ms` more are given: machines are busy. Closing goes on then. */
bool penstock_close(struct ps_client *client, int64_t timeout_ms, int64_t margin_ms);
void penstock_begin_closing(struct ps_client *client, int64_t timeout_ms); /* waits for nothing */

/* ---- config.c: Hash to rd_kafka_conf_t ------------------------------------------------------------ */

struct penstock_conf_facts { /* what our own code needs to know of it */
    VALUE brokers;           /* String */
    int64_t sticky_ms;
    size_t message_max_bytes, queue_max_bytes;
    int64_t transaction_timeout_ms;
    bool idempotent, transactional;
};

/* Fills `conf`, which stays the caller's, also when it raises. */
void penstock_conf_fill(rd_kafka_conf_t *conf, VALUE settings, bool logs_to_mailbox, struct penstock_conf_facts *facts);
/* Then librdkafka asks for tokens. */
void penstock_conf_ask_for_tokens(rd_kafka_conf_t *conf, bool consumer, bool logs_to_mailbox);
VALUE penstock_setting_lines(VALUE self);
VALUE penstock_setting_read(VALUE self, VALUE name, VALUE value); /* Settings.read */
VALUE penstock_features(VALUE self);

struct penstock_consumer_conf_facts {
    VALUE brokers;
    int64_t max_poll_interval_ms;
    bool stores_offsets;
};

void penstock_consumer_conf_fill(rd_kafka_conf_t *conf, VALUE settings, bool logs_to_mailbox,
                                 struct penstock_consumer_conf_facts *facts); /* the same for a consumer */

/* ---- secret.c: values of settings that nobody may see ---------------------------------------------- */

bool penstock_is_text(VALUE string);              /* the bytes of UTF-8, and none of them zero */
bool penstock_is_secret(VALUE value);
const char *penstock_secret_text(VALUE secret);   /* as long as the secret lives; NULL: it is no text */
void penstock_secret_init(void);

/* ---- message.c: Hash to one record ----------------------------------------------------------------- */

/* A String as it was given, then its bytes. */
struct penstock_bytes {
    union {
        VALUE string;     /* nil: there is none */
        const char *data; /* NULL: there is none */
    };
    size_t size;
};

/* Holds VALUEs: keep it on the stack or where produce_methods.c keeps a batch, so that the GC sees and pins them. */
struct penstock_message {
    VALUE topic;                        /* frozen, the same for the same name */
    VALUE label;
    struct penstock_bytes payload, key; /* Strings until penstock_message_to_bytes */
    struct penstock_bytes partition_key;
    union {
        VALUE headers;
        rd_kafka_headers_t *native_headers; /* librdkafka's once the message was handed over */
    };
    struct ps_topic *native_topic;      /* between ps_client_enter and exit only: closing frees it */
    int64_t timestamp; /* ms since the epoch; 0: the time it is handed over */
    int32_t partition;
    bool foreign_timestamp; /* parsed without it: penstock_message_plain has to make it a number first */
};

/* `index`: in produce_many's Array, -1 for a single message. `last_topic`: that of another message, which is likely to be
 * this one's too; or nil. Raises MessageInvalidError. */
void penstock_message_parse(struct penstock_message *message, VALUE hash, long index,
                            const struct ps_limits *limits, VALUE last_topic);
/* A copy of a message's Hash whose timestamp is an Integer. Of one with an object that says that it is a Time, such as
 * ActiveSupport::TimeWithZone. Runs that object's Ruby code, so it comes before the messages are parsed that are sent. */
VALUE penstock_message_plain(VALUE hash, long index);
NORETURN(void penstock_message_raise_label(VALUE label, long index)); /* of a message from a Ractor: it is not shareable */
/* For handing over without the GVL, in two steps: the first may raise, and says how many bytes the second copies;
 * what that does not copy is in the Array `kept`, which has to stay alive. */
size_t penstock_message_freeze(struct penstock_message *message, VALUE kept);
/* From Strings to bytes, and headers to librdkafka's. `copies` is moved on; NULL: no copies, for while the GVL is held. */
void penstock_message_to_bytes(struct penstock_message *message, char **copies);
void penstock_check_topic_name(VALUE name, long index); /* a String and a legal topic name, or raises */
void penstock_message_init(void);

/* ---- handover.c -------------------------------------------------------------------------------------- */

struct penstock_handover_error { /* why librdkafka did not take a message; err 0: it did */
    rd_kafka_resp_err_t err;
    bool fatal;
    char text[256];
};

/* Messages handed over by one call. */
struct penstock_handover {
    struct ps_producer *producer;
    struct ps_batch *batch;
    struct penstock_message *messages;
    char *copies;                    /* of Strings, when the GVL is released; owned */
    uint32_t prepared, sent;         /* so many of the batch */
    bool given_up;                   /* the others have a delivery result */
    bool topic_refused;              /* by librdkafka, in an earlier attempt too: not tried again */
    struct penstock_handover_error rejection; /* of messages[sent], if that is not the last */
};

/*
 * In three steps, and nothing may raise before the last. The first needs the GVL; `release`: the second is without it.
 * The second goes on where it stopped when it is called again. The third is for when not all were taken: the others
 * get `err` for a verdict.
 */
enum penstock_prepared {
    PENSTOCK_PREPARED,
    PENSTOCK_READ_AGAIN, /* new topics were made without the GVL: the batch is given up, and what was read of Ruby's objects is stale */
    PENSTOCK_NO_MEMORY
};

enum penstock_prepared penstock_handover_prepare(struct penstock_handover *handover, bool release, size_t copies_size);
void *penstock_handover_nogvl(void *handover);
bool penstock_handover_keep_bytes(struct penstock_handover *handover); /* for while the GVL is released; false: no memory */
void penstock_handover_give_up(struct penstock_handover *handover, rd_kafka_resp_err_t err);
void penstock_handover_find_full(struct penstock_handover *handover); /* as if librdkafka had said that the queue is full */
bool penstock_handover_queue_full(const struct penstock_handover *handover);
bool penstock_handover_unreachable(const struct penstock_handover *handover); /* no broker can be reached */
bool penstock_handover_place_unknown(const struct penstock_handover *handover); /* librdkafka knows no such topic or partition */
VALUE penstock_handover_error(const struct penstock_handover *handover); /* why messages[sent] was not taken */

/* ---- queue_space.c ---------------------------------------------------------------------------------- */

bool penstock_has_to_queue(const struct penstock_handover *handover); /* others wait for space, and it may not overtake them */
/* Until the attempt succeeds, made in its turn and with the GVL, for a call with so many messages. False: not in time. */
bool penstock_wait_for_space(struct ps_producer *producer, uint32_t want, bool (*attempt)(void *), void *arg, int64_t deadline_us);

/* ---- delivery_handle.c ------------------------------------------------------------------------------ */

VALUE penstock_delivery_handle_new(void);
void penstock_delivery_handle_attach(VALUE handle, struct ps_delivery *delivery, VALUE topic, VALUE label);
/* `topic` and `label`: those in the delivery are its handle's, which may have gone. */
VALUE penstock_delivery_report_new(const struct ps_delivery *delivery, VALUE topic, VALUE label);
const struct ps_producer *penstock_delivery_handle_producer(VALUE handle);
void penstock_delivery_handle_init(void);

/* ---- event_source.c --------------------------------------------------------------------------------- */

struct ps_events *penstock_event_source_get(VALUE source); /* of this process; borrowed from the object */
/* If somebody wants to be told of the delivery; before it is handed over. Any Ractor. False: no memory. */
bool penstock_keep_label(struct ps_delivery *delivery, VALUE label);
void penstock_event_source_hold(VALUE source);
void penstock_event_source_init(void);

/* ---- poller_class.c --------------------------------------------------------------------------------- */

struct ps_poller *penstock_poller_get(VALUE poller); /* of this process; borrowed from the object */
void penstock_poller_init(void);

/* ---- exit.c ------------------------------------------------------------------------------------------- */

void penstock_exit_init(void);
void penstock_exit_arm(void); /* sees to it that what is open when the process ends gets closed */

/* ---- keywords.c ------------------------------------------------------------------------------------- */

/* Reads the keywords `names` of a method's arguments into `values`, which keep what is not given. Anything but so many
 * positional arguments before them is an ArgumentError, and so is another keyword; it shows `form`. */
void penstock_keywords(int argc, const VALUE *argv, int positional, const char *form, int count, const VALUE *names, VALUE *values);
/* A `timeout:` in ms (-1: no limit), by the rules of Penstock::Seconds; raises ArgumentError. */
int64_t penstock_seconds(VALUE seconds);
void penstock_keywords_init(void);

/* ---- consumer_class.c; poll_methods.c and consumer_calls.c: more methods of Consumer; consumed_message.c ------- */

struct ps_consumer *penstock_consumer_get(VALUE consumer);  /* of this process, perhaps not open; raises ForkedError */
struct ps_consumer *penstock_consumer_open(VALUE consumer); /* the same, opened if need be; raises when it is closed */
/* One frozen String for each name, which messages mostly share with the one before them. */
VALUE penstock_consumer_topic_name(VALUE consumer, const rd_kafka_message_t *message);
/* Raises if brokers have rejected the consumer for long enough: to each thread that waits for them, and again each second. */
void penstock_consumer_check_rejected(struct ps_consumer *consumer);
void penstock_poll_methods_init(VALUE consumer_class);
void penstock_consumer_calls_init(VALUE consumer_class);

/* What a transactional producer needs to commit this consumer's offsets; whoever asked destroys it. Raises when the
 * consumer is closed, inherited, or has no group. */
rd_kafka_consumer_group_metadata_t *penstock_consumer_group_metadata(VALUE consumer);
void penstock_consumer_init(void);

/* A copy of everything, so that librdkafka's message can go. `topic`: the topic's name as a frozen String. `headers`: the
 * message's, parsed; NULL: none. */
VALUE penstock_consumed_message_new(const rd_kafka_message_t *message, const rd_kafka_headers_t *headers, VALUE topic);
/* Where a Message is from; raises TypeError for anything else. */
VALUE penstock_consumed_message_place(VALUE message, int32_t *partition, int64_t *offset);
void penstock_consumed_message_init(void);

/* ---- produce_methods.c ----------------------------------------------------------------------------- */

/* Who produces: a Penstock::Native::ProducerClient, or the client that a slot has. */
struct penstock_sender {
    VALUE self;              /* the Penstock::Native::ProducerClient; nil: any Ractor */
    struct ps_producer *producer;
    struct ps_slot *slot;    /* NULL: the Penstock::Native::ProducerClient knows */
    struct ps_limits terms;
};

/* As Client#produce and #produce_many; nil: the slot is empty. */
VALUE penstock_produce(const struct penstock_sender *sender, VALUE hash);
void penstock_before_producing_many(VALUE timeout_ms);
VALUE penstock_produce_many(const struct penstock_sender *sender, VALUE hashes, VALUE timeout_ms, VALUE tally);

/* ---- shareable_producer.c -------------------------------------------------------------------------- */

void penstock_shareable_producer_init(void);

/* ---- producer_class.c ---------------------------------------------------------------------------------- */

struct penstock_producer_client { /* what a Client holds */
    _Atomic(struct ps_producer *) producer; /* owns a reference */
    VALUE poller;                       /* Penstock::Poller */
    VALUE logger;                       /* nil: librdkafka's log goes to stderr */
    VALUE source;                       /* Penstock::EventSource, or nil: nobody can listen */
    struct ps_limits terms;
    VALUE token_refresher;              /* Penstock::Native::TokenRefresher, or nil */
    VALUE last_topic;                   /* the latest message's, or nil */
};

struct penstock_producer_client *penstock_producer_data(VALUE client);
struct ps_producer *penstock_producer_get(VALUE client);  /* of this process; borrowed from the object */
struct ps_producer *penstock_producer_open(VALUE client); /* the same, opened if need be; raises when it is closed */
/* Releases the GVL when it has to open: what was read from Ruby objects before must be read again. True: it did. */
bool penstock_producer_open_if_new(VALUE client, struct ps_producer *producer);
int64_t penstock_timeout_ms(VALUE milliseconds); /* Numeric or nil (-1: no limit); raises ArgumentError */
void penstock_producer_init(void);
void penstock_produce_methods_init(VALUE client_class);
void penstock_metadata_methods_init(VALUE client_class);

/* ---- embedded_cluster.c, log_dispatcher.c, event_worker.c --------------------------------------------- */

void penstock_embedded_cluster_init(void);
void penstock_log_dispatcher_init(void);
void penstock_event_worker_init(void);

/* ---- bearer.c ---------------------------------------------------------------------------------------- */

VALUE penstock_bearer_new(struct ps_client *client);
/* Before it is opened: `refresher` (Penstock::Native::TokenRefresher) brings the tokens that it asks for. nil: nobody does. */
void penstock_attach_refresher(VALUE refresher, uint64_t address, struct ps_client *client);
void penstock_set_credentials(struct ps_client *client, const struct penstock_error_context *context, VALUE user, VALUE password);
void penstock_bearer_init(void);

/* ---- transaction_methods.c: more methods of Client ------------------------------------------------- */

void penstock_transaction_methods_init(VALUE client_class);

#endif
