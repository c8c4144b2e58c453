/*
 * Flushing for callers that wait for delivery results.
 *
 * librdkafka holds a message back for linger.ms, so that others can join its batch. A caller that waits sends no others.
 * While rd_kafka_flush runs, librdkafka sends what it holds back, and sends new messages at once. It must run until the
 * threads of the brokers have looked at their queues, so it has no effect if it does not block (a timeout of 0). The shortest
 * time is 1 ms; it ends early once no message is in flight. A flush also cuts short the batches of callers that do not wait,
 * see flush_for.
 *
 * Flushers, at most two native threads of the process, flush for callers that wait, so that these can be interrupted and take
 * their results themselves. If all of them are busy, a thread that waits leads: it flushes for its producer itself, 1 ms at a
 * time, until all messages are sent or its results have come, for up to 10 ms. The poller takes the results meanwhile. A
 * fiber cannot block its thread; its producer waits in a queue for a flusher. If the turn comes late, nothing is lost: the
 * messages linger. Decision 0019 has the measurements.
 *
 * The first flusher starts at the first request, another one when none sleeps. A flusher ends when there was nothing to do
 * for IDLE_US, or when every producer that has wanted one is closed.
 *
 * The states of a producer's `word`. A caller that begins to wait sets WANTED. Only the thread that flushes, a flusher or a
 * leading caller, sets the others:
 *
 *   IDLE      nobody flushes for it
 *   WANTED    a caller has begun to wait, and no flush has begun since. The thread that changes IDLE to this finds somebody to
 *             flush: a flusher, itself, or the queue
 *   FLUSHING  the latest flush began after the latest request; it may be in the queue again
 */
#include "produce/produce.h"

enum { FLUSHERS = 2, IDLE_US = 10 * 1000 * 1000 };
enum { SHARED_FLUSH_MS = 1, BRIEF_FLUSH_MS = 1, SHORTEST_FLUSH_MS = 4, LONGEST_FLUSH_MS = 16 };

struct flusher {
    _Atomic uint32_t word;         /* it sleeps until this changes */
    bool started, sleeps;
    struct ps_producer *producer;  /* for which it flushes; NULL: none */
};

struct flushers {
    struct ps_singleton singleton; /* its lock guards what follows, and the queue's links; `changes` is for closing threads */
    struct ps_producer *first, *last;
    uint32_t producers;            /* that have wanted a flush, and are not closed */
    uint32_t closing;              /* threads that wait in ps_flusher_end */
    struct flusher flushers[FLUSHERS];
};

static struct ps_singleton_kind kind = { .size = sizeof(struct flushers) };

/*
 * How many asynchronous messages came per linger.ms, from one measurement to the next: those that were accepted and that no caller
 * has waited for. A synchronous call counts its messages as accepted before it hands them over, and as awaited afterwards. So one
 * measurement may take them for asynchronous, but the next one does not: the smaller of two results counts.
 */
static void measure(struct ps_producer *producer)
{
    struct ps_flusher *flusher = &producer->flusher;
    int64_t now = ps_now_us(), elapsed_us = now - flusher->measured_us;
    if (elapsed_us < producer->settings.linger_us) return;
    int64_t awaited = (int64_t)atomic_load(&flusher->awaited);
    int64_t asynchronous = (int64_t)atomic_load(&producer->accepted) - awaited; /* negative: some awaited ones were not accepted */
    double more = (double)(asynchronous - flusher->asynchronous);
    double result = more * (double)producer->settings.linger_us / (double)elapsed_us;
    flusher->per_linger = result < flusher->latest ? result : flusher->latest;
    flusher->latest = result;
    flusher->asynchronous = asynchronous;
    flusher->measured_us = now;
}

/*
 * Asynchronous messages are worth lingering for if several share a batch. While that is so, at most one Produce request in six is
 * sent during a flush, and these messages keep 0.8 of their batch size.
 */
enum { SEVERAL = 5, REQUESTS_PER_SHARED_ONE = 5 };

/* True: messages are left, and another flush may help. */
static bool flush_for(struct ps_producer *producer, int ms)
{
    struct ps_flusher *flusher = &producer->flusher;
    measure(producer);
    if (!ps_producer_in_flight(producer)) return false;
    bool shared = flusher->per_linger >= SEVERAL;
    uint64_t before = atomic_load(&producer->requests);
    if (shared && before < flusher->shared_from) return false; /* M:flusher_keeps_batches */
    bool all_settled = rd_kafka_flush(producer->client.rk, shared ? SHARED_FLUSH_MS : ms) == RD_KAFKA_RESP_ERR_NO_ERROR;
    uint64_t after = atomic_load(&producer->requests);
    uint64_t sent = after > before ? after - before : 1; /* a request may be counted just after the flush */
    if (shared) flusher->shared_from = after + REQUESTS_PER_SHARED_ONE * sent;
    return !shared && !all_settled;
}

/* ---- the queue; all with the lock ---- */

static void push(struct flushers *all, struct ps_producer *producer)
{
    producer->flusher.next = NULL;
    producer->flusher.queued = true;
    if (all->last) all->last->flusher.next = producer;
    else all->first = producer;
    all->last = producer;
}

static void take_out(struct flushers *all, struct ps_producer *producer)
{
    struct ps_producer *before = NULL, **link = &all->first;
    while (*link != producer) {
        before = *link;
        link = &before->flusher.next;
    }
    *link = producer->flusher.next;
    if (all->last == producer) all->last = before;
    producer->flusher.queued = false;
}

static struct ps_producer *pop(struct flushers *all)
{
    struct ps_producer *producer = all->first;
    if (producer) take_out(all, producer);
    return producer;
}

/* ---- a flusher's thread ---- */

/*
 * On a busy machine, a broker's thread may get no CPU during the first flush; at first, no broker may be connected. So the flush
 * is repeated until all messages are settled, or have lingered. Once a request was sent, ENOUGH_US is the limit: if a partition may
 * have no more messages in flight, librdkafka 2.0.2 looks at the rest all the time while it flushes.
 */
enum { ENOUGH_US = 250 * 1000 };

static uint64_t settled_messages(const struct ps_producer *producer)
{
    return atomic_load(&producer->delivered) + atomic_load(&producer->failed) + atomic_load(&producer->purged);
}

/* True: it may help to flush again. `brief`: others wait for this thread. */
static bool flush_slice(struct ps_producer *producer, bool brief)
{
    struct ps_flusher *flusher = &producer->flusher;
    int64_t now = ps_now_us();
    /* Before it looks at the messages. A caller that begins to wait later requests another flush. */
    if (atomic_exchange(&flusher->word, PS_FLUSHER_FLUSHING) == PS_FLUSHER_WANTED) {
        flusher->began_us = now;
        flusher->requests = atomic_load(&producer->requests);
        flusher->settled = settled_messages(producer);
        flusher->ms = SHORTEST_FLUSH_MS;
    }
    if (!flush_for(producer, brief ? BRIEF_FLUSH_MS : flusher->ms)) return false;
    if (flusher->ms < LONGEST_FLUSH_MS) flusher->ms *= 2;
    int64_t took_us = ps_now_us() - flusher->began_us;
    if (took_us >= producer->settings.linger_us) return false;
    uint64_t sent = atomic_load(&producer->requests) - flusher->requests;
    if (sent >= atomic_load(&producer->accepted) - flusher->settled) return false; /* each request has a message or more */
    return sent == 0 || took_us < ENOUGH_US; /* M:flusher_flushes_until_all_is_sent */
}

/* With the lock. The flusher has ended its turn of the producer. */
static void turn_over(struct flushers *all, struct ps_producer *producer, bool again)
{
    uint32_t flushing = PS_FLUSHER_FLUSHING;
    if (all->closing) ps_singleton_changed(&all->singleton);
    if (producer->flusher.ended) return;
    if (!again && atomic_compare_exchange_strong(&producer->flusher.word, &flushing, PS_FLUSHER_IDLE)) return;
    push(all, producer);
}

/* With the lock. False: there was nothing to do for IDLE_US, or every producer is closed. */
static bool sleep_until_wanted(struct flushers *all, struct flusher *self, int64_t deadline_us)
{
    if (!all->producers || ps_now_us() >= deadline_us) return false;
    uint32_t word = atomic_load(&self->word);
    self->sleeps = true;
    pthread_mutex_unlock(&all->singleton.lock);
    ps_word_sleep(&self->word, word, deadline_us);
    pthread_mutex_lock(&all->singleton.lock);
    self->sleeps = false;
    return true;
}

static void *flusher_main(void *arg)
{
    struct flusher *self = arg;
    struct flushers *all = ps_singleton_get(&kind);
    pthread_mutex_lock(&all->singleton.lock);
    int64_t deadline_us = ps_now_us() + IDLE_US;
    do {
        while ((self->producer = pop(all))) {
            bool brief = all->first != NULL;
            pthread_mutex_unlock(&all->singleton.lock);
            bool again = flush_slice(self->producer, brief);
            pthread_mutex_lock(&all->singleton.lock);
            struct ps_producer *producer = self->producer;
            self->producer = NULL;
            turn_over(all, producer, again);
            deadline_us = ps_now_us() + IDLE_US;
        }
    } while (sleep_until_wanted(all, self, deadline_us));
    ps_random_end(); /* before the last client is closed, and the process may exit: see close_run */
    self->started = false;
    if (all->closing) ps_singleton_changed(&all->singleton);
    pthread_mutex_unlock(&all->singleton.lock);
    return NULL;
}

/* ---- requests ---- */

static void wake(struct flusher *flusher)
{
    flusher->sleeps = false; /* the next request wakes another one */
    atomic_fetch_add(&flusher->word, 1);
    ps_word_wake(&flusher->word);
}

/* With the lock. False: every flusher is busy, or no thread can start. */
static bool engage_one(struct flushers *all)
{
    for (int i = 0; i < FLUSHERS; i++) {
        if (!all->flushers[i].sleeps) continue;
        wake(&all->flushers[i]);
        return true;
    }
    for (int i = 0; i < FLUSHERS; i++) {
        struct flusher *flusher = &all->flushers[i];
        if (!flusher->started) return flusher->started = ps_thread_start("penstock.flush", flusher_main, flusher) == 0;
    }
    return false;
}

static bool any_started(const struct flushers *all)
{
    for (int i = 0; i < FLUSHERS; i++)
        if (all->flushers[i].started) return true;
    return false;
}

/* With the lock. */
static bool all_flush(const struct flushers *all)
{
    for (int i = 0; i < FLUSHERS; i++)
        if (!all->flushers[i].producer) return false;
    return true;
}

/* With the lock. If no flusher can start, messages linger, and the next call tries again. */
static void join_queue(struct flushers *all, struct ps_producer *producer, bool engaged)
{
    if (engaged || any_started(all)) push(all, producer);
    else atomic_store(&producer->flusher.word, PS_FLUSHER_IDLE);
}

/* With the lock. True: the caller shall lead. */
static bool find_flusher(struct flushers *all, struct ps_producer *producer, bool can_lead)
{
    if (!producer->flusher.joined) all->producers++;
    producer->flusher.joined = true;
    bool engaged = engage_one(all);
    if (!engaged && can_lead) return true;
    join_queue(all, producer, engaged);
    return false;
}

/* With the lock. True: the caller shall lead, as the producer waits for a flusher. */
static bool leave_queue(struct flushers *all, struct ps_producer *producer)
{
    if (!producer->flusher.queued || !all_flush(all)) return false;
    take_out(all, producer);
    return true;
}

bool ps_flusher_await(struct ps_batch *batch, bool can_lead)
{
    struct ps_producer *producer = batch->producer;
    struct ps_flusher *flusher = &producer->flusher;
    if (!producer->settings.linger_us || ps_client_inherited(&producer->client)) return false;
    if (atomic_exchange(&batch->awaited, true)) return false;
    atomic_fetch_add(&flusher->awaited, batch->size);
    bool wanted = atomic_load(&flusher->word) == PS_FLUSHER_WANTED; /* read first: cheaper for many callers at once */
    bool idle = !wanted && atomic_exchange(&flusher->word, PS_FLUSHER_WANTED) == PS_FLUSHER_IDLE;
    if (!idle && !(can_lead && atomic_load(&flusher->queued))) return false;
    struct flushers *all = ps_singleton_get(&kind);
    pthread_mutex_lock(&all->singleton.lock);
    bool lead = !flusher->ended && (idle ? find_flusher(all, producer, can_lead) : leave_queue(all, producer));
    if (lead) flusher->led = true;
    pthread_mutex_unlock(&all->singleton.lock);
    return lead;
}

static bool settled(const struct ps_lead *lead)
{
    return lead->settled ? atomic_load(lead->settled) : ps_completion_done(&lead->batch->completion);
}

/* What is not sent then, as no broker is connected, waits for a flusher. */
enum { LONGEST_LEAD_US = 10 * 1000 };

void ps_flusher_lead(struct ps_lead *lead)
{
    struct ps_producer *producer = lead->batch->producer;
    int64_t until_us = ps_now_us() + LONGEST_LEAD_US;
    if (lead->deadline_us < until_us) until_us = lead->deadline_us;
    while (!settled(lead) && !atomic_load(&lead->interrupted) && ps_now_us() < until_us &&
           atomic_load(&producer->client.state) == PS_OPEN) {
        lead->again = flush_slice(producer, true);
        if (!lead->again && atomic_load(&producer->flusher.word) == PS_FLUSHER_FLUSHING) return;
    }
}

void ps_flusher_lead_end(const struct ps_lead *lead)
{
    struct ps_producer *producer = lead->batch->producer;
    struct flushers *all = ps_singleton_get(&kind);
    pthread_mutex_lock(&all->singleton.lock);
    producer->flusher.led = false;
    turn_over(all, producer, lead->again);
    if (producer->flusher.queued && !engage_one(all) && !any_started(all)) {
        take_out(all, producer);
        join_queue(all, producer, false);
    }
    pthread_mutex_unlock(&all->singleton.lock);
}

static bool is_flushed_for(const struct flushers *all, const struct ps_producer *producer)
{
    if (producer->flusher.led) return true;
    for (int i = 0; i < FLUSHERS; i++)
        if (all->flushers[i].producer == producer) return true;
    return false;
}

void ps_flusher_end(struct ps_producer *producer)
{
    struct flushers *all = ps_singleton_get(&kind);
    pthread_mutex_lock(&all->singleton.lock);
    producer->flusher.ended = true;
    if (producer->flusher.queued) take_out(all, producer);
    if (producer->flusher.joined && --all->producers == 0) {
        for (int i = 0; i < FLUSHERS; i++)
            if (all->flushers[i].sleeps) wake(&all->flushers[i]);
    }
    all->closing++;
    while (is_flushed_for(all, producer) || (producer->flusher.joined && !all->producers && any_started(all))) {
        uint32_t changes = atomic_load(&all->singleton.changes);
        pthread_mutex_unlock(&all->singleton.lock);
        ps_word_sleep(&all->singleton.changes, changes, PS_FOREVER);
        pthread_mutex_lock(&all->singleton.lock);
    }
    all->closing--;
    pthread_mutex_unlock(&all->singleton.lock);
}
