/*
 * Shows, with librdkafka alone, what idempotence does not cover: when a message times out, another message that librdkafka is
 * just retrying may be stored twice, although both of its requests carry sequence numbers.
 *
 *   cc -o timeout_duplicate bench/timeout_duplicate.c -lrdkafka
 *   bin/kafka up --name timeout && bin/kafka status --name timeout
 *   ./timeout_duplicate SERVERS PID [DEBUG]; bin/kafka down --name timeout
 *
 * The broker is frozen. "twice" is sent, its request times out, and it waits for a retry. "late", in another topic with a
 * shorter timeout, times out: librdkafka begins a new epoch of its producer id for all topics (see DEBUG eos,msg: "bumped
 * epoch") and numbers messages from 0 again. The broker continues, and accepts "twice" from its first connection in the old
 * epoch. Then it accepts it again in the new epoch, in which it cannot recognise it. Seen with librdkafka 2.0.2 and 2.14.2.
 */
#include <librdkafka/rdkafka.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char text[512];

static void set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    if (rd_kafka_conf_set(conf, name, value, text, sizeof(text)) == RD_KAFKA_CONF_OK) return;
    fprintf(stderr, "%s\n", text);
    exit(1);
}

static void verdict_cb(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
    static const char *const statuses[] = { "not persisted", "possibly persisted", "persisted" };
    (void)rk;
    (void)opaque;
    printf("%.*s: %s, %s\n", (int)message->len, (char *)message->payload, rd_kafka_err2name(message->err),
           statuses[rd_kafka_message_status(message)]);
}

static rd_kafka_topic_t *topic_with_timeout(rd_kafka_t *rk, const char *name, const char *ms)
{
    rd_kafka_topic_conf_t *conf = rd_kafka_topic_conf_new();
    rd_kafka_topic_conf_set(conf, "message.timeout.ms", ms, text, sizeof(text));
    return rd_kafka_topic_new(rk, name, conf);
}

static void produce(rd_kafka_topic_t *topic, const char *payload)
{
    if (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, (void *)payload, strlen(payload), NULL, 0, NULL) == 0) return;
    perror("rd_kafka_produce");
    exit(1);
}

static int times_stored(const char *servers, const char *topic, const char *payload)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", servers);
    set(conf, "group.id", "none");
    set(conf, "enable.partition.eof", "true");
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof(text));
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, 0)->offset = 0;
    rd_kafka_assign(rk, list);
    rd_kafka_topic_partition_list_destroy(list);

    int count = 0;
    for (bool ended = false; !ended;) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(rk, 1000);
        if (!message) continue;
        ended = message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
        count += !message->err && message->len == strlen(payload) && !memcmp(message->payload, payload, message->len);
        rd_kafka_message_destroy(message);
    }
    rd_kafka_consumer_close(rk);
    rd_kafka_destroy(rk);
    return count;
}

int main(int argc, char **argv)
{
    char patient[64], impatient[64];
    if (argc < 3) return 1;
    snprintf(patient, sizeof(patient), "patient-%d", getpid());
    snprintf(impatient, sizeof(impatient), "impatient-%d", getpid());

    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", argv[1]);
    set(conf, "enable.idempotence", "true");
    set(conf, "socket.timeout.ms", "2000"); /* how long librdkafka waits for a response */
    set(conf, "linger.ms", "0");
    if (argc > 3) set(conf, "debug", argv[3]);
    rd_kafka_conf_set_dr_msg_cb(conf, verdict_cb);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof(text));
    rd_kafka_topic_t *one = topic_with_timeout(rk, patient, "60000"), *other = topic_with_timeout(rk, impatient, "3000");
    produce(one, "first");
    produce(other, "first");
    rd_kafka_flush(rk, 20000); /* creates the topics */

    kill(atoi(argv[2]), SIGSTOP);
    produce(one, "twice");
    usleep(100000);
    produce(other, "late");
    for (int i = 0; i < 60; i++) {
        rd_kafka_poll(rk, 0);
        usleep(100000);
    }
    kill(atoi(argv[2]), SIGCONT);
    rd_kafka_flush(rk, 20000);
    rd_kafka_topic_destroy(one);
    rd_kafka_topic_destroy(other);
    rd_kafka_destroy(rk);
    printf("librdkafka %s: \"twice\" is stored %d times\n", rd_kafka_version_str(), times_stored(argv[1], patient, "twice"));
    return 0;
}
