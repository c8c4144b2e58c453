/*
 * How a consumer closes. Its closing thread commits what is processed, answers the rebalances that wait, leaves the group, and
 * destroys librdkafka's client. Decision 0009 has the order of the steps, and what bounds each.
 */
#include "consume/consume.h"
#include <unistd.h>

static void serve_while_closing(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    rd_kafka_event_type_t type = rd_kafka_event_type(event);
    bool repeated = type == RD_KAFKA_EVENT_OFFSET_COMMIT && atomic_load(&consumer->settled);
    if (type != RD_KAFKA_EVENT_REBALANCE && !repeated) {
        ps_consumer_absorb(consumer, event);
        return;
    }
    if (!repeated) ps_consumer_change_assignment(consumer, event);
    rd_kafka_event_destroy(event);
}

/*
 * With range and roundrobin librdkafka does not wait for the answers to rebalances that were in the queue before the group is left. If
 * one comes while the group handler ends, it is thrown away, and the call that gives it waits for ever (2.0.2).
 */
static void answer_waiting(struct ps_consumer *consumer)
{
    rd_kafka_event_t *event;
    while ((event = rd_kafka_queue_poll(consumer->control, 0))) serve_while_closing(consumer, event);
}

/* Closing needs the rest of its time to leave the group. While no coordinator answers, it cannot leave either. */
static int64_t commit_by_us(const struct ps_consumer *consumer, int64_t begun_us)
{
    int64_t close_by_us = atomic_load(&consumer->client.close_by_us); /* ps_client_hurry may shorten it */
    return close_by_us == PS_FOREVER ? PS_FOREVER : begun_us + (close_by_us - begun_us) / 10 * 9;
}

/* See ps_joining_aborts. Afterwards no answer to a JoinGroup request reaches librdkafka's main thread. */
static void await_first_assignment(struct ps_consumer *consumer)
{
    rd_kafka_event_t *event;
    int64_t begun_us = ps_now_us();
    for (;;) {
        atomic_store(&consumer->no_joins, true);
        if (!ps_joining_aborts(consumer) || ps_now_us() >= commit_by_us(consumer, begun_us)) return;
        atomic_store(&consumer->no_joins, false);
        if ((event = rd_kafka_queue_poll(consumer->control, 5))) serve_while_closing(consumer, event);
    }
}

/*
 * librdkafka puts a subscription off that changes while it revokes partitions. It would subscribe while it leaves the group, and its
 * client could not be destroyed: a failed assertion ends the process (2.0.2). While partitions are assigned, none is put off, and
 * unsubscribing would revoke them before they are committed.
 */
static void drop_postponed_subscription(struct ps_consumer *consumer)
{
    if (!atomic_load(&consumer->resubscribed) || consumer->assigned->cnt > 0) return;
    ps_joining_lock(consumer);
    rd_kafka_unsubscribe(consumer->client.rk);
    ps_joining_unlock(consumer);
}

/*
 * Leaves the group. False: time ran out first, or the group cannot be left. However late it is, this function goes on while the queue
 * has events: librdkafka waits for ever for the answer to a rebalance event, also in rd_kafka_destroy.
 */
static bool leave_group(struct ps_consumer *consumer, bool *aborts)
{
    rd_kafka_event_t *event;
    int64_t begun_us = ps_now_us();
    await_first_assignment(consumer);
    drop_postponed_subscription(consumer);
    atomic_store(&consumer->leaving, true);
    *aborts = ps_joining_aborts(consumer);
    rd_kafka_error_t *error = rd_kafka_consumer_close_queue(consumer->client.rk, consumer->control);
    atomic_store(&consumer->no_joins, false);
    if (error) { /* a fatal error: the group is already left */
        rd_kafka_error_destroy(error);
        return false;
    }
    while (!rd_kafka_consumer_closed(consumer->client.rk)) {
        int remaining_ms = ps_remaining_ms(atomic_load(&consumer->client.close_by_us)); /* ps_client_hurry may shorten it */
        bool late = remaining_ms == 0 && ps_now_us() - begun_us > 100000; /* at least a tenth of a second */
        event = rd_kafka_queue_poll(consumer->control, remaining_ms < 0 || remaining_ms > 50 ? 50 : 5);
        if (event) serve_while_closing(consumer, event);
        else if (late) return false;
    }
    answer_waiting(consumer);
    return true;
}

static void consumer_destroy(struct ps_consumer *consumer, bool left_group)
{
    rd_kafka_event_t *event;
    while ((event = rd_kafka_queue_poll(consumer->notices, 0))) serve_while_closing(consumer, event);
    ps_queues_close(consumer);
    ps_tokens_end(&consumer->client.tokens);
    rd_kafka_destroy_flags(consumer->client.rk, left_group ? 0 : RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    consumer->client.rk = NULL;
    ps_consumer_drop_problems(consumer);
}

/* Rather than to abort the process (ps_joining_aborts), keeps librdkafka's client, its threads and what its callbacks use. */
static void consumer_abandon(struct ps_consumer *consumer)
{
    ps_client_log(&consumer->client, 4, "CLOSE", "the consumer was closed while it joined its group, and the group's coordinator "
                  "did not answer: its librdkafka client is left as it is, since librdkafka would abort the process (#4381)");
    ps_client_retain(&consumer->client);
    ps_tokens_end(&consumer->client.tokens);
    consumer->client.rk = NULL;
    ps_consumer_drop_problems(consumer);
}

static void await_turn(struct ps_consumer *consumer, struct ps_commit_turn *turn, int64_t begun_us)
{
    while (!ps_commit_turn_has_come(consumer, turn) && ps_now_us() < commit_by_us(consumer, begun_us))
        ps_commit_turn_sleep(consumer, turn, commit_by_us(consumer, begun_us));
}

/* `answer`: NULL without one. */
static rd_kafka_resp_err_t commit_once(struct ps_consumer *consumer, rd_kafka_queue_t *answers, int64_t begun_us,
                                       rd_kafka_event_t **answer)
{
    if (*answer) rd_kafka_event_destroy(*answer);
    *answer = NULL;
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
    if (!ps_joining_commit(consumer, NULL, answers, &err) || err) return err;
    while (!*answer && ps_now_us() < commit_by_us(consumer, begun_us)) *answer = rd_kafka_queue_poll(answers, 10);
    return *answer ? rd_kafka_event_error(*answer) : RD_KAFKA_RESP_ERR__TIMED_OUT;
}

/*
 * Commits the offsets of processed messages. librdkafka would commit them when it leaves the group. Brokers may reject that commit: if a
 * rebalance event is still in the queue, or the member joins the group again, librdkafka leaves before it commits (2.0.2 and 2.14).
 * Then the next member gets these messages again.
 */
static void commit_processed(struct ps_consumer *consumer, struct ps_commit_turn *turn, int64_t begun_us)
{
    rd_kafka_queue_t *answers = rd_kafka_queue_new(consumer->client.rk);
    rd_kafka_event_t *answer = NULL;
    ps_consumer_store(consumer); /* M:close_stores_processed */
    int64_t sent_us = ps_now_us();
    rd_kafka_resp_err_t err = commit_once(consumer, answers, begun_us, &answer);
    for (int i = 0; i < PS_COMMIT_ATTEMPTS && ps_commit_refused(consumer, err, sent_us); i++) {
        if (ps_now_us() >= commit_by_us(consumer, begun_us)) break;
        usleep(PS_COMMIT_PAUSE_US);
        await_turn(consumer, turn, begun_us);
        sent_us = ps_now_us();
        err = commit_once(consumer, answers, begun_us, &answer);
    }
    ps_consumer_notice(consumer); /* the results of earlier commits */
    atomic_store(&consumer->settled, !err || err == RD_KAFKA_RESP_ERR__NO_OFFSET);
    if (answer) ps_consumer_note_committed(consumer, answer);
    ps_consumer_commit_result(consumer, err, answer ? rd_kafka_event_topic_partition_list(answer) : NULL);
    if (answer) rd_kafka_event_destroy(answer);
    rd_kafka_queue_destroy(answers);
}

static void end_commits(struct ps_consumer *consumer)
{
    struct ps_commit_turn turn = { 0 };
    int64_t begun_us = ps_now_us();
    ps_commit_turn_join(consumer, &turn); /* that of a revocation which no thread answers any more passes */
    await_turn(consumer, &turn, begun_us); /* M:close_takes_turn */
    if (consumer->settings.grouped && consumer->settings.commit_every_us) commit_processed(consumer, &turn, begun_us);
    ps_commit_turn_leave(consumer, &turn);
}

static void answer_now(struct ps_consumer *consumer)
{
    pthread_mutex_lock(&consumer->taking);
    ps_consumer_answer_locked(consumer, NULL);
    pthread_mutex_unlock(&consumer->taking);
}

void ps_consumer_close(struct ps_client *client)
{
    struct ps_consumer *consumer = (struct ps_consumer *)client;
    ps_bell_ring(&consumer->bell);
    ps_async_commits_closing(consumer);
    ps_client_await_calls(client);
    end_commits(consumer);
    ps_queues_silence(consumer);
    ps_consumer_end_restart(consumer);
    answer_now(consumer); /* the listener still runs, and can no longer answer */ /* M:close_answers_running_listener */
    if (consumer->held) serve_while_closing(consumer, consumer->held);
    consumer->held = NULL;
    answer_waiting(consumer); /* M:close_answers_waiting_rebalance */
    ps_consumer_drop_taken(consumer);
    bool aborts, left_group = leave_group(consumer, &aborts);
    ps_tokens_shut(&client->tokens);
    ps_client_await_long_calls(client);
    if (!left_group) answer_waiting(consumer); /* librdkafka may have begun to leave meanwhile */
    if (aborts) consumer_abandon(consumer); /* M:aborting_client_kept */
    else consumer_destroy(consumer, left_group);
}
