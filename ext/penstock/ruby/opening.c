/*
 * Opening and closing of a ProducerClient and a Consumer: the Ruby part around core/client/client.c.
 */
#include "ruby/penstock.h"
#include <errno.h>
#include <string.h>

void penstock_check_open(const struct ps_client *client)
{
    if (atomic_load(&client->state) >= PS_CLOSING) penstock_raise_closed(client);
}

/* ---- opening ---- */

/* A job, as penstock_call requires: it owns what the call reads and writes, also if a scheduler drops the calling fiber. */
struct open_call {
    struct ps_job job;
    struct ps_client *client; /* retained */
    int result;
    char errstr[512];
};

static void open_run_nogvl(struct ps_job *job)
{
    struct open_call *call = (struct open_call *)job;
    call->result = ps_client_open(call->client, call->errstr, sizeof(call->errstr));
}

static void open_release_nogvl(struct ps_job *job)
{
    ps_client_unref(((struct open_call *)job)->client);
    free(job);
}

/* What penstock_open passes to open_body, and the result. */
struct opening {
    struct ps_client *client;
    int result;
    char errstr[512];
};

static VALUE open_body(VALUE arg)
{
    struct opening *opening = (struct opening *)arg;
    struct open_call *call = calloc(1, sizeof(*call));
    if (!call) rb_memerror();
    ps_job_init(&call->job, open_run_nogvl, open_release_nogvl);
    call->client = opening->client;
    ps_client_retain(call->client);
    penstock_call(&call->job);
    opening->result = call->result;
    memcpy(opening->errstr, call->errstr, sizeof(call->errstr));
    ps_job_unref(&call->job);
    return Qnil;
}

/* Runs also if the opening thread was interrupted after the client has opened: no later call would notify the source. */
static VALUE notify_source(VALUE source)
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
    struct opening opening = { .client = client };
    VALUE trap = rb_const_get(penstock_module, rb_intern("SignalTrap"));
    rb_funcall(trap, rb_intern("raise_if_here"), 1, penstock_text("connecting")); /* the calls below lock Ruby mutexes */
    penstock_exit_arm(); /* M:exit_armed_again */
    attach_dispatcher(client, logger);
    penstock_attach_refresher(token_refresher, client->address, client);
    penstock_check_forked(client->generation); /* a trap may have forked: the client belongs to the parent process */
    rb_ensure(open_body, (VALUE)&opening, notify_source, source);
    penstock_check_forked(client->generation);
    int state = atomic_load(&client->state);
    if (client->settings->logs_to_mailbox && (state == PS_NEW || state == PS_CLOSED))
        ps_mailbox_post(client->address, PS_MAIL_LAST, ""); /* it did not open, or was closed meanwhile: detaches the logger */
    if (opening.result < 0) {
        struct penstock_error_context context = penstock_no_context;
        context.client = client;
        penstock_raise(penstock_config_error, &context, "%s", opening.errstr);
    }
    penstock_check_open(client);
    return true;
}

/* ---- closing ---- */

struct close_call {
    struct ps_job job;
    struct ps_client *client; /* retained */
    struct ps_close_times times;
    struct ps_job *closing;   /* retained */
    int failed;
};

static void close_run_nogvl(struct ps_job *job) /* may wait for another thread that is opening the client */
{
    struct close_call *call = (struct close_call *)job;
    call->closing = ps_client_close_by(call->client, &call->times, NULL);
    call->failed = errno;
}

static void close_release_nogvl(struct ps_job *job)
{
    struct close_call *call = (struct close_call *)job;
    if (call->closing) ps_job_unref(call->closing);
    ps_client_unref(call->client);
    free(call);
}

bool penstock_close(struct ps_client *client, const struct ps_close_times *times)
{
    struct close_call *call = calloc(1, sizeof(*call));
    if (!call) rb_memerror();
    ps_job_init(&call->job, close_run_nogvl, close_release_nogvl);
    call->client = client;
    call->times = *times;
    ps_client_retain(client);
    penstock_call(&call->job);
    struct ps_job *closing = call->closing;
    int failed = call->failed;
    call->closing = NULL; /* this function owns the reference now */
    ps_job_unref(&call->job);
    if (closing) return penstock_wait_job(closing, times->done_us);
    if (atomic_load(&client->state) == PS_OPEN) rb_syserr_fail(failed ? failed : EAGAIN, "cannot start a thread to close");
    return true;
}

static void *close_now_nogvl(void *call)
{
    close_run_nogvl(call);
    return NULL;
}

void penstock_begin_closing(struct ps_client *client, int64_t timeout_ms)
{
    struct close_call call = { .client = client, .times = ps_client_close_times(client, timeout_ms) };
    penstock_nogvl_now(close_now_nogvl, &call);
    if (call.closing) ps_job_unref(call.closing);
}
