/*
 * Lets a new idempotent producer send its first message without delay.
 *
 * Such a producer sends nothing before it has a producer id. librdkafka looks for a connected broker to ask for one when a
 * Metadata answer arrives, and otherwise each 500 ms. Since version 2.10 a Metadata answer of a bootstrap server ends the connection
 * to that server first. So there is no connected broker, and the first message waits for the 500 ms, or a multiple.
 *
 * The opening thread queues a DescribeCluster operation: a Metadata request about brokers, without topics, to one broker.
 * librdkafka's main thread connects to that broker as soon as it knows the broker's address, sends the request, and asks for the
 * producer id when the answer arrives. No Penstock thread waits. The result is an event that the serving thread discards.
 * rd_kafka_destroy ends an operation that is still in progress.
 */
#include "produce/produce.h"
#include <string.h>

#if RD_KAFKA_VERSION >= 0x020a00ff

/* GIVE_UP: for a cluster that is reached later, 500 ms no longer matter. */
enum { ENDS_BOOTSTRAP_CONNECTIONS = 0x020a0000, GIVE_UP_MS = 5000 };
enum { CONTROLLER = -1, MOCK_BROKER = 1 };

static void describe_cluster(struct ps_producer *producer, int32_t broker)
{
    char text[256];
    rd_kafka_t *rk = producer->client.rk;
    rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_DESCRIBECLUSTER);
    if (!options) return;
    rd_kafka_AdminOptions_set_request_timeout(options, GIVE_UP_MS, text, sizeof(text));
    if (broker != CONTROLLER) rd_kafka_AdminOptions_set_broker(options, broker, text, sizeof(text));
    rd_kafka_DescribeCluster(rk, options, producer->polled.queue);
    rd_kafka_AdminOptions_destroy(options);
}

/* Whether the broker may be of librdkafka's mock cluster, whose addresses all begin like this. */
static bool may_be_mock(const struct ps_producer *producer)
{
    static const char address[] = "127.0.0.1:";
    char servers[sizeof(address)] = "";
    size_t size = sizeof(servers);
    rd_kafka_conf_get(rd_kafka_conf(producer->client.rk), "bootstrap.servers", servers, &size);
    return strcmp(servers, address) == 0;
}

/*
 * Asks the broker that Metadata answers name as the controller. With KRaft they name a random broker, so the requests of many
 * clients do not meet at one broker. The mock cluster names broker 0, which it does not have: its brokers are 1, 2, 3... There
 * the request goes to broker 1. A Kafka on 127.0.0.1 without a broker 1 keeps the 500 ms.
 */
void ps_first_message_hasten(struct ps_producer *producer)
{
    if (!producer->settings.idempotent || rd_kafka_version() < ENDS_BOOTSTRAP_CONNECTIONS) return;
    describe_cluster(producer, may_be_mock(producer) ? MOCK_BROKER : CONTROLLER);
}

#else

void ps_first_message_hasten(struct ps_producer *producer)
{
    (void)producer; /* built with a librdkafka that keeps its bootstrap connections */
}

#endif
