/*
 * The dispatch queue: which producers have events for their listeners, and which dispatcher thread serves which of them. A
 * dispatcher is a Ruby thread (lib/penstock/instrumentation/event_dispatcher.rb), which waits here without the GVL.
 *
 * A producer's events are served by one dispatcher at a time, so that they stay in order. The dispatcher that took a turn last is
 * expected back within PATIENCE_US, to take the next turn too; others leave it that long. So one thread does all the work
 * while listeners are quick, and a slow listener delays its own producer only: after PATIENCE_US another dispatcher goes on.
 *
 * No wake-up is lost. While a dispatcher is expected back, those that sleep look at the queue when its PATIENCE_US are over: so what
 * comes meanwhile wakes nobody. What comes at any other time wakes them all, and those that find nothing to do look again when the
 * PATIENCE_US of the one that was first are over.
 */
#include "client/client.h"
#include <stdlib.h>

enum { PATIENCE_US = 3000 };

struct dispatch {
    struct ps_singleton singleton; /* dispatchers sleep until it has changed */
    struct ps_events *first, **last; /* those with events that nobody serves; first come, first served */
    const struct ps_dispatcher *latest; /* took a turn last, and has not ended it; NULL: it has */
    int64_t rejection_timeout_us; /* when that turn is too long */
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
static bool expected_back(const struct dispatch *dispatch, int64_t now)
{
    return dispatch->latest && now < dispatch->rejection_timeout_us;
}

/* With the lock held. */
static void push(struct dispatch *dispatch, struct ps_events *events)
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
    if (!events->ready && !events->served) {
        ps_events_retain(events); /* until a turn finds it empty */
        push(dispatch, events);
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
    if (events && events->generation == ps_generation()) { /* else a listener has forked: it is the parent's */
        events->served = false;
        if (more || atomic_load(&events->size) > 0) push(dispatch, events);
        else ps_events_unref(events);
    }
    if (dispatch->latest == dispatcher) dispatch->latest = NULL; /* after the push, which so wakes nobody */
}

/* With the lock held. False: there is nothing to do before `until_us`, but for what wakes it. */
static bool begin_turn(struct dispatch *dispatch, struct ps_dispatcher *dispatcher, int64_t now, int64_t *until_us)
{
    struct ps_events *events = dispatch->first;
    if (expected_back(dispatch, now)) {
        if (dispatch->rejection_timeout_us < *until_us) *until_us = dispatch->rejection_timeout_us;
        return false;
    }
    if (!events) return false;
    dispatch->first = events->ready_next;
    if (!dispatch->first) dispatch->last = &dispatch->first;
    events->ready = false;
    events->served = true;
    atomic_store(&dispatcher->events, events);
    dispatch->latest = dispatcher;
    dispatch->rejection_timeout_us = now + PATIENCE_US;
    return true;
}

/* The old turn ends and the new one begins under one lock: no other dispatcher takes the rest of the queue in between. */
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

void ps_dispatcher_end(struct ps_dispatcher *dispatcher, bool more)
{
    struct dispatch *dispatch = dispatch_get();
    pthread_mutex_lock(&dispatch->singleton.lock);
    end_turn(dispatch, dispatcher, more);
    pthread_mutex_unlock(&dispatch->singleton.lock);
}

/* Allocates nothing: without a dispatch queue no dispatcher sleeps. */
void ps_dispatcher_interrupt(void *dispatcher)
{
    struct ps_singleton *dispatch = atomic_load(&dispatches.current);
    atomic_store(&((struct ps_dispatcher *)dispatcher)->interrupted, true);
    if (dispatch) ps_singleton_changed(dispatch);
}
