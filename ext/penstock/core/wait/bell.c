/*
 * A bell wakes threads and fibers that look for work. Any thread rings it, including librdkafka's with its locks held. A
 * sleeper waits for a completion that is never settled, only woken (nogvl.c).
 *
 * A set of bells wakes a thread that looks for the work of many. A ring of one of its bells also pushes the bell's member on the
 * set's stack, and rings the set's own bell. So a wait costs as much as the bells that have rung, whatever the set's size.
 */
#include "wait/wait.h"
#include <stdlib.h>

void ps_bell_init(struct ps_bell *bell)
{
    atomic_init(&bell->rings, 0);
    atomic_init(&bell->member, NULL);
    pthread_mutex_init(&bell->lock, NULL);
    ps_completion_init(&bell->sleepers, &bell->lock, 1);
}

void ps_bell_destroy(struct ps_bell *bell)
{
    ps_completion_drop(&bell->sleepers);
    pthread_mutex_destroy(&bell->lock);
}

/*
 * A ringing thread that finds the stack not empty leaves the set's bell alone: the thread that pushed the first member rings it
 * after its push. A thread that took the stack in between has emptied it, so the next push rings again.
 */
static void member_push(struct ps_bell_member *member)
{
    struct ps_bell_set *set = member->set;
    if (atomic_exchange(&member->rung, true)) return; /* it is in the stack, and its work is looked for after it is taken */
    atomic_fetch_add(&member->refs, 1);
    struct ps_bell_member *head = atomic_load(&set->rung);
    do member->rung_next = head;
    while (!atomic_compare_exchange_weak(&set->rung, &head, member));
    if (!head) ps_bell_ring(&set->bell);
}

/* The lock keeps the member in the set, and so both in memory. */
static void ring_set(struct ps_bell *bell)
{
    pthread_mutex_lock(&bell->lock);
    struct ps_bell_member *member = atomic_load(&bell->member);
    if (member) member_push(member);
    pthread_mutex_unlock(&bell->lock);
}

/* The ringing thread counts the ring before it looks for sleepers. A sleeper joins before it reads the count. So the sleeper
 * sees the new count, or the ringing thread sees the sleeper. */
void ps_bell_ring(struct ps_bell *bell)
{
    atomic_fetch_add(&bell->rings, 1);
    ps_completion_wake(&bell->sleepers);
    if (atomic_load(&bell->member)) ring_set(bell);
}

void ps_bell_ring_cb(rd_kafka_t *rk, void *bell)
{
    (void)rk;
    ps_bell_ring(bell);
}

/* ---- sets ---- */

void ps_bell_set_init(struct ps_bell_set *set)
{
    ps_bell_init(&set->bell);
    atomic_init(&set->rung, NULL);
}

void ps_bell_set_destroy(struct ps_bell_set *set)
{
    ps_bell_destroy(&set->bell);
}

/* A ring that came before has not pushed the member, so this function does. */
bool ps_bell_join(struct ps_bell *bell, struct ps_bell_member *member)
{
    pthread_mutex_lock(&bell->lock);
    bool joins = !atomic_load(&bell->member);
    if (joins) {
        atomic_store(&bell->member, member);
        member_push(member);
    }
    pthread_mutex_unlock(&bell->lock);
    return joins;
}

void ps_bell_leave(struct ps_bell *bell)
{
    pthread_mutex_lock(&bell->lock);
    atomic_store(&bell->member, NULL);
    pthread_mutex_unlock(&bell->lock);
}

struct ps_bell_member *ps_bell_set_take(struct ps_bell_set *set)
{
    struct ps_bell_member *stack = atomic_exchange(&set->rung, NULL), *queue = NULL;
    while (stack) {
        struct ps_bell_member *next = stack->rung_next;
        stack->rung_next = queue;
        queue = stack;
        stack = next;
    }
    return queue;
}

/* Reads the next one first: once the mark is cleared, a ring pushes the member and changes `rung_next`. */
struct ps_bell_member *ps_bell_member_taken(struct ps_bell_member *member)
{
    struct ps_bell_member *next = member->rung_next;
    atomic_store(&member->rung, false);
    return next;
}

void ps_bell_member_unref(struct ps_bell_member *member)
{
    if (atomic_fetch_sub(&member->refs, 1) == 1) free(member);
}
