/*
 * The cost of idle clients in a plain C program: its memory, threads and CPU time while nothing happens, and the CPU time that
 * its one polling thread takes for a wake-up by a busy client. That thread does not poll the idle clients at all.
 *
 *   cc -O2 -Wall -Wextra -pthread bench/programs/idle.c -o idle $(pkg-config --cflags --libs rdkafka)
 *   idle SERVERS TOPIC IDLE_CLIENTS [KEY=VALUE...]
 *
 * Prints a line of JSON when it is ready; then, for each line read, measures and prints a line of JSON.
 */
#define _POSIX_C_SOURCE 200809L
#include <librdkafka/rdkafka.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGES = 5000, IDLE_SECONDS = 1, SETTLE_SECONDS = 3 };

static rd_kafka_queue_t *queue; /* the busy client's */
static int wakeup[2];           /* a pipe that librdkafka writes to when the queue stops being empty */
static long wakeups, delivered; /* under lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;

static void die(const char *why) {
    fprintf(stderr, "idle: %s\n", why);
    exit(1);
}

static rd_kafka_t *client(char **arguments) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", arguments[1], why, sizeof why);
    for (char **setting = arguments + 4; *setting; setting++) {
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

static void *serve(void *unused) {
    struct pollfd readable = {.fd = wakeup[0], .events = POLLIN};
    char bytes[64];
    for (;;) {
        poll(&readable, 1, -1);
        if (read(wakeup[0], bytes, sizeof bytes) < 0)
            die("cannot read");
        long reports = 0;
        for (rd_kafka_event_t *event; (event = rd_kafka_queue_poll(queue, 0)); rd_kafka_event_destroy(event))
            if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_DR)
                reports += (long)rd_kafka_event_message_count(event);
        pthread_mutex_lock(&lock);
        wakeups++;
        delivered += reports;
        pthread_cond_signal(&arrived);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static double cpu_seconds(pthread_t thread) {
    clockid_t clock;
    struct timespec used;
    if (pthread_getcpuclockid(thread, &clock) || clock_gettime(clock, &used))
        die("no CPU clock for threads");
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static int compare(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return difference > 0 ? 1 : difference < 0 ? -1 : 0;
}

struct wakeup_cost {
    double mean, median;
};

/* Microseconds of the polling thread's CPU time for each of its wake-ups, with one message in flight at a time, and the median
 * between two delivery results. */
static struct wakeup_cost cost_of_a_wakeup(rd_kafka_topic_t *topic, pthread_t poller) {
    static double costs[MESSAGES];
    double started = cpu_seconds(poller), latest = started;
    pthread_mutex_lock(&lock);
    long wakeups_before = wakeups;
    for (int i = 0; i < MESSAGES; i++) {
        long delivered_before = delivered;
        pthread_mutex_unlock(&lock);
        if (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, "x", 1, NULL, 0, NULL))
            die("cannot produce");
        pthread_mutex_lock(&lock);
        while (delivered == delivered_before)
            pthread_cond_wait(&arrived, &lock);
        double used = cpu_seconds(poller);
        costs[i] = used - latest;
        latest = used;
    }
    long count = wakeups - wakeups_before;
    pthread_mutex_unlock(&lock);
    qsort(costs, MESSAGES, sizeof *costs, compare);
    return (struct wakeup_cost){(latest - started) / (double)count * 1e6, costs[MESSAGES / 2] * 1e6};
}

/* The value of a line of /proc/self/status. */
static long status(const char *name) {
    char line[256];
    long value = 0;
    FILE *file = fopen("/proc/self/status", "r");
    if (!file)
        die("cannot read /proc/self/status");
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)))
            value = atol(line + strlen(name) + 1);
    fclose(file);
    return value;
}

static void measure(rd_kafka_topic_t *topic, pthread_t poller) {
    struct timespec started, ended;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &started);
    sleep(IDLE_SECONDS);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
    double cpu_ms = (double)(ended.tv_sec - started.tv_sec) * 1e3 + (double)(ended.tv_nsec - started.tv_nsec) / 1e6;
    struct wakeup_cost cost = cost_of_a_wakeup(topic, poller);
    printf("{\"seconds\":%d,\"delivered\":%d,\"failed\":0,\"kilobytes\":%ld,\"threads\":%ld,\"cpu_ms\":%.3f,"
           "\"mean_us\":%.3f,\"median_us\":%.3f}\n",
           IDLE_SECONDS, MESSAGES, status("VmRSS"), status("Threads"), cpu_ms / IDLE_SECONDS, cost.mean, cost.median);
    fflush(stdout);
}

/* Each has sent a message, so it is connected to the cluster. */
static void connect_idle_clients(char **arguments) {
    for (int i = atoi(arguments[3]); i > 0; i--) {
        rd_kafka_t *rk = client(arguments);
        rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, arguments[2], NULL);
        if (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, "x", 1, NULL, 0, NULL))
            die("cannot produce");
        rd_kafka_event_t *event = rd_kafka_queue_poll(rd_kafka_queue_get_main(rk), 20000);
        if (!event)
            die("an idle client cannot connect");
        rd_kafka_event_destroy(event);
    }
    sleep(SETTLE_SECONDS);
}

int main(int count, char **arguments) {
    if (count < 4)
        die("usage: idle SERVERS TOPIC IDLE_CLIENTS [KEY=VALUE...]");
    rd_kafka_t *busy = client(arguments);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(busy, arguments[2], NULL);
    queue = rd_kafka_queue_get_main(busy);
    pthread_t poller;
    if (pipe(wakeup) || pthread_create(&poller, NULL, serve, NULL))
        die("cannot start a thread");
    rd_kafka_queue_io_event_enable(queue, wakeup[1], "", 1);

    connect_idle_clients(arguments);
    printf("{\"ready\":\"librdkafka %s, a polling thread\",\"differs\":[]}\n", rd_kafka_version_str());
    fflush(stdout);
    for (int c; (c = getchar()) != EOF;)
        if (c == '\n')
            measure(topic, poller);
    _exit(0); /* nothing is in flight, and closing a thousand clients one by one takes long */
}
