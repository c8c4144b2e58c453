/*
 * What a producer and a consumer have in common: a ps_client, the first member of both. Its references, state, calls in
 * progress, log lines and errors, and how closing begins and ends. Its ps_client_kind holds what differs. Any thread, except
 * where client.h says otherwise.
 *
 * Every use of `rk` is between enter and exit, so the closing thread knows when the last call has left. A fork child does not
 * touch an inherited client at all: its threads do not exist there, its locks may be held for ever, and destroying it would
 * hang.
 */
#include "client/client.h"
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ps_client_init(struct ps_client *client, const struct ps_client_kind *kind, rd_kafka_conf_t *conf, const char *name,
                  const struct ps_client_settings *settings)
{
    client->kind = kind;
    atomic_init(&client->refs, 1);
    client->generation = ps_generation();
    client->address = ps_mailbox_address();
    pthread_mutex_init(&client->lock, NULL);
    client->conf = conf;
    client->name = strdup(name);
    client->brokers = strdup("");
    client->settings = settings;
    ps_log_init(&client->log, client->name, client->address, settings->logs_to_mailbox);
    ps_bell_init(&client->tokens.bell);
    ps_redaction_init(&client->redaction);
    ps_rejection_init(&client->rejection, &client->connections, settings);
}

void ps_client_retain(struct ps_client *client)
{
    atomic_fetch_add_explicit(&client->refs, 1, memory_order_relaxed);
}

void ps_client_unref(struct ps_client *client)
{
    if (atomic_fetch_sub(&client->refs, 1) != 1) return;
    if (ps_client_inherited(client)) return; /* left as it is on purpose */
    if (client->close_job) ps_job_unref(client->close_job);
    rd_kafka_conf_destroy(client->conf);
    ps_rejection_destroy(&client->rejection);
    ps_redaction_destroy(&client->redaction);
    ps_bell_destroy(&client->tokens.bell);
    ps_log_destroy(&client->log);
    client->kind->dispose(client);
    pthread_mutex_destroy(&client->lock);
    free(client->name);
    free(client->brokers);
    free(client);
}

bool ps_client_inherited(const struct ps_client *client)
{
    return client->generation != ps_generation();
}

void ps_client_set_brokers(struct ps_client *client, const char *brokers)
{
    free(client->brokers);
    client->brokers = strdup(brokers);
}

/* ---- opening ---- */

/*
 * Resolves the address of a broker, on a librdkafka thread, which may block. An IP address needs no lookup, and so none of
 * the C library's locks. That matters for fork: a lock that a thread holds while another one forks stays locked in the child.
 */
static int resolve_cb(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result,
                      void *opaque)
{
    (void)opaque;
    ps_pipes_keep_once(); /* as connections.c does, which does not watch every client */
    if (!node) { /* librdkafka frees the addresses this way */
        freeaddrinfo(*result);
        return 0;
    }
    struct addrinfo numeric = *hints;
    numeric.ai_flags = (numeric.ai_flags & ~AI_ADDRCONFIG) | AI_NUMERICHOST;
    if (getaddrinfo(node, service, &numeric, result) == 0) return 0;
    return getaddrinfo(node, service, hints, result);
}

/* Writes at once and takes only leaf locks, as librdkafka may hold its own. */
static void log_cb(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
    struct ps_client *client = rk ? rd_kafka_opaque(rk) : NULL;
    if (!client || (client->kind->log && client->kind->log(client, level, facility, text))) return;
    ps_client_log_librdkafka(client, level, facility, text);
}

/* If a consumer's log lines came as events, they would pile up while the program does not poll. Lines for stderr are written by
 * librdkafka's thread, without a queue. */
static bool logs_at_once(const struct ps_client *client)
{
    return client->kind->type == RD_KAFKA_CONSUMER || !client->settings->logs_to_mailbox; /* M:consumer_log_queue */
}

static rd_kafka_conf_t *configure(struct ps_client *client)
{
    pthread_mutex_lock(&client->lock); /* another thread may set credentials */
    rd_kafka_conf_t *conf = rd_kafka_conf_dup(client->conf);
    pthread_mutex_unlock(&client->lock);
    ps_redaction_of_conf(&client->redaction, conf);
    rd_kafka_conf_set_resolve_cb(conf, resolve_cb);
    rd_kafka_conf_set_opaque(conf, client);
    /* Fails with a librdkafka without TLS, which does not need it. */
    rd_kafka_conf_set_ssl_cert_verify_cb(conf, ps_certificate_cb);
    ps_tokens_enable(conf, client->settings->token_provider);
    if (logs_at_once(client)) rd_kafka_conf_set_log_cb(conf, log_cb);
    return conf;
}

/*
 * If rd_kafka_new fails with interceptors, memory leaks. Older librdkafkas (2.0.2; not 2.14) free the interceptors, and
 * destroying the configuration would free them again: so this code does not destroy it. librdkafka 2.14 itself leaks two lists
 * of names. To leak at most once for each client, a later attempt first makes an rd_kafka_t without interceptors.
 */
enum { FREES_INTERCEPTORS_ONCE = 0x020e0000 };

static bool can_be_made(struct ps_client *client, char *errstr, size_t errstr_size)
{
    rd_kafka_conf_t *conf = configure(client);
    rd_kafka_t *trial = rd_kafka_new(client->kind->type, conf, errstr, errstr_size);
    if (trial) rd_kafka_destroy(trial);
    else rd_kafka_conf_destroy(conf);
    return trial != NULL;
}

/* rejection.c and random.c work without interceptors. So with older librdkafkas a consumer does not get theirs, and leaks no
 * configuration, unless it has its own (consume/joining.c). */
static bool intercept(struct ps_client *client, rd_kafka_conf_t *conf)
{
    bool watched = client->kind->type == RD_KAFKA_PRODUCER || rd_kafka_version() >= FREES_INTERCEPTORS_ONCE;
    if (watched) {
        ps_connections_watch(&client->connections, conf);
        ps_random_watch_threads(conf);
    }
    bool own = client->kind->intercept && client->kind->intercept(client, conf);
    return watched || own;
}

static rd_kafka_t *client_make_rk(struct ps_client *client, char *errstr, size_t errstr_size)
{
    if (client->conf_leaked && !can_be_made(client, errstr, errstr_size)) return NULL;
    rd_kafka_conf_t *conf = configure(client);
    bool intercepted = intercept(client, conf);
    rd_kafka_t *rk = rd_kafka_new(client->kind->type, conf, errstr, errstr_size);
    if (rk) {
        ps_pipes_keep();
        return rk;
    }
    client->conf_leaked = intercepted;
    /* M:rejected_conf_freed */
    if (!client->conf_leaked || rd_kafka_version() >= FREES_INTERCEPTORS_ONCE) rd_kafka_conf_destroy(conf);
    return NULL;
}

/*
 * Without a lock: rd_kafka_new reads certificates and starts threads, which takes from some ms to seconds, and Ruby threads
 * take the lock with the GVL held. `opening` keeps other threads from opening or closing the client meanwhile.
 */
static int open_alone(struct ps_client *client, char *errstr, size_t errstr_size)
{
    client->rk = client_make_rk(client, errstr, errstr_size);
    if (!client->rk) return -1;
    if (client->kind->begin(client, errstr, errstr_size) != 0) {
        rd_kafka_destroy(client->rk);
        client->rk = NULL;
        ps_connections_forget(&client->connections); /* else the next rd_kafka_t would inherit this one's time without a broker */
        return -1;
    }
    ps_tokens_begin(&client->tokens, client->rk);
    return 0;
}

/* With the lock held, which it releases while it sleeps. */
static void await_opening(struct ps_client *client)
{
    while (atomic_load(&client->opening)) {
        pthread_mutex_unlock(&client->lock);
        ps_word_sleep(&client->opening, true, PS_FOREVER);
        pthread_mutex_lock(&client->lock);
    }
}

int ps_client_open(struct ps_client *client, char *errstr, size_t errstr_size)
{
    pthread_mutex_lock(&client->lock);
    await_opening(client);
    bool opens = atomic_load(&client->state) == PS_NEW;
    atomic_store(&client->opening, opens);
    pthread_mutex_unlock(&client->lock);
    if (!opens) return 0;

    bool began = ps_random_begin();
    int result = open_alone(client, errstr, errstr_size);
    if (began) ps_random_end();
    if (result != 0) ps_redact(&client->redaction, errstr);
    pthread_mutex_lock(&client->lock);
    if (result == 0) {
        ps_registry_add(client);
        atomic_store(&client->state, PS_OPEN);
    }
    atomic_store(&client->opening, false);
    bool abandoned = client->abandoned;
    pthread_mutex_unlock(&client->lock);
    ps_word_wake(&client->opening);
    /* Threads that found the client not open look again: librdkafka may have asked for a token, or a thread may have set
     * credentials, while it was opening. */
    ps_tokens_ring(client);
    if (result == 0 && client->kind->changed) client->kind->changed(client);
    if (abandoned) ps_client_abandon(client);
    return result;
}

bool ps_client_opening(const struct ps_client *client)
{
    return atomic_load(&client->opening);
}

/* ---- calls in progress ---- */

bool ps_client_enter(struct ps_client *client)
{
    atomic_fetch_add(&client->calls, 1);
    if (atomic_load(&client->state) == PS_OPEN) return true;
    ps_client_exit(client);
    return false;
}

static void client_leave(struct ps_client *client, _Atomic uint32_t *counter)
{
    if (atomic_fetch_sub(counter, 1) != 1) return;
    /* In other states no thread sleeps on the counter: the closing thread reads it later. */
    if (atomic_load(&client->state) == PS_CLOSING) ps_word_wake(counter);
}

void ps_client_exit(struct ps_client *client)
{
    client_leave(client, &client->calls);
}

void ps_client_enter_long(struct ps_client *client)
{
    atomic_fetch_add(&client->long_calls, 1);
}

void ps_client_exit_long(struct ps_client *client)
{
    client_leave(client, &client->long_calls);
}

void ps_client_become_long(struct ps_client *client)
{
    ps_client_enter_long(client);
    ps_client_exit(client);
}

/* The caller has made sure that no new call enters. */
static void await_none(_Atomic uint32_t *counter)
{
    uint32_t calls;
    while ((calls = atomic_load(counter)) > 0) ps_word_sleep(counter, calls, PS_FOREVER);
}

void ps_client_await_calls(struct ps_client *client)
{
    await_none(&client->calls);
}

void ps_client_await_long_calls(struct ps_client *client)
{
    await_none(&client->long_calls);
}

/* ---- log lines and errors ---- */

void ps_client_note_error(struct ps_client *client, rd_kafka_resp_err_t err, const char *text)
{
    pthread_mutex_lock(&client->lock);
    /* An error of one broker explains more than "all brokers are down", so it stays. */
    if (err != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || !*client->last_error)
        snprintf(client->last_error, sizeof(client->last_error), "%s (%s)", text, rd_kafka_err2name(err));
    ps_redact(&client->redaction, client->last_error);
    pthread_mutex_unlock(&client->lock);
}

void ps_client_last_error(struct ps_client *client, char *text, size_t size)
{
    pthread_mutex_lock(&client->lock); /* M:last_error_lock */
    snprintf(text, size, "%s", client->last_error);
    pthread_mutex_unlock(&client->lock);
}

void ps_client_log(struct ps_client *client, int level, const char *facility, const char *text)
{
    char copy[1024];
    ps_client_quote(client, copy, sizeof(copy), text);
    ps_log_line(&client->log, level, facility, copy);
}

void ps_client_quote(struct ps_client *client, char *copy, size_t size, const char *text)
{
    snprintf(copy, size, "%s", text);
    ps_redact(&client->redaction, copy); /* M:error_redacted */
}

rd_kafka_resp_err_t ps_client_fatal_error(struct ps_client *client, char *text, size_t size)
{
    rd_kafka_resp_err_t err = rd_kafka_fatal_error(client->rk, text, size);
    if (err) ps_redact(&client->redaction, text);
    return err;
}

static uint32_t outage(const struct ps_client *client)
{
    return atomic_load(&client->connections.outages);
}

void ps_client_log_librdkafka(struct ps_client *client, int level, const char *facility, const char *text)
{
    char copy[1024];
    ps_client_quote(client, copy, sizeof(copy), text);
    ps_log_librdkafka(&client->log, outage(client), level, facility, copy);
}

bool ps_client_log_error(struct ps_client *client, int level, rd_kafka_resp_err_t err, const char *text)
{
    char copy[1024];
    ps_client_quote(client, copy, sizeof(copy), text);
    return ps_log_error(&client->log, outage(client), level, err, copy);
}

/* ---- closing ---- */

/*
 * Stores the state before it posts PS_MAIL_LAST, which detaches the client's logger. An opening thread attaches the logger and
 * then reads the state. If it does not read CLOSED, PS_MAIL_LAST comes after the logger was attached; else it posts one itself.
 */
static void client_closed(struct ps_client *client)
{
    atomic_store(&client->state, PS_CLOSED);
    ps_tokens_ring(client);
    if (client->kind->changed) client->kind->changed(client);
    ps_log_end(&client->log);
    if (client->settings->logs_to_mailbox) ps_mailbox_post(client->address, PS_MAIL_LAST, "");
}

static void close_run(struct ps_job *job)
{
    struct ps_client *client = ((struct ps_close_job *)job)->client;

    pthread_mutex_lock(&client->lock); /* waits until the starting thread has set `state` */
    pthread_mutex_unlock(&client->lock);

    client->kind->close(client);
    ps_registry_remove(client);
    client_closed(client);
    if (client->kind->closed) client->kind->closed(client);
    ps_client_unref(client); /* the thread's reference; a closed client owns its job, and the job does not own the client */
    ps_random_end(); /* before the process may exit, which frees what OpenSSL has */
    ps_registry_closing(-1);
}

static void close_release(struct ps_job *job)
{
    free(job);
}

/*
 * The last steps are part of the time, so that callers wait no longer than they said: a tenth of it, 0.2 to 0.5 s, and more if a
 * transaction may have to be aborted. A shorter time than PS_CLOSE_LEAST_MS is only how long closing delivers.
 */
struct ps_close_times ps_client_close_times(const struct ps_client *client, int64_t timeout_ms)
{
    enum { LEAST_MS = 200, MOST_MS = 500 };
    if (timeout_ms < 0) return (struct ps_close_times){ PS_FOREVER, PS_FOREVER };
    int64_t whole_ms = timeout_ms > PS_CLOSE_LEAST_MS ? timeout_ms : PS_CLOSE_LEAST_MS, abort_ms = client->settings->abort_ms;
    int64_t last_ms = whole_ms / 10 < LEAST_MS ? LEAST_MS : whole_ms / 10 > MOST_MS ? MOST_MS : whole_ms / 10;
    last_ms += abort_ms > whole_ms / 4 ? whole_ms / 4 : abort_ms;
    int64_t stop_ms = timeout_ms < whole_ms - last_ms ? timeout_ms : whole_ms - last_ms;
    return (struct ps_close_times){ ps_deadline_us(stop_ms), ps_deadline_us(whole_ms) };
}

/* With the lock held. */
static void start_closing(struct ps_client *client, const struct ps_close_times *times, const char *reason)
{
    struct ps_close_job *closing = calloc(1, sizeof(*closing));
    if (!closing) return;
    ps_job_init(&closing->job, close_run, close_release);
    closing->client = client;
    atomic_store(&client->closed_because, reason);
    if (client->kind->closing) client->kind->closing(client);
    atomic_store(&client->closed_by_us, times->done_us);
    atomic_store(&client->close_by_us, times->stop_us);
    ps_client_retain(client);
    ps_registry_closing(+1);
    if (ps_job_start(&closing->job, "penstock.close") != 0) { /* no thread could start; a later call tries again */
        ps_registry_closing(-1);
        atomic_store(&client->close_by_us, 0);
        atomic_store(&client->closed_by_us, 0);
        ps_job_unref(&closing->job);
        ps_client_unref(client);
        return;
    }
    client->close_job = &closing->job;
    atomic_store(&client->state, PS_CLOSING);
}

struct ps_job *ps_client_close(struct ps_client *client, int64_t timeout_ms, const char *reason)
{
    struct ps_close_times times = ps_client_close_times(client, timeout_ms);
    return ps_client_close_by(client, &times, reason);
}

struct ps_job *ps_client_close_by(struct ps_client *client, const struct ps_close_times *times, const char *reason)
{
    pthread_mutex_lock(&client->lock);
    await_opening(client);
    int state = atomic_load(&client->state);
    if (state == PS_NEW) client_closed(client);
    else if (state == PS_OPEN) start_closing(client, times, reason);
    struct ps_job *job = client->close_job;
    if (job) ps_job_retain(job);
    pthread_mutex_unlock(&client->lock);
    return job;
}

static void shorten(_Atomic int64_t *time, int64_t time_us)
{
    int64_t before = atomic_load(time);
    while (before != 0 && time_us < before)
        if (atomic_compare_exchange_weak(time, &before, time_us)) break;
}

struct ps_job *ps_client_end(struct ps_client *client)
{
    struct ps_close_times times = ps_client_close_times(client, client->settings->close_timeout_ms);
    struct ps_job *job = ps_client_close_by(client, &times, "still open when the process ended");
    const char *a_caller_reads = NULL;
    if (!job) return NULL;
    atomic_compare_exchange_strong(&client->closed_because, &a_caller_reads, "still closing when the process ended");
    shorten(&client->closed_by_us, times.done_us);
    shorten(&client->close_by_us, times.stop_us);
    return job;
}

void ps_client_hurry(struct ps_client *client, int64_t stop_us)
{
    if (stop_us != PS_FOREVER) shorten(&client->closed_by_us, stop_us + PS_CLOSE_LEAST_MS * 1000);
    shorten(&client->close_by_us, stop_us);
}

/* True: another thread is opening the client. That thread abandons it afterwards. */
static bool leave_to_opener(struct ps_client *client)
{
    pthread_mutex_lock(&client->lock);
    bool opening = atomic_load(&client->opening);
    client->abandoned = opening;
    pthread_mutex_unlock(&client->lock);
    return opening;
}

void ps_client_abandon(struct ps_client *client)
{
    if (ps_client_inherited(client)) return; /* M:fork_closes_nothing */
    if (leave_to_opener(client)) return;
    struct ps_job *job = ps_client_close(client, client->settings->close_timeout_ms, "dropped without close");
    if (job) ps_job_unref(job);
    else if (atomic_load(&client->state) == PS_OPEN) return; /* no thread could start: the end of the process closes it */
    ps_client_unref(client);
}

bool ps_leader_moved(rd_kafka_resp_err_t err)
{
    return err == RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION || err == RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE ||
           err == RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH || err == RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH;
}
