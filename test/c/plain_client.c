/*
 * A client written as librdkafka's documentation shows it, without Ruby and without Penstock. If a broker's answer crashes this
 * program too (test/proofs/hostile_broker_test.rb), the fault is librdkafka's.
 *
 * plain_client produce|produce_idempotently|transact|assign|subscribe|examine HOST:PORT [name=value...]
 */
#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MESSAGES = 3, ASKS = 3, STORED = 12, POLL_MS = 100, TAKE_S = 2, CALL_MS = 2000, CLOSE_MS = 1000 };
static const char *topic = "attacked";

static void set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    char text[512];
    if (rd_kafka_conf_set(conf, name, value, text, sizeof(text)) == RD_KAFKA_CONF_OK) return;
    fprintf(stderr, "%s\n", text);
    exit(2);
}

static rd_kafka_t *make(rd_kafka_type_t type, rd_kafka_conf_t *conf)
{
    char text[512];
    rd_kafka_t *rk = rd_kafka_new(type, conf, text, sizeof(text));
    if (rk) return rk;
    fprintf(stderr, "%s\n", text);
    exit(2);
}

static void check(rd_kafka_error_t *error)
{
    if (!error) return;
    fprintf(stderr, "%s\n", rd_kafka_error_string(error));
    rd_kafka_error_destroy(error);
}

static void produce(rd_kafka_conf_t *conf, const char *what)
{
    bool transactional = strcmp(what, "transact") == 0;
    if (transactional) set(conf, "transactional.id", "attacked");
    else set(conf, "enable.idempotence", strcmp(what, "produce") == 0 ? "false" : "true");
    set(conf, "linger.ms", "0");
    rd_kafka_t *rk = make(RD_KAFKA_PRODUCER, conf);
    if (transactional) {
        check(rd_kafka_init_transactions(rk, CALL_MS));
        check(rd_kafka_begin_transaction(rk));
    }
    const struct rd_kafka_metadata *metadata; /* so that messages that wait for the topic's partitions are sent at once */
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, topic, NULL);
    if (rd_kafka_metadata(rk, 0, rkt, &metadata, CALL_MS) == 0) rd_kafka_metadata_destroy(metadata);
    for (int i = 0; i < MESSAGES; i++)
        rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(0), RD_KAFKA_V_VALUE("p", 1), RD_KAFKA_V_END);
    rd_kafka_flush(rk, CALL_MS);
    if (transactional) check(rd_kafka_commit_transaction(rk, CALL_MS));
    for (int i = 0; i < ASKS; i++)
        if (rd_kafka_metadata(rk, 0, rkt, &metadata, CALL_MS) == 0) rd_kafka_metadata_destroy(metadata);
    rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    rd_kafka_flush(rk, CLOSE_MS);
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(rk);
}

/* The doctor's query for brokers. librdkafka has no call for brokers alone, so the answer also contains all topics. */
static void examine(rd_kafka_conf_t *conf)
{
    rd_kafka_t *rk = make(RD_KAFKA_PRODUCER, conf);
    const struct rd_kafka_metadata *metadata;
    for (int i = 0; i < ASKS; i++)
        if (rd_kafka_metadata(rk, 0, NULL, &metadata, CALL_MS) == 0) rd_kafka_metadata_destroy(metadata);
    rd_kafka_destroy(rk);
}

static void rebalance_cb(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *partitions, void *opaque)
{
    (void)opaque;
    rd_kafka_assign(rk, err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS ? partitions : NULL);
}

static void consume(rd_kafka_conf_t *conf, const char *what)
{
    bool grouped = strcmp(what, "subscribe") == 0;
    set(conf, "group.id", grouped ? "attacked" : "none");
    set(conf, "auto.offset.reset", "earliest");
    set(conf, "enable.auto.commit", "false");
    rd_kafka_conf_set_rebalance_cb(conf, rebalance_cb);
    rd_kafka_t *rk = make(RD_KAFKA_CONSUMER, conf);
    rd_kafka_poll_set_consumer(rk);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, grouped ? RD_KAFKA_PARTITION_UA : 0)->offset = RD_KAFKA_OFFSET_BEGINNING;
    if (grouped) rd_kafka_subscribe(rk, list);
    else rd_kafka_assign(rk, list);
    time_t end = time(NULL) + TAKE_S;
    for (int taken = 0; taken < STORED && time(NULL) <= end;) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(rk, POLL_MS);
        if (!message) continue;
        if (message->err == 0) taken++;
        rd_kafka_message_destroy(message);
    }
    rd_kafka_consumer_close(rk);
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(rk);
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", argv[2]);
    set(conf, "log_level", "0");
    for (int i = 3; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value) return 2;
        *value = '\0';
        set(conf, argv[i], value + 1);
    }
    if (strcmp(argv[1], "assign") == 0 || strcmp(argv[1], "subscribe") == 0) consume(conf, argv[1]);
    else if (strcmp(argv[1], "examine") == 0) examine(conf);
    else produce(conf, argv[1]);
    return 0;
}
