/*
 * How a poll takes messages: librdkafka's events and messages, copied into a ps_fetched (decision 0020). Read `take` first: it has
 * the order of things.
 *
 * The program's polling threads take, one at a time: such a thread holds consumer->taking. It takes what is there and never waits for
 * messages. A thread that must not block, because it holds a lock of the program, calls ps_take_now. It takes one message at a time,
 * and answers no rebalance.
 */
#include "consume/consume.h"
#include <stdlib.h>
#include <string.h>

/*
 * A call ends with the message that reaches one of these limits. librdkafka accepts 100,000 headers in each message, and it takes
 * ms to parse and copy so many. A call that may block takes messages in parts, and may exceed the limits by a part: at most by what
 * librdkafka's queue may have (queued.max.messages.kbytes).
 */
enum { MOST_HEADERS = 100000, MOST_BYTES = 64 << 20 };

/* A call that gets at most so much allocates once. */
enum { FIRST_RECORDS = 16, FIRST_BYTES = 2048 };

/* From this number of available messages on, it pays to use a call that may block. */
enum { MANY = 32 };

static size_t most_bytes(const struct ps_taking *taking)
{
    return taking->most_bytes ? taking->most_bytes : MOST_BYTES;
}

static bool is_full(const struct ps_taking *taking)
{
    const struct ps_fetched *fetched = taking->fetched;
    /* M:batch_headers_bounded */
    return fetched && (fetched->count >= taking->max || taking->headers >= MOST_HEADERS || fetched->used >= most_bytes(taking));
}

size_t ps_taking_count(const struct ps_taking *taking)
{
    return taking->fetched ? taking->fetched->count : 0;
}

bool ps_taking_has_result(const struct ps_taking *taking)
{
    return taking->fetched && (taking->fetched->count > 0 || taking->fetched->end_count > 0);
}

/* ---- one message ---- */

/* Other clients may write damaged headers. False: they cannot be read. */
static bool read_headers(const rd_kafka_message_t *message, rd_kafka_headers_t **headers)
{
    rd_kafka_resp_err_t err = rd_kafka_message_headers(message, headers);
    if (err) *headers = NULL;
    return !err || err == RD_KAFKA_RESP_ERR__NOENT;
}

/* librdkafka has returned it before; see ps_ledger_resumed. */
static bool is_repeated(struct ps_ledger *ledger, const rd_kafka_message_t *message)
{
    return atomic_load_explicit(&ledger->repeating, memory_order_relaxed) &&
           ps_ledger_repeated(ledger, rd_kafka_topic_name(message->rkt), message->partition, message->offset);
}

/* False: no memory. */
static bool begin_fetched(struct ps_taking *taking, const rd_kafka_message_t *first, const rd_kafka_headers_t *headers)
{
    bool single = taking->single;
    size_t size = single ? ps_fetched_size_of(first, headers) : FIRST_BYTES;
    struct ps_fetched *fetched = ps_fetched_new(rd_kafka_topic_name(first->rkt), single ? 1 : FIRST_RECORDS, size);
    if (!fetched) return false;
    if (!single) fetched->expected = rd_kafka_queue_length(taking->consumer->data) + (size_t)taking->consumer->taken_count;
    if (fetched->expected > taking->max) fetched->expected = taking->max;
    fetched->most = most_bytes(taking);
    taking->fetched = fetched;
    return true;
}

/* The message follows the last one of the same partition. */
static bool goes_on(const struct ps_fetched *fetched, const rd_kafka_message_t *message)
{
    if (!fetched || fetched->count == 0) return false;
    const struct ps_record *last = &fetched->records[fetched->count - 1];
    return last->partition == message->partition && last->offset < message->offset &&
           strcmp(fetched->topics[last->topic], rd_kafka_topic_name(message->rkt)) == 0;
}

/* librdkafka itself goes back to an earlier offset if the position no longer exists, for example as the topic was created anew. */
static void note_reset(const struct ps_taking *taking, const rd_kafka_message_t *message)
{
    struct ps_consumer *consumer = taking->consumer;
    const char *topic = rd_kafka_topic_name(message->rkt);
    if (!ps_news_wanted(&consumer->news, PS_NEWS_RESET)) return;
    int64_t position = ps_ledger_position(&consumer->ledger, topic, message->partition);
    if (position <= message->offset) return;
    rd_kafka_topic_partition_list_t *places = rd_kafka_topic_partition_list_new(2);
    rd_kafka_topic_partition_list_add(places, topic, message->partition)->offset = message->offset;
    rd_kafka_topic_partition_list_add(places, topic, message->partition)->offset = position;
    ps_news_add(&consumer->news, PS_NEWS_RESET, RD_KAFKA_RESP_ERR_NO_ERROR, false, places, NULL);
    ps_bell_ring(&consumer->bell); /* a thread publishes it */
    rd_kafka_topic_partition_list_destroy(places);
}

/* The program cannot mark a message that the ledger does not know, and a later commit would pass it. False: no memory. */
static bool reserve(struct ps_taking *taking, const rd_kafka_message_t *message)
{
    if (goes_on(taking->fetched, message)) return true;
    note_reset(taking, message);
    return ps_ledger_reserve(&taking->consumer->ledger, rd_kafka_topic_name(message->rkt), message->partition, ++taking->runs);
}

/* Copies the message, unless it is repeated. False: no memory. */
static bool add_message(struct ps_taking *taking, const rd_kafka_message_t *message)
{
    rd_kafka_headers_t *headers;
    if (is_repeated(&taking->consumer->ledger, message)) return true;
    if (!reserve(taking, message)) return false; /* M:ledger_reserves_first */
    bool readable = read_headers(message, &headers);
    if (!taking->fetched && !begin_fetched(taking, message, headers)) return false;
    struct ps_fetched *fetched = taking->fetched;
    if (!ps_fetched_copy(fetched, message, headers)) return false;
    if (headers) taking->headers += rd_kafka_header_cnt(headers);
    if (!readable) fetched->records[fetched->count - 1].damaged = true; /* M:damaged_headers_flagged */
    return true;
}

/* All messages before the partition's end were fetched, also if librdkafka does not return the last ones. False: no memory. */
static bool add_end(struct ps_taking *taking, const rd_kafka_message_t *end)
{
    ps_ledger_ended(&taking->consumer->ledger, rd_kafka_topic_name(end->rkt), end->partition, end->offset);
    if (!taking->ends) return true;
    if (!taking->fetched) taking->fetched = ps_fetched_new(NULL, 0, 0);
    return taking->fetched && ps_fetched_end(taking->fetched, rd_kafka_topic_name(end->rkt), end->partition, end->offset);
}

/* The error for an unreadable message arrives in order. Later messages wait until a poll has raised it. False: messages of this call
 * come before it. */
static bool add_error(const struct ps_taking *taking, const rd_kafka_message_t *message)
{
    if (ps_consumer_absorb_error(taking->consumer, message->err, false, rd_kafka_message_errstr(message))) return true;
    if (ps_taking_has_result(taking)) return false;
    ps_consumer_add_message_problem(taking->consumer, message);
    return true;
}

enum used { USED, LATER, NO_MEMORY };

/* LATER: the message, and those behind it, stay for a later call. */
static enum used use_message(struct ps_taking *taking, const rd_kafka_message_t *message)
{
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) return add_end(taking, message) ? USED : NO_MEMORY;
    if (message->err) return add_error(taking, message) ? USED : LATER;
    if (is_full(taking)) return LATER;
    if (taking->one_partition && ps_taking_count(taking) > 0 && !goes_on(taking->fetched, message)) return LATER;
    return add_message(taking, message) ? USED : NO_MEMORY;
}

/* ---- many messages ---- */

/* How many messages to take at once. librdkafka does not report their sizes before. */
static size_t part_size(const struct ps_taking *taking, bool may_block)
{
    const struct ps_fetched *fetched = taking->fetched;
    if (!may_block) return 1;
    size_t most = taking->max - ps_taking_count(taking), fit = FIRST_RECORDS;
    if (fetched && fetched->count > 0) fit = (most_bytes(taking) - fetched->used) / (fetched->used / fetched->count + 1) + 1;
    return most < fit ? most : fit;
}

/* Takes some of the messages that are there. USED: there may be more for this call. LATER: there are none, or they stay. */
static enum used take_part(struct ps_taking *taking, bool may_block)
{
    struct ps_consumer *consumer = taking->consumer;
    int used = 0, count = ps_consumer_take_messages(consumer, part_size(taking, may_block));
    enum used result = count > 0 ? USED : LATER;
    while (used < count && !consumer->problems && (result = use_message(taking, consumer->taken[used])) == USED) /* M:error_stops_batch */
        rd_kafka_message_destroy(consumer->taken[used++]);
    consumer->taken_count -= used;
    memmove(consumer->taken, consumer->taken + used, (size_t)consumer->taken_count * sizeof(consumer->taken[0]));
    if (consumer->taken_count > 0) ps_bell_ring(&consumer->bell); /* another thread may have found the queue empty, and sleep */
    if (result == USED && (consumer->taken_count > 0 || consumer->problems)) return LATER;
    return result;
}

/* ---- rebalances ---- */

/* Goes on with the rebalance that is not answered yet. The call takes no messages: listeners learn of the rebalance before the program
 * gets the next ones, and the answer rings the bell. */
static enum ps_taken go_on_with_rebalance(struct ps_consumer *consumer, bool may_block)
{
    struct ps_rebalance *rebalance = &consumer->rebalance;
    if (rebalance->state == PS_REBALANCE_LISTENS || ps_consumer_holds_back(consumer)) return PS_TAKEN;
    if (rebalance->state == PS_REBALANCE_ARRIVED && consumer->settings.listens) {
        rebalance->state = PS_REBALANCE_LISTENS;
        return PS_TAKE_LISTENER;
    }
    if (!may_block) return PS_TAKE_BLOCKS;
    ps_consumer_answer_locked(consumer, NULL);
    return PS_TAKEN;
}

/* ---- the whole call ---- */

static void count_messages(struct ps_consumer *consumer, const struct ps_fetched *fetched)
{
    struct ps_consumer_counts *counts = &consumer->counts;
    uint64_t bytes = 0;
    if (fetched->count == 0) return;
    for (size_t i = 0; i < fetched->count; i++) {
        const struct ps_record *record = &fetched->records[i];
        bytes += (uint64_t)record->key_size + record->payload_size;
    }
    ps_increase(&counts->messages, fetched->count);
    ps_increase(&counts->bytes, bytes);
    ps_increase(&counts->batches, 1);
}

/* The ledger notes the messages that the program gets. librdkafka gets the offsets of those that the program has processed before. */
static void hand_out(struct ps_taking *taking, bool may_block)
{
    struct ps_consumer *consumer = taking->consumer;
    bool any = ps_taking_count(taking) > 0;
    if (taking->fetched) {
        count_messages(consumer, taking->fetched);
        taking->unreceived = consumer->settings.mark == PS_MARK_NEXT_POLL && may_block;
        uint64_t owner = taking->owner | (taking->unreceived ? PS_NOT_RECEIVED : 0);
        ps_ledger_handed_out_all(&consumer->ledger, taking->fetched, owner); /* add_message has reserved what it needs */
    }
    if (any && atomic_load(&consumer->size_error.due_us) != PS_FOREVER) ps_lasting_end(&consumer->size_error);
    if (consumer->settings.mark == PS_MARK_AT_ONCE) ps_ledger_finish(&consumer->ledger, taking->owner); /* M:marked_at_once */
    if (any) ps_consumer_store_sometimes(consumer);
    else ps_consumer_store(consumer);
}

/* With consumer->taking. The program gets its messages first: so it can process them before the consumer loses a partition, and an error
 * costs no message. */
static enum ps_taken take(struct ps_taking *taking, bool may_block)
{
    struct ps_consumer *consumer = taking->consumer;
    enum ps_taken taken = PS_TAKEN;
    ps_consumer_restart_if_due(consumer);
    while (taking->control_only || !is_full(taking)) {
        /* 1. While a rebalance is not answered, no thread takes messages. */
        if (consumer->rebalance.state != PS_REBALANCE_NONE) {
            taken = go_on_with_rebalance(consumer, may_block);
            break;
        }
        /* 2. Events come before messages. A callback has announced them, or an earlier call has left one. */
        rd_kafka_event_t *event = ps_consumer_take(consumer);
        /* 3. Messages, unless the program has to get an error first. */
        if (!event && !taking->control_only && !consumer->problems) {
            enum used used = take_part(taking, may_block);
            if (used == USED) continue;
            if (used == NO_MEMORY) taken = PS_TAKE_NO_MEMORY; /* M:no_memory_raises */
            if (used == NO_MEMORY || ps_taking_has_result(taking)) break;
        }
        /* 4. Without messages, this look at the group's events tells librdkafka that the program polls (max.poll.interval.ms). */
        if (!event && !(event = ps_consumer_poll_control(consumer))) break;
        if (rd_kafka_event_type(event) != RD_KAFKA_EVENT_REBALANCE) {
            ps_consumer_absorb(consumer, event);
        } else if (ps_taking_has_result(taking)) {
            ps_consumer_hold(consumer, event);
            break;
        } else {
            ps_consumer_begin_answer(consumer, event);
        }
    }
    if (taking->control_only) return taken;
    /* 5. The program gets messages, or else an error. */
    if (!ps_taking_has_result(taking) && taken == PS_TAKEN) taking->problem = ps_consumer_take_due_problem(consumer);
    hand_out(taking, may_block);
    return taken;
}

enum ps_taken ps_take(struct ps_taking *taking)
{
    pthread_mutex_lock(&taking->consumer->taking);
    enum ps_taken taken = take(taking, true);
    pthread_mutex_unlock(&taking->consumer->taking);
    return taken;
}

enum ps_taken ps_take_now(struct ps_taking *taking)
{
    struct ps_consumer *consumer = taking->consumer;
    bool many = taking->max >= MANY && !taking->control_only && rd_kafka_queue_length(consumer->data) >= MANY;
    if (many || pthread_mutex_trylock(&consumer->taking) != 0) return PS_TAKE_BLOCKS;
    enum ps_taken taken = take(taking, false);
    pthread_mutex_unlock(&consumer->taking);
    return taken;
}

/* ---- before and after a call ---- */

/* The one place that knows of every queue and of what is kept beside them. */
bool ps_consumer_has_events(struct ps_consumer *consumer)
{
    if (atomic_load(&consumer->news.count) > 0) return true;
    if (consumer->rebalance.state != PS_REBALANCE_NONE) /* the answer and marks ring */
        return consumer->rebalance.state != PS_REBALANCE_LISTENS && !ps_consumer_holds_back(consumer);
    if (consumer->held || consumer->taken_count > 0 || consumer->aside_due || consumer->problems) return true;
    if (atomic_load(&consumer->alerted) &&
        (atomic_load(&consumer->astray) || rd_kafka_queue_length(consumer->control) > 0 ||
         rd_kafka_queue_length(consumer->notices) > 0)) return true;
    return rd_kafka_queue_length(consumer->data) > 0;
}

bool ps_consumer_may_take(struct ps_consumer *consumer, uint64_t owner, bool *worked_on)
{
    bool may_take = true, finishes = consumer->settings.mark == PS_MARK_NEXT_POLL;
    if (!ps_client_enter(&consumer->client)) return true; /* it has just begun to close */
    if (finishes) ps_ledger_finish(&consumer->ledger, owner);
    if (pthread_mutex_trylock(&consumer->taking) == 0) { /* else another thread takes, and nothing is known */
        may_take = ps_consumer_has_events(consumer);
        if (may_take) ps_consumer_store_sometimes(consumer);
        else ps_consumer_store(consumer);
        pthread_mutex_unlock(&consumer->taking);
    }
    ps_client_exit(&consumer->client);
    *worked_on = finishes && ps_ledger_open(&consumer->ledger);
    return may_take;
}

static int64_t earlier(int64_t one_us, int64_t other_us)
{
    return one_us < other_us ? one_us : other_us;
}

int64_t ps_consumer_look_again_us(const struct ps_consumer *consumer)
{
    int64_t until_us = ps_now_us() + consumer->settings.nap_us; /* polls before max.poll.interval.ms ends */
    int64_t rejected_us = atomic_load(&consumer->client.rejection.due_us), hold_us = atomic_load(&consumer->rebalance.hold_until_us);
    int64_t restart_us = atomic_load(&consumer->restart_us);
    if (rejected_us) until_us = earlier(until_us, rejected_us);
    if (restart_us) until_us = earlier(until_us, restart_us);
    return hold_us ? earlier(until_us, hold_us) : until_us;
}

bool ps_consumer_still_holds(struct ps_consumer *consumer, const struct ps_fetched *fetched)
{
    for (size_t i = 0; i < fetched->count; i++) {
        const struct ps_record *record = &fetched->records[i];
        if (!ps_ledger_holds(&consumer->ledger, fetched->topics[record->topic], record->partition, record->offset, fetched->epoch))
            return false;
    }
    if (!ps_client_enter(&consumer->client)) return true;
    bool lost = rd_kafka_assignment_lost(consumer->client.rk);
    ps_client_exit(&consumer->client);
    return !lost;
}

bool ps_consumer_must_answer(struct ps_consumer *consumer)
{
    if (!ps_client_enter(&consumer->client)) return false;
    pthread_mutex_lock(&consumer->taking);
    bool rebalances = ps_consumer_rebalances(consumer);
    pthread_mutex_unlock(&consumer->taking);
    ps_client_exit(&consumer->client);
    return rebalances;
}
