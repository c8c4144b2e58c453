/*
 * Questions for which librdkafka has only blocking functions: all topics, leaders, and before 2.3.0 the cluster and offsets by time.
 * Each runs on a native thread of its own. The caller waits for the question's ps_admin_call, so an interrupt, a close or a rejection
 * ends its wait at once.
 */
#include "admin/admin.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_ATTEMPT_MS = 1000, AGAIN_US = 50000 };

static bool timed_out(rd_kafka_resp_err_t err)
{
    return err == RD_KAFKA_RESP_ERR__TIMED_OUT || err == RD_KAFKA_RESP_ERR__TRANSPORT; /* the latter: no broker was connected */
}

/* False: the closing thread waits for this one, or no caller waits any more. */
static bool asks_on(const struct ps_admin_job *job)
{
    return atomic_load(&job->admin->client.state) == PS_OPEN && atomic_load(&job->call->end) == PS_ADMIN_WAITS;
}

static rd_kafka_resp_err_t ask_metadata(struct ps_admin_job *job, int timeout_ms)
{
    rd_kafka_t *rk = job->admin->client.rk;
    rd_kafka_resp_err_t err = rd_kafka_metadata(rk, job->question == PS_ADMIN_TOPICS, NULL, &job->metadata, timeout_ms);
    if (err) {
        job->metadata = NULL;
        return err;
    }
    char *cluster_id = rd_kafka_clusterid(rk, 0); /* known from that answer, if the broker has one */
    job->cluster_id = cluster_id ? strdup(cluster_id) : NULL;
    rd_kafka_mem_free(rk, cluster_id);
    job->controller_id = rd_kafka_controllerid(rk, 0);
    return err;
}

/*
 * librdkafka leaves a partition as it is, without an error, if the brokers' answer lacks it: its offset would be the time. Of all
 * others it takes the metadata, which are empty, from the answer. So metadata mark a partition without an answer.
 */
static void mark(rd_kafka_topic_partition_list_t *list)
{
    for (int i = 0; i < list->cnt; i++) {
        list->elems[i].metadata = strdup("?"); /* the list frees it */
        list->elems[i].metadata_size = list->elems[i].metadata ? 1 : 0;
    }
}

static void find_marked(rd_kafka_topic_partition_list_t *list)
{
    for (int i = 0; i < list->cnt; i++) {
        rd_kafka_topic_partition_t *place = &list->elems[i];
        if (place->metadata_size > 0 && !place->err) place->err = RD_KAFKA_RESP_ERR__BAD_MSG;
        free(place->metadata);
        place->metadata = NULL;
        place->metadata_size = 0;
    }
}

static bool any_leader_moved(const rd_kafka_topic_partition_list_t *list, rd_kafka_resp_err_t err)
{
    for (int i = 0; !ps_leader_moved(err) && i < list->cnt; i++) err = list->elems[i].err;
    return ps_leader_moved(err);
}

/* Until 2.10.0 librdkafka goes on asking the earlier leader. Of all topics it takes what concerns those that it knows. */
static void find_leaders_again(rd_kafka_t *rk, int timeout_ms)
{
    const struct rd_kafka_metadata *metadata;
    if (!rd_kafka_metadata(rk, 1, NULL, &metadata, timeout_ms)) rd_kafka_metadata_destroy(metadata);
}

/* Asks for a copy: librdkafka writes into it, also if it fails. */
static rd_kafka_resp_err_t ask_offsets(struct ps_admin_job *job, int timeout_ms)
{
    rd_kafka_t *rk = job->admin->client.rk;
    int64_t deadline_us = ps_deadline_us(timeout_ms);
    rd_kafka_topic_partition_list_t *asked = rd_kafka_topic_partition_list_copy(job->list);
    mark(asked);
    rd_kafka_resp_err_t err = rd_kafka_offsets_for_times(rk, asked, timeout_ms);
    find_marked(asked);
    if (any_leader_moved(asked, err)) find_leaders_again(rk, ps_remaining_ms(deadline_us)); /* M:moved_leaders_found */
    rd_kafka_topic_partition_list_destroy(err ? asked : job->list);
    if (!err) job->list = asked;
    return err;
}

/*
 * librdkafka asks for the leaders of all partitions of a topic, without creating it, unless it knows them. As no topic has this
 * partition, it then asks no leader.
 */
static rd_kafka_resp_err_t ask_leaders(struct ps_admin_job *job, int timeout_ms)
{
    rd_kafka_topic_partition_list_t *asked = rd_kafka_topic_partition_list_new(job->list->cnt);
    for (int i = 0; i < job->list->cnt; i++)
        rd_kafka_topic_partition_list_add(asked, job->list->elems[i].topic, INT32_MAX)->offset = RD_KAFKA_OFFSET_END;
    rd_kafka_resp_err_t err = rd_kafka_offsets_for_times(job->admin->client.rk, asked, timeout_ms);
    rd_kafka_topic_partition_list_destroy(asked);
    return timed_out(err) || err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN ? err : RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t ask(struct ps_admin_job *job, int timeout_ms)
{
    switch (job->question) {
    case PS_ADMIN_OFFSETS: return ask_offsets(job, timeout_ms);
    case PS_ADMIN_LEADERS: return ask_leaders(job, timeout_ms);
    default: return ask_metadata(job, timeout_ms);
    }
}

/*
 * Nothing ends these functions early, and the closing thread waits for them. So the question is asked for a second, then again for
 * twice as long, and so on: a close waits at most a second, or as long as the question has taken, and a slow broker still gets half
 * of the time.
 */
static rd_kafka_resp_err_t ask_again_and_again(struct ps_admin_job *job)
{
    int64_t deadline_us = ps_deadline_us(job->timeout_ms);
    for (int attempt_ms = FIRST_ATTEMPT_MS;;) {
        int left_ms = ps_remaining_ms(deadline_us);
        if (left_ms < 2 * attempt_ms) attempt_ms = left_ms;
        int64_t attempt_us = ps_deadline_us(attempt_ms);
        rd_kafka_resp_err_t err = ask(job, attempt_ms);
        if (err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) usleep(AGAIN_US); /* librdkafka does not wait for one to come back */
        else if (!timed_out(err) || ps_now_us() < attempt_us) return err;
        else attempt_ms *= 2;
        if (ps_now_us() >= deadline_us || !asks_on(job)) return RD_KAFKA_RESP_ERR__TIMED_OUT; /* M:close_ends_question */
    }
}

static void job_run(struct ps_job *base)
{
    struct ps_admin_job *job = (struct ps_admin_job *)base;
    job->err = ask_again_and_again(job);
    if (!job->err) atomic_store(&job->admin->client.rejection.worked, true);
    ps_admin_call_finish(job->admin, job->call); /* while the client is entered, so that closing finds no call of a job in its list */
    ps_client_exit(&job->admin->client);
}

static void job_release(struct ps_job *base)
{
    struct ps_admin_job *job = (struct ps_admin_job *)base;
    if (job->metadata) rd_kafka_metadata_destroy(job->metadata);
    if (job->list) rd_kafka_topic_partition_list_destroy(job->list);
    free(job->cluster_id);
    ps_client_unref(&job->admin->client);
    free(job);
}

struct ps_admin_job *ps_admin_ask(struct ps_admin *admin, enum ps_admin_question question,
                                  rd_kafka_topic_partition_list_t *list, int timeout_ms, struct ps_admin_call **call)
{
    struct ps_admin_job *job = calloc(1, sizeof(*job));
    if (!job) {
        if (list) rd_kafka_topic_partition_list_destroy(list);
        return NULL;
    }
    ps_job_init(&job->job, job_run, job_release);
    ps_client_retain(&admin->client);
    job->admin = admin;
    job->question = question;
    job->list = list;
    job->timeout_ms = timeout_ms;
    job->controller_id = -1;
    errno = 0;
    bool entered = ps_client_enter(&admin->client);
    job->call = entered ? ps_admin_call_begin(admin) : NULL;
    int failed = errno;
    if (job->call) {
        *call = job->call; /* read before the thread may free it */
        failed = ps_job_start(&job->job, "penstock.meta");
        if (!failed) return job;
        ps_admin_call_finish(admin, *call);
        ps_admin_call_leave(admin, *call);
        *call = NULL; /* its owner leaves it no second time */
    }
    if (entered) ps_client_exit(&admin->client);
    ps_job_unref(&job->job);
    errno = failed;
    return NULL;
}
