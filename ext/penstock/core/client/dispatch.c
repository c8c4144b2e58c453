/*
 * The dispatch queue: which producers have events for their listeners, and which dispatcher thread serves which of them. A
 * dispatcher is a Ruby thread (`penstock.events`, event_dispatcher.rb) that waits here without the GVL.
 *
 * One dispatcher at a time serves a producer's events, so they stay in order. The dispatcher that began the latest turn gets
 * PATIENCE_US to end it and take the next turn too; other dispatchers wait that long. So one thread does all the work while
 * listeners are quick. A slow listener delays only its own producer: after PATIENCE_US another dispatcher serves the other
 * producers. The time begins when the dispatcher has the GVL: in a busy program it may wait long for the GVL, and another
 * dispatcher would wait as long.
 *
 * No wake-up is lost. While a dispatcher has time left from its PATIENCE_US, the sleeping ones wake up at its end and look at
 * the queue, so new events need not wake them. At any other time, new events wake them all. Those that find no work sleep
 * until the PATIENCE_US of the dispatcher that got it are over.
 */
#include "client/client.h"
#include <stdlib.h>

enum { PATIENCE_US = 3000 };

struct dispatch {
    struct ps_singleton singleton; /* dispatchers sleep on its `changes` */
    struct ps_events *first, **last; /* producers with events that no dispatcher serves; first in, first out */
    const struct ps_dispatcher *latest; /* began the latest turn, and has not ended it; NULL: it has */
    int64_t turn_ends_us; /* when the PATIENCE_US of that turn are over, or, before it runs, when to look again */
};

static void dispatch_init(void *made)
{
    struct dispatch *dispatch = made;
    dispatch->last = &dispatch->first;
}

static struct ps_singleton_kind dispatches = { .size = sizeof(struct dispatch), .init = dispatch_init };

static struct dispatch *dispatch_get(void)
{
    return ps_singleton_get(&dispatches);
}

/* With the lock held. */
static bool expected_back(struct dispatch *dispatch, int64_t now)
{
    if (!dispatch->latest) return false;
    if (now < dispatch->turn_ends_us) return true;
    if (dispatch->latest->runs) return false; /* M:patient_without_the_gvl */
    dispatch->turn_ends_us = now + PATIENCE_US;
    return true;
}

/* With the lock held. */
static void dispatch_push(struct dispatch *dispatch, struct ps_events *events)
{
    if (!expected_back(dispatch, ps_now_us())) ps_singleton_changed(&dispatch->singleton);
    events->ready = true;
    events->ready_next = NULL;
    *dispatch->last = events;
    dispatch->last = &events->ready_next;
}

void ps_dispatch(struct ps_events *events)
{
    struct dispatch *dispatch = dispatch_get();
    pthread_mutex_lock(&dispatch->singleton.lock);
    if (!events->ready && !events->served) { /* M:one_publisher_at_a_time */
        ps_events_retain(events); /* until a turn finds it empty */
        dispatch_push(dispatch, events);
    }
    pthread_mutex_unlock(&dispatch->singleton.lock);
}

bool ps_dispatch_busy(struct ps_events *events)
{
    struct dispatch *dispatch = dispatch_get();
    pthread_mutex_lock(&dispatch->singleton.lock);
    bool busy = events->ready || events->served || atomic_load(&events->size) > 0;
    pthread_mutex_unlock(&dispatch->singleton.lock);
    return busy;
}

/* ---- turns ---- */

/* With the lock held. */
static void end_turn(struct dispatch *dispatch, struct ps_dispatcher *dispatcher, bool more)
{
    struct ps_events *events = atomic_exchange(&dispatcher->events, NULL);
    if (events && events->generation == ps_generation()) { /* else a listener has forked, and the queue is the parent process's */
        events->served = false;
        if (more || atomic_load(&events->size) > 0) dispatch_push(dispatch, events);
        else ps_events_unref(events);
    }
    if (dispatch->latest == dispatcher) dispatch->latest = NULL; /* after the push, which therefore wakes no thread */
}

/* With the lock held. False: no work before `until_us`, unless a change wakes the thread. */
static bool begin_turn(struct dispatch *dispatch, struct ps_dispatcher *dispatcher, int64_t now, int64_t *until_us)
{
    struct ps_events *events = dispatch->first;
    if (expected_back(dispatch, now)) {
        if (dispatch->turn_ends_us < *until_us) *until_us = dispatch->turn_ends_us;
        return false;
    }
    if (!events) return false;
    dispatch->first = events->ready_next;
    if (!dispatch->first) dispatch->last = &dispatch->first;
    events->ready = false;
    events->served = true;
    atomic_store(&dispatcher->events, events);
    dispatcher->runs = false;
    dispatch->latest = dispatcher;
    dispatch->turn_ends_us = now + PATIENCE_US;
    return true;
}

/* One section under the lock ends the old turn and begins the new one, so no other dispatcher takes the rest of the queue in
 * between. */
bool ps_dispatcher_next(struct ps_dispatcher *dispatcher, int64_t deadline_us)
{
    struct dispatch *dispatch = dispatch_get();
    pthread_mutex_lock(&dispatch->singleton.lock);
    end_turn(dispatch, dispatcher, false);
    for (;;) {
        uint32_t changes = atomic_load(&dispatch->singleton.changes);
        int64_t now = ps_now_us(), until_us = deadline_us;
        if (begin_turn(dispatch, dispatcher, now, &until_us)) break;
        if (atomic_exchange(&dispatcher->interrupted, false) || now >= deadline_us) break;
        pthread_mutex_unlock(&dispatch->singleton.lock);
        ps_word_sleep(&dispatch->singleton.changes, changes, until_us);
        pthread_mutex_lock(&dispatch->singleton.lock);
    }
    pthread_mutex_unlock(&dispatch->singleton.lock);
    return atomic_load(&dispatcher->events);
}

void ps_dispatcher_run(struct ps_dispatcher *dispatcher)
{
    struct dispatch *dispatch = dispatch_get();
    pthread_mutex_lock(&dispatch->singleton.lock);
    dispatcher->runs = true;
    if (dispatch->latest == dispatcher) dispatch->turn_ends_us = ps_now_us() + PATIENCE_US;
    pthread_mutex_unlock(&dispatch->singleton.lock);
}

void ps_dispatcher_end(struct ps_dispatcher *dispatcher, bool more)
{
    struct dispatch *dispatch = dispatch_get();
    pthread_mutex_lock(&dispatch->singleton.lock);
    end_turn(dispatch, dispatcher, more);
    pthread_mutex_unlock(&dispatch->singleton.lock);
}

/* Allocates nothing: before the dispatch queue exists, no dispatcher sleeps. */
void ps_dispatcher_interrupt(void *dispatcher)
{
    struct ps_singleton *dispatch = atomic_load(&dispatches.current);
    atomic_store(&((struct ps_dispatcher *)dispatcher)->interrupted, true);
    if (dispatch) ps_singleton_changed(dispatch);
}
