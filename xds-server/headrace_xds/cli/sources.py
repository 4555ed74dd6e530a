"""What ``-f`` names: a file, a folder, or ``-`` for standard input."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace import limits
from headrace_xds.cli.console import CommandError, Exit
from headrace_xds.source.files import read_folder

STDIN = "-"


def add_files(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Give a command the flag ``-f``; it may be repeated."""
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        required=required,
        metavar="PATH",
        help="a YAML file, a folder of them, or - for standard input; may be repeated",
    )


def read(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Name and text of every file; CommandError for one that cannot be read."""
    return [pair for path in paths for pair in _read_one(path)]


def _read_one(path: str) -> list[tuple[str, str]]:
    if path == STDIN:
        return [("<stdin>", sys.stdin.read(limits.CONFIG_FILE_BYTES + 1))]
    place = Path(path)
    if place.is_dir():
        return _read_dir(place)
    try:
        with place.open("rb") as file:
            return [(path, file.read(limits.CONFIG_FILE_BYTES + 1).decode())]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise CommandError(
            f"cannot read {path}: {reason}",
            remedy="name a YAML file, a folder of them, or -",
            status=Exit.USAGE,
        ) from None


def _read_dir(place: Path) -> list[tuple[str, str]]:
    folder = read_folder(place)
    if folder.unreadable or not folder.files:
        raise CommandError(
            "; ".join(folder.unreadable) or "no YAML file in the folder",
            where=str(place),
            remedy="files must end in .yaml or .yml",
            status=Exit.USAGE,
        )
    return sorted(folder.files.items())
