/*
 * A client's own log lines and librdkafka's about it: they go to the logger's mailbox, or to stderr. Each connection to a
 * broker that is down logs the failure again and again. So at most LINES lines of one kind go through in PERIOD_US, then one
 * line with the number left out. Debug lines have no limit, as the user has asked for them.
 *
 * librdkafka repeats problems with connections while they last, in its log and as errors. Such a problem is logged once,
 * again after REMIND_US, and again if it returns after an outage has ended.
 *
 * Ruby threads, the poller and librdkafka's threads write lines; `lock` is a leaf.
 */
#include "base/base.h"
#include <stdio.h>
#include <string.h>

enum { LINES = 20, PERIOD_US = 10000000, REMIND_US = 600000000, DEBUGGING = 7 };

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
    char line[1024], clean[2048];
    snprintf(line, sizeof(line), "[%s] %s: %s", log->name, facility, text);
    ps_text_clean(clean, sizeof(clean), line, strlen(line), PS_TEXT_SHOWN); /* M:text_stderr */
    if (log->to_mailbox) ps_mailbox_post(log->address, level, clean);
    else fprintf(stderr, "penstock: %s\n", clean);
}

/* A new kind replaces an older one of the same hash. Name and level distinguish kinds well enough. */
static struct ps_log_kind *kind_of(struct ps_log *log, int level, const char *facility)
{
    uint32_t hash = 5381 + (uint32_t)level;
    for (const char *c = facility; *c; c++) hash = hash * 33 + (unsigned char)*c;
    return &log->kinds[hash % PS_LOG_KINDS];
}

/* With the lock held. Returns how many lines the previous period left out. */
static unsigned begin_period(struct ps_log_kind *kind, int64_t now)
{
    unsigned left_out = kind->left_out;
    kind->ends_us = now + PERIOD_US;
    kind->lines = kind->left_out = 0;
    return left_out;
}

static void write_left_out(const struct ps_log *log, int level, const char *facility, unsigned count)
{
    char text[64];
    if (count == 0) return;
    snprintf(text, sizeof(text), "%u more lines of this kind were left out", count);
    write_line(log, level, facility, text);
}

static void write_limited(struct ps_log *log, int level, const char *facility, const char *text)
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
    write_left_out(log, level, facility, left_out);
    if (fits) write_line(log, level, facility, text);
}

/* Without a logger, only losses and failures go to stderr. */
static bool of_interest(const struct ps_log *log, int level)
{
    return log->to_mailbox || level <= 3;
}

void ps_log_line(struct ps_log *log, int level, const char *facility, const char *text)
{
    if (of_interest(log, level)) write_limited(log, level, facility, text);
}

/* ---- problems with connections ---- */

/* The same hash for texts that differ only in the thread's name before them, or in the counts and times after them. Without
 * `numbers`, all digits are ignored, as they change from line to line. */
static uint32_t hash_of(uint32_t hash, const char *text, bool numbers)
{
    if (strncmp(text, "[thrd:", 6) == 0 && strstr(text, "]: ")) text = strstr(text, "]: ") + 3;
    const char *end = strstr(text, " (after ");
    for (const char *c = text; *c && c != end; c++)
        if (numbers || *c < '0' || *c > '9') hash = hash * 33 + (unsigned char)*c;
    return hash;
}

/* With the lock held. The problem's entry, or else the one that was logged longest ago. */
static struct ps_log_problem *place_of(struct ps_log *log, uint32_t hash)
{
    struct ps_log_problem *oldest = log->problems;
    for (struct ps_log_problem *problem = log->problems; problem < log->problems + PS_LOG_PROBLEMS; problem++) {
        if (problem->hash == hash) return problem;
        if (problem->until_us < oldest->until_us) oldest = problem;
    }
    return oldest;
}

/* With the lock held. False: already logged. A repetition counts as left out if the facility is the same. */
static bool is_news(struct ps_log_problem *problem, uint32_t hash, const char *facility, int64_t now)
{
    bool same = problem->hash == hash && problem->until_us > 0;
    if (same && now < problem->until_us) {
        if (strcmp(problem->facility, facility) == 0) problem->left_out++;
        return false;
    }
    if (!same) problem->left_out = 0;
    problem->hash = hash;
    problem->until_us = now + REMIND_US;
    snprintf(problem->facility, sizeof(problem->facility), "%s", facility);
    return true;
}

/* False: already logged. */
static bool write_problem(struct ps_log *log, uint32_t outage, int level, const char *facility, const char *text, bool numbers,
                          bool interesting)
{
    uint32_t hash = hash_of(5381 + outage, text, numbers);
    pthread_mutex_lock(&log->lock);
    struct ps_log_problem *problem = place_of(log, hash);
    bool news = is_news(problem, hash, facility, ps_now_us());
    unsigned left_out = news ? problem->left_out : 0;
    if (news) problem->left_out = 0;
    problem->level = level;
    pthread_mutex_unlock(&log->lock);
    if (interesting) write_left_out(log, level, facility, left_out);
    if (interesting && news) write_limited(log, level, facility, text);
    return news;
}

void ps_log_librdkafka(struct ps_log *log, uint32_t outage, int level, const char *facility, const char *text)
{
    bool fails = strcmp(facility, "FAIL") == 0;
    if (level < DEBUGGING && (fails || strcmp(facility, "REQTMOUT") == 0))
        write_problem(log, outage, level, facility, text, fails, true);
    else
        write_limited(log, level, facility, text);
}

bool ps_log_error(struct ps_log *log, uint32_t outage, int level, rd_kafka_resp_err_t err, const char *text)
{
    bool numbers = err != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN;
    return write_problem(log, outage, level, rd_kafka_err2name(err), text, numbers, of_interest(log, level));
}

/* ---- the end ---- */

static void write_problem_left_out(struct ps_log *log, int i)
{
    pthread_mutex_lock(&log->lock);
    struct ps_log_problem problem = log->problems[i];
    log->problems[i].left_out = 0;
    pthread_mutex_unlock(&log->lock);
    if (of_interest(log, problem.level)) write_left_out(log, problem.level, problem.facility, problem.left_out);
}

void ps_log_end(struct ps_log *log)
{
    for (int i = 0; i < PS_LOG_KINDS; i++) {
        pthread_mutex_lock(&log->lock);
        struct ps_log_kind kind = log->kinds[i];
        log->kinds[i].left_out = 0;
        pthread_mutex_unlock(&log->lock);
        write_left_out(log, kind.level, kind.facility, kind.left_out);
    }
    for (int i = 0; i < PS_LOG_PROBLEMS; i++) write_problem_left_out(log, i);
}
