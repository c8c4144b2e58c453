/*
 * The calls that wait for space in librdkafka's queue, first in, first out. A call that finds the queue full joins the line
 * with a place and waits for a turn. When n messages are settled, the first places get turns, as many as want n messages
 * together. The settling thread gives AT_ONCE of them; each of the others follows when an earlier turn ends. A call with a
 * turn tries to hand over its messages. A new call joins the line behind the waiting ones, and tries nothing before its turn
 * (`ps_space_line`).
 *
 * A place is either in the list or has a turn; `present` counts both, `turns` the second kind. No turn may be lost: "places
 * are in the list, none has a turn" must imply that the queue was full for the first place, and that nothing was freed since.
 * The interleavings that this rests on:
 *
 *   - The settling thread frees space while a call joins. The call adds itself to `present` before it looks at the queue; the
 *     settling thread looks at `present` after it has freed. With the two fences at least one of them sees the other.
 *   - Space is freed while a call with a turn is trying, before it calls ps_place_full. The call is not in the list, so it is
 *     given nothing. It sees that `freed` has changed since it began, keeps its turn, and tries again.
 *   - A call with a turn is interrupted, runs out of time, or its fiber is dropped, before it tries. Its place then leaves with
 *     the turn (`ps_place_leave`), and the first in the list gets a turn instead. For a dropped fiber the garbage collector does
 *     that, perhaps late; see the last point.
 *   - More messages fit than were settled: the settled ones were larger than the waiting ones, or a rejected message held space
 *     for a moment. So whenever the last turn ends without ps_place_full, the first in the list gets one more. Turns go on until
 *     a call finds the queue full: at most one wasted attempt for each librdkafka event.
 *   - The first in line needs more bytes than were freed. It goes back to its place, by its ticket. A call behind it that has a
 *     turn leaves the space to it, and goes back too. If the first gives up its place, the next one gets a turn at once, as it
 *     may need less.
 *   - The call with a turn cannot run: its thread is in a trap handler that itself waits for space, or no thread can run its
 *     fiber any more. After STUCK_US, the poller's sweep counts all current turns as `stuck`, and gives as many to the next
 *     places. The stuck turns are then ignored until they end.
 *
 * Any thread, with or without the GVL: the only call with the lock held wakes a waiter.
 */
#include "produce/produce.h"
#include <stdlib.h>

/*
 * AT_ONCE: how many turns are active at a time. With more, Ruby threads wake together, and each waits for the GVL a second time:
 * 22 us a message instead of 12 with 400 threads.
 * SLOW_US: if a woken thread takes longer than this to use its turn, a busy thread holds the GVL. That thread yields it only
 * every 100 ms, to all threads that wait for it by then. So all due turns are then given at once.
 */
enum { AT_ONCE = 2, SLOW_US = 5000, STUCK_US = 1000000 };

void ps_space_init(struct ps_space *space)
{
    pthread_mutex_init(&space->lock, NULL);
}

void ps_space_destroy(struct ps_space *space)
{
    pthread_mutex_destroy(&space->lock);
}

/* ---- with the lock held ---- */

static void list_remove(struct ps_space *space, struct ps_space_place *place)
{
    if (place->prev) place->prev->next = place->next;
    else space->first = place->next;
    if (place->next) place->next->prev = place->prev;
    else space->last = place->prev;
    place->next = place->prev = NULL;
}

/* By its ticket: last if it is new, near the front if it had a turn. */
static void list_insert(struct ps_space *space, struct ps_space_place *place)
{
    struct ps_space_place *next = space->first;
    if (space->last && space->last->ticket < place->ticket) next = NULL;
    while (next && next->ticket < place->ticket) next = next->next;
    place->next = next;
    place->prev = next ? next->prev : space->last;
    if (place->prev) place->prev->next = place;
    else space->first = place;
    if (next) next->prev = place;
    else space->last = place;
}

static void give_turn(struct ps_space *space, struct ps_space_place *place)
{
    list_remove(space, place);
    place->has_turn = true;
    place->turn_us = ps_now_us();
    atomic_fetch_add(&space->turns, 1);
    atomic_store(&space->turn_us, place->turn_us);
    ps_completion_settle(&place->turn, 1);
}

static uint32_t active_turns(const struct ps_space *space)
{
    uint32_t turns = atomic_load(&space->turns);
    return turns > space->stuck ? turns - space->stuck : 0;
}

static void end_turn(struct ps_space *space)
{
    uint32_t turns = atomic_fetch_sub(&space->turns, 1) - 1;
    if (space->stuck > turns) space->stuck = turns;
}

/* Gives turns for freed messages. If no place has an active turn after that, gives one more: its call finds out whether the queue
 * is full. */
static void give_due_turns(struct ps_space *space)
{
    while (space->due > 0 && space->first && (space->slow || active_turns(space) < AT_ONCE)) {
        space->due -= space->first->want < space->due ? space->first->want : space->due;
        give_turn(space, space->first);
    }
    if (active_turns(space) == 0 && space->first) give_turn(space, space->first); /* M:space_turns_go_on */
    if (!space->first) space->due = 0;
}

static void return_to_line(struct ps_space *space, struct ps_space_place *place)
{
    place->has_turn = false;
    end_turn(space);
    atomic_store(&place->turn.pending, 1); /* no thread waits for it: the place's only user is the calling thread */
    list_insert(space, place);
}

/* ---- for the waiting calls ---- */

bool ps_space_line(const struct ps_space *space)
{
    return atomic_load(&space->present) > 0;
}

struct ps_space_place *ps_place_join(struct ps_producer *producer, uint32_t want)
{
    struct ps_space *space = &producer->space;
    struct ps_space_place *place = calloc(1, sizeof(*place));
    if (!place) return NULL;
    ps_client_retain(&producer->client);
    place->producer = producer;
    place->want = want;
    pthread_mutex_init(&place->lock, NULL);
    ps_completion_init(&place->turn, &place->lock, 1);

    pthread_mutex_lock(&space->lock);
    place->ticket = ++space->last_ticket;
    atomic_fetch_add(&space->present, 1);
    atomic_thread_fence(memory_order_seq_cst);
    list_insert(space, place);
    give_due_turns(space); /* if no other call waits, this one tries at once */
    pthread_mutex_unlock(&space->lock);
    return place;
}

bool ps_place_try(struct ps_space_place *place)
{
    struct ps_space *space = &place->producer->space;
    pthread_mutex_lock(&space->lock);
    bool is_next = !space->first || space->first->ticket > place->ticket; /* M:space_first_waiter */
    place->freed = space->freed;
    space->slow = ps_now_us() - place->turn_us > SLOW_US;
    if (!is_next) return_to_line(space, place);
    if (!is_next || space->slow) give_due_turns(space);
    pthread_mutex_unlock(&space->lock);
    return is_next;
}

bool ps_place_full(struct ps_space_place *place)
{
    struct ps_space *space = &place->producer->space;
    pthread_mutex_lock(&space->lock);
    bool again = space->freed != place->freed; /* M:space_freed_noticed */
    place->freed = space->freed;
    if (!again) {
        space->due = 0;
        return_to_line(space, place);
    }
    pthread_mutex_unlock(&space->lock);
    return !again;
}

static void place_leave(struct ps_space *space, struct ps_space_place *place, bool used)
{
    bool first = space->first == place, had_turn = place->has_turn;
    if (had_turn) end_turn(space);
    else list_remove(space, place);
    atomic_fetch_sub(&space->present, 1);
    if (had_turn && !used) space->due++; /* M:space_turn_passed_on */
    if (had_turn || first) give_due_turns(space);
}

void ps_place_leave(struct ps_space_place *place, bool used)
{
    struct ps_producer *producer = place->producer;
    if (!ps_client_inherited(&producer->client)) { /* else the lock may be held for ever */
        pthread_mutex_lock(&producer->space.lock);
        place_leave(&producer->space, place, used);
        pthread_mutex_unlock(&producer->space.lock);
        ps_completion_drop(&place->turn); /* if the scheduler has dropped the fiber, its waiter is still linked */
        pthread_mutex_destroy(&place->lock);
        free(place);
    }
    ps_client_unref(&producer->client);
}

/* ---- the threads that free space ---- */

void ps_space_freed(struct ps_space *space, uint32_t messages)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!ps_space_line(space)) return;
    pthread_mutex_lock(&space->lock);
    space->freed++;
    space->due += messages;
    give_due_turns(space);
    pthread_mutex_unlock(&space->lock);
}

bool ps_space_stuck(const struct ps_space *space, int64_t now)
{
    return atomic_load(&space->turns) > 0 && atomic_load(&space->present) > atomic_load(&space->turns) &&
           now - atomic_load(&space->turn_us) > STUCK_US;
}

void ps_space_unstick(struct ps_space *space)
{
    pthread_mutex_lock(&space->lock);
    space->stuck = atomic_load(&space->turns);
    space->due += space->stuck;
    give_due_turns(space);
    pthread_mutex_unlock(&space->lock);
}
