/* How a client logs in while it is running: tokens that expire, and passwords that change. */
#include "core.h"
#include <stdio.h>

/* ---- tokens: librdkafka asks for them, a Ruby thread brings them ---- */

void ps_tokens_wanted(struct ps_client *client)
{
    atomic_store(&client->tokens.wanted, true);
    ps_bell_ring(&client->tokens.bell);
}

/* Like ps_client_enter, but also while the client is closing and still delivers: it may log in only then. */
bool ps_tokens_enter(struct ps_client *client)
{
    if (atomic_load(&client->state) == PS_CLIENT_NEW) { /* librdkafka asks as soon as it is made: let who opens it finish */
        pthread_mutex_lock(&client->lock);
        pthread_mutex_unlock(&client->lock);
    }
    atomic_fetch_add(&client->calls, 1);
    int state = atomic_load(&client->state);
    if (state == PS_CLIENT_OPEN || (state == PS_CLIENT_CLOSING && !atomic_load(&client->tokens.shut))) return true;
    ps_client_exit(client);
    return false;
}

/* Closing thread, before it waits for the calls in progress. */
void ps_tokens_shut(struct ps_client *client)
{
    atomic_store(&client->tokens.shut, true);
}

/* ---- user name and password ---- */

static bool set(rd_kafka_conf_t *conf, const char *name, const char *value, char *errstr, size_t size)
{
    return rd_kafka_conf_set(conf, name, value, errstr, size) == RD_KAFKA_CONF_OK;
}

bool ps_client_set_credentials(struct ps_client *client, const char *user, const char *password, char *errstr, size_t size)
{
    pthread_mutex_lock(&client->lock); /* it may be about to be opened with a copy of this */
    bool done = set(client->conf, "sasl.username", user, errstr, size) &&
                set(client->conf, "sasl.password", password, errstr, size);
    pthread_mutex_unlock(&client->lock);
    if (!done || !ps_client_enter(client)) return done;
    rd_kafka_error_t *error = rd_kafka_sasl_set_credentials(client->rk, user, password);
    if (error) {
        snprintf(errstr, size, "%s", rd_kafka_error_string(error));
        rd_kafka_error_destroy(error);
        done = false;
    } else {
        ps_refusal_forget(client);
    }
    ps_client_exit(client);
    return done;
}
