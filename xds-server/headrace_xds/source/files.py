"""A folder of YAML files as a source of configuration.

The folder is read whole and compared by content, so renames, touched files and the symlink swap of
a mounted ConfigMap cause nothing by themselves. A change is handed over only once two readings a
moment apart agree: a file that is still being written is not read as an error.
"""

import asyncio
import hashlib
import itertools
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace import limits

SETTLE_S: Final = 0.05
"""Two readings so far apart must agree."""
SETTLE_LIMIT_S: Final = 0.5
"""A folder that never rests is taken as it is after so long."""
POLL_S: Final = 0.1
"""How often the folder is looked at. Polling works on every file system, notification does not."""
READ_EVERY: Final = 20
"""Looks after which files are read though nothing seems to have changed: times are coarse."""
EXTENSIONS: Final = frozenset({".yaml", ".yml"})


@dataclass(frozen=True)
class Folder:
    """One reading: text by file name, and what could not be read."""

    files: Mapping[str, str]
    unreadable: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Content hash of everything that was read."""
        digest = hashlib.blake2b(digest_size=8)
        for name, text in sorted(self.files.items()):
            digest.update(f"{name}\0{len(text)}\0".encode())
            digest.update(text.encode())
        for reason in self.unreadable:
            digest.update(b"\1" + reason.encode())
        return digest.hexdigest()


def read_folder(path: Path) -> Folder:
    """Read every YAML file of a folder; problems become ``unreadable``, never exceptions."""
    try:
        found = sorted(
            entry
            for entry in path.iterdir()
            if entry.suffix in EXTENSIONS and not entry.name.startswith(".") and entry.is_file()
        )
    except OSError as error:
        return Folder({}, (f"{path.name}: {error.strerror}",))
    files: dict[str, str] = {}
    unreadable: list[str] = []
    if len(found) > limits.CONFIG_FILES:
        unreadable.append(f"{len(found)} files, at most {limits.CONFIG_FILES} are read")
    for entry in found[: limits.CONFIG_FILES]:
        try:
            files[entry.name] = _read_text(entry)
        except (OSError, ValueError) as error:
            unreadable.append(f"{entry.name}: {error}")
    return Folder(files, tuple(unreadable))


def _read_text(path: Path) -> str:
    """Text of a file, at most one byte over the limit so that the loader refuses it by name."""
    with path.open("rb") as stream:
        data = stream.read(limits.CONFIG_FILE_BYTES + 1)
    if len(data) > limits.CONFIG_FILE_BYTES:
        raise ValueError(f"larger than {limits.CONFIG_FILE_BYTES} bytes; split it")
    return data.decode()


async def changes(path: Path, known: Callable[[], Folder]) -> AsyncGenerator[Folder, None]:
    """Readings of the folder that differ from what is known then; runs until cancelled.

    What is known may change by other ways than these readings: a folder that goes back to what it
    was before such a change has changed, too.
    """
    seen: object = None
    for look in itertools.count():
        marks = await asyncio.to_thread(_marks, path)
        if marks != seen or look % READ_EVERY == 0:
            seen = marks
            folder = await settled(path)
            if folder.fingerprint != known().fingerprint:
                yield folder
        await asyncio.sleep(POLL_S)


async def settled(path: Path) -> Folder:
    """Read the folder until two readings SETTLE_S apart agree, or SETTLE_LIMIT_S have passed."""
    before = await asyncio.to_thread(read_folder, path)
    for _ in range(int(SETTLE_LIMIT_S / SETTLE_S)):
        await asyncio.sleep(SETTLE_S)
        after = await asyncio.to_thread(read_folder, path)
        if after.fingerprint == before.fingerprint:
            break
        before = after
    return before


def _marks(path: Path) -> object:
    """What changes whenever a file of the folder may have changed; cheap to take."""
    try:
        with os.scandir(path) as entries:
            return sorted(_mark(entry) for entry in entries)
    except OSError as error:
        return error.errno


def _mark(entry: os.DirEntry[str]) -> tuple[str, int, int, int]:
    try:
        stat = entry.stat()
    except OSError:
        return entry.name, 0, 0, 0
    return entry.name, stat.st_ino, stat.st_mtime_ns, stat.st_size


def write_file(path: Path, text: str) -> None:
    """Replace a file in one step, so that no reader ever sees half of it."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)
