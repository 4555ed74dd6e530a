"""XXH64 against the values that its author publishes and that xxhsum gives."""

import pytest

from headrace.xxh64 import xxh64

PRIME = 2654435761


def sanity(size: int) -> bytes:
    """The bytes of xxHash's own sanity check."""
    value, made = PRIME, bytearray()
    for _ in range(size):
        made.append(value >> 56)
        value = value * 11400714785074694797 % 2**64
    return bytes(made)


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
        (b"xxhash", 0, 0x32DD38952C4BC720),
        (b"xxhash", 20141025, 0xB559B98D844E0635),
        (sanity(1), 0, 0xE934A84ADB052768),
        (sanity(1), PRIME, 0x5014607643A9B4C3),
        (sanity(14), 0, 0x8282DCC4994E35C8),
        (sanity(222), 0, 0xB641AE8CB691C174),
        (sanity(222), PRIME, 0x20CB8AB7AE10C14A),
    ],
)
def test_published_values(data: bytes, seed: int, expected: int) -> None:
    assert xxh64(data, seed) == expected
