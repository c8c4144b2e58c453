/* How clients and consumers log in while they are running: tokens that expire, and passwords that change. */
#include "core.h"
#include <stdio.h>

/*
 * ---- tokens: librdkafka asks for them, a Ruby thread brings them ----
 *
 * It asks in a queue of its own, so that a consumer that is not polled, or a client whose poller is busy, is not thrown out
 * for want of one.
 */

void ps_tokens_enable(rd_kafka_conf_t *conf, bool provided)
{
    if (provided) rd_kafka_conf_enable_sasl_queue(conf, 1);
}

void ps_tokens_begin(struct ps_tokens *tokens, rd_kafka_t *rk)
{
    tokens->queue = rd_kafka_queue_get_sasl(rk);
    if (tokens->queue) rd_kafka_queue_cb_event_enable(tokens->queue, ps_bell_ring_cb, &tokens->bell);
}

/* One of the long calls: leaving a group may take a login, and waits for none. */
static rd_kafka_t *enter(struct ps_open *open)
{
    ps_open_enter_long(open);
    int state = atomic_load(&open->state);
    if (state == PS_OPEN || (state == PS_CLOSING && !atomic_load(&open->tokens.shut))) return open->rk;
    ps_open_exit_long(open);
    return NULL;
}

rd_kafka_t *ps_tokens_enter(struct ps_open *open)
{
    if (atomic_load(&open->state) == PS_NEW) { /* librdkafka asks as soon as it is made: let who opens it finish */
        pthread_mutex_lock(&open->lock);
        pthread_mutex_unlock(&open->lock);
    }
    return enter(open);
}

bool ps_tokens_wanted(struct ps_open *open)
{
    rd_kafka_event_t *event;
    bool wanted = false;
    if (!enter(open)) return false;
    while (open->tokens.queue && (event = rd_kafka_queue_poll(open->tokens.queue, 0))) {
        wanted = wanted || rd_kafka_event_type(event) == RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH;
        rd_kafka_event_destroy(event);
    }
    ps_open_exit_long(open);
    return wanted;
}

void ps_tokens_shut(struct ps_tokens *tokens)
{
    atomic_store(&tokens->shut, true);
}

void ps_tokens_end(struct ps_tokens *tokens)
{
    if (!tokens->queue) return;
    rd_kafka_queue_cb_event_enable(tokens->queue, NULL, NULL); /* after this no callback runs or will run */
    rd_kafka_queue_destroy(tokens->queue);
    tokens->queue = NULL;
}

/* ---- user name and password ---- */

static bool set(rd_kafka_conf_t *conf, const char *name, const char *value, char *errstr, size_t size)
{
    return rd_kafka_conf_set(conf, name, value, errstr, size) == RD_KAFKA_CONF_OK;
}

bool ps_set_credentials(struct ps_open *open, const char *user, const char *password, char *errstr, size_t size)
{
    pthread_mutex_lock(&open->lock); /* it may be about to be opened with a copy of this */
    bool done = set(open->conf, "sasl.username", user, errstr, size) &&
                set(open->conf, "sasl.password", password, errstr, size);
    pthread_mutex_unlock(&open->lock);
    ps_redaction_add(&open->redaction, password);
    rd_kafka_t *rk = done ? enter(open) : NULL;
    if (!rk) return done;
    rd_kafka_error_t *error = rd_kafka_sasl_set_credentials(rk, user, password);
    if (error) {
        ps_open_quote(open, errstr, size, rd_kafka_error_string(error));
        rd_kafka_error_destroy(error);
        done = false;
    } else {
        ps_refusal_forget(&open->refusal);
    }
    ps_open_exit_long(open);
    return done;
}
