/*
 * How threads and fibers wait for space in librdkafka's queue (core/produce/space.c). A Ruby object holds the call's place in the
 * line. If a scheduler discards the fiber, nothing unwinds it, and the GC frees the place.
 */
#include "ruby/penstock.h"

static void place_free(void *place)
{
    if (place) ps_place_leave(place, false);
}

static size_t place_size(const void *place)
{
    return place ? sizeof(struct ps_space_place) : 0;
}

static const rb_data_type_t place_type = {
    .wrap_struct_name = "Penstock::Native::ProducerClient/place",
    .function = { .dfree = place_free, .dsize = place_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

/*
 * A thread that has had its turn may hand over one more message without a turn, if it does so at once: switching threads costs
 * several times as much as a message. A thread that has used this allowance gets its next turn for two messages.
 */
enum { ALLOWED_US = 1000 };

static _Thread_local struct {
    uint64_t client; /* the client of the turn; 0: no allowance, or it is used */
    int64_t until_us;
    bool used;       /* the allowance of the previous turn was used */
} allowance;

static void allow_one(const struct ps_client *client)
{
    allowance.client = client->address;
    allowance.until_us = ps_now_us() + ALLOWED_US;
    allowance.used = false;
}

static bool use_allowance(const struct ps_client *client)
{
    if (allowance.client != client->address) return false;
    allowance.client = 0;
    return allowance.used = ps_now_us() < allowance.until_us;
}

bool penstock_has_to_queue(const struct penstock_handover *handover)
{
    const struct ps_producer *producer = handover->producer;
    /* M:space_new_call_queues */
    return ps_space_line(&producer->space) && !(handover->batch->size == 1 && use_allowance(&producer->client));
}

struct space_wait {
    VALUE holder;
    bool (*attempt)(void *);
    void *arg;
    int64_t deadline_us;
    bool done;
};

/* True: the call need not wait any longer. False: the queue was full, or another call comes first. */
static bool take_turn(const struct space_wait *wait, struct ps_space_place *place)
{
    if (!ps_place_try(place)) return false;
    do
        if (wait->attempt(wait->arg)) return true;
    while (!ps_place_full(place));
    return false;
}

/* The waiter does not serve the client's events meanwhile: each event would interrupt it. */
static VALUE space_wait_body(VALUE arg)
{
    struct space_wait *wait = (struct space_wait *)arg;
    struct ps_space_place *place = DATA_PTR(wait->holder);
    while (!wait->done && penstock_wait(&place->turn, wait->deadline_us)) wait->done = take_turn(wait, place);
    return Qnil;
}

static VALUE space_wait_ensure(VALUE arg)
{
    struct space_wait *wait = (struct space_wait *)arg;
    struct ps_space_place *place = DATA_PTR(wait->holder);
    DATA_PTR(wait->holder) = NULL;
    if (wait->done) allow_one(&place->producer->client);
    ps_place_leave(place, wait->done);
    return Qnil;
}

bool penstock_wait_for_space(struct ps_producer *producer, uint32_t want, bool (*attempt)(void *), void *arg, int64_t deadline_us)
{
    struct space_wait wait = { .attempt = attempt, .arg = arg, .deadline_us = deadline_us };
    wait.holder = TypedData_Wrap_Struct(0, &place_type, NULL);
    if (!(DATA_PTR(wait.holder) = ps_place_join(producer, want == 1 && allowance.used ? 2 : want))) rb_memerror();
    rb_ensure(space_wait_body, (VALUE)&wait, space_wait_ensure, (VALUE)&wait);
    RB_GC_GUARD(wait.holder);
    return wait.done;
}
