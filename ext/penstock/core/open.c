/*
 * What a producing client and a consumer have in common: a ps_open, the first member of both. Its references, its state,
 * who is inside, what it has to say, and how closing begins and ends; what is particular to one is behind its ps_open_kind.
 * Any thread, except where core.h says otherwise.
 *
 * Nobody touches `rk` but between enter and exit, so closing knows when the last call has left. In a forked child what is
 * inherited is left alone altogether: its threads are gone, its locks may be held for ever, and destroying it would hang.
 */
#include "core.h"
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ps_open_init(struct ps_open *open, const struct ps_open_kind *kind, rd_kafka_conf_t *conf, const char *name,
                  const struct ps_open_settings *settings)
{
    open->kind = kind;
    atomic_init(&open->refs, 1);
    open->generation = ps_generation();
    open->address = ps_mailbox_address();
    pthread_mutex_init(&open->lock, NULL);
    pthread_cond_init(&open->calls_ended, NULL);
    open->conf = conf;
    open->name = strdup(name);
    open->brokers = strdup("");
    open->settings = settings;
    ps_log_init(&open->log, open->name, open->address, settings->logs_to_mailbox);
    ps_bell_init(&open->tokens.bell);
    ps_redaction_init(&open->redaction);
    ps_refusal_init(&open->refusal, &open->connections, settings);
}

void ps_open_retain(struct ps_open *open)
{
    atomic_fetch_add_explicit(&open->refs, 1, memory_order_relaxed);
}

void ps_open_unref(struct ps_open *open)
{
    if (atomic_fetch_sub(&open->refs, 1) != 1) return;
    if (ps_open_inherited(open)) return; /* left as it is on purpose */
    if (open->close_job) ps_job_unref(open->close_job);
    rd_kafka_conf_destroy(open->conf);
    ps_refusal_destroy(&open->refusal);
    ps_redaction_destroy(&open->redaction);
    ps_bell_destroy(&open->tokens.bell);
    ps_log_destroy(&open->log);
    open->kind->dispose(open);
    pthread_cond_destroy(&open->calls_ended);
    pthread_mutex_destroy(&open->lock);
    free(open->name);
    free(open->brokers);
    free(open);
}

bool ps_open_inherited(const struct ps_open *open)
{
    return open->generation != ps_generation();
}

void ps_open_set_brokers(struct ps_open *open, const char *brokers)
{
    free(open->brokers);
    open->brokers = strdup(brokers);
}

/* ---- opening ---- */

/*
 * Asks for the address of a broker, on a librdkafka thread that may block. An IP address needs no lookup, and so
 * none of the C library's locks: one that is held while another thread forks is held in the child for ever.
 */
static int resolve_cb(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result,
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

/* At once and with leaf locks only, whatever librdkafka holds. */
static void log_cb(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
    if (rk) ps_open_log_librdkafka(rd_kafka_opaque(rk), level, facility, text);
}

/* As events, a consumer's lines would pile up while nobody polls; and those for stderr need nobody to take them. */
static bool logs_at_once(const struct ps_open *open)
{
    return open->kind->type == RD_KAFKA_CONSUMER || !open->settings->logs_to_mailbox;
}

static rd_kafka_conf_t *configure(struct ps_open *open)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_dup(open->conf);
    ps_redaction_of_conf(&open->redaction, conf);
    rd_kafka_conf_set_resolve_cb(conf, resolve_cb);
    rd_kafka_conf_set_opaque(conf, open);
    rd_kafka_conf_set_ssl_cert_verify_cb(conf, ps_certificate_cb); /* refused by a librdkafka without TLS, which needs none */
    ps_tokens_enable(conf, open->settings->token_provider);
    if (logs_at_once(open)) rd_kafka_conf_set_log_cb(conf, log_cb);
    return conf;
}

/*
 * What interceptors take is lost when librdkafka cannot make a client of their configuration. Older librdkafkas (2.0.2; not 2.14)
 * free them, and destroying the configuration would free them again, so it stays; 2.14 forgets two lists, of 173 bytes each. Once
 * for a client: what fails again is found out without interceptors.
 */
enum { FREES_INTERCEPTORS_ONCE = 0x020e0000 };

static bool can_be_made(struct ps_open *open, char *errstr, size_t errstr_size)
{
    rd_kafka_conf_t *conf = configure(open);
    rd_kafka_t *trial = rd_kafka_new(open->kind->type, conf, errstr, errstr_size);
    if (trial) rd_kafka_destroy(trial);
    else rd_kafka_conf_destroy(conf);
    return trial != NULL;
}

/* Of a consumer only refusal.c needs interceptors, and can do without: those are not worth a configuration. */
static bool has_interceptors(const struct ps_open *open)
{
    return open->kind->type == RD_KAFKA_PRODUCER || rd_kafka_version() >= FREES_INTERCEPTORS_ONCE;
}

static rd_kafka_t *make(struct ps_open *open, char *errstr, size_t errstr_size)
{
    if (open->wasted_conf && !can_be_made(open, errstr, errstr_size)) return NULL;
    rd_kafka_conf_t *conf = configure(open);
    if (has_interceptors(open)) ps_connections_watch(&open->connections, conf);
    if (open->kind->intercept) open->kind->intercept(open, conf);
    rd_kafka_t *rk = rd_kafka_new(open->kind->type, conf, errstr, errstr_size);
    if (rk) return rk;
    open->wasted_conf = has_interceptors(open);
    if (!open->wasted_conf || rd_kafka_version() >= FREES_INTERCEPTORS_ONCE) rd_kafka_conf_destroy(conf);
    return NULL;
}

static int open_locked(struct ps_open *open, char *errstr, size_t errstr_size)
{
    open->rk = make(open, errstr, errstr_size);
    if (!open->rk) return -1;
    if (open->kind->begin(open, errstr, errstr_size) != 0) {
        rd_kafka_destroy(open->rk);
        open->rk = NULL;
        ps_connections_forget(&open->connections); /* else the next client's time without a broker would have begun with this one's */
        return -1;
    }
    ps_tokens_begin(&open->tokens, open->rk);
    ps_registry_add(open);
    atomic_store(&open->state, PS_OPEN);
    return 0;
}

int ps_open_once(struct ps_open *open, char *errstr, size_t errstr_size)
{
    int result = 0;
    pthread_mutex_lock(&open->lock);
    if (atomic_load(&open->state) == PS_NEW) result = open_locked(open, errstr, errstr_size);
    if (result != 0) ps_redact(&open->redaction, errstr);
    pthread_mutex_unlock(&open->lock);
    if (result == 0) ps_bell_ring(&open->tokens.bell); /* a token may have been asked for before it was open */
    return result;
}

/* ---- who is inside ---- */

bool ps_open_enter(struct ps_open *open)
{
    atomic_fetch_add(&open->calls, 1);
    if (atomic_load(&open->state) == PS_OPEN) return true;
    ps_open_exit(open);
    return false;
}

static void leave(struct ps_open *open, _Atomic uint32_t *counter)
{
    if (atomic_fetch_sub(counter, 1) != 1) return;
    if (atomic_load(&open->state) != PS_CLOSING) return;
    pthread_mutex_lock(&open->lock);
    pthread_cond_broadcast(&open->calls_ended);
    pthread_mutex_unlock(&open->lock);
}

void ps_open_exit(struct ps_open *open)
{
    leave(open, &open->calls);
}

void ps_open_enter_long(struct ps_open *open)
{
    atomic_fetch_add(&open->long_calls, 1);
}

void ps_open_exit_long(struct ps_open *open)
{
    leave(open, &open->long_calls);
}

/* New ones are refused since the state changed, or will not come any more. */
static void await_none(struct ps_open *open, _Atomic uint32_t *counter)
{
    pthread_mutex_lock(&open->lock);
    while (atomic_load(counter) > 0) pthread_cond_wait(&open->calls_ended, &open->lock);
    pthread_mutex_unlock(&open->lock);
}

void ps_open_await_calls(struct ps_open *open)
{
    await_none(open, &open->calls);
}

void ps_open_await_long_calls(struct ps_open *open)
{
    await_none(open, &open->long_calls);
}

/* ---- what it has to say ---- */

void ps_open_note_error(struct ps_open *open, rd_kafka_resp_err_t err, const char *text)
{
    pthread_mutex_lock(&open->lock);
    /* That all brokers are down says less than why the last one is. */
    if (err != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || !*open->last_error)
        snprintf(open->last_error, sizeof(open->last_error), "%s (%s)", text, rd_kafka_err2name(err));
    ps_redact(&open->redaction, open->last_error);
    pthread_mutex_unlock(&open->lock);
}

void ps_open_last_error(struct ps_open *open, char *text, size_t size)
{
    pthread_mutex_lock(&open->lock);
    snprintf(text, size, "%s", open->last_error);
    pthread_mutex_unlock(&open->lock);
}

void ps_open_log(struct ps_open *open, int level, const char *facility, const char *text)
{
    char copy[1024];
    ps_open_quote(open, copy, sizeof(copy), text);
    ps_log_line(&open->log, level, facility, copy);
}

void ps_open_quote(struct ps_open *open, char *copy, size_t size, const char *text)
{
    snprintf(copy, size, "%s", text);
    ps_redact(&open->redaction, copy);
}

rd_kafka_resp_err_t ps_open_fatal_error(struct ps_open *open, char *text, size_t size)
{
    rd_kafka_resp_err_t err = rd_kafka_fatal_error(open->rk, text, size);
    if (err) ps_redact(&open->redaction, text);
    return err;
}

static uint32_t outage(const struct ps_open *open)
{
    return atomic_load(&open->connections.outages);
}

void ps_open_log_librdkafka(struct ps_open *open, int level, const char *facility, const char *text)
{
    char copy[1024];
    ps_open_quote(open, copy, sizeof(copy), text);
    ps_log_librdkafka(&open->log, outage(open), level, facility, copy);
}

bool ps_open_log_error(struct ps_open *open, int level, rd_kafka_resp_err_t err, const char *text)
{
    char copy[1024];
    ps_open_quote(open, copy, sizeof(copy), text);
    return ps_log_error(&open->log, outage(open), level, err, copy);
}

/* ---- closing ---- */

/* In this order: who has read CLOSED reads no mail that was sent before. */
static void closed(struct ps_open *open)
{
    atomic_store(&open->state, PS_CLOSED);
    ps_bell_ring(&open->tokens.bell);
    ps_log_end(&open->log);
    if (open->settings->logs_to_mailbox) ps_mailbox_post(open->address, PS_MAIL_LAST, "");
}

static void close_run(struct ps_job *job)
{
    struct ps_open *open = ((struct ps_close_job *)job)->open;

    pthread_mutex_lock(&open->lock); /* until whoever started this has said so in `state` */
    pthread_mutex_unlock(&open->lock);

    open->kind->close(open);
    ps_registry_remove(open);
    closed(open);
    if (open->kind->closed) open->kind->closed(open);
    ps_open_unref(open); /* the thread's; what is closed owns its job, which has none */
    ps_registry_closing(-1);
}

static void close_release(struct ps_job *job)
{
    free(job);
}

/* With the lock held. */
static void start_closing(struct ps_open *open, int64_t timeout_ms, const char *reason)
{
    struct ps_close_job *closing = calloc(1, sizeof(*closing));
    if (!closing) return;
    ps_job_init(&closing->job, close_run, close_release);
    closing->open = open;
    atomic_store(&open->closed_because, reason);
    if (open->kind->closing) open->kind->closing(open);
    atomic_store(&open->close_by_us, ps_deadline_us(timeout_ms));
    ps_open_retain(open);
    ps_registry_closing(+1);
    if (ps_job_start(&closing->job, "penstock.close") != 0) { /* no thread to be had now; asking again tries again */
        ps_registry_closing(-1);
        atomic_store(&open->close_by_us, 0);
        ps_job_unref(&closing->job);
        ps_open_unref(open);
        return;
    }
    open->close_job = &closing->job;
    atomic_store(&open->state, PS_CLOSING);
}

struct ps_job *ps_open_close(struct ps_open *open, int64_t timeout_ms, const char *reason)
{
    pthread_mutex_lock(&open->lock);
    int state = atomic_load(&open->state);
    if (state == PS_NEW) closed(open);
    else if (state == PS_OPEN) start_closing(open, timeout_ms, reason);
    struct ps_job *job = open->close_job;
    if (job) ps_job_retain(job);
    pthread_mutex_unlock(&open->lock);
    return job;
}

struct ps_job *ps_open_end(struct ps_open *open)
{
    int64_t timeout_ms = open->settings->close_timeout_ms;
    struct ps_job *job = ps_open_close(open, timeout_ms, "still open when the process ended");
    const char *somebody_reads = NULL;
    if (!job) return NULL;
    atomic_compare_exchange_strong(&open->closed_because, &somebody_reads, "still closing when the process ended");
    ps_open_hurry(open, ps_deadline_us(timeout_ms));
    return job;
}

void ps_open_hurry(struct ps_open *open, int64_t deadline_us)
{
    int64_t before = atomic_load(&open->close_by_us);
    while (before != 0 && deadline_us < before)
        if (atomic_compare_exchange_weak(&open->close_by_us, &before, deadline_us)) break;
}

void ps_open_abandon(struct ps_open *open)
{
    if (ps_open_inherited(open)) return;
    struct ps_job *job = ps_open_close(open, open->settings->close_timeout_ms, "dropped without close");
    if (job) ps_job_unref(job);
    else if (atomic_load(&open->state) == PS_OPEN) return; /* no thread: left to the end of the process */
    ps_open_unref(open);
}
