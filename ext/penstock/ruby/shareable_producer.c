/*
 * Penstock::ShareableProducer: a producer's handle for any Ractor. Penstock::Native::ClientReference: its counterpart in the main
 * Ractor. Both reference the same ps_slot (core/produce/slot.c), which has the producer's current client. The handle is frozen
 * and references only shareable objects, so any number of Ractors, threads and fibers may use it.
 */
#include "ruby/penstock.h"
#include <ruby/encoding.h>
#include <ruby/ractor.h>

static VALUE shareable_class, slot_class;

/* ---- the main Ractor's side ---- */

struct slot_object {
    struct ps_slot *slot; /* owns a reference */
};

static void slot_free(void *data)
{
    struct slot_object *object = data;
    if (object->slot) ps_slot_unref(object->slot);
    xfree(object);
}

static size_t slot_size(const void *data)
{
    return sizeof(struct slot_object) + sizeof(struct ps_slot);
}

static const rb_data_type_t slot_type = {
    .wrap_struct_name = "Penstock::Native::ClientReference",
    .function = { .dfree = slot_free, .dsize = slot_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE slot_allocate(VALUE klass)
{
    struct slot_object *object;
    VALUE self = TypedData_Make_Struct(klass, struct slot_object, &slot_type, object);
    object->slot = ps_slot_new();
    if (!object->slot) rb_memerror();
    return self;
}

static struct ps_slot *slot_get(VALUE self)
{
    const struct slot_object *object = penstock_data(self, &slot_type);
    if (!object->slot) penstock_raise_uninitialized(self);
    return object->slot;
}

static VALUE slot_inherited_p(VALUE self)
{
    return slot_get(self)->generation == ps_generation() ? Qfalse : Qtrue;
}

/* client=: a ProducerClient, which this opens; or nil. */
static VALUE slot_set_client(VALUE self, VALUE producer)
{
    if (NIL_P(producer)) ps_slot_put(slot_get(self), NULL, NULL);
    else ps_slot_put(slot_get(self), penstock_producer_open(producer), &penstock_producer_data(producer)->terms);
    return producer;
}

/* barred=: calls raise NotShareableError with this text from now on; nil: they do not any more. */
static VALUE slot_set_barred(VALUE self, VALUE why)
{
    ps_slot_bar(slot_get(self), NIL_P(why) ? "" : StringValueCStr(why));
    return why;
}

/* Identifies a Ruby thread by its object: Ruby pins the objects of living threads. The native thread of a Ruby thread may
 * change. */
static uint64_t this_thread(void)
{
    return (uint64_t)rb_thread_current();
}

static VALUE slot_set_changing(VALUE self, VALUE changing)
{
    ps_slot_change(slot_get(self), RTEST(changing) ? this_thread() : 0);
    return changing;
}

static VALUE slot_close(VALUE self)
{
    ps_slot_close(slot_get(self));
    return Qnil;
}

static VALUE slot_attend(VALUE self, VALUE attend)
{
    return ps_slot_attend(slot_get(self), RTEST(attend)) ? Qtrue : Qfalse;
}

/* Waits until a handle asks for a client, and returns the question's number. nil: no handle is left that could ask. */
static VALUE slot_await(VALUE self)
{
    struct ps_slot *slot = slot_get(self);
    for (;;) {
        bool over;
        uint32_t heard = atomic_load(&slot->asks.rings);
        uint64_t question = ps_slot_question(slot, &over);
        if (over) return Qnil;
        if (question) return ULL2NUM(question);
        penstock_wait_bell(&slot->asks, heard, PS_FOREVER);
    }
}

static VALUE slot_answer(VALUE self, VALUE question, VALUE trouble)
{
    ps_slot_answer(slot_get(self), NUM2ULL(question), NIL_P(trouble) ? "" : StringValueCStr(trouble));
    return Qnil;
}

/* ---- the handle ---- */

struct shareable_object {
    struct ps_slot *slot; /* owns a reference, as a handle */
    VALUE id;             /* a frozen String */
    VALUE timeout_ms;     /* Integer or nil */
    VALUE serializer;     /* a Producer::Serializer that is shareable, or nil */
};

static void shareable_mark(void *data)
{
    const struct shareable_object *object = data;
    rb_gc_mark(object->id);
    rb_gc_mark(object->timeout_ms);
    rb_gc_mark(object->serializer);
}

static void shareable_free(void *data)
{
    struct shareable_object *object = data;
    if (object->slot) ps_slot_handle_gone(object->slot);
    xfree(object);
}

static size_t shareable_size(const void *data)
{
    return sizeof(struct shareable_object);
}

static const rb_data_type_t shareable_type = {
    .wrap_struct_name = "Penstock::ShareableProducer",
    .function = { .dmark = shareable_mark, .dfree = shareable_free, .dsize = shareable_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED | RUBY_TYPED_FROZEN_SHAREABLE, /* M:handle_frozen */
};

static const struct shareable_object *shareable_get(VALUE self)
{
    const struct shareable_object *object = penstock_data(self, &shareable_type);
    if (!object->slot) penstock_raise_uninitialized(self);
    return object;
}

/* handle(id, timeout_ms, serializer) */
static VALUE slot_handle(VALUE self, VALUE id, VALUE timeout_ms, VALUE serializer)
{
    struct shareable_object *object;
    Check_Type(id, T_STRING);
    struct ps_slot *slot = slot_get(self);
    VALUE handle = TypedData_Make_Struct(shareable_class, struct shareable_object, &shareable_type, object);
    object->id = object->timeout_ms = object->serializer = Qnil;
    RB_OBJ_WRITE(handle, &object->id, rb_enc_interned_str(RSTRING_PTR(id), RSTRING_LEN(id), rb_enc_get(id)));
    RB_OBJ_WRITE(handle, &object->timeout_ms, timeout_ms);
    RB_OBJ_WRITE(handle, &object->serializer, serializer);
    object->slot = slot;
    ps_slot_handle_made(slot);
    return rb_obj_freeze(handle);
}

static struct penstock_error_context context_of(const struct shareable_object *object)
{
    struct penstock_error_context context = penstock_no_context;
    context.producer_id = object->id;
    return context;
}

/* Raises if the handle cannot produce now. */
static struct penstock_sender enter(VALUE self)
{
    const struct shareable_object *object = shareable_get(self);
    struct penstock_sender sender = { .self = Qnil, .slot = object->slot };
    struct penstock_error_context context = context_of(object);
    char why[256];
    switch (ps_slot_enter(object->slot, &sender.terms, why, sizeof(why))) {
    case PS_SLOT_OPEN: return sender;
    case PS_SLOT_BARRED: penstock_raise(penstock_not_shareable_error, &context, "%s", why);
    case PS_SLOT_CLOSED: penstock_raise(penstock_closed_error, &context, "the producer is closed");
    default:
        penstock_raise(penstock_forked_error, &context,
                       "this handle belongs to the parent process; ask the producer for a new handle here");
    }
}

static VALUE shareable_id(VALUE self)
{
    return shareable_get(self)->id;
}

static VALUE shareable_timeout(VALUE self)
{
    return shareable_get(self)->timeout_ms;
}

static VALUE shareable_serializer(VALUE self)
{
    return shareable_get(self)->serializer;
}

static VALUE shareable_closed_p(VALUE self)
{
    struct ps_limits terms;
    char why[256];
    return ps_slot_enter(shareable_get(self)->slot, &terms, why, sizeof(why)) >= PS_SLOT_CLOSED ? Qtrue : Qfalse;
}

/* Both return nil if the producer has no client at the moment. */
static VALUE shareable_hand_over(VALUE self, VALUE message)
{
    struct penstock_sender sender = enter(self);
    VALUE handle = penstock_produce(&sender, message);
    RB_GC_GUARD(self);
    return handle;
}

static VALUE shareable_hand_over_many(VALUE self, VALUE messages, VALUE timeout_ms)
{
    penstock_before_producing_many(timeout_ms);
    struct penstock_sender sender = enter(self);
    VALUE result = penstock_produce_many(&sender, messages, timeout_ms, Qnil);
    RB_GC_GUARD(self);
    return result;
}

/*
 * renew(handle or nil): waits until the producer has replaced the client of the handle's message; nil: until it has a client that
 * works. False: nothing is wrong with the client, or the producer does not replace it.
 */
static VALUE shareable_renew(VALUE self, VALUE handle)
{
    struct ps_slot *slot = shareable_get(self)->slot;
    struct penstock_error_context context = context_of(shareable_get(self));
    uint64_t failed = NIL_P(handle) ? 0 : penstock_delivery_handle_producer(handle)->client.address, question = 0;
    bool answered = false, renewed;
    for (;;) {
        uint32_t heard = atomic_load(&slot->answers.rings);
        enter(self); /* after reading `rings`: a close rings, and afterwards no thread answers */
        renewed = ps_slot_renewed(slot, failed, &question, &answered);
        if (renewed || answered) break;
        if (ps_slot_changed_by(slot, this_thread()))
            penstock_raise(penstock_listener_deadlock_error, &context,
                           "a listener has used a handle of a producer that is replacing its client and waits for the "
                           "listener's end; do it in another thread, or on \"producer.connected\"");
        penstock_wait_bell(&slot->answers, heard, PS_FOREVER);
    }
    RB_GC_GUARD(handle);
    char trouble[512] = "";
    if (!renewed && question) ps_slot_trouble(slot, trouble, sizeof(trouble));
    if (*trouble) penstock_raise(penstock_produce_error, &penstock_no_context, "%s", trouble); /* it names the producer */
    RB_GC_GUARD(self);
    return renewed ? Qtrue : Qfalse;
}

static VALUE shareable_timeout_error(VALUE self, VALUE text, VALUE topic)
{
    struct penstock_error_context context = context_of(shareable_get(self));
    context.err = RD_KAFKA_RESP_ERR__TIMED_OUT;
    context.topic = topic;
    return penstock_error_new(penstock_timeout_error, &context, text);
}

void penstock_shareable_producer_init(void)
{
    slot_class = rb_const_get(penstock_native, rb_intern("ClientReference"));
    rb_gc_register_mark_object(slot_class);
    rb_define_alloc_func(slot_class, slot_allocate);
    rb_define_method(slot_class, "inherited?", slot_inherited_p, 0);
    rb_define_method(slot_class, "client=", slot_set_client, 1);
    rb_define_method(slot_class, "barred=", slot_set_barred, 1);
    rb_define_method(slot_class, "changing=", slot_set_changing, 1);
    rb_define_method(slot_class, "close", slot_close, 0);
    rb_define_method(slot_class, "attend", slot_attend, 1);
    rb_define_method(slot_class, "await", slot_await, 0);
    rb_define_method(slot_class, "answer", slot_answer, 2);
    rb_define_method(slot_class, "handle", slot_handle, 3);

    shareable_class = rb_const_get(penstock_module, rb_intern("ShareableProducer"));
    rb_gc_register_mark_object(shareable_class);
    rb_undef_alloc_func(shareable_class);
    rb_undef_method(shareable_class, "initialize_copy");
    rb_define_method(shareable_class, "id", shareable_id, 0);
    rb_define_method(shareable_class, "max_wait_timeout", shareable_timeout, 0);
    rb_define_method(shareable_class, "closed?", shareable_closed_p, 0);
    rb_define_private_method(shareable_class, "serializer", shareable_serializer, 0);
    rb_define_private_method(shareable_class, "hand_over", shareable_hand_over, 1);
    rb_define_private_method(shareable_class, "hand_over_many", shareable_hand_over_many, 2);
    rb_define_private_method(shareable_class, "renew", shareable_renew, 1);
    rb_define_method(shareable_class, "timeout_error", shareable_timeout_error, 2);
}
