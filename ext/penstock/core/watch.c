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
#include "core.h"

enum { NONE, LOOKS, SLEEPS, RUNG };

bool ps_watch_begin(struct ps_client *client, struct ps_waiter *waiter)
{
    uint32_t none = NONE;
    waiter->watch = NULL;
    if (!ps_open_enter(&client->open)) return false;
    if (!atomic_compare_exchange_strong(&client->watch, &none, LOOKS)) {
        ps_open_exit(&client->open);
        return false;
    }
    waiter->watch = &client->watch;
    return true;
}

/* Pushed before the word is given up, so that the sweep sees one or the other; and again, if it is rung when the poller may
 * have been there already. */
void ps_watch_end(struct ps_client *client)
{
    uint32_t word;
    while ((word = atomic_load(&client->watch)) == RUNG || !atomic_compare_exchange_strong(&client->watch, &word, NONE)) {
        atomic_store(&client->watch, LOOKS);
        ps_poller_push(client);
    }
    ps_open_exit(&client->open);
}

/* Turned away it need not come again by itself: see ps_poller_claim. */
static void look(struct ps_client *client, const struct ps_waiter *waiter, int64_t deadline_us)
{
    atomic_store(&client->watch, LOOKS); /* before the queue is looked at: what comes later rings again */
    if (!ps_poller_claim(client)) return;
    ps_poller_serve(client, waiter, deadline_us);
    ps_poller_hand_back(client);
}

void ps_watch_sleep(struct ps_client *client, struct ps_waiter *waiter, int64_t deadline_us)
{
    while (atomic_load(&waiter->state) == PS_WAITING && (deadline_us == PS_FOREVER || ps_now_us() < deadline_us)) {
        uint32_t word = atomic_load(&client->watch);
        if (word == RUNG) look(client, waiter, deadline_us);
        else if (word == LOOKS) atomic_compare_exchange_strong(&client->watch, &word, SLEEPS);
        else if (!ps_word_sleep(&client->watch, SLEEPS, deadline_us)) ps_waiter_interrupt(waiter); /* see ps_waiter_sleep */
    }
}

bool ps_watch_ring(struct ps_client *client)
{
    uint32_t word = atomic_load(&client->watch);
    while (word == LOOKS || word == SLEEPS) {
        if (!atomic_compare_exchange_weak(&client->watch, &word, RUNG)) continue;
        if (word == SLEEPS) ps_word_wake(&client->watch);
        return true;
    }
    return word == RUNG;
}

bool ps_watch_looks(const struct ps_client *client)
{
    uint32_t word = atomic_load(&client->watch);
    return word == LOOKS || word == RUNG;
}

/* Who is awake looks at its wait before it sleeps, and who keeps watch by now need not be the one that did. */
void ps_watch_nudge(_Atomic uint32_t *watch)
{
    uint32_t sleeps = SLEEPS;
    if (atomic_compare_exchange_strong(watch, &sleeps, LOOKS)) ps_word_wake(watch);
}
