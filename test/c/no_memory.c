/* Preloaded: after no_memory_next, the next allocation of at least so many bytes by malloc fails. See consumer_memory_test.rb. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t size);

static _Atomic size_t least;

void no_memory_next(size_t size)
{
    atomic_store(&least, size);
}

void *malloc(size_t size)
{
    size_t limit = atomic_load(&least);
    if (limit == 0 || size < limit || !atomic_compare_exchange_strong(&least, &limit, 0)) return __libc_malloc(size);
    errno = ENOMEM;
    return NULL;
}
