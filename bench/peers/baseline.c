/*
 * The plain C figures that all others are compared with: the same messages through the same librdkafka, with nothing
 * between the program and the library. It speaks the protocol of bench/README.md. To run it by hand, where each line on stdin
 * is a round:
 *
 *   cc -O2 -Wall -Wextra -pthread bench/peers/baseline.c -o baseline $(pkg-config --cflags --libs rdkafka)
 *   yes | head -5 | ./baseline batch --bootstrap 127.0.0.1:9092 --topic t --producers 25 --messages 1000 --size 100
 *
 * What keeps the comparison honest:
 *   - librdkafka's own defaults, changed only by --set, so that both sides can have the same;
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
    "usage: baseline WORKLOAD --bootstrap HOST:PORT[,..] --topic T --messages M [options]\n\n"
    "  batch         many producers, each with its own client and thread: produce all messages, then wait until\n"
    "                every delivery report has arrived\n"
    "  async         one producer: keep a state for each message, then wait for each in turn\n"
    "  sync          one producer: one message after the other\n"
    "  transactions  one producer: transactions of M messages each\n"
    "  life          makes producers one after the other, each sends M messages and waits; then closes them\n\n"
    "  --producers N     batch and life only (1)\n"
    "  --transactions T  transactions in a round (20)\n"
    "  --size BYTES      payload size (100)\n"
    "  --key, --headers  add a key, two headers\n"
    "  --set KEY=VALUE   librdkafka setting, may be repeated\n\n"
    "Prints a line of JSON when it is ready. Then it runs a round for each line on stdin, and prints a line of JSON\n"
    "for each round. Exits with 1 if anything failed.\n";

static struct {
    const char *bootstrap, *topic;
    long producers, messages, transactions, size;
    bool key, headers;
} opt = {.producers = 1, .transactions = 20, .size = 100};

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

enum { MAX_PRODUCERS = 1000, NO_SUCH_WORKLOAD = 64 };
static producer_t producers[MAX_PRODUCERS];
static rd_kafka_conf_t *conf;     /* each producer gets a copy */
static char **payloads;           /* one for each message of a round, as in a real program */
static pthread_barrier_t barrier; /* all producers and main: when ready, before and after each round */
static bool no_more_rounds;       /* main sets it just before the barrier */
static atomic_int failure;        /* error of the latest message that failed, if any */
static void (*produce)(producer_t *, long messages); /* the workload */
static bool life;

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

static rd_kafka_resp_err_t produce_plain(producer_t *p, long number, int flags, const char *key, size_t size, void *opaque) {
    int failed = rd_kafka_produce(p->rkt, RD_KAFKA_PARTITION_UA, flags, payloads[number], (size_t)opt.size, key, size, opaque);
    return failed ? rd_kafka_last_error() : RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t produce_with_headers(producer_t *p, long number, int flags, const char *key, size_t size, void *opaque) {
    static const char trace[] = "tttttttttttttttttttttttttttttttt";
    return rd_kafka_producev(p->rk, RD_KAFKA_V_RKT(p->rkt), RD_KAFKA_V_MSGFLAGS(flags), RD_KAFKA_V_KEY(key, size),
                             RD_KAFKA_V_VALUE(payloads[number], (size_t)opt.size), RD_KAFKA_V_HEADER("trace", trace, sizeof trace - 1),
                             RD_KAFKA_V_HEADER("kind", "bench", 5), RD_KAFKA_V_OPAQUE(opaque), RD_KAFKA_V_END);
}

/* The report comes back with the opaque pointer. */
static void enqueue(producer_t *p, long number, int flags, void *opaque) {
    char key[24];
    size_t size = opt.key ? (size_t)snprintf(key, sizeof key, "%ld", number) : 0;
    rd_kafka_resp_err_t error;
    flags |= RD_KAFKA_MSG_F_COPY;
    while ((error = (opt.headers ? produce_with_headers : produce_plain)(p, number, flags, size ? key : NULL, size, opaque))) {
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            die("cannot produce: %s", rd_kafka_err2str(error));
        rd_kafka_poll(p->rk, 100); /* only a served report frees queue space */
    }
}

/* ---- all workloads but async: the producing thread serves its own reports, so it needs no locks ---- */

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    count(message->_private, message->err);
}

static void enqueue_all(producer_t *p, long n) {
    for (long i = 0; i < n; i++) {
        enqueue(p, i, 0, &p->round);
        if (i % 1000 == 999) /* serving reports meanwhile is about a tenth faster than serving all at the end */
            rd_kafka_poll(p->rk, 0);
    }
}

static void produce_and_count(producer_t *p, long n) {
    enqueue_all(p, n);
    while (p->round.delivered + p->round.failed < n)
        rd_kafka_poll(p->rk, 1000);
    p->round.finished = now();
}

static double *latencies; /* of sync, in seconds */

static void produce_one_by_one(producer_t *p, long n) {
    for (long i = 0; i < n; i++) {
        double start = now();
        enqueue(p, i, 0, &p->round);
        while (p->round.delivered + p->round.failed <= i)
            rd_kafka_poll(p->rk, 1000);
        latencies[i] = now() - start;
    }
    p->round.finished = now();
}

static void die_if_error(const char *call, rd_kafka_error_t *error) {
    if (error)
        die("%s: %s", call, rd_kafka_error_string(error));
}

/* The commit sends lingering messages, waits for the reports and serves them. */
static void produce_in_transactions(producer_t *p, long n) {
    for (long t = 0; t < opt.transactions; t++) {
        die_if_error("begin", rd_kafka_begin_transaction(p->rk));
        enqueue_all(p, n);
        die_if_error("commit", rd_kafka_commit_transaction(p->rk, -1));
    }
    p->round.finished = now();
}

/* ---- async: a state for each message, and a separate thread that serves the reports ---- */

/* What a program keeps that returns a promise for each message. Both the program and the
 * outstanding report hold a reference: in general neither knows which of them releases it last. */
typedef struct {
    atomic_int phase, refs;
    rd_kafka_resp_err_t status;
    int32_t partition;
    int64_t offset;
} delivery_t;

/* AWAITED is PENDING with a sleeping thread: only then the report costs a wake-up. */
enum { PENDING, AWAITED, DONE };
static delivery_t **deliveries;
static pthread_t poller;
static atomic_bool closing;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one lock is enough: there is one waiter */
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
        /* The waiter checks the phase and then sleeps. The lock keeps the signal out of the gap
         * between the two, where it would be lost. */
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
    /* Fails only if the report came first. Then the lock is not needed. */
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
        /* With a full queue it may block, because the polling thread frees space. */
        enqueue(p, i, RD_KAFKA_MSG_F_BLOCK, deliveries[i]);
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
    /* Otherwise a wrong address would show only when the first message times out, after minutes. */
    if ((error = rd_kafka_metadata(p->rk, 0, p->rkt, &metadata, 20000)))
        die("no answer from %s: %s", opt.bootstrap, rd_kafka_err2str(error));
    rd_kafka_metadata_destroy(metadata);
    if (produce == produce_in_transactions)
        die_if_error("init", rd_kafka_init_transactions(p->rk, 60000));
    if (produce == produce_and_await && pthread_create(&poller, NULL, poll_reports, p->rk))
        die("cannot start a thread");
}

static void close_producer(producer_t *p) {
    if (produce == produce_and_await) {
        atomic_store(&closing, true);
        pthread_join(poller, NULL);
    }
    rd_kafka_topic_destroy(p->rkt);
    rd_kafka_destroy(p->rk);
}

static void *run_producer(void *arg) {
    producer_t *p = arg;

    open_producer(p);
    produce(p, 1); /* connects it */
    die_if_failed(p->round);
    pthread_barrier_wait(&barrier); /* ready */
    while (pthread_barrier_wait(&barrier), !no_more_rounds) {
        p->round = (result_t){.started = now()};
        produce(p, opt.messages);
        pthread_barrier_wait(&barrier);
    }
    close_producer(p);
    return NULL;
}

/* From the first producer that leaves the barrier to the last one that returns. Main's own clock would be
 * wrong: on a busy machine main may run long after either. */
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

static void print_round(result_t r) {
    printf("{\"seconds\":%.6f,\"delivered\":%ld,\"failed\":%ld", r.finished - r.started, r.delivered, r.failed);
    if (produce == produce_one_by_one) {
        for (long i = 0; i < opt.messages; i++)
            printf("%s%.1f", i ? "," : ",\"latencies_us\":[", latencies[i] * 1e6);
        putchar(']');
    }
    puts("}");
    fflush(stdout);
    die_if_failed(r);
}

/* life: a round measures exactly what the other workloads leave out of theirs. */
static void make_and_close(void) {
    result_t all = {.started = now()};
    for (long i = 0; i < opt.producers; i++) {
        producers[i].round = (result_t){0};
        open_producer(&producers[i]);
        produce(&producers[i], opt.messages);
        all.delivered += producers[i].round.delivered;
        all.failed += producers[i].round.failed;
    }
    double made = now();
    for (long i = 0; i < opt.producers; i++)
        close_producer(&producers[i]);
    all.finished = now();
    printf("{\"seconds\":%.6f,\"delivered\":%ld,\"failed\":%ld,\"start_ms\":%.3f,\"close_ms\":%.3f}\n",
           all.finished - all.started, all.delivered, all.failed, (made - all.started) * 1e3, (all.finished - made) * 1e3);
    fflush(stdout);
    die_if_failed(all);
}

static void rounds_on_request(void) {
    if (!life)
        pthread_barrier_wait(&barrier);
    printf("{\"ready\":\"librdkafka %s\",\"differs\":[]}\n", rd_kafka_version_str());
    fflush(stdout);
    for (int c; (c = getchar()) != EOF;)
        if (c == '\n')
            life ? make_and_close() : print_round(run_round());
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

static void read_options(int argc, char **argv) {
    static const struct option options[] = {
        {"bootstrap", 1, NULL, 'b'}, {"topic", 1, NULL, 't'},   {"producers", 1, NULL, 'p'}, {"transactions", 1, NULL, 'x'},
        {"messages", 1, NULL, 'm'},  {"key", 0, NULL, 'k'},     {"headers", 0, NULL, 'H'},   {"size", 1, NULL, 's'},
        {"set", 1, NULL, 'o'},       {"help", 0, NULL, 'h'},    {0}};
    char *value;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'b': set("bootstrap.servers", opt.bootstrap = optarg); break;
        case 't': opt.topic = optarg; break;
        case 'p': opt.producers = number(optarg, 1, MAX_PRODUCERS); break;
        case 'm': opt.messages = number(optarg, 1, 100000000); break;
        case 'x': opt.transactions = number(optarg, 1, 1000000); break;
        case 's': opt.size = number(optarg, 0, 1000000000); break;
        case 'k': opt.key = true; break;
        case 'H': opt.headers = true; break;
        case 'o':
            if (!(value = strchr(optarg, '=')))
                die("--set %s: not KEY=VALUE", optarg);
            *value++ = '\0';
            set(optarg, value);
            break;
        case 'h': fputs(usage, stdout); exit(0);
        default: die("try --help"); /* getopt has printed the problem */
        }
    }
}

static void choose_workload(const char *name) {
    static const struct {
        const char *name;
        void (*produce)(producer_t *, long);
    } workloads[] = {{"batch", produce_and_count},
                     {"async", produce_and_await},
                     {"sync", produce_one_by_one},
                     {"life", produce_and_count},
                     {"transactions", produce_in_transactions}};
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++)
        if (!strcmp(name, workloads[i].name))
            produce = workloads[i].produce;
    life = !strcmp(name, "life");
    if (!produce) {
        fprintf(stderr, "baseline: no workload \"%s\"; try --help\n", name);
        exit(NO_SUCH_WORKLOAD);
    }
}

static void prepare(int argc, char **argv) {
    conf = rd_kafka_conf_new();
    read_options(argc, argv);
    choose_workload(optind + 1 == argc ? argv[optind] : "");
    if (!opt.bootstrap || !opt.topic || !opt.messages)
        die("need --bootstrap, --topic and --messages; try --help");
    if (opt.producers > 1 && produce != produce_and_count)
        die("only batch and life have several producers");
    payloads = malloc((size_t)opt.messages * sizeof *payloads);
    deliveries = malloc((size_t)opt.messages * sizeof *deliveries);
    latencies = malloc((size_t)opt.messages * sizeof *latencies);
    if (!payloads || !deliveries || !latencies)
        die("out of memory");
    for (long i = 0; i < opt.messages; i++) {
        if (!(payloads[i] = malloc((size_t)opt.size + 1)))
            die("out of memory");
        memset(payloads[i], 'x', (size_t)opt.size);
    }
    rd_kafka_conf_set_dr_msg_cb(conf, produce == produce_and_await ? on_report_async : on_report);
}

int main(int argc, char **argv) {
    prepare(argc, argv);
    if (life) {
        rounds_on_request();
        return 0;
    }
    pthread_barrier_init(&barrier, NULL, (unsigned)opt.producers + 1);
    for (long i = 0; i < opt.producers; i++)
        if (pthread_create(&producers[i].thread, NULL, run_producer, &producers[i]))
            die("cannot start a thread");

    rounds_on_request();
    no_more_rounds = true;
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < opt.producers; i++)
        pthread_join(producers[i].thread, NULL);
    return 0;
}
