/*
 * For fork_locks.c; included before all headers of the core. Stops a thread wherever it has just taken a lock, or serves
 * librdkafka's events and callbacks, while another thread forks.
 */
#ifndef PENSTOCK_HELD_H
#define PENSTOCK_HELD_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <librdkafka/rdkafka.h>
#include <netdb.h>
#include <pthread.h>
#include <unistd.h>

void held_here(pthread_mutex_t *mutex, const char *what, const char *function);

static inline int held_lock(pthread_mutex_t *mutex, const char *what, const char *function)
{
    int failed = pthread_mutex_lock(mutex);
    held_here(mutex, what, function);
    return failed;
}

#define pthread_mutex_lock(mutex) held_lock(mutex, #mutex, __func__)
#define write(...) (held_here(NULL, "write", __func__), write(__VA_ARGS__))
#define getaddrinfo(...) (held_here(NULL, "getaddrinfo", __func__), getaddrinfo(__VA_ARGS__))
#define rd_kafka_event_type(event) (held_here(NULL, "event", __func__), rd_kafka_event_type(event))
#define rd_kafka_message_timestamp(...) (held_here(NULL, "result", __func__), rd_kafka_message_timestamp(__VA_ARGS__))
#endif
