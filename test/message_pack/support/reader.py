"""Reads documents with Python's msgpack for message_pack_differential.rb, which explains the text that it prints of each.

Standard input: the size of a document as four bytes, big-endian, then the document; and so on. Standard output: a line for each.
"""
import struct
import sys

import msgpack


class Pairs(list):
    """A map as it was written, since Python takes 1, 1.0 and True for the same key."""


class Extension(tuple):
    pass


def number(value):
    return struct.pack(">d", value).hex()


def text(value):
    """The value's canonical text."""
    if value is None:
        return "n"
    if value is True or value is False:
        return "t" if value else "f"
    if isinstance(value, int):
        return "i%d" % value
    if isinstance(value, float):
        return "nan" if value != value else "d" + number(value)
    if isinstance(value, str):
        return "s" + value.encode("utf-8", "surrogateescape").hex()
    if isinstance(value, bytes):
        return "b" + value.hex()
    if isinstance(value, Pairs):
        return "{%s}" % ",".join("%s:%s" % (text(key), text(item)) for key, item in unique(value))
    if isinstance(value, list):
        return "[%s]" % ",".join(text(item) for item in value)
    if isinstance(value, msgpack.Timestamp):
        return "x-1:%d.%d" % (value.seconds, value.nanoseconds)
    return "x%d:%s" % (value[0], value[1].hex())


def unique(pairs):
    """The pairs of which Ruby keeps one entry each: the first key with the last value."""
    kept = {}
    for position, (key, item) in enumerate(pairs):
        same = identity(key, position)
        kept[same] = (kept[same][0] if same in kept else key, item)
    return kept.values()


def identity(key, position):
    """Equal for two keys that are one key of a Ruby Hash: no NaN equals another, and ASCII text equals the same bytes."""
    if isinstance(key, float):
        return "nan%d" % position if key != key else "d" + number(key + 0.0)
    if isinstance(key, (str, bytes)):
        data = key if isinstance(key, bytes) else key.encode("utf-8", "surrogateescape")
        return ("a" if data.isascii() else type(key).__name__) + data.hex()
    if isinstance(key, Pairs):
        entries = unique(key)
        return "{%s}" % ",".join(sorted(identity(k, position) + ":" + identity(v, position) for k, v in entries))
    if isinstance(key, list):
        return "[%s]" % ",".join(identity(item, position) for item in key)
    return text(key)


def outcome(document):
    try:
        return text(msgpack.unpackb(
            document, raw=False, strict_map_key=False, unicode_errors="surrogateescape", timestamp=0, object_pairs_hook=Pairs,
            ext_hook=lambda kind, data: Extension((kind, data))))
    except msgpack.exceptions.ExtraData:
        return "!extra"
    except msgpack.exceptions.FormatError:
        return "!malformed"
    except msgpack.exceptions.StackError:
        return "!deep"
    except ValueError as error:
        if "incomplete" in str(error):
            return "!incomplete"
        return "!limit" if "exceeds" in str(error) else "!timestamp"


if __name__ == "__main__":
    source = sys.stdin.buffer
    while size := source.read(4):
        print(outcome(source.read(struct.unpack(">I", size)[0])))
