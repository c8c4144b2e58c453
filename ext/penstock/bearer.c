/*
 * Penstock::Bearer: how tokens come to a librdkafka client that logs in with OAUTHBEARER. A Ruby thread (token_refresher.rb)
 * waits here until one is wanted, which is when the client is made and before each token expires, and gives it.
 *
 * It keeps the native client and not the Ruby object, so that a producer that is dropped can be collected.
 */
#include "penstock.h"
#include <ruby/encoding.h>

static VALUE bearer_class;

static void bearer_free(void *client)
{
    if (client) ps_client_unref(client);
}

static const rb_data_type_t bearer_type = {
    .wrap_struct_name = "Penstock::Bearer",
    .function = { .dfree = bearer_free },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

VALUE penstock_bearer_new(struct ps_client *client)
{
    ps_client_retain(client);
    return TypedData_Wrap_Struct(bearer_class, &bearer_type, client);
}

static struct ps_client *bearer_client(VALUE self)
{
    struct ps_client *client = rb_check_typeddata(self, &bearer_type);
    penstock_check_forked(client->generation);
    return client;
}

/* await: true when a token is wanted, nil when none ever will be. Blocks without the GVL. */
static VALUE bearer_await(VALUE self)
{
    struct ps_client *client = bearer_client(self);
    for (;;) {
        uint32_t heard = atomic_load(&client->tokens.bell.rings);
        if (atomic_exchange(&client->tokens.wanted, false)) return Qtrue;
        if (atomic_load(&client->state) == PS_CLIENT_CLOSED) return Qnil;
        penstock_wait_bell(&client->tokens.bell, heard, PS_FOREVER);
    }
}

/* set_token(token, expires at ms since the epoch, principal, [name, value, ...]): nil, or what is wrong. */
static VALUE bearer_set_token(VALUE self, VALUE token, VALUE expires_ms, VALUE principal, VALUE extensions)
{
    struct ps_client *client = bearer_client(self);
    char errstr[512] = "";
    VALUE buffer = Qnil;
    int64_t expires = NUM2LL(expires_ms);
    const char *token_text = rb_string_value_cstr(&token), *principal_text = rb_string_value_cstr(&principal);
    const char **pairs = (const char **)ALLOCV_N(char *, buffer, RARRAY_LEN(extensions) + 1);
    for (long i = 0; i < RARRAY_LEN(extensions); i++) {
        VALUE string = RARRAY_AREF(extensions, i);
        pairs[i] = rb_string_value_cstr(&string);
    }
    if (!ps_tokens_enter(client)) penstock_raise_closed(client);
    rd_kafka_resp_err_t err = rd_kafka_oauthbearer_set_token(client->rk, token_text, expires, principal_text, pairs,
                                                             RARRAY_LEN(extensions), errstr, sizeof(errstr));
    ps_client_exit(client);
    ALLOCV_END(buffer);
    RB_GC_GUARD(token);
    RB_GC_GUARD(principal);
    RB_GC_GUARD(extensions);
    return err ? rb_utf8_str_new_cstr(*errstr ? errstr : rd_kafka_err2str(err)) : Qnil;
}

/* set_failure(reason): there is none now; librdkafka says so as an error, and asks again in a while. */
static VALUE bearer_set_failure(VALUE self, VALUE reason)
{
    struct ps_client *client = bearer_client(self);
    const char *text = rb_string_value_cstr(&reason);
    if (!ps_tokens_enter(client)) return Qnil;
    rd_kafka_oauthbearer_set_token_failure(client->rk, text);
    ps_client_exit(client);
    return Qnil;
}

void penstock_bearer_init(void)
{
    bearer_class = rb_const_get(penstock_module, rb_intern("Bearer"));
    rb_gc_register_mark_object(bearer_class);
    rb_undef_alloc_func(bearer_class);
    rb_define_method(bearer_class, "await", bearer_await, 0);
    rb_define_private_method(bearer_class, "set_token", bearer_set_token, 4);
    rb_define_private_method(bearer_class, "set_failure", bearer_set_failure, 1);
}
