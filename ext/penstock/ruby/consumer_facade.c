/*
 * Penstock::Consumer: its methods that programs call for each message. Each calls the method of the same name of the consumer's
 * client. In Ruby it would cost 30 to 50 ns more, and a Hash for the keywords. The client is a Penstock::Native::ConsumerClient, or,
 * in a test, an object of config.client_class.
 */
#include "ruby/penstock.h"

static VALUE facade_class;
static ID id_poll, id_poll_batch, id_mark, id_owns;

struct facade {
    VALUE client; /* 0 before it is attached */
    bool native;  /* it is a ConsumerClient */
};

static void facade_gc_mark(void *data)
{
    rb_gc_mark_movable(((struct facade *)data)->client);
}

static void facade_compact(void *data)
{
    struct facade *facade = data;
    facade->client = rb_gc_location(facade->client);
}

static size_t facade_size(const void *data)
{
    (void)data;
    return sizeof(struct facade);
}

static const rb_data_type_t facade_type = {
    .wrap_struct_name = "Penstock::Consumer",
    .function = { .dmark = facade_gc_mark, .dfree = RUBY_DEFAULT_FREE, .dsize = facade_size, .dcompact = facade_compact },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE facade_allocate(VALUE klass)
{
    struct facade *facade;
    return TypedData_Make_Struct(klass, struct facade, &facade_type, facade);
}

/* attach(consumer, client), once, before the consumer is used */
static VALUE s_attach(VALUE klass, VALUE consumer, VALUE client)
{
    struct facade *facade = penstock_data(consumer, &facade_type);
    RB_OBJ_WRITE(consumer, &facade->client, client);
    facade->native = penstock_is_consumer_client(client);
    return Qnil;
}

/* Raises TypeError: it is no consumer, or not complete. */
static const struct facade *facade_of(VALUE consumer)
{
    const struct facade *facade = penstock_data(consumer, &facade_type);
    if (!facade->client) penstock_raise_uninitialized(consumer);
    return facade;
}

VALUE penstock_consumer_client(VALUE consumer)
{
    const struct facade *facade = facade_of(consumer);
    if (!facade->native)
        rb_raise(rb_eTypeError, "a consumer with config.client_class has no client of librdkafka: its methods can be called, but no "
                                "ConsumerSet or producer can use it");
    return facade->client;
}

static VALUE facade_poll(int argc, VALUE *argv, VALUE self)
{
    const struct facade *facade = facade_of(self);
    if (facade->native) return penstock_consumer_poll(argc, argv, facade->client);
    return rb_funcallv_kw(facade->client, id_poll, argc, argv, RB_PASS_CALLED_KEYWORDS);
}

static VALUE facade_poll_batch(int argc, VALUE *argv, VALUE self)
{
    const struct facade *facade = facade_of(self);
    if (facade->native) return penstock_consumer_poll_batch(argc, argv, facade->client);
    return rb_funcallv_kw(facade->client, id_poll_batch, argc, argv, RB_PASS_CALLED_KEYWORDS);
}

static VALUE facade_mark(VALUE self, VALUE what)
{
    const struct facade *facade = facade_of(self);
    return facade->native ? penstock_consumer_mark(facade->client, what) : rb_funcall(facade->client, id_mark, 1, what);
}

static VALUE facade_revoked(VALUE self, VALUE what)
{
    return RTEST(rb_funcall(facade_of(self)->client, id_owns, 1, what)) ? Qfalse : Qtrue;
}

void penstock_consumer_facade_init(void)
{
    facade_class = rb_const_get(penstock_module, rb_intern("Consumer"));
    rb_gc_register_mark_object(facade_class);
    rb_define_alloc_func(facade_class, facade_allocate);
    id_poll = rb_intern("poll");
    id_poll_batch = rb_intern("poll_batch");
    id_mark = rb_intern("mark");
    id_owns = rb_intern("owns?");
    VALUE client_class = rb_const_get(penstock_native, rb_intern("ConsumerClient"));
    rb_define_singleton_method(client_class, "attach", s_attach, 2);
    rb_define_method(facade_class, "poll", facade_poll, -1);
    rb_define_method(facade_class, "poll_batch", facade_poll_batch, -1);
    rb_define_method(facade_class, "mark", facade_mark, 1);
    rb_define_method(facade_class, "revoked?", facade_revoked, 1);
}
