/*
 * What a client says about itself and what librdkafka says of it: to its logger's mailbox, or to stderr. A broker that is
 * down is told of by each of its connections, again and again: of one kind of line, LINES go through in PERIOD_US, then one
 * that says how many were left out. Lines for debugging were asked for, and all go through.
 */
#include "core.h"
#include <stdio.h>
#include <string.h>

enum { LINES = 20, PERIOD_US = 10000000, DEBUGGING = 7 };

void ps_log_init(struct ps_log *log, const char *name, uint64_t address, bool to_mailbox)
{
    pthread_mutex_init(&log->lock, NULL);
    log->name = name;
    log->address = address;
    log->to_mailbox = to_mailbox;
}

void ps_log_destroy(struct ps_log *log)
{
    pthread_mutex_destroy(&log->lock);
}

static void write_line(const struct ps_log *log, int level, const char *facility, const char *text)
{
    char line[1024];
    snprintf(line, sizeof(line), "[%s] %s: %s", log->name, facility, text);
    if (log->to_mailbox) ps_mailbox_post(log->address, level, line);
    else if (level <= 3) fprintf(stderr, "penstock: %s\n", line); /* the rest librdkafka has printed itself */
}

/* Of the kinds that meet in one slot the older goes: a kind is told apart well enough by its name and level. */
static struct ps_log_kind *kind_of(struct ps_log *log, int level, const char *facility)
{
    uint32_t hash = 5381 + (uint32_t)level;
    for (const char *c = facility; *c; c++) hash = hash * 33 + (unsigned char)*c;
    return &log->kinds[hash % PS_LOG_KINDS];
}

/* With the lock held. How many lines to say were left out, before this period. */
static unsigned begin_period(struct ps_log_kind *kind, int64_t now)
{
    unsigned left_out = kind->left_out;
    kind->ends_us = now + PERIOD_US;
    kind->lines = kind->left_out = 0;
    return left_out;
}

static void say_left_out(const struct ps_log *log, int level, const char *facility, unsigned count)
{
    char text[64];
    if (count == 0) return;
    snprintf(text, sizeof(text), "%u more lines of this kind were left out", count);
    write_line(log, level, facility, text);
}

void ps_log_line(struct ps_log *log, int level, const char *facility, const char *text)
{
    unsigned left_out = 0;
    bool fits = true;
    if (level < DEBUGGING) {
        pthread_mutex_lock(&log->lock);
        struct ps_log_kind *kind = kind_of(log, level, facility);
        int64_t now = ps_now_us();
        if (now >= kind->ends_us) left_out = begin_period(kind, now);
        snprintf(kind->facility, sizeof(kind->facility), "%s", facility);
        kind->level = level;
        fits = kind->lines < LINES;
        if (fits) kind->lines++;
        else kind->left_out++;
        pthread_mutex_unlock(&log->lock);
    }
    say_left_out(log, level, facility, left_out);
    if (fits) write_line(log, level, facility, text);
}

void ps_log_end(struct ps_log *log)
{
    for (int i = 0; i < PS_LOG_KINDS; i++) {
        pthread_mutex_lock(&log->lock);
        struct ps_log_kind kind = log->kinds[i];
        log->kinds[i].left_out = 0;
        pthread_mutex_unlock(&log->lock);
        say_left_out(log, kind.level, kind.facility, kind.left_out);
    }
}
