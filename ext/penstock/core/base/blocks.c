/*
 * The memory of large batches. A batch of 10,000 messages takes megabytes. If each batch took them anew, the system would map and
 * clear every page again: 500 page faults, a tenth of a quick reader's time. So freed blocks are kept, for the whole process, up to
 * MOST_SPARE bytes, until none was used for IDLE_US. Any thread. Takes no lock: a fork may come at any time, and the child may use
 * the blocks too.
 */
#include "base/base.h"
#include <stdlib.h>

enum { SMALLEST_BITS = 15, CLASSES = 8, SPARES = 4, MOST_SPARE = 8 << 20, IDLE_US = 500000 }; /* of 32 KiB to 4 MiB */

static _Atomic(void *) spares[CLASSES][SPARES];
static _Atomic size_t spare_bytes;
static _Atomic int64_t used_us;

static size_t class_size(int class)
{
    return (size_t)1 << (SMALLEST_BITS + class);
}

/* The class whose blocks have at least this size. -1: blocks of this size are not kept. */
static int class_of(size_t size)
{
    if (size <= class_size(0) / 2 || size > class_size(CLASSES - 1)) return -1;
    int class = 0;
    while (size > class_size(class)) class++;
    return class;
}

static void *take_spare(int class, size_t size)
{
    for (int i = 0; i < SPARES; i++) {
        void *block = atomic_load_explicit(&spares[class][i], memory_order_relaxed);
        if (!block || !(block = atomic_exchange(&spares[class][i], NULL))) continue;
        atomic_fetch_sub(&spare_bytes, size);
        return block;
    }
    return NULL;
}

void *ps_block_new(size_t *size)
{
    int class = class_of(*size);
    if (class < 0) return malloc(*size);
    *size = class_size(class);
    atomic_store(&used_us, ps_now_us());
    void *block = take_spare(class, *size);
    return block ? block : malloc(*size);
}

/* False: there are enough of this class. */
static bool keep(void *block, int class)
{
    for (int i = 0; i < SPARES; i++) {
        void *none = NULL;
        if (atomic_compare_exchange_strong(&spares[class][i], &none, block)) return true;
    }
    return false;
}

void ps_block_free(void *block, size_t size)
{
    int class = class_of(size);
    if (class >= 0 && size == class_size(class)) {
        if (atomic_fetch_add(&spare_bytes, size) + size <= MOST_SPARE && keep(block, class)) return;
        atomic_fetch_sub(&spare_bytes, size);
    }
    free(block);
}

int64_t ps_blocks_trim(void)
{
    int64_t idle_us = atomic_load(&used_us) + IDLE_US;
    if (atomic_load(&spare_bytes) == 0) return PS_FOREVER;
    if (ps_now_us() < idle_us) return idle_us;
    for (int class = 0; class < CLASSES; class++) {
        void *block;
        while ((block = take_spare(class, class_size(class)))) free(block);
    }
    return PS_FOREVER;
}
