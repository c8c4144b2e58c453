/*
 * Penstock::Native::ProducerClient, continued: transactions, fatal errors, purge. core/produce/transaction.c makes the calls.
 * Here a Ruby thread starts a call and waits for it. An interrupt ends the wait at once.
 *
 * Any thread and fiber. A client makes its calls one after the other, in the order in which they were started.
 */
#include "ruby/penstock.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- one call ---- */

/*
 * How long librdkafka may overrun a call's deadline. It normally observes deadlines to within a few milliseconds, unless a lock
 * is never released: a truncated answer to AddPartitionsToTxn leaves a topic locked (2.0.2, 2.14.2), and then each call of that
 * client waits for ever.
 */
enum { OVERRUN_US = 5000000, LOOK_US = 250000 };

struct transaction_wait {
    struct ps_transaction_job *job;
    bool cancelled;
    bool hangs;
    bool given_up; /* the producer closes, and its time is up */
    struct ps_transaction_error unreachable; /* no broker can be reached for config.unreachable_timeout; else its err is 0 */
};

/* Whether the caller stops waiting: the producer has closed, or reaches no broker. */
static bool stops_waiting(struct transaction_wait *wait)
{
    wait->given_up = ps_transaction_given_up(wait->job);
    if (wait->given_up) return true; /* M:offsets_wait_ends */
    struct ps_transaction_error error;
    if (!ps_transaction_unreachable(wait->job, &error)) return false;
    if (wait->job->call != PS_TRANSACTION_OFFSETS && !ps_transaction_cancel(wait->job)) return false; /* its turn has just come */
    wait->unreachable = error;
    return true;
}

/* Sending offsets is the only call that cannot be cut short. It continues, and its caller stops waiting, as do those of the calls whose
 * turn comes after it. */
static bool await_end(struct transaction_wait *wait, int64_t deadline_us)
{
    struct ps_completion *completion = &wait->job->job.completion;
    while (wait->job->call == PS_TRANSACTION_OFFSETS || ps_transaction_queued(wait->job)) {
        int64_t until_us = penstock_earlier(deadline_us, ps_now_us() + LOOK_US);
        if (penstock_wait(completion, until_us)) return true;
        if (until_us == deadline_us) return false;
        if (stops_waiting(wait)) return true;
    }
    return penstock_wait(completion, deadline_us);
}

static VALUE wait_body(VALUE arg)
{
    struct transaction_wait *wait = (struct transaction_wait *)arg;
    if (await_end(wait, wait->job->deadline_us)) return Qnil;
    wait->cancelled = ps_transaction_cancel(wait->job);
    if (wait->cancelled) return Qnil;
    /* The call has begun, and observes its deadline itself. */
    int64_t latest_us = wait->job->deadline_us > ps_now_us() ? wait->job->deadline_us : ps_now_us();
    wait->hangs = !await_end(wait, latest_us + OVERRUN_US); /* M:hung_transaction_ends */
    return Qnil;
}

static struct penstock_error_context context_of(const struct ps_producer *producer, const struct ps_transaction_error *error)
{
    struct penstock_error_context context = penstock_no_context;
    context.client = &producer->client;
    context.err = error->err;
    context.fatal = error->fatal;
    context.retriable = error->retriable && !error->fatal;
    context.abortable = error->abortable && !error->fatal;
    return context;
}

static void raise_error(const struct ps_producer *producer, const struct ps_transaction_error *error)
{
    /* Closing may have ended the call. */
    if (error->err == RD_KAFKA_RESP_ERR__DESTROY || error->retriable) penstock_check_open(&producer->client);
    struct penstock_error_context context = context_of(producer, error);
    if (error->rejected) penstock_raise_rejected(error->rejected, &context, error->text);
    penstock_raise(penstock_transaction_error, &context, "%s", error->text);
}

static void check_transactional(const struct ps_producer *producer)
{
    if (producer->settings.transactional) return;
    struct penstock_error_context context = penstock_no_context;
    context.client = &producer->client;
    context.err = RD_KAFKA_RESP_ERR__NOT_CONFIGURED;
    penstock_raise(penstock_transaction_error, &context, "transactions need config.kafka[\"transactional.id\"]");
}

/* Makes the call and raises its error. Owns `offsets` and `group`. */
static VALUE make_call(const struct ps_producer *borrowed, enum ps_transaction_call call, int64_t timeout_ms,
                       rd_kafka_topic_partition_list_t *offsets, rd_kafka_consumer_group_metadata_t *group)
{
    struct ps_producer *producer = (struct ps_producer *)borrowed;
    struct ps_transaction_job *job = ps_transaction_start(producer, call, timeout_ms, offsets, group);
    if (!job) {
        int failed = errno;
        penstock_check_open(&producer->client);
        rb_syserr_fail(failed ? failed : EAGAIN, "cannot start a thread for the transaction");
    }
    struct transaction_wait wait = { .job = job };
    int interrupted = 0;
    rb_protect(wait_body, (VALUE)&wait, &interrupted);
    /* An abort is not cancelled, even if no thread waits for it any more: it makes the client usable again. */
    if (interrupted && call != PS_TRANSACTION_ABORT) ps_transaction_cancel(job);

    struct ps_transaction_error error = { 0 };
    bool committed = false;
    if (wait.unreachable.err) {
        error = wait.unreachable;
    } else if (!interrupted && !wait.cancelled && !wait.hangs && !wait.given_up) {
        error = job->error;
        committed = job->committed;
    }
    ps_job_abandon(&job->job);
    if (interrupted) rb_jump_tag(interrupted);

    if (wait.given_up) penstock_raise_closed(&producer->client);
    if (wait.cancelled) {
        error = (struct ps_transaction_error){
            .err = RD_KAFKA_RESP_ERR__TIMED_OUT, .retriable = true,
            .text = "another transaction call of this producer has not ended yet, so this one did not begin",
        };
    }
    if (wait.hangs) {
        error = (struct ps_transaction_error){
            .err = RD_KAFKA_RESP_ERR__TIMED_OUT,
            .text = "librdkafka has not returned from the call 5 s after its deadline, so this client hangs; the transaction's "
                    "outcome is unknown",
        };
    }
    if (committed) {
        struct penstock_error_context context = penstock_no_context;
        context.client = &producer->client;
        context.err = RD_KAFKA_RESP_ERR__STATE;
        penstock_raise(penstock_committed_error, &context, "the transaction has been committed");
    }
    if (call == PS_TRANSACTIONS_INIT && error.err == RD_KAFKA_RESP_ERR__TIMED_OUT)
        snprintf(error.text, sizeof(error.text), "the cluster could not be reached, or did not answer in time");
    if (error.err) raise_error(producer, &error);
    return Qnil;
}

static VALUE simple_call(VALUE self, enum ps_transaction_call call, VALUE timeout_ms)
{
    int64_t timeout = penstock_timeout_ms(timeout_ms);
    check_transactional(penstock_producer_get(self));
    make_call(penstock_producer_open(self), call, timeout, NULL, NULL);
    RB_GC_GUARD(self);
    return Qnil;
}

/* ---- the transaction methods ---- */

static VALUE client_init_transactions(VALUE self, VALUE timeout_ms)
{
    return simple_call(self, PS_TRANSACTIONS_INIT, timeout_ms);
}

static VALUE client_begin_transaction(VALUE self)
{
    return simple_call(self, PS_TRANSACTION_BEGIN, Qnil);
}

static VALUE client_commit_transaction(VALUE self, VALUE timeout_ms)
{
    return simple_call(self, PS_TRANSACTION_COMMIT, timeout_ms);
}

static VALUE client_abort_transaction(VALUE self, VALUE timeout_ms)
{
    return simple_call(self, PS_TRANSACTION_ABORT, timeout_ms);
}

/* ---- offsets ---- */

enum { TOPIC, PARTITION, OFFSET, METADATA, FIELDS, EPOCH = FIELDS, WITH_EPOCH }; /* the leader epoch may be missing, or nil */

/* A copy of one row, which the program cannot change any more. Raises if the row is invalid. */
static VALUE checked_offset(VALUE row)
{
    if (!RB_TYPE_P(row, T_ARRAY) || (RARRAY_LEN(row) != FIELDS && RARRAY_LEN(row) != WITH_EPOCH))
        rb_raise(rb_eArgError, "an offset is [topic, partition, offset, metadata], not %+" PRIsVALUE, row);
    row = rb_ary_dup(row);
    VALUE topic = RARRAY_AREF(row, TOPIC), metadata = RARRAY_AREF(row, METADATA);
    if (!RB_TYPE_P(topic, T_STRING) || !ps_topic_name_valid(RSTRING_PTR(topic), RSTRING_LEN(topic)))
        rb_raise(rb_eArgError, "%+" PRIsVALUE " is not a valid topic name", topic);
    if (!RB_INTEGER_TYPE_P(RARRAY_AREF(row, PARTITION)) || NUM2INT(RARRAY_AREF(row, PARTITION)) < 0)
        rb_raise(rb_eArgError, "a partition is an Integer of 0 or more, not %+" PRIsVALUE, RARRAY_AREF(row, PARTITION));
    if (!RB_INTEGER_TYPE_P(RARRAY_AREF(row, OFFSET)) || NUM2LL(RARRAY_AREF(row, OFFSET)) < 0)
        rb_raise(rb_eArgError, "an offset is an Integer of 0 or more, not %+" PRIsVALUE, RARRAY_AREF(row, OFFSET));
    if (!NIL_P(rb_ary_entry(row, EPOCH))) NUM2INT(rb_ary_entry(row, EPOCH));
    if (!NIL_P(metadata) && !RB_TYPE_P(metadata, T_STRING))
        rb_raise(rb_eArgError, "an offset's metadata is a String or nil, not %+" PRIsVALUE, metadata);
    rb_ary_store(row, TOPIC, rb_str_new_frozen(topic));
    if (!NIL_P(metadata)) rb_ary_store(row, METADATA, rb_str_new_frozen(metadata));
    return row;
}

/* The rows are checked, so this does not raise and leaks nothing. NULL: no memory. */
static rd_kafka_topic_partition_list_t *to_partition_list(VALUE rows)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)RARRAY_LEN(rows));
    for (long i = 0; i < RARRAY_LEN(rows); i++) {
        VALUE row = RARRAY_AREF(rows, i), topic = RARRAY_AREF(row, TOPIC), metadata = RARRAY_AREF(row, METADATA);
        char name[256];
        snprintf(name, sizeof(name), "%.*s", (int)RSTRING_LEN(topic), RSTRING_PTR(topic));
        rd_kafka_topic_partition_t *element =
            rd_kafka_topic_partition_list_add(list, name, NUM2INT(RARRAY_AREF(row, PARTITION)));
        element->offset = NUM2LL(RARRAY_AREF(row, OFFSET));
        if (!NIL_P(rb_ary_entry(row, EPOCH))) ps_set_leader_epoch(element, NUM2INT(rb_ary_entry(row, EPOCH)));
        if (NIL_P(metadata)) continue;
        element->metadata_size = RSTRING_LEN(metadata);
        element->metadata = malloc(element->metadata_size + 1); /* librdkafka frees it with the list */
        if (!element->metadata) {
            rd_kafka_topic_partition_list_destroy(list);
            return NULL;
        }
        memcpy(element->metadata, RSTRING_PTR(metadata), element->metadata_size);
    }
    return list;
}

/*
 * The group of the offsets: a Penstock::Consumer, { metadata: Consumer#group_metadata }, or a group's id. A consumer's metadata
 * include the group's generation, so brokers reject a consumer that has lost its partitions. A call that is repeated needs the same
 * arguments, so also the same metadata.
 */
static VALUE checked_group(VALUE group)
{
    if (rb_obj_is_kind_of(group, rb_const_get(penstock_module, rb_intern("Consumer")))) return group;
    if (RB_TYPE_P(group, T_HASH)) {
        VALUE metadata = rb_hash_lookup(group, ID2SYM(rb_intern("metadata")));
        Check_Type(metadata, T_STRING);
        return rb_ary_new_from_args(1, rb_str_new_frozen(metadata));
    }
    if (!RB_TYPE_P(group, T_STRING))
        rb_raise(rb_eArgError, "the group must be a Penstock::Consumer or a String, not %+" PRIsVALUE, group);
    if (RSTRING_LEN(group) == 0) rb_raise(rb_eArgError, "the name of the consumer group is empty");
    group = rb_str_new_frozen(group);
    rb_string_value_cstr(&group);
    return group;
}

/* The caller owns the result. May raise. */
static rd_kafka_consumer_group_metadata_t *to_group_metadata(VALUE group)
{
    if (RB_TYPE_P(group, T_STRING)) return rd_kafka_consumer_group_metadata_new(RSTRING_PTR(group));
    if (RB_TYPE_P(group, T_ARRAY)) {
        VALUE bytes = RARRAY_AREF(group, 0);
        rd_kafka_consumer_group_metadata_t *metadata = NULL;
        rd_kafka_error_t *error = rd_kafka_consumer_group_metadata_read(&metadata, RSTRING_PTR(bytes), RSTRING_LEN(bytes));
        if (!error) return metadata;
        rd_kafka_error_destroy(error);
        rb_raise(rb_eArgError, "the metadata are not those of a consumer group");
    }
    return penstock_consumer_group_metadata(penstock_consumer_client(group));
}

static VALUE client_send_offsets(VALUE self, VALUE offsets, VALUE group, VALUE timeout_ms)
{
    int64_t timeout = penstock_timeout_ms(timeout_ms);
    check_transactional(penstock_producer_get(self));
    Check_Type(offsets, T_ARRAY);
    group = checked_group(group);
    VALUE rows = rb_ary_new();
    for (long i = 0; i < RARRAY_LEN(offsets); i++) rb_ary_push(rows, checked_offset(RARRAY_AREF(offsets, i)));

    struct ps_producer *producer = penstock_producer_open(self);
    if (RARRAY_LEN(rows) == 0) return Qnil;
    rd_kafka_consumer_group_metadata_t *metadata = to_group_metadata(group);
    rd_kafka_topic_partition_list_t *list = to_partition_list(rows); /* does not raise */
    if (!list) {
        rd_kafka_consumer_group_metadata_destroy(metadata);
        rb_memerror();
    }
    make_call(producer, PS_TRANSACTION_OFFSETS, timeout, list, metadata);
    RB_GC_GUARD(rows);
    RB_GC_GUARD(group);
    RB_GC_GUARD(self);
    return Qnil;
}

static VALUE client_failed_message(VALUE self)
{
    struct ps_producer *producer = penstock_producer_get(self);
    return ps_client_inherited(&producer->client) ? Qnil : penstock_failed_message_error(producer);
}

/* ---- fatal errors ---- */

static VALUE client_fatal_error(VALUE self)
{
    struct ps_producer *producer = penstock_producer_get(self);
    struct ps_transaction_error error;
    if (!ps_producer_fatal_error(producer, &error)) return Qnil;
    struct penstock_error_context context = context_of(producer, &error);
    return penstock_error_new(penstock_fatal_error, &context, penstock_text(error.text));
}

static VALUE client_call_test_fatal_error(VALUE self, VALUE number, VALUE reason)
{
    int err = NUM2INT(number);
    reason = rb_str_new_frozen(StringValue(reason)); /* opening releases the GVL */
    const char *text = rb_string_value_cstr(&reason);
    struct ps_producer *producer = penstock_producer_open(self);
    struct penstock_error_context context = penstock_no_context;
    context.client = &producer->client;
    context.err = ps_producer_test_fatal_error(producer, err, text);
    RB_GC_GUARD(reason);
    if (context.err == RD_KAFKA_RESP_ERR__DESTROY) penstock_raise_closed(&producer->client);
    if (context.err) penstock_raise(penstock_usage_error, &context, "the producer has a fatal error already");
    return Qnil;
}

/* ---- purge and facts ---- */

enum { LONGEST_PURGE_MS = 1000 }; /* limits the wait, as a broker's thread may be in a slow name lookup */

static VALUE client_purge(VALUE self)
{
    struct ps_producer *producer = penstock_producer_get(self);
    penstock_check_open(&producer->client);
    uint64_t in_flight = ps_producer_in_flight(producer);
    struct ps_job *purge = in_flight > 0 ? ps_producer_purge(producer) : NULL;
    if (purge) penstock_wait_job(purge, ps_deadline_us(LONGEST_PURGE_MS));
    return ULL2NUM(in_flight);
}

static VALUE client_idempotent_p(VALUE self)
{
    return penstock_producer_get(self)->settings.idempotent ? Qtrue : Qfalse;
}

static VALUE client_transactional_p(VALUE self)
{
    return penstock_producer_get(self)->settings.transactional ? Qtrue : Qfalse;
}

void penstock_transaction_methods_init(VALUE client_class)
{
    rb_define_method(client_class, "init_transactions", client_init_transactions, 1);
    rb_define_method(client_class, "begin_transaction", client_begin_transaction, 0);
    rb_define_method(client_class, "commit_transaction", client_commit_transaction, 1);
    rb_define_method(client_class, "abort_transaction", client_abort_transaction, 1);
    rb_define_method(client_class, "send_offsets_to_transaction", client_send_offsets, 3);
    rb_define_method(client_class, "failed_message", client_failed_message, 0);
    rb_define_method(client_class, "fatal_error", client_fatal_error, 0);
    rb_define_private_method(client_class, "call_test_fatal_error", client_call_test_fatal_error, 2);
    rb_define_method(client_class, "purge", client_purge, 0);
    rb_define_method(client_class, "idempotent?", client_idempotent_p, 0);
    rb_define_method(client_class, "transactional?", client_transactional_p, 0);
}
