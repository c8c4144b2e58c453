/*
 * A thread that waits for delivery results may watch its client meanwhile. The client's callback then wakes that thread
 * instead of the poller, and the thread takes the events itself. So a result costs one wake-up, as in a program that polls
 * for itself; the poller would need a second one, to wake the thread. One thread at a time watches a client, without the GVL.
 *
 * The states of `polled.watch`:
 *
 *   NONE     no thread watches: a thread that marks the client ready pushes it to the poller
 *   LOOKS    the watching thread is awake: before it sleeps, it checks its own wait, and that this word is not RUNG
 *   SLEEPS   the watching thread sleeps on this word
 *   RUNG     the queue may have events; the poller takes those that are left when the watch ends
 *
 * Only the watching thread changes RUNG, and after that it looks at the queue or pushes the client. So no ring is lost. The
 * word lives in the client, not in the waiter: a callback may use it after the waiter has gone.
 */
#include "client/client.h"

bool ps_watch_begin(struct ps_polled *polled, struct ps_waiter *waiter)
{
    uint32_t none = PS_WATCH_NONE;
    waiter->watch = NULL;
    if (!ps_client_enter(polled->client)) return false;
    if (!atomic_compare_exchange_strong(&polled->watch, &none, PS_WATCH_LOOKS)) { /* M:watch_one_thread */
        ps_client_exit(polled->client);
        return false;
    }
    waiter->watch = &polled->watch;
    return true;
}

/* If there may be events (RUNG), this pushes the client before it stores NONE. So the poller's sweep sees a pushed client or a
 * watching thread. If the callback rings again after the push, the poller may have visited the client before that event came.
 * So the loop pushes it again. */
void ps_watch_end(struct ps_polled *polled)
{
    uint32_t word;
    while ((word = atomic_load(&polled->watch)) == PS_WATCH_RUNG || /* M:watch_end_loops */
           !atomic_compare_exchange_strong(&polled->watch, &word, PS_WATCH_NONE)) {
        atomic_store(&polled->watch, PS_WATCH_LOOKS);
        ps_poller_push(polled); /* M:watch_end_pushes */
    }
    ps_client_exit(polled->client);
}

/* If another thread serves the client, that thread marks it ready again afterwards: see ps_poller_borrow_or_retry. */
static void watch_look(struct ps_polled *polled, const struct ps_waiter *waiter, int64_t deadline_us)
{
    atomic_store(&polled->watch, PS_WATCH_LOOKS); /* before it looks at the queue: a later event rings again */
    if (!ps_poller_borrow_or_retry(polled)) return; /* M:watch_borrow_retries */
    ps_poller_serve(polled, waiter, deadline_us);
    ps_poller_hand_back(polled); /* M:watch_clears_first */
}

void ps_watch_sleep(struct ps_polled *polled, struct ps_waiter *waiter, int64_t deadline_us)
{
    while (atomic_load(&waiter->state) == PS_WAITING && (deadline_us == PS_FOREVER || ps_now_us() < deadline_us)) {
        uint32_t word = atomic_load(&polled->watch);
        if (word == PS_WATCH_RUNG) watch_look(polled, waiter, deadline_us);
        else if (word == PS_WATCH_LOOKS) atomic_compare_exchange_strong(&polled->watch, &word, PS_WATCH_SLEEPS);
        else if (!ps_word_sleep(&polled->watch, PS_WATCH_SLEEPS, deadline_us)) ps_waiter_interrupt(waiter);
    }
}

bool ps_watch_ring(struct ps_polled *polled)
{
    uint32_t word = atomic_load(&polled->watch);
    while (word == PS_WATCH_LOOKS || word == PS_WATCH_SLEEPS) {
        if (!atomic_compare_exchange_weak(&polled->watch, &word, PS_WATCH_RUNG)) continue;
        if (word == PS_WATCH_SLEEPS) ps_word_wake(&polled->watch);
        return true;
    }
    return word == PS_WATCH_RUNG;
}

bool ps_watch_looks(const struct ps_polled *polled)
{
    uint32_t word = atomic_load(&polled->watch);
    return word == PS_WATCH_LOOKS || word == PS_WATCH_RUNG;
}
