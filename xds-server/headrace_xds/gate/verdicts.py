"""What the gate has let through, so that nothing is checked twice; kept over restarts.

A file of digests, replaced in one step. It belongs to one build of Envoy: with another binary, or
when the file cannot be read, everything is checked again, which costs time and nothing else.
"""

import hashlib
import logging
import os
from collections import OrderedDict
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from headrace import limits
from headrace_xds.translate.resources import Resource

DIGEST_BYTES: Final = 8
Key = tuple[str, str, str]
"""Type URL, name and version of a resource."""

log = logging.getLogger(__name__)


class Verdicts:
    """Resources that passed; the oldest go first when there are too many."""

    def __init__(self, path: Path, build: bytes) -> None:
        self._path = path
        self._build = build
        self._passed: OrderedDict[Key, None] = OrderedDict()
        self._kept: frozenset[bytes] = frozenset()
        """Digests of what passed before this process started."""

    def __len__(self) -> int:
        """Resources that passed, in this process."""
        return len(self._passed)

    def __contains__(self, resource: Resource) -> bool:
        """Whether a resource passed."""
        key = resource.key
        # A digest takes ten times as long as this look-up, and there are thousands of resources.
        return key in self._passed or (bool(self._kept) and _digest(key) in self._kept)

    def add(self, passed: Iterable[Resource]) -> None:
        """Remember that resources passed."""
        for resource in passed:
            self._passed[resource.key] = None
            self._passed.move_to_end(resource.key)
        while len(self._passed) > limits.GATE_VERDICTS:
            self._passed.popitem(last=False)

    def load(self) -> None:
        """Read what was kept; nothing where there is nothing of this build."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("%s cannot be read (%s): everything is checked again", self._path, error)
            return
        if data[: len(self._build)] == self._build:
            body = data[len(self._build) :]
            places = range(0, min(len(body), limits.GATE_VERDICTS * DIGEST_BYTES), DIGEST_BYTES)
            self._kept = frozenset(body[at : at + DIGEST_BYTES] for at in places)

    def keep(self, resources: Collection[Resource]) -> None:
        """Keep on disk that these passed, where the disk lets us; nothing else is kept."""
        partial = self._path.with_name(f".{self._path.name}.partial")
        keys = (resource.key for resource in resources)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(self._build + b"".join(map(_digest, keys)))
            partial.replace(self._path)
        except OSError as error:
            log.warning("%s cannot be written (%s): a restart checks again", self._path, error)


def _digest(key: Key) -> bytes:
    return hashlib.blake2b("\0".join(key).encode(), digest_size=DIGEST_BYTES).digest()


def build_of(binary: Path) -> bytes:
    """What tells one Envoy from another: where it lies, its size and the time it was written."""
    stat = os.stat(binary)
    key = f"{binary.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}"
    return hashlib.blake2b(key.encode(), digest_size=16).digest()
