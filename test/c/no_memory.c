/* Preloaded: after no_memory_next, the next allocation of at least so many bytes by malloc fails. After no_zeroed_memory_next, this
 * thread's next one by calloc of exactly so many. See consumer_memory_test.rb. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);

static _Atomic size_t least;
static __thread size_t exactly;

void no_memory_next(size_t size)
{
    atomic_store(&least, size);
}

void no_zeroed_memory_next(size_t size)
{
    exactly = size;
}

void *malloc(size_t size)
{
    size_t limit = atomic_load(&least);
    if (limit == 0 || size < limit || !atomic_compare_exchange_strong(&least, &limit, 0)) return __libc_malloc(size);
    errno = ENOMEM;
    return NULL;
}

void *calloc(size_t count, size_t size)
{
    if (exactly == 0 || count != 1 || size != exactly) return __libc_calloc(count, size);
    exactly = 0;
    errno = ENOMEM;
    return NULL;
}
