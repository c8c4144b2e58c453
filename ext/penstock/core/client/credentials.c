/* How clients log in while they run: tokens that expire, and passwords that change. */
#include "client/client.h"
#include <stdio.h>

/*
 * ---- tokens: librdkafka asks for them, a Ruby thread supplies them ----
 *
 * librdkafka asks on a separate queue. So a client gets its token even if the program does not poll, or the poller is busy.
 */

void ps_tokens_enable(rd_kafka_conf_t *conf, bool provided)
{
    if (provided) rd_kafka_conf_enable_sasl_queue(conf, 1);
}

static void token_wanted_cb(rd_kafka_t *rk, void *unused)
{
    (void)rk;
    (void)unused;
    ps_tasks_changed();
}

void ps_tokens_begin(struct ps_tokens *tokens, rd_kafka_t *rk)
{
    tokens->queue = rd_kafka_queue_get_sasl(rk);
    if (tokens->queue) rd_kafka_queue_cb_event_enable(tokens->queue, token_wanted_cb, NULL);
}

/* One of the long calls: closing does not wait for them before it leaves the group, as leaving may need a login. */
static rd_kafka_t *credentials_enter(struct ps_client *client)
{
    ps_client_enter_long(client);
    int state = atomic_load(&client->state);
    if (state == PS_OPEN || (state == PS_CLOSING && !atomic_load(&client->tokens.shut))) return client->rk;
    ps_client_exit_long(client);
    return NULL;
}

rd_kafka_t *ps_tokens_enter(struct ps_client *client)
{
    return credentials_enter(client);
}

bool ps_tokens_wanted(struct ps_client *client)
{
    rd_kafka_event_t *event;
    bool wanted = false;
    if (!credentials_enter(client)) return false;
    while (client->tokens.queue && (event = rd_kafka_queue_poll(client->tokens.queue, 0))) {
        wanted = wanted || rd_kafka_event_type(event) == RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH;
        rd_kafka_event_destroy(event);
    }
    ps_client_exit_long(client);
    return wanted;
}

void ps_tokens_ring(struct ps_client *client)
{
    ps_bell_ring(&client->tokens.bell);
    if (client->settings->token_provider) ps_tasks_changed();
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

static bool credentials_set(rd_kafka_conf_t *conf, const char *name, const char *value, char *errstr, size_t size)
{
    return rd_kafka_conf_set(conf, name, value, errstr, size) == RD_KAFKA_CONF_OK;
}

bool ps_set_credentials(struct ps_client *client, const char *user, const char *password, char *errstr, size_t size)
{
    pthread_mutex_lock(&client->lock); /* a thread that opens the client copies `conf` */
    bool late = ps_client_opening(client);
    bool done = credentials_set(client->conf, "sasl.username", user, errstr, size) &&
                credentials_set(client->conf, "sasl.password", password, errstr, size);
    pthread_mutex_unlock(&client->lock);
    ps_redaction_add(&client->redaction, password);
    if (done && late) return false;
    rd_kafka_t *rk = done ? credentials_enter(client) : NULL;
    if (!rk) return done;
    rd_kafka_error_t *error = rd_kafka_sasl_set_credentials(rk, user, password);
    if (error) {
        ps_client_quote(client, errstr, size, rd_kafka_error_string(error));
        rd_kafka_error_destroy(error);
        done = false;
    } else {
        ps_rejection_forget(&client->rejection);
    }
    ps_client_exit_long(client);
    return done;
}
