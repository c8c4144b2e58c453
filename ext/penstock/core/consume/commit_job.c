/*
 * Commits for which a caller waits. Each is a job with a turn in the line of commits (commits.c). No Ruby. Of the job's thread.
 */
#include "consume/consume.h"
#include <unistd.h>

enum { ANSWER_MS = 50 };

bool ps_job_await_turn(struct ps_consumer_job *query, struct ps_commit_turn *turn, int64_t until_us)
{
    while (!ps_commit_turn_has_come(query->consumer, turn)) {
        if (!ps_ask_goes_on(query) || ps_now_us() >= until_us) return false;
        ps_commit_turn_sleep(query->consumer, turn, until_us);
    }
    return true;
}

/* librdkafka 2.0.2 gives each partition the error of one of them. It is unknown which one failed. */
static void forget_common_error(rd_kafka_topic_partition_list_t *list)
{
    for (int i = 1; i < list->cnt; i++)
        if (list->elems[i].err != list->elems[0].err) return;
    for (int i = 0; list->cnt > 1 && i < list->cnt; i++) list->elems[i].err = RD_KAFKA_RESP_ERR_NO_ERROR;
}

struct commit {
    struct ps_consumer_job *query;
    struct ps_commit_turn turn;
    rd_kafka_queue_t *answers;
    rd_kafka_event_t *answer; /* the latest; NULL: none */
    int64_t sent_us;
};

/* Reads what is processed when the turn has come. The lock keeps other threads from answering a rebalance between that and the request.
 * False: a thread has answered one before, and the member joins again, so the commit has to wait for its turn again. */
static bool send_commit(struct commit *commit, rd_kafka_resp_err_t *err)
{
    const struct ps_consumer_job *query = commit->query;
    struct ps_consumer *consumer = query->consumer;
    bool chosen = query->call == PS_CONSUMER_COMMIT;
    *err = RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION;
    pthread_mutex_lock(&consumer->taking);
    bool waits = ps_consumer_joins(consumer);
    if (!waits && (chosen || ps_consumer_keeps(consumer, query->list, query->epoch))) {
        if (!chosen) ps_consumer_store(consumer);
        commit->sent_us = ps_now_us();
        waits = !ps_joining_commit(consumer, chosen ? query->list : NULL, commit->answers, err);
    }
    pthread_mutex_unlock(&consumer->taking);
    return !waits;
}

/* Waits for the answer even if the caller has stopped waiting: no thread sends the next commit before. NULL: closing has left the group. */
static rd_kafka_event_t *await_commit(const struct ps_consumer *consumer, rd_kafka_queue_t *answers)
{
    rd_kafka_event_t *answer = NULL;
    for (bool closed = false; !answer && !closed;) {
        /* Read before the poll: an answer that came before the group was left is then in the queue. */
        closed = ps_consumer_left(consumer);
        answer = rd_kafka_queue_poll(answers, ANSWER_MS);
    }
    return answer;
}

/* rd_kafka_commit in two steps. rd_kafka_commit would wait for session.timeout.ms if there is no coordinator, even while
 * closing. */
static rd_kafka_resp_err_t commit_once(struct commit *commit)
{
    struct ps_consumer *consumer = commit->query->consumer;
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR__DESTROY;
    bool sent = false;
    while (!sent && ps_job_await_turn(commit->query, &commit->turn, PS_FOREVER)) sent = send_commit(commit, &err);
    ps_client_become_long(&consumer->client);
    if (!sent || err) return sent ? err : RD_KAFKA_RESP_ERR__DESTROY;
    commit->answer = await_commit(consumer, commit->answers);
    if (!commit->answer) return RD_KAFKA_RESP_ERR__DESTROY;
    err = rd_kafka_event_error(commit->answer);
    return ps_commit_refused(consumer, err, commit->sent_us) ? RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS : err;
}

static bool become_short_call(struct ps_consumer *consumer)
{
    if (!ps_client_enter(&consumer->client)) return false;
    ps_client_exit_long(&consumer->client);
    return true;
}

/* A broker asks for the commit again, and the job keeps its turn. False: it is not sent again. */
static bool prepare_again(struct commit *commit, rd_kafka_resp_err_t err)
{
    bool again = err == RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS || (commit->answer && ps_commit_is_stale(commit->answer));
    if (!again || !ps_ask_goes_on(commit->query)) return false;
    usleep(PS_COMMIT_PAUSE_US);
    if (!become_short_call(commit->query->consumer)) return false;
    if (commit->answer) rd_kafka_event_destroy(commit->answer);
    commit->answer = NULL;
    return true;
}

/* The result has the errors of single partitions. For a commit of what is processed, it has only the partitions that were committed. */
static void take_result(struct commit *commit, rd_kafka_resp_err_t err)
{
    struct ps_consumer_job *query = commit->query;
    const rd_kafka_topic_partition_list_t *list = commit->answer ? rd_kafka_event_topic_partition_list(commit->answer) : NULL;
    bool chosen = query->call == PS_CONSUMER_COMMIT;
    if (chosen && !list) return;
    rd_kafka_topic_partition_list_t *result = rd_kafka_topic_partition_list_new(list ? list->cnt : 0);
    for (int i = 0; list && i < list->cnt; i++)
        if (chosen || list->elems[i].offset >= 0) ps_copy_place(result, &list->elems[i]);
    if (query->list) rd_kafka_topic_partition_list_destroy(query->list);
    query->list = result;
    if (err) forget_common_error(query->list);
}

rd_kafka_resp_err_t ps_commit_job_run(struct ps_consumer_job *query)
{
    struct ps_consumer *consumer = query->consumer;
    struct commit commit = { .query = query, .answers = rd_kafka_queue_new(consumer->client.rk) };
    ps_commit_turn_join(consumer, &commit.turn);
    rd_kafka_resp_err_t err = commit_once(&commit);
    for (int i = 1; i < PS_COMMIT_ATTEMPTS && prepare_again(&commit, err); i++) err = commit_once(&commit);
    if (commit.answer) ps_consumer_note_committed(consumer, commit.answer); /* the next turn may begin at once */
    ps_commit_turn_leave(consumer, &commit.turn);
    take_result(&commit, err);
    if (commit.answer) rd_kafka_event_destroy(commit.answer);
    rd_kafka_queue_destroy(commit.answers);
    if (err != RD_KAFKA_RESP_ERR__NO_OFFSET) ps_increase(err ? &consumer->counts.failed_commits : &consumer->counts.commits, 1);
    return err;
}
