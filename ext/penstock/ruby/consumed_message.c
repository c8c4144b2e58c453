/*
 * Penstock::Message: one consumed message. Its data pointer is a ps_record, which never changes, so any thread of any Ractor may
 * read it, also after the consumer is closed and freed. It holds no Ruby objects: each method makes new ones. It has a reference to
 * the memory of the whole batch (core/consume/fetched.c).
 *
 * A message of a consumer with deserializers is another kind of data: it keeps the objects that were decoded, so Ractors cannot
 * share it (decision 0023).
 */
#include "ruby/penstock.h"
#include <ruby/encoding.h>
#include <ruby/ractor.h>
#include <string.h>

static VALUE message_class, no_headers;
static VALUE sym_create_time, sym_log_append_time;
static ID id_value, id_key, id_read;

/* ---- GC ---- */

static void message_free(void *data)
{
    penstock_fetched_free(((struct ps_record *)data)->fetched);
}

/* The rest of its batch's memory is the batch's. */
static size_t message_size(const void *data)
{
    const struct ps_record *record = data;
    return sizeof(*record) + record->key_size + record->payload_size;
}

static const rb_data_type_t message_type = {
    .wrap_struct_name = "Penstock::Message",
    .function = { .dfree = message_free, .dsize = message_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED | RUBY_TYPED_FROZEN_SHAREABLE,
};

enum part { VALUE_PART, KEY_PART, PARTS };

struct decoding {
    struct ps_record *record;
    VALUE deserializer;
    VALUE decoded[PARTS]; /* Qundef: not yet */
};

static void decoding_mark(void *data)
{
    const struct decoding *decoding = data;
    rb_gc_mark_movable(decoding->deserializer);
    for (int i = 0; i < PARTS; i++)
        if (decoding->decoded[i] != Qundef) rb_gc_mark_movable(decoding->decoded[i]);
}

static void decoding_compact(void *data)
{
    struct decoding *decoding = data;
    decoding->deserializer = rb_gc_location(decoding->deserializer);
    for (int i = 0; i < PARTS; i++)
        if (decoding->decoded[i] != Qundef) decoding->decoded[i] = rb_gc_location(decoding->decoded[i]);
}

static void decoding_free(void *data)
{
    struct decoding *decoding = data;
    if (decoding->record) penstock_fetched_free(decoding->record->fetched);
    xfree(decoding);
}

static size_t decoding_size(const void *data)
{
    const struct decoding *decoding = data;
    return sizeof(*decoding) + (decoding->record ? message_size(decoding->record) : 0);
}

static const rb_data_type_t decoding_type = {
    .wrap_struct_name = "Penstock::DecodingMessage",
    .function = { .dmark = decoding_mark, .dfree = decoding_free, .dsize = decoding_size, .dcompact = decoding_compact },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static struct decoding *decoding_of(VALUE self)
{
    bool is = RB_TYPE_P(self, T_DATA) && RTYPEDDATA_P(self) && RTYPEDDATA_TYPE(self) == &decoding_type;
    return is ? RTYPEDDATA_DATA(self) : NULL;
}

static const struct ps_record *message_get(VALUE self)
{
    const struct decoding *decoding = decoding_of(self);
    const struct ps_record *record = decoding ? decoding->record : penstock_data(self, &message_type);
    if (!record) penstock_raise_uninitialized(self);
    atomic_store_explicit(&record->fetched->seen, true, memory_order_relaxed);
    return record;
}

const struct ps_record *penstock_message_record(VALUE self)
{
    if (!decoding_of(self) && !rb_typeddata_is_kind_of(self, &message_type))
        rb_raise(rb_eTypeError, "expected a Penstock::Message or Penstock::Batch, not an object of %" PRIsVALUE, rb_obj_class(self));
    return message_get(self);
}

VALUE penstock_message_allocate(VALUE deserializer)
{
    struct decoding *decoding;
    if (NIL_P(deserializer)) return TypedData_Wrap_Struct(message_class, &message_type, NULL);
    VALUE self = TypedData_Make_Struct(message_class, struct decoding, &decoding_type, decoding);
    decoding->decoded[VALUE_PART] = decoding->decoded[KEY_PART] = Qundef;
    RB_OBJ_WRITE(self, &decoding->deserializer, deserializer);
    return self;
}

static void set_record(VALUE self, struct ps_record *record)
{
    struct decoding *decoding = decoding_of(self);
    if (decoding) decoding->record = record;
    else DATA_PTR(self) = record;
    rb_obj_freeze(self);
}

void penstock_message_own(VALUE self, struct ps_fetched *fetched)
{
    set_record(self, &fetched->records[0]);
    penstock_fetched_report(fetched);
}

VALUE penstock_message_of(struct ps_record *record, VALUE deserializer)
{
    VALUE self = penstock_message_allocate(deserializer);
    ps_fetched_retain(record->fetched); /* M:gc_message_retains_memory */
    set_record(self, record);
    return self;
}

/* ---- the parts of a message; only between ps_fetched_read and ps_fetched_done ---- */

static VALUE bytes(const char *data, size_t size)
{
    return rb_obj_freeze(rb_str_new(data, (long)size));
}

static const char *bytes_of(const struct ps_record *record)
{
    return record->fetched->bytes + record->place;
}

VALUE penstock_record_key(const struct ps_record *record)
{
    return record->has_key ? bytes(bytes_of(record), record->key_size) : Qnil;
}

VALUE penstock_record_payload(const struct ps_record *record)
{
    return record->has_payload ? bytes(bytes_of(record) + record->key_size, record->payload_size) : Qnil;
}

static int freeze_values(VALUE name, VALUE value, VALUE unused)
{
    (void)name, (void)unused;
    if (RB_TYPE_P(value, T_ARRAY)) rb_obj_freeze(value);
    return ST_CONTINUE;
}

/* Other clients may write headers that cannot be read. The message would look as if it had none. */
static VALUE record_error(const struct ps_record *record)
{
    struct penstock_error_context context = penstock_no_context;
    context.err = RD_KAFKA_RESP_ERR__BAD_MSG;
    context.topic = penstock_name(record->fetched->topics[record->topic]);
    context.partition = record->partition;
    context.offset = &record->offset;
    return penstock_error_new(penstock_consume_error, &context, rb_str_new_cstr("a message's headers cannot be read"));
}

/* The value of a name: a String or nil; for a repeated name an Array of its values, in order. */
static VALUE record_headers(const struct ps_record *record)
{
    const char *from = bytes_of(record) + record->key_size + record->payload_size;
    bool repeated = false;
    VALUE headers = rb_hash_new();
    for (uint32_t i = 0; i < record->headers; i++) {
        struct ps_header header;
        from = ps_header_read(from, &header);
        VALUE key = penstock_header_name(header.name);
        VALUE copy = header.value_size < 0 ? Qnil : bytes(header.value, (size_t)header.value_size);
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

/* ---- building one for the program ---- */

struct parts {
    VALUE key, payload, headers; /* String or nil; Hash */
    size_t size;
    uint32_t count;
    char *to;
};

/* Calls the block for each header, also for each of a repeated name. */
static int each_header(VALUE name, VALUE value, VALUE arg, void (*one)(struct parts *, VALUE, VALUE))
{
    struct parts *parts = (struct parts *)arg;
    if (!RB_TYPE_P(value, T_ARRAY)) one(parts, name, value);
    else
        for (long i = 0; i < RARRAY_LEN(value); i++) one(parts, name, RARRAY_AREF(value, i));
    return ST_CONTINUE;
}

static int32_t value_size(VALUE value)
{
    return NIL_P(value) ? -1 : (int32_t)RSTRING_LEN(value);
}

static void measure_one(struct parts *parts, VALUE name, VALUE value)
{
    parts->size += ps_header_size((size_t)RSTRING_LEN(name), value_size(value));
    parts->count++;
}

static int measure_header(VALUE name, VALUE value, VALUE arg)
{
    return each_header(name, value, arg, measure_one);
}

static void write_one(struct parts *parts, VALUE name, VALUE value)
{
    const char *data = NIL_P(value) ? NULL : RSTRING_PTR(value);
    parts->to = ps_header_write(parts->to, RSTRING_PTR(name), (size_t)RSTRING_LEN(name), data, value_size(value));
}

static int write_header(VALUE name, VALUE value, VALUE arg)
{
    return each_header(name, value, arg, write_one);
}

static size_t size_of(VALUE string)
{
    return NIL_P(string) ? 0 : (size_t)RSTRING_LEN(string);
}

static void write_string(struct parts *parts, VALUE string)
{
    if (NIL_P(string)) return;
    memcpy(parts->to, RSTRING_PTR(string), size_of(string));
    parts->to += size_of(string);
}

/* build(topic, partition, offset, timestamp, timestamp_type, key, payload, headers, leader_epoch, deserializer): builds a message
 * for the program. lib/penstock/consumer/message.rb has checked the arguments and deeply frozen them. */
static VALUE s_build(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 10, 10);
    (void)self;
    int32_t partition = NUM2INT(argv[1]), leader_epoch = NIL_P(argv[8]) ? -1 : NUM2INT(argv[8]);
    int64_t offset = NUM2LL(argv[2]), timestamp = NIL_P(argv[3]) ? -1 : NUM2LL(argv[3]);
    for (int i = 0; i < 9; i++)
        if (!rb_ractor_shareable_p(argv[i])) rb_raise(rb_eArgError, "a message consists of frozen objects");
    const char *topic = StringValueCStr(argv[0]);

    struct parts parts = { .key = argv[5], .payload = argv[6], .headers = argv[7] };
    rb_hash_foreach(parts.headers, measure_header, (VALUE)&parts);
    size_t size = size_of(parts.key) + size_of(parts.payload) + parts.size;
    VALUE message = penstock_message_allocate(argv[9]);
    struct ps_fetched *fetched = ps_fetched_new(topic, 1, size);
    struct ps_record *record = fetched ? ps_fetched_add(fetched, topic, size) : NULL; /* there is room */
    if (!record) rb_memerror();
    record->partition = partition;
    record->offset = offset;
    record->timestamp = timestamp;
    record->logged = timestamp >= 0 && argv[4] == sym_log_append_time;
    record->leader_epoch = leader_epoch;
    record->has_key = !NIL_P(parts.key);
    record->has_payload = !NIL_P(parts.payload);
    record->key_size = (uint32_t)size_of(parts.key);
    record->payload_size = (uint32_t)size_of(parts.payload);
    record->headers = parts.count;
    parts.to = fetched->bytes + record->place;
    write_string(&parts, parts.key);
    write_string(&parts, parts.payload);
    rb_hash_foreach(parts.headers, write_header, (VALUE)&parts);
    penstock_message_own(message, fetched);
    return message;
}

/* ---- methods; documented in lib/penstock/consumer/message.rb ---- */

void penstock_raise_released(void)
{
    penstock_raise(rb_const_get(penstock_module, rb_intern("BatchReleasedError")), &penstock_no_context,
                   "the batch was released, so the bytes of its messages are gone");
}

/* Only NoMemoryError can interrupt this. Then the bytes are freed with the last message. */
static VALUE read_bytes(VALUE self, VALUE (*part)(const struct ps_record *))
{
    const struct ps_record *record = message_get(self);
    if (!ps_fetched_read(record->fetched)) penstock_raise_released();
    VALUE value = part(record);
    ps_fetched_done(record->fetched);
    RB_GC_GUARD(self);
    return value;
}

static VALUE message_topic(VALUE self)
{
    const struct ps_record *record = message_get(self);
    return penstock_name(record->fetched->topics[record->topic]);
}

static VALUE message_partition(VALUE self)
{
    return INT2NUM(message_get(self)->partition);
}

static VALUE message_offset(VALUE self)
{
    return LL2NUM(message_get(self)->offset);
}

static VALUE message_timestamp(VALUE self)
{
    const struct ps_record *record = message_get(self);
    return record->timestamp < 0 ? Qnil : LL2NUM(record->timestamp);
}

static VALUE message_timestamp_type(VALUE self)
{
    const struct ps_record *record = message_get(self);
    if (record->timestamp < 0) return Qnil;
    return record->logged ? sym_log_append_time : sym_create_time;
}

static VALUE message_key(VALUE self)
{
    return read_bytes(self, penstock_record_key);
}

static VALUE message_payload(VALUE self)
{
    return read_bytes(self, penstock_record_payload);
}

static VALUE message_error(VALUE self)
{
    const struct ps_record *record = message_get(self);
    return record->damaged ? record_error(record) : Qnil;
}

/* The deserializer may do anything, also read the same message. What was kept first stays. */
static VALUE decoded(VALUE self, enum part part, ID name, VALUE (*bytes_of_part)(const struct ps_record *))
{
    struct decoding *decoding = decoding_of(self);
    VALUE reader = decoding ? rb_attr_get(decoding->deserializer, name) : Qnil;
    if (NIL_P(reader)) return read_bytes(self, bytes_of_part);
    if (decoding->decoded[part] != Qundef) return decoding->decoded[part];
    VALUE value = rb_funcall(reader, id_read, 2, read_bytes(self, bytes_of_part), self);
    if (decoding->decoded[part] == Qundef) RB_OBJ_WRITE(self, &decoding->decoded[part], value);
    return decoding->decoded[part];
}

static VALUE message_value(VALUE self)
{
    return decoded(self, VALUE_PART, id_value, penstock_record_payload);
}

static VALUE message_decoded_key(VALUE self)
{
    return decoded(self, KEY_PART, id_key, penstock_record_key);
}

static VALUE message_headers(VALUE self)
{
    if (message_get(self)->damaged) rb_exc_raise(message_error(self));
    return message_get(self)->headers ? read_bytes(self, record_headers) : no_headers;
}

static VALUE message_leader_epoch(VALUE self)
{
    int32_t epoch = message_get(self)->leader_epoch;
    return epoch < 0 ? Qnil : INT2NUM(epoch);
}

void penstock_consumed_message_init(void)
{
    message_class = rb_const_get(penstock_module, rb_intern("Message"));
    rb_gc_register_mark_object(message_class); /* M:gc_message_class */
    no_headers = rb_obj_freeze(rb_hash_new());
    rb_gc_register_mark_object(no_headers); /* M:gc_no_headers */
    sym_create_time = ID2SYM(rb_intern("create_time"));
    sym_log_append_time = ID2SYM(rb_intern("log_append_time"));

    id_value = rb_intern("@value"); /* the parts of a Penstock::Deserializer */
    id_key = rb_intern("@key");
    id_read = rb_intern("read");

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
    rb_define_method(message_class, "value", message_value, 0);
    rb_define_method(message_class, "decoded_key", message_decoded_key, 0);
    rb_define_method(message_class, "headers", message_headers, 0);
    rb_define_method(message_class, "error", message_error, 0);
    rb_define_method(message_class, "leader_epoch", message_leader_epoch, 0);
}
