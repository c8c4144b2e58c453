/*
 * OpenSSL's random numbers, which each thread of librdkafka draws, and fork. Each thread has generators of its own. OpenSSL makes
 * and seeds them when the thread first draws a number, and frees them when it ends, both under locks of the process. If the
 * process forks at such a moment, the lock stays locked in the child, and every client there hangs. So these threads make and
 * free their generators here, under a lock that fork takes too.
 */
#include "base/base.h"

/* NULL if librdkafka was built without OpenSSL, or contains its own. The extension does not itself need OpenSSL. */
extern int RAND_bytes(unsigned char *bytes, int size) __attribute__((weak));
extern int RAND_priv_bytes(unsigned char *bytes, int size) __attribute__((weak));
extern void OPENSSL_thread_stop(void) __attribute__((weak));

/* librdkafka 2.14. Versions before 2.13 draw only for TLS; with 2.13 interceptors may be freed twice (client.c). */
enum { DRAWS_IN_EACH_THREAD = 0x020e0000 };

static pthread_mutex_t drawing = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local unsigned drawn_in; /* 0, or the generation: the generators of a fork child are seeded again */

bool ps_random_begin(void)
{
    if (drawn_in == ps_generation() || rd_kafka_version() < DRAWS_IN_EACH_THREAD) return false;
    if (!RAND_bytes || !RAND_priv_bytes || !OPENSSL_thread_stop) return false;
    unsigned char byte;
    pthread_mutex_lock(&drawing);
    RAND_bytes(&byte, sizeof(byte)); /* if it fails, librdkafka's own draw fails too */
    RAND_priv_bytes(&byte, sizeof(byte));
    pthread_mutex_unlock(&drawing);
    drawn_in = ps_generation();
    return true;
}

void ps_random_end(void)
{
    if (drawn_in != ps_generation()) return;
    pthread_mutex_lock(&drawing);
    OPENSSL_thread_stop(); /* the next draw makes new generators */
    pthread_mutex_unlock(&drawing);
    drawn_in = 0;
}

void ps_random_before_fork(void)
{
    pthread_mutex_lock(&drawing);
}

void ps_random_after_fork(void)
{
    pthread_mutex_unlock(&drawing);
}

static rd_kafka_resp_err_t start_cb(rd_kafka_t *rk, rd_kafka_thread_type_t type, const char *name, void *unused)
{
    (void)rk, (void)type, (void)name, (void)unused;
    ps_random_begin();
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t exit_cb(rd_kafka_t *rk, rd_kafka_thread_type_t type, const char *name, void *unused)
{
    (void)rk, (void)type, (void)name, (void)unused;
    ps_random_end();
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t new_cb(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *unused, char *errstr, size_t size)
{
    (void)conf, (void)unused, (void)errstr, (void)size;
    rd_kafka_interceptor_add_on_thread_start(rk, "penstock.random", start_cb, NULL);
    return rd_kafka_interceptor_add_on_thread_exit(rk, "penstock.random", exit_cb, NULL);
}

void ps_random_watch_threads(rd_kafka_conf_t *conf)
{
    if (rd_kafka_version() < DRAWS_IN_EACH_THREAD) return;
    rd_kafka_conf_interceptor_add_on_new(conf, "penstock.random", new_cb, NULL);
}
