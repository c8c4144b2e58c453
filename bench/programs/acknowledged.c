/*
 * A plugin for librdkafka (its setting plugin.library.paths) that records when the latest message was acknowledged. It
 * runs on librdkafka's own thread, just before that puts the delivery report on the queue. bin/bench wake loads it into the C
 * program and into Ruby alike, so both are measured from the same moment and pay the same for it.
 */
#define _POSIX_C_SOURCE 200809L
#include <librdkafka/rdkafka.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

_Atomic int64_t acknowledged_ns; /* CLOCK_MONOTONIC; read by the program, which finds it with dlsym(3) */

static rd_kafka_resp_err_t on_acknowledgement(rd_kafka_t *rk, rd_kafka_message_t *message, void *unused) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&acknowledged_ns, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec);
    (void)rk, (void)message, (void)unused;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t on_new(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *unused, char *why, size_t size) {
    (void)conf, (void)unused, (void)why, (void)size;
    return rd_kafka_interceptor_add_on_acknowledgement(rk, "acknowledged", on_acknowledgement, NULL);
}

rd_kafka_resp_err_t conf_init(rd_kafka_conf_t *conf, void **unused, char *why, size_t size) {
    (void)unused, (void)why, (void)size;
    return rd_kafka_conf_interceptor_add_on_new(conf, "acknowledged", on_new, NULL);
}
