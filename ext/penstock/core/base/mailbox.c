/*
 * What the core has to say to Ruby (librdkafka's log lines), until the dispatcher thread takes it.
 * Bounded: a dispatcher that cannot keep up costs messages of the log, counted, never memory. Made anew
 * in a forked child, like the registry.
 */
#include "base/base.h"
#include <stdlib.h>
#include <string.h>

enum { MAILBOX_LIMIT = 10000 };

struct mailbox {
    unsigned generation;
    pthread_mutex_t lock;
    _Atomic uint32_t changes; /* the dispatcher thread sleeps until it is another */
    struct ps_mail *first, **last;
    unsigned size;
    _Atomic bool interrupted;
    uint64_t dropped;
};

static _Atomic(struct mailbox *) current;
static _Atomic uint64_t last_address;

uint64_t ps_mailbox_address(void)
{
    return atomic_fetch_add(&last_address, 1) + 1;
}

static struct mailbox *mailbox_get(void)
{
    struct mailbox *mailbox = atomic_load(&current);
    if (mailbox && mailbox->generation == ps_generation()) return mailbox;

    struct mailbox *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) abort();
    fresh->generation = ps_generation();
    fresh->last = &fresh->first;
    pthread_mutex_init(&fresh->lock, NULL);
    if (atomic_compare_exchange_strong(&current, &mailbox, fresh)) return fresh;
    free(fresh);
    return mailbox;
}

static void change(struct mailbox *mailbox)
{
    atomic_fetch_add(&mailbox->changes, 1);
    ps_word_wake(&mailbox->changes);
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
    pthread_mutex_lock(&mailbox->lock);
    bool fits = mail && (mailbox->size < MAILBOX_LIMIT || level == PS_MAIL_LAST);
    if (fits) {
        *mailbox->last = mail;
        mailbox->last = &mail->next;
        mailbox->size++;
    } else {
        mailbox->dropped++;
    }
    pthread_mutex_unlock(&mailbox->lock);
    if (fits) change(mailbox);
    else free(mail);
    return fits;
}

struct ps_mail *ps_mailbox_take(void)
{
    struct mailbox *mailbox = mailbox_get();
    pthread_mutex_lock(&mailbox->lock);
    struct ps_mail *mail = mailbox->first;
    if (mail) {
        mailbox->first = mail->next;
        if (!mailbox->first) mailbox->last = &mailbox->first;
        mailbox->size--;
    }
    pthread_mutex_unlock(&mailbox->lock);
    return mail;
}

uint64_t ps_mailbox_dropped(void)
{
    struct mailbox *mailbox = mailbox_get();
    pthread_mutex_lock(&mailbox->lock);
    uint64_t dropped = mailbox->dropped;
    mailbox->dropped = 0;
    pthread_mutex_unlock(&mailbox->lock);
    return dropped;
}

static bool is_empty(struct mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    bool empty = !mailbox->first;
    pthread_mutex_unlock(&mailbox->lock);
    return empty;
}

/* The number of changes is read before the mailbox is looked at: a line that is posted in between ends the sleep. */
void ps_mailbox_wait(void)
{
    struct mailbox *mailbox = mailbox_get();
    uint32_t changes = atomic_load(&mailbox->changes);
    while (!atomic_exchange(&mailbox->interrupted, false) && is_empty(mailbox)) {
        ps_word_sleep(&mailbox->changes, changes, PS_FOREVER);
        changes = atomic_load(&mailbox->changes);
    }
}

void ps_mailbox_interrupt(void *unused)
{
    (void)unused;
    struct mailbox *mailbox = mailbox_get();
    atomic_store(&mailbox->interrupted, true);
    change(mailbox);
}
