"""Expected outputs as files. ``HEADRACE_UPDATE_GOLDEN=1`` rewrites them and deletes orphans."""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

UPDATE = "HEADRACE_UPDATE_GOLDEN"


def check(folder: Path, pattern: str, expected: Mapping[str, str]) -> None:
    """Compare texts with files of a folder; no other file may match the pattern."""
    update = os.environ.get(UPDATE) == "1"
    found = {path.name for path in folder.glob(pattern)}
    if update:
        folder.mkdir(exist_ok=True)
        for name in found - expected.keys():
            (folder / name).unlink()
        for name, text in expected.items():
            (folder / name).write_text(text)
        return
    assert found == expected.keys(), f"run with {UPDATE}=1 after reading the difference"
    for name, text in expected.items():
        golden = (folder / name).read_text()
        change = difflib.unified_diff(
            golden.splitlines(), text.splitlines(), name, "now", lineterm=""
        )
        assert text == golden, "\n".join([*change][:80]) + f"\n{UPDATE}=1 accepts it"
