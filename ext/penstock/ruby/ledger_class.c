/*
 * Penstock::Native::Ledger: a ps_ledger without a consumer, for Clients::InMemoryConsumer. So a test's marks, positions and epochs are not an
 * imitation of a consumer's, but the same code. The GVL is held in all methods.
 */
#include "ruby/penstock.h"
#include <string.h>

static void ledger_free(void *data)
{
    ps_ledger_destroy(data);
    xfree(data);
}

static size_t ledger_size(const void *data)
{
    (void)data;
    return sizeof(struct ps_ledger);
}

static const rb_data_type_t ledger_type = {
    .wrap_struct_name = "Penstock::Native::Ledger",
    .function = { .dfree = ledger_free, .dsize = ledger_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static struct ps_ledger *ledger_get(VALUE self)
{
    return penstock_data(self, &ledger_type);
}

static VALUE ledger_allocate(VALUE klass)
{
    struct ps_ledger *ledger;
    VALUE self = TypedData_Make_Struct(klass, struct ps_ledger, &ledger_type, ledger);
    if (!ps_ledger_init(ledger)) rb_memerror();
    return self;
}

/* ---- handing out ---- */

static size_t size_of(const struct ps_record *record, const char *bytes)
{
    const char *end = bytes + record->key_size + record->payload_size;
    struct ps_header header;
    for (uint32_t i = 0; i < record->headers; i++) end = ps_header_read(end, &header);
    return (size_t)(end - bytes);
}

/* False: no memory. */
static bool copy(struct ps_fetched *fetched, const struct ps_record *from)
{
    const char *bytes = from->fetched->bytes + from->place;
    size_t size = size_of(from, bytes);
    struct ps_record *record = ps_fetched_add(fetched, from->fetched->topics[from->topic], size);
    if (!record) return false;
    size_t place = record->place;
    int topic = record->topic;
    *record = *from;
    record->fetched = fetched;
    record->place = place;
    record->topic = topic;
    if (size) memcpy(fetched->bytes + place, bytes, size);
    return true;
}

static void add_end(struct ps_fetched *fetched, VALUE end)
{
    VALUE topic = rb_ary_entry(end, 0);
    int32_t partition = NUM2INT(rb_ary_entry(end, 1));
    int64_t offset = NUM2LL(rb_ary_entry(end, 2));
    if (!ps_fetched_end(fetched, StringValueCStr(topic), partition, offset)) rb_memerror();
}

/* hand_out(messages, ends, owner, deserializer): copies of messages as a batch of the current epoch. */
static VALUE ledger_hand_out(VALUE self, VALUE messages, VALUE ends, VALUE owner, VALUE deserializer)
{
    struct ps_ledger *ledger = ledger_get(self);
    uint64_t number = NUM2ULL(owner);
    Check_Type(messages, T_ARRAY);
    Check_Type(ends, T_ARRAY);
    VALUE batch = penstock_batch_allocate();
    struct ps_fetched *fetched = ps_fetched_new(NULL, (size_t)RARRAY_LEN(messages), 0);
    if (!fetched) rb_memerror();
    penstock_batch_own(batch, fetched);
    for (long i = 0; i < RARRAY_LEN(messages); i++) {
        const struct ps_record *record = penstock_message_record(RARRAY_AREF(messages, i));
        if (!ps_fetched_read(record->fetched)) penstock_raise_released();
        bool copied = copy(fetched, record);
        ps_fetched_done(record->fetched);
        if (!copied) rb_memerror();
    }
    for (long i = 0; i < RARRAY_LEN(ends); i++) add_end(fetched, RARRAY_AREF(ends, i));
    if (!ps_ledger_handed_out_all(ledger, fetched, number)) rb_memerror();
    return penstock_batch_finish(batch, deserializer);
}

static VALUE ledger_finish(VALUE self, VALUE owner)
{
    ps_ledger_finish(ledger_get(self), NUM2ULL(owner));
    return Qnil;
}

/* As Consumer#mark: nil for a message that a program made. */
static VALUE ledger_mark(VALUE self, VALUE message)
{
    const struct ps_record *record = penstock_message_record(message);
    uint64_t epoch = record->fetched->epoch;
    bool marked = ps_ledger_mark(ledger_get(self), record->fetched->topics[record->topic], record->partition, record->offset,
                                 record->leader_epoch, epoch);
    RB_GC_GUARD(message);
    return marked ? Qtrue : epoch ? Qfalse : Qnil;
}

static VALUE ledger_owns(VALUE self, VALUE message)
{
    const struct ps_record *record = penstock_message_record(message);
    const struct ps_fetched *fetched = record->fetched;
    bool owned = ps_ledger_owns(ledger_get(self), fetched->topics[record->topic], record->partition, fetched->epoch);
    RB_GC_GUARD(message);
    return owned ? Qtrue : Qfalse;
}

static VALUE ledger_holds(VALUE self, VALUE topic, VALUE partition, VALUE offset, VALUE epoch)
{
    bool holds =
        ps_ledger_holds(ledger_get(self), StringValueCStr(topic), NUM2INT(partition), NUM2LL(offset), NUM2ULL(epoch));
    return holds ? Qtrue : Qfalse;
}

static VALUE ledger_epoch(VALUE self)
{
    return ULL2NUM(ps_ledger_epoch(ledger_get(self)));
}

/* ---- places: [[topic, partition, offset, leader epoch or nil], ...] ---- */

static VALUE places_from(rd_kafka_topic_partition_list_t *list)
{
    VALUE places = rb_ary_new();
    for (int i = 0; i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &list->elems[i];
        int32_t epoch = ps_leader_epoch(place);
        rb_ary_push(places, rb_ary_new_from_args(4, penstock_name(place->topic), INT2NUM(place->partition),
                                                 place->offset < 0 ? Qnil : LL2NUM(place->offset), epoch < 0 ? Qnil : INT2NUM(epoch)));
    }
    rd_kafka_topic_partition_list_destroy(list);
    return places;
}

static VALUE ledger_processed(VALUE self)
{
    return places_from(ps_ledger_processed(ledger_get(self)));
}

static VALUE ledger_paused(VALUE self)
{
    return places_from(ps_ledger_paused(ledger_get(self), NULL));
}

static VALUE ledger_position(VALUE self, VALUE topic, VALUE partition)
{
    int64_t position = ps_ledger_position(ledger_get(self), StringValueCStr(topic), NUM2INT(partition));
    return position < 0 ? Qnil : LL2NUM(position);
}

static VALUE ledger_seek(VALUE self, VALUE topic, VALUE partition, VALUE offset)
{
    ps_ledger_seek(ledger_get(self), StringValueCStr(topic), NUM2INT(partition), NUM2LL(offset), false);
    return Qnil;
}

static VALUE ledger_pause(VALUE self, VALUE topic, VALUE partition, VALUE paused)
{
    return ps_ledger_pause(ledger_get(self), StringValueCStr(topic), NUM2INT(partition), RTEST(paused)) ? Qtrue : Qfalse;
}

/* ---- assignments ---- */

static VALUE ledger_assigned(VALUE self)
{
    ps_ledger_assigned(ledger_get(self));
    return Qnil;
}

static VALUE ledger_revoked(VALUE self, VALUE topic, VALUE partition)
{
    rd_kafka_topic_partition_list_t *list;
    const char *name = StringValueCStr(topic);
    int32_t number = NUM2INT(partition);
    rd_kafka_topic_partition_list_add(list = rd_kafka_topic_partition_list_new(1), name, number);
    ps_ledger_revoked(ledger_get(self), list, false);
    rd_kafka_topic_partition_list_destroy(list);
    return Qnil;
}

static VALUE ledger_committed(VALUE self, VALUE topic, VALUE partition, VALUE offset)
{
    const char *name = StringValueCStr(topic);
    int32_t number = NUM2INT(partition);
    int64_t next = NUM2LL(offset);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, name, number)->offset = next;
    ps_ledger_committed(ledger_get(self), NULL, list); /* nothing was stored, so librdkafka's client is not used */
    rd_kafka_topic_partition_list_destroy(list);
    return Qnil;
}

static VALUE ledger_has_committed(VALUE self, VALUE topic, VALUE partition, VALUE offset, VALUE epoch)
{
    bool committed = ps_ledger_has_committed(ledger_get(self), StringValueCStr(topic), NUM2INT(partition), NUM2LL(offset),
                                             NUM2ULL(epoch));
    return committed ? Qtrue : Qfalse;
}

void penstock_ledger_init(void)
{
    VALUE ledger_class = rb_const_get(penstock_native, rb_intern("Ledger"));
    rb_define_alloc_func(ledger_class, ledger_allocate);
    rb_define_method(ledger_class, "hand_out", ledger_hand_out, 4);
    rb_define_method(ledger_class, "finish", ledger_finish, 1);
    rb_define_method(ledger_class, "mark", ledger_mark, 1);
    rb_define_method(ledger_class, "owns", ledger_owns, 1);
    rb_define_method(ledger_class, "holds", ledger_holds, 4);
    rb_define_method(ledger_class, "epoch", ledger_epoch, 0);
    rb_define_method(ledger_class, "processed", ledger_processed, 0);
    rb_define_method(ledger_class, "paused", ledger_paused, 0);
    rb_define_method(ledger_class, "position", ledger_position, 2);
    rb_define_method(ledger_class, "seek", ledger_seek, 3);
    rb_define_method(ledger_class, "pause", ledger_pause, 3);
    rb_define_method(ledger_class, "assigned", ledger_assigned, 0);
    rb_define_method(ledger_class, "revoked", ledger_revoked, 2);
    rb_define_method(ledger_class, "committed", ledger_committed, 3);
    rb_define_method(ledger_class, "committed?", ledger_has_committed, 4);
}
