"""What is wrong with a JSON body that a decoder would not say: too deep, or a key twice.

Both checks run on the whole body before it is decoded, at the speed of ``bytes`` methods: a
body of 10 MB must not stall the requests beside it.
"""

import itertools
import json
from array import array
from typing import Final

from headrace import limits
from headrace.refusals import Refusal, Refused

_COLLAPSES: Final = 8
"""Levels taken off from the inside by replacing, before the rest is walked from the outside."""

_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")
"""An opening bracket goes one level down, a closing one up: 255 is -1 in a signed byte."""
_KEPT: Final = b'[]{}"'
_DROPPED: Final = bytes(byte for byte in range(256) if byte not in _KEPT)


def bad_json(message: str) -> Refused:
    """Refusal of a body that is not acceptable as JSON."""
    return Refused(Refusal.INVALID_JSON, f"the body is not acceptable JSON: {message}", where="$")


def without_escapes(body: bytes) -> bytes:
    """The body with every quote that ends no string removed."""
    if b"\\" not in body:
        return body
    return body.replace(b"\\\\", b"").replace(b'\\"', b"")


def check_depth(body: bytes) -> None:
    """Refuse JSON nested deeper than JSON_DEPTH."""
    if body.count(b"[") + body.count(b"{") <= limits.JSON_DEPTH:
        return
    marks = without_escapes(body).translate(None, _DROPPED)
    # Between two quotes is a string: every second part is outside of strings.
    brackets = b"".join(marks.split(b'"')[::2]).replace(b"{", b"[").replace(b"}", b"]")
    removed = 0
    while brackets and removed < _COLLAPSES:
        brackets = brackets.replace(b"[]", b"")
        removed += 1
    depths = itertools.accumulate(array("b", brackets.translate(_STEPS)))
    if max(depths, default=0) + removed > limits.JSON_DEPTH:
        raise bad_json(f"nested deeper than {limits.JSON_DEPTH}")


def count_strings(body: bytes) -> int:
    """Strings in JSON that was found valid, keys included."""
    return without_escapes(body).count(b'"') // 2


def check_keys(body: bytes, expected_strings: int) -> None:
    """Refuse an object that has a key twice.

    ``expected_strings`` is how many strings the decoded value accounts for. A decoder drops what
    is doubled or unknown, so when the body holds no more strings than that, nothing was dropped
    and the body need not be read again.
    """
    if count_strings(body) == expected_strings:
        return
    try:
        json.loads(body, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise bad_json("it cannot be read twice the same way") from error


def _unique(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise bad_json(f"key {key[:64]!r} is given twice in one object")
        seen.add(key)
