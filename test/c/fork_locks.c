/*
 * The native core without Ruby: forks while a thread is stopped at each place where the core holds a lock, or serves librdkafka's
 * events and callbacks (held.h). Each child does the same as the Ruby classes do in a child: it drops inherited objects, creates,
 * uses and closes its own clients, forks again, and ends. Built and run by test/proofs/fork_locks_test.rb.
 *
 *   fork_locks ROUNDS
 *
 * Prints a line "lock function" for each place, and finally "children N hung N wrong N unmet N".
 */
#include "admin/admin.h"
#include "consume/consume.h"
#include "produce/produce.h"
#include <errno.h>
#include <librdkafka/rdkafka_mock.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#undef pthread_mutex_lock /* the locks of this file are not stopped at */

enum { PLACES = 256, PATIENCE_US = 20 * 1000 * 1000, CHILD_SECONDS = 20, UNMET_SECONDS = 5, ENOUGH = 2 };

static char bootstraps[512];
static struct ps_producer_settings settings = {
    .max_time_us = 100000, .sweep_us = 1000, .sticky_ms = 10, .transaction_timeout_ms = 10000,
    .client = { .close_timeout_ms = 5000, .rejection_us = 60000000, .logs_to_mailbox = true },
};
static const struct ps_consumer_settings consumer_settings = { .nap_us = 100000, .client = { .close_timeout_ms = 5000, .rejection_us = -1 } };

static const struct ps_admin_settings admin_settings = {
    .max_time_us = 100000, .sweep_us = 1000, .client = { .close_timeout_ms = 5000, .rejection_us = -1 },
};

/* The objects that exist now, which a child inherits. */
static struct {
    struct ps_poller *poller;
    struct ps_events *events;
    struct ps_producer *producer;
    struct ps_consumer *consumer;
    struct ps_admin *admin;
    struct ps_admin_call *call;
    struct ps_slot *slot; /* with a reference and a handle */
    struct ps_batch *batch;
    struct ps_space_place *place;
    struct ps_job *job;
} volatile now;

/* ---- places ---- */

static struct {
    char what[64];
    const char *function;
} places[PLACES];
static _Atomic int place_count, wanted = -1;
static _Atomic int cycles; /* how often the parent's thread has used everything */
static atomic_flag places_lock = ATOMIC_FLAG_INIT;
static sem_t stopped, go;
static _Atomic bool child;
static _Thread_local bool forks;

static bool is_lock_of(const struct ps_client *client, const pthread_mutex_t *mutex)
{
    return client && mutex == &client->lock;
}

/* The owner of a completion's lock. */
static const char *owner_of(const pthread_mutex_t *mutex)
{
    const struct ps_producer *producer = now.producer;
    const struct ps_consumer *consumer = now.consumer;
    const struct ps_admin *admin = now.admin;
    if (is_lock_of(admin ? &admin->client : NULL, mutex)) return "client.lock";
    if (now.call && mutex == &now.call->lock) return "call.lock";
    if (is_lock_of(producer ? &producer->client : NULL, mutex) || is_lock_of(consumer ? &consumer->client : NULL, mutex)) return "client.lock";
    if (consumer && mutex == &consumer->bell.lock) return "bell.lock";
    if (now.place && mutex == &now.place->lock) return "place.lock";
    return "job.lock";
}

static void name_place(char name[64], const pthread_mutex_t *mutex, const char *what)
{
    if (!strcmp(what, "completion->lock")) what = owner_of(mutex);
    if (!strcmp(what, "lock")) what = "client.lock"; /* transaction.c */
    if (*what == '&') what++;
    if (!strncmp(what, "producer->", 10)) what += 10;
    if (!strncmp(what, "admin->", 7)) what += 7;
    if (!strcmp(what, "commits->lock")) what = "async_commits.lock";
    char *end = name;
    for (; *what && end < name + 60; what++) {
        if (what[0] == '-' && what[1] == '>') {
            *end++ = '.';
            what++;
            if (!strncmp(what + 1, "singleton.", 10)) what += 10;
        } else {
            *end++ = *what;
        }
    }
    *end = '\0';
}

static int place_of(const char *name, const char *function)
{
    int i = 0;
    while (atomic_flag_test_and_set(&places_lock)) sched_yield();
    int count = atomic_load(&place_count);
    while (i < count && (strcmp(places[i].what, name) || strcmp(places[i].function, function))) i++;
    if (i == count && count < PLACES) {
        strcpy(places[i].what, name);
        places[i].function = function;
        atomic_store(&place_count, count + 1);
    }
    atomic_flag_clear(&places_lock);
    return i;
}

void held_here(pthread_mutex_t *mutex, const char *what, const char *function)
{
    char name[64];
    if (forks || atomic_load(&child)) return;
    name_place(name, mutex, what);
    int here = place_of(name, function);
    if (!atomic_compare_exchange_strong(&wanted, &here, -1)) return;
    sem_post(&stopped);
    while (sem_wait(&go) != 0) continue;
}

/* ---- what clients are used for: in the parent and in children ---- */

static void die(const char *what)
{
    printf("STUCK in the %s: %s\n", atomic_load(&child) ? "child" : "parent", what);
    fflush(stdout);
    _exit(9);
}

static void wait_for(struct ps_completion *completion, const char *what)
{
    struct ps_waiter waiter = { 0 };
    int64_t deadline_us = ps_now_us() + PATIENCE_US;
    while (ps_waiter_join(&waiter, completion, NULL)) {
        uint32_t state = ps_waiter_sleep(&waiter, deadline_us);
        ps_waiter_leave(&waiter, completion);
        if (state == PS_DONE) return;
        if (ps_now_us() >= deadline_us) die(what);
    }
}

static rd_kafka_conf_t *conf_with(const char *name, const char *value)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "log_level", "0", NULL, 0);
    rd_kafka_conf_set(conf, "log.queue", "true", NULL, 0);
    rd_kafka_conf_set(conf, "bootstrap.servers", bootstraps, NULL, 0);
    if (name) rd_kafka_conf_set(conf, name, value, NULL, 0);
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_LOG | RD_KAFKA_EVENT_STATS);
    return conf;
}

static void open_it(struct ps_client *client)
{
    char errstr[512];
    if (ps_client_open(client, errstr, sizeof(errstr)) < 0) die(errstr);
}

static void close_it(struct ps_client *client)
{
    struct ps_job *closing = ps_client_close(client, 5000, NULL);
    if (!closing) return;
    now.job = closing;
    wait_for(&closing->completion, "a close");
    now.job = NULL;
    ps_job_unref(closing);
}

static void produce(struct ps_producer *producer, uint32_t size)
{
    uint32_t sent = 0;
    struct ps_batch *batch = ps_batch_new(producer, size);
    if (!atomic_load(&child)) now.batch = batch;
    if (!ps_client_enter(&producer->client)) die("entering");
    struct ps_topic *topic = ps_producer_topic(producer, "locks", 5);
    atomic_fetch_add(&producer->accepted, size);
    for (; sent < size; sent++) {
        rd_kafka_vu_t arguments[] = {
            { .vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = topic->rkt },
            { .vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY },
            { .vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = ps_batch_delivery(batch, sent) },
            { .vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = { "x", 1 } },
        };
        rd_kafka_error_t *error = rd_kafka_produceva(producer->client.rk, arguments, 4);
        if (error) die(rd_kafka_error_string(error));
    }
    ps_client_exit(&producer->client);
    wait_for(&batch->completion, "delivery results");
    if (atomic_load(&batch->failed)) die("messages that were not delivered");
    now.batch = NULL;
    ps_batch_release(batch);
}

static void run_job(struct ps_job *job, const char *what)
{
    if (!job) die(what);
    wait_for(&job->completion, what);
    ps_job_unref(job);
}

/* Publishes events on this thread. */
static void publish(struct ps_events *events)
{
    struct ps_dispatcher dispatcher = { 0 };
    if (!ps_dispatcher_next(&dispatcher, ps_now_us() + 1000)) return;
    struct ps_events *found = atomic_load(&dispatcher.events);
    ps_events_release_label(events, ps_events_keep_label(events, 7));
    for (struct ps_event *event; (event = ps_events_take(found));) ps_event_free(found, event);
    ps_events_take_label(events, ps_events_keep_label(events, 8));
    ps_events_clear(found);
    ps_dispatcher_end(&dispatcher, false);
}

static void queue_for_space(struct ps_producer *producer)
{
    struct ps_waiter waiter = { 0 };
    now.place = ps_place_join(producer, 1);
    struct ps_space_place *place = now.place;
    if (ps_waiter_join(&waiter, &place->turn, NULL)) die("no turn for the first call");
    ps_place_try(place);
    ps_place_full(place);
    ps_space_freed(&producer->space, 1);
    now.place = NULL;
    ps_place_leave(place, true);
}

static void use_mailbox(struct ps_client *client)
{
    ps_client_log(client, 5, "TEST", "a line");
    ps_mailbox_interrupt(NULL);
    ps_mailbox_wait();
    for (struct ps_mail *mail; (mail = ps_mailbox_take());) free(mail);
    ps_mailbox_dropped();
}

static void use_client(struct ps_producer *producer, struct ps_events *events)
{
    char text[600];
    struct ps_poller_stats stats;
    if (ps_tokens_enter(&producer->client)) die("a token before the client is open");
    open_it(&producer->client);
    ps_set_credentials(&producer->client, "me", "secret", text, sizeof(text));
    ps_client_last_error(&producer->client, text, sizeof(text));
    produce(producer, 8);
    queue_for_space(producer);
    publish(events);
    use_mailbox(&producer->client);
    run_job(&ps_producer_metadata(producer, "locks", 5, 5000)->job, "metadata");
    run_job(&ps_producer_flush(producer, 5000)->job, "a flush");
    run_job(ps_producer_purge(producer), "a purge");
    ps_poller_stats(producer->polled.poller, &stats);
    if (stats.clients == 0 || !stats.thread_id) die("the poller");
    if (ps_registry_count() == 0) die("the registry");
    ps_registry_closed_by_us();
    close_it(&producer->client);
}

/* Acts as the producer's `shareable`, as its handle and as the thread that serves it. */
static void use_slot(struct ps_slot *slot, struct ps_producer *producer)
{
    static const struct ps_limits terms = { .payload = 1000, .total = 1000, .queue = 1000 };
    struct ps_limits found;
    char text[512];
    uint64_t question = 0;
    bool answered, over;
    ps_slot_attend(slot, true);
    if (ps_slot_renewed(slot, 0, &question, &answered)) die("a client in an empty slot");
    if (ps_slot_question(slot, &over) != question || over) die("a question");
    ps_slot_put(slot, producer, &terms);
    ps_slot_answer(slot, question, "");
    ps_slot_trouble(slot, text, sizeof(text));
    ps_slot_bar(slot, "barred");
    if (ps_slot_enter(slot, &found, text, sizeof(text)) != PS_SLOT_BARRED) die("a bar");
    ps_slot_bar(slot, "");
    struct ps_producer *taken = ps_slot_take(slot);
    if (taken != producer) die("another client than the one in the slot");
    ps_client_unref(&taken->client);
    ps_slot_close(slot);
}

/* Closing waits a second for it, while librdkafka looks for the group's coordinator. So not each use of a consumer commits. */
static void commit_now_and_then(struct ps_consumer *consumer)
{
    if (atomic_load(&cycles) % 3 != 0) return;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, "locks", 0)->offset = 0;
    if (ps_consumer_commit_async(consumer, list) != 0) die("a commit that no caller waits for");
}

static void use_consumer(struct ps_consumer *consumer)
{
    struct ps_waiter waiter = { 0 };
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, "locks", 0)->offset = 0;
    open_it(&consumer->client);
    run_job(&ps_consumer_start(consumer, PS_CONSUMER_ASSIGN, list, 5000, 0)->job, "an assignment");
    if (ps_waiter_join(&waiter, &consumer->bell.sleepers, NULL)) {
        ps_bell_ring(&consumer->bell);
        ps_waiter_sleep(&waiter, ps_now_us() + 1000000);
        ps_waiter_leave(&waiter, &consumer->bell.sleepers);
    }
    commit_now_and_then(consumer);
    close_it(&consumer->client);
}

/* Answered at once, with an error: the embedded cluster does not know this request. */
static void use_admin(struct ps_admin *admin)
{
    char errstr[256];
    open_it(&admin->client);
    if (!ps_admin_use(admin) || !ps_client_enter(&admin->client)) die("an admin client that did not open");
    struct ps_admin_call *call = ps_admin_call_begin(admin);
    now.call = call;
    rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(admin->client.rk, RD_KAFKA_ADMIN_OP_DELETETOPICS);
    rd_kafka_AdminOptions_set_broker(options, 1, errstr, sizeof(errstr));
    rd_kafka_AdminOptions_set_opaque(options, call);
    rd_kafka_DeleteTopic_t *topic = rd_kafka_DeleteTopic_new("none");
    rd_kafka_DeleteTopics(admin->client.rk, &topic, 1, options, admin->polled.queue);
    rd_kafka_DeleteTopic_destroy(topic);
    rd_kafka_AdminOptions_destroy(options);
    ps_client_exit(&admin->client);
    wait_for(&call->completion, "an admin request");
    if (!ps_client_enter(&admin->client)) die("an admin client that closed");
    rd_kafka_event_t *answer = ps_admin_call_take(admin, call);
    if (!answer) die("no answer to an admin request");
    ps_admin_answer_destroy(answer);
    ps_client_exit(&admin->client);
    now.call = NULL;
    ps_admin_call_leave(admin, call);
    struct ps_admin_job *job = ps_admin_ask(admin, PS_ADMIN_BROKERS, NULL, 5000, &call);
    if (!job) die("a question");
    now.call = call;
    wait_for(&call->completion, "a question");
    now.call = NULL;
    ps_admin_call_leave(admin, call);
    ps_job_abandon(&job->job);
    ps_admin_release(admin);
    close_it(&admin->client);
}

/* ---- the parent's thread, which is stopped ---- */

static struct ps_producer *new_client(struct ps_poller *poller, rd_kafka_conf_t *conf)
{
    struct ps_producer *producer = ps_producer_new(conf, "locks", poller, &settings);
    ps_producer_set_events(producer, now.events);
    now.producer = producer;
    return producer;
}

static void done_with(struct ps_producer *producer)
{
    now.producer = NULL;
    ps_client_unref(&producer->client);
}

static void reject(struct ps_producer *producer)
{
    char text[600];
    struct ps_rejection *rejection = &producer->client.rejection;
    if (ps_rejection_error(rejection, producer->client.rk, RD_KAFKA_RESP_ERR__SSL, "rejected"))
        ps_rejection_now(rejection, text, sizeof(text));
    ps_client_note_error(&producer->client, RD_KAFKA_RESP_ERR__SSL, "rejected");
    atomic_store(&rejection->worked, false);
    ps_rejection_forget(rejection);
}

static void transact(void)
{
    struct ps_producer *producer = new_client(now.poller, conf_with("transactional.id", "locks"));
    producer->settings.transactional = producer->settings.idempotent = true;
    open_it(&producer->client);
    struct ps_transaction_job *job = ps_transaction_start(producer, PS_TRANSACTIONS_INIT, 10000, NULL, NULL);
    run_job(job ? &job->job : NULL, "a transaction's call");
    close_it(&producer->client);
    done_with(producer);
}

static void abandon_and_hurry(void)
{
    struct ps_producer *producer = new_client(now.poller, conf_with(NULL, NULL));
    open_it(&producer->client);
    now.producer = NULL;
    ps_client_abandon(&producer->client);
    struct ps_closing closing[4];
    for (unsigned i = ps_registry_close_all(closing, 4); i-- > 0;) {
        ps_job_unref(closing[i].job);
        ps_client_unref(closing[i].client);
    }
    ps_registry_hurry();
    while (ps_registry_count() > 0) usleep(1000);
}

static _Atomic bool finished;

static void *act(void *unused)
{
    (void)unused;
    while (!atomic_load(&finished)) {
        now.events = ps_events_new(100, false, ps_delivery_release);
        atomic_store(&now.events->wanted, PS_EVENT_DELIVERED | PS_EVENT_FAILED | PS_EVENT_ERROR);
        struct ps_producer *producer = new_client(now.poller, conf_with(NULL, NULL));
        use_client(producer, now.events);
        now.slot = ps_slot_new();
        ps_slot_handle_made(now.slot);
        use_slot(now.slot, producer);
        struct ps_slot *slot = now.slot;
        now.slot = NULL;
        ps_slot_handle_gone(slot);
        ps_slot_unref(slot);
        done_with(producer);
        producer = new_client(now.poller, conf_with("bootstrap.servers", "127.0.0.1:1"));
        open_it(&producer->client);
        reject(producer);
        close_it(&producer->client);
        done_with(producer);
        transact();
        abandon_and_hurry();
        struct ps_consumer *consumer = ps_consumer_new(conf_with("group.id", "locks"), "locks", &consumer_settings);
        now.consumer = consumer;
        use_consumer(consumer);
        now.consumer = NULL;
        ps_client_unref(&consumer->client);
        struct ps_admin *admin = ps_admin_new(conf_with(NULL, NULL), "locks", now.poller, &admin_settings);
        now.admin = admin;
        use_admin(admin);
        now.admin = NULL;
        ps_client_unref(&admin->client);
        publish(now.events);
        ps_dispatch_busy(now.events);
        struct ps_events *events = now.events;
        now.events = NULL;
        atomic_store(&events->wanted, 0);
        ps_events_clear(events);
        ps_events_unref(events);
        atomic_fetch_add(&cycles, 1);
    }
    return NULL;
}

/* ---- children ---- */

static _Atomic int *stage; /* shared memory: the stage that a child has reached */

static void drop_slot(struct ps_slot *slot)
{
    struct ps_limits terms;
    char why[256];
    if (ps_slot_enter(slot, &terms, why, sizeof(why)) != PS_SLOT_FORKED || ps_slot_take(slot)) die("a usable slot of the parent");
    ps_slot_put(slot, NULL, NULL);
    ps_slot_close(slot);
    ps_slot_handle_gone(slot);
    ps_slot_unref(slot);
}

/* Acts like a call that was interrupted by a trap that forked. Listeners get no event for messages that were not sent. */
static void drop_batch(struct ps_batch *batch)
{
    struct ps_topic_name *topic = calloc(1, sizeof(*topic) + 8);
    for (uint32_t i = 0; i < batch->size; i++) ps_batch_delivery(batch, i)->topic_name = topic;
    ps_batch_never_sent(batch, 0, RD_KAFKA_RESP_ERR__QUEUE_FULL);
    ps_batch_release(batch);
    free(topic);
}

/* Like producer_class.c, consumer_class.c, admin_client.c, event_source.c, shareable_producer.c and poller_class.c. */
static void drop_what_is_inherited(void)
{
    if (now.slot) drop_slot(now.slot);
    if (now.place) ps_place_leave(now.place, false);
    if (now.batch) drop_batch(now.batch);
    if (now.job) ps_job_abandon(now.job);
    if (now.producer) ps_client_abandon(&now.producer->client);
    if (now.consumer) ps_client_abandon(&now.consumer->client);
    if (now.call) ps_admin_call_leave(now.admin, now.call); /* as a call that was interrupted by a trap that forked */
    if (now.admin) ps_client_abandon(&now.admin->client);
    if (now.events) ps_events_unref(now.events);
    ps_poller_unref(now.poller);
}

static void live(bool fork_again)
{
    struct ps_closing closing[4];
    *stage = 1;
    if (ps_registry_count() != 0 || ps_registry_closing_count() != 0) die("the child's registry has clients of the parent");
    if (ps_registry_close_all(closing, 4) != 0) die("the child would close clients of the parent");
    *stage = 2;
    rd_kafka_conf_t *conf = now.producer ? rd_kafka_conf_dup(now.producer->client.conf) : conf_with(NULL, NULL);
    rd_kafka_conf_set(conf, "bootstrap.servers", bootstraps, NULL, 0);
    rd_kafka_conf_set(conf, "transactional.id", NULL, NULL, 0);
    drop_what_is_inherited();
    *stage = 3;
    struct ps_poller *poller = ps_poller_new(0);
    struct ps_events *events = ps_events_new(100, false, ps_delivery_release);
    atomic_store(&events->wanted, PS_EVENT_DELIVERED);
    struct ps_producer *producer = ps_producer_new(conf, "child", poller, &settings);
    ps_producer_set_events(producer, events);
    use_client(producer, events);
    ps_client_abandon(&producer->client);
    *stage = 4;
    struct ps_consumer *consumer = ps_consumer_new(conf_with("group.id", "child"), "child", &consumer_settings);
    use_consumer(consumer);
    ps_client_unref(&consumer->client);
    struct ps_admin *admin = ps_admin_new(conf_with(NULL, NULL), "child", poller, &admin_settings);
    use_admin(admin);
    ps_client_unref(&admin->client);
    *stage = 5;
    pid_t pid = fork_again ? fork() : -1;
    if (pid == 0) {
        now.producer = NULL;
        now.consumer = NULL;
        now.admin = NULL;
        now.call = NULL;
        now.events = NULL;
        now.slot = NULL;
        now.batch = NULL;
        now.place = NULL;
        now.job = NULL;
        if (ps_registry_count() != 0) _exit(9);
        _exit(0);
    }
    int status = 0;
    if (pid > 0 && (waitpid(pid, &status, 0) != pid || status != 0)) die("a child of a child");
    *stage = 6;
}

static void child_main(int number)
{
    atomic_store(&child, true);
    alarm(CHILD_SECONDS);
    switch (number % 8) {
    case 0: _exit(0);
    case 1: exit(0);
    default: live(number % 8 == 2);
    }
    if (number % 8 == 3) exit(0);
    _exit(0);
}

/* Returns false if no thread reached the place in time. */
static bool stop_at(int place)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += UNMET_SECONDS;
    atomic_store(&wanted, place);
    while (sem_timedwait(&stopped, &until) != 0)
        if (errno == ETIMEDOUT) {
            if (atomic_compare_exchange_strong(&wanted, &place, -1)) return false;
            while (sem_wait(&stopped) != 0) continue; /* a thread has just stopped there */
            return true;
        }
    return true;
}

/* Returns the child's wait status; 0 means success. */
static int fork_at(int number)
{
    int status;
    *stage = 0;
    pid_t pid = fork();
    if (pid == 0) child_main(number);
    sem_post(&go);
    if (waitpid(pid, &status, 0) != pid) die("waiting for a child");
    return status;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1, children = 0, hung = 0, wrong = 0, unmet = 0;
    pthread_t actor;
    forks = true;
    sem_init(&stopped, 0, 0);
    sem_init(&go, 0, 0);
    stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ps_fork_init();
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf_with(NULL, NULL), NULL, 0);
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(rk, 1);
    snprintf(bootstraps, sizeof(bootstraps), "%s", rd_kafka_mock_cluster_bootstraps(cluster));
    rd_kafka_mock_topic_create(cluster, "locks", 1, 1);
    now.poller = ps_poller_new(0);
    pthread_create(&actor, NULL, act, NULL);
    for (int64_t deadline_us = ps_now_us() + 3 * PATIENCE_US; atomic_load(&cycles) < 2; usleep(1000))
        if (ps_now_us() > deadline_us) die("stuck before the first fork");

    for (int round = 0; round < rounds; round++) {
        for (int place = 0; place < atomic_load(&place_count) && hung + wrong < ENOUGH; place++) {
            if (!stop_at(place)) {
                unmet++;
                printf("unmet %s %s\n", places[place].what, places[place].function);
                continue;
            }
            int number = rounds > 1 ? round + 2 : 2 + place % 6, status = fork_at(number);
            children++;
            printf("%s %s", places[place].what, places[place].function);
            if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) hung++;
            else if (status) wrong++;
            if (status) printf(": status %x, stage %d", status, *stage);
            printf("\n");
            fflush(stdout);
        }
    }
    atomic_store(&finished, true);
    pthread_join(actor, NULL);
    printf("children %d hung %d wrong %d unmet %d\n", children, hung, wrong, unmet);
    return hung || wrong;
}
