/*
 * From a producer's send to the consumer: arrival SERVERS TOPIC MESSAGES [send]
 *
 * With `send`, it sends that many messages, one by one, a few ms apart. The payload of each is the time at which it is sent, in ns of
 * CLOCK_MONOTONIC, which all processes share. Otherwise it reads them from partition 0 (arrival.rb is the same in Ruby): prints a
 * line of JSON when it is ready; then, for each line read, starts a sender, and prints how long each message took, in us.
 */
#define _GNU_SOURCE
#include <librdkafka/rdkafka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void die(const char *why) {
    fprintf(stderr, "arrival: %s\n", why);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static rd_kafka_t *client(rd_kafka_type_t type, const char *servers) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", servers, why, sizeof why) ||
        rd_kafka_conf_set(conf, "socket.nagle.disable", "true", why, sizeof why) ||
        (type == RD_KAFKA_PRODUCER && rd_kafka_conf_set(conf, "linger.ms", "0", why, sizeof why)) ||
        (type == RD_KAFKA_CONSUMER && rd_kafka_conf_set(conf, "group.id", "penstock.bench", why, sizeof why)))
        die(why);
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
    if (!rk)
        die(why);
    return rk;
}

static void send_all(const char *servers, const char *topic_name, int count) {
    rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, servers);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, topic_name, NULL);
    for (int i = -5; i < count; i++) { /* the first ones connect */
        int64_t sent_ns = i < 0 ? 0 : now_ns();
        if (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, &sent_ns, sizeof sent_ns, NULL, 0, NULL))
            die("cannot produce");
        if (rd_kafka_flush(rk, 10000))
            die("a message was not delivered");
        usleep((useconds_t)(2000 + rand() % 6000));
    }
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
}

static void read_round(rd_kafka_t *rk, const char *program, char **arguments, int64_t *took, int count) {
    char command[2048];
    snprintf(command, sizeof command, "'%s' '%s' '%s' %d send", program, arguments[1], arguments[2], count);
    int64_t started_ns = now_ns();
    FILE *sender = popen(command, "r");
    if (!sender)
        die("cannot start the sender");
    for (int i = 0; i < count;) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(rk, 1000);
        int64_t arrived_ns = now_ns(), sent_ns = 0;
        if (message && !message->err && message->len == sizeof sent_ns)
            memcpy(&sent_ns, message->payload, sizeof sent_ns);
        if (sent_ns > started_ns)
            took[i++] = arrived_ns - sent_ns;
        if (message)
            rd_kafka_message_destroy(message);
    }
    if (pclose(sender))
        die("the sender failed");
}

int main(int argc, char **argv) {
    if (argc < 4)
        die("usage: arrival SERVERS TOPIC MESSAGES [send]");
    int count = atoi(argv[3]);
    if (argc > 4 && strcmp(argv[4], "send") == 0) {
        send_all(argv[1], argv[2], count);
        return 0;
    }
    rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, argv[1]);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, argv[2], 0)->offset = RD_KAFKA_OFFSET_BEGINNING;
    rd_kafka_poll_set_consumer(rk);
    if (rd_kafka_assign(rk, list))
        die("cannot assign");
    printf("{\"ready\":\"librdkafka %s\",\"differs\":[]}\n", rd_kafka_version_str());
    fflush(stdout);
    int64_t *took = calloc((size_t)count, sizeof *took);
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n')
            continue;
        int64_t started = now_ns();
        read_round(rk, argv[0], argv, took, count);
        printf("{\"seconds\":%.6f,\"delivered\":%d,\"failed\":0,\"latencies_us\":[", (double)(now_ns() - started) / 1e9, count);
        for (int i = 0; i < count; i++)
            printf("%s%.1f", i ? "," : "", (double)took[i] / 1e3);
        printf("]}\n");
        fflush(stdout);
    }
    _exit(0);
}
