/*
 * Checks the MessagePack engines with any input; checks.h has the invariants. For libFuzzer (rake test:fuzz), or as a
 * program for inputs that libFuzzer found and the corpus keeps:
 *
 *   fuzz FILE...
 *
 * The first two bytes of an input choose the limits, the pieces and the cuts.
 */
#include "checks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t depths[] = { 0, 1, 3, 100 }, bytes[] = { 0, 4, 40, UINT32_MAX };
    static const uint64_t elements[] = { 0, 3, 40, UINT64_MAX };
    if (size < 2) return 0;
    struct limits limits = { depths[data[0] & 3], bytes[data[0] >> 2 & 3], elements[data[0] >> 4 & 3] };
    size_t choice = data[1], left = size - 2;
    check_bytes(data + 2, left, limits, 1 + choice % 13, choice, choice % (left + 1));
    return 0;
}

#ifndef LIBFUZZER
int main(int argc, char **argv)
{
    size_t all = 0;
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (!file || fseek(file, 0, SEEK_END) != 0) die(argv[i]);
        size_t size = (size_t)ftell(file);
        uint8_t *data = room(size);
        rewind(file);
        if (fread(data, 1, size, file) != size) die(argv[i]);
        fclose(file);
        LLVMFuzzerTestOneInput(data, size);
        free(data);
        all += size;
    }
    printf("inputs %d bytes %zu\n", argc - 1, all);
    return 0;
}
#endif
