/*
 * Penstock::Native::Bearer: supplies OAUTHBEARER tokens to a client. A Ruby thread (token_refresher.rb) asks here whether
 * librdkafka wants a token, and sets it. librdkafka wants one when it opens and before each token expires.
 *
 * A Bearer keeps the native client, not the Ruby object, so the GC can free a Producer or Consumer that the program discards.
 */
#include "ruby/penstock.h"
#include <ruby/encoding.h>

static VALUE bearer_class;

static void bearer_free(void *data)
{
    struct ps_client *client = data;
    if (client) ps_client_unref(client);
}

/* Counts the client, as the Ruby object that used it may have been freed. */
static size_t bearer_size(const void *data)
{
    return data ? sizeof(struct ps_client) : 0;
}

static const rb_data_type_t bearer_type = {
    .wrap_struct_name = "Penstock::Native::Bearer",
    .function = { .dfree = bearer_free, .dsize = bearer_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

VALUE penstock_bearer_new(struct ps_client *client)
{
    ps_client_retain(client);
    return TypedData_Wrap_Struct(bearer_class, &bearer_type, client);
}

static struct ps_client *bearer_open(VALUE self)
{
    struct ps_client *client = penstock_data(self, &bearer_type);
    if (ps_client_inherited(client))
        penstock_raise(penstock_forked_error, &penstock_no_context, "the tokens are for a client of the parent process");
    return client;
}

/* Waits, without the GVL, until no other thread is opening the client. May raise. */
static void await_opening(struct ps_client *client)
{
    for (;;) {
        uint32_t heard = atomic_load(&client->tokens.bell.rings);
        if (!ps_client_opening(client)) return;
        penstock_wait_bell(&client->tokens.bell, heard, PS_FOREVER);
    }
}

/* librdkafka asks for a token as soon as it is created. This waits until the thread that opens the client has finished. */
static struct ps_client *bearer_opened(VALUE self)
{
    await_opening(bearer_open(self));
    return bearer_open(self); /* a trap may have forked */
}

/* wanted?: whether librdkafka has asked for a token since the last call. nil: the client is closed. */
static VALUE bearer_wanted_p(VALUE self)
{
    struct ps_client *client = bearer_open(self);
    if (ps_tokens_wanted(client)) return Qtrue;
    return atomic_load(&client->state) == PS_CLOSED ? Qnil : Qfalse;
}

/* A time in microseconds is later, and librdkafka would not ask for a token again. */
static const int64_t YEAR_3000_MS = 32503680000000;

/* set_token(token, expires at ms since the epoch, principal, [name, value, ...]): nil, or the problem's text. */
static VALUE bearer_set_token(VALUE self, VALUE token, VALUE expires_ms, VALUE principal, VALUE extensions)
{
    struct ps_client *client = bearer_opened(self); /* before anything is read from Strings */
    char errstr[512] = "";
    VALUE buffer = Qnil;
    int64_t expires = NUM2LL(expires_ms);
    const char *token_text = rb_string_value_cstr(&token), *principal_text = rb_string_value_cstr(&principal);
    long count = RARRAY_LEN(extensions);
    VALUE *strings = ALLOCV_N(VALUE, buffer, 2 * count + 1); /* the GC marks and pins these Strings: none moves */
    const char **pairs = (const char **)(strings + count);
    for (long i = 0; i < count; i++) {
        strings[i] = RARRAY_AREF(extensions, i);
        pairs[i] = rb_string_value_cstr(&strings[i]); /* may allocate, for UTF-16 */
    }
    ps_redaction_add(&client->redaction, token_text);
    rd_kafka_t *rk = ps_tokens_enter(client);
    if (!rk) penstock_raise_closed(client);
    rd_kafka_resp_err_t err = rd_kafka_oauthbearer_set_token(rk, token_text, expires, principal_text, pairs,
                                                             (size_t)count, errstr, sizeof(errstr));
    if (!err && expires > YEAR_3000_MS)
        ps_client_log(client, 4, "TOKEN",
                      "the token expires after the year 3000: lifetime_ms is in milliseconds since the epoch");
    ps_client_exit_long(client);
    ALLOCV_END(buffer);
    RB_GC_GUARD(token);
    RB_GC_GUARD(principal);
    RB_GC_GUARD(extensions);
    return err ? penstock_text(*errstr ? errstr : rd_kafka_err2str(err)) : Qnil;
}

/* set_failure(reason): there is no token now. librdkafka reports an error, and asks again later. */
static VALUE bearer_set_failure(VALUE self, VALUE reason)
{
    struct ps_client *client = bearer_opened(self);
    const char *text = rb_string_value_cstr(&reason);
    rd_kafka_t *rk = ps_tokens_enter(client);
    if (!rk) return Qnil;
    rd_kafka_oauthbearer_set_token_failure(rk, text);
    ps_client_exit_long(client);
    return Qnil;
}

/* ---- for ProducerClient and Consumer ---- */

void penstock_attach_refresher(VALUE refresher, uint64_t address, struct ps_client *client)
{
    if (NIL_P(refresher)) return;
    VALUE refreshers = rb_const_get(penstock_native, rb_intern("TokenRefresher"));
    rb_funcall(refreshers, rb_intern("attach"), 3, ULL2NUM(address), refresher, penstock_bearer_new(client));
}

void penstock_set_credentials(struct ps_client *client, const struct penstock_error_context *context, VALUE user, VALUE password)
{
    char errstr[256] = "";
    for (;;) {
        const char *text = penstock_is_secret(password) ? penstock_secret_text(password) : rb_string_value_cstr(&password);
        if (!text) penstock_raise(penstock_config_error, context, "the password must be UTF-8 without a zero byte");
        if (ps_set_credentials(client, rb_string_value_cstr(&user), text, errstr, sizeof(errstr))) break;
        if (*errstr) penstock_raise(penstock_config_error, context, "%s", errstr);
        await_opening(client);
        penstock_check_forked(client->generation);
    }
    RB_GC_GUARD(password);
}

void penstock_bearer_init(void)
{
    bearer_class = rb_const_get(penstock_native, rb_intern("Bearer"));
    rb_gc_register_mark_object(bearer_class); /* M:gc_bearer_class */
    rb_undef_alloc_func(bearer_class);
    rb_define_method(bearer_class, "wanted?", bearer_wanted_p, 0);
    rb_define_private_method(bearer_class, "set_token", bearer_set_token, 4);
    rb_define_private_method(bearer_class, "set_failure", bearer_set_failure, 1);
}
