/*
 * Penstock::DeliveryHandle: owns a reference to one ps_delivery. The object's data pointer is the delivery itself, and keeps the
 * delivery's chunk alive. The delivery stores two Ruby objects for its handle, `topic` and `label`. Only the handle reads, marks
 * and moves them. Any thread of the process that made the handle may use it.
 */
#include "ruby/penstock.h"

static VALUE handle_class, report_class;
static VALUE sym_not_persisted, sym_possibly_persisted, sym_persisted, sym_timeout, sym_max_wait_timeout_ms;

/* ---- GC ---- */

static void handle_mark(void *data) /* Ruby calls none of these functions before a delivery is attached */
{
    struct ps_delivery *delivery = data;
    rb_gc_mark_movable(delivery->topic); /* M:gc_handle_topic_mark */
    rb_gc_mark_movable(delivery->label); /* M:gc_handle_label_mark */
}

static void handle_compact(void *data)
{
    struct ps_delivery *delivery = data;
    delivery->topic = rb_gc_location(delivery->topic); /* M:gc_handle_topic_relocation */
    delivery->label = rb_gc_location(delivery->label); /* M:gc_handle_label_relocation */
}

static void handle_free(void *data)
{
    ps_delivery_unref(data); /* M:handle_frees_delivery */
}

static size_t handle_size(const void *data)
{
    const struct ps_delivery *delivery = data;
    return sizeof(*delivery) + (delivery->partition_key ? delivery->partition_key->size : 0);
}

static const rb_data_type_t handle_type = {
    .wrap_struct_name = "Penstock::DeliveryHandle",
    .function = { .dmark = handle_mark, .dfree = handle_free, .dsize = handle_size, .dcompact = handle_compact },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

/* A handle is made in two steps. Only this first step can raise, and the caller owns nothing native yet. */
VALUE penstock_delivery_handle_new(void)
{
    return TypedData_Wrap_Struct(handle_class, &handle_type, NULL);
}

/* Retains the delivery. */
void penstock_delivery_handle_attach(VALUE self, struct ps_delivery *delivery, VALUE topic, VALUE label)
{
    ps_delivery_retain(delivery);
    RTYPEDDATA_DATA(self) = delivery;
    RB_OBJ_WRITE(self, &delivery->topic, topic);
    RB_OBJ_WRITE(self, &delivery->label, label);
}

static struct ps_delivery *handle_get(VALUE self)
{
    return penstock_data(self, &handle_type);
}

const struct ps_producer *penstock_delivery_handle_producer(VALUE self)
{
    return ps_delivery_producer(handle_get(self));
}

/* A message that was in flight at the fork stays pending in a fork child: only the parent process gets its delivery result. */
static void check_not_inherited(const struct ps_delivery *delivery)
{
    const struct ps_producer *producer = ps_delivery_producer(delivery);
    if (ps_delivery_settled(delivery) || !ps_client_inherited(&producer->client)) return; /* M:fork_handle_raises */
    struct penstock_error_context context = penstock_no_context;
    context.client = &producer->client;
    context.topic = (VALUE)delivery->topic;
    penstock_raise(penstock_forked_error, &context,
                   "the message was produced before this process was forked; only the parent process gets its delivery result");
}

/* ---- methods; documented in lib/penstock/producer/delivery_handle.rb ---- */

static VALUE handle_pending_p(VALUE self)
{
    return ps_delivery_settled(handle_get(self)) ? Qfalse : Qtrue;
}

static VALUE handle_topic(VALUE self)
{
    return (VALUE)handle_get(self)->topic;
}

static VALUE handle_label(VALUE self)
{
    return (VALUE)handle_get(self)->label;
}

static VALUE handle_error(VALUE self)
{
    struct ps_delivery *delivery = handle_get(self);
    if (!ps_delivery_settled(delivery)) return Qnil;
    ps_unnoticed_read(delivery);
    return penstock_delivery_error_new(delivery, (VALUE)delivery->topic);
}

static VALUE status_symbol(const struct ps_delivery *delivery)
{
    switch (delivery->status) {
    case RD_KAFKA_MSG_STATUS_PERSISTED: return sym_persisted;
    case RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED: return sym_possibly_persisted;
    default: return sym_not_persisted;
    }
}

static VALUE handle_status(VALUE self)
{
    const struct ps_delivery *delivery = handle_get(self);
    if (!ps_delivery_settled(delivery)) return Qnil;
    ps_unnoticed_read(delivery);
    return status_symbol(delivery);
}

/* For inspect and as_json. Printing a handle, as a debugger or a logger does, does not count as noticing its failure. */
static VALUE handle_printed_status(VALUE self)
{
    const struct ps_delivery *delivery = handle_get(self);
    return ps_delivery_settled(delivery) ? status_symbol(delivery) : Qnil;
}

VALUE penstock_delivery_report_new(const struct ps_delivery *delivery, VALUE topic, VALUE label)
{
    VALUE arguments[] = {
        topic,
        delivery->partition < 0 ? Qnil : INT2NUM(delivery->partition),
        delivery->offset < 0 ? Qnil : LL2NUM(delivery->offset),
        delivery->timestamp < 0 ? Qnil : LL2NUM(delivery->timestamp),
        delivery->err ? Qnil : DBL2NUM((double)delivery->latency_us / 1000),
        status_symbol(delivery),
        label,
        penstock_delivery_error_new(delivery, topic),
    };
    return rb_class_new_instance(sizeof(arguments) / sizeof(*arguments), arguments, report_class);
}

static VALUE report_of(const struct ps_delivery *delivery, VALUE self)
{
    ps_unnoticed_read(delivery);
    VALUE report = penstock_delivery_report_new(delivery, (VALUE)delivery->topic, (VALUE)delivery->label);
    RB_GC_GUARD(self); /* the handle keeps the delivery alive */
    return report;
}

static VALUE handle_report(VALUE self)
{
    const struct ps_delivery *delivery = handle_get(self);
    return ps_delivery_settled(delivery) ? report_of(delivery, self) : Qnil;
}

NORETURN(static void raise_timeout(const struct ps_delivery *delivery, VALUE waited, const char *unit));
static void raise_timeout(const struct ps_delivery *delivery, VALUE waited, const char *unit)
{
    struct penstock_error_context context = penstock_no_context;
    context.err = RD_KAFKA_RESP_ERR__TIMED_OUT;
    context.client = &ps_delivery_producer(delivery)->client;
    context.topic = (VALUE)delivery->topic;
    penstock_raise(penstock_timeout_error, &context, "no delivery result within %" PRIsVALUE " %s", waited, unit);
}

enum { DEFAULT_WAIT_S = 180 };

static VALUE handle_wait(int argc, VALUE *argv, VALUE self)
{
    struct ps_delivery *delivery = handle_get(self);
    const VALUE names[] = { sym_timeout, sym_max_wait_timeout_ms };
    VALUE values[] = { Qundef, Qundef };
    penstock_keywords(argc, argv, 0, "wait(timeout: 180)", 2, names, values);
    bool in_ms = values[1] != Qundef;
    if (in_ms && values[0] != Qundef) rb_raise(rb_eArgError, "give timeout: or max_wait_timeout_ms:, not both");
    VALUE limit = in_ms ? values[1] : values[0] == Qundef ? INT2FIX(DEFAULT_WAIT_S) : values[0];
    int64_t timeout_ms = in_ms ? penstock_timeout_ms(limit) : penstock_seconds(limit);

    if (!ps_delivery_settled(delivery)) {
        check_not_inherited(delivery);
        if (!penstock_wait_delivery(delivery, ps_deadline_us(timeout_ms))) raise_timeout(delivery, limit, in_ms ? "ms" : "s");
    }
    VALUE report = report_of(delivery, self);
    if (delivery->err) rb_exc_raise(rb_funcall(report, rb_intern("error"), 0));
    RB_GC_GUARD(self);
    return report;
}

/*
 * Waits until each of the handles has its delivery result. nil: the time ran out first. Otherwise returns whether all messages
 * were delivered.
 */
/*
 * A client that sends nothing (Penstock::Clients) gives handles of a class of its own, which have their delivery result from the
 * start. Programs must not have to know which client they use.
 */
static bool is_settled_stand_in(VALUE handle)
{
    if (rb_typeddata_is_kind_of(handle, &handle_type)) return false;
    if (!rb_respond_to(handle, rb_intern("pending?")) || !rb_respond_to(handle, rb_intern("delivered?"))) return false;
    return !RTEST(rb_funcall(handle, rb_intern("pending?"), 0));
}

static VALUE s_await_all(int argc, VALUE *argv, VALUE self)
{
    VALUE timeout = INT2FIX(DEFAULT_WAIT_S);
    penstock_keywords(argc, argv, 1, "await_all(handles, timeout: 180)", 1, &sym_timeout, &timeout);
    int64_t deadline_us = ps_deadline_us(penstock_seconds(timeout));
    bool delivered = true;
    Check_Type(argv[0], T_ARRAY);
    VALUE handles = rb_ary_dup(argv[0]); /* a copy that nothing else can change during the waits */
    for (long i = 0; i < RARRAY_LEN(handles); i++) {
        VALUE handle = RARRAY_AREF(handles, i);
        if (is_settled_stand_in(handle)) {
            if (!RTEST(rb_funcall(handle, rb_intern("delivered?"), 0))) delivered = false;
            continue;
        }
        struct ps_delivery *delivery = handle_get(handle);
        if (!ps_delivery_settled(delivery)) {
            check_not_inherited(delivery);
            if (!penstock_wait_delivery(delivery, deadline_us)) return Qnil;
        }
        if (delivery->err) delivered = false;
        ps_unnoticed_read(delivery);
    }
    RB_GC_GUARD(handles);
    return delivered ? Qtrue : Qfalse;
}

void penstock_delivery_handle_init(void)
{
    handle_class = rb_const_get(penstock_module, rb_intern("DeliveryHandle"));
    report_class = rb_const_get(penstock_module, rb_intern("DeliveryReport"));
    rb_gc_register_mark_object(handle_class); /* M:gc_handle_class */
    rb_gc_register_mark_object(report_class); /* M:gc_report_class */
    sym_not_persisted = ID2SYM(rb_intern("not_persisted"));
    sym_possibly_persisted = ID2SYM(rb_intern("possibly_persisted"));
    sym_persisted = ID2SYM(rb_intern("persisted"));
    sym_timeout = ID2SYM(rb_intern("timeout"));
    sym_max_wait_timeout_ms = ID2SYM(rb_intern("max_wait_timeout_ms"));

    rb_undef_alloc_func(handle_class);
    rb_define_method(handle_class, "pending?", handle_pending_p, 0);
    rb_define_method(handle_class, "topic", handle_topic, 0);
    rb_define_method(handle_class, "label", handle_label, 0);
    rb_define_method(handle_class, "error", handle_error, 0);
    rb_define_method(handle_class, "report", handle_report, 0);
    rb_define_method(handle_class, "status", handle_status, 0);
    rb_define_private_method(handle_class, "printed_status", handle_printed_status, 0);
    rb_define_method(handle_class, "wait", handle_wait, -1);
    rb_define_singleton_method(handle_class, "await_all", s_await_all, -1);
}
