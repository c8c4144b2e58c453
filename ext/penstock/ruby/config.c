/*
 * From a Ruby Hash to an rd_kafka_conf_t. librdkafka checks names and values. Penstock adds suggestions ("did you mean"), rejects
 * ambiguous settings and hides secrets in errors. librdkafka alone parses values: Settings.read asks it for the result.
 */
#include "ruby/penstock.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct filling {
    rd_kafka_conf_t *conf;
    VALUE settings;
};

static VALUE settings_module(void)
{
    return rb_const_get(penstock_module, rb_intern("Settings"));
}

static bool is_hidden(const char *name, VALUE value)
{
    return ps_secret_setting(name) || penstock_is_secret(value);
}

/* A setting's name for errors. A program may pass a secret in place of the name, so a text that looks like one is hidden. */
static VALUE shown_name(VALUE name)
{
    VALUE text = rb_inspect(name);
    return ps_secret_text(RSTRING_PTR(text), (size_t)RSTRING_LEN(text)) ? rb_str_new_cstr("[hidden]") : text;
}

static VALUE setting_name(VALUE key)
{
    VALUE name = SYMBOL_P(key) ? rb_sym2str(key) : key;
    if (!RB_TYPE_P(name, T_STRING))
        penstock_raise(penstock_config_error, &penstock_no_context,
                       "config.kafka: the names of settings are Symbols or Strings, not %" PRIsVALUE, rb_obj_class(key));
    if (!penstock_is_text(name))
        penstock_raise(penstock_config_error, &penstock_no_context,
                       "config.kafka: the name of a setting must be UTF-8 without a zero byte, not %" PRIsVALUE,
                       shown_name(name));
    return name;
}

static void check_twin(VALUE key, VALUE name, VALUE settings)
{
    VALUE twin = SYMBOL_P(key) ? name : rb_str_intern(rb_str_dup(name));
    if (RTEST(rb_funcall(settings, rb_intern("key?"), 1, twin)))
        penstock_raise(penstock_config_error, &penstock_no_context,
                       "config.kafka: %" PRIsVALUE " is given twice, as a Symbol and as a String", name);
}

/* Returns a String, or the secret itself. */
static VALUE setting_value(VALUE name, VALUE value)
{
    switch (TYPE(value)) {
    case T_STRING: return value;
    case T_TRUE: return rb_str_new_cstr("true");
    case T_FALSE: return rb_str_new_cstr("false");
    case T_FLOAT:
        if (!isfinite(RFLOAT_VALUE(value)))
            penstock_raise(penstock_config_error, &penstock_no_context, "config.kafka: %" PRIsVALUE " cannot be %" PRIsVALUE,
                           name, value);
        return rb_String(value);
    case T_FIXNUM:
    case T_BIGNUM: return rb_String(value);
    case T_DATA:
        if (penstock_is_secret(value)) return value;
        /* falls through */
    default:
        penstock_raise(penstock_config_error, &penstock_no_context,
                       "config.kafka: %" PRIsVALUE " takes an Integer, Float, String, true or false, not %" PRIsVALUE,
                       name, rb_obj_class(value));
    }
}

/* The bytes of a String or a secret. The caller keeps it alive. */
static const char *value_text(VALUE name, VALUE *value)
{
    const char *text = NULL;
    if (penstock_is_secret(*value)) text = penstock_secret_text(*value);
    else if (penstock_is_text(*value)) text = rb_string_value_cstr(value);
    if (!text)
        penstock_raise(penstock_config_error, &penstock_no_context,
                       "config.kafka: %" PRIsVALUE " must be UTF-8 without a zero byte", name);
    return text;
}

static VALUE conf_get(rd_kafka_conf_t *conf, const char *name)
{
    char value[2048] = "";
    size_t size = sizeof(value);
    rd_kafka_conf_get(conf, name, value, &size);
    return penstock_setting(value);
}

/* For a setting with a small integer, librdkafka reads "100 seconds", 1.5 or 2**40 as another number. This finds that. */
static void check_effect(rd_kafka_conf_t *conf, VALUE name, const char *text, VALUE given)
{
    if (!is_hidden(text, given)) rb_funcall(settings_module(), rb_intern("check_effect"), 3, name, given, conf_get(conf, text));
}

static int fill_one(VALUE key, VALUE value, VALUE arg)
{
    struct filling *filling = (struct filling *)arg;
    char errstr[512] = "";
    VALUE name = setting_name(key);
    check_twin(key, name, filling->settings);
    const char *text = rb_string_value_cstr(&name);
    VALUE given = setting_value(name, value);

    switch (rd_kafka_conf_set(filling->conf, text, value_text(name, &given), errstr, sizeof(errstr))) {
    case RD_KAFKA_CONF_OK: break;
    case RD_KAFKA_CONF_UNKNOWN:
        rb_funcall(settings_module(), rb_intern("raise_invalid_setting"), 1, name);
        break;
    case RD_KAFKA_CONF_INVALID:
        if (is_hidden(text, given))
            penstock_raise(penstock_config_error, &penstock_no_context, "config.kafka: %s: the value is not valid", text);
        rb_funcall(settings_module(), rb_intern("raise_invalid_value"), 3, name, given, penstock_text(errstr));
    }
    check_effect(filling->conf, name, text, given);
    RB_GC_GUARD(given);
    RB_GC_GUARD(name);
    return ST_CONTINUE;
}

static int64_t conf_integer(rd_kafka_conf_t *conf, const char *name)
{
    return NUM2LL(rb_str_to_inum(conf_get(conf, name), 10, 0));
}

static void conf_set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    char errstr[256];
    if (rd_kafka_conf_set(conf, name, value, errstr, sizeof(errstr)) != RD_KAFKA_CONF_OK)
        penstock_raise(penstock_config_error, &penstock_no_context, "config.kafka: %s", errstr);
}

/* ---- settings that contradict each other ---- */

static bool conf_is(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    return RTEST(rb_str_equal(conf_get(conf, name), rb_str_new_cstr(value)));
}

/* Whether the program gave the setting, by its name or its alias. librdkafka adapts settings that were not given. */
static bool was_given(VALUE settings, const char *name, const char *alias)
{
    const char *const names[] = { name, alias };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (!names[i]) continue;
        VALUE string = rb_str_new_cstr(names[i]);
        if (RTEST(rb_funcall(settings, rb_intern("key?"), 1, string))) return true;
        if (RTEST(rb_funcall(settings, rb_intern("key?"), 1, rb_str_intern(string)))) return true;
    }
    return false;
}

NORETURN(static void conflict(const char *text));

static void conflict(const char *text)
{
    penstock_raise(penstock_config_error, &penstock_no_context, "config.kafka: %s", text);
}

/* A number, and whether it is the default: the program may not know that it has set half of a contradiction. */
static VALUE shown_number(rd_kafka_conf_t *conf, VALUE settings, const char *name)
{
    VALUE value = conf_get(conf, name);
    return was_given(settings, name, NULL) ? value : rb_sprintf("%" PRIsVALUE ", the default", value);
}

/* `greater` must exceed `lesser` by this margin. */
static void check_at_least(rd_kafka_conf_t *conf, VALUE settings, const char *greater, const char *lesser, int64_t margin)
{
    int64_t number = conf_integer(conf, greater), least = conf_integer(conf, lesser) + margin;
    if (number >= least) return;
    VALUE more = margin ? rb_sprintf(" + %lld", (long long)margin) : rb_str_new_cstr("");
    penstock_raise(penstock_config_error, &penstock_no_context,
                   "config.kafka: %s (%" PRIsVALUE ") must be at least %s (%" PRIsVALUE ")%" PRIsVALUE, greater,
                   shown_number(conf, settings, greater), lesser, shown_number(conf, settings, lesser), more);
}

static void check_backoff(rd_kafka_conf_t *conf, VALUE settings)
{
    check_at_least(conf, settings, "reconnect.backoff.max.ms", "reconnect.backoff.ms", 0);
}

/* librdkafka takes transaction.timeout.ms for the default of a transactional producer's message.timeout.ms. */
static void check_linger(rd_kafka_conf_t *conf, VALUE settings, const struct penstock_conf_facts *facts)
{
    bool given = was_given(settings, "message.timeout.ms", "delivery.timeout.ms");
    const char *name = facts->transactional && !given ? "transaction.timeout.ms" : "message.timeout.ms";
    int64_t timeout_ms = conf_integer(conf, name);
    if (!was_given(settings, "linger.ms", "queue.buffering.max.ms") || timeout_ms == 0 || facts->linger_us < timeout_ms * 1000) return;
    penstock_raise(penstock_config_error, &penstock_no_context,
                   "config.kafka: linger.ms (%" PRIsVALUE ") must be less than %s (%" PRIsVALUE "%s)", conf_get(conf, "linger.ms"),
                   name, conf_get(conf, name), given ? "" : ", the default");
}

/*
 * librdkafka checks these only when it creates the client, at the first use. This finds them at once: all that 2.0.2 and 2.14
 * reject because a client is transactional or idempotent.
 */
static void check_conflicts(rd_kafka_conf_t *conf, VALUE settings, const struct penstock_conf_facts *facts)
{
    check_backoff(conf, settings);
    if (was_given(settings, "transactional.id", NULL) && !facts->transactional) conflict("transactional.id is empty");
    check_linger(conf, settings, facts);
    if (facts->transactional) {
        if (was_given(settings, "enable.idempotence", NULL) && conf_is(conf, "enable.idempotence", "false"))
            conflict("transactional.id needs enable.idempotence, which is set to false");
        if (was_given(settings, "socket.timeout.ms", NULL) &&
            conf_integer(conf, "socket.timeout.ms") > facts->transaction_timeout_ms + 100)
            conflict("socket.timeout.ms must not be above transaction.timeout.ms");
        if (was_given(settings, "message.timeout.ms", "delivery.timeout.ms") &&
            conf_integer(conf, "message.timeout.ms") > facts->transaction_timeout_ms)
            conflict("message.timeout.ms must not be above transaction.timeout.ms");
    }
    if (facts->idempotent) {
        if (was_given(settings, "acks", "request.required.acks") && !conf_is(conf, "acks", "-1"))
            conflict("acks must be all (-1) for an idempotent or transactional producer");
        if (was_given(settings, "max.in.flight", "max.in.flight.requests.per.connection") &&
            conf_integer(conf, "max.in.flight") > 5)
            conflict("max.in.flight must be at most 5 for an idempotent or transactional producer");
        if (was_given(settings, "retries", "message.send.max.retries") && conf_integer(conf, "retries") < 1)
            conflict("retries must be at least 1 for an idempotent or transactional producer");
        if (was_given(settings, "queuing.strategy", NULL) && !conf_is(conf, "queuing.strategy", "fifo"))
            conflict("queuing.strategy must be fifo for an idempotent or transactional producer");
        if (was_given(settings, "queue.buffering.backpressure.threshold", NULL) &&
            conf_integer(conf, "queue.buffering.backpressure.threshold") > 1)
            conflict("queue.buffering.backpressure.threshold must be 1 for an idempotent or transactional producer");
    } else if (conf_is(conf, "enable.gapless.guarantee", "true")) {
        conflict("enable.gapless.guarantee needs enable.idempotence");
    }
}

/* KIP-848: brokers decide what these settings are for. */
static void check_group_settings(rd_kafka_conf_t *conf, VALUE settings)
{
    static const char *const classic[] = { "session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy",
                                           "group.protocol.type" };
    if (!was_given(settings, "group.protocol", NULL) || !conf_is(conf, "group.protocol", "consumer")) {
        check_at_least(conf, settings, "max.poll.interval.ms", "session.timeout.ms", 0);
        check_at_least(conf, settings, "session.timeout.ms", "heartbeat.interval.ms", 1); /* the group would remove the member */
        return;
    }
    for (size_t i = 0; i < sizeof(classic) / sizeof(*classic); i++)
        if (was_given(settings, classic[i], NULL))
            penstock_raise(penstock_config_error, &penstock_no_context,
                           "config.kafka: %s must not be set with group.protocol \"consumer\": brokers decide it", classic[i]);
}

enum { FRAME_BYTES = 512 }; /* librdkafka reserves them around what is fetched */

/* The same for consumers. config.kafka has a fetch.max.bytes, unless the program has set queued.max.messages.kbytes. */
static void check_consumer_conflicts(rd_kafka_conf_t *conf, VALUE settings)
{
    check_backoff(conf, settings);
    if (was_given(settings, "fetch.max.bytes", NULL)) check_at_least(conf, settings, "fetch.max.bytes", "message.max.bytes", 0);
    if (was_given(settings, "receive.message.max.bytes", NULL))
        check_at_least(conf, settings, "receive.message.max.bytes", "fetch.max.bytes", FRAME_BYTES);
    check_group_settings(conf, settings);
}

/* ---- filling ---- */

/* A consumer's events are taken only while the program polls it. So its log lines must not come as events (consumer.c). */
static void set_events(rd_kafka_conf_t *conf, bool consumer, bool logs_to_mailbox, int more)
{
    int events = RD_KAFKA_EVENT_STATS | (consumer ? RD_KAFKA_EVENT_REBALANCE | RD_KAFKA_EVENT_OFFSET_COMMIT : RD_KAFKA_EVENT_DR);
    int log = logs_to_mailbox && !consumer ? RD_KAFKA_EVENT_LOG : 0;
    rd_kafka_conf_set_events(conf, events | more | RD_KAFKA_EVENT_ERROR | log);
}

void penstock_conf_ask_for_tokens(rd_kafka_conf_t *conf, bool consumer, bool logs_to_mailbox)
{
    set_events(conf, consumer, logs_to_mailbox, RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH);
}

/* The part that producers and consumers share. */
static void conf_fill(rd_kafka_conf_t *conf, VALUE settings, bool logs_to_mailbox, bool consumer, VALUE *brokers)
{
    struct filling filling = { .conf = conf, .settings = settings };
    rb_hash_foreach(settings, fill_one, (VALUE)&filling);

    *brokers = conf_get(conf, "bootstrap.servers");
    if (RSTRING_LEN(*brokers) == 0)
        penstock_raise(penstock_config_error, &penstock_no_context,
                       "config.kafka requires \"bootstrap.servers\", such as \"localhost:9092\"");
    conf_set(conf, "log.queue", logs_to_mailbox && !consumer ? "true" : "false");
    set_events(conf, consumer, logs_to_mailbox, 0);
}

void penstock_conf_fill(rd_kafka_conf_t *conf, VALUE settings, bool logs_to_mailbox, struct penstock_conf_facts *facts)
{
    conf_fill(conf, settings, logs_to_mailbox, false, &facts->brokers);
    facts->message_max_bytes = (size_t)conf_integer(conf, "message.max.bytes");
    facts->queue_max_bytes = (size_t)conf_integer(conf, "queue.buffering.max.kbytes") * 1024;
    facts->transaction_timeout_ms = conf_integer(conf, "transaction.timeout.ms");
    facts->transactional = RSTRING_LEN(conf_get(conf, "transactional.id")) > 0;
    facts->idempotent = facts->transactional || conf_is(conf, "enable.idempotence", "true"); /* transactions need it */
    facts->linger_us = (int64_t)(rb_str_to_dbl(conf_get(conf, "linger.ms"), 0) * 1000);
    check_conflicts(conf, settings, facts);
    facts->sticky_ms = conf_integer(conf, "sticky.partitioning.linger.ms");
    conf_set(conf, "sticky.partitioning.linger.ms", "0"); /* partitioner.c does this, as librdkafka would ignore partition_key */

    if (RTEST(rb_str_equal(conf_get(conf, "delivery.report.only.error"), rb_str_new_cstr("true"))))
        penstock_raise(penstock_config_error, &penstock_no_context,
                       "config.kafka: delivery.report.only.error would leave delivered messages without a delivery result");
}

void penstock_consumer_conf_fill(rd_kafka_conf_t *conf, VALUE settings, bool logs_to_mailbox,
                                 struct penstock_consumer_conf_facts *facts)
{
    conf_fill(conf, settings, logs_to_mailbox, true, &facts->brokers);
    check_consumer_conflicts(conf, settings);
    facts->max_poll_interval_ms = conf_integer(conf, "max.poll.interval.ms");
    facts->queue_messages = conf_integer(conf, "queued.min.messages");
    facts->queue_kilobytes = conf_integer(conf, "queued.max.messages.kbytes");
    facts->ends = conf_is(conf, "enable.partition.eof", "true");
    facts->commits_last = conf_is(conf, "enable.auto.commit", "true");
    facts->commit_every_ms = facts->commits_last ? conf_integer(conf, "auto.commit.interval.ms") : 0;
    conf_set(conf, "auto.commit.interval.ms", "0"); /* commits.c does this: librdkafka's commits overtake each other */
}

void penstock_admin_conf_fill(rd_kafka_conf_t *conf, VALUE settings, bool logs_to_mailbox, VALUE *brokers)
{
    conf_fill(conf, settings, logs_to_mailbox, false, brokers);
    check_backoff(conf, settings);
}

/* The table of all settings that librdkafka prints, line by line: "name | C/P | range | ... | description" */
VALUE penstock_setting_lines(VALUE self)
{
    char *text = NULL, *rest = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) rb_sys_fail("open_memstream");
    rd_kafka_conf_properties_show(stream);
    fclose(stream);

    VALUE lines = rb_ary_new();
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (strchr(line, '|') && strncmp(line, "Property", 8) != 0 && *line != '-') rb_ary_push(lines, penstock_text(line));
    free(text);
    return lines;
}

/*
 * Settings.read(name, value): the value that librdkafka reads, in its own spelling: "true" for "T" and 1, "ssl" for " SSL".
 * nil: librdkafka rejects the value, or the value is hidden.
 */
VALUE penstock_setting_read(VALUE self, VALUE name, VALUE value)
{
    char errstr[512];
    VALUE read = Qnil, string = setting_name(name), given = setting_value(string, value);
    const char *text = rb_string_value_cstr(&string), *bytes = value_text(string, &given);
    if (is_hidden(text, given)) return Qnil;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, text, bytes, errstr, sizeof(errstr)) == RD_KAFKA_CONF_OK) read = conf_get(conf, text);
    rd_kafka_conf_destroy(conf);
    RB_GC_GUARD(given);
    RB_GC_GUARD(string);
    return read;
}

/* What librdkafka was built with, such as "ssl" and "zstd". */
VALUE penstock_features(VALUE self)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    VALUE features = conf_get(conf, "builtin.features");
    rd_kafka_conf_destroy(conf);
    return rb_str_split(features, ",");
}
