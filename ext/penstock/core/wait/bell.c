/*
 * A bell: rung from anywhere, also by librdkafka with its locks held, and heard by everybody who sleeps or will sleep
 * having heard less. Who sleeps on one waits for a completion that is never settled, only woken (nogvl.c).
 */
#include "wait/wait.h"

void ps_bell_init(struct ps_bell *bell)
{
    atomic_init(&bell->rings, 0);
    pthread_mutex_init(&bell->lock, NULL);
    ps_completion_init(&bell->sleepers, &bell->lock, 1);
}

void ps_bell_destroy(struct ps_bell *bell)
{
    ps_completion_drop(&bell->sleepers);
    pthread_mutex_destroy(&bell->lock);
}

/* Counted before it looks for sleepers, who join before they look at the count: one of them sees the other. */
void ps_bell_ring(struct ps_bell *bell)
{
    atomic_fetch_add(&bell->rings, 1);
    ps_completion_wake(&bell->sleepers);
}

void ps_bell_ring_cb(rd_kafka_t *rk, void *bell)
{
    (void)rk;
    ps_bell_ring(bell);
}
