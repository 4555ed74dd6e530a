"""Free ports, and the file that tells others which sockets a program has taken."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path


def free_port() -> int:
    """A loopback port that is free now. Another program may take it first: then try again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def announce(path: Path, taken: Mapping[str, str | int]) -> None:
    """Write the file in one step; it exists only while everything in it listens."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(json.dumps(taken, indent=1, sort_keys=True) + "\n")
    fresh.replace(path)
