/*
 * A slot: where all Ractors find a producer's current client. The main Ractor puts clients in and takes them out, as it
 * connects, disconnects and replaces them. Handles in any Ractor take a reference for each call. A handle that finds no
 * client, or an unusable one, asks for another, and sleeps until a thread of the main Ractor has answered.
 *
 * Owned by the main Ractor's Ruby object and by each handle. Any thread. A fork child leaves an inherited slot alone.
 */
#include "produce/produce.h"
#include <stdio.h>
#include <stdlib.h>

struct ps_slot *ps_slot_new(void)
{
    struct ps_slot *slot = calloc(1, sizeof(*slot));
    if (!slot) return NULL;
    atomic_init(&slot->refs, 1);
    slot->generation = ps_generation();
    pthread_mutex_init(&slot->lock, NULL);
    ps_bell_init(&slot->asks);
    ps_bell_init(&slot->answers);
    return slot;
}

void ps_slot_retain(struct ps_slot *slot)
{
    atomic_fetch_add_explicit(&slot->refs, 1, memory_order_relaxed);
}

static bool inherited(const struct ps_slot *slot)
{
    return slot->generation != ps_generation();
}

void ps_slot_unref(struct ps_slot *slot)
{
    if (atomic_fetch_sub(&slot->refs, 1) != 1) return;
    if (inherited(slot)) return; /* left as it is on purpose */
    if (slot->producer) ps_client_unref(&slot->producer->client);
    ps_bell_destroy(&slot->answers);
    ps_bell_destroy(&slot->asks);
    pthread_mutex_destroy(&slot->lock);
    free(slot);
}

/* ---- for the main Ractor ---- */

void ps_slot_put(struct ps_slot *slot, struct ps_producer *producer, const struct ps_limits *terms)
{
    if (inherited(slot)) return;
    if (producer) ps_client_retain(&producer->client); /* M:slot_retains */
    pthread_mutex_lock(&slot->lock);
    struct ps_producer *before = slot->producer;
    slot->producer = producer;
    if (producer) slot->terms = *terms;
    pthread_mutex_unlock(&slot->lock);
    if (before) ps_client_unref(&before->client);
    ps_bell_ring(&slot->answers);
}

void ps_slot_bar(struct ps_slot *slot, const char *why)
{
    if (inherited(slot)) return;
    pthread_mutex_lock(&slot->lock);
    snprintf(slot->why, sizeof(slot->why), "%s", why);
    pthread_mutex_unlock(&slot->lock);
}

void ps_slot_close(struct ps_slot *slot)
{
    if (inherited(slot)) return;
    pthread_mutex_lock(&slot->lock);
    slot->closed = true;
    pthread_mutex_unlock(&slot->lock);
    ps_slot_put(slot, NULL, NULL);
    ps_bell_ring(&slot->asks);
}

void ps_slot_change(struct ps_slot *slot, uint64_t thread)
{
    if (inherited(slot)) return;
    pthread_mutex_lock(&slot->lock);
    slot->changer = thread;
    pthread_mutex_unlock(&slot->lock);
}

bool ps_slot_attend(struct ps_slot *slot, bool attend)
{
    if (inherited(slot)) return false;
    pthread_mutex_lock(&slot->lock);
    bool changed = slot->attended != attend;
    slot->attended = attend;
    pthread_mutex_unlock(&slot->lock);
    return changed;
}

uint64_t ps_slot_question(struct ps_slot *slot, bool *over)
{
    *over = true;
    if (inherited(slot)) return 0;
    pthread_mutex_lock(&slot->lock);
    uint64_t question = slot->asked > slot->answered ? slot->asked : 0;
    *over = slot->closed || slot->handles == 0; /* M:slot_asks_over */
    if (*over) slot->attended = false; /* the Ruby thread ends; the thread that makes the next handle starts it again */
    pthread_mutex_unlock(&slot->lock);
    return question;
}

void ps_slot_answer(struct ps_slot *slot, uint64_t question, const char *trouble)
{
    if (inherited(slot)) return;
    pthread_mutex_lock(&slot->lock); /* M:slot_answer_lock */
    slot->answered = question;
    snprintf(slot->trouble, sizeof(slot->trouble), "%s", trouble);
    pthread_mutex_unlock(&slot->lock);
    ps_bell_ring(&slot->answers);
}

/* ---- for handles, in any Ractor ---- */

void ps_slot_handle_made(struct ps_slot *slot)
{
    ps_slot_retain(slot);
    pthread_mutex_lock(&slot->lock);
    slot->handles++;
    pthread_mutex_unlock(&slot->lock);
}

/* Called by the GC. This cannot deadlock: no thread runs Ruby code, or waits for the GVL, while it holds the lock. */
void ps_slot_handle_gone(struct ps_slot *slot)
{
    if (!inherited(slot)) {
        pthread_mutex_lock(&slot->lock);
        bool last = --slot->handles == 0;
        pthread_mutex_unlock(&slot->lock);
        if (last) ps_bell_ring(&slot->asks); /* M:last_handle_rings */
    }
    ps_slot_unref(slot);
}

enum ps_slot_state ps_slot_enter(struct ps_slot *slot, struct ps_limits *terms, char *why, size_t why_size)
{
    if (inherited(slot)) return PS_SLOT_FORKED; /* M:slot_fork_checked */
    pthread_mutex_lock(&slot->lock);
    enum ps_slot_state state = slot->closed ? PS_SLOT_CLOSED : *slot->why ? PS_SLOT_BARRED : PS_SLOT_OPEN;
    if (state == PS_SLOT_BARRED) snprintf(why, why_size, "%s", slot->why);
    *terms = slot->terms;
    pthread_mutex_unlock(&slot->lock);
    return state;
}

struct ps_producer *ps_slot_take(struct ps_slot *slot)
{
    if (inherited(slot)) return NULL;
    pthread_mutex_lock(&slot->lock);
    struct ps_producer *producer = slot->closed || *slot->why ? NULL : slot->producer;
    if (producer) ps_client_retain(&producer->client); /* M:slot_call_retains */
    pthread_mutex_unlock(&slot->lock);
    return producer;
}

static bool client_usable(struct ps_producer *producer)
{
    struct ps_transaction_error fatal;
    return atomic_load(&producer->client.state) == PS_OPEN && !ps_producer_fatal_error(producer, &fatal);
}

bool ps_slot_renewed(struct ps_slot *slot, uint64_t failed, uint64_t *question, bool *answered)
{
    struct ps_producer *producer = ps_slot_take(slot);
    bool usable = producer && client_usable(producer), renewed = usable && producer->client.address != failed, ask = false;
    *answered = usable && !renewed; /* the failed client is usable, so another one would not help */
    if (!usable) {
        pthread_mutex_lock(&slot->lock);
        /* Another thread has just replaced it in ps_slot_put, which rings next. */
        bool replaced = producer && slot->producer != producer;
        if (!replaced) {
            *answered = *question && slot->answered >= *question && (producer || *slot->trouble);
            /* Asks again if the main Ractor has answered with a client that was removed before this call could take it. */
            ask = !*question || (!*answered && slot->answered >= *question);
            if (ask) *question = ++slot->asked;
        }
        pthread_mutex_unlock(&slot->lock);
    }
    if (producer) ps_client_unref(&producer->client);
    if (ask) ps_bell_ring(&slot->asks);
    return renewed;
}

bool ps_slot_changed_by(struct ps_slot *slot, uint64_t thread)
{
    if (inherited(slot)) return false;
    pthread_mutex_lock(&slot->lock);
    bool here = slot->changer == thread;
    pthread_mutex_unlock(&slot->lock);
    return here;
}

void ps_slot_trouble(struct ps_slot *slot, char *text, size_t size)
{
    pthread_mutex_lock(&slot->lock);
    snprintf(text, size, "%s", slot->trouble);
    pthread_mutex_unlock(&slot->lock);
}
