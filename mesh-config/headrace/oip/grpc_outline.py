"""The outline of an inference message: what is in it by tags and lengths, before it is decoded.

Decoding makes an object of every field, and a message of 10 MB has room for millions. So a large
message is looked at first, and what would take long to decode is told apart from plain tensors.
"""

from typing import Final, NamedTuple

from headrace import limits
from headrace.oip.tensors import invalid

_NAME: Final = 1
_VERSION: Final = 2
_RAW: Final = 7
_VARINT: Final = 0
_EIGHT_BYTES: Final = 1
_COUNTED: Final = 2
_FOUR_BYTES: Final = 5
_VARINT_BYTES: Final = 10
_TAG_MIN: Final = 8
"""No field has the number 0."""
_TAG_MAX: Final = 2**32


class Outline(NamedTuple):
    """Model and version, and how many bytes are not raw tensors."""

    model: str
    version: str
    structured_bytes: int


def outline(message: bytes) -> Outline:
    """Outline of an encoded ModelInferRequest; Refused where it has no end, or too many fields."""
    model, version, structured_bytes = _walk(message)
    return Outline(_text(model), _text(version), structured_bytes)


def named(message: bytes) -> tuple[bytes, bytes]:
    """Fields 1 and 2 of a message, model and version, whatever bytes they are; Refused like it."""
    model, version, _ = _walk(message)
    return model, version


def _walk(message: bytes) -> tuple[bytes, bytes, int]:
    names = {_NAME: b"", _VERSION: b""}
    raw_bytes = 0
    at, end = 0, len(message)
    for _ in range(limits.GRPC_FIELDS):
        if at == end:
            return names[_NAME], names[_VERSION], end - raw_bytes
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        start, at = _span(message, at, kind)
        if at > end or not _TAG_MIN <= tag < _TAG_MAX:
            raise _malformed()
        if kind == _COUNTED:
            if number in names:
                # One character more than the longest name, so that a longer one is seen to be none.
                names[number] = message[start : min(at, start + limits.MODEL_NAME_LENGTH + 1)]
            elif number == _RAW:
                raw_bytes += at - start
    if at == end:
        return names[_NAME], names[_VERSION], end - raw_bytes
    raise invalid("", f"the message has more than {limits.GRPC_FIELDS} fields")


def _span(message: bytes, at: int, kind: int) -> tuple[int, int]:
    """Where the value of a field begins and ends."""
    match kind:
        case 0:
            return at, _varint(message, at)[1]
        case 1:
            return at, at + 8
        case 2:
            size, start = _varint(message, at)
            return start, start + size
        case 5:
            return at, at + 4
        case _:
            raise _malformed()


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Number at a position, and the position after it."""
    number = 0
    for shift, byte in enumerate(message[at : at + _VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return number, at + shift + 1
    raise _malformed()


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise _malformed() from None


def _malformed() -> Exception:
    return invalid("", "the message cannot be decoded")
