/*
 * What each fiber has polled last, from each consumer, and what became of it:
 *
 * - An exception was raised in the fiber since, or it has left the block of Consumer#each early. Then Consumer#close does not count the
 *   messages as processed.
 * - The caller has not received it. An interrupt (Timeout, Thread#raise, Ctrl-C) ended the call after it had taken messages, or came
 *   before the caller could keep what the call returned. Then the fiber's next poll returns it again. A fiber that was killed polls no
 *   more: its range in the ledger stays open, and the messages come again after the next rebalance or start.
 *
 * Ruby does not tell whether a caller has received what a method returned. So a poll handles interrupts once more before it returns.
 * What comes later raises an exception, which the hook sees (Thread#kill raises none), before anybody has looked at a message. Only
 * exceptions that are no StandardError, and Timeout::Error, count there: others are raised by the program itself, perhaps after it has
 * put the message into a queue.
 */
#include "ruby/penstock.h"
#include <ruby/debug.h>
#include <ruby/ractor.h>
#include <stdlib.h>

static ID id_taker, id_timeout, id_error, id_nothing;
static rb_ractor_local_key_t hooked;

static void free_last_poll(struct penstock_last_poll *polled)
{
    if (polled->fetched) penstock_fetched_free(polled->fetched);
    free(polled);
}

static void taker_free(void *data)
{
    struct penstock_taker *taker = data;
    for (struct penstock_last_poll *next; taker->latest; taker->latest = next) {
        next = taker->latest->next;
        free_last_poll(taker->latest);
    }
    xfree(taker);
}

static size_t taker_size(const void *data)
{
    (void)data;
    return sizeof(struct penstock_taker) + sizeof(struct penstock_last_poll);
}

static const rb_data_type_t taker_type = {
    .wrap_struct_name = "Penstock::Taker",
    .function = { .dfree = taker_free, .dsize = taker_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

/* ---- exceptions ---- */

static bool interrupts(VALUE error)
{
    if (!rb_obj_is_kind_of(error, rb_eStandardError)) return true;
    /* To load it here would run a file. */
    if (!rb_const_defined(rb_cObject, id_timeout) || !NIL_P(rb_autoload_p(rb_cObject, id_timeout))) return false;
    VALUE timeout = rb_const_get(rb_cObject, id_timeout);
    return rb_const_defined_at(timeout, id_error) && rb_obj_is_kind_of(error, rb_const_get_at(timeout, id_error));
}

/* Called for each exception that is raised in this Ractor, with RUBY_EVENT_HOOK_FLAG_RAW_ARG. */
static void raised(VALUE unused, const rb_trace_arg_t *event)
{
    (void)unused;
    VALUE object = rb_thread_local_aref(rb_thread_current(), id_taker);
    if (NIL_P(object)) return;
    const struct penstock_taker *taker = rb_check_typeddata(object, &taker_type);
    if (!taker->latest) return;
    taker->latest->raised = true;
    if (interrupts(rb_tracearg_raised_exception((rb_trace_arg_t *)event))) taker->latest->interrupted = true;
}

static void add_hook(void)
{
    if (!NIL_P(rb_ractor_local_storage_value(hooked))) return;
    rb_ractor_local_storage_value_set(hooked, Qtrue);
    /* The flag RAW_ARG says which type it has. */
    rb_add_event_hook2((rb_event_hook_func_t)(void (*)(void))raised, RUBY_EVENT_RAISE, Qnil,
                       RUBY_EVENT_HOOK_FLAG_SAFE | RUBY_EVENT_HOOK_FLAG_RAW_ARG);
}

/* ---- what was polled ---- */

VALUE penstock_taker_object(void)
{
    static _Atomic uint64_t owners;
    VALUE thread = rb_thread_current(), object = rb_thread_local_aref(thread, id_taker); /* local to the fiber */
    if (!NIL_P(object)) return object;
    add_hook();
    struct penstock_taker *taker;
    object = TypedData_Make_Struct(rb_cObject, struct penstock_taker, &taker_type, taker); /* a program may look at it */
    taker->owner = atomic_fetch_add(&owners, 1) + 1;
    rb_thread_local_aset(thread, id_taker, object);
    return object;
}

struct penstock_taker *penstock_taker_of(VALUE object)
{
    return rb_check_typeddata(object, &taker_type);
}

struct penstock_taker *penstock_taker(void)
{
    return penstock_taker_of(penstock_taker_object());
}

bool penstock_unreceived(const struct penstock_last_poll *polled)
{
    const struct ps_fetched *fetched = polled->fetched;
    return fetched && polled->interrupted && !atomic_load_explicit(&fetched->seen, memory_order_relaxed);
}

struct penstock_last_poll *penstock_last_poll_of(const struct penstock_taker *taker, const struct ps_consumer *consumer)
{
    struct penstock_last_poll *polled = taker->latest;
    while (polled && polled->consumer != consumer) polled = polled->next;
    return polled;
}

/* What was received of other consumers is of no interest any more. */
static void forget_others(struct penstock_taker *taker)
{
    struct penstock_last_poll **link = &taker->latest, *polled;
    while ((polled = *link)) {
        if (penstock_unreceived(polled)) {
            link = &polled->next;
        } else {
            *link = polled->next;
            free_last_poll(polled);
        }
    }
}

void penstock_begin_poll(struct penstock_taker *taker, const struct ps_consumer *consumer)
{
    struct penstock_last_poll *polled = taker->latest;
    if (!polled || polled->consumer != consumer) {
        forget_others(taker);
        if (!(polled = calloc(1, sizeof(*polled)))) rb_memerror();
        polled->consumer = consumer;
        polled->next = taker->latest;
        taker->latest = polled;
    }
    if (polled->fetched) penstock_fetched_free(polled->fetched);
    polled->fetched = NULL;
    polled->raised = polled->interrupted = false;
}

void penstock_has_polled(const struct penstock_taker *taker, struct ps_fetched *fetched)
{
    ps_fetched_retain(fetched);
    taker->latest->fetched = fetched;
}

/* Ruby handles interrupts when a Ruby method returns, those that the program defers excepted. rb_thread_check_ints would take this for a
 * blocking call. */
static VALUE publish_and_handle_interrupts(VALUE arg)
{
    const struct penstock_returning *returning = (struct penstock_returning *)arg;
    returning->publish(returning->self, returning->messages);
    atomic_store_explicit(&returning->fetched->seen, false, memory_order_relaxed); /* listeners have seen it */
    return rb_funcallv(returning->self, id_nothing, 0, NULL);
}

void penstock_return(const struct penstock_returning *returning)
{
    struct ps_consumer *consumer = returning->consumer;
    struct ps_fetched *fetched = returning->fetched;
    bool by_poll = consumer->settings.mark == PS_MARK_NEXT_POLL, unreceived = returning->unreceived;
    /* Other threads may interrupt this one, and run when a Ruby method returns. Without any, and with the GVL since the messages were
     * taken, only a signal may be due, since a microsecond. */
    bool due = unreceived || !rb_thread_alone();
    int state = 0;
    if (due || ps_news_wanted(&consumer->news, PS_NEWS_POLLED | PS_NEWS_ENDS)) {
        if (by_poll && !unreceived) ps_ledger_receive(&consumer->ledger, returning->taker->owner, false);
        unreceived = by_poll;
        rb_protect(publish_and_handle_interrupts, (VALUE)returning, &state);
    }
    struct penstock_last_poll *polled = returning->taker->latest;
    if (polled->fetched == fetched) polled->interrupted = polled->raised = state != 0; /* otherwise a listener has polled */
    if (state) {
        atomic_store_explicit(&fetched->seen, false, memory_order_relaxed);
        rb_jump_tag(state);
    }
    if (unreceived) ps_ledger_receive(&consumer->ledger, returning->taker->owner, true);
}

void penstock_last_poll_init(void)
{
    id_taker = rb_intern("__penstock_taker__");
    id_timeout = rb_intern("Timeout");
    id_error = rb_intern("Error");
    id_nothing = rb_intern("nothing");
    hooked = rb_ractor_local_storage_value_newkey();
}
