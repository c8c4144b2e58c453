/*
 * OpenSSL's random numbers, which librdkafka uses, and fork. Each thread has random number generators of its own. When a thread
 * first draws a number, they are seeded from one of the process, under its lock. If the process forks at that moment, the lock
 * stays locked in the child, and every client there hangs. So each thread that may draw numbers draws its first ones here,
 * under a lock that fork takes too.
 */
#include "core/base/base.h"

/* NULL if librdkafka was built without OpenSSL, or contains its own. The extension does not itself need OpenSSL. */
extern int RAND_bytes(unsigned char *bytes, int size) __attribute__((weak));
extern int RAND_priv_bytes(unsigned char *bytes, int size) __attribute__((weak));

static pthread_mutex_t drawing = PTHREAD_MUTEX_INITIALIZER;

void ps_random_draw_first(void)
{
    static _Thread_local unsigned drawn_in; /* a fork child's generators are seeded again */
    if (drawn_in == ps_generation() || !RAND_bytes || !RAND_priv_bytes) return;
    unsigned char byte;
    pthread_mutex_lock(&drawing);
    RAND_bytes(&byte, sizeof(byte)); /* a failure shows again, to the caller who needs the number */
    RAND_priv_bytes(&byte, sizeof(byte));
    pthread_mutex_unlock(&drawing);
    drawn_in = ps_generation();
}

void ps_random_before_fork(void)
{
    pthread_mutex_lock(&drawing);
}

void ps_random_after_fork(void)
{
    pthread_mutex_unlock(&drawing);
}

static rd_kafka_resp_err_t thread_cb(rd_kafka_t *rk, rd_kafka_thread_type_t type, const char *name, void *unused)
{
    (void)rk, (void)type, (void)name, (void)unused;
    ps_random_draw_first();
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t new_cb(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *unused, char *errstr, size_t size)
{
    (void)conf, (void)unused, (void)errstr, (void)size;
    return rd_kafka_interceptor_add_on_thread_start(rk, "penstock.random", thread_cb, NULL);
}

void ps_random_watch_threads(rd_kafka_conf_t *conf)
{
    rd_kafka_conf_interceptor_add_on_new(conf, "penstock.random", new_cb, NULL);
}
