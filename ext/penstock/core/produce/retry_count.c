/*
 * Counts how often messages were sent, with librdkafka's interceptors, on its broker threads. Nothing else reports it:
 * `txretries` in its statistics leaves out Produce requests.
 *
 * librdkafka calls the interceptor for an answer to a Produce request, or for its failure, before it reads the answer. If it
 * then settles messages, it does so at once and on the same thread. If nothing was settled by the time the thread handles its
 * next request or answer, the messages are back in librdkafka's queue, and will be sent again.
 */
#include "produce/produce.h"

enum { PRODUCE = 0 }; /* Kafka's ApiKey */

static _Thread_local bool unsettled; /* of a broker thread: its latest answer has settled nothing so far */

static void count_unsettled(struct ps_producer *producer)
{
    if (unsettled) atomic_fetch_add_explicit(&producer->retries, 1, memory_order_relaxed);
    unsettled = false;
}

static rd_kafka_resp_err_t request_sent_cb(rd_kafka_t *rk, int socket, const char *broker_name, int32_t broker_id,
                                           int16_t api_key, int16_t api_version, int32_t correlation_id, size_t size, void *arg)
{
    struct ps_producer *producer = arg;
    (void)rk, (void)socket, (void)broker_name, (void)broker_id, (void)api_version, (void)correlation_id, (void)size;
    count_unsettled(producer);
    if (api_key == PRODUCE) atomic_fetch_add_explicit(&producer->requests, 1, memory_order_relaxed);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t answered_cb(rd_kafka_t *rk, int socket, const char *broker_name, int32_t broker_id,
                                       int16_t api_key, int16_t api_version, int32_t correlation_id, size_t size,
                                       int64_t round_trip_us, rd_kafka_resp_err_t err, void *producer)
{
    (void)rk, (void)socket, (void)broker_name, (void)broker_id, (void)api_version, (void)correlation_id, (void)size;
    (void)round_trip_us;
    count_unsettled(producer);
    unsettled = api_key == PRODUCE && err != RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE && /* it was never sent */
                err != RD_KAFKA_RESP_ERR__DESTROY;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* Called once for each message, so it does no more than this. */
static rd_kafka_resp_err_t settled_cb(rd_kafka_t *rk, rd_kafka_message_t *message, void *producer)
{
    (void)rk, (void)message, (void)producer;
    unsettled = false;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t new_cb(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *producer, char *errstr, size_t size)
{
    (void)conf, (void)errstr, (void)size;
    rd_kafka_interceptor_add_on_request_sent(rk, "penstock", request_sent_cb, producer);
    rd_kafka_interceptor_add_on_response_received(rk, "penstock", answered_cb, producer);
    return rd_kafka_interceptor_add_on_acknowledgement(rk, "penstock", settled_cb, producer);
}

/* `conf` must be the one of an rd_kafka_t, not a template: copies have no interceptors. The client outlives its rd_kafka_t. */
void ps_requests_count(struct ps_producer *producer, rd_kafka_conf_t *conf)
{
    rd_kafka_conf_interceptor_add_on_new(conf, "penstock", new_cb, producer);
}
