/*
 * Penstock::Native::ConsumerClient, continued: what its listeners, metrics and statistics need from the core (core/consume/news.c).
 */
#include "ruby/penstock.h"
#include <stdlib.h>
#include <string.h>

void penstock_publish_news(VALUE self, struct ps_consumer *consumer)
{
    if (atomic_load_explicit(&consumer->news.count, memory_order_relaxed))
        rb_funcall(penstock_consumer_callbacks(self), rb_intern("news_arrived"), 0);
}

/* ---- kinds ---- */

static const struct {
    enum ps_news_kind kind;
    const char *name;
} kinds[] = {
#define KIND(name, bit, text) { PS_NEWS_##name, #text },
    PS_NEWS_KINDS(KIND)
#undef KIND
};

enum { KIND_COUNT = sizeof(kinds) / sizeof(*kinds) };

static enum ps_news_kind kind_of(VALUE name)
{
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (name == ID2SYM(rb_intern(kinds[i].name))) return kinds[i].kind;
    rb_raise(rb_eArgError, "no kind of news: %+" PRIsVALUE, name);
}

static VALUE name_of(enum ps_news_kind kind)
{
    size_t i = 0;
    while (i < KIND_COUNT - 1 && kinds[i].kind != kind) i++;
    return ID2SYM(rb_intern(kinds[i].name));
}

/* listen(names, interval): the kinds that have listeners, and librdkafka's statistics.interval.ms if the client is not open yet. */
static VALUE consumer_call_listen(VALUE self, VALUE names, VALUE interval)
{
    struct ps_consumer *consumer = penstock_consumer_get(self);
    uint32_t wanted = 0;
    Check_Type(names, T_ARRAY);
    for (long i = 0; i < RARRAY_LEN(names); i++) wanted |= kind_of(RARRAY_AREF(names, i));
    atomic_store(&consumer->news.wanted, wanted);
    ps_consumer_set_statistics(consumer, StringValueCStr(interval));
    return Qnil;
}

/* ---- reading ---- */

struct reading {
    struct ps_consumer *consumer;
    const struct ps_news_item *item;
};

static VALUE error_of(const struct reading *reading, VALUE error_class, const rd_kafka_topic_partition_t *place,
                      rd_kafka_resp_err_t err, const char *text)
{
    struct penstock_error_context context = penstock_no_context;
    context.err = err;
    context.client = &reading->consumer->client;
    if (place) {
        context.topic = penstock_name(place->topic);
        context.partition = place->partition;
    }
    return penstock_error_new(error_class, &context, penstock_text(text));
}

static VALUE start_of(const rd_kafka_topic_partition_t *place)
{
    switch ((enum ps_start)(intptr_t)place->opaque) {
    case PS_START_COMMITTED: return ID2SYM(rb_intern("committed"));
    case PS_START_RESET: return ID2SYM(rb_intern("auto_offset_reset"));
    case PS_START_CHOSEN: return ID2SYM(rb_intern("start_at"));
    default: return ID2SYM(rb_intern("unknown"));
    }
}

/* [topic, partition, offset or nil, nil or the error of this partition] of each. Of assigned ones: why they begin there */
static VALUE places_of(const struct reading *reading)
{
    const rd_kafka_topic_partition_list_t *list = reading->item->list;
    VALUE places = rb_ary_new();
    for (int i = 0; list && i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *place = &list->elems[i];
        rd_kafka_resp_err_t err = reading->item->kind == PS_NEWS_COMMIT ? place->err : RD_KAFKA_RESP_ERR_NO_ERROR;
        VALUE error = err ? error_of(reading, penstock_commit_error, place, err, "an offset was not committed") : Qnil;
        if (reading->item->kind == PS_NEWS_ASSIGNED) error = start_of(place);
        rb_ary_push(places, rb_ary_new_from_args(4, penstock_name(place->topic), INT2NUM(place->partition),
                                                 place->offset < 0 ? Qnil : LL2NUM(place->offset), error));
    }
    return places;
}

static void add(VALUE hash, const char *name, VALUE value)
{
    rb_hash_aset(hash, ID2SYM(rb_intern(name)), value);
}

static VALUE read_item(VALUE arg)
{
    const struct reading *reading = (const struct reading *)arg;
    const struct ps_news_item *item = reading->item;
    VALUE error = Qnil;
    if (item->kind == PS_NEWS_ERROR) error = error_of(reading, penstock_cluster_error, NULL, item->err, item->text);
    else if (item->kind == PS_NEWS_COMMIT && item->err)
        error = error_of(reading, penstock_commit_error, NULL, item->err, "the offsets were not committed");
    VALUE news = rb_hash_new();
    add(news, "kind", name_of(item->kind));
    add(news, "places", places_of(reading));
    add(news, "error", error);
    add(news, "lost", item->lost ? Qtrue : Qfalse);
    return news;
}

/* { kind:, places:, error: or nil, lost: }; nil: there is no more */
static VALUE consumer_call_news(VALUE self)
{
    struct ps_consumer *consumer = penstock_consumer_any(self);
    if (ps_client_inherited(&consumer->client)) return Qnil;
    struct ps_news_item *item = ps_news_take(&consumer->news);
    if (!item) return Qnil;
    struct reading reading = { consumer, item };
    int failed = 0;
    VALUE news = rb_protect(read_item, (VALUE)&reading, &failed);
    ps_news_free(item);
    if (failed) rb_jump_tag(failed);
    RB_GC_GUARD(self);
    return news;
}

/* librdkafka's latest as JSON; nil: none came */
static VALUE consumer_call_statistics(VALUE self)
{
    struct ps_consumer *consumer = penstock_consumer_any(self);
    char *text = ps_client_inherited(&consumer->client) ? NULL : ps_news_latest_statistics(&consumer->news);
    if (!text) return Qnil;
    VALUE json = penstock_json(text, strlen(text)); /* if there is no memory, the text is lost too */
    free(text);
    return json;
}

static uint32_t queue_length(struct ps_consumer *consumer)
{
    if (!ps_client_enter(&consumer->client)) return 0;
    size_t length = rd_kafka_queue_length(consumer->data);
    ps_client_exit(&consumer->client);
    return (uint32_t)length;
}

/* { name: number } since the client was opened. All 0 in a fork child. */
static VALUE consumer_call_counts(VALUE self)
{
    struct ps_consumer *consumer = penstock_consumer_any(self);
    bool ours = !ps_client_inherited(&consumer->client);
    VALUE numbers = rb_hash_new();
#define COUNT(name) add(numbers, #name, ULL2NUM(ours ? atomic_load(&consumer->counts.name) : 0));
    PS_CONSUMER_COUNTS(COUNT)
#undef COUNT
    add(numbers, "queue_length", UINT2NUM(ours ? queue_length(consumer) : 0));
    add(numbers, "assigned_partitions", UINT2NUM(ours ? atomic_load(&consumer->counts.assigned) : 0));
    add(numbers, "dropped_events", ULL2NUM(ours ? atomic_load(&consumer->news.dropped) : 0));
    RB_GC_GUARD(self);
    return numbers;
}

void penstock_consumer_news_init(VALUE client_class)
{
    rb_define_method(client_class, "listen", consumer_call_listen, 2);
    rb_define_method(client_class, "news", consumer_call_news, 0);
    rb_define_method(client_class, "statistics", consumer_call_statistics, 0);
    rb_define_method(client_class, "counts", consumer_call_counts, 0);
}
