/*
 * From a new client to its first message, in C: first SERVERS TOPIC KIND [SETTING=VALUE...]; see first.rb.
 */
#define _POSIX_C_SOURCE 200809L
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *servers, *topic, *kind;
static char **settings;

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void fail(const char *why) {
    fprintf(stderr, "first: %s\n", why);
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
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
    if (!rk)
        fail(why);
    return rk;
}

static int delivered;

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (message->err)
        fail(rd_kafka_err2str(message->err));
    delivered = 1;
}

static double produce(void) {
    static char payload[100];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    for (char **one = settings; *one; one++) {
        char *copy = strdup(*one), *value = strchr(copy, '=');
        *value++ = '\0';
        set(conf, copy, value);
        free(copy);
    }
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    double start = now_ms();
    rd_kafka_t *rk = open_client(RD_KAFKA_PRODUCER, conf);
    delivered = 0;
    if (rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_VALUE(payload, sizeof payload), RD_KAFKA_V_END))
        fail("cannot produce");
    while (!delivered)
        rd_kafka_poll(rk, 1000);
    double took = now_ms() - start;
    rd_kafka_destroy(rk);
    return took;
}

static double consume(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_message_t *message = NULL;
    char group[64];
    snprintf(group, sizeof group, "first-c-%d-%.0f", (int)getpid(), now_ms() * 1e3);
    set(conf, "group.id", group);
    set(conf, "enable.auto.commit", "false");
    set(conf, "auto.offset.reset", "earliest");
    set(conf, "socket.nagle.disable", "true");
    rd_kafka_t *rk = open_client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_poll_set_consumer(rk);
    int assigns = !strcmp(kind, "assign");
    rd_kafka_topic_partition_list_add(list, topic, assigns ? 0 : RD_KAFKA_PARTITION_UA)->offset =
        assigns ? RD_KAFKA_OFFSET_BEGINNING : RD_KAFKA_OFFSET_INVALID;
    double start = now_ms();
    if (assigns ? rd_kafka_assign(rk, list) : rd_kafka_subscribe(rk, list))
        fail("cannot assign or subscribe");
    while (!message || message->err) {
        if (message)
            rd_kafka_message_destroy(message);
        message = rd_kafka_consumer_poll(rk, 1000);
    }
    double took = now_ms() - start;
    rd_kafka_message_destroy(message);
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_consumer_close(rk);
    rd_kafka_destroy(rk);
    return took;
}

int main(int argc, char **argv) {
    if (argc < 4)
        fail("need SERVERS TOPIC KIND");
    servers = argv[1], topic = argv[2], kind = argv[3], settings = argv + 4;
    produce(); /* the topic exists, and has a message */
    printf("{\"ready\":\"librdkafka %s\",\"differs\":[]}\n", rd_kafka_version_str());
    fflush(stdout);
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n')
            continue;
        double took = strcmp(kind, "produce") ? consume() : produce();
        printf("{\"seconds\":%.6f,\"delivered\":1,\"failed\":0,\"ms\":%.3f}\n", took / 1e3, took);
        fflush(stdout);
    }
    return 0;
}
