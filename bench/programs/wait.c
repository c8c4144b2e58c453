/*
 * The cost of waiting for a message in a plain C program: it produces a message, sleeps until its delivery report arrives, and
 * repeats. It has the same threads as Penstock: librdkafka's queue callback wakes a polling thread through an eventfd. That
 * thread reads the report and wakes the thread that sleeps on a futex.
 *
 *   cc -O2 -Wall -Wextra -pthread bench/programs/wait.c -o wait $(pkg-config --cflags --libs rdkafka) -ldl
 *   wait SERVERS TOPIC PLUGIN ROUND_TRIPS [KEY=VALUE...]       PLUGIN: acknowledged.c, see there
 *
 * Prints a line of JSON when it is ready; then, for each line read, runs a round and prints as JSON the nanoseconds of each of
 * its round trips, and of the last part of each: from librdkafka's delivery result until the waiter runs again.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <librdkafka/rdkafka.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static rd_kafka_queue_t *queue;
static int wakeup; /* an eventfd: the queue has stopped being empty */
static _Atomic uint32_t delivered;
static _Atomic int64_t *acknowledged_ns; /* the plugin's */

static void die(const char *why) {
    fprintf(stderr, "wait: %s\n", why);
    _exit(1);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void ready_cb(rd_kafka_t *rk, void *unused) {
    (void)rk, (void)unused;
    eventfd_write(wakeup, 1);
}

static void take_reports(void) {
    for (rd_kafka_event_t *event; (event = rd_kafka_queue_poll(queue, 0)); rd_kafka_event_destroy(event)) {
        const rd_kafka_message_t *message;
        if (rd_kafka_event_type(event) != RD_KAFKA_EVENT_DR)
            continue;
        while ((message = rd_kafka_event_message_next(event))) {
            if (message->err)
                die(rd_kafka_err2str(message->err));
            atomic_fetch_add(&delivered, 1);
            syscall(SYS_futex, &delivered, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
        }
    }
}

static void *serve(void *unused) {
    struct pollfd readable = {.fd = wakeup, .events = POLLIN};
    eventfd_t times;
    for (;;) {
        poll(&readable, 1, -1);
        eventfd_read(wakeup, &times);
        take_reports();
    }
    return unused;
}

static void round_trip(rd_kafka_topic_t *topic, int64_t *trip, int64_t *wake) {
    uint32_t before = atomic_load(&delivered);
    int64_t started = now_ns();
    if (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, "x", 1, NULL, 0, NULL))
        die("cannot produce");
    while (atomic_load(&delivered) == before)
        syscall(SYS_futex, &delivered, FUTEX_WAIT_PRIVATE, before, NULL, NULL, 0);
    int64_t ended = now_ns();
    *trip = ended - started;
    *wake = ended - atomic_load(acknowledged_ns);
}

static void print(const char *name, const int64_t *values, int count) {
    printf("\"%s\":[", name);
    for (int i = 0; i < count; i++)
        printf("%s%lld", i ? "," : "", (long long)values[i]);
    printf("]");
}

static void rounds(rd_kafka_topic_t *topic, int count) {
    int64_t *trips = calloc((size_t)count, sizeof *trips), *wakes = calloc((size_t)count, sizeof *wakes);
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n')
            continue;
        int64_t started = now_ns();
        for (int i = 0; i < count; i++)
            round_trip(topic, &trips[i], &wakes[i]);
        printf("{\"seconds\":%.6f,\"delivered\":%d,\"failed\":0,", (double)(now_ns() - started) / 1e9, count);
        print("trips", trips, count);
        printf(",");
        print("wakes", wakes, count);
        printf("}\n");
        fflush(stdout);
    }
}

static rd_kafka_t *client(char **arguments) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", arguments[1], why, sizeof why) ||
        rd_kafka_conf_set(conf, "plugin.library.paths", arguments[3], why, sizeof why))
        die(why);
    for (char **setting = arguments + 5; *setting; setting++) {
        char *value = strchr(*setting, '=');
        char key[128];
        snprintf(key, sizeof key, "%.*s", (int)(value - *setting), *setting);
        if (rd_kafka_conf_set(conf, key, value + 1, why, sizeof why))
            die(why);
    }
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (!rk)
        die(why);
    return rk;
}

int main(int count, char **arguments) {
    pthread_t poller;
    int64_t unused;
    if (count < 5)
        die("usage: wait SERVERS TOPIC PLUGIN ROUND_TRIPS [KEY=VALUE...]");
    rd_kafka_t *rk = client(arguments);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, arguments[2], NULL);
    void *plugin = dlopen(arguments[3], RTLD_NOW);
    if (!plugin || !(acknowledged_ns = dlsym(plugin, "acknowledged_ns")))
        die("the plugin cannot be read");
    queue = rd_kafka_queue_get_main(rk);
    wakeup = eventfd(1, EFD_CLOEXEC);
    rd_kafka_queue_cb_event_enable(queue, ready_cb, NULL);
    if (pthread_create(&poller, NULL, serve, NULL))
        die("cannot start a thread");
    round_trip(topic, &unused, &unused); /* connects */
    printf("{\"ready\":\"librdkafka %s, a polling thread\",\"differs\":[]}\n", rd_kafka_version_str());
    fflush(stdout);
    rounds(topic, atoi(arguments[4]));
    _exit(0); /* nothing is in flight */
}
