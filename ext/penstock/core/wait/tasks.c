/*
 * Wakes the Ruby threads that many clients share (lib/penstock/base/shared_thread.rb). One word serves all of these threads: each
 * looks at its own tasks, which takes microseconds, and changes are rare.
 *
 * A thread reads the word, looks at its tasks, and sleeps until the word changes. So it misses no change in between.
 */
#include "wait/wait.h"

static _Atomic uint32_t changes;

uint32_t ps_tasks_changes(void)
{
    return atomic_load(&changes);
}

void ps_tasks_changed(void)
{
    atomic_fetch_add(&changes, 1);
    ps_word_wake(&changes);
}

void ps_tasks_interrupt(void *unused)
{
    (void)unused;
    ps_tasks_changed();
}

void ps_tasks_await(uint32_t seen, int64_t deadline_us)
{
    ps_word_sleep(&changes, seen, deadline_us);
}
