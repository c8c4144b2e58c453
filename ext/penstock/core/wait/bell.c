/*
 * A bell wakes threads and fibers that look for work. Any thread rings it, including librdkafka's with its locks held. A
 * sleeper waits for a completion that is never settled, only woken (nogvl.c).
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

/* The ringing thread counts the ring before it looks for sleepers. A sleeper joins before it reads the count. So the sleeper
 * sees the new count, or the ringing thread sees the sleeper. */
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
