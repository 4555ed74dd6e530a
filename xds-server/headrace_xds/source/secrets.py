"""A folder of secrets, each a folder in the shape of a mounted Kubernetes TLS secret.

``NAME/tls.crt`` and ``NAME/tls.key``, or ``NAME/ca.crt``, or all three. A secret is looked at whole
and judged by exactly the bytes that were read: a certificate without its own key is never handed
over. What is read is kept in memory and shown nowhere.
"""

import os
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from headrace import limits
from headrace_xds.source.polling import follow

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
CA: Final = "ca.crt"
_STRENGTH: Final = "DEFAULT@SECLEVEL=2"
"""Refuses what gateways would refuse too: RSA keys below 2,048 bits."""


class UnusableSecretError(Exception):
    """What a folder holds cannot be used; the message says why and shows none of it."""


@dataclass(frozen=True, slots=True)
class Material:
    """The content of a secret that can be used."""

    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    ca: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Reading:
    """Every secret of a folder at one moment, and why some cannot be used."""

    usable: Mapping[str, Material]
    troubles: Mapping[str, str] = field(default_factory=dict)


def read_secrets(path: Path) -> Reading:
    """Read every secret below a folder; problems become ``troubles``, never exceptions."""
    usable: dict[str, Material] = {}
    troubles: dict[str, str] = {}
    for folder in _folders(path):
        try:
            usable[folder.name] = _read(folder)
        except UnusableSecretError as error:
            troubles[folder.name] = str(error)
    return Reading(usable, troubles)


def readings(path: Path, known: Callable[[], Reading]) -> AsyncGenerator[Reading, None]:
    """Readings that differ from what is known then; runs until cancelled."""
    return follow(partial(read_secrets, path), marks=partial(_marks, path), known=known)


def _folders(path: Path) -> list[Path]:
    """Folders of secrets; what a mount keeps beside them begins with a dot."""
    try:
        found = sorted(
            entry for entry in path.iterdir() if not entry.name.startswith(".") and entry.is_dir()
        )
    except OSError:
        return []
    return found[: limits.SECRETS]


def _read(folder: Path) -> Material:
    made = Material(
        certificate=_bytes(folder / CERTIFICATE), key=_bytes(folder / KEY), ca=_bytes(folder / CA)
    )
    if not made.certificate and not made.key and not made.ca:
        raise UnusableSecretError(f"its folder has neither {CERTIFICATE} with {KEY} nor {CA}")
    if bool(made.certificate) != bool(made.key):
        there, missing = (CERTIFICATE, KEY) if made.certificate else (KEY, CERTIFICATE)
        raise UnusableSecretError(f"it has {there} and no {missing}")
    if made.certificate:
        _check_pair(made)
    if made.ca:
        _check_ca(made.ca)
    return made


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(limits.SECRET_FILE_BYTES + 1)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UnusableSecretError(f"{path.name} cannot be read: {error.strerror}") from None
    if len(content) > limits.SECRET_FILE_BYTES:
        raise UnusableSecretError(f"{path.name} is larger than {limits.SECRET_FILE_BYTES} bytes")
    return content


def _check_pair(made: Material) -> None:
    """The library takes files only: these are in memory, and hold what was read and no more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(_STRENGTH)
    descriptors: list[int] = []
    try:
        for content in (made.certificate, made.key):
            descriptors.append(os.memfd_create("secret"))
            os.write(descriptors[-1], content)
        chain, key = (f"/proc/self/fd/{number}" for number in descriptors)
        # Without a password of our own, one that is asked for would be asked of a terminal.
        context.load_cert_chain(chain, key, password="")
    except ssl.SSLError as error:
        raise UnusableSecretError(_why(error)) from None
    finally:
        for number in descriptors:
            os.close(number)


def _why(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{KEY} does not belong to {CERTIFICATE}"
    return f"{CERTIFICATE} and {KEY} cannot be used ({error.reason or 'not PEM'})"


def _check_ca(content: bytes) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(
            cadata=content.decode("ascii")
        )
    except (ssl.SSLError, ValueError):
        raise UnusableSecretError(f"{CA} holds no certificate in PEM") from None


def _marks(path: Path) -> object:
    """What changes whenever a file of a secret may have changed; cheap to take."""
    return [
        (folder.name, name, _mark(folder / name))
        for folder in _folders(path)
        for name in (CERTIFICATE, KEY, CA)
    ]


def _mark(path: Path) -> tuple[int, int, int]:
    try:
        stat = path.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
