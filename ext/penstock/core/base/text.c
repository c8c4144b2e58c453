/*
 * Text from outside: brokers' error messages and host names, and librdkafka's quotes of them. Its bytes may be invalid UTF-8,
 * also because a fixed-size buffer has cut a character. Its control characters could forge lines of a log or control the
 * terminal that shows it. ps_text_clean is the only function that makes such text safe. ps_text_valid checks the program's own.
 *
 * No state. Any thread, including librdkafka's callbacks: it neither allocates nor locks.
 */
#include "base/base.h"
#include <stdio.h>
#include <string.h>

/*
 * Returns how many bytes the character at `text` has. 0: the bytes are invalid, and one U+FFFD replaces `*skip` of them.
 * These are the longest valid start of a character, as Unicode recommends and Ruby's String#scrub does.
 */
static size_t character(const unsigned char *text, size_t left, size_t *skip)
{
    unsigned char first = text[0], least = 0x80, most = 0xBF; /* of the second byte; excludes surrogates and overlong forms */
    size_t size = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (first == 0xE0) least = 0xA0;
    else if (first == 0xED) most = 0x9F;
    else if (first == 0xF0) least = 0x90;
    else if (first == 0xF4) most = 0x8F;
    *skip = 1;
    for (size_t i = 1; i < size; i++) {
        *skip = i;
        if (i == left || text[i] < least || text[i] > most) return 0;
        least = 0x80;
        most = 0xBF;
    }
    return size;
}

/* For characters of at most 3 bytes: no longer ones are escaped. */
static unsigned code_point(const unsigned char *text, size_t size)
{
    switch (size) {
    case 1: return text[0];
    case 2: return (text[0] & 0x1Fu) << 6 | (text[1] & 0x3Fu);
    case 3: return (text[0] & 0x0Fu) << 12 | (text[1] & 0x3Fu) << 6 | (text[2] & 0x3Fu);
    default: return 0x10000;
    }
}

/* True for C0, DEL and C1, marks that change the direction of text, and other line separators. */
static bool steers(unsigned code)
{
    /* M:text_control_characters */
    return code < 0x20 || (code >= 0x7F && code <= 0x9F) || code == 0x061C || code == 0x200E || code == 0x200F ||
           (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

struct escape {
    char text[8];
    size_t size;
};

static struct escape escape_of(unsigned code, enum ps_text_use use)
{
    struct escape escape;
    const char *format = code < 0x80 && use == PS_TEXT_SHOWN ? "\\x%02X" : "\\u%04X";
    if (use == PS_TEXT_SHOWN && (code == '\n' || code == '\r' || code == '\t'))
        snprintf(escape.text, sizeof(escape.text), "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
    else snprintf(escape.text, sizeof(escape.text), format, code);
    escape.size = strlen(escape.text);
    return escape;
}

/* Whether a position in JSON text is inside a String, and whether the next character is escaped. */
struct json {
    bool inside, escaped;
};

static void json_step(struct json *json, unsigned code)
{
    if (json->escaped) json->escaped = false;
    else if (code == '\\' && json->inside) json->escaped = true;
    else if (code == '"') json->inside = !json->inside;
}

bool ps_text_valid(const char *text, size_t size)
{
    for (size_t i = 0, skip, taken; i < size; i += taken) {
        taken = text[i] == '\0' ? 0 : character((const unsigned char *)text + i, size - i, &skip);
        if (taken == 0) return false;
    }
    return true;
}

size_t ps_text_clean(char *out, size_t room, const char *text, size_t size, enum ps_text_use use)
{
    static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */
    struct json json = { false, false };
    size_t needed = 0, written = 0;
    bool full = room == 0;
    for (size_t i = 0, taken, skip; i < size; i += taken) {
        const unsigned char *at = (const unsigned char *)text + i;
        struct escape escape;
        size_t length = taken = character(at, size - i, &skip);
        const char *from = (const char *)at;
        unsigned code = length ? code_point(at, length) : 0xFFFD;
        if (length == 0) {
            taken = skip;
            from = replacement;
            length = 3;
        } else if (use == PS_TEXT_SHOWN ? steers(code) : use == PS_TEXT_JSON && json.inside && code < 0x20) { /* M:text_json */
            escape = escape_of(code, use);
            from = escape.text;
            length = escape.size;
        }
        if (use == PS_TEXT_JSON) json_step(&json, code);
        if (!full && written + length < room) {
            memcpy(out + written, from, length);
            written += length;
        } else {
            full = true; /* a whole character or none, and nothing behind one that is missing */
        }
        needed += length;
    }
    if (room > 0) out[written] = '\0';
    return needed;
}
