/* Writes MessagePack's less frequent formats; engine.h has the others. */
#include "message_pack/engine.h"

void ps_write_float(struct ps_writer *writer, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    ps_write_number(writer, 0xca, bits, 4);
}

void ps_write_str_header(struct ps_writer *writer, uint32_t size, bool old)
{
    if (size < 32) ps_write_byte(writer, (uint8_t)(0xa0 | size));
    else if (size <= UINT8_MAX && !old) ps_write_number(writer, 0xd9, size, 1);
    else if (size <= UINT16_MAX) ps_write_number(writer, 0xda, size, 2);
    else ps_write_number(writer, 0xdb, size, 4);
}

void ps_write_str(struct ps_writer *writer, const void *bytes, uint32_t size, bool old)
{
    uint8_t *at = ps_write_room(writer, (size_t)size + 5);
    if (size < 32) {
        *at = (uint8_t)(0xa0 | size);
        writer->size++;
    } else {
        ps_write_str_header(writer, size, old);
    }
    memcpy(writer->data + writer->size, bytes, size);
    writer->size += size;
}

void ps_write_bin_header(struct ps_writer *writer, uint32_t size)
{
    if (size <= UINT8_MAX) ps_write_number(writer, 0xc4, size, 1);
    else if (size <= UINT16_MAX) ps_write_number(writer, 0xc5, size, 2);
    else ps_write_number(writer, 0xc6, size, 4);
}

void ps_write_ext_header(struct ps_writer *writer, int8_t type, uint32_t size)
{
    switch (size) {
    case 1: ps_write_byte(writer, 0xd4); break;
    case 2: ps_write_byte(writer, 0xd5); break;
    case 4: ps_write_byte(writer, 0xd6); break;
    case 8: ps_write_byte(writer, 0xd7); break;
    case 16: ps_write_byte(writer, 0xd8); break;
    default:
        if (size <= UINT8_MAX) ps_write_number(writer, 0xc7, size, 1);
        else if (size <= UINT16_MAX) ps_write_number(writer, 0xc8, size, 2);
        else ps_write_number(writer, 0xc9, size, 4);
    }
    ps_write_byte(writer, (uint8_t)type);
}

void ps_write_long_array_header(struct ps_writer *writer, uint32_t count)
{
    if (count <= UINT16_MAX) ps_write_number(writer, 0xdc, count, 2);
    else ps_write_number(writer, 0xdd, count, 4);
}

void ps_write_long_map_header(struct ps_writer *writer, uint32_t count)
{
    if (count <= UINT16_MAX) ps_write_number(writer, 0xde, count, 2);
    else ps_write_number(writer, 0xdf, count, 4);
}
