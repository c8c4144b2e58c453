/*
 * C11 threads, locks and conditions on top of POSIX threads. ThreadSanitizer understands only POSIX threads, but librdkafka uses
 * C11. A program that links these functions uses them instead of the C library's. In glibc the objects of both are the same.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

struct start {
    thrd_start_t body;
    void *arg;
};

static void *thread_main(void *arg)
{
    struct start start = *(struct start *)arg;
    free(arg);
    return (void *)(intptr_t)start.body(start.arg);
}

static int answer(int failed)
{
    return failed == 0 ? thrd_success : failed == ETIMEDOUT ? thrd_timedout : failed == EBUSY ? thrd_busy : thrd_error;
}

int thrd_create(thrd_t *thread, thrd_start_t body, void *arg)
{
    struct start *start = malloc(sizeof(*start));
    if (!start) return thrd_nomem;
    *start = (struct start){ body, arg };
    int failed = pthread_create((pthread_t *)thread, NULL, thread_main, start);
    if (failed) free(start);
    return answer(failed);
}

int thrd_join(thrd_t thread, int *result)
{
    void *value;
    int failed = pthread_join((pthread_t)thread, &value);
    if (!failed && result) *result = (int)(intptr_t)value;
    return answer(failed);
}

int mtx_init(mtx_t *lock, int type)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    if (type & mtx_recursive) pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    int failed = pthread_mutex_init((pthread_mutex_t *)lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return answer(failed);
}

void mtx_destroy(mtx_t *lock)
{
    pthread_mutex_destroy((pthread_mutex_t *)lock);
}

int mtx_lock(mtx_t *lock)
{
    return answer(pthread_mutex_lock((pthread_mutex_t *)lock));
}

int mtx_trylock(mtx_t *lock)
{
    return answer(pthread_mutex_trylock((pthread_mutex_t *)lock));
}

int mtx_unlock(mtx_t *lock)
{
    return answer(pthread_mutex_unlock((pthread_mutex_t *)lock));
}

int cnd_init(cnd_t *condition)
{
    return answer(pthread_cond_init((pthread_cond_t *)condition, NULL));
}

void cnd_destroy(cnd_t *condition)
{
    pthread_cond_destroy((pthread_cond_t *)condition);
}

int cnd_signal(cnd_t *condition)
{
    return answer(pthread_cond_signal((pthread_cond_t *)condition));
}

int cnd_broadcast(cnd_t *condition)
{
    return answer(pthread_cond_broadcast((pthread_cond_t *)condition));
}

int cnd_wait(cnd_t *condition, mtx_t *lock)
{
    return answer(pthread_cond_wait((pthread_cond_t *)condition, (pthread_mutex_t *)lock));
}

int cnd_timedwait(cnd_t *condition, mtx_t *lock, const struct timespec *until)
{
    return answer(pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)lock, until));
}
