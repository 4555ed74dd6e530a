"""Processor time and memory of processes, out of /proc."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: Iterable[int]) -> float:
    """Processor time that these processes have used, in seconds."""
    return sum(map(_cpu_s, pids))


def by_program(trees: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """Process ids by what runs: the first of each tree by the tree's name, the rest by their own.

    ``trees`` are a process and everything below it, by name.
    """
    found: dict[str, list[int]] = {}
    for tree, pids in trees.items():
        for position, pid in enumerate(pids):
            found.setdefault(_command(pid) if position else tree, []).append(pid)
    return found


def rss_bytes(pid: int) -> int:
    """Memory of a process that is resident."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Used:
    """Processor time between two moments."""

    cpu_s: float = 0.0


@contextmanager
def measured(pids: Iterable[int]) -> Iterator[Used]:
    """Processor time that these processes use while the block runs."""
    kept = list(pids)
    used = Used()
    before = cpu_s(kept)
    yield used
    used.cpu_s = cpu_s(kept) - before


def _command(pid: int) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return "ended"


def _cpu_s(pid: int) -> float:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        text = Path(f"/proc/{pid}/stat").read_text()
        fields = text[text.rindex(")") + 2 :].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS
    return 0.0
