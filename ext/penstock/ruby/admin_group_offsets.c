/*
 * Penstock::Native::AdminClient, continued: the offsets that groups have committed. See admin_client.c. librdkafka takes one group
 * in a request.
 *
 * list_group_offsets must not be called on a client without a group of its own: librdkafka would dereference a null pointer if the
 * broker answers that it is not the group's coordinator (its issue 5040, open in 2.14.2). See lib/penstock/admin/readers.rb.
 */
#include "ruby/penstock.h"

/* Rows: [group, places or nil for all partitions]. */
static rd_kafka_topic_partition_list_t *places_of_row(VALUE row)
{
    VALUE places = rb_ary_entry(row, 1);
    return NIL_P(places) ? NULL : penstock_list_from(places);
}

/* [[topic, partition, offset or nil, leader epoch or nil, metadata or nil, error or nil], ...] of a group's answer; or its error */
static VALUE group_answer(const struct ps_admin *admin, const rd_kafka_group_result_t **groups, size_t count)
{
    if (count == 0) return rb_ary_new();
    VALUE group = penstock_header_name(rd_kafka_group_result_name(groups[0]));
    const rd_kafka_error_t *error = rd_kafka_group_result_error(groups[0]);
    if (error) return penstock_admin_group_error(admin, error, group);
    return penstock_admin_places(admin, rd_kafka_group_result_partitions(groups[0]), group);
}

/* ---- list ---- */

static void *listed_offsets(VALUE row, char *errstr, size_t size)
{
    const char *group = penstock_admin_cstr(row, 0);
    rd_kafka_topic_partition_list_t *list = places_of_row(row);
    rd_kafka_ListConsumerGroupOffsets_t *item = rd_kafka_ListConsumerGroupOffsets_new(group, list);
    if (list) rd_kafka_topic_partition_list_destroy(list);
    return item;
}

static void listed_offsets_dispose(void *item)
{
    rd_kafka_ListConsumerGroupOffsets_destroy(item);
}

static void list_offsets_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                rd_kafka_queue_t *queue)
{
    rd_kafka_ListConsumerGroupOffsets(rk, (rd_kafka_ListConsumerGroupOffsets_t **)items, count, options, queue);
}

static VALUE list_offsets_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count;
    const rd_kafka_group_result_t **groups =
        rd_kafka_ListConsumerGroupOffsets_result_groups(rd_kafka_event_ListConsumerGroupOffsets_result(event), &count);
    return group_answer(admin, groups, count);
}

static const struct penstock_admin_request list_group_offsets = {
    .op = RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS, .each = true, .make = listed_offsets, .dispose = listed_offsets_dispose,
    .submit = list_offsets_submit, .read = list_offsets_read,
};

static VALUE client_list_group_offsets(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &list_group_offsets, rows, options);
}

/* ---- alter ---- */

/* librdkafka's result has the partitions of the request. It writes each error of the answer into them, also "no error". A partition
 * that the answer lacks stays as it was in the request: without an error, it would look like one whose offset was set. */
static void *altered_offsets(VALUE row, char *errstr, size_t size)
{
    const char *group = penstock_admin_cstr(row, 0);
    rd_kafka_topic_partition_list_t *list = penstock_list_from(rb_ary_entry(row, 1));
    for (int i = 0; i < list->cnt; i++) list->elems[i].err = PENSTOCK_ADMIN_UNANSWERED;
    rd_kafka_AlterConsumerGroupOffsets_t *item = rd_kafka_AlterConsumerGroupOffsets_new(group, list);
    rd_kafka_topic_partition_list_destroy(list);
    return item;
}

static void altered_offsets_dispose(void *item)
{
    rd_kafka_AlterConsumerGroupOffsets_destroy(item);
}

static void alter_offsets_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                 rd_kafka_queue_t *queue)
{
    rd_kafka_AlterConsumerGroupOffsets(rk, (rd_kafka_AlterConsumerGroupOffsets_t **)items, count, options, queue);
}

static VALUE alter_offsets_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count;
    const rd_kafka_group_result_t **groups =
        rd_kafka_AlterConsumerGroupOffsets_result_groups(rd_kafka_event_AlterConsumerGroupOffsets_result(event), &count);
    return group_answer(admin, groups, count);
}

static const struct penstock_admin_request alter_group_offsets = {
    .op = RD_KAFKA_ADMIN_OP_ALTERCONSUMERGROUPOFFSETS, .each = true, .make = altered_offsets, .dispose = altered_offsets_dispose,
    .changes = true, .submit = alter_offsets_submit, .read = alter_offsets_read,
};

static VALUE client_alter_group_offsets(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &alter_group_offsets, rows, options);
}

/* ---- delete ---- */

static void *deleted_offsets(VALUE row, char *errstr, size_t size)
{
    const char *group = penstock_admin_cstr(row, 0);
    rd_kafka_topic_partition_list_t *list = penstock_list_from(rb_ary_entry(row, 1));
    rd_kafka_DeleteConsumerGroupOffsets_t *item = rd_kafka_DeleteConsumerGroupOffsets_new(group, list);
    rd_kafka_topic_partition_list_destroy(list);
    return item;
}

static void deleted_offsets_dispose(void *item)
{
    rd_kafka_DeleteConsumerGroupOffsets_destroy(item);
}

static void delete_offsets_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                  rd_kafka_queue_t *queue)
{
    rd_kafka_DeleteConsumerGroupOffsets(rk, (rd_kafka_DeleteConsumerGroupOffsets_t **)items, count, options, queue);
}

static VALUE delete_offsets_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count;
    const rd_kafka_group_result_t **groups =
        rd_kafka_DeleteConsumerGroupOffsets_result_groups(rd_kafka_event_DeleteConsumerGroupOffsets_result(event), &count);
    return group_answer(admin, groups, count);
}

static const struct penstock_admin_request delete_group_offsets = {
    .op = RD_KAFKA_ADMIN_OP_DELETECONSUMERGROUPOFFSETS, .each = true, .make = deleted_offsets, .dispose = deleted_offsets_dispose,
    .changes = true, .submit = delete_offsets_submit, .read = delete_offsets_read,
};

static VALUE client_delete_group_offsets(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &delete_group_offsets, rows, options);
}

void penstock_admin_group_offsets_init(VALUE client_class)
{
    rb_define_method(client_class, "list_group_offsets", client_list_group_offsets, 2);
    rb_define_method(client_class, "alter_group_offsets", client_alter_group_offsets, 2);
    rb_define_method(client_class, "delete_group_offsets", client_delete_group_offsets, 2);
}
