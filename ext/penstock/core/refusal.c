/*
 * Brokers that refuse a client: a certificate that does not verify, a password that is wrong, a port that speaks another
 * protocol. librdkafka tries again for ever, and messages would wait for message.timeout.ms to learn no more than "timed
 * out". A client that has met nothing but refusals for settings.refusal_us, and never had a connection that worked, gives up
 * what is in flight, with the refusal for a verdict; and so again, each second, with what comes later, until one works.
 *
 * Written by who serves the client; the text under client->lock.
 */
#include "core.h"
#include <stdio.h>
#include <string.h>

enum { AGAIN_US = 1000000 };

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

/* Accepts and refuses what OpenSSL does; only remembers why. librdkafka reports all of these in the same words. */
int ps_certificate_cb(rd_kafka_t *rk, const char *broker_name, int32_t broker_id, int *x509_error, int depth,
                      const char *certificate, size_t size, char *errstr, size_t errstr_size, void *client)
{
    (void)rk, (void)broker_name, (void)broker_id, (void)depth, (void)certificate, (void)size;
    if (*x509_error == 0) return 1;
    snprintf(errstr, errstr_size, "%s", certificate_problem(*x509_error));
    atomic_store(&((struct ps_client *)client)->refusal.x509_error, *x509_error);
    return 0;
}

/* ---- noticing ---- */

static bool mentions(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strstr(text, *words)) return true;
    return false;
}

/* What ends the connection there speaks no TLS. How it does, and which librdkafka it is, changes the rest of the words. */
static bool hung_up_in_handshake(const char *text)
{
    return strstr(text, "Disconnected") && strstr(text, "in state SSL_HANDSHAKE");
}

static enum ps_refused kind_of(rd_kafka_resp_err_t err, const char *text)
{
    /* A broker that does not like our certificate says so after the handshake; one that wants another protocol hangs up. */
    static const char *const tls[] = { "SSL routines", "SSL alert", NULL }, *const protocol[] = { "security.protocol", NULL };
    switch (err) {
    case RD_KAFKA_RESP_ERR__AUTHENTICATION: return PS_REFUSED_AUTHENTICATION;
    case RD_KAFKA_RESP_ERR__SSL: return PS_REFUSED_TLS;
    case RD_KAFKA_RESP_ERR__TRANSPORT:
        if (mentions(text, tls)) return PS_REFUSED_TLS;
        return mentions(text, protocol) || hung_up_in_handshake(text) ? PS_REFUSED_PROTOCOL : PS_NOT_REFUSED;
    default: return PS_NOT_REFUSED;
    }
}

static bool has_worked(struct ps_client *client)
{
    if (atomic_load(&client->refusal.worked)) return true;
    char *cluster = rd_kafka_clusterid(client->rk, 0); /* of the first metadata that a broker has given us */
    if (cluster) rd_kafka_mem_free(client->rk, cluster);
    bool worked = cluster || atomic_load(&client->delivered) > 0;
    if (worked) atomic_store(&client->refusal.worked, true);
    return worked;
}

static void note(struct ps_client *client, enum ps_refused kind, const char *text)
{
    struct ps_refusal *refusal = &client->refusal;
    const char *problem = certificate_problem(atomic_exchange(&refusal->x509_error, 0));
    pthread_mutex_lock(&client->lock);
    snprintf(refusal->text, sizeof(refusal->text), "%s%s%s", problem ? problem : "", problem ? ": " : "", text);
    pthread_mutex_unlock(&client->lock);
    atomic_store(&refusal->kind, kind);
    if (atomic_load(&refusal->due_us) == 0) atomic_store(&refusal->due_us, ps_now_us() + client->settings.refusal_us);
}

/* Newer librdkafkas (2.14) tell of a broker that hangs up in their log only: when all are said to be down and no other error
 * has come, that is what they have done. */
static void brokers_down(struct ps_client *client)
{
    if (atomic_load(&client->refusal.kind) != PS_NOT_REFUSED || atomic_load(&client->refusal.unreachable)) return;
    if (!has_worked(client)) note(client, PS_REFUSED_PROTOCOL, "all brokers hang up without a word");
}

void ps_refusal_error(struct ps_client *client, rd_kafka_resp_err_t err, const char *text)
{
    enum ps_refused kind = kind_of(err, text);
    if (client->settings.refusal_us < 0) return;
    if (err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
        brokers_down(client);
    } else if (kind != PS_NOT_REFUSED && !has_worked(client)) {
        atomic_store(&client->refusal.unreachable, false);
        note(client, kind, text);
    } else {
        atomic_store(&client->refusal.unreachable, true);
        ps_refusal_forget(client); /* a broker that is down may be one that will not refuse */
    }
}

void ps_refusal_forget(struct ps_client *client)
{
    atomic_store(&client->refusal.due_us, 0);
    atomic_store(&client->refusal.kind, PS_NOT_REFUSED);
}

/* ---- giving up ---- */

bool ps_refusal_due(const struct ps_client *client, int64_t now)
{
    int64_t due_us = atomic_load(&client->refusal.due_us);
    return due_us != 0 && now >= due_us;
}

/* With the client's lock held. */
static void give_up(struct ps_client *client)
{
    atomic_fetch_add(&client->refusal.given_up, 1);
    if (ps_client_in_flight(client) == 0) return;
    atomic_store(&client->refusal.purging, true);
    rd_kafka_purge(client->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

void ps_refusal_act(struct ps_client *client)
{
    struct ps_refusal *refusal = &client->refusal;
    if (has_worked(client) || atomic_load(&refusal->kind) == PS_NOT_REFUSED) { /* or forgotten just when it was noted */
        ps_refusal_forget(client);
        return;
    }
    atomic_store(&refusal->due_us, ps_now_us() + AGAIN_US);
    pthread_mutex_lock(&client->lock); /* who begins to close it meanwhile has said how long it may take */
    if (atomic_load(&client->state) == PS_CLIENT_OPEN) give_up(client);
    pthread_mutex_unlock(&client->lock);
}

bool ps_refusal_is_verdict(const struct ps_client *client, rd_kafka_resp_err_t err)
{
    return (err == RD_KAFKA_RESP_ERR__PURGE_QUEUE || err == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT) &&
           atomic_load(&client->refusal.purging);
}

enum ps_refused ps_refusal_now(struct ps_client *client, char *text, size_t size)
{
    enum ps_refused kind = atomic_load(&client->refusal.kind);
    if (kind == PS_NOT_REFUSED) return kind;
    pthread_mutex_lock(&client->lock);
    snprintf(text, size, "%s", client->refusal.text);
    pthread_mutex_unlock(&client->lock);
    return kind;
}

rd_kafka_resp_err_t ps_refusal_code(enum ps_refused kind)
{
    switch (kind) {
    case PS_REFUSED_TLS: return RD_KAFKA_RESP_ERR__SSL;
    case PS_REFUSED_AUTHENTICATION: return RD_KAFKA_RESP_ERR__AUTHENTICATION;
    case PS_REFUSED_PROTOCOL: return RD_KAFKA_RESP_ERR__TRANSPORT;
    case PS_NOT_REFUSED: break;
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}
