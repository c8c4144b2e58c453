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
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct ps_client_kind consumer_kind;

/* ---- life ---- */

struct ps_consumer *ps_consumer_new(rd_kafka_conf_t *conf, const char *name, const struct ps_consumer_settings *settings)
{
    struct ps_consumer *consumer = calloc(1, sizeof(*consumer));
    if (!consumer) return NULL;
    consumer->settings = *settings;
    if (!ps_ledger_init(&consumer->ledger)) {
        free(consumer);
        return NULL;
    }
    consumer->assigned = rd_kafka_topic_partition_list_new(8);
    ps_client_init(&consumer->client, &consumer_kind, conf, name, &consumer->settings.client);
    ps_bell_init(&consumer->bell);
    pthread_mutex_init(&consumer->assigning, NULL);
    pthread_mutex_init(&consumer->taking, NULL);
    return consumer;
}

static void consumer_dispose(struct ps_client *client)
{
    struct ps_consumer *consumer = (struct ps_consumer *)client;
    ps_bell_destroy(&consumer->bell);
    ps_ledger_destroy(&consumer->ledger);
    rd_kafka_topic_partition_list_destroy(consumer->assigned);
    pthread_mutex_destroy(&consumer->assigning);
    pthread_mutex_destroy(&consumer->taking);
}

/* Called for the first event in an empty queue. */
static void data_cb(rd_kafka_t *rk, void *arg)
{
    struct ps_consumer *consumer = arg;
    ps_bell_ring_cb(rk, &consumer->bell);
}

static void alert_cb(rd_kafka_t *rk, void *arg)
{
    struct ps_consumer *consumer = arg;
    atomic_store(&consumer->alerted, true);
    data_cb(rk, consumer);
}

static int consumer_begin(struct ps_client *client, char *errstr, size_t errstr_size)
{
    struct ps_consumer *consumer = (struct ps_consumer *)client;
    (void)errstr, (void)errstr_size;
    consumer->data = rd_kafka_queue_new(client->rk);
    consumer->control = rd_kafka_queue_get_consumer(client->rk);
    consumer->notices = rd_kafka_queue_get_main(client->rk);
    /* Events that are already in the queues need no ring: a taking thread looks before it sleeps. */
    rd_kafka_queue_cb_event_enable(consumer->data, data_cb, consumer);
    rd_kafka_queue_cb_event_enable(consumer->control, alert_cb, consumer);
    rd_kafka_queue_cb_event_enable(consumer->notices, alert_cb, consumer);
    atomic_store(&consumer->alerted, true);
    return 0;
}

/* ---- events ---- */

/*
 * No wake-up is lost with any number of taking threads. A thread reads the bell's count, then finds the queue empty, then
 * sleeps until the count changes. If the queue stops being empty in between, the callback rings the bell and changes the
 * count. So the threads that have read the older count look at the queue again.
 */

/* Called for messages in a partition's own queue, which is empty while it is forwarded. */
static void astray_cb(rd_kafka_t *rk, void *arg)
{
    struct ps_consumer *consumer = arg;
    atomic_store(&consumer->astray, true);
    alert_cb(rk, consumer);
}

/*
 * Forwards the partitions' queues to `data`, with the messages that are in them. This happens before the partitions are assigned:
 * then librdkafka does not forward them to its consumer queue. If librdkafka stops an earlier assignment of a partition after that,
 * it ends the forwarding, and does not begin it again. The next messages of such a partition call astray_cb, and the taking thread
 * forwards again.
 */
static void forward_to_data(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions)
{
    for (int i = 0; i < partitions->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &partitions->elems[i];
        rd_kafka_queue_t *queue = rd_kafka_queue_get_partition(consumer->client.rk, place->topic, place->partition);
        if (!queue) continue;
        rd_kafka_queue_cb_event_enable(queue, astray_cb, consumer);
        rd_kafka_queue_forward(queue, consumer->data);
        rd_kafka_queue_destroy(queue);
    }
}

static void add_assigned(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions)
{
    for (int i = 0; partitions && i < partitions->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &partitions->elems[i];
        if (!rd_kafka_topic_partition_list_find(consumer->assigned, place->topic, place->partition))
            rd_kafka_topic_partition_list_add(consumer->assigned, place->topic, place->partition);
    }
    forward_to_data(consumer, consumer->assigned);
}

/* `partitions`: NULL: all */
static void remove_assigned(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *partitions)
{
    for (int i = consumer->assigned->cnt - 1; i >= 0; i--) {
        const rd_kafka_topic_partition_t *place = &consumer->assigned->elems[i];
        if (!partitions || rd_kafka_topic_partition_list_find(partitions, place->topic, place->partition))
            rd_kafka_topic_partition_list_del_by_idx(consumer->assigned, i);
    }
}

/* Control events come seldom, so a thread that takes messages looks for them only after their callback. */
static rd_kafka_event_t *take_alert(struct ps_consumer *consumer)
{
    if (!atomic_load(&consumer->alerted)) return NULL;
    atomic_store(&consumer->alerted, false); /* before the polls: a later event makes the callback set it again */
    if (atomic_exchange(&consumer->astray, false)) forward_to_data(consumer, consumer->assigned);
    rd_kafka_event_t *event = rd_kafka_queue_poll(consumer->control, 0);
    if (!event) event = rd_kafka_queue_poll(consumer->notices, 0);
    if (event) atomic_store(&consumer->alerted, true); /* there may be more */
    return event;
}

static rd_kafka_event_t *take_held(struct ps_consumer *consumer, int i)
{
    rd_kafka_event_t *event = consumer->held[i];
    consumer->held_count--;
    memmove(&consumer->held[i], &consumer->held[i + 1], (size_t)(consumer->held_count - i) * sizeof(consumer->held[0]));
    return event;
}

/*
 * Control events come before messages: the group waits for the answer to a rebalance, and librdkafka drops the messages that were
 * fetched before it. If there are no messages, the last poll tells librdkafka that the program is alive (max.poll.interval.ms): a
 * poll of `data` does so only once a partition's messages go there.
 */
rd_kafka_event_t *ps_consumer_take(struct ps_consumer *consumer)
{
    if (consumer->held_count > 0) return take_held(consumer, 0);
    rd_kafka_event_t *event = take_alert(consumer);
    if (!event) event = rd_kafka_queue_poll(consumer->data, 0);
    return event ? event : rd_kafka_queue_poll(consumer->control, 0);
}

rd_kafka_event_t *ps_consumer_take_control(struct ps_consumer *consumer)
{
    for (int i = 0; i < consumer->held_count; i++)
        if (rd_kafka_event_type(consumer->held[i]) == RD_KAFKA_EVENT_REBALANCE) return take_held(consumer, i);
    rd_kafka_event_t *event = take_alert(consumer);
    return event ? event : rd_kafka_queue_poll(consumer->control, 0);
}

static void hold_at(struct ps_consumer *consumer, int i, rd_kafka_event_t *event)
{
    memmove(&consumer->held[i + 1], &consumer->held[i], (size_t)(consumer->held_count - i) * sizeof(consumer->held[0]));
    consumer->held[i] = event;
    consumer->held_count++;
    ps_bell_ring(&consumer->bell); /* another thread may have found the queues empty, and sleep */
}

void ps_consumer_hold(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    hold_at(consumer, 0, event);
}

void ps_consumer_hold_last(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    hold_at(consumer, consumer->held_count, event);
}

bool ps_consumer_can_hold(const struct ps_consumer *consumer)
{
    return consumer->held_count < PS_MOST_HELD - 1;
}

void ps_consumer_store(struct ps_consumer *consumer)
{
    if (consumer->settings.grouped) ps_ledger_store(&consumer->ledger, consumer->client.rk);
}

enum { STORE_EVERY_US = 1000 };

void ps_consumer_store_sometimes(struct ps_consumer *consumer)
{
    int64_t now_us = ps_now_us();
    if (now_us - consumer->stored_us < STORE_EVERY_US) return;
    consumer->stored_us = now_us;
    ps_consumer_store(consumer);
}

static void note_and_log(struct ps_consumer *consumer, rd_kafka_resp_err_t err, const char *text)
{
    ps_client_note_error(&consumer->client, err, text);
    ps_client_log_error(&consumer->client, 4, err, text);
}

/*
 * Asks librdkafka at an assignment, and remembers the answer for later revocations. Never after closing has asked librdkafka
 * to leave the group: librdkafka's main thread may have ended then, and the call would wait for its answer for ever
 * (librdkafka #4041, #4884).
 */
static bool cooperative(struct ps_consumer *consumer, bool assigned)
{
    if (assigned && !consumer->leaving) {
        const char *protocol = rd_kafka_rebalance_protocol(consumer->client.rk);
        consumer->cooperative = protocol && strcmp(protocol, "COOPERATIVE") == 0;
    }
    return consumer->cooperative;
}

rd_kafka_topic_partition_list_t *ps_plain_copy(const rd_kafka_topic_partition_list_t *list)
{
    rd_kafka_topic_partition_list_t *copy = rd_kafka_topic_partition_list_new(list->cnt);
    for (int i = 0; i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *from = &list->elems[i];
        rd_kafka_topic_partition_t *to = rd_kafka_topic_partition_list_add(copy, from->topic, from->partition);
        to->offset = from->offset;
        to->err = from->err;
        ps_set_leader_epoch(to, ps_leader_epoch(from));
    }
    return copy;
}

static void set_starts(rd_kafka_topic_partition_list_t *partitions, const rd_kafka_topic_partition_list_t *start)
{
    for (int i = 0; i < partitions->cnt; i++) {
        rd_kafka_topic_partition_t *to = &partitions->elems[i], *from;
        if ((from = rd_kafka_topic_partition_list_find(start, to->topic, to->partition))) to->offset = from->offset;
    }
}

/* The listener may pause partitions before they are assigned. */
static void pause_assigned(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *assigned)
{
    rd_kafka_topic_partition_list_t *list = ps_ledger_paused(&consumer->ledger, assigned);
    if (list->cnt > 0) rd_kafka_pause_partitions(consumer->client.rk, list);
    rd_kafka_topic_partition_list_destroy(list);
}

/* librdkafka keeps a partition paused that is revoked and assigned again, and it would never be read. */
static void resume_revoked(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *revoked)
{
    rd_kafka_topic_partition_list_t *list = ps_ledger_paused(&consumer->ledger, revoked);
    if (list->cnt > 0) rd_kafka_resume_partitions(consumer->client.rk, list);
    rd_kafka_topic_partition_list_destroy(list);
}

static void rebalance(struct ps_consumer *consumer, rd_kafka_event_t *event, const rd_kafka_topic_partition_list_t *start)
{
    rd_kafka_topic_partition_list_t *partitions = rd_kafka_event_topic_partition_list(event);
    bool assigned = rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    rd_kafka_resp_err_t err;

    /* librdkafka commits the stored offsets of partitions when they are unassigned. */
    if (!assigned) {
        ps_consumer_store(consumer);
        resume_revoked(consumer, partitions);
        ps_ledger_revoked(&consumer->ledger, partitions);
        remove_assigned(consumer, partitions);
    } else {
        if (start) set_starts(partitions, start);
        add_assigned(consumer, partitions);
        ps_ledger_assigned(&consumer->ledger);
    }
    bool incremental = cooperative(consumer, assigned);
    consumer->member = assigned || (incremental && !consumer->lost);
    if (incremental) {
        rd_kafka_error_t *error = assigned ? rd_kafka_incremental_assign(consumer->client.rk, partitions)
                                           : rd_kafka_incremental_unassign(consumer->client.rk, partitions);
        err = error ? rd_kafka_error_code(error) : RD_KAFKA_RESP_ERR_NO_ERROR;
        if (error) rd_kafka_error_destroy(error);
    } else {
        err = rd_kafka_assign(consumer->client.rk, assigned ? partitions : NULL);
    }
    const char *failure = assigned ? "librdkafka did not start the assigned partitions"
                                   : "librdkafka did not stop the revoked partitions";
    if (err) note_and_log(consumer, err, failure);
    else if (assigned) pause_assigned(consumer, partitions);
}

void ps_consumer_begin_answer(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    bool revoked = rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS;
    consumer->lost = revoked && rd_kafka_assignment_lost(consumer->client.rk); /* the answer resets it */
    consumer->listening = false;
    consumer->answering = event;
    bool may_wait = revoked && !consumer->lost && consumer->settings.hold_us > 0;
    if (may_wait) atomic_store(&consumer->hold_until_us, ps_now_us() + consumer->settings.hold_us);
}

bool ps_consumer_holds_back(struct ps_consumer *consumer)
{
    int64_t until_us = atomic_load(&consumer->hold_until_us);
    if (until_us == 0) return false;
    if (ps_now_us() < until_us &&
        ps_ledger_in_work(&consumer->ledger, rd_kafka_event_topic_partition_list(consumer->answering)))
        return true;
    atomic_store(&consumer->hold_until_us, 0);
    return false;
}

void ps_consumer_answer_locked(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *start)
{
    rd_kafka_event_t *event = consumer->answering;
    if (!event) return;
    rebalance(consumer, event, start);
    rd_kafka_event_destroy(event);
    consumer->answering = NULL;
    atomic_store(&consumer->hold_until_us, 0);
    ps_bell_ring(&consumer->bell); /* other threads have taken nothing meanwhile */
}

void ps_consumer_answer(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *start)
{
    pthread_mutex_lock(&consumer->taking);
    ps_consumer_answer_locked(consumer, start);
    pthread_mutex_unlock(&consumer->taking);
}

void ps_consumer_marked(struct ps_consumer *consumer)
{
    if (atomic_load(&consumer->hold_until_us)) ps_bell_ring(&consumer->bell);
}

/* Errors that pass by themselves: any broker that restarts causes them, and librdkafka retries. */
static bool transient(rd_kafka_resp_err_t err)
{
    switch (err) {
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR__RESOLVE:
    case RD_KAFKA_RESP_ERR__SSL:
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
    case RD_KAFKA_RESP_ERR__WAIT_COORD:
    case RD_KAFKA_RESP_ERR__WAIT_CACHE:
    case RD_KAFKA_RESP_ERR__IN_PROGRESS:
    case RD_KAFKA_RESP_ERR__DESTROY:
    case RD_KAFKA_RESP_ERR__PARTITION_EOF: /* not an error at all */
    case RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
    case RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION:
    case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
    case RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR:
    case RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH:
    case RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH:
    case RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS:
    case RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_COORDINATOR:
    case RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS:
    case RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION:
    case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID:
        return true;
    default:
        return false;
    }
}

/* A consumer without a group.id does not use a group, so errors of groups do not concern it. */
static bool concerns_unused_group(const struct ps_consumer *consumer, rd_kafka_resp_err_t err)
{
    return !consumer->settings.grouped && (err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED ||
                                           err == RD_KAFKA_RESP_ERR_INVALID_GROUP_ID);
}

/* Errors that may be rejections by brokers. */
static bool connection_error(rd_kafka_resp_err_t err)
{
    return err == RD_KAFKA_RESP_ERR__TRANSPORT || err == RD_KAFKA_RESP_ERR__RESOLVE || err == RD_KAFKA_RESP_ERR__SSL ||
           err == RD_KAFKA_RESP_ERR__AUTHENTICATION || err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN;
}

static bool absorb_error(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    char text[1024];
    ps_client_quote(&consumer->client, text, sizeof(text), rd_kafka_event_error_string(event));
    if (err == RD_KAFKA_RESP_ERR__FATAL || rd_kafka_event_error_is_fatal(event)) {
        char reason[256] = "";
        rd_kafka_resp_err_t fatal = ps_client_fatal_error(&consumer->client, reason, sizeof(reason));
        ps_client_note_error(&consumer->client, fatal, reason);
        ps_client_log(&consumer->client, 2, rd_kafka_err2name(fatal), reason);
        atomic_store(&consumer->fatal, fatal);
        return false;
    }
    if (err == RD_KAFKA_RESP_ERR__PARTITION_EOF) return true;
    bool rejected = connection_error(err) && ps_rejection_error(&consumer->client.rejection, consumer->client.rk, err, text);
    if (!rejected && !transient(err) && !concerns_unused_group(consumer, err)) return false;
    note_and_log(consumer, err, text);
    return true;
}

static void absorb_commit(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    const rd_kafka_topic_partition_list_t *offsets = rd_kafka_event_topic_partition_list(event);
    char text[256];
    if (err == RD_KAFKA_RESP_ERR__NO_OFFSET) return; /* there was nothing new to commit */
    if (err) {
        snprintf(text, sizeof(text), "offsets were not committed: %s", rd_kafka_err2str(err));
        note_and_log(consumer, err, text);
        return;
    }
    for (int i = 0; offsets && i < offsets->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &offsets->elems[i];
        if (!place->err) continue;
        snprintf(text, sizeof(text), "offset %lld of %s [%d] was not committed: %s", (long long)place->offset, place->topic,
                 (int)place->partition, rd_kafka_err2str(place->err));
        note_and_log(consumer, place->err, text);
    }
}

bool ps_consumer_absorb(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    switch (rd_kafka_event_type(event)) {
    case RD_KAFKA_EVENT_ERROR: return absorb_error(consumer, event);
    case RD_KAFKA_EVENT_OFFSET_COMMIT: absorb_commit(consumer, event); break;
    default: break; /* librdkafka has no other such events so far */
    }
    return true;
}

void ps_consumer_notice(struct ps_consumer *consumer)
{
    rd_kafka_event_t *event;
    if (pthread_mutex_trylock(&consumer->taking)) return; /* the thread that takes events reads these too */
    while (ps_consumer_can_hold(consumer) && (event = rd_kafka_queue_poll(consumer->notices, 0))) {
        if (ps_consumer_absorb(consumer, event)) rd_kafka_event_destroy(event);
        else ps_consumer_hold_last(consumer, event);
    }
    pthread_mutex_unlock(&consumer->taking);
}

/* ---- blocking calls: a job's thread ---- */

/* Stores the error in the job, and destroys it. */
static void job_take_error(struct ps_consumer_job *query, rd_kafka_error_t *error)
{
    if (!error) return;
    query->err = rd_kafka_error_code(error);
    ps_client_quote(&query->consumer->client, query->text, sizeof(query->text), rd_kafka_error_string(error));
    rd_kafka_error_destroy(error);
}

/*
 * Requests to librdkafka's group handler have no timeout. A request that is sent after the group was left gets no answer; a
 * commit then even fails an assertion, which ends the process (2.0.2 and 2.14). So closing waits for the calls in progress
 * before it leaves the group. A job is such a call until it has sent its request. If the answer may take long, the job then
 * becomes a long call. Closing leaves the group while long calls wait, so they check themselves whether an answer can still
 * come.
 */
enum { SLICE_MS = 10000, UNANSWERED_MS = 500, ANSWER_MS = 50 };

static void become_long_call(struct ps_consumer *consumer)
{
    ps_client_enter_long(&consumer->client);
    ps_client_exit(&consumer->client);
}

static bool closing_gave_up(const struct ps_consumer *consumer)
{
    int64_t close_by_us = atomic_load(&consumer->client.close_by_us);
    return close_by_us != 0 && ps_now_us() >= close_by_us;
}

/* rd_kafka_commit in two steps. rd_kafka_commit would wait for session.timeout.ms if there is no coordinator, even while
 * closing. */
static rd_kafka_resp_err_t consumer_commit(const struct ps_consumer_job *query)
{
    struct ps_consumer *consumer = query->consumer;
    rd_kafka_event_t *answer = NULL;
    rd_kafka_queue_t *answers = rd_kafka_queue_new(consumer->client.rk);
    rd_kafka_resp_err_t err = rd_kafka_commit_queue(consumer->client.rk, query->list, answers, NULL, NULL);
    become_long_call(consumer);
    for (bool closed = false; !err && !answer && !closed;) {
        /* Read before the poll: an answer that came before the group was left is then in the queue. */
        closed = rd_kafka_consumer_closed(consumer->client.rk) || closing_gave_up(consumer) || atomic_load(&query->job.abandoned);
        answer = rd_kafka_queue_poll(answers, ANSWER_MS);
    }
    if (!err) err = answer ? rd_kafka_event_error(answer) : RD_KAFKA_RESP_ERR__DESTROY;
    if (answer) rd_kafka_event_destroy(answer);
    rd_kafka_queue_destroy(answers);
    return err;
}

/* The list has the times as offsets, and gets the offsets of an attempt that succeeds. */
static rd_kafka_resp_err_t ask_times(struct ps_consumer_job *query, int timeout_ms)
{
    rd_kafka_topic_partition_list_t *copy = rd_kafka_topic_partition_list_copy(query->list);
    rd_kafka_resp_err_t err = rd_kafka_offsets_for_times(query->consumer->client.rk, copy, timeout_ms);
    if (err == RD_KAFKA_RESP_ERR__TIMED_OUT) {
        rd_kafka_topic_partition_list_destroy(copy);
        return err;
    }
    rd_kafka_topic_partition_list_destroy(query->list);
    query->list = copy;
    return err;
}

static rd_kafka_resp_err_t ask_once(struct ps_consumer_job *query, int timeout_ms)
{
    rd_kafka_t *rk = query->consumer->client.rk;
    if (query->call == PS_CONSUMER_COMMITTED) return rd_kafka_committed(rk, query->list, timeout_ms);
    if (query->call == PS_CONSUMER_TIMES) return ask_times(query, timeout_ms);
    const rd_kafka_topic_partition_t *place = &query->list->elems[0];
    return rd_kafka_query_watermark_offsets(rk, place->topic, place->partition, &query->low, &query->high, timeout_ms);
}

/* The length of one attempt. An attempt does not receive the answer to an earlier one, so attempts are long. They are short while
 * no broker has ever answered: then no answer is on its way that a new attempt would miss. */
static int slice_ms(rd_kafka_t *rk)
{
    char *cluster = rd_kafka_clusterid(rk, 0);
    if (!cluster) return UNANSWERED_MS;
    rd_kafka_mem_free(rk, cluster);
    return SLICE_MS;
}

/* Repeats the request in short attempts, so a long timeout does not delay the destruction of the consumer. */
static rd_kafka_resp_err_t ask_repeatedly(struct ps_consumer_job *query)
{
    int64_t deadline_us = ps_deadline_us(query->timeout_ms);
    become_long_call(query->consumer);
    for (;;) {
        int remaining_ms = ps_remaining_ms(deadline_us);
        int slice = slice_ms(query->consumer->client.rk);
        bool last = remaining_ms >= 0 && remaining_ms <= slice;
        rd_kafka_resp_err_t err = ask_once(query, last ? remaining_ms : slice);
        if (last || err != RD_KAFKA_RESP_ERR__TIMED_OUT) return err;
        if (atomic_load(&query->consumer->client.state) != PS_OPEN || atomic_load(&query->job.abandoned))
            return RD_KAFKA_RESP_ERR__DESTROY;
    }
}

/* Before 2.1.0 librdkafka takes the remaining time, which is in ms, for microseconds: so it gets 1,000 times the timeout. */
enum { SEEKS_IN_MS = 0x02010000, LONGEST_SEEK_MS = 1000 * 1000 };

static int seek_timeout_ms(int timeout_ms)
{
    if (rd_kafka_version() >= SEEKS_IN_MS || timeout_ms < 0) return timeout_ms;
    return (timeout_ms < LONGEST_SEEK_MS ? timeout_ms : LONGEST_SEEK_MS) * 1000;
}

static void consumer_seek(struct ps_consumer_job *query)
{
    int timeout_ms = seek_timeout_ms(query->timeout_ms);
    struct ps_consumer *consumer = query->consumer;
    pthread_mutex_lock(&consumer->taking); /* no thread takes a message from before while the ledger changes */
    job_take_error(query, rd_kafka_seek_partitions(consumer->client.rk, query->list, timeout_ms));
    for (int i = 0; !query->err && i < query->list->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &query->list->elems[i];
        if (!place->err) ps_ledger_seek(&consumer->ledger, place->topic, place->partition);
    }
    pthread_mutex_unlock(&consumer->taking);
}

/*
 * rd_kafka_assign returns while librdkafka's main thread is still stopping the previous assignment. If it has to stop the
 * same partition again before it has finished, it fails an assertion (rktp_started; 2.0.2 and 2.14), which ends the process.
 * librdkafka does not report when it has finished. So only one thread assigns at a time. If there was an earlier assignment, it
 * then sends requests to the main thread, one every STEP_US. Each answer comes after the main thread's earlier work. Three
 * requests were enough with 2.0.2, and almost always with 2.14.
 */
enum { STEPS_OF_STOPPING = 10, STEP_US = 1000 };

/* Waits until the main thread has done its earlier work. */
static bool assigns_partitions(rd_kafka_t *rk)
{
    rd_kafka_topic_partition_list_t *assigned = NULL;
    if (rd_kafka_assignment(rk, &assigned)) return false;
    bool any = assigned->cnt > 0;
    rd_kafka_topic_partition_list_destroy(assigned);
    return any;
}

static rd_kafka_resp_err_t consumer_assign(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *list)
{
    rd_kafka_t *rk = consumer->client.rk;
    pthread_mutex_lock(&consumer->assigning);
    bool stops_partitions = assigns_partitions(rk);
    pthread_mutex_lock(&consumer->taking); /* no thread takes messages of the earlier assignment after the ledger was cleared */
    ps_consumer_store(consumer);
    resume_revoked(consumer, NULL);
    ps_ledger_clear(&consumer->ledger);
    remove_assigned(consumer, NULL);
    add_assigned(consumer, list);
    rd_kafka_resp_err_t err = rd_kafka_assign(rk, list);
    pthread_mutex_unlock(&consumer->taking);
    for (int i = 0; stops_partitions && i < STEPS_OF_STOPPING; i++) {
        assigns_partitions(rk);
        usleep(STEP_US);
    }
    pthread_mutex_unlock(&consumer->assigning);
    return err;
}

/*
 * librdkafka would begin a partition that is not paused again at the wrong offset (until 2.4.0, #2593). So it is asked to resume only
 * what this function has paused. While the listener runs, its partitions are not assigned yet: rebalance() pauses them.
 */
static void consumer_pause(struct ps_consumer_job *query, bool paused)
{
    struct ps_consumer *consumer = query->consumer;
    struct ps_ledger *ledger = &consumer->ledger;
    rd_kafka_topic_partition_list_t *changed = rd_kafka_topic_partition_list_new(query->list->cnt);
    pthread_mutex_lock(&consumer->taking);
    for (int i = 0; i < query->list->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &query->list->elems[i];
        if (ps_ledger_pause(ledger, place->topic, place->partition, paused))
            rd_kafka_topic_partition_list_add(changed, place->topic, place->partition);
    }
    if (paused) query->err = rd_kafka_pause_partitions(consumer->client.rk, changed);
    else query->err = rd_kafka_resume_partitions(consumer->client.rk, changed);
    for (int i = 0; paused && !consumer->answering && i < changed->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &changed->elems[i];
        rd_kafka_topic_partition_t *asked = rd_kafka_topic_partition_list_find(query->list, place->topic, place->partition);
        if (!(asked->err = place->err)) continue;
        ps_ledger_pause(ledger, place->topic, place->partition, false);
    }
    pthread_mutex_unlock(&consumer->taking);
    rd_kafka_topic_partition_list_destroy(changed);
}

static bool answered_later(enum ps_consumer_call call)
{
    return call == PS_CONSUMER_COMMIT || call == PS_CONSUMER_COMMITTED || call == PS_CONSUMER_WATERMARKS || call == PS_CONSUMER_TIMES;
}

static void job_run(struct ps_job *job)
{
    struct ps_consumer_job *query = (struct ps_consumer_job *)job;
    rd_kafka_t *rk = query->consumer->client.rk;
    bool empty = !query->list || query->list->cnt == 0;

    switch (query->call) {
    case PS_CONSUMER_SUBSCRIBE: query->err = query->list ? rd_kafka_subscribe(rk, query->list) : rd_kafka_unsubscribe(rk); break;
    case PS_CONSUMER_ASSIGN: query->err = consumer_assign(query->consumer, empty ? NULL : query->list); break;
    case PS_CONSUMER_ASSIGNMENT: query->err = rd_kafka_assignment(rk, &query->list); break;
    case PS_CONSUMER_COMMIT: query->err = consumer_commit(query); break;
    case PS_CONSUMER_COMMITTED:
    case PS_CONSUMER_TIMES:
    case PS_CONSUMER_WATERMARKS: query->err = ask_repeatedly(query); break;
    case PS_CONSUMER_SEEK: consumer_seek(query); break;
    case PS_CONSUMER_PAUSE: consumer_pause(query, true); break;
    case PS_CONSUMER_RESUME: consumer_pause(query, false); break;
    }
    if (query->list) {
        rd_kafka_topic_partition_list_t *list = query->list;
        query->list = ps_plain_copy(list);
        rd_kafka_topic_partition_list_destroy(list);
    }
    if (answered_later(query->call)) ps_client_exit_long(&query->consumer->client);
    else ps_client_exit(&query->consumer->client);
}

static void job_release(struct ps_job *job)
{
    struct ps_consumer_job *query = (struct ps_consumer_job *)job;
    if (query->list) rd_kafka_topic_partition_list_destroy(query->list);
    ps_client_unref(&query->consumer->client);
    free(query);
}

struct ps_consumer_job *ps_consumer_start(struct ps_consumer *consumer, enum ps_consumer_call call,
                                          rd_kafka_topic_partition_list_t *list, int timeout_ms)
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
    int failed = ps_job_start(&query->job, "penstock.consumer");
    if (failed) {
        ps_client_exit(&consumer->client);
        ps_job_unref(&query->job);
        errno = failed;
        return NULL;
    }
    return query;
}

/* ---- closing ---- */

static void serve_while_closing(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_REBALANCE) rebalance(consumer, event, NULL);
    else if (!ps_consumer_absorb(consumer, event))
        note_and_log(consumer, rd_kafka_event_error(event), rd_kafka_event_error_string(event));
    rd_kafka_event_destroy(event);
}

/*
 * If a rebalance event is still in the queue when librdkafka begins to close, it leaves the group before it commits (2.0.2 and
 * 2.14). Brokers then reject the commit, and messages polled since the latest commit would come again. So the closing thread
 * first serves such events.
 */
static void serve_queued(struct ps_consumer *consumer)
{
    rd_kafka_event_t *event;
    while ((event = rd_kafka_queue_poll(consumer->control, 0))) serve_while_closing(consumer, event);
}

/*
 * Commits the outstanding offsets and leaves the group. False: time ran out first, or the group cannot be left. However late it
 * is, this does not stop while the queue has events: librdkafka waits for ever for the answer to a rebalance event, also in
 * rd_kafka_destroy.
 */
static bool leave_group(struct ps_consumer *consumer)
{
    rd_kafka_event_t *event;
    int64_t begun_us = ps_now_us();
    serve_queued(consumer);
    ps_consumer_store(consumer);
    consumer->leaving = true;
    rd_kafka_error_t *error = rd_kafka_consumer_close_queue(consumer->client.rk, consumer->control);
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
    while ((event = rd_kafka_queue_poll(consumer->control, 0))) serve_while_closing(consumer, event);
    return true;
}

static void consumer_destroy(struct ps_consumer *consumer, bool left_group)
{
    rd_kafka_event_t *event;
    while ((event = rd_kafka_queue_poll(consumer->notices, 0))) serve_while_closing(consumer, event);
    rd_kafka_queue_destroy(consumer->data); /* with the messages that no thread has taken: their offsets are not stored */
    rd_kafka_queue_destroy(consumer->control);
    rd_kafka_queue_destroy(consumer->notices);
    ps_tokens_end(&consumer->client.tokens);
    rd_kafka_destroy_flags(consumer->client.rk, left_group ? 0 : RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    consumer->data = consumer->control = consumer->notices = NULL;
    consumer->client.rk = NULL;
}

static void consumer_close(struct ps_client *client)
{
    struct ps_consumer *consumer = (struct ps_consumer *)client;
    ps_bell_ring(&consumer->bell);
    ps_client_await_calls(client);
    rd_kafka_queue_cb_event_enable(consumer->data, NULL, NULL); /* after this no callback runs or will run */
    rd_kafka_queue_cb_event_enable(consumer->control, NULL, NULL);
    rd_kafka_queue_cb_event_enable(consumer->notices, NULL, NULL);
    ps_consumer_answer(consumer, NULL); /* the listener still runs, and can no longer answer */
    while (consumer->held_count > 0) serve_while_closing(consumer, take_held(consumer, 0));
    bool left_group = leave_group(consumer);
    ps_tokens_shut(&client->tokens);
    ps_client_await_long_calls(client);
    consumer_destroy(consumer, left_group);
}

static uint64_t no_pending(const struct ps_client *client)
{
    (void)client;
    return 0;
}

static const struct ps_client_kind consumer_kind = {
    .type = RD_KAFKA_CONSUMER,
    .begin = consumer_begin,
    .pending = no_pending,
    .close = consumer_close,
    .dispose = consumer_dispose,
};
