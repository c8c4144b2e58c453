/*
 * Hides secrets in texts that librdkafka or a broker wrote. librdkafka quotes some settings in errors and log lines
 * (sasl.oauthbearer.config, the URL of a token endpoint). A broker may quote the credentials that a client sent. And
 * librdkafka quotes the name of a file that it cannot find, even if that is a private key. Each client knows its own secrets:
 * those of its configuration, and the passwords and tokens set later.
 *
 * Any thread, including librdkafka's. The lock is a leaf; a thread holds it while it searches one text.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem, strcasestr */
#endif
#include "base/base.h"
#include <stdlib.h>
#include <string.h>

/* Shorter secrets are not searched for: texts would lose words that are not secret. */
enum { SHORTEST = 4, SHORTEST_PART = 8 };

static const char hidden[] = "***", pem[] = "-----BEGIN ";

bool ps_secret_setting(const char *name)
{
    static const char *const words[] = { "pass", "secret", "token", "pem", "jaas", "oauthbearer.config" };
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strcasestr(name, words[i])) return true;
    return false;
}

bool ps_secret_text(const char *text, size_t size)
{
    return memmem(text, size, pem, sizeof(pem) - 1);
}

void ps_redaction_init(struct ps_redaction *redaction)
{
    pthread_mutex_init(&redaction->lock, NULL);
}

static void secret_free(char *word)
{
    if (!word) return;
    for (volatile char *c = word; *c; c++) *c = 0; /* `volatile` keeps the compiler from removing the store */
    free(word);
}

void ps_redaction_destroy(struct ps_redaction *redaction)
{
    for (size_t i = 0; i < PS_SECRETS; i++) secret_free(redaction->words[i]);
    pthread_mutex_destroy(&redaction->lock);
}

/* With the lock held. */
static bool secret_known(const struct ps_redaction *redaction, const char *word, size_t size)
{
    for (size_t i = 0; i < PS_SECRETS; i++)
        if (redaction->words[i] && strlen(redaction->words[i]) == size && memcmp(redaction->words[i], word, size) == 0)
            return true;
    return false;
}

/* With the lock held. Replaces the word that was at this place. */
static void secret_put(struct ps_redaction *redaction, size_t place, const char *word, size_t size)
{
    char *copy = strndup(word, size);
    if (!copy) return;
    secret_free(redaction->words[place]);
    redaction->words[place] = copy;
}

void ps_redaction_add(struct ps_redaction *redaction, const char *secret)
{
    size_t size = strlen(secret);
    pthread_mutex_lock(&redaction->lock);
    if (size >= SHORTEST && !secret_known(redaction, secret, size)) {
        secret_put(redaction, redaction->next, secret, size);
        redaction->next = (redaction->next + 1) % PS_SECRETS_GIVEN;
    }
    pthread_mutex_unlock(&redaction->lock);
}

/* With the lock held. Returns the first place for the next setting. */
static size_t add_setting(struct ps_redaction *redaction, size_t place, const char *value, size_t size)
{
    if (size < SHORTEST || secret_known(redaction, value, size) || place >= PS_SECRETS) return place;
    secret_put(redaction, place, value, size);
    return place + 1;
}

/* librdkafka quotes a list from the first word on that it does not know, so each word is a secret by itself. */
static size_t add_words(struct ps_redaction *redaction, size_t place, const char *value)
{
    place = add_setting(redaction, place, value, strlen(value));
    for (const char *word = value; *(word += strspn(word, " \t,")); word += strcspn(word, " \t,"))
        place = add_setting(redaction, place, word, strcspn(word, " \t,"));
    return place;
}

/* The longest first: one secret may contain another. */
static int by_length(const void *one, const void *other)
{
    const char *left = *(char *const *)one, *right = *(char *const *)other;
    size_t length = left ? strlen(left) : 0, than = right ? strlen(right) : 0;
    return length < than ? 1 : length > than ? -1 : 0;
}

void ps_redaction_of_conf(struct ps_redaction *redaction, rd_kafka_conf_t *conf)
{
    size_t count, place = PS_SECRETS_GIVEN;
    const char **dump = rd_kafka_conf_dump(conf, &count);
    pthread_mutex_lock(&redaction->lock);
    for (size_t i = 0; dump && i + 1 < count; i += 2)
        if (ps_secret_setting(dump[i]) && !strstr(dump[i + 1], pem)) place = add_words(redaction, place, dump[i + 1]);
    qsort(redaction->words + PS_SECRETS_GIVEN, PS_SECRETS - PS_SECRETS_GIVEN, sizeof(char *), by_length);
    pthread_mutex_unlock(&redaction->lock);
    if (dump) rd_kafka_conf_dump_free(dump, count);
}

static void secret_hide(char *text, const char *word)
{
    size_t size = strlen(word);
    for (char *at = text; (at = strstr(at, word)); at += sizeof(hidden) - 1) {
        memcpy(at, hidden, sizeof(hidden) - 1);
        memmove(at + sizeof(hidden) - 1, at + size, strlen(at + size) + 1);
    }
}

/* A truncated text may end within the secret. */
static void secret_hide_part(char *text, const char *word)
{
    size_t size = strlen(text), most = strlen(word) - 1;
    for (size_t part = most < size ? most : size; part >= SHORTEST_PART; part--)
        if (memcmp(text + size - part, word, part) == 0) {
            memcpy(text + size - part, hidden, sizeof(hidden));
            return;
        }
}

void ps_redact(struct ps_redaction *redaction, char *text)
{
    pthread_mutex_lock(&redaction->lock); /* M:redaction_lock */
    for (size_t i = 0; i < PS_SECRETS; i++) {
        if (!redaction->words[i]) continue;
        secret_hide(text, redaction->words[i]);
        secret_hide_part(text, redaction->words[i]); /* M:truncated_secret_hidden */
    }
    pthread_mutex_unlock(&redaction->lock);
    char *key = strstr(text, pem);
    if (key) memcpy(key, hidden, sizeof(hidden));
}
