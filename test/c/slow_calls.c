/*
 * Slows down calls of librdkafka. This library is preloaded and intercepts the extension's calls. It is built by
 * test/support/slow_calls.rb.
 *
 * SLOW_NEW_MS: duration of rd_kafka_new for clients whose client.id is "slow", as if it read a large CA bundle.
 * SLOW_TOPIC_MS: duration of rd_kafka_topic_new for topics whose name begins with "slow", as if librdkafka held its lock.
 * SLOW_FLUSH_MS: duration of rd_kafka_flush for flushes shorter than that. It aborts if the client is destroyed meanwhile, and
 * creates the file SLOW_FLUSH when it begins.
 * SLOW_DESTROY_MS: duration of rd_kafka_destroy, as if the lookup of a broker's name hung.
 * SLOW_NO_THREADS: while this file exists, no thread can be created.
 * SLOW_MESSAGE_MS: duration of rd_kafka_consume_queue for the first message that is taken while the file SLOW_MESSAGE exists, which
 * it deletes. The message has left the queue then, and librdkafka does not know yet that the program has it.
 * SLOW_COMMIT_MS: duration of rd_kafka_commit_queue before it does anything, for the first call while the file SLOW_COMMIT
 * exists, which it deletes.
 * SLOW_ENTROPY_MS: duration of each getentropy, with which OpenSSL seeds its random number generators. Each call creates the file
 * SLOW_ENTROPY.
 * SLOW_BOOTSTRAPS_MS: duration of rd_kafka_mock_cluster_bootstraps, which then returns 4 MiB, so that a leaked result shows in
 * the size of the process. It is slow only once the file SLOW_FROM exists.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER = 4 << 20 };

static long sleep_for(const char *variable)
{
    const char *text = getenv(variable);
    long ms = text ? atol(text) : 0;
    struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
    if (ms > 0) nanosleep(&time, NULL);
    return ms;
}

static void create(const char *path)
{
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) fclose(file);
}

int getentropy(void *buffer, size_t size)
{
    int (*next)(void *, size_t) = dlsym(RTLD_NEXT, "getentropy");
    create(getenv("SLOW_ENTROPY"));
    sleep_for("SLOW_ENTROPY_MS");
    return next(buffer, size);
}

static _Atomic(rd_kafka_t *) flushed;

rd_kafka_resp_err_t rd_kafka_flush(rd_kafka_t *rk, int timeout_ms)
{
    rd_kafka_resp_err_t (*next)(rd_kafka_t *, int) = dlsym(RTLD_NEXT, "rd_kafka_flush");
    const char *ms = getenv("SLOW_FLUSH_MS");
    if (!ms || timeout_ms >= 100) return next(rk, timeout_ms); /* longer ones are those of Producer#flush and of closing */
    flushed = rk;
    create(getenv("SLOW_FLUSH"));
    sleep_for("SLOW_FLUSH_MS");
    rd_kafka_resp_err_t result = next(rk, timeout_ms);
    flushed = NULL;
    return result;
}

void rd_kafka_destroy(rd_kafka_t *rk)
{
    void (*next)(rd_kafka_t *) = dlsym(RTLD_NEXT, "rd_kafka_destroy");
    if (flushed == rk) abort();
    sleep_for("SLOW_DESTROY_MS");
    next(rk);
}

void rd_kafka_destroy_flags(rd_kafka_t *rk, int flags)
{
    void (*next)(rd_kafka_t *, int) = dlsym(RTLD_NEXT, "rd_kafka_destroy_flags");
    sleep_for("SLOW_DESTROY_MS");
    next(rk, flags);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *arg)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    const char *path = getenv("SLOW_NO_THREADS");
    if (path && access(path, F_OK) == 0) return EAGAIN;
    return next(thread, attributes, body, arg);
}

static _Atomic bool closes;

/* SLOW_PROTOCOL: a file that gets a line for each call. Once the consumer closes, this call never returns, as may happen with
 * librdkafka (#4041, #4884). */
const char *rd_kafka_rebalance_protocol(rd_kafka_t *rk)
{
    const char *(*next)(rd_kafka_t *) = dlsym(RTLD_NEXT, "rd_kafka_rebalance_protocol");
    const char *path = getenv("SLOW_PROTOCOL");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fputs(closes ? "closing\n" : "asked\n", file);
        fclose(file);
    }
    if (file && closes) pause();
    return next(rk);
}

rd_kafka_error_t *rd_kafka_consumer_close_queue(rd_kafka_t *rk, rd_kafka_queue_t *queue)
{
    rd_kafka_error_t *(*next)(rd_kafka_t *, rd_kafka_queue_t *) = dlsym(RTLD_NEXT, "rd_kafka_consumer_close_queue");
    closes = true;
    return next(rk, queue);
}

rd_kafka_t *rd_kafka_new(rd_kafka_type_t type, rd_kafka_conf_t *conf, char *errstr, size_t size)
{
    rd_kafka_t *(*next)(rd_kafka_type_t, rd_kafka_conf_t *, char *, size_t) = dlsym(RTLD_NEXT, "rd_kafka_new");
    char id[64];
    size_t id_size = sizeof(id);
    if (rd_kafka_conf_get(conf, "client.id", id, &id_size) == RD_KAFKA_CONF_OK && strcmp(id, "slow") == 0) sleep_for("SLOW_NEW_MS");
    return next(type, conf, errstr, size);
}

rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *rk, const char *topic, rd_kafka_topic_conf_t *conf)
{
    rd_kafka_topic_t *(*next)(rd_kafka_t *, const char *, rd_kafka_topic_conf_t *) = dlsym(RTLD_NEXT, "rd_kafka_topic_new");
    if (strncmp(topic, "slow", 4) == 0) sleep_for("SLOW_TOPIC_MS");
    return next(rk, topic, conf);
}

rd_kafka_resp_err_t rd_kafka_commit_queue(rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *offsets, rd_kafka_queue_t *queue,
                                          void (*cb)(rd_kafka_t *, rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t *, void *),
                                          void *opaque)
{
    rd_kafka_resp_err_t (*next)(rd_kafka_t *, const rd_kafka_topic_partition_list_t *, rd_kafka_queue_t *, void *, void *) =
        dlsym(RTLD_NEXT, "rd_kafka_commit_queue");
    const char *path = getenv("SLOW_COMMIT");
    if (path && unlink(path) == 0) sleep_for("SLOW_COMMIT_MS");
    return next(rk, offsets, queue, (void *)cb, opaque);
}

/* A message is destroyed as its event would be. */
rd_kafka_message_t *rd_kafka_consume_queue(rd_kafka_queue_t *queue, int timeout_ms)
{
    static rd_kafka_message_t *(*next)(rd_kafka_queue_t *, int);
    if (!next) next = dlsym(RTLD_NEXT, "rd_kafka_consume_queue");
    const char *path = getenv("SLOW_MESSAGE");
    if (!path || unlink(path)) return next(queue, timeout_ms);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, timeout_ms);
    sleep_for("SLOW_MESSAGE_MS");
    return event ? (rd_kafka_message_t *)(uintptr_t)rd_kafka_event_message_next(event) : NULL;
}

/* With messages that librdkafka hands out together, each of which it counts only when it has all: the same. */
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *queue, int timeout_ms, rd_kafka_message_t **messages, size_t most)
{
    static ssize_t (*next)(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
    if (!next) next = dlsym(RTLD_NEXT, "rd_kafka_consume_batch_queue");
    const char *path = getenv("SLOW_MESSAGE");
    if (!path || access(path, F_OK)) return next(queue, timeout_ms, messages, most);
    rd_kafka_event_t *events[4] = { NULL };
    size_t count = 0;
    while (count < 4 && count < most && (events[count] = rd_kafka_queue_poll(queue, timeout_ms))) count++;
    unlink(path);
    sleep_for("SLOW_MESSAGE_MS");
    for (size_t i = 0; i < count; i++) messages[i] = (rd_kafka_message_t *)(uintptr_t)rd_kafka_event_message_next(events[i]);
    return (ssize_t)count;
}

const char *rd_kafka_mock_cluster_bootstraps(const rd_kafka_mock_cluster_t *cluster)
{
    const char *(*next)(const rd_kafka_mock_cluster_t *) = dlsym(RTLD_NEXT, "rd_kafka_mock_cluster_bootstraps");
    const char *from = getenv("SLOW_FROM"), *answer = next(cluster);
    static char large[ANSWER + 1];
    if (!from || access(from, F_OK) != 0) return answer;
    sleep_for("SLOW_BOOTSTRAPS_MS");
    memset(large, ',', ANSWER);
    return large;
}
