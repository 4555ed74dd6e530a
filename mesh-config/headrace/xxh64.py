"""XXH64, the hash by which Envoy keeps a caller on one side of a split."""

from typing import Final

_MASK: Final = 2**64 - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_STRIPE: Final = 32


def xxh64(data: bytes, seed: int = 0) -> int:
    """64-bit hash of some bytes."""
    total, at = len(data), 0
    if total >= _STRIPE:
        value, at = _stripes(data, seed)
    else:
        value = seed + _P5
    return _avalanche(_rest(data, at, value + total & _MASK))


def _stripes(data: bytes, seed: int) -> tuple[int, int]:
    """Hash of all whole stripes, and where they end."""
    lanes = [seed + _P1 + _P2 & _MASK, seed + _P2 & _MASK, seed & _MASK, seed - _P1 & _MASK]
    at = 0
    while at + _STRIPE <= len(data):
        for lane in range(4):
            lanes[lane] = _round(lanes[lane], _word(data, at + 8 * lane, 8))
        at += _STRIPE
    value = sum(_left(lanes[lane], (1, 7, 12, 18)[lane]) for lane in range(4)) & _MASK
    for lane in lanes:
        value = (value ^ _round(0, lane)) * _P1 + _P4 & _MASK
    return value, at


def _rest(data: bytes, at: int, value: int) -> int:
    """The last, incomplete stripe mixed into a hash."""
    while at + 8 <= len(data):
        value = _left(value ^ _round(0, _word(data, at, 8)), 27) * _P1 + _P4 & _MASK
        at += 8
    if at + 4 <= len(data):
        value = _left(value ^ (_word(data, at, 4) * _P1 & _MASK), 23) * _P2 + _P3 & _MASK
        at += 4
    for byte in data[at:]:
        value = _left(value ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    return value


def _avalanche(value: int) -> int:
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32


def _round(lane: int, word: int) -> int:
    return _left(lane + word * _P2 & _MASK, 31) * _P1 & _MASK


def _left(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _word(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
