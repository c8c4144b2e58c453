/*
 * From a Ruby Hash to an rd_kafka_conf_t. librdkafka judges names and values; we add which names exist
 * (for "did you mean"), refuse what has no clear meaning, and never repeat a secret in an error.
 */
#include "penstock.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct filling {
    rd_kafka_conf_t *conf;
    VALUE settings;
};

static bool secret(const char *name)
{
    static const char *const words[] = { "password", "secret", ".pem", "oauthbearer.config", "token", "jaas" }; /* as in settings.rb */
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strstr(name, words[i])) return true;
    return false;
}

static VALUE config_class(void)
{
    return rb_const_get(penstock_module, rb_intern("Config"));
}

static VALUE setting_name(VALUE key, VALUE settings)
{
    VALUE name = SYMBOL_P(key) ? rb_sym2str(key) : key;
    if (!RB_TYPE_P(name, T_STRING))
        penstock_raise(penstock_config_error, &penstock_no_context,
                       "config.kafka: the names of settings are Symbols or Strings, not %" PRIsVALUE, rb_inspect(key));
    VALUE twin = SYMBOL_P(key) ? name : rb_str_intern(rb_str_dup(name));
    if (RTEST(rb_funcall(settings, rb_intern("key?"), 1, twin)))
        penstock_raise(penstock_config_error, &penstock_no_context,
                       "config.kafka: %" PRIsVALUE " is given twice, as a Symbol and as a String", name);
    return name;
}

static VALUE setting_value(VALUE name, VALUE value)
{
    switch (TYPE(value)) {
    case T_STRING: return value;
    case T_TRUE: return rb_str_new_cstr("true");
    case T_FALSE: return rb_str_new_cstr("false");
    case T_FLOAT:
        if (!isfinite(RFLOAT_VALUE(value)))
            penstock_raise(penstock_config_error, &penstock_no_context, "config.kafka: %" PRIsVALUE " cannot be %" PRIsVALUE, name, value);
        return rb_String(value);
    case T_FIXNUM:
    case T_BIGNUM: return rb_String(value);
    default:
        penstock_raise(penstock_config_error, &penstock_no_context,
                       "config.kafka: %" PRIsVALUE " takes an Integer, Float, String, true or false, not %" PRIsVALUE,
                       name, rb_obj_class(value));
    }
}

static const char *text_of(VALUE string, VALUE name)
{
    if (memchr(RSTRING_PTR(string), '\0', RSTRING_LEN(string)))
        penstock_raise(penstock_config_error, &penstock_no_context, "config.kafka: %+" PRIsVALUE " holds a zero byte", name);
    return rb_string_value_cstr(&string);
}

static VALUE get(rd_kafka_conf_t *conf, const char *name)
{
    char value[2048] = "";
    size_t size = sizeof(value);
    rd_kafka_conf_get(conf, name, value, &size);
    return rb_str_new_cstr(value);
}

/* librdkafka reads "100 seconds", 1.5 or 2**40 as another number than was meant where it wants a small whole one. */
static void check_effect(rd_kafka_conf_t *conf, VALUE name, const char *name_text, VALUE given)
{
    if (!secret(name_text)) rb_funcall(config_class(), rb_intern("check_effect"), 3, name, given, get(conf, name_text));
}

static int fill_one(VALUE key, VALUE value, VALUE arg)
{
    struct filling *filling = (struct filling *)arg;
    char errstr[512] = "";
    VALUE name = setting_name(key, filling->settings);
    VALUE string = setting_value(name, value);
    const char *name_text = text_of(name, name);

    switch (rd_kafka_conf_set(filling->conf, name_text, text_of(string, name), errstr, sizeof(errstr))) {
    case RD_KAFKA_CONF_OK: break;
    case RD_KAFKA_CONF_UNKNOWN:
        rb_funcall(config_class(), rb_intern("refuse_setting"), 1, name);
        break;
    case RD_KAFKA_CONF_INVALID:
        penstock_raise(penstock_config_error, &penstock_no_context, "config.kafka: %s: %s", name_text,
                       secret(name_text) ? "the value is not valid" : errstr);
    }
    check_effect(filling->conf, name, name_text, string);
    return ST_CONTINUE;
}

static int64_t get_integer(rd_kafka_conf_t *conf, const char *name)
{
    return NUM2LL(rb_str_to_inum(get(conf, name), 10, 0));
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    char errstr[256];
    if (rd_kafka_conf_set(conf, name, value, errstr, sizeof(errstr)) != RD_KAFKA_CONF_OK)
        penstock_raise(penstock_config_error, &penstock_no_context, "config.kafka: %s", errstr);
}

/* ---- settings that contradict each other ---- */

static bool is(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    return RTEST(rb_str_equal(get(conf, name), rb_str_new_cstr(value)));
}

/* Whether it was given, under the one name or the other: librdkafka adapts what was not. */
static bool given(VALUE settings, const char *name, const char *alias)
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

/*
 * librdkafka looks at these only when the client is made, at the first use. All that it refuses then for being
 * transactional or idempotent, as of 2.0.2 and 2.14.
 */
static void check_conflicts(rd_kafka_conf_t *conf, VALUE settings, const struct penstock_conf_facts *facts)
{
    if (given(settings, "transactional.id", NULL) && !facts->transactional) conflict("transactional.id is empty");
    if (facts->transactional) {
        if (given(settings, "enable.idempotence", NULL) && is(conf, "enable.idempotence", "false"))
            conflict("transactional.id needs enable.idempotence, which is set to false");
        if (given(settings, "socket.timeout.ms", NULL) &&
            get_integer(conf, "socket.timeout.ms") > facts->transaction_timeout_ms + 100)
            conflict("socket.timeout.ms must not be above transaction.timeout.ms");
        if (given(settings, "message.timeout.ms", "delivery.timeout.ms") &&
            get_integer(conf, "message.timeout.ms") > facts->transaction_timeout_ms)
            conflict("message.timeout.ms must not be above transaction.timeout.ms");
    }
    if (facts->idempotent) {
        if (given(settings, "acks", "request.required.acks") && !is(conf, "acks", "-1"))
            conflict("acks must be all (-1) for an idempotent or transactional producer");
        if (given(settings, "max.in.flight", "max.in.flight.requests.per.connection") && get_integer(conf, "max.in.flight") > 5)
            conflict("max.in.flight must be 5 at most for an idempotent or transactional producer");
        if (given(settings, "retries", "message.send.max.retries") && get_integer(conf, "retries") < 1)
            conflict("retries must be 1 at least for an idempotent or transactional producer");
        if (given(settings, "queuing.strategy", NULL) && !is(conf, "queuing.strategy", "fifo"))
            conflict("queuing.strategy must be fifo for an idempotent or transactional producer");
        if (given(settings, "queue.buffering.backpressure.threshold", NULL) &&
            get_integer(conf, "queue.buffering.backpressure.threshold") > 1)
            conflict("queue.buffering.backpressure.threshold must be 1 for an idempotent or transactional producer");
    } else if (is(conf, "enable.gapless.guarantee", "true")) {
        conflict("enable.gapless.guarantee needs enable.idempotence");
    }
}

/* ---- filling ---- */

/* Nobody takes a consumer's events while it is not polled, so what comes by itself must not be one: log lines (consumer.c). */
static void set_events(rd_kafka_conf_t *conf, bool consumer, bool logs_to_mailbox, int more)
{
    int events = consumer ? RD_KAFKA_EVENT_REBALANCE | RD_KAFKA_EVENT_OFFSET_COMMIT : RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_STATS;
    rd_kafka_conf_set_events(conf, events | more | RD_KAFKA_EVENT_ERROR | (logs_to_mailbox && !consumer ? RD_KAFKA_EVENT_LOG : 0));
}

void penstock_conf_ask_for_tokens(rd_kafka_conf_t *conf, bool consumer, bool logs_to_mailbox)
{
    set_events(conf, consumer, logs_to_mailbox, RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH);
}

/* What producers and consumers have in common. */
static void fill(rd_kafka_conf_t *conf, VALUE settings, bool logs_to_mailbox, bool consumer, VALUE *brokers)
{
    struct filling filling = { .conf = conf, .settings = settings };
    rb_hash_foreach(settings, fill_one, (VALUE)&filling);

    *brokers = get(conf, "bootstrap.servers");
    if (RSTRING_LEN(*brokers) == 0)
        penstock_raise(penstock_config_error, &penstock_no_context,
                       "config.kafka must say \"bootstrap.servers\", such as \"localhost:9092\"");
    set(conf, "log.queue", logs_to_mailbox && !consumer ? "true" : "false");
    set_events(conf, consumer, logs_to_mailbox, 0);
}

void penstock_conf_fill(rd_kafka_conf_t *conf, VALUE settings, bool logs_to_mailbox, struct penstock_conf_facts *facts)
{
    fill(conf, settings, logs_to_mailbox, false, &facts->brokers);
    facts->message_max_bytes = (size_t)get_integer(conf, "message.max.bytes");
    facts->queue_max_bytes = (size_t)get_integer(conf, "queue.buffering.max.kbytes") * 1024;
    facts->transaction_timeout_ms = get_integer(conf, "transaction.timeout.ms");
    facts->transactional = RSTRING_LEN(get(conf, "transactional.id")) > 0;
    facts->idempotent = facts->transactional || is(conf, "enable.idempotence", "true"); /* the one switches on the other */
    check_conflicts(conf, settings, facts);
    facts->sticky_ms = get_integer(conf, "sticky.partitioning.linger.ms");
    set(conf, "sticky.partitioning.linger.ms", "0"); /* topic.c does it, so that partition_key is heard */

    if (RTEST(rb_str_equal(get(conf, "delivery.report.only.error"), rb_str_new_cstr("true"))))
        penstock_raise(penstock_config_error, &penstock_no_context,
                       "config.kafka: delivery.report.only.error would leave delivered messages without a verdict");
}

void penstock_consumer_conf_fill(rd_kafka_conf_t *conf, VALUE settings, bool logs_to_mailbox,
                                 struct penstock_consumer_conf_facts *facts)
{
    fill(conf, settings, logs_to_mailbox, true, &facts->brokers);
    set(conf, "statistics.interval.ms", "0"); /* nobody can listen to them, and unread they pile up */
    facts->max_poll_interval_ms = get_integer(conf, "max.poll.interval.ms");
    facts->stores_offsets = is(conf, "enable.auto.offset.store", "true");
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
        if (strchr(line, '|') && strncmp(line, "Property", 8) != 0 && *line != '-') rb_ary_push(lines, rb_utf8_str_new_cstr(line));
    free(text);
    return lines;
}

/* What librdkafka was built with, such as "ssl" and "zstd". */
VALUE penstock_features(VALUE self)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    VALUE features = get(conf, "builtin.features");
    rd_kafka_conf_destroy(conf);
    return rb_str_split(features, ",");
}
