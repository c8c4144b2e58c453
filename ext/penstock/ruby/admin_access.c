/*
 * Penstock::Native::AdminClient, continued: ACLs and SCRAM users. See admin_client.c.
 *
 * Names of resources, principals and users identify something: programs compare them and send them back. So they are made valid
 * UTF-8, but control characters are not escaped.
 */
#include "ruby/penstock.h"
#include <stdlib.h>
#include <string.h>

/* ---- ACLs and filters: [resource type, name, pattern, principal, host, operation, permission], with librdkafka's numbers; nil
 * in a filter for any name, principal or host ---- */

static const char *text_or_null(VALUE row, long index)
{
    return NIL_P(rb_ary_entry(row, index)) ? NULL : penstock_admin_cstr(row, index);
}

typedef rd_kafka_AclBinding_t *acl_constructor(rd_kafka_ResourceType_t type, const char *name,
                                               rd_kafka_ResourcePatternType_t pattern, const char *principal, const char *host,
                                               rd_kafka_AclOperation_t operation, rd_kafka_AclPermissionType_t permission,
                                               char *errstr, size_t errstr_size);

static void *acl_of(acl_constructor *constructor, VALUE row, char *errstr, size_t size)
{
    int type = NUM2INT(rb_ary_entry(row, 0)), pattern = NUM2INT(rb_ary_entry(row, 2));
    int operation = NUM2INT(rb_ary_entry(row, 5)), permission = NUM2INT(rb_ary_entry(row, 6));
    const char *name = text_or_null(row, 1), *principal = text_or_null(row, 3), *host = text_or_null(row, 4);
    return constructor((rd_kafka_ResourceType_t)type, name, (rd_kafka_ResourcePatternType_t)pattern, principal, host,
                       (rd_kafka_AclOperation_t)operation, (rd_kafka_AclPermissionType_t)permission, errstr, size);
}

static void *acl_new(VALUE row, char *errstr, size_t size)
{
    return acl_of(rd_kafka_AclBinding_new, row, errstr, size);
}

static void *acl_filter_new(VALUE row, char *errstr, size_t size)
{
    return acl_of(rd_kafka_AclBindingFilter_new, row, errstr, size);
}

static void acl_dispose(void *acl)
{
    rd_kafka_AclBinding_destroy(acl);
}

static VALUE identifier(const char *text)
{
    return text ? penstock_setting(text) : Qnil;
}

static VALUE acl_to_ruby(const rd_kafka_AclBinding_t *acl)
{
    return rb_ary_new_from_args(7, INT2NUM((int)rd_kafka_AclBinding_restype(acl)), identifier(rd_kafka_AclBinding_name(acl)),
                                INT2NUM((int)rd_kafka_AclBinding_resource_pattern_type(acl)),
                                identifier(rd_kafka_AclBinding_principal(acl)), identifier(rd_kafka_AclBinding_host(acl)),
                                INT2NUM((int)rd_kafka_AclBinding_operation(acl)),
                                INT2NUM((int)rd_kafka_AclBinding_permission_type(acl)));
}

enum { ACLS_AT_ONCE = 1000 }; /* between two looks at other threads */

static VALUE acls_to_ruby(const rd_kafka_AclBinding_t **acls, size_t count)
{
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) {
        rb_ary_push(rows, acl_to_ruby(acls[i]));
        if (i % ACLS_AT_ONCE == ACLS_AT_ONCE - 1) rb_thread_check_ints();
    }
    return rows;
}

/* ---- create: [error or nil, ...] in the order of the rows ---- */

static void create_acls_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                               rd_kafka_queue_t *queue)
{
    rd_kafka_CreateAcls(rk, (rd_kafka_AclBinding_t **)items, count, options, queue);
}

static VALUE create_acls_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count = 0;
    const rd_kafka_acl_result_t **results = rd_kafka_CreateAcls_result_acls(rd_kafka_event_CreateAcls_result(event), &count);
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++)
        rb_ary_push(rows, penstock_admin_item_error(admin, rd_kafka_acl_result_error(results[i])));
    return rows;
}

static const struct penstock_admin_request create_acls = {
    .op = RD_KAFKA_ADMIN_OP_CREATEACLS, .make = acl_new, .dispose = acl_dispose,
    .changes = true, .submit = create_acls_submit, .read = create_acls_read,
};

static VALUE client_create_acls(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &create_acls, rows, options);
}

/* ---- describe: a request for each filter, answered by ACLs. librdkafka, up to 2.14.2 at least, drops the error of this answer:
 * a client without the right to ask gets no ACLs, and no error. ---- */

static void describe_acls_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                 rd_kafka_queue_t *queue)
{
    rd_kafka_DescribeAcls(rk, items[0], options, queue);
}

static VALUE describe_acls_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count = 0;
    const rd_kafka_AclBinding_t **acls = rd_kafka_DescribeAcls_result_acls(rd_kafka_event_DescribeAcls_result(event), &count);
    return acls_to_ruby(acls, count);
}

static const struct penstock_admin_request describe_acls = {
    .op = RD_KAFKA_ADMIN_OP_DESCRIBEACLS, .each = true, .make = acl_filter_new, .dispose = acl_dispose,
    .submit = describe_acls_submit, .read = describe_acls_read,
};

static VALUE client_describe_acls(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &describe_acls, rows, options);
}

/* ---- delete: [[error or nil, the deleted ACLs], ...] in the order of the filters ---- */

static void delete_acls_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                               rd_kafka_queue_t *queue)
{
    rd_kafka_DeleteAcls(rk, (rd_kafka_AclBindingFilter_t **)items, count, options, queue);
}

/* The filter's error, or the first of an ACL that could not be deleted. */
static VALUE deletion_error(const struct ps_admin *admin, const rd_kafka_DeleteAcls_result_response_t *response,
                            const rd_kafka_AclBinding_t **acls, size_t count)
{
    const rd_kafka_error_t *error = rd_kafka_DeleteAcls_result_response_error(response);
    for (size_t i = 0; !error && i < count; i++) error = rd_kafka_AclBinding_error(acls[i]);
    return penstock_admin_item_error(admin, error);
}

static VALUE delete_acls_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count = 0;
    const rd_kafka_DeleteAcls_result_response_t **responses =
        rd_kafka_DeleteAcls_result_responses(rd_kafka_event_DeleteAcls_result(event), &count);
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) {
        size_t acl_count = 0;
        const rd_kafka_AclBinding_t **acls = rd_kafka_DeleteAcls_result_response_matching_acls(responses[i], &acl_count);
        rb_ary_push(rows, rb_assoc_new(deletion_error(admin, responses[i], acls, acl_count), acls_to_ruby(acls, acl_count)));
    }
    return rows;
}

static const struct penstock_admin_request delete_acls = {
    .op = RD_KAFKA_ADMIN_OP_DELETEACLS, .make = acl_filter_new, .dispose = acl_dispose,
    .changes = true, .submit = delete_acls_submit, .read = delete_acls_read,
};

static VALUE client_delete_acls(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &delete_acls, rows, options);
}

#ifdef HAVE_RD_KAFKA_DESCRIBEUSERSCRAMCREDENTIALS
/* ---- errors of users. librdkafka copies the name and the text from the answer without their lengths, so bytes of what follows
 * in the answer may follow the text, up to a zero byte. And "(null)" stands for none. ---- */

static VALUE user_error(const struct ps_admin *admin, const rd_kafka_error_t *error)
{
    if (!error || !rd_kafka_error_code(error)) return Qnil;
    const char *given = rd_kafka_error_string(error);
    char text[512];
    size_t size = 0;
    while (size < sizeof(text) - 1 && (unsigned char)given[size] >= ' ') size++;
    memcpy(text, given, size);
    text[size] = '\0';
    bool none = !*text || strcmp(text, "(null)") == 0;
    return penstock_admin_error_of(admin, rd_kafka_error_code(error), none ? NULL : text, NULL, -1);
}

/* ---- describe users: [name]; none: all users. [[name, error, [[mechanism, iterations], ...]], ...] ---- */

static void *user_new(VALUE row, char *errstr, size_t size)
{
    return strdup(penstock_admin_cstr(row, 0));
}

static void describe_users_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                                  rd_kafka_queue_t *queue)
{
    rd_kafka_DescribeUserScramCredentials(rk, (const char **)items, count, options, queue);
}

static VALUE credentials_of(const rd_kafka_UserScramCredentialsDescription_t *user)
{
    size_t count = rd_kafka_UserScramCredentialsDescription_scramcredentialinfo_count(user);
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) {
        const rd_kafka_ScramCredentialInfo_t *info = rd_kafka_UserScramCredentialsDescription_scramcredentialinfo(user, i);
        rb_ary_push(rows, rb_assoc_new(INT2NUM((int)rd_kafka_ScramCredentialInfo_mechanism(info)),
                                       INT2NUM(rd_kafka_ScramCredentialInfo_iterations(info))));
    }
    return rows;
}

static VALUE describe_users_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count = 0;
    const rd_kafka_UserScramCredentialsDescription_t **users = rd_kafka_DescribeUserScramCredentials_result_descriptions(
        rd_kafka_event_DescribeUserScramCredentials_result(event), &count);
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++)
        rb_ary_push(rows, rb_ary_new_from_args(3, identifier(rd_kafka_UserScramCredentialsDescription_user(users[i])),
                                               user_error(admin, rd_kafka_UserScramCredentialsDescription_error(users[i])),
                                               credentials_of(users[i])));
    return rows;
}

static const struct penstock_admin_request describe_users = {
    .op = RD_KAFKA_ADMIN_OP_DESCRIBEUSERSCRAMCREDENTIALS, .make = user_new, .dispose = free,
    .submit = describe_users_submit, .read = describe_users_read,
};

static VALUE client_describe_scram_users(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &describe_users, rows, options);
}

/* ---- alter users: [name, mechanism, iterations, Secret], or without the last two to delete. [[name, error], ...] ---- */

static void *user_change_new(VALUE row, char *errstr, size_t size)
{
    const char *name = penstock_admin_cstr(row, 0);
    rd_kafka_ScramMechanism_t mechanism = (rd_kafka_ScramMechanism_t)NUM2INT(rb_ary_entry(row, 1));
    if (RARRAY_LEN(row) == 2) return rd_kafka_UserScramCredentialDeletion_new(name, mechanism);
    const char *password = penstock_secret_text(rb_ary_entry(row, 3));
    int32_t iterations = NUM2INT(rb_ary_entry(row, 2));
    if (!password) return NULL;
    return rd_kafka_UserScramCredentialUpsertion_new(name, mechanism, iterations, (const unsigned char *)password,
                                                     strlen(password), NULL, 0);
}

static void user_change_dispose(void *change)
{
    rd_kafka_UserScramCredentialAlteration_destroy(change);
}

static void alter_users_submit(rd_kafka_t *rk, void **items, size_t count, const rd_kafka_AdminOptions_t *options,
                               rd_kafka_queue_t *queue)
{
    rd_kafka_AlterUserScramCredentials(rk, (rd_kafka_UserScramCredentialAlteration_t **)items, count, options, queue);
}

static VALUE alter_users_read(const struct ps_admin *admin, rd_kafka_event_t *event)
{
    size_t count = 0;
    const rd_kafka_AlterUserScramCredentials_result_response_t **users =
        rd_kafka_AlterUserScramCredentials_result_responses(rd_kafka_event_AlterUserScramCredentials_result(event), &count);
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++)
        rb_ary_push(rows, rb_assoc_new(identifier(rd_kafka_AlterUserScramCredentials_result_response_user(users[i])),
                                       user_error(admin, rd_kafka_AlterUserScramCredentials_result_response_error(users[i]))));
    return rows;
}

static const struct penstock_admin_request alter_users = {
    .op = RD_KAFKA_ADMIN_OP_ALTERUSERSCRAMCREDENTIALS, .make = user_change_new, .dispose = user_change_dispose,
    .changes = true, .submit = alter_users_submit, .read = alter_users_read,
};

static VALUE client_alter_scram_users(VALUE self, VALUE rows, VALUE options)
{
    return penstock_admin_ask(self, &alter_users, rows, options);
}
#endif

void penstock_admin_access_init(VALUE client_class)
{
#ifdef HAVE_RD_KAFKA_DESCRIBEUSERSCRAMCREDENTIALS
    rb_define_method(client_class, "describe_scram_users", client_describe_scram_users, 2);
    rb_define_method(client_class, "alter_scram_users", client_alter_scram_users, 2);
#endif
    rb_define_method(client_class, "create_acls", client_create_acls, 2);
    rb_define_method(client_class, "describe_acls", client_describe_acls, 2);
    rb_define_method(client_class, "delete_acls", client_delete_acls, 2);
#ifdef HAVE_CONST_RD_KAFKA_RESOURCE_TRANSACTIONAL_ID
    rb_define_method(client_class, "create_transactional_id_acls", client_create_acls, 2); /* of transactional ids, and others */
#endif
}
