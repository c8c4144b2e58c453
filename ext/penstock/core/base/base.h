/*
 * core/base: the parts that need no client: clock, fork generation, threads, memory, singletons, text, futex word, eventfd, log.
 *
 * The native core (ext/penstock/core) is the part of Penstock that knows librdkafka and threads but not Ruby. Ruby code decides
 * what to do. The core moves messages to librdkafka, and one poller thread turns librdkafka's events into delivery results.
 *
 * Nothing in the core includes ruby.h. Any thread may call it, with or without the GVL; it never raises, and it can be built and
 * tested alone. librdkafka's threads call the functions with the suffix `_cb`, so these only use atomics and one write(2) or
 * futex(2), notify a bell, or log (DESIGN.md, "Threads"). The order of all locks: DESIGN.md, "Locks".
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
int64_t ps_about_now_us(void);               /* the same, up to some ms behind and several times cheaper */
int64_t ps_wall_clock_ms(void);              /* since the epoch, as in Kafka's timestamps */
int64_t ps_deadline_us(int64_t timeout_ms);  /* now + timeout; PS_FOREVER for a negative timeout */
int ps_remaining_ms(int64_t deadline_us);    /* rounded up, never negative; -1 for PS_FOREVER */

void ps_fork_init(void);
unsigned ps_generation(void); /* a number that differs between a parent process and its fork children */

int ps_thread_start(const char *name, void *(*body)(void *), void *arg); /* detached; 0 or an errno (also in errno) */

/* ---- random.c: OpenSSL's random numbers and fork -------------------------------------------------------- */

/* A thread that calls librdkafka begins before and ends after. begin: false if it had begun, or need not. */
bool ps_random_begin(void);
void ps_random_end(void);
void ps_random_watch_threads(rd_kafka_conf_t *conf); /* before rd_kafka_new: librdkafka's threads do both */
void ps_random_before_fork(void); /* only for pthread_atfork */
void ps_random_after_fork(void);

/* ---- pipes.c: librdkafka's pipes and other programs ------------------------------------------------------ */

/* After librdkafka has made pipes: programs that the process starts do not inherit them. Does nothing except on Linux. */
void ps_pipes_keep(void);
void ps_pipes_keep_once(void); /* the same, at most once in each thread */

/* ---- text.c: text from brokers and librdkafka -------------------------------------------------------- */

enum ps_text_use {
    PS_TEXT_SHOWN, /* for people: escapes control characters and direction marks, as \n, \x1B or \u202E */
    PS_TEXT_NAME,  /* for programs: only made valid UTF-8 */
    PS_TEXT_JSON   /* valid UTF-8, with control characters inside JSON Strings escaped, as JSON requires */
};

/* Makes valid UTF-8 of any bytes: invalid ones become U+FFFD. Writes as many whole characters as fit, and a NUL. Like
 * snprintf, it returns the bytes that the whole result needs; for clean text that is `size`. */
size_t ps_text_clean(char *out, size_t room, const char *text, size_t size, enum ps_text_use use);
/* True if the bytes are UTF-8, without a zero byte. */
bool ps_text_valid(const char *text, size_t size);

/* ---- eventfd.c: wakes one thread that sleeps in poll(2) ------------------------------------------- */

struct ps_wakeup {
    int reader;
    int writer; /* the same eventfd on Linux, the other end of a pipe elsewhere */
};

int ps_wakeup_open(struct ps_wakeup *wakeup);
void ps_wakeup_close(struct ps_wakeup *wakeup);
void ps_wakeup_signal(struct ps_wakeup *wakeup);                       /* async-signal-safe */
bool ps_wakeup_wait(struct ps_wakeup *wakeup, int64_t deadline_us);    /* true: it was signalled */
bool ps_wakeup_take(struct ps_wakeup *wakeup);                         /* the same, without waiting */

/* ---- blocks.c: memory that is used again -------------------------------------------------------------- */

void *ps_block_new(size_t *size);            /* of at least this size; `size` becomes the real one. NULL: no memory */
void ps_block_free(void *block, size_t size); /* the real one */
/* Gives back what is kept, if nothing needed it for half a second. Returns when to call it again; PS_FOREVER: nothing is kept. */
int64_t ps_blocks_trim(void);

/* ---- futex_word.c: threads that sleep until a word changes -------------------------------------------- */

bool ps_word_sleep(_Atomic uint32_t *word, uint32_t value, int64_t deadline_us); /* false: a signal interrupted the sleep */
void ps_word_wake(_Atomic uint32_t *word);                                       /* every thread that sleeps on it */

/* ---- singleton.c: objects that each process has one of; a fork child makes its own ------------------ */

struct ps_singleton { /* the first member of each singleton */
    unsigned generation;
    pthread_mutex_t lock;     /* guards the members after this struct */
    _Atomic uint32_t changes; /* threads sleep until this number changes */
};

struct ps_singleton_kind { /* a static variable */
    size_t size;
    void (*init)(void *singleton); /* sets members that do not start as 0; may be NULL. A thread may free the result unused */
    _Atomic(struct ps_singleton *) current;
};

void *ps_singleton_get(struct ps_singleton_kind *kind);     /* this process's object, made at the first use */
void ps_singleton_changed(struct ps_singleton *singleton);  /* wakes the threads that sleep on `changes` */

/* ---- log_mailbox.c: log lines for Ruby, until the dispatcher thread takes them --------------------------- */

struct ps_mail {
    struct ps_mail *next;
    uint64_t address;   /* names the logger; see Penstock::LogDispatcher */
    int level;          /* syslog's 0..7; PS_MAIL_LAST: the last mail of this address */
    size_t size;
    char text[];
};

#define PS_MAIL_LAST (-1)

uint64_t ps_mailbox_address(void); /* a new one */
bool ps_mailbox_post(uint64_t address, int level, const char *text); /* false: full or out of memory, and counted */
struct ps_mail *ps_mailbox_take(void);                               /* NULL: empty */
uint64_t ps_mailbox_dropped(void);                                   /* since the last call */
/* Sleeps until mail arrives or another thread interrupts. */
void ps_mailbox_wait(void);
void ps_mailbox_interrupt(void *unused);

/* ---- redact.c: hides a client's secrets in texts from brokers and librdkafka ----------------------------- */

enum { PS_SECRETS_GIVEN = 4, PS_SECRETS = 32 };

struct ps_redaction { /* in the ps_client */
    pthread_mutex_t lock;     /* a leaf */
    char *words[PS_SECRETS];  /* the first PS_SECRETS_GIVEN are credentials set after configuration, the others settings */
    size_t next;              /* the oldest of those credentials */
};

bool ps_secret_setting(const char *name);              /* true: the value of this setting is secret */
bool ps_secret_text(const char *text, size_t size);    /* true: a PEM, which is secret in any setting */
void ps_redaction_init(struct ps_redaction *redaction);
void ps_redaction_destroy(struct ps_redaction *redaction);
void ps_redaction_of_conf(struct ps_redaction *redaction, rd_kafka_conf_t *conf); /* adds the values of its secret settings */
void ps_redaction_add(struct ps_redaction *redaction, const char *secret);        /* set after configuration */
void ps_redact(struct ps_redaction *redaction, char *text);                       /* in place: the text never gets longer */

/* ---- log.c: a client's log lines --------------------------------------------------------------------- */

enum { PS_LOG_KINDS = 16, PS_LOG_PROBLEMS = 32 };

struct ps_log { /* in the ps_client */
    pthread_mutex_t lock; /* guards `kinds` and `problems`; a leaf */
    const char *name;
    uint64_t address;
    bool to_mailbox;      /* else to stderr */
    struct ps_log_kind {
        int64_t ends_us;  /* when the period ends that these counts belong to */
        unsigned lines, left_out;
        int level;
        char facility[32];
    } kinds[PS_LOG_KINDS];
    struct ps_log_problem {
        uint32_t hash;
        int64_t until_us; /* not logged again before this time; 0: the entry is unused */
        unsigned left_out;
        int level;
        char facility[32];
    } problems[PS_LOG_PROBLEMS];
};

void ps_log_init(struct ps_log *log, const char *name, uint64_t address, bool to_mailbox);
void ps_log_destroy(struct ps_log *log);
void ps_log_line(struct ps_log *log, int level, const char *facility, const char *text); /* up to the limit */
/* A line of librdkafka's log, and an error that it reports: often the same problem. A problem that returns in another outage
 * counts as a new one. */
void ps_log_librdkafka(struct ps_log *log, uint32_t outage, int level, const char *facility, const char *text);
/* False: logged already. */
bool ps_log_error(struct ps_log *log, uint32_t outage, int level, rd_kafka_resp_err_t err, const char *text);
void ps_log_end(struct ps_log *log);                                                     /* logs how many lines were left out */

#endif
