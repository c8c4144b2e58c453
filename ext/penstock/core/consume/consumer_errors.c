/*
 * What librdkafka reports to a consumer, beside messages and rebalances: errors, results of commits, statistics. Errors that pass by
 * themselves are logged. The program has to get the others: a poll raises them, one after the other, or again and again while they
 * last (lasting.c). No Ruby. Of the taking thread, except where consume.h says otherwise.
 */
#include "consume/consume.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- logging ---- */

/* True: the error is news, and no repetition of an outage that is known. */
static bool note_and_log_only(struct ps_consumer *consumer, rd_kafka_resp_err_t err, const char *text)
{
    ps_client_note_error(&consumer->client, err, text);
    return ps_client_log_error(&consumer->client, 4, err, text);
}

/* librdkafka 2.14 reports each second that all brokers are down, as long as they are. Listeners get it once. */
void ps_consumer_log_error(struct ps_consumer *consumer, rd_kafka_resp_err_t err, const char *text)
{
    bool first = note_and_log_only(consumer, err, text);
    ps_increase(&consumer->counts.errors, 1);
    if (first || err != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) ps_news_add(&consumer->news, PS_NEWS_ERROR, err, false, NULL, text);
}

/* ---- errors for the program ---- */

/* A poll raises one of them. If there are more, they are only logged. */
enum { MOST_PROBLEMS = 1000 };

struct ps_problem ps_consumer_problem(struct ps_consumer *consumer, rd_kafka_resp_err_t err, const char *text,
                                      const rd_kafka_topic_partition_t *place)
{
    struct ps_problem problem = { .err = err, .partition = place ? place->partition : -1,
                                  .offset = place && place->offset >= 0 ? place->offset : -1 };
    if (place && place->topic) snprintf(problem.topic, sizeof(problem.topic), "%s", place->topic);
    ps_client_quote(&consumer->client, problem.text, sizeof(problem.text), text ? text : "");
    return problem;
}

void ps_consumer_add_problem(struct ps_consumer *consumer, const struct ps_problem *problem)
{
    struct ps_problem **end = &consumer->problems, *copy = NULL;
    int count = 0;
    for (; *end; end = &(*end)->next) count++;
    if (count < MOST_PROBLEMS) copy = malloc(sizeof(*copy));
    if (!copy) {
        ps_consumer_log_error(consumer, problem->err, problem->text);
        return;
    }
    *copy = *problem;
    copy->next = NULL;
    *end = copy;
    ps_bell_ring(&consumer->bell); /* another thread may have found no event, and sleep */
}

void ps_consumer_add_message_problem(struct ps_consumer *consumer, const rd_kafka_message_t *message)
{
    rd_kafka_topic_partition_t place = { .partition = message->partition, .offset = message->offset };
    if (message->rkt) place.topic = (char *)rd_kafka_topic_name(message->rkt);
    struct ps_problem problem = ps_consumer_problem(consumer, message->err, rd_kafka_message_errstr(message),
                                                    message->rkt ? &place : NULL);
    ps_consumer_add_problem(consumer, &problem);
}

struct ps_problem *ps_consumer_take_problem(struct ps_consumer *consumer)
{
    struct ps_problem *first = consumer->problems;
    if (first) consumer->problems = first->next;
    return first;
}

bool ps_consumer_wants_to_join(const struct ps_consumer *consumer)
{
    return atomic_load(&consumer->subscribed) && !atomic_load(&consumer->member);
}

/* librdkafka joins again: perhaps the group has begun another rebalance. To a request of the one before, the embedded cluster answers
 * INVALID_REQUEST. */
static bool sync_error_passes(rd_kafka_resp_err_t err)
{
    return ps_error_passes(err) || err == RD_KAFKA_RESP_ERR_INVALID_REQUEST;
}

/* librdkafka does not report that SyncGroup was refused. It joins again and again, and gets no assignment. */
static void note_refused_sync(struct ps_consumer *consumer)
{
    rd_kafka_resp_err_t err = atomic_exchange(&consumer->sync_error, 0);
    if (!err || sync_error_passes(err) || !ps_consumer_wants_to_join(consumer) || atomic_load(&consumer->fatal)) return;
    char text[200];
    snprintf(text, sizeof(text), "SyncGroup failed: %s", rd_kafka_err2str(err));
    struct ps_problem problem = ps_consumer_problem(consumer, err, text, NULL);
    problem.group = true;
    if (ps_lasting_note(&consumer->group_error, &problem)) ps_consumer_add_problem(consumer, &problem);
}

/* A member may have got an error when it looked for its coordinator, and goes on. What lets a consumer commit may still not let it
 * join. */
void ps_consumer_group_answers(struct ps_consumer *consumer)
{
    if (!ps_consumer_wants_to_join(consumer)) ps_lasting_end(&consumer->group_error);
}

struct ps_problem *ps_consumer_take_due_problem(struct ps_consumer *consumer)
{
    struct ps_problem *due = NULL;
    if (consumer->rebalance.state == PS_REBALANCE_NONE) note_refused_sync(consumer);
    if (consumer->problems) return ps_consumer_take_problem(consumer);
    if (ps_consumer_wants_to_join(consumer)) due = ps_lasting_take_due(&consumer->group_error);
    return due ? due : ps_lasting_take_due(&consumer->size_error);
}

int64_t ps_consumer_problem_due_us(const struct ps_consumer *consumer)
{
    int64_t group_us = ps_consumer_wants_to_join(consumer) ? atomic_load(&consumer->group_error.due_us) : PS_FOREVER;
    int64_t size_us = atomic_load(&consumer->size_error.due_us);
    return group_us < size_us ? group_us : size_us;
}

void ps_consumer_drop_problems(struct ps_consumer *consumer)
{
    struct ps_problem *problem;
    while ((problem = ps_consumer_take_problem(consumer))) {
        ps_consumer_log_error(consumer, problem->err, problem->text);
        free(problem);
    }
}

/* ---- errors that librdkafka reports ---- */

/* Errors that pass by themselves: any broker that restarts causes them, and librdkafka retries. */
bool ps_error_passes(rd_kafka_resp_err_t err)
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

/* librdkafka looks for a coordinator again and again. Its own errors, such as a connection that ended, pass. A consumer without a
 * group.id does not use a group, so errors of groups do not concern it. */
static bool is_unimportant(const struct ps_consumer *consumer, rd_kafka_resp_err_t err, const char *text)
{
    static const char query[] = "FindCoordinator ";
    if (strncmp(text, query, sizeof(query) - 1) == 0 && (err < 0 || !consumer->settings.grouped)) return true;
    return !consumer->settings.grouped && (err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED ||
                                           err == RD_KAFKA_RESP_ERR_INVALID_GROUP_ID);
}

/* Errors that may be rejections by brokers. */
static bool connection_error(rd_kafka_resp_err_t err)
{
    return err == RD_KAFKA_RESP_ERR__TRANSPORT || err == RD_KAFKA_RESP_ERR__RESOLVE || err == RD_KAFKA_RESP_ERR__SSL ||
           err == RD_KAFKA_RESP_ERR__AUTHENTICATION || err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN;
}

static void fail(struct ps_consumer *consumer)
{
    char reason[256] = "";
    rd_kafka_resp_err_t fatal = ps_client_fatal_error(&consumer->client, reason, sizeof(reason));
    ps_client_note_error(&consumer->client, fatal, reason);
    ps_client_log(&consumer->client, 2, rd_kafka_err2name(fatal), reason);
    atomic_store(&consumer->fatal, fatal);
}

bool ps_consumer_absorb_error(struct ps_consumer *consumer, rd_kafka_resp_err_t err, bool fatal, const char *message)
{
    if (fatal || err == RD_KAFKA_RESP_ERR__FATAL) {
        fail(consumer);
        return false;
    }
    char text[1024];
    ps_client_quote(&consumer->client, text, sizeof(text), message);
    bool rejected = connection_error(err) && ps_rejection_error(&consumer->client.rejection, consumer->client.rk, err, text);
    if (!rejected && !ps_error_passes(err) && !is_unimportant(consumer, err, text)) return false;
    ps_consumer_log_error(consumer, err, text);
    return true;
}

/*
 * librdkafka returns most errors of a partition as messages. It calls this callback instead if a partition does not exist, with a text
 * that begins with "topic [partition]: " (2.0.2 to 2.14).
 */
void ps_partition_error_cb(rd_kafka_t *rk, int err, const char *reason, void *opaque)
{
    struct ps_consumer *consumer = opaque;
    const rd_kafka_topic_partition_t *place = NULL;
    char begin[300];
    (void)rk;
    for (int i = 0; !place && i < consumer->assigned->cnt; i++) {
        const rd_kafka_topic_partition_t *one = &consumer->assigned->elems[i];
        if (strncmp(reason, one->topic, strlen(one->topic)) != 0) continue;
        int size = snprintf(begin, sizeof(begin), "%s [%d]: ", one->topic, (int)one->partition);
        if (size > 0 && strncmp(reason, begin, (size_t)size) == 0) place = one;
    }
    if (ps_consumer_absorb_error(consumer, (rd_kafka_resp_err_t)err, false, reason)) return;
    struct ps_problem problem = ps_consumer_problem(consumer, (rd_kafka_resp_err_t)err, reason, place);
    problem.offset = -1; /* that of `place` is where it was to begin */
    ps_consumer_add_problem(consumer, &problem);
}

/* What brokers have answered to the requests with which a member joins. librdkafka's text begins with the request. Its own errors, such
 * as max.poll.interval.ms, are negative. */
static bool is_group_error(const struct ps_consumer *consumer, const struct ps_problem *problem)
{
    static const char *const requests[] = { "FindCoordinator", "JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat" };
    if (!consumer->settings.grouped || problem->err <= 0 || atomic_load(&consumer->fatal)) return false;
    for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++)
        if (strncmp(problem->text, requests[i], strlen(requests[i])) == 0) return true;
    return false;
}

/*
 * A broker sends a record that is larger than all limits, and librdkafka closes the connection. It reports that as an error of the
 * connection, without the partition. It is known if there is only one, and so is the topic. Then it connects again and gets the same
 * answer.
 */
static bool is_size_error(const struct ps_consumer *consumer, struct ps_problem *problem)
{
    long size, limit;
    const char *place = strstr(problem->text, "Invalid response size ");
    if (problem->err != RD_KAFKA_RESP_ERR__BAD_MSG || !place) return false;
    if (sscanf(place, "Invalid response size %ld (0..%ld)", &size, &limit) != 2 || size <= limit) return false;
    problem->err = RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    snprintf(problem->text, sizeof(problem->text), "an answer of %ld bytes exceeds receive.message.max.bytes (%ld)", size, limit);
    const rd_kafka_topic_partition_list_t *assigned = consumer->assigned;
    for (int i = 0; i < assigned->cnt; i++)
        if (strcmp(assigned->elems[i].topic, assigned->elems[0].topic) != 0) return true;
    if (assigned->cnt > 0) snprintf(problem->topic, sizeof(problem->topic), "%s", assigned->elems[0].topic);
    if (assigned->cnt == 1) problem->partition = assigned->elems[0].partition;
    return true;
}

/*
 * If the answer to librdkafka's question for committed offsets is an error that it does not expect, it reports it, and neither asks
 * again nor fetches these partitions before they are assigned anew (2.0.2 to 2.15). Only the text says so: the code is the broker's.
 */
static void note_failed_start(struct ps_consumer *consumer, const char *text)
{
    static const char begin[] = "Failed to fetch committed offset";
    if (text && strncmp(text, begin, sizeof(begin) - 1) == 0)
        atomic_store(&consumer->restart_us, ps_now_us() + PS_RESTART_US); /* M:failed_start_restarted */
}

static void absorb_error_event(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    const char *text = rd_kafka_event_error_string(event);
    note_failed_start(consumer, text);
    if (ps_consumer_absorb_error(consumer, err, rd_kafka_event_error_is_fatal(event), text)) return;
    rd_kafka_topic_partition_t *place = rd_kafka_event_topic_partition(event);
    struct ps_problem problem = ps_consumer_problem(consumer, err, text, place);
    if (place) rd_kafka_topic_partition_destroy(place);
    if (!is_size_error(consumer, &problem)) problem.group = is_group_error(consumer, &problem);
    if (problem.group && !ps_lasting_note(&consumer->group_error, &problem)) return;
    if (problem.err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE && !ps_lasting_note(&consumer->size_error, &problem)) return;
    ps_consumer_add_problem(consumer, &problem);
}

/* ---- results of commits ---- */

void ps_consumer_note_committed(struct ps_consumer *consumer, rd_kafka_event_t *answer)
{
    const rd_kafka_topic_partition_list_t *offsets = rd_kafka_event_topic_partition_list(answer);
    rd_kafka_resp_err_t err = rd_kafka_event_error(answer);
    if (!offsets || err == RD_KAFKA_RESP_ERR__NO_OFFSET) return;
    if (err) ps_ledger_not_committed(&consumer->ledger, offsets);
    else ps_ledger_committed(&consumer->ledger, consumer->client.rk, offsets);
}

void ps_consumer_commit_result(struct ps_consumer *consumer, rd_kafka_resp_err_t err,
                               const rd_kafka_topic_partition_list_t *offsets)
{
    char text[256];
    if (err == RD_KAFKA_RESP_ERR__NO_OFFSET) return; /* there was nothing new to commit */
    if (err) {
        snprintf(text, sizeof(text), "offsets were not committed: %s", rd_kafka_err2str(err));
        note_and_log_only(consumer, err, text);
        ps_increase(&consumer->counts.failed_commits, 1);
        ps_news_add(&consumer->news, PS_NEWS_COMMIT, err, false, offsets, NULL);
        ps_bell_ring(&consumer->bell); /* a thread publishes it */
        return;
    }
    for (int i = 0; offsets && i < offsets->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &offsets->elems[i];
        if (!place->err) continue;
        snprintf(text, sizeof(text), "offset %lld of %s [%d] was not committed: %s", (long long)place->offset, place->topic,
                 (int)place->partition, rd_kafka_err2str(place->err));
        note_and_log_only(consumer, place->err, text);
        err = place->err;
    }
    if (!err) ps_consumer_group_answers(consumer);
    ps_increase(err ? &consumer->counts.failed_commits : &consumer->counts.commits, 1);
    ps_news_add(&consumer->news, PS_NEWS_COMMIT, RD_KAFKA_RESP_ERR_NO_ERROR, false, offsets, NULL);
    ps_bell_ring(&consumer->bell);
}

/* ---- events ---- */

void ps_consumer_absorb(struct ps_consumer *consumer, rd_kafka_event_t *event)
{
    switch (rd_kafka_event_type(event)) {
    case RD_KAFKA_EVENT_ERROR: absorb_error_event(consumer, event); break;
    case RD_KAFKA_EVENT_STATS: ps_news_statistics(&consumer->news, rd_kafka_event_stats(event)); break;
    case RD_KAFKA_EVENT_OFFSET_COMMIT:
        ps_consumer_note_committed(consumer, event);
        ps_consumer_commit_result(consumer, rd_kafka_event_error(event), rd_kafka_event_topic_partition_list(event));
        break;
    case RD_KAFKA_EVENT_FETCH: /* messages go to `data` */
        ps_consumer_log_error(consumer, RD_KAFKA_RESP_ERR__BAD_MSG, "a message came where none is expected, and is lost");
        break;
    default: break; /* librdkafka has no other such events so far */
    }
    rd_kafka_event_destroy(event);
}
