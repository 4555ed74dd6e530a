"""``Records``: which versions were ready, on disk, so that a restarted sidecar takes them up again.

One JSON file, replaced in one step. A file that cannot be read costs a reload of every version,
nothing worse, so it is put aside and the node starts empty.
"""

import logging
from pathlib import Path
from typing import Final

import msgspec

from headrace.assignment import Assignment

_FILE: Final = "assignments.json"

log = logging.getLogger(__name__)


class Record(msgspec.Struct, frozen=True):
    """A version that was acknowledged, under the version of its resource."""

    resource_version: str
    assignment: Assignment


class Records:
    """Acknowledged versions by resource name."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / _FILE
        self._records = self._read()

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Records({self._path}: {sorted(self._records)})"

    @property
    def all(self) -> dict[str, Record]:
        """Every record by name."""
        return dict(self._records)

    def keep(self, record: Record) -> None:
        """Note that a version is ready."""
        name = record.assignment.name
        if self._records.get(name) != record:
            self._records[name] = record
            self._write()

    def drop(self, name: str) -> None:
        """Forget a version."""
        if self._records.pop(name, None) is not None:
            self._write()

    def _read(self) -> dict[str, Record]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Record])
        except FileNotFoundError:
            return {}
        except msgspec.DecodeError as error:
            aside = self._path.with_suffix(".unreadable")
            self._path.replace(aside)
            log.warning("%s cannot be read (%s); it is now %s", self._path, error, aside)
            return {}

    def _write(self) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(self._records), indent=1))
        fresh.replace(self._path)
