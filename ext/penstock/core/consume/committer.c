/*
 * The committer: the one native thread of the process that sends commits for which no caller waits, for all consumers, and
 * receives the answers. commits.c decides what to send; this file decides when the thread looks at which consumer.
 *
 * The thread never waits for one consumer. rd_kafka_commit_queue only hands the request to librdkafka's main thread, it takes
 * answers without waiting, and it sleeps on one word for all consumers. So a consumer whose brokers do not answer costs the
 * others nothing. A thread that has something for the committer rings a consumer's work: it pushes the work on a lock-free
 * stack, and wakes the committer if the stack was empty. When an answer comes, librdkafka's callback does the same. Work that
 * has a certain time is in a list, ordered by this time. So a turn's cost depends on the consumers that have something to do,
 * not on the others.
 *
 * No wake-up is lost: the committer reads the word before it takes the stack. It clears the mark `rung` of a work before it
 * looks at the consumer, so a ring that comes later pushes the work again.
 *
 * The poller thread does not do this work, for three reasons. A program that only consumes has no poller. Producers get their
 * delivery results from the poller, and it would wait for async_commits.lock, which another thread may hold while it copies a
 * long list of offsets or writes a line to stderr. And a commit would wait for the time slices of busy producers.
 *
 * The thread starts at the first need, and ends when it has had no work for 100 ms. So a program that commits after each
 * small batch does not start a thread each time: see LINGER_US.
 */
#include "consume/consume.h"

/* If the thread starts anew for each commit of a loop that waits for the results, the call takes 41 us instead of 22, and the
 * result comes after 300 us instead of 155 (measured). With this pause the thread starts up to ten times a second. */
enum { LINGER_US = 100 * 1000 };

struct committer {
    struct ps_singleton singleton;
    bool running;                          /* the thread exists, and has not decided to end */
    size_t working;                        /* how many consumers have work */
    _Atomic(struct ps_commit_work *) rung; /* a stack; any thread pushes. Each member owns a reference to its consumer */
    _Atomic bool joining_changed;          /* works with `held` are to be looked at */
    /* Of the thread: the works that have a time, or are held, with the earliest first. */
    struct ps_commit_work *first, *last;
};

static struct ps_singleton_kind committers = { .size = sizeof(struct committer) };

static struct committer *the_committer(void)
{
    return ps_singleton_get(&committers);
}

/* ---- ringing: any thread ---- */

static void work_push(struct committer *committer, struct ps_commit_work *work)
{
    if (atomic_exchange(&work->rung, true)) return; /* it is in the stack, and is looked at after it is taken */
    ps_client_retain(&work->consumer->client);
    struct ps_commit_work *head = atomic_load(&committer->rung);
    do work->rung_next = head;
    while (!atomic_compare_exchange_weak(&committer->rung, &head, work));
    if (!head) ps_singleton_changed(&committer->singleton); /* else the thread that pushed the first one has woken it, or will */
}

void ps_committer_ring(struct ps_commit_work *work)
{
    work_push(the_committer(), work);
}

void ps_committer_ring_cb(rd_kafka_t *rk, void *work)
{
    (void)rk;
    ps_committer_ring(work);
}

/* A sleeper counts itself, then reads `changes`, and then looks whether its turn has come. This thread has changed what the sleeper
 * looks at, then changes the word, and then looks for sleepers. So the sleeper sees the change, or it is woken. */
void ps_commit_line_changed(struct ps_commit_line *line)
{
    atomic_fetch_add(&line->changes, 1);
    if (atomic_load(&line->sleepers) > 0) ps_word_wake(&line->changes);
}

/* A callback may come after the consumer's work has ended, and the thread too. So it does not push the work, which would keep the
 * consumer for ever: it only makes the thread look, if there is one. */
void ps_committer_joining_changed(struct ps_commit_work *work)
{
    ps_commit_line_changed(&work->line);
    if (!atomic_load(&work->held)) return;
    struct committer *committer = the_committer();
    atomic_store(&committer->joining_changed, true);
    ps_singleton_changed(&committer->singleton);
}

/* ---- the list of times: the thread ---- */

static void unlist(struct committer *committer, struct ps_commit_work *work)
{
    if (!work->listed) return;
    if (work->prev) work->prev->next = work->next;
    else committer->first = work->next;
    if (work->next) work->next->prev = work->prev;
    else committer->last = work->prev;
    work->listed = false;
}

/* From the end: most times are an auto.commit.interval.ms away, as those before. */
static void list(struct committer *committer, struct ps_commit_work *work, int64_t due_us)
{
    struct ps_commit_work *before = committer->last;
    while (before && before->due_us > due_us) before = before->prev;
    work->due_us = due_us;
    work->prev = before;
    work->next = before ? before->next : committer->first;
    if (work->next) work->next->prev = work;
    else committer->last = work;
    if (before) before->next = work;
    else committer->first = work;
    work->listed = true;
}

static void look_at_held(struct committer *committer)
{
    if (!atomic_exchange(&committer->joining_changed, false)) return;
    for (struct ps_commit_work *work = committer->first; work; work = work->next)
        if (atomic_load(&work->held)) work_push(committer, work);
}

/* ---- the thread ---- */

static void end_work(struct committer *committer, struct ps_commit_work *work)
{
    pthread_mutex_lock(&committer->singleton.lock);
    committer->working--;
    pthread_mutex_unlock(&committer->singleton.lock);
    ps_client_unref(&work->consumer->client); /* that of ps_committer_begin */
}

static void look_at(struct committer *committer, struct ps_commit_work *work)
{
    int64_t due_us = PS_FOREVER;
    unlist(committer, work);
    ps_random_begin();
    switch (work->serve(work->consumer, &due_us)) {
    case PS_COMMITS_WAIT:
        if (due_us != PS_FOREVER || atomic_load(&work->held)) list(committer, work, due_us);
        break;
    case PS_COMMITS_ENDED: end_work(committer, work); break;
    case PS_COMMITS_NONE: break; /* a ring came just before the work ended */
    }
}

/* The stack holds the latest first. The consumer that was rung first is looked at first. */
static struct ps_commit_work *take_rung(struct committer *committer)
{
    struct ps_commit_work *stack = atomic_exchange(&committer->rung, NULL), *queue = NULL;
    while (stack) {
        struct ps_commit_work *next = stack->rung_next;
        stack->rung_next = queue;
        queue = stack;
        stack = next;
    }
    return queue;
}

static void look_at_rung(struct committer *committer)
{
    struct ps_commit_work *work = take_rung(committer), *next;
    for (; work; work = next) {
        struct ps_client *client = &work->consumer->client;
        next = work->rung_next; /* read first: once the mark is cleared, the work may be pushed again */
        atomic_store(&work->rung, false); /* M:committer_clears_mark */
        look_at(committer, work);
        ps_client_unref(client); /* the stack's */
    }
}

static void look_at_due(struct committer *committer)
{
    int64_t now_us = ps_now_us();
    while (committer->first && committer->first->due_us <= now_us) look_at(committer, committer->first);
}

/*
 * The thread decides to end and clears `running` without releasing the lock in between. A consumer that begins before that is
 * seen here. One that begins after that finds `running` false and starts a new thread. `until_us`: until when a thread without
 * work lingers; PS_FOREVER: it has work.
 */
static bool ends(struct committer *committer, int64_t *until_us)
{
    pthread_mutex_lock(&committer->singleton.lock);
    bool idle = committer->working == 0 && !atomic_load(&committer->rung);
    if (!idle) *until_us = PS_FOREVER;
    else if (*until_us == PS_FOREVER) *until_us = ps_now_us() + LINGER_US;
    bool stop = idle && ps_now_us() >= *until_us;
    if (stop) committer->running = false;
    pthread_mutex_unlock(&committer->singleton.lock);
    return stop;
}

static void *committer_main(void *arg)
{
    struct committer *committer = arg;
    int64_t linger_until_us = PS_FOREVER;
    for (;;) {
        uint32_t changes = atomic_load(&committer->singleton.changes);
        look_at_held(committer);
        look_at_rung(committer);
        look_at_due(committer);
        if (ends(committer, &linger_until_us)) return NULL;
        if (linger_until_us != PS_FOREVER) ps_random_end(); /* the process may exit meanwhile, which frees what OpenSSL has */
        int64_t due_us = committer->first ? committer->first->due_us : linger_until_us;
        ps_word_sleep(&committer->singleton.changes, changes, due_us);
    }
}

/* ---- for commits.c ---- */

int ps_committer_begin(struct ps_commit_work *work)
{
    struct committer *committer = the_committer();
    pthread_mutex_lock(&committer->singleton.lock);
    /* M:committer_is_shared */
    int failed = committer->running ? 0 : ps_thread_start("penstock.commit", committer_main, committer);
    if (!failed) {
        committer->running = true;
        committer->working++;
        ps_client_retain(&work->consumer->client);
        work_push(committer, work);
    }
    pthread_mutex_unlock(&committer->singleton.lock);
    return failed;
}
