/*
 * Penstock::Native::AdminClient, continued: settings of topics, brokers and groups. See admin_client.c.
 *
 * librdkafka sends a request with a broker's settings to that broker, and takes one broker in a request. So brokers have requests
 * of their own, one for each, and all other resources share one.
 */
#include "ruby/penstock.h"
#include <string.h>

/* ---- resources: [type, name, ...] ---- */

static void *resource_new(VALUE row, char *errstr, size_t size)
{
    const char *name = penstock_admin_cstr(row, 1);
    return rd_kafka_ConfigResource_new((rd_kafka_ResourceType_t)NUM2INT(rb_ary_entry(row, 0)), name);
}

static void resource_dispose(void *resource)
{
    rd_kafka_ConfigResource_destroy(resource);
}

static VALUE resource_error(const struct ps_admin *admin, const rd_kafka_ConfigResource_t *resource)
{
    const char *name = rd_kafka_ConfigResource_name(resource);
    bool topic = rd_kafka_ConfigResource_type(resource) == RD_KAFKA_RESOURCE_TOPIC;
    bool group = rd_kafka_ConfigResource_type(resource) == RD_KAFKA_RESOURCE_GROUP;
    return penstock_admin_place_error(admin, rd_kafka_ConfigResource_error(resource),
                                      rd_kafka_ConfigResource_error_string(resource), group ? penstock_header_name(name) : Qnil,
                                      topic ? name : NULL, -1);
}

/* ---- describe: [[error, [[name, value, source, read only, sensitive, [[name, value, source], ...]], ...]], ...] in the order of
 * the rows; nil for a resource without an answer. The values of sensitive settings are nil. ---- */

static VALUE setting_value(const rd_kafka_ConfigEntry_t *entry, bool sensitive)
{
    const char *value = rd_kafka_ConfigEntry_value(entry);
    return value && !sensitive ? penstock_setting(value) : Qnil;
}

static VALUE synonyms_of(const rd_kafka_ConfigEntry_t *entry, bool sensitive)
{
    size_t count = 0;
    const rd_kafka_ConfigEntry_t **synonyms = rd_kafka_ConfigEntry_synonyms(entry, &count);
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++)
        rb_ary_push(rows, rb_ary_new_from_args(3, penstock_name(rd_kafka_ConfigEntry_name(synonyms[i])),
                                               setting_value(synonyms[i], sensitive),
                                               INT2NUM((int)rd_kafka_ConfigEntry_source(synonyms[i]))));
    return rows;
}

static VALUE settings_of(const rd_kafka_ConfigResource_t *resource)
{
    size_t count = 0;
    const rd_kafka_ConfigEntry_t **entries = rd_kafka_ConfigResource_configs(resource, &count);
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) {
        bool sensitive = rd_kafka_ConfigEntry_is_sensitive(entries[i]) == 1;
        VALUE read_only = rd_kafka_ConfigEntry_is_read_only(entries[i]) == 1 ? Qtrue : Qfalse;
        rb_ary_push(rows, rb_ary_new_from_args(6, penstock_name(rd_kafka_ConfigEntry_name(entries[i])),
                                               setting_value(entries[i], sensitive),
                                               INT2NUM((int)rd_kafka_ConfigEntry_source(entries[i])), read_only,
                                               sensitive ? Qtrue : Qfalse, synonyms_of(entries[i], sensitive)));
    }
    return rows;
}

static VALUE describe_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count = 0;
    const rd_kafka_ConfigResource_t **resources =
        rd_kafka_DescribeConfigs_result_resources(rd_kafka_event_DescribeConfigs_result(event), &count);
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) {
        VALUE row = Qnil;
        if (resources[i]) row = rb_assoc_new(resource_error(admin, resources[i]), settings_of(resources[i]));
        rb_ary_push(rows, row);
        rb_thread_check_ints(); /* lets other threads run, if there are many resources */
    }
    return rows;
}

static void describe_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                            rd_kafka_queue_t *queue)
{
    rd_kafka_DescribeConfigs(rk, (rd_kafka_ConfigResource_t **)items, count, options, queue);
}

static const struct penstock_admin_request describe_configs = {
    .op = RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, .make = resource_new, .dispose = resource_dispose,
    .submit = describe_submit, .read = describe_read,
};

static const struct penstock_admin_request describe_broker_configs = {
    .op = RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, .each = true, .make = resource_new, .dispose = resource_dispose,
    .submit = describe_submit, .read = describe_read,
};

static VALUE client_describe_configs(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &describe_configs, rows, options);
}

static VALUE client_describe_broker_configs(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &describe_broker_configs, rows, options);
}

/* ---- alter: [type, name, [[setting, operation, value or Secret or nil], ...]], answered by [[error or nil], ...] in this
 * order; nil for a resource without an answer. Operations are librdkafka's numbers. ---- */

static const char *value_of(VALUE change)
{
    VALUE value = rb_ary_entry(change, 2);
    const char *secret = penstock_secret_text(value);
    if (secret) return penstock_admin_sent(secret, strlen(secret));
    return NIL_P(value) ? NULL : penstock_admin_cstr(change, 2);
}

static VALUE errors_of(const struct ps_admin *admin, const rd_kafka_ConfigResource_t **resources, size_t count)
{
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++)
        rb_ary_push(rows, resources[i] ? rb_ary_new_from_args(1, resource_error(admin, resources[i])) : Qnil);
    return rows;
}

#ifdef HAVE_RD_KAFKA_INCREMENTALALTERCONFIGS
static void incremental_fill(const struct ps_admin *admin, void *resource, VALUE row)
{
    VALUE changes = rb_ary_entry(row, 2);
    for (long i = 0; i < RARRAY_LEN(changes); i++) {
        VALUE change = rb_ary_entry(changes, i);
        const char *name = penstock_admin_cstr(change, 0), *value = value_of(change);
        rd_kafka_AlterConfigOpType_t operation = (rd_kafka_AlterConfigOpType_t)NUM2INT(rb_ary_entry(change, 1));
        rd_kafka_error_t *error = rd_kafka_ConfigResource_add_incremental_config(resource, name, operation, value);
        if (!error) continue;
        VALUE exception = penstock_admin_item_error(admin, error);
        rd_kafka_error_destroy(error);
        rb_exc_raise(exception);
    }
}

static void incremental_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                               rd_kafka_queue_t *queue)
{
    rd_kafka_IncrementalAlterConfigs(rk, (rd_kafka_ConfigResource_t **)items, count, options, queue);
}

static VALUE incremental_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count = 0;
    const rd_kafka_ConfigResource_t **resources =
        rd_kafka_IncrementalAlterConfigs_result_resources(rd_kafka_event_IncrementalAlterConfigs_result(event), &count);
    return errors_of(admin, resources, count);
}

static const struct penstock_admin_request incremental_alter_configs = {
    .op = RD_KAFKA_ADMIN_OP_INCREMENTALALTERCONFIGS, .make = resource_new, .fill = incremental_fill, .dispose = resource_dispose,
    .changes = true, .submit = incremental_submit, .read = incremental_read,
};

static const struct penstock_admin_request incremental_alter_broker_configs = {
    .op = RD_KAFKA_ADMIN_OP_INCREMENTALALTERCONFIGS, .each = true, .make = resource_new, .fill = incremental_fill,
    .dispose = resource_dispose, .changes = true, .submit = incremental_submit, .read = incremental_read,
};

static VALUE client_incremental_alter_configs(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &incremental_alter_configs, rows, options);
}

static VALUE client_incremental_alter_broker_configs(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &incremental_alter_broker_configs, rows, options);
}
#else
/* Replaces all settings of each resource by these, so lib/penstock/admin/config_merge.rb gives it those that it has, too. */
static void replacement_fill(const struct ps_admin *admin, void *resource, VALUE row)
{
    VALUE settings = rb_ary_entry(row, 2);
    for (long i = 0; i < RARRAY_LEN(settings); i++) {
        VALUE setting = rb_ary_entry(settings, i);
        const char *name = penstock_admin_cstr(setting, 0), *value = value_of(setting);
        rd_kafka_resp_err_t err = rd_kafka_ConfigResource_set_config(resource, name, value);
        if (err) rb_exc_raise(penstock_admin_error_of(admin, err, NULL, NULL, -1));
    }
}

static void replacement_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                               rd_kafka_queue_t *queue)
{
    rd_kafka_AlterConfigs(rk, (rd_kafka_ConfigResource_t **)items, count, options, queue);
}

static VALUE replacement_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count = 0;
    const rd_kafka_ConfigResource_t **resources =
        rd_kafka_AlterConfigs_result_resources(rd_kafka_event_AlterConfigs_result(event), &count);
    return errors_of(admin, resources, count);
}

static const struct penstock_admin_request replace_configs = {
    .op = RD_KAFKA_ADMIN_OP_ALTERCONFIGS, .make = resource_new, .fill = replacement_fill, .dispose = resource_dispose,
    .changes = true, .submit = replacement_submit, .read = replacement_read,
};

static VALUE client_replace_configs(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &replace_configs, rows, options);
}
#endif

void penstock_admin_configs_init(VALUE client_class)
{
    rb_define_method(client_class, "describe_configs", client_describe_configs, 2);
    rb_define_method(client_class, "describe_broker_configs", client_describe_broker_configs, 2);
#ifdef HAVE_CONST_RD_KAFKA_CONFIG_SOURCE_GROUP_CONFIG
    rb_define_method(client_class, "describe_group_configs", client_describe_configs, 2); /* of groups, and others */
#endif
#ifdef HAVE_RD_KAFKA_INCREMENTALALTERCONFIGS
    rb_define_method(client_class, "incremental_alter_configs", client_incremental_alter_configs, 2);
    rb_define_method(client_class, "incremental_alter_broker_configs", client_incremental_alter_broker_configs, 2);
#else
    rb_define_method(client_class, "replace_configs", client_replace_configs, 2);
#endif
}
