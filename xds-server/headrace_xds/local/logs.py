"""Logs of the programs: written by them without a reader in between, and bounded from outside.

A program writes to its file directly, so it lives on when whoever started it is gone. Files are
opened for appending: after a cut, the program's next line lands at the new end.
"""

import contextlib
import os
import shutil
from pathlib import Path

from headrace import limits


def open_log(path: Path) -> int:
    """Descriptor of a log, opened for appending; the caller closes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def bound(path: Path) -> bool:
    """Begin a log anew when it has grown to its limit, keeping one older part; whether it was."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size >= limits.LOCAL_LOG_BYTES:
            shutil.copyfile(path, path.with_name(f"{path.name}.1"))
            os.truncate(path, 0)
            return True
    return False


def tail(path: Path, *, lines: int) -> str:
    """Last lines of a log, at most 16 KiB of them; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16 * 1024))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
