/*
 * Wakes one thread that sleeps in poll(2): through an eventfd on Linux, else through a pipe.
 * Several signals before the sleeper looks count as one. Signalling never blocks or fails: an eventfd only adds up, and a
 * full pipe is readable anyway.
 */
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#ifdef PS_LINUX
#include <sys/eventfd.h>
#endif

int ps_wakeup_open(struct ps_wakeup *wakeup)
{
#ifdef PS_LINUX
    wakeup->reader = wakeup->writer = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return wakeup->reader < 0 ? errno : 0;
#else
    int ends[2];
    if (pipe(ends) < 0) return errno;
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
    wakeup->reader = ends[0];
    wakeup->writer = ends[1];
    return 0;
#endif
}

void ps_wakeup_close(struct ps_wakeup *wakeup)
{
    close(wakeup->reader);
    if (wakeup->writer != wakeup->reader) close(wakeup->writer);
}

void ps_wakeup_signal(struct ps_wakeup *wakeup)
{
    const uint64_t one = 1;
    ssize_t written;
    do written = write(wakeup->writer, &one, sizeof(one));
    while (written < 0 && errno == EINTR);
}

bool ps_wakeup_wait(struct ps_wakeup *wakeup, int64_t deadline_us)
{
    struct pollfd readable = { .fd = wakeup->reader, .events = POLLIN };
    return poll(&readable, 1, ps_remaining_ms(deadline_us)) > 0 && ps_wakeup_take(wakeup);
}

bool ps_wakeup_take(struct ps_wakeup *wakeup)
{
    uint64_t counts[128]; /* an eventfd yields one counter; a pipe yields one for each write */
    if (wakeup->reader == wakeup->writer) return read(wakeup->reader, counts, sizeof(*counts)) > 0;
    bool taken = false;
    ssize_t size;
    do {
        size = read(wakeup->reader, counts, sizeof(counts));
        taken |= size > 0;
    } while (size == sizeof(counts));
    return taken;
}
