/*
 * Objects that each process has one of: the list of open clients, the mailbox of log lines, the dispatch queue of events,
 * the committer.
 *
 * Each process makes its own at the first use. A fork child does not touch its parent's: a thread that does not exist in the
 * child may have left it half changed and locked. None is ever freed, as another thread may just have found it.
 */
#include "base/base.h"
#include <stdlib.h>
#include <string.h>

enum { CACHE_LINE = 64 }; /* the alignment that futex_word.c requires */

void *ps_singleton_get(struct ps_singleton_kind *kind)
{
    struct ps_singleton *found = atomic_load(&kind->current);
    if (found && found->generation == ps_generation()) return found; /* M:fork_renews_singletons */

    size_t size = (kind->size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    struct ps_singleton *fresh = aligned_alloc(CACHE_LINE, size);
    if (!fresh) abort(); /* these are a few bytes: without them the process cannot go on */
    memset(fresh, 0, size);
    fresh->generation = ps_generation();
    pthread_mutex_init(&fresh->lock, NULL);
    if (kind->init) kind->init(fresh);
    if (atomic_compare_exchange_strong(&kind->current, &found, fresh)) return fresh;
    free(fresh);
    return found; /* another thread was first */
}

void ps_singleton_changed(struct ps_singleton *singleton)
{
    atomic_fetch_add(&singleton->changes, 1);
    ps_word_wake(&singleton->changes);
}
