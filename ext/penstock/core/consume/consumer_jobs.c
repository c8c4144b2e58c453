/*
 * The blocking calls of a consumer: each runs on a native thread of its own (wait/job.c), so that an interrupt ends the Ruby
 * thread's wait at once. ps_consumer_start is at the end.
 */
#include "consume/consume.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Stores the error in the job, and destroys it. */
static void job_take_error(struct ps_consumer_job *query, rd_kafka_error_t *error)
{
    if (!error) return;
    query->err = rd_kafka_error_code(error);
    ps_client_quote(&query->consumer->client, query->text, sizeof(query->text), rd_kafka_error_string(error));
    rd_kafka_error_destroy(error);
}

/* Before 2.1.0 librdkafka takes the remaining time, which is in ms, for microseconds: so it gets 1,000 times the timeout. */
enum { SEEKS_IN_MS = 0x02010000, LONGEST_SEEK_MS = 1000 * 1000 };

static int seek_timeout_ms(int timeout_ms)
{
    if (rd_kafka_version() >= SEEKS_IN_MS || timeout_ms < 0) return timeout_ms;
    return (timeout_ms < LONGEST_SEEK_MS ? timeout_ms : LONGEST_SEEK_MS) * 1000;
}

/* A partition that was assigned after `epoch` begins at the group's offset: perhaps another member has processed messages before. */
static void keep_held(struct ps_consumer_job *query)
{
    for (int i = query->list->cnt - 1; i >= 0; i--) {
        const rd_kafka_topic_partition_t *place = &query->list->elems[i];
        if (!ps_ledger_holds(&query->consumer->ledger, place->topic, place->partition, place->offset, query->epoch))
            rd_kafka_topic_partition_list_del_by_idx(query->list, i);
    }
}

/*
 * rd_kafka_assign returns while librdkafka's main thread is still stopping the previous assignment. If it has to stop the
 * same partition again before it has finished, it fails an assertion (rktp_started; 2.0.2 and 2.14), which ends the process.
 * librdkafka does not report when it has finished. So only one thread assigns at a time. If there was an earlier assignment, it
 * then sends requests to the main thread, one every STEP_US. Each answer comes after the main thread's earlier work. Three
 * requests were enough with 2.0.2, and almost always with 2.14.
 */
enum { STEPS_OF_STOPPING = 10, STEP_US = 1000, RESTART_AGAIN_US = 100000 }; /* M:stopped_before_assigned */

/* Waits until the main thread has done its earlier work. False: no partition is assigned. */
static bool assigns_partitions(rd_kafka_t *rk)
{
    rd_kafka_topic_partition_list_t *assigned = NULL;
    if (rd_kafka_assignment(rk, &assigned)) return false;
    bool any = assigned->cnt > 0;
    rd_kafka_topic_partition_list_destroy(assigned);
    return any;
}

static rd_kafka_resp_err_t consumer_assign(struct ps_consumer_job *query)
{
    struct ps_consumer *consumer = query->consumer;
    rd_kafka_t *rk = consumer->client.rk;
    const rd_kafka_topic_partition_list_t *list = query->list && query->list->cnt > 0 ? query->list : NULL;
    struct ps_commit_turn turn = { 0 };
    if (list && !ps_starts_find(query)) return RD_KAFKA_RESP_ERR__DESTROY; /* M:assignment_finds_starts */
    pthread_mutex_lock(&consumer->assigning);
    bool stops_partitions = assigns_partitions(rk);
    ps_commit_turn_join(consumer, &turn);
    ps_job_await_turn(query, &turn, ps_now_us() + PS_TURN_COMES_WITHIN_US); /* M:assignment_takes_turn */
    pthread_mutex_lock(&consumer->taking); /* no thread takes messages of the earlier assignment after the ledger was cleared */
    ps_consumer_store(consumer);
    ps_consumer_resume_revoked(consumer, NULL); /* M:reassigned_partitions_resumed */
    ps_consumer_drop_messages(consumer, NULL);
    ps_ledger_clear(&consumer->ledger, consumer->settings.commits_last);
    ps_consumer_forward(consumer, list);
    rd_kafka_resp_err_t err = rd_kafka_assign(rk, list);
    for (int i = 0; !err && list && i < list->cnt; i++)
        ps_ledger_begin(&consumer->ledger, list->elems[i].topic, list->elems[i].partition, list->elems[i].offset);
    if (!err) ps_ledger_begin_committed(&consumer->ledger, query->committed);
    pthread_mutex_unlock(&consumer->taking);
    ps_commit_turn_leave(consumer, &turn);
    for (int i = 0; stops_partitions && i < STEPS_OF_STOPPING; i++) {
        assigns_partitions(rk);
        usleep(STEP_US);
    }
    pthread_mutex_unlock(&consumer->assigning);
    return err;
}

/* ---- assigning again what librdkafka has not begun ---- */

/* Whether librdkafka has to ask for the committed offset of this partition, and no message has arrived since. */
static bool waits_for_start(const struct ps_consumer *consumer, const rd_kafka_topic_partition_t *place)
{
    const rd_kafka_topic_partition_t *assigned = rd_kafka_topic_partition_list_find(consumer->assigned, place->topic,
                                                                                    place->partition);
    bool left = assigned && (assigned->offset == RD_KAFKA_OFFSET_STORED || assigned->offset == RD_KAFKA_OFFSET_INVALID);
    return left && ps_ledger_untouched((struct ps_ledger *)&consumer->ledger, place->topic, place->partition);
}

static void keep_waiting(struct ps_consumer_job *query)
{
    for (int i = query->list->cnt - 1; i >= 0; i--)
        if (!waits_for_start(query->consumer, &query->list->elems[i])) rd_kafka_topic_partition_list_del_by_idx(query->list, i);
}

/* With range and roundrobin librdkafka only accepts whole assignments. The other partitions continue at the program's positions. */
static rd_kafka_topic_partition_list_t *all_with(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *restarted)
{
    rd_kafka_topic_partition_list_t *all = ps_plain_copy(consumer->assigned);
    for (int i = 0; i < all->cnt; i++) {
        rd_kafka_topic_partition_t *place = &all->elems[i];
        const rd_kafka_topic_partition_t *from = rd_kafka_topic_partition_list_find((rd_kafka_topic_partition_list_t *)restarted,
                                                                                    place->topic, place->partition);
        int64_t reached = from ? from->offset : ps_ledger_reached(&consumer->ledger, place->topic, place->partition);
        if (from || reached >= 0) place->offset = reached;
    }
    return all;
}

static rd_kafka_resp_err_t assign_again(struct ps_consumer *consumer, rd_kafka_topic_partition_list_t *list)
{
    rd_kafka_t *rk = consumer->client.rk;
    if (consumer->rebalance.cooperative) {
        ps_consumer_add_assigned(consumer, list);
        rd_kafka_error_t *error = rd_kafka_incremental_unassign(rk, list);
        if (!error) error = rd_kafka_incremental_assign(rk, list);
        rd_kafka_resp_err_t err = error ? rd_kafka_error_code(error) : RD_KAFKA_RESP_ERR_NO_ERROR;
        if (error) rd_kafka_error_destroy(error);
        return err;
    }
    rd_kafka_topic_partition_list_t *all = all_with(consumer, list);
    ps_consumer_store(consumer);
    ps_consumer_drop_messages(consumer, NULL);
    ps_consumer_add_assigned(consumer, list);
    rd_kafka_resp_err_t err = rd_kafka_assign(rk, all);
    rd_kafka_topic_partition_list_destroy(all);
    return err;
}

/* With `taking`, so that no rebalance stops the partitions meanwhile. */
static void await_stops(const struct ps_consumer *consumer)
{
    for (int i = 0; i < STEPS_OF_STOPPING; i++) {
        assigns_partitions(consumer->client.rk);
        usleep(STEP_US);
    }
}

/* Assigns those partitions of the list anew that librdkafka has not begun. If a rebalance is about to change the assignment, the taking
 * thread starts such a job again later. */
static void consumer_restart(struct ps_consumer_job *query)
{
    struct ps_consumer *consumer = query->consumer;
    struct ps_commit_turn turn = { 0 };
    pthread_mutex_lock(&consumer->taking);
    keep_waiting(query);
    pthread_mutex_unlock(&consumer->taking);
    if (query->list->cnt == 0 || !ps_starts_find(query)) return;
    pthread_mutex_lock(&consumer->assigning);
    ps_commit_turn_join(consumer, &turn);
    ps_job_await_turn(query, &turn, ps_now_us() + PS_TURN_COMES_WITHIN_US);
    pthread_mutex_lock(&consumer->taking);
    keep_waiting(query);
    bool later = ps_consumer_rebalances(consumer) || rd_kafka_assignment_lost(consumer->client.rk);
    if (query->list->cnt > 0 && !later) query->err = assign_again(consumer, query->list);
    if (later) atomic_store(&consumer->restart_us, ps_now_us() + RESTART_AGAIN_US);
    if (!later) await_stops(consumer);
    pthread_mutex_unlock(&consumer->taking);
    ps_commit_turn_leave(consumer, &turn);
    pthread_mutex_unlock(&consumer->assigning);
}

/* ---- seeking ---- */

/* librdkafka has given it up: its offset does not exist, and auto.offset.reset is "error". It does not seek then (2.0.2 to 2.15). */
static bool is_stopped(const struct ps_consumer *consumer, const rd_kafka_topic_partition_t *place)
{
    return place->err == RD_KAFKA_RESP_ERR__STATE &&
           rd_kafka_topic_partition_list_find(consumer->assigned, place->topic, place->partition) != NULL;
}

/* Assigns the partitions anew that librdkafka has given up. They begin where the program seeks to. */
static void begin_stopped(struct ps_consumer_job *query, bool back)
{
    struct ps_consumer *consumer = query->consumer;
    struct ps_commit_turn turn = { 0 };
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    pthread_mutex_lock(&consumer->assigning);
    ps_commit_turn_join(consumer, &turn);
    ps_job_await_turn(query, &turn, ps_now_us() + PS_TURN_COMES_WITHIN_US);
    pthread_mutex_lock(&consumer->taking);
    bool can = !ps_consumer_rebalances(consumer) && !rd_kafka_assignment_lost(consumer->client.rk);
    for (int i = 0; can && i < query->list->cnt; i++)
        if (is_stopped(consumer, &query->list->elems[i])) ps_copy_place(list, &query->list->elems[i]);
    for (int i = 0; i < list->cnt; i++) list->elems[i].err = RD_KAFKA_RESP_ERR_NO_ERROR;
    if (list->cnt > 0 && assign_again(consumer, list) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        for (int i = 0; i < query->list->cnt; i++) {
            rd_kafka_topic_partition_t *place = &query->list->elems[i];
            if (!rd_kafka_topic_partition_list_find(list, place->topic, place->partition)) continue;
            ps_ledger_seek(&consumer->ledger, place->topic, place->partition, place->offset, back);
            place->err = RD_KAFKA_RESP_ERR_NO_ERROR;
        }
        await_stops(consumer);
    }
    pthread_mutex_unlock(&consumer->taking);
    ps_commit_turn_leave(consumer, &turn);
    pthread_mutex_unlock(&consumer->assigning);
    rd_kafka_topic_partition_list_destroy(list);
}

/*
 * librdkafka commits a stored offset only if it is behind the committed one, and a seek does not change the stored offset. So
 * after a seek back, it would commit the later offset again. The ledger forgets what was processed before librdkafka gets the
 * earlier offset. So no other thread gives it the later one afterwards.
 */
static void consumer_seek(struct ps_consumer_job *query)
{
    int64_t deadline_us = ps_deadline_us(query->timeout_ms);
    for (int i = 0; i < query->list->cnt; i++) /* the program has asked the group, which has no offset */
        if (query->list->elems[i].offset == RD_KAFKA_OFFSET_INVALID) query->list->elems[i].offset = query->consumer->reset;
    if (!ps_starts_find(query)) { /* M:seek_finds_starts */
        query->err = RD_KAFKA_RESP_ERR__DESTROY;
        return;
    }
    int timeout_ms = seek_timeout_ms(ps_remaining_ms(deadline_us));
    bool back = query->call == PS_CONSUMER_SEEK_BACK, rewind = query->call == PS_CONSUMER_REWIND, stopped = false;
    struct ps_consumer *consumer = query->consumer;
    rd_kafka_topic_partition_list_t *stored = rd_kafka_topic_partition_list_new(query->list->cnt);
    rd_kafka_topic_partition_list_t *moved = rd_kafka_topic_partition_list_new(query->list->cnt);
    pthread_mutex_lock(&consumer->taking); /* no thread takes a message from before, or answers a rebalance, meanwhile */
    if (rewind) keep_held(query); /* M:rewind_keeps_held */
    if (query->list->cnt > 0) job_take_error(query, rd_kafka_seek_partitions(consumer->client.rk, query->list, timeout_ms));
    for (int i = 0; !query->err && i < query->list->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &query->list->elems[i];
        stopped |= is_stopped(consumer, place);
        if (place->err) continue;
        rd_kafka_topic_partition_list_add(moved, place->topic, place->partition)->offset = place->offset;
        if (rewind) ps_ledger_rewind(&consumer->ledger, place->topic, place->partition, place->offset);
        else ps_ledger_seek(&consumer->ledger, place->topic, place->partition, place->offset, back);
        if (back) ps_copy_place(stored, place);
    }
    stopped &= !ps_consumer_rebalances(consumer); /* a listener seeks, perhaps in an `assign` */
    /* M:rewound_offset_stored */
    if (stored->cnt > 0 && consumer->settings.grouped) rd_kafka_offsets_store(consumer->client.rk, stored);
    ps_consumer_drop_messages(consumer, moved);
    pthread_mutex_unlock(&consumer->taking);
    if (stopped && !rewind) begin_stopped(query, back);
    if (rewind && moved->cnt > 0) ps_news_add(&consumer->news, PS_NEWS_REWOUND, RD_KAFKA_RESP_ERR_NO_ERROR, false, moved, NULL);
    ps_consumer_marked(consumer); /* what comes again is not in work */
    rd_kafka_topic_partition_list_destroy(stored);
    rd_kafka_topic_partition_list_destroy(moved);
}

/* Whether the group has assigned the partition, and no thread has answered yet. */
static bool is_being_assigned(const struct ps_consumer *consumer, const rd_kafka_topic_partition_t *place)
{
    rd_kafka_event_t *event = consumer->rebalance.event;
    if (!event || rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) return false;
    return rd_kafka_topic_partition_list_find(rd_kafka_event_topic_partition_list(event), place->topic, place->partition) != NULL;
}

static bool is_assigned(const struct ps_consumer *consumer, const rd_kafka_topic_partition_t *place)
{
    return rd_kafka_topic_partition_list_find(consumer->assigned, place->topic, place->partition) != NULL;
}

/*
 * librdkafka would begin a partition that is not paused again at the wrong offset (until 2.4.0, #2593). So this
 * function resumes only partitions that it has paused. While the listener runs, its partitions are not assigned yet:
 * ps_consumer_change_assignment pauses them.
 */
static void consumer_pause(struct ps_consumer_job *query, bool paused)
{
    struct ps_consumer *consumer = query->consumer;
    struct ps_ledger *ledger = &consumer->ledger;
    rd_kafka_topic_partition_list_t *changed = rd_kafka_topic_partition_list_new(query->list->cnt);
    int failed = 0;
    pthread_mutex_lock(&consumer->taking);
    for (int i = 0; i < query->list->cnt; i++) {
        rd_kafka_topic_partition_t *place = &query->list->elems[i];
        bool foreign = !is_assigned(consumer, place) && !is_being_assigned(consumer, place);
        if (paused && foreign) place->err = RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION; /* librdkafka pauses it (2.0.2) */
        else if (ps_ledger_pause(ledger, place->topic, place->partition, paused))
            rd_kafka_topic_partition_list_add(changed, place->topic, place->partition);
    }
    /* M:paused_messages_set_aside */
    if (paused && !ps_consumer_set_aside(consumer, changed)) query->err = RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE;
    else if (paused) query->err = rd_kafka_pause_partitions(consumer->client.rk, changed);
    else query->err = rd_kafka_resume_partitions(consumer->client.rk, changed);
    for (int i = 0; paused && i < changed->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &changed->elems[i];
        if (!query->err && is_being_assigned(consumer, place)) continue; /* librdkafka does not know it yet */
        rd_kafka_topic_partition_t *asked = rd_kafka_topic_partition_list_find(query->list, place->topic, place->partition);
        asked->err = query->err ? query->err : place->err;
        if (!asked->err) continue;
        ps_ledger_pause(ledger, place->topic, place->partition, false);
        failed++;
    }
    if (paused) ps_increase(&consumer->counts.pauses, (uint64_t)(changed->cnt - failed));
    if (!paused || failed > 0) ps_consumer_use_aside(consumer);
    pthread_mutex_unlock(&consumer->taking);
    rd_kafka_topic_partition_list_destroy(changed);
}

static void consumer_subscribe(struct ps_consumer_job *query)
{
    struct ps_consumer *consumer = query->consumer;
    rd_kafka_t *rk = consumer->client.rk;
    bool subscribes = query->list != NULL;
    if (subscribes && atomic_exchange(&consumer->ever_subscribed, true)) atomic_store(&consumer->resubscribed, true);
    ps_joining_lock(consumer);
    query->err = subscribes ? rd_kafka_subscribe(rk, query->list) : rd_kafka_unsubscribe(rk);
    ps_joining_unlock(consumer);
    if (query->err) return;
    atomic_store(&consumer->sync_error, 0);
    ps_lasting_begin_anew(&consumer->group_error, subscribes);
    atomic_store(&consumer->subscribed, subscribes);
}

/*
 * Requests to librdkafka's group handler have no timeout. A request that is sent after the group was left gets no answer; a
 * commit then even fails an assertion, which ends the process (2.0.2 and 2.14). So closing waits for the calls in progress
 * before it leaves the group. A job is such a call until it has sent its request. If the answer may take long, the job then
 * becomes a long call. Closing leaves the group while long calls wait, so they check themselves whether an answer can still
 * come.
 */
static bool answered_later(enum ps_consumer_call call)
{
    return call == PS_CONSUMER_COMMIT || call == PS_CONSUMER_COMMIT_PROCESSED || call == PS_CONSUMER_COMMITTED || call == PS_CONSUMER_OFFSETS ||
           call == PS_CONSUMER_PARTITIONS || call == PS_CONSUMER_STARTS;
}

static void job_run(struct ps_job *job)
{
    struct ps_consumer_job *query = (struct ps_consumer_job *)job;
    rd_kafka_t *rk = query->consumer->client.rk;

    switch (query->call) {
    case PS_CONSUMER_SUBSCRIBE: consumer_subscribe(query); break;
    case PS_CONSUMER_ASSIGN: query->err = consumer_assign(query); break;
    case PS_CONSUMER_ASSIGNMENT: query->err = rd_kafka_assignment(rk, &query->list); break;
    case PS_CONSUMER_COMMIT:
    case PS_CONSUMER_COMMIT_PROCESSED:
        query->err = ps_commit_job_run(query);
        if (!query->err) ps_consumer_group_answers(query->consumer);
        break;
    case PS_CONSUMER_COMMITTED:
        query->err = ps_ask(query);
        if (!query->err) ps_consumer_group_answers(query->consumer);
        break;
    case PS_CONSUMER_OFFSETS:
    case PS_CONSUMER_PARTITIONS: query->err = ps_ask(query); break;
    case PS_CONSUMER_SEEK:
    case PS_CONSUMER_SEEK_BACK:
    case PS_CONSUMER_REWIND: consumer_seek(query); break;
    case PS_CONSUMER_PAUSE: consumer_pause(query, true); break;
    case PS_CONSUMER_RESUME: consumer_pause(query, false); break;
    case PS_CONSUMER_RESTART: consumer_restart(query); break;
    case PS_CONSUMER_STARTS:
        ps_client_become_long(&query->consumer->client);
        ps_starts_find(query);
        break;
    }
    if (query->list) {
        rd_kafka_topic_partition_list_t *list = query->list;
        query->list = ps_plain_copy(list);
        rd_kafka_topic_partition_list_destroy(list);
    }
    atomic_store(&query->done, true);
    if (query->call == PS_CONSUMER_STARTS) ps_bell_ring(&query->consumer->bell);
    if (answered_later(query->call)) ps_client_exit_long(&query->consumer->client);
    else ps_client_exit(&query->consumer->client);
}

static void job_release(struct ps_job *job)
{
    struct ps_consumer_job *query = (struct ps_consumer_job *)job;
    if (query->list) rd_kafka_topic_partition_list_destroy(query->list);
    if (query->committed) rd_kafka_topic_partition_list_destroy(query->committed);
    ps_client_unref(&query->consumer->client);
    free(query);
}

struct ps_consumer_job *ps_consumer_start(struct ps_consumer *consumer, enum ps_consumer_call call,
                                          rd_kafka_topic_partition_list_t *list, int timeout_ms, uint64_t epoch)
{
    struct ps_consumer_job *query = calloc(1, sizeof(*query));
    errno = query ? 0 : ENOMEM;
    if (!query || !ps_client_enter(&consumer->client)) {
        if (list) rd_kafka_topic_partition_list_destroy(list);
        free(query);
        return NULL;
    }
    ps_job_init(&query->job, job_run, job_release);
    ps_client_retain(&consumer->client);
    query->consumer = consumer;
    query->call = call;
    query->list = list;
    query->timeout_ms = timeout_ms;
    query->epoch = epoch;
    int failed = ps_job_start(&query->job, "penstock.consumer");
    if (failed) {
        ps_client_exit(&consumer->client);
        ps_job_unref(&query->job);
        errno = failed;
        return NULL;
    }
    return query;
}

/* ---- the job that assigns again ---- */

void ps_consumer_end_restart(struct ps_consumer *consumer)
{
    if (consumer->restart) ps_job_abandon(&consumer->restart->job);
    consumer->restart = NULL;
}

void ps_consumer_restart_if_due(struct ps_consumer *consumer)
{
    int64_t due_us = atomic_load(&consumer->restart_us);
    if (due_us == 0 || ps_now_us() < due_us || consumer->rebalance.event) return;
    if (consumer->restart && !atomic_load(&consumer->restart->done)) return;
    ps_consumer_end_restart(consumer);
    atomic_store(&consumer->restart_us, 0);
    rd_kafka_topic_partition_list_t *list = ps_plain_copy(consumer->assigned);
    consumer->restart = ps_consumer_start(consumer, PS_CONSUMER_RESTART, list, -1, 0);
    if (!consumer->restart) atomic_store(&consumer->restart_us, ps_now_us() + PS_RESTART_US);
}
