/*
 * librdkafka's threads wake each other by pipes, and programs that the process starts would inherit them: librdkafka makes them
 * without close-on-exec (2.0.2 and 2.14.2; its sockets and files have it), and has no callback for it. So this looks for them. It
 * recognizes them: they do not block, and librdkafka asks for the smallest size of a pipe.
 *
 * The system gives the lowest free numbers. So those of new pipes are near the lowest number that is free now, and a process with
 * thousands of descriptors need not look at all of them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_GETPIPE_SZ */
#endif
#include "base/base.h"
#ifdef PS_LINUX
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { NEAR = 512 };

static bool is_librdkafkas(int fd)
{
    return fcntl(fd, F_GETPIPE_SZ) == (int)sysconf(_SC_PAGESIZE) && fcntl(fd, F_GETFL) & O_NONBLOCK;
}

void ps_pipes_keep(void)
{
    int lowest = eventfd(0, EFD_CLOEXEC);
    if (lowest < 0) return; /* no number is free */
    close(lowest);
    int first = lowest > NEAR + STDERR_FILENO ? lowest - NEAR : STDERR_FILENO + 1;
    for (int fd = first; fd < lowest + NEAR; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags != -1 && !(flags & FD_CLOEXEC) && is_librdkafkas(fd)) fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
    }
}
#else
void ps_pipes_keep(void)
{
}
#endif

void ps_pipes_keep_once(void)
{
    static _Thread_local bool done;
    if (!done) ps_pipes_keep();
    done = true;
}
