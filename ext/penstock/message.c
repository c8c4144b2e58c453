/*
 * From a message Hash to one record. Everything that can be wrong is found here, before anything is
 * sent; what remains afterwards is only reading bytes. Holds no state.
 */
#include "penstock.h"
#include <ruby/encoding.h>
#include <string.h>

/* What librdkafka reckons that the record format adds at most: attributes and the lengths, as varints. */
enum { RECORD_OVERHEAD = 36 };

static VALUE sym_topic, sym_payload, sym_key, sym_partition, sym_partition_key, sym_timestamp, sym_headers, sym_label;

struct parsing {
    struct penstock_message *message;
    long index;
    size_t size; /* of payload, key and headers, and what the protocol adds to them */
    bool has_payload;
};

NORETURN(static void refuse(long index, const char *format, ...));

static void refuse(long index, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    VALUE reason = rb_enc_vsprintf(rb_utf8_encoding(), format, arguments);
    va_end(arguments);
    if (index < 0) penstock_raise(penstock_message_error, &penstock_no_context, "%" PRIsVALUE, reason);
    penstock_raise(penstock_message_error, &penstock_no_context, "message %ld of the batch: %" PRIsVALUE, index, reason);
}

static VALUE string_or_nil(VALUE value, const char *name, long index)
{
    if (!NIL_P(value) && !RB_TYPE_P(value, T_STRING))
        refuse(index, ":%s is a String or nil, not %" PRIsVALUE, name, rb_obj_class(value));
    return value;
}

void penstock_check_topic_name(VALUE name, long index)
{
    if (!RB_TYPE_P(name, T_STRING)) refuse(index, ":topic is a String or Symbol, not %" PRIsVALUE, rb_obj_class(name));
    if (!ps_topic_name_valid(RSTRING_PTR(name), RSTRING_LEN(name)))
        refuse(index, ":topic %+" PRIsVALUE " is no legal topic name: 1 to 249 of the characters a-z A-Z 0-9 . _ -", name);
}

static int32_t parse_partition(VALUE value, long index)
{
    if (!RB_INTEGER_TYPE_P(value)) refuse(index, ":partition is an Integer, not %" PRIsVALUE, rb_inspect(value));
    if (!FIXNUM_P(value) || FIX2LONG(value) < RD_KAFKA_PARTITION_UA || FIX2LONG(value) > INT32_MAX)
        refuse(index, ":partition %" PRIsVALUE " is out of range: 0 to 2147483647, or -1 to let the partitioner choose", value);
    return (int32_t)FIX2LONG(value);
}

/* Kafka's timestamps are ms since the epoch. */
static int64_t parse_timestamp(VALUE value, long index)
{
    if (NIL_P(value)) return 0; /* librdkafka: now */
    int64_t timestamp = -1;
    if (FIXNUM_P(value)) {
        timestamp = FIX2LONG(value);
    } else if (rb_obj_is_kind_of(value, rb_cTime)) {
        struct timespec time = rb_time_timespec(value);
        if (time.tv_sec > INT64_MAX / 1000 - 1) refuse(index, ":timestamp %" PRIsVALUE " is too far off", rb_inspect(value));
        timestamp = (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
    } else {
        refuse(index, ":timestamp is a Time or an Integer of milliseconds since the epoch, not %" PRIsVALUE, rb_inspect(value));
    }
    if (timestamp < 0) refuse(index, ":timestamp %" PRIsVALUE " lies before 1970", rb_inspect(value));
    return timestamp;
}

/* Kafka's signed (zigzag) varint */
static size_t varint_size(long number)
{
    size_t size = 1;
    for (unsigned long rest = (unsigned long)number << 1; rest >= 0x80; rest >>= 7) size++;
    return size;
}

static size_t size_with_length(VALUE string)
{
    return varint_size(RSTRING_LEN(string)) + RSTRING_LEN(string);
}

static void check_header_value(VALUE name, VALUE value, struct parsing *parsing)
{
    if (!RB_TYPE_P(value, T_STRING))
        refuse(parsing->index, ":headers maps a String to a String or an Array of Strings; %+" PRIsVALUE " maps to %" PRIsVALUE,
               name, rb_inspect(value));
    parsing->size += size_with_length(name) + size_with_length(value);
}

static int check_header(VALUE name, VALUE value, VALUE arg)
{
    struct parsing *parsing = (struct parsing *)arg;
    if (!RB_TYPE_P(name, T_STRING))
        refuse(parsing->index, ":headers has the name %" PRIsVALUE ", which is not a String", rb_inspect(name));
    if (RB_TYPE_P(value, T_ARRAY)) {
        for (long i = 0; i < RARRAY_LEN(value); i++) check_header_value(name, RARRAY_AREF(value, i), parsing);
    } else {
        check_header_value(name, value, parsing);
    }
    return ST_CONTINUE;
}

static void parse_headers(VALUE headers, struct parsing *parsing)
{
    if (NIL_P(headers)) return;
    if (!RB_TYPE_P(headers, T_HASH))
        refuse(parsing->index, ":headers is a Hash, not %" PRIsVALUE, rb_obj_class(headers));
    rb_hash_foreach(headers, check_header, (VALUE)parsing);
    if (RHASH_SIZE(headers) > 0) parsing->message->headers = headers;
}

NORETURN(static void refuse_key(VALUE key, long index));

static void refuse_key(VALUE key, long index)
{
    VALUE known = rb_const_get(rb_const_get(penstock_module, rb_intern("Config")), rb_intern("MESSAGE_KEYS"));
    VALUE hint = rb_funcall(rb_const_get(penstock_module, rb_intern("Config")), rb_intern("hint"), 2, key, known);
    refuse(index, "unknown message key %" PRIsVALUE "%" PRIsVALUE, rb_inspect(key), hint);
}

static struct penstock_bytes bytes_of(VALUE string)
{
    return (struct penstock_bytes){ .string = string, .size = NIL_P(string) ? 0 : (size_t)RSTRING_LEN(string) };
}

static int parse_pair(VALUE key, VALUE value, VALUE arg)
{
    struct parsing *parsing = (struct parsing *)arg;
    struct penstock_message *message = parsing->message;

    if (key == sym_topic) {
        VALUE name = SYMBOL_P(value) ? rb_sym2str(value) : value;
        penstock_check_topic_name(name, parsing->index);
        message->topic = bytes_of(name);
    } else if (key == sym_payload) {
        message->payload = bytes_of(string_or_nil(value, "payload", parsing->index));
        parsing->has_payload = true;
    } else if (key == sym_key) {
        message->key = bytes_of(string_or_nil(value, "key", parsing->index));
    } else if (key == sym_partition) {
        message->partition = parse_partition(value, parsing->index);
    } else if (key == sym_partition_key) {
        message->partition_key = bytes_of(string_or_nil(value, "partition_key", parsing->index));
        if (!NIL_P(value) && RSTRING_LEN(value) == 0) refuse(parsing->index, ":partition_key is empty");
    } else if (key == sym_timestamp) {
        message->timestamp = parse_timestamp(value, parsing->index);
    } else if (key == sym_headers) {
        parse_headers(value, parsing);
    } else if (key == sym_label) {
        message->label = value;
    } else {
        refuse_key(key, parsing->index);
    }
    return ST_CONTINUE;
}

void penstock_message_parse(struct penstock_message *message, VALUE hash, long index,
                            const struct penstock_message_limits *limits)
{
    struct parsing parsing = { .message = message, .index = index };
    *message = (struct penstock_message){
        .topic.string = Qnil, .payload.string = Qnil, .key.string = Qnil, .partition_key.string = Qnil, .headers = Qnil,
        .label = Qnil, .partition = RD_KAFKA_PARTITION_UA,
    };
    if (!RB_TYPE_P(hash, T_HASH)) refuse(index, "a message is a Hash, not %" PRIsVALUE, rb_obj_class(hash));
    rb_hash_foreach(hash, parse_pair, (VALUE)&parsing);

    if (NIL_P(message->topic.string)) refuse(index, ":topic is missing");
    if (!parsing.has_payload) refuse(index, ":payload is missing (nil makes a tombstone, and has to be said)");
    if (message->partition >= 0 && !NIL_P(message->partition_key.string))
        refuse(index, ":partition and :partition_key contradict each other; give one");

    if (message->payload.size > limits->payload)
        refuse(index, ":payload has %zu bytes, more than config.max_payload_size allows (%zu)", message->payload.size,
               limits->payload);
    parsing.size += message->payload.size + message->key.size + RECORD_OVERHEAD;
    if (parsing.size > limits->total)
        refuse(index, "payload, key and headers need %zu bytes, more than message.max.bytes allows (%zu)", parsing.size,
               limits->total);
}

/*
 * ---- for handing over without the GVL ----
 *
 * Frozen and pinned is not enough there: while the heap is compacted, Ruby protects its pages, and catches whoever
 * reads one in a way that is made for threads with the GVL. So what may lie in a page of Ruby's heap is copied; the
 * bytes of a String that is larger than any slot are malloc'ed, and need only be kept from changing.
 */
enum { LARGER_THAN_ANY_SLOT = 1024 };

static size_t freeze_bytes(struct penstock_bytes *bytes, VALUE kept)
{
    if (NIL_P(bytes->string)) return 0;
    if (bytes->size <= LARGER_THAN_ANY_SLOT) return bytes->size;
    bytes->string = rb_str_new_frozen(bytes->string);
    rb_ary_push(kept, bytes->string);
    return 0;
}

size_t penstock_message_freeze(struct penstock_message *message, VALUE kept)
{
    return message->topic.size + freeze_bytes(&message->payload, kept) + freeze_bytes(&message->key, kept) +
           freeze_bytes(&message->partition_key, kept);
}

static void to_bytes(struct penstock_bytes *bytes, char **copies)
{
    const char *data = NIL_P(bytes->string) ? NULL : RSTRING_PTR(bytes->string);
    if (data && copies && bytes->size <= LARGER_THAN_ANY_SLOT) {
        data = memcpy(*copies, data, bytes->size);
        *copies += bytes->size;
    }
    bytes->data = data;
}

/* ---- headers: already checked, so nothing below raises ---- */

static void add_header(rd_kafka_headers_t *headers, VALUE name, VALUE value)
{
    rd_kafka_header_add(headers, RSTRING_PTR(name), RSTRING_LEN(name), RSTRING_PTR(value), RSTRING_LEN(value));
}

static int add_headers(VALUE name, VALUE value, VALUE arg)
{
    rd_kafka_headers_t *headers = (rd_kafka_headers_t *)arg;
    if (RB_TYPE_P(value, T_ARRAY)) {
        for (long i = 0; i < RARRAY_LEN(value); i++) add_header(headers, name, RARRAY_AREF(value, i));
    } else {
        add_header(headers, name, value);
    }
    return ST_CONTINUE;
}

static rd_kafka_headers_t *native_headers(VALUE hash)
{
    if (NIL_P(hash)) return NULL;
    rd_kafka_headers_t *headers = rd_kafka_headers_new(RHASH_SIZE(hash));
    rb_hash_foreach(hash, add_headers, (VALUE)headers);
    return headers;
}

void penstock_message_to_bytes(struct penstock_message *message, const struct penstock_message *last, char **copies)
{
    if (last && last->topic.size == message->topic.size &&
        memcmp(last->topic.data, RSTRING_PTR(message->topic.string), last->topic.size) == 0)
        message->topic = last->topic;
    else
        to_bytes(&message->topic, copies);
    to_bytes(&message->payload, copies);
    to_bytes(&message->key, copies);
    to_bytes(&message->partition_key, copies);
    message->native_headers = native_headers(message->headers);
}

void penstock_message_init(void)
{
    sym_topic = ID2SYM(rb_intern("topic"));
    sym_payload = ID2SYM(rb_intern("payload"));
    sym_key = ID2SYM(rb_intern("key"));
    sym_partition = ID2SYM(rb_intern("partition"));
    sym_partition_key = ID2SYM(rb_intern("partition_key"));
    sym_timestamp = ID2SYM(rb_intern("timestamp"));
    sym_headers = ID2SYM(rb_intern("headers"));
    sym_label = ID2SYM(rb_intern("label"));
}
