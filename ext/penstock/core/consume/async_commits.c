/*
 * Commits that no caller waits for: Consumer#commit with async: true, and what is processed, every auto.commit.interval.ms. At
 * most one request is on its way. Offsets that come meanwhile wait. A later one replaces an earlier one of its partition, and the
 * next request has all of them. The thread of a job sends the requests and receives the answers; it ends when nothing is left.
 * The polling thread has no part in it, so the results come whether the program polls or not.
 *
 * librdkafka's own timer for what is processed is not used. It sends a commit although an earlier one is on its way, and repeats
 * an earlier one that the coordinator could not handle after the later one: the committed offset falls.
 *
 * Commits for which callers wait (consumer_jobs.c) take their turns, one after the other. Asynchronous ones that come while there are
 * turns wait behind the last one, and what is processed waits until there is none.
 *
 * librdkafka sends a commit of its own when partitions are given up. So the thread that gives them up takes a turn, too, for up to
 * 5 s: an earlier commit that has to be repeated then would replace that one, and the committed offset would fall. What has come
 * behind this turn it sends at once, as another member has the partitions afterwards. Otherwise two requests are never on their way:
 * librdkafka puts the first one off while it looks for the coordinator, and would send the second one before it. Closing waits for
 * what waits, for up to half of its time, as nothing can be sent after the group was left, and then takes a turn.
 *
 * While the member joins its group again, nothing is sent (joining.c).
 */
#include "consume/consume.h"
#include <errno.h>
#include <stdlib.h>

enum { ANSWER_MS = 10, LONGEST_PAUSE_MS = 60000, STALE_MEMBER_EPOCH = 113 };

struct commits_job {
    struct ps_job job;
    struct ps_consumer *consumer;
};

void ps_async_commits_init(struct ps_async_commits *commits)
{
    pthread_mutex_init(&commits->lock, NULL);
}

void ps_async_commits_destroy(struct ps_async_commits *commits)
{
    if (commits->waiting) rd_kafka_topic_partition_list_destroy(commits->waiting);
    if (commits->sent) rd_kafka_topic_partition_list_destroy(commits->sent);
    pthread_mutex_destroy(&commits->lock);
}

static void destroy_list(rd_kafka_topic_partition_list_t **list)
{
    if (*list) rd_kafka_topic_partition_list_destroy(*list);
    *list = NULL;
}

/* Adds the places of `earlier` that `later` does not have, destroys `earlier`, and returns `later`. Either may be NULL. */
static rd_kafka_topic_partition_list_t *merge(rd_kafka_topic_partition_list_t *later, rd_kafka_topic_partition_list_t *earlier)
{
    if (!later || !earlier) return later ? later : earlier;
    for (int i = 0; i < earlier->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &earlier->elems[i];
        /* M:merged_commits_keep_places */
        if (!rd_kafka_topic_partition_list_find(later, place->topic, place->partition)) ps_copy_place(later, place);
    }
    rd_kafka_topic_partition_list_destroy(earlier);
    return later;
}

/* With the lock. Sends what waits; what is on its way is remembered, in case a broker wants it again. */
static void send_waiting(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    if (!commits->waiting) return;
    rd_kafka_resp_err_t err = rd_kafka_commit_queue(consumer->client.rk, commits->waiting, commits->answers, ps_commit_cb, NULL);
    if (err) {
        ps_consumer_commit_result(consumer, err, commits->waiting);
        destroy_list(&commits->waiting);
        return;
    }
    commits->on_their_way++;
    commits->sent_us = ps_now_us();
    commits->sent = merge(commits->waiting, commits->sent);
    commits->waiting = NULL;
}

/* With the lock. librdkafka sends what it has stored and not committed yet. */
static void send_stored(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    atomic_store(&commits->stored_due_us, 0);
    rd_kafka_resp_err_t err = rd_kafka_commit_queue(consumer->client.rk, NULL, commits->answers, ps_commit_cb, NULL);
    if (err) {
        ps_consumer_commit_result(consumer, err, NULL);
        return;
    }
    commits->on_their_way++;
    commits->sent_us = ps_now_us();
    commits->stored_sent = true;
}

static bool stored_is_due(const struct ps_async_commits *commits)
{
    int64_t due_us = atomic_load(&commits->stored_due_us);
    return due_us != 0 && ps_now_us() >= due_us;
}

/* With the lock. Also what waits for turns. */
static void take_all_waiting(struct ps_async_commits *commits)
{
    for (struct ps_commit_turn *turn = commits->turns; turn; turn = turn->next) {
        commits->waiting = merge(turn->after, commits->waiting);
        turn->after = NULL;
    }
}

/* With the lock. */
static bool any_waiting(const struct ps_async_commits *commits)
{
    bool any = commits->waiting != NULL;
    for (const struct ps_commit_turn *turn = commits->turns; turn && !any; turn = turn->next) any = turn->after != NULL;
    return any;
}

void ps_async_commits_revoked(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *revoked)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    pthread_mutex_lock(&commits->lock);
    take_all_waiting(commits);
    send_waiting(consumer);
    for (int i = 0; commits->sent && i < revoked->cnt; i++)
        rd_kafka_topic_partition_list_del(commits->sent, revoked->elems[i].topic, revoked->elems[i].partition);
    pthread_mutex_unlock(&commits->lock);
}

/* ---- turns ---- */

/* The taking thread may wait for its turn, to give up partitions. */
static void ring_turn(struct ps_consumer *consumer)
{
    if (atomic_load(&consumer->hold_until_us)) ps_bell_ring(&consumer->bell);
}

/* With the lock. Owns the list. */
static void wait_behind_all(struct ps_async_commits *commits, rd_kafka_topic_partition_list_t *list)
{
    struct ps_commit_turn *last = commits->turns;
    while (last && last->next) last = last->next;
    if (last) last->after = merge(list, last->after); /* M:async_commit_waits_behind */
    else commits->waiting = merge(list, commits->waiting);
}

void ps_commit_turn_join(struct ps_consumer *consumer, struct ps_commit_turn *turn)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    struct ps_commit_turn **link = &commits->turns;
    pthread_mutex_lock(&commits->lock);
    while (*link) link = &(*link)->next;
    *link = turn;
    pthread_mutex_unlock(&commits->lock);
}

enum { LONGEST_TURN_US = 100000 };

/* With the lock. The first turn that has not passed. */
static struct ps_commit_turn *first_turn(const struct ps_async_commits *commits)
{
    struct ps_commit_turn *first = commits->turns;
    if (!first || !first->yields || commits->waiting || commits->on_their_way > 0) return first;
    if (!first->come_us) first->come_us = ps_now_us();
    return ps_now_us() - first->come_us < LONGEST_TURN_US ? first : first->next; /* M:turn_passes */
}

/* With the lock. Not while the turn that has passed the first one is used, nor before what waits behind the one that it passes. */
static bool is_next(const struct ps_async_commits *commits, const struct ps_commit_turn *turn)
{
    const struct ps_commit_turn *first = commits->turns;
    if (first == turn) return !turn->next || !turn->next->come;
    return first_turn(commits) == turn && !first->after; /* M:turn_keeps_order */
}

bool ps_commit_turn_has_come(struct ps_consumer *consumer, struct ps_commit_turn *turn)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    pthread_mutex_lock(&commits->lock);
    /* M:commit_waits_for_async */
    bool idle = !commits->waiting && commits->on_their_way == 0 && !ps_consumer_joins(consumer);
    turn->come = idle && is_next(commits, turn); /* M:commit_waits_for_threads */
    bool has_come = turn->come;
    pthread_mutex_unlock(&commits->lock);
    return has_come;
}

void ps_commit_turn_leave(struct ps_consumer *consumer, struct ps_commit_turn *turn)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    struct ps_commit_turn **link = &commits->turns;
    rd_kafka_topic_partition_list_t **before = &commits->waiting;
    pthread_mutex_lock(&commits->lock);
    for (; *link != turn; link = &(*link)->next) before = &(*link)->after;
    *link = turn->next;
    *before = merge(turn->after, *before);
    pthread_mutex_unlock(&commits->lock);
    ring_turn(consumer);
}

/* ---- the job ---- */

/* `code`: 0: any error. */
static bool has_error(rd_kafka_event_t *answer, int code)
{
    const rd_kafka_topic_partition_list_t *list = rd_kafka_event_topic_partition_list(answer);
    int err = rd_kafka_event_error(answer);
    if (err && (!code || err == code)) return true;
    for (int i = 0; list && i < list->cnt; i++) {
        err = list->elems[i].err;
        if (err && (!code || err == code)) return true;
    }
    return false;
}

/* librdkafka repeats only its own commits when the member got a new epoch between request and answer. */
static bool to_be_repeated(const struct ps_consumer *consumer, rd_kafka_event_t *answer)
{
    const struct ps_async_commits *commits = &consumer->async_commits;
    bool sent = commits->stored_sent || (commits->sent && commits->sent->cnt > 0);
    bool passes = has_error(answer, STALE_MEMBER_EPOCH) || ps_commit_refused(consumer, rd_kafka_event_error(answer), commits->sent_us);
    return sent && passes && commits->attempts < PS_COMMIT_ATTEMPTS;
}

static void answered(struct ps_consumer *consumer, rd_kafka_event_t *answer, bool open)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    pthread_mutex_lock(&commits->lock);
    commits->on_their_way--;
    bool again = open && to_be_repeated(consumer, answer); /* M:commit_repeated */
    bool stored_failed = open && commits->stored_sent && has_error(answer, 0) &&
                         rd_kafka_event_error(answer) != RD_KAFKA_RESP_ERR__NO_OFFSET;
    commits->attempts = again ? commits->attempts + 1 : 0;
    if (again) {
        commits->waiting = merge(commits->waiting, commits->sent);
        commits->sent = NULL;
        commits->again_us = ps_now_us() + PS_COMMIT_PAUSE_US;
    } else if (commits->on_their_way == 0) {
        destroy_list(&commits->sent);
    }
    if (stored_failed) atomic_store(&commits->stored_due_us, again ? commits->again_us : ps_now_us() + consumer->settings.commit_every_us);
    if (commits->on_their_way == 0) commits->stored_sent = false;
    pthread_mutex_unlock(&commits->lock);
    ring_turn(consumer);
    if (!again) ps_consumer_commit_result(consumer, rd_kafka_event_error(answer), rd_kafka_event_topic_partition_list(answer));
}

/* With the lock. */
static bool is_busy(const struct ps_async_commits *commits)
{
    return commits->waiting || commits->on_their_way > 0 || commits->turns;
}

/* Sends what waits, if nothing is on its way. False: nothing is left, and the next commit needs a new job. */
static bool go_on(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    pthread_mutex_lock(&commits->lock);
    struct ps_commit_turn *first = first_turn(commits);
    if (first != commits->turns) { /* the turn has passed, and what waits behind it goes on */
        commits->waiting = merge(commits->turns->after, commits->waiting);
        commits->turns->after = NULL;
    }
    bool joins = ps_consumer_joins(consumer);
    /* M:commits_coalesced */
    if (commits->on_their_way == 0 && !joins && ps_now_us() >= commits->again_us) send_waiting(consumer);
    /* M:periodic_commits_wait */
    if (commits->on_their_way == 0 && !joins && !first && stored_is_due(commits)) send_stored(consumer);
    bool more = is_busy(commits) || atomic_load(&commits->stored_due_us);
    if (!more) {
        rd_kafka_queue_destroy(commits->answers);
        commits->answers = NULL;
    }
    pthread_mutex_unlock(&commits->lock);
    return more;
}

/* How long the job's thread waits for an answer, or for something to do. */
static int pause_ms(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    pthread_mutex_lock(&commits->lock);
    bool busy = is_busy(commits);
    pthread_mutex_unlock(&commits->lock);
    int64_t due_us = atomic_load(&commits->stored_due_us);
    if (!busy && due_us == 0) return 0; /* nothing is left */
    int remaining_ms = ps_remaining_ms(due_us);
    if (busy || remaining_ms < ANSWER_MS) return ANSWER_MS;
    return remaining_ms < LONGEST_PAUSE_MS ? remaining_ms : LONGEST_PAUSE_MS;
}

/* With the lock. Ends such a pause. */
static void end_pause(struct ps_async_commits *commits)
{
    if (commits->answers) rd_kafka_queue_yield(commits->answers);
}

void ps_async_commits_closing(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    pthread_mutex_lock(&commits->lock);
    end_pause(commits);
    pthread_mutex_unlock(&commits->lock);
}

/* Of the job's thread when closing has begun, so no more commits come. False: something has to be sent, and there is time. What is
 * stored does not: librdkafka commits it when it leaves the group. */
static bool lets_close(struct ps_consumer *consumer, int64_t *begun_us)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    int64_t now_us = ps_now_us(), close_by_us = atomic_load(&consumer->client.close_by_us); /* ps_client_hurry may shorten it */
    if (!*begun_us) *begun_us = now_us;
    int64_t send_by_us = close_by_us == PS_FOREVER ? PS_FOREVER : *begun_us + (close_by_us - *begun_us) / 2;
    pthread_mutex_lock(&commits->lock);
    atomic_store(&commits->stored_due_us, 0);
    bool lets = !any_waiting(commits) || now_us >= send_by_us;
    if (lets) take_all_waiting(commits);
    rd_kafka_topic_partition_list_t *late = lets ? commits->waiting : NULL;
    if (lets) commits->waiting = NULL;
    pthread_mutex_unlock(&commits->lock);
    if (!late) return lets;
    ps_consumer_commit_result(consumer, RD_KAFKA_RESP_ERR__TIMED_OUT, late);
    rd_kafka_topic_partition_list_destroy(late);
    return true;
}

/* Closing leaves the group when no short call is in progress. So from here on nothing is sent. */
static void become_long_call(struct ps_consumer *consumer)
{
    ps_client_enter_long(&consumer->client);
    ps_client_exit(&consumer->client);
}

/* The group was left before the answer came. */
static void give_up(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    pthread_mutex_lock(&commits->lock);
    rd_kafka_topic_partition_list_t *lost = commits->sent;
    bool any = commits->on_their_way > 0;
    commits->sent = NULL;
    commits->on_their_way = 0;
    pthread_mutex_unlock(&commits->lock);
    if (any) ps_consumer_commit_result(consumer, RD_KAFKA_RESP_ERR__DESTROY, lost);
    destroy_list(&lost);
}

static void commits_run(struct ps_job *job)
{
    struct ps_consumer *consumer = ((struct commits_job *)job)->consumer;
    int64_t closing_us = 0;
    bool long_call = false;
    while (go_on(consumer)) {
        if (!long_call && atomic_load(&consumer->client.state) != PS_OPEN && lets_close(consumer, &closing_us)) {
            become_long_call(consumer);
            long_call = true;
        }
        /* Read before the poll: an answer that came before the group was left is then in the queue. */
        bool closed = long_call && ps_consumer_left(consumer);
        rd_kafka_event_t *answer = rd_kafka_queue_poll(consumer->async_commits.answers, pause_ms(consumer));
        if (answer) {
            answered(consumer, answer, !long_call);
            rd_kafka_event_destroy(answer);
        } else if (closed) {
            give_up(consumer);
        }
    }
    if (long_call) ps_client_exit_long(&consumer->client);
    else ps_client_exit(&consumer->client);
}

static void commits_release(struct ps_job *job)
{
    ps_client_unref(&((struct commits_job *)job)->consumer->client);
    free(job);
}

/* Entered, and with the lock. The job leaves the client. */
static int start_job(struct ps_consumer *consumer)
{
    struct commits_job *job = calloc(1, sizeof(*job));
    if (!job) return ENOMEM;
    ps_job_init(&job->job, commits_run, commits_release);
    ps_client_retain(&consumer->client);
    job->consumer = consumer;
    consumer->async_commits.answers = rd_kafka_queue_new(consumer->client.rk);
    int failed = ps_job_start(&job->job, "penstock.commit");
    if (failed) {
        rd_kafka_queue_destroy(consumer->async_commits.answers);
        consumer->async_commits.answers = NULL;
    }
    ps_job_unref(&job->job);
    return failed;
}

/* Entered, and with the lock. A job runs afterwards, unless it returns errno. Leaves the client, or the job does. */
static int let_job_run(struct ps_consumer *consumer)
{
    bool working = consumer->async_commits.answers != NULL;
    int failed = working ? 0 : start_job(consumer);
    if (working || failed) ps_client_exit(&consumer->client);
    return failed;
}

bool ps_consumer_drop_lost(struct ps_consumer *consumer, rd_kafka_topic_partition_list_t *list, uint64_t epoch)
{
    int before = list->cnt;
    for (int i = list->cnt - 1; epoch && i >= 0; i--) {
        const rd_kafka_topic_partition_t *place = &list->elems[i];
        if (!ps_ledger_owns(&consumer->ledger, place->topic, place->partition, epoch))
            rd_kafka_topic_partition_list_del_by_idx(list, i);
    }
    return list->cnt < before;
}

/* The lock is held while it looks what is lost: ps_async_commits_revoked then sends what it has added. */
int ps_consumer_commit_async(struct ps_consumer *consumer, rd_kafka_topic_partition_list_t *list, uint64_t epoch, bool *lost)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    int failed = -1;
    pthread_mutex_lock(&commits->lock);
    if (ps_client_enter(&consumer->client)) {
        *lost = ps_consumer_drop_lost(consumer, list, epoch);
        failed = let_job_run(consumer);
        if (failed || list->cnt == 0) rd_kafka_topic_partition_list_destroy(list);
        else wait_behind_all(commits, list);
        end_pause(commits);
    } else {
        rd_kafka_topic_partition_list_destroy(list);
    }
    pthread_mutex_unlock(&commits->lock);
    return failed;
}

void ps_async_commits_stored(struct ps_consumer *consumer)
{
    struct ps_async_commits *commits = &consumer->async_commits;
    if (consumer->settings.commit_every_us == 0 || atomic_load(&commits->stored_due_us)) return;
    pthread_mutex_lock(&commits->lock);
    if (ps_client_enter(&consumer->client)) {
        atomic_store(&commits->stored_due_us, ps_now_us() + consumer->settings.commit_every_us);
        if (let_job_run(consumer) != 0) atomic_store(&commits->stored_due_us, 0); /* the next ones try again */
    }
    pthread_mutex_unlock(&commits->lock);
}
