/*
 * The rd_kafka_t of an admin client: its life, and how the poller serves it. Owned by the Ruby object and its jobs. Any thread,
 * except where admin.h says otherwise.
 *
 * librdkafka answers each request with one event on the client's main queue. Requests have their own timeouts, so closing waits for
 * none of them: it ends the waits of all callers, and destroys the client.
 */
#include "admin/admin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ps_admin *admin_of(const struct ps_polled *polled)
{
    return (struct ps_admin *)((char *)polled - offsetof(struct ps_admin, polled));
}

/* ---- what the poller does ---- */

static void handle_log(struct ps_admin *admin, const rd_kafka_event_t *event)
{
    const char *facility, *text;
    int level;
    if (rd_kafka_event_log((rd_kafka_event_t *)event, &facility, &text, &level) == 0)
        ps_client_log_librdkafka(&admin->client, level, facility, text);
}

static void handle_error(struct ps_admin *admin, rd_kafka_event_t *event)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    char text[1024];
    ps_client_quote(&admin->client, text, sizeof(text), rd_kafka_event_error_string(event));
    ps_client_note_error(&admin->client, err, text);
    ps_client_log_error(&admin->client, rd_kafka_event_error_is_fatal(event) ? 2 : 4, err, text);
    if (err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
        ps_connections_all_down(&admin->client.connections);
        admin->watches = admin->settings.unreachable_us > 0;
    }
    ps_rejection_error(&admin->client.rejection, admin->client.rk, err, text);
}

static void admin_handle(struct ps_polled *polled, rd_kafka_event_t *event)
{
    struct ps_admin *admin = admin_of(polled);
    switch (rd_kafka_event_type(event)) {
    case RD_KAFKA_EVENT_LOG: handle_log(admin, event); break;
    case RD_KAFKA_EVENT_ERROR: handle_error(admin, event); break;
    case RD_KAFKA_EVENT_STATS: break;
    default:
        if (!rd_kafka_event_error(event)) atomic_store(&admin->client.rejection.worked, true);
        ps_admin_call_answer(admin, event);
        return;
    }
    rd_kafka_event_destroy(event);
}

static bool admin_work_due(const struct ps_polled *polled, int64_t now)
{
    const struct ps_admin *admin = admin_of(polled);
    return admin->watches || ps_rejection_due(&admin->client.rejection, now);
}

/*
 * Ends calls while no broker can be reached. A broker that comes back within unreachable_us, or that is merely slow, ends none.
 * The requests stay in librdkafka, which would send them when a broker comes back, so the client becomes stale.
 */
static void end_unreachable(struct ps_admin *admin, int64_t now)
{
    enum { LOOK_EVERY_US = 100000 };
    int64_t since = ps_connections_away_since(&admin->client.connections), before = now - admin->settings.unreachable_us;
    bool away = since && since <= before;
    bool wait = ps_admin_calls_end(admin, PS_ADMIN_UNREACHABLE, away ? before : 0); /* M:unreachable_ends_calls */
    admin->watches = atomic_load(&admin->client.connections.down);
    ps_poller_sweep_every(&admin->polled, admin->watches && wait ? LOOK_EVERY_US : admin->settings.sweep_us);
}

static void admin_work(struct ps_polled *polled, int64_t now)
{
    struct ps_admin *admin = admin_of(polled);
    struct ps_rejection *rejection = &admin->client.rejection;
    if (admin->watches) end_unreachable(admin, now);
    if (!ps_rejection_due(rejection, now) || !ps_client_enter(&admin->client)) return;
    bool rejected = ps_rejection_give_up(rejection, admin->client.rk);
    ps_client_exit(&admin->client);
    if (rejected) ps_admin_calls_end(admin, PS_ADMIN_REJECTED, PS_FOREVER); /* M:rejection_ends_calls */
}

static const struct ps_polled_kind admin_polled_kind = {
    .handle = admin_handle,
    .work_due = admin_work_due,
    .work = admin_work,
};

/* ---- life ---- */

static const struct ps_client_kind admin_kind, admin_consumer_kind;

bool ps_admin_is(const struct ps_client *client)
{
    return client->kind == &admin_kind || client->kind == &admin_consumer_kind;
}

struct ps_admin *ps_admin_new(rd_kafka_conf_t *conf, const char *name, struct ps_poller *poller,
                              const struct ps_admin_settings *settings)
{
    struct ps_admin *admin = calloc(1, sizeof(*admin));
    if (!admin) return NULL;
    admin->settings = *settings;
    const struct ps_client_kind *kind = settings->consumer ? &admin_consumer_kind : &admin_kind;
    ps_client_init(&admin->client, kind, conf, name, &admin->settings.client);
    admin->polled = (struct ps_polled){
        .kind = &admin_polled_kind,
        .client = &admin->client,
        .poller = poller,
        .max_time_us = settings->max_time_us,
        .sweep_us = settings->sweep_us,
    };
    ps_poller_retain(poller);
    return admin;
}

bool ps_admin_use(struct ps_admin *admin)
{
    pthread_mutex_lock(&admin->client.lock);
    bool retired = atomic_load(&admin->retired);
    if (!retired) admin->users++;
    pthread_mutex_unlock(&admin->client.lock);
    return !retired;
}

void ps_admin_forget_coordinators(struct ps_admin *admin)
{
    pthread_mutex_lock(&admin->client.lock);
    admin->stale = true;
    pthread_mutex_unlock(&admin->client.lock);
}

void ps_admin_release(struct ps_admin *admin)
{
    if (ps_client_inherited(&admin->client)) return;
    pthread_mutex_lock(&admin->client.lock);
    /* M:stale_client_replaced */
    bool retires = --admin->users == 0 && admin->stale && atomic_load(&admin->client.state) == PS_OPEN;
    atomic_store(&admin->retired, retires); /* no user comes any more */
    pthread_mutex_unlock(&admin->client.lock);
    if (!retires) return;
    struct ps_job *closing = ps_client_close(&admin->client, admin->settings.client.close_timeout_ms, "replaced");
    if (closing) ps_job_unref(closing);
    else atomic_store(&admin->retired, false); /* no thread could start: the next user tries again */
}

static void admin_dispose(struct ps_client *client)
{
    ps_poller_unref(((struct ps_admin *)client)->polled.poller);
}

static int admin_begin(struct ps_client *client, char *errstr, size_t errstr_size)
{
    struct ps_admin *admin = (struct ps_admin *)client;
    if (client->settings->logs_to_mailbox && !admin->settings.consumer) rd_kafka_set_log_queue(client->rk, NULL);
    admin->polled.queue = rd_kafka_queue_get_main(client->rk);
    int failed = ps_poller_join(admin->polled.poller, &admin->polled);
    if (failed) {
        snprintf(errstr, errstr_size, "cannot start the poller: %s", strerror(failed));
        rd_kafka_queue_destroy(admin->polled.queue);
        return -1;
    }
    /* As in producer.c. */
    rd_kafka_queue_cb_event_enable(admin->polled.queue, ps_poller_ready_cb, &admin->polled);
    ps_poller_mark_ready(&admin->polled);
    return 0;
}

static uint64_t admin_pending(const struct ps_client *client)
{
    (void)client;
    return 0;
}

static void admin_close(struct ps_client *client)
{
    struct ps_admin *admin = (struct ps_admin *)client;
    ps_admin_calls_end(admin, PS_ADMIN_CLOSED, PS_FOREVER); /* M:close_ends_calls */
    ps_tokens_shut(&client->tokens);
    ps_client_await_calls(client);
    ps_client_await_long_calls(client);
    atomic_store(&admin->polled.callback_disabled, true); /* as in producer_close.c */
    rd_kafka_queue_cb_event_enable(admin->polled.queue, NULL, NULL);
    ps_poller_leave(admin->polled.poller, &admin->polled);
    ps_admin_calls_discard(admin);
    rd_kafka_queue_destroy(admin->polled.queue);
    ps_tokens_end(&client->tokens);
    /* A consumer here has never joined its group, so it has none to leave. */
    rd_kafka_destroy_flags(client->rk, admin->settings.consumer ? RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE : 0);
    admin->polled.queue = NULL;
    client->rk = NULL;
    ps_admin_calls_forget(admin); /* M:closed_calls_freed */
}

static const struct ps_client_kind admin_kind = {
    .type = RD_KAFKA_PRODUCER,
    .begin = admin_begin,
    .pending = admin_pending,
    .close = admin_close,
    .dispose = admin_dispose,
};

/* A consumer of an older librdkafka has no watched connections, see client.c. Watching twice does nothing. */
static bool admin_consumer_intercept(struct ps_client *client, rd_kafka_conf_t *conf)
{
    ps_connections_watch(&client->connections, conf);
    return true;
}

static const struct ps_client_kind admin_consumer_kind = {
    .type = RD_KAFKA_CONSUMER,
    .intercept = admin_consumer_intercept,
    .begin = admin_begin,
    .pending = admin_pending,
    .close = admin_close,
    .dispose = admin_dispose,
};
