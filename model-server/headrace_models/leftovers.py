"""What a killed predecessor left behind: its tritonserver, stubs, sockets and shared memory.

A predecessor is known by the shared memory prefix on its command line, which follows from the state
directory alone. So nothing has to be written down in time, and an id that the system has given to
somebody else meanwhile is never signalled.
"""

import contextlib
import os
import signal
from pathlib import Path

import msgspec

from headrace_models.layout import Layout

PROC = Path("/proc")
SHM = Path("/dev/shm")  # noqa: S108 - where the kernel keeps POSIX shared memory
_PROGRAMS = frozenset({b"tritonserver", b"triton_python_backend_stub"})


class Record(msgspec.Struct, frozen=True):
    """What a state directory remembers about tritonserver."""

    incarnation: int = 0


def read_record(path: Path) -> Record:
    """The record on disk; an empty one when there is none or it is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (FileNotFoundError, msgspec.DecodeError):
        return Record()


def write_record(path: Path, record: Record) -> None:
    """Replace the record in one step."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(msgspec.json.encode(record))
    fresh.replace(path)


def belongs(command: bytes, prefix: str) -> bool:
    """Whether a command line, as in /proc, is a tritonserver or stub with this memory prefix."""
    program, _, rest = command.partition(b"\0")
    return program.rpartition(b"/")[2] in _PROGRAMS and prefix.encode() in rest


def find(prefix: str, proc: Path = PROC) -> list[int]:
    """Ids of the tritonserver and stubs that use shared memory with this prefix."""
    return [
        int(entry.name)
        for entry in proc.iterdir()
        if entry.name.isdigit() and belongs(_command(entry), prefix)
    ]


def kill(pids: list[int]) -> None:
    """End these processes at once."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def sweep(layout: Layout, shm: Path = SHM) -> int:
    """Remove the socket and shared memory of a tritonserver that is gone; how many files."""
    found = [layout.grpc_socket, *shm.glob(f"{layout.shm_prefix}*")]
    removed = 0
    for path in found:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            removed += 1
    return removed


def _command(entry: Path) -> bytes:
    # A process may end between being listed and being read.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return (entry / "cmdline").read_bytes()
    return b""
