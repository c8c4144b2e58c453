/*
 * Large blocks of memory, kept for a second or two for whoever needs one next. malloc(3) gives large blocks back to the
 * system at once, and then each page of the next one costs a fault and is cleared: two fifths of the calling thread's time
 * for a batch of 100,000 messages.
 *
 * Any thread may take and give, in a forked child too: there is no lock, each place is a pointer that is swapped. What nobody
 * has taken between two sweeps of a poller is freed; while no poller sweeps, nothing is kept.
 */
#include "base/base.h"
#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__ /* which has to see the use of a block that was given back */
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, size) ((void)(data), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(data, size) ((void)(data), (void)(size))
#endif

enum { PLACES = 64, SWEPT_LATELY_US = 3000000 };
static const size_t SMALLEST = 64 * 1024, MOST_KEPT = 64 * 1024 * 1024; /* bytes; of one, and of about all together */

struct block {
    size_t size; /* of data */
    bool idle;   /* since the last sweep; the block's owner's, who a sweep is for a moment */
    _Alignas(max_align_t) char data[];
};

/* `size` is a hint, set after `block`: wrong for a moment, or in a forked child, until the next sweep. */
static struct {
    _Atomic(struct block *) block;
    atomic_size_t size;
} places[PLACES];
static _Atomic int64_t swept_us;

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

static bool fits(size_t block, size_t size)
{
    return block >= size && block / 2 <= size;
}

static struct block *take_from(int place)
{
    struct block *block = atomic_exchange(&places[place].block, NULL);
    atomic_store(&places[place].size, 0);
    return block;
}

static bool put_into(int place, struct block *block)
{
    struct block *none = NULL;
    size_t size = block->size; /* read first: in its place it is anybody's */
    if (atomic_load_explicit(&places[place].block, memory_order_relaxed)) return false;
    if (!atomic_compare_exchange_strong(&places[place].block, &none, block)) return false;
    atomic_store(&places[place].size, size);
    return true;
}

static struct block *take_kept(size_t size)
{
    for (int i = 0; i < PLACES; i++) {
        struct block *block;
        if (!fits(atomic_load_explicit(&places[i].size, memory_order_relaxed), size) || !(block = take_from(i))) continue;
        if (fits(block->size, size)) {
            ASAN_UNPOISON_MEMORY_REGION(block->data, block->size);
            return block;
        }
        if (!put_into(i, block)) free(block); /* the hint was another's */
    }
    return NULL;
}

void *ps_block_take(size_t size)
{
    if (size > SIZE_MAX / 2) return NULL;
    struct block *block = size >= SMALLEST ? take_kept(size) : NULL;
    if (!block) {
        if (size >= SMALLEST) size = rounded(size);
        if (!(block = malloc(sizeof(*block) + size))) return NULL;
        block->size = size;
    }
    return block->data;
}

size_t ps_blocks_kept(void)
{
    size_t kept = 0;
    for (int i = 0; i < PLACES; i++) kept += atomic_load_explicit(&places[i].size, memory_order_relaxed);
    return kept;
}

static bool keep(struct block *block)
{
    if (block->size < SMALLEST || ps_about_now_us() - atomic_load(&swept_us) > SWEPT_LATELY_US) return false;
    if (ps_blocks_kept() + block->size > MOST_KEPT) return false;
    ASAN_POISON_MEMORY_REGION(block->data, block->size); /* first: in its place it is anybody's */
    for (int i = 0; i < PLACES; i++)
        if (put_into(i, block)) return true;
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

static void sweep(bool all)
{
    for (int i = 0; i < PLACES; i++) {
        struct block *block = take_from(i);
        if (!block) continue;
        bool idle = block->idle;
        block->idle = true;
        if (all || idle || !put_into(i, block)) free(block);
    }
}

void ps_blocks_sweep(void)
{
    atomic_store(&swept_us, ps_about_now_us());
    sweep(false);
}

void ps_blocks_end(void)
{
    atomic_store(&swept_us, INT64_MIN / 2);
    sweep(true);
}
