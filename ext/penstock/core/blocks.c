/*
 * Large blocks of memory, kept for a second or two for whoever needs one next. malloc(3) gives large blocks back to the
 * system at once, and then each page of the next one costs a fault and is cleared: two fifths of the calling thread's time
 * for a batch of 100,000 messages.
 *
 * Any thread may take and give, in a forked child too: there is no lock, each place is a pointer that is swapped. What nobody
 * has taken between two sweeps of a poller is freed.
 */
#include "core.h"
#include <stdlib.h>

#ifdef __SANITIZE_ADDRESS__ /* which has to see the use of a block that was given back */
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, size) ((void)(data), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(data, size) ((void)(data), (void)(size))
#endif

enum { PLACES = 64 };
static const size_t SMALLEST = 64 * 1024, MOST_KEPT = 64 * 1024 * 1024; /* bytes; of one, and of all together */

struct block {
    size_t size; /* of data */
    bool idle;   /* since the last sweep; the block's owner's, who a sweep is for a moment */
    _Alignas(max_align_t) char data[];
};

static _Atomic(struct block *) places[PLACES];
static atomic_size_t kept; /* bytes in all places, counted before they are there */

static struct block *block_of(void *data)
{
    return (struct block *)((char *)data - offsetof(struct block, data));
}

/* Coarse steps, so that what was given fits who takes. */
static size_t rounded(size_t size)
{
    size_t step = SMALLEST;
    while (step < size / 8) step *= 2;
    return (size + step - 1) / step * step;
}

static struct block *take_kept(size_t size)
{
    for (int i = 0; i < PLACES; i++) {
        struct block *block = atomic_load_explicit(&places[i], memory_order_relaxed);
        if (!block || !(block = atomic_exchange(&places[i], NULL))) continue;
        if (block->size >= size && block->size / 4 <= size) {
            atomic_fetch_sub(&kept, block->size);
            ASAN_UNPOISON_MEMORY_REGION(block->data, block->size);
            return block;
        }
        /* Not for us, and only now do we know: until it was ours, another may have freed it. */
        struct block *none = NULL;
        if (atomic_compare_exchange_strong(&places[i], &none, block)) continue;
        atomic_fetch_sub(&kept, block->size);
        free(block);
    }
    return NULL;
}

void *ps_block_take(size_t size)
{
    struct block *block = size >= SMALLEST ? take_kept(size) : NULL;
    if (!block) {
        if (size >= SMALLEST) size = rounded(size);
        if (!(block = malloc(sizeof(*block) + size))) return NULL;
        block->size = size;
    }
    return block->data;
}

static bool keep(struct block *block)
{
    if (block->size < SMALLEST) return false;
    if (atomic_fetch_add(&kept, block->size) + block->size <= MOST_KEPT) {
        ASAN_POISON_MEMORY_REGION(block->data, block->size); /* first: in its place it is anybody's */
        for (int i = 0; i < PLACES; i++) {
            struct block *none = NULL;
            if (atomic_compare_exchange_strong(&places[i], &none, block)) return true;
        }
    }
    atomic_fetch_sub(&kept, block->size);
    return false;
}

void ps_block_give(void *data)
{
    if (!data) return;
    struct block *block = block_of(data);
    block->idle = false;
    if (!keep(block)) free(block);
}

size_t ps_block_size(const void *data)
{
    return data ? block_of((void *)data)->size : 0;
}

void ps_blocks_sweep(void)
{
    for (int i = 0; i < PLACES; i++) {
        struct block *block = atomic_exchange(&places[i], NULL), *none = NULL;
        if (!block) continue;
        bool idle = block->idle;
        block->idle = true;
        if (!idle && atomic_compare_exchange_strong(&places[i], &none, block)) continue;
        atomic_fetch_sub(&kept, block->size);
        free(block);
    }
}

size_t ps_blocks_kept(void)
{
    return atomic_load(&kept);
}
