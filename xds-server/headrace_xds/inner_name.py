"""The name a resource carries inside. Envoy accepts any other outside, and then mixes them up."""

from headrace_xds.translate.resources import Resource
from headrace_xds.typepolicy import NAMED_BY_FIELD_1

_LENGTH_DELIMITED = 2
_FIXED_BYTES = {1: 8, 5: 4}


def check(name: str, resource: Resource) -> None:
    """Raise ``ValueError`` when a resource is not what its name and type say (R13)."""
    inside = read(resource.body) if resource.type_url in NAMED_BY_FIELD_1 else name
    if not name == resource.name == inside:
        raise ValueError(
            f"{resource.type_url} published as {name!r} is called {resource.name!r} "
            f"and carries the name {inside!r}: all three must be equal"
        )


def read(body: bytes) -> str:
    """Text in field 1 of a protobuf message; ``ValueError`` when it is no such message."""
    try:
        return _read(body)
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"not a protobuf message with a name: {error!r}") from error


def _read(body: bytes) -> str:
    found = b""
    at = 0
    while at < len(body):
        key, at = _varint(body, at)
        wire_type = key & 7
        if wire_type == _LENGTH_DELIMITED:
            size, at = _varint(body, at)
            if key >> 3 == 1:
                # A field that is there twice counts by its last value, as in every parser.
                found = body[at : at + size]
            at += size
        elif wire_type == 0:
            _, at = _varint(body, at)
        else:
            at += _FIXED_BYTES[wire_type]
    return found.decode()


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
