/*
 * Questions of a consumer's jobs to brokers: committed offsets, offsets of times, partitions of topics. librdkafka gives up at the
 * first error, so a question is asked again while there is time. No Ruby. Of a job's thread.
 */
#include "consume/consume.h"
#include <string.h>
#include <unistd.h>

/* Closing has not begun, and the caller has not given up. */
bool ps_ask_goes_on(const struct ps_consumer_job *query)
{
    return atomic_load(&query->consumer->client.state) == PS_OPEN && !atomic_load(&query->job.abandoned);
}

/* ---- one question ---- */

/* Asks for the partitions of a topic, from which librdkafka also learns which brokers lead them. */
static rd_kafka_resp_err_t ask_partitions(rd_kafka_t *rk, const char *topic, int timeout_ms,
                                          rd_kafka_topic_partition_list_t *partitions)
{
    rd_kafka_topic_t *handle = rd_kafka_topic_new(rk, topic, NULL);
    if (!handle) return rd_kafka_last_error();
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t err = rd_kafka_metadata(rk, 0, handle, &metadata, timeout_ms);
    rd_kafka_topic_destroy(handle);
    if (err) return err;
    const struct rd_kafka_metadata_topic *answer = metadata->topic_cnt == 1 ? &metadata->topics[0] : NULL;
    if (!answer || answer->partition_cnt == 0) {
        err = answer && answer->err ? answer->err : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
        rd_kafka_topic_partition_list_add(partitions, topic, RD_KAFKA_PARTITION_UA)->err = err;
    }
    for (int i = 0; answer && i < answer->partition_cnt; i++)
        rd_kafka_topic_partition_list_add(partitions, topic, answer->partitions[i].id);
    rd_kafka_metadata_destroy(metadata);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* The list has topics, and gets their partitions. */
static rd_kafka_resp_err_t ask_all_partitions(struct ps_consumer_job *query, int timeout_ms)
{
    rd_kafka_topic_partition_list_t *partitions = rd_kafka_topic_partition_list_new(8);
    int64_t deadline_us = ps_deadline_us(timeout_ms);
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR_NO_ERROR;
    for (int i = 0; !err && i < query->list->cnt; i++) {
        const char *topic = query->list->elems[i].topic;
        err = ask_partitions(query->consumer->client.rk, topic, ps_remaining_ms(deadline_us), partitions);
    }
    rd_kafka_topic_partition_list_destroy(err ? partitions : query->list);
    if (!err) query->list = partitions;
    return err;
}

/* Until 2.10.0 librdkafka goes on asking the earlier leader. Its error then concerns the whole call, or single partitions.
 * False: no leader has moved. */
static bool find_moved_leaders(rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *list, rd_kafka_resp_err_t err,
                               int64_t deadline_us)
{
    rd_kafka_topic_partition_list_t *ignored = rd_kafka_topic_partition_list_new(8);
    const char *asked = "";
    for (int i = 0; i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &list->elems[i];
        /* M:moved_leader_asked */
        if ((!ps_leader_moved(err) && !ps_leader_moved(place->err)) || strcmp(asked, place->topic) == 0) continue;
        ask_partitions(rk, asked = place->topic, ps_remaining_ms(deadline_us), ignored);
    }
    rd_kafka_topic_partition_list_destroy(ignored);
    return *asked;
}

/* If librdkafka repeats a request, a partition may keep the error of the first answer (2.0.2). */
static bool any_error_passes(const rd_kafka_topic_partition_list_t *list)
{
    for (int i = 0; i < list->cnt; i++)
        if (ps_error_passes(list->elems[i].err)) return true;
    return false;
}

/* No broker has answered: none could be reached, or its answer did not come. */
static bool is_unanswered(rd_kafka_resp_err_t err)
{
    switch (err) {
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR__RESOLVE:
    case RD_KAFKA_RESP_ERR__SSL:
    case RD_KAFKA_RESP_ERR__WAIT_COORD:
    case RD_KAFKA_RESP_ERR__WAIT_CACHE:
        return true;
    default:
        return false;
    }
}

/* The same question may be answered later. A call that has time left asks it again: librdkafka gives up at the first error, for
 * example when one of a broker's addresses refuses the first connection. */
bool ps_ask_passes(rd_kafka_resp_err_t err, const rd_kafka_topic_partition_list_t *list)
{
    if (err) return err != RD_KAFKA_RESP_ERR__DESTROY && ps_error_passes(err);
    return any_error_passes(list);
}

enum { AGAIN_US = 50000 };

/* Waits a moment, unless the time is up. */
bool ps_ask_again(const struct ps_consumer_job *query, int64_t deadline_us)
{
    if (!ps_ask_goes_on(query) || ps_now_us() + AGAIN_US >= deadline_us) return false;
    usleep(AGAIN_US);
    return ps_ask_goes_on(query);
}

/*
 * rd_kafka_offsets_for_times sends one ListOffsets request to each leader, with the isolation level of the consumer. It passes
 * RD_KAFKA_OFFSET_BEGINNING and RD_KAFKA_OFFSET_END on as they are, and brokers know them. (Measured with 2.0.2 and 2.14;
 * rd_kafka_ListOffsets, since 2.3.0, sends the same request.) The list gets the offsets of an attempt that succeeds.
 */
rd_kafka_resp_err_t ps_ask_offsets(struct ps_consumer_job *query, rd_kafka_topic_partition_list_t **list, int timeout_ms)
{
    rd_kafka_t *rk = query->consumer->client.rk;
    int64_t deadline_us = ps_deadline_us(timeout_ms);
    for (;;) {
        rd_kafka_topic_partition_list_t *copy = rd_kafka_topic_partition_list_copy(*list);
        rd_kafka_resp_err_t err = rd_kafka_offsets_for_times(rk, copy, ps_remaining_ms(deadline_us));
        bool again = find_moved_leaders(rk, copy, err, deadline_us) || ps_ask_passes(err, copy);
        if (again && ps_ask_again(query, deadline_us)) {
            rd_kafka_topic_partition_list_destroy(copy);
            continue;
        }
        bool answered = !is_unanswered(err);
        rd_kafka_topic_partition_list_destroy(answered ? *list : copy);
        if (answered) *list = copy;
        if (err && answered && copy->cnt == 1) copy->elems[0].err = err; /* so that the program's error names it */
        return err;
    }
}

static rd_kafka_resp_err_t ask_once(struct ps_consumer_job *query, int timeout_ms)
{
    switch (query->call) {
    case PS_CONSUMER_COMMITTED: return rd_kafka_committed(query->consumer->client.rk, query->list, timeout_ms);
    case PS_CONSUMER_PARTITIONS: return ask_all_partitions(query, timeout_ms);
    default: return ps_ask_offsets(query, &query->list, timeout_ms);
    }
}

/* ---- until it is answered, or the time is up ---- */

enum { SLICE_MS = 10000, UNANSWERED_MS = 500 };

/* The length of one attempt. An attempt does not receive the answer to an earlier one, so attempts are long. They are short while
 * no broker has ever answered: then no answer is on its way that a new attempt would miss. */
bool ps_ask_has_answers(rd_kafka_t *rk)
{
    char *cluster = rd_kafka_clusterid(rk, 0);
    if (cluster) rd_kafka_mem_free(rk, cluster);
    return cluster != NULL;
}

/* Repeats the request in short attempts, so a long timeout does not delay the destruction of the consumer. */
rd_kafka_resp_err_t ps_ask(struct ps_consumer_job *query)
{
    int64_t deadline_us = ps_deadline_us(query->timeout_ms);
    rd_kafka_topic_partition_list_t *question = ps_plain_copy(query->list); /* an attempt may change the list */
    rd_kafka_resp_err_t err;
    ps_client_become_long(&query->consumer->client);
    for (;;) {
        int remaining_ms = ps_remaining_ms(deadline_us);
        int slice = ps_ask_has_answers(query->consumer->client.rk) ? SLICE_MS : UNANSWERED_MS;
        err = ask_once(query, remaining_ms >= 0 && remaining_ms < slice ? remaining_ms : slice);
        if (!ps_ask_passes(err, query->list) || ps_remaining_ms(deadline_us) == 0) break;
        bool waits = err != RD_KAFKA_RESP_ERR__TIMED_OUT; /* else it has waited */
        if (waits ? !ps_ask_again(query, deadline_us) : !ps_ask_goes_on(query)) break;
        rd_kafka_topic_partition_list_destroy(query->list);
        query->list = ps_plain_copy(question);
    }
    rd_kafka_topic_partition_list_destroy(question);
    if (!is_unanswered(err)) return err;
    if (!ps_ask_goes_on(query)) return RD_KAFKA_RESP_ERR__DESTROY;
    if (query->list->cnt == 1) query->list->elems[0].err = RD_KAFKA_RESP_ERR__TIMED_OUT; /* so that the program's error names it */
    return RD_KAFKA_RESP_ERR__TIMED_OUT;
}
