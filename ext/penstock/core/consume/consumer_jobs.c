/*
 * The blocking calls of a consumer: each runs on a native thread of its own (wait/job.c), so that an interrupt ends the Ruby
 * thread's wait at once. ps_consumer_start is at the end.
 */
#include "consume/consume.h"
#include <errno.h>
#include <stdlib.h>
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
    ps_consumer_resume_revoked(consumer, NULL);
    ps_ledger_clear(&consumer->ledger);
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
 * what this function has paused. While the listener runs, its partitions are not assigned yet: ps_consumer_rebalance pauses them.
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
