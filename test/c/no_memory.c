/* Preloaded: after no_memory_next, the next allocation of at least so many bytes by realloc fails. See consumer_memory_test.rb. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

static _Atomic size_t least;

void no_memory_next(size_t size)
{
    atomic_store(&least, size);
}

void *realloc(void *block, size_t size)
{
    static void *(*next)(void *, size_t);
    size_t limit = atomic_load(&least);
    if (!next) next = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    if (limit == 0 || size < limit || !atomic_compare_exchange_strong(&least, &limit, 0)) return next(block, size);
    errno = ENOMEM;
    return NULL;
}
