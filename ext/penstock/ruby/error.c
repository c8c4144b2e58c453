/*
 * The only C file that builds and raises Penstock's errors. lib/penstock/errors/ has the classes, the form of messages and the
 * advice. This file turns a librdkafka code and its context into the arguments of ErrorFactory.build_native.
 */
#include "ruby/penstock.h"
#include <ruby/encoding.h>
#include <stdarg.h>
#include <stdio.h>

VALUE penstock_usage_error, penstock_cluster_error, penstock_config_error, penstock_message_error, penstock_closed_error,
    penstock_forked_error, penstock_queue_full_error, penstock_produce_error, penstock_delivery_error,
    penstock_message_timed_out_error, penstock_timeout_error, penstock_transaction_error, penstock_committed_error,
    penstock_fatal_error;
static VALUE tls_error, authentication_error, security_protocol_error, unreachable_error, fenced_error, overran_error;
VALUE penstock_admin_error, penstock_admin_timeout_error, penstock_admin_unreachable_error, penstock_admin_closed_error;
VALUE penstock_unsupported_error;
VALUE penstock_consumer_closed_error, penstock_consume_error, penstock_commit_error, penstock_consume_timeout_error;
VALUE penstock_not_shareable_error;
VALUE penstock_listener_deadlock_error;

const struct penstock_error_context penstock_no_context = {
    .producer_id = Qnil, .topic = Qnil, .partition = -1, .group = Qnil,
};

static VALUE error_factory;
static ID id_build_native;

static VALUE text_or_nil(const char *text)
{
    return text && *text ? penstock_text(text) : Qnil;
}

/* nil, or why the producer was fenced, if not by another producer: librdkafka's texts do not distinguish these cases. */
static VALUE overran_text(const struct ps_client *client, const struct penstock_error_context *context)
{
    const struct ps_producer *producer = (const struct ps_producer *)client;
    bool fenced = client && client->kind == &ps_producer_kind && context->fatal && context->err == RD_KAFKA_RESP_ERR__FENCED;
    if (!fenced || !ps_transaction_overran(producer)) return Qnil;
    return rb_sprintf("the transaction lasted longer than transaction.timeout.ms (%lld)",
                      (long long)producer->settings.transaction_timeout_ms);
}

/* After a producer was fenced, each call on it raises ProducerFencedError, whatever class the caller has chosen. */
VALUE penstock_error_new(VALUE error_class, const struct penstock_error_context *context, VALUE text)
{
    char problem[256] = "";
    const struct ps_client *client = context->client;
    bool admin = client && ps_admin_is(client);
    bool consumer = client && client->kind != &ps_producer_kind && !admin;
    bool fenced = context->fatal && context->err == RD_KAFKA_RESP_ERR__FENCED && !consumer;
    VALUE why = overran_text(client, context);
    bool overran = RTEST(why);
    if (overran && error_class != penstock_delivery_error) text = why; /* delivery_error has added it to the outcome */
    if (client && !ps_client_inherited(client)) ps_client_last_error((struct ps_client *)client, problem, sizeof(problem));
    VALUE producer_id = RTEST(context->producer_id) ? context->producer_id : Qnil;
    if (client && !consumer && !admin) producer_id = text_or_nil(client->name);
    VALUE arguments[] = {
        overran ? overran_error : fenced ? fenced_error : error_class,
        text,
        rb_ary_new_from_args(4, INT2FIX(context->err), context->err ? text_or_nil(rd_kafka_err2name(context->err)) : Qnil,
                             context->err && !overran ? text_or_nil(rd_kafka_err2str(context->err)) : Qnil,
                             context->reason ? text_or_nil(rd_kafka_err2name(context->reason)) : Qnil),
        rb_ary_new_from_args(4, producer_id, consumer ? text_or_nil(client->name) : Qnil,
                             admin ? text_or_nil(client->name) : Qnil, client ? text_or_nil(client->brokers) : Qnil),
        text_or_nil(problem),
        rb_ary_new_from_args(4, context->topic, context->partition >= 0 ? INT2NUM(context->partition) : Qnil,
                             context->offset ? LL2NUM(*context->offset) : Qnil, RTEST(context->group) ? context->group : Qnil),
        rb_ary_new_from_args(3, context->fatal ? Qtrue : Qfalse, context->retriable && !fenced ? Qtrue : Qfalse,
                             context->abortable ? Qtrue : Qfalse),
    };
    return rb_funcallv(error_factory, id_build_native, sizeof(arguments) / sizeof(*arguments), arguments);
}

void penstock_raise(VALUE error_class, const struct penstock_error_context *context, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    VALUE text = rb_enc_vsprintf(rb_utf8_encoding(), format, arguments);
    va_end(arguments);
    rb_exc_raise(penstock_error_new(error_class, context, text));
}

void penstock_raise_closed(const struct ps_client *client)
{
    struct penstock_error_context context = penstock_no_context;
    context.client = client;
    if (client->kind == &ps_producer_kind) penstock_raise(penstock_closed_error, &context, "the producer is closed");
    if (ps_admin_is(client)) penstock_raise(penstock_admin_closed_error, &context, "the admin client is closed");
    penstock_raise(penstock_consumer_closed_error, &context, "the consumer is closed");
}

VALUE penstock_rejected_error_class(enum ps_rejected kind)
{
    switch (kind) {
    case PS_REJECTED_TLS: return tls_error;
    case PS_REJECTED_AUTHENTICATION: return authentication_error;
    case PS_UNREACHABLE: return unreachable_error;
    default: return security_protocol_error;
    }
}

void penstock_raise_rejected(enum ps_rejected kind, const struct penstock_error_context *context, const char *text)
{
    const char *format = kind == PS_UNREACHABLE ? "%s" : "the brokers reject this client (%s)";
    penstock_raise(penstock_rejected_error_class(kind), context, format, text);
}

void penstock_raise_if_rejected(struct ps_client *client, VALUE topic)
{
    char text[512];
    enum ps_rejected kind = ps_rejection_now(&client->rejection, text, sizeof(text));
    if (kind == PS_NOT_REJECTED) return;
    struct penstock_error_context context = {
        .err = ps_rejection_code(kind), .client = client, .topic = topic, .partition = -1, .retriable = true,
    };
    penstock_raise_rejected(kind, &context, text);
}

static const char *outcome_text(const struct ps_delivery *delivery)
{
    switch (delivery->status) {
    case RD_KAFKA_MSG_STATUS_NOT_PERSISTED: return "the message was not delivered and is not in the topic";
    case RD_KAFKA_MSG_STATUS_PERSISTED: return "the message is in the topic, but something else failed";
    default: return "the message was not acknowledged, but it may be in the topic";
    }
}

static VALUE delivery_error(const struct ps_client *client, const struct ps_delivery *delivery, VALUE topic)
{
    struct penstock_error_context context = {
        .err = delivery->err,
        .client = client,
        .topic = topic,
        .partition = delivery->partition,
        .fatal = delivery->fatal,
        .retriable = delivery->status == RD_KAFKA_MSG_STATUS_NOT_PERSISTED,
    };
    VALUE text = penstock_text(outcome_text(delivery));
    VALUE why = overran_text(client, &context);
    if (NIL_P(why) && delivery->reason) why = penstock_text(delivery->reason);
    if (RTEST(why)) text = rb_sprintf("%" PRIsVALUE " (%" PRIsVALUE ")", text, why);
    if (delivery->rejected) return penstock_error_new(penstock_rejected_error_class(delivery->rejected), &context, text);
    bool timed_out = delivery->err == RD_KAFKA_RESP_ERR__MSG_TIMED_OUT;
    return penstock_error_new(timed_out ? penstock_message_timed_out_error : penstock_delivery_error, &context, text);
}

/* The error of a failed delivery; nil for a message that was delivered. */
VALUE penstock_delivery_error_new(const struct ps_delivery *delivery, VALUE topic)
{
    return delivery->err ? delivery_error(&ps_delivery_producer(delivery)->client, delivery, topic) : Qnil;
}

static bool failed_message(struct ps_producer *producer, struct ps_failed_message *failed)
{
    pthread_mutex_lock(&producer->client.lock);
    *failed = producer->transactions.first_failed;
    pthread_mutex_unlock(&producer->client.lock);
    return failed->err;
}

VALUE penstock_failed_message_text(struct ps_producer *producer)
{
    struct ps_failed_message failed;
    char text[600] = "";
    if (producer->settings.transactional && failed_message(producer, &failed))
        snprintf(text, sizeof(text), ", because a message of the transaction to %s has failed (%s)", failed.topic,
                 rd_kafka_err2str(failed.err));
    return penstock_text(text);
}

VALUE penstock_failed_message_error(struct ps_producer *producer)
{
    struct ps_failed_message failed;
    if (!failed_message(producer, &failed)) return Qnil;
    struct ps_delivery delivery = {
        .err = failed.err, .status = failed.status, .rejected = failed.rejected, .fatal = failed.fatal,
        .partition = failed.partition, .reason = *failed.reason ? failed.reason : NULL,
    };
    return delivery_error(&producer->client, &delivery, penstock_name(failed.topic));
}

void penstock_error_init(void)
{
    static const struct {
        VALUE *error_class;
        const char *name;
    } classes[] = {
        { &penstock_cluster_error, "ClusterError" },
        { &penstock_usage_error, "UsageError" },
        { &penstock_config_error, "ConfigurationInvalidError" },
        { &penstock_message_error, "MessageInvalidError" },
        { &penstock_closed_error, "ProducerClosedError" },
        { &penstock_forked_error, "ForkedError" },
        { &penstock_queue_full_error, "QueueFullError" },
        { &penstock_produce_error, "ProduceError" },
        { &penstock_delivery_error, "DeliveryError" },
        { &penstock_message_timed_out_error, "MessageTimedOutError" },
        { &penstock_timeout_error, "WaitTimeoutError" },
        { &penstock_transaction_error, "TransactionError" },
        { &penstock_committed_error, "TransactionCommittedError" },
        { &penstock_fatal_error, "FatalError" },
        { &tls_error, "TlsError" },
        { &authentication_error, "AuthenticationError" },
        { &security_protocol_error, "SecurityProtocolError" },
        { &unreachable_error, "BrokersUnreachableError" },
        { &fenced_error, "ProducerFencedError" },
        { &overran_error, "TransactionTimedOutError" },
        { &penstock_admin_error, "AdminError" },
        { &penstock_admin_timeout_error, "AdminTimeoutError" },
        { &penstock_admin_unreachable_error, "AdminUnreachableError" },
        { &penstock_admin_closed_error, "AdminClosedError" },
        { &penstock_unsupported_error, "UnsupportedError" },
        { &penstock_consumer_closed_error, "ConsumerClosedError" },
        { &penstock_consume_error, "ConsumeError" },
        { &penstock_commit_error, "CommitError" },
        { &penstock_consume_timeout_error, "ConsumeTimeoutError" },
        { &penstock_not_shareable_error, "NotShareableError" },
        { &penstock_listener_deadlock_error, "ListenerDeadlockError" },
    };
    for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++) {
        *classes[i].error_class = rb_const_get(penstock_module, rb_intern(classes[i].name));
        rb_gc_register_mark_object(*classes[i].error_class); /* M:gc_error_classes */
    }
    error_factory = rb_const_get(penstock_module, rb_intern("ErrorFactory"));
    rb_gc_register_mark_object(error_factory); /* M:gc_error_factory */
    id_build_native = rb_intern("build_native");
    penstock_error_freeze_init(penstock_module);
}
