/*
 * The life of one rd_kafka_t: configured, opened at its first use, closed once (close.c). Owned by the
 * Ruby object and by each batch; counted references. Any thread, except where core.h says otherwise.
 *
 * Nobody touches `rk` outside ps_client_enter/exit, so closing knows when the last call has left. In a
 * forked child an inherited client is left alone altogether: its threads are gone, and destroying it hangs.
 */
#include "core.h"
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t last_address;

struct ps_client *ps_client_new(rd_kafka_conf_t *conf, const char *name, struct ps_poller *poller,
                                const struct ps_client_settings *settings)
{
    struct ps_client *client = aligned_alloc(_Alignof(struct ps_client), sizeof(*client));
    if (!client) return NULL;
    memset(client, 0, sizeof(*client));
    atomic_init(&client->refs, 1);
    client->generation = ps_generation();
    client->address = ps_next_address();
    pthread_mutex_init(&client->lock, NULL);
    ps_completion_init(&client->space, &client->lock, 1);
    client->space.poller = poller;
    pthread_mutex_init(&client->topics.lock, NULL);
    pthread_cond_init(&client->calls_ended, NULL);
    ps_transactions_init(&client->transactions);
    ps_bell_init(&client->open.tokens.bell);
    ps_refusal_init(&client->open.refusal, settings->refusal_us);
    client->open.lock = &client->lock;
    client->open.conf = conf;
    client->name = strdup(name);
    client->open.name = client->name;
    ps_log_init(&client->log, client->name, client->address, settings->logs_to_mailbox);
    client->open.kind = &ps_client_kind;
    client->brokers = strdup("");
    client->settings = *settings;
    client->poller = poller;
    ps_poller_retain(poller);
    return client;
}

void ps_client_retain(struct ps_client *client)
{
    atomic_fetch_add_explicit(&client->refs, 1, memory_order_relaxed);
}

void ps_client_unref(struct ps_client *client)
{
    if (atomic_fetch_sub(&client->refs, 1) != 1) return;
    if (ps_client_inherited(client)) return; /* left as it is on purpose: its locks may be held for ever */
    rd_kafka_conf_destroy(client->open.conf);
    if (client->close_job) ps_job_unref(&client->close_job->job);
    ps_poller_unref(client->poller);
    ps_events_unref(client->events);
    ps_completion_drop(&client->space);
    ps_log_destroy(&client->log);
    ps_bell_destroy(&client->open.tokens.bell);
    ps_refusal_destroy(&client->open.refusal);
    ps_transactions_destroy(&client->transactions);
    pthread_cond_destroy(&client->calls_ended);
    pthread_mutex_destroy(&client->topics.lock);
    pthread_mutex_destroy(&client->lock);
    free(client->name);
    free(client->brokers);
    free(client);
}

/*
 * Asks for the address of a broker, on a librdkafka thread that may block. An IP address needs no lookup, and so
 * none of the C library's locks: one that is held while another thread forks is held in the child for ever.
 */
int ps_resolve_cb(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result,
                      void *opaque)
{
    (void)opaque;
    if (!node) { /* librdkafka's way to say that it is done with the addresses */
        freeaddrinfo(*result);
        return 0;
    }
    struct addrinfo numeric = *hints;
    numeric.ai_flags = (numeric.ai_flags & ~AI_ADDRCONFIG) | AI_NUMERICHOST;
    if (getaddrinfo(node, service, &numeric, result) == 0) return 0;
    return getaddrinfo(node, service, hints, result);
}

void ps_client_set_events(struct ps_client *client, struct ps_events *events)
{
    ps_events_retain(events);
    ps_events_unref(client->events);
    client->events = events;
}

void ps_client_set_brokers(struct ps_client *client, const char *brokers)
{
    free(client->brokers);
    client->brokers = strdup(brokers);
}

bool ps_client_inherited(const struct ps_client *client)
{
    return client->generation != ps_generation();
}

static rd_kafka_conf_t *configure(struct ps_client *client)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_dup(client->open.conf);
    rd_kafka_conf_set_resolve_cb(conf, ps_resolve_cb);
    rd_kafka_conf_set_opaque(conf, &client->open);
    ps_tokens_enable(conf, client->settings.token_provider);
    rd_kafka_conf_set_ssl_cert_verify_cb(conf, ps_certificate_cb); /* refused by a librdkafka without TLS, which needs none */
    return conf;
}

/*
 * Older librdkafkas (2.0.2; not 2.14) free the interceptors of a configuration that they cannot make a client of, and
 * destroying it would free them again. So it stays; once for a client, as what fails again is found out without interceptors.
 */
enum { FREES_INTERCEPTORS_ONCE = 0x020e0000 };

static rd_kafka_t *make(struct ps_client *client, char *errstr, size_t errstr_size)
{
    rd_kafka_conf_t *conf = configure(client);
    if (client->wasted_conf) {
        rd_kafka_t *trial = rd_kafka_new(RD_KAFKA_PRODUCER, conf, errstr, errstr_size);
        if (!trial) {
            rd_kafka_conf_destroy(conf);
            return NULL;
        }
        rd_kafka_destroy(trial);
        conf = configure(client);
    }
    ps_requests_count(client, conf);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, errstr, errstr_size);
    if (rk) return rk;
    if (rd_kafka_version() >= FREES_INTERCEPTORS_ONCE) rd_kafka_conf_destroy(conf);
    else client->wasted_conf = true;
    return NULL;
}

static int open_locked(struct ps_client *client, char *errstr, size_t errstr_size)
{
    client->rk = make(client, errstr, errstr_size);
    if (!client->rk) return -1;
    client->queue = rd_kafka_queue_get_main(client->rk);
    if (client->settings.logs_to_mailbox) rd_kafka_set_log_queue(client->rk, NULL);

    int failed = ps_poller_join(client->poller, client);
    if (failed) {
        snprintf(errstr, errstr_size, "cannot start the poller: %s", strerror(failed));
        rd_kafka_queue_destroy(client->queue);
        rd_kafka_destroy(client->rk);
        client->rk = NULL;
        return -1;
    }
    ps_tokens_begin(&client->open.tokens, client->rk);
    if (client->events) atomic_fetch_add(&client->events->open, 1);
    /* The callback comes only when the queue stops being empty, so what is there already needs a mark. */
    rd_kafka_queue_cb_event_enable(client->queue, ps_poller_ready_cb, client);
    ps_poller_mark_ready(client);
    ps_registry_add(&client->open);
    return 0;
}

int ps_client_open(struct ps_client *client, char *errstr, size_t errstr_size)
{
    int result = 0;
    pthread_mutex_lock(&client->lock);
    if (atomic_load(&client->state) == PS_CLIENT_NEW) {
        result = open_locked(client, errstr, errstr_size);
        if (result == 0) atomic_store(&client->state, PS_CLIENT_OPEN);
    }
    pthread_mutex_unlock(&client->lock);
    if (result == 0) ps_bell_ring(&client->open.tokens.bell); /* a token may have been asked for before it was open */
    return result;
}

bool ps_client_enter(struct ps_client *client)
{
    atomic_fetch_add(&client->calls, 1);
    if (atomic_load(&client->state) == PS_CLIENT_OPEN) return true;
    ps_client_exit(client);
    return false;
}

void ps_client_exit(struct ps_client *client)
{
    if (atomic_fetch_sub(&client->calls, 1) != 1) return;
    if (atomic_load(&client->state) != PS_CLIENT_CLOSING) return;
    pthread_mutex_lock(&client->lock);
    pthread_cond_broadcast(&client->calls_ended);
    pthread_mutex_unlock(&client->lock);
}

uint64_t ps_client_in_flight(const struct ps_client *client)
{
    /* Verdicts first: what is accepted in between makes the answer larger, never negative. */
    uint64_t settled =
        atomic_load(&client->delivered) + atomic_load(&client->failed) + atomic_load(&client->purged);
    return atomic_load(&client->accepted) - settled;
}

void ps_client_note_error(struct ps_client *client, rd_kafka_resp_err_t err, const char *text)
{
    pthread_mutex_lock(&client->lock);
    /* That all brokers are down says less than why the last one is. */
    if (err != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || !*client->last_error)
        snprintf(client->last_error, sizeof(client->last_error), "%s (%s)", text, rd_kafka_err2name(err));
    pthread_mutex_unlock(&client->lock);
}

void ps_client_last_error(struct ps_client *client, char *text, size_t size)
{
    pthread_mutex_lock(&client->lock);
    snprintf(text, size, "%s", client->last_error);
    pthread_mutex_unlock(&client->lock);
}

void ps_client_log(struct ps_client *client, int level, const char *facility, const char *text)
{
    ps_log_line(&client->log, level, facility, text);
}

uint64_t ps_next_address(void)
{
    return atomic_fetch_add(&last_address, 1) + 1;
}
