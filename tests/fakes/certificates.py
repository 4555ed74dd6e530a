"""Self-signed certificates, made here: tests need pairs that fit and pairs that do not.

The curve's arithmetic is that of textbooks, slow and open to whoever measures it; what it signs is
worth nothing.
"""

import base64
import hashlib
import secrets
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_P: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G: Final = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_EC: Final = bytes.fromhex("06072a8648ce3d0201")
_P256: Final = bytes.fromhex("06082a8648ce3d030107")
_ECDSA_SHA256: Final = bytes.fromhex("300a06082a8648ce3d040302")
_COMMON_NAME: Final = bytes.fromhex("0603550403")
_BASIC_CONSTRAINTS: Final = bytes.fromhex("0603551d13")
_ALT_NAMES: Final = bytes.fromhex("0603551d11")

Point = tuple[int, int] | None


@dataclass(frozen=True)
class Pair:
    """A certificate that signed itself and its key, as PEM."""

    certificate: bytes
    key: bytes

    def put(self, folder: Path, *, ca: bytes = b"") -> None:
        """Write it as a mounted Kubernetes TLS secret: all files change in one step."""
        content = folder / f"..{secrets.token_hex(4)}"
        content.mkdir(parents=True)
        (content / "tls.crt").write_bytes(self.certificate)
        (content / "tls.key").write_bytes(self.key)
        if ca:
            (content / "ca.crt").write_bytes(ca)
        swap(folder, content.name)


def swap(folder: Path, content: str) -> None:
    """Let a folder show another of the folders inside it."""
    fresh = folder / "..fresh"
    fresh.symlink_to(content)
    fresh.replace(folder / "..data")
    for name in ("tls.crt", "tls.key", "ca.crt"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


@cache
def pair(name: str = "localhost") -> Pair:
    """A pair of a name; the same one for the same name."""
    private = secrets.randbelow(_N - 1) + 1
    public = _point(_times(private, _G))
    key = _tlv(
        0x30,
        _integer(1),
        _tlv(0x04, private.to_bytes(32, "big")),
        _tlv(0xA0, _P256),
        _tlv(0xA1, _tlv(0x03, b"\0" + public)),
    )
    subject = _tlv(0x30, _tlv(0x31, _tlv(0x30, _COMMON_NAME, _tlv(0x0C, name.encode()))))
    unsigned = _tlv(
        0x30,
        _tlv(0xA0, _integer(2)),
        _integer(secrets.randbits(64)),
        _ECDSA_SHA256,
        subject,
        _tlv(0x30, _tlv(0x17, b"200101000000Z"), _tlv(0x17, b"491231235959Z")),
        subject,
        _tlv(0x30, _tlv(0x30, _EC, _P256), _tlv(0x03, b"\0" + public)),
        _tlv(0xA3, _tlv(0x30, _extension(_BASIC_CONSTRAINTS, _tlv(0x30, b"\1\1\xff")), _names())),
    )
    signed = _tlv(0x30, unsigned, _ECDSA_SHA256, _tlv(0x03, b"\0" + _sign(private, unsigned)))
    return Pair(_pem("CERTIFICATE", signed), _pem("EC PRIVATE KEY", key))


def _names() -> bytes:
    return _extension(_ALT_NAMES, _tlv(0x30, _tlv(0x82, b"localhost"), b"\x87\4\x7f\0\0\1"))


def _extension(name: bytes, value: bytes) -> bytes:
    return _tlv(0x30, name, _tlv(0x04, value))


def _tlv(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    size = len(body)
    if size < 0x80:
        return bytes([tag, size]) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + body


def _integer(number: int) -> bytes:
    return _tlv(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _pem(kind: str, der: bytes) -> bytes:
    text = base64.encodebytes(der).decode().replace("\n", "")
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""]).encode()


def _sign(private: int, message: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    nonce = secrets.randbelow(_N - 1) + 1
    at = _times(nonce, _G)
    assert at is not None
    r = at[0] % _N
    s = pow(nonce, -1, _N) * (digest + r * private) % _N
    return _tlv(0x30, _integer(r), _integer(s))


def _point(at: Point) -> bytes:
    assert at is not None
    return b"\4" + at[0].to_bytes(32, "big") + at[1].to_bytes(32, "big")


def _times(factor: int, at: Point) -> Point:
    total: Point = None
    while factor:
        if factor & 1:
            total = _plus(total, at)
        at = _plus(at, at)
        factor >>= 1
    return total


def _plus(one: Point, other: Point) -> Point:
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % _P == 0:
        return None
    slope = (
        (3 * x1 * x1 - 3) * pow(2 * y1, -1, _P)
        if one == other
        else (y2 - y1) * pow(x2 - x1, -1, _P)
    )
    x = (slope * slope - x1 - x2) % _P
    return x, (slope * (x1 - x) - y1) % _P
