/* Clock, fork detection and native threads: the little that differs between systems. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_setname_np */
#endif
#include "base/base.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t ps_now_us(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t ps_about_now_us(void)
{
#ifdef CLOCK_MONOTONIC_COARSE
    return read_clock(CLOCK_MONOTONIC_COARSE);
#else
    return ps_now_us();
#endif
}

int64_t ps_wall_clock_ms(void)
{
    return read_clock(CLOCK_REALTIME) / 1000;
}

int64_t ps_deadline_us(int64_t timeout_ms)
{
    int64_t now = ps_now_us();
    if (timeout_ms < 0 || timeout_ms > (PS_FOREVER - now) / 1000) return PS_FOREVER;
    return now + timeout_ms * 1000;
}

int ps_remaining_ms(int64_t deadline_us)
{
    if (deadline_us == PS_FOREVER) return -1;
    int64_t left = deadline_us - ps_now_us();
    if (left <= 0) return 0;
    left = (left + 999) / 1000;
    return left > INT32_MAX ? INT32_MAX : (int)left;
}

/*
 * Counts forks, which is cheaper than getpid(2) in each call. The handlers run in every child, including those of
 * Process.daemon and of `system` where Ruby forks for it. So they do nothing else than count, and unlock random.c.
 */
static _Atomic unsigned generation = 1;

static void in_child(void)
{
    atomic_fetch_add(&generation, 1);
    ps_random_after_fork();
}

void ps_fork_init(void)
{
    pthread_atfork(ps_random_before_fork, ps_random_after_fork, in_child); /* M:forks_counted */
}

unsigned ps_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

struct thread_start {
    void *(*body)(void *);
    void *arg;
    char name[16]; /* Linux keeps 15 characters */
};

static void *thread_main(void *arg)
{
    struct thread_start start = *(struct thread_start *)arg;
    free(arg);
#ifdef __APPLE__
    pthread_setname_np(start.name);
#else
    pthread_setname_np(pthread_self(), start.name);
#endif
    ps_random_begin();
    void *result = start.body(start.arg);
    ps_random_end();
    return result;
}

/* Blocks every signal in the new thread: Ruby's handlers must run on Ruby's threads. */
int ps_thread_start(const char *name, void *(*body)(void *), void *arg)
{
    struct thread_start *start = malloc(sizeof(*start));
    if (!start) return ENOMEM;
    start->body = body;
    start->arg = arg;
    snprintf(start->name, sizeof(start->name), "%s", name);

    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* M:threads_block_signals */
    int failed = pthread_create(&thread, &attributes, thread_main, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (failed) free(start);
    errno = failed;
    return failed;
}
