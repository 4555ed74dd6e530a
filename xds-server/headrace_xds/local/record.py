"""What runs of a local mesh, on disk: so that another command finds it, stops it or adopts it."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from headrace_xds.local.identity import Identity, alive
from headrace_xds.local.plan import RECORD_FILE, write_whole


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One program: the process that runs it, or how its last one ended."""

    process: Identity | None = None
    starts: int = 0
    short_lives: int = 0
    """Ended lives in a row that were too short to count as settled."""
    exit: str = ""
    """How the last life ended, such as ``exit 1`` or ``signal 9``; empty before the first end."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was started from one state directory."""

    supervisor: Identity | None = None
    runtime_dir: str = ""
    programs: Mapping[str, Life] = {}

    @property
    def supervised(self) -> bool:
        """Whether somebody restarts what ends."""
        return self.supervisor is not None and alive(self.supervisor)

    def running(self) -> dict[str, Identity]:
        """Programs whose process is alive now."""
        return {
            name: life.process
            for name, life in self.programs.items()
            if life.process is not None and alive(life.process)
        }


def read(state_dir: Path) -> Record:
    """The record of a state directory; an empty one when nothing was started from it."""
    try:
        return msgspec.json.decode((state_dir / RECORD_FILE).read_bytes(), type=Record)
    except (FileNotFoundError, msgspec.DecodeError):
        return Record()


def write(state_dir: Path, record: Record) -> None:
    """Keep the record."""
    write_whole(state_dir / RECORD_FILE, msgspec.json.format(msgspec.json.encode(record), indent=1))
