"""Protobuf wire format, as far as it takes to wrap encoded messages and to fill in templates.

Authoring a cluster takes milliseconds and a mesh has thousands that differ in a few strings. So a
shape is authored once with slots in place of the strings, and every instance is its bytes with the
slots filled and the enclosing lengths recomputed.
"""

from collections.abc import Mapping
from typing import Final, Self

_LENGTH_DELIMITED: Final = 2
_FIXED_BYTES: Final = {1: 8, 5: 4}


def varint(number: int) -> bytes:
    """Base-128 encoding of a number that is not negative."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited field: a string, bytes, a message or an element of a repeated one."""
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(len(payload)) + payload


def slot(name: str) -> str:
    """Text that stands for a string to be filled in; no configuration can contain it."""
    return f"\x07{name}\x07"


class Template:
    """An encoded message with slots."""

    __slots__ = ("_parts",)

    def __init__(self, parts: "tuple[bytes | str | tuple[bytes, Self], ...]") -> None:
        self._parts = parts

    @classmethod
    def compile(cls, encoded: bytes) -> Self:
        """Template of a message whose slots are whole string fields."""
        parts: list[bytes | str | tuple[bytes, Self]] = []
        literal = start = 0
        while start < len(encoded):
            key, payload_start, end = _field_at(encoded, start)
            payload = encoded[payload_start:end]
            if key & 7 == _LENGTH_DELIMITED and b"\x07" in payload:
                tag = varint(key)
                if payload[0] == 7 and payload[-1] == 7 and payload.count(b"\x07") == 2:
                    parts += [encoded[literal:start] + tag, payload[1:-1].decode()]
                    literal = end
                elif _has_slot(payload):
                    parts += [encoded[literal:start], (tag, cls.compile(payload))]
                    literal = end
            start = end
        parts.append(encoded[literal:])
        return cls(tuple(part for part in parts if part != b""))

    def fill(self, values: Mapping[str, str]) -> bytes:
        """The message with every slot replaced."""
        out = bytearray()
        for part in self._parts:
            if isinstance(part, bytes):
                out += part
            elif isinstance(part, str):
                text = values[part].encode()
                out += varint(len(text)) + text
            else:
                tag, inner = part
                body = inner.fill(values)
                out += tag + varint(len(body)) + body
        return bytes(out)


def _has_slot(payload: bytes) -> bool:
    """Whether a slot's text is inside; a lone byte 7 is an ordinary number or length."""
    start = payload.find(b"\x07")
    while start >= 0:
        end = payload.find(b"\x07", start + 1)
        if end < 0:
            return False
        if payload[start + 1 : end].isalnum() and payload[start + 1 : start + 2].isalpha():
            return True
        start = end
    return False


def _field_at(encoded: bytes, start: int) -> tuple[int, int, int]:
    """Key of the field at ``start``, and where its payload starts and ends."""
    key, position = _read_varint(encoded, start)
    kind = key & 7
    if kind == _LENGTH_DELIMITED:
        length, position = _read_varint(encoded, position)
        return key, position, position + length
    if kind in _FIXED_BYTES:
        return key, position, position + _FIXED_BYTES[kind]
    _, end = _read_varint(encoded, position)
    return key, position, end


def _read_varint(encoded: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = encoded[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
