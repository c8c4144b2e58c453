/*
 * Counts the librdkafka objects that Penstock's extension creates and destroys. This library is preloaded and intercepts the
 * extension's calls. It does not count calls by librdkafka itself or by other code. An object that librdkafka takes ownership of
 * counts as gone. test/proofs/allocations.rb reads the counts and lists the functions (see `nm` there).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KINDS(kind) \
    kind(conf) kind(topic_conf) kind(producer) kind(topic) kind(queue) kind(list) kind(partition) kind(headers) kind(event) \
    kind(error) kind(metadata) kind(group) kind(mock_cluster) kind(memory) \
    kind(dump) kind(message) kind(admin_options) kind(admin_item)

#define CONSTANT(name) kind_##name,
#define STRING(name) #name,
enum { KINDS(CONSTANT) KIND_COUNT };
static const char *const names[] = { KINDS(STRING) };

static _Atomic long made[KIND_COUNT], gone[KIND_COUNT];
static _Atomic uintptr_t first_address, last_address; /* of the extension's code */

static int find_extension(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size, (void)unused;
    const char *name = strrchr(object->dlpi_name, '/');
    if (!name || strncmp(name, "/penstock.", 10) != 0) return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        if (header->p_type != PT_LOAD || !(header->p_flags & PF_X)) continue;
        last_address = object->dlpi_addr + header->p_vaddr + header->p_memsz;
        first_address = object->dlpi_addr + header->p_vaddr;
    }
    return 1;
}

static bool is_ours(const void *caller)
{
    if (!first_address) dl_iterate_phdr(find_extension, NULL);
    return first_address && (uintptr_t)caller >= first_address && (uintptr_t)caller < last_address;
}

static void *next_of(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);
    if (function) return function;
    fprintf(stderr, "allocations: librdkafka has no %s\n", name);
    abort();
}

#define OURS is_ours(__builtin_return_address(0))
#define MADE(kind, thing) \
    do { if ((thing) && OURS) made[kind_##kind]++; } while (0)
#define GONE(kind, thing) \
    do { if ((thing) && OURS) gone[kind_##kind]++; } while (0)

/* The function that comes next, as `real`, looked up once. */
#define REAL(name) \
    static __typeof__(name) *_Atomic found; \
    if (!found) found = (__typeof__(name) *)next_of(#name); \
    __typeof__(name) *real = found

#define MAKES(kind, type, name, parameters, arguments) \
    type name parameters \
    { \
        REAL(name); \
        type thing = real arguments; \
        MADE(kind, thing); \
        return thing; \
    }

#define DESTROYS(kind, name, parameters, arguments, thing) \
    void name parameters \
    { \
        REAL(name); \
        GONE(kind, thing); \
        real arguments; \
    }

/* ---- configurations ---- */

MAKES(conf, rd_kafka_conf_t *, rd_kafka_conf_new, (void), ())
MAKES(conf, rd_kafka_conf_t *, rd_kafka_conf_dup, (const rd_kafka_conf_t *conf), (conf))
DESTROYS(conf, rd_kafka_conf_destroy, (rd_kafka_conf_t *conf), (conf), conf)
MAKES(dump, const char **, rd_kafka_conf_dump, (rd_kafka_conf_t *conf, size_t *count), (conf, count))
DESTROYS(dump, rd_kafka_conf_dump_free, (const char **dump, size_t count), (dump, count), dump)
MAKES(topic_conf, rd_kafka_topic_conf_t *, rd_kafka_default_topic_conf_dup, (rd_kafka_t *rk), (rk))
DESTROYS(topic_conf, rd_kafka_topic_conf_destroy, (rd_kafka_topic_conf_t *conf), (conf), conf)

/* ---- clients, topics, queues ---- */

rd_kafka_t *rd_kafka_new(rd_kafka_type_t type, rd_kafka_conf_t *conf, char *errstr, size_t errstr_size)
{
    REAL(rd_kafka_new);
    rd_kafka_t *rk = real(type, conf, errstr, errstr_size);
    MADE(producer, rk);
    GONE(conf, rk); /* on failure the caller still owns it */
    return rk;
}

DESTROYS(producer, rd_kafka_destroy, (rd_kafka_t *rk), (rk), rk)
DESTROYS(producer, rd_kafka_destroy_flags, (rd_kafka_t *rk, int flags), (rk, flags), rk)

rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *rk, const char *topic, rd_kafka_topic_conf_t *conf)
{
    REAL(rd_kafka_topic_new);
    GONE(topic_conf, conf); /* even on failure */
    rd_kafka_topic_t *rkt = real(rk, topic, conf);
    MADE(topic, rkt);
    return rkt;
}

DESTROYS(topic, rd_kafka_topic_destroy, (rd_kafka_topic_t *rkt), (rkt), rkt)
MAKES(queue, rd_kafka_queue_t *, rd_kafka_queue_new, (rd_kafka_t *rk), (rk))
MAKES(queue, rd_kafka_queue_t *, rd_kafka_queue_get_main, (rd_kafka_t *rk), (rk))
MAKES(queue, rd_kafka_queue_t *, rd_kafka_queue_get_consumer, (rd_kafka_t *rk), (rk))
MAKES(queue, rd_kafka_queue_t *, rd_kafka_queue_get_sasl, (rd_kafka_t *rk), (rk))
MAKES(queue, rd_kafka_queue_t *, rd_kafka_queue_get_partition, (rd_kafka_t *rk, const char *topic, int32_t partition),
      (rk, topic, partition))
DESTROYS(queue, rd_kafka_queue_destroy, (rd_kafka_queue_t *queue), (queue), queue)
MAKES(event, rd_kafka_event_t *, rd_kafka_queue_poll, (rd_kafka_queue_t *queue, int timeout_ms), (queue, timeout_ms))
DESTROYS(event, rd_kafka_event_destroy, (rd_kafka_event_t *event), (event), event)
MAKES(message, rd_kafka_message_t *, rd_kafka_consume_queue, (rd_kafka_queue_t *queue, int timeout_ms), (queue, timeout_ms))
DESTROYS(message, rd_kafka_message_destroy, (rd_kafka_message_t *message), (message), message)

ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *queue, int timeout_ms, rd_kafka_message_t **messages, size_t most)
{
    REAL(rd_kafka_consume_batch_queue);
    ssize_t count = real(queue, timeout_ms, messages, most);
    for (ssize_t i = 0; i < count; i++) MADE(message, messages[i]);
    return count;
}


/* ---- lists, headers, metadata, memory ---- */

MAKES(list, rd_kafka_topic_partition_list_t *, rd_kafka_topic_partition_list_new, (int size), (size))
MAKES(list, rd_kafka_topic_partition_list_t *, rd_kafka_topic_partition_list_copy, (const rd_kafka_topic_partition_list_t *list), (list))
DESTROYS(list, rd_kafka_topic_partition_list_destroy, (rd_kafka_topic_partition_list_t *list), (list), list)
MAKES(partition, rd_kafka_topic_partition_t *, rd_kafka_event_topic_partition, (rd_kafka_event_t *event), (event))
DESTROYS(partition, rd_kafka_topic_partition_destroy, (rd_kafka_topic_partition_t *place), (place), place)

rd_kafka_resp_err_t rd_kafka_assignment(rd_kafka_t *rk, rd_kafka_topic_partition_list_t **list)
{
    REAL(rd_kafka_assignment);
    rd_kafka_resp_err_t err = real(rk, list);
    MADE(list, !err);
    return err;
}

MAKES(headers, rd_kafka_headers_t *, rd_kafka_headers_new, (size_t size), (size))
DESTROYS(headers, rd_kafka_headers_destroy, (rd_kafka_headers_t *headers), (headers), headers)

rd_kafka_resp_err_t rd_kafka_metadata(rd_kafka_t *rk, int all_topics, rd_kafka_topic_t *only,
                                      const struct rd_kafka_metadata **metadata, int timeout_ms)
{
    REAL(rd_kafka_metadata);
    rd_kafka_resp_err_t err = real(rk, all_topics, only, metadata, timeout_ms);
    MADE(metadata, !err);
    return err;
}

DESTROYS(metadata, rd_kafka_metadata_destroy, (const struct rd_kafka_metadata *metadata), (metadata), metadata)
MAKES(group, rd_kafka_consumer_group_metadata_t *, rd_kafka_consumer_group_metadata, (rd_kafka_t *rk), (rk))
MAKES(group, rd_kafka_consumer_group_metadata_t *, rd_kafka_consumer_group_metadata_new, (const char *id), (id))
DESTROYS(group, rd_kafka_consumer_group_metadata_destroy, (rd_kafka_consumer_group_metadata_t *group), (group), group)
MAKES(memory, char *, rd_kafka_clusterid, (rd_kafka_t *rk, int timeout_ms), (rk, timeout_ms))
MAKES(memory, char *, rd_kafka_memberid, (const rd_kafka_t *rk), (rk))
DESTROYS(memory, rd_kafka_mem_free, (rd_kafka_t *rk, void *memory), (rk, memory), memory)

/* ---- errors ---- */

#define MAY_FAIL(name, parameters, arguments) MAKES(error, rd_kafka_error_t *, name, parameters, arguments)

MAY_FAIL(rd_kafka_init_transactions, (rd_kafka_t *rk, int timeout_ms), (rk, timeout_ms))
MAY_FAIL(rd_kafka_begin_transaction, (rd_kafka_t *rk), (rk))
MAY_FAIL(rd_kafka_commit_transaction, (rd_kafka_t *rk, int timeout_ms), (rk, timeout_ms))
MAY_FAIL(rd_kafka_abort_transaction, (rd_kafka_t *rk, int timeout_ms), (rk, timeout_ms))
MAY_FAIL(rd_kafka_send_offsets_to_transaction,
         (rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *offsets, const rd_kafka_consumer_group_metadata_t *group, int timeout_ms),
         (rk, offsets, group, timeout_ms))
MAY_FAIL(rd_kafka_seek_partitions, (rd_kafka_t *rk, rd_kafka_topic_partition_list_t *list, int timeout_ms), (rk, list, timeout_ms))
MAY_FAIL(rd_kafka_incremental_assign, (rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *list), (rk, list))
MAY_FAIL(rd_kafka_incremental_unassign, (rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *list), (rk, list))
MAY_FAIL(rd_kafka_consumer_close_queue, (rd_kafka_t *rk, rd_kafka_queue_t *queue), (rk, queue))
MAY_FAIL(rd_kafka_sasl_set_credentials, (rd_kafka_t *rk, const char *user, const char *password), (rk, user, password))
DESTROYS(error, rd_kafka_error_destroy, (rd_kafka_error_t *error), (error), error)

rd_kafka_error_t *rd_kafka_consumer_group_metadata_write(const rd_kafka_consumer_group_metadata_t *group, void **bytes, size_t *size)
{
    REAL(rd_kafka_consumer_group_metadata_write);
    rd_kafka_error_t *error = real(group, bytes, size);
    MADE(error, error);
    MADE(memory, !error);
    return error;
}

rd_kafka_error_t *rd_kafka_consumer_group_metadata_read(rd_kafka_consumer_group_metadata_t **group, const void *bytes, size_t size)
{
    REAL(rd_kafka_consumer_group_metadata_read);
    rd_kafka_error_t *error = real(group, bytes, size);
    MADE(error, error);
    MADE(group, !error);
    return error;
}

rd_kafka_error_t *rd_kafka_produceva(rd_kafka_t *rk, const rd_kafka_vu_t *arguments, size_t count)
{
    REAL(rd_kafka_produceva);
    rd_kafka_error_t *error = real(rk, arguments, count);
    MADE(error, error);
    for (size_t i = 0; i < count; i++)
        if (arguments[i].vtype == RD_KAFKA_VTYPE_HEADERS) GONE(headers, !error && arguments[i].u.headers);
    return error;
}

/* ---- requests of admin clients: their options, and what they are about ---- */

MAKES(admin_options, rd_kafka_AdminOptions_t *, rd_kafka_AdminOptions_new, (rd_kafka_t *rk, rd_kafka_admin_op_t op), (rk, op))
DESTROYS(admin_options, rd_kafka_AdminOptions_destroy, (rd_kafka_AdminOptions_t *options), (options), options)
MAY_FAIL(rd_kafka_AdminOptions_set_require_stable_offsets, (rd_kafka_AdminOptions_t *options, int value), (options, value))
MAY_FAIL(rd_kafka_AdminOptions_set_match_consumer_group_states,
         (rd_kafka_AdminOptions_t *options, const rd_kafka_consumer_group_state_t *states, size_t count), (options, states, count))

#define ITEM(name, parameters, arguments) \
    MAKES(admin_item, rd_kafka_##name##_t *, rd_kafka_##name##_new, parameters, arguments) \
    DESTROYS(admin_item, rd_kafka_##name##_destroy, (rd_kafka_##name##_t *item), (item), item)

ITEM(NewTopic, (const char *name, int partitions, int replicas, char *errstr, size_t size), (name, partitions, replicas, errstr, size))
ITEM(DeleteTopic, (const char *name), (name))
ITEM(NewPartitions, (const char *name, size_t total, char *errstr, size_t size), (name, total, errstr, size))
ITEM(DeleteRecords, (const rd_kafka_topic_partition_list_t *list), (list))
ITEM(ConfigResource, (rd_kafka_ResourceType_t type, const char *name), (type, name))
ITEM(DeleteGroup, (const char *group), (group))
ITEM(DeleteConsumerGroupOffsets, (const char *group, const rd_kafka_topic_partition_list_t *list), (group, list))
ITEM(ListConsumerGroupOffsets, (const char *group, const rd_kafka_topic_partition_list_t *list), (group, list))
ITEM(AlterConsumerGroupOffsets, (const char *group, const rd_kafka_topic_partition_list_t *list), (group, list))

#define ACL_PARAMETERS \
    (rd_kafka_ResourceType_t type, const char *name, rd_kafka_ResourcePatternType_t pattern, const char *principal, const char *host, \
     rd_kafka_AclOperation_t operation, rd_kafka_AclPermissionType_t permission, char *errstr, size_t size)
#define ACL_ARGUMENTS (type, name, pattern, principal, host, operation, permission, errstr, size)
MAKES(admin_item, rd_kafka_AclBinding_t *, rd_kafka_AclBinding_new, ACL_PARAMETERS, ACL_ARGUMENTS)
MAKES(admin_item, rd_kafka_AclBindingFilter_t *, rd_kafka_AclBindingFilter_new, ACL_PARAMETERS, ACL_ARGUMENTS)
DESTROYS(admin_item, rd_kafka_AclBinding_destroy, (rd_kafka_AclBinding_t *item), (item), item)

#if RD_KAFKA_VERSION >= 0x020200ff
MAKES(admin_item, rd_kafka_UserScramCredentialAlteration_t *, rd_kafka_UserScramCredentialUpsertion_new,
      (const char *user, rd_kafka_ScramMechanism_t mechanism, int32_t iterations, const unsigned char *password, size_t password_size,
       const unsigned char *salt, size_t salt_size),
      (user, mechanism, iterations, password, password_size, salt, salt_size))
MAKES(admin_item, rd_kafka_UserScramCredentialAlteration_t *, rd_kafka_UserScramCredentialDeletion_new,
      (const char *user, rd_kafka_ScramMechanism_t mechanism), (user, mechanism))
DESTROYS(admin_item, rd_kafka_UserScramCredentialAlteration_destroy, (rd_kafka_UserScramCredentialAlteration_t *item), (item), item)
#endif

#if RD_KAFKA_VERSION >= 0x020300ff
MAY_FAIL(rd_kafka_AdminOptions_set_include_authorized_operations, (rd_kafka_AdminOptions_t *options, int value), (options, value))
MAY_FAIL(rd_kafka_AdminOptions_set_isolation_level, (rd_kafka_AdminOptions_t *options, rd_kafka_IsolationLevel_t value),
         (options, value))
MAKES(admin_item, rd_kafka_TopicCollection_t *, rd_kafka_TopicCollection_of_topic_names, (const char **topics, size_t count),
      (topics, count))
DESTROYS(admin_item, rd_kafka_TopicCollection_destroy, (rd_kafka_TopicCollection_t *item), (item), item)
#endif

#if RD_KAFKA_VERSION >= 0x020600ff
MAY_FAIL(rd_kafka_AdminOptions_set_match_consumer_group_types,
         (rd_kafka_AdminOptions_t *options, const rd_kafka_consumer_group_type_t *types, size_t count), (options, types, count))
ITEM(ElectLeaders, (rd_kafka_ElectionType_t type, rd_kafka_topic_partition_list_t *list), (type, list))

/* Its last step is a jump that destroys a list of librdkafka's, and returns to its own caller: without this, the extension. */
void rd_kafka_ElectLeaders(rd_kafka_t *rk, rd_kafka_ElectLeaders_t *item, const rd_kafka_AdminOptions_t *options,
                           rd_kafka_queue_t *queue)
{
    REAL(rd_kafka_ElectLeaders);
    real(rk, item, options, queue);
}
#endif

/* ---- mock clusters ---- */

MAKES(mock_cluster, rd_kafka_mock_cluster_t *, rd_kafka_mock_cluster_new, (rd_kafka_t *rk, int brokers), (rk, brokers))
DESTROYS(mock_cluster, rd_kafka_mock_cluster_destroy, (rd_kafka_mock_cluster_t *cluster), (cluster), cluster)

/* ---- for test/proofs/allocations.rb ---- */

/* Returns the name of this kind and sets its counts; NULL after the last kind. */
const char *penstock_allocations(int kind, long *counts)
{
    if (kind >= KIND_COUNT) return NULL;
    counts[0] = made[kind];
    counts[1] = gone[kind];
    return names[kind];
}
