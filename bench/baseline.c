/*
 * The plain C figures the Ruby benchmark is compared with: the same messages over the same
 * librdkafka, with nothing between the program and the library.
 *
 *   cc -O2 -Wall -Wextra -pthread bench/baseline.c $(pkg-config --cflags --libs rdkafka)
 *
 * What keeps the comparison honest:
 *   - librdkafka's own defaults, changed only by --set, so both sides can be given the same;
 *   - connections, metadata, threads and payload exist before the clock runs;
 *   - a message counts only when its delivery report has come back.
 */
#define _POSIX_C_SOURCE 200809L
#include <getopt.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: baseline SCENARIO --bootstrap HOST:PORT[,..] --topic T [options]\n\n"
    "  batch  many producers, each with its own client and thread: produce all messages,\n"
    "         then wait until every delivery report has arrived\n"
    "  one    the same with a single producer\n"
    "  async  one producer that keeps a state for each message, then waits for each in turn\n\n"
    "  --producers N    batch only (25)\n"
    "  --messages M     for each producer and round (batch: 1000, one and async: 100000)\n"
    "  --rounds R       timed rounds, after one that is not timed (5)\n"
    "  --size BYTES     payload size (100)\n"
    "  --set KEY=VALUE  librdkafka setting, may be repeated\n"
    "  --stdin          print \"ready\", then run a round for each line read; ignores --rounds\n\n"
    "Prints one line of JSON (with --stdin one for each round). Exits 1 if anything failed.\n";

static struct {
    const char *scenario, *bootstrap, *topic;
    long producers, messages, rounds, size; /* producers, messages: 0 until given or defaulted */
    bool async, from_stdin;
} opt = {.rounds = 5, .size = 100};

typedef struct {
    long delivered, failed;
    double started, finished;
} result_t;

typedef struct {
    _Alignas(64) result_t round; /* written for every report: no two may share a cache line */
    pthread_t thread;
    rd_kafka_t *rk;
    rd_kafka_topic_t *rkt;
} producer_t;

enum { MAX_PRODUCERS = 1000, MAX_ROUNDS = 1000 };
static producer_t producers[MAX_PRODUCERS];
static rd_kafka_conf_t *conf;     /* each producer gets a copy */
static char *payload;             /* one for all: it is only read */
static pthread_barrier_t barrier; /* all producers and main, before and after each round */
static bool no_more_rounds;       /* main sets it just before the barrier */
static atomic_int failure;        /* error of the latest message that failed, if any */

/* Not exit: other threads may be inside librdkafka and what it uses. */
#define die(...) \
    (fprintf(stderr, "baseline: " __VA_ARGS__), fputc('\n', stderr), fflush(stdout), _exit(1))

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void count(result_t *round, rd_kafka_resp_err_t error) {
    if (error)
        failure = error;
    *(error ? &round->failed : &round->delivered) += 1;
}

static void die_if_failed(result_t r) {
    if (r.failed)
        die("messages failed: %ld, the latest: %s", r.failed, rd_kafka_err2str(failure));
}

/* The report comes back with the opaque pointer. */
static void enqueue(producer_t *p, int flags, void *opaque) {
    while (rd_kafka_produce(p->rkt, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY | flags, payload,
                            (size_t)opt.size, NULL, 0, opaque) == -1) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            die("cannot produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(p->rk, 100); /* only a served report makes room */
    }
}

/* ---- batch and one: the producing thread serves its own reports, so needs no locks ---- */

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    count(message->_private, message->err);
}

static void produce_and_count(producer_t *p, long n) {
    for (long i = 0; i < n; i++) {
        enqueue(p, 0, &p->round);
        if (i % 1000 == 999) /* serving reports on the way is about a tenth faster than all at the end */
            rd_kafka_poll(p->rk, 0);
    }
    while (p->round.delivered + p->round.failed < n)
        rd_kafka_poll(p->rk, 1000);
    p->round.finished = now();
}

/* ---- async: a state for each message, and a thread of its own to serve the reports ---- */

/* What a program that hands out a promise for each message has to keep. Both the program and
 * the outstanding report hold a reference: in general neither knows who is done with it last. */
typedef struct {
    atomic_int phase, refs;
    rd_kafka_resp_err_t status;
    int32_t partition;
    int64_t offset;
} delivery_t;

/* AWAITED is PENDING with a thread asleep on it: only that makes the report pay for a wake-up. */
enum { PENDING, AWAITED, DONE };
static delivery_t **deliveries;
static pthread_t poller;
static atomic_bool closing;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one will do: there is one waiter */
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;

static void release(delivery_t *d) {
    if (atomic_fetch_sub(&d->refs, 1) == 1)
        free(d);
}

static void on_report_async(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    delivery_t *d = message->_private;
    (void)rk, (void)opaque;
    d->status = message->err;
    d->partition = message->partition;
    d->offset = message->offset;
    if (atomic_exchange(&d->phase, DONE) == AWAITED) {
        /* The lock keeps the signal out of the gap between the waiter's look at the phase and
         * its sleep, where it would be lost. */
        pthread_mutex_lock(&lock);
        pthread_cond_signal(&arrived);
        pthread_mutex_unlock(&lock);
    }
    release(d);
}

static void *poll_reports(void *rk) {
    while (!atomic_load(&closing))
        rd_kafka_poll(rk, 100);
    return NULL;
}

static void await(delivery_t *d) {
    int expected = PENDING;
    /* Fails only if the report came first; then there is no need for the lock. */
    if (!atomic_compare_exchange_strong(&d->phase, &expected, AWAITED))
        return;
    pthread_mutex_lock(&lock);
    while (atomic_load(&d->phase) != DONE)
        pthread_cond_wait(&arrived, &lock);
    pthread_mutex_unlock(&lock);
}

static void produce_and_await(producer_t *p, long n) {
    for (long i = 0; i < n; i++) {
        if (!(deliveries[i] = malloc(sizeof(delivery_t))))
            die("out of memory");
        atomic_init(&deliveries[i]->phase, PENDING);
        atomic_init(&deliveries[i]->refs, 2);
        /* With a full queue it can just block, as the poller makes room. */
        enqueue(p, RD_KAFKA_MSG_F_BLOCK, deliveries[i]);
    }
    for (long i = 0; i < n; i++) {
        await(deliveries[i]);
        count(&p->round, deliveries[i]->status);
    }
    p->round.finished = now();
    for (long i = 0; i < n; i++)
        release(deliveries[i]);
}

/* ---- producers and rounds ---- */

static void open_producer(producer_t *p) {
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t error;
    char why[512];

    if (!(p->rk = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_dup(conf), why, sizeof why)))
        die("cannot make a producer: %s", why);
    if (!(p->rkt = rd_kafka_topic_new(p->rk, opt.topic, NULL)))
        die("topic %s: %s", opt.topic, rd_kafka_err2str(rd_kafka_last_error()));
    /* A wrong address would else show only when the first message times out, after minutes. */
    if ((error = rd_kafka_metadata(p->rk, 0, p->rkt, &metadata, 20000)))
        die("no answer from %s: %s", opt.bootstrap, rd_kafka_err2str(error));
    rd_kafka_metadata_destroy(metadata);
    if (opt.async && pthread_create(&poller, NULL, poll_reports, p->rk))
        die("cannot start a thread");
}

static void *run_producer(void *arg) {
    producer_t *p = arg;
    void (*produce)(producer_t *, long) = opt.async ? produce_and_await : produce_and_count;

    open_producer(p);
    produce(p, 1);
    die_if_failed(p->round);
    while (pthread_barrier_wait(&barrier), !no_more_rounds) {
        p->round = (result_t){.started = now()};
        produce(p, opt.messages);
        pthread_barrier_wait(&barrier);
    }
    if (opt.async) {
        atomic_store(&closing, true);
        pthread_join(poller, NULL);
    }
    rd_kafka_topic_destroy(p->rkt);
    rd_kafka_destroy(p->rk);
    return NULL;
}

/* From the first producer off the barrier to the last one back. Main's own clock will not do: on
 * a busy machine main may come to run long after either. */
static result_t run_round(void) {
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    result_t all = producers[0].round;
    for (long i = 1; i < opt.producers; i++) {
        const result_t *one = &producers[i].round;
        all.delivered += one->delivered;
        all.failed += one->failed;
        all.started = one->started < all.started ? one->started : all.started;
        all.finished = one->finished > all.finished ? one->finished : all.finished;
    }
    return all;
}

static void rounds_on_request(void) {
    puts("ready");
    fflush(stdout);
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n')
            continue;
        result_t r = run_round();
        printf("{\"seconds\":%.6f,\"delivered\":%ld,\"failed\":%ld}\n", r.finished - r.started,
               r.delivered, r.failed);
        fflush(stdout);
        die_if_failed(r);
    }
}

static void all_rounds(void) {
    static double seconds[MAX_ROUNDS];
    result_t all = {0};
    for (long i = 0; i < opt.rounds; i++) {
        result_t r = run_round();
        all.delivered += r.delivered;
        all.failed += r.failed;
        seconds[i] = r.finished - r.started;
    }
    printf("{\"scenario\":\"%s\",\"producers\":%ld,\"messages\":%ld,\"rounds\":%ld,"
           "\"delivered\":%ld,\"failed\":%ld,\"seconds\":[",
           opt.scenario, opt.producers, opt.messages, opt.rounds, all.delivered, all.failed);
    for (long i = 0; i < opt.rounds; i++)
        printf("%s%.6f", i ? "," : "", seconds[i]);
    printf("],\"msgs_per_s\":[");
    for (long i = 0; i < opt.rounds; i++)
        printf("%s%.0f", i ? "," : "", (double)(opt.producers * opt.messages) / seconds[i]);
    printf("],\"librdkafka\":\"%s\"}\n", rd_kafka_version_str());
    die_if_failed(all);
}

static long number(const char *text, long least, long most) {
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < least || value > most)
        die("%s: not a whole number from %ld to %ld", text, least, most);
    return value;
}

static void set(const char *key, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, key, value, why, sizeof why))
        die("%s=%s: %s", key, value, why);
}

static void read_arguments(int argc, char **argv) {
    static const struct option options[] = {
        {"bootstrap", 1, NULL, 'b'}, {"topic", 1, NULL, 't'},  {"producers", 1, NULL, 'p'},
        {"messages", 1, NULL, 'm'},  {"rounds", 1, NULL, 'r'}, {"size", 1, NULL, 's'},
        {"set", 1, NULL, 'o'},       {"stdin", 0, NULL, 'i'},  {"help", 0, NULL, 'h'}, {0}};
    char *value;
    conf = rd_kafka_conf_new();
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'b': set("bootstrap.servers", opt.bootstrap = optarg); break;
        case 't': opt.topic = optarg; break;
        case 'p': opt.producers = number(optarg, 1, MAX_PRODUCERS); break;
        case 'm': opt.messages = number(optarg, 1, 100000000); break;
        case 'r': opt.rounds = number(optarg, 1, MAX_ROUNDS); break;
        case 's': opt.size = number(optarg, 0, 1000000000); break;
        case 'o':
            if (!(value = strchr(optarg, '=')))
                die("--set %s: not KEY=VALUE", optarg);
            *value++ = '\0';
            set(optarg, value);
            break;
        case 'i': opt.from_stdin = true; break;
        case 'h': fputs(usage, stdout); exit(0);
        default: die("try --help"); /* getopt has said what is wrong */
        }
    }
    opt.scenario = optind + 1 == argc ? argv[optind] : "";
    opt.async = !strcmp(opt.scenario, "async");
    bool batch = !strcmp(opt.scenario, "batch");
    bool known = batch || opt.async || !strcmp(opt.scenario, "one");
    if (!known || !opt.bootstrap || !opt.topic)
        die("need a scenario (batch, one or async), --bootstrap and --topic; try --help");
    if (opt.producers > 1 && !batch)
        die("scenario %s has a single producer", opt.scenario);
    opt.producers = opt.producers ? opt.producers : batch ? 25 : 1;
    opt.messages = opt.messages ? opt.messages : batch ? 1000 : 100000;
    payload = malloc((size_t)opt.size + 1);
    deliveries = malloc((size_t)opt.messages * sizeof *deliveries);
    if (!payload || !deliveries)
        die("out of memory");
    memset(payload, 'x', (size_t)opt.size);
    rd_kafka_conf_set_dr_msg_cb(conf, opt.async ? on_report_async : on_report);
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    pthread_barrier_init(&barrier, NULL, (unsigned)opt.producers + 1);
    for (long i = 0; i < opt.producers; i++)
        if (pthread_create(&producers[i].thread, NULL, run_producer, &producers[i]))
            die("cannot start a thread");

    die_if_failed(run_round()); /* the warm-up under full load */
    (opt.from_stdin ? rounds_on_request : all_rounds)();
    no_more_rounds = true;
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < opt.producers; i++)
        pthread_join(producers[i].thread, NULL);
    return 0;
}
