/*
 * A thread that waits for verdicts and keeps watch over the client meanwhile: the client's callback then wakes that
 * thread, which takes the events itself, instead of the poller, which would have to wake the thread. So a verdict comes
 * to its waiter with one wake-up, as in a program that polls for itself. One thread keeps watch over a client at a time,
 * and it never needs the GVL for it.
 *
 * `watch` says how far it is:
 *
 *   NONE     nobody keeps it: whoever marks the client pushes it to the poller
 *   LOOKS    awake: looks at its own wait, and whether it was rung, before it sleeps
 *   SLEEPS   on this word
 *   RUNG     there may be something in the queue; what was not looked at when the watch ends is left to the poller
 *
 * Only who keeps watch makes anything else of RUNG, and looks at the queue, or pushes the client, after that: so no ring
 * is lost. The word lives in the client, not in the waiter: a callback may use it when the waiter has gone.
 */
#include "client/client.h"

bool ps_watch_begin(struct ps_polled *polled, struct ps_waiter *waiter)
{
    uint32_t none = PS_WATCH_NONE;
    waiter->watch = NULL;
    if (!ps_client_enter(polled->client)) return false;
    if (!atomic_compare_exchange_strong(&polled->watch, &none, PS_WATCH_LOOKS)) {
        ps_client_exit(polled->client);
        return false;
    }
    waiter->watch = &polled->watch;
    return true;
}

/* Pushed before the word is given up, so that the sweep sees one or the other; and again, if it is rung when the poller may
 * have been there already. */
void ps_watch_end(struct ps_polled *polled)
{
    uint32_t word;
    while ((word = atomic_load(&polled->watch)) == PS_WATCH_RUNG || !atomic_compare_exchange_strong(&polled->watch, &word, PS_WATCH_NONE)) {
        atomic_store(&polled->watch, PS_WATCH_LOOKS);
        ps_poller_push(polled);
    }
    ps_client_exit(polled->client);
}

/* Turned away it need not come again by itself: see ps_poller_claim. */
static void look(struct ps_polled *polled, const struct ps_waiter *waiter, int64_t deadline_us)
{
    atomic_store(&polled->watch, PS_WATCH_LOOKS); /* before the queue is looked at: what comes later rings again */
    if (!ps_poller_claim(polled)) return;
    ps_poller_serve(polled, waiter, deadline_us);
    ps_poller_hand_back(polled);
}

void ps_watch_sleep(struct ps_polled *polled, struct ps_waiter *waiter, int64_t deadline_us)
{
    while (atomic_load(&waiter->state) == PS_WAITING && (deadline_us == PS_FOREVER || ps_now_us() < deadline_us)) {
        uint32_t word = atomic_load(&polled->watch);
        if (word == PS_WATCH_RUNG) look(polled, waiter, deadline_us);
        else if (word == PS_WATCH_LOOKS) atomic_compare_exchange_strong(&polled->watch, &word, PS_WATCH_SLEEPS);
        else if (!ps_word_sleep(&polled->watch, PS_WATCH_SLEEPS, deadline_us)) ps_waiter_interrupt(waiter); /* see ps_waiter_sleep */
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
