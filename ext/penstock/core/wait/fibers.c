/*
 * Wakes the waiting fibers of one scheduler. A thread that wakes a fiber pushes its waiter on a lock-free stack and writes to
 * an eventfd, just as a client that becomes ready wakes the poller. One of the fibers, the leader, waits for that eventfd
 * through the scheduler, and resumes the fibers on the stack (fiber_wait.c). So any number of wake-ups costs one write(2), and
 * any number of fibers one descriptor.
 *
 * A fiber's waiter is reference counted: by the fiber, by the completion that it is linked in, and by the stack.
 */
#include "wait/wait.h"
#include <errno.h>
#include <stdlib.h>

struct ps_fibers *ps_fibers_new(void)
{
    struct ps_fibers *fibers = calloc(1, sizeof(*fibers));
    if (!fibers) return NULL;
    int failed = ps_wakeup_open(&fibers->wakeup);
    if (failed) {
        free(fibers);
        errno = failed;
        return NULL;
    }
    atomic_init(&fibers->refs, 1);
    return fibers;
}

void ps_fibers_unref(struct ps_fibers *fibers)
{
    if (atomic_fetch_sub(&fibers->refs, 1) != 1) return;
    ps_wakeup_close(&fibers->wakeup);
    free(fibers);
}

static void discard_woken(struct ps_fibers *fibers)
{
    struct ps_waiter *waiter = atomic_exchange(&fibers->woken, NULL);
    while (waiter) {
        struct ps_waiter *next = waiter->woken_next;
        ps_waiter_unref(waiter);
        waiter = next;
    }
}

/* A thread that pushes a waiter later sees `forgotten` and empties the stack itself. If both threads empty it, the atomic
 * exchange gives each waiter to only one of them. */
void ps_fibers_forget(struct ps_fibers *fibers)
{
    atomic_store(&fibers->forgotten, true);
    discard_woken(fibers);
    ps_fibers_unref(fibers);
}

struct ps_waiter *ps_fibers_waiter(struct ps_fibers *fibers, size_t size)
{
    struct ps_waiter *waiter = calloc(1, size);
    if (!waiter) return NULL;
    atomic_init(&waiter->refs, 1);
    waiter->fibers = fibers;
    atomic_fetch_add(&fibers->refs, 1);
    return waiter;
}

void ps_waiter_unref(struct ps_waiter *waiter)
{
    if (atomic_fetch_sub(&waiter->refs, 1) != 1) return;
    ps_fibers_unref(waiter->fibers);
    free(waiter);
}

void ps_fibers_wake(struct ps_waiter *waiter)
{
    if (atomic_exchange(&waiter->woken, true)) return; /* on the stack already */
    struct ps_fibers *fibers = waiter->fibers;
    atomic_fetch_add(&waiter->refs, 1);
    struct ps_waiter *head = atomic_load(&fibers->woken);
    do waiter->woken_next = head;
    while (!atomic_compare_exchange_weak(&fibers->woken, &head, waiter));
    /* `fibers` is still alive: the completion has a reference to the waiter, and the waiter has one to `fibers`. */
    if (atomic_load(&fibers->forgotten)) discard_woken(fibers);
    else if (!head) ps_wakeup_signal(&fibers->wakeup); /* else the thread that made the stack non-empty has signalled */
}

/* Clears the eventfd before it takes the stack: a thread that finds the stack empty after that signals again. In the other
 * order, that signal could be cleared with the earlier ones, and its fiber would sleep for ever. */
struct ps_waiter *ps_fibers_take(struct ps_fibers *fibers)
{
    ps_wakeup_take(&fibers->wakeup);
    struct ps_waiter *stack = atomic_exchange(&fibers->woken, NULL), *queue = NULL;
    while (stack) { /* the stack has the latest waiter first; the fiber that was woken first runs first */
        struct ps_waiter *next = stack->woken_next;
        stack->woken_next = queue;
        queue = stack;
        stack = next;
    }
    return queue;
}
