/*
 * Penstock::Native::ProducerClient, continued: produce and produce_many, for a ProducerClient and for a ShareableProducer. A call
 * checks its messages (message.c) and hands them over (handover.c). It retries messages that librdkafka does not accept at once,
 * as long as that may help.
 *
 * Any thread and fiber; for a ShareableProducer, any Ractor.
 */
#include "ruby/penstock.h"
#include <ruby/ractor.h>

/* `last_topic`: the topic of the previous message of this call, or nil. */
static void parse(const struct penstock_sender *sender, struct penstock_message *message, VALUE hash, long index,
                  VALUE last_topic)
{
    if (NIL_P(sender->self)) {
        penstock_message_parse(message, hash, index, &sender->terms, last_topic);
        if (!rb_ractor_shareable_p(message->label)) penstock_message_raise_label(message->label, index); /* M:label_shareable */
        return;
    }
    struct penstock_producer_client *object = penstock_producer_data(sender->self);
    penstock_message_parse(message, hash, index, &sender->terms, object->last_topic);
    /* M:gc_produce_last_topic_barrier */
    if (message->topic != object->last_topic) RB_OBJ_WRITE(sender->self, &object->last_topic, message->topic);
}

static void check_sender(const struct penstock_sender *sender)
{
    if (sender->producer) penstock_check_open(&sender->producer->client);
}

/* True: it has opened the client, which may have run Ruby code. The caller parses its messages again. */
static bool open_sender(const struct penstock_sender *sender)
{
    return sender->producer && penstock_producer_open_if_new(sender->self, sender->producer);
}

/* Makes a batch, which retains its client. False: the slot has no client. */
static bool begin_batch(const struct penstock_sender *sender, struct penstock_handover *handover, uint32_t size)
{
    struct ps_producer *taken = sender->slot ? ps_slot_take(sender->slot) : NULL;
    struct ps_producer *producer = sender->slot ? taken : sender->producer;
    if (!producer) return false;
    handover->producer = producer;
    handover->batch = ps_batch_new(producer, size);
    if (taken) ps_client_unref(&taken->client); /* the batch has a reference of its own */
    if (!handover->batch) rb_memerror();
    return true;
}

/*
 * The memory of a call that produces a batch, in a hidden Ruby object: its holder. The call frees it however it ends. But if a
 * scheduler drops the call's fiber, nothing unwinds the fiber's stack. Then the GC frees the batch_call. It also settles the
 * deliveries of the messages that waited for queue space.
 */
struct batch_call {
    struct penstock_message *messages; /* while they are checked and handed over */
    size_t size;                       /* of messages, in bytes */
    struct penstock_handover handover; /* its batch is not released yet, so that settled deliveries without a handle stay */
};

/* Marks conservatively, as the GC marks a stack: not every word is a VALUE, and some are not written yet. */
static void batch_call_mark(void *data)
{
    const struct batch_call *batch_call = data;
    const VALUE *first = (const VALUE *)batch_call->messages;
    if (first) rb_gc_mark_locations(first, first + batch_call->size / sizeof(VALUE)); /* M:gc_batch_buffer_marked */
}

static void free_messages(struct batch_call *batch_call)
{
    free(batch_call->messages);
    batch_call->messages = NULL;
}

static void batch_call_free(void *data)
{
    struct batch_call *batch_call = data;
    struct ps_batch *batch = batch_call->handover.batch;
    if (batch) {
        penstock_handover_give_up(&batch_call->handover, RD_KAFKA_RESP_ERR__CONFLICT); /* M:fiber_batch_given_up */
        ps_batch_release(batch);
    }
    free_messages(batch_call);
    xfree(batch_call);
}

static size_t batch_call_memsize(const void *data)
{
    const struct batch_call *batch_call = data;
    return sizeof(*batch_call) + (batch_call->messages ? batch_call->size : 0);
}

static const rb_data_type_t batch_call_type = {
    .wrap_struct_name = "Penstock::Native::ProducerClient/messages",
    .function = { .dmark = batch_call_mark, .dfree = batch_call_free, .dsize = batch_call_memsize },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static VALUE batch_call_new(struct batch_call **batch_call)
{
    return TypedData_Make_Struct(0, struct batch_call, &batch_call_type, *batch_call);
}

static void allocate_messages(struct batch_call *batch_call, long size)
{
    if ((size_t)size > SIZE_MAX / 4 / sizeof(struct penstock_message)) rb_memerror(); /* so their deliveries fit, too */
    batch_call->size = (size_t)size * sizeof(struct penstock_message);
    if (!(batch_call->messages = malloc(batch_call->size))) rb_memerror();
}

/*
 * Frees the memory now: the GC does not know its size, and might free it late. The memory is NULL if a continuation has come
 * back into the call after the call's first end.
 */
static VALUE batch_call_end(VALUE holder)
{
    if (DATA_PTR(holder)) batch_call_free(DATA_PTR(holder));
    DATA_PTR(holder) = NULL;
    return Qnil;
}

/* The messages of a call that librdkafka did not accept at once. A single message is on the stack, a batch in a batch_call. */
struct rest {
    struct penstock_handover *handover;
    uint32_t sent_before;  /* handover->sent when the present wait for queue space began */
    int64_t queue_full_ms; /* how long to wait for queue space; 0: not at all */
    bool drop;             /* if the queue stays full: give the messages a failed delivery result instead of raising */
    VALUE tally;           /* Array or nil; see penstock_produce_many */
    VALUE holder; /* of the batch_call; nil: `handover` is on the stack */
    struct penstock_handover *on_stack; /* `handover` before it moved to the heap; NULL: it has not */
};

/* Stores the number of messages handed over. The thread may be interrupted or killed before the call can return it. */
static void store_tally(VALUE tally, const struct penstock_handover *handover)
{
    if (!NIL_P(tally)) rb_ary_store(tally, 0, UINT2NUM(handover->sent));
}

/* Hands over more messages. True: some were accepted, or the queue is not full, so the wait for space is over. */
static bool hand_over_more(void *arg)
{
    const struct rest *rest = arg;
    penstock_handover_nogvl(rest->handover); /* with the GVL, as there is space for a few messages at a time */
    return rest->handover->sent > rest->sent_before || !penstock_handover_queue_full(rest->handover);
}

/*
 * Called before a wait, for a single message in a fiber with a scheduler. If the scheduler drops the waiting fiber, the GC must
 * find the memory to free. Elsewhere the message stays on the stack: a thread that ends is unwound.
 */
static void move_to_heap(struct rest *rest)
{
    if (!NIL_P(rest->holder) || NIL_P(penstock_fiber_scheduler())) return;
    struct batch_call *batch_call;
    VALUE holder = batch_call_new(&batch_call);
    allocate_messages(batch_call, 1);
    *batch_call->messages = *rest->handover->messages;
    batch_call->handover = *rest->handover;
    batch_call->handover.messages = batch_call->messages;
    ps_delivery_retain(ps_batch_delivery(rest->handover->batch, 0)); /* batch_call_free releases the batch */
    rest->on_stack = rest->handover;
    rest->handover = &batch_call->handover;
    rest->holder = holder;
}

static void move_to_stack(struct rest *rest)
{
    struct penstock_message *message = rest->on_stack->messages;
    *rest->on_stack = *rest->handover;
    rest->on_stack->messages = message;
    batch_call_end(rest->holder);
}

/* False: there was no space in time. The time starts again each time librdkafka has accepted a message. */
static bool wait_for_space(struct rest *rest)
{
    if (rest->queue_full_ms == 0 || !penstock_handover_keep_bytes(rest->handover)) return false; /* M:full_queue_waits */
    move_to_heap(rest); /* M:fiber_message_on_heap */
    rest->sent_before = rest->handover->sent;
    uint32_t want = rest->handover->batch->size - rest->handover->sent;
    return penstock_wait_for_space(rest->handover->producer, want, hand_over_more, rest, ps_deadline_us(rest->queue_full_ms));
}

enum { LOOK_AGAIN_MS = 1000 };

/*
 * librdkafka refreshes a topic's metadata every topic.metadata.refresh.interval.ms, 5 minutes by default. Until then it rejects
 * messages to a new topic or partition without asking a broker. So this function asks for the metadata, and hands the messages
 * over again. False: the metadata are recent, or a retry is impossible.
 */
static bool refresh_and_retry(struct rest *rest)
{
    struct penstock_handover *handover = rest->handover;
    VALUE topic = handover->messages[handover->sent].topic; /* closing the client may have freed native_topic */
    const char *name = RSTRING_PTR(topic);
    size_t length = RSTRING_LEN(topic);
    if (ps_producer_asked_lately(handover->producer, name, length) || !penstock_handover_keep_bytes(handover)) return false;
    move_to_heap(rest);
    handover = rest->handover;

    struct ps_metadata_job *query = ps_producer_metadata(handover->producer, name, length, LOOK_AGAIN_MS);
    if (!query) return false;
    penstock_wait_job(&query->job, PS_FOREVER); /* librdkafka observes the deadline */
    penstock_nogvl_now(penstock_handover_nogvl, handover);
    return true;
}

static VALUE retry_the_rest(VALUE arg)
{
    struct rest *rest = (struct rest *)arg;
    bool more = true;
    while (more) {
        if (penstock_handover_queue_full(rest->handover)) more = wait_for_space(rest);
        else more = penstock_handover_place_unknown(rest->handover) && refresh_and_retry(rest);
    }
    return Qnil;
}

/* The error that messages which were not handed over get as their delivery result. No error: the call raises instead. */
static rd_kafka_resp_err_t result_at_once(const struct rest *rest)
{
    if (penstock_handover_unreachable(rest->handover)) return ps_rejection_code(PS_UNREACHABLE);
    if (rest->drop && penstock_handover_queue_full(rest->handover)) return RD_KAFKA_RESP_ERR__QUEUE_FULL;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* Gives deliveries the topic's name, which events of failed messages need. */
static void set_topic_names(const struct penstock_handover *handover)
{
    struct ps_events *events = handover->producer->events;
    if (!ps_events_wanted(events, PS_EVENT_FAILED)) return;
    for (uint32_t i = handover->sent; i < handover->batch->size; i++) {
        VALUE topic = handover->messages[i].topic;
        char name[256]; /* a topic's name has at most 249 bytes */
        snprintf(name, sizeof(name), "%.*s", (int)RSTRING_LEN(topic), RSTRING_PTR(topic));
        ps_batch_delivery(handover->batch, i)->topic_name = ps_events_name(events, name);
    }
}

static void give_up_the_rest(const struct rest *rest)
{
    struct penstock_handover *handover = rest->handover;
    store_tally(rest->tally, handover);
    if (handover->sent == handover->batch->size || ps_client_inherited(&handover->producer->client)) return;
    rd_kafka_resp_err_t result = result_at_once(rest);
    if (result) set_topic_names(handover); /* M:dropped_message_has_result */
    penstock_handover_give_up(handover, result ? result : RD_KAFKA_RESP_ERR__CONFLICT);
    if (result) handover->sent = handover->batch->size; /* for the caller: all have handles and delivery results */
    store_tally(rest->tally, handover);
}

static VALUE settle_the_rest(VALUE arg)
{
    struct rest *rest = (struct rest *)arg;
    give_up_the_rest(rest);
    if (rest->on_stack) move_to_stack(rest);
    return Qnil;
}

/*
 * Retries as long as that may help. Afterwards every message has been handed over or has its delivery result. `holder`: of the
 * batch_call that contains `handover`; nil: `handover` is on the stack.
 */
static void hand_over_the_rest(const struct penstock_sender *sender, struct penstock_handover *handover, VALUE tally,
                               VALUE holder)
{
    struct rest rest = {
        .handover = handover,
        .queue_full_ms = sender->terms.queue_full_ms,
        .drop = sender->terms.drop_when_full,
        .tally = tally,
        .holder = holder,
    };
    rb_ensure(retry_the_rest, (VALUE)&rest, settle_the_rest, (VALUE)&rest);
}

/* Whether other calls wait for queue space, so that this one must join the line behind them. Never for a call that does not wait
 * for space. */
static bool has_to_queue(const struct penstock_sender *sender, struct penstock_handover *handover)
{
    if (sender->terms.queue_full_ms == 0 || !penstock_has_to_queue(handover)) return false;
    penstock_handover_find_full(handover);
    return true;
}

VALUE penstock_produce(const struct penstock_sender *sender, VALUE hash)
{
    struct penstock_message message;
    struct penstock_handover handover = { .messages = &message };
    VALUE handle;

    check_sender(sender);
    do {
        parse(sender, &message, hash, -1, Qnil);
        while (message.foreign_timestamp) parse(sender, &message, hash = penstock_message_plain(hash, -1), -1, Qnil);
        if (open_sender(sender)) parse(sender, &message, hash, -1, Qnil);

        handle = penstock_delivery_handle_new();
        if (!begin_batch(sender, &handover, 1)) return Qnil;
        struct ps_delivery *delivery = ps_batch_delivery(handover.batch, 0);
        penstock_delivery_handle_attach(handle, delivery, message.topic, message.label);
        ps_batch_release(handover.batch); /* the handle has its own reference */
        if (!penstock_keep_label(delivery, message.label)) {
            penstock_handover_give_up(&handover, RD_KAFKA_RESP_ERR__CONFLICT);
            rb_memerror();
        }
    } while (penstock_handover_prepare(&handover, false, 0) == PENSTOCK_READ_AGAIN);
    if (!has_to_queue(sender, &handover)) penstock_handover_nogvl(&handover); /* with the GVL: releasing it would cost more */
    if (!handover.sent) hand_over_the_rest(sender, &handover, Qnil, Qnil);
    RB_GC_GUARD(hash);
    if (!handover.sent) rb_exc_raise(penstock_handover_error(&handover));
    RB_GC_GUARD(handle);
    return handle;
}

/* Reads the sender's members last: penstock_event_source_hold may run Ruby code, and a trap in it may fork. */
static struct penstock_sender sender_of(VALUE self)
{
    const struct penstock_producer_client *object = penstock_producer_data(self);
    if (!NIL_P(object->source)) penstock_event_source_hold(object->source);
    return (struct penstock_sender){ .self = self, .producer = penstock_producer_get(self), .terms = object->terms };
}

static VALUE client_produce(VALUE self, VALUE hash)
{
    struct penstock_sender sender = sender_of(self);
    return penstock_produce(&sender, hash);
}

struct many {
    const struct penstock_sender *sender;
    VALUE hashes, tally, holder;
    struct batch_call *batch_call; /* the holder's */
    bool wait;
    int64_t deadline_us;
};

/*
 * Called after user code, which may have made a continuation. When the program calls the continuation, this call may have handed
 * its messages over already, or has ended and freed its memory.
 */
static void check_not_resumed(const struct many *many)
{
    const struct batch_call *batch_call = DATA_PTR(many->holder);
    if (!batch_call || batch_call->handover.batch)
        rb_raise(rb_eRuntimeError, "a continuation came back into produce_many after its messages were handed over");
}

static void parse_all(const struct many *many, struct penstock_message *messages)
{
    VALUE hashes = many->hashes;
    bool foreign = false;
    for (long i = 0; i < RARRAY_LEN(hashes); i++) {
        parse(many->sender, &messages[i], RARRAY_AREF(hashes, i), i, i > 0 ? messages[i - 1].topic : Qnil);
        foreign |= messages[i].foreign_timestamp;
    }
    if (!foreign) return;
    for (long i = 0; i < RARRAY_LEN(hashes); i++) {
        if (!messages[i].foreign_timestamp) continue;
        VALUE plain = penstock_message_plain(RARRAY_AREF(hashes, i), i);
        check_not_resumed(many); /* M:batch_not_resumed */
        rb_ary_store(hashes, i, plain);
    }
    parse_all(many, messages);
}

static VALUE new_handle(struct ps_batch *batch, const struct penstock_message *messages, uint32_t i)
{
    VALUE handle = penstock_delivery_handle_new();
    penstock_delivery_handle_attach(handle, ps_batch_delivery(batch, i), messages[i].topic, messages[i].label);
    return handle;
}

/* For smaller batches, releasing the GVL would cost more than other threads gain. */
enum { RELEASE_FROM = 100 };

/* Called before the sender is made. Raises interrupts that Thread.handle_interrupt has deferred until a blocking call: later they
 * would interrupt the call between two messages. */
void penstock_before_producing_many(VALUE timeout_ms)
{
    if (timeout_ms != Qfalse) rb_thread_check_ints();
}

static VALUE produce_many(VALUE arg)
{
    const struct many *many = (struct many *)arg;
    const struct penstock_sender *sender = many->sender;
    long size = RARRAY_LEN(many->hashes);
    bool release = size >= RELEASE_FROM;
    VALUE error = Qnil, all_delivered = Qnil, handles = rb_ary_new_capa(size), kept;
    allocate_messages(many->batch_call, size);
    struct penstock_message *messages = many->batch_call->messages;
    struct penstock_handover *handover = &many->batch_call->handover;
    handover->messages = messages;
    enum penstock_prepared prepared;

    for (;;) {
        parse_all(many, messages);
        if (open_sender(sender)) parse_all(many, messages);
        size_t copies_size = 0;
        kept = rb_ary_new();
        if (release)
            for (long i = 0; i < size; i++) copies_size += penstock_message_freeze(&messages[i], kept);

        if (!begin_batch(sender, handover, (uint32_t)size)) return Qnil;
        for (uint32_t i = 0; i < size; i++)
            if (!penstock_keep_label(ps_batch_delivery(handover->batch, i), messages[i].label)) rb_memerror();
        prepared = penstock_handover_prepare(handover, release, copies_size);
        if (prepared != PENSTOCK_READ_AGAIN) break;
        struct ps_batch *stale = handover->batch;
        handover->batch = NULL;
        ps_batch_release(stale);
    }
    if (prepared == PENSTOCK_NO_MEMORY) rb_memerror();
    struct ps_batch *batch = handover->batch; /* M:batch_kept_for_handles */
    if (!has_to_queue(sender, handover)) {
        if (release) {
            ps_random_begin(); /* a partitioner may draw; with the GVL no other thread of this Ractor can fork */
            penstock_nogvl_now(penstock_handover_nogvl, handover);
        } else penstock_handover_nogvl(handover);
    }
    store_tally(many->tally, handover);
    if (handover->sent < size) hand_over_the_rest(sender, handover, many->tally, many->holder);

    /* Makes the handles while the broker works. */
    for (uint32_t i = 0; i < handover->sent; i++) rb_ary_push(handles, new_handle(batch, messages, i));
    if (handover->sent < size) error = penstock_handover_error(handover);
    free_messages(many->batch_call);

    if (many->wait && penstock_wait_batch(batch, many->deadline_us)) {
        all_delivered = atomic_load(&batch->failed) == 0 ? Qtrue : Qfalse;
        ps_unnoticed_read_all(batch); /* the caller raises for failures */
    }
    RB_GC_GUARD(kept); /* M:gc_batch_guard */
    return rb_ary_new_from_args(3, handles, error, all_delivered);
}

/*
 * produce_many(messages, timeout_ms, tally = nil): checks all messages, then hands them over; large batches without the GVL.
 * timeout_ms false: does not wait. tally: an Array whose first element becomes the number of messages handed over, also when the
 * call is interrupted. Returns
 *   [handles of the accepted messages, the error of the first that was not accepted or nil, all_delivered]
 * where all_delivered is true, false, or nil: not known yet.
 */
VALUE penstock_produce_many(const struct penstock_sender *sender, VALUE hashes, VALUE timeout_ms, VALUE tally)
{
    if (!NIL_P(tally)) Check_Type(tally, T_ARRAY);
    bool wait = timeout_ms != Qfalse;
    int64_t deadline_us = wait ? ps_deadline_us(penstock_timeout_ms(timeout_ms)) : 0;

    check_sender(sender);
    if (!RB_TYPE_P(hashes, T_ARRAY))
        penstock_raise(penstock_message_error, &penstock_no_context, "produce_many takes an Array of messages, not %" PRIsVALUE,
                       rb_obj_class(hashes));
    hashes = rb_ary_dup(hashes);
    long size = RARRAY_LEN(hashes);
    if (size == 0) return rb_ary_new_from_args(3, hashes, Qnil, Qtrue);
    if (size > INT32_MAX) rb_raise(rb_eArgError, "a batch must have at most %d messages, not %ld", INT32_MAX, size);

    struct batch_call *batch_call;
    VALUE holder = batch_call_new(&batch_call);
    struct many many = { sender, hashes, tally, holder, batch_call, wait, deadline_us };
    VALUE result = rb_ensure(produce_many, (VALUE)&many, batch_call_end, holder);
    RB_GC_GUARD(holder);
    return result;
}

static VALUE client_produce_many(int argc, VALUE *argv, VALUE self)
{
    VALUE hashes, timeout_ms, tally;
    rb_scan_args(argc, argv, "21", &hashes, &timeout_ms, &tally);
    penstock_before_producing_many(timeout_ms);
    struct penstock_sender sender = sender_of(self);
    return penstock_produce_many(&sender, hashes, timeout_ms, tally);
}

/* check(message, index or nil, max_payload_size, message_max_bytes): checks a message as produce does, and returns its topic. For
 * clients that send nothing. */
static VALUE s_check(VALUE self, VALUE hash, VALUE index, VALUE max_payload_size, VALUE message_max_bytes)
{
    struct ps_limits limits = {
        .payload = NUM2SIZET(max_payload_size), .total = NUM2SIZET(message_max_bytes), .queue = SIZE_MAX, /* there is no queue */
    };
    struct penstock_message message;
    long place = NIL_P(index) ? -1 : NUM2LONG(index);
    penstock_message_parse(&message, hash, place, &limits, Qnil);
    if (message.foreign_timestamp) penstock_message_plain(hash, place);
    return message.topic;
}

void penstock_produce_methods_init(VALUE client_class)
{
    rb_define_method(client_class, "produce", client_produce, 1);
    rb_define_method(client_class, "produce_many", client_produce_many, -1);
    rb_define_singleton_method(client_class, "check", s_check, 4);
}
