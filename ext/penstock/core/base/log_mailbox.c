/*
 * The core's log lines for Ruby, until the dispatcher thread takes them. Bounded: if the dispatcher cannot keep up, lines are
 * dropped and counted, and memory does not grow.
 */
#include "base/base.h"
#include <stdlib.h>
#include <string.h>

enum { MAILBOX_LIMIT = 10000 };

struct mailbox {
    struct ps_singleton singleton; /* the dispatcher thread sleeps on its `changes` */
    struct ps_mail *first, **last;
    unsigned size;
    _Atomic bool interrupted;
    uint64_t dropped;
};

static void mailbox_init(void *made)
{
    struct mailbox *mailbox = made;
    mailbox->last = &mailbox->first;
}

static struct ps_singleton_kind mailboxes = { .size = sizeof(struct mailbox), .init = mailbox_init };
static _Atomic uint64_t last_address;

uint64_t ps_mailbox_address(void)
{
    return atomic_fetch_add(&last_address, 1) + 1;
}

static struct mailbox *mailbox_get(void)
{
    return ps_singleton_get(&mailboxes);
}

bool ps_mailbox_post(uint64_t address, int level, const char *text)
{
    struct mailbox *mailbox = mailbox_get();
    size_t size = strlen(text);
    struct ps_mail *mail = malloc(sizeof(*mail) + size + 1);
    if (mail) {
        mail->next = NULL;
        mail->address = address;
        mail->level = level;
        mail->size = size;
        memcpy(mail->text, text, size + 1);
    }
    pthread_mutex_lock(&mailbox->singleton.lock);
    bool fits = mail && (mailbox->size < MAILBOX_LIMIT || level == PS_MAIL_LAST); /* M:log_lines_bounded */
    if (fits) {
        *mailbox->last = mail;
        mailbox->last = &mail->next;
        mailbox->size++;
    } else {
        mailbox->dropped++;
    }
    pthread_mutex_unlock(&mailbox->singleton.lock);
    if (fits) ps_singleton_changed(&mailbox->singleton);
    else free(mail);
    return fits;
}

struct ps_mail *ps_mailbox_take(void)
{
    struct mailbox *mailbox = mailbox_get();
    pthread_mutex_lock(&mailbox->singleton.lock);
    struct ps_mail *mail = mailbox->first;
    if (mail) {
        mailbox->first = mail->next;
        if (!mailbox->first) mailbox->last = &mailbox->first;
        mailbox->size--;
    }
    pthread_mutex_unlock(&mailbox->singleton.lock);
    return mail;
}

uint64_t ps_mailbox_dropped(void)
{
    struct mailbox *mailbox = mailbox_get();
    pthread_mutex_lock(&mailbox->singleton.lock);
    uint64_t dropped = mailbox->dropped;
    mailbox->dropped = 0;
    pthread_mutex_unlock(&mailbox->singleton.lock);
    return dropped;
}

static bool is_empty(struct mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->singleton.lock);
    bool empty = !mailbox->first;
    pthread_mutex_unlock(&mailbox->singleton.lock);
    return empty;
}

/* Reads the number of changes before it looks at the mailbox: a line that another thread posts in between ends the sleep. */
void ps_mailbox_wait(void)
{
    struct mailbox *mailbox = mailbox_get();
    uint32_t changes = atomic_load(&mailbox->singleton.changes);
    while (!atomic_exchange(&mailbox->interrupted, false) && is_empty(mailbox)) {
        ps_word_sleep(&mailbox->singleton.changes, changes, PS_FOREVER);
        changes = atomic_load(&mailbox->singleton.changes);
    }
}

/* Allocates nothing: the thread that it interrupts has already taken mail, so the mailbox exists. */
void ps_mailbox_interrupt(void *unused)
{
    (void)unused;
    struct mailbox *mailbox = mailbox_get();
    atomic_store(&mailbox->interrupted, true);
    ps_singleton_changed(&mailbox->singleton);
}
