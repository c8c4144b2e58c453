/*
 * Penstock::Native::ProducerClient, continued: metadata of the cluster (core/produce/metadata.c). A native thread asks the
 * brokers. An interrupt ends the Ruby thread's wait at once. Any thread and fiber.
 */
#include "ruby/penstock.h"
#include <errno.h>

static VALUE await_job(VALUE job)
{
    return penstock_wait(&((struct ps_job *)job)->completion, PS_FOREVER) ? Qtrue : Qfalse; /* librdkafka observes the deadline */
}

static VALUE count_or_nil(int32_t count)
{
    return count < 0 ? Qnil : INT2NUM(count);
}

/* nil: the cluster does not know the topic. */
static VALUE client_partition_count(VALUE self, VALUE name, VALUE timeout_ms, VALUE max_age_ms)
{
    struct ps_producer *producer = penstock_producer_get(self);
    int64_t timeout = penstock_timeout_ms(timeout_ms), max_age_us = NUM2LL(max_age_ms) * 1000;
    penstock_check_open(&producer->client);
    penstock_check_topic_name(name, -1);
    name = rb_str_new_frozen(name); /* opening releases the GVL */
    penstock_producer_open_if_new(self, producer);

    int32_t known = ps_producer_known_partitions(producer, RSTRING_PTR(name), RSTRING_LEN(name), max_age_us);
    if (known) return count_or_nil(known);

    struct ps_metadata_job *query = ps_producer_metadata(producer, RSTRING_PTR(name), RSTRING_LEN(name), (int)timeout);
    if (!query) {
        int failed = errno;
        penstock_check_open(&producer->client);
        rb_syserr_fail(failed ? failed : EAGAIN, "cannot start a thread to ask for metadata");
    }
    int state = 0;
    rb_protect(await_job, (VALUE)&query->job, &state);
    struct penstock_error_context context = {
        .err = query->err, .client = &producer->client, .topic = name, .partition = -1, .retriable = true,
    };
    int32_t count = query->partition_count;
    ps_job_abandon(&query->job);
    if (state) rb_jump_tag(state);
    if (context.err) {
        penstock_raise_if_rejected(&producer->client, name);
        penstock_raise(penstock_cluster_error, &context, "the partitions of the topic could not be read");
    }
    return count_or_nil(count);
}

static VALUE brokers_to_ruby(VALUE arg)
{
    const struct ps_brokers_job *query = (const struct ps_brokers_job *)arg;
    VALUE brokers = rb_ary_new();
    for (int i = 0; i < query->metadata->broker_cnt; i++) {
        const struct rd_kafka_metadata_broker *broker = &query->metadata->brokers[i];
        rb_ary_push(brokers, rb_ary_new_from_args(3, INT2NUM(broker->id), penstock_text(broker->host), INT2NUM(broker->port)));
    }
    VALUE cluster_id = penstock_text(query->cluster_id);
    return rb_ary_new_from_args(3, cluster_id, INT2NUM(query->controller_id), brokers);
}

static VALUE client_brokers(VALUE self, VALUE timeout_ms)
{
    struct ps_producer *producer = penstock_producer_get(self);
    int64_t timeout = penstock_timeout_ms(timeout_ms);
    penstock_producer_open_if_new(self, producer);

    struct ps_brokers_job *query = ps_producer_brokers(producer, (int)timeout);
    if (!query) {
        int failed = errno;
        penstock_check_open(&producer->client);
        rb_syserr_fail(failed ? failed : EAGAIN, "cannot start a thread to ask for the brokers");
    }
    int state = 0;
    VALUE answer = Qnil;
    rb_protect(await_job, (VALUE)&query->job, &state);
    struct penstock_error_context context = {
        .err = query->err, .client = &producer->client, .topic = Qnil, .partition = -1, .retriable = true,
    };
    if (!state && !context.err) answer = rb_protect(brokers_to_ruby, (VALUE)query, &state);
    ps_job_abandon(&query->job);
    if (state) rb_jump_tag(state);
    if (context.err) {
        penstock_raise_if_rejected(&producer->client, Qnil);
        penstock_raise(penstock_cluster_error, &context, "the brokers could not be read");
    }
    return answer;
}

void penstock_metadata_methods_init(VALUE client_class)
{
    rb_define_method(client_class, "partition_count", client_partition_count, 3);
    rb_define_method(client_class, "brokers", client_brokers, 1);
}
