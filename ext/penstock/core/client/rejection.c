/*
 * Brokers that reject a client: its certificate does not verify, its password is wrong, or the port speaks another protocol.
 * librdkafka retries for ever, and messages would wait for message.timeout.ms, to fail with no more than "timed out". So a
 * client gives up (purges) its messages in flight if it has met only rejections for rejection_timeout_us and has never had a
 * connection that worked. Their delivery result is the rejection. It gives up later messages each second, until a connection
 * works. A consumer has no messages in flight: its `poll`, and calls that wait for brokers, raise the rejection.
 *
 * A client also gives up its messages in flight when it has reached no broker for unreachable_us. This happens whether or not
 * a connection ever worked, until one works (connections.c). Meanwhile new messages fail without reaching librdkafka
 * (handover.c).
 *
 * The thread that serves the producer, or takes the consumer's events, writes this state; the text under rejection->lock. The
 * states: struct ps_rejection.
 */
#include "client/client.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { GIVE_UP_EVERY_US = 1000000 };

/* ---- why a certificate was not accepted: OpenSSL's numbers, which are part of its interface ---- */

static const char *certificate_problem(int x509_error)
{
    switch (x509_error) {
    case 0: return NULL;
    case 9: return "the certificate is not yet valid";
    case 10: return "the certificate has expired";
    case 18: return "the certificate is self-signed";
    case 19: case 20: case 21: return "the certificate is signed by an authority that is not known here";
    case 23: return "the certificate has been revoked";
    case 62: return "the certificate is for another host name";
    case 64: return "the certificate is for another IP address";
    default: return "the certificate was not accepted";
    }
}

/* Returns OpenSSL's own decision, and stores the reason: librdkafka reports every rejected certificate with the same text.
 * The reason stays, because a broker thread may reject several times before a thread reads the first error. */
int ps_certificate_cb(rd_kafka_t *rk, const char *broker_name, int32_t broker_id, int *x509_error, int depth,
                      const char *certificate, size_t size, char *errstr, size_t errstr_size, void *client)
{
    (void)rk, (void)broker_name, (void)broker_id, (void)depth, (void)certificate, (void)size;
    if (*x509_error == 0) return 1;
    snprintf(errstr, errstr_size, "%s", certificate_problem(*x509_error));
    atomic_store(&((struct ps_client *)client)->rejection.x509_error, *x509_error);
    return 0;
}

/* ---- recognizing a rejection by its error ---- */

static bool mentions(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strstr(text, *words)) return true;
    return false;
}

/* True if the broker ended a connection: in the handshake, because it does not speak TLS; during the first requests, because
 * it expects another protocol. The rest of the text depends on how the connection ended and on librdkafka's version. */
static bool hung_up(const char *text)
{
    static const char *const ends[] = { "Broken pipe", "closed by peer", "reset by peer", NULL },
                      *const handshake[] = { "Disconnected", "timed out in state", NULL };
    if (strstr(text, "in state SSL_HANDSHAKE")) return mentions(text, handshake) || mentions(text, ends);
    return strstr(text, "in state UP") && mentions(text, ends);
}

static enum ps_rejected kind_of(rd_kafka_resp_err_t err, const char *text)
{
    /* A broker that rejects our certificate reports that after the handshake, as a transport error. A broker that expects
     * another protocol closes the connection. */
    static const char *const tls[] = { "SSL routines", "SSL alert", NULL }, *const protocol[] = { "security.protocol", NULL };
    switch (err) {
    case RD_KAFKA_RESP_ERR__AUTHENTICATION: return PS_REJECTED_AUTHENTICATION;
    case RD_KAFKA_RESP_ERR__SSL: return PS_REJECTED_TLS;
    case RD_KAFKA_RESP_ERR__TRANSPORT:
        if (mentions(text, tls)) return PS_REJECTED_TLS;
        return mentions(text, protocol) || hung_up(text) ? PS_REJECTED_PROTOCOL : PS_NOT_REJECTED;
    default: return PS_NOT_REJECTED;
    }
}

void ps_rejection_init(struct ps_rejection *rejection, const struct ps_connections *connections,
                     const struct ps_client_settings *settings)
{
    rejection->connections = connections;
    rejection->rejection_timeout_us = settings->rejection_us;
    rejection->unreachable_us = settings->unreachable_us;
    pthread_mutex_init(&rejection->lock, NULL);
}

void ps_rejection_destroy(struct ps_rejection *rejection)
{
    pthread_mutex_destroy(&rejection->lock);
}

static bool has_worked(struct ps_rejection *rejection, rd_kafka_t *rk)
{
    if (atomic_load(&rejection->worked)) return true;
    char *cluster = rd_kafka_clusterid(rk, 0); /* known since the first metadata that a broker has sent */
    if (!cluster) return false;
    rd_kafka_mem_free(rk, cluster);
    atomic_store(&rejection->worked, true);
    return true;
}

static void rejection_note(struct ps_rejection *rejection, enum ps_rejected kind, const char *text)
{
    static const char *const certificate[] = { "verif", NULL }; /* "certificate verify failed", "could not be verified" */
    const char *problem = mentions(text, certificate) ? certificate_problem(atomic_load(&rejection->x509_error)) : NULL;
    pthread_mutex_lock(&rejection->lock);
    snprintf(rejection->text, sizeof(rejection->text), "%s%s%s", problem ? problem : "", problem ? ": " : "", text);
    pthread_mutex_unlock(&rejection->lock);
    atomic_store(&rejection->kind, kind);
    if (atomic_load(&rejection->due_us) == 0) atomic_store(&rejection->due_us, ps_now_us() + rejection->rejection_timeout_us);
}

/* As far as is known, no broker rejects the client now: the latest error was not a rejection. The broker that rejected it may
 * be gone, and others may accept it. */
static bool only_unreachable(const struct ps_rejection *rejection)
{
    return atomic_load(&rejection->unreachable) && !ps_connections_rejected(rejection->connections);
}

/* When a broker closes the connection, newer librdkafkas (2.14) report that only in their log. So if brokers have closed
 * connections, all brokers are down, and no error of another kind was reported, the client counts as rejected. */
static void brokers_down(struct ps_rejection *rejection, rd_kafka_t *rk)
{
    if (atomic_load(&rejection->kind) != PS_NOT_REJECTED || !ps_connections_rejected(rejection->connections)) return;
    if (has_worked(rejection, rk)) return;
    rejection_note(rejection, PS_REJECTED_PROTOCOL, "all brokers close the connection without a reason");
}

bool ps_rejection_error(struct ps_rejection *rejection, rd_kafka_t *rk, rd_kafka_resp_err_t err, const char *text)
{
    enum ps_rejected kind = kind_of(err, text);
    if (rejection->rejection_timeout_us < 0) return false;
    if (err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
        brokers_down(rejection, rk);
        return false;
    }
    if (kind != PS_NOT_REJECTED && !has_worked(rejection, rk)) {
        atomic_store(&rejection->unreachable, false);
        rejection_note(rejection, kind, text);
        return true;
    }
    atomic_store(&rejection->unreachable, true);
    if (only_unreachable(rejection)) ps_rejection_forget(rejection);
    return false;
}

void ps_rejection_forget(struct ps_rejection *rejection)
{
    atomic_store(&rejection->due_us, 0);
    atomic_store(&rejection->kind, PS_NOT_REJECTED);
}

/* ---- giving up ---- */

/* True: a broker has not answered the TLS handshake for rejection_timeout_us. Its port may speak no TLS, and read the handshake
 * as the start of a very long request. */
static bool handshake_unanswered(const struct ps_rejection *rejection)
{
    return rejection->rejection_timeout_us >= 0 && !atomic_load(&rejection->worked) &&
           ps_connections_handshake_for(rejection->connections, rejection->rejection_timeout_us);
}

bool ps_rejection_unreachable(const struct ps_rejection *rejection)
{
    return rejection->unreachable_us > 0 && ps_connections_none_for(rejection->connections, rejection->unreachable_us);
}

void ps_rejection_unreachable_text(const struct ps_rejection *rejection, char *text, size_t size)
{
    snprintf(text, size, "no broker could be reached for %" PRId64 " ms", rejection->unreachable_us / 1000);
}

static bool rejected_for_too_long(const struct ps_rejection *rejection, int64_t now)
{
    int64_t due_us = atomic_load(&rejection->due_us);
    return due_us ? now >= due_us : handshake_unanswered(rejection);
}

bool ps_rejection_due(const struct ps_rejection *rejection, int64_t now)
{
    return rejected_for_too_long(rejection, now) ||
           (ps_rejection_unreachable(rejection) && now >= atomic_load(&rejection->again_us));
}

bool ps_rejection_give_up(struct ps_rejection *rejection, rd_kafka_t *rk)
{
    if (atomic_load(&rejection->kind) == PS_NOT_REJECTED && handshake_unanswered(rejection) && !has_worked(rejection, rk))
        rejection_note(rejection, PS_REJECTED_PROTOCOL, "no answer to the TLS handshake");
    /* The kind is PS_NOT_REJECTED if another thread has called ps_rejection_forget meanwhile. */
    if (has_worked(rejection, rk) || only_unreachable(rejection) || atomic_load(&rejection->kind) == PS_NOT_REJECTED) {
        ps_rejection_forget(rejection);
        return false;
    }
    atomic_store(&rejection->due_us, ps_now_us() + GIVE_UP_EVERY_US);
    return true;
}

static void copy_text(struct ps_rejection *rejection, char *text, size_t size)
{
    pthread_mutex_lock(&rejection->lock);
    snprintf(text, size, "%s", rejection->text);
    pthread_mutex_unlock(&rejection->lock);
}

/*
 * Any thread. The serving thread reads the result of a purged message later, perhaps when another purge has begun. A purge
 * reaches every message that was produced before it. So a message has the reason of the first purge since it was produced.
 */
void ps_rejection_purges(struct ps_rejection *rejection, enum ps_rejected kind)
{
    char text[512] = "";
    if (kind == PS_UNREACHABLE) ps_rejection_unreachable_text(rejection, text, sizeof(text));
    else if (kind != PS_NOT_REJECTED) copy_text(rejection, text, sizeof(text));

    pthread_mutex_lock(&rejection->lock);
    struct ps_purge *purge = &rejection->purges[rejection->latest_purge];
    if (purge->kind != (int)kind || strcmp(purge->text, text) != 0) {
        rejection->latest_purge = (rejection->latest_purge + 1) % PS_PURGES;
        purge = &rejection->purges[rejection->latest_purge];
        purge->kind = kind;
        snprintf(purge->text, sizeof(purge->text), "%s", text);
    }
    purge->at_us = ps_now_us();
    pthread_mutex_unlock(&rejection->lock);
}

/* With the lock held. Returns the first purge since the message was produced. If there is none, a slow broker thread has purged
 * a message that was produced after the latest purge began: returns the latest. */
static const struct ps_purge *purge_of(const struct ps_rejection *rejection, int64_t produced_us)
{
    for (unsigned i = 1; i <= PS_PURGES; i++) {
        const struct ps_purge *purge = &rejection->purges[(rejection->latest_purge + i) % PS_PURGES];
        if (purge->at_us >= produced_us) return purge;
    }
    return &rejection->purges[rejection->latest_purge];
}

enum ps_rejected ps_rejection_reason(struct ps_rejection *rejection, rd_kafka_t *rk, int64_t now)
{
    if (rejected_for_too_long(rejection, now) && ps_rejection_give_up(rejection, rk)) return atomic_load(&rejection->kind);
    if (!ps_rejection_unreachable(rejection)) return PS_NOT_REJECTED;
    atomic_store(&rejection->again_us, now + GIVE_UP_EVERY_US);
    enum ps_rejected kind = atomic_load(&rejection->kind);
    return kind == PS_NOT_REJECTED ? PS_UNREACHABLE : kind;
}

enum ps_rejected ps_rejection_now(struct ps_rejection *rejection, char *text, size_t size)
{
    enum ps_rejected kind = atomic_load(&rejection->kind);
    if (kind != PS_NOT_REJECTED) {
        copy_text(rejection, text, size);
    } else if (ps_rejection_unreachable(rejection)) {
        kind = PS_UNREACHABLE;
        ps_rejection_unreachable_text(rejection, text, size);
    }
    return kind;
}

/* This does not ask whether a broker has answered since the purge began: the message was purged, so the purge is the reason. */
enum ps_rejected ps_rejection_purged_for(struct ps_rejection *rejection, int64_t produced_us, char *text, size_t size)
{
    pthread_mutex_lock(&rejection->lock);
    const struct ps_purge *purge = purge_of(rejection, produced_us);
    enum ps_rejected kind = purge->kind;
    snprintf(text, size, "%s", purge->text);
    pthread_mutex_unlock(&rejection->lock);
    return kind;
}

rd_kafka_resp_err_t ps_rejection_code(enum ps_rejected kind)
{
    switch (kind) {
    case PS_REJECTED_TLS: return RD_KAFKA_RESP_ERR__SSL;
    case PS_REJECTED_AUTHENTICATION: return RD_KAFKA_RESP_ERR__AUTHENTICATION;
    case PS_REJECTED_PROTOCOL: return RD_KAFKA_RESP_ERR__TRANSPORT;
    case PS_UNREACHABLE: return RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN;
    case PS_NOT_REJECTED: break;
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}
