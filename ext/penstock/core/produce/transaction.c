/*
 * Transactions: librdkafka's calls for them, one at a time for each client, in the order of the requests. Each runs on its
 * own native thread (job.c), between ps_client_enter and exit; the caller may stop waiting.
 *
 * If a call runs out of time, librdkafka continues it in the background. The same call, made again, resumes it; until then
 * librdkafka accepts no other. This file uses that twice. It makes calls in slices, so that closing need not wait for the
 * rest of a call's time once it has given up delivering. And an abort after an unfinished commit first finds out how that
 * commit ended.
 *
 * `producer->transactions` belongs to the call whose turn it is, and to the closing thread when all calls have ended.
 */
#include "produce/produce.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * SLICE: the longest extra wait of closing. AT_LEAST: the minimum time for the abort of an open transaction when closing.
 * LEAST: the minimum time of each call, beyond its deadline if need be. If a call ends before librdkafka's main thread has looked
 * at it, the results of its operations reach the wrong ones when it is resumed. librdkafka then takes the coordinator's answer to
 * a commit for that to an abort, and ends the process by an assertion (2.0.2, rd_kafka_txn_endtxn_complete).
 */
enum { SLICE_MS = 500, CLOCKS_DIFFER_US = 20000, AT_LEAST_MS = 1000, SEND_SLICE_MS = 100, LEAST_MS = 200, REMAINS_US = 10000 };

/* ---- errors ---- */

bool ps_producer_read_fatal_error(struct ps_producer *producer, struct ps_transaction_error *fatal)
{
    char text[sizeof(fatal->text)];
    rd_kafka_resp_err_t first = ps_client_fatal_error(&producer->client, text, sizeof(text));
    if (!first) return false;
    *fatal = (struct ps_transaction_error){ .err = first, .fatal = true };
    snprintf(fatal->text, sizeof(fatal->text), "%s", text);
    return true;
}

static void take_error(struct ps_producer *producer, rd_kafka_error_t *error, struct ps_transaction_error *taken)
{
    memset(taken, 0, sizeof(*taken));
    if (!error) return;
    taken->err = rd_kafka_error_code(error);
    taken->fatal = rd_kafka_error_is_fatal(error);
    taken->retriable = rd_kafka_error_is_retriable(error);
    taken->abortable = rd_kafka_error_txn_requires_abort(error);
    ps_client_quote(&producer->client, taken->text, sizeof(taken->text), rd_kafka_error_string(error));
    rd_kafka_error_destroy(error);

    /* After the first time, librdkafka only reports that there was a fatal error. The caller needs the original one. */
    if (taken->err == RD_KAFKA_RESP_ERR__FATAL || taken->fatal) ps_producer_read_fatal_error(producer, taken);
}

static void transaction_fail(struct ps_transaction_error *error, rd_kafka_resp_err_t err, const char *text)
{
    *error = (struct ps_transaction_error){ .err = err, .retriable = err == RD_KAFKA_RESP_ERR__TIMED_OUT };
    snprintf(error->text, sizeof(error->text), "%s", text);
}

/* True if brokers have rejected the client for long enough, or cannot be reached. */
static bool rejected(struct ps_producer *producer, struct ps_transaction_error *error)
{
    char text[sizeof(error->text)];
    if (atomic_load(&producer->client.rejection.given_up) == 0) return false;
    enum ps_rejected kind = ps_rejection_now(&producer->client.rejection, text, sizeof(text));
    if (kind == PS_NOT_REJECTED) return false;
    transaction_fail(error, ps_rejection_code(kind), text);
    error->rejected = kind;
    return true;
}

/* For a call in an open transaction. It is unknown whether the coordinator has received it, but the same call, made again,
 * resumes it. */
static bool unreachable(struct ps_producer *producer, struct ps_transaction_error *error)
{
    char text[sizeof(error->text)];
    if (!ps_rejection_unreachable(&producer->client.rejection)) return false;
    ps_rejection_unreachable_text(&producer->client.rejection, text, sizeof(text));
    transaction_fail(error, ps_rejection_code(PS_UNREACHABLE), text);
    error->retriable = true;
    return true;
}

/* ---- librdkafka's calls ---- */

static rd_kafka_error_t *transaction_make_call(const struct ps_transaction_job *job, enum ps_transaction_call call,
                                               int timeout_ms)
{
    rd_kafka_t *rk = job->producer->client.rk;
    switch (call) {
    case PS_TRANSACTIONS_INIT: return rd_kafka_init_transactions(rk, timeout_ms);
    case PS_TRANSACTION_BEGIN: return rd_kafka_begin_transaction(rk);
    case PS_TRANSACTION_COMMIT: return rd_kafka_commit_transaction(rk, timeout_ms);
    case PS_TRANSACTION_ABORT:
        ps_rejection_purges(&job->producer->client.rejection, PS_NOT_REJECTED); /* librdkafka purges what it has not sent */
        return rd_kafka_abort_transaction(rk, timeout_ms);
    case PS_TRANSACTION_OFFSETS:
        return rd_kafka_send_offsets_to_transaction(rk, job->offsets, job->group, timeout_ms);
    }
    return NULL;
}

static bool closing_gave_up(struct ps_producer *producer)
{
    int64_t close_by_us = atomic_load(&producer->client.close_by_us);
    return close_by_us != 0 && ps_now_us() >= close_by_us;
}

/*
 * A call of librdkafka's consists of operations on its main thread, and keeps one result. If a call is resumed while its result
 * arrives, the main thread makes one result more than the call takes (2.0.2, rd_kafka_txn_op_req0). The next call then
 * takes that result for its own and does nothing: a transaction that has begun has not, or a commit stays unacknowledged, and
 * librdkafka may end the process by an assertion. So a resumed call that has ended is made again until it fails, because there
 * is nothing left to do. Before, the main thread gets time for its last operations: it discards their results while no call runs.
 */
static void take_remaining_results(const struct ps_transaction_job *job, enum ps_transaction_call call)
{
    const struct timespec remains = { .tv_nsec = REMAINS_US * 1000 };
    bool ended = false;
    for (int i = 0; i < 3 && !ended; i++) {
        nanosleep(&remains, NULL);
        rd_kafka_error_t *error = transaction_make_call(job, call, SLICE_MS);
        ended = error && !rd_kafka_error_is_retriable(error);
        if (error) rd_kafka_error_destroy(error);
    }
    nanosleep(&remains, NULL);
}

static int next_slice_ms(const struct ps_transaction_job *job)
{
    int64_t stop_us = atomic_load(&job->producer->client.close_by_us); /* closing waits for the slice before its last steps */
    bool stops_first = stop_us > ps_now_us() && stop_us < job->deadline_us;
    int remaining_ms = ps_remaining_ms(stops_first ? stop_us : job->deadline_us);
    if (remaining_ms > SLICE_MS + LEAST_MS) return SLICE_MS;
    return remaining_ms > LEAST_MS ? remaining_ms : LEAST_MS; /* M:transaction_least_time */
}

/* Runs until the deadline. Offsets are sent in one slice: librdkafka cannot resume that, and would send them again. */
static void transaction_call(struct ps_transaction_job *job, enum ps_transaction_call call, bool closing)
{
    struct ps_transactions *transactions = &job->producer->transactions;
    bool sliced = call != PS_TRANSACTION_OFFSETS;
    /* librdkafka does not look for a fatal error made for a test. */
    if (ps_producer_read_fatal_error(job->producer, &job->error)) return;
    if (!sliced && unreachable(job->producer, &job->error)) return;
    for (;;) {
        int slice_ms = sliced ? next_slice_ms(job) : ps_remaining_ms(job->deadline_us);
        int64_t slice_end_us = ps_deadline_us(slice_ms) - CLOCKS_DIFFER_US;
        take_error(job->producer, transaction_make_call(job, call, slice_ms), &job->error);
        if (job->error.abortable) transactions->failed = true;
        bool ran_out = job->error.err && job->error.retriable && ps_now_us() >= slice_end_us;
        if (!sliced || call == PS_TRANSACTION_BEGIN) return;
        if (!ran_out) {
            if (transactions->resumed) take_remaining_results(job, call);
            transactions->resumed = false;
            return;
        }
        transactions->resumed = true; /* by the next slice, or by a later job */
        if (call == PS_TRANSACTIONS_INIT ? rejected(job->producer, &job->error) : unreachable(job->producer, &job->error)) return;
        if (ps_now_us() >= job->deadline_us - CLOCKS_DIFFER_US) return;
        if (!closing && closing_gave_up(job->producer)) return;
    }
}

static void transaction_init(struct ps_transaction_job *job)
{
    struct ps_transactions *transactions = &job->producer->transactions;
    if (transactions->state != PS_TRANSACTIONS_NEW) return; /* done by a call whose caller had stopped waiting */
    transaction_call(job, PS_TRANSACTIONS_INIT, false);
    if (!job->error.err) transactions->state = PS_TRANSACTIONS_READY;
}

static uint64_t failures(const struct ps_producer *producer)
{
    return atomic_load(&producer->failed) + atomic_load(&producer->purged);
}

static void forget_failed(struct ps_producer *producer)
{
    pthread_mutex_lock(&producer->client.lock);
    producer->transactions.first_failed.err = 0;
    pthread_mutex_unlock(&producer->client.lock);
}

static void transaction_begin(struct ps_transaction_job *job)
{
    struct ps_transactions *transactions = &job->producer->transactions;
    transaction_call(job, PS_TRANSACTION_BEGIN, false);
    if (job->error.err) return;
    transactions->state = PS_TRANSACTION_OPEN;
    transactions->failed = false;
    transactions->failures_before = failures(job->producer);
    atomic_store(&transactions->ended_us, 0);
    atomic_store(&transactions->began_us, ps_now_us());
    forget_failed(job->producer);
}

bool ps_transaction_overran(const struct ps_producer *producer)
{
    int64_t began_us = atomic_load(&producer->transactions.began_us), ended_us = atomic_load(&producer->transactions.ended_us);
    return began_us && (ended_us ? ended_us : ps_now_us()) - began_us > producer->settings.transaction_timeout_ms * 1000;
}

static void transaction_ended(struct ps_transaction_job *job, enum ps_transaction_state how)
{
    job->producer->transactions.state = how;
    /* The caller sees the transaction ended only with its messages' results. */
    ps_poller_await_served(&job->producer->polled, job->deadline_us);
    forget_failed(job->producer);
}

static void transaction_commit(struct ps_transaction_job *job, bool closing)
{
    struct ps_transactions *transactions = &job->producer->transactions;
    if (transactions->state == PS_TRANSACTION_COMMITTED) return; /* done by a call whose caller had stopped waiting */
    transaction_call(job, PS_TRANSACTION_COMMIT, closing);
    if (!job->error.err) transaction_ended(job, PS_TRANSACTION_COMMITTED);
    else if (transactions->state == PS_TRANSACTION_OPEN || transactions->state == PS_TRANSACTION_COMMITTING)
        transactions->state = job->error.retriable ? PS_TRANSACTION_COMMITTING : PS_TRANSACTION_OPEN;
}

/*
 * librdkafka sends the coordinator the end of an aborted transaction once it has asked to add a partition to it, without
 * waiting for the coordinator's agreement. If the coordinator is still busy with the previous transaction, it has not agreed
 * and finds no transaction to end, and the producer is lost (invalid_txn_state, fatal; measured in bench/abort_race.rb: up to
 * every second abort right after a commit). And messages purged between others leave gaps that make a later transaction fail.
 * So an abort first sends what is in flight, for up to abort_wait_ms. It does not if a message has already failed: librdkafka
 * then sends nothing more, and handles the abort correctly.
 */
static void let_it_be_sent(struct ps_transaction_job *job)
{
    struct ps_producer *producer = job->producer;
    int64_t send_until_us = ps_now_us() + producer->settings.abort_wait_ms * 1000, half_us = (ps_now_us() + job->deadline_us) / 2;
    if (half_us < send_until_us) send_until_us = half_us;
    while (ps_producer_in_flight(producer) > 0 && failures(producer) == producer->transactions.failures_before) {
        int remaining_ms = ps_remaining_ms(send_until_us);
        if (remaining_ms == 0 || closing_gave_up(producer)) return;
        rd_kafka_flush(producer->client.rk, remaining_ms > SEND_SLICE_MS ? SEND_SLICE_MS : remaining_ms);
        ps_poller_await_served(&producer->polled, send_until_us);
    }
}

static void transaction_abort(struct ps_transaction_job *job, bool closing)
{
    struct ps_transactions *transactions = &job->producer->transactions;
    if (transactions->state == PS_TRANSACTION_ABORTED) return;
    if (transactions->state == PS_TRANSACTION_COMMITTING) {
        /* The commit no longer waits for messages that are not sent yet, so it can end. */
        ps_rejection_purges(&job->producer->client.rejection, PS_NOT_REJECTED);
        rd_kafka_purge(job->producer->client.rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING);
        transaction_commit(job, closing);
        if (job->error.err && job->error.retriable) return; /* still undecided */
    }
    job->committed = transactions->state == PS_TRANSACTION_COMMITTED;
    if (job->committed) return;
    if (transactions->state == PS_TRANSACTION_OPEN && !transactions->failed && !closing) let_it_be_sent(job);
    transaction_call(job, PS_TRANSACTION_ABORT, closing);
    if (!job->error.err) transaction_ended(job, PS_TRANSACTION_ABORTED);
}

/* A client that was fenced begins no other transaction, so this keeps how long the last one took. */
static void note_end(const struct ps_transaction_job *job)
{
    int64_t unknown = 0;
    bool ends = job->call == PS_TRANSACTION_COMMIT || job->call == PS_TRANSACTION_ABORT;
    if (ends && (!job->error.err || job->error.fatal))
        atomic_compare_exchange_strong(&job->producer->transactions.ended_us, &unknown, ps_now_us());
}

/* ---- taking turns ---- */

static void await_turn(struct ps_transactions *transactions, uint32_t ticket)
{
    uint32_t serving;
    while ((serving = atomic_load(&transactions->serving)) != ticket)
        ps_word_sleep(&transactions->serving, serving, PS_FOREVER);
}

static void end_turn(struct ps_transactions *transactions)
{
    atomic_fetch_add(&transactions->serving, 1);
    ps_word_wake(&transactions->serving);
}

static bool set_stage(struct ps_transaction_job *job, int stage)
{
    int queued = PS_TRANSACTION_QUEUED;
    return atomic_compare_exchange_strong(&job->stage, &queued, stage);
}

bool ps_transaction_given_up(const struct ps_transaction_job *job)
{
    return closing_gave_up(job->producer);
}

bool ps_transaction_unreachable(struct ps_transaction_job *job, struct ps_transaction_error *error)
{
    return unreachable(job->producer, error);
}

bool ps_transaction_queued(const struct ps_transaction_job *job)
{
    return atomic_load(&job->stage) == PS_TRANSACTION_QUEUED;
}

bool ps_transaction_cancel(struct ps_transaction_job *job)
{
    return set_stage(job, PS_TRANSACTION_CANCELLED);
}

static void transaction_run(struct ps_job *base)
{
    struct ps_transaction_job *job = (struct ps_transaction_job *)base;
    struct ps_producer *producer = job->producer;

    await_turn(&producer->transactions, job->ticket);
    if (set_stage(job, PS_TRANSACTION_RUNNING)) {
        if (atomic_load(&producer->client.state) != PS_OPEN) {
            transaction_fail(&job->error, RD_KAFKA_RESP_ERR__DESTROY, "the producer was closed before the call began");
        } else {
            switch (job->call) {
            case PS_TRANSACTIONS_INIT: transaction_init(job); break;
            case PS_TRANSACTION_BEGIN: transaction_begin(job); break;
            case PS_TRANSACTION_COMMIT: transaction_commit(job, false); break;
            case PS_TRANSACTION_ABORT: transaction_abort(job, false); break;
            case PS_TRANSACTION_OFFSETS: transaction_call(job, PS_TRANSACTION_OFFSETS, false); break;
            }
            note_end(job);
        }
    }
    end_turn(&producer->transactions);
    ps_client_exit(&producer->client);
}

static void transaction_release(struct ps_job *base)
{
    struct ps_transaction_job *job = (struct ps_transaction_job *)base;
    if (job->offsets) rd_kafka_topic_partition_list_destroy(job->offsets); /* M:transaction_offsets_freed */
    if (job->group) rd_kafka_consumer_group_metadata_destroy(job->group);
    ps_client_unref(&job->producer->client);
    free(job);
}

/* ---- for the Ruby extension ---- */

static int64_t bounded(const struct ps_producer *producer, enum ps_transaction_call call, int64_t timeout_ms)
{
    int64_t longest = producer->settings.transaction_timeout_ms * (call == PS_TRANSACTIONS_INIT ? 2 : 1);
    if (timeout_ms < 0 || (call == PS_TRANSACTIONS_INIT && timeout_ms > longest)) timeout_ms = longest;
    return timeout_ms > INT_MAX ? INT_MAX : timeout_ms;
}

struct ps_transaction_job *ps_transaction_start(struct ps_producer *producer, enum ps_transaction_call call,
                                                int64_t timeout_ms, rd_kafka_topic_partition_list_t *offsets,
                                                rd_kafka_consumer_group_metadata_t *group)
{
    struct ps_transaction_job *job = calloc(1, sizeof(*job));
    if (!job) {
        if (offsets) rd_kafka_topic_partition_list_destroy(offsets);
        if (group) rd_kafka_consumer_group_metadata_destroy(group);
        return NULL;
    }
    ps_job_init(&job->job, transaction_run, transaction_release);
    ps_client_retain(&producer->client);
    atomic_init(&job->stage, PS_TRANSACTION_QUEUED);
    job->producer = producer;
    job->call = call;
    job->deadline_us = ps_deadline_us(bounded(producer, call, timeout_ms));
    job->offsets = offsets;
    job->group = group;

    if (!ps_client_enter(&producer->client)) {
        ps_job_unref(&job->job);
        return NULL;
    }
    pthread_mutex_lock(&producer->client.lock); /* a ticket is drawn only if there is a thread that returns it */
    job->ticket = producer->transactions.next;
    int failed = ps_job_start(&job->job, "penstock.txn");
    if (!failed) producer->transactions.next++;
    pthread_mutex_unlock(&producer->client.lock);
    if (failed) {
        ps_client_exit(&producer->client);
        ps_job_unref(&job->job);
        return NULL;
    }
    return job;
}

/* ---- for closing ---- */

/*
 * After some fatal errors (at least those made for a test) librdkafka's transaction goes on. Its timer adds partitions to it
 * while the client is being destroyed. The answer that librdkafka then creates itself fails an assertion, which ends the
 * process (rd_kafka_txn_handle_AddPartitionsToTxn, txn_req_cnt; 2.0.2 and 2.14). Beginning an abort prevents that. With a
 * timeout of 0 it might not begin.
 */
static void stop_adding_partitions(struct ps_producer *producer)
{
    rd_kafka_error_t *error = rd_kafka_abort_transaction(producer->client.rk, SLICE_MS);
    if (error) rd_kafka_error_destroy(error);
}

/* Else the cluster would keep the transaction open until transaction.timeout.ms, and consumers behind it would wait as long. */
void ps_transaction_close(struct ps_producer *producer)
{
    char text[800] = "a transaction was still open and was aborted";
    int state = producer->transactions.state;
    if (state != PS_TRANSACTION_OPEN && state != PS_TRANSACTION_COMMITTING) return;
    /* The fatal error may be a fence: then the fencing producer has aborted the transaction. */
    if (ps_client_fatal_error(&producer->client, text, sizeof(text))) {
        stop_adding_partitions(producer);
        return;
    }

    int64_t deadline_us = ps_deadline_us(AT_LEAST_MS), closed_by_us = atomic_load(&producer->client.closed_by_us);
    if (closed_by_us - LEAST_MS * 1000 > deadline_us) deadline_us = closed_by_us - LEAST_MS * 1000; /* to destroy the client */
    if (closed_by_us == PS_FOREVER) deadline_us = ps_deadline_us(bounded(producer, PS_TRANSACTION_ABORT, -1));
    struct ps_transaction_job job = { .producer = producer, .deadline_us = deadline_us };
    transaction_abort(&job, true);
    if (job.error.err)
        snprintf(text, sizeof(text), "a transaction was still open and could not be aborted; the cluster does it when "
                 "transaction.timeout.ms is over, and its readers wait until then: %s", job.error.text);
    if (!job.committed) ps_client_log(&producer->client, job.error.err ? 3 : 4, "CLOSE", text);
}

/* ---- fatal errors: between ps_client_enter and exit, never block ---- */

bool ps_producer_fatal_error(struct ps_producer *producer, struct ps_transaction_error *fatal)
{
    if (!ps_client_enter(&producer->client)) return false;
    bool found = ps_producer_read_fatal_error(producer, fatal);
    ps_client_exit(&producer->client);
    return found;
}

rd_kafka_resp_err_t ps_producer_test_fatal_error(struct ps_producer *producer, rd_kafka_resp_err_t err, const char *reason)
{
    if (!ps_client_enter(&producer->client)) return RD_KAFKA_RESP_ERR__DESTROY;
    rd_kafka_resp_err_t result = rd_kafka_test_fatal_error(producer->client.rk, err, reason);
    ps_client_exit(&producer->client);
    return result;
}
