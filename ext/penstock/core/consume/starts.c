/*
 * Where partitions without a committed offset begin. A job asks brokers, and gives librdkafka a number.
 *
 * Without a number, librdkafka asks the leader for the first or last offset. If it stops or seeks the partition before the answer
 * arrives, it does not ignore the answer: it asks again half a second later, and then goes there (2.0.2 to 2.14). So a partition
 * continues at its first or last message instead of the seek's target. A revoked partition is fetched all the same; assigned again, it
 * returns those messages, or starts there. Messages come twice, or are lost. librdkafka also waits half a second before it asks a
 * leader that it does not know yet.
 *
 * librdkafka finds the start of partitions that have a committed offset: it waits for its own commits before it asks, and has to know
 * the offset. It also finds the starts for which brokers do not answer the job in time.
 *
 * No Ruby. Of a job's thread.
 */
#include "consume/consume.h"

enum { LONGEST_START_MS = 2000, LONGEST_UNANSWERED_START_MS = 1000, START_SLICE_MS = 500, SHORTEST_START_MS = 200 };

static bool starts_as_committed(const struct ps_consumer_job *query, const rd_kafka_topic_partition_t *place)
{
    /* What is processed is perhaps not committed yet. librdkafka waits for that commit. */
    bool known = !query->consumer->settings.grouped ||
                 ps_ledger_untouched(&query->consumer->ledger, place->topic, place->partition);
    return known && (place->offset == RD_KAFKA_OFFSET_STORED || place->offset == RD_KAFKA_OFFSET_INVALID);
}

static bool starts_at_an_end(const rd_kafka_topic_partition_t *place)
{
    return place->offset == RD_KAFKA_OFFSET_BEGINNING || place->offset == RD_KAFKA_OFFSET_END;
}

static rd_kafka_topic_partition_list_t *select_starts(const struct ps_consumer_job *query, bool at_an_end)
{
    rd_kafka_topic_partition_list_t *selected = rd_kafka_topic_partition_list_new(query->list->cnt);
    for (int i = 0; i < query->list->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &query->list->elems[i];
        if (at_an_end ? starts_at_an_end(place) : starts_as_committed(query, place)) ps_copy_place(selected, place);
    }
    return selected;
}

static int attempt_ms(int64_t deadline_us, int longest_ms)
{
    int remaining_ms = ps_remaining_ms(deadline_us);
    return remaining_ms < longest_ms ? remaining_ms : longest_ms;
}

/* Short attempts, because closing waits for them. */
static void find_uncommitted(struct ps_consumer_job *query, int64_t deadline_us)
{
    const struct ps_consumer *consumer = query->consumer;
    rd_kafka_topic_partition_list_t *asked = select_starts(query, false);
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR_NO_ERROR;
    while (consumer->settings.grouped && asked->cnt > 0) {
        err = rd_kafka_committed(consumer->client.rk, asked, attempt_ms(deadline_us, START_SLICE_MS));
        if (!ps_ask_passes(err, asked) || !ps_ask_again(query, deadline_us)) break;
    }
    for (int i = 0; !err && i < asked->cnt; i++) {
        const rd_kafka_topic_partition_t *answer = &asked->elems[i];
        if (answer->err || answer->offset >= 0) continue;
        rd_kafka_topic_partition_list_find(query->list, answer->topic, answer->partition)->offset = consumer->reset;
    }
    bool answered = consumer->settings.grouped && !err;
    if (query->committed) rd_kafka_topic_partition_list_destroy(query->committed);
    query->committed = answered ? ps_plain_copy(asked) : NULL;
    rd_kafka_topic_partition_list_destroy(asked);
}

static bool use_ends(struct ps_consumer_job *query, rd_kafka_topic_partition_list_t **asked, int timeout_ms)
{
    if (ps_ask_offsets(query, asked, timeout_ms)) return false;
    for (int i = 0; i < (*asked)->cnt; i++) {
        const rd_kafka_topic_partition_t *answer = &(*asked)->elems[i];
        if (answer->err || answer->offset < 0) continue;
        rd_kafka_topic_partition_t *place = rd_kafka_topic_partition_list_find(query->list, answer->topic, answer->partition);
        place->offset = answer->offset;
        ps_set_leader_epoch(place, ps_leader_epoch(answer));
    }
    return true;
}

/* Asks all leaders at once, which fails if one does not answer; then for one partition after the other. */
static void find_ends(struct ps_consumer_job *query, int64_t deadline_us)
{
    rd_kafka_topic_partition_list_t *asked = select_starts(query, true);
    bool found = asked->cnt == 0;
    for (int i = 0; !found && i < 2 && ps_ask_goes_on(query); i++) found = use_ends(query, &asked, attempt_ms(deadline_us, START_SLICE_MS));
    for (int i = 0; !found && i < asked->cnt && ps_ask_goes_on(query) && ps_now_us() < deadline_us; i++) {
        rd_kafka_topic_partition_list_t *one = rd_kafka_topic_partition_list_new(1);
        ps_copy_place(one, &asked->elems[i]);
        int part_ms = ps_remaining_ms(deadline_us) / (asked->cnt - i);
        if (part_ms > START_SLICE_MS) part_ms = START_SLICE_MS;
        use_ends(query, &one, part_ms < SHORTEST_START_MS ? SHORTEST_START_MS : part_ms);
        rd_kafka_topic_partition_list_destroy(one);
    }
    rd_kafka_topic_partition_list_destroy(asked);
}

static bool any_start_open(const struct ps_consumer_job *query)
{
    for (int i = 0; i < query->list->cnt; i++)
        if (starts_at_an_end(&query->list->elems[i]) || starts_as_committed(query, &query->list->elems[i])) return true;
    return false;
}

/* In the job's list. False: it had to ask, and the caller has given up meanwhile, or closing has begun. */
bool ps_starts_find(struct ps_consumer_job *query)
{
    if (!any_start_open(query)) return true;
    int timeout_ms = query->timeout_ms < 0 ? -1 : query->timeout_ms / 2; /* a seek has to follow */
    int longest_ms = ps_ask_has_answers(query->consumer->client.rk) ? LONGEST_START_MS : LONGEST_UNANSWERED_START_MS;
    int64_t deadline_us = ps_deadline_us(timeout_ms >= 0 && timeout_ms < longest_ms ? timeout_ms : longest_ms);
    find_uncommitted(query, deadline_us);
    find_ends(query, deadline_us);
    return ps_ask_goes_on(query);
}
