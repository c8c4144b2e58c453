/*
 * Penstock::Native::AdminClient, continued: groups. See admin_client.c. What librdkafka does not know is nil.
 */
#include "ruby/penstock.h"
#include <stdlib.h>
#include <string.h>

static VALUE text_or_nil(const char *text)
{
    return text && *text ? penstock_text(text) : Qnil;
}

/* Kafka takes any text as the id of a group. Programs compare ids and send them back, so control characters are not escaped. */
static VALUE group_name(const char *id)
{
    return penstock_header_name(id);
}

/* ---- list: [[[id, state, type, simple], ...], [error, ...]] ---- */

static VALUE listing_to_ruby(const rd_kafka_ConsumerGroupListing_t *group)
{
#ifdef HAVE_RD_KAFKA_CONSUMERGROUPLISTING_TYPE
    VALUE type = INT2NUM(rd_kafka_ConsumerGroupListing_type(group));
#else
    VALUE type = Qnil;
#endif
    return rb_ary_new_from_args(4, group_name(rd_kafka_ConsumerGroupListing_group_id(group)),
                                INT2NUM(rd_kafka_ConsumerGroupListing_state(group)), type,
                                rd_kafka_ConsumerGroupListing_is_simple_consumer_group(group) ? Qtrue : Qfalse);
}

static void list_groups_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                               rd_kafka_queue_t *queue)
{
    rd_kafka_ListConsumerGroups(rk, options, queue);
}

/* librdkafka asks every broker. A broker that did not answer is an error beside the groups of the others. */
static VALUE list_groups_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count, error_count;
    const rd_kafka_ListConsumerGroups_result_t *result = rd_kafka_event_ListConsumerGroups_result(event);
    const rd_kafka_ConsumerGroupListing_t **groups = rd_kafka_ListConsumerGroups_result_valid(result, &count);
    const rd_kafka_error_t **failed = rd_kafka_ListConsumerGroups_result_errors(result, &error_count);
    VALUE rows = rb_ary_new_capa((long)count), errors = rb_ary_new_capa((long)error_count);
    for (size_t i = 0; i < count; i++) {
        rb_ary_push(rows, listing_to_ruby(groups[i]));
        if (i % 256 == 255) rb_thread_check_ints(); /* lets other threads run, if there are many groups */
    }
    for (size_t i = 0; i < error_count; i++) rb_ary_push(errors, penstock_admin_item_error(admin, failed[i]));
    return rb_assoc_new(rows, errors);
}

static const struct penstock_admin_request list_groups = {
    .op = RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPS, .submit = list_groups_submit, .read = list_groups_read,
};

static VALUE client_list_groups(VALUE self, VALUE options)
{
    return penstock_admin_ask(self, &list_groups, rb_ary_new(), options);
}

/* ---- describe, delete: a request for each group. librdkafka sends as many for one of several groups, and reports none of the
 * answers if one does not come in time ---- */

/* Describe: [[id, error, state, type, simple, assignor, authorized operations, coordinator, members]]; a member:
 * [id, client id, host, instance id, assigned places, target places]. */

static void *group_id(VALUE row, char *errstr, size_t size)
{
    return strdup(penstock_admin_cstr(row, 0));
}

static void describe_groups_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                   rd_kafka_queue_t *queue)
{
    rd_kafka_DescribeConsumerGroups(rk, (const char **)items, count, options, queue);
}

static VALUE assignment_to_ruby(const rd_kafka_MemberAssignment_t *assignment)
{
    const rd_kafka_topic_partition_list_t *list = assignment ? rd_kafka_MemberAssignment_partitions(assignment) : NULL;
    return list ? penstock_places_from(list) : Qnil;
}

static VALUE member_to_ruby(const rd_kafka_MemberDescription_t *member)
{
#ifdef HAVE_RD_KAFKA_CONSUMERGROUPDESCRIPTION_TYPE
    VALUE target = assignment_to_ruby(rd_kafka_MemberDescription_target_assignment(member));
#else
    VALUE target = Qnil;
#endif
    return rb_ary_new_from_args(6, text_or_nil(rd_kafka_MemberDescription_consumer_id(member)),
                                text_or_nil(rd_kafka_MemberDescription_client_id(member)),
                                text_or_nil(rd_kafka_MemberDescription_host(member)),
                                text_or_nil(rd_kafka_MemberDescription_group_instance_id(member)),
                                assignment_to_ruby(rd_kafka_MemberDescription_assignment(member)), target);
}

static VALUE members_to_ruby(const rd_kafka_ConsumerGroupDescription_t *group)
{
    size_t count = rd_kafka_ConsumerGroupDescription_member_count(group);
    VALUE members = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) {
        rb_ary_push(members, member_to_ruby(rd_kafka_ConsumerGroupDescription_member(group, i)));
        rb_thread_check_ints(); /* lets other threads run, if members have many partitions */
    }
    return members;
}

static VALUE group_operations(const rd_kafka_ConsumerGroupDescription_t *group)
{
#ifdef HAVE_RD_KAFKA_ADMINOPTIONS_SET_INCLUDE_AUTHORIZED_OPERATIONS
    size_t count;
    const rd_kafka_AclOperation_t *operations = rd_kafka_ConsumerGroupDescription_authorized_operations(group, &count);
    return penstock_admin_operations(operations, count);
#else
    return Qnil;
#endif
}

static VALUE group_to_ruby(const struct ps_admin *admin, const rd_kafka_ConsumerGroupDescription_t *group)
{
    VALUE id = group_name(rd_kafka_ConsumerGroupDescription_group_id(group));
    const rd_kafka_error_t *error = rd_kafka_ConsumerGroupDescription_error(group);
    if (error && rd_kafka_error_code(error)) return rb_assoc_new(id, penstock_admin_group_error(admin, error, id));
#ifdef HAVE_RD_KAFKA_CONSUMERGROUPDESCRIPTION_TYPE
    VALUE type = INT2NUM(rd_kafka_ConsumerGroupDescription_type(group));
#else
    VALUE type = Qnil;
#endif
    return rb_ary_new_from_args(9, id, Qnil, INT2NUM(rd_kafka_ConsumerGroupDescription_state(group)), type,
                                rd_kafka_ConsumerGroupDescription_is_simple_consumer_group(group) ? Qtrue : Qfalse,
                                text_or_nil(rd_kafka_ConsumerGroupDescription_partition_assignor(group)), group_operations(group),
                                penstock_admin_node(rd_kafka_ConsumerGroupDescription_coordinator(group)), members_to_ruby(group));
}

static VALUE describe_groups_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count;
    const rd_kafka_ConsumerGroupDescription_t **groups =
        rd_kafka_DescribeConsumerGroups_result_groups(rd_kafka_event_DescribeConsumerGroups_result(event), &count);
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) rb_ary_push(rows, group_to_ruby(admin, groups[i]));
    return rows;
}

static const struct penstock_admin_request describe_groups = {
    .op = RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS, .each = true, .make = group_id, .dispose = free,
    .submit = describe_groups_submit, .read = describe_groups_read,
};

static VALUE client_describe_groups(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &describe_groups, rows, options);
}

/* Delete: [[id, error or nil]]. */

static void *deleted_group(VALUE row, char *errstr, size_t size)
{
    return rd_kafka_DeleteGroup_new(penstock_admin_cstr(row, 0));
}

static void deleted_group_dispose(void *group)
{
    rd_kafka_DeleteGroup_destroy(group);
}

static void delete_groups_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                 rd_kafka_queue_t *queue)
{
    rd_kafka_DeleteGroups(rk, (rd_kafka_DeleteGroup_t **)items, count, options, queue);
}

static VALUE delete_groups_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count;
    const rd_kafka_group_result_t **groups =
        rd_kafka_DeleteGroups_result_groups(rd_kafka_event_DeleteGroups_result(event), &count);
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) {
        VALUE id = group_name(rd_kafka_group_result_name(groups[i]));
        rb_ary_push(rows, rb_assoc_new(id, penstock_admin_group_error(admin, rd_kafka_group_result_error(groups[i]), id)));
    }
    return rows;
}

static const struct penstock_admin_request delete_groups = {
    .op = RD_KAFKA_ADMIN_OP_DELETEGROUPS, .each = true, .make = deleted_group, .dispose = deleted_group_dispose, .changes = true,
    .submit = delete_groups_submit, .read = delete_groups_read,
};

static VALUE client_delete_groups(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &delete_groups, rows, options);
}

void penstock_admin_groups_init(VALUE client_class)
{
    rb_define_method(client_class, "list_groups", client_list_groups, 1);
#ifdef HAVE_RD_KAFKA_ADMINOPTIONS_SET_MATCH_CONSUMER_GROUP_TYPES
    rb_define_method(client_class, "list_groups_of_types", client_list_groups, 1);
#endif
    rb_define_method(client_class, "describe_groups", client_describe_groups, 2);
#ifdef HAVE_RD_KAFKA_CONSUMERGROUPDESCRIPTION_TYPE
    rb_define_method(client_class, "describe_groups_of_types", client_describe_groups, 2);
#endif
    rb_define_method(client_class, "delete_groups", client_delete_groups, 2);
}
