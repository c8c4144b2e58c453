/*
 * How many connections of a client work, and since when none does. librdkafka reports a broker's errors at most once in 30
 * seconds, so failures cannot be counted. Its interceptors report every change of a connection's state and every answer.
 *
 * A connection works when librdkafka calls its broker UP and the broker has answered something. UP alone is not enough: a
 * port that accepts connections and hangs up, or stays silent, may be UP for a moment. An answer to ApiVersions is enough, as
 * librdkafka may send nothing else until it has messages. But a broker that requires SASL answers that too, before it hangs
 * up. So a connection that ends without another answer counts as rejected (rejection.c uses this until a broker has served
 * the client once). If librdkafka ends it itself, as an answer did not come in time, it does not: the broker may be frozen.
 *
 * The time without a connection starts at the first attempt after the last working connection was lost. So it does not run
 * while librdkafka does not try to connect, after a broker has closed idle connections.
 *
 * A broker that is frozen or slow is another matter than one that is away: the system accepts connections for it. Brokers are
 * away if librdkafka has reported that all of them are down, and since then no attempt has made a connection.
 *
 * The callbacks run on librdkafka's broker threads. Each such thread has one connection, whose state is thread-local. The
 * counters that all threads share are atomic.
 */
#include "client/client.h"
#include <string.h>

static _Thread_local struct {
    bool up;         /* librdkafka considers it usable */
    bool answered;   /* the broker has answered since the connection was made */
    bool works;      /* both: it is counted in `working` */
    bool served;     /* the broker has answered more than the requests that begin a connection */
    bool silent;     /* one of those had no answer in time, so librdkafka ends the connection */
    bool made;       /* TCP's part is done */
    bool expects;    /* the same, and it does not work yet: counted in `expecting` */
    bool handshakes; /* TLS's part is not */
    bool rejects;    /* the latest connection ended before `served`: counted in `rejecting` */
    unsigned failed; /* attempts in a row that made no connection */
} connection;

/* A name may have several addresses, and a broker may not listen on each: localhost is ::1 and 127.0.0.1. */
enum { ATTEMPTS = 4 };

static void store_first(_Atomic int64_t *us)
{
    int64_t none = 0;
    atomic_compare_exchange_strong(us, &none, ps_now_us());
}

static void set_rejects(struct ps_connections *connections, bool rejects)
{
    if (rejects == connection.rejects) return;
    connection.rejects = rejects;
    if (rejects) atomic_fetch_add(&connections->rejecting, 1);
    else atomic_fetch_sub(&connections->rejecting, 1);
}

/* Called before `made` and `served` are reset. */
static void connection_ended(struct ps_connections *connections)
{
    connection.failed = connection.made ? 0 : connection.failed + 1;
    if (connection.made) atomic_store(&connections->refused_us, 0);
    else store_first(&connections->refused_us);
    if (connection.made && !connection.served) set_rejects(connections, !connection.silent);
    else if (connection.failed >= ATTEMPTS) set_rejects(connections, false);
}

static void set_works(struct ps_connections *connections, bool works)
{
    if (works == connection.works) return;
    connection.works = works;
    if (works) {
        atomic_fetch_add(&connections->working, 1);
        atomic_store(&connections->tried_us, 0);
        atomic_store(&connections->refused_us, 0);
        atomic_store(&connections->down, false);
    } else if (atomic_fetch_sub(&connections->working, 1) == 1) {
        /* Another thread may have seen no connection, and stored its attempt after a connection worked again. That value
         * would count from here on, so it is reset; the next attempt follows at once. */
        atomic_store(&connections->tried_us, 0);
        atomic_fetch_add(&connections->outages, 1);
    }
}

/* The broker may be about to answer. */
static void set_expects(struct ps_connections *connections, bool expects)
{
    if (expects == connection.expects) return;
    connection.expects = expects;
    if (!expects) {
        atomic_fetch_sub(&connections->expecting, 1);
        return;
    }
    atomic_fetch_add(&connections->expecting, 1);
    atomic_store(&connections->refused_us, 0);
}

static bool is_one_of(const char *state, const char *const *states)
{
    for (; *states; states++)
        if (strcmp(state, *states) == 0) return true;
    return false;
}

static void set_handshakes(struct ps_connections *connections, bool handshakes)
{
    if (handshakes) store_first(&connections->handshake_us);
    else if (connection.handshakes) atomic_store(&connections->handshake_us, 0);
    connection.handshakes = handshakes;
}

static rd_kafka_resp_err_t state_cb(rd_kafka_t *rk, int32_t broker_id, const char *protocol, const char *name, int port,
                                    const char *state, void *arg)
{
    static const char *const begun[] = { "TRY_CONNECT", "CONNECT", NULL }, *const none[] = { "INIT", "DOWN", NULL },
                      *const up[] = { "UP", "UPDATE", "REAUTH", NULL };
    struct ps_connections *connections = arg;
    (void)rk, (void)broker_id, (void)protocol, (void)port;
    if (!*name) return RD_KAFKA_RESP_ERR_NO_ERROR; /* librdkafka's own queue of requests, not a broker */

    bool begins = is_one_of(state, begun), ends = is_one_of(state, none);
    if (strcmp(state, "DOWN") == 0) connection_ended(connections);
    connection.up = is_one_of(state, up);
    connection.made = !begins && !ends;
    if (!connection.made) connection.answered = connection.served = connection.silent = false;
    set_handshakes(connections, strcmp(state, "SSL_HANDSHAKE") == 0);
    set_works(connections, connection.up && connection.answered);
    set_expects(connections, connection.made && !connection.works);
    if (begins && atomic_load(&connections->working) == 0) store_first(&connections->tried_us);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static bool begins_connection(int16_t api_key)
{
    enum { SASL_HANDSHAKE = 17, API_VERSIONS = 18, SASL_AUTHENTICATE = 36 };
    return api_key == SASL_HANDSHAKE || api_key == API_VERSIONS || api_key == SASL_AUTHENTICATE;
}

static rd_kafka_resp_err_t answered_cb(rd_kafka_t *rk, int socket, const char *broker_name, int32_t broker_id,
                                       int16_t api_key, int16_t api_version, int32_t correlation_id, size_t size,
                                       int64_t round_trip_us, rd_kafka_resp_err_t err, void *arg)
{
    (void)rk, (void)socket, (void)broker_name, (void)broker_id, (void)api_version, (void)correlation_id, (void)size;
    (void)round_trip_us;
    if (err == RD_KAFKA_RESP_ERR__TIMED_OUT) connection.silent = true;
    if (err || connection.served) return RD_KAFKA_RESP_ERR_NO_ERROR;
    connection.answered = true;
    set_works(arg, connection.up);
    set_expects(arg, connection.made && !connection.works);
    if (begins_connection(api_key)) return RD_KAFKA_RESP_ERR_NO_ERROR;
    connection.served = true;
    set_rejects(arg, false);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t thread_start_cb(rd_kafka_t *rk, rd_kafka_thread_type_t type, const char *name, void *unused)
{
    (void)rk, (void)name, (void)unused;
    if (type == RD_KAFKA_THREAD_BROKER) ps_pipes_keep_once(); /* the broker's pipe is made before its thread */
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t new_cb(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *arg, char *errstr, size_t size)
{
    (void)conf, (void)errstr, (void)size;
    rd_kafka_interceptor_add_on_response_received(rk, "penstock.connections", answered_cb, arg);
    rd_kafka_interceptor_add_on_thread_start(rk, "penstock.connections", thread_start_cb, NULL);
    return rd_kafka_interceptor_add_on_broker_state_change(rk, "penstock.connections", state_cb, arg);
}

void ps_connections_watch(struct ps_connections *connections, rd_kafka_conf_t *conf)
{
    rd_kafka_conf_interceptor_add_on_new(conf, "penstock.connections", new_cb, connections);
}

/* After rd_kafka_destroy: all its broker threads have ended. */
void ps_connections_forget(struct ps_connections *connections)
{
    atomic_store(&connections->tried_us, 0);
    atomic_store(&connections->handshake_us, 0);
    atomic_store(&connections->refused_us, 0);
    atomic_store(&connections->working, 0);
    atomic_store(&connections->expecting, 0);
    atomic_store(&connections->rejecting, 0);
    atomic_store(&connections->down, false);
}

static bool time_passed(const _Atomic int64_t *since_us, int64_t time_us, int64_t now)
{
    int64_t since = atomic_load(since_us);
    return since != 0 && now - since >= time_us;
}

bool ps_connections_none_for(const struct ps_connections *connections, int64_t time_us)
{
    return atomic_load(&connections->working) == 0 && time_passed(&connections->tried_us, time_us, ps_now_us());
}

/*
 * librdkafka reports it before the last broker's state_cb, so that connection may still count as working. If the report is read
 * late, when a connection works again, it counts for the next outage: then not all brokers may have been tried.
 */
void ps_connections_all_down(struct ps_connections *connections)
{
    atomic_store(&connections->down, true);
}

int64_t ps_connections_away_since(const struct ps_connections *connections)
{
    bool away = atomic_load(&connections->down) && atomic_load(&connections->working) == 0 &&
                atomic_load(&connections->expecting) == 0; /* M:slow_broker_not_away */
    return away ? atomic_load(&connections->refused_us) : 0;
}

bool ps_connections_rejected(const struct ps_connections *connections)
{
    return atomic_load(&connections->rejecting) > 0;
}

bool ps_connections_handshake_for(const struct ps_connections *connections, int64_t time_us)
{
    return time_passed(&connections->handshake_us, time_us, ps_now_us());
}
