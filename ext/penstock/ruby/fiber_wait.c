/*
 * How a fiber with a scheduler waits. One of a scheduler's waiting fibers is the leader. It waits, through the scheduler, for an
 * eventfd. A settling thread writes to the eventfd when it wakes waiters (core/wait/fibers.c), and the leader then unblocks their
 * fibers. The other fibers, the followers, are blocked in the scheduler. A leader whose own wait is over passes the lead on. So a
 * scheduler needs one descriptor and one waiting IO, however many fibers wait, and no thread between the poller and a fiber.
 *
 * The leader also observes the deadlines of all fibers. If the scheduler did, it could resume a fiber at its deadline while the
 * leader unblocks the same fiber. The second resume would then disturb the fiber's next wait.
 *
 * All of it runs on the scheduler's thread, with the GVL. The group belongs to the scheduler (a hidden instance variable), marks
 * the fibers that wait, and outlives them.
 */
#include "ruby/penstock.h"
#include <ruby/fiber/scheduler.h>
#include <ruby/io.h>
#include <errno.h>

static ID id_group, id_for_fd, id_autoclose, id_wait_readable;
static VALUE group_class;

struct fiber_wait {
    struct ps_waiter waiter; /* first: a woken ps_waiter is cast to its fiber_wait */
    struct fiber_wait *next, *prev; /* in group.first */
    VALUE fiber;
    int64_t deadline_us;
    bool unblocked; /* the scheduler was asked to resume the fiber, which does not run yet */
    bool left;
};

struct group {
    struct ps_fibers *fibers;
    VALUE io;    /* reads fibers->wakeup */
    VALUE mutex; /* can be locked anywhere but in a trap */
    VALUE async_one; /* the module that waits for `io`; nil: the scheduler's io_wait does */
    struct fiber_wait *first;
    struct fiber_wait *leader; /* waits for `io` */
    struct ps_waiter *to_unblock; /* woken waiters whose fibers are still blocked */
    int64_t next_deadline_us;  /* no deadline comes before it; the leader waits until then at most */
    unsigned generation;
};

/* ---- GC ---- */

static void group_mark(void *data)
{
    const struct group *group = data;
    rb_gc_mark(group->io); /* M:gc_fiber_io_mark */
    rb_gc_mark(group->mutex); /* M:gc_fiber_mutex_mark */
    rb_gc_mark(group->async_one);
    for (const struct fiber_wait *wait = group->first; wait; wait = wait->next) rb_gc_mark(wait->fiber); /* M:gc_waiting_fibers */
}

/* The scheduler has been freed, and with it the fibers that still waited. Nothing unwinds those fibers. */
static void group_free(void *data)
{
    struct group *group = data;
    for (struct fiber_wait *wait = group->first, *next; wait; wait = next) {
        next = wait->next;
        wait->left = true;
        atomic_store(&wait->waiter.abandoned, true);
        ps_waiter_unref(&wait->waiter);
    }
    for (struct ps_waiter *waiter = group->to_unblock, *next; waiter; waiter = next) {
        next = waiter->woken_next;
        ps_waiter_unref(waiter);
    }
    if (group->fibers) ps_fibers_forget(group->fibers);
    xfree(group);
}

static size_t group_size(const void *data)
{
    const struct group *group = data;
    size_t size = sizeof(*group) + sizeof(*group->fibers);
    for (const struct fiber_wait *wait = group->first; wait; wait = wait->next) size += sizeof(*wait);
    return size;
}

/* Not write-barrier protected: it marks references in C structs that change with each wait. */
static const rb_data_type_t group_type = {
    .wrap_struct_name = "Penstock::FiberGroup",
    .function = { .dmark = group_mark, .dfree = group_free, .dsize = group_size },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

/* ---- the group of a scheduler ---- */

static VALUE wakeup_io(const struct ps_wakeup *wakeup)
{
    VALUE options = rb_hash_new();
    rb_hash_aset(options, ID2SYM(id_autoclose), Qfalse); /* the core owns the descriptor */
    VALUE arguments[] = { INT2FIX(wakeup->reader), rb_str_new_cstr("r"), options };
    return rb_funcallv_kw(rb_cIO, id_for_fd, 3, arguments, RB_PASS_KEYWORDS);
}

/* Async 1's io_wait does not pass the program's timeouts on to the leader: see lib/penstock/native/async_one.rb. */
static VALUE async_one(VALUE scheduler)
{
    VALUE module = rb_const_get(penstock_native, rb_intern("AsyncOne"));
    return RTEST(rb_funcall(module, rb_intern("scheduler?"), 1, scheduler)) ? module : Qnil;
}

static VALUE group_new(VALUE scheduler)
{
    struct group *group;
    VALUE self = TypedData_Make_Struct(group_class, struct group, &group_type, group);
    group->io = group->mutex = group->async_one = Qnil;
    group->next_deadline_us = PS_FOREVER;
    group->generation = ps_generation();
    group->mutex = rb_mutex_new();
    group->async_one = async_one(scheduler);
    group->fibers = ps_fibers_new();
    if (!group->fibers) rb_syserr_fail(errno, "waiting in a fiber");
    group->io = wakeup_io(&group->fibers->wakeup);
    return self;
}

/* A fork child leaves the inherited group alone: the group reads a descriptor that both processes share. */
static VALUE group_of(VALUE scheduler)
{
    VALUE group = rb_attr_get(scheduler, id_group);
    if (!NIL_P(group) && ((struct group *)penstock_data(group, &group_type))->generation == ps_generation()) return group;
    group = group_new(scheduler);
    rb_ivar_set(scheduler, id_group, group);
    return group;
}

/* ---- one fiber's wait ---- */

struct fiber_sleep {
    VALUE scheduler, group_object;
    struct group *group;
    struct fiber_wait *wait;
    const struct penstock_wait *what;
    bool joined;
    bool done;
};

static VALUE seconds_until(int64_t deadline_us)
{
    if (deadline_us == PS_FOREVER) return Qnil;
    int64_t left_us = deadline_us - ps_now_us();
    return DBL2NUM(left_us > 0 ? (double)left_us / 1e6 : 0);
}

static bool is_over(const struct fiber_wait *wait)
{
    if (atomic_load(&wait->waiter.state) != PS_WAITING) return true;
    return wait->deadline_us != PS_FOREVER && ps_now_us() >= wait->deadline_us;
}

struct unblocking {
    const struct fiber_sleep *sleep;
    const struct fiber_wait *wait;
};

static VALUE unblock(VALUE arg)
{
    const struct unblocking *unblocking = (const struct unblocking *)arg;
    return rb_fiber_scheduler_unblock(unblocking->sleep->scheduler, unblocking->sleep->group_object, unblocking->wait->fiber);
}

/* Asks the scheduler to resume the fiber. Asks only once per wait, as a scheduler may count. Not 0: the request was interrupted
 * with this state, and has to be repeated. */
static int unblock_once(const struct fiber_sleep *sleep, struct fiber_wait *wait)
{
    if (wait->left || wait->unblocked || wait == sleep->group->leader) return 0;
    struct unblocking unblocking = { .sleep = sleep, .wait = wait };
    int interrupted = 0;
    atomic_fetch_add(&wait->waiter.refs, 1); /* the fiber may run and leave before the scheduler returns */
    wait->unblocked = true;
    rb_protect(unblock, (VALUE)&unblocking, &interrupted);
    if (interrupted) wait->unblocked = false;
    ps_waiter_unref(&wait->waiter);
    return interrupted;
}

/* Adds waiters whose deadline has passed to the woken ones. Unblocks no fiber itself: a scheduler may switch fibers when it is
 * asked to unblock one (its lock may be taken), and a fiber that leaves meanwhile would change the list during the loop. */
static void wake_expired(struct group *group)
{
    int64_t now_us = ps_now_us();
    if (now_us < group->next_deadline_us) return;
    group->next_deadline_us = PS_FOREVER;
    for (struct fiber_wait *wait = group->first; wait; wait = wait->next) {
        bool expired = wait->deadline_us <= now_us;
        if (!expired && wait->deadline_us < group->next_deadline_us) group->next_deadline_us = wait->deadline_us;
        if (expired && !wait->unblocked && wait != group->leader) ps_fibers_wake(&wait->waiter);
    }
}

/* An exception may interrupt it: the rest stays in `to_unblock` for the next leader. */
static void unblock_woken(const struct fiber_sleep *sleep)
{
    struct group *group = sleep->group;
    struct ps_waiter **last = &group->to_unblock;
    while (*last) last = &(*last)->woken_next;
    *last = ps_fibers_take(group->fibers);

    while (group->to_unblock) {
        struct ps_waiter *waiter = group->to_unblock;
        group->to_unblock = waiter->woken_next;
        atomic_store(&waiter->woken, false); /* from here on it may be pushed again */
        struct fiber_wait *wait = (struct fiber_wait *)waiter;
        int interrupted = unblock_once(sleep, wait);
        if (interrupted) ps_fibers_wake(waiter); /* the next leader repeats it */
        ps_waiter_unref(waiter);
        if (interrupted) rb_jump_tag(interrupted);
    }
}

/* Returns at the group's next deadline at the latest. Raises the exception that ends the leader's own wait. */
static void wait_for_signal(const struct fiber_sleep *sleep)
{
    const struct group *group = sleep->group;
    VALUE seconds = seconds_until(group->next_deadline_us);
    if (NIL_P(group->async_one)) rb_fiber_scheduler_io_wait(sleep->scheduler, group->io, INT2FIX(RUBY_IO_READABLE), seconds);
    else rb_funcall(group->async_one, id_wait_readable, 2, group->io, seconds);
}

static VALUE lead(VALUE arg)
{
    const struct fiber_sleep *sleep = (const struct fiber_sleep *)arg;
    struct group *group = sleep->group;
    unsigned generation = group->generation;
    if (group->to_unblock) unblock_woken(sleep); /* the previous leader was interrupted */
    while (!is_over(sleep->wait)) {
        wait_for_signal(sleep);
        penstock_check_forked(generation);
        wake_expired(group);
        unblock_woken(sleep);
    }
    return Qnil;
}

static VALUE resign(VALUE arg)
{
    ((const struct fiber_sleep *)arg)->group->leader = NULL;
    return Qnil;
}

static void follow(const struct fiber_sleep *sleep)
{
    rb_fiber_scheduler_block(sleep->scheduler, sleep->group_object, Qnil);
    sleep->wait->unblocked = false;
}

static void give_way(const struct fiber_sleep *sleep)
{
    struct group *group = sleep->group;
    unsigned generation = group->generation;
    while (!is_over(sleep->wait)) {
        if (group->leader) {
            follow(sleep);
        } else {
            group->leader = sleep->wait;
            rb_ensure(lead, (VALUE)sleep, resign, (VALUE)sleep);
        }
        penstock_check_forked(generation);
    }
}

static VALUE sleep_body(VALUE arg)
{
    struct fiber_sleep *sleep = (struct fiber_sleep *)arg;
    const struct penstock_wait *what = sleep->what;
    struct ps_waiter *waiter = &sleep->wait->waiter;
    for (;;) {
        sleep->joined = ps_waiter_join(waiter, what->completion, what->settled);
        sleep->done = what->attempt ? what->attempt(what->arg) : !sleep->joined;
        if (sleep->done) return Qnil;
        give_way(sleep);
        ps_waiter_leave(waiter, what->completion);
        sleep->joined = false;
        sleep->done = atomic_load(&waiter->state) == PS_DONE;
        if (sleep->done || (what->deadline_us != PS_FOREVER && ps_now_us() >= what->deadline_us)) return Qnil;
    }
}

/* If there is no leader, unblocks a fiber that becomes it. Not needed if some fiber is unblocked already: it becomes the
 * leader, or passes the lead on when it leaves. */
static int unblock_a_leader(const struct fiber_sleep *sleep)
{
    const struct group *group = sleep->group;
    if (group->leader || !group->first) return 0;
    for (struct fiber_wait *wait = group->first; wait; wait = wait->next)
        if (wait->unblocked) return 0;
    return unblock_once(sleep, group->first);
}

static void pass_the_lead_on(const struct fiber_sleep *sleep)
{
    int interrupted = unblock_a_leader(sleep);
    if (!interrupted) return;
    unblock_a_leader(sleep); /* the interrupt is consumed */
    rb_jump_tag(interrupted);
}

static VALUE sleep_ensure(VALUE arg)
{
    struct fiber_sleep *sleep = (struct fiber_sleep *)arg;
    struct group *group = sleep->group;
    struct fiber_wait *wait = sleep->wait;

    wait->left = true;
    if (wait->prev) wait->prev->next = wait->next;
    else group->first = wait->next;
    if (wait->next) wait->next->prev = wait->prev;

    bool forked = group->generation != ps_generation(); /* threads of the parent process may have held the locks at the fork */
    if (sleep->joined && !forked) ps_waiter_leave(&wait->waiter, sleep->what->completion);
    ps_waiter_unref(&wait->waiter);
    if (!forked) pass_the_lead_on(sleep);
    return Qnil;
}

bool penstock_wait_as_fiber(VALUE scheduler, const struct penstock_wait *what)
{
    unsigned generation = ps_generation();
    rb_thread_check_ints(); /* raises interrupts deferred until a blocking call, such as this */
    penstock_check_forked(generation); /* by a trap */
    struct fiber_sleep sleep = { .scheduler = scheduler, .group_object = group_of(scheduler), .what = what };
    struct group *group = sleep.group = penstock_data(sleep.group_object, &group_type);
    struct fiber_wait *wait = sleep.wait = (struct fiber_wait *)ps_fibers_waiter(group->fibers, sizeof(*wait));
    if (!wait) rb_memerror();
    wait->fiber = rb_fiber_current();
    wait->deadline_us = what->deadline_us;
    wait->next = group->first;
    if (wait->next) wait->next->prev = wait;
    group->first = wait;
    if (wait->deadline_us < group->next_deadline_us) {
        group->next_deadline_us = wait->deadline_us;
        if (group->leader) ps_wakeup_signal(&group->fibers->wakeup); /* the leader would wait for too long */
    }
    rb_ensure(sleep_body, (VALUE)&sleep, sleep_ensure, (VALUE)&sleep);
    RB_GC_GUARD(sleep.group_object);
    return sleep.done;
}

/* ---- whether there is a scheduler ---- */

static VALUE lock_and_unlock(VALUE mutex)
{
    rb_mutex_lock(mutex);
    rb_mutex_unlock(mutex);
    return Qnil;
}

/* Whether this is a signal trap: there no mutex can be locked. A trap interrupts whatever the main thread does, and has to end
 * before any fiber can run. */
static bool in_trap(VALUE scheduler)
{
    if (rb_thread_current() != rb_thread_main()) return false;
    const struct group *group = penstock_data(group_of(scheduler), &group_type);
    VALUE before = rb_errinfo();
    int state = 0;
    rb_protect(lock_and_unlock, group->mutex, &state);
    if (state) rb_set_errinfo(before);
    return state != 0;
}

VALUE penstock_fiber_scheduler(void)
{
    VALUE scheduler = rb_fiber_scheduler_current();
    return NIL_P(scheduler) || in_trap(scheduler) ? Qnil : scheduler;
}

void penstock_fiber_wait_init(void)
{
    id_group = rb_intern("penstock_group"); /* without @, so that Ruby code does not see it */
    id_for_fd = rb_intern("for_fd");
    id_autoclose = rb_intern("autoclose");
    id_wait_readable = rb_intern("wait_readable");
    group_class = rb_class_new(rb_cObject);
    rb_undef_alloc_func(group_class);
    rb_gc_register_mark_object(group_class); /* M:gc_fiber_group_class */
}
