/*
 * Penstock::Native::AdminClient, continued: the cluster and its brokers, offsets of partitions, and the deletion of records. See
 * admin_client.c.
 */
#include "ruby/penstock.h"
#include <stdlib.h>

/* The numbers of rd_kafka_AclOperation_t; nil: the answer has none. */
VALUE penstock_admin_operations(const rd_kafka_AclOperation_t *operations, size_t count)
{
    if (!operations) return Qnil;
    VALUE numbers = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) rb_ary_push(numbers, INT2NUM((int)operations[i]));
    return numbers;
}

/* [id, host, port, rack or nil]; nil: there is none. */
VALUE penstock_admin_node(const rd_kafka_Node_t *node)
{
    if (!node || rd_kafka_Node_id(node) < 0) return Qnil;
#ifdef HAVE_RD_KAFKA_DESCRIBECLUSTER
    VALUE rack = penstock_text(rd_kafka_Node_rack(node));
#else
    VALUE rack = Qnil;
#endif
    return rb_ary_new_from_args(4, INT2NUM(rd_kafka_Node_id(node)), penstock_text(rd_kafka_Node_host(node)),
                                INT2NUM(rd_kafka_Node_port(node)), rack);
}

/* ---- the cluster: [id or nil, controller's id or nil, authorized operations or nil, [[id, host, port, rack], ...]] ---- */

static VALUE cluster_of_metadata(const struct ps_admin_job *job, VALUE arg)
{
    VALUE brokers = rb_ary_new_capa(job->metadata->broker_cnt);
    for (int i = 0; i < job->metadata->broker_cnt; i++) {
        const struct rd_kafka_metadata_broker *broker = &job->metadata->brokers[i];
        rb_ary_push(brokers, rb_ary_new_from_args(4, INT2NUM(broker->id), penstock_text(broker->host), INT2NUM(broker->port), Qnil));
    }
    VALUE controller = job->controller_id < 0 ? Qnil : INT2NUM(job->controller_id);
    return rb_ary_new_from_args(4, penstock_text(job->cluster_id), controller, Qnil, brokers);
}

static VALUE client_cluster_of_metadata(VALUE self, VALUE options)
{
    return penstock_admin_question(self, PS_ADMIN_BROKERS, NULL, options, cluster_of_metadata, Qnil);
}

#ifdef HAVE_RD_KAFKA_DESCRIBECLUSTER
static void describe_cluster_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                    rd_kafka_queue_t *queue)
{
    rd_kafka_DescribeCluster(rk, options, queue);
}

static VALUE describe_cluster_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count, operation_count;
    const rd_kafka_DescribeCluster_result_t *result = rd_kafka_event_DescribeCluster_result(event);
    const rd_kafka_Node_t **nodes = rd_kafka_DescribeCluster_result_nodes(result, &count);
    const rd_kafka_Node_t *controller = rd_kafka_DescribeCluster_result_controller(result);
    const rd_kafka_AclOperation_t *operations = rd_kafka_DescribeCluster_result_authorized_operations(result, &operation_count);
    VALUE brokers = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) rb_ary_push(brokers, penstock_admin_node(nodes[i]));
    VALUE controller_id = controller && rd_kafka_Node_id(controller) >= 0 ? INT2NUM(rd_kafka_Node_id(controller)) : Qnil;
    return rb_ary_new_from_args(4, penstock_text(rd_kafka_DescribeCluster_result_cluster_id(result)), controller_id,
                                penstock_admin_operations(operations, operation_count), brokers);
}

static const struct penstock_admin_request describe_cluster = {
    .op = RD_KAFKA_ADMIN_OP_DESCRIBECLUSTER, .submit = describe_cluster_submit, .read = describe_cluster_read,
};

/* In an Array, as every answer. */
static VALUE client_describe_cluster(VALUE self, VALUE options)
{
    return penstock_admin_ask(self, &describe_cluster, rb_ary_new(), options);
}
#endif

void penstock_admin_cluster_init(VALUE client_class)
{
    rb_define_method(client_class, "cluster_of_metadata", client_cluster_of_metadata, 1);
#ifdef HAVE_RD_KAFKA_DESCRIBECLUSTER
    rb_define_method(client_class, "describe_cluster", client_describe_cluster, 1);
#endif
}
