/*
 * A set of consumers, for one thread that waits for all of them. Its functions run one at a time: their caller has a lock, in Ruby
 * the GVL. Only the stack of bells (core/wait/bell.c) belongs to all threads.
 *
 * Three things make a consumer a candidate, at which the next wait looks: its bell has rung, it was returned by an earlier wait,
 * or it is due for a poll. The others cost a wait nothing.
 *
 *     idle ---- rings, or is due ----> candidate, which a wait returns if it may have events
 *      ^                                   |
 *      +---- a look finds no events -------+
 *
 * No wake-up is lost. librdkafka calls a queue's callback only when the queue stops being empty. A candidate becomes idle only if its
 * queues were empty when a thread looked, after it had cleared the mark `rung`. A later event finds the queue empty, so its
 * callback rings and pushes the consumer again. A consumer whose queues the program has not emptied stays a candidate.
 *
 * `consumers` is in the order of `listed_us`. A wait that returns a consumer only moves its `due_us` into the future. The list is
 * put in order when `listed_us` has come: once in half a max.poll.interval.ms for each consumer.
 */
#include "consume/consume.h"
#include <stdlib.h>

struct ps_consumer_set *ps_consumer_set_new(void)
{
    struct ps_consumer_set *set = calloc(1, sizeof(*set));
    if (!set) return NULL;
    set->generation = ps_generation();
    ps_bell_set_init(&set->bells);
    return set;
}

/* ---- the list in order of `listed_us` ---- */

static void set_unlist(struct ps_consumer_set *set, struct ps_set_consumer *one)
{
    if (one->prev) one->prev->next = one->next;
    else set->consumers = one->next;
    if (one->next) one->next->prev = one->prev;
    else set->last = one->prev;
    one->next = one->prev = NULL;
}

/* Most go to the end: they become due later than those before. */
static void set_list(struct ps_consumer_set *set, struct ps_set_consumer *one)
{
    struct ps_set_consumer *before = set->last;
    one->listed_us = one->due_us;
    while (before && before->listed_us > one->listed_us) before = before->prev;
    one->prev = before;
    one->next = before ? before->next : set->consumers;
    if (before) before->next = one;
    else set->consumers = one;
    if (one->next) one->next->prev = one;
    else set->last = one;
}

static void set_list_again(struct ps_consumer_set *set, struct ps_set_consumer *one)
{
    set_unlist(set, one);
    set_list(set, one);
}

/* ---- candidates ---- */

static void candidate_append(struct ps_consumer_set *set, struct ps_set_consumer *one)
{
    if (one->candidate) return;
    one->candidate = true;
    one->candidate_next = NULL;
    one->candidate_prev = set->last_candidate;
    if (set->last_candidate) set->last_candidate->candidate_next = one;
    else set->candidates = one;
    set->last_candidate = one;
}

static void candidate_remove(struct ps_consumer_set *set, struct ps_set_consumer *one)
{
    if (!one->candidate) return;
    one->candidate = one->ready = false;
    if (one->candidate_prev) one->candidate_prev->candidate_next = one->candidate_next;
    else set->candidates = one->candidate_next;
    if (one->candidate_next) one->candidate_next->candidate_prev = one->candidate_prev;
    else set->last_candidate = one->candidate_prev;
    one->candidate_next = one->candidate_prev = NULL;
}

/* Also frees those that have left the set since they rang. */
static void take_rung(struct ps_consumer_set *set)
{
    struct ps_bell_member *member = ps_bell_set_take(&set->bells);
    while (member) {
        struct ps_set_consumer *one = (struct ps_set_consumer *)member;
        struct ps_bell_member *next = ps_bell_member_taken(member);
        if (one->consumer) candidate_append(set, one);
        ps_bell_member_unref(member);
        member = next;
    }
}

static void take_due(struct ps_consumer_set *set, int64_t now_us)
{
    struct ps_set_consumer *one;
    while ((one = set->consumers) && one->listed_us <= now_us) {
        if (one->due_us <= now_us) {
            one->due = true;
            one->due_us = now_us + one->consumer->settings.set_polls_us;
            candidate_append(set, one);
        }
        set_list_again(set, one);
    }
}

/* ---- adding and deleting ---- */

struct ps_set_consumer *ps_consumer_set_find(struct ps_consumer_set *set, struct ps_consumer *consumer)
{
    struct ps_bell_member *member = atomic_load(&consumer->bell.member);
    return member && member->set == &set->bells ? (struct ps_set_consumer *)member : NULL;
}

enum ps_set_add ps_consumer_set_add(struct ps_consumer_set *set, struct ps_consumer *consumer, uintptr_t object)
{
    if (ps_consumer_set_find(set, consumer)) return PS_SET_HAS_IT;
    struct ps_set_consumer *one = calloc(1, sizeof(*one));
    if (!one) return PS_SET_NO_MEMORY;
    atomic_init(&one->member.refs, 1);
    one->member.set = &set->bells;
    one->consumer = consumer;
    one->object = object;
    if (!ps_bell_join(&consumer->bell, &one->member)) {
        free(one);
        return PS_SET_ANOTHER_HAS_IT;
    }
    ps_client_retain(&consumer->client);
    one->due_us = ps_now_us() + consumer->settings.set_polls_us;
    set_list(set, one);
    set->size++;
    return PS_SET_ADDED;
}

void ps_consumer_set_delete(struct ps_consumer_set *set, struct ps_set_consumer *one)
{
    struct ps_consumer *consumer = one->consumer;
    ps_bell_leave(&consumer->bell);
    candidate_remove(set, one);
    set_unlist(set, one);
    set->size--;
    one->consumer = NULL;
    one->object = 0;
    ps_bell_member_unref(&one->member);
    ps_client_unref(&consumer->client);
    take_rung(set); /* it may be in the stack, and perhaps no thread waits */
    ps_bell_ring(&set->bells.bell);
}

void ps_consumer_set_free(struct ps_consumer_set *set)
{
    if (set->generation != ps_generation()) return; /* a lock may be held by a thread that does not exist here */
    while (set->consumers) ps_consumer_set_delete(set, set->consumers);
    take_rung(set);
    ps_bell_set_destroy(&set->bells);
    free(set);
}

/* ---- looking ---- */

enum { FATAL_AGAIN_US = 1000 * 1000 };

/* Neither of these two times rings the bell. */
static void due_by(struct ps_consumer_set *set, struct ps_set_consumer *one, int64_t us, int64_t now_us)
{
    if (us <= now_us || us >= one->due_us) return;
    one->due_us = us;
    set_list_again(set, one);
}

/* Brokers reject the consumer. Its next poll after a certain time raises that. */
static bool note_rejection(struct ps_consumer_set *set, struct ps_set_consumer *one, int64_t now_us)
{
    int64_t rejected_us = atomic_load(&one->consumer->client.rejection.due_us);
    if (!rejected_us) return false;
    due_by(set, one, rejected_us, now_us);
    return rejected_us <= now_us;
}

/* Its next poll after a certain time raises an error that lasts. */
static bool note_problem(struct ps_consumer_set *set, struct ps_set_consumer *one, int64_t now_us)
{
    int64_t problem_us = ps_consumer_problem_due_us(one->consumer);
    due_by(set, one, problem_us, now_us);
    return problem_us <= now_us;
}

/* Each poll after a fatal error raises it. Nothing else comes that would return the consumer. */
static void note_fatal(struct ps_consumer_set *set, struct ps_set_consumer *one, int64_t now_us)
{
    if (atomic_load(&one->consumer->fatal)) due_by(set, one, now_us + FATAL_AGAIN_US, now_us);
}

/* A revocation is held back: a poll after that time answers it. */
static void note_hold(struct ps_consumer_set *set, struct ps_set_consumer *one, int64_t now_us)
{
    due_by(set, one, atomic_load(&one->consumer->rebalance.hold_until_us), now_us);
}

/* A consumer that is not open yet rings when it opens, and one that closes when it begins. */
static void look_at(struct ps_consumer_set *set, struct ps_set_consumer *one, uint64_t owner, int64_t now_us)
{
    bool worked_on = false;
    int state = atomic_load(&one->consumer->client.state);
    one->ready = state == PS_CLOSING || state == PS_CLOSED;
    if (state == PS_OPEN) {
        one->ready = ps_consumer_may_take(one->consumer, owner, &worked_on) || one->due;
        one->ready |= note_rejection(set, one, now_us);
        one->ready |= note_problem(set, one, now_us);
        note_hold(set, one, now_us);
        note_fatal(set, one, now_us);
    }
    one->due = false;
    if (one->ready) one->due_us = now_us + one->consumer->settings.set_polls_us; /* the program polls it now */
    else if (!worked_on) candidate_remove(set, one);
}

size_t ps_consumer_set_look(struct ps_consumer_set *set, uint64_t owner, int64_t now_us)
{
    size_t ready = 0;
    struct ps_set_consumer *next, *first = set->candidates;
    if (first && first != set->last_candidate) { /* another one comes first each time */
        candidate_remove(set, first);
        candidate_append(set, first);
    }
    take_rung(set);
    take_due(set, now_us);
    for (struct ps_set_consumer *one = set->candidates; one; one = next) {
        next = one->candidate_next;
        look_at(set, one, owner, now_us);
        ready += one->ready;
    }
    return ready;
}

int64_t ps_consumer_set_due_us(const struct ps_consumer_set *set)
{
    return set->consumers ? set->consumers->listed_us : PS_FOREVER;
}
