/*
 * The flusher: a native thread of a producer that calls rd_kafka_flush on behalf of callers that wait for delivery results.
 *
 * librdkafka holds a message back for linger.ms, so that others can join its batch. A caller that waits sends no others. While
 * rd_kafka_flush runs, librdkafka sends what it holds back, and sends new messages at once. The call cannot be interrupted, and
 * it has no effect if it does not block (a timeout of 0). So it runs on a thread of its own, for some ms at a time: no caller's
 * interrupt and no fiber scheduler waits for it. It ends early once no message is in flight.
 *
 * A flush also cuts short the batches of callers that do not wait, see flush_for.
 *
 * The thread starts at the first request. It ends when there was no request for IDLE_US, or when the client closes. It counts as
 * a long call of the client, so rd_kafka_destroy comes after its last flush. Decision 0019 has the measurements.
 *
 * The states of `word`; every other thread only changes it to WANTED:
 *
 *   NONE      there is no thread; the thread that changes this to WANTED starts one
 *   IDLE      the flusher sleeps on the word
 *   WANTED    a caller has begun to wait, and no flush has begun since
 *   FLUSHING  the latest flush began after the latest request
 */
#include "produce/produce.h"

enum { SHARED_FLUSH_MS = 1, SHORTEST_FLUSH_MS = 4, LONGEST_FLUSH_MS = 16, IDLE_US = 10 * 1000 * 1000 };

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
    bool shared = flusher->per_linger >= SEVERAL;
    uint64_t before = atomic_load(&producer->requests);
    if (shared && before < flusher->shared_from) return false; /* M:flusher_keeps_batches */
    bool all_settled = rd_kafka_flush(producer->client.rk, shared ? SHARED_FLUSH_MS : ms) == RD_KAFKA_RESP_ERR_NO_ERROR;
    uint64_t after = atomic_load(&producer->requests);
    uint64_t sent = after > before ? after - before : 1; /* a request may be counted just after the flush */
    if (shared) flusher->shared_from = after + REQUESTS_PER_SHARED_ONE * sent;
    return !shared && !all_settled;
}

/* No later call has begun to wait, and the client is open. */
static bool unchanged(const struct ps_producer *producer, uint32_t word)
{
    return atomic_load(&producer->flusher.word) == word && atomic_load(&producer->client.state) == PS_OPEN;
}

/*
 * On a busy machine, a broker's thread may get no CPU during the first flush; at first, no broker may be connected. So the flush
 * is repeated until all messages are settled, or have lingered. Once a request was sent, ENOUGH_US is the limit: if a partition may
 * have no more messages in flight, librdkafka 2.0.2 looks at the rest all the time while it flushes.
 */
enum { ENOUGH_US = 250 * 1000 };

static void flush_until_sent(struct ps_producer *producer)
{
    int64_t began_us = ps_now_us();
    uint64_t requests = atomic_load(&producer->requests);
    for (int ms = SHORTEST_FLUSH_MS; flush_for(producer, ms) && unchanged(producer, PS_FLUSHER_FLUSHING);) {
        int64_t took_us = ps_now_us() - began_us;
        if (took_us >= producer->settings.linger_us) return;
        if (took_us >= ENOUGH_US && atomic_load(&producer->requests) > requests) return;
        if (ms < LONGEST_FLUSH_MS) ms *= 2;
    }
}

/*
 * False: there was no request for IDLE_US, or the client closes. Then the thread ends; a later request starts another one.
 * The thread stores IDLE before it reads the client's state. The closing thread has changed the state before it reads the word
 * (ps_flusher_end). So the flusher sees the state, or the closing thread wakes it.
 */
static bool await_request(struct ps_producer *producer)
{
    struct ps_flusher *flusher = &producer->flusher;
    int64_t deadline_us = ps_now_us() + IDLE_US;
    uint32_t state = PS_FLUSHER_FLUSHING;
    atomic_compare_exchange_strong(&flusher->word, &state, PS_FLUSHER_IDLE);
    while (unchanged(producer, PS_FLUSHER_IDLE) && ps_now_us() < deadline_us)
        ps_word_sleep(&flusher->word, PS_FLUSHER_IDLE, deadline_us);
    state = PS_FLUSHER_IDLE;
    return !atomic_compare_exchange_strong(&flusher->word, &state, PS_FLUSHER_NONE);
}

static void *flusher_main(void *arg)
{
    struct ps_producer *producer = arg;
    while (atomic_load(&producer->client.state) == PS_OPEN) {
        /* Before it looks at the messages. A caller that begins to wait later requests another flush. */
        atomic_store(&producer->flusher.word, PS_FLUSHER_FLUSHING);
        flush_until_sent(producer);
        if (!await_request(producer)) break;
    }
    ps_random_end(); /* before the client may be closed, and the process exit: see close_run */
    ps_client_exit_long(&producer->client);
    ps_client_unref(&producer->client);
    return NULL;
}

/* Called by the thread that has changed NONE to WANTED. If there is no thread, messages linger. */
static void flusher_start(struct ps_producer *producer)
{
    if (ps_client_enter(&producer->client)) {
        ps_client_retain(&producer->client);
        ps_client_enter_long(&producer->client);
        bool started = ps_thread_start("penstock.flush", flusher_main, producer) == 0;
        if (!started) {
            ps_client_exit_long(&producer->client);
            ps_client_unref(&producer->client); /* the caller has another reference */
        }
        ps_client_exit(&producer->client);
        if (started) return;
    }
    atomic_store(&producer->flusher.word, PS_FLUSHER_NONE);
}

void ps_flusher_await(struct ps_batch *batch)
{
    struct ps_producer *producer = batch->producer;
    if (!producer->settings.linger_us || ps_client_inherited(&producer->client)) return;
    if (atomic_exchange(&batch->awaited, true)) return;
    atomic_fetch_add(&producer->flusher.awaited, batch->size);
    if (atomic_load(&producer->flusher.word) == PS_FLUSHER_WANTED) return; /* cheaper for many callers at once */
    switch (atomic_exchange(&producer->flusher.word, PS_FLUSHER_WANTED)) {
    case PS_FLUSHER_NONE: flusher_start(producer); break;
    case PS_FLUSHER_IDLE: ps_word_wake(&producer->flusher.word); break;
    default: break;
    }
}

/* Wakes the thread if it sleeps; it finds the client closing. */
void ps_flusher_end(struct ps_producer *producer)
{
    uint32_t idle = PS_FLUSHER_IDLE;
    if (atomic_compare_exchange_strong(&producer->flusher.word, &idle, PS_FLUSHER_WANTED)) ps_word_wake(&producer->flusher.word);
}
