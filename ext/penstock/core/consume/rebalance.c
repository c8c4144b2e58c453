/*
 * A consumer's rebalances. struct ps_rebalance in consume.h has the states between the group's event and the answer. The taking thread
 * takes the event. It answers, or the thread that has called the listener does, or the closing thread. No thread takes messages
 * before. No Ruby.
 */
#include "consume/consume.h"
#include <string.h>

/*
 * Asks librdkafka at an assignment, and remembers the answer for later revocations. Never after closing has asked librdkafka
 * to leave the group: librdkafka's main thread may have ended then, and the call would wait for its answer for ever
 * (librdkafka #4041, #4884).
 */
static bool cooperative(struct ps_consumer *consumer, bool assigned)
{
    if (assigned && !atomic_load(&consumer->leaving)) { /* M:leaving_skips_protocol */
        const char *protocol = rd_kafka_rebalance_protocol(consumer->client.rk);
        consumer->rebalance.cooperative = protocol && strcmp(protocol, "COOPERATIVE") == 0;
    }
    return consumer->rebalance.cooperative;
}

/* ---- where assigned partitions begin ---- */

/* Starts the job that asks brokers. False: there is nothing to ask, or no thread. */
static bool ask_for_starts(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions)
{
    struct ps_rebalance *rebalance = &consumer->rebalance;
    if (partitions->cnt == 0) return false;
    rd_kafka_topic_partition_list_t *list = ps_plain_copy(partitions);
    for (int i = 0; rebalance->chosen && i < rebalance->chosen->cnt; i++) {
        const rd_kafka_topic_partition_t *from = &rebalance->chosen->elems[i];
        rd_kafka_topic_partition_t *to = rd_kafka_topic_partition_list_find(list, from->topic, from->partition);
        if (to) to->offset = from->offset;
    }
    rebalance->starts = ps_consumer_start(consumer, PS_CONSUMER_STARTS, list, -1, 0);
    return rebalance->starts != NULL;
}

static void set_starts(struct ps_consumer *consumer, rd_kafka_topic_partition_list_t *partitions)
{
    const struct ps_rebalance *rebalance = &consumer->rebalance;
    const struct ps_consumer_job *job = rebalance->starts;
    bool done = job && atomic_load(&job->done);
    for (int i = 0; i < partitions->cnt; i++) {
        rd_kafka_topic_partition_t *to = &partitions->elems[i], *chosen = NULL, *from;
        if (rebalance->chosen) chosen = rd_kafka_topic_partition_list_find(rebalance->chosen, to->topic, to->partition);
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
    const struct ps_rebalance *rebalance = &consumer->rebalance;
    const struct ps_consumer_job *job = rebalance->starts;
    rd_kafka_topic_partition_list_t *list = ps_plain_copy(partitions);
    rd_kafka_topic_partition_list_t *committed = job && atomic_load(&job->done) ? job->committed : NULL;
    for (int i = 0; i < list->cnt; i++) {
        rd_kafka_topic_partition_t *place = &list->elems[i], *found = NULL;
        bool chosen = rebalance->chosen && rd_kafka_topic_partition_list_find(rebalance->chosen, place->topic, place->partition);
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

/* ---- what the group requires ---- */

void ps_consumer_change_assignment(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    rd_kafka_topic_partition_list_t *partitions = rd_kafka_event_topic_partition_list(event);
    bool assigned = rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    consumer->rebalance.lost = !assigned && rd_kafka_assignment_lost(consumer->client.rk); /* the answer resets it */
    rd_kafka_topic_partition_list_t *starts = NULL;
    rd_kafka_resp_err_t err;

    /*
     * The last commit of revoked partitions. With enable.auto.commit librdkafka sends it itself, in the call that unassigns them
     * below, of the offsets that it gets here. ps_async_commits_revoked sends what the program has committed asynchronously. If the
     * partitions are lost already, brokers refuse both.
     */
    if (!assigned) {
        ps_consumer_store(consumer);
        ps_consumer_resume_revoked(consumer, partitions); /* M:revoked_partitions_resumed */
        ps_consumer_drop_messages(consumer, partitions);
        if (consumer->rebalance.lost) ps_increase(&consumer->counts.lost_partitions, (uint64_t)partitions->cnt);
        bool commits = ps_async_commits_revoked(consumer, partitions) || consumer->settings.commits_last;
        /* From here on, nothing of them counts as processed. */
        ps_ledger_revoked(&consumer->ledger, partitions, commits && !consumer->rebalance.lost);
        ps_consumer_remove_assigned(consumer, partitions);
        ps_committer_joining_changed(&consumer->async_commits.work);
    } else { /* each cooperative rebalance ends with an assignment, perhaps of nothing */
        ps_lasting_end(&consumer->group_error);
        atomic_store(&consumer->sync_error, 0);
        ps_ledger_assigned(&consumer->ledger);
        set_starts(consumer, partitions);
        if (consumer->rebalance.starts && atomic_load(&consumer->rebalance.starts->done))
            ps_ledger_begin_committed(&consumer->ledger, consumer->rebalance.starts->committed);
        starts = starts_of(consumer, partitions);
        ps_consumer_add_assigned(consumer, partitions);
    }
    consumer->assigned_once |= assigned;
    bool incremental = cooperative(consumer, assigned);
    consumer->member = assigned || (incremental && !consumer->rebalance.lost);
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
    ps_news_add(&consumer->news, kind, err, consumer->rebalance.lost, starts ? starts : partitions, NULL);
    ps_list_destroy(&starts);
}

/* ---- from the event to the answer ---- */

void ps_consumer_begin_answer(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    struct ps_rebalance *rebalance = &consumer->rebalance;
    bool revoked = rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS;
    rebalance->state = PS_REBALANCE_ARRIVED;
    rebalance->event = event;
    rebalance->lost = revoked && rd_kafka_assignment_lost(consumer->client.rk); /* the answer resets it */
    rebalance->held_back = false;
    atomic_store(&rebalance->hold_ended, false);
    bool may_wait = revoked && !rebalance->lost && consumer->settings.hold_us > 0;
    if (may_wait) atomic_store(&rebalance->hold_until_us, ps_now_us() + consumer->settings.hold_us);
}

static bool in_work(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions)
{
    if (consumer->settings.holds_always) return !atomic_load(&consumer->rebalance.hold_ended);
    return ps_ledger_in_work(&consumer->ledger, partitions);
}

bool ps_consumer_holds_back(struct ps_consumer *consumer)
{
    struct ps_rebalance *rebalance = &consumer->rebalance;
    if (rebalance->starts) return !atomic_load(&rebalance->starts->done); /* M:starts_before_answer */
    int64_t until_us = atomic_load(&rebalance->hold_until_us);
    if (until_us == 0) return false;
    const rd_kafka_topic_partition_list_t *partitions = rd_kafka_event_topic_partition_list(rebalance->event);
    bool prepared = rebalance->state == PS_REBALANCE_PREPARED;
    bool waits = prepared ? !ps_commit_turn_has_come(consumer, &rebalance->turn) : in_work(consumer, partitions);
    if (!waits || ps_now_us() >= until_us) {
        atomic_store(&rebalance->hold_until_us, 0);
        return false;
    }
    if (prepared || rebalance->held_back) return true;
    rebalance->held_back = true;
    ps_news_add(&consumer->news, PS_NEWS_HELD_BACK, RD_KAFKA_RESP_ERR_NO_ERROR, false, partitions, NULL);
    ps_bell_ring(&consumer->bell); /* a thread publishes it */
    return true;
}

/* A revocation takes its turn among the commits (commits.c). True: some are on their way, and the answer waits for them. */
static bool waits_for_turn(struct ps_consumer *consumer)
{
    struct ps_rebalance *rebalance = &consumer->rebalance;
    rebalance->turn = (struct ps_commit_turn){ .yields = true };
    ps_commit_turn_join(consumer, &rebalance->turn);
    rebalance->has_turn = true;
    if (ps_commit_turn_has_come(consumer, &rebalance->turn)) return false;
    atomic_store(&rebalance->hold_until_us, ps_now_us() + PS_TURN_COMES_WITHIN_US);
    return true;
}

/* Between the listener and the answer. True: the answer waits for something. */
static bool waits_before_answer(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *chosen)
{
    struct ps_rebalance *rebalance = &consumer->rebalance;
    const rd_kafka_topic_partition_list_t *partitions = rd_kafka_event_topic_partition_list(rebalance->event);
    bool assigned = rd_kafka_event_error(rebalance->event) == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    rebalance->state = PS_REBALANCE_PREPARED;
    atomic_store(&rebalance->hold_until_us, 0);
    if (chosen) rebalance->chosen = ps_plain_copy(chosen);
    if (assigned) return ask_for_starts(consumer, partitions); /* M:group_finds_starts */
    /* M:revocation_takes_turn */
    return !rebalance->lost && atomic_load(&consumer->client.state) == PS_OPEN && waits_for_turn(consumer);
}

static void end_answer(struct ps_consumer *consumer)
{
    struct ps_rebalance *rebalance = &consumer->rebalance;
    rd_kafka_event_destroy(rebalance->event);
    rebalance->event = NULL;
    rebalance->state = PS_REBALANCE_NONE;
    atomic_store(&rebalance->hold_until_us, 0);
    if (rebalance->starts) ps_job_abandon(&rebalance->starts->job);
    if (rebalance->chosen) rd_kafka_topic_partition_list_destroy(rebalance->chosen);
    if (rebalance->has_turn) ps_commit_turn_leave(consumer, &rebalance->turn);
    rebalance->has_turn = false;
    rebalance->starts = NULL;
    rebalance->chosen = NULL;
}

void ps_consumer_answer_locked(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *chosen)
{
    const struct ps_rebalance *rebalance = &consumer->rebalance;
    if (rebalance->state == PS_REBALANCE_NONE) return;
    if (rebalance->state != PS_REBALANCE_PREPARED && waits_before_answer(consumer, chosen)) return;
    ps_consumer_change_assignment(consumer, rebalance->event);
    end_answer(consumer);
    ps_bell_ring(&consumer->bell); /* other threads have taken nothing meanwhile */
}

void ps_consumer_answer(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *chosen)
{
    pthread_mutex_lock(&consumer->taking);
    if (consumer->rebalance.state == PS_REBALANCE_LISTENS) ps_consumer_answer_locked(consumer, chosen);
    pthread_mutex_unlock(&consumer->taking);
}

void ps_consumer_answer_later(struct ps_consumer *consumer)
{
    pthread_mutex_lock(&consumer->taking);
    if (consumer->rebalance.state == PS_REBALANCE_LISTENS) consumer->rebalance.state = PS_REBALANCE_ARRIVED;
    ps_bell_ring(&consumer->bell); /* other threads wait for the answer, and one of them may give it */
    pthread_mutex_unlock(&consumer->taking);
}

void ps_consumer_end_hold(struct ps_consumer *consumer)
{
    atomic_store(&consumer->rebalance.hold_ended, true);
    ps_bell_ring(&consumer->bell);
}
