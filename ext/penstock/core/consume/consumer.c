/*
 * The life of one consuming rd_kafka_t, and the handling of its events. Owned by the Ruby object, its jobs and its closing
 * thread, by reference count. Any thread, except where consume.h says otherwise.
 *
 * No native thread takes a consumer's events while it is open. Only the program's threads do, when they want messages, so
 * librdkafka notices when the program stops polling (max.poll.interval.ms). The queues' callbacks only ring the bell.
 *
 * As with producers, every use of `rk` is between enter and exit, and a fork child leaves an inherited consumer alone.
 */
#include "consume/consume.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct ps_client_kind consumer_kind;

/* ---- life ---- */

/*
 * Without such a callback librdkafka reports no result of its own and asynchronous commits, even to programs that read events
 * (2.0.2). Events that are read call no callback. A commit with a callback of its own is reported to its own queue only.
 */
void ps_commit_cb(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *offsets, void *opaque)
{
    (void)rk, (void)err, (void)offsets, (void)opaque;
}

struct ps_consumer *ps_consumer_new(rd_kafka_conf_t *conf, const char *name, const struct ps_consumer_settings *settings)
{
    struct ps_consumer *consumer = calloc(1, sizeof(*consumer));
    if (!consumer) return NULL;
    consumer->settings = *settings;
    rd_kafka_conf_set_offset_commit_cb(conf, ps_commit_cb); /* M:async_commit_results */
    rd_kafka_conf_set_error_cb(conf, ps_partition_error_cb);
    if (!ps_ledger_init(&consumer->ledger)) {
        free(consumer);
        return NULL;
    }
    consumer->assigned = rd_kafka_topic_partition_list_new(8);
    ps_client_init(&consumer->client, &consumer_kind, conf, name, &consumer->settings.client);
    ps_bell_init(&consumer->bell);
    ps_news_init(&consumer->news);
    ps_lasting_init(&consumer->group_error);
    ps_lasting_init(&consumer->size_error);
    ps_async_commits_init(consumer);
    pthread_mutex_init(&consumer->assigning, NULL);
    pthread_mutex_init(&consumer->joining, NULL);
    pthread_mutex_init(&consumer->taking, NULL);
    return consumer;
}

static void consumer_dispose(struct ps_client *client)
{
    struct ps_consumer *consumer = (struct ps_consumer *)client;
    ps_bell_destroy(&consumer->bell);
    ps_ledger_destroy(&consumer->ledger);
    ps_news_destroy(&consumer->news);
    ps_lasting_destroy(&consumer->group_error);
    ps_lasting_destroy(&consumer->size_error);
    ps_async_commits_destroy(&consumer->async_commits);
    rd_kafka_topic_partition_list_destroy(consumer->assigned);
    free(consumer->aside);
    pthread_mutex_destroy(&consumer->assigning);
    pthread_mutex_destroy(&consumer->joining);
    pthread_mutex_destroy(&consumer->taking);
}

/* librdkafka reads several words for each of its values, and returns one of them. */
static int64_t reset_offset(rd_kafka_t *rk)
{
    char value[32] = "";
    size_t size = sizeof(value);
    if (rd_kafka_conf_get(rd_kafka_conf(rk), "auto.offset.reset", value, &size)) return RD_KAFKA_OFFSET_END; /* no topic setting was set */
    if (strcmp(value, "smallest") == 0 || strcmp(value, "earliest") == 0) return RD_KAFKA_OFFSET_BEGINNING;
    if (strcmp(value, "largest") == 0 || strcmp(value, "latest") == 0) return RD_KAFKA_OFFSET_END;
    return RD_KAFKA_OFFSET_INVALID;
}

static int consumer_begin(struct ps_client *client, char *errstr, size_t errstr_size)
{
    struct ps_consumer *consumer = (struct ps_consumer *)client;
    (void)errstr, (void)errstr_size;
    consumer->reset = reset_offset(client->rk);
    ps_queues_open(consumer);
    return 0;
}

/* ---- offsets and counts ---- */

void ps_consumer_store(struct ps_consumer *consumer)
{
    if (!consumer->settings.grouped || !ps_ledger_store(&consumer->ledger, consumer->client.rk)) return;
    atomic_store(&consumer->settled, false);
    ps_async_commits_stored(consumer);
}

enum { STORE_EVERY_US = 1000 };

void ps_consumer_store_sometimes(struct ps_consumer *consumer)
{
    int64_t now_us = ps_now_us();
    if (now_us - consumer->stored_us < STORE_EVERY_US) return;
    consumer->stored_us = now_us;
    ps_consumer_store(consumer);
}

void ps_consumer_set_statistics(struct ps_consumer *consumer, const char *interval_ms)
{
    struct ps_client *client = &consumer->client;
    pthread_mutex_lock(&client->lock); /* a thread that opens the client copies `conf` */
    if (atomic_load(&client->state) == PS_NEW) rd_kafka_conf_set(client->conf, "statistics.interval.ms", interval_ms, NULL, 0);
    pthread_mutex_unlock(&client->lock);
}

void ps_increase(_Atomic uint64_t *count, uint64_t number)
{
    atomic_fetch_add_explicit(count, number, memory_order_relaxed);
}

void ps_consumer_count(struct ps_consumer *consumer, const struct ps_fetched *fetched)
{
    struct ps_consumer_counts *counts = &consumer->counts;
    uint64_t bytes = 0;
    if (fetched->count == 0) return;
    for (size_t i = 0; i < fetched->count; i++) {
        const struct ps_record *record = &fetched->records[i];
        bytes += (uint64_t)record->key_size + record->payload_size;
    }
    ps_increase(&counts->messages, fetched->count);
    ps_increase(&counts->bytes, bytes);
    ps_increase(&counts->batches, 1);
}

/*
 * Asks librdkafka at an assignment, and remembers the answer for later revocations. Never after closing has asked librdkafka
 * to leave the group: librdkafka's main thread may have ended then, and the call would wait for its answer for ever
 * (librdkafka #4041, #4884).
 */
static bool cooperative(struct ps_consumer *consumer, bool assigned)
{
    if (assigned && !atomic_load(&consumer->leaving)) { /* M:leaving_skips_protocol */
        const char *protocol = rd_kafka_rebalance_protocol(consumer->client.rk);
        consumer->cooperative = protocol && strcmp(protocol, "COOPERATIVE") == 0;
    }
    return consumer->cooperative;
}

/* ---- where assigned partitions begin ---- */

static bool find_starts(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions)
{
    if (partitions->cnt == 0) return false;
    rd_kafka_topic_partition_list_t *list = ps_plain_copy(partitions);
    for (int i = 0; consumer->chosen && i < consumer->chosen->cnt; i++) {
        const rd_kafka_topic_partition_t *from = &consumer->chosen->elems[i];
        rd_kafka_topic_partition_t *to = rd_kafka_topic_partition_list_find(list, from->topic, from->partition);
        if (to) to->offset = from->offset;
    }
    consumer->starts = ps_consumer_start(consumer, PS_CONSUMER_STARTS, list, -1, 0);
    return consumer->starts != NULL;
}

static void set_starts(struct ps_consumer *consumer, rd_kafka_topic_partition_list_t *partitions)
{
    const struct ps_consumer_job *job = consumer->starts;
    bool done = job && atomic_load(&job->done);
    for (int i = 0; i < partitions->cnt; i++) {
        rd_kafka_topic_partition_t *to = &partitions->elems[i], *chosen = NULL, *from;
        if (consumer->chosen) chosen = rd_kafka_topic_partition_list_find(consumer->chosen, to->topic, to->partition);
        from = done ? rd_kafka_topic_partition_list_find(job->list, to->topic, to->partition) : chosen;
        if (!from) continue;
        to->offset = from->offset;
        ps_set_leader_epoch(to, ps_leader_epoch(from));
        if (chosen) ps_ledger_begin(&consumer->ledger, to->topic, to->partition, to->offset);
    }
}

/* For listeners: `partitions` with their offsets, as far as they are known, and an enum ps_start. */
static rd_kafka_topic_partition_list_t *starts_of(const struct ps_consumer *consumer,
                                                  const rd_kafka_topic_partition_list_t *partitions)
{
    const struct ps_consumer_job *job = consumer->starts;
    rd_kafka_topic_partition_list_t *list = ps_plain_copy(partitions);
    rd_kafka_topic_partition_list_t *committed = job && atomic_load(&job->done) ? job->committed : NULL;
    for (int i = 0; i < list->cnt; i++) {
        rd_kafka_topic_partition_t *place = &list->elems[i], *found = NULL;
        bool chosen = consumer->chosen && rd_kafka_topic_partition_list_find(consumer->chosen, place->topic, place->partition);
        if (committed) found = rd_kafka_topic_partition_list_find(committed, place->topic, place->partition);
        if (found && found->err) found = NULL;
        if (found && found->offset >= 0 && place->offset < 0) place->offset = found->offset;
        enum ps_start start = chosen ? PS_START_CHOSEN : !found ? PS_START_UNKNOWN : PS_START_RESET;
        if (start == PS_START_RESET && found->offset >= 0) start = PS_START_COMMITTED;
        place->opaque = (void *)(intptr_t)start;
    }
    return list;
}

/* The listener may pause partitions before they are assigned. */
static void pause_assigned(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *assigned)
{
    rd_kafka_topic_partition_list_t *list = ps_ledger_paused(&consumer->ledger, assigned);
    if (list->cnt > 0) rd_kafka_pause_partitions(consumer->client.rk, list);
    rd_kafka_topic_partition_list_destroy(list);
}

void ps_consumer_resume_revoked(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *revoked)
{
    rd_kafka_topic_partition_list_t *list = ps_ledger_paused(&consumer->ledger, revoked);
    if (list->cnt > 0) rd_kafka_resume_partitions(consumer->client.rk, list);
    rd_kafka_topic_partition_list_destroy(list);
}

static void rebalance(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    rd_kafka_topic_partition_list_t *partitions = rd_kafka_event_topic_partition_list(event);
    bool assigned = rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    consumer->lost = !assigned && rd_kafka_assignment_lost(consumer->client.rk); /* the answer resets it */
    rd_kafka_topic_partition_list_t *starts = NULL;
    rd_kafka_resp_err_t err;

    /* librdkafka commits the stored offsets of partitions when they are unassigned. */
    if (!assigned) {
        ps_consumer_store(consumer);
        ps_consumer_resume_revoked(consumer, partitions); /* M:revoked_partitions_resumed */
        ps_consumer_drop_messages(consumer, partitions);
        if (consumer->lost) ps_increase(&consumer->counts.lost_partitions, (uint64_t)partitions->cnt);
        ps_ledger_revoked(&consumer->ledger, partitions, consumer->lost); /* from here on, no thread adds a commit of them */
        ps_async_commits_revoked(consumer, partitions);
        ps_consumer_remove_assigned(consumer, partitions);
        ps_committer_joining_changed(&consumer->async_commits.work);
    } else {
        ps_lasting_end(&consumer->group_error);
        atomic_store(&consumer->syncs, 0);
        ps_ledger_assigned(&consumer->ledger);
        set_starts(consumer, partitions);
        if (consumer->starts && atomic_load(&consumer->starts->done))
            ps_ledger_begin_committed(&consumer->ledger, consumer->starts->committed);
        starts = starts_of(consumer, partitions);
        ps_consumer_add_assigned(consumer, partitions);
    }
    consumer->assigned_once |= assigned;
    bool incremental = cooperative(consumer, assigned);
    consumer->member = assigned || (incremental && !consumer->lost);
    if (incremental) {
        ps_ledger_resumed(&consumer->ledger);
        ps_joining_lock(consumer); /* the main thread may join at once */
        rd_kafka_error_t *error = assigned ? rd_kafka_incremental_assign(consumer->client.rk, partitions)
                                           : rd_kafka_incremental_unassign(consumer->client.rk, partitions);
        ps_joining_unlock(consumer);
        err = error ? rd_kafka_error_code(error) : RD_KAFKA_RESP_ERR_NO_ERROR;
        if (error) rd_kafka_error_destroy(error);
    } else {
        err = rd_kafka_assign(consumer->client.rk, assigned ? partitions : NULL);
    }
    const char *failure = assigned ? "librdkafka did not start the assigned partitions"
                                   : "librdkafka did not stop the revoked partitions";
    if (err) ps_consumer_log_error(consumer, err, failure);
    else if (assigned) pause_assigned(consumer, partitions); /* M:listener_pauses_assigned */
    ps_increase(&consumer->counts.rebalances, 1);
    enum ps_news_kind kind = assigned ? PS_NEWS_ASSIGNED : PS_NEWS_REVOKED;
    ps_news_add(&consumer->news, kind, err, consumer->lost, starts ? starts : partitions, NULL);
    if (starts) rd_kafka_topic_partition_list_destroy(starts);
}

void ps_consumer_begin_answer(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    bool revoked = rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS;
    consumer->lost = revoked && rd_kafka_assignment_lost(consumer->client.rk); /* the answer resets it */
    consumer->listening = consumer->held_back = consumer->prepared = false;
    consumer->answering = event;
    atomic_store(&consumer->hold_ended, false);
    bool may_wait = revoked && !consumer->lost && consumer->settings.hold_us > 0;
    if (may_wait) atomic_store(&consumer->hold_until_us, ps_now_us() + consumer->settings.hold_us);
}

static bool in_work(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions)
{
    if (consumer->settings.holds_always) return !atomic_load(&consumer->hold_ended);
    return ps_ledger_in_work(&consumer->ledger, partitions);
}

bool ps_consumer_holds_back(struct ps_consumer *consumer)
{
    if (consumer->starts) return !atomic_load(&consumer->starts->done); /* M:starts_before_answer */
    int64_t until_us = atomic_load(&consumer->hold_until_us);
    if (until_us == 0) return false;
    const rd_kafka_topic_partition_list_t *partitions = rd_kafka_event_topic_partition_list(consumer->answering);
    bool waits = consumer->prepared ? !ps_commit_turn_has_come(consumer, &consumer->turn)
                                : in_work(consumer, partitions);
    if (!waits || ps_now_us() >= until_us) {
        atomic_store(&consumer->hold_until_us, 0);
        return false;
    }
    if (consumer->prepared || consumer->held_back) return true;
    consumer->held_back = true;
    ps_news_add(&consumer->news, PS_NEWS_HELD_BACK, RD_KAFKA_RESP_ERR_NO_ERROR, false, partitions, NULL);
    ps_bell_ring(&consumer->bell); /* a thread publishes it */
    return true;
}

/* A revocation takes its turn among the commits (async_commits.c). False: nothing is on its way. */
static bool join_line(struct ps_consumer *consumer)
{
    consumer->turn = (struct ps_commit_turn){ .yields = true };
    ps_commit_turn_join(consumer, &consumer->turn);
    consumer->has_turn = true;
    if (ps_commit_turn_has_come(consumer, &consumer->turn)) return false;
    atomic_store(&consumer->hold_until_us, ps_now_us() + PS_LONGEST_TURN_US);
    return true;
}

/* Between the listener and the answer. False: there is nothing to wait for. */
static bool prepare_answer(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *chosen)
{
    const rd_kafka_topic_partition_list_t *partitions = rd_kafka_event_topic_partition_list(consumer->answering);
    bool assigned = rd_kafka_event_error(consumer->answering) == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    consumer->prepared = true;
    consumer->listening = false;
    atomic_store(&consumer->hold_until_us, 0);
    if (chosen) consumer->chosen = ps_plain_copy(chosen);
    if (assigned) return find_starts(consumer, partitions); /* M:group_finds_starts */
    /* M:revocation_takes_turn */
    return !consumer->lost && atomic_load(&consumer->client.state) == PS_OPEN && join_line(consumer);
}

static void end_answer(struct ps_consumer *consumer)
{
    if (consumer->starts) ps_job_abandon(&consumer->starts->job);
    if (consumer->chosen) rd_kafka_topic_partition_list_destroy(consumer->chosen);
    if (consumer->has_turn) ps_commit_turn_leave(consumer, &consumer->turn);
    consumer->has_turn = false;
    consumer->starts = NULL;
    consumer->chosen = NULL;
}

void ps_consumer_answer_locked(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *chosen)
{
    rd_kafka_event_t *event = consumer->answering;
    if (!event || (!consumer->prepared && prepare_answer(consumer, chosen))) return;
    rebalance(consumer, event);
    rd_kafka_event_destroy(event);
    consumer->answering = NULL;
    atomic_store(&consumer->hold_until_us, 0);
    end_answer(consumer);
    ps_bell_ring(&consumer->bell); /* other threads have taken nothing meanwhile */
}

void ps_consumer_answer(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *chosen)
{
    pthread_mutex_lock(&consumer->taking);
    if (consumer->listening) ps_consumer_answer_locked(consumer, chosen);
    pthread_mutex_unlock(&consumer->taking);
}

void ps_consumer_answer_later(struct ps_consumer *consumer)
{
    pthread_mutex_lock(&consumer->taking);
    consumer->listening = false;
    ps_bell_ring(&consumer->bell); /* other threads wait for the answer, and one of them may give it */
    pthread_mutex_unlock(&consumer->taking);
}

void ps_consumer_marked(struct ps_consumer *consumer)
{
    if (atomic_load(&consumer->hold_until_us)) ps_bell_ring(&consumer->bell);
}

void ps_consumer_end_hold(struct ps_consumer *consumer)
{
    atomic_store(&consumer->hold_ended, true);
    ps_bell_ring(&consumer->bell);
}

static void end_restart(struct ps_consumer *consumer)
{
    if (consumer->restart) ps_job_abandon(&consumer->restart->job);
    consumer->restart = NULL;
}

void ps_consumer_restart_if_due(struct ps_consumer *consumer)
{
    int64_t due_us = atomic_load(&consumer->restart_us);
    if (due_us == 0 || ps_now_us() < due_us || consumer->answering) return;
    if (consumer->restart && !atomic_load(&consumer->restart->done)) return;
    end_restart(consumer);
    atomic_store(&consumer->restart_us, 0);
    rd_kafka_topic_partition_list_t *list = ps_plain_copy(consumer->assigned);
    consumer->restart = ps_consumer_start(consumer, PS_CONSUMER_RESTART, list, -1, 0);
    if (!consumer->restart) atomic_store(&consumer->restart_us, ps_now_us() + PS_RESTART_US);
}

/* ---- membership ---- */

/*
 * librdkafka has no function for the generation (KIP-848: the member epoch). Its form of the group's metadata contains it (2.0.2 to
 * 2.14): "CGMDv2:", the generation as 4 bytes in the machine's order, group and member id.
 */
static int32_t generation_of(const rd_kafka_consumer_group_metadata_t *metadata)
{
    static const char magic[] = "CGMDv2:";
    size_t size = 0;
    void *bytes = NULL;
    int32_t generation = -1;
    rd_kafka_error_t *error = rd_kafka_consumer_group_metadata_write(metadata, &bytes, &size);
    if (error) {
        rd_kafka_error_destroy(error);
        return -1;
    }
    const size_t skipped = sizeof(magic) - 1;
    if (size >= skipped + sizeof(generation) && memcmp(bytes, magic, skipped) == 0)
        memcpy(&generation, (const char *)bytes + skipped, sizeof(generation));
    rd_kafka_mem_free(NULL, bytes);
    return generation;
}

void ps_consumer_membership(struct ps_membership *membership)
{
    struct ps_consumer *consumer = membership->consumer;
    rd_kafka_t *rk = consumer->client.rk;
    membership->generation = -1;
    pthread_mutex_lock(&consumer->taking);
    bool member = consumer->member && !rd_kafka_assignment_lost(rk); /* perhaps no thread has met the event yet */
    membership->failed = !member && ps_lasting_read(&consumer->group_error, &membership->problem);
    membership->state = consumer->answering ? "rebalancing" : member ? "stable" : "joining";
    pthread_mutex_unlock(&consumer->taking);
    rd_kafka_consumer_group_metadata_t *metadata = rd_kafka_consumer_group_metadata(rk);
    if (metadata) {
        membership->generation = generation_of(metadata);
        rd_kafka_consumer_group_metadata_destroy(metadata);
    }
    char *id = rd_kafka_memberid(rk);
    if (!id) return;
    snprintf(membership->member_id, sizeof(membership->member_id), "%s", id);
    rd_kafka_mem_free(rk, id);
}

/* ---- closing ---- */

static void serve_while_closing(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    rd_kafka_event_type_t type = rd_kafka_event_type(event);
    bool repeated = type == RD_KAFKA_EVENT_OFFSET_COMMIT && atomic_load(&consumer->settled);
    if (type != RD_KAFKA_EVENT_REBALANCE && !repeated) {
        ps_consumer_absorb(consumer, event);
        return;
    }
    if (!repeated) rebalance(consumer, event);
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

/* Closing needs the rest of its time to leave the group. While no coordinator answers, it cannot be left either. */
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
 * Leaves the group. False: time ran out first, or the group cannot be left. However late it
 * is, this does not stop while the queue has events: librdkafka waits for ever for the answer to a rebalance event, also in
 * rd_kafka_destroy.
 */
static bool leave_group(struct ps_consumer *consumer, bool *aborts)
{
    rd_kafka_event_t *event;
    int64_t begun_us = ps_now_us();
    await_first_assignment(consumer);
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
    while (!ps_commit_turn_has_come(consumer, turn) && ps_now_us() < commit_by_us(consumer, begun_us)) usleep(1000);
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
 * What is processed. librdkafka commits it only when it leaves the group, and then brokers may refuse it: it leaves first if a rebalance
 * event is still in the queue, or it is joining the group again (2.0.2 and 2.14). Messages would come again.
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

static void consumer_close(struct ps_client *client)
{
    struct ps_consumer *consumer = (struct ps_consumer *)client;
    ps_bell_ring(&consumer->bell);
    ps_async_commits_closing(consumer);
    ps_client_await_calls(client);
    end_commits(consumer);
    ps_queues_silence(consumer);
    end_restart(consumer);
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

static void consumer_changed(struct ps_client *client)
{
    ps_bell_ring(&((struct ps_consumer *)client)->bell);
}

static bool consumer_intercept(struct ps_client *client, rd_kafka_conf_t *conf)
{
    return ps_joining_watch((struct ps_consumer *)client, conf);
}

static bool consumer_log(struct ps_client *client, int level, const char *facility, const char *text)
{
    return ps_joining_log((struct ps_consumer *)client, level, facility, text);
}

static uint64_t no_pending(const struct ps_client *client)
{
    (void)client;
    return 0;
}

static const struct ps_client_kind consumer_kind = {
    .type = RD_KAFKA_CONSUMER,
    .intercept = consumer_intercept,
    .log = consumer_log,
    .begin = consumer_begin,
    .pending = no_pending,
    .close = consumer_close,
    .changed = consumer_changed,
    .dispose = consumer_dispose,
};
