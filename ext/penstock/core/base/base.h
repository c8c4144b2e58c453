/*
 * core/base: what needs neither a client nor a wait: clock, fork generation, threads, process singletons, text, the futex
 * word, the eventfd, the log.
 *
 * The native core: everything of Penstock that knows librdkafka and threads but not Ruby.
 *
 *   Ruby describes messages. C moves bytes between Ruby objects and librdkafka.
 *   One poller turns librdkafka's events into delivery results and full mailboxes.
 *
 * Nothing below this directory includes ruby.h: any thread may call it, with or without the GVL. It never raises, and can
 * be built and tested alone. Suffix `_cb`: a librdkafka thread calls it, so it only does atomics and one write(2) or futex(2),
 * notifies a bell, or logs (DESIGN.md, "Threads"). The order of all locks: DESIGN.md, "Locks".
 */
#ifndef PENSTOCK_BASE_H
#define PENSTOCK_BASE_H

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__linux__) && !defined(PENSTOCK_PORTABLE) /* the macro builds on Linux what other systems get, for tests */
#define PS_LINUX
#endif

/* ---- platform.c: clock, fork, threads ------------------------------------------------------------- */

#define PS_FOREVER INT64_MAX /* a deadline that never comes */

int64_t ps_now_us(void);                     /* monotonic */
int64_t ps_about_now_us(void);               /* the same, some ms behind and several times cheaper */
int64_t ps_wall_clock_ms(void);              /* since the epoch, Kafka's timestamps */
int64_t ps_deadline_us(int64_t timeout_ms);  /* now + timeout; negative: PS_FOREVER */
int ps_remaining_ms(int64_t deadline_us);    /* rounded up, never negative, -1 for PS_FOREVER */

void ps_generation_init(void);
unsigned ps_generation(void); /* which process of a family of forks this is */

int ps_thread_start(const char *name, void *(*body)(void *), void *arg); /* detached; 0, or errno set too */

/* ---- text.c: text that others have written ------------------------------------------------------- */

enum ps_text_use {
    PS_TEXT_SHOWN, /* for people: control characters and marks of direction are escaped, as \n, \x1B or \u202E */
    PS_TEXT_NAME,  /* for programs: only made valid */
    PS_TEXT_JSON   /* made valid, and control characters in its Strings are escaped, which JSON demands */
};

/* Makes valid UTF-8 of any bytes; what is none becomes U+FFFD. Writes whole characters and a NUL behind them, as far as there is
 * room. How many bytes all of it has, as snprintf returns it; that is `size` for text that is clean. */
size_t ps_text_clean(char *out, size_t room, const char *text, size_t size, enum ps_text_use use);

/* ---- eventfd.c: wakes one thread that sleeps in poll(2) ------------------------------------------- */

struct ps_wakeup {
    int reader;
    int writer; /* the same eventfd on Linux, the other end of a pipe elsewhere */
};

int ps_wakeup_open(struct ps_wakeup *wakeup);
void ps_wakeup_close(struct ps_wakeup *wakeup);
void ps_wakeup_signal(struct ps_wakeup *wakeup);                       /* async-signal-safe */
bool ps_wakeup_wait(struct ps_wakeup *wakeup, int64_t deadline_us);    /* true: was signalled */
bool ps_wakeup_take(struct ps_wakeup *wakeup);                         /* the same, without waiting */

/* ---- futex_word.c: threads that sleep until a word changes -------------------------------------------- */

bool ps_word_sleep(_Atomic uint32_t *word, uint32_t value, int64_t deadline_us); /* false: a signal came in between */
void ps_word_wake(_Atomic uint32_t *word);                                       /* everybody who sleeps on it */

/* ---- singleton.c: what a process has one of; a forked child makes its own ------------------------ */

struct ps_singleton { /* the first member of each */
    unsigned generation;
    pthread_mutex_t lock;     /* of what comes behind */
    _Atomic uint32_t changes; /* threads sleep until it is another number */
};

struct ps_singleton_kind { /* static */
    size_t size;
    void (*init)(void *singleton); /* for what is not 0 at first; NULL: nothing. It may be freed unused */
    _Atomic(struct ps_singleton *) current;
};

void *ps_singleton_get(struct ps_singleton_kind *kind);     /* this process's, made at the first use */
void ps_singleton_changed(struct ps_singleton *singleton);  /* wakes the threads that sleep on `changes` */

/* ---- log_mailbox.c: log lines for Ruby, until the dispatcher thread takes them --------------------------- */

struct ps_mail {
    struct ps_mail *next;
    uint64_t address;   /* whose logger; see Penstock::LogDispatcher */
    int level;          /* syslog's 0..7; -1: this address sends no more */
    size_t size;
    char text[];
};

#define PS_MAIL_LAST (-1)

uint64_t ps_mailbox_address(void); /* one that nobody has had */
bool ps_mailbox_post(uint64_t address, int level, const char *text); /* false: full or no memory, counted */
struct ps_mail *ps_mailbox_take(void);                               /* NULL: empty */
uint64_t ps_mailbox_dropped(void);                                   /* and sets it back to 0 */
/* Sleeps until there is mail, or until interrupted. */
void ps_mailbox_wait(void);
void ps_mailbox_interrupt(void *unused);

/* ---- redact.c: keeps a client's secrets out of texts that others wrote ---------------------------------- */

enum { PS_SECRETS_GIVEN = 4, PS_SECRETS = 32 };

struct ps_redaction { /* in the client or consumer */
    pthread_mutex_t lock;     /* a leaf */
    char *words[PS_SECRETS];  /* the first PS_SECRETS_GIVEN were given since it was configured */
    size_t next;              /* which of those is the oldest */
};

bool ps_secret_setting(const char *name);              /* nobody may see its value */
bool ps_secret_text(const char *text, size_t size);    /* nor this one, whatever setting it is in: a PEM */
void ps_redaction_init(struct ps_redaction *redaction);
void ps_redaction_destroy(struct ps_redaction *redaction);
void ps_redaction_of_conf(struct ps_redaction *redaction, rd_kafka_conf_t *conf); /* its secret settings */
void ps_redaction_add(struct ps_redaction *redaction, const char *secret);        /* a password or token given since */
void ps_redact(struct ps_redaction *redaction, char *text);                       /* in place: it becomes no longer */

/* ---- log.c: what a client has to say ----------------------------------------------------------------- */

enum { PS_LOG_KINDS = 16, PS_LOG_PROBLEMS = 32 };

struct ps_log { /* in the client or consumer */
    pthread_mutex_t lock; /* of `kinds` and `problems`; a leaf */
    const char *name;
    uint64_t address;
    bool to_mailbox;      /* else to stderr */
    struct ps_log_kind {
        int64_t ends_us;  /* when the period ends in which these were counted */
        unsigned lines, left_out;
        int level;
        char facility[32];
    } kinds[PS_LOG_KINDS];
    struct ps_log_problem {
        uint32_t hash;
        int64_t until_us; /* until when it is not logged again; 0: there is none here */
        unsigned left_out;
        int level;
        char facility[32];
    } problems[PS_LOG_PROBLEMS];
};

void ps_log_init(struct ps_log *log, const char *name, uint64_t address, bool to_mailbox);
void ps_log_destroy(struct ps_log *log);
void ps_log_line(struct ps_log *log, int level, const char *facility, const char *text); /* unless there were too many */
/* What librdkafka writes into its log, and reports as an error: often the same. `outage`: a problem of another one is another. */
void ps_log_librdkafka(struct ps_log *log, uint32_t outage, int level, const char *facility, const char *text);
bool ps_log_error(struct ps_log *log, uint32_t outage, int level, rd_kafka_resp_err_t err, const char *text); /* false: it was there */
void ps_log_end(struct ps_log *log);                                                     /* says what was left out */

#endif
