"""A folder of YAML files as a source of configuration.

The folder is read whole and compared by content, so renames, touched files and the symlink swap of
a mounted ConfigMap cause nothing by themselves.
"""

import contextlib
import os
import pwd
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from headrace import limits
from headrace_xds.source.polling import follow

READ_EVERY: Final = 20
"""Looks after which files are read though nothing seems to have changed: times are coarse."""
EXTENSIONS: Final = frozenset({".yaml", ".yml"})


@dataclass(frozen=True)
class Folder:
    """One reading: text by file name, and what could not be read."""

    files: Mapping[str, str]
    unreadable: tuple[str, ...] = ()


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


def changes(path: Path, known: Callable[[], Folder]) -> AsyncGenerator[Folder, None]:
    """Readings of the folder that differ from what is known then; runs until cancelled.

    What is known may change by other ways than these readings: a folder that goes back to what it
    was before such a change has changed, too.
    """
    return follow(
        partial(read_folder, path), marks=partial(_marks, path), known=known, read_every=READ_EVERY
    )


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


def owner(path: Path, names: Iterable[str]) -> str:
    """Who owns the newest of these files; "" where nobody can say, as for files that are gone."""
    found = []
    for name in names:
        with contextlib.suppress(OSError):
            found.append((path / name).stat())
    if not found:
        return ""
    number = max(found, key=lambda stat: stat.st_mtime_ns).st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def write_file(path: Path, text: str) -> None:
    """Replace a file in one step, so that no reader ever sees half of it."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)
