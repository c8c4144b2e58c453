/*
 * Errors that last, and that librdkafka reports once or seldom: the group does not let the consumer join, or a broker's answers are
 * too large. A consumer keeps each until it is over. Polls that find nothing raise it again every few seconds, and the errors of calls
 * that time out name it. No Ruby; any thread. The lock is a leaf.
 */
#include "consume/consume.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEAT_US = 5 * 1000 * 1000 };

void ps_lasting_init(struct ps_lasting *lasting)
{
    pthread_mutex_init(&lasting->lock, NULL);
    atomic_init(&lasting->due_us, PS_FOREVER);
}

void ps_lasting_destroy(struct ps_lasting *lasting)
{
    pthread_mutex_destroy(&lasting->lock);
}

/* librdkafka's attempts to join may fail much more often. */
bool ps_lasting_note(struct ps_lasting *lasting, const struct ps_problem *problem)
{
    int64_t now_us = ps_now_us();
    pthread_mutex_lock(&lasting->lock);
    bool known = lasting->known && lasting->problem.err == problem->err;
    bool news = !known || lasting->begins_anew || now_us >= atomic_load(&lasting->due_us);
    lasting->problem = *problem;
    lasting->known = true;
    lasting->begins_anew = false;
    if (news) atomic_store(&lasting->due_us, now_us + REPEAT_US);
    pthread_mutex_unlock(&lasting->lock);
    return news;
}

struct ps_problem *ps_lasting_take_due(struct ps_lasting *lasting)
{
    struct ps_problem *copy = NULL;
    int64_t now_us = ps_now_us();
    if (now_us < atomic_load(&lasting->due_us)) return NULL;
    pthread_mutex_lock(&lasting->lock);
    if (lasting->known && now_us >= atomic_load(&lasting->due_us) && (copy = malloc(sizeof(*copy)))) {
        *copy = lasting->problem;
        atomic_store(&lasting->due_us, now_us + REPEAT_US);
    }
    pthread_mutex_unlock(&lasting->lock);
    return copy;
}

void ps_lasting_begin_anew(struct ps_lasting *lasting, bool repeats)
{
    pthread_mutex_lock(&lasting->lock);
    lasting->begins_anew = true;
    atomic_store(&lasting->due_us, repeats && lasting->known ? ps_now_us() + REPEAT_US : PS_FOREVER);
    pthread_mutex_unlock(&lasting->lock);
}

void ps_lasting_end(struct ps_lasting *lasting)
{
    pthread_mutex_lock(&lasting->lock);
    lasting->known = false;
    atomic_store(&lasting->due_us, PS_FOREVER);
    pthread_mutex_unlock(&lasting->lock);
}

bool ps_lasting_read(struct ps_lasting *lasting, struct ps_problem *problem)
{
    pthread_mutex_lock(&lasting->lock);
    bool known = lasting->known;
    if (known) *problem = lasting->problem;
    pthread_mutex_unlock(&lasting->lock);
    return known;
}
