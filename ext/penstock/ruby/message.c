/*
 * From a message Hash to one record. All checks happen here, before anything is sent. Afterwards only bytes are read.
 * Holds no state.
 */
#include "ruby/penstock.h"
#include <ruby/encoding.h>
#include <string.h>

/* librdkafka's estimate of what the record format adds at most: attributes, and lengths as varints. */
enum { RECORD_OVERHEAD = 36 };

struct parsing {
    struct penstock_message *message;
    VALUE last_topic;
    long index;
    size_t size; /* bytes of payload, key and headers, with what the record format adds */
};

NORETURN(static void raise_invalid(long index, const char *format, ...));

static void raise_invalid(long index, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    VALUE reason = rb_enc_vsprintf(rb_utf8_encoding(), format, arguments);
    va_end(arguments);
    if (index < 0) penstock_raise(penstock_message_error, &penstock_no_context, "%" PRIsVALUE, reason);
    penstock_raise(penstock_message_error, &penstock_no_context, "message %ld of the batch: %" PRIsVALUE, index, reason);
}

void penstock_check_topic_name(VALUE name, long index)
{
    if (!RB_TYPE_P(name, T_STRING)) raise_invalid(index, ":topic is a String or Symbol, not %" PRIsVALUE, rb_obj_class(name));
    if (!ps_topic_name_valid(RSTRING_PTR(name), RSTRING_LEN(name)))
        raise_invalid(index, ":topic %+" PRIsVALUE " is not a valid topic name: 1 to 249 of the characters a-z A-Z 0-9 . _ -",
                      name);
}

void penstock_message_raise_label(VALUE label, long index)
{
    raise_invalid(index, ":label must be shareable (Ractor.make_shareable) for a shareable producer; this %" PRIsVALUE " is not",
                  rb_obj_class(label));
}

static bool same_bytes(VALUE one, VALUE other)
{
    return one == other || (RSTRING_LEN(one) == RSTRING_LEN(other) &&
                            memcmp(RSTRING_PTR(one), RSTRING_PTR(other), RSTRING_LEN(one)) == 0);
}

/* Sets a frozen, interned String, which the program cannot change. */
static void parse_topic(VALUE value, struct parsing *parsing)
{
    VALUE name = SYMBOL_P(value) ? rb_sym2str(value) : value;
    if (!NIL_P(parsing->last_topic) && RB_TYPE_P(name, T_STRING) && same_bytes(name, parsing->last_topic)) {
        parsing->message->topic = parsing->last_topic;
        return;
    }
    penstock_check_topic_name(name, parsing->index);
    parsing->message->topic = rb_enc_interned_str(RSTRING_PTR(name), RSTRING_LEN(name), rb_utf8_encoding());
}

/* How the program can turn the value into a String. */
static const char *remedy(VALUE value)
{
    if (RB_TYPE_P(value, T_HASH) || RB_TYPE_P(value, T_ARRAY)) return "use to_json, or set config.serializer for payloads";
    return "use to_s";
}

static struct penstock_bytes parse_string(VALUE value, const char *name, long index)
{
    if (NIL_P(value)) return (struct penstock_bytes){ .string = Qnil };
    if (!RB_TYPE_P(value, T_STRING))
        raise_invalid(index, ":%s is a String or nil, not %" PRIsVALUE "; %s", name, rb_obj_class(value), remedy(value));
    return (struct penstock_bytes){ .string = value, .size = RSTRING_LEN(value) };
}

static void parse_payload(VALUE value, struct parsing *parsing)
{
    parsing->message->payload = parse_string(value, "payload", parsing->index);
}

static void parse_key(VALUE value, struct parsing *parsing)
{
    parsing->message->key = parse_string(value, "key", parsing->index);
}

static void parse_partition_key(VALUE value, struct parsing *parsing)
{
    parsing->message->partition_key = parse_string(value, "partition_key", parsing->index);
    if (!NIL_P(value) && RSTRING_LEN(value) == 0) raise_invalid(parsing->index, ":partition_key is empty");
}

static void parse_label(VALUE value, struct parsing *parsing)
{
    parsing->message->label = value;
}

static void parse_partition(VALUE value, struct parsing *parsing)
{
    long index = parsing->index;
    if (!RB_INTEGER_TYPE_P(value)) raise_invalid(index, ":partition is an Integer, not %" PRIsVALUE, rb_inspect(value));
    if (!FIXNUM_P(value) || FIX2LONG(value) < RD_KAFKA_PARTITION_UA || FIX2LONG(value) > INT32_MAX)
        raise_invalid(index, ":partition %" PRIsVALUE " is out of range: 0 to 2147483647, or -1 to let the partitioner choose",
                      value);
    parsing->message->partition = (int32_t)FIX2LONG(value);
}

struct time_parts {
    VALUE time;
    struct timespec parts;
};

static VALUE read_time(VALUE arg)
{
    struct time_parts *read = (struct time_parts *)arg;
    read->parts = rb_time_timespec(read->time); /* raises if the seconds do not fit */
    return Qnil;
}

static int64_t milliseconds(VALUE time, long index)
{
    struct time_parts read = { .time = time };
    int failed = 0;
    rb_protect(read_time, (VALUE)&read, &failed);
    if (failed) rb_set_errinfo(Qnil);
    struct timespec parts = read.parts;
    if (failed || parts.tv_sec > INT64_MAX / 1000 - 1 || parts.tv_sec < INT64_MIN / 1000)
        raise_invalid(index, ":timestamp %" PRIsVALUE " is too far away", rb_inspect(time));
    return (int64_t)parts.tv_sec * 1000 + parts.tv_nsec / 1000000;
}

VALUE penstock_message_plain(VALUE hash, long index)
{
    unsigned generation = ps_generation();
    VALUE key = ID2SYM(rb_intern("timestamp")), value = rb_hash_lookup(hash, key), time = Qnil;
    if (RTEST(rb_funcall(value, rb_intern("is_a?"), 1, rb_cTime)) && rb_respond_to(value, rb_intern("to_time")))
        time = rb_funcall(value, rb_intern("to_time"), 0);
    if (!rb_obj_is_kind_of(time, rb_cTime))
        raise_invalid(index, ":timestamp is a Time or an Integer of milliseconds since the epoch, not %" PRIsVALUE,
                      rb_inspect(value));
    penstock_check_forked(generation); /* the value's Ruby code may have forked */
    VALUE plain = rb_hash_new();
    rb_funcall(plain, rb_intern("update"), 1, hash);
    rb_hash_aset(plain, key, LL2NUM(milliseconds(time, index)));
    return plain;
}

/* Kafka's timestamps are ms since the epoch. */
static void parse_timestamp(VALUE value, struct parsing *parsing)
{
    if (NIL_P(value)) return; /* librdkafka: now */
    long index = parsing->index;
    int64_t timestamp = -1;
    if (FIXNUM_P(value)) {
        timestamp = FIX2LONG(value);
    } else if (rb_obj_is_kind_of(value, rb_cTime)) {
        timestamp = milliseconds(value, index);
    } else {
        parsing->message->foreign_timestamp = true;
        return;
    }
    if (timestamp < 0) raise_invalid(index, ":timestamp %" PRIsVALUE " is before 1970", rb_inspect(value));
    if (timestamp == 0)
        raise_invalid(index, ":timestamp %" PRIsVALUE " cannot be sent: librdkafka would send the current time; leave it out "
                      "if you want that", rb_inspect(value));
    parsing->message->timestamp = timestamp;
}

/* Kafka's signed (zigzag) varint */
static size_t varint_size(long number)
{
    size_t size = 1;
    for (unsigned long rest = (unsigned long)number << 1; rest >= 0x80; rest >>= 7) size++;
    return size;
}

/* nil, a header's null, has the length -1. */
static size_t size_with_length(VALUE string)
{
    if (NIL_P(string)) return 1;
    return varint_size(RSTRING_LEN(string)) + RSTRING_LEN(string);
}

/* A header's name, a String or a Symbol, as a String. Does not allocate or raise. */
static VALUE header_name(VALUE name)
{
    return SYMBOL_P(name) ? rb_sym2str(name) : name;
}

static void check_header_value(VALUE name, VALUE value, struct parsing *parsing)
{
    if (!RB_TYPE_P(value, T_STRING) && !NIL_P(value))
        raise_invalid(parsing->index,
                      ":headers maps a String to a String, nil or an Array of these; %+" PRIsVALUE " maps to %" PRIsVALUE
                      "; use to_s",
                      name, rb_obj_class(value));
    parsing->size += size_with_length(header_name(name)) + size_with_length(value);
}

static int check_header(VALUE name, VALUE value, VALUE arg)
{
    struct parsing *parsing = (struct parsing *)arg;
    if (!RB_TYPE_P(name, T_STRING) && !SYMBOL_P(name))
        raise_invalid(parsing->index, ":headers has the name %" PRIsVALUE ", which is not a String or Symbol; use to_s",
                      rb_inspect(name));
    /* Consumers read names as C strings of UTF-8: they would read another name. */
    VALUE string = header_name(name);
    if (!ps_text_valid(RSTRING_PTR(string), RSTRING_LEN(string)))
        raise_invalid(parsing->index, ":headers has the name %+" PRIsVALUE ", whose bytes are not UTF-8 without a zero byte; "
                      "put them into the value", string);
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
        raise_invalid(parsing->index, ":headers is a Hash, not %" PRIsVALUE, rb_obj_class(headers));
    rb_hash_foreach(headers, check_header, (VALUE)parsing);
    if (RHASH_SIZE(headers) > 0) parsing->message->headers = headers;
}

/* The most common keys come first: the lookup ends when it has found as many keys as the Hash has. */
static struct field {
    const char *name;
    void (*parse)(VALUE value, struct parsing *parsing);
    VALUE symbol;
} fields[] = {
    { .name = "topic", parse_topic },         { .name = "payload", parse_payload },
    { .name = "key", parse_key },             { .name = "headers", parse_headers },
    { .name = "partition", parse_partition }, { .name = "partition_key", parse_partition_key },
    { .name = "label", parse_label },         { .name = "timestamp", parse_timestamp },
};

enum { FIELDS = sizeof(fields) / sizeof(*fields) };

static int raise_unknown_key(VALUE key, VALUE value, VALUE index)
{
    (void)value;
    for (int i = 0; i < FIELDS; i++)
        if (key == fields[i].symbol) return ST_CONTINUE;
    VALUE config = rb_const_get(penstock_module, rb_intern("Config"));
    VALUE keys = rb_const_get(config, rb_intern("MESSAGE_KEYS"));
    VALUE hint = rb_funcall(rb_const_get(penstock_module, rb_intern("Suggestion")), rb_intern("hint"), 2, key, keys);
    raise_invalid((long)index, "unknown message key %" PRIsVALUE "%" PRIsVALUE, rb_inspect(key), hint);
}

void penstock_message_parse(struct penstock_message *message, VALUE hash, long index,
                            const struct ps_limits *limits, VALUE last_topic)
{
    struct parsing parsing = { .message = message, .last_topic = last_topic, .index = index };
    *message = (struct penstock_message){
        .topic = Qnil, .payload.string = Qundef, .key.string = Qnil, .partition_key.string = Qnil, .headers = Qnil,
        .label = Qnil, .partition = RD_KAFKA_PARTITION_UA,
    };
    if (!RB_TYPE_P(hash, T_HASH)) raise_invalid(index, "a message is a Hash, not %" PRIsVALUE, rb_obj_class(hash));
    size_t left = RHASH_SIZE(hash);
    for (int i = 0; i < FIELDS && left > 0; i++) {
        VALUE value = rb_hash_lookup2(hash, fields[i].symbol, Qundef);
        if (value == Qundef) continue;
        fields[i].parse(value, &parsing);
        left--;
    }
    if (left > 0) rb_hash_foreach(hash, raise_unknown_key, (VALUE)index);

    if (NIL_P(message->topic)) raise_invalid(index, ":topic is missing");
    if (message->payload.string == Qundef) raise_invalid(index, ":payload is missing; pass payload: nil for a tombstone");
    if (message->partition >= 0 && !NIL_P(message->partition_key.string))
        raise_invalid(index, ":partition and :partition_key contradict each other; give one");

    if (message->payload.size > limits->payload)
        raise_invalid(index, ":payload has %zu bytes, more than config.max_payload_size allows (%zu)", message->payload.size,
                      limits->payload);
    if (message->payload.size > limits->queue)
        raise_invalid(index, ":payload has %zu bytes, more than queue.buffering.max.kbytes allows (%zu)",
                      message->payload.size, limits->queue);
    parsing.size += message->payload.size + message->key.size + RECORD_OVERHEAD;
    if (parsing.size > limits->total)
        raise_invalid(index, "payload, key and headers need %zu bytes, more than message.max.bytes allows (%zu)", parsing.size,
                      limits->total);
}

/*
 * ---- for handing over without the GVL ----
 *
 * Freezing and pinning a String does not suffice there. While Ruby compacts its heap, it protects the heap's pages, and handles a
 * read of such a page in a way that only works for threads with the GVL. So bytes that may lie in a page of Ruby's heap are
 * copied. The bytes of a String that is larger than any slot are malloc'ed: freezing suffices.
 */
enum { LARGER_THAN_ANY_SLOT = 1024 };

static size_t freeze_bytes(struct penstock_bytes *bytes, VALUE kept)
{
    if (NIL_P(bytes->string)) return 0;
    if (bytes->size <= LARGER_THAN_ANY_SLOT) return bytes->size;
    bytes->string = rb_str_new_frozen(bytes->string); /* M:gc_large_payloads_frozen */
    rb_ary_push(kept, bytes->string); /* M:gc_large_payloads_kept */
    return 0;
}

size_t penstock_message_freeze(struct penstock_message *message, VALUE kept)
{
    return freeze_bytes(&message->payload, kept) + freeze_bytes(&message->key, kept);
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

/* ---- headers: they are checked, so nothing below raises ---- */

static void add_header(rd_kafka_headers_t *headers, VALUE name, VALUE value)
{
    const char *bytes = NIL_P(value) ? NULL : RSTRING_PTR(value);
    rd_kafka_header_add(headers, RSTRING_PTR(name), RSTRING_LEN(name), bytes, bytes ? RSTRING_LEN(value) : 0);
}

static int add_headers(VALUE name, VALUE value, VALUE arg)
{
    rd_kafka_headers_t *headers = (rd_kafka_headers_t *)arg;
    name = header_name(name);
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

void penstock_message_to_bytes(struct penstock_message *message, char **copies)
{
    to_bytes(&message->payload, copies);
    to_bytes(&message->key, copies);
    message->native_headers = native_headers(message->headers);
}

void penstock_message_init(void)
{
    for (int i = 0; i < FIELDS; i++) fields[i].symbol = ID2SYM(rb_intern(fields[i].name));
}
