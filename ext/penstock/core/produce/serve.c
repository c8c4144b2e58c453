/*
 * How the poller serves a producer: delivery reports, log lines, errors, statistics. It also purges messages if brokers
 * reject the client or cannot be reached. The poller's thread runs this, or a thread that has borrowed the client (poller.c).
 */
#include "produce/produce.h"

struct ps_producer *ps_polled_producer(const struct ps_polled *polled)
{
    return (struct ps_producer *)((char *)polled - offsetof(struct ps_producer, polled));
}

static void handle_log(struct ps_producer *producer, rd_kafka_event_t *event)
{
    const char *facility, *text;
    int level;
    if (rd_kafka_event_log(event, &facility, &text, &level) == 0)
        ps_client_log_librdkafka(&producer->client, level, facility, text);
}

/* Newer librdkafkas (2.14) report each second that all brokers are down, as long as they are. Listeners get it once. */
static void handle_error(struct ps_producer *producer, rd_kafka_event_t *event)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    char text[1024];
    ps_client_quote(&producer->client, text, sizeof(text), rd_kafka_event_error_string(event));
    bool fatal = rd_kafka_event_error_is_fatal(event);
    ps_client_note_error(&producer->client, err, text);
    bool news = ps_client_log_error(&producer->client, fatal ? 2 : 4, err, text);
    if (news || err != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        ps_events_error(producer->events, &producer->client, err, text, fatal);
    if (atomic_load(&producer->delivered) > 0) atomic_store(&producer->client.rejection.worked, true);
    ps_rejection_error(&producer->client.rejection, producer->client.rk, err, text);
}

static void producer_handle(struct ps_polled *polled, rd_kafka_event_t *event)
{
    struct ps_producer *producer = ps_polled_producer(polled);
    switch (rd_kafka_event_type(event)) {
    case RD_KAFKA_EVENT_DR:
        atomic_fetch_add_explicit(&polled->poller->messages, rd_kafka_event_message_count(event), memory_order_relaxed);
        ps_deliveries_settle(producer, event);
        return;
    case RD_KAFKA_EVENT_LOG: handle_log(producer, event); break;
    case RD_KAFKA_EVENT_ERROR: handle_error(producer, event); break;
    /* M:unheard_statistics_freed */
    case RD_KAFKA_EVENT_STATS: ps_events_statistics(producer->events, &producer->client, rd_kafka_event_stats(event)); break;
    default: break; /* the result of first_message.c's request */
    }
    rd_kafka_event_destroy(event);
}

/* Between ps_client_enter and exit. */
static void give_up(struct ps_producer *producer, enum ps_rejected kind)
{
    struct ps_rejection *rejection = &producer->client.rejection;
    atomic_fetch_add(&rejection->given_up, 1);
    if (ps_producer_in_flight(producer) == 0) return;
    ps_rejection_purges(rejection, kind);
    rd_kafka_purge(producer->client.rk, PS_PURGE_ALL | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

static void give_up_if_rejected(struct ps_producer *producer, int64_t now)
{
    struct ps_rejection *rejection = &producer->client.rejection;
    if (atomic_load(&producer->delivered) > 0) atomic_store(&rejection->worked, true);
    enum ps_rejected kind = ps_rejection_reason(rejection, producer->client.rk, now);
    if (kind == PS_NOT_REJECTED) return;
    if (!ps_client_enter(&producer->client)) return; /* the client is closing, with its own deadline */
    give_up(producer, kind);
    ps_client_exit(&producer->client);
}

static bool producer_work_due(const struct ps_polled *polled, int64_t now)
{
    const struct ps_producer *producer = ps_polled_producer(polled);
    return ps_rejection_due(&producer->client.rejection, now) || ps_unnoticed_due(producer, now) ||
           ps_space_stuck(&producer->space, now);
}

static void producer_work(struct ps_polled *polled, int64_t now)
{
    struct ps_producer *producer = ps_polled_producer(polled);
    if (ps_rejection_due(&producer->client.rejection, now)) give_up_if_rejected(producer, ps_now_us());
    if (ps_unnoticed_due(producer, now)) ps_unnoticed_log(producer);
    if (ps_space_stuck(&producer->space, now)) ps_space_unstick(&producer->space); /* M:space_stuck_turn */
}

const struct ps_polled_kind ps_producer_polled_kind = {
    .handle = producer_handle,
    .work_due = producer_work_due,
    .work = producer_work,
};
