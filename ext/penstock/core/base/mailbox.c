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
    pthread_cond_t changed;
    struct ps_mail *first, **last;
    unsigned size;
    bool interrupted;
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
    pthread_cond_init(&fresh->changed, NULL);
    if (atomic_compare_exchange_strong(&current, &mailbox, fresh)) return fresh;
    free(fresh);
    return mailbox;
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
        pthread_cond_signal(&mailbox->changed);
    } else {
        mailbox->dropped++;
    }
    pthread_mutex_unlock(&mailbox->lock);
    if (!fits) free(mail);
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

void ps_mailbox_wait(void)
{
    struct mailbox *mailbox = mailbox_get();
    pthread_mutex_lock(&mailbox->lock);
    while (!mailbox->first && !mailbox->interrupted) pthread_cond_wait(&mailbox->changed, &mailbox->lock);
    mailbox->interrupted = false;
    pthread_mutex_unlock(&mailbox->lock);
}

void ps_mailbox_interrupt(void *unused)
{
    (void)unused;
    struct mailbox *mailbox = mailbox_get();
    pthread_mutex_lock(&mailbox->lock);
    mailbox->interrupted = true;
    pthread_cond_broadcast(&mailbox->changed);
    pthread_mutex_unlock(&mailbox->lock);
}
