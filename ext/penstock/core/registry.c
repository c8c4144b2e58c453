/*
 * The producing clients and consumers that are open in this process, so that all can be closed when it ends. Made anew
 * in a forked child: there the inherited list, and perhaps its lock, belong to threads that are gone.
 */
#include "core.h"
#include <stdlib.h>

struct registry {
    unsigned generation;
    pthread_mutex_t lock;
    struct ps_open *first;
    unsigned count;
    _Atomic unsigned closing;
};

static _Atomic(struct registry *) current;

static struct registry *registry_get(void)
{
    struct registry *registry = atomic_load(&current);
    if (registry && registry->generation == ps_generation()) return registry;

    struct registry *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) abort(); /* a few bytes: the process is past saving */
    fresh->generation = ps_generation();
    pthread_mutex_init(&fresh->lock, NULL);
    if (atomic_compare_exchange_strong(&current, &registry, fresh)) return fresh;
    free(fresh);
    return registry; /* another thread was first */
}

void ps_registry_add(struct ps_open *open)
{
    struct registry *registry = registry_get();
    pthread_mutex_lock(&registry->lock);
    open->prev = NULL;
    open->next = registry->first;
    if (open->next) open->next->prev = open;
    registry->first = open;
    registry->count++;
    pthread_mutex_unlock(&registry->lock);
}

void ps_registry_remove(struct ps_open *open)
{
    struct registry *registry = registry_get();
    pthread_mutex_lock(&registry->lock);
    if (open->prev) open->prev->next = open->next;
    else registry->first = open->next;
    if (open->next) open->next->prev = open->prev;
    registry->count--;
    pthread_mutex_unlock(&registry->lock);
}

unsigned ps_registry_count(void)
{
    struct registry *registry = registry_get();
    pthread_mutex_lock(&registry->lock);
    unsigned count = registry->count;
    pthread_mutex_unlock(&registry->lock);
    return count;
}

int64_t ps_registry_close_by_us(void)
{
    struct registry *registry = registry_get();
    int64_t latest = 0;
    pthread_mutex_lock(&registry->lock);
    for (struct ps_open *open = registry->first; open; open = open->next) {
        int64_t close_by_us = atomic_load(&open->close_by_us);
        if (close_by_us > latest) latest = close_by_us;
    }
    pthread_mutex_unlock(&registry->lock);
    return latest;
}

void ps_registry_hurry(void)
{
    struct registry *registry = registry_get();
    pthread_mutex_lock(&registry->lock);
    for (struct ps_open *open = registry->first; open; open = open->next)
        ps_open_hurry(open, ps_now_us());
    pthread_mutex_unlock(&registry->lock);
}

unsigned ps_registry_close_all(struct ps_closing *closing, unsigned max)
{
    struct registry *registry = registry_get();
    unsigned found = 0, started = 0;

    pthread_mutex_lock(&registry->lock);
    for (struct ps_open *open = registry->first; open && found < max; open = open->next) {
        ps_open_retain(open);
        closing[found++].open = open;
    }
    pthread_mutex_unlock(&registry->lock);

    for (unsigned i = 0; i < found; i++) { /* outside the lock: closing takes the client's, and that comes first */
        struct ps_open *open = closing[i].open;
        struct ps_job *job = ps_open_end(open);
        if (job) closing[started++] = (struct ps_closing){ .open = open, .job = job };
        else ps_open_unref(open);
    }
    return started;
}

void ps_registry_closing(int change)
{
    atomic_fetch_add(&registry_get()->closing, change);
}

unsigned ps_registry_closing_count(void)
{
    return atomic_load(&registry_get()->closing);
}
