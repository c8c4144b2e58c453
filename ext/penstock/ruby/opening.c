/*
 * Opening and closing, which a Client and a Consumer do alike: what Ruby has to see to around core/open.c.
 */
#include "ruby/penstock.h"
#include <errno.h>

void penstock_check_open(const struct ps_client *client)
{
    if (atomic_load(&client->state) >= PS_CLOSING) penstock_raise_closed(client);
}

/* ---- opening ---- */

struct open_call {
    struct ps_client *client;
    int result;
    char errstr[512];
};

static void *open_nogvl(void *arg)
{
    struct open_call *call = arg;
    call->result = ps_client_open(call->client, call->errstr, sizeof(call->errstr));
    return NULL;
}

static VALUE open_body(VALUE call)
{
    penstock_nogvl(open_nogvl, (void *)call);
    return Qnil;
}

/* Also when whoever opens it was interrupted: nobody would do so later. */
static VALUE tell_source(VALUE source)
{
    return NIL_P(source) ? Qnil : rb_funcall(source, rb_intern("client_opened"), 0);
}

static void attach_dispatcher(const struct ps_client *client, VALUE logger)
{
    if (NIL_P(logger)) return;
    VALUE dispatcher = rb_const_get(penstock_module, rb_intern("LogDispatcher"));
    rb_funcall(dispatcher, rb_intern("attach"), 2, ULL2NUM(client->address), logger);
}

bool penstock_open(struct ps_client *client, VALUE logger, VALUE token_refresher, VALUE source)
{
    penstock_check_open(client);
    if (atomic_load(&client->state) != PS_NEW) return false;
    struct open_call call = { .client = client };
    VALUE trap = rb_const_get(penstock_module, rb_intern("SignalTrap"));
    rb_funcall(trap, rb_intern("refuse"), 1, penstock_text("connecting")); /* what is attached below takes locks of Ruby's */
    penstock_exit_arm();
    attach_dispatcher(client, logger);
    penstock_attach_refresher(token_refresher, client->address, client);
    penstock_check_forked(client->generation); /* by a trap: it is the parent's then */
    rb_ensure(open_body, (VALUE)&call, tell_source, source);
    penstock_check_forked(client->generation);
    int state = atomic_load(&client->state);
    if (client->settings->logs_to_mailbox && (state == PS_NEW || state == PS_CLOSED))
        ps_mailbox_post(client->address, PS_MAIL_LAST, ""); /* it did not open, or was closed meanwhile */
    if (call.result < 0) {
        struct penstock_error_context context = penstock_no_context;
        context.client = client;
        penstock_raise(penstock_config_error, &context, "%s", call.errstr);
    }
    penstock_check_open(client);
    return true;
}

/* ---- closing ---- */

struct close_call {
    struct ps_client *client;
    int64_t timeout_ms;
    struct ps_job *closing;
    int failed;
};

static void *close_nogvl(void *arg) /* may wait for another thread that is just opening it */
{
    struct close_call *call = arg;
    call->closing = ps_client_close(call->client, call->timeout_ms, NULL);
    call->failed = errno;
    return NULL;
}

bool penstock_close(struct ps_client *client, int64_t timeout_ms, int64_t margin_ms)
{
    struct close_call call = { .client = client, .timeout_ms = timeout_ms };
    int64_t deadline_us = timeout_ms < 0 ? PS_FOREVER : ps_deadline_us(timeout_ms + timeout_ms / 10 + margin_ms);
    penstock_nogvl(close_nogvl, &call);
    if (call.closing) return penstock_wait_job(call.closing, deadline_us);
    if (atomic_load(&client->state) == PS_OPEN) rb_syserr_fail(call.failed ? call.failed : EAGAIN, "cannot start a thread to close");
    return true;
}

void penstock_begin_closing(struct ps_client *client, int64_t timeout_ms)
{
    struct close_call call = { .client = client, .timeout_ms = timeout_ms };
    penstock_nogvl_now(close_nogvl, &call);
    if (call.closing) ps_job_unref(call.closing);
}
