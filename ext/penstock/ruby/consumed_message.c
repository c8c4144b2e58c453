/*
 * Penstock::Message: one consumed message. It copies everything from librdkafka when it is built, and is frozen. It holds only
 * Ruby objects, so any thread of any Ractor may read it, also after the consumer is closed and freed.
 */
#include "ruby/penstock.h"
#include <ruby/encoding.h>
#include <ruby/ractor.h>

static VALUE message_class, no_headers;
static VALUE sym_create_time, sym_log_append_time;

struct consumed_message {
    VALUE topic, key, payload, headers;
    int64_t offset;
    int64_t timestamp;    /* ms since the epoch; -1: none */
    int32_t partition;
    int32_t leader_epoch; /* -1: unknown */
    rd_kafka_timestamp_type_t timestamp_type;
};

/* ---- GC ---- */

static void message_mark(void *data)
{
    const struct consumed_message *message = data;
    rb_gc_mark_movable(message->topic);
    rb_gc_mark_movable(message->key);
    rb_gc_mark_movable(message->payload);
    rb_gc_mark_movable(message->headers);
}

static void message_compact(void *data)
{
    struct consumed_message *message = data;
    message->topic = rb_gc_location(message->topic);
    message->key = rb_gc_location(message->key);
    message->payload = rb_gc_location(message->payload);
    message->headers = rb_gc_location(message->headers);
}

static size_t message_size(const void *data)
{
    return sizeof(struct consumed_message);
}

static const rb_data_type_t message_type = {
    .wrap_struct_name = "Penstock::Message",
    .function = { .dmark = message_mark, .dfree = RUBY_DEFAULT_FREE, .dsize = message_size, .dcompact = message_compact },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED | RUBY_TYPED_FROZEN_SHAREABLE,
};

static const struct consumed_message *message_get(VALUE self)
{
    return penstock_data(self, &message_type);
}

/* ---- copying; raises nothing but NoMemoryError ---- */

static VALUE bytes(const void *data, size_t size)
{
    return data ? rb_obj_freeze(rb_str_new(data, (long)size)) : Qnil;
}

static int freeze_values(VALUE name, VALUE value, VALUE unused)
{
    if (RB_TYPE_P(value, T_ARRAY)) rb_obj_freeze(value);
    return ST_CONTINUE;
}

/* The value of a name: a String or nil; for a repeated name an Array of its values, in order. */
static VALUE headers_of(const rd_kafka_headers_t *native)
{
    const char *name;
    const void *value;
    size_t size;
    bool repeated = false;

    if (!native) return no_headers;
    VALUE headers = rb_hash_new();
    for (size_t i = 0; rd_kafka_header_get_all(native, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
        VALUE key = penstock_header_name(name), copy = bytes(value, size);
        VALUE before = rb_hash_lookup2(headers, key, Qundef);
        if (before == Qundef) {
            rb_hash_aset(headers, key, copy);
            continue;
        }
        repeated = true;
        if (RB_TYPE_P(before, T_ARRAY)) rb_ary_push(before, copy);
        else rb_hash_aset(headers, key, rb_ary_new_from_args(2, before, copy));
    }
    if (repeated) rb_hash_foreach(headers, freeze_values, Qnil);
    return rb_obj_freeze(headers);
}

VALUE penstock_consumed_message_new(const rd_kafka_message_t *native, const rd_kafka_headers_t *headers, VALUE topic)
{
    struct consumed_message *message;
    VALUE self = TypedData_Make_Struct(message_class, struct consumed_message, &message_type, message);
    message->topic = message->key = message->payload = message->headers = Qnil;
    message->partition = native->partition;
    message->offset = native->offset;
    message->timestamp = rd_kafka_message_timestamp(native, &message->timestamp_type);
#ifdef HAVE_RD_KAFKA_MESSAGE_LEADER_EPOCH
    message->leader_epoch = rd_kafka_message_leader_epoch(native);
#else
    message->leader_epoch = -1;
#endif
    RB_OBJ_WRITE(self, &message->topic, topic);
    RB_OBJ_WRITE(self, &message->key, bytes(native->key, native->key_len));
    RB_OBJ_WRITE(self, &message->payload, bytes(native->payload, native->len));
    RB_OBJ_WRITE(self, &message->headers, headers_of(headers));
    return rb_obj_freeze(self);
}

/* build(topic, partition, offset, timestamp, timestamp_type, key, payload, headers, leader_epoch): builds a message for the
 * program. lib/penstock/consumer/message.rb has checked the arguments and deeply frozen them. */
static VALUE s_build(int argc, VALUE *argv, VALUE self)
{
    struct consumed_message *message;
    rb_check_arity(argc, 9, 9);
    int32_t partition = NUM2INT(argv[1]), leader_epoch = NIL_P(argv[8]) ? -1 : NUM2INT(argv[8]);
    int64_t offset = NUM2LL(argv[2]), timestamp = NIL_P(argv[3]) ? -1 : NUM2LL(argv[3]);
    for (int i = 0; i < 9; i++)
        if (!rb_ractor_shareable_p(argv[i])) rb_raise(rb_eArgError, "a message consists of frozen objects");
    VALUE made = TypedData_Make_Struct(self, struct consumed_message, &message_type, message);
    message->topic = message->key = message->payload = message->headers = Qnil;
    message->partition = partition;
    message->offset = offset;
    message->timestamp = timestamp;
    message->timestamp_type = RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
    if (timestamp >= 0)
        message->timestamp_type =
            argv[4] == sym_log_append_time ? RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME : RD_KAFKA_TIMESTAMP_CREATE_TIME;
    message->leader_epoch = leader_epoch;
    RB_OBJ_WRITE(made, &message->topic, argv[0]);
    RB_OBJ_WRITE(made, &message->key, argv[5]);
    RB_OBJ_WRITE(made, &message->payload, argv[6]);
    RB_OBJ_WRITE(made, &message->headers, argv[7]);
    return rb_obj_freeze(made);
}

VALUE penstock_consumed_message_place(VALUE self, int32_t *partition, int64_t *offset)
{
    const struct consumed_message *message = message_get(self);
    *partition = message->partition;
    *offset = message->offset;
    return message->topic;
}

/* ---- methods; documented in lib/penstock/consumer/message.rb ---- */

static VALUE message_topic(VALUE self)
{
    return message_get(self)->topic;
}

static VALUE message_partition(VALUE self)
{
    return INT2NUM(message_get(self)->partition);
}

static VALUE message_offset(VALUE self)
{
    return LL2NUM(message_get(self)->offset);
}

static bool has_timestamp(const struct consumed_message *message)
{
    return message->timestamp >= 0 && message->timestamp_type != RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
}

static VALUE message_timestamp(VALUE self)
{
    const struct consumed_message *message = message_get(self);
    return has_timestamp(message) ? LL2NUM(message->timestamp) : Qnil;
}

static VALUE message_timestamp_type(VALUE self)
{
    const struct consumed_message *message = message_get(self);
    if (!has_timestamp(message)) return Qnil;
    return message->timestamp_type == RD_KAFKA_TIMESTAMP_CREATE_TIME ? sym_create_time : sym_log_append_time;
}

static VALUE message_key(VALUE self)
{
    return message_get(self)->key;
}

static VALUE message_payload(VALUE self)
{
    return message_get(self)->payload;
}

static VALUE message_headers(VALUE self)
{
    return message_get(self)->headers;
}

static VALUE message_leader_epoch(VALUE self)
{
    int32_t epoch = message_get(self)->leader_epoch;
    return epoch < 0 ? Qnil : INT2NUM(epoch);
}

void penstock_consumed_message_init(void)
{
    message_class = rb_const_get(penstock_module, rb_intern("Message"));
    rb_gc_register_mark_object(message_class);
    no_headers = rb_obj_freeze(rb_hash_new());
    rb_gc_register_mark_object(no_headers);
    sym_create_time = ID2SYM(rb_intern("create_time"));
    sym_log_append_time = ID2SYM(rb_intern("log_append_time"));

    rb_undef_alloc_func(message_class);
    rb_define_singleton_method(message_class, "build", s_build, -1);
    rb_funcall(message_class, rb_intern("private_class_method"), 1, ID2SYM(rb_intern("build")));
    rb_define_method(message_class, "topic", message_topic, 0);
    rb_define_method(message_class, "partition", message_partition, 0);
    rb_define_method(message_class, "offset", message_offset, 0);
    rb_define_method(message_class, "timestamp", message_timestamp, 0);
    rb_define_method(message_class, "timestamp_type", message_timestamp_type, 0);
    rb_define_method(message_class, "key", message_key, 0);
    rb_define_method(message_class, "payload", message_payload, 0);
    rb_define_method(message_class, "headers", message_headers, 0);
    rb_define_method(message_class, "leader_epoch", message_leader_epoch, 0);
}
