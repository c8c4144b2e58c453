/*
 * Penstock::Native::AdminClient, continued: topics. Each method takes rows, which lib/penstock/admin has checked, and the options of
 * the request. See admin_client.c.
 */
#include "ruby/penstock.h"
#include <stdlib.h>
#include <string.h>

/* [[name, error or nil], ...]. In the place of a topic that the brokers' answer lacks, librdkafka has NULL. */
VALUE penstock_admin_topic_results(const struct ps_admin *admin, const rd_kafka_topic_result_t **results, size_t count)
{
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) {
        if (!results[i]) continue;
        VALUE error = penstock_admin_error_of(admin, rd_kafka_topic_result_error(results[i]),
                                              rd_kafka_topic_result_error_string(results[i]), rd_kafka_topic_result_name(results[i]),
                                              -1);
        rb_ary_push(rows, rb_assoc_new(penstock_name(rd_kafka_topic_result_name(results[i])), error));
    }
    return rows;
}

/* For setters of librdkafka that return an error and its text. */
static void check_set(const struct ps_admin *admin, rd_kafka_resp_err_t err, const char *errstr)
{
    if (err) rb_exc_raise(penstock_admin_error_of(admin, err, errstr, NULL, -1));
}

/* Ids of brokers from a Ruby Array. The caller frees the buffer with rb_free_tmp_buffer. */
static int32_t *broker_ids(VALUE ids, VALUE *buffer, size_t *count)
{
    Check_Type(ids, T_ARRAY);
    long size = RARRAY_LEN(ids);
    int32_t *native = rb_alloc_tmp_buffer(buffer, (size + 1) * (long)sizeof(*native));
    for (long i = 0; i < size; i++) native[i] = NUM2INT(rb_ary_entry(ids, i));
    *count = (size_t)size;
    return native;
}

/* ---- create: [name, partitions or -1, replication factor or -1, [[setting, value], ...], [[broker id, ...], ...] or nil] ---- */

static void *new_topic(VALUE row, char *errstr, size_t size)
{
    const char *name = penstock_admin_cstr(row, 0);
    int partitions = NUM2INT(rb_ary_entry(row, 1)), factor = NUM2INT(rb_ary_entry(row, 2));
    return rd_kafka_NewTopic_new(name, partitions, factor, errstr, size);
}

static void new_topic_fill(const struct ps_admin *admin, void *topic, VALUE row)
{
    char errstr[512] = "";
    VALUE config = rb_ary_entry(row, 3), replicas = rb_ary_entry(row, 4);
    for (long i = 0; i < RARRAY_LEN(config); i++) {
        VALUE pair = rb_ary_entry(config, i);
        check_set(admin, rd_kafka_NewTopic_set_config(topic, penstock_admin_cstr(pair, 0), penstock_admin_cstr(pair, 1)), NULL);
    }
    for (long i = 0; !NIL_P(replicas) && i < RARRAY_LEN(replicas); i++) {
        VALUE buffer = Qnil;
        size_t count;
        int32_t *ids = broker_ids(rb_ary_entry(replicas, i), &buffer, &count);
        check_set(admin, rd_kafka_NewTopic_set_replica_assignment(topic, (int32_t)i, ids, count, errstr, sizeof(errstr)), errstr);
        rb_free_tmp_buffer(&buffer);
    }
}

static void new_topic_dispose(void *topic)
{
    rd_kafka_NewTopic_destroy(topic);
}

static void create_topics_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                 rd_kafka_queue_t *queue)
{
    rd_kafka_CreateTopics(rk, (rd_kafka_NewTopic_t **)items, count, options, queue);
}

static VALUE create_topics_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count;
    const rd_kafka_topic_result_t **results = rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count);
    return penstock_admin_topic_results(admin, results, count);
}

static const struct penstock_admin_request create_topics = {
    .op = RD_KAFKA_ADMIN_OP_CREATETOPICS, .make = new_topic, .fill = new_topic_fill, .dispose = new_topic_dispose,
    .changes = true, .submit = create_topics_submit, .read = create_topics_read,
};

static VALUE client_create_topics(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &create_topics, rows, options);
}

/* ---- delete: [name] ---- */

static void *deleted_topic(VALUE row, char *errstr, size_t size)
{
    return rd_kafka_DeleteTopic_new(penstock_admin_cstr(row, 0));
}

static void deleted_topic_dispose(void *topic)
{
    rd_kafka_DeleteTopic_destroy(topic);
}

static void delete_topics_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                 rd_kafka_queue_t *queue)
{
    rd_kafka_DeleteTopics(rk, (rd_kafka_DeleteTopic_t **)items, count, options, queue);
}

static VALUE delete_topics_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count;
    const rd_kafka_topic_result_t **results = rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), &count);
    return penstock_admin_topic_results(admin, results, count);
}

static const struct penstock_admin_request delete_topics = {
    .op = RD_KAFKA_ADMIN_OP_DELETETOPICS, .make = deleted_topic, .dispose = deleted_topic_dispose,
    .changes = true, .submit = delete_topics_submit, .read = delete_topics_read,
};

static VALUE client_delete_topics(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &delete_topics, rows, options);
}

/* ---- more partitions: [name, total, [[broker id, ...], ...] of the new ones, or nil] ---- */

static void *new_partitions(VALUE row, char *errstr, size_t size)
{
    const char *name = penstock_admin_cstr(row, 0);
    return rd_kafka_NewPartitions_new(name, NUM2SIZET(rb_ary_entry(row, 1)), errstr, size);
}

static void new_partitions_fill(const struct ps_admin *admin, void *partitions, VALUE row)
{
    char errstr[512] = "";
    VALUE replicas = rb_ary_entry(row, 2);
    for (long i = 0; !NIL_P(replicas) && i < RARRAY_LEN(replicas); i++) {
        VALUE buffer = Qnil;
        size_t count;
        int32_t *ids = broker_ids(rb_ary_entry(replicas, i), &buffer, &count);
        check_set(admin, rd_kafka_NewPartitions_set_replica_assignment(partitions, (int32_t)i, ids, count, errstr, sizeof(errstr)),
                  errstr);
        rb_free_tmp_buffer(&buffer);
    }
}

static void new_partitions_dispose(void *partitions)
{
    rd_kafka_NewPartitions_destroy(partitions);
}

static void create_partitions_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                     rd_kafka_queue_t *queue)
{
    rd_kafka_CreatePartitions(rk, (rd_kafka_NewPartitions_t **)items, count, options, queue);
}

static VALUE create_partitions_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count;
    const rd_kafka_topic_result_t **results =
        rd_kafka_CreatePartitions_result_topics(rd_kafka_event_CreatePartitions_result(event), &count);
    return penstock_admin_topic_results(admin, results, count);
}

static const struct penstock_admin_request create_partitions = {
    .op = RD_KAFKA_ADMIN_OP_CREATEPARTITIONS, .make = new_partitions, .fill = new_partitions_fill,
    .dispose = new_partitions_dispose, .changes = true, .submit = create_partitions_submit, .read = create_partitions_read,
};

static VALUE client_create_partitions(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &create_partitions, rows, options);
}

/* ---- describe: [[name, error, id, internal, authorized operations, [Penstock::Admin::Partition, ...]], ...]; nil for what is
 * unknown. There may be 10,000 partitions, and `new` in Ruby would take most of the time that needs the GVL. ---- */

/* lib/penstock/admin/values.rb defines it after this library is loaded. */
static VALUE partition_class(void)
{
    return rb_const_get(rb_const_get(penstock_module, rb_intern("Admin")), rb_intern("Partition"));
}

/* In the order of Partition's members. */
static VALUE partition_new(VALUE class, VALUE topic, int32_t id, int32_t leader, VALUE replicas, VALUE in_sync)
{
    VALUE partition = rb_obj_alloc(class);
    const VALUE members[] = {topic, INT2NUM(id), leader < 0 ? Qnil : INT2NUM(leader), replicas, in_sync};
    for (int i = 0; i < 5; i++) RSTRUCT_SET(partition, i, members[i]);
    return rb_obj_freeze(partition);
}

static bool are_ids(VALUE array, const int32_t *ids, long count)
{
    if (NIL_P(array) || RARRAY_LEN(array) != count) return false;
    for (long i = 0; i < count; i++)
        if (RARRAY_AREF(array, i) != INT2NUM(ids[i])) return false; /* an Integer of 32 bits is the same object */
    return true;
}

/* Most partitions have the same brokers as the one before, and all of them in sync. So they share their Arrays. */
static VALUE ids_to_ruby(const int32_t *ids, long count, VALUE known)
{
    if (are_ids(known, ids, count)) return known;
    VALUE array = rb_ary_new_capa(count);
    for (long i = 0; i < count; i++) rb_ary_push(array, INT2NUM(ids[i]));
    return rb_ary_freeze(array);
}

static VALUE partitions_of_metadata(VALUE name, const struct rd_kafka_metadata_topic *topic)
{
    VALUE rows = rb_ary_new_capa(topic->partition_cnt), class = partition_class(), replicas = Qnil, in_sync = Qnil;
    for (int i = 0; i < topic->partition_cnt; i++) {
        const struct rd_kafka_metadata_partition *partition = &topic->partitions[i];
        replicas = ids_to_ruby(partition->replicas, partition->replica_cnt, replicas);
        bool all = are_ids(replicas, partition->isrs, partition->isr_cnt);
        in_sync = all ? replicas : ids_to_ruby(partition->isrs, partition->isr_cnt, in_sync);
        rb_ary_push(rows, partition_new(class, name, partition->id, partition->leader, replicas, in_sync));
    }
    return rows;
}

static VALUE topics_of_metadata(const struct ps_admin_job *job, VALUE arg)
{
    VALUE rows = rb_ary_new_capa(job->metadata->topic_cnt);
    for (int i = 0; i < job->metadata->topic_cnt; i++) {
        const struct rd_kafka_metadata_topic *topic = &job->metadata->topics[i];
        VALUE error = penstock_admin_error_of(job->admin, topic->err, NULL, topic->topic, -1);
        VALUE name = penstock_name(topic->topic);
        rb_ary_push(rows, rb_ary_new_from_args(6, name, error, Qnil, Qnil, Qnil, partitions_of_metadata(name, topic)));
        rb_thread_check_ints(); /* lets other threads run, if there are many topics */
    }
    return rows;
}

/* All topics. */
static VALUE client_all_topics(VALUE self, VALUE options)
{
    return penstock_admin_question(self, PS_ADMIN_TOPICS, NULL, options, topics_of_metadata, Qnil);
}

#ifdef HAVE_RD_KAFKA_DESCRIBETOPICS
static void *topic_name(VALUE row, char *errstr, size_t size)
{
    return strdup(penstock_admin_cstr(row, 0));
}

static void describe_topics_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                   rd_kafka_queue_t *queue)
{
    rd_kafka_TopicCollection_t *topics = rd_kafka_TopicCollection_of_topic_names((const char **)items, count);
    rd_kafka_DescribeTopics(rk, topics, options, queue);
    rd_kafka_TopicCollection_destroy(topics);
}

static VALUE nodes_to_ids(const rd_kafka_Node_t **nodes, size_t count, VALUE known, VALUE also_known)
{
    VALUE buffer = Qnil;
    int32_t *ids = rb_alloc_tmp_buffer(&buffer, (long)(count + 1) * (long)sizeof(*ids));
    long found = 0;
    for (size_t i = 0; i < count; i++)
        if (nodes[i]) ids[found++] = rd_kafka_Node_id(nodes[i]);
    VALUE array = are_ids(known, ids, found) ? known : ids_to_ruby(ids, found, also_known);
    rb_free_tmp_buffer(&buffer);
    return array;
}

static VALUE partitions_of_description(VALUE name, const rd_kafka_TopicDescription_t *topic)
{
    size_t count, replica_count, isr_count;
    const rd_kafka_TopicPartitionInfo_t **partitions = rd_kafka_TopicDescription_partitions(topic, &count);
    VALUE rows = rb_ary_new_capa((long)count), class = partition_class(), replicas = Qnil, in_sync = Qnil;
    for (size_t i = 0; i < count; i++) {
        const rd_kafka_Node_t *leader = rd_kafka_TopicPartitionInfo_leader(partitions[i]);
        const rd_kafka_Node_t **all = rd_kafka_TopicPartitionInfo_replicas(partitions[i], &replica_count);
        const rd_kafka_Node_t **isr = rd_kafka_TopicPartitionInfo_isr(partitions[i], &isr_count);
        replicas = nodes_to_ids(all, replica_count, replicas, Qnil);
        in_sync = nodes_to_ids(isr, isr_count, replicas, in_sync);
        rb_ary_push(rows, partition_new(class, name, rd_kafka_TopicPartitionInfo_partition(partitions[i]),
                                        leader ? rd_kafka_Node_id(leader) : -1, replicas, in_sync));
    }
    return rows;
}

static VALUE describe_topics_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count, operation_count;
    const rd_kafka_TopicDescription_t **topics =
        rd_kafka_DescribeTopics_result_topics(rd_kafka_event_DescribeTopics_result(event), &count);
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) {
        if (!topics[i]) continue; /* the answer lacks it */
        const rd_kafka_Uuid_t *id = rd_kafka_TopicDescription_topic_id(topics[i]);
        const rd_kafka_AclOperation_t *operations = rd_kafka_TopicDescription_authorized_operations(topics[i], &operation_count);
        const rd_kafka_error_t *failure = rd_kafka_TopicDescription_error(topics[i]);
        const char *text = rd_kafka_TopicDescription_name(topics[i]);
        VALUE name = penstock_name(text);
        VALUE error = failure ? penstock_admin_error_of(admin, rd_kafka_error_code(failure), rd_kafka_error_string(failure), text, -1)
                              : Qnil;
        VALUE internal = rd_kafka_TopicDescription_is_internal(topics[i]) ? Qtrue : Qfalse;
        rb_ary_push(rows, rb_ary_new_from_args(6, name, error, id && NIL_P(error) ? penstock_text(rd_kafka_Uuid_base64str(id)) : Qnil,
                                               NIL_P(error) ? internal : Qnil,
                                               penstock_admin_operations(operations, operation_count),
                                               partitions_of_description(name, topics[i])));
        rb_thread_check_ints(); /* lets other threads run, if there are many topics */
    }
    return rows;
}

static const struct penstock_admin_request describe_topics = {
    .op = RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, .make = topic_name, .dispose = free,
    .submit = describe_topics_submit, .read = describe_topics_read,
};

static VALUE client_describe_topics(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &describe_topics, rows, options);
}
#endif

void penstock_admin_topics_init(VALUE client_class)
{
    rb_define_method(client_class, "create_topics", client_create_topics, 2);
    rb_define_method(client_class, "delete_topics", client_delete_topics, 2);
    rb_define_method(client_class, "create_partitions", client_create_partitions, 2);
    rb_define_method(client_class, "all_topics", client_all_topics, 1);
#ifdef HAVE_RD_KAFKA_DESCRIBETOPICS
    rb_define_method(client_class, "describe_topics", client_describe_topics, 2);
#endif
}
