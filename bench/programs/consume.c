/*
 * Reads a topic from its beginning, in C: consume SERVERS TOPIC KIND PARTITIONS MESSAGES PASSES [SETTING=VALUE...]; see consume.rb.
 * KIND is read.
 *
 * From librdkafka 2.13.2 on it takes messages with rd_kafka_consume_batch_queue, which is the fastest. Before, that call could skip
 * messages, and rd_kafka_consumer_poll is the fastest that cannot.
 */
#define _POSIX_C_SOURCE 200809L
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 10000, BATCHES_ARE_SAFE = 0x020d0200 };

static const char *servers, *topic;
static char **settings;
static int partitions;
static long count;
static volatile unsigned long touched;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *why) {
    fprintf(stderr, "consume: %s\n", why);
    exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why))
        fail(why);
}

static rd_kafka_t *open_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char why[512];
    set(conf, "bootstrap.servers", servers);
    set(conf, "socket.nagle.disable", "true");
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
    if (!rk)
        fail(why);
    return rk;
}

static rd_kafka_t *open_consumer(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "group.id", "penstock.bench");
    set(conf, "enable.auto.commit", "false");
    for (char **one = settings; *one; one++) {
        char *copy = strdup(*one), *value = strchr(copy, '=');
        *value++ = '\0';
        set(conf, copy, value);
        free(copy);
    }
    rd_kafka_t *rk = open_client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_poll_set_consumer(rk);
    return rk;
}

/* Forwards partitions to the queue, unless it is NULL, and reads them from this offset on. */
static void assign(rd_kafka_t *rk, rd_kafka_queue_t *data, int from, int to, int64_t offset) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(to - from);
    for (int i = from; i < to; i++) {
        rd_kafka_topic_partition_list_add(list, topic, i)->offset = offset;
        if (!data)
            continue;
        rd_kafka_queue_t *queue = rd_kafka_queue_get_partition(rk, topic, i);
        rd_kafka_queue_forward(queue, data);
        rd_kafka_queue_destroy(queue);
    }
    if (rd_kafka_assign(rk, list))
        fail("cannot assign");
    rd_kafka_topic_partition_list_destroy(list);
}

/* True: it was a message. */
static int take(rd_kafka_message_t *message) {
    int real = !message->err;
    if (real && message->len)
        touched += ((const unsigned char *)message->payload)[message->len - 1];
    rd_kafka_message_destroy(message);
    return real;
}

static long take_some(rd_kafka_t *rk, rd_kafka_queue_t *data) {
    static rd_kafka_message_t *messages[BATCH];
    long taken = 0;
    if (!data) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(rk, 1000);
        return message ? take(message) : 0;
    }
    ssize_t size = rd_kafka_consume_batch_queue(data, 0, messages, BATCH);
    if (size == 0)
        size = rd_kafka_consume_batch_queue(data, 1, messages, BATCH); /* it waits until it is full, or for this long */
    for (ssize_t i = 0; i < size; i++)
        taken += take(messages[i]);
    return taken;
}

/* Returns the seconds that all messages take, at the rate of those after the first ones. */
static double read_all(void) {
    rd_kafka_t *rk = open_consumer();
    rd_kafka_queue_t *data = rd_kafka_version() >= BATCHES_ARE_SAFE ? rd_kafka_queue_new(rk) : NULL;
    double start = 0;
    long taken = 0, first = 0;
    assign(rk, data, 0, partitions, 0);
    while (taken < count) {
        taken += take_some(rk, data);
        if (first)
            continue;
        first = taken;
        start = now_s();
    }
    double took = (now_s() - start) * (double)count / (double)(count - first);
    rd_kafka_assign(rk, NULL);
    if (data)
        rd_kafka_queue_destroy(data);
    rd_kafka_consumer_close(rk);
    rd_kafka_destroy(rk);
    return took;
}

int main(int argc, char **argv) {
    if (argc < 7)
        fail("need SERVERS TOPIC KIND PARTITIONS MESSAGES PASSES");
    servers = argv[1], topic = argv[2], partitions = atoi(argv[4]), count = atol(argv[5]), settings = argv + 7;
    int passes = atoi(argv[6]);
    printf("{\"ready\":\"librdkafka %s\",\"differs\":[]}\n", rd_kafka_version_str());
    fflush(stdout);
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n')
            continue;
        double took = 0;
        for (int i = 0; i < passes; i++)
            took += read_all();
        printf("{\"seconds\":%.6f,\"delivered\":%ld,\"failed\":0}\n", took, count * passes);
        fflush(stdout);
    }
    return 0;
}
