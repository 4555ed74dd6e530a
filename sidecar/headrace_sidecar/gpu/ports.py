"""The file that says which ports a program took; its existence means that they listen."""

import json
from collections.abc import Mapping
from pathlib import Path


def announce(path: Path, ports: Mapping[str, int | str]) -> None:
    """Write the file in one step."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(json.dumps(ports, indent=1, sort_keys=True) + "\n")
    fresh.replace(path)
