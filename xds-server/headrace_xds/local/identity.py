"""Which process is meant: its id and when it started, so that no reused id is ever signalled."""

import contextlib
import os
import select
import signal
import time
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_START_TICKS = 19
"""Position of the start time in ``/proc/<pid>/stat``, counted after the command's bracket."""
_STATE = 0
_PARENT = 1


class Identity(msgspec.Struct, frozen=True):
    """One process that was started: its id, and when, in ticks since the machine's boot."""

    pid: int
    started: int


def _stat(pid: int) -> list[str]:
    # The command in the second field may hold spaces and brackets: what counts follows the last.
    text = (_PROC / str(pid) / "stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def identify(pid: int) -> Identity | None:
    """The process with this id; None when there is none, or only one waiting to be reaped."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        fields = _stat(pid)
        if fields[_STATE] not in "ZX":
            return Identity(pid, int(fields[_START_TICKS]))
    return None


def of_child(pid: int) -> Identity:
    """A child that has not been reaped yet, running or ended."""
    return Identity(pid, int(_stat(pid)[_START_TICKS]))


def alive(process: Identity) -> bool:
    """Whether this very process still runs."""
    return identify(process.pid) == process


def send(process: Identity, number: signal.Signals) -> bool:
    """Signal a process; False when it is gone."""
    if not alive(process):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)
        return True
    return False


def kill_group(process: Identity) -> None:
    """End the process group that this process leads or led, at once.

    A leader that died leaves its group's id in use while any member lives, so it cannot have been
    given to a stranger; a group with no member is not there to be signalled.
    """
    current = identify(process.pid)
    if current is not None and current != process:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def wait_gone(process: Identity, *, within_s: float) -> bool:
    """Wait until a process, a child or not, has ended; False when it has not in time."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        if not alive(process):
            return True
        return bool(select.select([descriptor], [], [], max(0.0, within_s))[0])
    finally:
        os.close(descriptor)


def descendants(pid: int) -> list[int]:
    """Ids of the children of a process and of theirs, as far as they run now."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children.setdefault(int(_stat(int(entry.name))[_PARENT]), []).append(
                    int(entry.name)
                )
    found: list[int] = []
    waiting = list(children.get(pid, ()))
    while waiting:
        child = waiting.pop()
        found.append(child)
        waiting.extend(children.get(child, ()))
    return sorted(found)


def age_s(process: Identity) -> float:
    """Seconds since a process started."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    return max(0.0, now - process.started / os.sysconf("SC_CLK_TCK"))
