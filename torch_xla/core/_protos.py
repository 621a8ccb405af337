"""Protocol buffers by tables: messages are dicts of the fields in a table; other fields are left out."""

import struct
from collections.abc import Iterator, Mapping

# By message and field: its number and kind. A kind is "int", "bool", "string", "bytes", "ints" (also of bools),
# "floats", "doubles", the name of a message; "*string" and "*" before a message's name are lists of them.
Table = Mapping[str, Mapping[str, tuple[int, str]]]

_NUMBERS = {"floats": "f", "doubles": "d"}
_SIZES = {1: 8, 5: 4}  # bytes of wire types that have one


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative ones have ten bytes
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The value, of 64 bits with a sign, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return (value ^ 1 << 63) - (1 << 63), at


def encode(table: Table, message: str, fields: Mapping) -> bytes:
    """The bytes of a message. Zeros and empty values are left out, as readers assume them."""
    out = bytearray()
    for name, value in fields.items():
        number, kind = table[message][name]
        if kind in ("int", "bool"):
            out += _varint(number << 3) + _varint(int(value)) if value else b""
            continue
        for part in value if kind.startswith("*") else [value]:
            data = _content(table, kind, part)
            if data or kind not in ("string", "bytes", "ints", "floats", "doubles"):
                out += _varint(number << 3 | 2) + _varint(len(data)) + data
    return bytes(out)


def _content(table: Table, kind: str, value) -> bytes:
    kind = kind.removeprefix("*")
    if kind == "string":
        return value.encode()
    if kind == "bytes":
        return bytes(value)
    if kind == "ints":
        return b"".join(map(_varint, map(int, value)))
    if kind in _NUMBERS:
        return struct.pack(f"<{len(value)}{_NUMBERS[kind]}", *value)
    return encode(table, kind, value)


def _fields(data: bytes) -> Iterator[tuple[int, object]]:
    """The fields' numbers and contents: an int for a varint, bytes for all else. Raises ValueError if it is not a
    message.
    """
    at = 0
    try:
        while at < len(data):
            tag, at = _read_varint(data, at)
            if tag & 7 == 0:
                content, at = _read_varint(data, at)
            else:
                size, at = (_SIZES[tag & 7], at) if tag & 7 in _SIZES else _read_varint(data, at)
                if tag & 7 not in (1, 2, 5) or not 0 <= size <= len(data) - at:
                    raise IndexError
                content, at = data[at : at + size], at + size
            yield tag >> 3, content
    except IndexError:
        raise ValueError(f"{len(data)} bytes are no protocol buffer: they end, or are wrong, at byte {at}") from None


def decode(table: Table, message: str, data: bytes) -> dict:
    """The fields in the bytes; missing lists and nested messages are empty.

    Raises ValueError if it is not a message.
    """
    names = {number: (name, kind) for name, (number, kind) in table[message].items()}
    result: dict = {}
    for name, kind in names.values():
        empty = {"int": 0, "bool": False, "string": "", "bytes": b""}
        result[name] = empty[kind] if kind in empty else [] if kind.startswith("*") or kind in _LISTS else {}
    for number, content in _fields(data):
        if number not in names:
            continue
        name, kind = names[number]
        if kind in _LISTS:
            result[name] += _numbers(kind, content)
        elif kind in ("int", "bool", "bytes"):
            result[name] = bool(content) if kind == "bool" else content
        elif kind == "string":
            result[name] = content.decode()
        elif kind.startswith("*"):
            result[name].append(content.decode() if kind == "*string" else decode(table, kind[1:], content))
        else:
            result[name] = decode(table, kind, content)
    return result


_LISTS = ("ints", "floats", "doubles")


def _numbers(kind: str, content) -> list:
    """The numbers of a packed field, or of one unpacked element."""
    if isinstance(content, int):
        return [content]
    if kind in _NUMBERS:
        return [number for (number,) in struct.iter_unpack(f"<{_NUMBERS[kind]}", content)]
    numbers, at = [], 0
    while at < len(content):
        number, at = _read_varint(content, at)
        numbers.append(number)
    return numbers
