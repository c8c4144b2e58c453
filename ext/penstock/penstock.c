/* The extension's entry point. lib/penstock.rb defines the module and the errors before it loads this. */
#include "ruby/penstock.h"

VALUE penstock_module; /* M:exports_init_only */
VALUE penstock_native;

static VALUE s_librdkafka_version(VALUE self)
{
    return penstock_text(rd_kafka_version_str());
}

static VALUE s_librdkafka_compiled_version(VALUE self)
{
    return rb_sprintf("%d.%d.%d", RD_KAFKA_VERSION >> 24 & 0xff, RD_KAFKA_VERSION >> 16 & 0xff, RD_KAFKA_VERSION >> 8 & 0xff);
}

/*
 * Every static variable of this extension is one of these: a class, an ID, a symbol or a table that is set here once; an
 * atomic counter; a pointer to something with a lock of its own (singleton.c).
 */
RUBY_FUNC_EXPORTED void Init_penstock(void)
{
    rb_ext_ractor_safe(true); /* M:ractor_safe */
    ps_fork_init();
    penstock_module = rb_const_get(rb_cObject, rb_intern("Penstock"));
    rb_gc_register_mark_object(penstock_module); /* M:gc_penstock_module */
    penstock_native = rb_const_get(penstock_module, rb_intern("Native"));
    rb_gc_register_mark_object(penstock_native);
    rb_define_singleton_method(penstock_module, "librdkafka_version", s_librdkafka_version, 0);
    rb_define_singleton_method(penstock_module, "librdkafka_compiled_version", s_librdkafka_compiled_version, 0);
    penstock_error_init();
    penstock_keywords_init();
    penstock_secret_init();
    penstock_weak_list_init();
    penstock_fiber_wait_init();
    penstock_message_init();
    penstock_poller_init();
    penstock_delivery_handle_init();
    penstock_event_source_init();
    penstock_producer_init();
    penstock_shareable_producer_init();
    penstock_bearer_init();
    penstock_consumed_message_init();
    penstock_batch_init();
    penstock_ledger_init();
    penstock_consumer_init();
    penstock_consumer_set_init();
    penstock_admin_init();
    penstock_log_dispatcher_init();
    penstock_event_worker_init();
    penstock_shared_thread_init();
    penstock_embedded_cluster_init();
    penstock_exit_init();
}
