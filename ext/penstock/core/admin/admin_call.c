/*
 * One request of an admin client. Its caller waits without holding the client open, so a dropped fiber delays no close. The
 * client's list keeps each call until its answer was taken. So the closing thread finds every answer that it has to destroy, and
 * every call for which librdkafka will never report an answer.
 */
#include "admin/admin.h"
#include <stdlib.h>

static void call_unref(struct ps_admin_call *call)
{
    if (atomic_fetch_sub(&call->refs, 1) != 1) return;
    ps_completion_drop(&call->completion); /* waiters of fibers that never run again */
    pthread_mutex_destroy(&call->lock);
    free(call);
}

/* The following two: with client.lock held. */
static void list_add(struct ps_admin *admin, struct ps_admin_call *call)
{
    call->prev = NULL;
    call->next = admin->calls;
    if (call->next) call->next->prev = call;
    admin->calls = call;
}

static void list_remove_call(struct ps_admin *admin, struct ps_admin_call *call)
{
    if (call->prev) call->prev->next = call->next;
    else admin->calls = call->next;
    if (call->next) call->next->prev = call->prev;
}

/*
 * librdkafka, from 2.2.0 to 2.14.2 at least, keeps the text of the brokers' error for a whole DescribeUserScramCredentials request
 * on the stack of the function that reads it. The text is gone when an application sees it, and destroying the answer frees an
 * address of the stack, which ends the process. Errors of librdkafka itself are not concerned. They have the codes between BEGIN
 * and END. -1 is the brokers' UNKNOWN_SERVER_ERROR.
 */
static bool text_on_stack(rd_kafka_event_t *answer)
{
#ifdef RD_KAFKA_EVENT_DESCRIBEUSERSCRAMCREDENTIALS_RESULT
    if (rd_kafka_event_type(answer) != RD_KAFKA_EVENT_DESCRIBEUSERSCRAMCREDENTIALS_RESULT) return false;
    rd_kafka_resp_err_t err = rd_kafka_event_error(answer);
    return err && (err <= RD_KAFKA_RESP_ERR__BEGIN || err >= RD_KAFKA_RESP_ERR__END);
#else
    (void)answer;
    return false;
#endif
}

const char *ps_admin_answer_text(rd_kafka_event_t *answer)
{
    return text_on_stack(answer) ? NULL : rd_kafka_event_error_string(answer);
}

/* An answer whose text is on the stack is not destroyed: about 1 kB remains. */
void ps_admin_answer_destroy(rd_kafka_event_t *answer)
{
    if (!text_on_stack(answer)) rd_kafka_event_destroy(answer);
}

struct ps_admin_call *ps_admin_call_begin(struct ps_admin *admin)
{
    struct ps_admin_call *call = calloc(1, sizeof(*call));
    if (!call) return NULL;
    pthread_mutex_init(&call->lock, NULL);
    ps_completion_init(&call->completion, &call->lock, 1);
    atomic_init(&call->refs, 2);
    call->begun_us = ps_now_us();
    pthread_mutex_lock(&admin->client.lock);
    bool shut = admin->shut; /* M:no_call_after_close */
    if (!shut) list_add(admin, call);
    pthread_mutex_unlock(&admin->client.lock);
    if (!shut) return call;
    atomic_store(&call->refs, 1);
    call_unref(call);
    return NULL;
}

void ps_admin_call_answer(struct ps_admin *admin, rd_kafka_event_t *event)
{
    struct ps_admin_call *call = rd_kafka_event_opaque(event);
    if (!call) {
        ps_admin_answer_destroy(event);
        return;
    }
    pthread_mutex_lock(&admin->client.lock);
    bool wanted = !call->left && atomic_load(&call->end) == PS_ADMIN_WAITS; /* M:left_caller_answer_freed */
    if (wanted) {
        call->answer = event;
        /* M:settled_call_retained */
        atomic_fetch_add(&call->refs, 1); /* the caller may take the answer, and leave, before it is settled below */
        atomic_store(&call->end, PS_ADMIN_ANSWERED);
    } else {
        list_remove_call(admin, call);
    }
    pthread_mutex_unlock(&admin->client.lock);
    if (wanted) ps_completion_settle(&call->completion, 1);
    else ps_admin_answer_destroy(event);
    call_unref(call);
}

/* With client.lock held. */
static rd_kafka_event_t *take_answer(struct ps_admin *admin, struct ps_admin_call *call)
{
    rd_kafka_event_t *answer = call->answer;
    call->answer = NULL;
    if (answer) list_remove_call(admin, call);
    return answer;
}

rd_kafka_event_t *ps_admin_call_take(struct ps_admin *admin, struct ps_admin_call *call)
{
    pthread_mutex_lock(&admin->client.lock);
    rd_kafka_event_t *answer = take_answer(admin, call);
    pthread_mutex_unlock(&admin->client.lock);
    if (answer) call_unref(call); /* the list's reference */
    return answer;
}

void ps_admin_call_finish(struct ps_admin *admin, struct ps_admin_call *call)
{
    pthread_mutex_lock(&admin->client.lock);
    bool wanted = atomic_load(&call->end) == PS_ADMIN_WAITS;
    if (wanted) atomic_store(&call->end, PS_ADMIN_ANSWERED);
    list_remove_call(admin, call);
    pthread_mutex_unlock(&admin->client.lock);
    if (wanted) ps_completion_settle(&call->completion, 1);
    call_unref(call); /* the list's reference */
}

/* Destroys an answer that came meanwhile; if the client is closing, the closing thread does. */
void ps_admin_call_leave(struct ps_admin *admin, struct ps_admin_call *call)
{
    if (ps_client_inherited(&admin->client)) return;
    bool entered = ps_client_enter(&admin->client);
    pthread_mutex_lock(&admin->client.lock);
    call->left = true;
    /* M:unforgettable_request_replaces_client */
    if (call->coordinated && atomic_load(&call->end) != PS_ADMIN_ANSWERED) admin->stale = true;
    rd_kafka_event_t *answer = entered ? take_answer(admin, call) : NULL;
    pthread_mutex_unlock(&admin->client.lock);
    if (answer) {
        ps_admin_answer_destroy(answer);
        call_unref(call); /* the list's reference */
    }
    if (entered) ps_client_exit(&admin->client);
    call_unref(call);
}

bool ps_admin_calls_end(struct ps_admin *admin, enum ps_admin_end end, int64_t begun_us)
{
    struct ps_admin_call *ended = NULL;
    bool others = false;
    pthread_mutex_lock(&admin->client.lock);
    if (end == PS_ADMIN_CLOSED) admin->shut = true; /* a call that has entered, and is not in the list yet, begins after this */
    for (struct ps_admin_call *call = admin->calls; call; call = call->next) {
        if (atomic_load(&call->end) != PS_ADMIN_WAITS) continue;
        if (call->begun_us > begun_us) {
            others = true;
            continue;
        }
        if (end == PS_ADMIN_UNREACHABLE) admin->stale = true; /* M:unreachable_client_replaced */
        atomic_store(&call->end, end);
        atomic_fetch_add(&call->refs, 1);
        call->ended_next = ended;
        ended = call;
    }
    pthread_mutex_unlock(&admin->client.lock);
    while (ended) {
        struct ps_admin_call *call = ended;
        ended = call->ended_next;
        ps_completion_settle(&call->completion, 1);
        call_unref(call);
    }
    return others;
}

void ps_admin_calls_discard(struct ps_admin *admin)
{
    pthread_mutex_lock(&admin->client.lock);
    for (struct ps_admin_call *call = admin->calls; call; call = call->next) {
        if (call->answer) ps_admin_answer_destroy(call->answer); /* M:closed_call_answer_freed */
        call->answer = NULL;
    }
    pthread_mutex_unlock(&admin->client.lock);
}

void ps_admin_calls_forget(struct ps_admin *admin)
{
    struct ps_admin_call *call;
    pthread_mutex_lock(&admin->client.lock);
    while ((call = admin->calls)) {
        list_remove_call(admin, call);
        pthread_mutex_unlock(&admin->client.lock);
        call_unref(call);
        pthread_mutex_lock(&admin->client.lock);
    }
    pthread_mutex_unlock(&admin->client.lock);
}
