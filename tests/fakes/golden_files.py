"""Expected outputs as files: compared, or with ``pytest --golden=update`` written anew.

A test takes the fixture ``golden`` and gives it everything that it expects in a folder::

    def test_configuration_becomes_this(golden: Golden) -> None:
        golden.check(OUT, "*.ir.yaml", {"mesh.ir.yaml": ...})

One pattern belongs to one test. A file that matches the pattern and is expected by nobody is an
orphan: it fails the test, and an update deletes it.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

UPDATE: Final = "--golden=update"
_SHOWN: Final = 80
"""Lines of a difference that are printed."""


@dataclass(frozen=True)
class Golden:
    """Compares with files, or writes them."""

    update: bool

    def check(self, folder: Path, pattern: str, expected: Mapping[str, str]) -> None:
        """Compare texts with files of a folder; no other file may match the pattern."""
        if self.update:
            _write(folder, pattern, expected)
            return
        found = {path.name for path in folder.glob(pattern)}
        assert found == expected.keys(), f"read the difference, then run pytest {UPDATE}"
        for name, text in expected.items():
            _compare(folder / name, text)


def _write(folder: Path, pattern: str, expected: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(pattern):
        if path.name not in expected:
            path.unlink()
    for name, text in expected.items():
        (folder / name).write_text(text)


def _compare(path: Path, text: str) -> None:
    golden = path.read_text()
    change = difflib.unified_diff(
        golden.splitlines(), text.splitlines(), path.name, "now", lineterm=""
    )
    assert text == golden, "\n".join([*change][:_SHOWN]) + f"\npytest {UPDATE} accepts it"
