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

bool ps_consumer_left(const struct ps_consumer *consumer)
{
    int64_t close_by_us = atomic_load(&consumer->client.close_by_us);
    return rd_kafka_consumer_closed(consumer->client.rk) || (close_by_us != 0 && ps_now_us() >= close_by_us);
}

/* librdkafka 2.0.2 gives each partition the error of one of them. Then nobody knows which one it was. */
static void forget_common_error(rd_kafka_topic_partition_list_t *list)
{
    for (int i = 1; i < list->cnt; i++)
        if (list->elems[i].err != list->elems[0].err) return;
    for (int i = 0; list->cnt > 1 && i < list->cnt; i++) list->elems[i].err = RD_KAFKA_RESP_ERR_NO_ERROR;
}

enum { LOOK_US = 1000 };

/* Closing has not begun, and the caller has not given up. */
static bool asks_on(const struct ps_consumer_job *query)
{
    return atomic_load(&query->consumer->client.state) == PS_OPEN && !atomic_load(&query->job.abandoned);
}

static bool await_turn(struct ps_consumer_job *query, struct ps_commit_turn *turn, int64_t until_us)
{
    while (!ps_commit_turn_has_come(query->consumer, turn)) {
        if (!asks_on(query) || ps_now_us() >= until_us) return false;
        usleep(LOOK_US);
    }
    return true;
}

/* ---- commits for which a caller waits ---- */

struct commit {
    struct ps_consumer_job *query;
    struct ps_commit_turn turn;
    rd_kafka_queue_t *answers;
    rd_kafka_event_t *answer; /* the latest; NULL: none */
    int64_t sent_us;
};

/* What was marked and then given up, librdkafka has committed, unless the program commits by itself, or the group has removed the
 * member. */
bool ps_consumer_keeps(struct ps_consumer *consumer, const rd_kafka_topic_partition_list_t *places, uint64_t epoch)
{
    if (consumer->settings.commit_every_us && !ps_ledger_lost_since(&consumer->ledger, epoch)) return true;
    for (int i = 0; places && i < places->cnt; i++)
        if (!ps_ledger_owns(&consumer->ledger, places->elems[i].topic, places->elems[i].partition, epoch)) return false;
    return true;
}

/* What is processed is read when the turn has come. No thread gives up partitions between that and the request, nor answers a
 * rebalance. False: one was answered before, and the member joins again: the commit has to wait once more. */
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

/* Waits for the answer also if the caller has given up: the next commit is not sent before. NULL: closing has left the group. */
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
    while (!sent && await_turn(commit->query, &commit->turn, PS_FOREVER)) sent = send_commit(commit, &err);
    become_long_call(consumer);
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

/* Sends a commit again that a broker wants again, without losing its turn. */
static bool prepare_again(struct commit *commit, rd_kafka_resp_err_t err)
{
    bool again = err == RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS || (commit->answer && ps_commit_is_stale(commit->answer));
    if (!again || !asks_on(commit->query)) return false;
    usleep(PS_COMMIT_PAUSE_US);
    if (!become_short_call(commit->query->consumer)) return false;
    if (commit->answer) rd_kafka_event_destroy(commit->answer);
    commit->answer = NULL;
    return true;
}

/* The result has the errors of single partitions, and of what is processed only what was committed. */
static void take_result(struct commit *commit, rd_kafka_resp_err_t err)
{
    struct ps_consumer_job *query = commit->query;
    const rd_kafka_topic_partition_list_t *list = commit->answer ? rd_kafka_event_topic_partition_list(commit->answer) : NULL;
    bool chosen = query->call == PS_CONSUMER_COMMIT;
    if (list && !err) ps_ledger_committed(&query->consumer->ledger, query->consumer->client.rk, list);
    if (chosen && !list) return;
    rd_kafka_topic_partition_list_t *result = rd_kafka_topic_partition_list_new(list ? list->cnt : 0);
    for (int i = 0; list && i < list->cnt; i++)
        if (chosen || list->elems[i].offset >= 0) ps_copy_place(result, &list->elems[i]);
    if (query->list) rd_kafka_topic_partition_list_destroy(query->list);
    query->list = result;
    if (err) forget_common_error(query->list);
}

static rd_kafka_resp_err_t consumer_commit(struct ps_consumer_job *query)
{
    struct ps_consumer *consumer = query->consumer;
    struct commit commit = { .query = query, .answers = rd_kafka_queue_new(consumer->client.rk) };
    ps_commit_turn_join(consumer, &commit.turn);
    rd_kafka_resp_err_t err = commit_once(&commit);
    for (int i = 1; i < PS_COMMIT_ATTEMPTS && prepare_again(&commit, err); i++) err = commit_once(&commit);
    ps_commit_turn_leave(consumer, &commit.turn);
    take_result(&commit, err);
    if (commit.answer) rd_kafka_event_destroy(commit.answer);
    rd_kafka_queue_destroy(commit.answers);
    if (err != RD_KAFKA_RESP_ERR__NO_OFFSET) ps_increase(err ? &consumer->counts.failed_commits : &consumer->counts.commits, 1);
    return err;
}

/* ---- questions to brokers ---- */

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
static bool answer_passes(rd_kafka_resp_err_t err, const rd_kafka_topic_partition_list_t *list)
{
    if (err) return err != RD_KAFKA_RESP_ERR__DESTROY && ps_error_passes(err);
    return any_error_passes(list);
}

enum { AGAIN_US = 50000 };

/* Waits a moment, unless the time is up. */
static bool may_ask_again(const struct ps_consumer_job *query, int64_t deadline_us)
{
    if (!asks_on(query) || ps_now_us() + AGAIN_US >= deadline_us) return false;
    usleep(AGAIN_US);
    return asks_on(query);
}

/*
 * rd_kafka_offsets_for_times sends one ListOffsets request to each leader, with the isolation level of the consumer. It passes
 * RD_KAFKA_OFFSET_BEGINNING and RD_KAFKA_OFFSET_END on as they are, and brokers know them. (Measured with 2.0.2 and 2.14;
 * rd_kafka_ListOffsets, since 2.3.0, sends the same request.) The list gets the offsets of an attempt that succeeds.
 */
static rd_kafka_resp_err_t ask_offsets(struct ps_consumer_job *query, rd_kafka_topic_partition_list_t **list, int timeout_ms)
{
    rd_kafka_t *rk = query->consumer->client.rk;
    int64_t deadline_us = ps_deadline_us(timeout_ms);
    for (;;) {
        rd_kafka_topic_partition_list_t *copy = rd_kafka_topic_partition_list_copy(*list);
        rd_kafka_resp_err_t err = rd_kafka_offsets_for_times(rk, copy, ps_remaining_ms(deadline_us));
        bool again = find_moved_leaders(rk, copy, err, deadline_us) || answer_passes(err, copy);
        if (again && may_ask_again(query, deadline_us)) {
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
    default: return ask_offsets(query, &query->list, timeout_ms);
    }
}

/* The length of one attempt. An attempt does not receive the answer to an earlier one, so attempts are long. They are short while
 * no broker has ever answered: then no answer is on its way that a new attempt would miss. */
static bool any_broker_answered(rd_kafka_t *rk)
{
    char *cluster = rd_kafka_clusterid(rk, 0);
    if (cluster) rd_kafka_mem_free(rk, cluster);
    return cluster != NULL;
}

/* Repeats the request in short attempts, so a long timeout does not delay the destruction of the consumer. */
static rd_kafka_resp_err_t ask_repeatedly(struct ps_consumer_job *query)
{
    int64_t deadline_us = ps_deadline_us(query->timeout_ms);
    rd_kafka_topic_partition_list_t *question = ps_plain_copy(query->list); /* an attempt may change the list */
    rd_kafka_resp_err_t err;
    become_long_call(query->consumer);
    for (;;) {
        int remaining_ms = ps_remaining_ms(deadline_us);
        int slice = any_broker_answered(query->consumer->client.rk) ? SLICE_MS : UNANSWERED_MS;
        err = ask_once(query, remaining_ms >= 0 && remaining_ms < slice ? remaining_ms : slice);
        if (!answer_passes(err, query->list) || ps_remaining_ms(deadline_us) == 0) break;
        bool waits = err != RD_KAFKA_RESP_ERR__TIMED_OUT; /* else it has waited */
        if (waits ? !may_ask_again(query, deadline_us) : !asks_on(query)) break;
        rd_kafka_topic_partition_list_destroy(query->list);
        query->list = ps_plain_copy(question);
    }
    rd_kafka_topic_partition_list_destroy(question);
    if (!is_unanswered(err)) return err;
    if (!asks_on(query)) return RD_KAFKA_RESP_ERR__DESTROY;
    if (query->list->cnt == 1) query->list->elems[0].err = RD_KAFKA_RESP_ERR__TIMED_OUT; /* so that the program's error names it */
    return RD_KAFKA_RESP_ERR__TIMED_OUT;
}

/* Before 2.1.0 librdkafka takes the remaining time, which is in ms, for microseconds: so it gets 1,000 times the timeout. */
enum { SEEKS_IN_MS = 0x02010000, LONGEST_SEEK_MS = 1000 * 1000 };

static int seek_timeout_ms(int timeout_ms)
{
    if (rd_kafka_version() >= SEEKS_IN_MS || timeout_ms < 0) return timeout_ms;
    return (timeout_ms < LONGEST_SEEK_MS ? timeout_ms : LONGEST_SEEK_MS) * 1000;
}

/*
 * Where a partition without a committed offset begins is found out here, and librdkafka gets a number. Left to itself, it asks the
 * leader for the first or last offset. If it has to stop the partition, or to seek, before it has the answer, it does not ignore the
 * answer, but asks again half a second later and then goes there (2.0.2 to 2.14). So a partition that was sought goes on at its first
 * or last message. One that was taken away is fetched, and when it comes back, hands out these messages, or goes there. Messages come
 * again, or are lost. It also waits half a second before it asks a leader that it does not know yet.
 *
 * The group's partitions that have a committed offset are left to librdkafka: it waits for its own commits before it asks, and has to
 * know the offset. What brokers do not answer in time is left to it, too.
 */
enum { LONGEST_START_MS = 2000, LONGEST_UNANSWERED_START_MS = 1000, START_SLICE_MS = 500, SHORTEST_START_MS = 200 };

static bool starts_as_committed(const struct ps_consumer_job *query, const rd_kafka_topic_partition_t *place)
{
    /* What is processed is perhaps not committed yet, and librdkafka waits until it is. */
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

/* Short attempts, since closing waits for them. */
static void find_uncommitted(struct ps_consumer_job *query, int64_t deadline_us)
{
    const struct ps_consumer *consumer = query->consumer;
    rd_kafka_topic_partition_list_t *asked = select_starts(query, false);
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR_NO_ERROR;
    while (consumer->settings.grouped && asked->cnt > 0) {
        err = rd_kafka_committed(consumer->client.rk, asked, attempt_ms(deadline_us, START_SLICE_MS));
        if (!answer_passes(err, asked) || !may_ask_again(query, deadline_us)) break;
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
    if (ask_offsets(query, asked, timeout_ms)) return false;
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
    for (int i = 0; !found && i < 2 && asks_on(query); i++) found = use_ends(query, &asked, attempt_ms(deadline_us, START_SLICE_MS));
    for (int i = 0; !found && i < asked->cnt && asks_on(query) && ps_now_us() < deadline_us; i++) {
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
static bool find_starts(struct ps_consumer_job *query)
{
    if (!any_start_open(query)) return true;
    int timeout_ms = query->timeout_ms < 0 ? -1 : query->timeout_ms / 2; /* a seek has to follow */
    int longest_ms = any_broker_answered(query->consumer->client.rk) ? LONGEST_START_MS : LONGEST_UNANSWERED_START_MS;
    int64_t deadline_us = ps_deadline_us(timeout_ms >= 0 && timeout_ms < longest_ms ? timeout_ms : longest_ms);
    find_uncommitted(query, deadline_us);
    find_ends(query, deadline_us);
    return asks_on(query);
}

/* A partition that was assigned later begins where the group has come to, perhaps behind what another member has processed. */
static void keep_held(struct ps_consumer_job *query)
{
    for (int i = query->list->cnt - 1; i >= 0; i--) {
        const rd_kafka_topic_partition_t *place = &query->list->elems[i];
        if (!ps_ledger_holds(&query->consumer->ledger, place->topic, place->partition, place->offset, query->epoch))
            rd_kafka_topic_partition_list_del_by_idx(query->list, i);
    }
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
    if (!find_starts(query)) { /* M:seek_finds_starts */
        query->err = RD_KAFKA_RESP_ERR__DESTROY;
        return;
    }
    int timeout_ms = seek_timeout_ms(ps_remaining_ms(deadline_us));
    bool back = query->call == PS_CONSUMER_SEEK_BACK, rewind = query->call == PS_CONSUMER_REWIND;
    struct ps_consumer *consumer = query->consumer;
    rd_kafka_topic_partition_list_t *stored = rd_kafka_topic_partition_list_new(query->list->cnt);
    rd_kafka_topic_partition_list_t *moved = rd_kafka_topic_partition_list_new(query->list->cnt);
    pthread_mutex_lock(&consumer->taking); /* no thread takes a message from before, or answers a rebalance, meanwhile */
    if (rewind) keep_held(query); /* M:rewind_keeps_held */
    if (query->list->cnt > 0) job_take_error(query, rd_kafka_seek_partitions(consumer->client.rk, query->list, timeout_ms));
    for (int i = 0; !query->err && i < query->list->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &query->list->elems[i];
        if (place->err) continue;
        rd_kafka_topic_partition_list_add(moved, place->topic, place->partition)->offset = place->offset;
        if (rewind) ps_ledger_rewind(&consumer->ledger, place->topic, place->partition, place->offset);
        else ps_ledger_seek(&consumer->ledger, place->topic, place->partition, place->offset, back);
        if (back) ps_copy_place(stored, place);
    }
    /* M:rewound_offset_stored */
    if (stored->cnt > 0 && consumer->settings.grouped) rd_kafka_offsets_store(consumer->client.rk, stored);
    ps_consumer_drop_messages(consumer, moved);
    pthread_mutex_unlock(&consumer->taking);
    if (rewind && moved->cnt > 0) ps_news_add(&consumer->news, PS_NEWS_REWOUND, RD_KAFKA_RESP_ERR_NO_ERROR, false, moved, NULL);
    ps_consumer_marked(consumer); /* what comes again is not in work */
    rd_kafka_topic_partition_list_destroy(stored);
    rd_kafka_topic_partition_list_destroy(moved);
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
    if (list && !find_starts(query)) return RD_KAFKA_RESP_ERR__DESTROY; /* M:assignment_finds_starts */
    pthread_mutex_lock(&consumer->assigning);
    bool stops_partitions = assigns_partitions(rk);
    ps_commit_turn_join(consumer, &turn);
    await_turn(query, &turn, ps_now_us() + PS_LONGEST_TURN_US); /* M:assignment_takes_turn */
    pthread_mutex_lock(&consumer->taking); /* no thread takes messages of the earlier assignment after the ledger was cleared */
    ps_consumer_store(consumer);
    ps_consumer_resume_revoked(consumer, NULL); /* M:reassigned_partitions_resumed */
    ps_consumer_drop_messages(consumer, NULL);
    ps_ledger_clear(&consumer->ledger);
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

/* Left to librdkafka, which asks for the committed offset, and nothing has come since. */
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

/* With range and roundrobin librdkafka only accepts whole assignments. The other partitions go on where the program has come to. */
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
    if (consumer->cooperative) {
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

/* Of those in the list that wait for librdkafka to begin. If a rebalance is about to change the assignment, it is tried again
 * later. */
static void consumer_restart(struct ps_consumer_job *query)
{
    struct ps_consumer *consumer = query->consumer;
    struct ps_commit_turn turn = { 0 };
    pthread_mutex_lock(&consumer->taking);
    keep_waiting(query);
    pthread_mutex_unlock(&consumer->taking);
    if (query->list->cnt == 0 || !find_starts(query)) return;
    pthread_mutex_lock(&consumer->assigning);
    ps_commit_turn_join(consumer, &turn);
    await_turn(query, &turn, ps_now_us() + PS_LONGEST_TURN_US);
    pthread_mutex_lock(&consumer->taking);
    keep_waiting(query);
    bool later = ps_consumer_rebalances(consumer) || rd_kafka_assignment_lost(consumer->client.rk);
    if (query->list->cnt > 0 && !later) query->err = assign_again(consumer, query->list);
    if (later) atomic_store(&consumer->restart_us, ps_now_us() + RESTART_AGAIN_US);
    for (int i = 0; !later && i < STEPS_OF_STOPPING; i++) { /* with `taking`, so that no rebalance stops them meanwhile */
        assigns_partitions(consumer->client.rk);
        usleep(STEP_US);
    }
    pthread_mutex_unlock(&consumer->taking);
    ps_commit_turn_leave(consumer, &turn);
    pthread_mutex_unlock(&consumer->assigning);
}

/* The group has assigned it, and the answer to that is on its way. */
static bool is_being_assigned(const struct ps_consumer *consumer, const rd_kafka_topic_partition_t *place)
{
    rd_kafka_event_t *event = consumer->answering;
    if (!event || rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) return false;
    return rd_kafka_topic_partition_list_find(rd_kafka_event_topic_partition_list(event), place->topic, place->partition) != NULL;
}

static bool is_assigned(const struct ps_consumer *consumer, const rd_kafka_topic_partition_t *place)
{
    return rd_kafka_topic_partition_list_find(consumer->assigned, place->topic, place->partition) != NULL;
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
    if (subscribes) atomic_store(&consumer->ever_subscribed, true);
    ps_joining_lock(consumer);
    query->err = subscribes ? rd_kafka_subscribe(rk, query->list) : rd_kafka_unsubscribe(rk);
    ps_joining_unlock(consumer);
    if (query->err) return;
    atomic_store(&consumer->syncs, 0);
    ps_lasting_begin_anew(&consumer->group_error, subscribes);
    atomic_store(&consumer->subscribed, subscribes);
}

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
        query->err = consumer_commit(query);
        if (!query->err) ps_consumer_group_answers(query->consumer);
        break;
    case PS_CONSUMER_COMMITTED:
        query->err = ask_repeatedly(query);
        if (!query->err) ps_consumer_group_answers(query->consumer);
        break;
    case PS_CONSUMER_OFFSETS:
    case PS_CONSUMER_PARTITIONS: query->err = ask_repeatedly(query); break;
    case PS_CONSUMER_SEEK:
    case PS_CONSUMER_SEEK_BACK:
    case PS_CONSUMER_REWIND: consumer_seek(query); break;
    case PS_CONSUMER_PAUSE: consumer_pause(query, true); break;
    case PS_CONSUMER_RESUME: consumer_pause(query, false); break;
    case PS_CONSUMER_RESTART: consumer_restart(query); break;
    case PS_CONSUMER_STARTS:
        become_long_call(query->consumer);
        find_starts(query);
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
    if (due_us == 0 || ps_now_us() < due_us || consumer->answering) return;
    if (consumer->restart && !atomic_load(&consumer->restart->done)) return;
    ps_consumer_end_restart(consumer);
    atomic_store(&consumer->restart_us, 0);
    rd_kafka_topic_partition_list_t *list = ps_plain_copy(consumer->assigned);
    consumer->restart = ps_consumer_start(consumer, PS_CONSUMER_RESTART, list, -1, 0);
    if (!consumer->restart) atomic_store(&consumer->restart_us, ps_now_us() + PS_RESTART_US);
}
