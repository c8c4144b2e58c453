/*
 * Penstock::Native::EventSource: owns a producer's queue of events (core/client/events.c), and the labels of messages in flight
 * whose events have subscribers. lib/penstock/native/event_source.rb has the rest. Any thread of the main Ractor, in the parent
 * process and in fork children. Any Ractor may put labels in.
 */
#include "ruby/penstock.h"

static VALUE source_class;

struct source_object {
    _Atomic(struct ps_events *) events; /* owns a reference */
    _Atomic bool held; /* Ruby's `hold` has been called: it keeps this object alive while events may come */
};

/* Also marks the parent process's labels in a fork child, until the child has replaced the queue. */
static void source_mark(void *data)
{
    const struct ps_events *events = atomic_load(&((struct source_object *)data)->events);
    for (uint32_t i = 0; events && i < events->label_count; i++)
        if (events->labels[i]) rb_gc_mark_movable(events->labels[i]); /* M:labels_mark */
}

static void source_compact(void *data)
{
    const struct ps_events *events = atomic_load(&((struct source_object *)data)->events);
    for (uint32_t i = 0; events && i < events->label_count; i++)
        if (events->labels[i]) events->labels[i] = rb_gc_location(events->labels[i]); /* M:labels_relocation */
}

static void leave(struct ps_events *events)
{
    if (!events || events->generation != ps_generation()) return;
    atomic_store(&events->wanted, 0);
    atomic_store(&events->attached, false);
    ps_events_clear(events);
    ps_events_unref(events);
}

static void source_free(void *data)
{
    struct source_object *object = data;
    leave(atomic_load(&object->events));
    xfree(object);
}

static size_t source_size(const void *data)
{
    return sizeof(struct source_object) + sizeof(struct ps_events);
}

/* Not write-barrier protected: other Ractors put labels in without a reference to this object. */
static const rb_data_type_t source_type = {
    .wrap_struct_name = "Penstock::Native::EventSource",
    .function = { .dmark = source_mark, .dfree = source_free, .dsize = source_size, .dcompact = source_compact },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static VALUE source_allocate(VALUE klass)
{
    struct source_object *object;
    return TypedData_Make_Struct(klass, struct source_object, &source_type, object);
}

/* In a fork child, an empty queue replaces the inherited one: the parent process publishes its own events. */
struct ps_events *penstock_event_source_get(VALUE self)
{
    struct source_object *object = penstock_data(self, &source_type);
    struct ps_events *events = atomic_load(&object->events);
    if (!events) penstock_raise_uninitialized(self);
    if (events->generation == ps_generation()) return events;

    struct ps_events *fresh = ps_events_new(events->limit, events->drop_newest, ps_delivery_release);
    if (!fresh) rb_memerror();
    atomic_store(&fresh->wanted, atomic_load(&events->wanted));
    if (!atomic_compare_exchange_strong(&object->events, &events, fresh)) {
        ps_events_unref(fresh);
        return events;
    }
    return fresh;
}

static VALUE source_initialize_queue(VALUE self, VALUE limit, VALUE drop_newest)
{
    struct source_object *object = penstock_data(self, &source_type);
    if (atomic_load(&object->events)) rb_raise(rb_eTypeError, "already initialized");
    struct ps_events *events = ps_events_new(NUM2UINT(limit), RTEST(drop_newest), ps_delivery_release);
    if (!events) rb_memerror();
    atomic_store(&object->events, events);
    return self;
}

/* ---- labels ---- */

bool penstock_keep_label(struct ps_delivery *delivery, VALUE label)
{
    struct ps_events *events = NIL_P(label) ? NULL : ps_delivery_producer(delivery)->events;
    if (!ps_events_wanted(events, PS_EVENT_DELIVERED | PS_EVENT_FAILED)) return true;
    delivery->event.label = ps_events_keep_label(events, label);
    return delivery->event.label != 0;
}

static VALUE give_label(struct ps_events *events, uint32_t number)
{
    return number ? (VALUE)ps_events_take_label(events, number) : Qnil;
}

/* ---- staying alive ---- */

/* Call it before sending messages whose delivery events may have subscribers. Runs Ruby code unless it is held already. */
void penstock_event_source_hold(VALUE self)
{
    const struct source_object *object = penstock_data(self, &source_type);
    if (atomic_load(&object->held)) return; /* M:pending_events_hold_producer */
    if (!ps_events_wanted(penstock_event_source_get(self), PS_EVENT_DELIVERED | PS_EVENT_FAILED)) return;
    rb_funcall(self, rb_intern("hold"), 0);
}

static VALUE source_set_held(VALUE self, VALUE held)
{
    struct source_object *object = penstock_data(self, &source_type);
    atomic_store(&object->held, RTEST(held));
    return held;
}

/* ---- taking ---- */

static VALUE report_of(struct ps_events *events, struct ps_event *event)
{
    const struct ps_delivery *delivery = (const struct ps_delivery *)event;
    const char *name = delivery->topic_name->text;
    VALUE topic = penstock_name(name);
    return penstock_delivery_report_new(delivery, topic, give_label(events, event->label));
}

static VALUE error_of(const struct ps_notice *notice)
{
    struct penstock_error_context context = penstock_no_context;
    context.err = notice->err;
    context.client = notice->client;
    context.fatal = notice->fatal;
    return penstock_error_new(notice->fatal ? penstock_fatal_error : penstock_cluster_error, &context,
                              penstock_text(notice->text));
}

struct taking {
    struct ps_events *events;
    struct ps_event *event;
};

static VALUE item_of(VALUE arg)
{
    const struct taking *taking = (const struct taking *)arg;
    const struct ps_notice *notice = (const struct ps_notice *)taking->event;
    switch (taking->event->kind) {
    case PS_EVENT_ERROR: return error_of(notice);
    case PS_EVENT_STATISTICS: return penstock_json(notice->text, notice->size);
    case PS_EVENT_CLOSED: return Qnil;
    default: return report_of(taking->events, taking->event);
    }
}

/*
 * Returns the next events, at most `max`. Each is a DeliveryReport, an Error, a String of statistics, or nil: a client is closed.
 * If an event cannot be built (no memory), the event is lost and the error is raised.
 */
static VALUE source_take(VALUE self, VALUE max)
{
    struct ps_events *events = penstock_event_source_get(self);
    VALUE items = rb_ary_new();
    for (long i = NUM2LONG(max); i > 0; i--) {
        struct taking taking = { .events = events, .event = ps_events_take(events) };
        int state = 0;
        if (!taking.event) break;
        VALUE item = rb_protect(item_of, (VALUE)&taking, &state);
        ps_event_free(events, taking.event);
        if (state) rb_jump_tag(state);
        rb_ary_push(items, item);
    }
    RB_GC_GUARD(self);
    return items;
}

/* ---- readers and writers ---- */

static VALUE source_address(VALUE self)
{
    return ULL2NUM(penstock_event_source_get(self)->address);
}

static const struct {
    enum ps_event_kind kind;
    const char *name;
} kinds[] = {
#define KIND(name, bit, text) { PS_EVENT_##name, #text },
    PS_EVENT_KINDS(KIND)
#undef KIND
};

static enum ps_event_kind kind_of(VALUE name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (name == ID2SYM(rb_intern(kinds[i].name))) return kinds[i].kind;
    rb_raise(rb_eArgError, "no kind of event: %+" PRIsVALUE, name);
}

/* The names of the kinds that have listeners. */
static VALUE source_set_wanted(VALUE self, VALUE names)
{
    struct ps_events *events = penstock_event_source_get(self);
    uint32_t wanted = 0;
    Check_Type(names, T_ARRAY);
    for (long i = 0; i < RARRAY_LEN(names); i++) wanted |= kind_of(RARRAY_AREF(names, i));
    atomic_store(&events->wanted, wanted);
    return names;
}

static VALUE source_set_attached(VALUE self, VALUE attached)
{
    atomic_store(&penstock_event_source_get(self)->attached, RTEST(attached));
    return attached;
}

static VALUE source_open_clients(VALUE self)
{
    return UINT2NUM(atomic_load(&penstock_event_source_get(self)->clients));
}

static VALUE source_clear(VALUE self)
{
    ps_events_clear(penstock_event_source_get(self));
    return self;
}

static VALUE source_busy_p(VALUE self)
{
    return ps_dispatch_busy(penstock_event_source_get(self)) ? Qtrue : Qfalse;
}

/* [queued so far, dropped so far, waiting, labels kept] */
static VALUE source_counts(VALUE self)
{
    struct ps_events *events = penstock_event_source_get(self);
    return rb_ary_new_from_args(4, ULL2NUM(atomic_load(&events->queued)), ULL2NUM(atomic_load(&events->dropped)),
                                UINT2NUM(atomic_load(&events->size)), UINT2NUM(ps_events_labels(events)));
}

void penstock_event_source_init(void)
{
    source_class = rb_const_get(penstock_native, rb_intern("EventSource"));
    rb_gc_register_mark_object(source_class);
    rb_define_alloc_func(source_class, source_allocate);
    rb_define_private_method(source_class, "initialize_queue", source_initialize_queue, 2);
    rb_define_method(source_class, "address", source_address, 0);
    rb_define_method(source_class, "wanted=", source_set_wanted, 1);
    rb_define_method(source_class, "attached=", source_set_attached, 1);
    rb_define_method(source_class, "held=", source_set_held, 1);
    rb_define_method(source_class, "take", source_take, 1);
    rb_define_method(source_class, "open_clients", source_open_clients, 0);
    rb_define_method(source_class, "discard", source_clear, 0);
    rb_define_method(source_class, "busy?", source_busy_p, 0);
    rb_define_method(source_class, "counts", source_counts, 0);
}
