/* The open producers and consumers of this process, so that all can be closed when it ends. */
#include "client/client.h"
#include <stdlib.h>

struct registry {
    struct ps_singleton singleton; /* threads sleep until fewer clients are closing */
    struct ps_client *first;
    unsigned count;
    _Atomic unsigned closing;
};

static struct ps_singleton_kind registries = { .size = sizeof(struct registry) };

static struct registry *registry_get(void)
{
    return ps_singleton_get(&registries);
}

void ps_registry_add(struct ps_client *client)
{
    struct registry *registry = registry_get();
    pthread_mutex_lock(&registry->singleton.lock);
    client->prev = NULL;
    client->next = registry->first;
    if (client->next) client->next->prev = client;
    registry->first = client;
    registry->count++;
    pthread_mutex_unlock(&registry->singleton.lock);
}

void ps_registry_remove(struct ps_client *client)
{
    struct registry *registry = registry_get();
    pthread_mutex_lock(&registry->singleton.lock);
    if (client->prev) client->prev->next = client->next;
    else registry->first = client->next;
    if (client->next) client->next->prev = client->prev;
    registry->count--;
    pthread_mutex_unlock(&registry->singleton.lock);
}

unsigned ps_registry_count(void)
{
    struct registry *registry = registry_get();
    pthread_mutex_lock(&registry->singleton.lock);
    unsigned count = registry->count;
    pthread_mutex_unlock(&registry->singleton.lock);
    return count;
}

int64_t ps_registry_closed_by_us(void)
{
    struct registry *registry = registry_get();
    int64_t latest = 0;
    pthread_mutex_lock(&registry->singleton.lock);
    for (struct ps_client *client = registry->first; client; client = client->next) {
        int64_t closed_by_us = atomic_load(&client->closed_by_us);
        if (closed_by_us > latest) latest = closed_by_us;
    }
    pthread_mutex_unlock(&registry->singleton.lock);
    return latest;
}

void ps_registry_hurry(void)
{
    struct registry *registry = registry_get();
    pthread_mutex_lock(&registry->singleton.lock);
    for (struct ps_client *client = registry->first; client; client = client->next)
        ps_client_hurry(client, ps_now_us());
    pthread_mutex_unlock(&registry->singleton.lock);
}

unsigned ps_registry_close_all(struct ps_closing *closing, unsigned max)
{
    struct registry *registry = registry_get();
    unsigned found = 0, started = 0;

    pthread_mutex_lock(&registry->singleton.lock);
    for (struct ps_client *client = registry->first; client && found < max; client = client->next) {
        ps_client_retain(client);
        closing[found++].client = client;
    }
    pthread_mutex_unlock(&registry->singleton.lock);

    for (unsigned i = 0; i < found; i++) { /* outside the lock: closing takes the client's lock, which comes first */
        struct ps_client *client = closing[i].client;
        struct ps_job *job = ps_client_end(client);
        if (job) closing[started++] = (struct ps_closing){ .client = client, .job = job };
        else ps_client_unref(client);
    }
    return started;
}

void ps_registry_closing(int change)
{
    struct registry *registry = registry_get();
    atomic_fetch_add(&registry->closing, (unsigned)change);
    if (change < 0) ps_singleton_changed(&registry->singleton);
}

bool ps_registry_await_closing(int64_t deadline_us)
{
    struct registry *registry = registry_get();
    for (;;) {
        uint32_t changes = atomic_load(&registry->singleton.changes);
        if (atomic_load(&registry->closing) == 0) return true;
        if (deadline_us != PS_FOREVER && ps_now_us() >= deadline_us) return false;
        ps_word_sleep(&registry->singleton.changes, changes, deadline_us);
    }
}

unsigned ps_registry_closing_count(void)
{
    return atomic_load(&registry_get()->closing);
}
