/*
 * Penstock::Consumer: its methods that programs call for each message. Each calls the method of the same name of the consumer's
 * client. In Ruby it would cost 30 to 50 ns more, and a Hash for the keywords. The client is in an instance variable that Ruby code
 * cannot name, so no subclass can replace it by accident. It is a Penstock::Native::ConsumerClient, or, in a test, an object of
 * config.client_class.
 */
#include "ruby/penstock.h"

static VALUE facade_class;
static ID id_client, id_poll, id_poll_batch, id_mark, id_owns;

/* attach(consumer, client), once, before the consumer is used */
static VALUE s_attach(VALUE klass, VALUE consumer, VALUE client)
{
    rb_ivar_set(consumer, id_client, client);
    return Qnil;
}

/* Raises TypeError: it is no consumer, or not complete. */
static VALUE client_of(VALUE consumer)
{
    VALUE client = rb_ivar_get(consumer, id_client);
    if (NIL_P(client)) penstock_raise_uninitialized(consumer);
    return client;
}

VALUE penstock_consumer_client(VALUE consumer)
{
    if (!rb_obj_is_kind_of(consumer, facade_class))
        rb_raise(rb_eTypeError, "wrong argument type %" PRIsVALUE " (expected Penstock::Consumer)", rb_obj_class(consumer));
    VALUE client = client_of(consumer);
    if (!penstock_is_consumer_client(client))
        rb_raise(rb_eTypeError, "a consumer with config.client_class has no client of librdkafka: its methods can be called, but no "
                                "ConsumerSet or producer can use it");
    return client;
}

static VALUE facade_poll(int argc, VALUE *argv, VALUE self)
{
    VALUE client = client_of(self);
    if (penstock_is_consumer_client(client)) return penstock_consumer_poll(argc, argv, client);
    return rb_funcallv_kw(client, id_poll, argc, argv, RB_PASS_CALLED_KEYWORDS);
}

static VALUE facade_poll_batch(int argc, VALUE *argv, VALUE self)
{
    VALUE client = client_of(self);
    if (penstock_is_consumer_client(client)) return penstock_consumer_poll_batch(argc, argv, client);
    return rb_funcallv_kw(client, id_poll_batch, argc, argv, RB_PASS_CALLED_KEYWORDS);
}

static VALUE facade_mark(VALUE self, VALUE what)
{
    VALUE client = client_of(self);
    return penstock_is_consumer_client(client) ? penstock_consumer_mark(client, what) : rb_funcall(client, id_mark, 1, what);
}

static VALUE facade_revoked(VALUE self, VALUE what)
{
    return RTEST(rb_funcall(client_of(self), id_owns, 1, what)) ? Qfalse : Qtrue;
}

void penstock_consumer_facade_init(void)
{
    facade_class = rb_const_get(penstock_module, rb_intern("Consumer"));
    rb_gc_register_mark_object(facade_class);
    id_client = rb_intern("__penstock_client__");
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
